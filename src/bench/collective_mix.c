/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/collective_mix.h"

#include <math.h>

#include "base/log.h"
#include "base/memory.h"

/* Weights such as 1/3 and their sums are rounded a few times; the numbers themselves are exact. */
static const float TOLERANCE = 0x1p-18f;

/* The buffer of a mix holds the sum of a group, and of edges the weighted sum; an idle rank keeps what it has. */
static double factor_of(const taciti_collective_mix *mix, size_t round, int rank) {
    const int *members = NULL;
    const size_t count = taciti_topology_group(&mix->topology, round, rank, &members);
    return members != NULL ? (double)count : 1;
}

static void expect(taciti_collective_mix *mix, const taciti_numbers *numbers, size_t round) {
    const int me = taciti_comm_rank(mix->comm), ranks = taciti_comm_size(mix->comm);
    float *out = mix->expected + round * numbers->period_n;
    for (size_t i = 0; i < numbers->period_n; i++) {
        double sum = 0;
        for (int from = 0; from < ranks; from++)
            sum += taciti_topology_weight(&mix->topology, round, me, from) *
                   (double)numbers->table[(size_t)from * numbers->period_n + i];
        out[i] = (float)(sum * factor_of(mix, round, me));
    }
}

tacit_status taciti_collective_mix_open(taciti_comm *comm, const char *topology, const taciti_numbers *numbers,
                                        const taciti_exchange_options *options, taciti_collective_mix *out) {
    *out = (taciti_collective_mix){.comm = comm, .placement = taciti_exchange_placement(options)};
    const taciti_topo_request request = {
        .name = topology, .ranks = taciti_comm_size(comm), .hosts = taciti_comm_hosts(comm)};
    TACITI_TRY(taciti_topology_create(&request, &out->topology));
    out->expected = taciti_calloc(out->topology.period * numbers->period_n, sizeof *out->expected);
    if (out->expected == NULL) return TACIT_E_MEMORY;
    for (size_t r = 0; r < out->topology.period; r++) expect(out, numbers, r);
    return TACIT_OK;
}

void taciti_collective_mix_close(taciti_collective_mix *mix) {
    taciti_mix_destroy(mix->mix);
    taciti_topology_destroy(&mix->topology);
    taciti_free(mix->expected);
    *mix = (taciti_collective_mix){0};
}

tacit_status taciti_collective_mix_resize(taciti_collective_mix *mix, const taciti_layout *layout,
                                          const taciti_exchange_options *options) {
    return taciti_mix_create(mix->comm, layout, &mix->topology, options, &mix->mix);
}

tacit_status taciti_collective_mix_run(taciti_collective_mix *mix, const taciti_layout *layout, float *x, int round) {
    for (size_t b = 0; b < layout->bucket_count; b++) TACITI_TRY(taciti_mix_begin(mix->mix, x, b, round));
    for (size_t b = 0; b < layout->bucket_count; b++) TACITI_TRY(taciti_mix_wait(mix->mix, b));
    return TACIT_OK;
}

bool taciti_collective_mix_is_right(const taciti_collective_mix *mix, const taciti_numbers *numbers, int round,
                                    const float *x, size_t n) {
    const float *expected = mix->expected + (size_t)round * numbers->period_n;
    for (size_t begin = 0; begin < n; begin += numbers->period_n)
        for (size_t i = 0; i < numbers->period_n && begin + i < n; i++)
            if (!(fabsf(x[begin + i] - expected[i]) <= TOLERANCE * expected[i])) return false;
    return true;
}

double taciti_collective_mix_bits(const taciti_collective_mix *mix, int round, size_t bytes) {
    return 8 *
           taciti_mix_nic_bytes_of(taciti_comm_hosts(mix->comm), &mix->topology, (size_t)round, mix->placement, bytes);
}
