/* SPDX-License-Identifier: Apache-2.0
 *
 * What is exchanged, and when. Five verbs: create, start, ready, finish, destroy. `state` lists what a checkpoint must
 * hold. Strategies whose replicas differ have two more, average and revert, for evaluation and checkpoints. A strategy
 * is one table of these verbs and one line in strategy/registry.c; it brings its options with it, and nothing above
 * this folder knows their names.
 */
#ifndef TACITI_STRATEGY_STRATEGY_H
#define TACITI_STRATEGY_STRATEGY_H

#include "base/option.h"
#include "exchange/exchange.h"
#include "optim/optim.h"
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
    const void *options; /* the strategy's own, of its table; NULL where it has none */
    float *parameters;   /* flat */
    float *gradients;    /* flat; sum over the local samples, scaled so that the sum over ranks is the gradient */
    taciti_bf16 *copy16; /* flat bf16 copy of the parameters, or NULL */
    taciti_trace *trace; /* of the training thread */
    bool own_optimizer;  /* steps come as settle() and stepped(); create() refuses options that do not allow it */
} taciti_strategy_context;

typedef struct taciti_step_report {
    double grad_norm; /* before clipping, of the whole batch; where replicas differ, of what this rank's update follows:
                       * its own gradient, or its estimate of the mean. Of a skipped step: NaN or Inf */
    bool skipped;     /* no update: of every rank where replicas are equal, else of this one, which mixes as ever */
    int64_t wait_ns;  /* exposed: blocked on communication after backward had ended */
    double moved;     /* of this rank: sum of squares of what mixing changed, the local proxy of consensus distance; the
                       * mean of several mixes, of one period of the topology at most */
} taciti_step_report;

typedef struct taciti_strategy {
    const char *name, *help, *source;

    /* The strategy's own section of a configuration, and the size of the struct that it fills. NULL, 0: none. */
    const taciti_option_table *options;
    size_t options_size;

    /* Keys of that section, separated by blanks, that tell runs of this strategy apart in reports: "topology order".
     * NULL: none. */
    const char *label;

    /* Returns E_CONFIG, with what to type, for options that cannot be; with hosts, if not NULL, also for options that
     * cannot be on these ranks. NULL: all legal values go together. Not collective. */
    tacit_status (*check)(const void *options, const taciti_hosts *hosts);

    /* What the planner prices with these options: *count patterns, and whatever else it makes sense to compare with
     * them. E_CONFIG: options that no pattern describes. The patterns borrow from `options`. Not collective. */
    tacit_status (*patterns)(const void *options, taciti_pattern out[TACITI_PATTERNS_MAX], size_t *count);

    /* Collective. Returns owned. */
    tacit_status (*create)(const taciti_strategy_context *context, void **out);

    /* The parameters are there. restored: every entry that state() lists holds what a checkpoint of this strategy on as
     * many ranks had saved. Otherwise the run is new (step 0), or goes on from the mean of other ranks or of another
     * strategy (step > 0): parameters are equal on all ranks, entries with TACITI_STATE_SUM or _MEAN may have been
     * filled, and all others are for start() to set. Starts whatever is under way between two steps, so that it need
     * not be saved. NULL: nothing to do. Collective. */
    tacit_status (*start)(void *self, int64_t step, bool restored);

    /* The gradient of this bucket is final; called by the training thread in ready order during the last micro-batch's
     * backward. Must not block. NULL: gradients are not wanted before finish(). */
    tacit_status (*ready)(void *self, size_t bucket);

    /* After backward of all micro-batches: waits for what is in flight, decides skip, clips, updates parameters and
     * copy16. Collective. Bit-equal outcome on every rank where the strategy says replicas are equal; where they differ
     * a rank whose own gradient is not finite skips alone. */
    tacit_status (*finish)(void *self, double lr, taciti_step_report *out);

    /* finish() in two halves, around an update that is not ours. settle leaves in `gradients` what the update follows,
     * scaled and clipped, and in `parameters` what it changes; a step that is skipped has no update, but is stepped as
     * well. stepped adds to what settle has reported (wait_ns, moved); copy16 is renewed before it. With the same
     * update the outcome is that of finish() bit for bit. stepped NULL: nothing is left to do. Collective. */
    tacit_status (*settle)(void *self, double lr, taciti_step_report *out);
    tacit_status (*stepped)(void *self, taciti_step_report *out);

    /* Where parameters are not there all the time: those of a unit (taciti_tensor.unit) are read from now on; are not
     * read until the next need. Called by the training thread during forward and backward, in pairs; need may block.
     * A step that ends early leaves units without a release. NULL: all parameters are there. */
    tacit_status (*need)(void *self, size_t unit);
    void (*release)(void *self, size_t unit);

    void (*destroy)(void *self);

    /* Payload bytes that this rank sends per step. */
    uint64_t (*bytes_per_step)(const void *self);

    /* Bytes that all ranks of this rank's host together send to other hosts per step: what its network card carries,
     * but for headers and heartbeats. */
    uint64_t (*nic_bytes_per_step)(const void *self);

    /* Steps after which what is exchanged repeats, from step 0 on; the byte formulas above are means over them. NULL: 1
     */
    size_t (*period)(const void *self);

    /* Steps that what a step begins may be under way beyond the next one's end, without anybody waiting for it. NULL: 0
     */
    size_t (*lag)(const void *self);

    /* Bytes that create() will hold, before it exists, for the memory prediction: only communicator, layout and options
     * of the context are read. Refuses options that cannot be. Not collective. */
    tacit_status (*predict_bytes)(const taciti_strategy_context *context, size_t *out);

    /* NULL where replicas are equal. Between two steps: parameters and copy16 become the mean over all ranks, the
     * rank's own are put aside in `gradients`; *distance is the consensus distance sqrt(1/N sum_i |x_i - mean|^2).
     * revert brings them back bit for bit. What is under way goes on. Collective. */
    tacit_status (*average)(void *self, double *distance);
    void (*revert)(void *self);

    /* Lists what a checkpoint must hold besides the shared "model": the state of the optimizer
     * (taciti_optim_list_state()); where replicas differ the rank's own parameters, as "model" of its own
     * (taciti_average_list_model()); and what the strategy itself remembers, as "strategy.<name>": arrays, ranges of
     * arrays, counters, whether replicas are equal or not. Values are those of now: call it anew for every save.
     * Entries may also be written to, between create() and start(). Between two steps. Not collective. */
    void (*state)(void *self, taciti_state *out);

    bool replicas_equal; /* parameters are bit-equal on all ranks after every step */
} taciti_strategy;

const taciti_strategy *const *taciti_strategy_list(void);      /* ends with NULL; any thread */
const taciti_strategy *taciti_strategy_find(const char *name); /* NULL: there is none */
const char *taciti_strategy_name(size_t index);                /* for an option of type NAME; NULL behind the last */

#endif
