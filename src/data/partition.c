/* SPDX-License-Identifier: Apache-2.0 */
#include "data/partition.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"
#include "base/series.h"
#include "base/text.h"
#include "data/order.h"

/* Streams of the seed. */
enum { STREAM_RANK = 0x72616e6b, STREAM_GAMMA = 0x67616d6d, STREAM_CHOICE = 0x63686f69, STREAM_CLASS = 0x636c6173 };

enum { CLASSES = TACITI_PARTITION_CLASSES };
#define MIN_ALPHA 1e-3
#define MAX_ALPHA 1e6

tacit_status taciti_partition_parse(const char *text, taciti_partition *out) {
    static const char prefix[] = "dirichlet:";
    const size_t length = sizeof prefix - 1;
    *out = (taciti_partition){.kind = TACITI_PARTITION_GLOBAL};
    if (text[0] == '\0' || strcmp(text, "global") == 0) return TACIT_OK;
    out->kind = TACITI_PARTITION_BY_RANK;
    if (strcmp(text, "by-rank") == 0) return TACIT_OK;
    out->kind = TACITI_PARTITION_DIRICHLET;
    if (strncmp(text, prefix, length) == 0 && taciti_real_parse(text + length, &out->alpha) &&
        out->alpha >= MIN_ALPHA && out->alpha <= MAX_ALPHA)
        return TACIT_OK;
    return taciti_fail(
        TACIT_E_CONFIG,
        "data.partition: \"%s\" is none of global, by-rank and dirichlet:ALPHA with ALPHA from %g to %g, "
        "as in --data.partition dirichlet:0.1",
        text, MIN_ALPHA, MAX_ALPHA);
}

/* ---- Dirichlet --------------------------------------------------------------------------------------------------- */

/* Logarithm of a Gamma(alpha, 1) variate. Marsaglia and Tsang, section 2, for shape alpha + 1: accepts 19 of 20. */
static double log_gamma_variate(uint64_t key, double alpha) {
    const double d = alpha + 1 - 1.0 / 3, c = 1 / sqrt(9 * d);
    const double boost = taciti_series_log(1 - taciti_rng_unit(key, 0)) / alpha;
    for (uint64_t at = 1;; at += 3) {
        double cosine, sine;
        taciti_series_circle(taciti_rng_unit(key, at + 1), &cosine, &sine);
        const double x = sqrt(-2 * taciti_series_log(1 - taciti_rng_unit(key, at))) * cosine; /* a normal variate */
        const double root = 1 + c * x, v = root * root * root;
        if (root <= 0) continue;
        const double log_u = taciti_series_log(1 - taciti_rng_unit(key, at + 2)), log_v = taciti_series_log(v);
        if (log_u < x * x / 2 + d - d * v + d * log_v) return taciti_series_log(d) + log_v + boost;
    }
}

void taciti_partition_probabilities(uint64_t seed, int rank, double alpha, double out[TACITI_PARTITION_CLASSES]) {
    const uint64_t key = taciti_rng_key(taciti_rng_key(seed, STREAM_GAMMA), (uint64_t)rank);
    double largest = (double)-INFINITY, sum = 0;
    for (int k = 0; k < CLASSES; k++) {
        out[k] = log_gamma_variate(taciti_rng_key(key, (uint64_t)k), alpha);
        if (out[k] > largest) largest = out[k];
    }
    for (int k = 0; k < CLASSES; k++) sum += out[k] = taciti_series_exp(out[k] - largest);
    for (int k = 0; k < CLASSES; k++) out[k] /= sum;
}

/* ---- samples ----------------------------------------------------------------------------------------------------- */

void taciti_partition_assign(taciti_partition *partition, uint64_t seed, int rank, int ranks) {
    partition->rank = rank;
    partition->ranks = ranks;
    if (partition->kind != TACITI_PARTITION_DIRICHLET) return;
    taciti_partition_probabilities(seed, rank, partition->alpha, partition->until);
    for (int k = 1; k < CLASSES; k++) partition->until[k] += partition->until[k - 1];
}

static uint64_t parts_of(const taciti_partition *p) {
    if (p->kind == TACITI_PARTITION_GLOBAL) return 1;
    return p->kind == TACITI_PARTITION_BY_RANK ? (uint64_t)p->ranks : CLASSES;
}

/* Where part i of `parts` begins: floor(tokens i / parts) without overflow. */
static uint64_t begin_of(uint64_t tokens, uint64_t parts, uint64_t i) {
    return tokens / parts * i + tokens % parts * i / parts;
}

uint64_t taciti_partition_min_tokens(const taciti_partition *partition, uint64_t tokens) {
    return tokens / parts_of(partition);
}

/* Rank 0's key is the run's, so that by-rank on one rank is global. */
uint64_t taciti_partition_start(const taciti_partition *partition, uint64_t tokens, uint64_t time, uint64_t seed,
                                uint64_t sample) {
    const bool first = partition->kind == TACITI_PARTITION_GLOBAL || partition->rank == 0;
    uint64_t key = first ? seed : taciti_rng_key(taciti_rng_key(seed, STREAM_RANK), (uint64_t)partition->rank);
    uint64_t part = partition->kind == TACITI_PARTITION_BY_RANK ? (uint64_t)partition->rank : 0;
    if (partition->kind == TACITI_PARTITION_DIRICHLET) {
        const double u = taciti_rng_unit(taciti_rng_key(key, STREAM_CHOICE), sample);
        while (part + 1 < CLASSES && u >= partition->until[part]) part++;
        key = taciti_rng_key(taciti_rng_key(key, STREAM_CLASS), part);
    }
    const uint64_t begin = begin_of(tokens, parts_of(partition), part);
    const taciti_sample_order order =
        taciti_sample_order_make(begin_of(tokens, parts_of(partition), part + 1) - begin, time);
    return begin + taciti_sample_order_start(&order, key, sample);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static void describe_mixture(const taciti_partition *p, uint64_t seed, char *out, size_t out_bytes) {
    double mixture[CLASSES] = {0}, own[CLASSES];
    for (int r = 0; r < p->ranks; r++) {
        taciti_partition_probabilities(seed, r, p->alpha, own);
        for (int k = 0; k < CLASSES; k++) mixture[k] += own[k] / p->ranks;
    }
    taciti_text_add(out, out_bytes,
                    "each of %d ranks draws from %d regions with shares of its own, all together in percent", p->ranks,
                    (int)CLASSES);
    for (int k = 0; k < CLASSES; k++) taciti_text_add(out, out_bytes, " %.0f", 100 * mixture[k]);
}

void taciti_partition_describe(const taciti_partition *partition, uint64_t tokens, uint64_t seed, char *out,
                               size_t out_bytes) {
    out[0] = '\0';
    if (partition->kind == TACITI_PARTITION_BY_RANK)
        (void)snprintf(out, out_bytes, "each of %d ranks draws from a part of its own, %" PRIu64 " tokens",
                       partition->ranks, taciti_partition_min_tokens(partition, tokens));
    if (partition->kind == TACITI_PARTITION_DIRICHLET) describe_mixture(partition, seed, out, out_bytes);
}
