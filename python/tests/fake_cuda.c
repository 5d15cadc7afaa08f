/* SPDX-License-Identifier: Apache-2.0
 *
 * A driver of a GPU whose memory is that of this process: the functions of libcuda.so.1 that tacit.torch.cuda calls.
 * Every stream is a thread that executes its queue in order, with a pause before each entry, at random or of a length
 * that the test chooses, so that a wait that is missing shows as wrong bits. fake_...() are for the test:
 *
 *   cc -shared -fPIC -pthread -o libfake.so fake_cuda.c
 *
 * As in the real driver, a wait for an event is one for its last record before the wait, an event without record is
 * done, and the context must be current in the thread that calls. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    OK,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700
};

typedef struct fake_event {
    uint64_t recorded, reached; /* records so far, and how many of them a stream has come to */
} fake_event;

typedef struct entry {
    enum { COPY, RECORD, WAIT } kind;
    void *to;
    const void *from;
    size_t bytes;
    fake_event *event;
    uint64_t number; /* of the record */
    struct entry *next;
} entry;

typedef struct fake_stream {
    pthread_t thread;
    entry *first, **end;
    uint64_t queued, done, random;
    unsigned pause_us; /* 0: at random */
    struct fake_stream *next;
} fake_stream;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static fake_stream *streams, *null_stream;
static uint64_t seed = 1, calls, fails_at;
static unsigned max_us = 500;
static int fails_with, sticky, pinned;
static _Thread_local int depth; /* of contexts that were pushed */
static char context;

static uint64_t draw(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void pause_us(uint64_t us) {
    struct timespec time = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    (void)nanosleep(&time, NULL);
}

/* Without the lock. A copy of NaN-filled memory that came too early stays NaN. */
static void execute(fake_stream *s, const entry *e) {
    if (s->pause_us || max_us) pause_us(s->pause_us ? s->pause_us : draw(&s->random) % max_us);
    if (e->kind == COPY) memcpy(e->to, e->from, e->bytes);
    pthread_mutex_lock(&lock);
    while (e->kind == WAIT && e->event->reached < e->number) pthread_cond_wait(&changed, &lock);
    if (e->kind == RECORD && e->event->reached < e->number) e->event->reached = e->number;
    s->done++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void *run_stream(void *argument) {
    fake_stream *s = argument;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (s->first == NULL) pthread_cond_wait(&changed, &lock);
        entry *e = s->first;
        s->first = e->next;
        if (s->first == NULL) s->end = &s->first;
        pthread_mutex_unlock(&lock);
        execute(s, e);
        free(e);
    }
    return NULL;
}

static fake_stream *make_stream(void) {
    fake_stream *s = calloc(1, sizeof *s);
    s->end = &s->first;
    s->random = seed += 0x9e3779b97f4a7c15;
    s->next = streams;
    streams = s;
    pthread_create(&s->thread, NULL, run_stream, s);
    return s;
}

/* With the lock; stream NULL is the default one. */
static fake_stream *find_stream(void *stream) {
    if (stream != NULL) return stream;
    if (null_stream == NULL) null_stream = make_stream();
    return null_stream;
}

static void queue(void *stream, entry e) {
    entry *copy = malloc(sizeof *copy);
    *copy = e;
    fake_stream *s = find_stream(stream);
    *s->end = copy;
    s->end = &copy->next;
    s->queued++;
    pthread_cond_broadcast(&changed);
}

/* With the lock: what the call reports instead of doing its work. An error of the GPU is that of all later calls, too.
 */
static int begin_call(void) {
    int error = sticky;
    if (sticky != ILLEGAL_ADDRESS) sticky = 0;
    return error ? error : depth == 0 ? INVALID_CONTEXT : OK;
}

/* The number of these calls does not depend on how often a program asks whether something is done. */
static int begin_counted(void) {
    if (++calls == fails_at) sticky = fails_with;
    return begin_call();
}

#define CALL(work)                                                                                                     \
    do {                                                                                                               \
        pthread_mutex_lock(&lock);                                                                                     \
        int result_ = begin_counted();                                                                                 \
        if (result_ == OK) work;                                                                                       \
        pthread_mutex_unlock(&lock);                                                                                   \
        return result_;                                                                                                \
    } while (0)

/* ---- for the test ------------------------------------------------------------------------------------------------ */

void fake_seed(uint64_t number, unsigned pauses_max_us) {
    seed = number;
    max_us = pauses_max_us;
}

/* This stream pauses as long as this before each entry: it is later than all others. */
void fake_slow(void *stream, unsigned us) {
    pthread_mutex_lock(&lock);
    find_stream(stream)->pause_us = us;
    pthread_mutex_unlock(&lock);
}

/* The n-th call from now fails with this error; 0: none does. */
void fake_fail(uint64_t n, int error) {
    pthread_mutex_lock(&lock);
    fails_at = n ? calls + n : 0;
    fails_with = error;
    sticky = 0;
    pthread_mutex_unlock(&lock);
}

uint64_t fake_calls(void) { return calls; }
int fake_pinned(void) { return pinned; } /* allocations that are not freed */
void *fake_stream_make(void) {
    pthread_mutex_lock(&lock);
    fake_stream *s = make_stream();
    pthread_mutex_unlock(&lock);
    return s;
}

/* A kernel that copies, on a stream. */
void fake_kernel(void *stream, void *to, const void *from, size_t bytes) {
    pthread_mutex_lock(&lock);
    queue(stream, (entry){.kind = COPY, .to = to, .from = from, .bytes = bytes});
    pthread_mutex_unlock(&lock);
}

/* Waits until the stream has done what it was given. */
void fake_synchronize(void *stream) {
    pthread_mutex_lock(&lock);
    fake_stream *s = find_stream(stream);
    uint64_t target = s->queued;
    while (s->done < target) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

/* ---- the driver -------------------------------------------------------------------------------------------------- */

int cuInit(unsigned flags) { return flags ? INVALID_VALUE : OK; }

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return OK;
}

int cuDevicePrimaryCtxRetain(void **out, int device) {
    *out = &context;
    return device ? INVALID_VALUE : OK;
}

int cuCtxPushCurrent_v2(void *pushed) {
    if (pushed != &context) return INVALID_VALUE;
    depth++;
    return OK;
}

int cuCtxPopCurrent_v2(void **out) {
    if (depth == 0) return INVALID_CONTEXT;
    *out = &context;
    depth--;
    return OK;
}

int cuStreamCreate(void **out, unsigned flags) {
    if (flags != 1) return INVALID_VALUE; /* the default stream would wait for it */
    CALL(*out = make_stream());
}

int cuStreamWaitEvent(void *stream, fake_event *event, unsigned flags) {
    if (flags) return INVALID_VALUE;
    CALL(queue(stream, (entry){.kind = WAIT, .event = event, .number = event->recorded}));
}

int cuEventCreate(fake_event **out, unsigned flags) {
    if (flags != 2) return INVALID_VALUE;
    CALL(*out = calloc(1, sizeof **out));
}

int cuEventDestroy_v2(fake_event *event) { CALL((void)event); } /* streams may still come to it */

int cuEventRecord(fake_event *event, void *stream) {
    CALL(queue(stream, (entry){.kind = RECORD, .event = event, .number = ++event->recorded}));
}

int cuEventQuery(fake_event *event) {
    pthread_mutex_lock(&lock);
    int result = begin_call();
    if (result == OK && event->reached < event->recorded) result = NOT_READY;
    pthread_mutex_unlock(&lock);
    return result;
}

int cuMemHostAlloc(void **out, size_t bytes, unsigned flags) {
    if (flags != 1 || bytes == 0) return INVALID_VALUE;
    CALL((pinned++, *out = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)));
}

/* No copy may be under way. */
int cuMemFreeHost(void *address) {
    pthread_mutex_lock(&lock);
    int result = begin_call();
    for (const fake_stream *s = streams; s != NULL; s = s->next)
        if (s != null_stream && s->done < s->queued && result == OK) result = INVALID_VALUE;
    if (result == OK) {
        pinned--;
        free(address);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

int cuMemcpyDtoHAsync_v2(void *host, uint64_t device, size_t bytes, void *stream) {
    CALL(queue(stream, (entry){.kind = COPY, .to = host, .from = (const void *)device, .bytes = bytes}));
}

int cuMemcpyHtoDAsync_v2(uint64_t device, const void *host, size_t bytes, void *stream) {
    CALL(queue(stream, (entry){.kind = COPY, .to = (void *)device, .from = host, .bytes = bytes}));
}

int cuGetErrorName(int error, const char **out) {
    *out = error == OUT_OF_MEMORY     ? "CUDA_ERROR_OUT_OF_MEMORY"
           : error == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
           : error == INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT"
                                      : "CUDA_ERROR_UNKNOWN";
    return OK;
}

int cuGetErrorString(int error, const char **out) {
    *out = error == ILLEGAL_ADDRESS ? "an illegal memory access was encountered" : "what the test asked for";
    return OK;
}
