/* SPDX-License-Identifier: Apache-2.0
 *
 * How well a topology mixes. Eigenvalues on the Krylov space of a random start (eigen.h). With no more ranks than
 * STEPS_MAX it is the whole of what the start vector meets, and the result is right to rounding; beyond, a value is
 * approached from inside the spectrum (a ring of 1024: contraction right to 1e-6).
 *
 * A directed topology is measured as push-sum sees it: P is the product of one period, pi its stationary vector, and
 * the second singular value that of pi^(-1/2) P pi^(1/2), whose first is 1. For a doubly stochastic one that is P
 * itself.
 */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "topo/closed_form.h"
#include "topo/draft.h"
#include "topo/eigen.h"
#include "topo/topo.h"

enum { STEPS_MAX = 256, STATIONARY_MAX = 20000, QUICK_STEPS = 64 };

/* ---- extreme eigenvalues of a symmetric operator ----------------------------------------------------------------- */

typedef struct operator_ {
    const taciti_topology *topology;
    size_t round;
    const double *root; /* [ranks] root of the stationary vector */
    double *scratch;    /* [2][ranks] */
} operator_;

/* y -= (b . y) b, for a b of length 1 */
static void remove_part(double *y, const double *b, size_t n) {
    const double part = taciti_dot_product(b, y, n);
    for (size_t i = 0; i < n; i++) y[i] -= part * b[i];
}

typedef void apply_function(const void *self, const double *x, double *out);

/* Extreme eigenvalue on the complement of `without` (a vector of length 1, or NULL). */
static tacit_status find_extreme(const operator_ *op, apply_function *apply, size_t steps_max, const double *without,
                                 bool largest, double *out) {
    const size_t n = (size_t)op->topology->ranks;
    const taciti_linear a = {.apply = apply, .context = op, .n = n, .steps = n < steps_max ? n : steps_max};
    double *start = taciti_calloc(n + 2 * a.steps, sizeof *start), *re = start + n;
    tacit_status status = TACIT_OK;
    size_t count = 1; /* with a start of length 0 the only eigenvalue is 0 */
    if (start == NULL) return TACIT_E_MEMORY;
    for (size_t i = 0; i < n; i++) start[i] = taciti_rng_unit(taciti_rng_key(0, 'f'), i) - 0.5;
    if (without != NULL) remove_part(start, without, n);
    if (taciti_dot_product(start, start, n) > 0) status = taciti_eigenvalues(&a, start, re, re + a.steps, &count);
    double extreme = re[0];
    for (size_t i = 1; i < count; i++) extreme = largest ? fmax(extreme, re[i]) : fmin(extreme, re[i]);
    if (status == TACIT_OK) *out = extreme;
    taciti_free(start);
    return status;
}

/* ---- our operators ----------------------------------------------------------------------------------------------- */

static void mix_transposed(const taciti_topology *t, size_t round, const double *x, double *out) {
    const taciti_round *r = &t->rounds[round];
    if (r->self == NULL) { /* symmetric */
        taciti_topology_mix(t, round, x, out);
        return;
    }
    for (int i = 0; i < t->ranks; i++) out[i] = r->self[i] * x[i];
    for (size_t e = 0; e < r->edge_count; e++) out[r->edges[e].from] += r->edges[e].weight * x[r->edges[e].to];
}

/* One period, forwards or as its transpose, in place. */
static void mix_period(const taciti_topology *t, bool transposed, double *x, double *scratch) {
    const size_t bytes = (size_t)t->ranks * sizeof *x;
    for (size_t r = 0; r < t->period; r++) {
        if (transposed)
            mix_transposed(t, t->period - 1 - r, x, scratch);
        else
            taciti_topology_mix(t, r, x, scratch);
        memcpy(x, scratch, bytes);
    }
}

/* out = B' B x with B = pi^(-1/2) P pi^(1/2) less its first singular pair, which is `root` on both sides. */
static void apply_period(const void *self, const double *x, double *out) {
    const operator_ *op = self;
    const size_t n = (size_t)op->topology->ranks;
    for (size_t i = 0; i < n; i++) out[i] = x[i];
    remove_part(out, op->root, n);
    for (size_t i = 0; i < n; i++) out[i] *= op->root[i];
    mix_period(op->topology, false, out, op->scratch);
    for (size_t i = 0; i < n; i++) out[i] /= op->root[i];
    remove_part(out, op->root, n);
    for (size_t i = 0; i < n; i++) out[i] /= op->root[i];
    mix_period(op->topology, true, out, op->scratch);
    for (size_t i = 0; i < n; i++) out[i] *= op->root[i];
    remove_part(out, op->root, n);
}

/* The symmetric part of one round. */
static void apply_symmetric(const void *self, const double *x, double *out) {
    const operator_ *op = self;
    taciti_topology_mix(op->topology, op->round, x, out);
    mix_transposed(op->topology, op->round, x, op->scratch);
    for (int i = 0; i < op->topology->ranks; i++) out[i] = 0.5 * (out[i] + op->scratch[i]);
}

/* ---- the figures ------------------------------------------------------------------------------------------------- */

/* root[i] = root of pi_i; whether all of it is above 0 and was found. Damped, so that cyclic products converge too. */
static bool stationary_root(const taciti_topology *t, double *root, double *scratch) {
    const size_t n = (size_t)t->ranks;
    double *moved = scratch + n, change = t->directed ? 1 : 0;
    for (size_t i = 0; i < n; i++) root[i] = 1.0 / (double)n;
    for (int step = 0; step < STATIONARY_MAX && change > 1e-15; step++) {
        memcpy(moved, root, n * sizeof *moved);
        mix_period(t, false, moved, scratch);
        change = 0;
        for (size_t i = 0; i < n; i++) {
            change += fabs(moved[i] - root[i]);
            root[i] = 0.5 * (moved[i] + root[i]);
        }
    }
    bool good = change <= 1e-12;
    for (size_t i = 0; i < n; i++) {
        good = good && root[i] > 1e-12 / (double)n;
        root[i] = sqrt(root[i]);
    }
    return good;
}

static tacit_status find_contraction(const taciti_topology *t, size_t steps, double *block, double *out) {
    double square = 0;
    const operator_ op = {.topology = t, .root = block, .scratch = block + t->ranks};
    *out = 1;
    if (!stationary_root(t, block, block + t->ranks)) return TACIT_OK; /* the product leaves some out */
    TACITI_TRY(find_extreme(&op, apply_period, steps, op.root, true, &square));
    *out = fmin(1, sqrt(fmax(0, square)));
    return TACIT_OK;
}

static tacit_status find_min(const taciti_topology *t, double *block, double *out) {
    double min = 1;
    for (size_t r = 0; r < t->period; r++) {
        double value = t->rounds[r].groups > 0 ? 0 : 1; /* means are projections; idle ranks keep all */
        const operator_ op = {.topology = t, .round = r, .scratch = block};
        if (t->rounds[r].edge_count > 0) TACITI_TRY(find_extreme(&op, apply_symmetric, STEPS_MAX, NULL, false, &value));
        min = fmin(min, value);
    }
    *out = fabs(min) < 1e-14 ? 0 : min;
    return TACIT_OK;
}

/* Mixes a random vector for two periods: a step that takes the disagreement from well above rounding to rounding is
 * exact. */
static size_t find_exact(const taciti_topology *t, double *block) {
    const size_t n = (size_t)t->ranks;
    double *x = block, *w = block + n, *y = block + 2 * n, mean = 0, before = 1;
    for (size_t i = 0; i < n; i++) mean += (x[i] = taciti_rng_unit(taciti_rng_key(0, 'e'), i)) / (double)n;
    for (size_t i = 0; i < n; i++) w[i] = 1;
    for (size_t r = 0; r < 2 * t->period; r++) {
        taciti_topology_mix(t, r % t->period, x, y);
        memcpy(x, y, n * sizeof *x);
        taciti_topology_mix(t, r % t->period, w, y);
        memcpy(w, y, n * sizeof *w);
        double now = 0; /* largest difference of x / w from the mean */
        for (size_t i = 0; i < n; i++) now = fmax(now, fabs(w[i] > 0 ? x[i] / w[i] - mean : 1));
        if (now <= 1e-13) return before >= 1e-9 ? r + 1 : 0;
        before = now;
    }
    return 0;
}

static size_t max_partners(const taciti_topology *t, double *block) {
    size_t max = 0;
    for (size_t r = 0; r < t->period; r++) {
        const taciti_round *round = &t->rounds[r];
        double *out = block, *in = block + t->ranks;
        memset(block, 0, (size_t)t->ranks * 2 * sizeof *block);
        for (size_t g = 0; g < round->groups; g++) {
            const size_t partners = round->first[g + 1] - round->first[g] - 1;
            if (partners > max) max = partners;
        }
        for (size_t e = 0; e < round->edge_count; e++) {
            const double busiest = fmax(++out[round->edges[e].from], ++in[round->edges[e].to]);
            if ((size_t)busiest > max) max = (size_t)busiest;
        }
    }
    return max;
}

tacit_status taciti_topology_figures(const taciti_topology *topology, taciti_topo_figures *out) {
    if (topology->ranks > TACITI_TOPO_FIGURES_MAX)
        return taciti_fail(TACIT_E_UNSUPPORTED, "%s: figures of %d ranks; they are computed for up to %d",
                           topology->name, topology->ranks, TACITI_TOPO_FIGURES_MAX);
    double *block = taciti_calloc((size_t)topology->ranks, 3 * sizeof *block);
    if (block == NULL) return TACIT_E_MEMORY;
    taciti_topo_figures f = {.exact_after = find_exact(topology, block), .max_partners = max_partners(topology, block)};
    tacit_status status = find_min(topology, block, &f.min_eigenvalue);
    if (status == TACIT_OK && (f.exact_after == 0 || f.exact_after > topology->period))
        status = find_contraction(topology, STEPS_MAX, block, &f.contraction);
    f.spectral_gap = 1 - pow(f.contraction, 1 / (double)topology->period);
    taciti_free(block);
    if (status == TACIT_OK) *out = f;
    return status;
}

tacit_status taciti_topology_mixing(const taciti_topology *topology, double *gap, size_t *exact_after) {
    const size_t steps = topology->ranks > STEPS_MAX ? QUICK_STEPS : STEPS_MAX;
    double *block = taciti_calloc((size_t)topology->ranks, 3 * sizeof *block), contraction = 0;
    if (block == NULL) return TACIT_E_MEMORY;
    tacit_status status = TACIT_OK;
    *exact_after = find_exact(topology, block);
    if ((*exact_after == 0 || *exact_after > topology->period) && !taciti_closed_contraction(topology, &contraction))
        status = find_contraction(topology, steps, block, &contraction);
    *gap = 1 - pow(contraction, 1 / (double)topology->period);
    taciti_free(block);
    return status;
}
