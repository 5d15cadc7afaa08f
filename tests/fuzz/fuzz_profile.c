/* SPDX-License-Identifier: Apache-2.0
 *
 * Compute profiles.
 */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "fuzz.h"
#include "model/profile_build.h"

/* What was accepted must be legal, have a layout, and be written and read back as the same. */
static void check(const taciti_profile *profile) {
    taciti_profile again;
    taciti_layout layout;
    char *text = taciti_profile_format(profile);
    if (text == NULL || taciti_profile_parse("again", text, strlen(text), &again) != TACIT_OK) abort();
    char *twice = taciti_profile_format(&again);
    if (twice == NULL || strcmp(text, twice) != 0) abort();
    if (!(taciti_profile_forward_s(profile) >= 0 && taciti_profile_backward_s(profile) >= 0)) abort();
    if (taciti_profile_parameters(profile) == 0) abort();
    if (taciti_profile_layout(profile, (size_t)1 << 40, &layout) != TACIT_OK) abort();
    if (layout.parameters != taciti_profile_parameters(&again)) abort();
    taciti_layout_destroy(&layout);
    taciti_profile_destroy(&again);
    taciti_free(twice);
    taciti_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    taciti_profile profile;
    if (taciti_profile_parse("profile", (const char *)data, size, &profile) == TACIT_OK) {
        check(&profile);
        taciti_profile_destroy(&profile);
    }
    return 0;
}

size_t fuzz_seed(size_t i, uint8_t *out) {
    static const char *const seeds[] = {
        "{\"format\":\"tacit-profile-1\",\"name\":\"n\",\"unit\":\"seconds\",\"update_s\":1e-3,\"layers\":["
        "{\"name\":\"a\",\"forward_s\":0.5,\"backward_s\":1,\"tensors\":[{\"name\":\"w\",\"shape\":[3,4,5,6]},"
        "{\"name\":\"b\",\"shape\":[4]}]},{\"name\":\"c\",\"forward_s\":0,\"backward_s\":0}]}",
        "{\"format\":\"tacit-profile-1\",\"name\":\"\\u00e4\\\"\",\"source\":\"s\",\"unit\":\"flops\","
        "\"rate_flops_per_s\":2e13,\"batch_samples\":8,\"sample_tokens\":1024,\"layers\":[{\"name\":\"a\","
        "\"forward_flops\":1e9,\"backward_flops\":2e9,\"tensors\":[{\"name\":\"w\",\"shape\":[1099511627776]}]}]}",
    };
    if (i >= sizeof seeds / sizeof seeds[0]) return 0;
    memcpy(out, seeds[i], strlen(seeds[i]));
    return strlen(seeds[i]);
}
