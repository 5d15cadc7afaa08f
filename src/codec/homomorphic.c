/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/homomorphic.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

/* Chunk: lines whose rows are drawn at a time when nothing keeps them. ZONE_ROWS: counters and counts of a zone fill
 * 640 KiB, and chance moves the load at which a zone fails by 0.006 only. */
enum { LINE = TACITI_SKETCH_LINE, CHUNK = 256, ZONE_ROWS = 8192, GROUP = 4, ROWS_MAX = 1 << 28 };
static const double LOAD = 0.78, THRESHOLD = 0.818469;

/* ---- the index --------------------------------------------------------------------------------------------------- */

void taciti_sketch_index(const float *x, size_t n, uint64_t *words) { taciti_kernels_get()->sketch_index(words, x, n); }

void taciti_sketch_merge(uint64_t *words, const uint64_t *other, size_t n) {
    for (size_t w = 0; w < taciti_sketch_index_words(n); w++) words[w] |= other[w];
}

size_t taciti_sketch_union(const uint64_t *words, size_t n) {
    size_t count = 0;
    for (size_t w = 0; w < taciti_sketch_index_words(n); w++) count += (size_t)__builtin_popcountll(words[w]);
    return count;
}

/* Counts 15 words at most: nibble k of part s counts bit 4 k + s of each word. */
static void count_lanes(const uint64_t *words, size_t n, size_t counts[LINE]) {
    uint64_t parts[4] = {0};
    for (size_t w = 0; w < n; w++)
        for (int s = 0; s < 4; s++) parts[s] += words[w] >> s & UINT64_C(0x1111111111111111);
    for (unsigned s = 0; s < 4; s++)
        for (unsigned k = 0; k < 16; k++) counts[(4 * k + s) % LINE] += parts[s] >> (4 * k) & 15u;
}

size_t taciti_sketch_measure(const uint64_t *words, size_t n) {
    enum { WORDS = 15 };
    const size_t all = taciti_sketch_index_words(n);
    size_t counts[LINE] = {0}, max = 0;
    for (size_t w = 0; w < all; w += WORDS) count_lanes(words + w, all - w < WORDS ? all - w : WORDS, counts);
    for (size_t lane = 0; lane < LINE; lane++) max = counts[lane] > max ? counts[lane] : max;
    return LINE * max;
}

static tacit_status check_index(const uint64_t *words, size_t n) {
    if (n % 64 == 0 || words[n / 64] >> (n % 64) == 0) return TACIT_OK;
    return taciti_fail(TACIT_E_DATA, "the index of %zu elements has bits behind its end", n);
}

/* ---- shape ------------------------------------------------------------------------------------------------------- */

static size_t lines_of(const taciti_sketch *s) { return s->n / LINE + (s->n % LINE != 0); }

/* The load at which a lane of m rows fails scatters by 0.53 / sqrt(m) around the threshold (measured; test T5): 4.5 of
 * these, and as many rows again as a few elements may need that share all of theirs. */
size_t taciti_sketch_rows(size_t measured) {
    enum { FEW = 3 };
    const double u = (double)measured / LINE, scatter = 4.5 * 0.53, room = u + FEW;
    const double root = (scatter + sqrt(scatter * scatter + 4 * THRESHOLD * room)) / (2 * THRESHOLD);
    const double rows = ceil(u / LOAD), safe = ceil(root * root);
    return (size_t)(rows > safe ? rows : safe);
}

size_t taciti_sketch_rows_at(size_t n, double ratio) { return (size_t)ceil(ceil((double)n / LINE) / ratio); }

taciti_sketch taciti_sketch_init(size_t n, size_t rows, int ranks, uint64_t seed) {
    return (taciti_sketch){.n = n,
                           .rows = rows,
                           .zones = rows < 2 * ZONE_ROWS ? 1 : rows / ZONE_ROWS,
                           .seed = seed,
                           .ranks = ranks,
                           .numbers = {.ring = TACITI_RING_F32, .scale = 1, .max = INFINITY}};
}

tacit_status taciti_sketch_set_ring(taciti_sketch *s, taciti_ring ring, double max_abs) {
    s->numbers = (taciti_sketch_numbers){.ring = ring, .scale = 1, .max = INFINITY};
    if (ring == TACITI_RING_F32) return TACIT_OK;
    if (s->ranks < 1) return taciti_fail(TACIT_E_USAGE, "a sketch of integers cannot add up %d ranks", s->ranks);
    if (!(max_abs >= 0 && max_abs <= (double)FLT_MAX))
        return taciti_fail(TACIT_E_NUMERICS, "a sketch of integers cannot hold %g: skip the step or use floats",
                           max_abs);
    const double max = (double)(INT32_MAX / s->ranks); /* no sum of all ranks reaches 2^31 */
    int exponent = 0;
    if (max_abs > 0) (void)frexp(max / max_abs, &exponent);
    exponent = max_abs > 0 ? exponent - 1 : 0;
    if (ldexp(max_abs, exponent) > max) exponent--; /* the quotient was rounded up */
    s->numbers.scale = (float)ldexp(1, exponent > 126 ? 126 : exponent);
    s->numbers.max = (float)max;
    if ((double)s->numbers.max > max) s->numbers.max = nextafterf(s->numbers.max, 0);
    return TACIT_OK;
}

/* rint(x) of |x| <= max is at most max rounded up to an integer. */
static bool numbers_are_legal(const taciti_sketch *s) {
    const taciti_sketch_numbers *m = &s->numbers;
    int exponent;
    if (m->ring == TACITI_RING_F32) return m->scale > 0;
    if (m->ring != TACITI_RING_U32) return false;
    if (!(m->scale >= FLT_MIN && m->scale <= 0x1p126f) || frexpf(m->scale, &exponent) != 0.5f) return false;
    return s->ranks >= 1 && m->max >= 1 && (double)ceilf(m->max) * s->ranks < 0x1p31;
}

static bool zones_are_legal(const taciti_sketch *s) {
    const size_t groups = taciti_sketch_index_words(s->n);
    return s->zones >= 1 && s->zones <= (groups > 0 ? groups : 1) && s->rows / s->zones >= 3;
}

tacit_status taciti_sketch_check(const taciti_sketch *s) {
    if (s->n > UINT32_MAX || s->rows > ROWS_MAX || !zones_are_legal(s))
        return taciti_fail(TACIT_E_USAGE, "no sketch has %zu rows in %zu zones for %zu elements", s->rows, s->zones,
                           s->n);
    if (!numbers_are_legal(s))
        return taciti_fail(TACIT_E_USAGE, "a sum of %d ranks may overflow: integers up to %g with scale %g", s->ranks,
                           (double)s->numbers.max, (double)s->numbers.scale);
    return TACIT_OK;
}

static size_t counters_of(const taciti_sketch *s) { return s->rows * LINE; }

size_t taciti_sketch_bytes(const taciti_sketch *s) { return counters_of(s) * TACITI_SKETCH_NUMBER_BYTES; }

/* ---- lines and their rows ---------------------------------------------------------------------------------------- */

/* The lines of a zone: their number, and how many lie in the zones before. */
static size_t zone_lines(const taciti_sketch *s, size_t zone, size_t *before) {
    const size_t lines = lines_of(s), groups = taciti_sketch_index_words(s->n), more = groups % s->zones;
    const size_t own = groups / s->zones + (zone < more),
                 earlier = groups / s->zones * zone + (zone < more ? zone : more);
    const size_t last = groups == 0 ? 0 : (groups - 1) % s->zones, missing = GROUP * groups - lines;
    *before = GROUP * earlier - (zone > last ? missing : 0);
    return GROUP * own - (zone == last ? missing : 0);
}

static taciti_sketch_zone zone_of(const taciti_sketch *s, size_t zone) {
    const size_t first = s->rows * zone / s->zones, end = s->rows * (zone + 1) / s->zones;
    return (taciti_sketch_zone){.key = taciti_rng_key(taciti_rng_key(s->seed, 's'), zone),
                                .row = (uint32_t)first,
                                .rows = (uint32_t)(end - first),
                                .zone = (uint32_t)zone,
                                .zones = (uint32_t)s->zones};
}

/* ---- sketch ------------------------------------------------------------------------------------------------------ */

/* Adds lines of x. The last line of the array may be short: it is filled up with zeros. */
static size_t add_lines(const taciti_sketch *s, taciti_sketch_line *lines, size_t count, const float *x,
                        void *counters) {
    const taciti_kernels *k = taciti_kernels_get();
    taciti_sketch_line *last = &lines[count - 1];
    const size_t at = last->at, rest = s->n - at * LINE;
    if (rest >= LINE) return k->sketch_add(&s->numbers, counters, lines, count, x);
    float tail[LINE] = {0};
    memcpy(tail, x + at * LINE, rest * sizeof *x);
    const size_t refused = k->sketch_add(&s->numbers, counters, lines, count - 1, x);
    last->at = 0;
    return refused + k->sketch_add(&s->numbers, counters, last, 1, tail);
}

tacit_status taciti_sketch_add(const taciti_sketch *s, const float *x, void *counters) {
    taciti_sketch_line lines[CHUNK];
    size_t refused = 0;
    TACITI_TRY(taciti_sketch_check(s));
    for (size_t z = 0; z < s->zones; z++) {
        const taciti_sketch_zone zone = zone_of(s, z);
        size_t before;
        const size_t count = zone_lines(s, z, &before);
        for (size_t i = 0; i < count; i += CHUNK) {
            const size_t m = count - i < CHUNK ? count - i : CHUNK;
            taciti_kernels_get()->sketch_lines(lines, &zone, (uint32_t)i, m);
            refused += add_lines(s, lines, m, x, counters);
        }
    }
    if (refused == 0) return TACIT_OK;
    return taciti_fail(TACIT_E_NUMERICS, "%zu elements do not fit the integers of the sketch: max |x| was not theirs",
                       refused);
}

void taciti_sketch_sum(const taciti_sketch *s, void *acc, const void *other) {
    taciti_kernels_get()->sketch_sum(s->numbers.ring, acc, other, counters_of(s));
}

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

typedef struct workspace {
    taciti_sketch_line *lines; /* [lines] of all zones */
    uint16_t *pending;         /* [lines] */
    uint8_t *counts;           /* [counters] */
    size_t *left;              /* [zones]: lines with pending elements, the first of their zone */
    uint32_t *residue;         /* [1]: what may be left in a counter, see residue_max() */
} workspace;

static size_t pad_count(size_t bytes) { return taciti_round_up(bytes, TACITI_ALIGN_BYTES); }

static workspace parts_of(const taciti_sketch *s, const void *base) {
    const size_t lines = lines_of(s);
    char *p = (char *)(uintptr_t)base;
    workspace w;
    w.lines = (void *)p;
    w.pending = (void *)(p += pad_count(lines * sizeof *w.lines));
    w.counts = (void *)(p += pad_count(lines * sizeof *w.pending));
    w.left = (void *)(p += pad_count(counters_of(s)));
    w.residue = (void *)(p + pad_count(s->zones * sizeof *w.left));
    return w;
}

size_t taciti_sketch_workspace_bytes(const taciti_sketch *s) {
    const size_t lines = lines_of(s);
    return pad_count(lines * sizeof(taciti_sketch_line)) + pad_count(lines * sizeof(uint16_t)) +
           pad_count(counters_of(s)) + pad_count(s->zones * sizeof(size_t)) + pad_count(sizeof(uint32_t));
}

/* State that the threads of a pool share: zones go to threads by turns. */
typedef struct decoding {
    const taciti_sketch *s;
    workspace w;
    const uint64_t *index;
    void *counters;
    float *x;
    void (*zone)(const struct decoding *d, size_t zone);
} decoding;

static void run_zones(void *context, int thread, int threads) {
    const decoding *d = context;
    for (size_t z = (size_t)thread; z < d->s->zones; z += (size_t)threads) d->zone(d, z);
}

static void run_decoding(taciti_pool *pool, decoding *d) {
    if (pool == NULL)
        run_zones(d, 0, 1);
    else
        taciti_pool_run(pool, run_zones, d);
}

static void map_zone(const decoding *d, size_t z) {
    const taciti_sketch_zone zone = zone_of(d->s, z);
    const workspace *w = &d->w;
    size_t first;
    const size_t count = zone_lines(d->s, z, &first);
    memset(w->counts + (size_t)zone.row * LINE, 0, (size_t)zone.rows * LINE);
    for (size_t i = 0; i < count; i += CHUNK) {
        const size_t m = count - i < CHUNK ? count - i : CHUNK;
        taciti_kernels_get()->sketch_lines(w->lines + first + i, &zone, (uint32_t)i, m);
        taciti_kernels_get()->sketch_count(w->counts, w->pending + first + i, w->lines + first + i, m, d->index);
    }
    w->left[z] = count;
}

tacit_status taciti_sketch_map(const taciti_sketch *s, const uint64_t *index, void *base, taciti_pool *pool) {
    decoding d = {.s = s, .index = index, .zone = map_zone};
    TACITI_TRY(taciti_sketch_check(s));
    TACITI_TRY(check_index(index, s->n));
    d.w = parts_of(s, base);
    run_decoding(pool, &d);
    return TACIT_OK;
}

/* A counter that holds too many elements is not counted to the end, and all of its zone stays pending: the zone is
 * hopelessly over-full. */
static void peel_zone(const decoding *d, size_t z) {
    const taciti_sketch_zone zone = zone_of(d->s, z);
    const workspace *w = &d->w;
    size_t first;
    (void)zone_lines(d->s, z, &first);
    taciti_sketch_peeling peel = {.numbers = d->s->numbers,
                                  .lines = w->lines + first,
                                  .pending = w->pending + first,
                                  .count = w->left[z],
                                  .counters = d->counters,
                                  .counts = w->counts,
                                  .x = d->x};
    if (memchr(w->counts + (size_t)zone.row * LINE, TACITI_SKETCH_COUNT_MAX, (size_t)zone.rows * LINE) == NULL)
        while (taciti_kernels_get()->sketch_sweep(&peel) > 0) continue;
    w->left[z] = peel.count;
}

static size_t pending_of(const taciti_sketch *s, const workspace *w) {
    size_t pending = 0, first;
    for (size_t z = 0; z < s->zones; z++) {
        (void)zone_lines(s, z, &first);
        for (size_t i = 0; i < w->left[z]; i++) pending += (size_t)__builtin_popcount(w->pending[first + i]);
    }
    return pending;
}

/* The largest rest of a counter that holds no pending element: nothing, or the rounding errors of floats. */
static uint32_t residue_max(const taciti_sketch *s, const void *counters) {
    uint32_t bits;
    float max;
    if (s->numbers.ring != TACITI_RING_F32) return 0;
    bits = taciti_kernels_get()->sketch_largest(TACITI_RING_F32, counters, NULL, counters_of(s));
    if (bits >= TACITI_MAGNITUDE_INF) return UINT32_MAX;
    memcpy(&max, &bits, sizeof max);
    max *= 0x1p-10f;
    memcpy(&bits, &max, sizeof bits);
    return bits;
}

static tacit_status check_residue(const taciti_sketch *s, const workspace *w, const void *counters) {
    const uint32_t max = *w->residue;
    if (max == UINT32_MAX) return TACIT_OK; /* a number was not finite: the caller sees it in the sums */
    const uint32_t left = taciti_kernels_get()->sketch_largest(s->numbers.ring, counters, w->counts, counters_of(s));
    if (left <= max) return TACIT_OK;
    return taciti_fail(TACIT_E_DATA, "a sketch of %zu elements holds some that its index lacks", s->n);
}

tacit_status taciti_sketch_peel(const taciti_sketch *s, void *counters, void *base, taciti_pool *pool, float *x,
                                size_t *pending) {
    decoding d = {.s = s, .counters = counters, .x = x, .zone = peel_zone};
    TACITI_TRY(taciti_sketch_check(s));
    d.w = parts_of(s, base);
    *d.w.residue = residue_max(s, counters);
    memset(x, 0, s->n * sizeof *x);
    run_decoding(pool, &d);
    TACITI_TRY(check_residue(s, &d.w, counters));
    *pending = pending_of(s, &d.w);
    return TACIT_OK;
}

void taciti_sketch_pending(const taciti_sketch *s, const void *base, uint64_t *words) {
    const workspace w = parts_of(s, base);
    memset(words, 0, taciti_sketch_index_words(s->n) * sizeof *words);
    for (size_t z = 0; z < s->zones; z++) {
        size_t first;
        (void)zone_lines(s, z, &first);
        for (size_t i = first; i < first + w.left[z]; i++) {
            const uint32_t at = w.lines[i].at;
            words[at / GROUP] |= (uint64_t)w.pending[i] << (LINE * (at % GROUP));
        }
    }
}

/* ---- the exact fallback ------------------------------------------------------------------------------------------ */

/* The line at a place, wherever its zone keeps it. */
static taciti_sketch_line line_at(const taciti_sketch *s, uint32_t at) {
    taciti_sketch_line line;
    const uint32_t group = at / GROUP, zones = (uint32_t)s->zones;
    const taciti_sketch_zone zone = zone_of(s, group % zones);
    taciti_kernels_get()->sketch_lines(&line, &zone, group / zones * GROUP + at % GROUP, 1);
    return line;
}

static void remove_one(taciti_ring ring, void *counters, size_t counter, const void *values, size_t i) {
    if (ring == TACITI_RING_U32)
        ((uint32_t *)counters)[counter] -= ((const uint32_t *)values)[i];
    else
        ((float *)counters)[counter] -= ((const float *)values)[i];
}

/* Removes the elements `bits` of a line, values[first] and on. */
static void remove_line(const taciti_sketch *s, const taciti_sketch_line *line, uint32_t bits, const void *values,
                        size_t first, void *counters, uint8_t *counts) {
    for (; bits != 0; bits &= bits - 1, first++)
        for (int j = 0; j < 3; j++) {
            const size_t counter = (size_t)line->row[j] * LINE + (size_t)__builtin_ctz(bits);
            remove_one(s->numbers.ring, counters, counter, values, first);
            counts[counter] = (uint8_t)(counts[counter] - (counts[counter] < TACITI_SKETCH_COUNT_MAX));
        }
}

tacit_status taciti_sketch_insert(const taciti_sketch *s, const uint64_t *pending, const void *values, void *counters,
                                  void *base, float *x) {
    const workspace w = parts_of(s, base);
    size_t k = 0;
    TACITI_TRY(taciti_sketch_check(s));
    TACITI_TRY(check_index(pending, s->n));
    taciti_kernels_get()->sketch_unpack(&s->numbers, x, pending, values, s->n);
    for (uint32_t at = 0; at < lines_of(s); at++) {
        const uint32_t bits = (uint32_t)(pending[at / GROUP] >> (LINE * (at % GROUP))) & 0xffffu;
        if (bits == 0) continue;
        const taciti_sketch_line line = line_at(s, at);
        remove_line(s, &line, bits, values, k, counters, w.counts);
        k += (size_t)__builtin_popcount(bits);
    }
    memset(w.left, 0, s->zones * sizeof *w.left);
    return check_residue(s, &w, counters);
}

/* ---- packed values ----------------------------------------------------------------------------------------------- */

tacit_status taciti_sketch_pack(const taciti_sketch *s, const uint64_t *index, const float *x, void *values) {
    TACITI_TRY(taciti_sketch_check(s));
    TACITI_TRY(check_index(index, s->n));
    const size_t refused = taciti_kernels_get()->sketch_pack(&s->numbers, values, index, x, s->n);
    if (refused == 0) return TACIT_OK;
    return taciti_fail(TACIT_E_NUMERICS, "%zu elements do not fit the integers of the sketch: max |x| was not theirs",
                       refused);
}

tacit_status taciti_sketch_unpack(const taciti_sketch *s, const uint64_t *index, const void *values, float *x) {
    TACITI_TRY(taciti_sketch_check(s));
    TACITI_TRY(check_index(index, s->n));
    memset(x, 0, s->n * sizeof *x);
    taciti_kernels_get()->sketch_unpack(&s->numbers, x, index, values, s->n);
    return TACIT_OK;
}
