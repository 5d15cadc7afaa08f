/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/part.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"

bool taciti_ckpt_part_of_rank(const taciti_ckpt_array *array) {
    return array->own || (array->layout != NULL && (array->n != 0 || array->ranges != NULL));
}

size_t taciti_ckpt_ranges(const taciti_ckpt_array *array) { return array->ranges == NULL ? 1 : array->range_count; }

size_t taciti_ckpt_part_count(const taciti_ckpt_array *array) {
    return array->layout == NULL ? 1 : array->layout->tensor_count * taciti_ckpt_ranges(array);
}

bool taciti_ckpt_part_get(const taciti_ckpt_array *array, size_t index, taciti_ckpt_part *out) {
    if (array->layout == NULL) {
        *out = (taciti_ckpt_part){.n = array->n};
        return true;
    }
    const taciti_tensor *t = &array->layout->tensors[index / taciti_ckpt_ranges(array)];
    taciti_range range = {array->begin, array->n == 0 ? array->layout->n - array->begin : array->n};
    if (array->ranges != NULL) range = array->ranges[index % array->range_count];
    const size_t low = t->offset > range.at ? t->offset : range.at, end = range.at + range.n;
    const size_t high = t->offset + t->n < end ? t->offset + t->n : end;
    if (low >= high) return false;
    *out = (taciti_ckpt_part){.tensor = t, .first = low - t->offset, .n = high - low, .at = low - array->begin};
    return true;
}

bool taciti_ckpt_part_is_whole(const taciti_ckpt_part *part) {
    return part->tensor == NULL || part->n == part->tensor->n;
}

tacit_status taciti_ckpt_part_name(const taciti_ckpt_array *array, const taciti_ckpt_part *part,
                                   char out[TACITI_CKPT_PART_NAME_BYTES]) {
    const char *tensor = part->tensor == NULL ? "" : part->tensor->name;
    const int length = taciti_ckpt_part_is_whole(part)
                           ? snprintf(out, TACITI_CKPT_PART_NAME_BYTES, "%s%s", array->prefix, tensor)
                           : snprintf(out, TACITI_CKPT_PART_NAME_BYTES, "%s%s[%zu:%zu/%zu]", array->prefix, tensor,
                                      part->first, part->first + part->n, part->tensor->n);
    if (length > 0 && length < TACITI_CKPT_PART_NAME_BYTES) return TACIT_OK;
    return taciti_fail(TACIT_E_INTERNAL, "checkpoint: tensor name %s%s is too long", array->prefix, tensor);
}

/* "[a:b/n]" at the end of a name, whose numbers are written as taciti_ckpt_part_name() writes them. */
static bool parse_range(const char *text, size_t *begin, size_t *end, size_t *of) {
    char again[TACITI_CKPT_PART_NAME_BYTES];
    unsigned long long a = 0, b = 0, n = 0;
    if (sscanf(text, "[%llu:%llu/%llu]", &a, &b, &n) != 3) return false; /* NOLINT: compared below */
    (void)snprintf(again, sizeof again, "[%llu:%llu/%llu]", a, b, n);
    *begin = (size_t)a;
    *end = (size_t)b;
    *of = (size_t)n;
    return strcmp(again, text) == 0 && a < b && b <= n;
}

static const taciti_tensor *find_tensor(const taciti_layout *layout, const char *name) {
    const size_t t = taciti_layout_find(layout, name);
    return t < layout->tensor_count ? &layout->tensors[t] : NULL;
}

static bool parse_piece(const taciti_layout *layout, const char *name, taciti_ckpt_part *out) {
    char tensor[TACITI_TENSOR_NAME_BYTES];
    size_t begin = 0, end = 0, of = 0;
    const char *range = strrchr(name, '[');
    if (range == NULL || (size_t)(range - name) >= sizeof tensor || !parse_range(range, &begin, &end, &of))
        return false;
    memcpy(tensor, name, (size_t)(range - name));
    tensor[range - name] = '\0';
    const taciti_tensor *t = find_tensor(layout, tensor);
    if (t == NULL || t->n != of) return false;
    *out = (taciti_ckpt_part){.tensor = t, .first = begin, .n = end - begin};
    return true;
}

bool taciti_ckpt_part_parse(const taciti_ckpt_array *array, const char *name, taciti_ckpt_part *out) {
    const size_t prefix = strlen(array->prefix);
    if (strncmp(name, array->prefix, prefix) != 0) return false;
    if (array->layout == NULL) {
        *out = (taciti_ckpt_part){.n = array->n};
        return name[prefix] == '\0';
    }
    const taciti_tensor *t = find_tensor(array->layout, name + prefix);
    if (t == NULL) return parse_piece(array->layout, name + prefix, out);
    *out = (taciti_ckpt_part){.tensor = t, .n = t->n};
    return true;
}
