/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures codecs on one core, on gradient-like data (codec/trial.h), beside a probe that only reads memory. Probe and
 * passes take turns, because the speed of a machine drifts; ratios are taken within a round.
 */
#ifndef TACITI_BENCH_CODECS_H
#define TACITI_BENCH_CODECS_H

#include "bench/statistics.h"
#include "codec/trial.h"

enum { TACITI_CODEC_BENCH_MAX_ROUNDS = 101 };

typedef struct taciti_codec_rate {
    taciti_statistics input_bytes_per_s; /* of f32 */
    taciti_statistics moved_share; /* of all bytes that the pass must read and write, of the rate at which the machine
                                      reads */
} taciti_codec_rate;

/* One codec with one instruction set, in pieces or as one array. */
typedef struct taciti_codec_figure {
    const taciti_codec *codec;
    const char *isa;
    size_t piece_n; /* floats of a piece */
    bool whole;     /* the array is one piece */
    double payload_bytes_per_float;
    double energy_kept;                 /* 1 - |x - decoded|^2 / |x|^2 */
    double kept_share;                  /* of the elements, sent */
    double index_bits, index_entropy;   /* per index, as the best coder stores them, and at least; NaN: no indices */
    taciti_statistics read_bytes_per_s; /* of the probe, in the same rounds */
    taciti_codec_rate rate[TACITI_TRIAL_PASSES];
} taciti_codec_figure;

typedef struct taciti_codec_bench_options {
    const taciti_codec *codec;                                                 /* NULL: all */
    const char *isa;                                                           /* NULL: all that this CPU has */
    const void *(*options_of)(const void *context, const taciti_codec *codec); /* the struct of the codec's options */
    taciti_codec_setting setting;
    size_t n;
    int rounds;
    void (*progress)(const void *context, const char *codec, const char *isa, size_t done, size_t count); /* or NULL */
    const void *context;
} taciti_codec_bench_options;

typedef struct taciti_codec_bench {
    taciti_codec_figure *figures; /* owned */
    size_t count;
} taciti_codec_bench;

/* Bytes of memory that a float of the array needs, without what the codec needs. */
enum { TACITI_CODEC_BENCH_BYTES_PER_FLOAT = 16 };

/* Not collective, main thread; no other thread may compute. Returns owned; writes *out only on success. */
tacit_status taciti_codec_bench_run(const taciti_codec_bench_options *options, taciti_codec_bench *out);
void taciti_codec_bench_destroy(taciti_codec_bench *bench); /* {0} is fine */

/* Bytes of the largest trial. */
double taciti_codec_bench_memory_bytes(const taciti_codec_bench_options *options);

/* "encode_feedback", ... */
extern const char *const taciti_trial_pass_names[TACITI_TRIAL_PASSES];

#endif
