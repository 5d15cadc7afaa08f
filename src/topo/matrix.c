/* SPDX-License-Identifier: Apache-2.0
 *
 * Topology `file`: matrices of the user's, row = who receives. Doubly stochastic within 1e-9, then they are used as
 * they are; or with columns alone that sum to 1, then the topology is directed and needs push-sum. Nothing is rescaled.
 */
#include "topo/matrix.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "topo/family.h"

static const char NPY_MARK[] = "\x93NUMPY";
enum { FILE_BYTES_MAX = 1 << 29 };

/* One matrix of the file. */
typedef struct scene {
    const char *file;
    size_t which;
    int n;
    const double *w;
} scene;

static double row_sum(const scene *s, int row) {
    double sum = 0;
    for (int k = 0; k < s->n; k++) sum += s->w[(size_t)row * (size_t)s->n + (size_t)k];
    return sum;
}

static double column_sum(const scene *s, int column) {
    double sum = 0;
    for (int k = 0; k < s->n; k++) sum += s->w[(size_t)k * (size_t)s->n + (size_t)column];
    return sum;
}

static bool is_one(double sum) { return fabs(sum - 1) <= TACITI_TOPO_TOLERANCE; }

/* A matrix with a column that does not sum to 1: the rows are looked at first, for most matrices are symmetric and
 * people think in rows. */
static tacit_status refuse_sums(const scene *s) {
    int row = 0, column = 0;
    while (row < s->n && is_one(row_sum(s, row))) row++;
    while (is_one(column_sum(s, column))) column++;
    if (row == s->n)
        return taciti_fail(
            TACIT_E_CONFIG,
            "%s, matrix %zu: column %d sums to %.12g, expected 1: what rank %d gives away must add up to "
            "1. All rows do: if a row should be who gives, transpose it",
            s->file, s->which, column, column_sum(s, column), column);
    const double row_total = row_sum(s, row), column_total = column_sum(s, row);
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
        rows = rows && is_one(row_sum(s, i));
        columns = columns && is_one(column_sum(s, i));
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

tacit_status taciti_family_file(const taciti_topo_request *request, const taciti_host_positions *hosts,
                                taciti_draft *draft) {
    (void)hosts;
    char *bytes = NULL;
    size_t count = 0;
    taciti_matrices a = {0};
    if (request->file == NULL || request->file[0] == '\0')
        return taciti_fail(TACIT_E_CONFIG,
                           "topology file: no file was named; give a .csv or .npy file with a matrix of "
                           "%d x %d",
                           request->ranks, request->ranks);
    TACITI_TRY(taciti_file_read(request->file, FILE_BYTES_MAX, &bytes, &count));
    const bool npy = count >= sizeof NPY_MARK - 1 && memcmp(bytes, NPY_MARK, sizeof NPY_MARK - 1) == 0;
    tacit_status status =
        npy ? taciti_matrices_parse_npy(request->file, (const unsigned char *)bytes, count, request->ranks, &a)
            : taciti_matrices_parse_csv(request->file, bytes, count, request->ranks, &a);
    taciti_free(bytes);
    for (size_t m = 0; m < a.count && status == TACIT_OK; m++) {
        const size_t n = (size_t)a.ranks;
        const scene s = {.file = request->file, .which = m, .n = a.ranks, .w = a.values + m * n * n};
        status = add_matrix(&s, draft);
    }
    taciti_free(a.values);
    return status;
}
