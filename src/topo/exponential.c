/* SPDX-License-Identifier: Apache-2.0
 *
 * Exponential graphs: partners at the distances 1, 2, 4, ...
 *
 *   exp           in pairs, one distance per round. A power of two: i meets i XOR 2^r, exact after log2 N rounds (the
 *                 graph of arXiv 2410.11998). Our form for any other number: taciti_matching(); some may be left over
 *                 in a round, and agreement is only approached
 *   exp-directed  i hears i - 2^r in round r, one half from it (Assran et al., arXiv 1811.10792). Every matrix is
 *                 circulant, hence doubly stochastic: push-sum's weights would stay 1, so plain mixing is the same
 *   exp-static    i hears i - 2^r for all r at once, each with the same weight as its own (Ying et al., arXiv
 *                 2110.13363)
 */
#include "topo/family.h"

int taciti_log2_ceil(int count) {
    int k = 0;
    while (k < 30 && (1 << k) < count) k++;
    return k;
}

int taciti_matchings(int count) {
    const int distances = taciti_log2_ceil(count);
    return 1 << distances == count ? distances : 2 * distances;
}

/* An odd number takes the distances 2^k. An even one takes N / 2^(log2 N - k), rounded, which is 2^k for a power of
 * two: distances 2^k do worse the more factors of two N has beside an odd one. Spectral gaps at all 1013 numbers from 3
 * to 1024 that are no power of two, mean (least, how many below 0.15): 2^k everywhere 0.203 (0.067, 41), N / 2^j
 * everywhere 0.190 (0.096, 192; worse at 502 of the 511 odd ones), this choice 0.217 (0.096, 23). Distances made
 * coprime to N: 0.155 (0.031, 440). */
static int distance_of(int count, int distances, int k) {
    const int unit = 1 << (distances - k);
    return count % 2 != 0 ? 1 << k : (2 * count + unit) / (2 * unit);
}

/* The edges i, i + distance form gcd(count, distance) cycles; a cycle is cut into pairs in two ways, beginning at its
 * first place or at its second, and one of odd length leaves its last or its first place over. For a power of two the
 * first way alone pairs i with i XOR 2^k. Matchings 0 .. log2 - 1 take the first way at all distances, the others the
 * second. */
void taciti_matching(int count, int m, int *partner) {
    const int distances = taciti_log2_ceil(count), shift = m / distances;
    const int step = distance_of(count, distances, m % distances);
    int cycles = count; /* greatest common divisor */
    for (int rest = step; rest != 0;) {
        const int next = cycles % rest;
        cycles = rest;
        rest = next;
    }
    const int length = count / cycles;
    for (int i = 0; i < count; i++) partner[i] = i;
    for (int c = 0; c < cycles; c++) {
        for (int t = shift; t + 1 < length + shift; t += 2) {
            const int a = (c + t * step) % count, b = (c + (t + 1) % length * step) % count;
            partner[a] = b;
            partner[b] = a;
        }
    }
}

tacit_status taciti_family_exp(const taciti_topo_request *request, taciti_draft *draft) {
    const int n = request->ranks, matchings = taciti_matchings(n);
    int *partner = draft->places;
    for (int m = 0; m < matchings; m++) {
        taciti_matching(n, m, partner);
        for (int i = 0; i < n; i++)
            if (partner[i] > i) taciti_draft_pair(draft, i, partner[i]);
        taciti_draft_close(draft);
    }
    return TACIT_OK;
}

tacit_status taciti_family_exp_directed(const taciti_topo_request *request, taciti_draft *draft) {
    const int n = request->ranks, distances = taciti_log2_ceil(n);
    for (int k = 0; k < distances; k++) {
        for (int i = 0; i < n; i++) taciti_draft_edge(draft, (i + (1 << k)) % n, i, 0.5);
        taciti_draft_close(draft);
    }
    return TACIT_OK;
}

tacit_status taciti_family_exp_static(const taciti_topo_request *request, taciti_draft *draft) {
    const int n = request->ranks, distances = taciti_log2_ceil(n);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < distances; k++) taciti_draft_edge(draft, (i + (1 << k)) % n, i, 1.0 / (distances + 1));
    taciti_draft_close(draft);
    return TACIT_OK;
}
