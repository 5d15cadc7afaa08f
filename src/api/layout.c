/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "api/object.h"
#include "base/text.h"
#include "ckpt/part.h"

enum { NAME_BYTES_MAX = 1023 };

tacit_status tacit_layout_create(tacit_layout **out) {
    taciti_log_about(NULL);
    TACITI_TRY(taciti_argument_check(out, "out"));
    tacit_layout *layout = taciti_calloc(1, sizeof *layout);
    if (layout == NULL) return TACIT_E_MEMORY;
    const tacit_status status = taciti_layout_create(0, &layout->layout);
    if (status != TACIT_OK) {
        taciti_free(layout);
        return status;
    }
    taciti_handle_open(&layout->handle, TACITI_HANDLE_LAYOUT);
    *out = layout;
    return TACIT_OK;
}

static bool has_control_character(const char *name) {
    for (; *name != '\0'; name++)
        if ((unsigned char)*name < ' ' || *name == '\x7f') return true;
    return false;
}

static tacit_status check_name(const taciti_layout *layout, const char *name) {
    char quoted[TACITI_QUOTED_BYTES];
    const char *wrong = NULL;
    if (name == NULL || name[0] == '\0')
        return taciti_fail(TACIT_E_CONFIG, "tensor %zu has no name", layout->tensor_count);
    if (strlen(name) > NAME_BYTES_MAX)
        wrong = "a name has 1 to 1023 bytes";
    else if (!taciti_utf8_valid(name) || has_control_character(name))
        wrong = "a name is UTF-8 without control characters";
    else if (taciti_ckpt_is_part_name(name))
        wrong = "checkpoints put [first:end/all] behind the name of a part, so no name ends like that";
    else if (taciti_layout_find(layout, name) < layout->tensor_count)
        wrong = "the layout has this name already";
    return wrong == NULL ? TACIT_OK
                         : taciti_fail(TACIT_E_CONFIG, "tensor %zu, %s: %s", layout->tensor_count,
                                       taciti_quote(name, quoted), wrong);
}

tacit_status tacit_layout_add(tacit_layout *layout, const char *name, int dims, const size_t *shape,
                              unsigned int flags) {
    TACITI_TRY(taciti_handle_check(layout, TACITI_HANDLE_LAYOUT));
    if (dims > 0) TACITI_TRY(taciti_argument_check(shape, "shape"));
    if ((flags & ~(unsigned)TACIT_DECAY) != 0)
        return taciti_fail(TACIT_E_USAGE, "tacit_layout_add: flags %u; TACIT_DECAY or 0 is possible", flags);
    TACITI_TRY(check_name(&layout->layout, name));
    return taciti_layout_append(&layout->layout, name, dims, shape, (flags & TACIT_DECAY) != 0);
}

tacit_status tacit_layout_next_unit(tacit_layout *layout) {
    TACITI_TRY(taciti_handle_check(layout, TACITI_HANDLE_LAYOUT));
    taciti_layout_next_unit(&layout->layout);
    return TACIT_OK;
}

size_t tacit_layout_floats(const tacit_layout *layout) {
    return taciti_handle_check(layout, TACITI_HANDLE_LAYOUT) == TACIT_OK ? layout->layout.n : 0;
}

tacit_status tacit_layout_offset(const tacit_layout *layout, size_t tensor, size_t *out) {
    TACITI_TRY(taciti_handle_check(layout, TACITI_HANDLE_LAYOUT));
    TACITI_TRY(taciti_argument_check(out, "out"));
    if (tensor >= layout->layout.tensor_count)
        return taciti_fail(TACIT_E_USAGE, "tensor %zu of a layout of %zu", tensor, layout->layout.tensor_count);
    *out = layout->layout.tensors[tensor].offset;
    return TACIT_OK;
}

void tacit_layout_destroy(tacit_layout *layout) {
    if (layout == NULL || taciti_handle_check(layout, TACITI_HANDLE_LAYOUT) != TACIT_OK) return;
    taciti_handle_close(&layout->handle);
    taciti_layout_destroy(&layout->layout);
    taciti_free(layout);
}
