/* SPDX-License-Identifier: Apache-2.0
 *
 * Push-sum: a directed graph on which ranks do not hear as much as they tell, against the same in doubles.
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "strategy/test_replicas.h"

enum { N = 4, MASS = 1 /* place in the numbers of a checkpoint */ };
#define TOLERANCE 0x1p-19 /* 32 roundings of numbers below 4 */

/* Columns sum to 1, rows to 1.25, 1, .75, 1. */
static const double P[N][N] = {{.5, 0, .25, .5}, {.5, .5, 0, 0}, {0, .5, .25, 0}, {0, 0, .5, .5}};
static const double C[N] = {1, -3, 2, .5};
static char g_path[] = "/tmp/tacit-push-XXXXXX";

static int write_matrix(void **state) {
    (void)state;
    const int file = mkstemp(g_path);
    FILE *out = file < 0 ? NULL : fdopen(file, "w");
    if (out == NULL) return -1;
    for (int i = 0; i < N; i++)
        if (fprintf(out, "%g,%g,%g,%g\n", P[i][0], P[i][1], P[i][2], P[i][3]) < 0) return -1;
    return fclose(out);
}

static int remove_matrix(void **state) {
    (void)state;
    return unlink(g_path);
}

static test_replicas pushed(int steps) {
    test_replicas t = test_replicas_of(N, steps);
    t.problem = TEST_QUADRATIC;
    t.c = C;
    t.start = 0;
    test_topology(&t, "file");
    (void)snprintf(t.gossip.file.text, sizeof t.gossip.file.text, "%s", g_path);
    return t;
}

/* x and w of all ranks. */
typedef struct sums {
    double x[N], w[N];
} sums;

static void push(sums *s, double gamma) {
    const sums before = *s;
    for (int i = 0; i < N; i++) {
        s->x[i] = (1 - gamma) * before.x[i];
        s->w[i] = (1 - gamma) * before.w[i];
        for (int j = 0; j < N; j++) {
            s->x[i] += gamma * P[i][j] * before.x[j];
            s->w[i] += gamma * P[i][j] * before.w[j];
        }
    }
}

/* Stochastic gradient push with steps of size lr at z = x / w. */
static sums reference(const test_replicas *t, double lr, int mixes) {
    sums s = {.w = {1, 1, 1, 1}};
    for (int step = 0; step < t->steps; step++) {
        double d[N];
        for (int i = 0; i < N; i++) d[i] = lr * (s.x[i] / s.w[i] - C[i]);
        for (int i = 0; i < N && t->gossip.order == TACITI_GOSSIP_ATC; i++) s.x[i] -= d[i];
        for (int r = 0; r < mixes; r++) push(&s, t->gossip.gamma);
        for (int i = 0; i < N && t->gossip.order == TACITI_GOSSIP_AWC; i++) s.x[i] -= d[i];
    }
    return s;
}

static void expect(test_replicas *t, const sums *s) {
    test_replicas_run(t);
    assert_true(t->status == TACIT_OK);
    double masses = 0;
    for (int r = 0; r < N; r++) {
        assert_true(fabs(t->numbers[r][MASS] - s->w[r]) <= 1e-12);
        assert_true(fabs((double)t->parameters[r][0] - s->x[r] / s->w[r]) <= TOLERANCE);
        masses += t->numbers[r][MASS];
    }
    assert_true(fabs(masses - N) <= 1e-12);
    test_replicas_free(t);
}

static void parameters_are_those_of_gradient_push(void **state) {
    (void)state;
    for (int order = 0; order < 2; order++)
        for (int half = 0; half < 2; half++)
            for (int overlap = 0; overlap < 2; overlap++) {
                test_replicas t = pushed(20);
                t.gossip.order = order;
                t.gossip.gamma = half ? 0.5 : 1;
                t.exchange.overlap = overlap;
                const sums s = reference(&t, t.lr, 1);
                expect(&t, &s);
            }
}

/* x(k + 3) = P x(k) + what three local steps have changed since, z = x / w with the w of the last mix. */
static void several_steps_per_mix_conserve_mass(void **state) {
    (void)state;
    test_replicas t = pushed(18);
    t.gossip.every = 3;
    sums s = {.w = {1, 1, 1, 1}}, handed = s;
    for (int step = 0; step < t.steps; step++) {
        double d[N];
        for (int i = 0; i < N; i++) d[i] = t.lr * (s.x[i] / s.w[i] - C[i]);
        if ((step + 1) % 3 == 0) {
            sums mixed = handed;
            push(&mixed, 1);
            for (int i = 0; i < N; i++) s.x[i] += mixed.x[i] - handed.x[i];
            memcpy(s.w, mixed.w, sizeof s.w);
        }
        for (int i = 0; i < N; i++) s.x[i] -= d[i];
        if ((step + 1) % 3 == 0) handed = s;
    }
    expect(&t, &s);
}

static void all_agree_on_the_mean(void **state) {
    (void)state;
    test_replicas t = pushed(120);
    t.scattered = true;
    t.lr = 0;
    test_replicas before = t;
    before.steps = 0;
    test_replicas_run(&before);
    test_replicas_run(&t);
    for (size_t i = 0; i < t.n; i++) {
        double mean = 0;
        for (int r = 0; r < N; r++) mean += (double)before.parameters[r][i] / N;
        for (int r = 0; r < N; r++) assert_true(fabs((double)t.parameters[r][i] - mean) <= 0x1p-17);
    }
    test_replicas_free(&before);
    test_replicas_free(&t);
}

/* The average is that of x, not of x / w. */
static void the_average_is_weighted(void **state) {
    (void)state;
    test_replicas t = pushed(9), first;
    t.average_at = 8;
    first = t;
    first.steps = 8;
    const sums s = reference(&first, t.lr, 1);
    test_replicas_run(&t);
    for (int r = 0; r < N; r++)
        assert_true(fabs((double)t.averages[r][0] - (s.x[0] + s.x[1] + s.x[2] + s.x[3]) / N) <= TOLERANCE);
    test_replicas_free(&t);
}

static void resumed_is_uninterrupted(void **state) {
    (void)state;
    for (int every = 1; every <= 3; every += 2)
        for (int stop = 1; stop < 8; stop++) {
            test_replicas whole = pushed(11), cut;
            whole.gossip.every = every;
            cut = whole;
            cut.stop_after = stop;
            test_replicas_run(&whole);
            test_replicas_run(&cut);
            assert_true(test_replicas_same(&whole, &cut));
            test_replicas_free(&whole);
            test_replicas_free(&cut);
        }
}

/* Mix `number` of topology exp on N ranks, which needs no weights. */
static void pair_up(sums *s, int number) {
    const sums before = *s;
    for (int i = 0; i < N; i++) {
        const int j = i ^ (1 << number % 2);
        s->x[i] = (before.x[i] + before.x[j]) / 2;
        s->w[i] = (before.w[i] + before.w[j]) / 2;
    }
}

/* The sum of x stays what it was at the checkpoint, whatever graph is used from then on; with lr 0 so does the mean. */
static void a_graph_without_weights_keeps_those_it_finds(void **state) {
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        test_replicas t = pushed(11);
        t.gossip.order = kind / 2;
        t.exchange.overlap = kind % 2;
        taciti_gossip_options then = t.gossip;
        (void)snprintf(then.topology.text, sizeof then.topology.text, "exp");
        then.file.text[0] = '\0';
        t.resumed = &then;
        t.stop_after = 5;
        test_replicas first = t;
        first.steps = t.stop_after;
        sums s = reference(&first, t.lr, 1);
        for (int step = t.stop_after; step < t.steps; step++) {
            double d[N];
            for (int i = 0; i < N; i++) d[i] = t.lr * (s.x[i] / s.w[i] - C[i]);
            for (int i = 0; i < N && t.gossip.order == TACITI_GOSSIP_ATC; i++) s.x[i] -= d[i];
            pair_up(&s, step);
            for (int i = 0; i < N && t.gossip.order == TACITI_GOSSIP_AWC; i++) s.x[i] -= d[i];
        }
        expect(&t, &s);
    }
}

/* All elements have the same problem, and weights belong to whole rounds: halves of the buckets do not go apart. */
static void weights_keep_all_buckets_in_the_same_round(void **state) {
    (void)state;
    enum { WHOLE = 6 }; /* in the numbers of a checkpoint */
    test_replicas t = pushed(11);
    taciti_gossip_options then = t.gossip;
    (void)snprintf(then.topology.text, sizeof then.topology.text, "aer");
    then.file.text[0] = '\0';
    then.per_host = 2;
    t.resumed = &then;
    t.stop_after = 5;
    test_replicas_run(&t);
    assert_true(t.status == TACIT_OK && t.n > t.bucket_bytes / sizeof(float));
    for (int r = 0; r < N; r++) {
        assert_memory_equal(&t.parameters[r][0], &t.parameters[r][t.n - 20], sizeof(float));
        assert_true(t.numbers[r][WHOLE] > 0);
    }
    test_replicas_free(&t);
    /* and so does a run that goes on from there, whatever its weights are by then */
    test_replicas next = test_replicas_of(N, 7);
    test_topology(&next, "aer");
    next.gossip.per_host = 2;
    next.stop_after = 3;
    next.wrong_rank = TEST_EVERY_RANK;
    next.wrong_number = WHOLE;
    next.wrong_value = 1;
    test_replicas_run(&next);
    for (int r = 0; r < N; r++) assert_true(next.numbers[r][WHOLE] > 0);
    test_replicas_free(&next);
}

static void what_takes_no_weights_refuses_those_it_finds(void **state) {
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        test_replicas t = pushed(4);
        taciti_gossip_options then = t.gossip;
        (void)snprintf(then.topology.text, sizeof then.topology.text, "exp");
        then.file.text[0] = '\0';
        if (kind == 1) then.tracker = true;
        if (kind == 2) then.gamma = 0.5;
        t.resumed = &then;
        t.stop_after = 2;
        test_log_keep();
        test_replicas_run(&t);
        for (int r = 0; r < N; r++) assert_int_equal(t.started[r], kind % 2 == 1 ? TACIT_E_CONFIG : TACIT_OK);
        assert_int_equal(test_log_count("--resume-from-mean"), kind % 2);
        test_log_drop();
        test_replicas_free(&t);
    }
}

/* Before they send each other their weights: none waits for one that has returned. */
static void a_damaged_weight_is_refused_by_all(void **state) {
    (void)state;
    test_replicas t = pushed(4);
    t.stop_after = 2;
    t.wrong_rank = 1;
    t.wrong_number = MASS;
    t.wrong_value = -1;
    test_log_keep();
    test_replicas_run(&t);
    for (int r = 0; r < N; r++) assert_int_equal(t.started[r], TACIT_E_DATA);
    test_log_drop();
    test_replicas_free(&t);
}

/* x <- (x + what is heard) / 2 of all ranks, i hears i - distance, in floats. */
static void halve(const test_replicas *from, int distance, float *const *x) {
    const taciti_kernels *kernels = taciti_kernels_get();
    for (int r = 0; r < from->ranks; r++) {
        taciti_blend half = {
            .arrived = from->parameters[(r + from->ranks - distance) % from->ranks], .keep = 0.5f, .share = 0.5f};
        memcpy(x[r], from->parameters[r], from->n * sizeof *x[r]);
        kernels->blend(&half, x[r], NULL, from->n);
    }
    for (int r = 0; r < from->ranks; r++) memcpy(from->parameters[r], x[r], from->n * sizeof *x[r]);
}

/* As many heard as told: no weight but 1, and no bit is different from a mix without weights. */
static void regular_graphs_keep_their_weights(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= 7; ranks++) {
        test_replicas t = test_replicas_of(ranks, 9), halved;
        float *scratch[7];
        t.scattered = true;
        t.lr = 0;
        test_topology(&t, "exp-directed");
        halved = t;
        halved.steps = 0;
        test_replicas_run(&halved);
        for (int r = 0; r < ranks; r++) scratch[r] = taciti_calloc(halved.n, sizeof *scratch[r]);
        for (int step = 0, distance = 1; step < t.steps; step++, distance = 2 * distance < ranks ? 2 * distance : 1)
            halve(&halved, distance, scratch);
        test_replicas_run(&t);
        for (int r = 0; r < ranks; r++) {
            assert_true(t.numbers[r][MASS] == 1);
            taciti_free(scratch[r]);
        }
        assert_true(test_replicas_same(&t, &halved));
        test_replicas_free(&t);
        test_replicas_free(&halved);
    }
}

static void what_needs_double_stochasticity_is_refused(void **state) {
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        test_replicas t = pushed(2);
        if (kind == 0) t.gossip.tracker = true;
        if (kind == 1) t.gossip.delay = 1, t.gossip.gamma = 0.5;
        test_log_keep();
        test_replicas_run(&t);
        assert_true(t.status == TACIT_E_CONFIG && t.predicted == TACIT_E_CONFIG);
        assert_true(test_log_count("push-sum") >= 1);
        test_log_drop();
        test_replicas_free(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_those_of_gradient_push),
        cmocka_unit_test(weights_keep_all_buckets_in_the_same_round),
        cmocka_unit_test(several_steps_per_mix_conserve_mass),
        cmocka_unit_test(all_agree_on_the_mean),
        cmocka_unit_test(the_average_is_weighted),
        cmocka_unit_test(resumed_is_uninterrupted),
        cmocka_unit_test(a_graph_without_weights_keeps_those_it_finds),
        cmocka_unit_test(what_takes_no_weights_refuses_those_it_finds),
        cmocka_unit_test(a_damaged_weight_is_refused_by_all),
        cmocka_unit_test(regular_graphs_keep_their_weights),
        cmocka_unit_test(what_needs_double_stochasticity_is_refused),
    };
    return cmocka_run_group_tests(tests, write_matrix, remove_matrix);
}
