/* SPDX-License-Identifier: Apache-2.0
 *
 * What a resumed run configures otherwise: which keys are named, with which words, and the window of the optimizer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <string.h>

#include "settings/changes.h"
#include "train/train.h"

enum { TEXT_BYTES = 300 };

typedef struct fixture {
    taciti_train_settings settings;
    taciti_changes changes;
    json_t *meta;
} fixture;

/* A run with these keys (key, value, ..., NULL) after a checkpoint whose configuration is that JSON text. */
static void set_up(fixture *f, const char *const *keys, const char *before) {
    assert_int_equal(taciti_train_settings_init(&f->settings), TACIT_OK);
    for (size_t i = 0; keys[i] != NULL; i += 2)
        assert_int_equal(taciti_config_set(&f->settings.job.config, keys[i], keys[i + 1], "test"), TACIT_OK);
    f->meta = json_loads(before, 0, NULL);
    assert_non_null(f->meta);
    assert_int_equal(taciti_changes_create(f->meta, taciti_config_values(&f->settings.job.config, 1), &f->changes),
                     TACIT_OK);
}

static void tear_down(fixture *f) {
    taciti_changes_destroy(&f->changes);
    json_decref(f->meta);
    taciti_settings_destroy(&f->settings.job);
}

static void expect_text(const char *const *keys, const char *before, const char *section, const char *expected) {
    fixture f;
    char text[TEXT_BYTES] = "?";
    set_up(&f, keys, before);
    taciti_changes_text(&f.changes, section, text, sizeof text);
    assert_string_equal(text, expected);
    tear_down(&f);
}

static const char *const SGD[] = {"optim.name", "sgd", "optim.lr", "0.1", "train.steps", "7", "run.dir", "x", NULL};

static void changed_keys_are_named_with_both_values(void **state) {
    (void)state;
    const char *const before =
        "{\"config\": {\"optim.name\": \"adamw\", \"optim.lr\": 0.25, \"train.steps\": 7, \"run.dir\": \"y\"}}";
    expect_text(SGD, before, "optim.", "optim.name was \"adamw\" and is \"sgd\" now, optim.lr was 0.25 and is 0.1 now");
    expect_text(SGD, before, "train.", ""); /* the same */
    expect_text(SGD, before, "run.", "");   /* no part of the run's identity */
    expect_text(SGD, before, "opt", "optim.name was \"adamw\" and is \"sgd\" now, optim.lr was 0.25 and is 0.1 now");
    expect_text(SGD, "{\"config\": {}}", "optim.", "");            /* keys that the checkpoint does not know */
    expect_text(SGD, "{}", "optim.", "");                          /* nor any */
    expect_text(SGD, "{\"config\": {\"optim.lr\": 0.1}}", "", ""); /* equal numbers */
}

/* Long lists are cut, and never run over the end. */
static void a_text_stays_within_its_memory(void **state) {
    (void)state;
    fixture f;
    const char *const before = "{\"config\": {\"optim.name\": \"adamw\", \"optim.lr\": 0.25}}";
    const char *const whole = "optim.name was \"adamw\" and is \"sgd\" now, optim.lr was 0.25 and is 0.1 now";
    set_up(&f, SGD, before);
    for (size_t bytes = 1; bytes <= strlen(whole) + 2; bytes++) {
        char text[TEXT_BYTES];
        memset(text, '#', sizeof text);
        taciti_changes_text(&f.changes, "optim.", text, bytes);
        assert_true(strlen(text) < bytes && text[bytes] == '#');
        assert_memory_equal(text, whole, strlen(text));
        assert_true(bytes <= strlen(whole) || strcmp(text, whole) == 0);
    }
    tear_down(&f);
}

static void the_window_is_that_of_accumulating_forms(void **state) {
    (void)state;
    static const char *const plain[] = {"optim.accum", "5", NULL};
    static const char *const accum[] = {"optim.name", "accum-adam", "optim.accum", "5", NULL};
    static const struct {
        const char *const *keys;
        const char *before;
        int64_t was, is;
    } cases[] = {
        {plain, "{}", 1, 1},
        {accum, "{}", 5, 5}, /* a checkpoint without a configuration: as now */
        {accum, "{\"config\": {}}", 1, 5},
        {accum, "{\"config\": {\"optim.name\": \"adam\", \"optim.accum\": 4}}", 1, 5},
        {accum, "{\"config\": {\"optim.name\": \"accum-adamw\", \"optim.accum\": 4}}", 4, 5},
        {plain, "{\"config\": {\"optim.name\": \"accum-adamw\", \"optim.accum\": 4}}", 4, 1},
        {plain, "{\"config\": {\"optim.name\": \"accum-adamw\", \"optim.accum\": 0}}", 1, 1},
        {plain, "{\"config\": {\"optim.name\": 3, \"optim.accum\": 4}}", 1, 1},
        {plain, "{\"config\": {\"optim.name\": \"accum-adamw\", \"optim.accum\": \"4\"}}", 1, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture f;
        set_up(&f, cases[i].keys, cases[i].before);
        assert_int_equal(taciti_changes_window_before(&f.changes), cases[i].was);
        assert_int_equal(taciti_changes_window_now(&f.changes), cases[i].is);
        tear_down(&f);
    }
}

/* Second moments hold as many updates as the bias correction counts, or the run does not go on. */
static void frozen_moments_stay_what_they_are(void **state) {
    (void)state;
    static const struct {
        const char *freeze, *before;
        int64_t updates;
        bool keeps;
    } cases[] = {{"300", "{\"config\": {\"optim.freeze\": 300}}", 1000, true},
                 {"500", "{\"config\": {\"optim.freeze\": 300}}", 1000, false},
                 {"500", "{\"config\": {\"optim.freeze\": 300}}", 200, true},
                 {"0", "{\"config\": {\"optim.freeze\": 300}}", 1000, false},
                 {"500", "{\"config\": {\"optim.freeze\": 0}}", 1000, false},
                 {"1000", "{\"config\": {}}", 1000, true},
                 {"500", "{}", 1000, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const keys[] = {"optim.freeze", cases[i].freeze, NULL};
        fixture f;
        set_up(&f, keys, cases[i].before);
        assert_int_equal(taciti_changes_keep_frozen(&f.changes, cases[i].updates), cases[i].keeps);
        tear_down(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changed_keys_are_named_with_both_values),
        cmocka_unit_test(a_text_stays_within_its_memory),
        cmocka_unit_test(the_window_is_that_of_accumulating_forms),
        cmocka_unit_test(frozen_moments_stay_what_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
