/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures homomorphic sketches on one core: one rank's index and sketch, and mapping and peel of the merged one, for
 * elements that are drawn independently. Beside them the packed values, and a probe that only reads memory.
 */
#ifndef TACITI_BENCH_SKETCH_H
#define TACITI_BENCH_SKETCH_H

#include "bench/statistics.h"
#include "codec/homomorphic.h"

typedef enum taciti_sketch_pass {
    TACITI_SKETCH_INDEX,
    TACITI_SKETCH_ENCODE,
    TACITI_SKETCH_MAP,
    TACITI_SKETCH_PEEL,
    TACITI_SKETCH_DECODE, /* mapping and peel together */
    TACITI_SKETCH_PACK,
    TACITI_SKETCH_UNPACK,
    TACITI_SKETCH_PASSES,
} taciti_sketch_pass;

/* One ring with one instruction set. */
typedef struct taciti_sketch_figure {
    taciti_ring ring;
    const char *isa;
    size_t bytes, rows, zones, pending; /* of the sketch; elements that were not decoded */
    taciti_statistics seconds[TACITI_SKETCH_PASSES];
    taciti_statistics input_bytes_per_s[TACITI_SKETCH_PASSES]; /* of f32 */
    taciti_statistics read_bytes_per_s; /* of the probe over the same array, in the same rounds */
} taciti_sketch_figure;

enum { TACITI_SKETCH_BENCH_FIGURES = 16, TACITI_SKETCH_BENCH_MAX_ROUNDS = 101 };

typedef struct taciti_sketch_bench {
    size_t n, elements; /* floats; nonzero ones, of the union */
    taciti_sketch_figure figures[TACITI_SKETCH_BENCH_FIGURES];
    size_t count;
} taciti_sketch_bench;

/* share: of the elements, in the union. isa NULL: all that this CPU has. Not collective, main thread; no other thread
 * may compute. Writes *out only on success. */
tacit_status taciti_sketch_bench_run(size_t n, double share, const char *isa, int rounds, taciti_sketch_bench *out);

const char *taciti_ring_name(taciti_ring ring);
const char *taciti_sketch_pass_name(taciti_sketch_pass pass);

#endif
