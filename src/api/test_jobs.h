/* SPDX-License-Identifier: Apache-2.0
 *
 * Jobs of the C interface between ranks that are threads of a test. A failure ends the program.
 */
#ifndef TACITI_API_TEST_JOBS_H
#define TACITI_API_TEST_JOBS_H

#include <string.h>

#include "api/test_seat.h"

enum { TENSORS = 5, MAX_FLOATS = 7168, SETTINGS = 8 };
static const size_t SHAPES[TENSORS][5] = {{10, 41}, {10}, {41, 100}, {1}, {100, 3, 7, 1, 1}};
static const int DIMS[TENSORS] = {2, 1, 2, 0, 5};

#define REFUSED(call, status, text)                                                                                    \
    do {                                                                                                               \
        if ((call) == (status) && strstr(tacit_error_text(), text) != NULL) break;                                     \
        (void)fprintf(stderr, "%s:%d: %s: \"%s\" is not in \"%s\"\n", __FILE__, __LINE__, #call, text,                 \
                      tacit_error_text());                                                                             \
        abort();                                                                                                       \
    } while (0)

typedef struct test_job {
    const char *settings[SETTINGS]; /* the rest NULL */
    bool own, only;                 /* own_optimizer, gradients_only */
} test_job;

static inline tacit_layout *create_layout(void) {
    static const char *const NAMES[TENSORS] = {"head.weight", "head.bias", "mid", "one", "in"};
    tacit_layout *layout = NULL;
    OK(tacit_layout_create(&layout));
    for (int t = 0; t < TENSORS; t++) {
        OK(tacit_layout_add(layout, NAMES[t], DIMS[t], SHAPES[t], t % 2 == 0 ? TACIT_DECAY : 0));
        OK(tacit_layout_next_unit(layout));
    }
    CHECK(tacit_layout_floats(layout) <= MAX_FLOATS);
    return layout;
}

static inline size_t count_of(int tensor) {
    size_t n = 1;
    for (int d = 0; d < DIMS[tensor]; d++) n *= SHAPES[tensor][d];
    return n;
}

static inline tacit_job *open_job(tacit_comm *comm, const test_job *t) {
    tacit_settings *settings = NULL;
    tacit_job *job = NULL;
    tacit_layout *layout = create_layout();
    const tacit_job_options options = {
        .size = sizeof options, .steps = 6, .threads = 1, .own_optimizer = t->own, .gradients_only = t->only};
    OK(tacit_settings_create(&settings));
    OK(tacit_settings_set(settings, "exchange.bucket=4KiB"));
    OK(tacit_settings_set(settings, "optim.lr=0.1"));
    OK(tacit_settings_set(settings, "optim.clip=0.2"));
    for (int i = 0; i < SETTINGS && t->settings[i] != NULL; i++) OK(tacit_settings_set(settings, t->settings[i]));
    OK(tacit_job_open(comm, settings, layout, &options, &job));
    tacit_layout_destroy(layout);
    tacit_settings_destroy(settings);
    return job;
}

#endif
