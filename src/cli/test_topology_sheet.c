/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>

#include "cli/topology_sheet.h"

static taciti_hosts g_hosts;
static taciti_topology_sheet g_sheet;

static void open_sheet(const char *name, int ranks, int per_host) {
    assert_int_equal(taciti_hosts_by_size(ranks, per_host, &g_hosts), TACIT_OK);
    const taciti_topo_request request = {.name = name, .ranks = ranks, .hosts = &g_hosts};
    const taciti_topo_awc awc = {.gamma = 1};
    assert_int_equal(taciti_topology_sheet_create(&request, &awc, &g_sheet), TACIT_OK);
}

static int close_sheet(void **state) {
    (void)state;
    taciti_topology_sheet_destroy(&g_sheet);
    taciti_hosts_destroy(&g_hosts);
    g_sheet = (taciti_topology_sheet){0};
    return 0;
}

static bool near(double a, double b) { return fabs(a - b) < 1e-6; }

/* Two hosts of four join in turns, so a host's link carries one model in every other round. */
static void what_hosts_carry_depends_on_who_is_where(void **state) {
    (void)state;
    open_sheet("aer", 16, 4);
    assert_int_equal(g_sheet.topology.period, 4);
    for (size_t r = 0; r < 4; r++) assert_true(near(g_sheet.nic[r], 1));
    assert_true(near(g_sheet.nic_mean, 0.5) && near(g_sheet.nic_peak, 1));
    assert_true(g_sheet.has_figures && g_sheet.figures.exact_after == 4);
    assert_true(g_sheet.has_limit && near(g_sheet.awc_limit, 1));
    (void)close_sheet(state);
    open_sheet("complete", 16, 4); /* 2 (H - 1) / H */
    assert_true(near(g_sheet.nic_mean, 1.5) && near(g_sheet.nic_peak, 1.5));
    (void)close_sheet(state);
    open_sheet("complete", 16, 16);
    assert_true(near(g_sheet.nic_mean, 0) && near(g_sheet.nic_peak, 0));
}

static void large_ones_go_without_limits_and_figures(void **state) {
    (void)state;
    open_sheet("one-peer-ring", TACITI_TOPO_LIMIT_MAX + 2, 2);
    assert_true(g_sheet.has_figures && !g_sheet.has_limit);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(what_hosts_carry_depends_on_who_is_where, close_sheet),
        cmocka_unit_test_teardown(large_ones_go_without_limits_and_figures, close_sheet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
