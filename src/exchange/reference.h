/* SPDX-License-Identifier: Apache-2.0
 *
 * Compressed mixing: ranks encode the difference to what the receivers know of them already.
 *
 *   a group of n   all members know the same r             q_i = C(x_i - r)
 *                  x_i <- x_i - (r + q_i) + r',  r' = r + (sum of q_j) / n, which becomes r
 *   a pair         both know p_i and p_j                   q_i = C(x_i - p_i),  x^_i = p_i + q_i
 *                  x_i <- x_i - x^_i + p_i',  p_i' = W_ii x^_i + W_ij x^_j, which becomes p_i
 *   other edges    receivers know x^_i of their sender     q_i = C(x_i - x^_i),  x^_i <- x^_i + q_i
 *                  x_i <- x_i - x^_i + sum over j of W_ij x^_j                      i among the j
 *
 * Other edges: CHOCO-SGD (Koloskova, Stich, Jaggi, arXiv 1902.00340) with gossip.gamma as its step size, in the form
 * that stores one sum for all senders; with a column-stochastic W, quantised push-sum (Taheri et al., arXiv
 * 2002.12351).
 *
 * Groups and pairs are ours: receivers know what mixing makes of what they know, so it need not be sent. The sum over
 * members does not change, whatever C loses; and of the distance between a member and what is known of it, a mix leaves
 * what C loses of it. C contracts, so members agree in the end, without a step size. C = identity gives W x.
 *
 * A round has references of its own, because a rank meets others there. They change when a mix has arrived, so a
 * transfer that is under way can start again from a checkpoint of them.
 */
#ifndef TACITI_EXCHANGE_REFERENCE_H
#define TACITI_EXCHANGE_REFERENCE_H

#include "base/memory.h"
#include "tensor/layout.h"
#include "tensor/state.h"

typedef enum taciti_reference_kind {
    TACITI_REFERENCE_GROUP,
    TACITI_REFERENCE_PAIR,
    TACITI_REFERENCE_EDGES
} taciti_reference_kind;

/* Weights of W: of a rank's own array and, of a pair, of the other's; W_jj and W_ji. */
typedef struct taciti_reference_weights {
    double self, other, their_self, their_other;
    double row; /* edges: the sum of a rank's row */
} taciti_reference_weights;

typedef struct taciti_reference {
    taciti_reference_kind kind;
    size_t members; /* of a group */
    taciti_reference_weights w;
    float *mine;   /* flat; r or p_i; NULL: edges */
    float *other;  /* flat; p_j; NULL: not a pair */
    double *known; /* [layout->n] edges: x^_i. doubles, because roundings of senders and receivers differ and would add
                      up */
    double *sum;   /* [layout->n] edges: the sum of W_ij x^_j, i among the j */
} taciti_reference;

enum { TACITI_REFERENCES_MAX = 24, TACITI_REFERENCE_NAME_BYTES = 48 };

/* The references of all rounds of a mix, and what a rank's own encodings lose or keep of a bucket under way. {0}: the
 * mix sends arrays as they are. */
typedef struct taciti_references {
    const taciti_layout *layout; /* borrows */
    taciti_reference all[TACITI_REFERENCES_MAX];
    size_t count;
    taciti_pages pages;
    float *apart; /* flat; group: errors of this rank's encodings; else: its array as it was decoded */
    char names[2 * TACITI_REFERENCES_MAX][TACITI_REFERENCE_NAME_BYTES];
} taciti_references;

/* Flat arrays of f32 of a reference. Each rank that has one has TACITI_REFERENCE_APART more for all of them. */
enum { TACITI_REFERENCE_APART = 1 };
size_t taciti_reference_arrays(taciti_reference_kind kind);

/* Adds a copy, whose arrays come later, and returns it; NULL: there are too many. */
taciti_reference *taciti_references_add(taciti_references *references, const taciti_reference *what);
size_t taciti_references_bytes(const taciti_references *references, const taciti_layout *layout);
/* Allocates all arrays; they are 0. */
tacit_status taciti_references_open(taciti_references *references, const taciti_layout *layout);
void taciti_references_close(taciti_references *references);

/* Everybody knows that all ranks have x, which is a flat array; NULL: zeros. */
void taciti_references_set(taciti_references *references, const float *x);

/* x[n], floats at .. of the flat array, becomes what is encoded. */
void taciti_reference_subtract(const taciti_reference *reference, float *x, size_t at, size_t n);

/* x[n] is what has arrived: the sum over the group, what the other of a pair has sent, or the weighted sum over the
 * other ends of edges. It becomes what y = keep x + share buffer needs: share 1, and keep 0 in a group, else 1. The
 * references of these floats are those of the next mix. */
void taciti_reference_settle(const taciti_reference *reference, const float *apart, float *x, size_t at, size_t n);

/* Lists the arrays for checkpoints, as "strategy.<prefix>.<number>". */
void taciti_references_list(taciti_references *references, const char *prefix, taciti_state *out);

#endif
