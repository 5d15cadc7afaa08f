/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/compressed.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- seconds per float ------------------------------------------------------------------------------------------- */

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
    if (*below == NULL) *below = *above;
    if (*below == NULL || (*below)->factor <= factor) return *below != NULL;
    for (size_t i = 0; i < cluster->compression_count; i++) { /* the two smallest */
        const taciti_cluster_compression *c = &cluster->compressions[i];
        if (strcmp(c->codec, codec->name) != 0 || c->factor <= (*below)->factor) continue;
        if (*above == *below || c->factor < (*above)->factor) *above = c;
    }
    return true;
}

bool taciti_plan_can_price(const taciti_codec *codec) { return taciti_route_of(codec)->probed; }

bool taciti_plan_compression_known(const taciti_cluster *cluster, const taciti_codec *codec) {
    const taciti_cluster_compression *below, *above;
    return taciti_plan_can_price(codec) && find_rows(cluster, codec, 1, &below, &above);
}

/* Returns a point of the line through both; where noise makes it fall towards denser payloads, the smaller of the two
 * ends. */
static double interpolate_rate(double from, double to, double share) {
    return fmax(from + share * (to - from), fmin(from, to));
}

/* Returns the rates of the only row. At a smaller factor as many more elements are decoded and added as are sent; an
 * encoder reads all of them. At a larger one the row holds: what does not depend on the factor is unknown. */
static taciti_codec_rates scale_rates(const taciti_cluster_compression *row, const taciti_codec *codec, double factor) {
    const double more = codec->selects ? fmax(row->factor / factor, 1) : 1;
    return (taciti_codec_rates){row->encode_s, row->decode_s * more, row->add_s * more};
}

/* Lines in the share of elements that is kept; a codec without a factor has one row. */
static taciti_codec_rates rates_at(const void *context, const taciti_codec *codec, double factor) {
    const taciti_cluster *cluster = context;
    const taciti_cluster_compression *below, *above;
    if (!taciti_plan_can_price(codec) || !find_rows(cluster, codec, factor, &below, &above))
        return (taciti_codec_rates){0};
    if (below == above) return scale_rates(below, codec, factor);
    const double share = (1 / factor - 1 / below->factor) / (1 / above->factor - 1 / below->factor);
    return (taciti_codec_rates){interpolate_rate(below->encode_s, above->encode_s, share),
                                interpolate_rate(below->decode_s, above->decode_s, share),
                                interpolate_rate(below->add_s, above->add_s, share)};
}

/* ---- prices ------------------------------------------------------------------------------------------------------ */

double taciti_plan_factor(const taciti_plan_compression *c) { return taciti_encoding_factor(&c->encoding); }

taciti_placement taciti_plan_placement(const taciti_scene *scene, const taciti_method *method) {
    taciti_placement placement = scene->placement;
    if (method->order == TACITI_ORDER_PARTS) return method->parts.placement(scene->hosts, placement);
    if (method->lanes > 0) placement.lanes = method->lanes;
    return placement;
}

tacit_status taciti_plan_arrange(const taciti_scene *scene, const taciti_method *method, taciti_arrangement *out) {
    return taciti_arrangement_of(scene->hosts, (taciti_members){.count = (size_t)scene->hosts->ranks}, 0,
                                 taciti_plan_placement(scene, method), out);
}

taciti_route_setup taciti_plan_setup(const taciti_scene *scene, const taciti_method *method,
                                     const taciti_plan_compression *c) {
    return (taciti_route_setup){.hosts = scene->hosts,
                                .segment_bytes = (size_t)TACITI_SEGMENT_BYTES,
                                .layout = scene->layout,
                                .placement = taciti_plan_placement(scene, method),
                                .wire = method->wire,
                                .encoding = c->encoding};
}

tacit_status taciti_plan_price(const taciti_scene *scene, const taciti_method *method, const taciti_plan_compression *c,
                               taciti_phase phase, size_t n, taciti_price *out) {
    const taciti_route_setup setup = taciti_plan_setup(scene, method, c);
    const double core_share = scene->cluster->compute_core_share;
    TACITI_TRY(taciti_route_of(c->encoding.codec)->price(&setup, phase, n, rates_at, scene->cluster, out));
    if (out->by_owners && c->busiest > 0) out->busiest = c->busiest;
    if (core_share > 0) out->codec_s /= core_share;
    return TACIT_OK;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

tacit_status taciti_plan_residual_bytes(const taciti_scene *scene, const taciti_method *method, size_t *out) {
    taciti_route_setup setup = taciti_plan_setup(scene, method, &method->compression);
    taciti_route route;
    *out = 0;
    if (method->compression.encoding.codec == NULL || scene->hosts->ranks < 2) return TACIT_OK;
    if (setup.encoding.way == TACITI_WAY_AUTO) setup.encoding.way = TACITI_WAY_SCATTER; /* which keeps more */
    const tacit_status status = taciti_route_describe(&setup, &route);
    if (status == TACIT_OK) *out = taciti_route_store_bytes(&route);
    taciti_route_close(&route);
    return status;
}

/* ---- what it costs besides time ---------------------------------------------------------------------------------- */

static const double SPARSE = 500, THIN = 50, FEW_BITS = 3, SOME_BITS = 6;

static double bits_of(const taciti_plan_compression *c, taciti_codec_setting setting) {
    enum { MANY = 1 << 16 };
    return 8 * taciti_encoding_expected_bytes(&c->encoding, setting, MANY, 1) / MANY;
}

/* Bits of a value that is sent: a codec that selects sends all of them at factor 1. */
static double value_bits(const taciti_plan_compression *c) {
    return bits_of(c, c->encoding.codec->selects ? (taciti_codec_setting){.factor = 1} : c->encoding.expected);
}

bool taciti_plan_is_lossy(const taciti_plan_compression *c) {
    return c->encoding.codec != NULL && !taciti_codec_suits(c->encoding.codec, TACITI_USE_COPIES);
}

taciti_caution taciti_plan_caution(const taciti_plan_compression *c, char *out, size_t size) {
    *out = '\0';
    if (!taciti_plan_is_lossy(c)) return TACITI_CAUTION_NONE;
    const double factor = taciti_plan_factor(c), bits = value_bits(c);
    if (bits <= FEW_BITS) {
        (void)snprintf(out, size,
                       "%.2g bits per value: signs and little more are known to cost accuracy, and diverge "
                       "without error feedback",
                       bits);
        return TACITI_CAUTION_STRONG;
    }
    if (factor >= THIN) {
        (void)snprintf(out, size, "1 of %g elements arrives per step, others some %g steps late: %s", factor, factor,
                       factor >= SPARSE ? "known to cost accuracy, more after the learning rate falls"
                                        : "needs error feedback, and a warm-up of the factor (compress.warmup)");
        return factor >= SPARSE ? TACITI_CAUTION_STRONG : TACITI_CAUTION_SOME;
    }
    if (factor > 1 || bits > SOME_BITS) return TACITI_CAUTION_NONE;
    (void)snprintf(out, size, "%.2g bits per value: needs error feedback", bits);
    return TACITI_CAUTION_SOME;
}

taciti_caution taciti_method_caution(const taciti_method *m, char *out, size_t size) {
    char gathers[TACITI_CAUTION_BYTES] = "";
    const taciti_caution sums = taciti_plan_caution(&m->compression, out, size);
    taciti_caution other = TACITI_CAUTION_NONE;
    if (m->gather.encoding.codec != NULL && m->parts.passes <= 1) {
        other = taciti_plan_caution(&m->gather, gathers, sizeof gathers);
    } else if (m->gather.encoding.codec != NULL && bits_of(&m->gather, m->gather.encoding.expected) <= SOME_BITS) {
        /* Nobody makes up for the rounding of values: 4 bits cost 3.7 % of the loss, 8 bits nothing
         * (docs/results/shard.md).
         */
        (void)snprintf(gathers, sizeof gathers,
                       "gathers in %s round parameters: known to cost accuracy in stage 3; stage 2 gathers changes",
                       m->gather.encoding.codec->name);
        other = TACITI_CAUTION_STRONG;
    }
    if (other <= sums) return sums;
    (void)snprintf(out, size, "%s", gathers);
    return other;
}
