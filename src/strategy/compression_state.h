/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of compression.h: compression.c exchanges, compression_control.c decides.
 */
#ifndef TACITI_STRATEGY_COMPRESSION_STATE_H
#define TACITI_STRATEGY_COMPRESSION_STATE_H

#include "strategy/strategy.h"

/* Costs of a step that one rank tells the others besides its tallies: doubles, each with its reduction over ranks.
 */
#define TACITI_COSTS_FIELDS(X)                                                                                         \
    X(SUM, step_s)                                                                                                     \
    X(MAX, encode_s)                                                                                                   \
    X(MAX, exposed_s)                                                                                                  \
    X(MAX, busy_s)                                                                                                     \
    X(MAX, bytes)

#define TACITI_FIELD(how, name) double name;
typedef struct taciti_costs {
    TACITI_COSTS_FIELDS(TACITI_FIELD)
} taciti_costs;
#undef TACITI_FIELD

/* A factor, and the threshold that selects by it. factor 0: none. */
typedef struct taciti_level {
    double factor;
    taciti_threshold threshold;
} taciti_level;

/* Number of facts that the controller's state belongs to. If one of them differs in a checkpoint, the controller is
 * reset. */
enum { TACITI_IDENTITY_PARTS = 6 };

struct taciti_compression {
    taciti_compression_setup setup;
    taciti_encoding encoding;            /* of setup.phase; codec NULL: all is dense */
    const taciti_controller *controller; /* of setup.phase */
    taciti_comm *comm;                   /* borrows, as the next five */
    const taciti_layout *layout;
    taciti_optim *optim;
    const taciti_optim_options *optim_options;
    const float *gradients;
    const taciti_bucket_hooks *hooks;
    taciti_exchange *exchange; /* owned, as all below */
    int64_t step, settled_ns;
    double own_s; /* mean seconds of steps besides their waits; 0: none was timed */

    /* Equal on all ranks, and in checkpoints. */
    taciti_level sent[TACITI_PAYLOAD_KINDS]; /* of the next step; no threshold: the factor holds for every piece */
    taciti_level tried[2];                   /* of the next step's trial; of another one before it */
    double *factors;                         /* per bucket; 0: the decision's */
    taciti_decision decision;
    int64_t taken; /* steps since the controller began: its time */
    uint64_t saved_identity[TACITI_IDENTITY_PARTS];
    char names[5][64];                        /* of the controller's entries */
    char codec_name[TACITI_STATE_NAME_BYTES]; /* of the entry of its state */
    char *state;                              /* the controller's */
    size_t state_bytes;
    float *period_sum; /* of gradients, if the controller asks for one */
    int64_t placement; /* this rank's; tells arrangements apart, as residuals lie where a rank encodes */
    int64_t saved_placement;

    /* Statistics of a step: taciti_costs, then the fields of a taciti_tally per kind and bucket, or per kind where no
     * controller asks for buckets. First of this rank, then over all ranks. */
    double *statistics;
    taciti_op *operations; /* [statistics_n]; by which ranks combine them */
    size_t statistics_n, shown_buckets;
    taciti_tally *tallies; /* [kind][bucket], of the last step that was shown */
    size_t *bucket_bytes;
    double *bucket_busy; /* part of the block of `factors` */
};

/* Elements per element sent in this step; bucket = their count: of the model. 1: dense. */
double taciti_compression_factor(const taciti_compression *c, size_t bucket);

/* The same for sums on their way back, in a step that has that factor. */
double taciti_compression_back_factor(const taciti_compression *c, double factor);

/* Returns the threshold of a step with this factor: none if it was made for another one. */
taciti_threshold taciti_compression_threshold(const taciti_compression *c, taciti_payload_kind kind, double factor);

/* Goes on to the step of the next exchange; taken: the controller has seen this one. */
void taciti_compression_advance(taciti_compression *c, bool taken);

/* Returns the first step in which few elements may be sent: the end of compress.warmup. */
int64_t taciti_compression_safe_step(const taciti_compression *c);

/* Returns the number of steps in which the factor of this codec rises. */
int64_t taciti_compression_warmup(const taciti_compression *c);

/* How ranks combine the n statistics. */
void taciti_compression_list_operations(taciti_op *out, size_t n);

/* Adds up what all ranks have seen, corrects the thresholds and decides the next step. norm: of the sum, equal on all
 * ranks. Collective. */
tacit_status taciti_compression_learn(taciti_compression *c, double lr, double norm, taciti_step_report *report);

#endif
