/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "switch_control.h"

enum { PORTS = 3 };
static taciti_port ports[PORTS];
static char answer[TACITI_CONTROL_BYTES];

static const char *ask(const char *words) {
    char request[256];
    (void)snprintf(request, sizeof request, "%s", words);
    taciti_control_apply(request, ports, PORTS, answer);
    return answer;
}

static int start(void **state) {
    (void)state;
    memset(ports, 0, sizeof ports);
    return 0;
}

static void changes_reach_the_ports_that_are_named(void **state) {
    (void)state;
    assert_string_equal(ask("rate 1 200000000"), "ok");
    assert_int_equal(ports[0].link.rate_bps, 0);
    assert_int_equal(ports[1].link.rate_bps, 200000000);
    assert_string_equal(ask("delay 0 5000000"), "ok");
    assert_int_equal(ports[0].link.delay_ns, 5000000);
    assert_int_equal(ports[1].link.delay_ns, 0);
    assert_string_equal(ask("cut 2"), "ok");
    assert_true(ports[2].link.cut && !ports[1].link.cut);
    assert_string_equal(ask("heal 2"), "ok");
    assert_false(ports[2].link.cut);
    assert_string_equal(ask("rate 1 0"), "ok");
    assert_int_equal(ports[1].link.rate_bps, 0);
}

static void nothing_else_is_taken(void **state) {
    (void)state;
    static const char *const refused[] = {
        "",
        " ",
        "rate",
        "rate 1",
        "rate 3 1",
        "rate -1 1",
        "rate 1 -1",
        "rate 1 1x",
        "rate 1 0x10",
        "rate 1 100000000001",
        "rate 1 99999999999999999999",
        "delay 0 2000000001",
        "cut",
        "cut 3",
        "cut n1",
        "heal",
        "stop 1",
        "rate 1 2 3",
        "stat 1 2 3",
        "rate all 1",
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_memory_equal(ask(refused[i]), "error: ", 7);
        for (int k = 0; k < PORTS; k++)
            assert_true(ports[k].link.rate_bps == 0 && ports[k].link.delay_ns == 0 && !ports[k].link.cut);
    }
}

static void any_bytes_get_an_answer(void **state) {
    (void)state;
    uint64_t random = 1;
    char request[64];
    for (int i = 0; i < 20000; i++) {
        for (size_t k = 0; k + 1 < sizeof request; k++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            request[k] = "rateculdhsqi 0123456789-\n\xff"[(random >> 33) % 26];
        }
        request[sizeof request - 1] = '\0';
        taciti_control_apply(request, ports, PORTS, answer);
        assert_true(strncmp(answer, "ok", 2) == 0 || strncmp(answer, "error: ", 7) == 0);
    }
}

static void stat_has_a_line_per_port(void **state) {
    (void)state;
    ports[1].count = (taciti_port_count){.frames = 1, .bytes = UINT64_MAX, .dropped = 3, .lost = 4, .discarded = 5};
    assert_string_equal(ask("stat"), "ok\n0 0 0 0 0 0\n1 1 18446744073709551615 3 4 5\n2 0 0 0 0 0");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(changes_reach_the_ports_that_are_named, start),
        cmocka_unit_test_setup(nothing_else_is_taken, start),
        cmocka_unit_test_setup(any_bytes_get_an_answer, start),
        cmocka_unit_test_setup(stat_has_a_line_per_port, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
