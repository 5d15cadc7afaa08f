/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a run as a table of named entries. Optimizers, strategies and callers list their state; checkpoints save
 * and restore the entries without knowing their meaning (ckpt/state.h).
 *
 *   name "model", shared      the same on every rank, or, of a range, a part of one whole
 *   name "optim.m", own       every rank has a value of its own
 *
 * An entry borrows what it points to. The table is rebuilt for every use. Any thread, not collective.
 */
#ifndef TACITI_TENSOR_STATE_H
#define TACITI_TENSOR_STATE_H

#include "tensor/layout.h"

typedef enum taciti_state_kind {
    TACITI_STATE_ARRAY,   /* a flat array or ranges of one; padding is not saved */
    TACITI_STATE_NUMBERS, /* double[n]; infinite numbers come back as NaN */
    TACITI_STATE_COUNT,   /* one int64_t, 0 or above */
    TACITI_STATE_BYTES,   /* n bytes */
} taciti_state_kind;

typedef enum taciti_state_owner {
    TACITI_STATE_SHARED, /* equal on all ranks; of ranges: one whole that the ranks' ranges cover */
    TACITI_STATE_OWN,    /* of this rank alone */
} taciti_state_owner;

/* Rule for a rank's own entry when a run continues on another number of ranks. When it continues with another strategy,
 * or from the mean on request, entries with TACITI_STATE_MEAN are restored, shared ones too, and all others are left
 * unchanged. */
typedef enum taciti_state_regroup {
    TACITI_STATE_RESET, /* keeps its value from before the first step */
    TACITI_STATE_SUM,   /* rank r of n receives the sum over former ranks r, r + n, ..., so the total is preserved.
                         * Whole arrays, numbers and counts */
    TACITI_STATE_TERM,  /* the same, times n / the number of former ranks: of values whose total is divided by the
                         * number of ranks, that mean is preserved */
    TACITI_STATE_MEAN,  /* every rank receives the shared array of that name if there is one, else the mean over the
                         * former ranks. Whole arrays, numbers and counts (rounded) */
} taciti_state_regroup;

/* How the floats of a flat array are reached that are stored in another form. read() need not
 * return the floats that write() was given, but the floats that read() returns are stored unchanged. One call at a
 * time. */
typedef struct taciti_state_access {
    void *object;                                                           /* borrows */
    int which;                                                              /* the object's name for the array */
    void (*read)(void *object, int which, size_t at, float *out, size_t n); /* floats at .. at + n */
    void (*write)(void *object, int which, size_t at, const float *x, size_t n);
} taciti_state_access;

typedef struct taciti_state_entry {
    const char *name; /* unique in its table; "strategy.anchor" */
    taciti_state_kind kind;
    taciti_state_owner owner;
    taciti_state_regroup regroup;
    void *data;                  /* of an array: its float 0, of ranges too */
    const taciti_layout *layout; /* of arrays */
    size_t n;                    /* of an array: layout->n */
    const taciti_range *ranges;  /* of an array: these of it, ascending; NULL: all of it */
    size_t range_count;
    const taciti_range *held; /* as many; what this rank needs to go on, where others save some of it. NULL: `ranges` */
    taciti_state_access access; /* of a whole array, instead of data, if `read` is not NULL */
    bool optional;              /* if a checkpoint lacks it, it keeps its value from before the first step */
    bool *filled;               /* set to true when a checkpoint's value has been restored; borrows, NULL: not told */
} taciti_state_entry;

enum { TACITI_STATE_MAX_ENTRIES = 80, TACITI_STATE_NAME_BYTES = 48 };

typedef struct taciti_state {
    taciti_state_entry entries[TACITI_STATE_MAX_ENTRIES + 1]; /* the last one takes what does not fit */
    size_t count; /* above TACITI_STATE_MAX_ENTRIES: some did not fit, and the table is refused */
} taciti_state;

/* Adds an entry and returns it, for members that are set afterwards; as do all below. */
taciti_state_entry *taciti_state_add(taciti_state *state, taciti_state_entry entry);

/* A whole flat array. */
taciti_state_entry *taciti_state_add_array(taciti_state *state, const char *name, taciti_state_owner owner,
                                           taciti_state_regroup regroup, const taciti_layout *layout, float *flat);

/* Ranges of a flat array, borrowed. */
taciti_state_entry *taciti_state_add_ranges(taciti_state *state, const char *name, taciti_state_owner owner,
                                            taciti_state_regroup regroup, const taciti_layout *layout, float *flat,
                                            const taciti_range *ranges, size_t range_count);

taciti_state_entry *taciti_state_add_numbers(taciti_state *state, const char *name, taciti_state_owner owner,
                                             taciti_state_regroup regroup, double *numbers, size_t n);

/* With TACITI_STATE_RESET. */
taciti_state_entry *taciti_state_add_bytes(taciti_state *state, const char *name, taciti_state_owner owner, void *bytes,
                                           size_t n);

/* The index-th run of floats that an array entry consists of, relative to its data. False behind the last. */
bool taciti_state_range(const taciti_state_entry *entry, size_t index, taciti_range *out);

/* The same of what this rank holds. */
bool taciti_state_held(const taciti_state_entry *entry, size_t index, taciti_range *out);

/* Copy floats [at, at + n) of an array entry, from its memory or its other form, and back. */
void taciti_state_read(const taciti_state_entry *entry, size_t at, float *out, size_t n);
void taciti_state_write(const taciti_state_entry *entry, size_t at, const float *x, size_t n);

/* Every rank writes a part of the entry to a checkpoint: an own entry that lies in the shards, or a range. */
bool taciti_state_is_of_rank(const taciti_state_entry *entry);

/* NULL: there is none. */
const taciti_state_entry *taciti_state_find(const taciti_state *state, const char *name);

#endif
