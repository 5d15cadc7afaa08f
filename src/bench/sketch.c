/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/sketch.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "codec/trial.h"
#include "kernel/probe.h"

const char *taciti_ring_name(taciti_ring ring) {
    static const char *const NAMES[TACITI_RINGS] = {"f32", "uint32", "uint16"};
    return NAMES[ring];
}

const char *taciti_sketch_pass_name(taciti_sketch_pass pass) {
    static const char *const NAMES[TACITI_SKETCH_PASSES] = {"index",  "encode", "mapping", "peel",
                                                            "decode", "pack",   "unpack"};
    return NAMES[pass];
}

typedef struct bench {
    taciti_pool *pool;
    taciti_pages memory;
    taciti_sketch sketch;
    float *x, *decoded;
    uint64_t *index;
    void *counters, *workspace, *values;
    size_t pending;
    taciti_sketch_pass pass;
    tacit_status status;
} bench;

/* The places of one block of memory; the largest ring decides. Returns the bytes. */
static size_t place(bench *b, size_t elements) {
    const size_t n = b->sketch.n;
    char *p = b->memory.base;
    size_t at = 0;
#define TAKE(pointer, bytes)                                                                                           \
    do {                                                                                                               \
        if (p != NULL) (pointer) = (void *)(p + at);                                                                   \
        at += taciti_round_up((bytes) + TACITI_ALIGN_BYTES, TACITI_ALIGN_BYTES);                                       \
    } while (0)
    TAKE(b->x, n * sizeof(float));
    TAKE(b->decoded, n * sizeof(float));
    TAKE(b->index, taciti_sketch_index_words(n) * sizeof(uint64_t));
    TAKE(b->counters, taciti_sketch_bytes(&b->sketch));
    TAKE(b->workspace, taciti_sketch_workspace_bytes(&b->sketch));
    TAKE(b->values, taciti_sketch_pack_bytes(&b->sketch, elements));
#undef TAKE
    return at;
}

static void run_pass(void *context, int thread, int threads) {
    bench *b = context;
    const taciti_sketch *s = &b->sketch;
    (void)thread;
    (void)threads;
    b->status = TACIT_OK;
    switch (b->pass) {
    case TACITI_SKETCH_INDEX: taciti_sketch_index(b->x, s->n, b->index); break;
    case TACITI_SKETCH_ENCODE:
        memset(b->counters, 0, taciti_sketch_bytes(s));
        b->status = taciti_sketch_add(s, b->x, b->counters);
        break;
    case TACITI_SKETCH_MAP: b->status = taciti_sketch_map(s, b->index, b->workspace, NULL); break;
    case TACITI_SKETCH_PEEL:
        b->status = taciti_sketch_peel(s, b->counters, b->workspace, NULL, b->decoded, &b->pending);
        break;
    case TACITI_SKETCH_PACK: b->status = taciti_sketch_pack(s, b->index, b->x, b->values); break;
    case TACITI_SKETCH_UNPACK: b->status = taciti_sketch_unpack(s, b->index, b->values, b->decoded); break;
    case TACITI_SKETCH_DECODE:
    case TACITI_SKETCH_PASSES: break;
    }
}

typedef struct samples {
    double read[TACITI_SKETCH_BENCH_MAX_ROUNDS];
    double seconds[TACITI_SKETCH_PASSES][TACITI_SKETCH_BENCH_MAX_ROUNDS];
} samples;

static tacit_status run_round(bench *b, int round, samples *s) {
    taciti_probe_stream stream = {
        .base = b->x, .bytes = b->sketch.n * sizeof(float) & ~(size_t)63, .use = TACITI_PROBE_READ};
    s->read[round] = (double)stream.bytes / taciti_probe_pass(b->pool, &stream, 1);
    for (int pass = 0; pass < TACITI_SKETCH_PASSES; pass++) {
        b->pass = (taciti_sketch_pass)pass;
        s->seconds[pass][round] = taciti_probe_time(b->pool, run_pass, b);
        TACITI_TRY(b->status);
    }
    s->seconds[TACITI_SKETCH_DECODE][round] =
        s->seconds[TACITI_SKETCH_MAP][round] + s->seconds[TACITI_SKETCH_PEEL][round];
    return TACIT_OK;
}

static void summarise(const bench *b, samples *s, int rounds, taciti_sketch_figure *figure) {
    double rate[TACITI_SKETCH_BENCH_MAX_ROUNDS];
    for (int pass = 0; pass < TACITI_SKETCH_PASSES; pass++) {
        for (int r = 0; r < rounds; r++) rate[r] = (double)b->sketch.n * sizeof(float) / s->seconds[pass][r];
        figure->input_bytes_per_s[pass] = taciti_statistics_of(rate, rounds);
        figure->seconds[pass] = taciti_statistics_of(s->seconds[pass], rounds);
    }
    figure->read_bytes_per_s = taciti_statistics_of(s->read, rounds);
    figure->bytes = taciti_sketch_bytes(&b->sketch);
    figure->rows = b->sketch.rows;
    figure->zones = b->sketch.zones;
    figure->pending = b->pending;
}

static double max_of(const float *x, size_t n) {
    float max = 0;
    for (size_t i = 0; i < n; i++) max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
    return (double)max;
}

static tacit_status measure(bench *b, double max_abs, taciti_ring ring, const char *isa, int rounds,
                            taciti_sketch_bench *out) {
    samples s;
    taciti_sketch_figure *figure = &out->figures[out->count];
    *figure = (taciti_sketch_figure){.ring = ring, .isa = isa};
    TACITI_TRY(taciti_sketch_set_ring(&b->sketch, ring, max_abs));
    TACITI_TRY(run_round(b, 0, &s)); /* first touches */
    for (int r = 0; r < rounds; r++) TACITI_TRY(run_round(b, r, &s));
    summarise(b, &s, rounds, figure);
    out->count++;
    return TACIT_OK;
}

static tacit_status measure_all(bench *b, const char *isa, int rounds, taciti_sketch_bench *out) {
    const double max_abs = max_of(b->x, b->sketch.n);
    for (size_t i = 0; taciti_kernels_isa(i) != NULL; i++) {
        const char *name = taciti_kernels_isa(i);
        if (taciti_kernels_named(name) == NULL || (isa != NULL && strcmp(isa, name) != 0)) continue;
        (void)taciti_kernels_switch(name);
        for (int ring = 0; ring < TACITI_RINGS && out->count < TACITI_SKETCH_BENCH_FIGURES; ring++)
            TACITI_TRY(measure(b, max_abs, (taciti_ring)ring, name, rounds, out));
    }
    return TACIT_OK;
}

/* Numbers like those of a gradient, of which each is kept with probability `share`. */
static tacit_status prepare(bench *b, size_t n, double share, taciti_sketch_bench *out) {
    taciti_pages gradient = {0}, index = {0};
    float *x;
    TACITI_TRY(taciti_pool_create(1, 0, &b->pool));
    TACITI_TRY(taciti_pages_create(n * sizeof(float), "the gradient", &gradient));
    tacit_status status = taciti_pages_create(taciti_sketch_index_words(n) * sizeof(uint64_t), "the index", &index);
    if (status != TACIT_OK) goto free_gradient;
    x = gradient.base;
    taciti_gradient_like(1, x, n);
    for (size_t i = 0; i < n; i++) x[i] = taciti_rng_unit(2, i) < share ? x[i] : 0;
    taciti_sketch_index(x, n, index.base);
    out->elements = taciti_sketch_union(index.base, n);
    b->sketch = taciti_sketch_init(n, taciti_sketch_rows(taciti_sketch_measure(index.base, n)), 2, 1);
    status = taciti_pages_create(place(b, out->elements), "the sketch", &b->memory);
    if (status == TACIT_OK) {
        (void)place(b, out->elements);
        memcpy(b->x, x, n * sizeof(float));
    }
    taciti_pages_destroy(&index);
free_gradient:
    taciti_pages_destroy(&gradient);
    return status;
}

tacit_status taciti_sketch_bench_run(size_t n, double share, const char *isa, int rounds, taciti_sketch_bench *out) {
    taciti_sketch_bench result = {.n = n};
    bench b = {0};
    tacit_status status = prepare(&b, n, share, &result);
    if (status == TACIT_OK) status = measure_all(&b, isa, rounds, &result);
    (void)taciti_kernels_switch(NULL);
    taciti_pages_destroy(&b.memory);
    if (b.pool != NULL) taciti_pool_destroy(b.pool);
    if (status == TACIT_OK) *out = result;
    return status;
}
