/* SPDX-License-Identifier: Apache-2.0
 *
 * Layouts for the tests of this folder.
 */
#ifndef TACITI_EXCHANGE_TEST_LAYOUT_H
#define TACITI_EXCHANGE_TEST_LAYOUT_H

#include "comm/test_engine.h"
#include "tensor/layout.h"

/* Tensors "a", "b", ... of these sizes, cut into buckets. Returns owned. */
static inline void test_layout(const size_t *sizes, int count, size_t bucket_bytes, taciti_layout *out) {
    CHECK(taciti_layout_create((size_t)count, out) == TACIT_OK);
    for (int i = 0; i < count; i++) {
        const char name[2] = {(char)('a' + i), 0};
        const size_t matrix[] = {sizes[i] / 100, 100};
        const bool whole = sizes[i] >= 1000 && sizes[i] % 100 == 0; /* for codecs of low rank */
        CHECK(taciti_layout_append(out, name, whole ? 2 : 1, whole ? matrix : &sizes[i], true) == TACIT_OK);
    }
    CHECK(taciti_layout_seal(out, bucket_bytes) == TACIT_OK);
}

/* Whether an element of the flat array belongs to no tensor. Sanitizers would watch these few reads for a quarter of
 * the time of some tests. */
__attribute__((no_sanitize("address", "undefined"))) static inline bool test_is_gap(const taciti_layout *layout,
                                                                                    size_t element) {
    for (size_t t = 0; t < layout->tensor_count; t++) {
        const taciti_tensor *tensor = &layout->tensors[t];
        if (element >= tensor->offset && element - tensor->offset < tensor->n) return false;
    }
    return true;
}

/* Five tensors in buckets of 10000 bytes: shorter ones share a bucket, longer ones span several. */
static inline void test_layout_of_five(taciti_layout *out) {
    static const size_t SIZES[] = {5000, 3, 12000, 700, 64};
    test_layout(SIZES, 5, 10000, out);
}

#endif
