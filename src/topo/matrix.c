/* SPDX-License-Identifier: Apache-2.0
 *
 * Topology `file`: matrices of the user's, row = who receives. Doubly stochastic within 1e-9, then they are used as
 * they are; or with columns alone that sum to 1, then the topology is directed and needs push-sum. Nothing is rescaled.
 *
 * The file has one line per row, with numbers separated by commas; blanks around them do not count. Several matrices
 * follow each other; empty lines may stand between them. A line that begins with # is a comment.
 */
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "topo/family.h"

enum { FILE_BYTES_MAX = 1 << 29, MATRICES_MAX = 65536, CELL_BYTES = 64 };

/* ---- reading ----------------------------------------------------------------------------------------------------- */
typedef struct reader {
    const char *file;
    size_t line; /* number of the line that was read last, from 1 */
    int ranks;
    size_t rows;
    double *values; /* [rows][ranks], with room for more; owned */
} reader;

/* Cuts the text at *rest at the next `mark`. Returns what stands before it, without blanks at its ends. */
static char *cut_piece(char **rest, const char *mark) {
    static const char BLANKS[] = " \t\r";
    char *piece = *rest + strspn(*rest, BLANKS), *end = piece + strcspn(piece, mark);
    *rest = end + (*end != '\0');
    while (end > piece && strchr(BLANKS, end[-1]) != NULL) end--;
    *end = '\0';
    return piece;
}

static tacit_status parse_row(reader *r, char *line) {
    char quoted[TACITI_QUOTED_BYTES];
    size_t cells = 1;
    for (const char *c = line; *c != '\0'; c++) cells += *c == ',';
    if (cells != (size_t)r->ranks)
        return taciti_fail(TACIT_E_DATA, "%s, line %zu: %zu numbers between commas, expected %d, one per rank", r->file,
                           r->line, cells, r->ranks);
    double *row = r->values + r->rows++ * (size_t)r->ranks;
    for (int column = 0; column < r->ranks; column++) {
        const char *cell = cut_piece(&line, ",");
        if (strlen(cell) >= CELL_BYTES || !taciti_real_parse(cell, &row[column]))
            return taciti_fail(TACIT_E_DATA, "%s, line %zu, column %d: expected a finite number, found %s", r->file,
                               r->line, column, taciti_quote(cell, quoted));
    }
    return TACIT_OK;
}

static tacit_status parse_rows(reader *r, char *text) {
    for (r->line = 1; *text != '\0'; r->line++) {
        char *line = cut_piece(&text, "\n");
        const size_t of_this = r->rows % (size_t)r->ranks;
        if (*line == '#') continue;
        if (*line == '\0' && of_this != 0)
            return taciti_fail(TACIT_E_DATA, "%s, line %zu: empty after %zu rows of a matrix that should have %d",
                               r->file, r->line, of_this, r->ranks);
        if (*line == '\0') continue;
        if (r->rows == (size_t)MATRICES_MAX * (size_t)r->ranks)
            return taciti_fail(TACIT_E_DATA, "%s, line %zu: more than %d matrices; give fewer", r->file, r->line,
                               MATRICES_MAX);
        TACITI_TRY(parse_row(r, line));
    }
    if (r->rows == 0 || r->rows % (size_t)r->ranks != 0)
        return taciti_fail(TACIT_E_DATA, "%s: %zu rows, expected %d for every matrix (%d ranks)", r->file, r->rows,
                           r->ranks, r->ranks);
    return TACIT_OK;
}

/* text[count] must be 0; the text is cut into pieces. r->values is to be freed whatever comes back. */
static tacit_status parse_matrices(reader *r, char *text, size_t count) {
    if (strlen(text) < count)
        return taciti_fail(TACIT_E_DATA,
                           "%s: not text, since it has a zero byte; NumPy writes what is read by "
                           "numpy.savetxt(FILE, W, fmt='%%.17g', delimiter=',')",
                           r->file);
    /* a legal row has 2 n bytes or more, the end of its line included; one more row may be begun and refused */
    const size_t rows_max = (count + 1) / (2 * (size_t)r->ranks) + 1;
    r->values = taciti_calloc(rows_max * (size_t)r->ranks, sizeof *r->values);
    return r->values == NULL ? TACIT_E_MEMORY : parse_rows(r, text);
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

/* One matrix of the file. */
typedef struct scene {
    const char *file;
    size_t which;
    int n;
    const double *w;
} scene;

/* The sum of n entries from one on. */
static double sum_entries(const scene *s, size_t first, size_t step) {
    double sum = 0;
    for (int k = 0; k < s->n; k++) sum += s->w[first + (size_t)k * step];
    return sum;
}

static double sum_row(const scene *s, int row) { return sum_entries(s, (size_t)row * (size_t)s->n, 1); }

static double sum_column(const scene *s, int column) { return sum_entries(s, (size_t)column, (size_t)s->n); }

static bool is_one(double sum) { return fabs(sum - 1) <= TACITI_TOPO_TOLERANCE; }

/* A matrix with a column that does not sum to 1: the rows are looked at first, for most matrices are symmetric and
 * people think in rows. */
static tacit_status refuse_sums(const scene *s) {
    int row = 0, column = 0;
    while (row < s->n && is_one(sum_row(s, row))) row++;
    while (is_one(sum_column(s, column))) column++;
    if (row == s->n)
        return taciti_fail(
            TACIT_E_CONFIG,
            "%s, matrix %zu: column %d sums to %.12g, expected 1: what rank %d gives away must add up to "
            "1. All rows do: if a row should be who gives, transpose it",
            s->file, s->which, column, sum_column(s, column), column);
    const double row_total = sum_row(s, row), column_total = sum_column(s, row);
    const bool missing = fabs(row_total) <= 0 && fabs(column_total) <= 0;
    const bool rounded = fabs(row_total - 1) < 1e-3;
    return taciti_fail(TACIT_E_CONFIG, "%s, matrix %zu: row %d sums to %.12g, expected 1%s", s->file, s->which, row,
                       row_total,
                       missing   ? ": this rank is missing; an idle rank has 1 on the diagonal"
                       : rounded ? ", within 1e-9; write more digits, or save it as float64"
                                 : "");
}

/* Whether the matrix is stochastic in its columns alone. */
static tacit_status check_matrix(const scene *s, bool *directed) {
    bool rows = true, columns = true;
    for (int row = 0; row < s->n; row++)
        for (int column = 0; column < s->n; column++) {
            const double w = s->w[(size_t)row * (size_t)s->n + (size_t)column];
            if (w < 0)
                return taciti_fail(TACIT_E_CONFIG, "%s, matrix %zu: row %d, column %d is %.12g, expected 0 or more",
                                   s->file, s->which, row, column, w);
        }
    for (int i = 0; i < s->n; i++) {
        rows = rows && is_one(sum_row(s, i));
        columns = columns && is_one(sum_column(s, i));
    }
    *directed = !rows;
    return columns ? TACIT_OK : refuse_sums(s);
}

static tacit_status add_matrix(const scene *s, taciti_draft *draft) {
    bool directed = false;
    TACITI_TRY(check_matrix(s, &directed));
    draft->directed = draft->directed || directed;
    for (int to = 0; to < s->n; to++) {
        const double *row = s->w + (size_t)to * (size_t)s->n;
        for (int from = 0; from < s->n; from++)
            if (from != to && row[from] > 0) taciti_draft_edge(draft, to, from, row[from]);
        taciti_draft_self(draft, to, row[to]);
    }
    taciti_draft_close(draft);
    return TACIT_OK;
}

tacit_status taciti_family_file(const taciti_topo_request *request, taciti_draft *draft) {
    char *bytes = NULL;
    size_t count = 0;
    reader r = {.file = request->file, .ranks = request->ranks};
    if (request->file == NULL || request->file[0] == '\0')
        return taciti_fail(
            TACIT_E_CONFIG,
            "topology file: no file was named; gossip.file (--file of tacit info) names a .csv file with a "
            "matrix of %d x %d",
            request->ranks, request->ranks);
    TACITI_TRY(taciti_file_read(request->file, FILE_BYTES_MAX, &bytes, &count));
    tacit_status status = parse_matrices(&r, bytes, count);
    taciti_free(bytes);
    const size_t n = (size_t)request->ranks;
    for (size_t m = 0; m < r.rows / n && status == TACIT_OK; m++) {
        const scene s = {.file = request->file, .which = m, .n = request->ranks, .w = r.values + m * n * n};
        status = add_matrix(&s, draft);
    }
    taciti_free(r.values);
    return status;
}
