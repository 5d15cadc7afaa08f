/* SPDX-License-Identifier: Apache-2.0
 *
 * NumPy's .npy (NEP 1, versions 1.0 to 3.0): a mark, the header's length, a Python dictionary with the keys descr,
 * fortran_order and shape, the numbers. Accepted: little-endian float64 and float32, shape (N, N) or (rounds, N, N), C
 * and Fortran order. Everything else is refused, so is a byte too few or too many.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "topo/matrix.h"

enum { DIMENSIONS_MAX = 3, HEADER_MAX = 65536 };

typedef struct header {
    size_t item_bytes; /* 8 or 4; 0: not seen */
    bool order_seen, fortran;
    size_t shape[DIMENSIONS_MAX];
    size_t dimensions;
} header;

typedef struct reader {
    const char *file;
    const char *at, *end;
} reader;

static tacit_status fail_header(const reader *r, const char *expected) {
    char found[TACITI_QUOTED_BYTES], piece[25] = "";
    const size_t left = (size_t)(r->end - r->at), shown = left < sizeof piece - 1 ? left : sizeof piece - 1;
    memcpy(piece, r->at, shown);
    return taciti_fail(TACIT_E_DATA, "%s: header of the .npy file: expected %s, found %s", r->file, expected,
                       taciti_quote(piece, found));
}

static void skip_blanks(reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n')) r->at++;
}

static bool take_text(reader *r, const char *text) {
    skip_blanks(r);
    const size_t length = strlen(text);
    if ((size_t)(r->end - r->at) < length || memcmp(r->at, text, length) != 0) return false;
    r->at += length;
    return true;
}

static tacit_status parse_number(reader *r, size_t *out) {
    size_t value = 0, digits = 0;
    skip_blanks(r);
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9' && digits < 9; digits++)
        value = value * 10 + (size_t)(*r->at++ - '0');
    if (digits == 0 || (r->at < r->end && *r->at >= '0' && *r->at <= '9'))
        return fail_header(r, "a number of up to 9 digits");
    *out = value;
    return TACIT_OK;
}

static tacit_status parse_shape(reader *r, header *h) {
    h->dimensions = 0;
    if (!take_text(r, "(")) return fail_header(r, "the shape in ( )");
    while (!take_text(r, ")")) {
        if (h->dimensions == DIMENSIONS_MAX) return fail_header(r, "a shape of 2 or 3 numbers");
        TACITI_TRY(parse_number(r, &h->shape[h->dimensions++]));
        if (take_text(r, ",")) continue;
        if (!take_text(r, ")")) return fail_header(r, ", or )");
        break;
    }
    return TACIT_OK;
}

static tacit_status parse_header(reader *r, header *h) {
    if (!take_text(r, "{")) return fail_header(r, "{");
    while (!take_text(r, "}")) {
        if (h->item_bytes == 0 && take_text(r, "'descr':")) {
            h->item_bytes = take_text(r, "'<f8'") ? 8 : take_text(r, "'<f4'") ? 4 : 0;
            if (h->item_bytes == 0) return fail_header(r, "'<f8' or '<f4' (save it as float64, little-endian)");
        } else if (!h->order_seen && take_text(r, "'fortran_order':")) {
            h->order_seen = true;
            h->fortran = take_text(r, "True");
            if (!h->fortran && !take_text(r, "False")) return fail_header(r, "True or False");
        } else if (h->dimensions == 0 && take_text(r, "'shape':")) {
            TACITI_TRY(parse_shape(r, h));
        } else {
            return fail_header(r, "'descr', 'fortran_order' and 'shape', once each");
        }
        if (take_text(r, ",")) continue;
        if (!take_text(r, "}")) return fail_header(r, ", or }");
        break;
    }
    skip_blanks(r);
    if (r->at != r->end) return fail_header(r, "nothing after }");
    if (h->item_bytes == 0 || !h->order_seen || h->dimensions == 0)
        return fail_header(r, "all of 'descr', 'fortran_order' and 'shape'");
    return TACIT_OK;
}

static tacit_status check_shape(const char *file, const header *h, int ranks, size_t data_bytes, size_t *count) {
    const size_t n = (size_t)ranks, d = h->dimensions;
    if (d < 2)
        return taciti_fail(TACIT_E_DATA, "%s: an array of %zu dimension, expected (%d, %d) or (rounds, %d, %d)", file,
                           d, ranks, ranks, ranks, ranks);
    if (h->shape[d - 2] != n || h->shape[d - 1] != n)
        return taciti_fail(TACIT_E_DATA, "%s: matrices of %zu x %zu, expected %d x %d for %d ranks", file,
                           h->shape[d - 2], h->shape[d - 1], ranks, ranks, ranks);
    *count = d == 3 ? h->shape[0] : 1;
    if (*count < 1 || *count > TACITI_MATRICES_MAX)
        return taciti_fail(TACIT_E_DATA, "%s: %zu matrices, expected 1 to %d", file, *count, TACITI_MATRICES_MAX);
    if (data_bytes != *count * n * n * h->item_bytes)
        return taciti_fail(TACIT_E_DATA, "%s: %zu bytes of numbers, expected %zu for %zu x %d x %d of %zu bytes", file,
                           data_bytes, *count * n * n * h->item_bytes, *count, ranks, ranks, h->item_bytes);
    return TACIT_OK;
}

static double number_at(const unsigned char *bytes, size_t item_bytes) {
    uint64_t bits = 0;
    for (size_t i = 0; i < item_bytes; i++) bits |= (uint64_t)bytes[i] << 8 * i;
    if (item_bytes == 8) {
        double value = 0;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    const uint32_t half = (uint32_t)bits;
    float value = 0;
    memcpy(&value, &half, sizeof value);
    return (double)value;
}

static tacit_status copy_numbers(const char *file, const header *h, const unsigned char *data, taciti_matrices *a) {
    const size_t n = (size_t)a->ranks;
    for (size_t m = 0; m < a->count; m++)
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < n; j++) {
                const size_t at = h->fortran ? m + a->count * (i + n * j) : (m * n + i) * n + j;
                const double value = number_at(data + at * h->item_bytes, h->item_bytes);
                if (!isfinite(value))
                    return taciti_fail(TACIT_E_DATA,
                                       "%s, matrix %zu, row %zu, column %zu: expected a finite number, found %g", file,
                                       m, i, j, value);
                a->values[(m * n + i) * n + j] = value;
            }
    return TACIT_OK;
}

/* Where the header begins and ends. */
static tacit_status find_header(const char *file, const unsigned char *bytes, size_t count, size_t *begin,
                                size_t *end) {
    if (count < 10) return taciti_fail(TACIT_E_DATA, "%s: a .npy file of %zu bytes; it is cut off", file, count);
    if (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0)
        return taciti_fail(TACIT_E_DATA, "%s: version %d.%d of .npy, expected 1.0, 2.0 or 3.0", file, bytes[6],
                           bytes[7]);
    const size_t width = bytes[6] == 1 ? 2 : 4;
    size_t length = 0;
    *begin = 8 + width;
    for (size_t i = 0; i < width && *begin <= count; i++) length |= (size_t)bytes[8 + i] << 8 * i;
    if (*begin > count || length > HEADER_MAX || length > count - *begin)
        return taciti_fail(TACIT_E_DATA, "%s: header of %zu bytes in a .npy file of %zu; it is cut off", file, length,
                           count);
    *end = *begin + length;
    return TACIT_OK;
}

tacit_status taciti_matrices_parse_npy(const char *file, const unsigned char *bytes, size_t count, int ranks,
                                       taciti_matrices *out) {
    size_t begin = 0, end = 0;
    header h = {0};
    taciti_matrices a = {.ranks = ranks};
    TACITI_TRY(find_header(file, bytes, count, &begin, &end));
    reader r = {.file = file, .at = (const char *)bytes + begin, .end = (const char *)bytes + end};
    TACITI_TRY(parse_header(&r, &h));
    TACITI_TRY(check_shape(file, &h, ranks, count - end, &a.count));
    a.values = taciti_calloc(a.count * (size_t)ranks * (size_t)ranks, sizeof *a.values);
    if (a.values == NULL) return TACIT_E_MEMORY;
    const tacit_status status = copy_numbers(file, &h, bytes + end, &a);
    if (status != TACIT_OK) {
        taciti_free(a.values);
        return status;
    }
    *out = a;
    return TACIT_OK;
}
