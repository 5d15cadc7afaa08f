/* SPDX-License-Identifier: Apache-2.0
 *
 * Compressed sums over all ranks, for strategies: owns their exchange, and decides before every step how strongly it
 * compresses. dp sends its gradients through it, localsgd its differences.
 *
 *   create()   ... start(step)   begin(), wait   settle(taken)   begin(), wait   settle(taken) ...
 *
 * settle() adds up over all ranks what encodes have seen, in one short message, and computes from these sums, which are
 * the same bits on every rank, what the next step does:
 *
 * - factor: compress.factor, or the decision of a controller (adapt/adapt.h); it rises during compress.warmup
 * - threshold, of codecs that select by threshold: one for the whole model, so that the elements with the largest
 *   magnitudes of all buckets are sent. It is corrected from step to step (taciti_threshold_correct())
 * - dense: factor 1, or the decision of a controller: the bits and the speed of a run without compression; what the
 *   residuals hold is added first
 *
 * With compress.what momentum (1-bit Adam, arXiv 2102.02888, algorithm 1) steps are dense until the optimizer's second
 * moments are frozen. From then on each bucket becomes this rank's share of the new first moment before it is
 * exchanged, so the sum is that moment and not the gradient: taciti_compression_sends_momentum().
 *
 * Strategies that own parts of arrays use two objects, one per phase of the all-reduce (`phase`): one sums gradients,
 * the other gathers what the owners have made of the sums, with compress.back as its factor. The gathers have no
 * residuals: its sender knows what it has not sent yet. Gathers of other arrays have some with gather_feedback.
 *
 * Without a codec it is an exchange with exchange.wire, and settle() sends nothing.
 */
#ifndef TACITI_STRATEGY_COMPRESSION_H
#define TACITI_STRATEGY_COMPRESSION_H

#include "adapt/adapt.h"
#include "exchange/exchange.h"
#include "optim/optim.h"
#include "tensor/state.h"

typedef enum taciti_compress_scope { TACITI_SCOPE_MODEL, TACITI_SCOPE_BUCKET } taciti_compress_scope;
typedef enum taciti_compress_what {
    TACITI_SENDS_GRADIENT,
    TACITI_SENDS_MOMENTUM,
    TACITI_SENDS_CHANGE /* of an estimate of the gradient (EF21) */
} taciti_compress_what;

typedef struct taciti_compress_options {
    taciti_text codec;  /* compress.codec: a name of the registry, "auto" or "none" */
    taciti_text gather; /* compress.gather: the same, of parameters that strategy shard gathers */
    taciti_text layers; /* compress.layers: the tensors that are compressed (tensor/choice.h) */
    int what;           /* compress.what: taciti_compress_what */
    double factor;      /* compress.factor: elements per element that a rank sends */
    double back;        /* compress.back: the same for the sum on its way back; 0: as factor */
    int scope;          /* compress.scope: taciti_compress_scope */
    int64_t warmup;     /* compress.warmup: steps in which the factor rises; -1: from those of the learning rate */
    double loss;        /* compress.loss: percent by which compress.codec auto may end above dense */
    double start;       /* compress.start: factor with which the warm-up begins */
    double feedback;    /* compress.feedback: share of an error that is added in the next step; 0: nothing */
    double momentum;    /* compress.momentum: momentum correction of residuals */
    int collective;     /* compress.collective: auto, scatter, gather */
    int residual;       /* compress.residual: taciti_residual_form, in which errors wait for the next step */
} taciti_compress_options;
extern const taciti_option_table taciti_compress_option_table; /* section "compress" */

typedef struct taciti_adapt_options {
    taciti_text policy; /* adapt.policy: a name of the registry */
} taciti_adapt_options;
extern const taciti_option_table taciti_adapt_option_table; /* section "adapt" */

/* The compression of a strategy: the codecs, which alone are set here, and the options that complete their encodings.
 * {0}: nothing is compressed. With the phase ALL_GATHER it is about the gathers, otherwise about the sums. */
typedef struct taciti_compression_setup {
    taciti_encoding sums, gathers; /* of gradients, or differences; of parameters that strategy shard gathers */
    taciti_encoding mixes;         /* of replicas: taciti_strategy.codec */
    const taciti_compress_options *options; /* borrowed; not NULL if there is a codec */
    const taciti_controller *controller;    /* NULL: the factor is fixed */
    const void *controller_options;         /* borrowed */
    taciti_phase phase;                     /* what begin() starts */
    int64_t every;                          /* steps from one exchange to the next; 0: 1 */
    bool averages;                          /* what is summed is divided by the number of ranks */
    bool gather_feedback;                   /* gathers keep what their encodings lose for the next gather, as sums do */
} taciti_compression_setup;

/* Returns what the exchange is told: the encoding of the phase, completed by the options. codec NULL: all is dense. */
taciti_encoding taciti_compression_encoding(const taciti_compression_setup *setup);

/* Returns the same setup for the gathers. They have no residuals, and of controllers only those that switch. */
taciti_compression_setup taciti_compression_gather_setup(const taciti_compression_setup *setup);

/* Return the controller of the phase, "fixed" if the options name none; and whether it is that one. */
const taciti_controller *taciti_compression_controller(const taciti_compression_setup *setup);
bool taciti_compression_is_fixed(const taciti_compression_setup *setup);

/* Returns the factor that the options ask for: of gathers compress.back, unless it is 0. */
double taciti_compression_asked_factor(const taciti_compression_setup *setup);

/* Whether that factor is used, because no controller chooses another one. */
bool taciti_compression_keeps_factor(const taciti_compression_setup *setup);

/* Whether payloads of the codec are sent: with factor 1 every step is dense, unless a controller chooses. */
bool taciti_compression_sends_payloads(const taciti_compression_setup *setup);

/* Whether one threshold of the whole model selects what is sent. */
bool taciti_compression_by_threshold(const taciti_compression_setup *setup);

/* Whether what arrives differs from what was sent. */
bool taciti_compression_is_lossy(const taciti_compression_setup *setup);

/* Returns what ranks send; gathers are of values or changes of parameters, which count as GRADIENT. */
taciti_compress_what taciti_compression_what(const taciti_compression_setup *setup);

/* Returns E_CONFIG, with what to type, for a codec that carries no sum, and for options that do not suit it. */
tacit_status taciti_compression_check(const taciti_compression_setup *setup);

/* The same for compress.what with this optimizer. */
tacit_status taciti_compression_check_momentum(const taciti_compression_setup *setup,
                                               const taciti_optim_options *optim);

typedef struct taciti_compression taciti_compression;
struct taciti_strategy_context;
struct taciti_step_report;

/* Creates the exchange over all ranks. Borrows what the context points to. Collective. */
tacit_status taciti_compression_create(const struct taciti_strategy_context *context, taciti_compression **out);
void taciti_compression_destroy(taciti_compression *compression); /* NULL is allowed */
size_t taciti_compression_predict_bytes(const struct taciti_strategy_context *context);

/* For waits and formulas. Borrowed. */
taciti_exchange *taciti_compression_exchange(const taciti_compression *compression);

/* Call it when a run starts, with the arguments of taciti_strategy.start(). Collective. */
tacit_status taciti_compression_start(taciti_compression *compression, int64_t step, bool restored);

/* Sets the step of the buckets that begin next, where it does not follow the last one. Not collective. */
void taciti_compression_at(taciti_compression *compression, int64_t step);

/* taciti_exchange_begin(), or of the phase, with what was decided for this bucket. */
tacit_status taciti_compression_begin(taciti_compression *compression, float *flat, size_t bucket);

/* Whether the step under way compresses nothing. */
bool taciti_compression_is_dense(const taciti_compression *compression);

/* Whether the sums of the step under way are first moments of the optimizer, for taciti_optim_update_by_momentum(); it
 * stays until that update. */
bool taciti_compression_sends_momentum(const taciti_compression *compression);

/* Ends the exchange of a step, after all waits; the step number increases by setup.every. taken: the update is made.
 * Not taken: nothing changes, so that the next step does what this one would have done. lr: of the step. norm: of the
 * sum over ranks, the same bits on all of them. Fills in what the report says of compression. Collective. */
tacit_status taciti_compression_settle(taciti_compression *compression, bool taken, double lr, double norm,
                                       struct taciti_step_report *report);

/* Lists residuals, thresholds and the controller's state for checkpoints. Not collective. */
void taciti_compression_state(taciti_compression *compression, taciti_state *out);

/* Bytes that each rank tells the others in settle(). adapts: a controller chooses. */
size_t taciti_compression_statistics_bytes(size_t buckets, bool adapts);

/* The decision of the last settle(), as members of a JSON object: "factor": 10, "reason": "...". Returns false if it
 * changed nothing. */
bool taciti_compression_event(const taciti_compression *compression, char *out, size_t size);

/* A threshold that follows a distribution. {0}: none yet. */
typedef struct taciti_threshold {
    double value;
    double gain;  /* of the correction; halved whenever the error changes its sign */
    double error; /* log(kept / target) of the last step */
} taciti_threshold;

/* Counts of a step: of n elements, `kept` had at least the magnitude of the threshold and `near` at least half of it.
 */
typedef struct taciti_threshold_seen {
    double n, kept, near;
} taciti_threshold_seen;

/* Corrects the threshold so that n / next elements reach it in the next step. factor: of the step that was seen. A
 * change of the factor holds at once; an error of the threshold is damped. Both are above 1. Where nothing was near,
 * the scale has jumped, and the threshold becomes 0: the next step selects exactly. Pure. */
void taciti_threshold_correct(taciti_threshold *threshold, const taciti_threshold_seen *seen, double factor,
                              double next);

#endif
