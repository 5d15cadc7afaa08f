/* SPDX-License-Identifier: Apache-2.0
 *
 * The rounds of a mix by PowerGossip (power.h): which members a rank meets in a round, and the factors that they share.
 * Rounds with the same members have the same factors.
 */
#ifndef TACITI_EXCHANGE_MIX_POWER_H
#define TACITI_EXCHANGE_MIX_POWER_H

#include "exchange/mix.h"
#include "exchange/power.h"
#include "exchange/reference.h"

/* This rank in one round. */
typedef struct taciti_power_round {
    int factors; /* index; -1: it meets nobody */
    int pair[2]; /* its two ranks, where the members are a pair along edges */
    taciti_mix_weights weights;
} taciti_power_round;

typedef struct taciti_power_rounds {
    taciti_power_setup setup; /* of all factors, but for members and placement; width 0: no PowerGossip */
    const taciti_topology *topology;
    taciti_power_round *rounds; /* [period]; owned */
    taciti_power *factors;      /* [period], of which `count` are used; owned */
    size_t count;
    int *partners; /* [ranks] workspace; owned */
    char names[TACITI_REFERENCES_MAX][TACITI_REFERENCE_NAME_BYTES];
} taciti_power_rounds;

/* Describes all rounds. The setup has no members, and the placement that was asked for. Refuses a topology that
 * taciti_mix_takes_power() does not take. After an error, only destroy may be called. Not collective. */
tacit_status taciti_power_rounds_describe(const taciti_power_setup *setup, const taciti_topology *topology,
                                          taciti_power_rounds *out);
void taciti_power_rounds_destroy(taciti_power_rounds *rounds); /* {0} is fine */

/* Bytes of workspace, which all rounds share; and of the factors. */
size_t taciti_power_rounds_workspace_bytes(const taciti_power_rounds *rounds);
size_t taciti_power_rounds_factor_bytes(const taciti_power_rounds *rounds);

/* Makes described rounds ready to run. Does nothing for {0}. Not collective. */
tacit_status taciti_power_rounds_open(taciti_power_rounds *rounds, taciti_comm *comm, void *workspace);

/* The factors of a round; NULL: the rank is idle. */
taciti_power *taciti_power_rounds_at(const taciti_power_rounds *rounds, size_t round);

void taciti_power_rounds_begin_anew(taciti_power_rounds *rounds);
void taciti_power_rounds_list(taciti_power_rounds *rounds, taciti_state *out); /* for checkpoints */

#endif
