/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/part.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/number.h"

enum { RANGE_BYTES = 72 }; /* three numbers of 64 bits */

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

char *taciti_ckpt_part_name(const taciti_ckpt_array *array, const taciti_ckpt_part *part) {
    const char *tensor = part->tensor == NULL ? "" : part->tensor->name;
    const size_t room = strlen(array->prefix) + strlen(tensor) + RANGE_BYTES;
    char range[RANGE_BYTES] = "", *out = taciti_calloc(room, 1);
    if (out == NULL) return NULL;
    if (!taciti_ckpt_part_is_whole(part))
        (void)snprintf(range, sizeof range, "[%zu:%zu/%zu]", part->first, part->first + part->n, part->tensor->n);
    (void)snprintf(out, room, "%s%s%s", array->prefix, tensor, range);
    return out;
}

/* "[a:b/n]" at the end of a name, whose numbers are written as taciti_ckpt_part_name() writes them. */
static bool parse_range(const char *text, size_t *begin, size_t *end, size_t *of) {
    char again[RANGE_BYTES];
    unsigned long long a = 0, b = 0, n = 0;
    if (sscanf(text, "[%llu:%llu/%llu]", &a, &b, &n) != 3) return false; /* NOLINT: compared below */
    (void)snprintf(again, sizeof again, "[%llu:%llu/%llu]", a, b, n);
    *begin = (size_t)a;
    *end = (size_t)b;
    *of = (size_t)n;
    return strcmp(again, text) == 0 && a < b && b <= n;
}

bool taciti_ckpt_is_part_name(const char *name) {
    const char *range = strrchr(name, '[');
    size_t begin, end, of;
    return range != NULL && parse_range(range, &begin, &end, &of);
}

/* The tensor whose name is the first `length` bytes of `name`, or NULL. */
static const taciti_tensor *find_tensor(const taciti_layout *layout, const char *name, size_t length) {
    for (const taciti_tensor *t = layout->tensors; t < layout->tensors + layout->tensor_count; t++)
        if (strncmp(t->name, name, length) == 0 && t->name[length] == '\0') return t;
    return NULL;
}

static bool parse_piece(const taciti_layout *layout, const char *name, taciti_ckpt_part *out) {
    size_t begin = 0, end = 0, of = 0;
    const char *range = strrchr(name, '[');
    if (range == NULL || !parse_range(range, &begin, &end, &of)) return false;
    const taciti_tensor *t = find_tensor(layout, name, (size_t)(range - name));
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
    const taciti_tensor *t = find_tensor(array->entry.layout, name + prefix, strlen(name + prefix));
    if (t == NULL) return parse_piece(array->entry.layout, name + prefix, out);
    *out = (taciti_ckpt_part){.tensor = t, .n = t->n};
    return true;
}
