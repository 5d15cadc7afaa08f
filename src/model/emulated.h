/* SPDX-License-Identifier: Apache-2.0
 *
 * An emulated accelerator: forward and backward are a timed wait per layer, as a GPU would leave the CPU idle.
 * Parameters and gradients have the true shapes; gradients are synthetic, differ between ranks, steps and elements, and
 * are written at the time at which the layer's backward ends. For claims about step time only: there is no loss.
 *
 * The clock of a step is absolute: every wait ends at start + sum of the layers so far, so that late wake-ups do not
 * add up. The compute time of step t on rank r is profile * slow(r) * max(0.1, 1 + cv * z(seed, r, t)), z standard
 * normal, a function of its arguments alone (base/rng.h).
 */
#ifndef TACITI_MODEL_EMULATED_H
#define TACITI_MODEL_EMULATED_H

#include "base/option.h"
#include "base/trace.h"
#include "model/profile.h"
#include "tensor/layout.h"

typedef struct taciti_compute_options {
    taciti_text emulate; /* compute.emulate: preset or file; empty: compute for real */
    double rate;         /* compute.rate: FLOP/s of the emulated accelerator, for profiles given in operations */
    double batch;        /* compute.batch: samples per rank and step, for the same */
    double scale;        /* compute.scale: all times of the profile are multiplied by it (default 1) */
    double cv;           /* compute.cv: standard deviation of a step's compute time / its mean */
    taciti_list slow;    /* compute.slow: persistent stragglers, RANK:FACTOR each */
    int64_t seed;        /* compute.seed */
} taciti_compute_options;
extern const taciti_option_table taciti_compute_option_table; /* section "compute" */

/* The profile that the options ask for, in seconds, scaled. Refuses a profile in operations without a rate. */
tacit_status taciti_compute_profile(const taciti_compute_options *options, taciti_profile *out);

typedef struct taciti_emulated taciti_emulated;

/* Borrows profile (in seconds) and layout (of taciti_profile_layout). Gradients and parameters are allocated here;
 * parameters are untouched pages until somebody writes to them. Not collective. */
tacit_status taciti_emulated_create(const taciti_compute_options *options, const taciti_profile *profile,
                                    const taciti_layout *layout, int rank, taciti_emulated **out);
void taciti_emulated_destroy(taciti_emulated *emulated);

float *taciti_emulated_parameters(taciti_emulated *emulated); /* flat */
float *taciti_emulated_gradients(taciti_emulated *emulated);  /* flat */

/* Seconds that forward and backward of this step shall take on this rank. Pure. */
double taciti_emulated_step_s(const taciti_emulated *emulated, int64_t step);

/* Forward and backward of one step. `ready` is called by the calling thread as each tensor's gradient becomes final, in
 * layout order. Spans FORWARD and BACKWARD go to trace. Owner thread, not collective. */
tacit_status taciti_emulated_step(taciti_emulated *emulated, int64_t step, taciti_trace *trace,
                                  void (*ready)(void *context, size_t tensor), void *context);

#endif
