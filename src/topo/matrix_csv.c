/* SPDX-License-Identifier: Apache-2.0
 *
 * One line per row, numbers separated by commas, blanks around them do not count. Several matrices follow each other;
 * empty lines may stand between them. A line that begins with # is a comment.
 */
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "topo/matrix.h"

enum { CELL_BYTES = 64 };

typedef struct reader {
    const char *file;
    const char *at, *end; /* what is left */
    size_t line;          /* number of the line that was read last, from 1 */
    int ranks;
    size_t rows;
    double *values; /* [rows_most][ranks] */
} reader;

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/* [begin, end) of the next line, blanks at its ends left out. */
static bool next_line(reader *r, const char **begin, const char **end) {
    if (r->at == r->end) return false;
    const char *newline = memchr(r->at, '\n', (size_t)(r->end - r->at));
    *begin = r->at;
    *end = newline != NULL ? newline : r->end;
    r->at = newline != NULL ? newline + 1 : r->end;
    r->line++;
    while (*begin < *end && is_blank(**begin)) ++*begin;
    while (*begin < *end && is_blank((*end)[-1])) --*end;
    return true;
}

static tacit_status parse_cell(const reader *r, const char *begin, const char *end, int column, double *out) {
    char cell[CELL_BYTES], quoted[TACITI_QUOTED_BYTES];
    while (begin < end && is_blank(*begin)) begin++;
    while (begin < end && is_blank(end[-1])) end--;
    const size_t length = (size_t)(end - begin) < sizeof cell - 1 ? (size_t)(end - begin) : sizeof cell - 1;
    memcpy(cell, begin, length);
    cell[length] = '\0';
    if (length < (size_t)(end - begin) || !taciti_real_parse(cell, out))
        return taciti_fail(TACIT_E_DATA, "%s, line %zu, column %d: expected a finite number, found %s", r->file,
                           r->line, column, taciti_quote(cell, quoted));
    return TACIT_OK;
}

static tacit_status parse_row(reader *r, const char *begin, const char *end) {
    size_t cells = 1;
    for (const char *c = begin; c < end; c++) cells += *c == ',';
    if (cells != (size_t)r->ranks)
        return taciti_fail(TACIT_E_DATA, "%s, line %zu: %zu numbers between commas, expected %d, one per rank", r->file,
                           r->line, cells, r->ranks);
    double *row = r->values + r->rows++ * (size_t)r->ranks;
    for (int column = 0; column < r->ranks; column++) {
        const char *comma = memchr(begin, ',', (size_t)(end - begin));
        if (comma == NULL) comma = end;
        TACITI_TRY(parse_cell(r, begin, comma, column, &row[column]));
        begin = comma < end ? comma + 1 : end;
    }
    return TACIT_OK;
}

static tacit_status parse_rows(reader *r) {
    const char *begin = NULL, *end = NULL;
    while (next_line(r, &begin, &end)) {
        const size_t of_this = r->rows % (size_t)r->ranks;
        if (begin < end && *begin == '#') continue;
        if (begin == end && of_this != 0)
            return taciti_fail(TACIT_E_DATA, "%s, line %zu: empty after %zu rows of a matrix that should have %d",
                               r->file, r->line, of_this, r->ranks);
        if (begin == end) continue;
        if (r->rows == (size_t)TACITI_MATRICES_MAX * (size_t)r->ranks)
            return taciti_fail(TACIT_E_DATA, "%s, line %zu: more than %d matrices; give fewer", r->file, r->line,
                               TACITI_MATRICES_MAX);
        TACITI_TRY(parse_row(r, begin, end));
    }
    if (r->rows == 0 || r->rows % (size_t)r->ranks != 0)
        return taciti_fail(TACIT_E_DATA, "%s: %zu rows, expected %d for every matrix (%d ranks)", r->file, r->rows,
                           r->ranks, r->ranks);
    return TACIT_OK;
}

tacit_status taciti_matrices_parse_csv(const char *file, const char *bytes, size_t count, int ranks,
                                       taciti_matrices *out) {
    if (memchr(bytes, '\0', count) != NULL)
        return taciti_fail(TACIT_E_DATA, "%s: neither text nor a .npy file: it has a zero byte", file);
    /* a legal row has 2 n bytes or more, the end of its line included; one more row may be begun and refused */
    const size_t rows_max = (count + 1) / (2 * (size_t)ranks) + 1;
    reader r = {.file = file, .at = bytes, .end = bytes + count, .ranks = ranks};
    r.values = taciti_calloc(rows_max * (size_t)ranks, sizeof *r.values);
    if (r.values == NULL) return TACIT_E_MEMORY;
    const tacit_status status = parse_rows(&r);
    if (status != TACIT_OK) {
        taciti_free(r.values);
        return status;
    }
    *out = (taciti_matrices){.ranks = ranks, .count = r.rows / (size_t)ranks, .values = r.values};
    return TACIT_OK;
}
