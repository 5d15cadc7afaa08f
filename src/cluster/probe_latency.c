/* SPDX-License-Identifier: Apache-2.0
 *
 * What an exchange of nothing costs: messages while all ranks exchange, and the way from the end of computing to the
 * first message and from the last one back. Where ranks share cores, both are many times what two ranks alone need.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "cluster/fit.h"
#include "cluster/probe_state.h"
#include "exchange/allreduce.h"
#include "exchange/demand.h"

enum { FLOATS = 16, ROUNDS = 25, ROUNDS_QUICK = 9, REPEATS = 20 };

/* The computing time of short steps: ranks wake up in every one. */
#define COMPUTE_NS (10 * TACITI_NS_PER_MS)

typedef struct short_sums {
    taciti_allreduce reduce;
    float x[FLOATS];
    size_t repeats; /* of the round that is running */
} short_sums;

static tacit_status run_round(taciti_comm *comm, void *context) {
    short_sums *t = context;
    (void)comm; /* the all-reduce has it */
    for (size_t i = 0; i < t->repeats; i++) TACITI_TRY(taciti_allreduce_run(&t->reduce, t->x, FLOATS, NULL, NULL));
    return TACIT_OK;
}

/* Seconds per all-reduce on the slowest rank, from `begin_ns` of each rank on; the same on all ranks. */
static tacit_status run_from(taciti_probe *probe, short_sums *t, int64_t begin_ns, double *out_s) {
    taciti_job job = {.run = run_round, .context = t, .name = "short all-reduces", .detail = -1};
    TACITI_TRY(taciti_probe_job(probe, &job));
    *out_s = (double)(taciti_now_ns() - begin_ns) / 1e9 / (double)t->repeats;
    return taciti_comm_allreduce_f64(probe->comm, out_s, 1, TACITI_OP_MAX);
}

/* Returns the seconds of a message between hosts, or inside of the only one, where many follow each other. */
static double latency_of(const taciti_probe *probe, double exchange_s) {
    const taciti_demand d = taciti_allreduce_demand(taciti_comm_hosts(probe->comm), NULL, 0, (taciti_placement){0},
                                                    FLOATS * sizeof(float), FLOATS * sizeof(float));
    const double inside_s = d.wire_hops > 0 ? d.local_hops * probe->cluster->inside.alpha_s : 0;
    const double rest_s = exchange_s - (inside_s > 0 ? inside_s : 0);
    return (rest_s > 0 ? rest_s : 0) / (d.wire_hops > 0 ? d.wire_hops : d.local_hops);
}

static tacit_status measure(taciti_probe *probe, short_sums *t) {
    double exchanges_s[ROUNDS], steps_s[ROUNDS];
    const size_t rounds = probe->options->quick ? ROUNDS_QUICK : ROUNDS;
    for (size_t i = 0; i < rounds; i++) {
        t->repeats = REPEATS; /* one after the other: starts and ends are lost in them */
        TACITI_TRY(taciti_comm_barrier(probe->comm));
        TACITI_TRY(run_from(probe, t, taciti_now_ns(), &exchanges_s[i]));
        t->repeats = 1; /* a step that computes, which needs no core here, and exchanges nothing */
        TACITI_TRY(taciti_comm_barrier(probe->comm));
        const int64_t deadline_ns = taciti_now_ns() + COMPUTE_NS;
        taciti_sleep_until_ns(deadline_ns);
        TACITI_TRY(run_from(probe, t, deadline_ns, &steps_s[i]));
    }
    const double exchange_s = taciti_median(exchanges_s, rounds), step_s = taciti_median(steps_s, rounds);
    probe->cluster->busy_alpha_s = latency_of(probe, exchange_s);
    probe->cluster->hand_over_s = step_s > exchange_s ? step_s - exchange_s : 0;
    return TACIT_OK;
}

tacit_status taciti_probe_latency(taciti_probe *probe) {
    const taciti_encoding f32 = {.codec = taciti_codec_find("f32")};
    const taciti_members all = {.count = (size_t)probe->size};
    short_sums *t = taciti_calloc(1, sizeof *t);
    taciti_probe_say(probe, "steps that exchange nothing, on all ranks at once");
    const tacit_status created = t == NULL
                                     ? TACIT_E_MEMORY
                                     : taciti_allreduce_create(probe->comm, &f32, all, (taciti_placement){0},
                                                               taciti_comm_segment_bytes(probe->comm), &t->reduce);
    tacit_status status = taciti_comm_agree(probe->comm, created);
    if (status == TACIT_OK) status = measure(probe, t);
    if (created == TACIT_OK) taciti_allreduce_destroy(&t->reduce);
    taciti_free(t);
    return status;
}
