/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank at work in a comparison of settings: blocks of training steps, real or emulated, over the same arrays. A
 * block makes optimizer and strategy anew, takes its steps, and leaves nothing behind but what it noted.
 */
#ifndef TACITI_BENCH_BLOCK_H
#define TACITI_BENCH_BLOCK_H

#include "bench/figures.h"
#include "bench/settings.h"
#include "driver/driver.h"

/* A setting and what follows from it. */
typedef struct taciti_bench_variant {
    const taciti_bench_setting *setting; /* borrows */
    const taciti_strategy *strategy;
    taciti_profile profile;                         /* when emulated: in seconds */
    taciti_layout layout;                           /* the same places in all settings, cut into this one's buckets */
    const struct taciti_bench_variant *accelerator; /* the first one with the same: its profile is in use */
} taciti_bench_variant;

/* Profile, layout and strategy of a setting. Refuses a profile that cannot be read. Not collective. */
tacit_status taciti_bench_variant_create(const taciti_bench_setting *setting, taciti_bench_variant *out);
void taciti_bench_variant_destroy(taciti_bench_variant *variant);

/* What a strategy may look at before it exists: for its prediction of memory. */
taciti_strategy_context taciti_bench_variant_context(const taciti_bench_variant *variant, taciti_comm *comm);

typedef struct taciti_bench_worker {
    taciti_comm *comm; /* borrows */
    taciti_pool *pool;
    taciti_trace trace;
    size_t batch, time;  /* of this rank, when compute is real */
    taciti_model *model; /* NULL when it is emulated */
    int32_t *window;     /* batch x time random tokens and one more */
    taciti_emulated *emulated;
    const taciti_bench_variant *emulates; /* whose accelerator that is */
    bool gradients_wanted;                /* its steps write gradients */
    /* of the block that runs */
    const taciti_bench_variant *variant;
    taciti_model_network network; /* the model, when compute is real */
    taciti_driver *driver;
} taciti_bench_worker;

/* The model of the base setting when compute is real; everything else is made by the blocks. Borrows comm and base.
 * Call the destructor also after an error. Not collective. */
tacit_status taciti_bench_worker_create(taciti_comm *comm, const taciti_bench_variant *base, size_t batch, size_t time,
                                        int threads, taciti_bench_worker *out);
void taciti_bench_worker_destroy(taciti_bench_worker *worker);

/* Steps after which the variant's strategy exchanges the same again. Makes it and throws it away. Collective. */
tacit_status taciti_bench_variant_period(taciti_bench_worker *worker, const taciti_bench_variant *variant, size_t *out);

/* Which steps a block takes. Their numbers steer jitter and synthetic gradients: blocks that shall meet the same have
 * the same. */
typedef struct taciti_bench_span {
    int64_t first;
    size_t warm_up, rounds;
} taciti_bench_span;

/* One block: warm_up + rounds steps; steps receives the records of the last `rounds`. Collective. A failure of one rank
 * alone ends the job. */
tacit_status taciti_bench_block_run(taciti_bench_worker *worker, const taciti_bench_variant *variant,
                                    const taciti_bench_span *span, taciti_step_record *steps,
                                    taciti_block_record *block);

#endif
