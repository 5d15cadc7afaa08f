/* SPDX-License-Identifier: Apache-2.0
 *
 * Formulas of contractions against the general computation.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <math.h>

#include "topo/closed_form.h"

static const char *const NAMES[] = {"ring", "one-peer-ring", "torus", "exp-static", "exp-directed"};
enum { NAMED = sizeof NAMES / sizeof *NAMES };

static void formulas_are_the_general_computation(void **state) {
    (void)state;
    int known[NAMED] = {0};
    for (int ranks = 2; ranks <= 40; ranks++)
        for (size_t i = 0; i < NAMED; i++) {
            const taciti_topo_request request = {.name = NAMES[i], .ranks = ranks};
            taciti_topology t;
            taciti_topo_figures f;
            double contraction = 0;
            assert_int_equal(taciti_topology_create(&request, &t), TACIT_OK);
            assert_int_equal(taciti_topology_figures(&t, &f), TACIT_OK);
            if (taciti_closed_contraction(&t, &contraction)) {
                known[i]++;
                if (fabs(contraction - f.contraction) > 1e-7)
                    fail_msg("%s on %d: %.12f instead of %.12f", NAMES[i], ranks, contraction, f.contraction);
            }
            taciti_topology_destroy(&t);
        }
    for (size_t i = 0; i < NAMED; i++) assert_true(known[i] >= 15);
}

static void check_mixing(const char *name, int ranks, int per_host, double min, double max, size_t exact_after) {
    static int host_of[4096];
    for (int r = 0; r < ranks; r++) host_of[r] = r / per_host;
    const taciti_topo_request request = {
        .name = name, .ranks = ranks, .hosts = &(taciti_hosts){.ranks = ranks, .host_of = host_of}};
    taciti_topology t;
    double gap;
    size_t exact;
    assert_int_equal(taciti_topology_create(&request, &t), TACIT_OK);
    assert_int_equal(taciti_topology_mixing(&t, &gap, &exact), TACIT_OK);
    if (!(gap >= min && gap <= max)) fail_msg("%s on %d: gap %.9f", name, ranks, gap);
    assert_int_equal(exact, exact_after);
    taciti_topology_destroy(&t);
}

static void thousands_of_ranks_have_figures(void **state) {
    (void)state;
    check_mixing("complete", 4096, 8, 1, 1, 1);
    check_mixing("exp", 4096, 8, 1, 1, 12);
    check_mixing("exp-directed", 4096, 8, 1, 1, 12);
    check_mixing("aer", 4096, 8, 1, 1, 18);
    check_mixing("one-peer-ring", 1000, 8, 0.98e-5, 1e-5, 0); /* pi^2 / N^2 */
    check_mixing("ring", 1000, 8, 1.31e-5, 1.32e-5, 0);
    check_mixing("exp", 1000, 8, 0.1, 0.4, 0);
    check_mixing("aer", 1000, 8, 0.05, 0.4, 0);
    check_mixing("random", 1000, 8, 0.2, 0.5, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formulas_are_the_general_computation),
        cmocka_unit_test(thousands_of_ranks_have_figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
