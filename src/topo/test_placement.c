/* SPDX-License-Identifier: Apache-2.0
 *
 * Seatings of drafts drawn at random, against a count of what the hosts' links carry that knows nothing of ours.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <math.h>

#include "base/rng.h"
#include "topo/placement.h"

enum { RANKS = 9, DRAFTS = 2000 };

/* The same numbers in the same order every time. */
static int draw(int below) {
    static uint64_t count;
    return (int)(taciti_rng_unit(11, count++) * below);
}

/* ---- drafts ------------------------------------------------------------------------------------------------------ */

/* Means of 1, 2, 3, 4 positions in a random order; a random number of positions is left idle. */
static void draw_means(taciti_draft *draft) {
    int order[RANKS];
    for (int i = 0; i < RANKS; i++) order[i] = i;
    for (int i = RANKS - 1; i > 0; i--) {
        const int k = draw(i + 1), held = order[i];
        order[i] = order[k];
        order[k] = held;
    }
    const int end = 2 + draw(RANKS - 1);
    for (int at = 0, size; at < end; at += size) {
        size = 1 + draw(4);
        if (at + size > RANKS) size = RANKS - at;
        taciti_draft_mean(draft, order + at, (size_t)size);
    }
}

/* One position tells several others, or hears them, and some edges more. */
static void draw_edges(taciti_draft *draft) {
    const int centre = draw(RANKS), tells = draw(2);
    for (int e = 0; e < 4; e++) {
        const int other = draw(RANKS);
        taciti_draft_edge(draft, tells ? other : centre, tells ? centre : other, 0.01);
        taciti_draft_edge(draft, draw(RANKS), draw(RANKS), 0.01);
    }
}

static void draw_draft(taciti_draft *draft) {
    assert_int_equal(taciti_draft_create(RANKS, draft), TACIT_OK);
    for (int rounds = 1 + draw(3); rounds > 0; rounds--) {
        if (draw(2))
            draw_means(draft);
        else
            draw_edges(draft);
        taciti_draft_close(draft);
    }
    assert_int_equal(draft->status, TACIT_OK);
}

/* ---- what links carry -------------------------------------------------------------------------------------------- */

static void count_mean(const int *members, size_t count, const int *host_at, double *sent) {
    bool there[RANKS] = {false};
    int hosts = 0;
    for (size_t i = 0; i < count; i++) there[host_at[members[i]]] = true;
    for (int h = 0; h < RANKS; h++) hosts += there[h];
    for (int h = 0; h < RANKS; h++) sent[h] += there[h] ? 2 * (hosts - 1.0) / hosts : 0;
}

static double carried(const taciti_draft *draft, const int *host_at) {
    double sum = 0;
    for (size_t r = 0; r < taciti_draft_period(draft); r++) {
        const taciti_draft_round *round = taciti_draft_at(draft, r);
        const int *members = taciti_draft_members(draft, round);
        double sent[RANKS] = {0}, received[RANKS] = {0}, max = 0;
        for (size_t g = 0; g < round->groups; members += taciti_draft_sizes(draft, round)[g++])
            count_mean(members, taciti_draft_sizes(draft, round)[g], host_at, sent);
        for (size_t e = 0; e < round->edges; e++) {
            const taciti_edge *edge = &taciti_draft_edges(draft, round)[e];
            if (host_at[edge->from] == host_at[edge->to]) continue;
            sent[host_at[edge->from]]++;
            received[host_at[edge->to]]++;
        }
        for (int h = 0; h < RANKS; h++) max = fmax(max, fmax(sent[h], received[h]));
        sum += max;
    }
    return sum;
}

/* ---- properties
 * -------------------------------------------------------------------------------------------------------- */

static void assert_seated(const taciti_seating *s, const int *host_of) {
    bool taken[RANKS] = {false};
    for (int p = 0; p < RANKS; p++) {
        assert_false(taken[s->rank_at[p]]);
        taken[s->rank_at[p]] = true;
        assert_int_equal(s->host_at[p], host_of[s->rank_at[p]]);
    }
}

/* After it no exchange of two ranks helps. */
static void assert_best_of_swaps(const taciti_draft *draft, taciti_seating *s, double best) {
    for (int i = 0; i < RANKS; i++)
        for (int k = 0; k < i; k++) {
            int host_at[RANKS];
            for (int p = 0; p < RANKS; p++) host_at[p] = s->host_at[p];
            host_at[i] = s->host_at[k];
            host_at[k] = s->host_at[i];
            assert_true(carried(draft, host_at) >= best - 1e-8);
        }
}

static void swaps_go_on_as_long_as_they_help(void **state) {
    (void)state;
    int better = 0;
    for (int d = 0; d < DRAFTS; d++) {
        const int hosts = 2 + draw(3);
        int host_of[RANKS];
        for (int r = 0; r < RANKS; r++) host_of[r] = r < hosts ? r : draw(hosts);
        taciti_draft draft;
        taciti_seating s;
        draw_draft(&draft);
        assert_int_equal(
            taciti_seating_create(&(taciti_topo_request){.name = "drawn",
                                                         .ranks = RANKS,
                                                         .hosts = &(taciti_hosts){.ranks = RANKS, .host_of = host_of}},
                                  &s),
            TACIT_OK);
        const double before = carried(&draft, s.host_at);
        assert_int_equal(taciti_seating_improve(&draft, &s), TACIT_OK);
        const double after = carried(&draft, s.host_at);
        assert_seated(&s, host_of);
        assert_true(after <= before);
        assert_best_of_swaps(&draft, &s, after);
        better += after < before;
        taciti_seating_destroy(&s);
        taciti_draft_destroy(&draft);
    }
    assert_true(better > DRAFTS / 4);
}

/* Nothing crosses, or everything does wherever ranks sit: every rank stays. */
static void what_cannot_get_better_stays(void **state) {
    (void)state;
    int each[RANKS];
    for (int r = 0; r < RANKS; r++) each[r] = RANKS - 1 - r;
    int *layouts[] = {NULL, each};
    for (int l = 0; l < 2; l++) {
        taciti_draft draft;
        taciti_seating s;
        draw_draft(&draft);
        assert_int_equal(taciti_seating_create(
                             &(taciti_topo_request){.name = "drawn",
                                                    .ranks = RANKS,
                                                    .hosts = &(taciti_hosts){.ranks = RANKS, .host_of = layouts[l]}},
                             &s),
                         TACIT_OK);
        assert_int_equal(taciti_seating_improve(&draft, &s), TACIT_OK);
        for (int p = 0; p < RANKS; p++) assert_int_equal(s.rank_at[p], l == 0 ? p : RANKS - 1 - p);
        taciti_seating_destroy(&s);
        taciti_draft_destroy(&draft);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(swaps_go_on_as_long_as_they_help),
        cmocka_unit_test(what_cannot_get_better_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
