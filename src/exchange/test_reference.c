/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixing of differences: what is kept, where it leads, and one step by its formula.
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/number.h"
#include "base/rng.h"
#include "comm/test_engine.h"
#include "exchange/mix.h"
#include "exchange/mix_ways.h"
#include "exchange/reference.h"
#include "exchange/test_layout.h"
#include "exchange/test_rounds.h"
#include "exchange/test_wire.h"

static const int SIZES[] = {2, 3, 5, 6, 7, 8};
enum { SIZE_COUNT = sizeof SIZES / sizeof *SIZES };

/* rank r is on host ARRANGEMENTS[i][r] */
static const int ARRANGEMENTS[][8] = {
    {0, 0, 0, 0, 0, 0, 0, 0}, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 0, 1, 1, 2, 2, 3, 3}, {2, 2, 2, 0, 1, 1, 2, 2}};
enum { ARRANGEMENT_COUNT = sizeof ARRANGEMENTS / sizeof *ARRANGEMENTS };

/* Sanitizers make long trials several times slower: there they run on every fifth number of ranks and arrangement. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { LONG_STEP = 5 };
#else
enum { LONG_STEP = 2 };
#endif

typedef struct trial {
    const taciti_topology *topology;
    const taciti_encoding *encoding;
    int64_t mixes;
    double left;   /* of the distance between ranks, at most */
    float gamma;   /* of x <- (1 - gamma) x + gamma (what mixing makes of it) */
    float drift;   /* is added to all ranks' parameters after every mix */
    bool integers; /* they begin with small integers, of which every mix by quarters is exact for some mixes */
    float sway;    /* every rank moves by up to half of it after a mix, to and fro */
    bool equal;    /* all ranks begin with the same, and know it */
    size_t n;
    float *before[TEST_MAX_RANKS], *after[TEST_MAX_RANKS];
    float *known[TEST_MAX_RANKS]; /* [entries][n] of taciti_mix_list() */
    size_t entries[TEST_MAX_RANKS];
} trial;

static float value_of(const trial *t, int rank, size_t i) {
    const uint64_t key = taciti_rng_key(6, t->equal ? 0 : (uint64_t)rank);
    if (t->integers) return (float)((int)taciti_rng_below(key, i, 255) - 127);
    return (float)(taciti_rng_unit(key, i) - 0.5);
}

static void move(const taciti_layout *layout, const trial *t, int rank, float *x, int64_t number) {
    const float sway = number % 2 == 0 ? t->sway : -t->sway;
    const int other = rank + 50 + 100 * (int)(number / 2);
    if (t->drift == 0 && t->sway == 0) return;
    for (size_t i = 0; i < layout->n; i++)
        if (!test_is_gap(layout, i)) x[i] += t->drift * value_of(t, 99, i) + sway * value_of(t, other, i);
}

static void mix_once(taciti_mix *mix, const taciti_layout *layout, const trial *t, int rank, float *x, float *buffer,
                     int64_t number) {
    const taciti_mix_weights w = taciti_mix_weights_of(mix, 0, number);
    memcpy(buffer, x, layout->n * sizeof *x);
    for (size_t b = 0; b < layout->bucket_count; b++) CHECK(taciti_mix_begin(mix, buffer, b, number) == TACIT_OK);
    for (size_t b = 0; b < layout->bucket_count; b++) CHECK(taciti_mix_wait(mix, buffer, b, number) == TACIT_OK);
    const float keep = 1 - t->gamma + t->gamma * w.keep, share = t->gamma * w.share;
    if (w.share != 0)
        for (size_t i = 0; i < layout->n; i++) x[i] = keep * x[i] + share * buffer[i];
    move(layout, t, rank, x, number);
}

/* One array apart, and an entry for each other, or for two where numbers are doubles. */
static void arrays_are_as_predicted(const trial *t, taciti_comm *comm, const taciti_layout *layout,
                                    const taciti_state *state) {
    const taciti_exchange_options options = {.wire = test_wire(0)};
    taciti_mix_form form = {.encoding = *t->encoding};
    const size_t plain = taciti_mix_predict_bytes(comm, layout, t->topology, &options, &form);
    form.differences = true;
    const size_t known = taciti_mix_predict_bytes(comm, layout, t->topology, &options, &form) - plain;
    uint64_t mine = state->count > 0 ? 1 : 0, all[TEST_MAX_RANKS], most = 0;
    size_t arrays = 0;
    for (size_t i = 0; i < state->count; i++) mine += state->entries[i].kind == TACITI_STATE_BYTES ? 2 : 1;
    CHECK(known == mine * taciti_round_up(layout->n, 16) * sizeof(float));
    CHECK(taciti_comm_allgather(comm, &mine, sizeof mine, all) == TACIT_OK);
    for (int r = 0; r < taciti_comm_size(comm); r++) most = all[r] > most ? all[r] : most;
    CHECK(taciti_mix_check_ways(taciti_comm_hosts(comm), t->topology, taciti_exchange_placement(&options),
                                t->encoding->codec, &arrays) == TACIT_OK);
    CHECK(arrays == most);
}

static void remember_known(trial *t, taciti_comm *comm, taciti_mix *mix, const taciti_layout *layout) {
    const int rank = taciti_comm_rank(comm);
    const size_t n = layout->n;
    taciti_state state = {.count = 0};
    taciti_mix_list(mix, "reference", &state);
    arrays_are_as_predicted(t, comm, layout, &state);
    t->entries[rank] = state.count;
    t->known[rank] = taciti_calloc(state.count * n + 1, sizeof(float));
    for (size_t i = 0; i < state.count; i++) memcpy(t->known[rank] + i * n, state.entries[i].data, n * sizeof(float));
}

static void mix_all(taciti_comm *comm, void *context) {
    trial *t = context;
    const int rank = taciti_comm_rank(comm);
    const taciti_exchange_options options = {.wire = test_wire(0), .bucket_bytes = 10000};
    const taciti_mix_form form = {.encoding = *t->encoding, .differences = true};
    taciti_layout layout;
    taciti_mix *mix = NULL;
    test_layout_of_five(&layout);
    CHECK(taciti_mix_create(comm, &layout, t->topology, &options, &form, &mix) == TACIT_OK);
    float *x = taciti_calloc(layout.n, sizeof *x), *buffer = taciti_calloc(layout.n, sizeof *x);
    for (size_t i = 0; i < layout.n; i++) x[i] = test_is_gap(&layout, i) ? 0 : value_of(t, rank, i);
    t->before[rank] = taciti_calloc(layout.n, sizeof *x);
    memcpy(t->before[rank], x, layout.n * sizeof *x);
    if (t->equal) taciti_mix_set_references(mix, x);
    for (int64_t number = 0; number < t->mixes; number++) mix_once(mix, &layout, t, rank, x, buffer, number);
    for (size_t i = 0; i < layout.n; i++) CHECK(!test_is_gap(&layout, i) || x[i] == 0); /* padding stays 0 */
    if (rank == 0) t->n = layout.n;
    remember_known(t, comm, mix, &layout);
    t->after[rank] = x;
    taciti_free(buffer);
    taciti_mix_destroy(mix);
    taciti_layout_destroy(&layout);
}

static void drop(trial *t) {
    for (int r = 0; r < t->topology->ranks; r++) {
        taciti_free(t->before[r]);
        taciti_free(t->after[r]);
        taciti_free(t->known[r]);
    }
}

static double distance_of(const trial *t, float *const x[], size_t *worst) {
    const int ranks = t->topology->ranks;
    double sum = 0, most = 0;
    for (size_t i = 0; i < t->n; i++) {
        double mean = 0, here = 0;
        for (int r = 0; r < ranks; r++) mean += (double)x[r][i] / ranks;
        for (int r = 0; r < ranks; r++) here += ((double)x[r][i] - mean) * ((double)x[r][i] - mean);
        sum += here;
        if (here > most && worst != NULL) *worst = i;
        most = fmax(most, here);
    }
    return sqrt(sum);
}

typedef void looker(const trial *t);
typedef void maker(test_topology *made, int ranks);

static void try_all(const trial *what, maker *make, looker *look) {
    const int step = what->mixes > 30 ? LONG_STEP : 1;
    for (int s = step - 1; s < SIZE_COUNT; s += step)
        for (int i = 0; i < ARRANGEMENT_COUNT; i += step) {
            if (step == 1 && test_spares(s + i / 2)) continue;
            test_topology *made = taciti_calloc(1, sizeof *made);
            make(made, SIZES[s]);
            trial t = *what;
            t.topology = &made->topology;
            taciti_comm_options options = test_comm_options(i % 2 == 0);
            options.segment_bytes = 1024;
            test_hosts(ARRANGEMENTS[i]);
            test_world_run(SIZES[s], &options, mix_all, &t);
            test_hosts(NULL);
            look(&t);
            drop(&t);
            taciti_free(made);
        }
}

static taciti_encoding encoding_of(const char *codec) {
    return (taciti_encoding){.codec = taciti_codec_find(codec), .seed = 5};
}

/* ---- conservation ------------------------------------------------------------------------------------------------ */

/* Every mix rounds a few times what is at most a few times the sum of magnitudes. */
static void sum_is_kept(const trial *t) {
    const int ranks = t->topology->ranks;
    for (size_t i = 0; i < t->n; i++) {
        double before = 0, after = 0;
        for (int r = 0; r < ranks; r++) {
            const double drift = t->before[r][i] == 0 ? 0 : (double)t->drift * (double)value_of(t, 99, i); /* padding */
            before += (double)t->before[r][i] + (double)t->mixes * drift;
            after += (double)t->after[r][i];
        }
        assert_true(fabs(after - before) <= 64 * (double)t->mixes * ranks * (double)FLT_EPSILON);
    }
}

static void the_sum_over_ranks_is_kept(void **state) {
    static const char *const CODECS[] = {"bf16", "int8", "int4", "signmag2", "efsign"};
    (void)state;
    for (size_t c = 0; c < sizeof CODECS / sizeof *CODECS; c++) {
        const taciti_encoding encoding = encoding_of(CODECS[c]);
        const trial t = {.encoding = &encoding, .mixes = 9, .gamma = 0.5F, .drift = 0.01F};
        try_all(&t, test_topology_of_groups, sum_is_kept);
        try_all(&t, test_topology_of_edges, sum_is_kept);
    }
}

static void ring_of(test_topology *made, int ranks) {
    double w[TEST_MAX_RANKS * TEST_MAX_RANKS] = {0};
    for (int r = 0; r < ranks; r++) {
        w[r * ranks + r] += 0.5;
        w[r * ranks + (r + 1) % ranks] += 0.25;
        w[r * ranks + (r + ranks - 1) % ranks] += 0.25;
    }
    test_topology_start(made, "ring", ranks, false);
    test_topology_add_matrix(made, w);
}

/* A sender that remembers other bits than its receivers would make the sum drift, and faster with every mix: 1.5e-4
 * here, where rounding alone makes 1e-5. */
static void sum_has_not_drifted(const trial *t) {
    double squares = 0;
    for (size_t i = 0; i < t->n; i++) {
        double sum = 0;
        for (int r = 0; r < t->topology->ranks; r++) sum += (double)t->after[r][i] - (double)t->before[r][i];
        squares += sum * sum / (double)t->n;
    }
    assert_true(sqrt(squares) <= 4e-5);
}

static void the_sum_over_edges_does_not_drift(void **state) {
    const taciti_encoding encoding = encoding_of("int4");
    const trial t = {.encoding = &encoding, .mixes = 600, .gamma = 1, .sway = 0.01F};
    (void)state;
    try_all(&t, ring_of, sum_has_not_drifted);
}

/* ---- agreement --------------------------------------------------------------------------------------------------- */

/* The bound is far above what is reached but for one bit, where an element far above the others of its block comes down
 * by their mean, and far below what no mixing or mixing without references leaves. */
static void ranks_agree(const trial *t) {
    size_t worst = 0;
    const double before = distance_of(t, (float *const *)t->before, NULL),
                 after = distance_of(t, (float *const *)t->after, &worst);
    if (after > t->left * before)
        print_message("%s, %s, %d ranks: %g of the distance is left, most at %zu\n", t->encoding->codec->name,
                      t->topology->name, t->topology->ranks, after / before, worst);
    assert_true(after <= t->left * before);
}

static void ranks_of_groups_agree_without_a_step_size(void **state) {
    static const struct {
        const char *codec;
        int64_t mixes;
        double left;
    } CASES[] = {{"int8", 24, 1e-3}, {"int4", 40, 1e-3}, {"signmag2", 160, 1e-3}, {"efsign", 200, 0.1}};
    (void)state;
    for (size_t c = 0; c < sizeof CASES / sizeof *CASES; c++) {
        const taciti_encoding encoding = encoding_of(CASES[c].codec);
        const trial t = {.encoding = &encoding, .mixes = CASES[c].mixes, .gamma = 1, .left = CASES[c].left};
        try_all(&t, test_topology_of_groups, ranks_agree);
    }
}

/* ---- references -------------------------------------------------------------------------------------------------- */

/* The first round of test_topology_of_groups is one group of all. */
static void all_know_the_same(const trial *t) {
    for (int r = 1; r < t->topology->ranks; r++) {
        if (t->entries[0] == 0 || t->entries[r] == 0) continue;
        assert_memory_equal(t->known[0], t->known[r], t->n * sizeof(float));
    }
}

static void members_of_a_group_know_the_same_bits(void **state) {
    const taciti_encoding encoding = encoding_of("int4");
    const trial t = {.encoding = &encoding, .mixes = 13, .gamma = 1, .drift = 0.01F};
    (void)state;
    try_all(&t, test_topology_of_groups, all_know_the_same);
}

/* Differences of 0 are encoded as 0, and r + 0 + 0 is r. Inside a host of several arrays travel as they are, and the
 * mean of equal numbers rounds. */
static void nothing_has_moved(const trial *t) {
    for (int r = 0; r < t->topology->ranks; r++)
        for (size_t i = 0; i < t->n; i++) assert_true(fabsf(t->after[r][i] - t->before[r][i]) <= 8 * FLT_EPSILON);
}

static void equal_replicas_that_know_it_stay(void **state) {
    const taciti_encoding encoding = encoding_of("efsign");
    const trial t = {.encoding = &encoding, .mixes = 7, .gamma = 1, .equal = true};
    (void)state;
    try_all(&t, test_topology_of_groups, nothing_has_moved);
}

/* Two groups share the links of their hosts, and the flows; alone the first has more lanes. */
static void the_same_members_with_other_lanes_are_another_way(void **state) {
    static const int HOSTS[8] = {0, 0, 0, 0, 1, 1, 1, 1}, ALONE[8] = {0, 0, -1, -1, 0, 0, -1, -1},
                     BOTH[8] = {0, 0, 1, 1, 0, 0, 1, 1};
    const taciti_encoding encoding = encoding_of("int4");
    const taciti_comm_options options = test_comm_options(true);
    test_topology *made = taciti_calloc(1, sizeof *made);
    (void)state;
    test_topology_start(made, "lanes", 8, false);
    test_topology_add_groups(made, ALONE);
    test_topology_add_groups(made, BOTH);
    test_topology_add_groups(made, BOTH);
    trial t = {.topology = &made->topology, .encoding = &encoding, .mixes = 6, .gamma = 1};
    test_hosts(HOSTS);
    test_world_run(8, &options, mix_all, &t);
    test_hosts(NULL);
    for (int r = 0; r < 8; r++) assert_int_equal(t.entries[r], BOTH[r] == 0 ? 2 : 1);
    sum_is_kept(&t);
    drop(&t);
    taciti_free(made);
}

/* A group knows nothing of what its members know along the edges of another round; remember_known() compares their
 * memory with the prediction. */
static void a_group_is_another_way_than_edges_of_the_same_ranks(void **state) {
    static const int HOSTS[4] = {0, 1, 2, 3}, PAIRS[4] = {0, 0, 1, 1};
    static const double W[16] = {.75, .25, 0, 0, .25, .75, 0, 0, 0, 0, .75, .25, 0, 0, .25, .75};
    const taciti_encoding encoding = encoding_of("int4");
    const taciti_comm_options options = test_comm_options(true);
    test_topology *made = taciti_calloc(1, sizeof *made);
    (void)state;
    test_topology_start(made, "both", 4, false);
    test_topology_add_matrix(made, W);
    test_topology_add_groups(made, PAIRS);
    trial t = {.topology = &made->topology, .encoding = &encoding, .mixes = 6, .gamma = 1};
    test_hosts(HOSTS);
    test_world_run(4, &options, mix_all, &t);
    test_hosts(NULL);
    sum_is_kept(&t);
    drop(&t);
    taciti_free(made);
}

/* ---- edges by their formula -------------------------------------------------------------------------------------- */

/* Mixes of one matrix with bf16, which rounds every element for itself:
 *
 *   x^ <- x^ + bf16(x - x^),   x <- x - x^_i + sum of W_ij x^_j
 *
 * Of small integers and a matrix of quarters they are exact in f32, whatever the order. So are the sums over ranks. */
static float narrow(float x) {
    taciti_bf16 half;
    float out;
    taciti_kernels_get()->bf16_encode(&half, &x, 1);
    taciti_kernels_get()->bf16_decode(&out, &half, 1);
    return out;
}

/* Rank 0 shares out half of its array, the others give half to it: no row sums to 1. */
static void star_of(test_topology *made, int ranks) {
    double w[TEST_MAX_RANKS * TEST_MAX_RANKS] = {0};
    for (int r = 0; r < ranks; r++) {
        w[r * ranks + r] = 0.5;
        if (r > 0) w[r] = 0.5;
        if (r > 0) w[r * ranks] = 0.5 / (ranks - 1);
    }
    test_topology_start(made, "star", ranks, true);
    test_topology_add_matrix(made, w);
}

/* Everybody knows all: differences are 0, and the mix is W x. */
static void is_the_row(const trial *t) {
    for (int r = 0; r < t->topology->ranks; r++) {
        double row = 0;
        for (int from = 0; from < t->topology->ranks; from++) row += test_weight(t->topology, 0, r, from);
        for (size_t i = 0; i < t->n; i++)
            assert_true(fabs((double)t->after[r][i] - row * (double)t->before[r][i]) <= 1e-6);
    }
}

static void what_all_know_is_mixed_exactly(void **state) {
    const taciti_encoding encoding = encoding_of("int4");
    const trial t = {.encoding = &encoding, .mixes = 1, .gamma = 1, .equal = true};
    (void)state;
    try_all(&t, star_of, is_the_row);
}

static void is_choco(const trial *t) {
    const int ranks = t->topology->ranks;
    for (size_t i = 0; i < t->n; i += 3) {
        double x[TEST_MAX_RANKS], known[TEST_MAX_RANKS] = {0}, before = 0, after = 0;
        for (int r = 0; r < ranks; r++) before += x[r] = (double)t->before[r][i];
        for (int64_t mix = 0; mix < t->mixes; mix++) {
            for (int r = 0; r < ranks; r++) known[r] += (double)narrow((float)(x[r] - known[r]));
            for (int r = 0; r < ranks; r++) {
                x[r] -= known[r];
                for (int from = 0; from < ranks; from++) x[r] += test_weight(t->topology, 0, r, from) * known[from];
            }
        }
        for (int r = 0; r < ranks; r++) assert_true(x[r] == (double)t->after[r][i]);
        for (int r = 0; r < ranks; r++) after += (double)t->after[r][i];
        assert_true(before == after);
    }
}

static void edges_follow_choco(void **state) {
    const taciti_encoding encoding = encoding_of("bf16");
    const trial t = {.encoding = &encoding, .mixes = 5, .gamma = 1, .integers = true};
    (void)state;
    try_all(&t, ring_of, is_choco);
}

/* Pairs with unequal weights, of which one is nearly an exchange, as base-k has them for odd numbers of ranks. */
static void pairs_of(test_topology *made, int ranks) {
    static const double GIVEN[] = {0.8, 0.25};
    test_topology_start(made, "pairs", ranks, false);
    for (int round = 0; round < 2; round++) {
        double w[TEST_MAX_RANKS * TEST_MAX_RANKS] = {0};
        for (int r = 0; r < ranks; r++) {
            const int other = (r - round) % 2 == 0 ? r + 1 : r - 1;
            const bool alone = other < 0 || other >= ranks;
            w[r * ranks + r] = alone ? 1 : 1 - GIVEN[round];
            if (!alone) w[r * ranks + other] = GIVEN[round];
        }
        test_topology_add_matrix(made, w);
    }
}

static void pairs_agree_without_a_step_size(void **state) {
    static const struct {
        const char *codec;
        int64_t mixes;
    } CASES[] = {{"int4", 240}, {"signmag2", 600}};
    (void)state;
    for (size_t c = 0; c < sizeof CASES / sizeof *CASES; c++) {
        const taciti_encoding encoding = encoding_of(CASES[c].codec);
        trial t = {.encoding = &encoding, .mixes = CASES[c].mixes, .gamma = 1, .left = 1e-3};
        try_all(&t, pairs_of, ranks_agree);
        t.mixes = 9;
        t.drift = 0.01F;
        try_all(&t, pairs_of, sum_is_kept);
    }
}

/* Without equal weights factors would not keep the sum, and in any round, not only the first. */
static void factors_are_for_pairs_with_equal_weights(void **state) {
    const double even[] = {0.75, 0.25, 0.25, 0.75}, uneven[] = {0.75, 0.5, 0.25, 0.5}, one_way[] = {1, 0.5, 0, 0.5};
    const double *const matrices[] = {even, uneven, one_way};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        test_topology *made = taciti_calloc(1, sizeof *made);
        test_topology_start(made, "two", 2, false);
        test_topology_add_matrix(made, even);
        test_topology_add_matrix(made, matrices[i]);
        test_topology_add_matrix(made, even);
        assert_int_equal(taciti_mix_takes_power(&made->topology), i == 0);
        made->topology.directed = true;
        assert_false(taciti_mix_takes_power(&made->topology));
        taciti_free(made);
    }
}

static void ranks_of_a_ring_agree(void **state) {
    static const struct {
        const char *codec;
        int64_t mixes;
        float gamma;
    } CASES[] = {{"int8", 80, 1}, {"int4", 80, 1}, {"signmag2", 160, 0.4F}};
    (void)state;
    for (size_t c = 0; c < sizeof CASES / sizeof *CASES; c++) {
        const taciti_encoding encoding = encoding_of(CASES[c].codec);
        const trial t = {.encoding = &encoding, .mixes = CASES[c].mixes, .gamma = CASES[c].gamma, .left = 1e-3};
        try_all(&t, ring_of, ranks_agree);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sum_over_ranks_is_kept),
        cmocka_unit_test(ranks_of_groups_agree_without_a_step_size),
        cmocka_unit_test(members_of_a_group_know_the_same_bits),
        cmocka_unit_test(equal_replicas_that_know_it_stay),
        cmocka_unit_test(the_same_members_with_other_lanes_are_another_way),
        cmocka_unit_test(a_group_is_another_way_than_edges_of_the_same_ranks),
        cmocka_unit_test(factors_are_for_pairs_with_equal_weights),
        cmocka_unit_test(the_sum_over_edges_does_not_drift),
        cmocka_unit_test(edges_follow_choco),
        cmocka_unit_test(ranks_of_a_ring_agree),
        cmocka_unit_test(pairs_agree_without_a_step_size),
        cmocka_unit_test(what_all_know_is_mixed_exactly),
    };
    return cmocka_run_group_tests_name("reference", tests, NULL, NULL);
}
