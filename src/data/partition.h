/* SPDX-License-Identifier: Apache-2.0
 *
 * data.partition: the part of the train tokens that a rank draws its samples from, for experiments on unequal data:
 *
 *   global           all ranks share one sequence of samples (data/order.h); any number of ranks sees the same batches
 *   by-rank          rank r of N draws from the r-th of N contiguous parts alone
 *   dirichlet:ALPHA  the tokens are cut into 10 contiguous regions, the classes; rank r draws each sample from class k
 *                    with probability q_rk, q_r ~ Dirichlet(ALPHA, ..., ALPHA). A small ALPHA: few classes per rank
 *
 * Source of dirichlet: Hsu, Qi, Brown, arXiv 1909.06335, where each client draws its class probabilities q ~ Dir(alpha
 * p). Where we deviate, and why:
 *   - the parameter of each class is ALPHA and not alpha p_k: as later work states it. Theirs is 10 ALPHA here
 *   - plain text has no labels: contiguous regions (plays, chapters, files) stand for them
 *   - samples are drawn for as long as the run lasts, so classes are not used up, and ranks of equal share draw equally
 *     many samples
 *
 * With by-rank and dirichlet, sample g is the g-th of this rank. Samples are windows of the part or region in the order
 * of data/order.h, with a key per rank and class: of one part no window repeats before all others were used; a class
 * of which only some samples are drawn passes over as many of its windows.
 * Everything is a pure function of (seed, rank, number of ranks, g).
 *
 * Gamma variates: Marsaglia and Tsang 2000, "A simple method for generating gamma variables", for ALPHA + 1, times U^(1
 * / ALPHA). They are computed in logarithms, because U^1000 underflows, with the series of base/series.h, which give
 * the same bits on every CPU.
 */
#ifndef TACITI_DATA_PARTITION_H
#define TACITI_DATA_PARTITION_H

#include "tacit/tacit.h"

enum { TACITI_PARTITION_GLOBAL, TACITI_PARTITION_BY_RANK, TACITI_PARTITION_DIRICHLET };

enum { TACITI_PARTITION_CLASSES = 10 };

/* The part of the tokens that a rank draws from. {0} means global. */
typedef struct taciti_partition {
    int kind;
    double alpha; /* dirichlet only */
    int rank, ranks;
    double until[TACITI_PARTITION_CLASSES]; /* cumulative probabilities of the classes; dirichlet only */
} taciti_partition;

/* Parses "", "global", "by-rank" or "dirichlet:ALPHA" with ALPHA from 0.001 to 1e6. The message of E_CONFIG lists
 * these. */
tacit_status taciti_partition_parse(const char *text, taciti_partition *out);

/* Computes the part of this rank. */
void taciti_partition_assign(taciti_partition *partition, uint64_t seed, int rank, int ranks);

/* Computes the class probabilities of a rank. */
void taciti_partition_probabilities(uint64_t seed, int rank, double alpha, double out[TACITI_PARTITION_CLASSES]);

/* Returns the tokens of the smallest part or region that any rank draws from. */
uint64_t taciti_partition_min_tokens(const taciti_partition *partition, uint64_t tokens);

/* Returns the position of the first token of sample g; see data/order.h. The smallest part must hold time + 1 tokens.
 */
uint64_t taciti_partition_start(const taciti_partition *partition, uint64_t tokens, uint64_t time, uint64_t seed,
                                uint64_t sample);

/* Describes what the ranks draw from in one line without a full stop; empty for global. */
void taciti_partition_describe(const taciti_partition *partition, uint64_t tokens, uint64_t seed, char *out,
                               size_t out_bytes);

#endif
