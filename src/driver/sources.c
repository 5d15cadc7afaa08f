/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "driver/sources.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "kernel/kernel.h"

enum { CHUNK_FLOATS = 4096, GRAIN = 16 }; /* a chunk stays in the first cache between two kernels */
#define LOOK_NS (100 * TACITI_NS_PER_MS)

typedef struct tensor_state {
    taciti_source source;
    bool has_source;
    bool ready;
    int64_t asked_ns;        /* of the first wait in this step; 0: none */
    size_t buckets, missing; /* that it is part of; of these: not arrived in this step */
} tensor_state;

struct taciti_sources {
    taciti_sources_setup setup;
    taciti_bucket_hooks hooks;
    tensor_state *tensors; /* owned; what a bucket reads of them is set before it begins */
    size_t *filled;        /* per bucket: floats that were read into it; owned */
    pthread_mutex_t lock;  /* of all below, and of ready, missing and filled */
    pthread_cond_t changed;
    uint64_t step;
    tacit_status failed; /* of a bucket of this step */
    taciti_watch watch;
    bool closing;
};

/* ---- life -------------------------------------------------------------------------------------------------------- */

static void range_leaves(void *context, size_t bucket, taciti_range range);
static void range_arrived(void *context, size_t bucket, taciti_range range);
static void bucket_ended(void *context, size_t bucket, tacit_status status);

void taciti_sources_destroy(taciti_sources *sources) {
    if (sources == NULL) return;
    (void)pthread_cond_destroy(&sources->changed);
    (void)pthread_mutex_destroy(&sources->lock);
    taciti_free(sources->tensors);
    taciti_free(sources->filled);
    taciti_free(sources);
}

/* Waits end by the clock that nobody sets. */
static void open_lock(taciti_sources *s) {
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&s->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    (void)pthread_mutex_init(&s->lock, NULL);
}

static void count_buckets(taciti_sources *s) {
    const taciti_layout *layout = s->setup.layout;
    for (size_t b = 0; b < layout->bucket_count; b++)
        for (size_t t = layout->buckets[b].first; t <= layout->buckets[b].last; t++) s->tensors[t].buckets++;
}

tacit_status taciti_sources_create(const taciti_sources_setup *setup, taciti_sources **out) {
    taciti_sources *s = taciti_calloc(1, sizeof *s);
    if (s == NULL) return TACIT_E_MEMORY;
    s->setup = *setup;
    s->hooks = (taciti_bucket_hooks){range_leaves, NULL, NULL, s};
    if (setup->write_back) s->hooks.arrived = range_arrived;
    if (setup->write_back) s->hooks.ended = bucket_ended;
    s->tensors = taciti_calloc(setup->layout->tensor_count, sizeof *s->tensors);
    s->filled = taciti_calloc(setup->layout->bucket_count, sizeof *s->filled);
    open_lock(s);
    if (s->tensors == NULL || s->filled == NULL) {
        taciti_sources_destroy(s);
        return TACIT_E_MEMORY;
    }
    count_buckets(s);
    *out = s;
    return TACIT_OK;
}

const taciti_bucket_hooks *taciti_sources_hooks(const taciti_sources *sources) { return &sources->hooks; }

/* ---- copies ------------------------------------------------------------------------------------------------------ */

static void decode_elements(tacit_type type, const void *from, size_t at, float *out, size_t n) {
    const taciti_kernels *k = taciti_kernels_get();
    switch (type) {
    case TACIT_BF16: k->bf16_decode(out, (const taciti_bf16 *)from + at, n); break;
    case TACIT_F16: k->fp16_decode(out, (const taciti_fp16 *)from + at, n); break;
    case TACIT_F32: memmove(out, (const float *)from + at, n * sizeof *out); break; /* it may be its own place */
    }
}

void taciti_elements_read(tacit_type type, const void *from, size_t at, float scale, float *out, size_t n) {
    for (size_t i = 0; i < n; i += CHUNK_FLOATS) {
        const size_t part = taciti_min(n - i, (size_t)CHUNK_FLOATS);
        decode_elements(type, from, at + i, out + i, part);
        if (scale < 1 || scale > 1) taciti_kernels_get()->scale(out + i, scale, part);
    }
}

void taciti_elements_write(tacit_type type, void *to, size_t at, const float *x, size_t n) {
    const taciti_kernels *k = taciti_kernels_get();
    switch (type) {
    case TACIT_BF16: k->bf16_encode((taciti_bf16 *)to + at, x, n); break;
    case TACIT_F16: k->fp16_encode((taciti_fp16 *)to + at, x, n); break;
    case TACIT_F32: memmove((float *)to + at, x, n * sizeof *x); break;
    }
}

/* out[n] = elements [at, at + n) of the gradient. */
static void read_source(const taciti_source *source, size_t at, float *out, size_t n) {
    if (source->at == NULL)
        memset(out, 0, n * sizeof *out);
    else
        taciti_elements_read(source->type, source->at, at, source->scale, out, n);
}

/* Whether the tensor begins before the end of that range of the bucket. */
static bool begins_before_end(const taciti_sources *s, size_t tensor, size_t bucket, taciti_range range) {
    return s->setup.layout->tensors[tensor].offset < s->setup.layout->buckets[bucket].offset + range.at + range.n;
}

/* Elements [*at, *at + *n) of the tensor are in that range of the bucket, and have a source. */
static bool in_range(const taciti_sources *s, size_t tensor, size_t bucket, taciti_range range, size_t *at, size_t *n) {
    const taciti_tensor *t = &s->setup.layout->tensors[tensor];
    const size_t begin = s->setup.layout->buckets[bucket].offset + range.at;
    const size_t low = taciti_max(t->offset, begin), high = taciti_min(t->offset + t->n, begin + range.n);
    *at = low - t->offset;
    *n = high > low ? high - low : 0;
    return *n > 0 && s->tensors[tensor].has_source;
}

static float *place_of(const taciti_sources *s, size_t tensor) {
    return s->setup.flat + s->setup.layout->tensors[tensor].offset;
}

/* Returns false where the whole bucket was read before. */
static bool count_range(taciti_sources *s, size_t bucket, taciti_range range) {
    (void)pthread_mutex_lock(&s->lock);
    const bool new = s->filled[bucket] < s->setup.layout->buckets[bucket].n;
    if (new) s->filled[bucket] += range.n;
    (void)pthread_mutex_unlock(&s->lock);
    return new;
}

/* A strategy that changes a bucket before it leaves calls this earlier for all of it; later calls do nothing. */
static void range_leaves(void *context, size_t bucket, taciti_range range) {
    taciti_sources *s = context;
    const taciti_bucket *b = &s->setup.layout->buckets[bucket];
    if (!count_range(s, bucket, range)) return;
    for (size_t t = b->first, at = 0, n = 0; t <= b->last && begins_before_end(s, t, bucket, range); t++)
        if (in_range(s, t, bucket, range, &at, &n)) read_source(&s->tensors[t].source, at, place_of(s, t) + at, n);
}

/* On one rank nothing is sent or compressed, so that the sum is the gradient. */
static bool holds_sum(const taciti_sources *s, const taciti_source *source) {
    return source->at == NULL || (taciti_comm_size(s->setup.comm) == 1 && source->type == TACIT_F32 &&
                                  !(source->scale < 1 || source->scale > 1));
}

static void range_arrived(void *context, size_t bucket, taciti_range range) {
    const taciti_sources *s = context;
    const taciti_bucket *b = &s->setup.layout->buckets[bucket];
    for (size_t t = b->first, at = 0, n = 0; t <= b->last && begins_before_end(s, t, bucket, range); t++)
        if (in_range(s, t, bucket, range, &at, &n) && !holds_sum(s, &s->tensors[t].source))
            taciti_elements_write(s->tensors[t].source.type, s->tensors[t].source.at, at, place_of(s, t) + at, n);
}

static void bucket_ended(void *context, size_t bucket, tacit_status status) {
    taciti_sources *s = context;
    const taciti_bucket *b = &s->setup.layout->buckets[bucket];
    (void)pthread_mutex_lock(&s->lock);
    for (size_t t = b->first; t <= b->last && status == TACIT_OK; t++) s->tensors[t].missing--;
    if (status != TACIT_OK) s->failed = status;
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
}

static void write_part(void *context, int thread, int threads) {
    const taciti_sources *s = context;
    for (size_t t = 0, begin = 0, end = 0; t < s->setup.layout->tensor_count; t++) {
        if (!s->tensors[t].has_source || s->tensors[t].source.at == NULL) continue;
        taciti_pool_part(s->setup.layout->tensors[t].n, GRAIN, thread, threads, &begin, &end);
        if (begin < end)
            taciti_elements_write(s->tensors[t].source.type, s->tensors[t].source.at, begin, place_of(s, t) + begin,
                                  end - begin);
    }
}

void taciti_sources_write_all(taciti_sources *sources, taciti_optim *optim) {
    taciti_optim_run(optim, write_part, sources);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

void taciti_sources_begin(taciti_sources *sources) {
    const taciti_layout *layout = sources->setup.layout;
    (void)pthread_mutex_lock(&sources->lock);
    sources->step++;
    sources->failed = TACIT_OK;
    sources->watch = taciti_watch_begin(sources->setup.comm);
    memset(sources->filled, 0, layout->bucket_count * sizeof *sources->filled);
    for (size_t t = 0; t < layout->tensor_count; t++) {
        sources->tensors[t].ready = sources->tensors[t].has_source = false;
        sources->tensors[t].asked_ns = 0;
        sources->tensors[t].missing = sources->tensors[t].buckets;
    }
    (void)pthread_cond_broadcast(&sources->changed); /* waits for the step before are over */
    (void)pthread_mutex_unlock(&sources->lock);
}

void taciti_sources_take(taciti_sources *sources, size_t tensor, const taciti_source *source) {
    taciti_sources *s = sources;
    tensor_state *t = &s->tensors[tensor];
    if (source != NULL && !s->setup.by_bucket)
        read_source(source, 0, place_of(s, tensor), s->setup.layout->tensors[tensor].n);
    (void)pthread_mutex_lock(&s->lock);
    t->has_source = source != NULL;
    if (source != NULL) t->source = *source;
    t->ready = true;
    (void)pthread_mutex_unlock(&s->lock);
}

/* ---- waits ------------------------------------------------------------------------------------------------------- */

/* Buckets leave in ascending order, so what holds one up is the first tensor up to its end that is not ready. */
static tacit_status name_holdup(const taciti_sources *s, size_t tensor, double stall_s) {
    const taciti_layout *layout = s->setup.layout;
    size_t last = tensor, b = layout->bucket_count, other = 0;
    while (b-- > 0 && layout->buckets[b].first > tensor) continue;
    if (layout->buckets[b].last > last) last = layout->buckets[b].last;
    while (other <= last && s->tensors[other].ready) other++;
    if (other <= last)
        return taciti_fail(
            TACIT_E_USAGE,
            "tacit_job_wait: tensor %zu (%s) has waited for comm.stall, %g s, for tensor %zu (%s), which "
            "is not ready in this step",
            tensor, layout->tensors[tensor].name, stall_s, other, layout->tensors[other].name);
    if (s->filled[b] > 0 || s->setup.overlap) return TACIT_OK; /* the failure detector ends what is under way */
    return taciti_fail(TACIT_E_USAGE,
                       "tacit_job_wait: tensor %zu (%s) has waited for comm.stall, %g s, for the end of the step: with "
                       "exchange.overlap=false nothing leaves before tacit_job_settle()",
                       tensor, layout->tensors[tensor].name, stall_s);
}

/* PENDING: not yet. With the lock. */
static tacit_status check_arrival(const taciti_sources *s, size_t tensor, uint64_t step) {
    if (s->step != step || s->tensors[tensor].missing == 0) return TACIT_OK;
    if (s->failed != TACIT_OK) return taciti_fail(s->failed, "tacit_job_wait: the sum of a bucket has failed");
    if (!s->closing) return TACIT_PENDING;
    return taciti_fail(TACIT_E_USAGE, "tacit_job_wait: the job was closed before the sum of tensor %zu (%s) arrived",
                       tensor, s->setup.layout->tensors[tensor].name);
}

static void sleep_until(taciti_sources *s, int64_t end_ns) {
    const struct timespec until = {.tv_sec = (time_t)(end_ns / TACITI_NS_PER_S),
                                   .tv_nsec = (long)(end_ns % TACITI_NS_PER_S)};
    (void)pthread_cond_timedwait(&s->changed, &s->lock, &until);
}

/* A caller that asks without waiting may ask often, so that leaves no line in the log. */
static tacit_status refuse_early(const taciti_sources *s, size_t tensor, bool waits) {
    taciti_error_set("tacit_job_wait: tensor %zu (%s) is not ready in this step", tensor,
                     s->setup.layout->tensors[tensor].name);
    return waits ? taciti_fail(TACIT_E_USAGE, "%s", taciti_error_text()) : TACIT_E_USAGE;
}

static tacit_status wait_locked(taciti_sources *s, size_t tensor, double seconds) {
    const uint64_t step = s->step;
    const int64_t begin_ns = taciti_now_ns();
    const double stall_s = taciti_comm_stall_s(s->setup.comm);
    if (!s->tensors[tensor].ready) return refuse_early(s, tensor, seconds > 0);
    if (seconds > 0 && s->tensors[tensor].asked_ns == 0) s->tensors[tensor].asked_ns = begin_ns;
    for (;;) {
        const int64_t now_ns = taciti_now_ns();
        const double left_ns = seconds * 1e9 - (double)(now_ns - begin_ns);
        const double waited_s = (double)(now_ns - s->tensors[tensor].asked_ns) * 1e-9; /* also in waits before */
        const tacit_status status = check_arrival(s, tensor, step);
        if (status != TACIT_PENDING) return status;
        TACITI_TRY(taciti_watch_look(s->setup.comm, &s->watch));
        if (left_ns <= 0) return TACIT_PENDING;
        if (waited_s > stall_s) TACITI_TRY(name_holdup(s, tensor, stall_s));
        sleep_until(s, now_ns + (left_ns < (double)LOOK_NS ? (int64_t)left_ns : LOOK_NS));
    }
}

tacit_status taciti_sources_wait(taciti_sources *sources, size_t tensor, double seconds) {
    (void)pthread_mutex_lock(&sources->lock);
    const tacit_status status = wait_locked(sources, tensor, seconds);
    (void)pthread_mutex_unlock(&sources->lock);
    return status;
}

void taciti_sources_close(taciti_sources *sources) {
    (void)pthread_mutex_lock(&sources->lock);
    sources->closing = true;
    (void)pthread_cond_broadcast(&sources->changed);
    (void)pthread_mutex_unlock(&sources->lock);
}
