/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal to the planner: what the predictions of one plan share, so that a thousand ranks are a matter of seconds.
 * Draws are drawn once; measured collectives are described once; rounds of a topology are the same in every order and
 * for all wires of the same length; and simulations of equal inputs, as those of bf16 and fp16 or of codecs with equal
 * payloads, are run once. So are the sums over all ranks that many methods of gossip have in common.
 */
#ifndef TACITI_PLAN_REUSE_H
#define TACITI_PLAN_REUSE_H

#include "plan/rounds.h"

enum { TACITI_REUSE_ROUNDS = 2, TACITI_REUSE_RESULTS = 256, TACITI_REUSE_SUMS = 2, TACITI_REUSE_RATES = 40 };

/* {0} is empty. It belongs to one scene, list of rates and set of options, of which cv may change, and topologies must
 * live as long. One thread at a time. */
typedef struct taciti_reuse {
    taciti_draws draws;
    taciti_links links;                            /* owned; at the cluster's own rate */
    taciti_rounds rounds[TACITI_REUSE_ROUNDS + 1]; /* owned */
    size_t next_rounds;
    size_t arranged; /* work so far: ranks x rounds whose traffic was counted */
    struct taciti_result {
        uint64_t key;
        taciti_recursion_times times[TACITI_SCENARIOS];
    } results[TACITI_REUSE_RESULTS]; /* of the newest simulations */
    size_t result_count;
    struct taciti_sums {
        double cv;                                      /* as options have it */
        size_t count[2];                                /* at the cluster's rate, and at others; 0: not known yet */
        taciti_prediction list[1 + TACITI_REUSE_RATES]; /* the former, and behind it the latter */
    } sums[TACITI_REUSE_SUMS];
    size_t sums_count;
} taciti_reuse;

void taciti_reuse_destroy(taciti_reuse *reuse);

/* Returns the rounds of the method, created or kept, without times. Borrows; valid until the next call. */
tacit_status taciti_reuse_rounds(taciti_reuse *reuse, const taciti_scene *scene, const taciti_method *method,
                                 const taciti_stretches *stretches, taciti_rounds **out);

/* The results of that key, or NULL. */
const taciti_recursion_times *taciti_reuse_find(const taciti_reuse *reuse, uint64_t key);
void taciti_reuse_keep(taciti_reuse *reuse, uint64_t key, const taciti_recursion_times *times);

/* The entry of the sums that methods of gossip have beside mixes, which are the same in all; the caller completes it.
 * cv: of the options. NULL: nothing can be kept. */
struct taciti_sums *taciti_reuse_sums(taciti_reuse *reuse, double cv);

#endif
