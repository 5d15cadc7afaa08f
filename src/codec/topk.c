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

static const taciti_option OPTIONS[] = {
    TACITI_OPTION("values", NAME, offsetof(taciti_composed_options, values), "f32", .names = taciti_value_format_name,
                  .help = "how the selected values are stored"),
    TACITI_OPTION("indices", NAME, offsetof(taciti_composed_options, indices), "auto",
                  .names = taciti_composed_index_name, .help = "how the indices are stored; auto: the shortest"),
};

static const taciti_option_table TABLE = TACITI_OPTION_TABLE("topk", "the elements of the largest magnitude", OPTIONS);

static const taciti_selector SELECTOR = {.select = taciti_select_topk};

extern const taciti_codec taciti_codec_topk;
const taciti_codec taciti_codec_topk = {
    TACITI_COMPOSED(SELECTOR),
    .name = "topk",
    .help = "sends the elements of the largest magnitude, exactly n / factor of them",
    .source = "Aji, Heafield 2017 (1704.05021); Stich et al. 2018 (1809.07599)",
    .options = &TABLE,
    .options_size = sizeof(taciti_composed_options),
    .selects = true,
    .thresholds = true,
    .keyless = true,
};
