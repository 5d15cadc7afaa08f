/* SPDX-License-Identifier: Apache-2.0
 *
 * rice: the gaps between indices as Golomb-Rice codes with one parameter b per message, the best one.
 *
 * Source: Rice and Plaunt, IEEE Trans. Communications 19(6), 1971; Golomb, IEEE Trans. Information Theory 12(3), 1966.
 *   g[0] = i[0], g[j] = i[j] - i[j-1] - 1: the elements that are skipped
 *   code of g: floor(g / 2^b) zeros, a one, the lower b bits of g
 *
 * Properties (test_indices.c): the parameter is the best of all (rice_chooses_the_best_parameter): bits(b) is convex,
 * because bits(b) - bits(b + 1) = sum ceil(floor(g / 2^b) / 2) - k falls with b. Random supports need at most 5 % more
 * than their entropy (random_supports_need_at_most_5_percent_more_than_their_entropy).
 *
 * Wire layout      bytes               a decoder rejects
 *   b              1                   above 31
 *   codes          rest, LSB first     indices from n on; bits that are missing, left over or not 0 at the end
 */
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "base/log.h"
#include "codec/indices.h"

enum { PARAMETER_MAX = 31, SHORT_CODE = 56 };

/* Short codes are decoded several at a time: for each parameter below TABLE_PARAMETERS a table tells which codes the
 * next TABLE_BITS bits hold. They span at most 56 elements; longer codes would gain nothing. */
enum { TABLE_BITS = 10, TABLE_SIZE = 1 << TABLE_BITS, TABLE_PARAMETERS = 4, AT_ONCE = 4, LOOKUPS = 5 };

/* ---- the parameter ----------------------------------------------------------------------------------------------- */

/* Zeros of all codes with parameters b, b + 1 and b + 2. The gaps add up to less than 2^32. */
static void count_quotients(const uint32_t *indices, size_t k, unsigned b, uint32_t *sums) {
    uint32_t s0 = indices[0] >> b, s1 = indices[0] >> b >> 1, s2 = indices[0] >> b >> 1 >> 1;
    for (size_t i = 1; i < k; i++) {
        const uint32_t quotient = (indices[i] - indices[i - 1] - 1) >> b;
        s0 += quotient;
        s1 += quotient >> 1;
        s2 += quotient >> 2;
    }
    sums[0] = s0;
    sums[1] = s1;
    sums[2] = s2;
}

/* The parameter that suits the worst set of k indices, and the bits that this set needs. */
static unsigned worst_case(size_t k, size_t n, uint64_t *bits) {
    unsigned b = 0;
    uint64_t fewest = UINT64_MAX;
    for (unsigned c = 0; c <= PARAMETER_MAX; c++) {
        const uint64_t needed = (uint64_t)k * (c + 1) + ((uint64_t)(n - k) >> c);
        if (needed >= fewest) continue;
        fewest = needed;
        b = c;
    }
    *bits = fewest;
    return b;
}

/* Descends from there to the best parameter for these indices, k > 0. */
static unsigned best_parameter(const uint32_t *indices, size_t k, size_t n, uint64_t *bits) {
    uint32_t sums[3];
    unsigned b = worst_case(k, n, bits);
    for (;;) {
        const unsigned low = b == 0 ? 0 : b == PARAMETER_MAX ? PARAMETER_MAX - 2 : b - 1;
        unsigned best = low;
        count_quotients(indices, k, low, sums);
        *bits = UINT64_MAX;
        for (unsigned c = 0; c < 3; c++) {
            const uint64_t needed = (uint64_t)k * (low + c + 1) + sums[c];
            if (needed >= *bits) continue;
            *bits = needed;
            best = low + c;
        }
        if (best == low + 1 || best == 0 || best == PARAMETER_MAX) return best;
        b = best;
    }
}

static size_t bytes_of(uint64_t bits) { return 1 + (size_t)(bits / 8) + (bits % 8 != 0); }

static size_t bound_bytes(size_t k, size_t n) {
    uint64_t bits = 0;
    if (k > 0) (void)worst_case(k, n, &bits);
    return bytes_of(bits);
}

static size_t count_bytes(const uint32_t *indices, size_t k, size_t n) {
    uint64_t bits = 0;
    if (k > 0) (void)best_parameter(indices, k, n, &bits);
    return bytes_of(bits);
}

/* ---- encode ------------------------------------------------------------------------------------------------------ */
typedef struct writer {
    unsigned char *at;
    uint64_t bits; /* those that do not yet fill a byte */
    unsigned count;
} writer;

/* The lower `count` bits of `bits`, at most 56; those above are 0. */
static inline void put(writer *w, uint64_t bits, unsigned count) {
    w->bits |= bits << w->count;
    w->count += count;
    memcpy(w->at, &w->bits, sizeof w->bits);
    w->at += w->count / 8;
    w->bits >>= w->count / 8 * 8;
    w->count %= 8;
}

static void encode_indices(const uint32_t *indices, size_t k, size_t n, void *out) {
    uint64_t bits = 0;
    const unsigned b = k > 0 ? best_parameter(indices, k, n, &bits) : 0;
    const uint32_t mask = (UINT32_C(1) << b) - 1;
    writer w = {.at = out};
    uint32_t next = 0;
    *w.at++ = (unsigned char)b;
    for (size_t i = 0; i < k; i++) {
        const uint32_t gap = indices[i] - next;
        uint32_t zeros = gap >> b;
        next = indices[i] + 1;
        for (; zeros + 1 + b > SHORT_CODE; zeros -= SHORT_CODE / 4) put(&w, 0, SHORT_CODE / 4);
        put(&w, ((uint64_t)(gap & mask) << 1 | 1) << zeros, zeros + 1 + b);
    }
}

/* ---- decode ------------------------------------------------------------------------------------------------------ */
/* The whole codes that some bits begin with, at most AT_ONCE; none if the first one is longer. */
typedef struct prefix {
    uint8_t at[AT_ONCE]; /* the indices, counted from the element behind the last one */
    uint16_t elements;   /* from there to the element behind the last of these */
    uint8_t codes, bits;
} prefix;

static prefix g_prefixes[TABLE_PARAMETERS][TABLE_SIZE];

static prefix prefix_of(unsigned bits, unsigned b) {
    prefix out = {.codes = 0};
    while (out.codes < AT_ONCE && bits >> out.bits != 0) {
        const unsigned zeros = (unsigned)__builtin_ctz(bits >> out.bits), length = zeros + 1 + b;
        if (out.bits + length > TABLE_BITS) break;
        const unsigned rest = bits >> (out.bits + zeros + 1) & ((1u << b) - 1);
        out.at[out.codes] = (uint8_t)(out.elements + (zeros << b | rest));
        out.elements = (uint16_t)(out.at[out.codes++] + 1);
        out.bits = (uint8_t)(out.bits + length);
    }
    return out;
}

static void fill_tables(void) {
    for (unsigned b = 0; b < TABLE_PARAMETERS; b++)
        for (unsigned bits = 0; bits < TABLE_SIZE; bits++) g_prefixes[b][bits] = prefix_of(bits, b);
}

/* The table of a parameter; NULL: there is none. */
static const prefix *table_of(unsigned b) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (b >= TABLE_PARAMETERS) return NULL;
    (void)pthread_once(&once, fill_tables);
    return g_prefixes[b];
}

typedef struct reader {
    const unsigned char *at, *end;
    uint64_t bits; /* what lies above the lowest `count` bits is 0 or what follows in the stream */
    unsigned count;
} reader;

/* Makes it 56 bits or more, unless the stream ends. */
static inline void refill(reader *r) {
    if (r->end - r->at >= 8) {
        uint64_t word;
        memcpy(&word, r->at, sizeof word);
        r->bits |= word << r->count;
        r->at += (63 - r->count) / 8;
        r->count |= 56;
        return;
    }
    for (; r->count < 56 && r->at < r->end; r->count += 8) r->bits |= (uint64_t)*r->at++ << r->count;
}

/* A gap whose code is longer than what is buffered. Returns false if it is above `max` or the stream ends. */
static bool long_gap(reader *r, unsigned b, uint64_t max, uint64_t *gap) {
    uint64_t zeros = 0;
    for (refill(r); r->count > 0; refill(r)) {
        const unsigned run = r->bits != 0 ? (unsigned)__builtin_ctzll(r->bits) : 64;
        if (run < r->count) {
            r->bits = r->bits >> run >> 1;
            r->count -= run + 1;
            zeros += run;
            refill(r);
            if (r->count < b) return false;
            *gap = zeros << b | (r->bits & ((UINT64_C(1) << b) - 1));
            r->bits >>= b;
            r->count -= b;
            return true;
        }
        zeros += r->count;
        if (zeros > max >> b) return false;
        r->bits = 0;
        r->count = 0;
    }
    return false;
}

static inline bool next_gap(reader *r, unsigned b, uint64_t max, uint64_t *gap) {
    if (r->count < 48) refill(r);
    const unsigned zeros = r->bits != 0 ? (unsigned)__builtin_ctzll(r->bits) : 64;
    if (zeros + 1 + b > r->count) return long_gap(r, b, max, gap);
    const uint64_t rest = r->bits >> (zeros + 1);
    *gap = (uint64_t)zeros << b | (rest & ((UINT64_C(1) << b) - 1));
    r->bits = rest >> b;
    r->count -= zeros + 1 + b;
    return true;
}

/* Decodes short codes, but never the last index: what a turn finds has room. An index that is not below n ends it, and
 * the next one is refused. Returns how many indices were written. */
static size_t decode_short(reader *r, const prefix *table, uint32_t *indices, size_t room, uint64_t *next, size_t n) {
    size_t count = 0;
    while (room - count > AT_ONCE * LOOKUPS && *next < n) {
        if (r->count < TABLE_BITS * LOOKUPS) refill(r);
        if (r->count < TABLE_BITS * LOOKUPS) break;
        const size_t before = count;
        for (int i = 0; i < LOOKUPS; i++) {
            const prefix found = table[r->bits % TABLE_SIZE];
            for (int c = 0; c < AT_ONCE; c++) indices[count + (size_t)c] = (uint32_t)*next + found.at[c];
            count += found.codes;
            *next += found.elements;
            r->bits >>= found.bits;
            r->count -= found.bits;
        }
        if (count == before) break;
    }
    return count;
}

static bool is_at_end(const reader *r) {
    return r->at == r->end && r->count < 8 && (r->bits & ((UINT64_C(1) << r->count) - 1)) == 0;
}

static tacit_status decode_indices(const void *in, size_t size, uint32_t *indices, size_t k, size_t n) {
    const unsigned char *begin = in;
    if (size == 0 || begin[0] > PARAMETER_MAX || k > n || (uint64_t)k * (begin[0] + 1u) > 8 * (uint64_t)(size - 1))
        return taciti_fail(TACIT_E_DATA, "rice indices in %zu bytes, which cannot hold %zu of %zu", size, k, n);
    reader r = {.at = begin + 1, .end = begin + size};
    const prefix *table = table_of(begin[0]);
    uint64_t next = 0, gap = 0;
    for (size_t i = 0; i < k; i++) {
        if (table != NULL) i += decode_short(&r, table, indices + i, k - i, &next, n);
        if (!next_gap(&r, begin[0], n, &gap) || (next += gap) >= n)
            return taciti_fail(TACIT_E_DATA, "rice index %zu of %zu is missing or not below %zu", i, k, n);
        indices[i] = (uint32_t)next++;
    }
    if (!is_at_end(&r)) return taciti_fail(TACIT_E_DATA, "rice indices with bytes behind the last of %zu", k);
    return TACIT_OK;
}

const taciti_index_coder taciti_index_coder_rice = {
    .name = "rice",
    .help = "gaps as Golomb-Rice codes with the best parameter of the message",
    .source = "Rice and Plaunt, IEEE Trans. Communications 19(6), 1971",
    .id = 2,
    .bytes = count_bytes,
    .bound = bound_bytes,
    .encode = encode_indices,
    .decode = decode_indices,
};
