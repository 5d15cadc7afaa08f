/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives on ranks that are threads: formulas by hand, and a wrong element of a result is noticed by its owner.
 */
#include "bench/collectives.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "comm/test_engine.h"

enum { RANKS = 5, FLOATS = 1237, BYTES = 4 * FLOATS };

static taciti_exchange_options exchange_options(void) {
    taciti_exchange_options options = {.contiguous = false};
    const taciti_section section = {&taciti_exchange_option_table, &options, NULL};
    CHECK(taciti_config_defaults(&(taciti_config){&section, 1}) == TACIT_OK);
    return options;
}

/* 1000 bytes are 8000 bits; n is 4 hosts, or 5 ranks of one host. */
static void bus_bits_are_those_of_the_formulas(void **state) {
    static const struct { double on_hosts, on_one_host; } BITS[TACITI_OPERATIONS] = {{12000, 12800}, {8000, 8000}};
    static taciti_collective_bench hosts = {.ranks = 8, .hosts = 4}, one_host = {.ranks = 5, .hosts = 1};
    (void)state;
    assert_int_equal(taciti_collective_sides(&hosts), 4);
    assert_int_equal(taciti_collective_sides(&one_host), 5);
    for (int what = 0; what < TACITI_OPERATIONS; what++) {
        assert_float_equal(taciti_collective_bus_bits(&hosts, (taciti_operation)what, 1000), BITS[what].on_hosts, 1e-9);
        assert_float_equal(taciti_collective_bus_bits(&one_host, (taciti_operation)what, 1000), BITS[what].on_one_host,
                           1e-9);
    }
    assert_string_equal(taciti_collective_bus_text(TACITI_OPERATION_ALL_REDUCE), "2 (n-1)/n");
    assert_string_equal(taciti_collective_bus_text(TACITI_OPERATION_SEND), "1");
}

/* Adds 1 to an element of the result, asks, and takes it back. */
static bool is_right_with(taciti_collective_task *task, const taciti_caller *caller, size_t index) {
    float *x = caller->apart ? task->out : task->in;
    const float kept = x[index];
    x[index] = kept + 1;
    const bool right = taciti_collective_is_right(task, caller);
    x[index] = kept;
    return right;
}

static void check_result(taciti_collective_task *task, const taciti_caller *caller) {
    const bool receives = task->what == TACITI_OPERATION_ALL_REDUCE || taciti_comm_rank(task->comm) == task->receiver;
    CHECK(taciti_collective_is_right(task, caller));
    CHECK(is_right_with(task, caller, 0) == !receives);
    CHECK(is_right_with(task, caller, FLOATS - 1) == !receives);
}

static void check_operations(taciti_comm *comm, void *context) {
    const taciti_exchange_options options = exchange_options();
    (void)context;
    for (int what = 0; what < TACITI_OPERATIONS; what++) {
        taciti_collective_task task;
        taciti_caller callers[TACITI_COLLECTIVE_MAX_CALLERS];
        double seconds = -1;
        int count = 0;
        CHECK(taciti_collective_open(comm, (taciti_operation)what, &options, BYTES, &task) == TACIT_OK);
        CHECK(taciti_collective_callers(&task, callers, &count) == TACIT_OK);
        CHECK(count == 1 || what == TACITI_OPERATION_ALL_REDUCE);
        CHECK(taciti_collective_resize(&task, BYTES) == TACIT_OK);
        for (int k = 0; k < count; k++) {
            taciti_collective_fill(&task, &callers[k]);
            CHECK(callers[k].sample(&task, &callers[k], 1, &seconds) == TACIT_OK && seconds >= 0);
            check_result(&task, &callers[k]);
        }
        taciti_collective_close(&task);
    }
}

static void a_wrong_element_is_noticed_where_it_belongs(void **state) {
    const taciti_comm_options options = test_comm_options(true);
    (void)state;
    test_world_run(RANKS, &options, check_operations, NULL);
}

static void check_run(taciti_comm *comm, void *context) {
    static taciti_collective_bench benches[RANKS];
    taciti_collective_bench *b = &benches[taciti_comm_rank(comm)];
    taciti_collective_options o = {.bytes = {8, BYTES}, .size_count = 2, .rounds = 3, .exchange = exchange_options()};
    (void)context;
    o.by_count = 1;
    (void)strcpy(o.by[0], "tacit");
    CHECK(taciti_collective_bench_run(comm, &o, b) == TACIT_OK);
    CHECK(b->ranks == RANKS && b->hosts == 3 && b->who_count == 1 && strcmp(b->who[0], "tacit") == 0);
    for (int i = 0; i < 2; i++) {
        const taciti_collective_figure *f = &b->figures[i][0];
        const double bits = 2 * 2.0 / 3 * 8 * (double)o.bytes[i];
        double sorted[3];
        memcpy(sorted, f->samples, sizeof sorted);
        const taciti_statistics s = taciti_statistics_of(sorted, 3);
        CHECK(memcmp(&s, &f->seconds, sizeof s) == 0 && s.min > 0 && f->calls >= 1);
        CHECK(f->ratio >= 1 && f->ratio <= 1);
        CHECK(f->bus_bps * s.median > bits * 0.999999 && f->bus_bps * s.median < bits * 1.000001);
    }
    taciti_collective_bench_close(b);
    (void)strcpy(o.by[0], "nobody");
    CHECK(taciti_collective_bench_run(comm, &o, b) == TACIT_E_CONFIG);
    taciti_collective_bench_close(b);
}

static void figures_are_those_of_the_samples(void **state) {
    const taciti_comm_options options = test_comm_options(true);
    (void)state;
    test_ranks_per_host(2);
    test_world_run(RANKS, &options, check_run, NULL);
    test_ranks_per_host(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bus_bits_are_those_of_the_formulas),
        cmocka_unit_test(a_wrong_element_is_noticed_where_it_belongs),
        cmocka_unit_test(figures_are_those_of_the_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
