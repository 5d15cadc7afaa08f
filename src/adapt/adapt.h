/* SPDX-License-Identifier: Apache-2.0
 *
 * The contract of a controller: it chooses the setting of a codec (taciti_codec_setting) for
 * every bucket from what the steps before have shown. No controller exists yet.
 *
 * Ranks must use the same setting. A controller sees only numbers that were reduced over all ranks, and is a function
 * of them, its options and its state; so every rank computes the same decision, without a message of its own. Its state
 * is the same on all ranks, too, and a checkpoint saves it as plain bytes.
 *
 * A new controller is one C file and one line in a registry, as a codec is.
 */
#ifndef TACITI_ADAPT_ADAPT_H
#define TACITI_ADAPT_ADAPT_H

#include <stddef.h>
#include <stdint.h>

#include "base/option.h"

/* What a step that was taken has shown of one bucket. */
typedef struct taciti_bucket_report {
    int64_t step;
    size_t bucket, n;      /* n: floats */
    double setting;        /* that was used */
    double squares_before; /* sum over ranks of |x|^2, x the array that was encoded: gradient and residual */
    double squares_after;  /* sum over ranks of |decoded payload|^2 */
    double payload_bytes;  /* mean over ranks */
    double seconds;        /* of the slowest rank: encode, transfer, decode */
} taciti_bucket_report;

typedef struct taciti_controller {
    const char *name, *help, *source;
    const taciti_option_table *options; /* NULL: none */
    size_t options_size;

    /* Bytes of state for a network of so many buckets. The caller allocates them, zeroed before the first step. */
    size_t (*state_bytes)(const void *options, size_t buckets);

    /* Takes a report in; after every step that was taken, in the order of the buckets. Owner thread; never blocks. */
    void (*observe)(const void *options, void *state, const taciti_bucket_report *report);

    /* The setting of a bucket for the next step; 0: the codec's default. Does not change the state. */
    double (*decide)(const void *options, const void *state, size_t bucket);
} taciti_controller;

#endif
