/* SPDX-License-Identifier: Apache-2.0
 *
 * signsgd: the sign of every element; the sum of several ranks becomes the sign of the majority. With compress.momentum
 * it is Signum, the same of the momentum of every rank, for an optimizer that has none of its own.
 *
 * Source: Bernstein et al., "signSGD: Compressed Optimisation for Non-Convex Problems", ICML 2018, arXiv 1802.04434,
 * algorithm 1 (Signum), and "signSGD with Majority Vote", ICLR 2019, arXiv 1810.05291, algorithm 1.
 *
 * What is decoded is +1 and -1, and so is the result of the exchange: the vote of all ranks. It has no scale. The
 * optimizer gives it one: with sgd and optim.momentum 0 every parameter moves by optim.lr in every step, so a rate is
 * 100 to 1000 times smaller than one of sgd without signs (1e-4 is usual), and optim.clip, which looks at the norm, is
 * best 0. AdamW divides the scale out. The vote has no error that could be kept: the preset turns error feedback off.
 *
 * Properties (test_quantisers.c): zero, also -0, counts as +; a tie of the vote is + (signsgd_takes_the_majority); one
 * bit per element and 4 bytes; class SUM; deterministic. An array with a NaN or Inf decodes to NaN.
 */
#include "codec/quantiser.h"

static taciti_quantiser_shape shape(const void *options) {
    (void)options;
    return (taciti_quantiser_shape){.block = 0, .parameters = 1, .codes = 2};
}

static void measure(const taciti_codec_call *call, const taciti_quantiser_part *block, float *parameters) {
    (void)call;
    (void)block;
    parameters[0] = 1;
}

static void quantise(const taciti_codec_call *call, const float *parameters, const taciti_quantiser_part *part,
                     uint8_t *codes) {
    (void)call;
    (void)parameters;
    for (size_t i = 0; i < part->n; i++) codes[i] = part->x[i] >= 0;
}

static bool legal(const void *options, const float *parameters) {
    (void)options;
    return parameters[0] == 1;
}

static void restore(const void *options, const float *parameters, const uint8_t *codes, size_t n, float *y) {
    (void)options;
    (void)parameters;
    for (size_t i = 0; i < n; i++) y[i] = codes[i] ? 1.0f : -1.0f;
}

static const taciti_quantiser QUANTISER = {
    .shape = shape, .measure = measure, .quantise = quantise, .legal = legal, .restore = restore};
extern const taciti_codec taciti_codec_signsgd;
const taciti_codec taciti_codec_signsgd = {
    TACITI_QUANTISER(QUANTISER),
    .name = "signsgd",
    .reference = true,
    .help = "sends signs, and takes the sign of the majority: one bit; the optimizer's rate is the step; Signum: with "
            "compress.momentum 0.9",
    .source = "signSGD with majority vote (arXiv 1810.05291)",
    .preset = "compress.feedback=0",
    .no_feedback = true,
    .votes = true,
    .keyless = true,
};
