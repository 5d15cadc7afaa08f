/* SPDX-License-Identifier: Apache-2.0
 *
 * A strategy decides what ranks exchange, and when. It is one table of functions and one line in strategy/registry.c;
 * nothing above this folder knows its name. Before a run the table answers questions: check, patterns, describe. In a
 * run it is called in this order:
 *
 *   create, start, then in every step ready for each bucket and finish (or settle, the caller's update, stepped),
 * destroy
 *
 * Two tables belong to some strategies alone: `replicas`, where every rank has parameters of its own, and `units`,
 * where no rank holds all parameters.
 */
#ifndef TACITI_STRATEGY_STRATEGY_H
#define TACITI_STRATEGY_STRATEGY_H

#include "base/memory.h"
#include "base/option.h"
#include "exchange/exchange.h"
#include "optim/optim.h"
#include "strategy/compression.h"
#include "strategy/pattern.h"
#include "tensor/state.h"

/* Everything a strategy works on. Borrowed for the strategy's whole life. */
typedef struct taciti_strategy_context {
    taciti_comm *comm;
    const taciti_layout *layout;
    taciti_pool *pool;
    taciti_optim *optim;
    const taciti_optim_options *optim_options;
    const taciti_exchange_options *exchange_options;
    taciti_compression_setup compression; /* of sums over all ranks; strategies that do not compress ignore it */
    const void *options;                  /* the struct that the strategy's option table fills; NULL if it has none */
    float *parameters;                    /* flat */
    float *gradients;    /* flat; sum over the local samples, scaled so that the sum over ranks is the gradient */
    taciti_bf16 *copy16; /* flat bf16 copy of the parameters, or NULL */
    taciti_trace *trace; /* of the training thread */
    const taciti_pages *parameter_pages, *gradient_pages,
        *copy16_pages;                /* not NULL: the array is this reserved region */
    int64_t total_steps;              /* of the run; 0: unknown */
    bool by_units;                    /* the network calls need, release and write */
    bool own_optimizer;               /* steps come as settle() and stepped() */
    bool idle_optimizer;              /* updates move nothing: compute is emulated */
    bool follows_clock;               /* the caller goes on from taciti_step_report.clock, and calls meet() */
    const char *arrivals;             /* folder of the log of a run that follows_clock; NULL: none */
    bool replays;                     /* repeats the run of that log, instead of writing it */
    uint64_t run;                     /* digest of all that decides the course of the run */
    const taciti_bucket_hooks *hooks; /* around every exchange of a bucket by `compression`; NULL: none */
} taciti_strategy_context;

typedef struct taciti_step_report {
    double grad_norm; /* before clipping. Equal replicas: norm of the whole batch's gradient. Otherwise: of this rank's
                         own gradient or its estimate of the mean. NaN or Inf if the step was skipped */
    bool skipped;     /* no update: on every rank if replicas are equal, else on this rank only, which still mixes */
    bool clipped;     /* settle() has scaled what had arrived: optim.clip */
    int64_t clock;    /* above 0: ranks count their own steps; the number that this one has made or passed over */
    int64_t wait_ns;  /* exposed wait: blocked on communication after the end of backward, or on gathers */
    double moved; /* sum of squares of the changes by mixing on this rank, a local proxy of the consensus distance */
    double factor, gain, kept; /* of a compressed sum: the factor that was used (1: dense), |sent|^2 / |gradient +
                                  residual|^2, and the share of the elements that were sent; 0 if there was none */
    double bytes;              /* payload per step that a rank sends: of a compressed sum what was counted, mean over
                                  ranks and over the period of the last one; of mixes what this rank counted in the
                                  last period; else as in taciti_strategy_figures; 0: nothing, or unknown */
    double pending;            /* elements of that sum whose sketch did not decode, over all ranks: they were fetched */
} taciti_step_report;

/* One kind of traffic. */
enum { TACITI_TRAFFIC_CLASSES = 4 };
typedef struct taciti_traffic_class {
    const char *what;  /* "gradients", "parameters" */
    const char *where; /* "between hosts", "inside hosts" */
    const char *codec; /* that it travels through, or a number format */
    bool compressed;   /* by compress.* */
    uint64_t bytes;    /* that this rank sends per step; the maximum if payloads vary in size */
} taciti_traffic_class;

/* The memory and traffic of a strategy. The bytes of sums whose payloads vary in size are the maximum. */
typedef struct taciti_strategy_figures {
    size_t own_bytes; /* that create() allocates */
    size_t period;    /* steps after which the exchange repeats, but for sums of gossip's signals */
    size_t lag;       /* steps by which a transfer may outlast the end of the next step */
    size_t traffic_count;
    taciti_traffic_class traffic[TACITI_TRAFFIC_CLASSES]; /* by kind and reach; none: sums alone */

    /* Payload of this rank, mean per step over a period, without headers and heartbeats; 0 before the strategy is
     * created. */
    uint64_t sent_bytes;
} taciti_strategy_figures;

/* A range of the flat arrays that this rank updates, and where it is updated. */
typedef struct taciti_part {
    taciti_range floats; /* may be empty */
    float *parameters, *gradients;
} taciti_part;

/* For strategies whose ranks update parts of the parameters and do not hold all of them: no bucket belongs to two
 * units, and the optimizer has moments where the strategy holds them. Ranks call need and release in the same order. */
typedef struct taciti_unit_verbs {
    /* need: the parameters of this unit (taciti_tensor.unit) will be read; release: they will not be read until the
     * next need. Called in pairs by the training thread during forward and backward; need may block. A step that ends
     * early may omit releases. Before start() need makes the unit's parameters writable, for the caller to set them. */
    tacit_status (*need)(void *self, size_t unit);
    void (*release)(void *self, size_t unit);

    /* Gradients of this unit will be written. May block. */
    tacit_status (*write)(void *self, size_t unit);

    /* Predicts the bytes of the flat arrays that this rank holds when it holds the most, if the network has arrays of
     * reserved pages and its steps have this number of passes. Reads what describe reads. */
    void (*memory)(const taciti_strategy_context *context, size_t passes, taciti_strategy_memory *out);

    /* Sets *out to the index-th part of this rank; its gradients are sums between settle and stepped. False behind the
     * last. */
    bool (*part)(const void *self, size_t index, taciti_part *out);
} taciti_unit_verbs;

/* For strategies whose replicas differ. Between two steps: average replaces parameters and copy16 by the mean over all
 * ranks and stores the rank's own in `gradients`; *distance receives the consensus distance sqrt(1/N sum_i |x_i -
 * mean|^2). revert restores them bit for bit. Transfers under way continue. Collective. */
typedef struct taciti_replica_verbs {
    tacit_status (*average)(void *self, double *distance);
    void (*revert)(void *self);

    /* For steps that report a clock. answer: after every step; due: this rank has reason to meet. Returns whether it is
     * to meet now: when all ranks have answered, or one waits in meet. meet: completes what is under way, and sets
     * *clock to the maximum over the ranks. It comes between two steps, and before anything else that is collective.
     * *ends: the run that is repeated ended here.
     * NULL: ranks make the same steps. Meet is collective. */
    bool (*answer)(void *self, bool due);
    tacit_status (*meet)(void *self, int64_t *clock, bool *ends);

    /* begin_log: creates the log in context.arrivals, unless that one is repeated. Call it between start() and the
     * first step. end_log: completes it after the last one; E_IO if lines are missing. NULL: there is no such log.
     * Collective. */
    tacit_status (*begin_log)(void *self);
    tacit_status (*end_log)(void *self);
} taciti_replica_verbs;

typedef struct taciti_strategy {
    const char *name, *help, *source;

    /* The strategy's section of the configuration, and the size of the struct that it fills. NULL, 0: none. */
    const taciti_option_table *options;
    size_t options_size;

    /* Keys of that section, separated by blanks, that reports show to distinguish runs of this strategy: "topology
     * order". NULL: none. */
    const char *label;

    bool sums_gradients;                  /* bucket by bucket, as they become ready, and calls the context's hooks */
    bool compresses;                      /* sums go through the context's compression; the others refuse a codec */
    const taciti_unit_verbs *units;       /* NULL: every rank holds and updates all parameters */
    const taciti_replica_verbs *replicas; /* NULL: parameters are bit-equal on all ranks after every step */

    /* Returns E_CONFIG, with what to type, for options, a compression, an exchange or an optimizer that do not suit
     * this strategy and, if hosts is not NULL, for what cannot be used on these ranks. Reads own_optimizer and the
     * options of the context; create() takes for granted what it refuses. NULL: every combination is legal. Not
     * collective. */
    tacit_status (*check)(const taciti_strategy_context *context, const taciti_hosts *hosts);

    /* Returns the name of the codec that these options name for what is not a sum over all ranks, such as the mixes of
     * replicas; any other word: none. automatic: compress.codec is auto, which counts where they name none. NULL: there
     * is no such thing. Not collective. */
    const char *(*codec)(const void *options, bool automatic);

    /* Refuses, as check() does, what this codec cannot mix on a topology of these hosts. Sets *arrays to the flat
     * arrays of f32 that the rank with the largest number of them holds for its sake. NULL without `codec`. Not
     * collective. */
    tacit_status (*mixes)(const taciti_strategy_context *context, const taciti_hosts *hosts,
                          const taciti_topology *topology, size_t *arrays);

    /* Lists the *count patterns that the planner prices: that of these options on these hosts, and alternatives worth
     * comparing. hosts NULL: not known. 0: it cannot price this strategy. Returns E_CONFIG for options that no pattern
     * describes. The patterns borrow from `options`. Not collective. */
    tacit_status (*patterns)(const void *options, const taciti_hosts *hosts, taciti_pattern out[TACITI_PATTERNS_MAX],
                             size_t *count);

    /* Sets *out. self: what create() made of this context; NULL before. Reads communicator, layout and options of the
     * context. Not collective. */
    tacit_status (*describe)(const taciti_strategy_context *context, const void *self, taciti_strategy_figures *out);

    /* Creates the strategy. Collective. Returns owned. */
    tacit_status (*create)(const taciti_strategy_context *context, void **out);
    void (*destroy)(void *self);

    /* Called before the first step, when the parameters are set. restored: every entry that state() lists holds the
     * value from a checkpoint of this strategy on as many ranks. Otherwise the run is new (step 0) or continues from
     * the mean of other ranks or of another strategy (step > 0): parameters are equal on all ranks, entries with
     * TACITI_STATE_SUM, _TERM or _MEAN may have been filled, and start() sets all others. Begins the transfers that are
     * under way between two steps, so that checkpoints need not hold them. NULL: nothing to do. Collective. */
    tacit_status (*start)(void *self, int64_t step, bool restored);

    /* The gradient of this bucket is final. Called by the training thread, in ready order, during the backward pass of
     * the last micro-batch. Must not block. NULL: the strategy uses gradients in finish() only. */
    tacit_status (*ready)(void *self, size_t bucket);

    /* Whether the step that begins reads gradients before finish(). NULL: every step does where there is `ready`. Not
     * collective. */
    bool (*reads_early)(const void *self);

    /* Called after backward of all micro-batches: waits for transfers, decides whether to skip, clips, and updates
     * parameters and copy16. If replicas are equal the result is bit-equal on every rank; if they differ, a rank whose
     * own gradient is not finite skips its update alone. Collective. */
    tacit_status (*finish)(void *self, double lr, taciti_step_report *out);

    /* finish() in two halves around an update by the caller. settle leaves the gradient for the update, scaled and
     * clipped, in `gradients`, and the parameters to update in `parameters`. If the report says skipped, the caller
     * makes no update; stepped must be called in either case, after copy16 is up to date. It adds to wait_ns and moved
     * of settle's report. With the same update the result equals that of finish() bit for bit. stepped NULL: nothing is
     * left to do. Collective. */
    tacit_status (*settle)(void *self, double lr, taciti_step_report *out);
    tacit_status (*stepped)(void *self, taciti_step_report *out);

    /* Lists what a checkpoint must hold besides the shared "model", which is listed here if ranks hold parts of it: the
     * state of the optimizer (taciti_optim_list_state()); where replicas differ the rank's own parameters, as "model"
     * of its own (taciti_average_list_model()); and what the strategy itself remembers, as "strategy.<name>": arrays,
     * ranges of arrays, counters, whether replicas are equal or not. The values are current ones: call it again for
     * every save. Entries may also be written to, between create() and start(). Between two steps. Not collective. */
    void (*state)(void *self, taciti_state *out);

    /* Writes the decision of the last step about compression, as taciti_compression_event() does. NULL: nothing ever.
     */
    bool (*event)(const void *self, char *out, size_t size);
} taciti_strategy;

/* Whether it has a codec for something else than sums over all ranks, and refuses one for these. */
static inline bool taciti_strategy_mixes_only(const taciti_strategy *s) { return s->codec != NULL && !s->compresses; }

const taciti_strategy *const *taciti_strategy_list(void);      /* ends with NULL; any thread */
const taciti_strategy *taciti_strategy_find(const char *name); /* NULL: there is none */
const char *taciti_strategy_name(size_t index);                /* for an option of type NAME; NULL behind the last */

#endif
