/* SPDX-License-Identifier: Apache-2.0
 *
 * Who talks to whom, with which weight: pure mathematics on integers and doubles, no communication. A topology is data:
 * a period of rounds, each a mixing matrix W (to x from): y_to = sum over `from` of W[to][from] x_from.
 *
 * A round is one of two things:
 *
 *   groups   disjoint sets of ranks; every member takes the mean of its group. Pairs, hosts, the whole world
 *   edges    any other sparse matrix: the off-diagonal entries, and the diagonal in `self`
 *
 * A rank in no group (or alone in one, or with self 1 and no edges) is idle in that round and keeps what it has.
 *
 * Every matrix is doubly stochastic, but for `directed` topologies, whose matrices are only column-stochastic: mass is
 * conserved, the mean is that of push-sum (Assran et al., arXiv 1811.10792).
 */
#ifndef TACITI_TOPO_TOPO_H
#define TACITI_TOPO_TOPO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hosts.h"
#include "tacit/tacit.h"

/* rank `from` contributes `weight` of its value to rank `to`; from != to. */
typedef struct taciti_edge {
    int from, to;
    double weight;
} taciti_edge;

typedef struct taciti_round {
    /* group g is members[first[g]] .. members[first[g + 1] - 1], ascending; each has two or more ranks */
    const int *members;
    const size_t *first;
    size_t groups;
    /* when there are no groups (a round in which nobody speaks has none of either, and self 1): */
    const taciti_edge *edges; /* ascending by (to, from) */
    size_t edge_count;
    const double *self; /* [ranks]; NULL in a round of groups */
} taciti_round;

typedef struct taciti_topology {
    char name[32];
    int ranks;
    bool directed;        /* only column-stochastic: needs push-sum */
    taciti_round *rounds; /* owned: one block, with all that rounds and position point to */
    size_t period;        /* 1 or more; mix number t uses rounds[t % period] */
    const int *position;  /* [ranks] which place of the graph's definition a rank has taken */
} taciti_topology;

/* What is known before a topology exists. */
typedef struct taciti_topo_request {
    const char *name; /* of the list */
    int ranks;
    const taciti_hosts *hosts; /* of these ranks; borrowed for the call. NULL: all on one */
    int degree;                /* base-k: most partners per round; torus: columns. 0: the topology's default */
    int period;                /* random: rounds that are drawn. 0: default */
    uint64_t seed;             /* random */
    const char *file; /* file: a matrix, or several one after the other, .csv or .npy ([N][N] or [period][N][N]) */
} taciti_topo_request;

/* Positions are filled host by host, so that neighbours by number share a host; where that helps, heavy edges are moved
 * inside of hosts. Row i of a file is rank i. Every rank gets the same from the same request. Refuses with both values:
 * names that are not known, sizes that a topology cannot have, matrices that are not stochastic (which row or column,
 * its sum), a rank twice or missing, rounds under which ranks never agree. Returns owned. Any thread. */
tacit_status taciti_topology_create(const taciti_topo_request *request, taciti_topology *out);
void taciti_topology_destroy(taciti_topology *topology); /* {0} is fine */

/* The list, ending with a NULL name. */
typedef struct taciti_topo_kind {
    const char *name;    /* "exp" */
    const char *help;    /* one line */
    const char *source;  /* paper */
    const char *demands; /* on the number of ranks: "any", "any; needs several ranks per host to pay", ... */
} taciti_topo_kind;
const taciti_topo_kind *taciti_topo_kinds(void);

/* Everything a round of a topology must be; E_CONFIG names the first thing that is wrong, with both values. */
tacit_status taciti_topology_check(const taciti_topology *topology);

/* The members of this rank's group in a round of groups, ascending; count 1 (and *members NULL) when it is idle or the
 * round has edges. */
size_t taciti_topology_group(const taciti_topology *topology, size_t round, int rank, const int **members);

/* W[to][from] of that round, whatever its kind. */
double taciti_topology_weight(const taciti_topology *topology, size_t round, int to, int from);

/* out[ranks] = W x of that round. */
void taciti_topology_mix(const taciti_topology *topology, size_t round, const double *x, double *out);

enum { TACITI_TOPO_FIGURES_MAX = 2048 }; /* ranks */
typedef struct taciti_topo_figures {
    double contraction;  /* second singular value of the product of one period: disagreement after it, worst case. Of a
                            directed one: in the norm in which its stationary vector makes the first one 1 */
    double spectral_gap; /* 1 - contraction^(1 / period) */
    size_t exact_after;  /* rounds from round 0 on until everybody holds the mean; 0: never exactly */
    double min_eigenvalue; /* of any round's symmetric part */
    size_t max_partners;   /* of a rank in a round, that it hears or tells */
} taciti_topo_figures;
/* Right to rounding up to 256 ranks, approached beyond; a second or so for 1024 ranks; E_UNSUPPORTED above the most.
 * Any thread. */
tacit_status taciti_topology_figures(const taciti_topology *topology, taciti_topo_figures *out);

/* The spectral gap and `exact_after` alone, for any number of ranks, in a fraction of a second for 4096: exact graphs
 * by trying, circulant ones by their eigenvalues (closed_form.h), the others as above, with fewer steps beyond 256
 * ranks (the gap is then not below the true one). Any thread. */
tacit_status taciti_topology_mixing(const taciti_topology *topology, double *gap, size_t *exact_after);

/* How `gossip.order awc` uses a topology. */
typedef struct taciti_topo_awc {
    size_t mixes; /* mixes per step */
    double gamma; /* W' = gamma W + (1 - gamma) I */
    bool delayed; /* x(t+1) = x(t) + (W' - I) x(t-1) - step: gossip.delay 1; one mix, not directed */
} taciti_topo_awc;

enum { TACITI_TOPO_LIMIT_MAX = 256 }; /* ranks; half of it when delayed */
/* *out: awc with plain SGD of step size lr converges for every lr L in (0, *out) and for none right above it, where
 * every rank's loss is quadratic with the same curvatures, of which L is the largest. 2 is dense SGD's. Right to 1e-6;
 * O(ranks^3), seconds at the max; E_UNSUPPORTED above it. Any thread. */
tacit_status taciti_topology_awc_limit(const taciti_topology *topology, const taciti_topo_awc *how, double *out);

#endif
