/* SPDX-License-Identifier: Apache-2.0
 *
 * The safetensors header. The first byte chooses: even, the rest is the file; odd, the rest is a header, whose length
 * is put in front and which is followed by as many bytes of data as the second byte says, times 8.
 */
#include <stdlib.h>
#include <string.h>

#include "ckpt/safetensors.h"
#include "fuzz.h"

enum { ELEMENTS_MAX = 4096 };

static void read_all(const taciti_safe_file *file) {
    static float out[ELEMENTS_MAX];
    for (size_t i = 0; i < file->count; i++) {
        const taciti_safe_entry *entry = &file->entries[i];
        size_t n = 1;
        for (int d = 0; d < entry->dims; d++) n *= entry->shape[d];
        if (entry->offset + entry->bytes > file->view.bytes) abort();
        if (n <= ELEMENTS_MAX) (void)taciti_safe_read_f32(file, entry, out, n);
        if (taciti_safe_find(file, entry->name) == NULL) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t bytes[FUZZ_INPUT_MAX + 8 + 8 * 256];
    taciti_safe_file file;
    if (size < 2 || size > FUZZ_INPUT_MAX) return 0;
    size_t total = size - 2;
    if (data[0] % 2 == 1) {
        const uint64_t length = total;
        memcpy(bytes, &length, sizeof length);
        memcpy(bytes + 8, data + 2, total);
        total += 8 + 8 * (size_t)data[1];
    } else {
        memcpy(bytes, data + 2, total);
    }
    if (taciti_safe_open(fuzz_file(bytes, total), &file) == TACIT_OK) {
        read_all(&file);
        taciti_safe_close(&file);
    }
    return 0;
}

size_t fuzz_seed(size_t i, uint8_t *out) {
    static const char *const seeds[] = {
        "\x01\x02{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}",
        ("\x01\x03{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[16,"
         "24]"
         "},"
         "\"a\":{\"dtype\":\"F16\",\"shape\":[1,2,4],\"data_offsets\":[0,16]}}  "),
        ("\x01\x01{\"s\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
         "\"z\":{\"dtype\":\"U8\",\"shape\":[0,3],\"data_offsets\":[8,8]}}"),
        "\x01\x40{\"a\":{\"dtype\":\"F32\",\"shape\":[128],\"data_offsets\":[0,512]}}",
    };
    if (i >= sizeof seeds / sizeof seeds[0]) return 0;
    memcpy(out, seeds[i], strlen(seeds[i]));
    return strlen(seeds[i]);
}
