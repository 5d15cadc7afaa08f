/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/released.h"

#include <math.h>
#include <string.h>

#include "base/log.h"

/* ---- selection --------------------------------------------------------------------------------------------------- */

static const float LADDER[TACITI_RELEASED_RUNGS] = {1e-20f, 1e-15f, 1e-10f, 1e-8f, 1e-7f, 2e-7f, 5e-7f, 1e-6f, 2e-6f,
                                                    5e-6f,  1e-5f,  2e-5f,  5e-5f, 1e-4f, 2e-4f, 5e-4f, 1e-3f, 2e-3f,
                                                    5e-3f,  1e-2f,  2e-2f,  5e-2f, 1e-1f, 2e-1f, 5e-1f};

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static bool reaches(const float *x, size_t n, float threshold, double sparsity) {
    const size_t kept = taciti_kernels_get()->count_above(x, n, bits_of(threshold));
    return (double)(n - kept) >= sparsity * (double)n;
}

/* Bisects for the first rung that reaches the sparsity, and takes the one before. */
float taciti_released_threshold(const float *x, size_t n, double sparsity) {
    size_t low = 0, high = TACITI_RELEASED_RUNGS;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (reaches(x, n, LADDER[middle], sparsity))
            high = middle;
        else
            low = middle + 1;
    }
    return low > 0 ? LADDER[low - 1] : 0;
}

size_t taciti_released_select(const float *x, size_t n, float threshold, float *selected, float *error) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        const bool keep = !(fabsf(x[i]) < threshold); /* NaN is kept */
        selected[i] = keep ? x[i] : 0;
        if (error != NULL) error[i] = keep ? 0 : x[i];
        count += keep;
    }
    return count;
}

/* ---- the index --------------------------------------------------------------------------------------------------- */

void taciti_released_inject(float *x, size_t n, const uint64_t *index) {
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = (bits_of(x[i]) & ~UINT32_C(1)) | (uint32_t)(index[i / 64] >> (i % 64) & 1u);
        memcpy(&x[i], &bits, sizeof bits);
    }
}

void taciti_released_merge(uint64_t *words, const uint64_t *other, size_t n) {
    static const uint64_t HIGH = UINT64_C(0x8080808080808080);
    for (size_t w = 0; w < taciti_sketch_index_words(n); w++) /* no carry leaves its byte */
        words[w] = ((words[w] & ~HIGH) + (other[w] & ~HIGH)) ^ ((words[w] ^ other[w]) & HIGH);
    if (n % 64 != 0) words[n / 64] &= (UINT64_C(1) << (n % 64)) - 1;
}

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

/* As released: the third whenever two are equal, or the product of two differences is 0. */
static float median(const float v[3]) {
    if ((v[1] - v[0]) * (v[0] - v[2]) > 0) return v[0];
    if ((v[0] - v[1]) * (v[1] - v[2]) > 0) return v[1];
    return v[2];
}

static float estimate(const taciti_sketch *s, size_t i, const float *counters) {
    float v[3];
    for (uint32_t j = 0; j < 3; j++) {
        const uint32_t hash = taciti_murmur3((uint32_t)(i / s->unit), (uint32_t)(3 * s->seed) + j);
        const float y = counters[hash % s->rows * s->unit + i % s->unit];
        v[j] = hash >> 31 ? -y : y;
    }
    return median(v);
}

/* What peeling notices of a wrong index is ignored, as the release does. */
static tacit_status peel(const taciti_sketch *s, void *counters, void *workspace, float *x) {
    char reason[TACITI_REASON_BYTES];
    size_t pending;
    taciti_log_capture(reason);
    const tacit_status status = taciti_sketch_peel(s, counters, workspace, NULL, x, &pending);
    taciti_log_capture(NULL);
    return status == TACIT_E_DATA ? TACIT_OK : status;
}

tacit_status taciti_released_decode(const taciti_sketch *s, const uint64_t *index, void *counters, void *workspace,
                                    uint64_t *pending, float *x, size_t *estimated) {
    size_t count = 0;
    if (!s->compat || s->numbers.ring != TACITI_RING_F32)
        return taciti_fail(TACIT_E_USAGE, "only sketches of floats in the released layout are estimated");
    TACITI_TRY(taciti_sketch_map(s, index, workspace, NULL));
    TACITI_TRY(peel(s, counters, workspace, x));
    taciti_sketch_pending(s, workspace, pending);
    for (size_t w = 0; w < taciti_sketch_index_words(s->n); w++)
        for (uint64_t bits = pending[w]; bits != 0; bits &= bits - 1, count++) {
            const size_t i = 64 * w + (size_t)__builtin_ctzll(bits);
            x[i] = estimate(s, i, counters);
        }
    for (size_t i = 0; i < s->n; i++) x[i] += 0.0f; /* -0, which a sign makes of 0, would not survive the way back */
    *estimated = count;
    return TACIT_OK;
}
