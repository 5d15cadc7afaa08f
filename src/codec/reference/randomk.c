/* SPDX-License-Identifier: Apache-2.0
 *
 * randomk: sends k elements chosen at random, without their indices: both sides draw the same ones from the key.
 *
 * Source: Stich, Cordonnier and Jaggi, "Sparsified SGD with Memory" (NeurIPS 2018), definition 2.1 (rand_k), for error
 * feedback: values are sent as they are, not scaled by n / k. Drawn without replacement by Floyd's algorithm (Bentley
 * and Floyd, "A Sample of Brilliance", CACM 30(9), 1987).
 * All ranks draw the same elements, so the sum of their payloads has k elements, too.
 *
 * Properties (test_selection.c): E |x - C(x)|^2 = (1 - k/n) |x|^2; every subset of k elements is equally likely; if an
 * element is not finite, all elements are sent; biased: needs error feedback; class GATHER.
 *
 * Wire layout: composed.c.
 */
#include <string.h>

#include "codec/selector.h"
#include "kernel/kernel.h"

enum { WORD_BITS = 64 };

static bool set_bit(uint64_t *bits, uint64_t at) {
    const uint64_t bit = UINT64_C(1) << at % WORD_BITS, old = bits[at / WORD_BITS];
    bits[at / WORD_BITS] = old | bit;
    return (old & bit) == 0;
}

/* Step j of Floyd's algorithm draws from the first j + 1 elements, and takes j itself if what it drew is taken. */
static void draw(const taciti_codec_call *call, size_t n, size_t kept, void *scratch, uint32_t *indices) {
    uint64_t *bits = scratch;
    const size_t words = n / WORD_BITS + 1;
    memset(bits, 0, words * sizeof *bits);
    for (uint64_t j = n - kept; j < n; j++)
        if (!set_bit(bits, taciti_rng_below(call->key, j, j + 1))) (void)set_bit(bits, j);
    for (size_t w = 0; w < words; w++)
        for (uint64_t left = bits[w]; left != 0; left &= left - 1)
            *indices++ = (uint32_t)(w * WORD_BITS) + (uint32_t)__builtin_ctzll(left);
}

static void select_random(const taciti_codec_call *call, const float *x, size_t n, void *scratch,
                          taciti_selection *out) {
    const taciti_kernels *kernels = taciti_kernels_get();
    const size_t k = taciti_kept_of(call->setting.factor, TACITI_FACTOR, n);
    if (out->measure) out->squares = kernels->sum_squares(x, n);
    out->count = n;
    if (k == n || !kernels->all_finite(x, n)) return;
    draw(call, n, k, scratch, out->indices);
    kernels->gather(out->values, x, out->indices, k);
    out->count = k;
    if (out->error == NULL) return;
    memcpy(out->error, x, n * sizeof *x);
    memset(scratch, 0, k * sizeof *x);
    kernels->scatter(out->error, out->indices, scratch, k);
}

static size_t draw_bytes(size_t n) { return (n + WORD_BITS) * sizeof(float); }

static const taciti_selector SELECTOR = {.select = select_random, .known = draw, .scratch_bytes = draw_bytes};

extern const taciti_codec taciti_codec_randomk;
const taciti_codec taciti_codec_randomk = {
    TACITI_COMPOSED(SELECTOR),
    .name = "randomk",
    .reference = true,
    .help = "sends n / factor random elements, the same on all ranks, without indices",
    .source = "Stich et al. 2018 (1809.07599)",
    .selects = true,
    .shared_key = true,
};
