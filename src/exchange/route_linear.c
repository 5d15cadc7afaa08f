/* SPDX-License-Identifier: Apache-2.0
 *
 * The route of codecs whose payloads are floats that add up (linear.h), and its price: every round's payload of the
 * whole array goes through a dense all-reduce of its own; a rank encodes and decodes n floats.
 */
#include "base/log.h"
#include "exchange/linear.h"
#include "exchange/route_payload.h"

static tacit_status check(const taciti_encoding *e) {
    if (!e->feedback.estimates && !(e->feedback.momentum > 0)) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "codec %s sends combinations of elements: it allows neither estimates nor momentum correction",
                       e->codec->name);
}

/* Ranges are owned as those of the dense sum are. */
static tacit_status describe(taciti_route *route) {
    const taciti_encoding wire = {.codec = route->setup.wire};
    return taciti_route_describe_way(&route->setup, &wire, false, &route->reduce);
}

static size_t memory_bytes(const taciti_route *route) { return taciti_linear_predict_bytes(&route->setup); }

static tacit_status open(taciti_route *route, taciti_comm *comm, void *workspace) {
    (void)workspace;
    taciti_linear_reduce *linear = route->own = taciti_calloc(1, sizeof *linear);
    return linear == NULL ? TACIT_E_MEMORY : taciti_linear_create(comm, &route->setup, linear);
}

static void close(taciti_route *route) {
    if (route->own != NULL) taciti_linear_destroy(route->own);
    taciti_free(route->own);
}

/* Every rank's whole bucket is one encoding. */
static tacit_status run(taciti_route *route, float *x, size_t n, const taciti_bucket_task *task,
                        taciti_residual *residual) {
    const taciti_residual_place all = {.kind = TACITI_PAYLOAD_CONTRIBUTION, .n = n};
    taciti_payload_tally *tally = &task->tallies[TACITI_PAYLOAD_CONTRIBUTION];
    taciti_codec_call unused = {.options = NULL};
    if (task->phase != TACITI_PHASE_ALL_REDUCE)
        return taciti_fail(TACIT_E_INTERNAL, "bucket %zu: an all-reduce with a codec of class LINEAR has no halves",
                           task->bucket);
    float *error = residual != NULL ? taciti_residual_enter(residual, &all, x, &unused) : NULL;
    tally->bytes += taciti_linear_bytes(route->own, task->bucket, task->setting[TACITI_PAYLOAD_CONTRIBUTION]);
    TACITI_TRY(taciti_linear_run(route->own, x, n, task, error, &tally->codec));
    if (error != NULL) taciti_residual_keep(residual, all.kind, all.at, all.n);
    return TACIT_OK;
}

static void settle(taciti_route *route, bool taken) { taciti_linear_settle(route->own, taken); }

static void *state(const taciti_route *route, size_t *bytes) { return taciti_linear_states(route->own, bytes); }

static uint64_t bytes(const taciti_route *route, size_t bucket, taciti_codec_setting setting) {
    return taciti_linear_bytes(route->own, bucket, setting);
}

static uint64_t nic_bytes(const taciti_route *route, size_t bucket, taciti_codec_setting setting, int host) {
    return taciti_linear_nic_bytes(route->own, bucket, setting, host);
}

static double expected_bytes(const taciti_route *route, size_t bucket, const taciti_codec_setting *settings) {
    return (double)taciti_linear_bytes(route->own, bucket, settings[TACITI_PAYLOAD_CONTRIBUTION]);
}

/* ---- price ------------------------------------------------------------------------------------------------------- */

/* What is sent for an array, in bytes: all rounds together, and of them on a host's link. */
typedef struct sent {
    double payload, link;
} sent;

static taciti_length length_of(const taciti_codec *wire, bool exact, size_t floats) {
    const size_t f32_bytes = floats * sizeof(float);
    return (taciti_length){.wire_bytes = exact ? f32_bytes : wire->bound(NULL, floats), .f32_bytes = f32_bytes};
}

static double link_bytes(const taciti_route_setup *setup, taciti_length length) {
    return taciti_allreduce_demand(setup->hosts, NULL, (size_t)setup->hosts->ranks, setup->placement, length.wire_bytes,
                                   length.f32_bytes)
        .host_bytes;
}

static bool is_exact(const taciti_codec *codec, int round) { return (codec->exact_rounds >> round & 1) != 0; }

/* Every round is an all-reduce of its own, and a short one takes another way than a long one (small.h). */
static sent sent_by_call(const taciti_route_setup *setup, taciti_codec_call call, size_t n) {
    const taciti_codec *codec = setup->encoding.codec;
    sent out = {.payload = taciti_codec_expected_bytes(codec, &call, n)};
    double max = 0; /* where a codec skips rounds in turns, the formula of its payloads is the maximum */
    for (call.round = 0; call.round < codec->rounds; call.round++) {
        const size_t floats = codec->payload_n(&call, n);
        max += (double)floats * sizeof(float);
        if (floats > 0) out.link += link_bytes(setup, length_of(setup->wire, is_exact(codec, call.round), floats));
    }
    if (max > 0) out.link *= out.payload / max;
    return out;
}

/* Payloads depend on the matrices of a bucket: the mean over the buckets of that length. */
static tacit_status find_sent(const taciti_route_setup *setup, size_t n, sent *out) {
    const taciti_encoding *e = &setup->encoding;
    const taciti_layout *layout = setup->layout;
    sent total = {.payload = 0};
    double buckets = 0;
    for (size_t b = 0; layout != NULL && b < layout->bucket_count; b++) {
        if (layout->buckets[b].n != n || layout->buckets[b].plain) continue;
        taciti_codec_matrix *matrices = taciti_calloc(layout->tensor_count, sizeof *matrices);
        if (matrices == NULL) return TACIT_E_MEMORY;
        const taciti_codec_call call = {.options = e->options,
                                        .setting = e->expected,
                                        .ranks = setup->hosts->ranks,
                                        .matrices = matrices,
                                        .n_matrices = taciti_linear_matrices(layout, b, matrices)};
        const sent one = sent_by_call(setup, call, n);
        taciti_free(matrices);
        total = (sent){total.payload + one.payload, total.link + one.link};
        buckets++;
    }
    *out = (sent){taciti_encoding_expected_bytes(e, e->expected, n, setup->hosts->ranks), 0};
    if (buckets > 0) *out = (sent){total.payload / buckets, total.link / buckets};
    return TACIT_OK;
}

static tacit_status price(const taciti_route_setup *setup, taciti_phase phase, size_t n, taciti_rates_at *rates,
                          const void *context, taciti_price *out) {
    const taciti_codec *codec = setup->encoding.codec;
    const bool exact = is_exact(codec, codec->rounds - 1); /* the last round is the longest */
    const taciti_codec_rates r = rates(context, codec, taciti_encoding_factor(&setup->encoding));
    sent bytes;
    (void)phase;
    TACITI_TRY(find_sent(setup, n, &bytes));
    const taciti_length length = length_of(setup->wire, exact, (size_t)(bytes.payload / sizeof(float) + 0.5));
    const double link = link_bytes(setup, length);
    *out = (taciti_price){.length = length,
                          .codec_s = (double)n * (r.encode_s + r.decode_s),
                          .busiest = link > 0 && bytes.link > 0 ? bytes.link / link : 1,
                          .fillings = 1,
                          .wire_hops = 2 * codec->rounds};
    return TACIT_OK;
}

const taciti_route_verbs taciti_route_linear = {
    .name = "linear",
    .whole = true,
    .probed = true,
    .check = check,
    .describe = describe,
    .workspace_bytes = taciti_route_no_memory_bytes,
    .memory_bytes = memory_bytes,
    .open = open,
    .close = close,
    .run = run,
    .settle = settle,
    .state = state,
    .bytes = bytes,
    .nic_bytes = nic_bytes,
    .expected_bytes = expected_bytes,
    .price = price,
};
