/* SPDX-License-Identifier: Apache-2.0
 *
 * Source of the coding: Elias, "Efficient Storage and Retrieval by Content and Address of Static Files", J. ACM 21
 * (1974); Fano 1971. The lower bits of every index as they are; the upper ones in unary, as differences.
 */
#include "codec/support.h"

#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "codec/largest.h"
#include "kernel/kernel.h"

enum { WORD_BITS = 24 }; /* of integers that f32 holds exactly */

static size_t array_bytes(size_t n) { return taciti_round_up((n + TACITI_SELECT_SLACK) * sizeof(float), 64); }

size_t taciti_support_bytes(size_t n) { return 3 * array_bytes(n) + taciti_round_up(n / 8 + 8, 64); }

taciti_support taciti_support_in(void *memory, size_t n) {
    char *at = memory;
    return (taciti_support){.indices = (uint32_t *)(void *)at,
                            .values = (float *)(void *)(at + array_bytes(n)),
                            .work = (float *)(void *)(at + 2 * array_bytes(n)),
                            .marks = (uint64_t *)(void *)(at + 3 * array_bytes(n))};
}

/* ---- choices -------------------------------------------------------------------------------------------------------
 */
void taciti_support_draw(const taciti_support *s, uint64_t key, size_t n, size_t k) {
    for (size_t i = 0, begin = 0; i < k; i++) {
        const size_t end = (size_t)((uint64_t)(i + 1) * n / k);
        s->indices[i] = (uint32_t)(begin + taciti_rng_below(key, i, end - begin));
        begin = end;
    }
}

static bool is_marked(const taciti_support *s, size_t i) { return (s->marks[i / 64] >> i % 64 & 1) != 0; }
static void mark(const taciti_support *s, size_t i) { s->marks[i / 64] |= UINT64_C(1) << i % 64; }

static void list_marks(const taciti_support *s, size_t n) {
    size_t count = 0;
    for (size_t word = 0; word <= n / 64; word++)
        for (uint64_t rest = s->marks[word]; rest != 0; rest &= rest - 1)
            s->indices[count++] = (uint32_t)(word * 64 + (size_t)__builtin_ctzll(rest));
}

void taciti_support_fill(const taciti_support *s, const float *x, size_t n, size_t largest, size_t k, size_t *cursor) {
    taciti_selection found = {.indices = s->indices, .values = s->values};
    memset(s->marks, 0, (n / 64 + 1) * sizeof *s->marks);
    if (largest > 0) taciti_select_largest(x, n, largest, s->work, &found);
    if (found.count > largest) found.count = largest; /* more are not finite */
    for (size_t i = 0; i < found.count; i++) mark(s, found.count == n ? i : s->indices[i]);
    size_t at = n > 0 ? *cursor % n : 0;
    for (size_t left = k - found.count; left > 0; at = at + 1 < n ? at + 1 : 0) {
        if (is_marked(s, at)) continue;
        mark(s, at);
        left--;
    }
    *cursor = at;
    list_marks(s, n);
}

/* ---- coding --------------------------------------------------------------------------------------------------------
 */
/* Lower bits per index: floor(log2(n / k)). */
static unsigned lower_bits(size_t n, size_t k) {
    unsigned bits = 0;
    while (n / k >> (bits + 1) > 0) bits++;
    return bits;
}

static size_t all_bits(size_t n, size_t k) {
    const unsigned low = lower_bits(n, k);
    return k * low + k + ((n - 1) >> low) + 1;
}

size_t taciti_support_coded_n(size_t n, size_t k) { return (all_bits(n, k) + WORD_BITS - 1) / WORD_BITS; }

static void set_bit(uint32_t *words, size_t at) { words[at / WORD_BITS] |= UINT32_C(1) << at % WORD_BITS; }
static uint32_t bit(const uint32_t *words, size_t at) { return words[at / WORD_BITS] >> at % WORD_BITS & 1; }

void taciti_support_encode(const taciti_support *s, size_t n, size_t k, float *out) {
    const size_t words_n = taciti_support_coded_n(n, k);
    const unsigned low = lower_bits(n, k);
    uint32_t *words = (uint32_t *)(void *)s->work;
    memset(words, 0, words_n * sizeof *words);
    for (size_t i = 0; i < k; i++) {
        for (unsigned b = 0; b < low; b++)
            if ((s->indices[i] >> b & 1) != 0) set_bit(words, i * low + b);
        set_bit(words, k * low + (s->indices[i] >> low) + i);
    }
    for (size_t i = 0; i < words_n; i++) out[i] = (float)words[i];
}

tacit_status taciti_support_decode(const taciti_support *s, const float *coded, size_t n, size_t k) {
    const size_t words_n = taciti_support_coded_n(n, k), bits = all_bits(n, k);
    const unsigned low = lower_bits(n, k);
    uint32_t *words = (uint32_t *)(void *)s->work;
    size_t count = 0;
    bool good = true;
    for (size_t i = 0; i < words_n && good; i++) {
        good = coded[i] >= 0 && coded[i] < 0x1p24f && coded[i] == (float)(uint32_t)coded[i];
        words[i] = good ? (uint32_t)coded[i] : 0;
    }
    for (size_t at = k * low; at < words_n * WORD_BITS && good; at++) {
        if (bit(words, at) == 0) continue;
        uint64_t index = (at - k * low - count) << low;
        good = at < bits && count < k;
        for (unsigned b = 0; b < low && good; b++) index |= (uint64_t)bit(words, count * low + b) << b;
        good = good && index < n && (count == 0 || index > s->indices[count - 1]);
        if (good) s->indices[count++] = (uint32_t)index;
    }
    if (good && count == k) return TACIT_OK;
    return taciti_fail(TACIT_E_DATA, "shared: what arrived from the leader are not %zu indices below %zu", k, n);
}
