/* SPDX-License-Identifier: Apache-2.0
 *
 * Controllers: they choose the factor of the next step from what the steps before have shown.
 *
 * All ranks must use the same factor. So a controller sees only facts that are equal on all ranks - sums and maxima
 * over ranks, the configuration - and is a function of them, its options and its state: every rank computes the same
 * decision, up to the rounding of its processor's logarithms. So the caller gives all ranks that of rank 0. A decision
 * is one step late: facts of step t choose the factor of step t + 1.
 *
 * State, decision and factors of buckets are plain bytes without pointers, equal on all ranks. The caller owns them and
 * saves all three in checkpoints; a run that resumes goes on with decide() (but for `measures`). If the codec, its
 * options, the number of ranks, the buckets, the controller's options or TACITI_ADAPT_VERSION differ from those of the
 * checkpoint, the controller begins again with start().
 *
 * A controller touches no arrays, sends nothing, allocates nothing and never fails. A new one is one C file and one
 * line in adapt/registry.c.
 */
#ifndef TACITI_ADAPT_ADAPT_H
#define TACITI_ADAPT_ADAPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/option.h"
#include "codec/tally.h"

/* Raise it with every change of a controller's state, of taciti_decision or of what identifies it. */
enum { TACITI_ADAPT_VERSION = 6 };

/* Seconds of one step: those of the slowest rank, but for the first member. 0: unknown. */
typedef struct taciti_adapt_seconds {
    double step;    /* the whole step: the mean of all ranks, which differ only by when each of them looks */
    double encode;  /* encode and decode of all payloads, summed over both threads; 0 in a dense step */
    double exposed; /* the training thread was blocked for the exchange after backward */
    double busy;    /* the communication thread was exchanging: encode and decode included */
} taciti_adapt_seconds;

/* A step that was taken. Skipped steps are not shown. */
typedef struct taciti_adapt_facts {
    int64_t step;  /* exchanges that were taken before it since start(): steps, with localsgd averages; skipped ones
                      left out. Time of all periods */
    int64_t at;    /* step of the run */
    double factor; /* that was used for the model; 1: dense. It may be below the decision's (warm-up of the factor) */
    double lr;     /* learning rate of the step */
    double bytes;  /* that crossed links between hosts, of the rank that sent most */
    int ranks;     /* of the run */
    size_t buckets;
    taciti_tally model; /* contributions, over the ranks that encode them. In a dense step `sent` has squares_out =
                           squares_in and selected = n */
    const taciti_tally *bucket; /* [buckets] */
    const size_t *bucket_bytes; /* [buckets]; f32 */
    const double *bucket_busy;  /* [buckets] of seconds.busy, the mean of all ranks; NULL: unknown */
    taciti_adapt_seconds seconds;
} taciti_adapt_facts;

/* The facts that are known before the first step. */
typedef struct taciti_adapt_start {
    double factor;                  /* compress.factor */
    const taciti_codec_rung *rungs; /* of the codec; NULL: none */
    double loss;                    /* compress.loss: rungs that may lose more are not chosen */
    int64_t selects_at;             /* facts.at from which on rungs that select may be chosen */
    size_t buckets;
} taciti_adapt_start;

enum { TACITI_DECISION_BYTES = 256 };
typedef struct taciti_decision {
    double factor; /* for the next step; 1: dense, which sends the residuals as well */
    double trial;  /* a second factor whose `squares_out` the next step shall measure and not send; 0: none */
    bool changed;  /* the controller chose otherwise than in the step before: worth an event */
    char
        reason[TACITI_DECISION_BYTES]; /* of the last change: one plain sentence with its numbers; no quotes, no newline
                                        */
} taciti_decision;

typedef struct taciti_controller {
    const char *name, *help, *source;
    bool reference;                     /* it is there to compare with: no result recommends it; listed on request */
    const taciti_option_table *options; /* NULL: none */
    size_t options_size;
    bool per_bucket; /* writes factors of buckets */
    bool switches;   /* only chooses between dense and the codec: suits codecs without a factor */
    bool measures;   /* its state is times alone: a resumed run begins again, on whatever links it has now */

    /* Returns E_CONFIG, with what to type, for an illegal combination of options. NULL: all are legal. */
    tacit_status (*check)(const void *options);

    /* Steps over which the caller adds up the gradient that the optimizer gets, for squares_period; periods start at
     * multiples of facts.step. NULL: no sum is wanted. */
    int64_t (*period)(const void *options);

    /* Bytes of state. */
    size_t (*state_bytes)(size_t buckets);

    /* Decides the first step. `state` and `factors` are zeroed. */
    void (*start)(const void *options, const taciti_adapt_start *start, void *state, taciti_decision *decision,
                  double *factors);

    /* Takes the facts of a step in and decides the next one; compression asks controllers with state alone. `decision`
     * and factors[buckets] hold what was decided for that step. factors[b]: of bucket b, 0: decision->factor holds. */
    void (*decide)(const void *options, const taciti_adapt_facts *facts, void *state, taciti_decision *decision,
                   double *factors);
} taciti_controller;

/* All controllers, those for reference last, ending with NULL. Any thread. */
const taciti_controller *const *taciti_controller_list(void);

/* The controller called `name`, or NULL. Any thread. */
const taciti_controller *taciti_controller_find(const char *name);

/* For options of type NAME; those for reference are not shown. */
const char *taciti_controller_name(size_t index);

/* Fills the reason and marks the change. */
void taciti_decision_explain(taciti_decision *decision, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
