/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/part.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/number.h"

bool taciti_ckpt_part_of_rank(const taciti_ckpt_array *array) { return array->own || array->entry.ranges != NULL; }

size_t taciti_ckpt_ranges(const taciti_ckpt_array *array) {
    return array->entry.ranges == NULL ? 1 : array->entry.range_count;
}

size_t taciti_ckpt_part_count(const taciti_ckpt_array *array) {
    const taciti_state_entry *entry = &array->entry;
    return entry->kind == TACITI_STATE_BYTES ? 1 : entry->layout->tensor_count * taciti_ckpt_ranges(array);
}

bool taciti_ckpt_part_get(const taciti_ckpt_array *array, size_t index, taciti_ckpt_part *out) {
    const taciti_state_entry *entry = &array->entry;
    if (entry->kind == TACITI_STATE_BYTES) {
        *out = (taciti_ckpt_part){.n = entry->n};
        return true;
    }
    const size_t ranges = taciti_ckpt_ranges(array);
    const taciti_tensor *t = &entry->layout->tensors[index / ranges];
    taciti_range range;
    (void)taciti_state_range(entry, index % ranges, &range);
    const size_t low = taciti_max(t->offset, range.at), high = taciti_min(t->offset + t->n, range.at + range.n);
    if (low >= high) return false;
    *out = (taciti_ckpt_part){.tensor = t, .first = low - t->offset, .n = high - low, .at = low};
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
    if (array->entry.kind == TACITI_STATE_BYTES) {
        *out = (taciti_ckpt_part){.n = array->entry.n};
        return name[prefix] == '\0';
    }
    const taciti_tensor *t = find_tensor(array->entry.layout, name + prefix);
    if (t == NULL) return parse_piece(array->entry.layout, name + prefix, out);
    *out = (taciti_ckpt_part){.tensor = t, .n = t->n};
    return true;
}
