/* SPDX-License-Identifier: Apache-2.0 */
#include "data/builtin.h"

#include "base/memory.h"

tacit_status taciti_builtin_text(unsigned char **out, size_t *count) {
    unsigned char *bytes = taciti_calloc(taciti_builtin_bytes, 1);
    if (bytes == NULL) return TACIT_E_MEMORY;
    for (size_t i = 0; i < taciti_builtin_bytes; i++)
        bytes[i] = (unsigned char)(taciti_builtin_words[i / 8] >> (56 - 8 * (i % 8)));
    *out = bytes;
    *count = taciti_builtin_bytes;
    return TACIT_OK;
}
