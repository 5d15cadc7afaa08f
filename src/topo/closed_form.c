/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/closed_form.h"

#include <math.h>
#include <string.h>

#include "topo/family.h"

#define TURN 6.28318530717958647692

/* A graph of n ranks: exponential ones have that many rounds, a torus has columns. */
typedef struct graph {
    int n, rounds, columns;
} graph;

static double ring_value(const graph *g, int k) { return fabs(1 + 2 * cos(TURN * k / g->n)) / 3; }

static double exp_static_value(const graph *g, int k) {
    double real = 1, imaginary = 0;
    for (int r = 0; r < g->rounds; r++) {
        const double angle = TURN * (double)((int64_t)k * (1 << r) % g->n) / g->n;
        real += cos(angle);
        imaginary += sin(angle);
    }
    /* Not hypot(): that of newer C libraries keeps packages from older systems. */
    return sqrt(real * real + imaginary * imaginary) / (g->rounds + 1);
}

static double exp_directed_value(const graph *g, int k) {
    double product = 1;
    for (int r = 0; r < g->rounds; r++) product *= fabs(cos(TURN / 2 * (double)((int64_t)k * (1 << r) % g->n) / g->n));
    return product;
}

static double torus_value(const graph *g, int k) {
    const double a = TURN * (k / g->columns) * g->columns / g->n, b = TURN * (k % g->columns) / g->columns;
    return fabs(1 + 2 * cos(a) + 2 * cos(b)) / 5;
}

/* Position 0 has the neighbours 1, columns - 1, columns and N - columns; 0: some coincide. */
static int columns_of(const taciti_topology *t) {
    const taciti_round *r = &t->rounds[0];
    int neighbours[4], count = 0;
    for (size_t e = 0; e < r->edge_count; e++)
        if (t->position[r->edges[e].to] == 0 && count < 4) neighbours[count++] = t->position[r->edges[e].from];
    for (int i = 0; i < count && count == 4; i++) {
        bool before = false;
        for (int k = 0; k < count; k++) before = before || neighbours[k] == neighbours[i] - 1;
        const int columns = neighbours[i];
        if (before && columns >= 3 && t->ranks % columns == 0 && t->ranks / columns >= 3) return columns;
    }
    return 0;
}

bool taciti_closed_contraction(const taciti_topology *topology, double *out) {
    static const struct {
        const char *name;
        double (*value)(const graph *g, int k); /* k-th singular value */
    } GRAPHS[] = {{"ring", ring_value},
                  {"exp-static", exp_static_value},
                  {"exp-directed", exp_directed_value},
                  {"torus", torus_value}};
    const char *name = topology->name;
    const int n = topology->ranks;
    if (n < 4) return false;
    graph g = {.n = n, .rounds = taciti_log2_ceil(n)};
    if (strcmp(name, "torus") == 0 && (g.columns = columns_of(topology)) == 0) return false;
    *out = strcmp(name, "one-peer-ring") == 0 && n % 2 == 0 ? cos(TURN / n) : 0;
    for (size_t i = 0; i < sizeof GRAPHS / sizeof *GRAPHS; i++)
        for (int k = 1; k < n && strcmp(GRAPHS[i].name, name) == 0; k++) *out = fmax(*out, GRAPHS[i].value(&g, k));
    return *out > 0;
}
