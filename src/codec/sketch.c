/* SPDX-License-Identifier: Apache-2.0
 *
 * sketch, tagc: select the elements of the largest magnitude, as topk; contributions to a sum travel as an index and a
 * sketch, which add up (homomorphic.h, exchange/sketch_reduce.h).
 *
 * Source: Li et al., "Lossless Homomorphic Compression" (LHC, arXiv 2402.07529); TAGC (arXiv 2504.05638), whose
 * defaults are the preset of tagc: sparsity 0.8, that is factor 5, and elements per counter c = 2.
 * Deviations from TAGC: homomorphic.h lists those of the sketch; the sparsity is reached (its ladder of thresholds
 * stays below); indices are merged by OR; what does not decode is fetched, not estimated.
 *
 * This file has the payload of a single array, in which sums travel back to the ranks: that of topk with values f32.
 * The exchange lets nothing be selected there, so it loses nothing.
 *
 * Properties (test_selection.c, exchange/test_sketch_reduce.c and test_sketch_message.c): what is selected arrives
 * exactly; class GATHER; deterministic; biased: needs error feedback.
 *
 * Wire layout: composed.c; of contributions: exchange/sketch_message.h.
 */
#include "codec/sketch.h"

#include "codec/largest.h"

static const taciti_option OPTIONS[] = {
    TACITI_OPTION("ratio", REAL, offsetof(taciti_sketch_options, ratio), "2", .max = 1e6,
                  .help = "elements per counter of a sketch; 0: as many counters as the last step's sum needed"),
};

static const taciti_option_table TABLE = TACITI_OPTION_TABLE("tagc", "sketch as in TAGC", OPTIONS);

static const taciti_selector SELECTOR = {.select = taciti_select_topk};

/* Both codecs share this; without options: ratio 0. */
#define SKETCHES TACITI_COMPOSED(SELECTOR), .selects = true, .thresholds = true, .sketches = true, .keyless = true

extern const taciti_codec taciti_codec_sketch, taciti_codec_tagc;
const taciti_codec taciti_codec_sketch = {
    SKETCHES,
    .name = "sketch",
    .help = "sends the elements of the largest magnitude as sketches that add up",
    .source = "LHC (arXiv 2402.07529)",
    .preset = "compress.factor=5",
};

const taciti_codec taciti_codec_tagc = {
    SKETCHES,
    .name = "tagc",
    .help = "sketch with the defaults of TAGC: sparsity 0.8, half as many counters as elements",
    .source = "TAGC (arXiv 2504.05638)",
    .preset = "compress.factor=5 compress.scope=bucket",
    .options = &TABLE,
    .options_size = sizeof(taciti_sketch_options),
};
