/* SPDX-License-Identifier: Apache-2.0
 *
 * The C interface on one rank, for tests: its objects, and refusals.
 */
#ifndef TACITI_API_TEST_SCENE_H
#define TACITI_API_TEST_SCENE_H

#include <stdlib.h>
#include <string.h>

#include "tacit/tacit.h"

/* "out", a vector of 3, and "in", a matrix of 5 x columns. */
static inline tacit_layout *create_small_layout(size_t columns) {
    tacit_layout *layout = NULL;
    assert_int_equal(tacit_layout_create(&layout), TACIT_OK);
    assert_int_equal(tacit_layout_add(layout, "out", 1, (const size_t[]){3}, 0), TACIT_OK);
    assert_int_equal(tacit_layout_add(layout, "in", 2, (const size_t[]){5, columns}, TACIT_DECAY), TACIT_OK);
    return layout;
}

typedef struct scene {
    tacit_settings *settings;
    tacit_comm *comm;
    tacit_layout *layout;
    tacit_job *job;
} scene;

static inline int open_scene(void **state) {
    scene *s = calloc(1, sizeof *s);
    *state = s;
    assert_int_equal(tacit_settings_create(&s->settings), TACIT_OK);
    assert_int_equal(tacit_open_self(NULL, &s->comm), TACIT_OK);
    s->layout = create_small_layout(4);
    assert_int_equal(tacit_job_open(s->comm, s->settings, s->layout, NULL, &s->job), TACIT_OK);
    return 0;
}

static inline int close_scene(void **state) {
    scene *s = *state;
    assert_int_equal(tacit_job_close(s->job), TACIT_OK);
    assert_int_equal(tacit_close(s->comm), TACIT_OK);
    tacit_layout_destroy(s->layout);
    tacit_settings_destroy(s->settings);
    free(s);
    return 0;
}

/* The text is that of this refusal, not of an earlier one. */
static inline void refused(tacit_status got, tacit_status want, const char *text) {
    assert_int_equal(got, want);
    if (strstr(tacit_error_text(), text) == NULL) fail_msg("\"%s\" is not in \"%s\"", text, tacit_error_text());
}

static inline tacit_job *open_own(const scene *s, const char *setting) {
    tacit_job *job = NULL;
    const tacit_job_options options = {.size = sizeof options, .own_optimizer = true};
    if (setting != NULL) assert_int_equal(tacit_settings_set(s->settings, setting), TACIT_OK);
    assert_int_equal(tacit_job_open(s->comm, s->settings, s->layout, &options, &job), TACIT_OK);
    assert_int_equal(tacit_job_start(job), TACIT_OK);
    return job;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)

#endif
