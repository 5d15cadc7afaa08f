/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/common.h"

#include <math.h>
#include <stdio.h>

/* SGD has no second moments to look at. */
static bool has_signals(const taciti_scene *s, const taciti_method *method) {
    return method->common.every > 0 && (s->optim == NULL || s->optim->name != TACITI_OPTIM_SGD);
}

bool taciti_plan_has_common(const taciti_scene *scene, const taciti_method *method) {
    return scene->hosts->ranks > 1 && (method->common.start > 0 || has_signals(scene, method));
}

/* Its sums begin after backward. codec NULL: they travel through the wire. */
static taciti_method dense_of(const taciti_method *method, const taciti_codec *wire, const taciti_codec *codec) {
    taciti_method out = {.order = TACITI_ORDER_DENSE, .wire = wire, .overlap = false, .every = 1};
    (void)snprintf(out.label, sizeof out.label, "%s", method->label);
    out.compression.encoding.codec = codec;
    if (codec != NULL)
        out.compression.encoding.expected = taciti_codec_setting_of(codec, (taciti_codec_setting){.factor = 0});
    return out;
}

taciti_method taciti_plan_start_method(const taciti_method *method) {
    if (taciti_codec_is_dense(method->wire)) return dense_of(method, method->wire, NULL);
    return taciti_plan_signal_method(method);
}

taciti_method taciti_plan_signal_method(const taciti_method *method) {
    return dense_of(method, taciti_codec_find("f32"), method->common.codec);
}

/* Returns how much longer a step becomes, on average, by the sums of signals. Mixes of awc are under way during the
 * step; those of atc begin when it has computed, and signals before. Without overlap a step waits for both. */
static double find_signal_wait(const taciti_scene *scene, const taciti_method *method, double step_s, double transfer_s,
                               double signal_s) {
    const double compute_s = taciti_profile_forward_s(scene->profile) + taciti_profile_backward_s(scene->profile);
    const double beside_s = method->order == TACITI_ORDER_AWC ? fmax(step_s - transfer_s, 0) : compute_s;
    const double idle_s = method->overlap ? beside_s : 0;
    return has_signals(scene, method) ? fmax(signal_s - idle_s, 0) / (double)method->common.every : 0;
}

static void add_signals(const taciti_scene *s, const taciti_method *method, const taciti_prediction *signals,
                        taciti_prediction *p) {
    if (!has_signals(s, method)) return;
    const double every = (double)method->common.every;
    const double wait_s = find_signal_wait(s, method, p->step_s, p->transfer_s, signals->transfer_s);
    double *const steps[] = {&p->step_s,
                             &p->exposed_s,
                             &p->fast_links_s,
                             &p->slow_links_s,
                             &p->low_s,
                             &p->high_s,
                             &p->cost_s[TACITI_BOTTLENECK_LINK]};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) *steps[i] += wait_s;
    if (p->uneven_s > 0) p->uneven_s += wait_s;
    p->transfer_s += signals->transfer_s / every;
    p->nic_bytes += signals->nic_bytes / every;
}

static void blend(double *mixes, double start, double share) { *mixes += share * (start - *mixes); }

static void add_start(const taciti_method *method, const taciti_prediction *start, taciti_prediction *p) {
    const double share = method->common.start;
    const double of_start[] = {start->step_s,    start->compute_s,    start->exposed_s,    start->transfer_s,
                               start->nic_bytes, start->fast_links_s, start->slow_links_s, start->uneven_s,
                               start->low_s,     start->high_s};
    double *const all[] = {&p->step_s,       &p->compute_s,    &p->exposed_s, &p->transfer_s, &p->nic_bytes,
                           &p->fast_links_s, &p->slow_links_s, &p->uneven_s,  &p->low_s,      &p->high_s};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) blend(all[i], of_start[i], share);
    for (int b = 0; b < TACITI_BOTTLENECKS; b++) blend(&p->cost_s[b], start->cost_s[b], share);
    p->memory_bytes = fmax(p->memory_bytes, start->memory_bytes);
    p->fits = p->fits && start->fits;
}

void taciti_plan_add_common(const taciti_scene *scene, const taciti_method *method, const taciti_prediction *start,
                            const taciti_prediction *signals, taciti_prediction *mixes) {
    add_signals(scene, method, signals, mixes);
    if (method->common.start > 0) add_start(method, start, mixes);
    for (int b = 0; b < TACITI_BOTTLENECKS; b++)
        if (mixes->cost_s[b] > mixes->cost_s[mixes->bottleneck]) mixes->bottleneck = (taciti_bottleneck)b;
}
