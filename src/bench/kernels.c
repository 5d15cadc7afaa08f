/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/kernels.h"

#include <stdint.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/pool.h"
#include "base/rng.h"
#include "kernel/kernel.h"
#include "kernel/probe.h"

/* Elements per unit of work split: whole pages of every array, and whole rows of a norm. */
enum { GRAIN = 1024, ROW = GRAIN, STREAMS = 6, FLOATS = 5 };
static const double PEAK_SECONDS = 0.05;

/* The same n elements of all arrays. */
typedef struct part {
    const taciti_kernels *kernels;
    float *p, *m, *v, *g, *e;
    taciti_bf16 *h;
    size_t n;
} part;

typedef void bench_part(const part *x);

/* p, m, v, g and one more as for an optimizer, and a bf16 array; kernels with fewer operands use some of them. */
typedef struct work {
    taciti_pages f[FLOATS], h;
    size_t n;
    const taciti_kernels *kernels;
    taciti_pool *pools[2];
    bench_part *part; /* to run */
} work;

static float *floats_of(const work *w, int a) { return w->f[a].base; }
static taciti_bf16 *halves_of(const work *w) { return w->h.base; }

static const taciti_adamw_step ADAMW = {1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, 2.0f, 4.0f, 0.5f, 0, NULL, NULL};
static const taciti_sgd_step SGD = {1e-4f, 0.9f, 0.1f, 0.5f, 0, NULL};

static void part_add(const part *x) { x->kernels->add(x->p, x->g, x->n); }
static void part_encode(const part *x) { x->kernels->bf16_encode(x->h, x->g, x->n); }
static void part_split(const part *x) { x->kernels->bf16_encode_error(x->h, x->p, x->g, x->n); }
static void part_decode(const part *x) { x->kernels->bf16_decode(x->p, x->h, x->n); }
static void part_bf16_add(const part *x) { x->kernels->bf16_add(x->p, x->h, x->n); }
static void part_sum_squares(const part *x) {
    const volatile double sink = x->kernels->sum_squares(x->g, x->n);
    (void)sink;
}
static void part_adamw(const part *x) { x->kernels->adamw(&ADAMW, x->p, x->g, x->m, x->v, NULL, x->n); }
static void part_adamw_copy(const part *x) { x->kernels->adamw(&ADAMW, x->p, x->g, x->m, x->v, x->h, x->n); }
static void part_sgd(const part *x) { x->kernels->sgd(&SGD, x->p, x->g, x->m, NULL, x->n); }
static void part_accum(const part *x) {
    const taciti_accum_step step = {.adamw = ADAMW, .share = 0.25f};
    const taciti_accum_state state = {x->m, x->v, x->e};
    x->kernels->accum_adamw(&step, x->p, x->g, &state, NULL, x->n);
}

/* Returns a blend of what arrived, with what leaves; NULL: nothing does. */
static taciti_blend blend_of(const float *arrived, float *leaving) {
    return (taciti_blend){.arrived = arrived, .keep = 0.5f, .share = 0.5f, .leaving = leaving, .leaving_scale = 1};
}
static void part_blend(const part *x) {
    taciti_blend blend = blend_of(x->g, NULL);
    x->kernels->blend(&blend, x->p, NULL, x->n);
}
static void part_adamw_blend(const part *x) {
    taciti_blend blend = blend_of(x->e, x->e);
    taciti_adamw_step step = ADAMW;
    step.blend = &blend;
    x->kernels->adamw(&step, x->p, x->g, x->m, x->v, NULL, x->n);
}

/* Rows of a network; statistics go to the arrays that stay free. */
static void part_layernorm(const part *x) {
    x->kernels->layernorm(x->p, NULL, x->m, x->v, x->g, x->g, x->g, x->n / ROW, ROW);
}

/* use[i] says what a kernel does to p, m, v, g, the fifth and the bf16 array: Read, Update, Write past the caches,
 * Store through them, or nothing. */
static const struct kernel_case {
    const char *name;
    char use[STREAMS + 1];
    bench_part *part;
} CASES[] = {
    {"add", "U--R--", part_add},
    {"bf16_encode", "---R-W", part_encode},
    {"bf16_encode_error", "S--R-S", part_split},
    {"bf16_decode", "S----R", part_decode},
    {"bf16_add", "U----R", part_bf16_add},
    {"sum_squares", "---R--", part_sum_squares},
    {"adamw", "UUUR--", part_adamw},
    {"adamw + bf16 copy", "UUUR-W", part_adamw_copy},
    {"sgd", "UU-R--", part_sgd},
    {"accum_adamw", "URRRU-", part_accum},
    {"blend", "U--R--", part_blend},
    {"adamw + blend", "UUURU-", part_adamw_blend},
    {"layernorm", "S--R--", part_layernorm},
};
enum { CASE_COUNT = sizeof CASES / sizeof CASES[0] };
_Static_assert((int)CASE_COUNT == (int)TACITI_BENCH_KERNELS, "a figure for every kernel");

static size_t streams_of(const work *w, const char *use, taciti_probe_stream *out) {
    static const char LETTERS[] = {
        [TACITI_PROBE_READ] = 'R', [TACITI_PROBE_UPDATE] = 'U', [TACITI_PROBE_WRITE] = 'W', [TACITI_PROBE_STORE] = 'S'};
    size_t count = 0;
    for (int a = 0; a < STREAMS; a++) {
        if (use[a] == '-') continue;
        const char *letter = memchr(LETTERS, use[a], sizeof LETTERS);
        const taciti_pages *pages = a < FLOATS ? &w->f[a] : &w->h;
        out[count++] = (taciti_probe_stream){.base = pages->base,
                                             .bytes = w->n * (a < FLOATS ? sizeof(float) : sizeof(taciti_bf16)),
                                             .use = (taciti_probe_use)(letter - LETTERS)};
    }
    return count;
}

static void run_part(void *context, int thread, int threads) {
    const work *w = context;
    size_t begin = 0, end = 0;
    taciti_pool_part(w->n, GRAIN, thread, threads, &begin, &end);
    w->part(&(part){.kernels = w->kernels,
                    .p = floats_of(w, 0) + begin,
                    .m = floats_of(w, 1) + begin,
                    .v = floats_of(w, 2) + begin,
                    .g = floats_of(w, 3) + begin,
                    .e = floats_of(w, 4) + begin,
                    .h = halves_of(w) + begin,
                    .n = end - begin});
}

/* One untimed turn, then `rounds` of probe and kernel, the first of the two changing from round to round. */
static taciti_kernel_rate measure_kernel(const work *w, const struct kernel_case *c, taciti_pool *pool, int rounds) {
    double kernel[TACITI_BENCH_MAX_ROUNDS], probe[TACITI_BENCH_MAX_ROUNDS], ratio[TACITI_BENCH_MAX_ROUNDS];
    taciti_probe_stream streams[STREAMS];
    const size_t count = streams_of(w, c->use, streams);
    const double bytes = (double)taciti_probe_pass_bytes(streams, count);
    work job = *w;
    job.part = c->part;
    for (int round = -1; round < rounds; round++) {
        const int r = round < 0 ? 0 : round;
        if (r % 2 == 0) probe[r] = bytes / taciti_probe_pass(pool, streams, count);
        kernel[r] = bytes / taciti_probe_time(pool, run_part, &job);
        if (r % 2 != 0) probe[r] = bytes / taciti_probe_pass(pool, streams, count);
        ratio[r] = kernel[r] / probe[r];
    }
    return (taciti_kernel_rate){.bytes_per_s = taciti_statistics_of(kernel, rounds),
                                .probe_bytes_per_s = taciti_statistics_of(probe, rounds),
                                .ratio = taciti_statistics_of(ratio, rounds)};
}

static double pass_rate(const work *w, taciti_pool *pool, const char *use) {
    taciti_probe_stream streams[STREAMS];
    const size_t count = streams_of(w, use, streams);
    return (double)taciti_probe_pass_bytes(streams, count) / taciti_probe_pass(pool, streams, count);
}

static void measure_peaks(const work *w, int rounds, taciti_peak_figure *peaks) {
    static const taciti_peak_figure NAMES[TACITI_BENCH_PEAKS] = {{.name = "f32 multiply-add", .unit = "GFLOP/s"},
                                                                 {.name = "bf16 dot product", .unit = "GFLOP/s"},
                                                                 {.name = "read", .unit = "GB/s"},
                                                                 {.name = "update in place", .unit = "GB/s"},
                                                                 {.name = "copy past the caches", .unit = "GB/s"}};
    double samples[TACITI_BENCH_PEAKS][TACITI_BENCH_MAX_ROUNDS];
    for (int p = 0; p < 2; p++) {
        taciti_pool *pool = w->pools[p];
        for (int r = 0; r < rounds; r++) {
            samples[0][r] = taciti_probe_fma_flops(pool, PEAK_SECONDS) / 1e9;
            samples[1][r] = taciti_probe_bf16_flops(pool, PEAK_SECONDS) / 1e9;
            samples[2][r] = pass_rate(w, pool, "R-----") / 1e9;
            samples[3][r] = pass_rate(w, pool, "U-----") / 1e9;
            samples[4][r] = pass_rate(w, pool, "RW----") / 1e9;
        }
        for (int i = 0; i < TACITI_BENCH_PEAKS; i++) {
            if (p == 0) peaks[i] = NAMES[i];
            peaks[i].rate[p] = taciti_statistics_of(samples[i], rounds);
        }
    }
}

/* Gradient-like numbers: no denormals, which some CPUs handle slowly, in any array. */
static void fill_part(void *context, int thread, int threads) {
    const work *w = context;
    size_t begin = 0, end = 0;
    taciti_pool_part(w->n, GRAIN, thread, threads, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        const float x = (float)((int32_t)taciti_rng_u32(1, (uint32_t)i) | 1) * 0x1p-38f;
        for (int a = 0; a < FLOATS; a++) floats_of(w, a)[i] = x;
        floats_of(w, 2)[i] = x * x;
    }
    w->kernels->bf16_encode(halves_of(w) + begin, floats_of(w, 3) + begin, end - begin);
}

static void release_work(work *w) {
    for (int a = 0; a < FLOATS; a++) taciti_pages_destroy(&w->f[a]);
    taciti_pages_destroy(&w->h);
    for (int p = 0; p < 2; p++) taciti_pool_destroy(w->pools[p]);
}

static tacit_status prepare_work(work *w, int threads) {
    for (int a = 0; a < FLOATS; a++) TACITI_TRY(taciti_pages_create(w->n * sizeof(float), "a bench array", &w->f[a]));
    TACITI_TRY(taciti_pages_create(w->n * sizeof(taciti_bf16), "a bench array", &w->h));
    TACITI_TRY(taciti_pool_create(1, 0, &w->pools[0]));
    TACITI_TRY(taciti_pool_create(threads, 50, &w->pools[1]));
    taciti_pool_run(w->pools[1], fill_part, w);
    return TACIT_OK;
}

tacit_status taciti_kernel_bench_run(size_t floats, int rounds, int threads, taciti_kernel_bench *out) {
    if (rounds < 1 || rounds > TACITI_BENCH_MAX_ROUNDS)
        return taciti_fail(TACIT_E_USAGE, "%d rounds where 1 to %d are possible", rounds, TACITI_BENCH_MAX_ROUNDS);
    work w = {.n = taciti_round_up(floats + (floats == 0), GRAIN), .kernels = taciti_kernels_get()};
    const tacit_status status = prepare_work(&w, threads);
    if (status != TACIT_OK) {
        release_work(&w);
        return status;
    }
    taciti_kernel_bench bench = {.floats = w.n, .rounds = rounds, .threads = threads};
    for (size_t c = 0; c < CASE_COUNT; c++) {
        taciti_probe_stream streams[STREAMS];
        const size_t count = streams_of(&w, CASES[c].use, streams);
        bench.kernels[c].name = CASES[c].name;
        bench.kernels[c].bytes_per_element = (double)taciti_probe_pass_bytes(streams, count) / (double)w.n;
        for (int p = 0; p < 2; p++) bench.kernels[c].rate[p] = measure_kernel(&w, &CASES[c], w.pools[p], rounds);
    }
    measure_peaks(&w, rounds, bench.peaks);
    release_work(&w);
    *out = bench;
    return TACIT_OK;
}
