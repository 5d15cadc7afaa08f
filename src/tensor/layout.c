/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/layout.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"

enum { FLOATS_PER_LINE = 16 };

tacit_status taciti_layout_create(size_t tensor_capacity, taciti_layout *out) {
    taciti_tensor *tensors = taciti_calloc(tensor_capacity, sizeof *tensors);
    if (tensors == NULL) return TACIT_E_MEMORY;
    *out = (taciti_layout){.tensors = tensors, .tensor_capacity = tensor_capacity};
    return TACIT_OK;
}

/* Name and shape are one block, which begins with the shape. */
static tacit_status copy_texts(taciti_tensor *t, const char *name, const size_t *shape) {
    const size_t shape_bytes = (size_t)t->dims * sizeof *shape, name_bytes = strlen(name) + 1;
    t->shape = taciti_calloc(1, shape_bytes + name_bytes);
    if (t->shape == NULL) return TACIT_E_MEMORY;
    if (t->dims > 0) memcpy(t->shape, shape, shape_bytes);
    t->name = memcpy((char *)t->shape + shape_bytes, name, name_bytes);
    return TACIT_OK;
}

tacit_status taciti_layout_append(taciti_layout *layout, const char *name, int dims, const size_t *shape, bool decay) {
    taciti_tensor t = {.dims = dims, .n = 1, .offset = layout->n, .decay = decay};
    if (dims < 0) return taciti_fail(TACIT_E_CONFIG, "tensor %s: %d dimensions", name, dims);
    for (int i = 0; i < dims; i++) {
        if (shape[i] == 0 || t.n > ((size_t)1 << 48) / shape[i])
            return taciti_fail(TACIT_E_CONFIG, "tensor %s: size %zu of dimension %d is out of range", name, shape[i],
                               i);
        t.n *= shape[i];
    }
    taciti_tensor *tensors =
        taciti_reserve(layout->tensors, layout->tensor_count, 1, sizeof *tensors, &layout->tensor_capacity);
    if (tensors == NULL) return TACIT_E_MEMORY;
    layout->tensors = tensors;
    TACITI_TRY(copy_texts(&t, name, shape));
    if (layout->unit_count == 0) layout->unit_count = 1;
    t.unit = layout->unit_count - 1;
    layout->tensors[layout->tensor_count++] = t;
    layout->n += taciti_round_up(t.n, FLOATS_PER_LINE);
    layout->parameters += t.n;
    return TACIT_OK;
}

void taciti_layout_next_unit(taciti_layout *layout) {
    if (layout->tensor_count > 0) layout->unit_count++;
}

/* Whether tensor `next` may be in a bucket with tensor `first`. units: no bucket belongs to two. */
static bool may_share_bucket(const taciti_layout *layout, size_t first, size_t next, bool units) {
    const taciti_tensor *t = layout->tensors;
    return t[next].plain == t[first].plain && (!units || t[next].unit == t[first].unit);
}

/* Where the bucket that begins at `begin`, in tensor `first`, ends: at the last boundary of a tensor within `max`
 * floats, or after `max` floats if one tensor is larger than that. *last: the last tensor it overlaps; padding belongs
 * to the tensor before it. */
static size_t bucket_end(const taciti_layout *layout, size_t begin, size_t first, size_t max, bool units,
                         size_t *last) {
    const taciti_tensor *t = layout->tensors;
    size_t i = first, end = begin;
    while (i + 1 < layout->tensor_count && t[i + 1].offset - begin <= max && may_share_bucket(layout, first, i, units))
        end = t[++i].offset;
    if (layout->n - begin <= max && i + 1 == layout->tensor_count && may_share_bucket(layout, first, i, units))
        end = layout->n;
    const bool cut = end == begin; /* inside of `first` */
    *last = cut || end == layout->n ? i : i - 1;
    return cut ? begin + max : end;
}

size_t taciti_layout_choose_bucket(const taciti_layout *layout, bool coded) {
    const size_t share = layout->n * sizeof(float) / (coded ? 4 : 10), min = (size_t)(coded ? 1024 : 256) << 10;
    return taciti_min(taciti_max(share, min), TACITI_BUCKET_MAX);
}

static tacit_status cut_layout(taciti_layout *layout, size_t bucket_bytes, bool units) {
    const size_t bytes = bucket_bytes > 0 ? bucket_bytes : taciti_layout_choose_bucket(layout, false);
    const size_t floats = bytes / sizeof(float) + (bytes < sizeof(float));
    const size_t max = taciti_round_up(floats, FLOATS_PER_LINE);
    /* A bucket ends behind a tensor or has `max` floats. */
    taciti_bucket *buckets = taciti_calloc(layout->tensor_count + layout->n / max, sizeof *buckets);
    if (buckets == NULL) return TACIT_E_MEMORY;
    size_t count = 0, first = 0, of_half[2] = {0};
    for (size_t at = 0, end = 0, last = 0; at < layout->n; at = end) {
        while (first + 1 < layout->tensor_count && layout->tensors[first + 1].offset <= at) first++;
        end = bucket_end(layout, at, first, max, units, &last);
        const int half = of_half[1] < of_half[0];
        of_half[half] += end - at;
        buckets[count++] = (taciti_bucket){.offset = at,
                                           .n = end - at,
                                           .first = first,
                                           .last = last,
                                           .plain = layout->tensors[first].plain,
                                           .half = half};
    }
    taciti_free(layout->buckets);
    layout->buckets = buckets;
    layout->bucket_count = count;
    layout->bucket_max = max;
    return TACIT_OK;
}

tacit_status taciti_layout_seal(taciti_layout *layout, size_t bucket_bytes) {
    return cut_layout(layout, bucket_bytes, false);
}

tacit_status taciti_layout_seal_units(taciti_layout *layout, size_t bucket_bytes) {
    return cut_layout(layout, bucket_bytes, true);
}

taciti_range taciti_layout_unit(const taciti_layout *layout, size_t unit) {
    size_t first = 0, end = 0;
    while (first < layout->tensor_count && layout->tensors[first].unit < unit) first++;
    for (end = first; end < layout->tensor_count && layout->tensors[end].unit == unit;) end++;
    const size_t begin = first < layout->tensor_count ? layout->tensors[first].offset : layout->n;
    return (taciti_range){begin, (end < layout->tensor_count ? layout->tensors[end].offset : layout->n) - begin};
}

void taciti_layout_destroy(taciti_layout *layout) {
    for (size_t i = 0; i < layout->tensor_count; i++) taciti_free(layout->tensors[i].shape);
    taciti_free(layout->tensors);
    taciti_free(layout->buckets);
    *layout = (taciti_layout){0};
}

const char *taciti_shape_text(int dims, const size_t *shape, char text[TACITI_SHAPE_TEXT_BYTES]) {
    (void)snprintf(text, TACITI_SHAPE_TEXT_BYTES, "%s", dims == 0 ? "[]" : "");
    for (int i = 0; i < dims; i++) taciti_text_add(text, TACITI_SHAPE_TEXT_BYTES, "[%zu]", shape[i]);
    return text;
}

bool taciti_shape_equals(int dims, const size_t *shape, int other_dims, const size_t *other) {
    return dims == other_dims && (dims == 0 || memcmp(shape, other, (size_t)dims * sizeof *shape) == 0);
}

size_t taciti_layout_find(const taciti_layout *layout, const char *name) {
    size_t i = 0;
    while (i < layout->tensor_count && strcmp(layout->tensors[i].name, name) != 0) i++;
    return i;
}

tacit_status taciti_readiness_create(const taciti_layout *layout, taciti_readiness *out) {
    taciti_readiness readiness = {.layout = layout};
    readiness.missing = taciti_calloc(layout->bucket_count, sizeof *readiness.missing);
    if (readiness.missing == NULL) return TACIT_E_MEMORY;
    taciti_readiness_reset(&readiness);
    *out = readiness;
    return TACIT_OK;
}

void taciti_readiness_destroy(taciti_readiness *readiness) {
    taciti_free(readiness->missing);
    *readiness = (taciti_readiness){0};
}

void taciti_readiness_reset(taciti_readiness *readiness) {
    for (size_t b = 0; b < readiness->layout->bucket_count; b++)
        readiness->missing[b] = readiness->layout->buckets[b].last - readiness->layout->buckets[b].first + 1;
}

void taciti_readiness_mark(taciti_readiness *readiness, size_t tensor, void (*full)(void *context, size_t bucket),
                           void *context) {
    const taciti_layout *layout = readiness->layout;
    for (size_t b = 0; b < layout->bucket_count; b++) {
        if (tensor < layout->buckets[b].first || tensor > layout->buckets[b].last) continue;
        if (--readiness->missing[b] == 0) full(context, b);
    }
}

void taciti_layout_clear_gaps(const taciti_layout *layout, size_t bucket, taciti_range range, float *x) {
    const taciti_bucket *b = &layout->buckets[bucket];
    const size_t begin = b->offset + range.at, end = begin + range.n;
    for (size_t t = b->first; t <= b->last && layout->tensors[t].offset < end; t++) {
        const size_t tensor_end = layout->tensors[t].offset + layout->tensors[t].n;
        const size_t gap_end = t + 1 < layout->tensor_count ? layout->tensors[t + 1].offset : layout->n;
        const size_t from = tensor_end > begin ? tensor_end : begin, to = gap_end < end ? gap_end : end;
        if (from < to) memset(x + (from - begin), 0, (to - from) * sizeof *x);
    }
}
