/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/mix_power.h"

#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "exchange/demand.h"
#include "exchange/mix_ways.h"

enum { IDLE = -1 };

#define ROUNDING 1e-9 /* of weights */

/* ---- who meets whom ---------------------------------------------------------------------------------------------- */

/* Weights that are not equal would not keep the sum. */
static bool is_taken(const taciti_round *round, const int *partners, int rank) {
    if (partners[rank] == TACITI_MEETS_NOBODY) return true;
    if (!taciti_partners_are_pair(partners, rank)) return false;
    return fabs(round->self[rank] - round->self[partners[rank]]) < ROUNDING;
}

bool taciti_mix_takes_power(const taciti_topology *topology) {
    int *partners = taciti_calloc((size_t)topology->ranks, sizeof *partners);
    bool taken = partners != NULL && !topology->directed;
    for (size_t r = 0; r < topology->period && taken; r++) {
        if (topology->rounds[r].groups > 0) continue;
        taciti_round_partners(&topology->rounds[r], topology->ranks, partners);
        for (int rank = 0; rank < topology->ranks && taken; rank++)
            taken = is_taken(&topology->rounds[r], partners, rank);
    }
    taciti_free(partners);
    return taken;
}

static tacit_status describe_members(const taciti_power_rounds *rounds, size_t r, taciti_members members,
                                     taciti_power *out) {
    const taciti_round *round = &rounds->topology->rounds[r];
    taciti_power_setup setup = rounds->setup;
    setup.members = members;
    if (round->groups > 0)
        setup.placement = taciti_mix_placement(setup.hosts, round, members, setup.placement);
    else
        setup.placement.lanes = 1;
    return taciti_power_describe(&setup, out);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

/* The ranks that this one meets in a round, itself included; none: it is idle. */
static taciti_members my_members(taciti_power_rounds *rounds, size_t r) {
    const int me = rounds->setup.rank;
    int *pair = rounds->rounds[r].pair;
    taciti_members members = {.ranks = NULL};
    if (rounds->topology->rounds[r].groups > 0) {
        members.count = taciti_topology_group(rounds->topology, r, me, &members.ranks);
    } else if (rounds->partners[me] != TACITI_MEETS_NOBODY) {
        const int other = rounds->partners[me];
        pair[0] = other < me ? other : me;
        pair[1] = other < me ? me : other;
        members = (taciti_members){.ranks = pair, .count = 2};
    }
    return members;
}

/* A pair with the weight w moves 2 w of the way to its mean. */
static tacit_status find_factors(taciti_power_rounds *rounds, size_t r) {
    const taciti_round *round = &rounds->topology->rounds[r];
    taciti_power_round *mine = &rounds->rounds[r];
    *mine = (taciti_power_round){.factors = IDLE, .weights = {.keep = 1, .share = 0}};
    const taciti_members members = my_members(rounds, r);
    if (members.ranks == NULL) return TACIT_OK;
    const float share = round->groups > 0 ? 1 : (float)(2 * (1 - round->self[rounds->setup.rank]));
    mine->weights = (taciti_mix_weights){.keep = 1 - share, .share = share};
    for (mine->factors = 0; mine->factors < (int)rounds->count; mine->factors++)
        if (taciti_members_equal(rounds->factors[mine->factors].setup.members, members)) return TACIT_OK;
    if (rounds->count == TACITI_REFERENCES_MAX) return taciti_mix_refuse_ways(rounds->topology, rounds->setup.rank);
    return describe_members(rounds, r, members, &rounds->factors[rounds->count++]);
}

tacit_status taciti_power_rounds_describe(const taciti_power_setup *setup, const taciti_topology *topology,
                                          taciti_power_rounds *out) {
    *out = (taciti_power_rounds){.setup = *setup, .topology = topology};
    if (!taciti_mix_takes_power(topology))
        return taciti_fail(TACIT_E_INTERNAL, "PowerGossip on topology %s, which has other edges than those of pairs",
                           topology->name);
    out->rounds = taciti_calloc(topology->period, sizeof *out->rounds);
    out->factors = taciti_calloc(topology->period, sizeof *out->factors);
    out->partners = taciti_calloc((size_t)topology->ranks, sizeof *out->partners);
    if (out->rounds == NULL || out->factors == NULL || out->partners == NULL) return TACIT_E_MEMORY;
    for (size_t r = 0; r < topology->period; r++) {
        taciti_round_partners(&topology->rounds[r], topology->ranks, out->partners);
        TACITI_TRY(find_factors(out, r));
    }
    return TACIT_OK;
}

void taciti_power_rounds_destroy(taciti_power_rounds *rounds) {
    for (size_t i = 0; i < rounds->count; i++) taciti_power_destroy(&rounds->factors[i]);
    taciti_free(rounds->rounds);
    taciti_free(rounds->factors);
    taciti_free(rounds->partners);
    *rounds = (taciti_power_rounds){.count = 0};
}

size_t taciti_power_rounds_workspace_bytes(const taciti_power_rounds *rounds) {
    size_t bytes = 0;
    for (size_t i = 0; i < rounds->count; i++)
        bytes = taciti_max(bytes, taciti_power_workspace_bytes(&rounds->factors[i]));
    return bytes;
}

size_t taciti_power_rounds_factor_bytes(const taciti_power_rounds *rounds) {
    size_t bytes = 0;
    for (size_t i = 0; i < rounds->count; i++) bytes += taciti_power_factor_bytes(&rounds->factors[i]);
    return bytes;
}

tacit_status taciti_power_rounds_open(taciti_power_rounds *rounds, taciti_comm *comm, void *workspace) {
    for (size_t i = 0; i < rounds->count; i++) TACITI_TRY(taciti_power_open(&rounds->factors[i], comm, workspace));
    return TACIT_OK;
}

taciti_power *taciti_power_rounds_at(const taciti_power_rounds *rounds, size_t round) {
    const int at = rounds->setup.width > 0 ? rounds->rounds[round].factors : IDLE;
    return at == IDLE ? NULL : &rounds->factors[at];
}

void taciti_power_rounds_begin_anew(taciti_power_rounds *rounds) {
    for (size_t i = 0; i < rounds->count; i++) taciti_power_begin_anew(&rounds->factors[i]);
}

void taciti_power_rounds_list(taciti_power_rounds *rounds, taciti_state *out) {
    for (size_t i = 0; i < rounds->count; i++) {
        size_t n = 0;
        float *factors = taciti_power_factors(&rounds->factors[i], &n);
        (void)snprintf(rounds->names[i], sizeof rounds->names[i], "strategy.factors.%zu", i);
        taciti_state_add(out, (taciti_state_entry){.name = rounds->names[i],
                                                   .kind = TACITI_STATE_BYTES,
                                                   .owner = TACITI_STATE_OWN,
                                                   .regroup = TACITI_STATE_RESET,
                                                   .data = factors,
                                                   .n = n * sizeof *factors,
                                                   .optional = true});
    }
}
