/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TACITI_SETTINGS_TEST_STRATEGIES_H
#define TACITI_SETTINGS_TEST_STRATEGIES_H

#include "strategy/strategy.h"

/* Options of the strategy `test-only`. */
typedef struct test_options {
    char first; /* what follows must be aligned all the same */
    double spread;
    int64_t after;
    taciti_list names;
} test_options;

#endif
