/* SPDX-License-Identifier: Apache-2.0
 *
 * omnireduce, blocktopk: send whole blocks of consecutive elements, so that one index stands for 256 elements.
 *   omnireduce  the blocks that hold anything but zeros: lossless, short where gradients are sparse (embeddings)
 *   blocktopk   the k blocks of the largest L2 norm
 *
 * Source: Fei et al., "Efficient Sparse Collective Communication and its application to Accelerate Distributed Deep
 * Learning" (OmniReduce, SIGCOMM 2021, 10.1145/3452296.3472904), sections 3 and 5 (block top-k).
 *   deviation: the collective is the one of all codecs of class GATHER, not a ring of aggregators
 *
 * Properties (test_selection.c): omnireduce arrives bit for bit; blocktopk: |x - C(x)|^2 <= (1 - k/m) |x|^2 for k of m
 * blocks of equal size, lower blocks first among equal norms, zeros are never sent; a block with an element that is not
 * finite always is; class GATHER; deterministic.
 *
 * Wire layout: composed.c, with the indices of blocks.
 */
#include <math.h>
#include <string.h>

#include "codec/largest.h"
#include "codec/selector.h"
#include "kernel/kernel.h"

typedef struct blocks_options {
    taciti_composed_options composed;
    int64_t size;
} blocks_options;

enum { SIZE_MIN = 16 };
#define SIZE_OPTION                                                                                                    \
    TACITI_OPTION("size", INT, offsetof(blocks_options, size), "256", .min = SIZE_MIN, .max = 65536,                   \
                  .unit = "elements", .help = "elements per block")

/* omnireduce is lossless: it has no formats to choose from. */
static const taciti_option OMNIREDUCE_OPTIONS[] = {SIZE_OPTION};
static const taciti_option BLOCKTOPK_OPTIONS[] = {TACITI_COMPOSED_OPTIONS(blocks_options, "f32", "auto"), SIZE_OPTION};

static const taciti_option_table OMNIREDUCE_TABLE = {
    .section = "omnireduce", .help = "the blocks that are not zero", .options = OMNIREDUCE_OPTIONS, .count = 1};
static const taciti_option_table BLOCKTOPK_TABLE = {.section = "blocktopk",
                                                    .help = "the blocks of the largest norm",
                                                    .options = BLOCKTOPK_OPTIONS,
                                                    .count = sizeof BLOCKTOPK_OPTIONS / sizeof *BLOCKTOPK_OPTIONS};

static size_t size_of(const void *options) { return (size_t)((const blocks_options *)options)->size; }

static size_t length_of(size_t block, size_t n, size_t size) {
    const size_t left = n - block * size;
    return left < size ? left : size;
}

/* Copies the blocks of out->indices to out->values, and all others to the error. */
static void take_blocks(const float *x, size_t n, size_t size, taciti_selection *out) {
    float *values = out->values;
    if (out->error != NULL) memcpy(out->error, x, n * sizeof *x);
    for (size_t i = 0; i < out->count; i++, values += size) {
        const size_t at = out->indices[i] * size, bytes = length_of(out->indices[i], n, size) * sizeof *x;
        memcpy(values, x + at, bytes);
        if (out->error != NULL) memset(out->error + at, 0, bytes);
    }
}

/* ---- omnireduce -------------------------------------------------------------------------------------------------- */
/* Bits, not numbers: -0 is not 0. */
static bool all_bits_zero(const float *x, size_t n) {
    static const float ZERO = 0;
    return memcmp(x, &ZERO, sizeof ZERO) == 0 && memcmp(x, x + 1, (n - 1) * sizeof *x) == 0;
}

static void select_nonzero(const taciti_codec_call *call, const float *x, size_t n, void *scratch,
                           taciti_selection *out) {
    const size_t size = size_of(call->options);
    (void)scratch;
    for (size_t block = 0; block * size < n; block++)
        if (!all_bits_zero(x + block * size, length_of(block, n, size))) out->indices[out->count++] = (uint32_t)block;
    if (out->count * size < n) take_blocks(x, n, size, out);
    if (out->measure) out->squares = taciti_kernels_get()->sum_squares(x, n);
}

/* ---- blocktopk --------------------------------------------------------------------------------------------------- */
typedef struct ranking {
    float *norms, *values, *work;
} ranking;

static size_t ranking_room(size_t n) { return n / SIZE_MIN + 1 + TACITI_SELECT_SLACK; }
static size_t ranking_bytes(size_t n) { return 3 * ranking_room(n) * sizeof(float); }

static void select_blocks(const taciti_codec_call *call, const float *x, size_t n, void *scratch,
                          taciti_selection *out) {
    const taciti_kernels *kernels = taciti_kernels_get();
    const size_t size = size_of(call->options), blocks = n / size + (n % size != 0), room = ranking_room(n);
    const ranking r = {scratch, (float *)scratch + room, (float *)scratch + 2 * room};
    for (size_t block = 0; block < blocks; block++) {
        const double squares = kernels->sum_squares(x + block * size, length_of(block, n, size));
        r.norms[block] = (float)sqrt(squares);
        out->squares += squares;
    }
    taciti_selection found = {.indices = out->indices, .values = r.values};
    taciti_select_largest(r.norms, blocks, taciti_kept_of(call->setting.factor, TACITI_FACTOR, blocks), r.work, &found);
    out->count = found.count;
    if (out->count < blocks) take_blocks(x, n, size, out);
}

static double blocktopk_bytes(const taciti_codec_call *call, size_t n) {
    const size_t size = size_of(call->options), blocks = n / size + (n % size != 0);
    const size_t kept = taciti_kept_of(call->setting.factor, TACITI_FACTOR, blocks);
    return taciti_composed_mean_bytes(call->options, kept, n, size, false);
}

/* ---- the codecs -------------------------------------------------------------------------------------------------- */
static const taciti_selector OMNIREDUCE = {.name = "omnireduce", .select = select_nonzero, .group = size_of};
static const taciti_selector BLOCKTOPK = {
    .name = "blocktopk", .select = select_blocks, .scratch_bytes = ranking_bytes, .group = size_of};

TACITI_COMPOSED_FUNCTIONS_OF(omnireduce_, OMNIREDUCE)
TACITI_COMPOSED_FUNCTIONS_OF(blocktopk_, BLOCKTOPK)

extern const taciti_codec taciti_codec_omnireduce, taciti_codec_blocktopk;
const taciti_codec taciti_codec_omnireduce = {
    .name = "omnireduce",
    .help = "sends the blocks of 256 elements that are not zero, bit for bit",
    .source = "Fei et al. 2021 (OmniReduce, SIGCOMM)",
    .options = &OMNIREDUCE_TABLE,
    .options_size = sizeof(blocks_options),
    .aggregation = TACITI_CODEC_GATHER,
    .rounds = 1,
    .lossless = true,
    .keyless = true,
    .bound = taciti_composed_bound,
    .scratch_bytes = omnireduce_scratch_bytes,
    .encode = omnireduce_encode,
    .decode = omnireduce_decode,
    .decode_add = omnireduce_decode_add,
};

const taciti_codec taciti_codec_blocktopk = {
    .name = "blocktopk",
    .help = "sends the blocks of 256 elements of the largest norm, n / factor elements",
    .source = "Fei et al. 2021 (OmniReduce, SIGCOMM), block top-k",
    .options = &BLOCKTOPK_TABLE,
    .options_size = sizeof(blocks_options),
    .aggregation = TACITI_CODEC_GATHER,
    .rounds = 1,
    .selects = true,
    .keyless = true,
    .bound = taciti_composed_bound,
    .expected_bytes = blocktopk_bytes,
    .scratch_bytes = blocktopk_scratch_bytes,
    .encode = blocktopk_encode,
    .decode = blocktopk_decode,
    .decode_add = blocktopk_decode_add,
};
