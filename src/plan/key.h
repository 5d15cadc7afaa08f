/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal to the planner: keys of inputs whose results are kept (plan/reuse.h).
 */
#ifndef TACITI_PLAN_KEY_H
#define TACITI_PLAN_KEY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/rng.h"

/* Folds bytes into a key: 64 bits that are equal for equal inputs and, but by an unlikely accident, for no others. */
static inline uint64_t taciti_plan_key(uint64_t key, const void *bytes, size_t size) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < size; i += sizeof key) {
        uint64_t word = 0;
        memcpy(&word, at + i, size - i < sizeof word ? size - i : sizeof word);
        key = taciti_rng_key(key, word);
    }
    return key;
}

#endif
