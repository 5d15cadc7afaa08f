/* SPDX-License-Identifier: Apache-2.0
 *
 * How a compressed run begins: what a controller's state in a checkpoint belongs to; residuals, estimates and states of
 * codecs that were left by other ranks; and the warnings about a codec that sends more than it saves and about a
 * warm-up that the run is too short for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include "codec/trial.h"
#include "strategy/test_control.h"

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

/* Copies the state that `from` lists to that of `to`, as a checkpoint of the same ranks does. */
static void restore(const bench *from, bench *to) {
    taciti_state a = {.count = 0}, b = {.count = 0};
    taciti_compression_state(from->c, &a);
    taciti_compression_state(to->c, &b);
    for (size_t i = 0; i < b.count; i++) {
        const taciti_state_entry *entry = taciti_state_find(&a, b.entries[i].name);
        if (entry == NULL || entry->n != b.entries[i].n) continue;
        const size_t each = entry->kind == TACITI_STATE_ARRAY     ? sizeof(float)
                            : entry->kind == TACITI_STATE_NUMBERS ? sizeof(double)
                                                                  : 1;
        memcpy(b.entries[i].data, entry->data, entry->kind == TACITI_STATE_COUNT ? sizeof(int64_t) : entry->n * each);
    }
}

static void take_steps(bench *b, int64_t from, int64_t to) {
    for (int64_t step = from; step < to; step++) {
        fill_integers(b, step);
        exchange_all(b);
        settle(b, true);
    }
}

enum {
    OTHER_NOTHING,
    OTHER_CODEC,
    OTHER_CODEC_OPTIONS,
    OTHER_BUCKETS,
    OTHER_SIZES, /* of as many buckets */
    OTHER_OPTIONS,
    NO_IDENTITY,
    MEASURED,
    OTHERS
};

static bool have_same_sizes(const bench *a, const bench *b) {
    bool same = a->layout.bucket_count == b->layout.bucket_count;
    for (size_t k = 0; k < a->layout.bucket_count && same; k++) same = a->layout.buckets[k].n == b->layout.buckets[k].n;
    return same;
}

static void go_on(taciti_comm *comm, void *context) {
    const int other = *(const int *)context;
    script_options script = {.factor = {10, 100}, .trial = {100, 10}, .period = PERIOD}, changed = script;
    if (other == OTHER_OPTIONS) changed.trial[1] = 50;
    taciti_controller measuring = SCRIPT;
    measuring.measures = true;
    taciti_compression_setup setup = scripted(&script);
    if (other == MEASURED) setup.controller = &measuring;
    bench a, b;
    open_bench(comm, &setup, 9000, &a);
    CHECK(taciti_compression_start(a.c, 0, false) == TACIT_OK);
    take_steps(&a, 0, 7);
    if (other == OTHER_CODEC) setup.sums.codec = taciti_codec_find("sketch");
    setup.controller_options = &changed;
    open_bench(comm, &setup, other == OTHER_BUCKETS ? 12000 : other == OTHER_SIZES ? 9400 : 9000, &b);
    CHECK((b.layout.bucket_count == a.layout.bucket_count) == (other != OTHER_BUCKETS));
    CHECK(have_same_sizes(&a, &b) == (other != OTHER_BUCKETS && other != OTHER_SIZES));
    if (other == NO_IDENTITY) memset(a.c->saved_identity, 0, sizeof a.c->saved_identity);
    restore(&a, &b);
    if (other == OTHER_CODEC_OPTIONS) b.c->saved_identity[2] ^= 1;
    CHECK(taciti_compression_start(b.c, 7, true) == TACIT_OK);
    CHECK(noted(&b)->begun == 1 && noted(&b)->shown == (other == OTHER_NOTHING ? 7 : 0));
    CHECK(b.c->taken == noted(&b)->shown && b.c->step == 7);
    CHECK((b.c->sent[TACITI_PAYLOAD_CONTRIBUTION].threshold.value > 0) == (other == OTHER_NOTHING));
    CHECK((b.c->tried[0].factor > 0) == (other == OTHER_NOTHING));
    for (size_t i = 0; i < b.layout.n && other != OTHER_NOTHING; i++) CHECK(b.c->period_sum[i] == 0);
    if (other == OTHER_NOTHING) {
        take_steps(&a, 7, 15);
        take_steps(&b, 7, 15);
        CHECK(memcmp(a.g, b.g, a.layout.n * sizeof *a.g) == 0);
        CHECK(memcmp(a.c->tried, b.c->tried, sizeof a.c->tried) == 0 && a.c->tried[0].threshold.value > 0);
        CHECK(memcmp(a.c->sent, b.c->sent, sizeof a.c->sent) == 0);
        CHECK(last(&a)->model.squares_period == last(&b)->model.squares_period && last(&a)->model.squares_period > 0);
    }
    close_bench(&a);
    close_bench(&b);
}

/* The same run goes on bit for bit; another one does not take over what the controller has learnt, and says why. Times
 * of links are never taken over: nobody knows which links a run has when it goes on. */
static void a_controller_goes_on_with_its_own_state(void **state) {
    (void)state;
    static const char *const SAYS[OTHERS] = {"begins anew",       "has another codec", "other options of the codec",
                                             "has other buckets", "has other buckets", "other options of it",
                                             "no state of it",    "it measures"};
    for (int other = 0; other < OTHERS; other++) {
        test_log_keep();
        run_ranks(3, go_on, &other);
        const int lines = test_log_count(SAYS[other]), all = test_log_count("begins anew");
        test_log_drop();
        if (lines != (other != OTHER_NOTHING && other != MEASURED) || all != lines)
            fail_msg("case %d: %d of %d lines", other, lines, all);
    }
}

/* The state of three ranks, on five. */
static void move_ranks(taciti_comm *comm, void *context) {
    uint64_t *saved = context;
    const script_options script = {.factor = {10, 10}, .period = 50};
    const taciti_compression_setup setup = scripted(&script);
    bench b;
    open_bench(comm, &setup, 9000, &b);
    const bool first = saved[0] == 0;
    if (!first) memcpy(b.c->saved_identity, saved, sizeof b.c->saved_identity);
    CHECK(taciti_compression_start(b.c, first ? 0 : 7, false) == TACIT_OK);
    CHECK(noted(&b)->begun == 1);
    CHECK(taciti_comm_barrier(comm) == TACIT_OK);
    if (first && taciti_comm_rank(comm) == 0) memcpy(saved, b.c->saved_identity, sizeof b.c->saved_identity);
    close_bench(&b);
}

static void another_number_of_ranks_begins_anew(void **state) {
    (void)state;
    uint64_t saved[TACITI_IDENTITY_PARTS] = {0};
    run_ranks(3, move_ranks, saved);
    test_log_keep();
    run_ranks(5, move_ranks, saved);
    const int lines = test_log_count("another number of ranks");
    test_log_drop();
    assert_int_equal(lines, 1);
}

/* Where nothing reads compress.factor, another one is no other controller. */
static void identities(taciti_comm *comm, void *context) {
    (void)context;
    static const char *const CODECS[] = {"mixed4", "topk"};
    taciti_controller switching = SCRIPT;
    switching.switches = true;
    for (int selects = 0; selects < 2; selects++) {
        uint64_t of[2][TACITI_IDENTITY_PARTS];
        for (int i = 0; i < 2; i++) {
            const script_options script = {.factor = {10, 10}, .period = PERIOD};
            const taciti_compress_options options = {.factor = 10 + i, .start = 1};
            const taciti_compression_setup setup = {.sums.codec = taciti_codec_find(CODECS[selects]),
                                                    .options = &options,
                                                    .controller = &switching,
                                                    .controller_options = &script};
            bench b;
            open_bench(comm, &setup, 9000, &b);
            CHECK(taciti_compression_start(b.c, 0, false) == TACIT_OK);
            memcpy(of[i], b.c->saved_identity, sizeof of[i]);
            close_bench(&b);
        }
        CHECK((memcmp(of[0], of[1], sizeof of[0]) == 0) == (selects == 0));
    }
}

static void a_factor_that_is_not_read_is_no_identity(void **state) {
    (void)state;
    run_ranks(3, identities, NULL);
}

/* ---- thresholds -------------------------------------------------------------------------------------------------- */

static void layers_steps(bench *b, int steps) {
    for (int i = 0; i < steps; i++) {
        fill_layers(b, .5);
        exchange_all(b);
        settle(b, true);
    }
}

/* Opens `to` with the state of a run of 20 steps that had the factor 10, with another one or its own. */
static void resume_with(taciti_comm *comm, const taciti_compress_options *options, bench *from, bench *to) {
    static const taciti_compress_options TEN = {.factor = 10, .feedback = .5, .start = 1};
    taciti_compression_setup setup = {.sums.codec = taciti_codec_find("topk"), .options = &TEN};
    open_bench(comm, &setup, 9000, from);
    CHECK(taciti_compression_start(from->c, 0, false) == TACIT_OK);
    layers_steps(from, 20);
    setup.options = options;
    open_bench(comm, &setup, 9000, to);
    restore(from, to);
    CHECK(taciti_compression_start(to->c, 20, true) == TACIT_OK);
}

/* The first step that sends selects exactly, as at the start of a run, also after dense steps. */
static void change_factor(taciti_comm *comm, void *context) {
    const double factor = *(const double *)context;
    const taciti_compress_options options = {.factor = factor, .feedback = .5, .start = 1};
    const taciti_compress_options ten = {.factor = 10, .feedback = .5, .start = 1};
    bench a, b, c;
    resume_with(comm, &options, &a, &b);
    layers_steps(&b, 1);
    CHECK(fabs(b.report.kept * factor - 1) < .05 && (factor > 1) == (b.c->sent[0].threshold.value > 0));
    const taciti_compression_setup setup = {.sums.codec = taciti_codec_find("topk"), .options = &ten};
    open_bench(comm, &setup, 9000, &c);
    restore(&b, &c);
    CHECK(taciti_compression_start(c.c, 21, true) == TACIT_OK);
    layers_steps(&c, 1);
    CHECK(fabs(c.report.kept * 10 - 1) < .05);
    close_bench(&a);
    close_bench(&b);
    close_bench(&c);
}

static void a_threshold_is_that_of_its_factor(void **state) {
    (void)state;
    static const double FACTORS[] = {1, 2.5, 40};
    for (size_t i = 0; i < sizeof FACTORS / sizeof *FACTORS; i++)
        for (int ranks = 2; ranks <= 3; ranks++) {
            double factor = FACTORS[i];
            run_ranks(ranks, change_factor, &factor);
        }
}

static void keep_factor(taciti_comm *comm, void *context) {
    (void)context;
    static const taciti_compress_options TEN = {.factor = 10, .feedback = .5, .start = 1};
    bench a, b;
    resume_with(comm, &TEN, &a, &b);
    layers_steps(&a, 5);
    layers_steps(&b, 5);
    CHECK(memcmp(a.g, b.g, a.layout.n * sizeof *a.g) == 0 && a.c->sent[0].threshold.value > 0);
    CHECK(memcmp(a.c->sent, b.c->sent, sizeof a.c->sent) == 0);
    close_bench(&a);
    close_bench(&b);
}

static void thresholds_go_on_bit_for_bit(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= 3; ranks++) run_ranks(ranks, keep_factor, NULL);
}

/* ---- residuals --------------------------------------------------------------------------------------------------- */

static float left(int rank, size_t i) { return (float)((int)(i % 5) + rank); }

static float *residual_of(const bench *b, taciti_residual_array which) {
    return taciti_exchange_residual(taciti_compression_exchange(b->c), which);
}

/* Residuals that lie where another number of ranks has left them, also beside what this rank encodes and owns, are in
 * the next step's sum or in the residuals that it leaves. */
static void bring_residuals(taciti_comm *comm, void *context) {
    const double factor = *(const double *)context;
    const script_options script = {.factor = {factor, factor}, .period = 50};
    const taciti_compress_options whole = {.factor = 10, .feedback = 1, .start = 1};
    taciti_compression_setup setup = scripted(&script);
    setup.options = &whole;
    const int ranks = taciti_comm_size(comm);
    bench b;
    open_bench(comm, &setup, 9000, &b);
    for (int a = 0; a <= TACITI_RESIDUAL_RESULT; a++)
        for (size_t i = 0; i < b.layout.n; i++)
            residual_of(&b, (taciti_residual_array)a)[i] =
                test_is_gap(&b.layout, i) ? 0 : left(taciti_comm_rank(comm), i);
    CHECK(taciti_compression_start(b.c, 4, false) == TACIT_OK);
    exchange_all(&b);
    settle(&b, true);
    double *kept = taciti_calloc(b.layout.n, sizeof *kept);
    for (int a = 0; a <= TACITI_RESIDUAL_RESULT; a++)
        for (size_t i = 0; i < b.layout.n; i++) kept[i] += (double)residual_of(&b, (taciti_residual_array)a)[i];
    CHECK(taciti_comm_allreduce_f64(comm, kept, b.layout.n, TACITI_OP_SUM) == TACIT_OK);
    for (size_t i = 0; i < b.layout.n; i++) {
        double sum = 0;
        for (int r = 0; r < ranks; r++) sum += 2 * (double)left(r, i);
        CHECK(test_is_gap(&b.layout, i) || (double)b.g[i] + kept[i] == sum);
        CHECK(factor > 1 || kept[i] == 0);
    }
    taciti_free(kept);
    close_bench(&b);
}

static void residuals_of_other_ranks_arrive(void **state) {
    (void)state;
    for (double factor = 1; factor <= 10; factor += 9)
        for (int ranks = 3; ranks <= 5; ranks += 2) run_ranks(ranks, bring_residuals, &factor);
}

/* Residuals of another number of ranks are added up; their estimates mean nothing. */
static void look_at_rules(taciti_comm *comm, void *context) {
    const bool estimates = *(const int *)context > 0;
    const taciti_compress_options options = {.factor = 10,
                                             .start = 1,
                                             .feedback = estimates ? 0 : 1,
                                             .what = estimates ? TACITI_SENDS_CHANGE : TACITI_SENDS_GRADIENT};
    const taciti_compression_setup setup = {.sums.codec = taciti_codec_find("topk"), .options = &options};
    taciti_state listed = {.count = 0};
    bench b;
    open_bench(comm, &setup, 9000, &b);
    taciti_compression_state(b.c, &listed);
    const taciti_state_entry *entry = taciti_state_find(&listed, estimates ? "strategy.estimate" : "strategy.residual");
    CHECK(entry != NULL && entry->regroup == (estimates ? TACITI_STATE_RESET : TACITI_STATE_SUM));
    close_bench(&b);
}

static void residuals_are_added_up_and_estimates_are_not(void **state) {
    (void)state;
    for (int estimates = 0; estimates < 2; estimates++) run_ranks(3, look_at_rules, &estimates);
}

/* Estimates and a codec's memory of positions belong to the ranks and places that made them. */
static void forget(taciti_comm *comm, void *context) {
    const int estimates = *(const int *)context;
    taciti_compress_options options = {
        .factor = 10, .start = 1, .what = estimates > 0 ? TACITI_SENDS_CHANGE : TACITI_SENDS_GRADIENT};
    const taciti_codec *codec = taciti_codec_find(estimates ? "topk" : "powersgd");
    void *codec_options = NULL;
    CHECK(taciti_codec_defaults(codec, &codec_options) == TACIT_OK);
    const taciti_compression_setup setup = {.sums.codec = codec, .sums.options = codec_options, .options = &options};
    for (int moved = 0; moved < 3; moved++) {
        bench b;
        size_t bytes = 0, kept = 0;
        open_bench(comm, &setup, 9000, &b);
        taciti_exchange *exchange = taciti_compression_exchange(b.c);
        unsigned char *memory = taciti_exchange_codec_state(exchange, &bytes);
        if (estimates) {
            memory = (unsigned char *)taciti_exchange_residual(exchange, TACITI_RESIDUAL_CONTRIBUTION);
            bytes = b.layout.n * sizeof(float);
        }
        CHECK(memory != NULL && bytes > 0);
        memset(memory, 1, bytes);
        if (moved == 2 && taciti_comm_rank(comm) == 1) b.c->saved_placement++; /* all forget with it */
        CHECK(taciti_compression_start(b.c, 4, moved != 1) == TACIT_OK);
        for (size_t i = 0; i < bytes; i++) kept += memory[i] == 1;
        CHECK(kept == (moved == 0 ? bytes : 0) && b.c->saved_placement == b.c->placement);
        close_bench(&b);
    }
    taciti_free(codec_options);
}

static void positions_are_forgotten(void **state) {
    (void)state;
    for (int estimates = 0; estimates < 2; estimates++) run_ranks(3, forget, &estimates);
}

/* Each case says which rank stores residuals of which arrays. */
typedef struct placing {
    taciti_way way;
    int64_t of[3];
} placing;

static void note_placement(taciti_comm *comm, void *context) {
    placing *p = context;
    bench b;
    const taciti_compress_options options = {.factor = 10, .start = 1, .collective = (int)p->way};
    const taciti_compression_setup setup = {.sums.codec = taciti_codec_find("topk"), .options = &options};
    open_bench(comm, &setup, 1 << 20, &b); /* one bucket of several pieces */
    CHECK(b.c->saved_placement == b.c->placement);
    p->of[taciti_comm_rank(comm)] = b.c->placement;
    close_bench(&b);
}

/* Each rank has a place of its own, and another way or other ranges give it another one. */
static void placements_differ(void **state) {
    (void)state;
    placing all[] = {{.way = TACITI_WAY_SCATTER}, {.way = TACITI_WAY_GATHER}, {.way = TACITI_WAY_SCATTER}};
    for (int i = 0; i < 3; i++) {
        g_exchange.contiguous = i == 2;
        run_ranks(3, note_placement, &all[i]);
        g_exchange.contiguous = false;
        assert_true(all[i].of[0] != all[i].of[1] && all[i].of[1] != all[i].of[2] && all[i].of[0] != all[i].of[2]);
    }
    for (int r = 0; r < 3; r++)
        assert_true(all[0].of[r] != all[1].of[r] && all[0].of[r] != all[2].of[r] && all[1].of[r] != all[2].of[r]);
}

/* ---- what sends more than it saves ------------------------------------------------------------------------------- */

typedef struct price {
    double factor, back;
    taciti_phase phase;
    bool warns;
} price;

static void open_and_close(taciti_comm *comm, void *context) {
    const price *p = context;
    const taciti_compress_options options = {
        .factor = p->factor, .back = p->back, .start = 1, .collective = TACITI_WAY_SCATTER};
    const taciti_compression_setup setup = {
        .sums.codec = taciti_codec_find("topk"), .options = &options, .phase = p->phase};
    bench b;
    open_bench(comm, &setup, 1 << 20, &b);
    close_bench(&b);
}

/* Both directions count, at their own factors; a dense run sends nothing but floats; halves are not priced. */
static void more_bytes_have_a_warning(void **state) {
    (void)state;
    static const price CASES[] = {{1.5, 0, TACITI_PHASE_ALL_REDUCE, true},
                                  {1.5, 1000, TACITI_PHASE_ALL_REDUCE, false},
                                  {1, 0, TACITI_PHASE_ALL_REDUCE, false},
                                  {10, 0, TACITI_PHASE_ALL_REDUCE, false},
                                  {1.5, 0, TACITI_PHASE_ALL_GATHER, false}};
    g_exchange.wire = (taciti_text){"bf16"};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        price p = CASES[i];
        test_log_keep();
        run_ranks(5, open_and_close, &p);
        const int lines = test_log_count("MB without it");
        test_log_drop();
        if (lines != p.warns) fail_msg("case %zu: %d lines", i, lines);
    }
    g_exchange.wire = (taciti_text){""};
}

/* ---- a warm-up that does not end --------------------------------------------------------------------------------- */

typedef struct rise {
    const char *codec;
    double factor, start;
    int64_t warmup, steps;
    taciti_phase phase;
    bool controlled;
    int lines;
} rise;

static void open_rising(taciti_comm *comm, void *context) {
    const rise *r = context;
    const script_options script = {.factor = {10, 10}, .period = PERIOD};
    const taciti_compress_options options = {.factor = r->factor, .start = r->start, .warmup = r->warmup};
    const taciti_codec *codec = taciti_codec_find(r->codec);
    const taciti_compression_setup setup = {.sums.codec = codec,
                                            .gathers.codec = codec,
                                            .options = &options,
                                            .controller = r->controlled ? &SCRIPT : NULL,
                                            .controller_options = &script,
                                            .phase = r->phase};
    bench b;
    open_bench(comm, &setup, 9000, &b);
    close_bench(&b);
}

/* Once, for the sums of shard and not for its gathers, too; -1 is 200 steps, of codecs that select, and not of
 * controllers. */
static void a_warmup_longer_than_the_run_has_a_warning(void **state) {
    (void)state;
    static const rise CASES[] = {
        {"topk", 10, 1, 50, 50, TACITI_PHASE_ALL_REDUCE, false, 1},
        {"topk", 10, 1, 49, 50, TACITI_PHASE_ALL_REDUCE, false, 0},
        {"topk", 10, 1, 50, 0, TACITI_PHASE_ALL_REDUCE, false, 0},
        {"topk", 10, 10, 50, 50, TACITI_PHASE_ALL_REDUCE, false, 0},
        {"topk", 10, 1, -1, 50, TACITI_PHASE_REDUCE_SCATTER, false, 1},
        {"topk", 10, 1, -1, 201, TACITI_PHASE_ALL_REDUCE, false, 0},
        {"topk", 10, 1, -1, 50, TACITI_PHASE_ALL_GATHER, false, 0},
        {"topk", 10, 1, -1, 50, TACITI_PHASE_ALL_REDUCE, true, 0},
        {"topk", 10, 1, 50, 50, TACITI_PHASE_ALL_REDUCE, true, 1},
        {"int4", 10, 1, 50, 50, TACITI_PHASE_ALL_REDUCE, false, 0},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        rise r = CASES[i];
        g_total_steps = r.steps;
        test_log_keep();
        run_ranks(3, open_rising, &r);
        const int lines = test_log_count("so it never reaches 10: --compress.warmup N");
        test_log_drop();
        if (lines != r.lines) fail_msg("case %zu: %d lines", i, lines);
    }
    g_total_steps = 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_controller_goes_on_with_its_own_state),
        cmocka_unit_test(another_number_of_ranks_begins_anew),
        cmocka_unit_test(a_factor_that_is_not_read_is_no_identity),
        cmocka_unit_test(a_threshold_is_that_of_its_factor),
        cmocka_unit_test(thresholds_go_on_bit_for_bit),
        cmocka_unit_test(residuals_of_other_ranks_arrive),
        cmocka_unit_test(residuals_are_added_up_and_estimates_are_not),
        cmocka_unit_test(positions_are_forgotten),
        cmocka_unit_test(placements_differ),
        cmocka_unit_test(more_bytes_have_a_warning),
        cmocka_unit_test(a_warmup_longer_than_the_run_has_a_warning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
