/* SPDX-License-Identifier: Apache-2.0
 *
 * Topologies: which ranks mix with which weights. Pure computation on integers and doubles, without communication. A
 * topology is a repeated sequence of rounds; a round is a mixing matrix W: y_to = sum over `from` of W[to][from]
 * x_from.
 *
 * A round has one of two forms:
 *
 *   groups   disjoint sets of ranks; every member takes the mean of its group. Pairs, hosts, the whole world
 *   edges    any other sparse matrix: the off-diagonal entries, and the diagonal in `self`
 *
 * A rank without a group, or with self 1 and no edges, is idle in that round: its value does not change.
 *
 * Every matrix is doubly stochastic, except in `directed` topologies, whose matrices are only column-stochastic: the
 * sum is conserved, and push-sum (Assran et al., arXiv 1811.10792) recovers the mean.
 */
#ifndef TACITI_TOPO_TOPO_H
#define TACITI_TOPO_TOPO_H

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
    /* used if there are no groups (a round without communication has neither, and self 1): */
    const taciti_edge *edges; /* ascending by (to, from) */
    size_t edge_count;
    const double *self; /* [ranks]; NULL in a round of groups */
} taciti_round;

typedef struct taciti_topology {
    char name[32];
    int ranks;
    bool directed;        /* only column-stochastic: needs push-sum */
    taciti_round *rounds; /* owned: one block, which also holds what rounds and position point to */
    size_t period;        /* 1 or more; mix number t uses rounds[t % period] */
    bool alternates;      /* but half of the array the other one of two rounds: taciti_topology_round() */
    const int *position;  /* [ranks] position of a rank in the definition of the graph */
} taciti_topology;

/* The parameters of a topology. */
typedef struct taciti_topo_request {
    const char *name; /* of the list, or TACITI_TOPO_AUTO */
    int ranks;
    const taciti_hosts *hosts; /* of these ranks; borrowed for the call. NULL: all on one */
    int per_host;              /* above 0: assume this number of ranks on every host instead */
    int degree;                /* base-k: maximum of partners per round; torus: columns. 0: the topology's default */
    uint64_t seed;             /* random */
    const char *file;          /* file: a matrix, or several one after the other, .csv */
} taciti_topo_request;

/* A name for the graph that suits the hosts: aer from 1.5 ranks per host on, so that one array crosses a link for all
 * of a host; else exp, which sends one array per round. Replicas stay nearer to each other than on base-k of degree 1,
 * which sends as much: under awc with beta1 0.9 by a tenth to two fifths of the squared distance (test_topo_laws.c). */
#define TACITI_TOPO_AUTO "auto"
#define TACITI_TOPO_AUTO_RULE "aer from 1.5 ranks per host on, else exp"
/* Returns the name of the list that the request means. Any thread. */
const char *taciti_topology_name(const taciti_topo_request *request);

/* Creates a topology. Positions are assigned host by host, so adjacent positions share a host; then ranks are swapped
 * where this moves edges into hosts. Row i of a file is rank i. Deterministic: equal requests give equal topologies on
 * every rank. Refuses unknown names, sizes that the topology does not support, matrices that are not stochastic,
 * duplicate or missing ranks, and rounds under which ranks never agree; the message names the value found and the value
 * needed. Returns owned. Any thread. */
tacit_status taciti_topology_create(const taciti_topo_request *request, taciti_topology *out);
void taciti_topology_destroy(taciti_topology *topology); /* {0} is fine */

/* The list of topologies, terminated by a NULL name. */
typedef struct taciti_topo_kind {
    const char *name;    /* "exp" */
    const char *help;    /* one line */
    const char *source;  /* paper */
    const char *demands; /* on the number of ranks: "any", "any; needs several ranks per host to pay", ... */
} taciti_topo_kind;
const taciti_topo_kind *taciti_topo_kinds(void);

/* Returns the round of a bucket of this half (tensor/layout.h) in mix number `number`, from 0 on: number % period. In
 * topologies that alternate (aer) a host sends in one of the rounds 2 m and 2 m + 1 and rests in the other. There half
 * 1 makes each two in the other order, so that a link carries one of the halves in every mix. */
size_t taciti_topology_round(const taciti_topology *topology, int64_t number, int half);

/* Returns the size of this rank's group in a round of groups and sets *members to its ranks, ascending. Returns 1 and
 * sets *members to NULL if the rank is idle or the round has edges. */
size_t taciti_topology_group(const taciti_topology *topology, size_t round, int rank, const int **members);

/* Returns W[to][from] of a round of either form. */
double taciti_topology_weight(const taciti_topology *topology, size_t round, int to, int from);

/* Computes out[ranks] = W x for a round. */
void taciti_topology_mix(const taciti_topology *topology, size_t round, const double *x, double *out);

enum { TACITI_TOPO_FIGURES_MAX = 2048 }; /* ranks */
typedef struct taciti_topo_figures {
    double contraction;    /* second singular value of the product of one period: worst-case disagreement after it.
                              Directed: in the norm in which the stationary vector makes the first one 1 */
    double spectral_gap;   /* 1 - contraction^(1 / period) */
    size_t exact_after;    /* number of rounds, from round 0, after which every rank has the mean; 0: never exactly */
    double min_eigenvalue; /* of any round's symmetric part */
    size_t max_partners;   /* maximum over ranks and rounds, receiving or sending */
} taciti_topo_figures;
/* Computes the figures: exact to rounding up to 256 ranks, approximate beyond. Takes about a second for 1024 ranks.
 * Returns E_UNSUPPORTED above TACITI_TOPO_FIGURES_MAX, E_NUMERICS as taciti_eigenvalues(). Any thread. */
tacit_status taciti_topology_figures(const taciti_topology *topology, taciti_topo_figures *out);

/* Computes only the spectral gap and `exact_after`, for any number of ranks, in a fraction of a second for 4096. Exact
 * graphs are simulated, circulant ones use closed_form.h, and the others are iterated as above, with fewer iterations
 * beyond 256 ranks (the gap is then an upper bound). Returns E_NUMERICS as above. Any thread. */
tacit_status taciti_topology_mixing(const taciti_topology *topology, double *gap, size_t *exact_after);

/* Parameters of `gossip.order awc` that decide stability. */
typedef struct taciti_topo_awc {
    double gamma; /* W' = gamma W + (1 - gamma) I */
    bool delayed; /* x(t+1) = x(t) + (W' - I) x(t-1) - step: gossip.delay 1; not directed */
} taciti_topo_awc;

enum { TACITI_TOPO_LIMIT_MAX = 256 }; /* ranks; half of it when delayed */
/* Computes the stability limit of awc with plain SGD, of each half of a topology that alternates (where a curvature
 * spans both halves, aer with one rank per host bears up to 1.5 % less): if every rank's loss is quadratic with the
 * same curvatures, the largest being L, training with learning rate lr converges for all lr L in (0, *out) and diverges
 * right above *out. The limit of dense SGD is 2. Accurate to 1e-6. O(ranks^3): seconds at TACITI_TOPO_LIMIT_MAX ranks;
 * returns E_UNSUPPORTED above. Any thread. */
tacit_status taciti_topology_awc_limit(const taciti_topology *topology, const taciti_topo_awc *how, double *out);

#endif
