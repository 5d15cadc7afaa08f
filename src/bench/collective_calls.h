/* SPDX-License-Identifier: Apache-2.0
 *
 * The implementations of each collective (callers) and how they are sampled: those of this library, called as training
 * calls them, and those of the MPI library.
 */
#ifndef TACITI_BENCH_COLLECTIVE_CALLS_H
#define TACITI_BENCH_COLLECTIVE_CALLS_H

#include "base/memory.h"
#include "bench/collective_numbers.h"
#include "comm/comm.h"
#include "exchange/exchange.h"

enum { TACITI_COLLECTIVE_MAX_CALLERS = 12, TACITI_COLLECTIVE_NAME_BYTES = 32 };

typedef enum taciti_operation {
    TACITI_OPERATION_ALL_REDUCE, /* sum of f32 over all ranks */
    TACITI_OPERATION_SEND,       /* rank 0 to one other rank, until the answer of 0 bytes is back */
    TACITI_OPERATIONS
} taciti_operation;

/* "all-reduce", ...; and all of them as choices, "all-reduce|...". */
extern const char *const taciti_operation_names[TACITI_OPERATIONS];
#define TACITI_OPERATION_CHOICES "all-reduce|send"

/* Arrays and objects that all callers share. */
typedef struct taciti_collective_task {
    taciti_comm *comm; /* borrows */
    taciti_operation what;
    taciti_exchange_options options; /* of our all-reduce */
    int receiver;                    /* of a send */
    taciti_pages in_pages, out_pages;
    float *in, *out;
    size_t n; /* floats of the current size */
    taciti_numbers numbers;
    taciti_layout layout; /* of the current size */
    taciti_exchange *exchange;
} taciti_collective_task;

typedef struct taciti_caller {
    char name[TACITI_COLLECTIVE_NAME_BYTES];
    int native; /* index among the library's; ours: -1 */
    bool apart; /* the result is in task->out, not in task->in */
    /* `calls` calls in a row; seconds of all of them on this rank. Collective. */
    tacit_status (*sample)(taciti_collective_task *task, const struct taciti_caller *caller, int calls, double *out_s);
} taciti_caller;

/* Allocates what does not depend on the size. Call close also after an error. Collective. */
tacit_status taciti_collective_open(taciti_comm *comm, taciti_operation what, const taciti_exchange_options *options,
                                    size_t max_bytes, taciti_collective_task *out);
void taciti_collective_close(taciti_collective_task *task);

/* Lists the callers that are available here. Collective. */
tacit_status taciti_collective_callers(taciti_collective_task *task, taciti_caller out[TACITI_COLLECTIVE_MAX_CALLERS],
                                       int *count);

/* Sets the length of the arrays to `bytes`. Collective. */
tacit_status taciti_collective_resize(taciti_collective_task *task, size_t bytes);

/* Prepares the arrays for a call whose result is checked, and overwrites the previous result. */
void taciti_collective_fill(taciti_collective_task *task, const taciti_caller *caller);
/* Prepares the arrays for many consecutive calls: with zeros, because sums of sums would overflow. */
void taciti_collective_clear(taciti_collective_task *task);
/* Returns whether the result on this rank is exact. */
bool taciti_collective_is_right(const taciti_collective_task *task, const taciti_caller *caller);

#endif
