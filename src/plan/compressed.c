/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/compressed.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "codec/trial.h"
#include "exchange/linear.h"
#include "exchange/sketch_bucket.h"
#include "exchange/store.h"
#include "plan/sketched.h"

/* comm.segment, which bounds messages inside of one host. */
enum { SEGMENT_BYTES = 256 << 10 };

/* ---- seconds per float ------------------------------------------------------------------------------------------- */

/* The row of the same codec with the next larger factor, or the same row. */
static const taciti_cluster_compression *next_row(const taciti_cluster *cluster,
                                                  const taciti_cluster_compression *row) {
    const taciti_cluster_compression *next = NULL;
    for (size_t i = 0; i < cluster->compression_count; i++) {
        const taciti_cluster_compression *c = &cluster->compressions[i];
        if (strcmp(c->codec, row->codec) != 0 || c->factor <= row->factor) continue;
        if (next == NULL || c->factor < next->factor) next = c;
    }
    return next != NULL ? next : row;
}

/* The rows of this codec next to a factor; below the smallest factor the two smallest. False if there is none. One of
 * the two may stand for both. */
static bool find_rows(const taciti_cluster *cluster, const taciti_codec *codec, double factor,
                      const taciti_cluster_compression **below, const taciti_cluster_compression **above) {
    *below = *above = NULL;
    for (size_t i = 0; i < cluster->compression_count; i++) {
        const taciti_cluster_compression *c = &cluster->compressions[i];
        if (strcmp(c->codec, codec->name) != 0) continue;
        if (c->factor <= factor && (*below == NULL || c->factor > (*below)->factor)) *below = c;
        if (c->factor >= factor && (*above == NULL || c->factor < (*above)->factor)) *above = c;
    }
    if (*above == NULL) *above = *below;
    if (*below == NULL && *above != NULL) {
        *below = *above;
        *above = next_row(cluster, *below);
    }
    return *below != NULL;
}

bool taciti_plan_compression_known(const taciti_cluster *cluster, const taciti_codec *codec) {
    const taciti_cluster_compression *below, *above;
    return !codec->sketches && find_rows(cluster, codec, 1, &below, &above);
}

/* Of the line through both; where noise makes it fall towards denser payloads, the lesser of the two holds. */
static double line(double from, double to, double share) { return fmax(from + share * (to - from), fmin(from, to)); }

/* Codecs without a factor have one row. Lines in the share of elements that is kept. */
static taciti_cluster_compression rates_of(const taciti_cluster *cluster, const taciti_codec *codec, double factor) {
    const taciti_cluster_compression *below, *above;
    if (codec->sketches || !find_rows(cluster, codec, factor, &below, &above))
        return (taciti_cluster_compression){.factor = 1};
    if (below == above) return *below;
    const double share = (1 / factor - 1 / below->factor) / (1 / above->factor - 1 / below->factor);
    taciti_cluster_compression row = *below;
    row.encode_s = line(below->encode_s, above->encode_s, share);
    row.decode_s = line(below->decode_s, above->decode_s, share);
    row.add_s = line(below->add_s, above->add_s, share);
    return row;
}

/* ---- payloads ---------------------------------------------------------------------------------------------------- */

double taciti_plan_factor(const taciti_plan_compression *c) {
    return !c->codec->selects ? 1 : c->forth.factor > 0 ? c->forth.factor : TACITI_PLAN_FACTOR;
}

taciti_codec_setting taciti_plan_result_setting(const taciti_plan_compression *c, int contributions) {
    taciti_codec_setting setting = c->back.factor > 0 ? c->back : c->forth;
    if (!c->codec->selects || c->codec->shared_key) return setting;
    const double filled = 1 - pow(1 - 1 / taciti_plan_factor(c), contributions);
    const double factor = setting.factor > 0 ? setting.factor : taciti_plan_factor(c);
    setting.factor = c->codec->sketches ? 1 / filled : fmax(factor, 1 / filled); /* sums of sketches go back exactly */
    return setting;
}

double taciti_plan_expected_bytes(const taciti_plan_compression *c, taciti_codec_setting setting, size_t n, int ranks) {
    enum { COLUMNS = 1024 };
    const taciti_codec_matrix matrix = {.rows = n / COLUMNS, .columns = COLUMNS};
    const taciti_codec_call call = {
        .options = c->options, .setting = setting, .ranks = ranks, .matrices = &matrix, .n_matrices = 1};
    return taciti_codec_expected_bytes(c->codec, &call, n);
}

static double payload(const taciti_plan_compression *c, taciti_codec_setting setting, double floats, size_t pieces) {
    const size_t n = (size_t)(floats / (double)pieces + 0.5);
    return (double)pieces * taciti_plan_expected_bytes(c, setting, n > 0 ? n : 1, 1);
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

typedef struct sum {
    const taciti_plan_compression *compression;
    double n;
    int hosts, lanes;
    taciti_codec_setting back;
    taciti_cluster_compression forth_rates, back_rates;
} sum;

/* So often the pipeline is filled anew: only what is behind it overlaps. */
static size_t fillings(const taciti_allreduce *reduce, size_t pieces) {
    const size_t under_way = reduce->wire_depth + 1;
    return (pieces + under_way - 1) / under_way;
}

/* Of a part of a bucket that one owner adds up: what each member sends for it. */
typedef struct contribution {
    double bytes;
    size_t messages;
    int hops;
} contribution;

static contribution contribution_of(const sum *s, const taciti_allreduce *reduce, const taciti_cut *cut) {
    const taciti_plan_compression *c = s->compression;
    const double chunk = s->n / s->lanes / s->hosts;
    if (!c->codec->sketches) return (contribution){payload(c, c->forth, chunk, cut->pieces), cut->pieces, 1};
    const size_t blocks = taciti_sketch_block_count(reduce, cut), n = (size_t)(chunk / (double)blocks + 0.5);
    const taciti_sketched one = taciti_sketched_of(c->options, n > 0 ? n : 1, s->hosts, taciti_plan_factor(c));
    const int messages = one.pending_bytes > 0 ? 4 : 2;
    return (contribution){(double)blocks * (one.contribution_bytes + one.pending_bytes + one.reply_bytes),
                          (size_t)messages * blocks, messages};
}

static taciti_compressed_sum scatter(const sum *s, const taciti_allreduce *reduce) {
    const double share = s->n / s->lanes, chunk = share / s->hosts;
    const taciti_cut cut = taciti_allreduce_cut(reduce, (size_t)s->n);
    const size_t pieces = cut.pieces;
    const contribution forth = contribution_of(s, reduce, &cut);
    const double sent = forth.bytes + payload(s->compression, s->back, chunk, pieces);
    const taciti_cluster_compression *f = &s->forth_rates, *b = &s->back_rates;
    return (taciti_compressed_sum){
        .length = {.wire_bytes = (size_t)(s->lanes * s->hosts * sent / 2 + 0.5), .f32_bytes = (size_t)(4 * s->n)},
        .codec_s =
            share * (f->encode_s + b->decode_s) + chunk * (f->decode_s + (s->hosts - 1) * f->add_s + b->encode_s),
        .busiest = s->compression->busiest > 0 ? s->compression->busiest : 1,
        .fillings = fillings(reduce, pieces),
        .messages = (forth.messages + pieces) * (size_t)(s->hosts - 1),
        .wire_hops = forth.hops + 1};
}

static taciti_compressed_sum gather(const sum *s, const taciti_allreduce *reduce) {
    const double share = s->n / s->lanes;
    const size_t pieces = taciti_allreduce_cut(reduce, (size_t)s->n).pieces;
    const double sent = payload(s->compression, s->compression->forth, share, pieces);
    const taciti_cluster_compression *f = &s->forth_rates;
    return (taciti_compressed_sum){
        .length = {.wire_bytes = (size_t)(s->lanes * s->hosts * sent / 2 + 0.5), .f32_bytes = (size_t)(4 * s->n)},
        .codec_s = share * (f->encode_s + f->decode_s + (s->hosts - 1) * f->add_s),
        .busiest = 1,
        .fillings = fillings(reduce, pieces),
        .messages = pieces * (size_t)(s->hosts - 1),
        .wire_hops = 1};
}

taciti_placement taciti_plan_placement(const taciti_scene *scene, const taciti_method *method) {
    taciti_placement placement = scene->placement;
    if (method->order == TACITI_ORDER_PARTS) return method->parts.placement(scene->hosts, placement);
    if (method->lanes > 0) placement.lanes = method->lanes;
    return placement;
}

/* What a linear codec sends for a bucket of n floats, in bytes: all rounds together, and of them on a host's link. */
typedef struct linear_bytes {
    double payload, link;
} linear_bytes;

static taciti_length length_of(const taciti_codec *wire, bool exact, size_t floats) {
    const size_t bytes = floats * sizeof(float);
    return (taciti_length){.wire_bytes = exact ? bytes : wire->bound(NULL, floats), .f32_bytes = bytes};
}

static double link_bytes(const taciti_scene *scene, const taciti_method *method, taciti_length length) {
    const taciti_placement placement = taciti_plan_placement(scene, method);
    return taciti_allreduce_demand(scene->hosts, NULL, (size_t)scene->hosts->ranks, placement, length.wire_bytes,
                                   length.f32_bytes)
        .host_bytes;
}

static bool is_exact(const taciti_codec *codec, int round) { return (codec->exact_rounds >> round & 1) != 0; }

/* Every round is an all-reduce of its own, and a short one takes another way than a long one (exchange/small.h). */
static linear_bytes bytes_of_call(const taciti_scene *scene, const taciti_method *method, taciti_codec_call call,
                                  size_t n) {
    const taciti_codec *codec = method->compression.codec;
    linear_bytes out = {.payload = taciti_codec_expected_bytes(codec, &call, n)};
    double max = 0; /* where a codec skips rounds in turns, the formula of its payloads is the maximum */
    for (call.round = 0; call.round < codec->rounds; call.round++) {
        const size_t floats = codec->payload_n(&call, n);
        max += (double)floats * sizeof(float);
        if (floats > 0)
            out.link += link_bytes(scene, method, length_of(method->wire, is_exact(codec, call.round), floats));
    }
    if (max > 0) out.link *= out.payload / max;
    return out;
}

/* Payloads depend on the matrices of a bucket: the mean over the buckets of that length. */
static tacit_status linear_bytes_of(const taciti_scene *scene, const taciti_method *method, size_t n,
                                    linear_bytes *out) {
    const taciti_plan_compression *c = &method->compression;
    const taciti_layout *layout = scene->layout;
    linear_bytes total = {.payload = 0};
    double buckets = 0;
    for (size_t b = 0; layout != NULL && b < layout->bucket_count; b++) {
        if (layout->buckets[b].n != n || layout->buckets[b].plain) continue;
        taciti_codec_matrix *matrices = taciti_calloc(layout->tensor_count, sizeof *matrices);
        if (matrices == NULL) return TACIT_E_MEMORY;
        const taciti_codec_call call = {.options = c->options,
                                        .setting = c->forth,
                                        .ranks = scene->hosts->ranks,
                                        .matrices = matrices,
                                        .n_matrices = taciti_linear_matrices(layout, b, matrices)};
        const linear_bytes one = bytes_of_call(scene, method, call, n);
        taciti_free(matrices);
        total = (linear_bytes){total.payload + one.payload, total.link + one.link};
        buckets++;
    }
    *out = (linear_bytes){taciti_plan_expected_bytes(c, c->forth, n, scene->hosts->ranks), 0};
    if (buckets > 0) *out = (linear_bytes){total.payload / buckets, total.link / buckets};
    return TACIT_OK;
}

/* Every rank encodes its whole array, and the floats of the payload are summed as others are. */
static taciti_compressed_sum linear(const taciti_scene *scene, const taciti_method *method, const sum *s,
                                    linear_bytes bytes) {
    const taciti_codec *codec = s->compression->codec;
    const bool exact = is_exact(codec, codec->rounds - 1); /* the last round is the longest */
    const taciti_length length = length_of(method->wire, exact, (size_t)(bytes.payload / sizeof(float) + 0.5));
    const double link = link_bytes(scene, method, length);
    return (taciti_compressed_sum){.length = length,
                                   .codec_s = s->n * (s->forth_rates.encode_s + s->forth_rates.decode_s),
                                   .busiest = link > 0 && bytes.link > 0 ? bytes.link / link : 1,
                                   .fillings = 1,
                                   .wire_hops = 2 * codec->rounds};
}

tacit_status taciti_plan_arrange(const taciti_scene *scene, const taciti_method *method, taciti_arrangement *out) {
    return taciti_arrangement_of(scene->hosts, (taciti_members){.count = (size_t)scene->hosts->ranks}, 0,
                                 taciti_plan_placement(scene, method), out);
}

tacit_status taciti_plan_describe(const taciti_scene *scene, const taciti_method *method,
                                  const taciti_encoding *encoding, bool gather, taciti_allreduce *out) {
    taciti_placement placement = taciti_plan_placement(scene, method);
    placement.gather = gather;
    return taciti_allreduce_describe(scene->hosts, (taciti_members){.count = (size_t)scene->hosts->ranks}, 0, encoding,
                                     placement, (size_t)SEGMENT_BYTES, out);
}

/* By owners or from all to all, as exchanges choose. */
static tacit_status find_sum(const taciti_scene *scene, const taciti_method *method, const sum *s,
                             taciti_compressed_sum *out) {
    const taciti_plan_compression *c = s->compression;
    const taciti_encoding encoding = taciti_plan_encoding(c);
    taciti_allreduce reduces[2] = {{.comm = NULL}};
    tacit_status status = TACIT_OK;
    for (int gathers = 0; gathers < 2 && status == TACIT_OK; gathers++)
        status = taciti_plan_describe(scene, method, &encoding, gathers == 1, &reduces[gathers]);
    if (status == TACIT_OK) {
        const taciti_compressed_sum there = scatter(s, &reduces[0]), all = gather(s, &reduces[1]);
        const bool gathers = c->codec->sketches || c->codec->votes ? false
                             : c->way == TACITI_WAY_AUTO
                                 ? s->hosts <= 2 || all.length.wire_bytes < there.length.wire_bytes
                                 : c->way == TACITI_WAY_GATHER;
        *out = gathers ? all : there;
    }
    for (int gathers = 0; gathers < 2; gathers++) taciti_allreduce_destroy(&reduces[gathers]);
    return status;
}

static sum sum_of(const taciti_scene *scene, const taciti_plan_compression *c, size_t n,
                  const taciti_arrangement *arrangement) {
    const taciti_codec_setting back = taciti_plan_result_setting(c, arrangement->hosts);
    return (sum){.compression = c,
                 .n = (double)n,
                 .hosts = arrangement->hosts,
                 .lanes = arrangement->lanes,
                 .back = back,
                 .forth_rates = rates_of(scene->cluster, c->codec, taciti_plan_factor(c)),
                 .back_rates = rates_of(scene->cluster, c->codec, c->codec->selects ? back.factor : 1)};
}

tacit_status taciti_compressed_sum_of(const taciti_scene *scene, const taciti_method *method, size_t n,
                                      taciti_compressed_sum *out) {
    const taciti_plan_compression *c = &method->compression;
    const double core_share = scene->cluster->compute_core_share;
    taciti_arrangement arrangement;
    TACITI_TRY(taciti_plan_arrange(scene, method, &arrangement));
    const sum s = sum_of(scene, c, n, &arrangement);
    taciti_arrangement_destroy(&arrangement);
    linear_bytes bytes;
    if (c->codec->aggregation == TACITI_CODEC_LINEAR) {
        TACITI_TRY(linear_bytes_of(scene, method, n, &bytes));
        *out = linear(scene, method, &s, bytes);
    } else
        TACITI_TRY(find_sum(scene, method, &s, out));
    if (core_share > 0) out->codec_s /= core_share;
    return TACIT_OK;
}

/* ---- halves ------------------------------------------------------------------------------------------------------ */

/* Of a lane, which encodes and decodes its share. */
static double half_codec_s(const taciti_scene *scene, const sum *s, taciti_phase half) {
    const taciti_cluster_compression r = s->forth_rates;
    const double share = s->n / s->lanes, own = share / s->hosts, core_share = scene->cluster->compute_core_share;
    const double seconds = half == TACITI_PHASE_ALL_GATHER
                               ? own * r.encode_s + share * r.decode_s
                               : share * r.encode_s + own * (r.decode_s + (s->hosts - 1) * r.add_s);
    return core_share > 0 ? seconds / core_share : seconds;
}

static taciti_compressed_sum half_of(const taciti_scene *scene, const sum *s, const taciti_allreduce *reduce,
                                     taciti_phase half) {
    const taciti_plan_compression *c = s->compression;
    const taciti_cut cut = taciti_allreduce_cut(reduce, (size_t)s->n);
    const contribution one = contribution_of(s, reduce, &cut);
    return (taciti_compressed_sum){.length = {.wire_bytes = (size_t)(s->lanes * s->hosts * one.bytes + 0.5),
                                              .f32_bytes = (size_t)s->n * sizeof(float)},
                                   .codec_s = half_codec_s(scene, s, half),
                                   .busiest = half == TACITI_PHASE_REDUCE_SCATTER && c->busiest > 0 ? c->busiest : 1,
                                   .fillings = fillings(reduce, cut.pieces),
                                   .messages = one.messages * (size_t)(s->hosts - 1),
                                   .wire_hops = one.hops};
}

tacit_status taciti_compressed_half_of(const taciti_scene *scene, const taciti_method *method, taciti_phase half,
                                       size_t n, taciti_compressed_sum *out) {
    const bool reduces = half == TACITI_PHASE_REDUCE_SCATTER;
    const taciti_plan_compression *c = reduces ? &method->compression : &method->gather;
    const double core_share = scene->cluster->compute_core_share;
    const taciti_encoding encoding = taciti_plan_encoding(c);
    taciti_allreduce reduce;
    TACITI_TRY(taciti_plan_describe(scene, method, &encoding, false, &reduce));
    const sum s = sum_of(scene, c, n, &reduce.arrangement);
    if (reduces && method->parts.replicas) {
        *out = scatter(&s, &reduce);
        if (core_share > 0) out->codec_s /= core_share;
    } else
        *out = half_of(scene, &s, &reduce, half);
    taciti_allreduce_destroy(&reduce);
    return TACIT_OK;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

tacit_status taciti_plan_residual_bytes(const taciti_scene *scene, const taciti_method *method, size_t *out) {
    const taciti_plan_compression *c = &method->compression;
    taciti_allreduce reduce;
    *out = 0;
    if (c->codec == NULL || scene->hosts->ranks < 2) return TACIT_OK;
    if (c->codec->aggregation == TACITI_CODEC_LINEAR) {
        *out = taciti_store_predict_bytes(NULL, scene->layout, c->feedback);
        return TACIT_OK;
    }
    const taciti_encoding encoding = taciti_plan_encoding(c);
    TACITI_TRY(taciti_plan_describe(scene, method, &encoding, c->way == TACITI_WAY_GATHER, &reduce));
    *out = taciti_store_predict_bytes(&reduce, scene->layout, c->feedback);
    taciti_allreduce_destroy(&reduce);
    return TACIT_OK;
}

/* ---- what it costs besides time ---------------------------------------------------------------------------------- */

static const double SPARSE = 500, THIN = 50, FEW_BITS = 3, SOME_BITS = 6;

taciti_caution taciti_plan_caution(const taciti_plan_compression *c, char *out, size_t size) {
    enum { MANY = 1 << 16 };
    *out = '\0';
    if (c->codec == NULL || c->codec->lossless) return TACITI_CAUTION_NONE;
    const double factor = taciti_plan_factor(c);
    const double bits = 8 * taciti_plan_expected_bytes(c, c->forth, MANY, 1) / MANY;
    if (c->codec->selects && factor >= THIN) {
        (void)snprintf(out, size, "1 of %g elements arrives per step, others some %g steps late: %s", factor, factor,
                       factor >= SPARSE ? "known to cost accuracy, more after the learning rate falls"
                                        : "needs error feedback, and a warm-up of the factor (compress.warmup)");
        return factor >= SPARSE ? TACITI_CAUTION_STRONG : TACITI_CAUTION_SOME;
    }
    if (c->codec->selects || bits > SOME_BITS) return TACITI_CAUTION_NONE;
    (void)snprintf(out, size, "%.2g bits per value: %s", bits,
                   bits <= FEW_BITS
                       ? "signs and little more are known to cost accuracy, and diverge without error feedback"
                       : "needs error feedback");
    return bits <= FEW_BITS ? TACITI_CAUTION_STRONG : TACITI_CAUTION_SOME;
}

/* Values whose rounding nobody makes up for: 4 bits cost 3.7 % of the loss, 8 bits nothing (docs/results/shard.md). */
static taciti_caution caution_of_values(const taciti_plan_compression *c, char *out, size_t size) {
    enum { MANY = 1 << 16 };
    *out = '\0';
    if (8 * taciti_plan_expected_bytes(c, c->forth, MANY, 1) / MANY > SOME_BITS) return TACITI_CAUTION_NONE;
    (void)snprintf(out, size,
                   "gathers in %s round parameters: known to cost accuracy in stage 3; stage 2 gathers changes",
                   c->codec->name);
    return TACITI_CAUTION_STRONG;
}

taciti_caution taciti_method_caution(const taciti_method *m, char *out, size_t size) {
    char gathers[TACITI_CAUTION_BYTES] = "";
    const taciti_caution sums = taciti_plan_caution(&m->compression, out, size);
    taciti_caution other = TACITI_CAUTION_NONE;
    if (m->gather.codec != NULL)
        other = m->parts.passes > 1 ? caution_of_values(&m->gather, gathers, sizeof gathers)
                                    : taciti_plan_caution(&m->gather, gathers, sizeof gathers);
    if (other <= sums) return sums;
    (void)snprintf(out, size, "%s", gathers);
    return other;
}
