/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "base/clock.h"
#include "train/stop.h"
#include "train/trainer.h"

enum { LOSSES, TARGETS, LEFT, SUMS };

/* Loss sum and number of targets of windows [first, last), in passes that fit the model, and whether this rank left.
 * Where ranks gather parameters, all make as many passes, and one that leaves goes on without samples. */
static tacit_status sum_losses(taciti_trainer *trainer, uint64_t first, uint64_t last, uint64_t passes,
                               double sums[SUMS]) {
    for (uint64_t pass = 0; pass < passes; pass++) {
        if (taciti_stop_signal() != 0) sums[LEFT] = 1;
        const uint64_t left = sums[LEFT] > 0 ? 0 : last - first;
        const size_t count = left < trainer->micro ? (size_t)left : trainer->micro;
        if (count == 0 && trainer->strategy->units == NULL) return TACIT_OK;
        TACITI_TRY(
            taciti_data_validation(trainer->data, first, count, trainer->time, trainer->tokens, trainer->targets));
        double loss = 0;
        TACITI_TRY(taciti_model_loss(trainer->model, trainer->tokens, trainer->targets, count, trainer->time,
                                     taciti_driver_hooks(trainer->driver), &loss));
        sums[LOSSES] += loss;
        for (size_t i = 0; i < count * trainer->time; i++) sums[TARGETS] += trainer->targets[i] >= 0 ? 1 : 0;
        first += count;
    }
    return TACIT_OK;
}

tacit_status taciti_trainer_evaluate(taciti_trainer *trainer, double *out_loss) {
    const int64_t begin = taciti_now_ns();
    taciti_comm_announce(trainer->comm, trainer->position.step, "evaluation");
    const uint64_t all = taciti_data_validation_windows(trainer->data, trainer->time);
    const uint64_t asked = (uint64_t)trainer->settings->train.eval_windows;
    const uint64_t windows = asked > 0 && asked < all ? asked : all;
    const uint64_t rank = (uint64_t)trainer->rank, ranks = (uint64_t)trainer->ranks;
    double sums[SUMS] = {0};
    const uint64_t max = (windows + ranks - 1) / ranks, passes = (max + trainer->micro - 1) / trainer->micro;
    const tacit_status status = sum_losses(trainer, windows * rank / ranks, windows * (rank + 1) / ranks, passes, sums);
    if (status != TACIT_OK && trainer->strategy->units != NULL && ranks > 1) /* others wait for its parts */
        taciti_comm_abort(trainer->comm, status);
    TACITI_TRY(taciti_comm_agree(trainer->comm, status));
    TACITI_TRY(taciti_comm_allreduce_f64(trainer->comm, sums, SUMS, TACITI_OP_SUM));
    (void)taciti_trace_add(&trainer->trace, TACITI_SPAN_EVAL, -1, begin);
    *out_loss = (double)NAN;
    trainer->reports.stop = trainer->reports.stop || sums[LEFT] > 0;
    if (sums[LEFT] > 0) return TACIT_OK;
    if (sums[TARGETS] == 0)
        return taciti_fail(TACIT_E_DATA, "%s: no validation tokens to evaluate", trainer->data_info.source);
    *out_loss = sums[LOSSES] / sums[TARGETS];
    return TACIT_OK;
}
