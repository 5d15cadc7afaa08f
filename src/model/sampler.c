/* SPDX-License-Identifier: Apache-2.0 */
#include "model/sampler.h"

#include <math.h>
#include <stdbool.h>

static void swap(int32_t *order, size_t a, size_t b) {
    const int32_t t = order[a];
    order[a] = order[b];
    order[b] = t;
}

/* Larger logit first; equal logits by index, so that the choice is the same everywhere. */
static bool before(const float *logits, int32_t a, int32_t b) {
    return logits[a] > logits[b] || (logits[a] >= logits[b] && a < b);
}

static void sift_down(const float *logits, int32_t *heap, size_t at, size_t n) {
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && before(logits, heap[child + 1], heap[child])) child++;
        if (!before(logits, heap[child], heap[at])) return;
        swap(heap, at, child);
    }
}

/* Candidates become a heap with the most likely token on top: k of n are taken in k log n. */
static size_t make_heap(const float *logits, int32_t *heap, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(logits[i])) heap[count++] = (int32_t)i;
    for (size_t i = count / 2; i-- > 0;) sift_down(logits, heap, i, count);
    return count;
}

int32_t taciti_sampler_choose(const taciti_sampler *sampler, float *logits, int32_t *order, size_t n, double unit) {
    const size_t count = make_heap(logits, order, n);
    if (count == 0) return -1;
    if (sampler->temperature <= 0) return order[0];
    const double max = (double)logits[order[0]];
    double all = 0;
    for (size_t i = 0; i < count; i++) all += exp(((double)logits[order[i]] - max) / sampler->temperature);
    const size_t k = sampler->top_k > 0 && sampler->top_k < count ? sampler->top_k : count;
    /* Take the likeliest until k or top_p is reached; they gather behind the shrinking heap. */
    double kept = 0;
    size_t left = count;
    for (size_t taken = 0; taken < k && (taken == 0 || kept < sampler->top_p * all); taken++) {
        kept += exp(((double)logits[order[0]] - max) / sampler->temperature);
        swap(order, 0, --left);
        sift_down(logits, order, 0, left);
    }
    double rest = unit * kept;
    for (size_t i = count; i-- > left;) {
        rest -= exp(((double)logits[order[i]] - max) / sampler->temperature);
        if (rest < 0) return order[i];
    }
    return order[left];
}
