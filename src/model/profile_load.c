/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "model/profile_build.h"

/* Thousands of layers with tens of tensors each, with room to spare. */
enum { FILE_MAX_BYTES = 16 << 20 };

static tacit_status fail_unknown(const char *name) {
    char quoted[TACITI_QUOTED_BYTES], list[256] = "";
    taciti_nearest nearest = {0};
    for (const char *const *preset = taciti_profile_presets(); *preset != NULL; preset++) {
        taciti_nearest_offer(&nearest, name, *preset);
        (void)strncat(list, *list == '\0' ? "" : ", ", sizeof list - strlen(list) - 1);
        (void)strncat(list, *preset, sizeof list - strlen(list) - 1);
    }
    return taciti_fail(TACIT_E_CONFIG, "no compute profile is called %s%s; there are %s, or name a file as ./FILE",
                       taciti_quote(name, quoted), nearest.hint, list);
}

tacit_status taciti_profile_load(const char *name_or_path, taciti_profile *out) {
    if (taciti_profile_preset_help(name_or_path) != NULL) return taciti_profile_preset(name_or_path, out);
    if (strpbrk(name_or_path, "/.") == NULL) return fail_unknown(name_or_path);
    char *text = NULL;
    size_t bytes = 0;
    TACITI_TRY(taciti_file_read(name_or_path, FILE_MAX_BYTES, &text, &bytes));
    const tacit_status status = taciti_profile_parse(name_or_path, text, bytes, out);
    taciti_free(text);
    return status;
}
