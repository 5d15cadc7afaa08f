/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of index coders, and the simple ones: raw numbers, the bitmap, gaps as bytes.
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

/* ---- varint ------------------------------------------------------------------------------------------------------
 * The elements skipped before each index, in bytes of 7 bits, the lowest first; the upper bit says that more follow. */
enum { VARINT_BITS = 7, VARINT_MAX = 5 };

static size_t varint_length(uint32_t gap) {
    return 1 + (size_t)(gap >> 7 != 0) + (size_t)(gap >> 14 != 0) + (size_t)(gap >> 21 != 0) + (size_t)(gap >> 28 != 0);
}

static size_t varint_bytes(const uint32_t *indices, size_t k, size_t n) {
    (void)n;
    if (k == 0) return 0;
    size_t bytes = varint_length(indices[0]);
    for (size_t i = 1; i < k; i++) bytes += varint_length(indices[i] - indices[i - 1] - 1);
    return bytes;
}

/* Each further byte of a code needs a gap that is longer by a factor of 128; n - k elements are skipped in all. */
static size_t varint_bound(size_t k, size_t n) {
    size_t bytes = k;
    for (unsigned more = 1; more < VARINT_MAX; more++) {
        const size_t longer = (n - k) >> (VARINT_BITS * more);
        bytes += longer < k ? longer : k;
    }
    return bytes;
}

static void varint_encode(const uint32_t *indices, size_t k, size_t n, void *out) {
    unsigned char *at = out;
    uint32_t next = 0;
    (void)n;
    for (size_t i = 0; i < k; i++) {
        uint32_t gap = indices[i] - next;
        next = indices[i] + 1;
        for (; gap >= 128; gap >>= VARINT_BITS) *at++ = (unsigned char)(gap | 128);
        *at++ = (unsigned char)gap;
    }
}

/* Returns the byte behind the code, or NULL if the code does not end. */
static const unsigned char *varint_read(const unsigned char *at, const unsigned char *end, uint64_t *gap) {
    *gap = 0;
    for (unsigned i = 0; i < VARINT_MAX && at < end; i++) {
        const unsigned char byte = *at++;
        *gap |= (uint64_t)(byte & 127) << (VARINT_BITS * i);
        if (byte < 128) return at;
    }
    return NULL;
}

static tacit_status varint_decode(const void *in, size_t bytes, uint32_t *indices, size_t k, size_t n) {
    const unsigned char *at = in, *end = at + bytes;
    uint64_t next = 0, gap = 0;
    if (k > n || bytes < k) return wrong_size("varint", bytes, k, n);
    for (size_t i = 0; i < k; i++) {
        at = varint_read(at, end, &gap);
        if (at == NULL || (next += gap) >= n)
            return taciti_fail(TACIT_E_DATA, "varint index %zu of %zu is missing or not below %zu", i, k, n);
        indices[i] = (uint32_t)next++;
    }
    return at == end ? TACIT_OK : wrong_size("varint", bytes, k, n);
}

static const taciti_index_coder VARINT = {
    .name = "varint",
    .help = "gaps in bytes of 7 bits",
    .source = "LEB128 (DWARF 5, section 7.6)",
    .id = 3,
    .bytes = varint_bytes,
    .bound = varint_bound,
    .encode = varint_encode,
    .decode = varint_decode,
};

/* ---- all --------------------------------------------------------------------------------------------------------- */
static const taciti_index_coder *const CODERS[] = {&RAW, &BITMAP, &taciti_index_coder_rice, &VARINT, NULL};
enum { CODER_COUNT = sizeof CODERS / sizeof *CODERS - 1 };

const taciti_index_coder *const *taciti_index_coder_list(void) { return CODERS; }

/* An id is the place in the list. */
const taciti_index_coder *taciti_index_coder_at(int id) { return id >= 0 && id < CODER_COUNT ? CODERS[id] : NULL; }

const taciti_index_coder *taciti_index_coder_best(const uint32_t *indices, size_t k, size_t n, size_t *bytes) {
    const taciti_index_coder *best = CODERS[0];
    *bytes = best->bytes(indices, k, n);
    for (size_t i = 1; i < CODER_COUNT; i++) {
        if (CODERS[i] == &VARINT && k >= *bytes) continue; /* a gap takes a byte or more */
        const size_t needed = CODERS[i]->bytes(indices, k, n);
        if (needed >= *bytes) continue;
        best = CODERS[i];
        *bytes = needed;
    }
    return best;
}

/* ln Gamma(a), a > 0: Stirling's series behind the recurrence. lgamma() writes a global variable, this does not. */
static double log_gamma(double a) {
    double product = 1;
    for (; a < 12; a++) product *= a;
    const double r = 1 / a, r2 = r * r;
    const double series = r * (1.0 / 12 - r2 * (1.0 / 360 - r2 * (1.0 / 1260 - r2 / 1680)));
    return (a - 0.5) * log(a) - a + 0.9189385332046727 + series - log(product);
}

double taciti_index_entropy(size_t k, size_t n) {
    if (k == 0 || k >= n) return 0;
    const double all = (double)n, kept = (double)k;
    const double nats = log_gamma(all + 1) - log_gamma(kept + 1) - log_gamma(all - kept + 1);
    return nats / log(2) / (double)k;
}
