/* SPDX-License-Identifier: Apache-2.0
 *
 * A codec for tests alone: sparse payloads of variable size that need everything the contract offers. The library does
 * not contain it; a test links test_sparse.c.
 */
#ifndef TACITI_CODEC_TEST_SPARSE_H
#define TACITI_CODEC_TEST_SPARSE_H

#include "codec/codec.h"

typedef struct test_sparse_options {
    double threshold; /* sparse.threshold: used when a call sets none */
} test_sparse_options;

extern const taciti_codec test_sparse;

#endif
