/* SPDX-License-Identifier: Apache-2.0
 *
 * The manifest of a checkpoint. The first byte chooses: even, the rest is the file; odd, the digest is put in front, so
 * that what lies behind it is reached.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ckpt/manifest.h"
#include "fuzz.h"

/* What was accepted must be written and read back as the same. */
static void check_round_trip(const taciti_manifest *manifest) {
    char *text = NULL;
    size_t bytes = 0;
    taciti_manifest again;
    if (taciti_manifest_format(manifest, &text, &bytes) != TACIT_OK) abort();
    if (taciti_manifest_parse("again", text, bytes, &again) != TACIT_OK) abort();
    if (again.step != manifest->step || again.count != manifest->count || again.tensors != manifest->tensors) abort();
    if (strcmp(again.meta_json, manifest->meta_json) != 0) abort();
    for (size_t i = 0; i < again.count; i++) {
        if (strchr(again.files[i].name, '/') != NULL || again.files[i].name[0] == '.') abort();
        if (memcmp(&again.files[i], &manifest->files[i], sizeof again.files[i]) != 0) abort();
    }
    taciti_manifest_destroy(&again);
    taciti_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char text[FUZZ_INPUT_MAX + 64];
    taciti_manifest manifest;
    if (size < 1 || size > FUZZ_INPUT_MAX) return 0;
    size_t total = 0;
    if (data[0] % 2 == 1) {
        char digest[TACITI_DIGEST_BYTES];
        taciti_digest_block(data + 1, size - 1, digest);
        total = (size_t)snprintf(text, sizeof text, "{\"digest\": \"%s\",\n", digest);
    }
    memcpy(text + total, data + 1, size - 1);
    if (taciti_manifest_parse("manifest", text, total + size - 1, &manifest) == TACIT_OK) {
        check_round_trip(&manifest);
        taciti_manifest_destroy(&manifest);
    }
    return 0;
}

#define SHARD_(digit)                                                                                                  \
    "{\"name\":\"rank-0000" digit ".safetensors\",\"bytes\":1000,\"xxh3\":\"0123456789abcdef0123456789abcdef\","       \
    "\"tensors\":2}"
#define SHARD_0 SHARD_("0")
#define SHARD_1 SHARD_("1")

size_t fuzz_seed(size_t i, uint8_t *out) {
    static const char *const seeds[] = {
        "\x01\"format\":1,\"tacit\":\"0\",\"step\":5,\"world\":1,\"tensors\":2,\"files\":[" SHARD_0 "],\"meta\":{}}",
        ("\x01\"format\":1,\"step\":100,\"world\":2,\"tensors\":4,\"files\":[" SHARD_1 "," SHARD_0 "],"
         "\"meta\":{\"a\":[1,2.5,-3e7,\"\\u00e4\",null,true],\"b\":{\"c\":{}}}}"),
        "\x01\"format\":1,\"step\":0,\"world\":1,\"tensors\":0,\"files\":[],\"meta\":{\"seed\":9223372036854775807}}",
        "\x02{\"digest\": \"0123456789abcdef0123456789abcdef\",\n\"format\":1}",
    };
    if (i >= sizeof seeds / sizeof seeds[0]) return 0;
    memcpy(out, seeds[i], strlen(seeds[i]));
    return strlen(seeds[i]);
}
