/* SPDX-License-Identifier: Apache-2.0
 *
 * Wires by number, for tests that try several.
 */
#ifndef TACITI_EXCHANGE_TEST_WIRE_H
#define TACITI_EXCHANGE_TEST_WIRE_H

#include <stdio.h>

#include "codec/codec.h"

/* 0: f32, 1: bf16, ...: the dense codecs in the order of the registry. */
static inline taciti_text test_wire(int index) {
    taciti_text out = {""};
    (void)snprintf(out.text, sizeof out.text, "%s", taciti_codec_dense_name((size_t)index));
    return out;
}

#endif
