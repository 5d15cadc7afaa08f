/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank of a comparison of settings: runs blocks of training steps, with real or emulated compute, over the same
 * arrays. A block creates optimizer and strategy, takes its steps, and keeps only its records.
 */
#ifndef TACITI_BENCH_BLOCK_H
#define TACITI_BENCH_BLOCK_H

#include "bench/figures.h"
#include "bench/settings.h"
#include "driver/driver.h"

/* A setting and what is derived from it. */
typedef struct taciti_bench_variant {
    const taciti_bench_setting *setting; /* borrows */
    taciti_compress_options compress;    /* the setting's, but without a warm-up that nobody asked for */
    const taciti_strategy *strategy;
    taciti_profile profile; /* if emulated: in seconds */
    taciti_layout layout;   /* the same offsets in all settings; buckets of this one */
} taciti_bench_variant;

/* Finds profile, layout and strategy of a setting. Returns an error if the profile cannot be read, or if these hosts
 * (NULL: any) cannot have the setting. Not collective. */
tacit_status taciti_bench_variant_create(const taciti_bench_setting *setting, const taciti_hosts *hosts,
                                         taciti_bench_variant *out);
void taciti_bench_variant_destroy(taciti_bench_variant *variant);

/* Returns the context for taciti_strategy.describe(). */
taciti_strategy_context taciti_bench_variant_context(const taciti_bench_variant *variant, taciti_comm *comm);

typedef struct taciti_bench_worker {
    taciti_comm *comm; /* borrows */
    taciti_pool *pool;
    taciti_trace trace;
    size_t batch, time;  /* of this rank, if compute is real */
    taciti_model *model; /* NULL if compute is emulated */
    int32_t *window;     /* batch x time random tokens, plus one */
    /* of the current block */
    const taciti_bench_variant *variant;
    taciti_model_network network; /* the model, if compute is real, ... */
    taciti_emulated *emulated;    /* ... else the accelerator */
    taciti_driver *driver;
} taciti_bench_worker;

/* Creates the model of the base setting if compute is real; blocks create everything else. parts: a setting may hold
 * parts of it. Borrows comm and base. Call the destructor also after an error. Not collective. */
tacit_status taciti_bench_worker_create(taciti_comm *comm, const taciti_bench_variant *base, bool parts, size_t batch,
                                        size_t time, int threads, taciti_bench_worker *out);
void taciti_bench_worker_destroy(taciti_bench_worker *worker);

/* The steps of a block. Jitter and synthetic gradients depend on the step's number, so blocks to be compared have equal
 * numbers. */
typedef struct taciti_bench_span {
    int64_t first;
    size_t warm_up, rounds;
} taciti_bench_span;

/* Runs one block of warm_up + rounds steps; `steps` receives the records of the last `rounds`. Ends the job if one rank
 * fails alone. Collective. */
tacit_status taciti_bench_block_run(taciti_bench_worker *worker, const taciti_bench_variant *variant,
                                    const taciti_bench_span *span, taciti_step_record *steps,
                                    taciti_block_record *block);

#endif
