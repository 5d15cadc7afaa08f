/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/quantiser.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/number.h"
#include "kernel/kernel.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "payloads are little endian; this machine needs a byte swap in encode and decode"
#endif

enum { PIECE = TACITI_QUANTISER_PIECE };
_Static_assert(PIECE % 8 == 0, "pieces begin at a whole byte");

/* ---- codes in bytes ---------------------------------------------------------------------------------------------- */
static unsigned bits_of(unsigned codes) {
    unsigned bits = 1;
    while (1u << bits < codes) bits++;
    return bits;
}

static size_t packed_bytes(unsigned codes, size_t n) {
    return n / 8 * bits_of(codes) + (n % 8 * bits_of(codes) + 7) / 8;
}

/* Eight codes make `bits` bytes; the first code is in the lowest bits. */
static void pack_codes(unsigned n_codes, const uint8_t *codes, size_t n, uint8_t *out) {
    const unsigned bits = bits_of(n_codes);
    for (size_t i = 0; i < n; i += 8, out += bits) {
        uint64_t word = 0;
        const size_t m = n - i < 8 ? n - i : 8;
        for (size_t j = 0; j < m; j++) word |= (uint64_t)codes[i + j] << (j * bits);
        const size_t bytes = (m * bits + 7) / 8;
        for (size_t b = 0; b < bytes; b++) out[b] = (uint8_t)(word >> (8 * b));
    }
}

static void unpack_codes(unsigned n_codes, const uint8_t *in, size_t n, uint8_t *codes) {
    const unsigned bits = bits_of(n_codes);
    for (size_t i = 0; i < n; i += 8, in += bits) {
        uint64_t word = 0;
        const size_t m = n - i < 8 ? n - i : 8, bytes = (m * bits + 7) / 8;
        for (size_t b = 0; b < bytes; b++) word |= (uint64_t)in[b] << (8 * b);
        for (size_t j = 0; j < m; j++) codes[i + j] = (uint8_t)(word >> (j * bits) & ((1u << bits) - 1));
    }
}

/* ---- where things are in a payload ------------------------------------------------------------------------------- */
typedef struct layout {
    taciti_quantiser_shape shape; /* with the block that is used */
    size_t blocks, parameter_bytes, bytes;
} layout;

static layout layout_of(const taciti_quantiser *quantiser, const void *options, size_t n) {
    layout l = {.shape = quantiser->shape(options)};
    l.shape.block = l.shape.block == 0 ? n : (l.shape.block + 7) / 8 * 8; /* blocks begin at a whole byte */
    if (n == 0) return l;
    l.blocks = (n + l.shape.block - 1) / l.shape.block;
    l.parameter_bytes = l.blocks * l.shape.parameters * sizeof(float);
    l.bytes = l.parameter_bytes + packed_bytes(l.shape.codes, n);
    return l;
}

size_t taciti_quantiser_bound(const taciti_codec *codec, const void *options, size_t n) {
    return layout_of(codec->method, options, n).bytes;
}

/* ---- encode ------------------------------------------------------------------------------------------------------ */
typedef struct encoding {
    const taciti_quantiser *quantiser;
    const taciti_codec_call *call;
    layout l;
    uint8_t *codes; /* in the payload */
    float *error;
} encoding;

static void fill_nan(float *y, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = NAN;
}

static void restore_or_nan(const taciti_quantiser *quantiser, const void *options, const float *parameters,
                           const uint8_t *codes, size_t n, float *y) {
    if (isnan(parameters[0]))
        fill_nan(y, n);
    else
        quantiser->restore(options, parameters, codes, n, y);
}

static void encode_part(const encoding *e, const float *parameters, const taciti_quantiser_part *part) {
    uint8_t codes[PIECE];
    float y[PIECE];
    if (isnan(parameters[0]))
        memset(codes, 0, part->n);
    else
        e->quantiser->quantise(e->call, parameters, part, codes);
    pack_codes(e->l.shape.codes, codes, part->n, e->codes + packed_bytes(e->l.shape.codes, part->first));
    if (e->error == NULL && e->call->tally == NULL) return;
    restore_or_nan(e->quantiser, e->call->options, parameters, codes, part->n, y);
    if (e->call->tally != NULL) {
        e->call->tally->squares_in += taciti_kernels_get()->sum_squares(part->x, part->n);
        e->call->tally->squares_out += taciti_kernels_get()->sum_squares(y, part->n);
    }
    if (e->error == NULL) return;
    for (size_t i = 0; i < part->n; i++) e->error[part->first + i] = part->x[i] - y[i];
}

static void encode_block(const encoding *e, const taciti_quantiser_part *block, float *parameters) {
    float values[TACITI_QUANTISER_PARAMETERS];
    if (taciti_kernels_get()->all_finite(block->x, block->n))
        e->quantiser->measure(e->call, block, values);
    else
        fill_nan(values, e->l.shape.parameters);
    memcpy(parameters, values, e->l.shape.parameters * sizeof *parameters);
    for (size_t at = 0; at < block->n; at += PIECE) {
        const taciti_quantiser_part part = {block->x + at, taciti_min(block->n - at, PIECE), block->first + at};
        encode_part(e, values, &part);
    }
}

tacit_status taciti_quantiser_encode(const taciti_codec *codec, const taciti_codec_call *call, const float *x, size_t n,
                                     void *out, float *error, size_t *bytes) {
    const layout l = layout_of(codec->method, call->options, n);
    const encoding e = {codec->method, call, l, (uint8_t *)out + l.parameter_bytes, error};
    float *parameters = out;
    for (size_t b = 0; b < l.blocks; b++) {
        const size_t first = b * l.shape.block;
        const taciti_quantiser_part block = {x + first, taciti_min(n - first, l.shape.block), first};
        encode_block(&e, &block, parameters + b * l.shape.parameters);
    }
    taciti_codec_count_all(call->tally, 0, 0, n); /* squares were added block by block */
    *bytes = l.bytes;
    return TACIT_OK;
}

/* ---- decode ------------------------------------------------------------------------------------------------------ */
static bool legal_parameters(const taciti_quantiser *quantiser, const void *options, const float *parameters,
                             size_t count) {
    size_t nans = 0, finite = 0;
    for (size_t i = 0; i < count; i++) {
        nans += isnan(parameters[i]) != 0;
        finite += isfinite(parameters[i]) != 0;
    }
    if (nans == count) return true;
    return finite == count && (quantiser->legal == NULL || quantiser->legal(options, parameters));
}

static bool legal_codes(unsigned n_codes, const uint8_t *in, size_t n) {
    uint8_t codes[PIECE];
    unsigned largest = 0;
    if (n_codes == 1u << bits_of(n_codes)) return true;
    for (size_t at = 0; at < n; at += PIECE) {
        const size_t m = taciti_min(n - at, PIECE);
        unpack_codes(n_codes, in + packed_bytes(n_codes, at), m, codes);
        for (size_t i = 0; i < m; i++) largest = codes[i] > largest ? codes[i] : largest;
    }
    return largest < n_codes;
}

static tacit_status check_size(const taciti_codec *codec, const void *options, const layout *l, const void *payload,
                               size_t bytes, size_t n) {
    const float *parameters = payload;
    if (bytes != l->bytes)
        return taciti_fail(TACIT_E_DATA, "%s payload of %zu bytes where %zu floats need %zu", codec->name, bytes, n,
                           l->bytes);
    for (size_t b = 0; b < l->blocks; b++)
        if (!legal_parameters(codec->method, options, parameters + b * l->shape.parameters, l->shape.parameters))
            return taciti_fail(TACIT_E_DATA, "%s payload whose block %zu has a scale that no encoder writes",
                               codec->name, b);
    if (!legal_codes(l->shape.codes, (const uint8_t *)payload + l->parameter_bytes, n))
        return taciti_fail(TACIT_E_DATA, "%s payload with a code of %u or more", codec->name, l->shape.codes);
    return TACIT_OK;
}

typedef struct decoding {
    const taciti_quantiser *quantiser;
    const void *options;
    layout l;
    const float *parameters;
    const uint8_t *codes;
    bool add;
} decoding;

static void decode_part(const decoding *d, const float *parameters, size_t first, float *x, size_t n) {
    uint8_t codes[PIECE];
    float y[PIECE];
    unpack_codes(d->l.shape.codes, d->codes + packed_bytes(d->l.shape.codes, first), n, codes);
    restore_or_nan(d->quantiser, d->options, parameters, codes, n, d->add ? y : x);
    if (d->add) taciti_kernels_get()->add(x, y, n);
}

tacit_status taciti_quantiser_decode(const taciti_codec *codec, const taciti_codec_call *call, const void *payload,
                                     size_t bytes, float *x, size_t n, bool add) {
    const layout l = layout_of(codec->method, call->options, n);
    TACITI_TRY(check_size(codec, call->options, &l, payload, bytes, n));
    const decoding d = {codec->method, call->options, l, payload, (const uint8_t *)payload + l.parameter_bytes, add};
    for (size_t b = 0; b < l.blocks; b++) {
        const size_t begin = b * l.shape.block, end = taciti_min(n, begin + l.shape.block);
        for (size_t at = begin; at < end; at += PIECE)
            decode_part(&d, d.parameters + b * l.shape.parameters, at, x + at, taciti_min(end - at, PIECE));
    }
    return TACIT_OK;
}
