/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/attention.h"

#include <stdint.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/pool.h"
#include "base/rng.h"
#include "bench/kernels.h"
#include "kernel/kernel.h"
#include "kernel/probe.h"

/* As wide as GPT-2's smallest: 12 heads of 64, or 24 of 32. */
enum { CHANNELS = 768, SHAPES = TACITI_BENCH_ATTENTIONS };
static const struct {
    size_t time, head_size;
} CASES[SHAPES] = {{64, 64}, {256, 64}, {1024, 64}, {256, 32}, {256, 128}};
static const double SLICE_SECONDS = 0.02;

typedef struct work {
    taciti_pages memory;
    float *qkv, *dqkv, *out, *dout, *lse, *private;
    taciti_attention_shape shape;
    const taciti_kernels *kernels;
} work;

static tacit_status prepare(size_t time, size_t head_size, work *w) {
    const taciti_attention_shape shape = {.time = time, .heads = CHANNELS / head_size, .head_size = head_size};
    const size_t wide = time * CHANNELS, floats = 8 * wide + time + taciti_attention_work_floats(&shape);
    *w = (work){.shape = shape, .kernels = taciti_kernels_get()};
    TACITI_TRY(taciti_pages_create(floats * sizeof(float), "attention's bench arrays", &w->memory));
    w->qkv = w->memory.base;
    w->dqkv = w->qkv + 3 * wide;
    w->out = w->dqkv + 3 * wide;
    w->dout = w->out + wide;
    w->lse = w->dout + wide;
    w->private = w->lse + time;
    for (size_t i = 0; i < 3 * wide; i++) w->qkv[i] = (float)taciti_rng_unit(1, i) - 0.5f;
    for (size_t i = 0; i < 3 * wide; i++) w->dqkv[i] = 0; /* pages are claimed here, not while the clock runs */
    for (size_t i = 0; i < wide; i++) w->out[i] = 0;
    for (size_t i = 0; i < wide; i++) w->dout[i] = (float)taciti_rng_unit(2, i) - 0.5f;
    return TACIT_OK;
}

static void one_head(const work *w, size_t head, int backward) {
    if (backward)
        w->kernels->attention_backward(w->dqkv, w->dout, w->out, w->lse, w->qkv, &w->shape, head, w->private);
    else
        w->kernels->attention(w->out, NULL, w->lse, w->qkv, &w->shape, head, w->private);
}

/* Head after head, as a model does, for about a slice of time. */
static double flops_of(const work *w, int backward) {
    const double time = (double)w->shape.time, size = (double)w->shape.head_size;
    const double flops = (backward ? 10 : 4) * size * time * (time + 1) / 2;
    const int64_t begin = taciti_now_ns();
    double seconds = 0;
    size_t heads = 0;
    for (; seconds < SLICE_SECONDS; heads++) {
        one_head(w, heads % w->shape.heads, backward);
        seconds = (double)(taciti_now_ns() - begin) / (double)TACITI_NS_PER_S;
    }
    return (double)heads * flops / seconds;
}

static void measure(const work *w, taciti_pool *pool, int rounds, taciti_attention_figure *out) {
    double flops[TACITI_BENCH_MAX_ROUNDS], share[TACITI_BENCH_MAX_ROUNDS];
    *out = (taciti_attention_figure){.time = w->shape.time, .head_size = w->shape.head_size};
    one_head(w, 0, 0); /* backward finds the lse of a forward pass, whichever head's */
    for (int backward = 0; backward < 2; backward++) {
        for (int r = 0; r < rounds; r++) {
            flops[r] = flops_of(w, backward);
            share[r] = flops[r] / taciti_probe_fma_flops(pool, SLICE_SECONDS);
        }
        out->flops[backward] = taciti_statistics_of(flops, rounds);
        out->share[backward] = taciti_statistics_of(share, rounds);
    }
}

tacit_status taciti_attention_bench_run(int rounds, taciti_attention_figure out[SHAPES]) {
    taciti_pool *pool = NULL;
    taciti_attention_figure figures[SHAPES];
    tacit_status status = taciti_pool_create(1, 0, &pool);
    for (int i = 0; status == TACIT_OK && i < SHAPES; i++) {
        work w;
        status = prepare(CASES[i].time, CASES[i].head_size, &w);
        if (status == TACIT_OK) measure(&w, pool, rounds, &figures[i]);
        taciti_pages_destroy(&w.memory);
    }
    taciti_pool_destroy(pool);
    for (int i = 0; status == TACIT_OK && i < SHAPES; i++) out[i] = figures[i];
    return status;
}
