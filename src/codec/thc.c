/* SPDX-License-Identifier: Apache-2.0
 *
 * thc: integers of a few bits that are summed on the wire and decoded once.
 *
 * Source: Li et al., "THC: Accelerating Distributed Deep Learning Using Tensor Homomorphic Compression", NSDI 2024
 * (arXiv 2302.08545), the uniform table.
 *
 *   y = rotation of a block of x     (kernel/rotation.h, signs from the shared key)
 *   R = max over ranks of max |y|    first round: the range of the block, [-R, R]
 *   q = (y + R) / s, s = 2 R / (2^bits - 1), rounded up or down at random, without bias
 *   sum of y = s * (sum of q) - N R
 *
 * Deviations:
 * - a range per block and not for the whole array, because layers differ in scale
 * - the exact maximum, so nothing is cut off; no table of optimised levels
 * - fewer than 3 bits are refused: R is some 3.7 standard deviations, so the error of 2 bits would be larger than the
 *   gradient, and error feedback would let residuals grow without end
 * - integers are not added by a network switch: they travel in floats, as many per float as its 24 bits hold sums of N
 *   of them, and every all-reduce of f32 adds them exactly
 *
 * Properties (exchange/test_linear.c): the decoded sum is the sum of what ranks have decoded, exactly before the
 * rotation back; unbiased; with range 1 and 4 bits, 0.3 becomes level 10 with probability 3/4 and else 9; class LINEAR;
 * a block with a value that is not finite decodes to NaN. At 4 bits a float holds 4 elements on up to 4 ranks, 3 on up
 * to 17, 2 on up to 273: 8, 10.7 and 16 bits per element on the wire.
 *
 * Payload, round 0             floats              round 1                     floats
 *   max |y|, by block, rank    blocks x ranks      1, whose sum is N           1
 *   (0 but at the own rank)                        q, several per float        of all blocks, the last one padded
 * A decoder rejects any other size, words that are not integers below 2^24, and N outside of 1 .. ranks.
 */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "codec/codec.h"
#include "kernel/kernel.h"
#include "kernel/rotation.h"

typedef struct thc_options {
    int64_t bits, block;
} thc_options;

static const thc_options DEFAULTS = {4, 4096};
enum { WORD_BITS = 24 }; /* of integers that f32 holds exactly */

#define AT(member) offsetof(thc_options, member)
static const taciti_option OPTIONS[] = {
    TACITI_OPTION("bits", INT, AT(bits), "4", .min = 3, .max = 8, .unit = "bits",
                  .help = "bits of one rank's integers; their sums over ranks need more"),
    TACITI_OPTION("block", INT, AT(block), "4096", .min = 1, .max = 65536, .unit = "elements",
                  .help = "elements that are rotated together and share a range; rounded down to a power of two"),
};
static const taciti_option_table TABLE = {
    .section = "thc", .help = "the codec thc", .options = OPTIONS, .count = sizeof OPTIONS / sizeof *OPTIONS};

/* ---- shapes ------------------------------------------------------------------------------------------------------ */
typedef struct shape {
    size_t block, blocks, tail; /* tail: elements of the last block if it is short, else 0 */
    size_t padded;              /* elements of all blocks */
    size_t ranks;
    unsigned lane_bits;
    size_t lanes; /* of a float */
    uint32_t top; /* the highest level */
} shape;

static size_t power_up(size_t n) {
    size_t power = 1;
    while (power < n) power *= 2;
    return power;
}

static shape shape_of(const void *options, int ranks, size_t n) {
    const thc_options *o = options == NULL ? &DEFAULTS : options;
    shape s = {.block = power_up((size_t)o->block), .ranks = ranks > 0 ? (size_t)ranks : 1};
    if (s.block > (size_t)o->block) s.block /= 2;
    s.tail = n % s.block;
    s.blocks = n / s.block + (s.tail > 0);
    s.padded = n - s.tail + (s.tail > 0 ? power_up(s.tail) : 0);
    s.top = (UINT32_C(1) << o->bits) - 1;
    while (s.ranks * s.top >> s.lane_bits > 0) s.lane_bits++;
    s.lanes = s.lane_bits < WORD_BITS ? WORD_BITS / s.lane_bits : 1;
    return s;
}

static size_t payload_n(const taciti_codec_call *call, size_t n) {
    const shape s = shape_of(call->options, call->ranks, n);
    if (n == 0) return 0;
    return call->round == 0 ? s.blocks * s.ranks : 1 + (s.padded + s.lanes - 1) / s.lanes;
}

static size_t bound(const void *options, size_t n) {
    return n == 0 ? 0 : (1 + shape_of(options, 1, n).padded) * sizeof(float);
}

static size_t scratch_bytes(const void *options, size_t n) { return shape_of(options, 1, n).block * sizeof(float); }

static size_t state_bytes(const taciti_codec_call *call, size_t n) {
    (void)call;
    (void)n;
    return 0;
}

/* ---- one block --------------------------------------------------------------------------------------------------- */
typedef struct block {
    size_t at, n, padded; /* elements of the array; with zeros behind them */
    uint64_t key;
    float range;
} block;

static float maximum(float a, float b) { return a >= b || isnan(a) ? a : b; }

static block block_at(const taciti_codec_call *call, const shape *s, size_t index) {
    const bool is_short = s->tail > 0 && index + 1 == s->blocks;
    block b = {.at = index * s->block, .n = is_short ? s->tail : s->block, .padded = s->block};
    if (is_short) b.padded = power_up(s->tail);
    b.key = taciti_rng_key(call->key, index);
    for (size_t r = 0; r < s->ranks && call->before != NULL; r++)
        b.range = maximum(call->before[index * s->ranks + r], b.range);
    return b;
}

static void rotate(const block *b, const float *x, float *y) {
    memcpy(y, x + b->at, b->n * sizeof *y);
    memset(y + b->n, 0, (b->padded - b->n) * sizeof *y);
    taciti_rotate(y, b->padded, b->key);
}

static float largest_of(const float *y, size_t n) {
    float largest = 0;
    for (size_t i = 0; i < n; i++) largest = maximum(fabsf(y[i]), largest);
    return largest;
}

/* y / range is in [-1, 1]. u: uniform in [0, 1). */
static uint32_t level_of(float y, float range, uint32_t top, float u) {
    const float exact = (y / range + 1) * (0.5f * (float)top);
    const uint32_t level = (uint32_t)(exact + u);
    return level < top ? level : top;
}

static float value_of(const shape *s, float range, uint32_t sum, uint32_t count) {
    if (!isfinite(range)) return NAN;
    const double centred = (double)sum - 0.5 * (double)s->top * (double)count;
    return (float)(centred * (2.0 * (double)range / (double)s->top));
}

/* Adds the levels of y to the words and replaces y by what they decode to. */
static void quantise(const taciti_codec_call *call, const shape *s, const block *b, float *y, float *words) {
    const uint64_t key = taciti_rng_key(b->key, (uint64_t)call->rank + 1);
    const bool known = b->range > 0 && isfinite(b->range);
    for (size_t i = 0; i < b->padded; i++) {
        const float u = (float)(taciti_rng_u32(key, (uint32_t)i) >> 8) * 0x1p-24f;
        const uint32_t level = known ? level_of(y[i], b->range, s->top, u) : 0;
        const size_t lane = (b->at + i) % s->lanes;
        words[(b->at + i) / s->lanes] += (float)(level << (lane * s->lane_bits));
        y[i] = value_of(s, b->range, level, 1);
    }
}

static void unpack(const shape *s, const block *b, const float *words, uint32_t count, float *y) {
    const uint32_t mask = (uint32_t)((UINT64_C(1) << s->lane_bits) - 1);
    for (size_t i = 0; i < b->padded; i++) {
        const uint32_t word = (uint32_t)words[(b->at + i) / s->lanes];
        y[i] = value_of(s, b->range, word >> ((b->at + i) % s->lanes * s->lane_bits) & mask, count);
    }
}

/* ---- encoding ------------------------------------------------------------------------------------------------------
 */
static tacit_status check_call(const taciti_codec_call *call) {
    if (call->scratch != NULL && (call->round == 0 || call->before != NULL)) return TACIT_OK;
    return taciti_fail(TACIT_E_INTERNAL, "thc is called in round %d without scratch memory or the ranges of blocks",
                       call->round);
}

static void encode_block(const taciti_codec_call *call, const shape *s, const block *b, const float *x, float *out,
                         float *error) {
    float *y = call->scratch;
    rotate(b, x, y);
    quantise(call, s, b, y, out + 1);
    if (error == NULL && call->tally == NULL) return;
    taciti_rotate_back(y, b->padded, b->key);
    if (call->tally != NULL) call->tally->squares_out += taciti_kernels_get()->sum_squares(y, b->n);
    if (error == NULL) return;
    memcpy(error + b->at, x + b->at, b->n * sizeof *x);
    taciti_kernels_get()->add_scaled(error + b->at, y, -1, b->n);
}

static tacit_status encode(const taciti_codec_call *call, const float *x, size_t n, void *out, float *error,
                           size_t *bytes) {
    const shape s = shape_of(call->options, call->ranks, n);
    float *to = out;
    *bytes = payload_n(call, n) * sizeof *to;
    if (n == 0) return TACIT_OK;
    TACITI_TRY(check_call(call));
    memset(to, 0, *bytes);
    for (size_t i = 0; i < s.blocks; i++) {
        const block b = block_at(call, &s, i);
        if (call->round == 1) {
            encode_block(call, &s, &b, x, to, error);
            continue;
        }
        rotate(&b, x, call->scratch);
        to[i * s.ranks + (size_t)call->rank] = largest_of(call->scratch, b.padded);
    }
    if (call->round == 1) to[0] = 1;
    if (call->tally == NULL) return TACIT_OK;
    call->tally->squares_in += taciti_kernels_get()->sum_squares(x, n);
    call->tally->n += n;
    call->tally->selected += n;
    return TACIT_OK;
}

/* ---- decoding ------------------------------------------------------------------------------------------------------
 */
static bool are_words(const float *payload, size_t count) {
    bool good = true;
    for (size_t i = 0; i < count; i++) {
        good = good && payload[i] >= 0 && payload[i] < 0x1p24f;
        good = good && payload[i] == (float)(uint32_t)payload[i];
    }
    return good;
}

static tacit_status check(const taciti_codec_call *call, const shape *s, const float *payload, size_t bytes, size_t n) {
    const size_t count = payload_n(call, n);
    if (bytes != count * sizeof(float))
        return taciti_fail(TACIT_E_DATA, "thc payload of %zu bytes where %zu floats need %zu", bytes, n,
                           count * sizeof(float));
    if (n == 0) return TACIT_OK;
    TACITI_TRY(check_call(call));
    if (call->round == 0 || (are_words(payload, count) && payload[0] >= 1 && payload[0] <= (float)s->ranks))
        return TACIT_OK;
    return taciti_fail(TACIT_E_DATA, "thc payload of %zu floats is not the sum of payloads of 1 to %zu ranks", n,
                       s->ranks);
}

/* Round 0 decodes to nothing. */
static tacit_status receive(const taciti_codec_call *call, const void *payload, size_t bytes, bool add, float *x,
                            size_t n) {
    const shape s = shape_of(call->options, call->ranks, n);
    const float *from = payload;
    TACITI_TRY(check(call, &s, from, bytes, n));
    if (!add) memset(x, 0, n * sizeof *x);
    for (size_t i = 0; i < s.blocks && call->round == 1; i++) {
        const block b = block_at(call, &s, i);
        unpack(&s, &b, from + 1, (uint32_t)from[0], call->scratch);
        taciti_rotate_back(call->scratch, b.padded, b.key);
        taciti_kernels_get()->add(x + b.at, call->scratch, b.n);
    }
    return TACIT_OK;
}

static tacit_status decode(const taciti_codec_call *call, const void *payload, size_t bytes, float *x, size_t n) {
    return receive(call, payload, bytes, false, x, n);
}

static tacit_status decode_add(const taciti_codec_call *call, const void *payload, size_t bytes, float *x, size_t n) {
    return receive(call, payload, bytes, true, x, n);
}

extern const taciti_codec taciti_codec_thc;
const taciti_codec taciti_codec_thc = {
    .name = "thc",
    .help = "rotates blocks, rounds at random to integers of 4 bits in a range of all ranks, and sums these",
    .source = "THC (NSDI 2024, arXiv 2302.08545), uniform table",
    .options = &TABLE,
    .options_size = sizeof(thc_options),
    .aggregation = TACITI_CODEC_LINEAR,
    .rounds = 2,
    .fixed_size = true,
    .shared_key = true,
    .exact_rounds = 1u << 0 | 1u << 1,
    .bound = bound,
    .scratch_bytes = scratch_bytes,
    .payload_n = payload_n,
    .linear_state_bytes = state_bytes,
    .encode = encode,
    .decode = decode,
    .decode_add = decode_add,
};
