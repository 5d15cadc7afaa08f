/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/sketched.h"

#include <math.h>

#include "exchange/sketch_message.h"

/* From above the iteration falls to the largest solution; below the threshold that is 0. */
double taciti_sketched_pending(double load) {
    enum { ROUNDS = 4096 };
    double q = 1;
    for (int i = 0; i < ROUNDS; i++) q = 1 - exp(-3 * load * q * q);
    return q < 1e-6 ? 0 : q * q * q;
}

taciti_sketched taciti_sketched_of(const taciti_sketch_options *options, size_t n, int members, double factor) {
    static const float ANY_MAX = 1; /* a step after the first has learnt one, so that counters are the ring's */
    const double density = 1 - pow(1 - 1 / factor, members), count = density * (double)n;
    const taciti_sketch_form form = taciti_sketch_form_of(n, members, taciti_sketch_room(n, density), options->ratio,
                                                          (taciti_ring)options->ring, ANY_MAX, 0);
    const size_t number_bytes = taciti_sketch_number_bytes(form.sketch.numbers.ring);
    const double counters = (double)taciti_sketch_bytes(&form.sketch) / (double)number_bytes;
    const double pending = form.packed ? count : count * taciti_sketched_pending(count / counters);
    return (taciti_sketched){.contribution_bytes = (double)taciti_sketch_contribution_bytes(&form),
                             .pending_bytes = pending > 0 ? (double)n / 8 + pending * (double)number_bytes : 0,
                             .reply_bytes = sizeof(taciti_sketch_reply)};
}
