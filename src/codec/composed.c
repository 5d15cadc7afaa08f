/* SPDX-License-Identifier: Apache-2.0
 *
 * Composed codecs: the elements that a selector chooses, in a value format, beside their indices by an index coder.
 *
 * Wire layout                 bytes             a decoder rejects
 *   kept                      4                 more than there are elements
 *   bytes of the indices      4                 a payload of another size
 *   value format              1                 an unknown one
 *   index coder               1                 an unknown one; 255 (none) where there are indices, and vice versa
 *   0                         2                 anything else
 *   indices                   as above          what the coder rejects
 *   0                         to a multiple of 4  anything else
 *   values                    by the format
 *
 * There are no indices if nothing is kept, everything is kept, or both sides know them.
 */
#include <stdint.h>
#include <string.h>

#include "base/log.h"
#include "codec/largest.h"
#include "kernel/kernel.h"

/* Bytes that an index coder may write behind its own. */
enum { NO_CODER = 255, WORD = 4, CODER_SLACK = 8, LINE_BYTES = 64 };

typedef struct header {
    uint32_t kept, index_bytes;
    uint8_t format, coder;
    uint16_t zero;
} header;

static size_t to_word(size_t bytes) { return (bytes + WORD - 1) / WORD * WORD; }

const char *taciti_composed_index_name(size_t index) {
    if (index == 0) return "auto";
    for (const taciti_index_coder *const *coder = taciti_index_coder_list(); *coder != NULL; coder++)
        if (--index == 0) return (*coder)->name;
    return NULL;
}

/* ---- what the options say ---------------------------------------------------------------------------------------- */
static const taciti_value_format *format_of(const taciti_codec *codec, const taciti_composed_options *options) {
    const taciti_selector *selector = codec->method;
    const char *name = options != NULL && options->values.text[0] != '\0' ? options->values.text : selector->values;
    return name != NULL ? taciti_value_format_find(name) : taciti_value_format_at(0);
}

/* NULL: the shortest. */
static const taciti_index_coder *coder_of(const taciti_composed_options *options) {
    if (options == NULL) return NULL;
    for (const taciti_index_coder *const *coder = taciti_index_coder_list(); *coder != NULL; coder++)
        if (strcmp((*coder)->name, options->indices.text) == 0) return *coder;
    return NULL;
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */
size_t taciti_composed_bound(const taciti_codec *codec, const void *options, size_t n) {
    return sizeof(header) + taciti_values_bytes(format_of(codec, options), n) + CODER_SLACK;
}

/* Scratch: indices, values, then what the selector needs; when that is done, n floats for values again. */
static size_t array_bytes(size_t n) { return (n * sizeof(float) + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES; }

typedef struct arrays {
    uint32_t *indices;
    float *values, *work;
} arrays;

static arrays arrays_in(void *scratch, size_t n) {
    unsigned char *at = scratch;
    return (arrays){.indices = (uint32_t *)(void *)at,
                    .values = (float *)(void *)(at + array_bytes(n)),
                    .work = (float *)(void *)(at + 2 * array_bytes(n))};
}

size_t taciti_composed_scratch_bytes(const taciti_codec *codec, const void *options, size_t n) {
    const taciti_selector *selector = codec->method;
    const size_t own = selector->scratch_bytes != NULL ? selector->scratch_bytes(n) : 0;
    (void)options;
    return 2 * array_bytes(n) + (own > array_bytes(n) ? own : array_bytes(n));
}

static size_t kept_of(const taciti_selector *selector, const taciti_codec_call *call, size_t n) {
    return selector->kept != NULL ? selector->kept(call, n) : taciti_kept_of(call->setting.factor, TACITI_FACTOR, n);
}

double taciti_composed_expected_bytes(const taciti_codec *codec, const taciti_codec_call *call, size_t n) {
    const taciti_selector *selector = codec->method;
    const taciti_value_format *format = format_of(codec, call->options);
    const taciti_index_coder *coder = coder_of(call->options);
    const size_t kept = kept_of(selector, call, n);
    double bytes = (double)taciti_values_bytes(format, kept);
    if (selector->known == NULL && kept > 0 && kept < n) {
        /* the shortest coder is within a few per cent of the entropy, and Rice codes are that coder */
        const bool fixed = coder != NULL && strcmp(coder->name, "rice") != 0;
        bytes += fixed ? (double)coder->bound(kept, n) : 1.03 * taciti_index_entropy(kept, n) * (double)kept / 8 + 3;
    }
    const double all = (double)taciti_values_bytes(format, n);
    return (double)sizeof(header) + (bytes < all ? bytes : all);
}

/* ---- encode ------------------------------------------------------------------------------------------------------ */
typedef struct encoding {
    const taciti_codec *codec;
    const taciti_selector *selector;
    const taciti_codec_call *call;
    const taciti_value_format *format;
    size_t n;
    arrays scratch;
} encoding;

static encoding encoding_of(const taciti_codec *codec, const taciti_codec_call *call, size_t n) {
    return (encoding){.codec = codec,
                      .selector = codec->method,
                      .call = call,
                      .format = format_of(codec, call->options),
                      .n = n,
                      .scratch = n > 0 ? arrays_in(call->scratch, n) : (arrays){0}};
}

/* Selects by selector->estimate. If no element reaches the threshold, the largest is sent; if k = n, all are. If an
 * element is not finite, only elements that are not finite are sent: the step is skipped anyway. */
static void select_estimated(const taciti_selector *selector, const taciti_codec_call *call, const float *x, size_t n,
                             void *scratch, taciti_selection *out) {
    const size_t k = taciti_kept_of(call->setting.factor, TACITI_FACTOR, n);
    if (k >= n) {
        taciti_select_largest(x, n, n, scratch, out);
        return;
    }
    taciti_estimate estimate = {.bits = TACITI_MAGNITUDE_INF};
    if (taciti_kernels_get()->all_finite(x, n)) estimate = selector->estimate(call, x, n, k, scratch);
    taciti_select_by_threshold(x, n, estimate.bits, out);
    if (out->count == 0)
        taciti_select_largest(x, n, 1, scratch, out);
    else if (estimate.max_ratio > 0 && (double)out->count > estimate.max_ratio * (double)k)
        taciti_selection_reduce(out, k, scratch);
}

static void select_elements(const encoding *e, const float *x, taciti_selection *found) {
    if (e->selector->select != NULL)
        e->selector->select(e->call, x, e->n, e->scratch.work, found);
    else
        select_estimated(e->selector, e->call, x, e->n, e->scratch.work, found);
}

static void fill_tally(const encoding *e, const taciti_selection *found, size_t kept, double squares_out) {
    taciti_codec_tally *tally = e->call->tally;
    tally->squares_in += found->squares;
    tally->squares_out += squares_out;
    tally->n += e->n;
    tally->selected += kept;
    tally->near += found->near;
    if (found->threshold > tally->threshold) tally->threshold = found->threshold;
}

/* Encodes values; error[count], if not NULL, receives their errors. Returns the sum of squares of what is decoded, if
 * a tally is wanted. */
static double encode_values(const encoding *e, const float *values, size_t count, void *out, float *error) {
    taciti_squares squares = {0};
    e->format->encode(e->format, values, count, out, error, e->call->tally != NULL ? &squares : NULL);
    return squares.out;
}

/* Everything is sent. */
static size_t encode_all(const encoding *e, const taciti_selection *found, const float *x, void *out, float *error) {
    const header head = {.kept = (uint32_t)e->n, .format = (uint8_t)e->format->id, .coder = NO_CODER};
    memcpy(out, &head, sizeof head);
    const double squares = encode_values(e, x, e->n, (char *)out + sizeof head, error);
    if (e->call->tally != NULL) fill_tally(e, found, e->n, squares);
    return sizeof head + taciti_values_bytes(e->format, e->n);
}

/* The coder of the indices and their bytes; NULL: there are none. */
static const taciti_index_coder *choose_coder(const encoding *e, const taciti_selection *found, size_t *bytes) {
    const taciti_index_coder *coder = coder_of(e->call->options);
    *bytes = 0;
    if (e->selector->known != NULL || found->count == 0) return NULL;
    if (coder == NULL) return taciti_index_coder_best(found->indices, found->count, e->n, bytes);
    *bytes = coder->bytes(found->indices, found->count, e->n);
    return coder;
}

static size_t write_indices(const encoding *e, const taciti_selection *found, const taciti_index_coder *coder,
                            size_t bytes, void *out) {
    const header head = {.kept = (uint32_t)found->count,
                         .index_bytes = (uint32_t)bytes,
                         .format = (uint8_t)e->format->id,
                         .coder = (uint8_t)(coder != NULL ? coder->id : NO_CODER)};
    char *at = (char *)out + sizeof head;
    memcpy(out, &head, sizeof head);
    if (coder == NULL) return sizeof head;
    coder->encode(found->indices, found->count, e->n, at);
    memset(at + bytes, 0, to_word(bytes) - bytes);
    return sizeof head + to_word(bytes);
}

static size_t encode_found(const encoding *e, const taciti_selection *found, const float *x, void *out, float *error) {
    size_t index_bytes = 0;
    const taciti_index_coder *coder = choose_coder(e, found, &index_bytes);
    const size_t all = taciti_values_bytes(e->format, e->n);
    const size_t value_bytes = taciti_values_bytes(e->format, found->count);
    if (to_word(index_bytes) + value_bytes >= all) return encode_all(e, found, x, out, error);
    const size_t at = write_indices(e, found, coder, index_bytes, out);
    float *value_error = error != NULL && !e->format->lossless ? e->scratch.work : NULL;
    const double squares = encode_values(e, found->values, found->count, (char *)out + at, value_error);
    if (value_error != NULL) taciti_kernels_get()->scatter(error, found->indices, value_error, found->count);
    if (e->call->tally != NULL) fill_tally(e, found, found->count, squares);
    return at + value_bytes;
}

tacit_status taciti_composed_encode(const taciti_codec *codec, const taciti_codec_call *call, const float *x, size_t n,
                                    void *out, float *error, size_t *bytes) {
    const encoding e = encoding_of(codec, call, n);
    taciti_selection found = {
        .indices = e.scratch.indices, .values = e.scratch.values, .error = error, .measure = call->tally != NULL};
    if (n > 0) select_elements(&e, x, &found);
    if (found.count == n)
        *bytes = encode_all(&e, &found, x, out, error);
    else
        *bytes = encode_found(&e, &found, x, out, error);
    return TACIT_OK;
}

void taciti_composed_select(const taciti_codec *codec, const taciti_codec_call *call, const float *x, size_t n,
                            float *selected, float *error) {
    const taciti_kernels *kernels = taciti_kernels_get();
    const encoding e = encoding_of(codec, call, n);
    taciti_selection found = {
        .indices = e.scratch.indices, .values = e.scratch.values, .error = error, .measure = call->tally != NULL};
    if (n == 0) return;
    select_elements(&e, x, &found);
    const bool all = found.count == n;
    if (all) {
        memcpy(selected, x, n * sizeof *x);
        if (error != NULL) memset(error, 0, n * sizeof *error);
    } else {
        memset(selected, 0, n * sizeof *selected);
        kernels->scatter(selected, found.indices, found.values, found.count);
    }
    if (call->tally != NULL)
        fill_tally(&e, &found, found.count, kernels->sum_squares(all ? x : found.values, found.count));
}

/* ---- decode ------------------------------------------------------------------------------------------------------ */
/* A payload whose sizes are right. */
typedef struct parsed {
    header head;
    const taciti_value_format *format;
    const char *indices, *values;
} parsed;

static tacit_status fail_malformed(const encoding *e, size_t bytes, const char *what) {
    return taciti_fail(TACIT_E_DATA, "%s payload of %zu bytes for %zu floats: %s", e->codec->name, bytes, e->n, what);
}

static bool write_zeros(const char *at, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != 0) return false;
    return true;
}

static tacit_status read_indices(const encoding *e, const parsed *p, size_t bytes) {
    const size_t kept = p->head.kept;
    const taciti_index_coder *coder = taciti_index_coder_at(p->head.coder);
    if (coder == NULL) return fail_malformed(e, bytes, "it has no index coder that is known");
    if (!write_zeros(p->indices + p->head.index_bytes, to_word(p->head.index_bytes) - p->head.index_bytes))
        return fail_malformed(e, bytes, "the bytes behind the indices are not 0");
    return coder->decode(p->indices, p->head.index_bytes, e->scratch.indices, kept, e->n);
}

/* Checks all of the payload, and leaves the indices in the scratch memory unless all elements are kept. */
static tacit_status parse_payload(const encoding *e, const void *payload, size_t bytes, parsed *p) {
    if (bytes < sizeof p->head) return fail_malformed(e, bytes, "it is too short");
    memcpy(&p->head, payload, sizeof p->head);
    p->format = taciti_value_format_at(p->head.format);
    p->indices = (const char *)payload + sizeof p->head;
    if (p->format == NULL || p->head.zero != 0) return fail_malformed(e, bytes, "its value format is unknown");
    if (p->head.kept > e->n) return fail_malformed(e, bytes, "it keeps more than there is");
    const size_t index_bytes = to_word(p->head.index_bytes), room = bytes - sizeof p->head;
    if (index_bytes > room) return fail_malformed(e, bytes, "its indices do not fit");
    const bool all = p->head.kept == e->n, none = all || p->head.kept == 0 || e->selector->known != NULL;
    if (none && (p->head.coder != NO_CODER || index_bytes > 0))
        return fail_malformed(e, bytes, "it must not have indices");
    if (!none) TACITI_TRY(read_indices(e, p, bytes));
    if (!all && e->selector->known != NULL && p->head.kept > 0)
        e->selector->known(e->call, e->n, p->head.kept, e->scratch.work, e->scratch.indices);
    p->values = p->indices + index_bytes;
    if (room - index_bytes != taciti_values_bytes(p->format, p->head.kept))
        return fail_malformed(e, bytes, "its values do not have that size");
    return TACIT_OK;
}

tacit_status taciti_composed_decode(const taciti_codec *codec, const taciti_codec_call *call, const void *payload,
                                    size_t bytes, float *x, size_t n, bool add) {
    const taciti_kernels *kernels = taciti_kernels_get();
    const encoding e = encoding_of(codec, call, n);
    parsed p = {.values = NULL};
    TACITI_TRY(parse_payload(&e, payload, bytes, &p));
    if (p.head.kept == n) {
        p.format->decode(p.format, p.values, x, n, add);
        return TACIT_OK;
    }
    if (!add) memset(x, 0, n * sizeof *x);
    p.format->decode(p.format, p.values, e.scratch.values, p.head.kept, false);
    (add ? kernels->scatter_add : kernels->scatter)(x, e.scratch.indices, e.scratch.values, p.head.kept);
    return TACIT_OK;
}
