/* SPDX-License-Identifier: Apache-2.0
 *
 * Base-(k+1) graph (Takezawa, Sato, Bao, Niwa, Yamada, NeurIPS 2023, arXiv 2305.11420): the exact mean in finite time
 * for every number of ranks n, with at most k partners per round. Three constructions, each made of the one before; the
 * paper's names:
 *
 *   hyper-hypercube H_k   n = f_1 f_2 ... with all f <= k + 1: places are numbers with digits of base f_1, f_2, ...;
 *                         in round r those that differ in digit r alone take their mean
 *   simple base-(k+1)     n = a_1 (k+1)^p_1 + a_2 (k+1)^p_2 + ..., p descending, a <= k: parts V_1, V_2, ... of these
 *                         sizes. First each part makes its own mean (H_k). Then V_l and all the parts after it, R,
 *                         settle their difference: each of the a_l equal shares of V_l sends one place of its own to
 *                         each place of R, with weight |share| / (|V_l| + |R|). That gives every place of R, and
 *                         every share as a whole, the mean; the shares spread it inside by H_k while R goes on with
 *                         l + 1
 *   base-(k+1)            n = p q with p a product of factors <= k + 1: p copies of the simple graph of q, then H_k
 *                         among places of the same number
 *
 * Where we deviate: of all p that divide n (1 included) the one with the fewest rounds is taken; the paper compares
 * two. At most 2 log_{k+1}(n) + 2 rounds (theorem 1).
 *
 * Without a degree k is 2, or else 3, if it makes rounds of groups or pairs, which all codecs of mixes know; else 1.
 * With 1 places are idle in more rounds, and replicas further apart (docs/results/noise.md).
 */
#include "topo/family.h"

enum { IMPOSSIBLE = 1 << 20, PARTS_MAX = 32 };

/* Places first, first + step, ..., first + (n - 1) step. */
typedef struct places {
    int first, step, n;
} places;

static places part_of(places all, int at, int n) {
    return (places){.first = all.first + at * all.step, .step = all.step, .n = n};
}

/* The least number of factors, none above `max`, whose product is n; the first of them in *factor. */
static int fewest_factors(int n, int max, int *factor) {
    int fewest = IMPOSSIBLE;
    *factor = 1;
    if (n == 1) return 0;
    for (int f = max < n ? max : n; f >= 2; f--) {
        int next = 1;
        if (n % f != 0) continue;
        const int count = 1 + fewest_factors(n / f, f, &next); /* descending factors: each product once */
        if (count >= fewest) continue;
        fewest = count;
        *factor = f;
    }
    return fewest;
}

static int hyper_rounds(int n, int k) {
    int factor = 1;
    return fewest_factors(n, k + 1, &factor);
}

/* Round r of H_k; nothing happens after its last. */
static void draw_hypercube(taciti_draft *draft, places all, int k, int r) {
    int stride = 1, factor = 1, rest = all.n;
    for (int max = k + 1;; max = factor, stride *= factor) {
        if (fewest_factors(rest, max, &factor) == 0) return;
        rest /= factor;
        if (r-- == 0) break;
    }
    for (int place = 0; place < all.n; place++) {
        if (place / stride % factor != 0) continue;
        for (int a = 0; a < factor; a++)
            for (int b = 0; b < factor; b++)
                taciti_draft_edge(draft, all.first + (place + a * stride) * all.step,
                                  all.first + (place + b * stride) * all.step, 1.0 / factor);
    }
}

/* n in base k + 1, highest digit first, zeros left out. */
typedef struct digits {
    int count;
    int times[PARTS_MAX], power[PARTS_MAX], exponent[PARTS_MAX]; /* times * power, power = (k + 1)^exponent */
} digits;

static digits digits_of(int n, int k) {
    digits d = {0};
    int power = 1, exponent = 0;
    for (; power <= n / (k + 1); exponent++) power *= k + 1;
    for (; power >= 1 && n > 0; power /= k + 1, exponent--) {
        if (n < power) continue;
        d.times[d.count] = n / power;
        d.power[d.count] = power;
        d.exponent[d.count++] = exponent;
        n %= power;
    }
    return d;
}

static int simple_rounds(int n, int k) {
    const digits d = digits_of(n, k);
    const int own = hyper_rounds(d.times[0] * d.power[0], k);
    return d.count == 1 ? own : own + 1 + d.exponent[0];
}

/* V_l, at `at`, and everything after it settle their difference. */
static void settle_difference(taciti_draft *draft, places all, int at, int times, int power) {
    const int rest = all.n - at - times * power;
    const double weight = (double)power / (all.n - at);
    for (int j = 0; j < rest; j++)
        for (int share = 0; share < times; share++) {
            const int mine = all.first + (at + share * power + j) * all.step;
            const int its = all.first + (at + times * power + j) * all.step;
            taciti_draft_edge(draft, mine, its, weight);
            taciti_draft_edge(draft, its, mine, weight);
        }
}

static void draw_simple(taciti_draft *draft, places all, int k, int r) {
    const digits d = digits_of(all.n, k);
    const int own = hyper_rounds(d.times[0] * d.power[0], k);
    for (int l = 0, at = 0; l < d.count; at += d.times[l] * d.power[l], l++) {
        if (r < own) draw_hypercube(draft, part_of(all, at, d.times[l] * d.power[l]), k, r);
        if (l == d.count - 1 || r < own + l) continue;
        if (r == own + l) settle_difference(draft, all, at, d.times[l], d.power[l]);
        for (int share = 0; share < d.times[l] && r > own + l; share++)
            draw_hypercube(draft, part_of(all, at + share * d.power[l], d.power[l]), k, r - own - l - 1);
    }
}

/* The q with the fewest rounds for n = p q, and that number. */
static int best_split(int n, int k, int *q) {
    int fewest = IMPOSSIBLE;
    for (int p = 1; p <= n; p++) {
        if (n % p != 0) continue;
        const int rounds = simple_rounds(n / p, k) + hyper_rounds(p, k);
        if (rounds >= fewest) continue;
        fewest = rounds;
        *q = n / p;
    }
    return fewest;
}

static int limit_degree(int n, int degree) { return degree < n - 1 || n == 1 ? degree : n - 1; }

/* Whether every round has groups alone, or pairs alone: there is one difference to settle, and V_1 has one share. */
static bool has_groups_or_pairs(int n, int k) {
    int q = 1;
    (void)best_split(n, k, &q);
    const digits d = digits_of(q, k);
    return d.count == 1 || (d.count == 2 && d.times[0] == 1);
}

static int choose_degree(int n) {
    for (int degree = 2; degree <= 3; degree++)
        if (has_groups_or_pairs(n, limit_degree(n, degree))) return degree;
    return 1;
}

tacit_status taciti_family_base_k(const taciti_topo_request *request, taciti_draft *draft) {
    const int n = request->ranks, k = limit_degree(n, request->degree > 0 ? request->degree : choose_degree(n));
    int q = 1;
    const int rounds = best_split(n, k, &q), inside = simple_rounds(q, k);
    for (int r = 0; r < rounds; r++) {
        for (int copy = 0; copy < n / q && r < inside; copy++)
            draw_simple(draft, (places){.first = copy * q, .step = 1, .n = q}, k, r);
        for (int i = 0; i < q && r >= inside; i++)
            draw_hypercube(draft, (places){.first = i, .step = q, .n = n / q}, k, r - inside);
        taciti_draft_close(draft);
    }
    return TACIT_OK;
}
