/* SPDX-License-Identifier: Apache-2.0
 *
 * tacit train --profile FILE: what the model that is being trained costs on this machine, layer by layer, from the
 * spans of rank 0's passes. Nothing is added to a step but the recording of its spans.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "train/trainer.h"

/* The first steps build code and touch memory for the first time; after some tens the mean stands still. */
enum { WARM_UP_STEPS = 3, MAX_UPDATES = 50 };

static bool is_measured(const taciti_profiling *p) { return p->path != NULL && p->updates < MAX_UPDATES; }

tacit_status taciti_profiling_create(taciti_trainer *trainer) {
    taciti_profiling *p = &trainer->profiling;
    if (p->path == NULL) return TACIT_OK;
    TACITI_TRY(taciti_profile_of_gpt(&trainer->settings->job.model, trainer->time, &p->profile));
    taciti_profile_measure(&p->profile);
    char name[sizeof p->profile.name];
    (void)snprintf(name, sizeof name, "%.55s-train", p->profile.name);
    memcpy(p->profile.name, name, sizeof name);
    return TACIT_OK;
}

tacit_status taciti_profiling_check(const taciti_trainer *trainer) {
    const int64_t left = trainer->settings->train.steps - trainer->position.step;
    if (trainer->profiling.path == NULL || trainer->rank != 0) return TACIT_OK;
    if (left > WARM_UP_STEPS) return taciti_file_check_writable(trainer->profiling.path);
    return taciti_fail(TACIT_E_CONFIG,
                       "--profile %s measures from the %d. step of a start on, but only %" PRId64
                       " are left; raise train.steps",
                       trainer->profiling.path, (int)WARM_UP_STEPS + 1, left);
}

/* A recorder that is there for nothing else starts empty with every step. */
void taciti_profiling_begin(taciti_trainer *trainer) {
    if (!is_measured(&trainer->profiling)) return;
    if (!trainer->settings->run.trace) trainer->trace.count = 0;
    trainer->profiling.first_span = trainer->trace.count;
    trainer->profiling.dropped = trainer->trace.dropped;
}

void taciti_profiling_end(taciti_trainer *trainer, double update_s) {
    taciti_profiling *p = &trainer->profiling;
    const taciti_trace *trace = &trainer->trace;
    if (!is_measured(p) || p->steps++ < WARM_UP_STEPS || trace->dropped != p->dropped) return;
    const size_t passes = trainer->share == 0 ? 1 : (trainer->share + trainer->micro - 1) / trainer->micro;
    taciti_profile_add_spans(&p->profile, trace->spans + p->first_span, trace->count - p->first_span, passes);
    p->profile.update_s += update_s;
    p->updates++;
}

void taciti_profiling_add_reports(taciti_trainer *trainer) {
    taciti_profiling *p = &trainer->profiling;
    if (p->path == NULL || p->reported++ < WARM_UP_STEPS || p->reported > WARM_UP_STEPS + MAX_UPDATES) return;
    for (int r = 0; r < trainer->ranks; r++) {
        const double s = trainer->reports.all[r].compute_s;
        p->count += 1;
        p->sum_s += s;
        p->sum_squares_s2 += s * s;
    }
}

/* Standard deviation / mean of the compute time over ranks and updates. */
static double variation(const taciti_profiling *p) {
    if (p->count < 2) return 0;
    const double mean = p->sum_s / p->count, variance = (p->sum_squares_s2 - p->count * mean * mean) / (p->count - 1);
    return variance > 0 ? sqrt(variance) / mean : 0;
}

tacit_status taciti_profiling_write(taciti_trainer *trainer) {
    taciti_profiling *p = &trainer->profiling;
    if (p->path == NULL || trainer->rank != 0) return TACIT_OK;
    if (p->updates == 0)
        return taciti_fail(TACIT_E_DATA,
                           "%s: not written: none of %" PRId64
                           " steps was measured whole; the run was stopped, or leave out --run.trace",
                           p->path, p->steps);
    taciti_profile_divide(&p->profile, (double)p->updates);
    (void)snprintf(
        p->profile.source, sizeof p->profile.source,
        "measured by tacit train on rank 0 of %d, %d thread%s, %s, %zu x %zu tokens per rank and step in passes "
        "of %zu, mean of %" PRId64 " steps; cv of the compute time %.3f over ranks and steps",
        trainer->ranks, trainer->threads, trainer->threads == 1 ? "" : "s",
        trainer->settings->job.model.dtype == TACITI_DTYPE_BF16 ? "bf16" : "f32", trainer->share, trainer->time,
        trainer->micro, p->updates, variation(p));
    TACITI_TRY(taciti_profile_save(&p->profile, p->path));
    taciti_trainer_say(trainer, "profile: forward %.3g ms, backward %.3g ms, update %.3g ms, cv %.3f, in %s",
                       1e3 * taciti_profile_forward_s(&p->profile), 1e3 * taciti_profile_backward_s(&p->profile),
                       1e3 * p->profile.update_s, variation(p), p->path);
    return TACIT_OK;
}
