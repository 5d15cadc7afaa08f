/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/closed_form.h"

#include <math.h>
#include <string.h>

#include "topo/family.h"

#define TURN 6.28318530717958647692

static double ring(const taciti_topology *t) {
    double max = 0;
    for (int k = 1; k < t->ranks; k++) max = fmax(max, fabs(1 + 2 * cos(TURN * k / t->ranks)) / 3);
    return max;
}

static double exp_static(const taciti_topology *t) {
    const int rounds = taciti_log2_ceil(t->ranks);
    double max = 0;
    for (int k = 1; k < t->ranks; k++) {
        double real = 1, imaginary = 0;
        for (int r = 0; r < rounds; r++) {
            const double angle = TURN * (double)((int64_t)k * (1 << r) % t->ranks) / t->ranks;
            real += cos(angle);
            imaginary += sin(angle);
        }
        max = fmax(max, hypot(real, imaginary) / (rounds + 1));
    }
    return max;
}

static double exp_directed(const taciti_topology *t) {
    const int rounds = taciti_log2_ceil(t->ranks);
    double max = 0;
    for (int k = 1; k < t->ranks; k++) {
        double product = 1;
        for (int r = 0; r < rounds; r++)
            product *= fabs(cos(TURN / 2 * (double)((int64_t)k * (1 << r) % t->ranks) / t->ranks));
        max = fmax(max, product);
    }
    return max;
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

static bool torus(const taciti_topology *t, double *out) {
    const int columns = columns_of(t);
    *out = 0;
    for (int k = 1; k < t->ranks && columns > 0; k++) {
        const double a = TURN * (k / columns) * columns / t->ranks, b = TURN * (k % columns) / columns;
        *out = fmax(*out, fabs(1 + 2 * cos(a) + 2 * cos(b)) / 5);
    }
    return columns > 0;
}

bool taciti_closed_contraction(const taciti_topology *topology, double *out) {
    const char *name = topology->name;
    const int n = topology->ranks;
    if (n < 4) return false;
    if (strcmp(name, "torus") == 0) return torus(topology, out);
    if (strcmp(name, "ring") == 0)
        *out = ring(topology);
    else if (strcmp(name, "one-peer-ring") == 0 && n % 2 == 0)
        *out = cos(TURN / n);
    else if (strcmp(name, "exp-static") == 0)
        *out = exp_static(topology);
    else if (strcmp(name, "exp-directed") == 0)
        *out = exp_directed(topology);
    else
        return false;
    return true;
}
