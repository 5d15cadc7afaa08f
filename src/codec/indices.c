/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of index coders, and two of them: raw numbers and the bitmap.
 */
#include "codec/indices.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/log.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "payloads are little endian; this machine needs a byte swap in encode and decode"
#endif

enum { WORD_BITS = 64, WORD_BYTES = 8 };

static tacit_status wrong_size(const char *coder, size_t bytes, size_t k, size_t n) {
    return taciti_fail(TACIT_E_DATA, "%s indices in %zu bytes, which cannot hold %zu of %zu", coder, bytes, k, n);
}

/* ---- raw --------------------------------------------------------------------------------------------------------- */
static size_t raw_bound(size_t k, size_t n) {
    (void)n;
    return k * sizeof(uint32_t);
}

static size_t raw_bytes(const uint32_t *indices, size_t k, size_t n) {
    (void)indices;
    return raw_bound(k, n);
}

static void raw_encode(const uint32_t *indices, size_t k, size_t n, void *out) {
    if (k > 0) memcpy(out, indices, raw_bound(k, n));
}

static tacit_status raw_decode(const void *in, size_t bytes, uint32_t *indices, size_t k, size_t n) {
    if (k > n || bytes != raw_bound(k, n)) return wrong_size("raw", bytes, k, n);
    if (k == 0) return TACIT_OK;
    memcpy(indices, in, bytes);
    bool descends = false;
    for (size_t i = 1; i < k; i++) descends |= indices[i] <= indices[i - 1];
    if (descends || indices[k - 1] >= n)
        return taciti_fail(TACIT_E_DATA, "raw indices that do not ascend below %zu", n);
    return TACIT_OK;
}

static const taciti_index_coder RAW = {
    .name = "raw",
    .help = "32-bit numbers",
    .source = "none",
    .id = 0,
    .bytes = raw_bytes,
    .bound = raw_bound,
    .encode = raw_encode,
    .decode = raw_decode,
};

/* ---- bitmap ------------------------------------------------------------------------------------------------------ */
static size_t bitmap_bound(size_t k, size_t n) {
    (void)k;
    return n / 8 + (n % 8 != 0);
}

static size_t bitmap_bytes(const uint32_t *indices, size_t k, size_t n) {
    (void)indices;
    return bitmap_bound(k, n);
}

static void bitmap_encode(const uint32_t *indices, size_t k, size_t n, void *out) {
    unsigned char *bits = out;
    const size_t bytes = bitmap_bound(k, n);
    if (bytes == 0) return;
    memset(bits, 0, bytes);
    for (size_t i = 0; i < k; i++) bits[indices[i] / 8] |= (unsigned char)(1u << indices[i] % 8);
}

/* Up to 8 bytes as a number. */
static uint64_t word_of(const unsigned char *in, size_t bytes) {
    uint64_t word = 0;
    memcpy(&word, in, bytes < WORD_BYTES ? bytes : WORD_BYTES);
    return word;
}

static tacit_status bitmap_decode(const void *in, size_t bytes, uint32_t *indices, size_t k, size_t n) {
    const unsigned char *bits = in;
    size_t count = 0;
    if (k > n || bytes != bitmap_bound(k, n)) return wrong_size("bitmap", bytes, k, n);
    for (size_t at = 0; at < bytes; at += WORD_BYTES)
        count += (size_t)__builtin_popcountll(word_of(bits + at, bytes - at));
    if (count != k || (n % 8 != 0 && bits[bytes - 1] >> n % 8 != 0))
        return taciti_fail(TACIT_E_DATA, "bitmap of %zu indices where %zu of %zu are expected", count, k, n);
    for (size_t at = 0; at < bytes; at += WORD_BYTES)
        for (uint64_t word = word_of(bits + at, bytes - at); word != 0; word &= word - 1)
            *indices++ = (uint32_t)(at * 8) + (uint32_t)__builtin_ctzll(word);
    return TACIT_OK;
}

static const taciti_index_coder BITMAP = {
    .name = "bitmap",
    .help = "one bit per element",
    .source = "none",
    .id = 1,
    .bytes = bitmap_bytes,
    .bound = bitmap_bound,
    .encode = bitmap_encode,
    .decode = bitmap_decode,
};

/* ---- all --------------------------------------------------------------------------------------------------------- */
static const taciti_index_coder *const CODERS[] = {&RAW, &BITMAP, NULL};
enum { CODER_COUNT = sizeof CODERS / sizeof *CODERS - 1 };

const taciti_index_coder *const *taciti_index_coder_list(void) { return CODERS; }

/* An id is the place in the list. */
const taciti_index_coder *taciti_index_coder_at(int id) { return id >= 0 && id < CODER_COUNT ? CODERS[id] : NULL; }

const taciti_index_coder *taciti_index_coder_best(const uint32_t *indices, size_t k, size_t n, size_t *bytes) {
    const taciti_index_coder *best = CODERS[0];
    *bytes = best->bytes(indices, k, n);
    for (size_t i = 1; i < CODER_COUNT; i++) {
        const size_t needed = CODERS[i]->bytes(indices, k, n);
        if (needed >= *bytes) continue;
        best = CODERS[i];
        *bytes = needed;
    }
    return best;
}

double taciti_index_entropy(size_t k, size_t n) {
    if (k == 0 || k >= n) return 0;
    const double nats = lgamma((double)n + 1) - lgamma((double)k + 1) - lgamma((double)(n - k) + 1);
    return nats / log(2) / (double)k;
}
