/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages of a sum by sketches: every form gives the exact sum, and what is malformed a status.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the four headers above. */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "exchange/sketch_message.h"

enum { N = 5000, MEMBERS = 3 };

/* Integers up to 127, of which few are large. */
static float number(int member, size_t i) {
    const int64_t v = (int64_t)taciti_rng_below(9 + (uint64_t)member, i, 255) - 127;
    return (float)(v * v * v / 16384);
}

typedef struct owner {
    taciti_sketch_form form;
    taciti_sketch_total sum;
    char *messages[MEMBERS];
    float *x[MEMBERS], *exact;
} owner;

static void open_owner(taciti_sketch_form form, owner *o) {
    *o = (owner){.form = form, .exact = taciti_calloc(N, sizeof(float))};
    o->sum = (taciti_sketch_total){.form = form,
                                   .x = taciti_calloc(N, sizeof(float)),
                                   .workspace = taciti_calloc(taciti_sketch_workspace_bound(N), 1),
                                   .union_ = taciti_calloc(taciti_sketch_index_words(N), sizeof(uint64_t)),
                                   .counters = taciti_calloc(taciti_sketch_message_bound(N), 1)};
    for (int m = 0; m < MEMBERS; m++) {
        o->messages[m] = taciti_calloc(taciti_sketch_message_bound(N), 1);
        o->x[m] = taciti_calloc(N, sizeof(float));
        for (size_t i = 0; i < N; i++) {
            o->x[m][i] = taciti_rng_below(77 + (uint64_t)m, i, 8) == 0 ? number(m, i) : 0;
            o->exact[i] += o->x[m][i];
        }
        assert_int_equal(taciti_sketch_contribute(&form, o->x[m], o->messages[m]), TACIT_OK);
    }
}

static void close_owner(owner *o) {
    for (int m = 0; m < MEMBERS; m++) {
        taciti_free(o->messages[m]);
        taciti_free(o->x[m]);
    }
    taciti_free(o->sum.x);
    taciti_free(o->sum.workspace);
    taciti_free(o->sum.union_);
    taciti_free(o->sum.counters);
    taciti_free(o->exact);
}

/* The whole conversation, with values that are right. */
static tacit_status decode(owner *o, taciti_sketch_reply *reply) {
    for (int m = 0; m < MEMBERS; m++) TACITI_TRY(taciti_sketch_take(&o->sum, o->messages[m], m == 0));
    TACITI_TRY(taciti_sketch_resolve(&o->sum, reply));
    if (taciti_sketch_check_reply(&o->form, reply) != TACIT_OK) return TACIT_E_INTERNAL;
    if (reply->pending == 0) return TACIT_OK;
    if (taciti_sketch_check_pending(&o->form, reply, o->sum.union_) != TACIT_OK) return TACIT_E_INTERNAL;
    float *values[2];
    for (int i = 0; i < 2; i++) values[i] = taciti_calloc(taciti_sketch_message_bound(N), 1);
    tacit_status status = TACIT_OK;
    for (int m = 0; m < MEMBERS && status == TACIT_OK; m++) {
        status = taciti_sketch_pack(&o->form.sketch, o->sum.union_, o->x[m], values[m > 0]);
        if (m > 0) taciti_kernels_get()->add(values[0], values[1], reply->pending);
    }
    if (status == TACIT_OK) status = taciti_sketch_complete(&o->sum, reply, values[0]);
    for (int i = 0; i < 2; i++) taciti_free(values[i]);
    return status;
}

static taciti_sketch_form form_of(double ratio) { return taciti_sketch_form_of(N, N * 33 / 100, ratio, 12); }

/* Also T20: load 1.2 and more delivers the exact sum. */
static void every_form_decodes_exactly(void **state) {
    (void)state;
    static const double RATIOS[] = {0, 1, 1.9, 3.7, 8, 1000};
    for (size_t r = 0; r < sizeof RATIOS / sizeof *RATIOS; r++) {
        owner o;
        taciti_sketch_reply reply;
        open_owner(form_of(RATIOS[r]), &o);
        assert_true(taciti_sketch_contribution_bytes(&o.form) <= taciti_sketch_message_bound(N));
        assert_int_equal(o.form.packed, RATIOS[r] == 1);
        assert_int_equal(decode(&o, &reply), TACIT_OK);
        assert_true(o.form.packed || RATIOS[r] > 3.5 ? reply.pending > N / 8 : reply.pending == 0);
        assert_int_equal(reply.whole, 0);
        assert_true(reply.measured > N / 4 && reply.measured < N / 2);
        for (size_t i = 0; i < N; i++) assert_true(o.sum.x[i] == o.exact[i]);
        close_owner(&o);
    }
}

/* Whatever lay where the sum goes: packed or as a sketch. */
static void a_sum_of_which_nothing_is_selected_is_zero(void **state) {
    (void)state;
    static const double RATIOS[] = {0, 1, 3.7, 1000};
    for (size_t r = 0; r < sizeof RATIOS / sizeof *RATIOS; r++) {
        owner o;
        taciti_sketch_reply reply;
        open_owner(taciti_sketch_form_of(N, 0, RATIOS[r], 12), &o);
        for (size_t i = 0; i < N; i++) o.sum.x[i] = 7;
        for (int m = 0; m < MEMBERS; m++) {
            memset(o.x[m], 0, N * sizeof *o.x[m]);
            assert_int_equal(taciti_sketch_contribute(&o.form, o.x[m], o.messages[m]), TACIT_OK);
        }
        assert_int_equal(decode(&o, &reply), TACIT_OK);
        assert_true(reply.pending == 0 && reply.measured == 0);
        for (size_t i = 0; i < N; i++) assert_true(o.sum.x[i] == 0);
        close_owner(&o);
    }
}

/* Floats cancel so that a sketch looks like nothing. */
static void what_cannot_be_decoded_is_fetched_as_a_whole(void **state) {
    (void)state;
    owner o;
    taciti_sketch_reply reply;
    open_owner(form_of(0), &o);
    for (size_t i = 0; i < N; i++) {
        const bool some = o.x[1][i] != 0;
        o.x[0][i] = some ? 1e9f / (float)(7 * i + 3) : 0;
        o.x[1][i] = some ? 1e9f / (float)(i + 3) : 0;
        o.x[2][i] = -o.x[1][i] - o.x[0][i];
        o.exact[i] = (o.x[0][i] + o.x[1][i]) + o.x[2][i];
    }
    for (int m = 0; m < MEMBERS; m++)
        assert_int_equal(taciti_sketch_contribute(&o.form, o.x[m], o.messages[m]), TACIT_OK);
    assert_int_equal(decode(&o, &reply), TACIT_OK);
    assert_int_equal(reply.whole, 1);
    for (size_t i = 0; i < N; i++) assert_true(o.sum.x[i] == o.exact[i]);
    close_owner(&o);
}

/* Room for a trend and for chance, and no more than there are elements. */
static void a_sketch_has_room_for_the_next_union(void **state) {
    (void)state;
    for (double density = 0; density <= 1; density += 0.05) {
        const double known = density * N, room = (double)taciti_sketch_room(N, density);
        assert_true(room <= N);
        assert_true(room >= fmin(N, floor(known * 17 / 16 + 4 * sqrt(known))));
        assert_true(room <= known * 17 / 16 + 4 * sqrt(known));
    }
}

static void more_elements_than_a_reply_counts_are_refused(void **state) {
    (void)state;
    taciti_sketch_form form = form_of(0);
    form.sketch.n = (size_t)1 << 32;
    assert_int_equal(taciti_sketch_contribute(&form, NULL, NULL), TACIT_E_USAGE);
}

/* A contribution whose head no member writes. */
static void forged_heads_are_refused(void **state) {
    (void)state;
    const size_t at = taciti_sketch_index_words(N) * sizeof(uint64_t);
    const uint32_t two = 2;
    const float negative = -1;
    for (int k = 0; k < 2; k++) {
        owner o;
        taciti_sketch_reply reply;
        open_owner(form_of(0), &o);
        if (k == 0)
            memcpy(o.messages[1] + at, &negative, sizeof negative);
        else
            memcpy(o.messages[1] + at + sizeof negative, &two, sizeof two);
        assert_int_equal(decode(&o, &reply), TACIT_E_DATA);
        close_owner(&o);
    }
    owner o;
    taciti_sketch_reply reply;
    open_owner(form_of(1), &o); /* packed: nobody else looks at the index */
    o.messages[2][at - 1] = (char)0x80;
    assert_int_equal(decode(&o, &reply), TACIT_E_DATA);
    close_owner(&o);
}

/* Any bytes give a status. */
static void forged_messages_give_a_status(void **state) {
    (void)state;
    enum { TRIES = 600 };
    int noticed = 0;
    for (int t = 0; t < TRIES; t++) {
        owner o;
        taciti_sketch_reply reply;
        open_owner(form_of(t % 3 == 0 ? 4 : 0), &o);
        const size_t bytes = taciti_sketch_contribution_bytes(&o.form);
        const uint64_t key = taciti_rng_key(11, (uint64_t)t);
        for (uint64_t i = 0; i < 1 + (uint64_t)t % 7; i++)
            o.messages[t % MEMBERS][taciti_rng_below(key, 2 * i, bytes)] ^=
                (char)(1 + taciti_rng_below(key, 2 * i + 1, 255));
        const tacit_status status = decode(&o, &reply);
        assert_true(status == TACIT_OK || status == TACIT_E_DATA);
        noticed += status == TACIT_E_DATA || reply.whole != 0;
        close_owner(&o);
    }
    assert_true(noticed > 2 * TRIES / 5);
}

static void forged_replies_are_refused(void **state) {
    (void)state;
    const taciti_sketch_form form = form_of(0);
    uint64_t *words = taciti_calloc(taciti_sketch_index_words(N), sizeof *words);
    words[2] = 7;
    const taciti_sketch_reply good = {.pending = 3, .measured = 900, .whole = 0};
    const taciti_sketch_reply bad[] = {{.pending = N + 1, .measured = 3},
                                       {.pending = 1, .measured = 2 * N},
                                       {.pending = 1, .measured = 3, .whole = 2},
                                       {.pending = 1, .measured = 3, .zero = 1}};
    assert_int_equal(taciti_sketch_check_reply(&form, &good), TACIT_OK);
    assert_int_equal(taciti_sketch_check_pending(&form, &good, words), TACIT_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(taciti_sketch_check_reply(&form, &bad[i]), TACIT_E_DATA);
    words[9] = 1;
    assert_int_equal(taciti_sketch_check_pending(&form, &good, words), TACIT_E_DATA);
    words[9] = 0;
    words[2] = 3;
    words[N / 64] = UINT64_C(1) << 63;
    assert_int_equal(taciti_sketch_check_pending(&form, &good, words), TACIT_E_DATA);
    taciti_free(words);
}

/* The table in docs/compression.md: bits per element that a rank sends for a range, and in return the index of what is
 * packed; sparsity 0.8, elements at random. */
static void sizes_are_those_of_the_docs(void **state) {
    (void)state;
    enum { LONG = 1048576 };
    static const double BITS[][2] = {{2, 16.7}, {4, 26.7}, {8, 27.6}}; /* by members */
    for (size_t i = 0; i < sizeof BITS / sizeof *BITS; i++) {
        const double density = 1 - pow(0.8, BITS[i][0]);
        const taciti_sketch_form form = taciti_sketch_form_of(LONG, (size_t)(LONG * density * (1 + 1. / 16)), 0, 1);
        const double values = density * TACITI_SKETCH_NUMBER_BYTES;
        const double bytes = (double)taciti_sketch_contribution_bytes(&form) / LONG + (form.packed ? values : 0);
        assert_true(fabs(8 * bytes - BITS[i][1]) < 0.1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_decodes_exactly),
        cmocka_unit_test(a_sum_of_which_nothing_is_selected_is_zero),
        cmocka_unit_test(what_cannot_be_decoded_is_fetched_as_a_whole),
        cmocka_unit_test(a_sketch_has_room_for_the_next_union),
        cmocka_unit_test(more_elements_than_a_reply_counts_are_refused),
        cmocka_unit_test(forged_heads_are_refused),
        cmocka_unit_test(forged_messages_give_a_status),
        cmocka_unit_test(forged_replies_are_refused),
        cmocka_unit_test(sizes_are_those_of_the_docs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
