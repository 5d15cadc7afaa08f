/* SPDX-License-Identifier: Apache-2.0
 *
 * Arnoldi's method with full reorthogonalisation reduces the operator to a Hessenberg matrix, and Francis' implicit
 * double-shift QR iteration finds the eigenvalues of that one (Golub & Van Loan, Matrix Computations, 4th edition,
 * algorithm 10.5.1 and section 7.5). O(n steps^2 + steps^3) operations.
 */
#include "topo/eigen.h"

#include <math.h>

#include "base/log.h"
#include "base/memory.h"

enum { SWEEPS_MAX = 300, EXCEPTIONAL = 10 };
static const double ROUNDING = 0x1p-52;

/* A square matrix, row after row. */
typedef struct matrix {
    double *at;
    size_t n;
} matrix;

static double *entry_at(const matrix *h, size_t row, size_t column) { return h->at + row * h->n + column; }

/* ---- Arnoldi ----------------------------------------------------------------------------------------------------- */

double taciti_dot_product(const double *a, const double *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* Fills h (zero before) and returns its size: below `steps` when the space is exhausted. v has steps + 1 rows. */
static size_t reduce_operator(const taciti_linear *a, const double *start, double *v, const matrix *h) {
    const size_t n = a->n;
    const double length = sqrt(taciti_dot_product(start, start, n));
    double scale = 1;
    for (size_t i = 0; i < n; i++) v[i] = start[i] / length;
    for (size_t m = 0; m < a->steps; m++) {
        double *next = v + (m + 1) * n;
        a->apply(a->context, v + m * n, next);
        scale = fmax(scale, sqrt(taciti_dot_product(next, next, n)));
        for (size_t i = 0; i < 2 * (m + 1); i++) { /* twice: takes the parts along the rows of v away, which h keeps */
            const double *b = v + i % (m + 1) * n, part = taciti_dot_product(b, next, n);
            for (size_t k = 0; k < n; k++) next[k] -= part * b[k];
            *entry_at(h, i % (m + 1), m) += part;
        }
        const double rest = sqrt(taciti_dot_product(next, next, n));
        if (m + 1 == a->steps || rest <= 16 * ROUNDING * scale) return m + 1;
        for (size_t i = 0; i < n; i++) next[i] /= rest;
        *entry_at(h, m + 1, m) = rest;
    }
    return a->steps;
}

/* ---- QR ---------------------------------------------------------------------------------------------------------- */

/* Turns x into v, and returns b such that (I - b v v') x is a multiple of the first unit vector. */
static double make_reflection(double *x, size_t count) {
    double max = 0, square = 0;
    for (size_t i = 0; i < count; i++) max = fmax(max, fabs(x[i]));
    if (!(max > 0)) return 0;
    for (size_t i = 0; i < count; i++) x[i] /= max;
    for (size_t i = 0; i < count; i++) square += x[i] * x[i];
    const double length = sqrt(square), b = 1 / (square + fabs(x[0]) * length);
    x[0] += copysign(length, x[0]);
    return b;
}

/* H <- Q H Q on rows and columns k .. k + count - 1 of the active block first .. last, Q = I - b v v'. */
static void reflect_block(const matrix *h, size_t first, size_t last, size_t k, const double *v, size_t count,
                          double b) {
    const size_t left = k > first ? k - 1 : first, below = k + 3 < last ? k + 3 : last;
    for (size_t column = left; column <= last; column++) {
        double sum = 0;
        for (size_t i = 0; i < count; i++) sum += v[i] * *entry_at(h, k + i, column);
        for (size_t i = 0; i < count; i++) *entry_at(h, k + i, column) -= b * sum * v[i];
    }
    for (size_t row = first; row <= below; row++) {
        double sum = 0, *at = entry_at(h, row, k);
        for (size_t i = 0; i < count; i++) sum += v[i] * at[i];
        for (size_t i = 0; i < count; i++) at[i] -= b * sum * v[i];
    }
}

/* The 2 x 2 matrix whose eigenvalues are the shifts: its diagonal, and the product of the two others. */
typedef struct shifts {
    double upper, lower, cross;
} shifts;

/* One double-shift sweep over the block first .. last of three rows or more. The vector it begins with is the first
 * column of (H - s1 I) (H - s2 I) divided by an entry below the diagonal; written with differences, as in EISPACK's
 * hqr, it stays right where the block is all but a multiple of I. */
static void sweep_block(const matrix *h, size_t first, size_t last, const shifts *s) {
    const double *top = entry_at(h, first, first), *second = entry_at(h, first + 1, first);
    const double upper = s->upper - top[0], lower = s->lower - top[0];
    double x[3] = {(upper * lower - s->cross) / second[0] + top[1], second[1] - top[0] - upper - lower,
                   *entry_at(h, first + 2, first + 1)};
    for (size_t k = first; k < last; k++) {
        const size_t count = last - k + 1 < 3 ? last - k + 1 : 3;
        for (size_t i = 0; i < count && k > first; i++) x[i] = *entry_at(h, k + i, k - 1);
        const double b = make_reflection(x, count);
        reflect_block(h, first, last, k, x, count, b);
        for (size_t i = 1; i < count && k > first; i++) *entry_at(h, k + i, k - 1) = 0;
    }
}

/* First row of the block that ends with `last`; what is `negligible` below the diagonal beside it becomes 0. */
static size_t block_start(const matrix *h, size_t last, double negligible) {
    for (size_t row = last; row > 0; row--) {
        double *below = entry_at(h, row, row - 1);
        if (fabs(*below) > negligible) continue;
        *below = 0;
        return row;
    }
    return 0;
}

/* Finds the eigenvalues of the 2 x 2 block that ends with `last`. */
static void solve_pair(const matrix *h, size_t last, double *re, double *im) {
    const double a = *entry_at(h, last - 1, last - 1), d = *entry_at(h, last, last);
    const double half = (a - d) / 2, inside = half * half + *entry_at(h, last - 1, last) * *entry_at(h, last, last - 1);
    const double root = sqrt(fabs(inside));
    for (int i = 0; i < 2; i++) {
        const double side = i == 0 ? root : -root;
        re[i] = (a + d) / 2 + (inside >= 0 ? side : 0);
        im[i] = inside >= 0 ? 0 : side;
    }
}

static void iterate_block(const matrix *h, size_t first, size_t last, int sweeps) {
    shifts s = {.upper = *entry_at(h, last - 1, last - 1),
                .lower = *entry_at(h, last, last),
                .cross = *entry_at(h, last - 1, last) * *entry_at(h, last, last - 1)};
    if (sweeps % EXCEPTIONAL == EXCEPTIONAL - 1) { /* out of a cycle */
        const double other = fabs(*entry_at(h, last, last - 1)) + fabs(*entry_at(h, last - 1, last - 2));
        s = (shifts){
            .upper = s.lower + 0.75 * other, .lower = s.lower + 0.75 * other, .cross = -0.4375 * other * other};
    }
    sweep_block(h, first, last, &s);
}

/* Finds the eigenvalues of the leading `count` rows and columns, from the last one up. An entry that is neglected is
 * small beside the whole matrix, not beside its neighbours: a product that is all but nilpotent converges too. */
static tacit_status solve_blocks(const matrix *h, size_t count, double *re, double *im) {
    const double negligible = (double)count * ROUNDING * fmax(1, sqrt(taciti_dot_product(h->at, h->at, h->n * h->n)));
    int sweeps = 0;
    for (size_t left = count; left > 0;) {
        const size_t last = left - 1, first = block_start(h, last, negligible), size = left - first;
        if (size > 2) {
            if (++sweeps > SWEEPS_MAX)
                return taciti_fail(TACIT_E_NUMERICS, "eigenvalues of a matrix of %zu rows did not converge", count);
            iterate_block(h, first, last, sweeps);
            continue;
        }
        if (size == 2) {
            solve_pair(h, last, re + last - 1, im + last - 1);
        } else {
            re[last] = *entry_at(h, last, last);
            im[last] = 0;
        }
        left = first;
        sweeps = 0;
    }
    return TACIT_OK;
}

tacit_status taciti_eigenvalues(const taciti_linear *a, const double *start, double *re, double *im, size_t *count) {
    const size_t basis = (a->steps + 1) * a->n;
    double *v = taciti_calloc(basis + a->steps * a->steps, sizeof *v);
    if (v == NULL) return TACIT_E_MEMORY;
    const matrix h = {.at = v + basis, .n = a->steps};
    const size_t found = reduce_operator(a, start, v, &h);
    const tacit_status status = solve_blocks(&h, found, re, im);
    taciti_free(v);
    if (status == TACIT_OK) *count = found;
    return status;
}
