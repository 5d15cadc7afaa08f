/* SPDX-License-Identifier: Apache-2.0
 *
 * Homomorphic sketches, written once over sixteen lanes. `ring` is a constant wherever these functions are
 * inlined. Floats travel as their bits.
 */
#ifndef TACITI_KERNEL_SKETCH_LOOPS_H
#define TACITI_KERNEL_SKETCH_LOOPS_H

#include "kernel/sketch_lanes.h"

#define FORCED_INLINE static inline __attribute__((always_inline))

enum { LINE = TACITI_SKETCH_LINE, SWEEP_BLOCK = TACITI_SKETCH_BLOCK, AHEAD = 8 };

/* Calls a function with the ring as a constant. */
#define FOR_RING(numbers, function, ...)                                                                               \
    if ((numbers).ring == TACITI_RING_U32) return function(TACITI_RING_U32, __VA_ARGS__);                              \
    return function(TACITI_RING_F32, __VA_ARGS__)

/* ---- numbers of a ring ------------------------------------------------------------------------------------------- */

FORCED_INLINE uint32_t *counter_at(void *counters, size_t i) { return (uint32_t *)counters + i; }
FORCED_INLINE words16 add_ring(taciti_ring ring, words16 a, words16 b) {
    return ring == TACITI_RING_F32 ? bits16(add16(as_floats(a), as_floats(b))) : add_words(a, b);
}
FORCED_INLINE words16 sub_ring(taciti_ring ring, words16 a, words16 b) {
    return ring == TACITI_RING_F32 ? bits16(sub16(as_floats(a), as_floats(b))) : sub_words(a, b);
}
/* Counts what the ring cannot hold, and takes it for 0. */
FORCED_INLINE words16 encode_ring(taciti_ring ring, const taciti_sketch_numbers *numbers, floats16 x, size_t *refused) {
    if (ring == TACITI_RING_F32) return bits16(x);
    const floats16 scaled = mul16(x, splat(numbers->scale));
    const uint32_t fits = within(scaled, splat(numbers->max));
    *refused += (size_t)(16 - __builtin_popcount(fits));
    return integers_of(as_floats(keep_lanes(fits, bits16(scaled))));
}
FORCED_INLINE floats16 decode_ring(taciti_ring ring, float unscale, words16 a) {
    if (ring == TACITI_RING_F32) return as_floats(a);
    return mul16(floats_of(a), splat(unscale));
}

/* ---- the index --------------------------------------------------------------------------------------------------- */

static void sketch_index(uint64_t *restrict words, const float *restrict x, size_t n) {
    for (size_t i = 0; i < n; i += 64) {
        uint64_t word = 0;
        for (size_t l = 0; l < 64 && i + l < n; l += LINE)
            word |= (uint64_t)nonzero_mask(load(x + i + l, n - i - l < LINE ? n - i - l : LINE)) << l;
        words[i / 64] = word;
    }
}

FORCED_INLINE uint32_t bits_of_line(const uint64_t *words, uint32_t at) {
    return (uint32_t)(words[at / 4] >> (LINE * (at % 4))) & 0xffffu;
}

/* ---- encoding ---------------------------------------------------------------------------------------------------- */

FORCED_INLINE uint32_t below(uint32_t hash, uint32_t bound) { return (uint32_t)((uint64_t)hash * bound >> 32); }

/* Three different rows: the second is drawn from the others, the third from what is left. No branches, so that the
 * compiler hashes many lines at once. */
static void sketch_lines(taciti_sketch_line *lines, const taciti_sketch_zone *zone, uint32_t first, size_t count) {
    const taciti_sketch_zone z = *zone;
    for (size_t i = 0; i < count; i++) {
        const uint32_t p = first + (uint32_t)i, h = taciti_rng_u32(z.key, p);
        const uint32_t a = below(h, z.rows);
        uint32_t b = below(taciti_mix32(h + UINT32_C(0x9e3779b9)), z.rows - 1);
        uint32_t c = below(taciti_mix32(h ^ UINT32_C(0x85ebca6b)), z.rows - 2);
        b += b >= a;
        c += c >= (a < b ? a : b);
        c += c >= (a < b ? b : a);
        lines[i].at = (p / 4 * z.zones + z.zone) * 4 + p % 4;
        lines[i].row[0] = z.row + a;
        lines[i].row[1] = z.row + b;
        lines[i].row[2] = z.row + c;
    }
}

FORCED_INLINE size_t add_lines(taciti_ring ring, const taciti_sketch_numbers *numbers, void *restrict counters,
                               const taciti_sketch_line *lines, size_t count, const float *restrict x) {
    size_t refused = 0;
    for (size_t i = 0; i < count; i++) {
        const taciti_sketch_line *l = &lines[i];
        if (i + AHEAD < count) __builtin_prefetch(x + (size_t)lines[i + AHEAD].at * LINE);
        const words16 v = encode_ring(ring, numbers, load(x + (size_t)l->at * LINE, LINE), &refused);
        for (int j = 0; j < 3; j++) {
            uint32_t *row = counter_at(counters, (size_t)l->row[j] * LINE);
            store_words(row, add_ring(ring, load_words(row), v));
        }
    }
    return refused;
}

static size_t sketch_add(const taciti_sketch_numbers *numbers, void *restrict counters, const taciti_sketch_line *lines,
                         size_t count, const float *restrict x) {
    FOR_RING(*numbers, add_lines, numbers, counters, lines, count, x);
}

static void sketch_count(uint8_t *restrict counts, uint16_t *restrict pending, const taciti_sketch_line *lines,
                         size_t count, const uint64_t *restrict words) {
    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = bits_of_line(words, lines[i].at);
        pending[i] = (uint16_t)bits;
        for (int j = 0; j < 3; j++) raise_counts(counts + (size_t)lines[i].row[j] * LINE, bits);
    }
}

/* ---- peeling ----------------------------------------------------------------------------------------------------- */

/* A line with elements that can be decoded: from row 0, else 1, else 2. An element that is alone in a counter stays
 * alone until it is decoded, so what is found stays true while others of the same block are decoded. */
typedef struct find {
    uint32_t line;
    uint16_t all, first, second;
} find;

/* Looks at lines [begin, end), moves those with pending elements to `kept`, and lists the finds. No branches: whether a
 * line has a find is not predictable. */
FORCED_INLINE size_t find_alone(const taciti_sketch_peeling *p, size_t begin, size_t end, size_t *kept, find *finds) {
    size_t found = 0, k = *kept;
    for (size_t i = begin; i < end; i++) {
        const taciti_sketch_line line = p->lines[i];
        const uint32_t pending = p->pending[i];
        const uint32_t a = alone(p->counts + (size_t)line.row[0] * LINE, pending);
        const uint32_t b = alone(p->counts + (size_t)line.row[1] * LINE, pending);
        const uint32_t c = alone(p->counts + (size_t)line.row[2] * LINE, pending);
        p->lines[k] = line;
        p->pending[k] = (uint16_t)pending;
        finds[found] = (find){(uint32_t)k, (uint16_t)(a | b | c), (uint16_t)a, (uint16_t)b};
        found += (a | b | c) != 0;
        k += pending != 0;
    }
    *kept = k;
    return found;
}

FORCED_INLINE void fetch_line(const taciti_sketch_peeling *p, const taciti_sketch_line *line) {
    for (int j = 0; j < 3; j++) __builtin_prefetch(counter_at(p->counters, (size_t)line->row[j] * LINE), 1);
    __builtin_prefetch(p->x + (size_t)line->at * LINE, 1);
}

FORCED_INLINE void decode_find(taciti_ring ring, const taciti_sketch_peeling *p, const find *f, float unscale) {
    const taciti_sketch_line line = p->lines[f->line];
    uint32_t *row[3];
    words16 v[3];
    for (int j = 0; j < 3; j++) {
        row[j] = counter_at(p->counters, (size_t)line.row[j] * LINE);
        v[j] = load_words(row[j]);
    }
    words16 e = v[2];
    e = pick(f->second, v[1], e);
    e = pick(f->first, v[0], e);
    e = keep_lanes(f->all, e);
    for (int j = 0; j < 3; j++) {
        store_words(row[j], sub_ring(ring, v[j], e));
        lower_counts(p->counts + (size_t)line.row[j] * LINE, f->all);
    }
    store_lanes(p->x + (size_t)line.at * LINE, f->all, decode_ring(ring, unscale, e));
    p->pending[f->line] = (uint16_t)(p->pending[f->line] & ~f->all);
}

FORCED_INLINE size_t sweep(taciti_ring ring, taciti_sketch_peeling *peel) {
    const taciti_sketch_peeling p = *peel;
    const float unscale = 1 / p.numbers.scale;
    find finds[SWEEP_BLOCK];
    size_t kept = 0, total = 0;
    for (size_t i = 0; i < p.count; i += SWEEP_BLOCK) {
        const size_t found = find_alone(&p, i, p.count - i < SWEEP_BLOCK ? p.count : i + SWEEP_BLOCK, &kept, finds);
        for (size_t f = 0; f < found; f++) {
            if (f + AHEAD < found) fetch_line(&p, &p.lines[finds[f + AHEAD].line]);
            decode_find(ring, &p, &finds[f], unscale);
        }
        total += found;
    }
    peel->count = kept;
    return total;
}

static size_t sketch_sweep(taciti_sketch_peeling *peel) { FOR_RING(peel->numbers, sweep, peel); }

/* ---- whole arrays of counters ------------------------------------------------------------------------------------ */

FORCED_INLINE uint32_t magnitude_of(taciti_ring ring, const void *counters, size_t i) {
    const uint32_t q = ((const uint32_t *)counters)[i];
    if (ring == TACITI_RING_F32) return q & 0x7fffffffu;
    return q < 0x80000000u ? q : 0u - q;
}

FORCED_INLINE uint32_t largest(taciti_ring ring, const void *counters, const uint8_t *counts, size_t n) {
    uint32_t max = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t magnitude = magnitude_of(ring, counters, i);
        const uint32_t seen = counts == NULL || counts[i] == 0 ? magnitude : 0;
        max = seen > max ? seen : max;
    }
    return max;
}

static uint32_t sketch_largest(taciti_ring ring, const void *counters, const uint8_t *counts, size_t n) {
    if (ring == TACITI_RING_U32)
        return counts == NULL ? largest(TACITI_RING_U32, counters, NULL, n)
                              : largest(TACITI_RING_U32, counters, counts, n);
    return counts == NULL ? largest(TACITI_RING_F32, counters, NULL, n) : largest(TACITI_RING_F32, counters, counts, n);
}

static void sum_floats(float *restrict acc, const float *restrict x, size_t n) {
    for (size_t i = 0; i < n; i++) acc[i] += x[i];
}
static void sum_words(uint32_t *restrict acc, const uint32_t *restrict x, size_t n) {
    for (size_t i = 0; i < n; i++) acc[i] += x[i];
}
static void sketch_sum(taciti_ring ring, void *restrict acc, const void *restrict x, size_t n) {
    if (ring == TACITI_RING_U32)
        sum_words(acc, x, n);
    else
        sum_floats(acc, x, n);
}

/* ---- packed values ----------------------------------------------------------------------------------------------- */

FORCED_INLINE size_t pack(taciti_ring ring, const taciti_sketch_numbers *numbers, void *restrict out,
                          const uint64_t *restrict words, const float *restrict x, size_t n) {
    size_t refused = 0, k = 0;
    for (size_t i = 0; i < n; i += LINE) {
        const uint32_t bits = bits_of_line(words, (uint32_t)(i / LINE));
        const floats16 v = load(x + i, n - i < LINE ? n - i : LINE);
        const words16 wanted = keep_lanes(bits, bits16(v));
        store_words(counter_at(out, k), to_front(bits, encode_ring(ring, numbers, as_floats(wanted), &refused)));
        k += (size_t)__builtin_popcount(bits);
    }
    return refused;
}

static size_t sketch_pack(const taciti_sketch_numbers *numbers, void *restrict out, const uint64_t *restrict words,
                          const float *restrict x, size_t n) {
    FOR_RING(*numbers, pack, numbers, out, words, x, n);
}

FORCED_INLINE size_t unpack(taciti_ring ring, const taciti_sketch_numbers *numbers, float *restrict x,
                            const uint64_t *restrict words, const void *restrict values, size_t n) {
    const float unscale = 1 / numbers->scale;
    size_t k = 0;
    for (size_t i = 0; i < n; i += LINE) {
        const uint32_t bits = bits_of_line(words, (uint32_t)(i / LINE));
        const words16 v = spread_words(bits, (const uint32_t *)values + k);
        store_lanes(x + i, bits, decode_ring(ring, unscale, v));
        k += (size_t)__builtin_popcount(bits);
    }
    return k;
}

FORCED_INLINE size_t unpack_any(const taciti_sketch_numbers *numbers, float *restrict x, const uint64_t *restrict words,
                                const void *restrict values, size_t n) {
    FOR_RING(*numbers, unpack, numbers, x, words, values, n);
}

static void sketch_unpack(const taciti_sketch_numbers *numbers, float *restrict x, const uint64_t *restrict words,
                          const void *restrict values, size_t n) {
    (void)unpack_any(numbers, x, words, values, n);
}

#endif
