/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank does by itself, equal pieces of computation, and what its host has.
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "cluster/fit.h"
#include "cluster/probe_state.h"

enum { PIECES_MIN = 20, PIECES_MAX = 200, PIECES_QUICK = 60, WARM_UP_PIECES = 4, CALIBRATION_STEPS = 1 << 14 };
static const double PIECE_S = 5e-3, BUSY_SHARE = 0.9;

/* ---- jitter ------------------------------------------------------------------------------------------------------ */

/* Computation that needs nothing but the processor; the result keeps the compiler from leaving it out. */
static uint64_t compute_steps(uint64_t steps, uint64_t x) {
    for (uint64_t i = 0; i < steps; i++) x = taciti_mix64(x + i);
    return x;
}

/* Returns the number of steps that take PIECE_S of a processor. */
static uint64_t calibrate_steps(void) {
    volatile uint64_t sink = 1;
    uint64_t steps = CALIBRATION_STEPS;
    double spent_s = 0;
    while (spent_s < PIECE_S) {
        steps *= 2;
        const int64_t begin_ns = taciti_thread_ns();
        sink = compute_steps(steps, sink);
        spent_s = (double)(taciti_thread_ns() - begin_ns) / 1e9;
    }
    return (uint64_t)((double)steps * PIECE_S / spent_s) + 1;
}

/* Durations of the pieces; returns processor time / time. */
static double do_pieces(uint64_t steps, double *seconds, size_t pieces) {
    volatile uint64_t sink = 1;
    const int64_t begin_ns = taciti_now_ns(), cpu_ns = taciti_thread_ns();
    int64_t last_ns = begin_ns;
    for (size_t i = 0; i < pieces; i++) {
        sink = compute_steps(steps, sink);
        const int64_t now_ns = taciti_now_ns();
        seconds[i] = (double)(now_ns - last_ns) / 1e9;
        last_ns = now_ns;
    }
    return (double)(taciti_thread_ns() - cpu_ns) / (double)(last_ns - begin_ns);
}

/* As many pieces as there is time for, the same number on all ranks. */
static tacit_status count_pieces(taciti_probe *probe, double share, uint64_t steps, size_t *out) {
    double warm_up[WARM_UP_PIECES], longest_s, left_s = 0;
    (void)do_pieces(steps, warm_up, WARM_UP_PIECES);
    longest_s = taciti_median(warm_up, WARM_UP_PIECES);
    TACITI_TRY(taciti_comm_allreduce_f64(probe->comm, &longest_s, 1, TACITI_OP_MAX));
    TACITI_TRY(taciti_probe_left(probe, share, &left_s));
    const double max = probe->options->quick ? PIECES_QUICK : PIECES_MAX, fit = left_s / longest_s;
    *out = fit > max ? (size_t)max : fit > PIECES_MIN ? (size_t)fit : PIECES_MIN;
    return TACIT_OK;
}

static tacit_status note_shared_cores(taciti_probe *probe, double busy) {
    if (busy >= BUSY_SHARE) return TACIT_OK;
    return taciti_cluster_add_note(
        probe->cluster,
        "ranks had a core for %.0f %% of the compute test: more ranks than cores, or other programs; the "
        "jitter is theirs",
        100 * busy);
}

tacit_status taciti_probe_compute(taciti_probe *probe, double share) {
    uint64_t steps = probe->rank == 0 ? calibrate_steps() : 0;
    size_t pieces = 0;
    taciti_probe_say(probe, "computation, on all ranks at once");
    double negative = -(double)taciti_available_bytes(); /* the minimum of all hosts; unknown if it is anywhere */
    TACITI_TRY(taciti_comm_allreduce_f64(probe->comm, &negative, 1, TACITI_OP_MAX));
    probe->cluster->memory_gib = -negative / 0x1p30 < 1e-3 ? 0 : -negative / 0x1p30;
    TACITI_TRY(taciti_comm_broadcast(probe->comm, 0, &steps, sizeof steps));
    TACITI_TRY(count_pieces(probe, share, steps, &pieces));
    double *mine = taciti_calloc(pieces, sizeof *mine), busy = 0;
    double *all = taciti_calloc(pieces * (size_t)probe->size, sizeof *all);
    tacit_status status = taciti_comm_agree(probe->comm, mine == NULL || all == NULL ? TACIT_E_MEMORY : TACIT_OK);
    if (status == TACIT_OK) {
        busy = do_pieces(steps, mine, pieces) / probe->size;
        status = taciti_comm_allreduce_f64(probe->comm, &busy, 1, TACITI_OP_SUM);
    }
    if (status == TACIT_OK) status = taciti_comm_allgather(probe->comm, mine, pieces * sizeof *mine, all);
    if (status == TACIT_OK) {
        const taciti_jitter jitter = taciti_jitter_of(all, (size_t)probe->size, pieces);
        probe->cluster->compute_cv = jitter.cv;
        probe->cluster->compute_lag1 = jitter.lag1;
        probe->cluster->compute_rank_spread = probe->size > 1 ? jitter.rank_spread : -1;
        probe->cluster->compute_core_share = busy < 1 ? busy : 1;
        status = note_shared_cores(probe, busy);
    }
    taciti_free(mine);
    taciti_free(all);
    return status;
}
