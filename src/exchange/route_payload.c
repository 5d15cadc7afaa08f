/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/* The route of sums whose payloads are added by the owners of ranges, or by all (allreduce.h), and its price:
 *
 *   H hosts (ranks, where ranks are arranged flat or share one host), L lanes of each; an array of n floats is cut into
 *   shares of n / L, one per lane, and chunks of n / (L H). e_f(m): mean payload of m floats at the factor f
 *
 *   scatter   a lane sends e_f(chunk) to each other host and, as owner, e_b(chunk) of the sum; b: the factor back
 *   gather    a lane sends e_f(share) to each other host; everybody adds all of them
 *
 *   codec     scatter  n/L encode + n/(LH) (decode + (H-1) add + encode_b) + n/L decode_b
 *             gather   n/L (encode + decode + (H-1) add)
 *
 * Phases on their own, of methods whose ranks own parts: N ranks, each of which owns n / N of the array
 *
 *   reduce-scatter  a rank sends e(n/N) to each other one   codec  n encode + n/N (decode + (N-1) add)
 *   all-gather      a rank sends e(n/N) to each other one   codec  n/N encode + n decode
 *   to lanes        as scatter, between hosts
 *
 *   A sum of H arrays of which each has a share p of elements that are not 0 has 1 - (1-p)^H of them: on its way back
 *   no more than these are sent. */
/* clang-format on */
#include "exchange/route_payload.h"

#include "base/log.h"

/* ---- what is described ------------------------------------------------------------------------------------------- */

tacit_status taciti_route_describe_way(const taciti_route_setup *setup, const taciti_encoding *encoding, bool gather,
                                       taciti_allreduce *out) {
    taciti_placement placement = setup->placement;
    placement.gather = gather;
    return taciti_allreduce_describe(setup->hosts, (taciti_members){0}, setup->rank, encoding, placement,
                                     setup->segment_bytes, out);
}

tacit_status taciti_route_describe_wire(taciti_route *route) {
    const taciti_encoding wire = {.codec = route->setup.wire};
    return taciti_route_describe_way(&route->setup, &wire, false, &route->reduce);
}

static tacit_status check_encoding(const taciti_encoding *e) {
    TACITI_TRY(taciti_encoding_check(e));
    if (!e->codec->votes || e->way != TACITI_WAY_GATHER) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "codec %s is a vote that the owner of a sum counts: leave compress.collective gather out",
                       e->codec->name);
}

/* A vote is counted by its owner. */
static bool has_choice(const taciti_encoding *e) { return e->way == TACITI_WAY_AUTO && !e->codec->votes; }

static double mean_bytes(const taciti_allreduce *reduce, const taciti_layout *layout,
                         const taciti_codec_setting *settings) {
    double bytes = 0;
    for (size_t b = 0; b < layout->bucket_count; b++)
        if (!layout->buckets[b].plain) bytes += taciti_allreduce_expected_bytes(reduce, layout->buckets[b].n, settings);
    return bytes;
}

/* Compares what rank 0, a lane, would send: all ranks must choose alike. */
static tacit_status choose_gather(const taciti_route_setup *setup, bool *out) {
    const taciti_encoding *e = &setup->encoding;
    taciti_route_setup first = *setup;
    double bytes[2];
    int hosts = 0;
    *out = e->way == TACITI_WAY_GATHER;
    if (!has_choice(e)) return TACIT_OK;
    first.rank = 0;
    for (int gather = 0; gather < 2; gather++) {
        taciti_allreduce reduce;
        TACITI_TRY(taciti_route_describe_way(&first, e, gather, &reduce));
        reduce.halves_only = true;
        hosts = reduce.arrangement.hosts;
        bytes[gather] = mean_bytes(&reduce, setup->layout,
                                   (taciti_codec_setting[]){e->expected, taciti_encoding_result_setting(e, hosts)});
        taciti_allreduce_destroy(&reduce);
    }
    *out = taciti_way_gathers(hosts, bytes[0], bytes[1]);
    return TACIT_OK;
}

static tacit_status describe_route(taciti_route *route) {
    bool gather;
    TACITI_TRY(choose_gather(&route->setup, &gather));
    TACITI_TRY(taciti_route_describe_way(&route->setup, &route->setup.encoding, gather, &route->reduce));
    route->reduce.halves_only = true; /* tallies and residuals are theirs */
    return TACIT_OK;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

tacit_status taciti_route_reduce_open(taciti_route *route, taciti_comm *comm, void *workspace) {
    return taciti_allreduce_open(&route->reduce, comm, workspace);
}

tacit_status taciti_route_reduce_run(taciti_route *route, float *x, size_t n, const taciti_bucket_task *task,
                                     taciti_residual *residual) {
    return taciti_allreduce_run(&route->reduce, x, n, task, residual);
}

tacit_status taciti_route_reduce_observe(taciti_route *route, float *x, size_t n, const taciti_bucket_task *task) {
    return taciti_allreduce_observe(&route->reduce, x, n, task);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static size_t n_of(const taciti_route *route, size_t bucket) { return route->setup.layout->buckets[bucket].n; }

uint64_t taciti_route_reduce_bytes(const taciti_route *route, size_t bucket, taciti_codec_setting setting) {
    (void)setting;
    return taciti_allreduce_bytes(&route->reduce, n_of(route, bucket));
}

double taciti_route_reduce_expected_bytes(const taciti_route *route, size_t bucket,
                                          const taciti_codec_setting *settings) {
    return taciti_allreduce_expected_bytes(&route->reduce, n_of(route, bucket), settings);
}

static uint64_t range_bytes(const taciti_encoding *encoding, size_t n) {
    return n == 0 ? 0 : taciti_encoding_bound(encoding, n);
}

/* ---- prices ------------------------------------------------------------------------------------------------------ */

typedef struct sum {
    const taciti_encoding *encoding;
    const taciti_allreduce *reduce;
    taciti_cut cut;
    double n;
    int hosts, lanes;
    taciti_codec_setting back;
    taciti_codec_rates forth_rates, back_rates;
} sum;

static sum sum_of(const taciti_encoding *e, const taciti_allreduce *reduce, size_t n, taciti_rates_at *rates,
                  const void *context) {
    const int hosts = reduce->arrangement.hosts;
    const taciti_codec_setting back = taciti_encoding_result_setting(e, hosts);
    return (sum){.encoding = e,
                 .reduce = reduce,
                 .cut = taciti_allreduce_cut(reduce, n),
                 .n = (double)n,
                 .hosts = hosts,
                 .lanes = reduce->arrangement.lanes,
                 .back = back,
                 .forth_rates = rates(context, e->codec, taciti_encoding_factor(e)),
                 .back_rates = rates(context, e->codec, e->codec->selects ? back.factor : 1)};
}

static double payload_bytes(const taciti_encoding *e, taciti_codec_setting setting, double floats, size_t pieces) {
    const size_t n = (size_t)(floats / (double)pieces + 0.5);
    return (double)pieces * taciti_encoding_expected_bytes(e, setting, n > 0 ? n : 1, 1);
}

static taciti_contribution contribution_of(const taciti_encoding *e, const taciti_allreduce *reduce,
                                           const taciti_cut *cut, double n) {
    (void)reduce;
    return (taciti_contribution){payload_bytes(e, e->expected, n, cut->pieces), taciti_cut_messages(cut), 1};
}

/* The pipeline is filled for each of these: only the messages behind its first ones overlap. */
static size_t count_fillings(const sum *s) {
    const size_t under_way = s->reduce->wire_depth + 1;
    return (taciti_cut_messages(&s->cut) + under_way - 1) / under_way;
}

static taciti_price price_scatter(const sum *s, taciti_contribution forth) {
    const double share = s->n / s->lanes, chunk = share / s->hosts;
    const double sent = forth.bytes + payload_bytes(s->encoding, s->back, chunk, s->cut.pieces);
    const taciti_codec_rates *f = &s->forth_rates, *b = &s->back_rates;
    return (taciti_price){
        .length = {.wire_bytes = (size_t)(s->lanes * s->hosts * sent / 2 + 0.5), .f32_bytes = (size_t)(4 * s->n)},
        .codec_s =
            share * (f->encode_s + b->decode_s) + chunk * (f->decode_s + (s->hosts - 1) * f->add_s + b->encode_s),
        .busiest = 1,
        .by_owners = true,
        .fillings = count_fillings(s),
        .messages = (forth.messages + taciti_cut_messages(&s->cut)) * (size_t)(s->hosts - 1),
        .wire_hops = forth.hops + 1};
}

static taciti_price price_gather(const sum *s) {
    const double share = s->n / s->lanes;
    const double sent = payload_bytes(s->encoding, s->encoding->expected, share, s->cut.pieces);
    const taciti_codec_rates *f = &s->forth_rates;
    return (taciti_price){
        .length = {.wire_bytes = (size_t)(s->lanes * s->hosts * sent / 2 + 0.5), .f32_bytes = (size_t)(4 * s->n)},
        .codec_s = share * (f->encode_s + f->decode_s + (s->hosts - 1) * f->add_s),
        .busiest = 1,
        .fillings = count_fillings(s),
        .messages = taciti_cut_messages(&s->cut) * (size_t)(s->hosts - 1),
        .wire_hops = 1};
}

/* The codec works for a lane, which encodes and decodes its share. */
static taciti_price one_phase(const sum *s, taciti_phase phase, taciti_contribution one) {
    const bool gathers = phase == TACITI_PHASE_ALL_GATHER;
    const taciti_codec_rates r = s->forth_rates;
    const double share = s->n / s->lanes, own = share / s->hosts;
    return (taciti_price){.length = {.wire_bytes = (size_t)(s->lanes * s->hosts * one.bytes + 0.5),
                                     .f32_bytes = (size_t)s->n * sizeof(float)},
                          .codec_s = gathers ? own * r.encode_s + share * r.decode_s
                                             : share * r.encode_s + own * (r.decode_s + (s->hosts - 1) * r.add_s),
                          .busiest = 1,
                          .by_owners = !gathers,
                          .fillings = count_fillings(s),
                          .messages = one.messages * (size_t)(s->hosts - 1),
                          .wire_hops = one.hops};
}

taciti_price taciti_route_price_by_owners(const taciti_route_setup *setup, const taciti_allreduce *reduce,
                                          taciti_phase phase, size_t n, taciti_rates_at *rates, const void *context,
                                          taciti_contribution_of *contribution) {
    const sum s = sum_of(&setup->encoding, reduce, n, rates, context);
    const taciti_contribution forth = contribution(s.encoding, reduce, &s.cut, s.n / s.lanes / s.hosts);
    const bool alone = phase == TACITI_PHASE_REDUCE_SCATTER || phase == TACITI_PHASE_ALL_GATHER;
    return alone ? one_phase(&s, phase, forth) : price_scatter(&s, forth);
}

/* As exchanges choose, for this array alone. */
static tacit_status price_sum(const taciti_route_setup *setup, taciti_phase phase, size_t n, taciti_rates_at *rates,
                              const void *context, taciti_price *out) {
    const taciti_encoding *e = &setup->encoding;
    const bool whole = phase == TACITI_PHASE_ALL_REDUCE, chooses = whole && has_choice(e);
    const bool gathers = whole && e->way == TACITI_WAY_GATHER && !e->codec->votes;
    taciti_allreduce reduce;
    if (!gathers) {
        TACITI_TRY(taciti_route_describe_way(setup, e, false, &reduce));
        *out = taciti_route_price_by_owners(setup, &reduce, phase, n, rates, context, contribution_of);
        taciti_allreduce_destroy(&reduce);
    }
    if (!gathers && !chooses) return TACIT_OK;
    TACITI_TRY(taciti_route_describe_way(setup, e, true, &reduce));
    const sum all = sum_of(e, &reduce, n, rates, context);
    const taciti_price other = price_gather(&all);
    taciti_allreduce_destroy(&reduce);
    if (gathers || taciti_way_gathers(all.hosts, (double)out->length.wire_bytes, (double)other.length.wire_bytes))
        *out = other;
    return TACIT_OK;
}

const taciti_route_verbs taciti_route_payload = {
    .phases = true,
    .pieces = true,
    .results = true,
    .probed = true,
    .check = check_encoding,
    .describe = describe_route,
    .open = taciti_route_reduce_open,
    .run = taciti_route_reduce_run,
    .observe = taciti_route_reduce_observe,
    .bytes = taciti_route_reduce_bytes,
    .expected_bytes = taciti_route_reduce_expected_bytes,
    .range_bytes = range_bytes,
    .price = price_sum,
};
