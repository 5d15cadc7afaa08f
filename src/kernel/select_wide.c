/* SPDX-License-Identifier: Apache-2.0
 *
 * Selection for sets with wide registers, a line of sixteen elements at a time. Elements move to the front in a
 * register and are stored as a full vector: before the line at i no more than i elements were selected, so a store ends
 * at i + 16 <= n. The rest of a short last line is selected by the definition.
 */
#include "kernel/select_lanes.h"
#include "kernel/sets.h"

#define INLINE static inline __attribute__((always_inline))

/* After SELECT_BLOCK elements the loop chooses its form again. Below SPARSE selected ones it looks for empty lines: a
 * branch that is rarely taken costs less than a compression, a mispredicted one costs more. */
enum { SELECT_BLOCK = 1024, SPARSE = 16 };

/* Magnitudes and thresholds have no sign: a magnitude reaches a threshold if it is greater than one less. */
INLINE words16 below(uint32_t threshold) { return splat_word(threshold - 1u); }

/* ---- one pass ---------------------------------------------------------------------------------------------------- */

typedef struct pass {
    words16 threshold, half, index;
    doubles16 squares;
    size_t count, near;
} pass;

/* Whole lines [begin, end). The flags are constants wherever this is inlined. */
INLINE void select_block(pass *p, const taciti_select *s, const float *x, size_t begin, size_t end, int skip,
                         int error) {
    for (size_t i = begin; i < end; i += LANES) {
        const floats16 v = load(x + i, LANES);
        const words16 m = magnitude_bits(v);
        const lanes_set keep = greater(m, p->threshold);
        if (s->measure) {
            p->near += count_lanes(greater(m, p->half));
            p->squares = add_squares(p->squares, x + i);
        }
        if (error) {
            prefetch_for_store(s->error + i);
            store(s->error + i, keep_up_to(m, p->threshold, v), LANES);
        }
        if (!skip || any_lane(keep)) {
            put_floats(s->values + p->count, keep, v);
            put_words(s->indices + p->count, keep, p->index);
            p->count += count_lanes(keep);
        }
        p->index = add_to_words(p->index, LANES);
    }
}

/* The flags are constants wherever this is inlined. */
INLINE void select_all(taciti_select *s, const float *x, size_t n, int measure, int error) {
    const taciti_select form = {.threshold = s->threshold,
                                .half = s->half,
                                .measure = measure,
                                .indices = s->indices,
                                .values = s->values,
                                .error = error ? s->error : NULL};
    const size_t whole = n - n % LANES;
    pass p = {
        .threshold = below(s->threshold), .half = below(s->half), .index = count_from(0), .squares = no_doubles()};
    size_t found = SPARSE;
    for (size_t i = 0; i < whole; i += SELECT_BLOCK) {
        const size_t end = whole - i < SELECT_BLOCK ? whole : i + SELECT_BLOCK, before = p.count;
        if (found < SPARSE)
            select_block(&p, &form, x, i, end, 1, error);
        else
            select_block(&p, &form, x, i, end, 0, error);
        found = p.count - before;
    }
    double lanes[LANES];
    store_doubles(lanes, p.squares);
    select_rest(s, x, whole, n, p.count, p.near, lanes);
}

static void select_above(taciti_select *s, const float *x, size_t n) {
    if (s->measure && s->error != NULL)
        select_all(s, x, n, 1, 1);
    else if (s->measure)
        select_all(s, x, n, 1, 0);
    else if (s->error != NULL)
        select_all(s, x, n, 0, 1);
    else
        select_all(s, x, n, 0, 0);
}

/* ---- other passes ------------------------------------------------------------------------------------------------ */

static size_t count_above(const float *x, size_t n, uint32_t threshold) {
    const words16 t = below(threshold);
    size_t count = 0, i = 0;
    for (; i + LANES <= n; i += LANES) count += count_lanes(greater(magnitude_bits(load(x + i, LANES)), t));
    for (; i < n; i++) count += bits_of_magnitude(x[i]) >= threshold;
    return count;
}

static size_t select_band(float *out, const float *x, size_t n, uint32_t low, uint32_t high) {
    const words16 l = below(low), h = below(high);
    size_t count = 0, i = 0;
    for (; i + LANES <= n; i += LANES) {
        const floats16 v = load(x + i, LANES);
        const lanes_set keep = between(magnitude_bits(v), l, h);
        put_floats(out + count, keep, v);
        count += count_lanes(keep);
    }
    for (; i < n; i++) {
        out[count] = x[i];
        count += bits_of_magnitude(x[i]) >= low && bits_of_magnitude(x[i]) < high;
    }
    return count;
}

/* The first bits that are set, `count` at most, which becomes less by their number. */
INLINE uint32_t first_bits(uint32_t bits, size_t *count) {
    uint32_t taken = 0;
    for (; bits != 0 && *count > 0; --*count, bits &= bits - 1) taken |= bits & (0u - bits);
    return taken;
}

/* The rejected elements of 16 selected ones are rare or few: one by one. */
static size_t select_among(uint32_t *restrict indices, float *restrict values, float *restrict error, size_t n,
                           uint32_t threshold, size_t ties) {
    const words16 t = splat_word(threshold);
    size_t count = 0, i = 0;
    for (; i + LANES <= n; i += LANES) {
        const floats16 v = load(values + i, LANES);
        const words16 index = load_words(indices + i), m = magnitude_bits(v);
        const uint32_t tied = first_bits(bits_of_lanes(equal(m, t)), &ties);
        const lanes_set keep = lanes_of(bits_of_lanes(greater(m, t)) | tied);
        for (uint32_t left = ~bits_of_lanes(keep) & 0xffffu; error != NULL && left != 0; left &= left - 1) {
            const size_t at = i + (size_t)__builtin_ctz(left);
            error[indices[at]] = values[at];
        }
        put_floats(values + count, keep, v);
        put_words(indices + count, keep, index);
        count += count_lanes(keep);
    }
    for (; i < n; i++) count = select_again(indices, values, error, i, count, threshold, &ties);
    return count;
}

void FILL_OF_SET(select)(taciti_kernels *table) {
    table->count_above = count_above;
    table->select_above = select_above;
    table->select_among = select_among;
    table->select_band = select_band;
}
