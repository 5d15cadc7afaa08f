/* SPDX-License-Identifier: Apache-2.0
 *
 * Homomorphic sketches, written once over sixteen lanes.
 */
#ifndef TACITI_KERNEL_SKETCH_LOOPS_H
#define TACITI_KERNEL_SKETCH_LOOPS_H

#include "kernel/sketch_lanes.h"

#define FORCED_INLINE static inline __attribute__((always_inline))

enum { LINE = TACITI_SKETCH_LINE, SWEEP_BLOCK = TACITI_SKETCH_BLOCK, AHEAD = 8 };

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

static void sketch_add(float *restrict counters, const taciti_sketch_line *lines, size_t count,
                       const float *restrict x) {
    for (size_t i = 0; i < count; i++) {
        const taciti_sketch_line *l = &lines[i];
        if (i + AHEAD < count) __builtin_prefetch(x + (size_t)lines[i + AHEAD].at * LINE);
        const floats16 v = load(x + (size_t)l->at * LINE, LINE);
        for (int j = 0; j < 3; j++) {
            float *row = counters + (size_t)l->row[j] * LINE;
            store(row, add16(load(row, LINE), v), LINE);
        }
    }
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
    for (int j = 0; j < 3; j++) __builtin_prefetch(p->counters + (size_t)line->row[j] * LINE, 1);
    __builtin_prefetch(p->x + (size_t)line->at * LINE, 1);
}

FORCED_INLINE void decode_find(const taciti_sketch_peeling *p, const find *f) {
    const taciti_sketch_line line = p->lines[f->line];
    float *row[3];
    floats16 v[3];
    for (int j = 0; j < 3; j++) {
        row[j] = p->counters + (size_t)line.row[j] * LINE;
        v[j] = load(row[j], LINE);
    }
    floats16 e = where(f->second, v[1], v[2]);
    e = where(f->first, v[0], e);
    e = keep_lanes(f->all, e);
    for (int j = 0; j < 3; j++) {
        store(row[j], sub16(v[j], e), LINE);
        lower_counts(p->counts + (size_t)line.row[j] * LINE, f->all);
    }
    store_lanes(p->x + (size_t)line.at * LINE, f->all, e);
    p->pending[f->line] = (uint16_t)(p->pending[f->line] & ~f->all);
}

static size_t sketch_sweep(taciti_sketch_peeling *peel) {
    const taciti_sketch_peeling p = *peel;
    find finds[SWEEP_BLOCK];
    size_t kept = 0, total = 0;
    for (size_t i = 0; i < p.count; i += SWEEP_BLOCK) {
        const size_t found = find_alone(&p, i, p.count - i < SWEEP_BLOCK ? p.count : i + SWEEP_BLOCK, &kept, finds);
        for (size_t f = 0; f < found; f++) {
            if (f + AHEAD < found) fetch_line(&p, &p.lines[finds[f + AHEAD].line]);
            decode_find(&p, &finds[f]);
        }
        total += found;
    }
    peel->count = kept;
    return total;
}

/* ---- whole arrays of counters ------------------------------------------------------------------------------------ */

FORCED_INLINE uint32_t largest(const float *counters, const uint8_t *counts, size_t n) {
    uint32_t max = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t magnitude = bits_of_magnitude(counters[i]);
        const uint32_t seen = counts == NULL || counts[i] == 0 ? magnitude : 0;
        max = seen > max ? seen : max;
    }
    return max;
}

static uint32_t sketch_largest(const float *counters, const uint8_t *counts, size_t n) {
    return counts == NULL ? largest(counters, NULL, n) : largest(counters, counts, n);
}

/* ---- packed values ----------------------------------------------------------------------------------------------- */

static void sketch_pack(float *restrict out, const uint64_t *restrict words, const float *restrict x, size_t n) {
    for (size_t i = 0; i < n; i += LINE) {
        const uint32_t bits = bits_of_line(words, (uint32_t)(i / LINE));
        store(out, to_front(bits, load(x + i, n - i < LINE ? n - i : LINE)), LINE);
        out += __builtin_popcount(bits);
    }
}

static void sketch_unpack(float *restrict x, const uint64_t *restrict words, const float *restrict values, size_t n) {
    for (size_t i = 0; i < n; i += LINE) {
        const uint32_t bits = bits_of_line(words, (uint32_t)(i / LINE));
        store_lanes(x + i, bits, spread(bits, values));
        values += __builtin_popcount(bits);
    }
}

#endif
