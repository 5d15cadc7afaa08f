/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the planner: the steps of all ranks, one after the other, each waiting for whom our code waits. Times are
 * given; where they come from is predict.c's matter.
 *
 * Source: the runtime model of Wang et al., arXiv 2410.11998, derived from who waits for whom. Symbols: s_i begin of
 * rank i's step, C_i its forward and backward in this step, h_ik when rank i hands bucket k over, c_k seconds of the
 * bucket's transfer, E_ik when it has arrived, u_k seconds of the bucket's update. A bucket's transfer begins when all
 * that take part have handed it over and their channels are free, for a channel carries one bucket after the other:
 *
 *   E_ik = max over those j that i meets of max(h_jk, E_jk-1) + c_k
 *
 *   dense  h_ik = s_i + (when its last gradient is final)   s_i' = max(s_i + C_i, E_iK) + sum of u
 *   awc    m_ik = max(m_ik-1, E_ik) + u_k,  m_i0 = s_i + C_i,  s_i' = m_iK;  h_ik = m_ik, to be there in the next step
 *   atc    h_ik = s_i + C_i + u_1 + ... + u_k,  s_i' = max(h_iK, E_iK)
 *
 *   async  nobody waits: s_i' = s_i + C_i + sum of u; the mean step is ranks / sum over i of 1 / (s_i' - s_i)
 *
 * Without overlap a bucket is handed over when nothing else is left to do:
 *
 *   dense  h_ik = s_i + C_i
 *   awc    h_ik = m_ik-1,  m_ik = E_ik + u_k: each transfer is waited for where it begins
 *   atc    h_ik = s_i + C_i + sum of u
 *
 * A "bucket" may be a run of them (plan/stretch.h). Then c_k and u_k, its own, count from when it was handed over or
 * arrived, and other seconds, those of all its buckets, from the bucket before it:
 *
 *   E_ik = max(max over j of h_jk + c_k, max over j of E_jk-1 + c'_k)      m_ik = max(m_ik-1 + u'_k, E_ik + u_k)
 *
 * Several scenarios are simulated at once: the same ranks, rounds and draws, other seconds of transfers.
 *
 * Deviation from the paper's system, where a bucket is mixed and updated inside of backward: our update needs the norm
 * of the whole gradient, so in `awc` nothing happens before backward has ended.
 */
#ifndef TACITI_PLAN_RECURSION_H
#define TACITI_PLAN_RECURSION_H

#include "plan/draws.h"
#include "plan/plan.h"

enum { TACITI_SCENARIOS = 6 }; /* at once */

/* Ranks that wait for each other in a round: those in `members`, all of them, or `taker` alone for the others. */
typedef struct taciti_meeting {
    const int *members; /* [count]; borrowed */
    size_t count;
    int taker;                /* -1: all members */
    const double *transfer_s; /* [buckets][TACITI_SCENARIOS]; borrowed */
    const double *behind_s;   /* the same, from the arrival of the bucket before */
} taciti_meeting;

typedef struct taciti_meetings {
    const taciti_meeting *list;
    size_t count;
} taciti_meetings;

typedef struct taciti_recursion {
    taciti_order order;
    bool overlap;                  /* buckets are on their way while something else is done */
    int every;                     /* steps per exchange; >= 1 */
    int delay;                     /* awc: steps more that a transfer may take */
    int ranks;                     /* >= 1 */
    size_t buckets;                /* >= 1 */
    size_t period;                 /* >= 1 */
    const taciti_meetings *rounds; /* [period] */
    const bool *other;             /* [buckets] which take the other of two rounds (topo/topo.h); NULL: none */
    double compute_s;              /* forward and backward */
    const double *ready_s;         /* [buckets] from the step's begin, ascending, <= compute_s */
    const double *update_s;        /* [buckets] */
    const double *update_behind_s; /* [buckets] from the end of the bucket before */
    const double *slow;            /* [ranks] persistent factors; NULL: all 1 */
    double cv;                     /* of compute times */
    int64_t seed;
    taciti_draws *draws;         /* what is drawn is kept there, and events are counted; borrowed */
    bool even[TACITI_SCENARIOS]; /* scenarios in which neither cv nor slow ranks count */
    size_t steps; /* > 0; rounded up to whole periods, and as many periods to warm up as make an eighth */
} taciti_recursion;

typedef struct taciti_recursion_times {
    double step_s, compute_s; /* means over ranks and steps; what is left is waiting */
} taciti_recursion_times;

/* out[TACITI_SCENARIOS]. Without jitter steps repeat sooner or later, and what repeats is not simulated again. Pure:
 * the same answer everywhere, whatever else is simulated beside it. Any thread. */
tacit_status taciti_recursion_run(const taciti_recursion *recursion, taciti_recursion_times *out);

#endif
