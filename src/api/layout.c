/* SPDX-License-Identifier: Apache-2.0 */

#include "api/object.h"
#include "base/log.h"

static tacit_status append(taciti_layout *layout, const tacit_tensor *t, size_t index) {
    int dims = 0, filled = 0; /* sizes before the first 0; sizes above 0 */
    while (dims < TACIT_DIMS && t->shape[dims] > 0) dims++;
    for (int i = 0; i < TACIT_DIMS; i++) filled += t->shape[i] > 0;
    if (t->name == NULL || t->name[0] == '\0') return taciti_fail(TACIT_E_CONFIG, "tensor %zu has no name", index);
    if (dims < 1 || filled > dims)
        return taciti_fail(TACIT_E_CONFIG, "tensor %s: a shape has 1 to %d sizes above 0, then only zeros", t->name,
                           (int)TACIT_DIMS);
    if (taciti_layout_find(layout, t->name) < layout->tensor_count)
        return taciti_fail(TACIT_E_CONFIG, "tensor %s: the name stands twice in the list", t->name);
    return taciti_layout_append(layout, t->name, dims, t->shape, t->decay);
}

static tacit_status build(taciti_layout *layout, const tacit_tensor *tensors, size_t count) {
    TACITI_TRY(taciti_layout_create(count, layout));
    for (size_t i = 0; i < count; i++) TACITI_TRY(append(layout, &tensors[i], i));
    return taciti_layout_seal(layout, layout->n * sizeof(float));
}

tacit_status tacit_layout_create(const tacit_tensor *tensors, size_t count, tacit_layout **out) {
    taciti_log_about(NULL);
    TACITI_TRY(taciti_argument_check(tensors, "tensors"));
    TACITI_TRY(taciti_argument_check(out, "out"));
    if (count == 0) return taciti_fail(TACIT_E_USAGE, "a layout of 0 tensors: nothing to train");
    tacit_layout *layout = taciti_calloc(1, sizeof *layout);
    if (layout == NULL) return TACIT_E_MEMORY;
    const tacit_status status = build(&layout->layout, tensors, count);
    if (status != TACIT_OK) {
        taciti_layout_destroy(&layout->layout);
        taciti_free(layout);
        return status;
    }
    taciti_handle_open(&layout->handle, TACITI_HANDLE_LAYOUT);
    *out = layout;
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
