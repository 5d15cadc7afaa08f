/* SPDX-License-Identifier: Apache-2.0
 *
 * The route of codecs whose payloads are floats that add up (linear.h), and its price: every round's payload of the
 * whole array goes through a dense all-reduce of its own; a rank encodes and decodes n floats.
 */
#include "exchange/linear.h"

#include <string.h>

#include "base/log.h"
#include "exchange/route_payload.h"

static tacit_status check_encoding(const taciti_encoding *e) {
    if (!e->feedback.estimates && !(e->feedback.momentum > 0)) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "codec %s sends combinations of elements: it allows neither estimates nor momentum correction",
                       e->codec->name);
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */
/* The whole rows of the tensor within [begin, end) of the flat array. */
static taciti_codec_matrix rows_within(const taciti_tensor *tensor, size_t begin, size_t end) {
    const size_t columns = tensor->dims < 2 || tensor->shape[0] == 0 ? 0 : tensor->n / tensor->shape[0];
    if (columns == 0) return (taciti_codec_matrix){0};
    const size_t skipped = tensor->offset < begin ? (begin - tensor->offset + columns - 1) / columns : 0;
    const size_t last = tensor->offset + tensor->n < end ? tensor->shape[0] : (end - tensor->offset) / columns;
    if (skipped >= last) return (taciti_codec_matrix){0};
    return (taciti_codec_matrix){tensor->offset + skipped * columns - begin, last - skipped, columns};
}

size_t taciti_linear_matrices(const taciti_layout *layout, size_t bucket, taciti_codec_matrix *out) {
    const taciti_bucket *b = &layout->buckets[bucket];
    size_t count = 0;
    for (size_t i = b->first; b->n > 0 && i <= b->last; i++) {
        const taciti_codec_matrix matrix = rows_within(&layout->tensors[i], b->offset, b->offset + b->n);
        if (matrix.rows == 0) continue;
        if (out != NULL) out[count] = matrix;
        count++;
    }
    return count;
}

/* The call for a bucket without what changes from step to step. */
static taciti_codec_call shape_of(const taciti_linear_reduce *linear, size_t bucket, taciti_codec_setting setting) {
    const taciti_linear_bucket *b = &linear->buckets[bucket];
    return (taciti_codec_call){.options = linear->encoding.options,
                               .setting = setting,
                               .rank = linear->rank,
                               .ranks = linear->ranks,
                               .matrices = b->matrices,
                               .n_matrices = b->n_matrices};
}

/* Bytes of one payload: the maximum over all rounds, settings and buckets. */
static size_t payload_bytes(const taciti_linear_reduce *linear) {
    const taciti_codec *codec = linear->encoding.codec;
    size_t bytes = 0;
    for (size_t b = 0; b < linear->layout->bucket_count; b++) {
        const size_t n = linear->layout->buckets[b].n, bound = taciti_encoding_bound(&linear->encoding, n);
        taciti_codec_call call = shape_of(linear, b, (taciti_codec_setting){0});
        if (bound > bytes) bytes = bound;
        for (call.round = 0; call.round < codec->rounds; call.round++) {
            const size_t round_bytes = codec->payload_n(&call, n) * sizeof(float);
            if (round_bytes > bytes) bytes = round_bytes;
        }
    }
    return taciti_round_up(bytes, TACITI_ALIGN_BYTES);
}

static size_t scratch_bytes(const taciti_linear_reduce *linear) {
    const taciti_codec *codec = linear->encoding.codec;
    size_t bytes = 0;
    for (size_t b = 0; b < linear->layout->bucket_count && codec->scratch_bytes != NULL; b++) {
        const size_t one = codec->scratch_bytes(codec, linear->encoding.options, linear->layout->buckets[b].n);
        if (one > bytes) bytes = one;
    }
    return taciti_round_up(bytes, TACITI_ALIGN_BYTES);
}

/* Sets the matrices and sizes of all buckets; returns bytes of all states. */
static size_t describe_buckets(taciti_linear_reduce *linear) {
    const taciti_codec *codec = linear->encoding.codec;
    size_t bytes = 0, found = 0;
    for (size_t b = 0; b < linear->layout->bucket_count; b++) {
        taciti_linear_bucket *bucket = &linear->buckets[b];
        bucket->matrices = linear->matrices + found;
        bucket->n_matrices = taciti_linear_matrices(linear->layout, b, bucket->matrices);
        found += bucket->n_matrices;
        const taciti_codec_call call = shape_of(linear, b, (taciti_codec_setting){0});
        bucket->state_bytes =
            taciti_round_up(codec->linear_state_bytes(&call, linear->layout->buckets[b].n), TACITI_ALIGN_BYTES);
        bytes += 2 * bucket->state_bytes;
    }
    return bytes;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */
/* Describes the buckets without allocating the large arrays. */
static tacit_status describe_linear(const taciti_route *route, taciti_allreduce *reduce, taciti_linear_reduce *out) {
    const taciti_route_setup *setup = &route->setup;
    const taciti_layout *layout = setup->layout;
    size_t tensors = 0;
    *out = (taciti_linear_reduce){.layout = layout,
                                  .encoding = setup->encoding,
                                  .rank = setup->rank,
                                  .ranks = setup->hosts->ranks,
                                  .reduce = reduce};
    for (size_t b = 0; b < layout->bucket_count; b++) tensors += taciti_linear_matrices(layout, b, NULL);
    out->buckets = taciti_calloc(layout->bucket_count, sizeof *out->buckets);
    out->matrices = taciti_calloc(tensors, sizeof *out->matrices);
    return out->buckets == NULL || out->matrices == NULL ? TACIT_E_MEMORY : TACIT_OK;
}

/* Bytes of two payloads, scratch and all states. */
static size_t describe_pages(taciti_linear_reduce *linear) {
    const size_t states = describe_buckets(linear);
    return 2 * payload_bytes(linear) + scratch_bytes(linear) + states;
}

static tacit_status allocate_memory(taciti_linear_reduce *linear) {
    TACITI_TRY(taciti_pages_create(describe_pages(linear), "the linear exchange", &linear->pages));
    const size_t payload = payload_bytes(linear);
    char *at = linear->pages.base;
    for (int i = 0; i < 2; i++, at += payload) linear->payload[i] = (float *)(void *)at;
    linear->scratch = at;
    at += scratch_bytes(linear);
    for (int version = 0; version < 2; version++)
        for (size_t b = 0; b < linear->layout->bucket_count; at += linear->buckets[b++].state_bytes)
            linear->buckets[b].state[version] = at;
    return TACIT_OK;
}

static tacit_status open_route(taciti_route *route, taciti_comm *comm, void *workspace) {
    TACITI_TRY(taciti_allreduce_open(&route->reduce, comm, workspace));
    taciti_linear_reduce *out = route->own = taciti_calloc(1, sizeof *out);
    if (out == NULL) return TACIT_E_MEMORY;
    TACITI_TRY(describe_linear(route, &route->reduce, out));
    out->comm = comm;
    return allocate_memory(out);
}

static void release_memory(taciti_linear_reduce *linear) {
    taciti_free(linear->buckets);
    taciti_free(linear->matrices);
    taciti_pages_destroy(&linear->pages);
}

static void close_route(taciti_route *route) {
    if (route->own != NULL) release_memory(route->own);
    taciti_free(route->own);
}

static size_t memory_bytes(const taciti_route *route) {
    taciti_linear_reduce linear;
    size_t bytes = 0;
    if (describe_linear(route, NULL, &linear) == TACIT_OK) bytes = describe_pages(&linear);
    release_memory(&linear);
    return bytes;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */
/* Encodes into `out`, whose m floats are then summed over all ranks. */
static tacit_status round_of(taciti_linear_reduce *linear, const taciti_codec_call *call, const float *x, size_t n,
                             float *out, float *error) {
    const taciti_codec *codec = linear->encoding.codec;
    const size_t m = codec->payload_n(call, n);
    size_t bytes = 0;
    const int64_t begin_ns = taciti_now_ns();
    TACITI_TRY(codec->encode(codec, call, x, n, out, error, &bytes));
    taciti_payload_time(linear->comm, TACITI_SPAN_ENCODE, taciti_now_ns() - begin_ns);
    if (bytes != m * sizeof(float))
        return taciti_fail(TACIT_E_INTERNAL, "codec %s wrote %zu bytes in round %d where it announced %zu", codec->name,
                           bytes, call->round, m * sizeof(float));
    return taciti_allreduce_run(linear->reduce, out, m, NULL, NULL);
}

static tacit_status decode_sum(taciti_linear_reduce *linear, const taciti_codec_call *call, const float *payload,
                               float *x, size_t n) {
    const taciti_codec *codec = linear->encoding.codec;
    const int64_t begin_ns = taciti_now_ns();
    const tacit_status status =
        codec->decode(codec, call, payload, codec->payload_n(call, n) * sizeof(float), x, n, false);
    taciti_payload_time(linear->comm, TACITI_SPAN_DECODE, taciti_now_ns() - begin_ns);
    return status;
}

static taciti_codec_call call_of(taciti_linear_reduce *linear, const taciti_bucket_task *task) {
    taciti_linear_bucket *bucket = &linear->buckets[task->bucket];
    taciti_codec_call call = shape_of(linear, task->bucket, task->setting[TACITI_PAYLOAD_CONTRIBUTION]);
    const int all = TACITI_CODEC_ALL_RANKS;
    call.key = taciti_codec_key(linear->encoding.seed, task->step, all, task->bucket);
    call.scratch = linear->scratch;
    if (bucket->state_bytes == 0) return call;
    call.state = bucket->state[bucket->now];
    call.next = bucket->state[!bucket->now];
    bucket->pending = true;
    return call;
}

tacit_status taciti_linear_run(taciti_linear_reduce *linear, float *x, size_t n, const taciti_bucket_task *task,
                               float *error, taciti_codec_tally *tally) {
    const int last = linear->encoding.codec->rounds - 1;
    if (error != NULL) memset(error, 0, n * sizeof *error);
    if (linear->ranks == 1 || n == 0) return TACIT_OK;
    taciti_codec_call call = call_of(linear, task);
    float *payload = linear->payload[0];
    for (; call.round < last; call.round++) {
        if (linear->encoding.codec->payload_n(&call, n) > 0) TACITI_TRY(round_of(linear, &call, x, n, payload, NULL));
        call.before = payload; /* of length 0 after a round that is skipped */
        payload = linear->payload[payload == linear->payload[0]];
    }
    call.tally = tally;
    TACITI_TRY(round_of(linear, &call, x, n, payload, error));
    return decode_sum(linear, &call, payload, x, n);
}

/* All buckets keep the same version, so that their states lie beside each other. */
static void settle_step(taciti_route *route, bool taken) {
    const taciti_linear_reduce *linear = route->own;
    const size_t buckets = linear->layout->bucket_count;
    bool any = false;
    for (size_t b = 0; b < buckets; b++) any = any || linear->buckets[b].pending;
    for (size_t b = 0; b < buckets; b++) {
        taciti_linear_bucket *bucket = &linear->buckets[b];
        const bool carries = any && taken && !bucket->pending && bucket->state_bytes > 0;
        if (carries) memcpy(bucket->state[!bucket->now], bucket->state[bucket->now], bucket->state_bytes);
        if (any && taken) bucket->now = !bucket->now;
        bucket->pending = false;
    }
}

static void *state_of(const taciti_route *route, size_t *bytes) {
    const taciti_linear_reduce *linear = route->own;
    *bytes = 0;
    for (size_t b = 0; b < linear->layout->bucket_count; b++) *bytes += linear->buckets[b].state_bytes;
    return *bytes == 0 ? NULL : linear->buckets[0].state[linear->buckets[0].now];
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */
static uint64_t bytes_of(const taciti_route *route, size_t bucket, taciti_codec_setting setting) {
    const taciti_linear_reduce *linear = route->own;
    const taciti_codec *codec = linear->encoding.codec;
    taciti_codec_call call = shape_of(linear, bucket, setting);
    uint64_t bytes = 0;
    for (; call.round < codec->rounds; call.round++) {
        const size_t m = codec->payload_n(&call, linear->layout->buckets[bucket].n);
        if (m > 0) bytes += taciti_allreduce_bytes(linear->reduce, m);
    }
    return bytes;
}

static double expected_bytes(const taciti_route *route, size_t bucket, const taciti_codec_setting *settings) {
    return (double)bytes_of(route, bucket, settings[TACITI_PAYLOAD_CONTRIBUTION]);
}

/* ---- slot run ---------------------------------------------------------------------------------------------------- */

/* Every rank's whole bucket is one encoding. */
static tacit_status run_bucket(taciti_route *route, float *x, size_t n, const taciti_bucket_task *task,
                               taciti_residual *residual) {
    const taciti_residual_place all = {.kind = TACITI_PAYLOAD_CONTRIBUTION, .n = n};
    taciti_tally *tally = &task->tallies[TACITI_PAYLOAD_CONTRIBUTION];
    if (task->phase != TACITI_PHASE_ALL_REDUCE)
        return taciti_fail(TACIT_E_INTERNAL, "bucket %zu: an all-reduce with a codec of class LINEAR has no halves",
                           task->bucket);
    float *error = residual != NULL ? taciti_residual_enter(residual, &all, x) : NULL;
    tally->bytes += bytes_of(route, task->bucket, task->setting[TACITI_PAYLOAD_CONTRIBUTION]);
    TACITI_TRY(taciti_linear_run(route->own, x, n, task, error, &tally->sent));
    if (error != NULL) taciti_residual_keep(residual, all.kind, all.at, all.n);
    return TACIT_OK;
}

/* ---- price ------------------------------------------------------------------------------------------------------- */

/* The bytes that are sent for an array: all rounds together, and of them on a host's link. */
typedef struct sent {
    double payload, link;
} sent;

static taciti_length length_of(const taciti_codec *wire, size_t floats) {
    return (taciti_length){.wire_bytes = wire->bound(wire, NULL, floats), .f32_bytes = floats * sizeof(float)};
}

static double link_bytes(const taciti_route_setup *setup, taciti_length length) {
    return taciti_allreduce_demand(setup->hosts, NULL, (size_t)setup->hosts->ranks, setup->placement, length.wire_bytes,
                                   length.f32_bytes)
        .host_bytes;
}

/* Every round is an all-reduce of its own, and a short one takes another way than a long one (small.h). */
static sent sent_by_call(const taciti_route_setup *setup, taciti_codec_call call, size_t n) {
    const taciti_codec *codec = setup->encoding.codec;
    sent out = {.payload = taciti_codec_expected_bytes(codec, &call, n)};
    for (call.round = 0; call.round < codec->rounds; call.round++) {
        const size_t floats = codec->payload_n(&call, n);
        if (floats > 0) out.link += link_bytes(setup, length_of(setup->wire, floats));
    }
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

static tacit_status price_sum(const taciti_route_setup *setup, taciti_phase phase, size_t n, taciti_rates_at *rates,
                              const void *context, taciti_price *out) {
    const taciti_codec *codec = setup->encoding.codec;
    const taciti_codec_rates r = rates(context, codec, taciti_encoding_factor(&setup->encoding));
    sent bytes;
    (void)phase;
    TACITI_TRY(find_sent(setup, n, &bytes));
    const taciti_length length = length_of(setup->wire, (size_t)(bytes.payload / sizeof(float) + 0.5));
    const double link = link_bytes(setup, length);
    *out = (taciti_price){.length = length,
                          .codec_s = (double)n * (r.encode_s + r.decode_s),
                          .busiest = link > 0 && bytes.link > 0 ? bytes.link / link : 1,
                          .fillings = 1,
                          .wire_hops = 2 * codec->rounds};
    return TACIT_OK;
}

const taciti_route_verbs taciti_route_linear = {
    .whole = true,
    .probed = true,
    .check = check_encoding,
    .describe = taciti_route_describe_wire, /* ranges are owned as those of the dense sum are */
    .memory_bytes = memory_bytes,
    .open = open_route,
    .close = close_route,
    .run = run_bucket,
    .settle = settle_step,
    .state = state_of,
    .bytes = bytes_of,
    .expected_bytes = expected_bytes,
    .price = price_sum,
};
