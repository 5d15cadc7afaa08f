/* SPDX-License-Identifier: Apache-2.0
 *
 * A controller with its options, state and decision, as a test drives it.
 */
#ifndef TACITI_ADAPT_TEST_CONTROLLER_H
#define TACITI_ADAPT_TEST_CONTROLLER_H

#include <stdlib.h>
#include <string.h>

#include "adapt/adapt.h"

enum { TEST_BUCKETS_MAX = 8 };

typedef struct driven {
    const taciti_controller *controller;
    void *options, *state;
    size_t state_bytes, buckets;
    taciti_decision decision;
    double factors[TEST_BUCKETS_MAX];
} driven;

static inline void driven_set(driven *d, const char *key, const char *value) {
    const taciti_section section = {.table = d->controller->options, .values = d->options};
    const taciti_config config = {&section, 1};
    if (taciti_config_set(&config, key, value, key) != TACIT_OK) abort();
}

static inline driven driven_create(const char *name) {
    driven d = {.controller = taciti_controller_find(name)};
    if (d.controller == NULL) abort();
    d.options = calloc(1, d.controller->options_size + 1);
    const taciti_section section = {.table = d.controller->options, .values = d.options};
    const taciti_config config = {&section, d.controller->options != NULL};
    if (d.options == NULL || taciti_config_defaults(&config) != TACIT_OK) abort();
    return d;
}

static inline void driven_start(driven *d, const taciti_adapt_start *begin) {
    d->buckets = begin->buckets;
    d->state_bytes = d->controller->state_bytes(begin->buckets);
    d->state = calloc(1, d->state_bytes + 1);
    if (d->state == NULL) abort();
    d->controller->start(d->options, begin, d->state, &d->decision, d->factors);
}

static inline void driven_decide(driven *d, const taciti_adapt_facts *facts) {
    d->controller->decide(d->options, facts, d->state, &d->decision, d->factors);
}

static inline void driven_destroy(driven *d) {
    free(d->options);
    free(d->state);
}

#endif
