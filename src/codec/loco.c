/* SPDX-License-Identifier: Apache-2.0
 *
 * loco: 4 bits per element, and an error memory of 8 bits per element that averages over steps.
 *
 * Source: Xie et al., "LoCo: Low-Bit Communication Adaptor for Large-scale Model Training", TPAMI 2025, arXiv
 * 2407.04480, algorithm 1; the rounding is that of the implementation in DeepSpeed.
 *   h = x + E; step = max|h| / 8 of the block; code = round(h / step) limited to -8 .. 7; d = code * step;
 *   E <- beta E + (1 - beta) (h - d), stored with 8 bits per element and one scale per block; every loco.reset steps
 *   E <- 0.
 *   deviation: the memory of a whole array is reset in one step; DeepSpeed counts tensors and clears one of them.
 *
 * The memory belongs to the codec's state, so it is saved, and dropped with a step that is skipped. It is not the
 * residual of error feedback, which the preset turns off: a moving average takes in 1 - beta of the newest error.
 *
 * Properties (test_quantisers.c): the trace of the specification (loco_follows_its_trace); a positive maximum is sent
 * as 7/8 of itself, since there is no code 8; a block with a value that is not finite leaves its memory as it was;
 * class SUM; deterministic.
 */
#include <math.h>
#include <string.h>

#include "codec/quantiser.h"

typedef enum { ERROR_INT8, ERROR_F32 } error_kind;
enum { BLOCK_MAX = 512, CODE_ZERO = 8, CODES = 16 };
_Static_assert((int)BLOCK_MAX <= (int)TACITI_QUANTISER_PIECE, "a block is quantised at once");

typedef struct loco_options {
    int64_t block, reset;
    double beta;
    int error;
} loco_options;

static const taciti_option OPTIONS[] = {
    TACITI_OPTION("block", INT, offsetof(loco_options, block), "256", .min = 8, .max = BLOCK_MAX, .unit = "elements",
                  .help = "elements that share a scale; rounded up to a multiple of 8"),
    TACITI_OPTION("beta", REAL, offsetof(loco_options, beta), "0.8", .min = 0, .max = 1,
                  .help = "share of the old error memory that is kept in a step"),
    TACITI_OPTION("reset", INT, offsetof(loco_options, reset), "1024", .min = 1, .max = 1e9, .unit = "steps",
                  .help = "the error memory becomes zero after so many steps"),
    TACITI_OPTION("error", ENUM, offsetof(loco_options, error), "int8", .choices = "int8|f32",
                  .help = "how the error memory is stored"),
};

static const taciti_option_table TABLE = {.section = "loco",
                                          .help = "4 bits with an error memory of its own (LoCo)",
                                          .options = OPTIONS,
                                          .count = sizeof OPTIONS / sizeof *OPTIONS};

static size_t block_of(const loco_options *o) { return (size_t)(o->block + 7) / 8 * 8; }

/* State: the number of steps taken, then a record per block: a scale and int8_t[block], or float[block]. */
static size_t record_bytes(const loco_options *o) {
    return o->error == ERROR_F32 ? block_of(o) * sizeof(float) : sizeof(float) + block_of(o);
}

static size_t record_at(const loco_options *o, size_t first) {
    return sizeof(uint64_t) + first / block_of(o) * record_bytes(o);
}

static size_t state_bytes(const void *options, size_t n) { return record_at(options, n + block_of(options) - 1); }

static void load(const loco_options *o, const unsigned char *record, size_t n, double *e) {
    float scale = 0;
    memcpy(&scale, record, sizeof scale);
    for (size_t i = 0; i < n; i++) {
        float value = scale * (float)(int8_t)record[sizeof scale + i];
        if (o->error == ERROR_F32) memcpy(&value, record + i * sizeof value, sizeof value);
        e[i] = (double)value;
    }
}

static double largest_of(const double *x, size_t n) {
    double largest = 0;
    for (size_t i = 0; i < n; i++) largest = fmax(largest, fabs(x[i]));
    return largest;
}

/* The codes of x in steps of `step`: nearest, ties to even. */
static double code_of(double x, double step, double min, double max) {
    return step > 0 ? fmin(fmax(nearbyint(x / step), min), max) : 0;
}

static void store(const loco_options *o, unsigned char *record, size_t n, const double *e) {
    const float scale = (float)(largest_of(e, n) / 128);
    if (o->error == ERROR_INT8) memcpy(record, &scale, sizeof scale);
    for (size_t i = 0; i < n; i++) {
        const float value = (float)e[i];
        if (o->error == ERROR_INT8)
            record[sizeof scale + i] = (uint8_t)(int8_t)code_of(e[i], (double)scale, -128, 127);
        else
            memcpy(record + i * sizeof value, &value, sizeof value);
    }
}

/* Blocks that are not finite keep their memory, so all of it is copied first. */
static void begin(const taciti_codec_call *call, size_t n) {
    const loco_options *o = call->options;
    uint64_t steps = 0;
    memcpy(&steps, call->state, sizeof steps);
    steps = (steps + 1) % (uint64_t)o->reset;
    memcpy(call->next, &steps, sizeof steps);
    const size_t bytes = state_bytes(o, n) - sizeof steps;
    unsigned char *next = (unsigned char *)call->next + sizeof steps;
    if (steps == 0)
        memset(next, 0, bytes);
    else
        memcpy(next, (const unsigned char *)call->state + sizeof steps, bytes);
}

/* h = x + E of a block. */
static void corrected(const taciti_codec_call *call, const taciti_quantiser_part *block, double *h) {
    const loco_options *o = call->options;
    load(o, (const unsigned char *)call->state + record_at(o, block->first), block->n, h);
    for (size_t i = 0; i < block->n; i++) h[i] += (double)block->x[i];
}

static taciti_quantiser_shape shape(const void *options) {
    return (taciti_quantiser_shape){.block = block_of(options), .parameters = 1, .codes = CODES};
}

static void measure(const taciti_codec_call *call, const taciti_quantiser_part *block, float *parameters) {
    double h[BLOCK_MAX];
    corrected(call, block, h);
    parameters[0] = (float)(fmin(largest_of(h, block->n), 0x1.fffffep127) / 8);
}

static void quantise(const taciti_codec_call *call, const float *parameters, const taciti_quantiser_part *block,
                     uint8_t *codes) {
    const loco_options *o = call->options;
    const unsigned char *old = (const unsigned char *)call->state + record_at(o, block->first);
    const double step = (double)parameters[0];
    double h[BLOCK_MAX], e[BLOCK_MAX];
    uint64_t steps = 0;
    corrected(call, block, h);
    load(o, old, block->n, e);
    for (size_t i = 0; i < block->n; i++) {
        const double code = code_of(h[i], step, -CODE_ZERO, CODE_ZERO - 1);
        codes[i] = (uint8_t)((int)code + CODE_ZERO);
        e[i] = o->beta * e[i] + (1 - o->beta) * (h[i] - code * step);
    }
    memcpy(&steps, call->next, sizeof steps);
    if (steps != 0) store(o, (unsigned char *)call->next + record_at(o, block->first), block->n, e);
}

static bool legal(const void *options, const float *parameters) {
    (void)options;
    return parameters[0] >= 0 && parameters[0] <= 0x1.fffffep124f;
}

static void restore(const void *options, const float *parameters, const uint8_t *codes, size_t n, float *y) {
    (void)options;
    for (size_t i = 0; i < n; i++) y[i] = parameters[0] * (float)(codes[i] - CODE_ZERO);
}

static const taciti_quantiser QUANTISER = {.name = "loco",
                                           .shape = shape,
                                           .begin = begin,
                                           .measure = measure,
                                           .quantise = quantise,
                                           .legal = legal,
                                           .restore = restore};

TACITI_QUANTISER_FUNCTIONS(QUANTISER, )

extern const taciti_codec taciti_codec_loco;
const taciti_codec taciti_codec_loco = {
    .name = "loco",
    .help = "rounds to 4 bits per element, with an error memory of its own that averages over steps",
    .source = "LoCo (arXiv 2407.04480)",
    .preset = "compress.feedback=0",
    .no_feedback = true,
    .options = &TABLE,
    .options_size = sizeof(loco_options),
    .aggregation = TACITI_CODEC_SUM,
    .rounds = 1,
    .fixed_size = true,
    .keyless = true,
    .bound = bound,
    .state_bytes = state_bytes,
    .encode = encode,
    .decode = decode,
    .decode_add = decode_add,
};
