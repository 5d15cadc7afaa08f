/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/probe.h"

#include <stdatomic.h>
#include <stdint.h>

#include "base/clock.h"
#include "kernel/kernel.h"
#include "kernel/sets.h"

#if TACITI_KERNEL_X86
#include <immintrin.h>
#define TARGET(isa) __attribute__((target(isa)))
#endif

enum { ROUNDS = 4096, CHAINS = 16, LINE_BYTES = 64 };

/* ---- arithmetic: 16 independent chains hide the latency of any multiply-add unit ------------------------------- */

/* x' = x a + b stays near its fixed point b / (1 - a) = 1: no denormals, no overflow. */
static const float FACTOR = 0.75f, SUMMAND = 0.25f;

/* Runs ROUNDS rounds of one instruction per chain; returns something that depends on all of them. */
typedef float chains_run(void);

static float chains_portable(void) {
    float acc[CHAINS] = {0};
    const volatile float factor = FACTOR, summand = SUMMAND;
    const float a = factor, b = summand;
    for (int round = 0; round < ROUNDS; round++)
        for (int c = 0; c < CHAINS; c++) acc[c] = acc[c] * a + b;
    float sum = 0;
    for (int c = 0; c < CHAINS; c++) sum += acc[c];
    return sum;
}

#if TACITI_KERNEL_X86
TARGET("avx2,fma") static float chains_avx2(void) {
    __m256 acc[CHAINS / 2]; /* AVX2 has 16 registers: two of them hold the constants */
    const volatile float factor = FACTOR, summand = SUMMAND;
    const __m256 a = _mm256_set1_ps(factor), b = _mm256_set1_ps(summand);
    for (int c = 0; c < CHAINS / 2; c++) acc[c] = _mm256_setzero_ps();
    for (int round = 0; round < 2 * ROUNDS; round++) {
#pragma GCC unroll 8
        for (int c = 0; c < CHAINS / 2; c++) acc[c] = _mm256_fmadd_ps(acc[c], a, b);
    }
    __m256 sum = _mm256_setzero_ps();
    for (int c = 0; c < CHAINS / 2; c++) sum = _mm256_add_ps(sum, acc[c]);
    return _mm256_cvtss_f32(sum);
}

TARGET("avx512f") static float chains_avx512(void) {
    __m512 acc[CHAINS];
    const volatile float factor = FACTOR, summand = SUMMAND;
    const __m512 a = _mm512_set1_ps(factor), b = _mm512_set1_ps(summand);
    for (int c = 0; c < CHAINS; c++) acc[c] = _mm512_setzero_ps();
    for (int round = 0; round < ROUNDS; round++) {
#pragma GCC unroll 16
        for (int c = 0; c < CHAINS; c++) acc[c] = _mm512_fmadd_ps(acc[c], a, b);
    }
    __m512 sum = _mm512_setzero_ps();
    for (int c = 0; c < CHAINS; c++) sum = _mm512_add_ps(sum, acc[c]);
    return _mm512_cvtss_f32(sum);
}

TARGET("avx512f,avx512bf16") static float chains_bf16(void) {
    __m512 acc[CHAINS];
    const volatile float factor = FACTOR;
    const __m512 f = _mm512_set1_ps(factor);
    const __m512bh a = _mm512_cvtne2ps_pbh(f, f), b = a;
    for (int c = 0; c < CHAINS; c++) acc[c] = _mm512_setzero_ps();
    for (int round = 0; round < ROUNDS; round++) {
#pragma GCC unroll 16
        for (int c = 0; c < CHAINS; c++) acc[c] = _mm512_dpbf16_ps(acc[c], a, b);
    }
    __m512 sum = _mm512_setzero_ps();
    for (int c = 0; c < CHAINS; c++) sum = _mm512_add_ps(sum, acc[c]);
    return _mm512_cvtss_f32(sum);
}
#endif

/* ---- measurements of every thread -------------------------------------------------------------------------------- */

typedef struct timed_job {
    taciti_pool_job *job;
    void *context;
    _Atomic int64_t slowest_ns;
} timed_job;

static void run_timed(void *context, int thread, int threads) {
    timed_job *timed = context;
    const int64_t begin = taciti_thread_ns();
    timed->job(timed->context, thread, threads);
    const int64_t took = taciti_thread_ns() - begin;
    int64_t slowest = atomic_load(&timed->slowest_ns);
    while (took > slowest && !atomic_compare_exchange_weak(&timed->slowest_ns, &slowest, took)) {
    }
}

double taciti_probe_time(taciti_pool *pool, taciti_pool_job *job, void *context) {
    timed_job timed = {.job = job, .context = context};
    taciti_pool_run(pool, run_timed, &timed);
    return (double)atomic_load(&timed.slowest_ns) / 1e9;
}

typedef struct arithmetic_job {
    chains_run *run;
    int64_t ns;
    _Atomic int64_t runs_per_gigasecond; /* of all threads: an integer can be added atomically */
} arithmetic_job;

static void run_chains(void *context, int thread, int threads) {
    (void)thread;
    (void)threads;
    arithmetic_job *job = context;
    volatile float sink = 0;
    const int64_t begin = taciti_now_ns();
    int64_t now = begin, runs = 0;
    while (now - begin < job->ns || runs == 0) {
        sink = job->run();
        runs++;
        now = taciti_now_ns();
    }
    (void)sink;
    const double seconds = (double)(now - begin > 0 ? now - begin : 1) / 1e9;
    atomic_fetch_add(&job->runs_per_gigasecond, (int64_t)((double)runs / seconds * 1e9));
}

static double flops_of(taciti_pool *pool, double seconds, chains_run *run, double flops_per_run) {
    arithmetic_job job = {.run = run, .ns = (int64_t)(seconds * 1e9)};
    taciti_pool_run(pool, run_chains, &job);
    return (double)atomic_load(&job.runs_per_gigasecond) / 1e9 * flops_per_run;
}

double taciti_probe_fma_flops(taciti_pool *pool, double seconds) {
    const double instructions = (double)ROUNDS * CHAINS;
#if TACITI_KERNEL_X86
    if (taciti_kernels_named("avx512") != NULL) return flops_of(pool, seconds, chains_avx512, instructions * 32);
    if (taciti_kernels_named("avx2") != NULL) return flops_of(pool, seconds, chains_avx2, instructions * 16);
#endif
    return flops_of(pool, seconds, chains_portable, instructions * 2);
}

double taciti_probe_bf16_flops(taciti_pool *pool, double seconds) {
#if TACITI_KERNEL_X86
    if (taciti_kernels_named("avx512") != NULL && __builtin_cpu_supports("avx512bf16"))
        return flops_of(pool, seconds, chains_bf16, (double)ROUNDS * CHAINS * 64);
#endif
    (void)pool;
    (void)seconds;
    return 0;
}

/* ---- bandwidth: every stream is cut into the same number of chunks, visited stream by stream ------------------- */

/* Chunks of 512 bytes, among 128, 256, 512 and 1024, gave the highest rate over all mixes of the array kernels (EPYC,
 * Zen 4): the strictest yardstick. */
enum { CHUNK_BYTES = 512 };

typedef void lines_touch(char *at, size_t lines, taciti_probe_use use);

/* The numbers that are written differ from line to line and are never 0: memory controllers may move lines of zeros for
 * less. They are ordinary numbers as f32 and as bf16. */
static const int STEP = 0x00130007, MASK = 0x007f007f, NUMBER = 0x3f003f00;

static void touch_portable(char *at, size_t lines, taciti_probe_use use) {
    enum { WORDS = LINE_BYTES / sizeof(uint64_t) };
    const volatile uint64_t nothing = 0;
    const uint64_t zero = nothing;
    uint64_t *word = (uint64_t *)(void *)at, seen = 0;
    switch (use) {
    case TACITI_PROBE_READ:
        for (size_t i = 0; i < lines * WORDS; i++) seen |= word[i];
        break;
    case TACITI_PROBE_UPDATE:
        for (size_t i = 0; i < lines * WORDS; i++) word[i] ^= zero;
        break;
    case TACITI_PROBE_WRITE:
    case TACITI_PROBE_STORE:
        for (size_t i = 0; i < lines * WORDS; i++)
            word[i] = (i & (uint64_t)MASK) | (uint64_t)NUMBER << 32 | (uint64_t)NUMBER;
        break;
    }
    const volatile uint64_t sink = seen;
    (void)sink;
}

#if TACITI_KERNEL_X86
/* The two differ in width only. volatile asm keeps what nobody needs from being optimised away. */
TARGET("avx2") static void touch_avx2(char *at, size_t lines, taciti_probe_use use) {
    __m256i *word = (__m256i *)(void *)at, seen = _mm256_setzero_si256(), zero = seen;
    const __m256i step = _mm256_set1_epi32(STEP), mask = _mm256_set1_epi32(MASK), number = _mm256_set1_epi32(NUMBER);
    __asm__ volatile("" : "+x"(zero));
    switch (use) {
    case TACITI_PROBE_READ:
        for (size_t i = 0; i < lines * 2; i++) seen = _mm256_or_si256(seen, _mm256_load_si256(word + i));
        break;
    case TACITI_PROBE_UPDATE:
        for (size_t i = 0; i < lines * 2; i++)
            _mm256_store_si256(word + i, _mm256_xor_si256(zero, _mm256_load_si256(word + i)));
        break;
    case TACITI_PROBE_WRITE:
        for (size_t i = 0; i < lines * 2; i++) {
            _mm256_stream_si256(word + i, _mm256_or_si256(_mm256_and_si256(seen, mask), number));
            seen = _mm256_add_epi32(seen, step);
        }
        break;
    case TACITI_PROBE_STORE:
        for (size_t i = 0; i < lines * 2; i++) {
            _mm256_store_si256(word + i, _mm256_or_si256(_mm256_and_si256(seen, mask), number));
            seen = _mm256_add_epi32(seen, step);
        }
        break;
    }
    __asm__ volatile("" : : "x"(seen));
}

TARGET("avx512f") static void touch_avx512(char *at, size_t lines, taciti_probe_use use) {
    __m512i *word = (__m512i *)(void *)at, seen = _mm512_setzero_si512(), zero = seen;
    const __m512i step = _mm512_set1_epi32(STEP), mask = _mm512_set1_epi32(MASK), number = _mm512_set1_epi32(NUMBER);
    __asm__ volatile("" : "+v"(zero));
    switch (use) {
    case TACITI_PROBE_READ:
        for (size_t i = 0; i < lines; i++) seen = _mm512_or_si512(seen, _mm512_load_si512(word + i));
        break;
    case TACITI_PROBE_UPDATE:
        for (size_t i = 0; i < lines; i++)
            _mm512_store_si512(word + i, _mm512_xor_si512(zero, _mm512_load_si512(word + i)));
        break;
    case TACITI_PROBE_WRITE:
        for (size_t i = 0; i < lines; i++) {
            _mm512_stream_si512(word + i, _mm512_or_si512(_mm512_and_si512(seen, mask), number));
            seen = _mm512_add_epi32(seen, step);
        }
        break;
    case TACITI_PROBE_STORE:
        for (size_t i = 0; i < lines; i++) {
            _mm512_store_si512(word + i, _mm512_or_si512(_mm512_and_si512(seen, mask), number));
            seen = _mm512_add_epi32(seen, step);
        }
        break;
    }
    __asm__ volatile("" : : "v"(seen));
}
#endif

typedef struct pass_job {
    const taciti_probe_stream *streams;
    size_t count, chunks;
    lines_touch *touch;
} pass_job;

static void pass_part(void *context, int thread, int threads) {
    const pass_job *job = context;
    size_t begin = 0, end = 0;
    taciti_pool_part(job->chunks, 1, thread, threads, &begin, &end);
    for (size_t chunk = begin; chunk < end; chunk++)
        for (size_t s = 0; s < job->count; s++) {
            const taciti_probe_stream *stream = &job->streams[s];
            const size_t lines = stream->bytes / LINE_BYTES;
            const size_t first = lines * chunk / job->chunks, last = lines * (chunk + 1) / job->chunks;
            job->touch((char *)stream->base + first * LINE_BYTES, last - first, stream->use);
        }
#if TACITI_KERNEL_X86
    _mm_sfence();
#endif
}

double taciti_probe_pass(taciti_pool *pool, const taciti_probe_stream *streams, size_t count) {
    size_t max_bytes = 0;
    for (size_t s = 0; s < count; s++)
        if (streams[s].bytes > max_bytes) max_bytes = streams[s].bytes;
    pass_job job = {.streams = streams, .count = count, .chunks = max_bytes / CHUNK_BYTES + 1, .touch = touch_portable};
#if TACITI_KERNEL_X86
    if (taciti_kernels_named("avx2") != NULL) job.touch = touch_avx2;
    if (taciti_kernels_named("avx512") != NULL) job.touch = touch_avx512;
#endif
    return taciti_probe_time(pool, pass_part, &job);
}

size_t taciti_probe_pass_bytes(const taciti_probe_stream *streams, size_t count) {
    size_t bytes = 0;
    for (size_t s = 0; s < count; s++) bytes += streams[s].bytes * (streams[s].use == TACITI_PROBE_UPDATE ? 2 : 1);
    return bytes;
}
