/* SPDX-License-Identifier: Apache-2.0
 *
 * topk: sends the k elements of the largest magnitude, exactly; or, given a threshold, those that reach it.
 *
 * Source: Aji and Heafield, "Sparse Communication for Distributed Gradient Descent" (EMNLP 2017); with error feedback
 * Stich, Cordonnier and Jaggi, "Sparsified SGD with Memory" (NeurIPS 2018), definition 2.1.
 *   k = max(1, floor(n / factor)); of equal magnitudes the lower index wins; zeros are never sent
 *
 * Properties (test_selection.c): |x - C(x)|^2 <= (1 - k/n) |x|^2; what is sent arrives bit for bit with values f32;
 * topk(topk(x, k1), k2) == topk(x, k2) for k2 <= k1; biased: needs error feedback; class GATHER; deterministic.
 *
 * Wire layout: composed.c.
 */
#include "codec/largest.h"
#include "codec/selector.h"

typedef struct topk_options {
    taciti_composed_options composed;
} topk_options;

static const taciti_option OPTIONS[] = {TACITI_COMPOSED_OPTIONS(topk_options, "f32", "auto")};

static const taciti_option_table TABLE = {.section = "topk",
                                          .help = "the elements of the largest magnitude",
                                          .options = OPTIONS,
                                          .count = sizeof OPTIONS / sizeof *OPTIONS};

static const taciti_selector SELECTOR = {.name = "topk", .select = taciti_select_topk};
TACITI_COMPOSED_FUNCTIONS

extern const taciti_codec taciti_codec_topk;
const taciti_codec taciti_codec_topk = {
    .name = "topk",
    .help = "sends the elements of the largest magnitude, exactly n / factor of them",
    .source = "Aji, Heafield 2017 (1704.05021); Stich et al. 2018 (1809.07599)",
    .options = &TABLE,
    .options_size = sizeof(topk_options),
    .aggregation = TACITI_CODEC_GATHER,
    .rounds = 1,
    .selects = true,
    .thresholds = true,
    .keyless = true,
    .bound = taciti_composed_bound,
    .expected_bytes = taciti_composed_expected_bytes,
    .scratch_bytes = scratch_bytes,
    .encode = encode,
    .decode = decode,
    .decode_add = decode_add,
};
