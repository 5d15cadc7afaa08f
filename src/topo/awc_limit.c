/* SPDX-License-Identifier: Apache-2.0
 *
 * The step size that awc bears. Where all ranks share the Hessian, each of its eigenvalues h is a problem of its own,
 * and with s = lr h a step is x <- (V_t - s I) x, V_t the mix of the step. A period of steps is stable when
 * the spectral radius of its product is below 1; the limit is the first s above 0 at which it is not.
 *
 *   delayed   x(t+1) = (1 - s) x(t) + (W' - I) x(t-1): the same with vectors of twice the length
 *   directed  push-sum evaluates the gradient at z = x / w: x <- V_t x - s x / w(t), with the weights w(t) that repeat
 *             with the period
 *
 * The consensus mode has (1 - s), so 2 is the upper bound; where rows sum to 1 too it is a mode of its own and is left
 * out. A lower bound saves most of the search: the 2-norm of V - s I is at most the root of its 1- and its infinity
 * norm, both max_i (|V_ii - s| + 1 - V_ii) for a doubly stochastic V: no more than 1 up to s = 2 min_i V_ii. A mean has
 * eigenvalues 0 and 1 alone, so its bound is 1. With one step per period the eigenvalues l of V give the limit
 * outright: the smallest Re l + sqrt(1 - (Im l)^2). Else s goes up in steps of GRID until the radius is above 1, and
 * the crossing is closed in on. Between two points of the grid the radius could in principle rise above 1 and fall
 * again; for the families of the list it does not (all numbers of ranks up to 17, steps of 1/200).
 */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "topo/draft.h"
#include "topo/eigen.h"
#include "topo/topo.h"

#define FIRST 1e-7      /* where the search begins, as a distance from the lower bound */
#define GRID (1.0 / 32) /* its largest stride; from FIRST on strides double */
#define ABOVE 1e-12     /* a radius is above 1 by more than rounding */
#define CLOSE 1e-8      /* the crossing is known this well */
enum { STATIONARY_MAX = 20000 };

typedef struct scene {
    const taciti_topology *topology;
    taciti_topo_awc how;
    size_t steps;          /* of a period */
    size_t n;              /* length of the vectors of a step: ranks, or twice that */
    bool whole;            /* with the consensus mode */
    double s;              /* lr h */
    const double *inverse; /* [steps][ranks] 1 / w(t), or NULL: 1 */
    double *start;         /* [n] */
    double *scratch;       /* [2][ranks] */
    double *re, *im;       /* [n] */
} scene;

/* x <- W' x with the weights of mix number `mix`. */
static void mix_once(const scene *c, size_t number, double *x) {
    const taciti_topology *t = c->topology;
    taciti_topology_mix(t, number % t->period, x, c->scratch);
    for (int i = 0; i < t->ranks; i++) x[i] += c->how.gamma * (c->scratch[i] - x[i]);
}

static void step_plain(const scene *c, size_t t, double *x) {
    const size_t ranks = (size_t)c->topology->ranks;
    double *before = c->scratch + ranks;
    memcpy(before, x, ranks * sizeof *x);
    mix_once(c, t, x);
    for (size_t i = 0; i < ranks; i++) x[i] -= c->s * before[i] * (c->inverse != NULL ? c->inverse[t * ranks + i] : 1);
}

/* x is (x(t), x(t-1)). */
static void step_delayed(const scene *c, size_t t, double *x) {
    const size_t ranks = (size_t)c->topology->ranks;
    double *late = x + ranks, *before = c->scratch + ranks;
    memcpy(before, late, ranks * sizeof *x);
    mix_once(c, t, late);
    for (size_t i = 0; i < ranks; i++) {
        const double now = x[i];
        x[i] += late[i] - before[i] - c->s * now;
        late[i] = now;
    }
}

static void leave_consensus(const scene *c, double *x) {
    const size_t ranks = (size_t)c->topology->ranks;
    for (size_t at = 0; at < c->n && !c->whole; at += ranks) {
        double mean = 0;
        for (size_t i = at; i < at + ranks; i++) mean += x[i] / (double)ranks;
        for (size_t i = at; i < at + ranks; i++) x[i] -= mean;
    }
}

static void apply_period(const void *context, const double *x, double *out) {
    const scene *c = context;
    memcpy(out, x, c->n * sizeof *x);
    for (size_t t = 0; t < c->steps; t++)
        if (c->how.delayed)
            step_delayed(c, t, out);
        else
            step_plain(c, t, out);
    leave_consensus(c, out);
}

/* Sets *out to the spectral radius of a period at step size s. */
static tacit_status find_radius(scene *c, double s, double *out) {
    const taciti_linear a = {.apply = apply_period, .context = c, .n = c->n, .steps = c->n};
    size_t count = 0;
    c->s = s;
    TACITI_TRY(taciti_eigenvalues(&a, c->start, c->re, c->im, &count));
    *out = 0;
    for (size_t i = 0; i < count; i++) *out = fmax(*out, sqrt(c->re[i] * c->re[i] + c->im[i] * c->im[i]));
    return TACIT_OK;
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

/* One step's product alone. The consensus mode stays in: its eigenvalue is 1, which asks for no more than s < 2, while
 * a mode that is taken out comes back by rounding, as a 0. */
static tacit_status limit_of_one_step(scene *c, double *out) {
    const taciti_linear a = {.apply = apply_period, .context = c, .n = c->n, .steps = c->n};
    size_t count = 0;
    c->whole = true;
    TACITI_TRY(taciti_eigenvalues(&a, c->start, c->re, c->im, &count));
    *out = 2;
    for (size_t i = 0; i < count; i++)
        if (fabs(c->im[i]) <= 1) *out = fmin(*out, c->re[i] + sqrt(1 - c->im[i] * c->im[i]));
    *out = fmax(*out, 0);
    return TACIT_OK;
}

static double lower_bound(const scene *c) {
    const taciti_topology *t = c->topology;
    double min = 1; /* of what a rank keeps of its own in a mix */
    bool means = true;
    if (c->how.delayed || t->directed) return 0;
    for (size_t r = 0; r < t->period; r++) {
        means = means && t->rounds[r].self == NULL;
        for (int i = 0; i < t->ranks; i++) min = fmin(min, taciti_topology_weight(t, r, i, i));
    }
    return means ? 2 - c->how.gamma : 2 * (1 - c->how.gamma * (1 - fmax(min, 0)));
}

/* Between low, where the radius is no more than 1, and high, where it is above: regula falsi on the radius per step,
 * every other time the middle. */
static tacit_status close_in(scene *c, double low, double high, double *out) {
    double below = 0, above = 0, radius = 0;
    TACITI_TRY(find_radius(c, low, &radius));
    below = pow(radius, 1 / (double)c->steps) - 1;
    TACITI_TRY(find_radius(c, high, &radius));
    above = pow(radius, 1 / (double)c->steps) - 1;
    for (int turn = 0; high - low > CLOSE * high; turn++) {
        const double share = turn % 2 == 0 ? fmin(fmax(below / (below - above), 0.001), 0.999) : 0.5;
        const double s = low + share * (high - low);
        TACITI_TRY(find_radius(c, s, &radius));
        const double value = pow(radius, 1 / (double)c->steps) - 1;
        if (radius > 1 + ABOVE) {
            high = s;
            above = value;
        } else {
            low = s;
            below = value;
        }
    }
    *out = low;
    return TACIT_OK;
}

static tacit_status search_limit(scene *c, double *out) {
    const double bound = lower_bound(c);
    double low = bound;
    for (double stride = FIRST; low < 2; stride = fmin(2 * stride, GRID)) {
        const double s = fmin(low + stride, 2);
        double radius = 0;
        TACITI_TRY(find_radius(c, s, &radius));
        if (radius > 1 + ABOVE && low <= bound) {
            *out = bound;
            return TACIT_OK;
        }
        if (radius > 1 + ABOVE) return close_in(c, low, s, out);
        low = s;
    }
    *out = 2;
    return TACIT_OK;
}

/* ---- push-sum ---------------------------------------------------------------------------------------------------- */

/* The weights at the beginning of a period, which the period maps on themselves; damped, so that slow cycles fade. */
static tacit_status find_weights(const scene *c, double *w) {
    const size_t ranks = (size_t)c->topology->ranks;
    double change = 1, *moved = taciti_calloc(ranks, sizeof *moved);
    if (moved == NULL) return TACIT_E_MEMORY;
    for (size_t i = 0; i < ranks; i++) w[i] = 1;
    for (int turn = 0; turn < STATIONARY_MAX && change > 1e-14; turn++) {
        memcpy(moved, w, ranks * sizeof *w);
        for (size_t k = 0; k < c->steps; k++) mix_once(c, k, moved);
        change = 0;
        for (size_t i = 0; i < ranks; i++) {
            change = fmax(change, fabs(moved[i] - w[i]));
            w[i] = (moved[i] + w[i]) / 2;
        }
    }
    taciti_free(moved);
    return TACIT_OK;
}

/* inverse[step][rank] = 1 / w(t). */
static tacit_status weigh_steps(const scene *c, double *inverse) {
    const size_t ranks = (size_t)c->topology->ranks;
    TACITI_TRY(find_weights(c, inverse));
    for (size_t t = 0; t < c->steps; t++) {
        double *w = inverse + t * ranks, *next = w + ranks;
        memcpy(next, w, ranks * sizeof *w);
        mix_once(c, t, next);
        for (size_t i = 0; i < ranks; i++) w[i] = 1 / w[i];
    }
    return TACIT_OK;
}

/* ---- all together ------------------------------------------------------------------------------------------------ */

static tacit_status find_limit(scene *c, double *block, double *out) {
    c->start = block;
    c->re = c->start + c->n;
    c->im = c->re + c->n;
    c->scratch = c->im + c->n;
    for (size_t i = 0; i < c->n; i++) c->start[i] = taciti_rng_unit(taciti_rng_key(0, 'l'), i) - 0.5;
    leave_consensus(c, c->start);
    if (!c->topology->directed)
        return c->steps == 1 && !c->how.delayed ? limit_of_one_step(c, out) : search_limit(c, out);
    double *inverse = taciti_calloc((c->steps + 1) * c->n, sizeof *inverse);
    tacit_status status = inverse == NULL ? TACIT_E_MEMORY : weigh_steps(c, inverse);
    c->inverse = inverse;
    if (status == TACIT_OK) status = search_limit(c, out);
    taciti_free(inverse);
    return status;
}

tacit_status taciti_topology_awc_limit(const taciti_topology *topology, const taciti_topo_awc *how, double *out) {
    scene c = {.topology = topology, .how = *how, .steps = topology->period, .whole = topology->directed};
    c.n = (size_t)topology->ranks * (how->delayed ? 2 : 1);
    double limit = 2;
    if (c.n > TACITI_TOPO_LIMIT_MAX)
        return taciti_fail(TACIT_E_UNSUPPORTED,
                           "%s: the step size that awc bears on %d ranks; it is computed for up to %d (half as many "
                           "with gossip.delay 1)",
                           topology->name, topology->ranks, TACITI_TOPO_LIMIT_MAX);
    double *block = taciti_calloc(5 * c.n, sizeof *block);
    if (block == NULL) return TACIT_E_MEMORY;
    const tacit_status status = topology->ranks > 1 ? find_limit(&c, block, &limit) : TACIT_OK;
    taciti_free(block);
    if (status == TACIT_OK) *out = limit;
    return status;
}
