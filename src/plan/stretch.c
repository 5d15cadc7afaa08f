/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/stretch.h"

#include <xxhash.h>

#include "base/memory.h"

static void append(taciti_stretches *s, int half, size_t first, size_t last) {
    s->list[s->count++] = (taciti_stretch){.first = first, .last = last, .half = half};
}

/* Which of the runs, of equal shares of the array, a bucket begins in. */
static size_t run_of(const taciti_layout *layout, size_t bucket) {
    return (size_t)((double)layout->buckets[bucket].offset / (double)layout->n * TACITI_STRETCHES_RUNS);
}

static void append_runs(const taciti_layout *layout, taciti_stretches *s) {
    int half = 0;
    for (size_t first = 0, last; first < layout->bucket_count; first = last + 1, half = 1 - half) {
        last = first;
        while (last + 1 < layout->bucket_count && run_of(layout, last + 1) == run_of(layout, first)) last++;
        const size_t own = s->whole ? last : first; /* the first bucket, and all the others behind it */
        append(s, half, first, own);
        if (own < last) append(s, half, own + 1, last);
    }
}

static size_t find_length(taciti_stretches *s, const taciti_bucket *bucket) {
    size_t at = 0;
    while (at < s->length_count && (s->lengths[at] != bucket->n || s->plain[at] != bucket->plain)) at++;
    if (at < s->length_count) return at;
    s->lengths[at] = bucket->n;
    s->plain[at] = bucket->plain;
    return s->length_count++;
}

tacit_status taciti_stretches_create(const taciti_layout *layout, size_t single, bool whole, taciti_stretches *out) {
    const size_t buckets = layout->bucket_count;
    taciti_stretches s = {.whole = whole};
    s.list = taciti_calloc(buckets, sizeof *s.list);
    s.lengths = taciti_calloc(3 * buckets, sizeof *s.lengths);
    s.plain = taciti_calloc(buckets, sizeof *s.plain);
    if (s.list == NULL || s.lengths == NULL || s.plain == NULL) {
        taciti_stretches_destroy(&s);
        return TACIT_E_MEMORY;
    }
    s.length_of = s.lengths + buckets;
    s.buckets = s.length_of + buckets;
    for (size_t k = 0; k < buckets; k++) s.buckets[s.length_of[k] = find_length(&s, &layout->buckets[k])]++;
    if (single == 0 && buckets > 0)
        append(&s, 0, 0, buckets - 1);
    else if (buckets > single)
        append_runs(layout, &s);
    else
        for (size_t k = 0; k < buckets; k++) append(&s, layout->buckets[k].half, k, k);
    *out = s;
    return TACIT_OK;
}

void taciti_stretches_destroy(taciti_stretches *stretches) {
    taciti_free(stretches->list);
    taciti_free(stretches->lengths);
    taciti_free(stretches->plain);
    *stretches = (taciti_stretches){0};
}

uint64_t taciti_stretches_key(const taciti_stretches *stretches) {
    const size_t lengths = stretches->length_count;
    uint64_t key = XXH3_64bits_withSeed(stretches->lengths, lengths * sizeof *stretches->lengths, stretches->count);
    key = XXH3_64bits_withSeed(stretches->buckets, lengths * sizeof *stretches->buckets, key);
    return XXH3_64bits_withSeed(stretches->plain, lengths * sizeof *stretches->plain, key);
}

void taciti_stretches_fill(const taciti_stretches *stretches, const double *of_length, double *own, double *behind) {
    for (size_t i = 0; i < stretches->count; i++) {
        const taciti_stretch *stretch = &stretches->list[i];
        behind[i] = 0;
        for (size_t k = stretch->first; k <= stretch->last; k++) behind[i] += of_length[stretches->length_of[k]];
        own[i] = stretches->whole ? behind[i] : of_length[stretches->length_of[stretch->last]];
    }
}
