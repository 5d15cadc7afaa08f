/* SPDX-License-Identifier: Apache-2.0
 *
 * Compressed mixes: the mean is kept, replicas stay as near as without compression, what does not converge is refused,
 * and a checkpoint of another graph is used without its knowledge of neighbours.
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
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "strategy/test_replicas.h"

static const int SIZES[] = {2, 3, 5, 6, 7, 8};
enum { SIZE_COUNT = sizeof SIZES / sizeof *SIZES };

static test_replicas run_of(int ranks, int steps, const char *graph, const char *codec) {
    test_replicas t = test_replicas_of(ranks, steps);
    test_topology(&t, graph);
    t.codec = codec;
    t.problem = TEST_UNEQUAL;
    return t;
}

/* ---- the mean ---------------------------------------------------------------------------------------------------- */

/* Gradients that depend on neither x nor the codec: whatever is lost, the mean over ranks follows SGD. */
static void the_mean_follows_sgd(void **state) {
    static const struct {
        const char *graph, *codec; /* NULL: powergossip */
    } CASES[] = {{"base-k", "int4"}, {"exp", "signmag2"}, {"aer", "efsign"}, {"ring", "int8"}, {"base-k", NULL}};
    (void)state;
    for (int s = 0; s < SIZE_COUNT; s++)
        for (size_t c = 0; c < sizeof CASES / sizeof *CASES; c++) {
            test_replicas plain = run_of(SIZES[s], 12, CASES[c].graph, NULL), packed = plain;
            plain.problem = packed.problem = TEST_NOISE;
            packed.codec = CASES[c].codec;
            if (packed.codec == NULL) packed.gossip.codec = (taciti_text){TACITI_GOSSIP_POWER};
            test_replicas_run(&plain);
            test_replicas_run(&packed);
            assert_true(packed.status == TACIT_OK);
            for (size_t i = 0; i < plain.n; i++) {
                double expected = 0, mean = 0;
                for (int r = 0; r < SIZES[s]; r++) {
                    expected += (double)plain.parameters[r][i];
                    mean += (double)packed.parameters[r][i];
                }
                assert_true(fabs(mean - expected) <= 1e-4 * SIZES[s]);
            }
            test_replicas_free(&plain);
            test_replicas_free(&packed);
        }
}

/* ---- distance ---------------------------------------------------------------------------------------------------- */

/* A mix leaves the codec's loss of a step's differences: with 4 bits a tenth, with 2 bits a third. */
static void replicas_stay_together(void **state) {
    static const struct {
        const char *codec;
        double factor;
    } CASES[] = {{"int8", 1.05}, {"int4", 1.25}, {"signmag2", 2}};
    (void)state;
    for (int s = 1; s < SIZE_COUNT; s++)
        for (size_t c = 0; c < sizeof CASES / sizeof *CASES; c++) {
            test_replicas plain = run_of(SIZES[s], 60, "base-k", NULL), packed = plain;
            plain.problem = packed.problem = TEST_NOISE;
            plain.average_at = packed.average_at = 59;
            packed.codec = CASES[c].codec;
            test_replicas_run(&plain);
            test_replicas_run(&packed);
            assert_true(packed.status == TACIT_OK && plain.distance[0] > 0);
            assert_true(packed.distance[0] <= CASES[c].factor * plain.distance[0]);
            test_replicas_free(&plain);
            test_replicas_free(&packed);
        }
}

/* Replicas are equal when they begin to differ, and all know it: differences are 0, and nothing moves. */
static void the_first_mix_moves_nothing(void **state) {
    enum { DENSE = 8 };
    (void)state;
    test_replicas t = run_of(4, DENSE + 1, "complete", "efsign");
    t.problem = TEST_EQUAL;
    t.total_steps = 2 * DENSE;
    t.gossip.start = 0.5;
    test_replicas_run(&t);
    assert_true(t.status == TACIT_OK && t.reports[0][DENSE - 1].moved == 0);
    for (int r = 0; r < 4; r++) assert_true(t.reports[r][DENSE].moved == 0);
    test_replicas_free(&t);
}

enum { VECTORS = 704 }; /* the first tensor is a matrix of 700 elements */

/* Elements of no matrix have the weights of the graph, which are not 1/2 for three and five ranks. */
static void factors_keep_the_weights_of_the_graph(void **state) {
    (void)state;
    for (int ranks = 3; ranks <= 6; ranks++) {
        test_replicas plain = run_of(ranks, 5, "base-k", NULL), packed = plain;
        plain.scattered = true;
        plain.lr = 0;
        packed = plain;
        packed.gossip.codec = (taciti_text){TACITI_GOSSIP_POWER};
        test_replicas_run(&plain);
        test_replicas_run(&packed);
        for (int r = 0; r < ranks; r++)
            for (size_t i = VECTORS; i < plain.n; i++)
                assert_true(fabsf(packed.parameters[r][i] - plain.parameters[r][i]) <= 1e-5F);
        test_replicas_free(&plain);
        test_replicas_free(&packed);
    }
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

/* f32 loses nothing: nothing is remembered, and the bits are those of a run without a codec. */
static void f32_is_no_compression(void **state) {
    (void)state;
    for (int s = 0; s < SIZE_COUNT; s++) {
        test_replicas plain = run_of(SIZES[s], 9, "exp", NULL), packed = plain;
        packed.codec = "f32";
        assert_true(test_replicas_agree(&plain, &packed));
    }
}

/* gossip.codec `word` on these ranks; TACIT_E_CONFIG with one line that has `says`, or TACIT_OK if that is NULL. */
static void judge(test_replicas *t, const char *word, const char *says) {
    const taciti_compress_options compress = {.factor = 10};
    taciti_hosts hosts;
    assert_int_equal(taciti_hosts_create(t->ranks, &hosts), TACIT_OK);
    (void)strcpy(t->gossip.codec.text, word);
    const taciti_strategy_context context = {
        .compression = {.options = &compress, .mixes = {.codec = taciti_codec_find(word)}},
        .exchange_options = &t->exchange,
        .optim_options = &t->optim,
        .options = &t->gossip};
    test_log_keep();
    const tacit_status status = taciti_strategy_find("gossip")->check(&context, &hosts);
    assert_int_equal(status, says == NULL ? TACIT_OK : TACIT_E_CONFIG);
    if (says != NULL) assert_int_equal(test_log_count(says), 1);
    test_log_drop();
    taciti_hosts_destroy(&hosts);
}

/* int4 loses a tenth: 2 (1 - s) / (1 + s) / m is above 1 on a ring of six, m = 4/3, and 2 bits lose a third. With the
 * integral, whose leak is 0.9, the limit is lower by 1 + 0.2 / 1.9. */
static void too_large_a_step_is_refused(void **state) {
    static const struct {
        const char *graph, *codec;
        double gamma, integral;
        const char *says; /* NULL: it is taken */
    } CASES[] = {
        {"ring", "int4", 1, 0.2, NULL},
        {"ring", "signmag2", 1, 0, "gossip.gamma 1 is above 0.7"},
        {"ring", "signmag2", 0.7, 0, NULL},
        {"ring", "signmag2", 0.7, 0.2, "gossip.gamma 0.7 is above 0.6"},
        {"ring", "signmag2", 0.63, 0.2, NULL},
        {"base-k", "signmag2", 1, 0.2, NULL},
        {"exp", "efsign", 1, 0.2, NULL},
        {"exp", "signsgd", 1, 0.2, "does not contract"},
        {"exp", "sketch", 1, 0.2, "every receiver decodes by itself"},
        {"exp", "powersgd", 1, 0.2, "every receiver decodes by itself"},
        {"ring", "powergossip", 1, 0.2, "has other edges"},
        {"exp-directed", "powergossip", 1, 0.2, "has other edges"},
        {"base-k", "powergossip", 1, 0.2, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        test_replicas t = run_of(6, 2, CASES[i].graph, CASES[i].codec);
        t.gossip.gamma = CASES[i].gamma;
        t.gossip.integral = CASES[i].integral;
        t.optim.name = TACITI_OPTIM_ADAMW;
        judge(&t, CASES[i].codec, CASES[i].says);
    }
}

/* In 32 random rounds among 101 ranks hardly any pair meets twice. */
static void more_ways_to_meet_than_ranks_remember_are_refused(void **state) {
    (void)state;
    test_replicas t = run_of(101, 1, "random", NULL);
    judge(&t, "int4", "meets others in more than 24 ways");
    judge(&t, "powergossip", "meets others in more than 24 ways");
    judge(&t, "f32", NULL);
    judge(&t, "none", NULL);
    t.ranks = 6; /* each meets five others, again and again */
    judge(&t, "int4", NULL);
    judge(&t, "powergossip", NULL);
}

/* Three ranks keep 3/4 in the first round and 1/4 in the second, where two bits need a gamma below 0.7. */
static void every_round_limits_the_step_size(void **state) {
    (void)state;
    char path[64];
    test_replicas t = run_of(3, 1, "exp", NULL);
    (void)snprintf(path, sizeof path, "/tmp/tacit-test-rounds-%ld.csv", (long)getpid());
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void)fputs(".75,.25,0\n0,.75,.25\n.25,0,.75\n.25,.75,0\n0,.25,.75\n.75,0,.25\n", file);
    assert_int_equal(fclose(file), 0);
    (void)strcpy(t.gossip.topology.text, "file");
    (void)strcpy(t.gossip.file.text, path);
    judge(&t, "signmag2", "gossip.gamma 1 is above 0.6");
    t.gossip.gamma = 0.6;
    judge(&t, "signmag2", NULL);
    assert_int_equal(unlink(path), 0);
}

static void two_formats_for_one_mix_are_refused(void **state) {
    (void)state;
    test_replicas t = run_of(6, 1, "base-k", NULL);
    for (int wire = 0; taciti_codec_dense_name((size_t)wire) != NULL; wire++) {
        const bool f32 = strcmp(taciti_codec_dense_name((size_t)wire), "f32") == 0;
        (void)strcpy(t.exchange.wire.text, taciti_codec_dense_name((size_t)wire));
        judge(&t, "f32", f32 ? NULL : "--exchange.wire f32, or --gossip.codec none");
        judge(&t, "powergossip", f32 ? NULL : "--exchange.wire f32, or --gossip.codec int4");
        judge(&t, "int4", NULL); /* the wire is that of the first steps */
    }
}

/* All names are taken, but for those that a topology or a step size excludes. */
static void what_is_always_refused_is_not_listed(void **state) {
    (void)state;
    test_replicas t = run_of(6, 1, "base-k", NULL);
    const taciti_option *option = taciti_gossip_option_table.options;
    while (strcmp(option->key, "codec") != 0) option++;
    size_t count = 0, ends = 0;
    for (size_t i = 0; ends < 2; i++) {
        const char *name = option->names(i);
        ends += name == NULL;
        count += name != NULL;
        if (name != NULL) judge(&t, name, NULL);
    }
    assert_true(count > 14);
}

/* A period more sends what the last report of the longer run says. */
static void bytes_that_vary_are_counted(void **state) {
    static const struct {
        const char *graph;
        int ranks, period;
    } CASES[] = {{"complete", 3, 1}, {"ring", 5, 1}, {"one-peer-ring", 4, 2}};
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const int period = CASES[i].period;
        test_replicas brief = run_of(CASES[i].ranks, 6, CASES[i].graph, "topk"), longer;
        brief.exchange.overlap = false;
        brief.problem = TEST_NOISE;
        longer = brief;
        longer.steps += period;
        test_replicas_run(&brief);
        test_replicas_run(&longer);
        for (int r = 0; r < brief.ranks; r++) {
            const double bytes = longer.reports[r][longer.steps - 1].bytes, first = longer.reports[r][0].bytes;
            assert_int_equal((longer.sent[r] - brief.sent[r]) / (uint64_t)period, (uint64_t)bytes);
            assert_true(bytes > 0 && (period > 1 || first != bytes)); /* payloads vary */
        }
        test_replicas_free(&brief);
        test_replicas_free(&longer);
    }
}

/* ---- another graph ----------------------------------------------------------------------------------------------- */

/* A rank that meets others than before knows nothing of them. The mean is kept all the same, and they come together. */
static void another_graph_begins_without_knowledge(void **state) {
    (void)state;
    for (int s = 1; s < SIZE_COUNT; s++) {
        test_replicas plain = run_of(SIZES[s], 40, "exp", NULL), packed = plain;
        taciti_gossip_options now = plain.gossip;
        plain.problem = packed.problem = TEST_NOISE;
        now.topology = (taciti_text){"base-k"};
        plain.stop_after = packed.stop_after = 7;
        plain.resumed = packed.resumed = &now;
        plain.average_at = packed.average_at = 39;
        packed.codec = "int4";
        test_replicas_run(&plain);
        test_replicas_run(&packed);
        assert_true(packed.status == TACIT_OK && packed.started[0] == TACIT_OK);
        for (size_t i = 0; i < plain.n; i++) assert_true(fabsf(packed.averages[0][i] - plain.averages[0][i]) <= 1e-4F);
        assert_true(packed.distance[0] <= 1.25 * plain.distance[0]);
        test_replicas_free(&plain);
        test_replicas_free(&packed);
    }
}

enum { KNOWLEDGE = 5 }; /* place in the numbers of a checkpoint */

/* Ranks of one host encode nothing among themselves, so knowledge is that of the hosts, too. */
static void other_hosts_are_another_knowledge(void **state) {
    (void)state;
    double known[2];
    for (int hosts = 0; hosts < 2; hosts++) {
        test_replicas t = run_of(4, 1, "complete", "int4");
        test_ranks_per_host(hosts == 0 ? 0 : 2);
        test_replicas_run(&t);
        test_ranks_per_host(0);
        known[hosts] = t.numbers[0][KNOWLEDGE];
        test_replicas_free(&t);
    }
    assert_true(known[0] > 0 && known[1] > 0 && known[0] != known[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_mean_follows_sgd),
        cmocka_unit_test(replicas_stay_together),
        cmocka_unit_test(the_first_mix_moves_nothing),
        cmocka_unit_test(factors_keep_the_weights_of_the_graph),
        cmocka_unit_test(f32_is_no_compression),
        cmocka_unit_test(too_large_a_step_is_refused),
        cmocka_unit_test(more_ways_to_meet_than_ranks_remember_are_refused),
        cmocka_unit_test(every_round_limits_the_step_size),
        cmocka_unit_test(two_formats_for_one_mix_are_refused),
        cmocka_unit_test(what_is_always_refused_is_not_listed),
        cmocka_unit_test(bytes_that_vary_are_counted),
        cmocka_unit_test(another_graph_begins_without_knowledge),
        cmocka_unit_test(other_hosts_are_another_knowledge),
    };
    return cmocka_run_group_tests_name("gossip_codec", tests, NULL, NULL);
}
