/* SPDX-License-Identifier: Apache-2.0
 *
 * An emulated accelerator: forward and backward are timed waits, as if a GPU computed. Parameters and gradients have
 * the shapes of the network. Gradients are synthetic, differ between ranks, steps and elements, and are final when the
 * layer's backward ends. For measurements of step times only: there is no loss.
 *
 * The clock of a step is absolute: every wait ends at start + sum of the layers so far, so that late wake-ups do not
 * add up. There is one wait for the forward pass and one for each layer that completes a bucket, because each wake-up
 * costs about ten microseconds and nothing is observable in between. Gradients are written during the waits, as early
 * as possible; nothing else may use them between the start of the step and `ready`.
 *
 * If somebody listens to `need`, a step goes by units instead: a layer with tensors is one (taciti_profile_layout), and
 * every layer has a wait of its own in each pass. Its unit is needed around both, except that the last layer keeps its
 * unit between them and the first layer with tensors needs none in backward, as a transformer does; a tied layer also
 * needs and writes the first unit. While a hook blocks the accelerator stands still. Gradients of a unit are written
 * after its `write`. Memory that a strategy drops stays there (taciti_pages.kept): an accelerator's allocator gives and
 * takes without page faults, which would take time that no accelerator needs.
 *
 * The compute time of step t on rank r is profile * slow(r) * max(0.1, 1 + cv * z(seed, r, t)), z standard normal, a
 * function of its arguments alone (base/rng.h).
 *
 * An element of a gradient is noise(normal) * magnitude(tensor) * magnitude(block of elements), the magnitudes
 * log-normal: heavy-tailed, of mean 0, finite. The previous content of the array does not matter.
 */
#ifndef TACITI_MODEL_EMULATED_H
#define TACITI_MODEL_EMULATED_H

#include "base/option.h"
#include "base/trace.h"
#include "model/network.h"
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

/* Loads the profile of the options, in seconds, scaled. compute.rate and compute.batch override those of the profile; a
 * profile in operations without them is refused. Returns owned. */
tacit_status taciti_compute_profile(const taciti_compute_options *options, taciti_profile *out);

/* Applies the options to a profile in place. */
tacit_status taciti_compute_apply(const taciti_compute_options *options, taciti_profile *profile);

/* Refuses a compute.slow that is malformed or names a rank twice or out of range. Returns the same status on every
 * rank. */
tacit_status taciti_compute_check(const taciti_compute_options *options, int ranks);

/* Returns the factor of this rank, 1 unless compute.slow has another. The options must have been checked. */
double taciti_compute_slow(const taciti_compute_options *options, int rank);

/* Returns the random factor of a step's compute time: max(0.1, 1 + cv * z(seed, rank, step)). Pure. */
double taciti_compute_deviation(int64_t seed, double cv, int rank, int64_t step);

/* Returns the median magnitude of a tensor's emulated gradient, by its index in the layout: 1e-3 e^z(seed, tensor).
 * Pure. */
double taciti_compute_magnitude(int64_t seed, size_t tensor);

typedef struct taciti_emulated taciti_emulated;

/* Borrows profile (in seconds) and layout (of taciti_profile_layout); options, checked, are copied. Allocates gradients
 * and parameters; their pages are untouched until the first write. Not collective. */
tacit_status taciti_emulated_create(const taciti_compute_options *options, const taciti_profile *profile,
                                    const taciti_layout *layout, int rank, taciti_emulated **out);
void taciti_emulated_destroy(taciti_emulated *emulated);

/* Writes gradients once, so that the first step that wants them does not pay for their pages. */
void taciti_emulated_touch_gradients(taciti_emulated *emulated);

/* Seconds that forward and backward of this step shall take on this rank. Pure. */
double taciti_emulated_step_s(const taciti_emulated *emulated, int64_t step);

/* The accelerator as a network. A step calls `ready` as each tensor's gradient becomes final, in layout order; without
 * `ready` nobody wants gradients and none are written. `leave` is not called, the loss is NaN. The first step asks for
 * short turns for the calling thread (base/clock.h). Spans FORWARD and BACKWARD (one per wait).
 *
 * Its optimizer has no state. An update is a wait of the profile's update_s, that of a range its part of it, which
 * counts and touches nothing; all else takes no time: blends move 0, sums of squares are 0 (so no step is skipped),
 * jobs over elements are left out. */
taciti_network taciti_emulated_network(taciti_emulated *emulated);

#endif
