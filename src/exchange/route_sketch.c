/* SPDX-License-Identifier: Apache-2.0
 *
 * The route of codecs with taciti_codec.sketches: contributions as sketches (sketch_reduce.h), results as payloads of
 * the codec. Its price, in the steps after the first, without a pipeline within a bucket:
 *
 *   p = 1 / factor   share of elements that a member selects, of N members at independent places
 *   u = 1 - (1-p)^N  share of the union
 *   counters         n / ratio; ratio 0: as the union needs (taciti_sketch_room), about u n 17/16 / 0.78
 *   contribution     n bits of index and the counters, or n floats if that is no longer
 *   pending          elements that do not decode: none below a load (u n / counters) of 0.8185; above it those of the
 *                    2-core of a random 3-uniform hypergraph of that load c, u n q^3 with the largest solution of
 *                    q = 1 - exp(-3 c q^2) (Molloy, "Cores in random hypergraphs and Boolean formulas", 2005). They
 *                    cost an index of n bits on its way to the members, and a number from each of these
 */
#include "exchange/route_sketch.h"

#include <math.h>

#include "base/log.h"
#include "exchange/route_payload.h"
#include "exchange/sketch_bucket.h"

static tacit_status check(const taciti_encoding *e) {
    const taciti_sketch_options *o = e->options;
    if (e->way == TACITI_WAY_GATHER)
        return taciti_fail(TACIT_E_CONFIG,
                           "compress.collective gather: sketches of codec %s are for the owners of sums; leave it out, "
                           "or take another codec: --compress.codec topk",
                           e->codec->name);
    if (e->feedback.estimates)
        return taciti_fail(TACIT_E_CONFIG,
                           "compress.estimate: only the owner of a sum decodes what codec %s sends; leave it out, or "
                           "take another codec: --compress.codec topk",
                           e->codec->name);
    if (o == NULL || !o->compat || o->ring == TACITI_RING_F32) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG, "%s.compat: the released code has floats only; leave out %s.ring",
                       e->codec->name, e->codec->name);
}

static tacit_status describe(taciti_route *route) {
    TACITI_TRY(taciti_route_describe_way(&route->setup, &route->setup.encoding, false, &route->reduce));
    route->reduce.halves_only = route->reduce.ranges_at_once = true;
    return TACIT_OK;
}

static size_t memory_bytes(const taciti_route *route) {
    return taciti_sketch_reduce_predict_bytes(&route->reduce, route->setup.layout);
}

static tacit_status open(taciti_route *route, taciti_comm *comm, void *workspace) {
    TACITI_TRY(taciti_allreduce_open(&route->reduce, comm, workspace));
    taciti_sketch_reduce *sketches = route->own = taciti_calloc(1, sizeof *sketches);
    if (sketches == NULL) return TACIT_E_MEMORY;
    return taciti_sketch_reduce_create(&route->reduce, route->setup.layout, sketches);
}

static void close(taciti_route *route) {
    if (route->own != NULL) taciti_sketch_reduce_destroy(route->own);
    taciti_free(route->own);
}

static tacit_status run(taciti_route *route, float *x, size_t n, const taciti_bucket_task *task,
                        taciti_residual *residual) {
    return taciti_sketch_reduce_run(route->own, x, n, task, residual);
}

static void settle(taciti_route *route, bool taken) { taciti_sketch_reduce_settle(route->own, taken); }

static void *state(const taciti_route *route, size_t *bytes) { return taciti_sketch_reduce_state(route->own, bytes); }

static void restored(taciti_route *route) { taciti_sketch_reduce_restored(route->own); }

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static uint64_t bytes(const taciti_route *route, size_t bucket, taciti_codec_setting setting) {
    (void)setting;
    return taciti_sketch_reduce_bytes(&route->reduce, route->setup.layout->buckets[bucket].n);
}

static uint64_t nic_bytes(const taciti_route *route, size_t bucket, taciti_codec_setting setting, int host) {
    (void)setting;
    return taciti_sketch_reduce_nic_bytes(&route->reduce, route->setup.layout->buckets[bucket].n, host);
}

static double expected_bytes(const taciti_route *route, size_t bucket, const taciti_codec_setting *settings) {
    (void)route;
    (void)bucket;
    (void)settings;
    return 0;
}

/* A sketch may be followed by all values, and the owner answers with an index, block by block. */
static uint64_t range_bytes(const taciti_encoding *encoding, size_t n) {
    enum { MIN_BLOCK = 2048 };
    (void)encoding;
    return n == 0 ? 0 : 2 * n * sizeof(float) + n / 8 + (n / MIN_BLOCK + 1) * 2 * sizeof(taciti_sketch_reply);
}

/* ---- price ------------------------------------------------------------------------------------------------------- */

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

static taciti_contribution contribution_of(const taciti_encoding *e, const taciti_allreduce *reduce,
                                           const taciti_cut *cut, double floats) {
    const size_t blocks = taciti_sketch_block_count(reduce, cut), n = (size_t)(floats / (double)blocks + 0.5);
    const taciti_sketched one =
        taciti_sketched_of(e->options, n > 0 ? n : 1, reduce->arrangement.hosts, taciti_encoding_factor(e));
    const int messages = one.pending_bytes > 0 ? 4 : 2;
    return (taciti_contribution){(double)blocks * (one.contribution_bytes + one.pending_bytes + one.reply_bytes),
                                 (size_t)messages * blocks, messages};
}

static tacit_status price(const taciti_route_setup *setup, taciti_phase phase, size_t n, taciti_rates_at *rates,
                          const void *context, taciti_price *out) {
    taciti_allreduce reduce;
    TACITI_TRY(taciti_route_describe_way(setup, &setup->encoding, false, &reduce));
    *out = taciti_route_price_by_owners(setup, &reduce, phase, n, rates, context, contribution_of);
    taciti_allreduce_destroy(&reduce);
    return TACIT_OK;
}

const taciti_route_verbs taciti_route_sketch = {
    .name = "sketch",
    .phases = true,
    .check = check,
    .describe = describe,
    .workspace_bytes = taciti_route_reduce_workspace_bytes,
    .memory_bytes = memory_bytes,
    .open = open,
    .close = close,
    .run = run,
    .observe = taciti_route_reduce_observe,
    .settle = settle,
    .state = state,
    .restored = restored,
    .bytes = bytes,
    .nic_bytes = nic_bytes,
    .expected_bytes = expected_bytes,
    .range_bytes = range_bytes,
    .price = price,
};
