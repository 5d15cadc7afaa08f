/* SPDX-License-Identifier: Apache-2.0
 *
 * Selection by magnitude: see the header.
 */
#include "codec/largest.h"

#include <math.h>
#include <string.h>

#include "kernel/kernel.h"

/* Up to DIRECT elements no sample is taken. Else about 1 of 32 elements is sampled, at most 64 Ki. From BISECTED
 * elements on, histograms find a rank faster than counting. */
enum { DIRECT = 8192, LINE = 16, SAMPLED_OF = 32, SAMPLE_MAX = 65536, BISECTED = 1024 };

static const uint32_t ABOVE_ALL = UINT32_C(0x80000000);

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & TACITI_MAGNITUDE_MASK;
}

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

uint32_t taciti_magnitude_bits(double threshold) {
    if (!(threshold <= 0x1.fffffep127)) return TACITI_MAGNITUDE_INF;
    const float nearest = (float)threshold;
    const uint32_t bits = bits_of(nearest) + ((double)nearest < threshold ? 1 : 0);
    return bits > 0 ? bits : 1;
}

uint32_t taciti_estimate_bits(double threshold) {
    if (!(threshold > 0)) return 1;
    const uint32_t bits = taciti_magnitude_bits(threshold), max = TACITI_MAGNITUDE_INF - 1;
    return bits < max ? bits : max;
}

double taciti_magnitude_of(uint32_t bits) { return (double)float_of(bits); }

static uint32_t half_of(uint32_t bits) {
    const uint32_t half = bits_of(float_of(bits) * 0.5f);
    return half > 0 ? half : 1;
}

/* ---- the magnitude of a rank ------------------------------------------------------------------------------------- */
/* All ranks counted so far lie in [low, high). */
static uint32_t bisect_threshold(const float *v, size_t n, size_t rank, uint32_t low, uint32_t high) {
    const taciti_kernels *kernels = taciti_kernels_get();
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (kernels->count_above(v, n, middle) >= rank)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The bin that holds the rank-th largest; *rank becomes the rank within the bin. */
static uint32_t bin_of_rank(const uint64_t *counts, size_t *rank) {
    uint32_t bin = TACITI_MAGNITUDE_BINS - 1;
    for (; counts[bin] < *rank; bin--) *rank -= (size_t)counts[bin];
    return bin;
}

/* Digits of 11, 11 and 9 bits; after each, the elements of that digit alone are left. */
uint32_t taciti_magnitude_of_rank(const float *v, size_t n, size_t rank, float *work) {
    static const unsigned SHIFTS[] = {20, 9, 0};
    const taciti_kernels *kernels = taciti_kernels_get();
    uint32_t low = 0, high = ABOVE_ALL;
    for (size_t digit = 0; n > BISECTED && digit < 3; digit++) {
        uint64_t counts[TACITI_MAGNITUDE_BINS] = {0};
        kernels->histogram(counts, v, n, SHIFTS[digit]);
        low |= bin_of_rank(counts, &rank) << SHIFTS[digit];
        high = low + (UINT32_C(1) << SHIFTS[digit]);
        n = kernels->select_band(work, v, n, low, high);
        v = work;
    }
    return bisect_threshold(v, n, rank, low, high);
}

/* ---- by threshold ------------------------------------------------------------------------------------------------ */
/* One pass; magnitudes from `half` on count in out->near. */
static void pass_array(const float *x, size_t n, uint32_t bits, uint32_t half, taciti_selection *out) {
    if (bits > TACITI_MAGNITUDE_INF) bits = TACITI_MAGNITUDE_INF;
    if (bits == 0) bits = 1;
    taciti_select select = {.threshold = bits,
                            .half = half,
                            .measure = out->measure,
                            .indices = out->indices,
                            .values = out->values,
                            .error = out->error};
    taciti_kernels_get()->select_above(&select, x, n);
    out->count = select.count;
    out->threshold = taciti_magnitude_of(bits);
    out->near = select.near;
    out->squares = select.squares;
}

void taciti_select_by_threshold(const float *x, size_t n, uint32_t bits, taciti_selection *out) {
    pass_array(x, n, bits, half_of(bits), out);
}

/* ---- the k largest ----------------------------------------------------------------------------------------------- */
typedef struct hint {
    uint32_t low;  /* probably more than k magnitudes reach this; 1 or more, so that zeros do not */
    uint32_t high; /* probably fewer than k reach this */
} hint;

static size_t sample_magnitudes(const float *x, size_t n, float *out) {
    const size_t wanted = n / SAMPLED_OF < SAMPLE_MAX ? n / SAMPLED_OF : SAMPLE_MAX, stride = n / wanted;
    size_t count = 0;
    for (size_t group = 0; (group + 1) * stride * LINE <= n; group++, count += LINE)
        memcpy(out + count, x + taciti_sampled_line(group, stride) * LINE, LINE * sizeof *x);
    return count;
}

/* The magnitudes of the ranks that k would have in the sample if the sample were 5 standard deviations off, both ways.
 * The band between the two is what is searched exactly. */
static hint hint_of(const float *x, size_t n, size_t k, float *work) {
    const size_t count = sample_magnitudes(x, n, work);
    const double share = (double)k / (double)n, expected = (double)count * share;
    const double spread = 5 * sqrt(expected * (1 - share)) + 5;
    const size_t low = (size_t)(expected + spread) + 1, high = expected > spread ? (size_t)(expected - spread) : 0;
    float *band = work + count;
    hint out = {1, ABOVE_ALL};
    if (low < count) out.low = taciti_magnitude_of_rank(work, count, low, band);
    if (out.low == 0) out.low = 1;
    const size_t above = taciti_kernels_get()->select_band(band, work, count, out.low, ABOVE_ALL);
    if (high > 0 && high <= above) out.high = taciti_magnitude_of_rank(band, above, high, band);
    return out;
}

/* `high`: where to begin, any value is right. */
static void reduce_candidates(taciti_selection *out, size_t k, uint32_t high, float *work) {
    const taciti_kernels *kernels = taciti_kernels_get();
    const size_t above = kernels->count_above(out->values, out->count, high);
    const uint32_t low = above >= k ? high : 0;
    const size_t band = kernels->select_band(work, out->values, out->count, low, above >= k ? ABOVE_ALL : high);
    uint32_t bits = taciti_magnitude_of_rank(work, band, above >= k ? k : k - above, work);
    size_t ties = SIZE_MAX;
    if (bits >= TACITI_MAGNITUDE_INF)
        bits = TACITI_MAGNITUDE_INF;
    else
        ties = k - kernels->count_above(out->values, out->count, bits + 1);
    out->count = kernels->select_among(out->indices, out->values, out->error, out->count, bits, ties);
    out->threshold = taciti_magnitude_of(bits);
}

void taciti_selection_reduce(taciti_selection *out, size_t k, float *work) {
    if (out->count > k) reduce_candidates(out, k, ABOVE_ALL, work);
}

/* All elements that are not 0 are fewer than k. */
static void smallest_threshold(taciti_selection *out, float *work) {
    if (out->count > 0)
        out->threshold = taciti_magnitude_of(taciti_magnitude_of_rank(out->values, out->count, out->count, work));
}

static void select_all(const float *x, size_t n, taciti_selection *out) {
    out->count = n;
    if (!out->measure) return;
    out->near = n;
    out->squares = taciti_kernels_get()->sum_squares(x, n);
}

void taciti_select_largest(const float *x, size_t n, size_t k, float *work, taciti_selection *out) {
    if (k >= n) {
        select_all(x, n, out);
        return;
    }
    const hint h = n > DIRECT ? hint_of(x, n, k, work) : (hint){1, ABOVE_ALL};
    pass_array(x, n, h.low, half_of(h.high < TACITI_MAGNITUDE_INF ? h.low + (h.high - h.low) / 2 : h.low), out);
    if (out->count < k && h.low > 1) {
        const uint32_t bits = taciti_magnitude_of_rank(x, n, k, work);
        pass_array(x, n, bits, half_of(bits), out);
    }
    if (out->count > k)
        reduce_candidates(out, k, h.high, work);
    else
        smallest_threshold(out, work);
    if (n <= DIRECT && out->measure)
        out->near = taciti_kernels_get()->count_above(x, n, half_of(bits_of((float)out->threshold)));
}

/* A quarter of a binade below the last threshold there are a few times k elements. */
static uint32_t hint_below(double threshold) {
    static const uint32_t QUARTER = UINT32_C(0x00200000);
    const uint32_t bits = bits_of((float)threshold);
    return bits > QUARTER && bits < TACITI_MAGNITUDE_INF ? bits - QUARTER : 1;
}

void taciti_select_largest_of_chunk(const float *x, size_t n, size_t k, float *work, taciti_selection *out,
                                    uint32_t *below) {
    const uint32_t first = *below;
    pass_array(x, n, first, first, out);
    if (out->count < k && first > 1) pass_array(x, n, 1, 1, out);
    if (out->count > k)
        reduce_candidates(out, k, ABOVE_ALL, work);
    else
        smallest_threshold(out, work);
    *below = hint_below(out->threshold);
    if (out->measure) out->near = taciti_kernels_get()->count_above(x, n, half_of(bits_of((float)out->threshold)));
}

void taciti_select_topk(const taciti_codec_call *call, const float *x, size_t n, void *scratch, taciti_selection *out) {
    if (call->setting.threshold > 0)
        taciti_select_by_threshold(x, n, taciti_magnitude_bits(call->setting.threshold), out);
    else
        taciti_select_largest(x, n, taciti_kept_of(call->setting.factor, TACITI_FACTOR, n), scratch, out);
}
