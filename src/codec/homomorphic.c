/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/homomorphic.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

/* Chunk: lines whose rows are drawn at a time when nothing keeps them. ZONE_ROWS: counters and counts of a zone fill
 * 640 KiB, and chance moves the load at which a zone fails by 0.006 only. */
enum { LINE = TACITI_SKETCH_LINE, CHUNK = 256, ZONE_ROWS = 8192, GROUP = 4 };
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

taciti_sketch taciti_sketch_init(size_t n, size_t rows, uint64_t seed) {
    return (taciti_sketch){.n = n, .rows = rows, .zones = rows < 2 * ZONE_ROWS ? 1 : rows / ZONE_ROWS, .seed = seed};
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
static void add_lines(const taciti_sketch *s, taciti_sketch_line *lines, size_t count, const float *x,
                      float *counters) {
    const taciti_kernels *k = taciti_kernels_get();
    taciti_sketch_line *last = &lines[count - 1];
    const size_t at = last->at, rest = s->n - at * LINE;
    if (rest >= LINE) {
        k->sketch_add(counters, lines, count, x);
        return;
    }
    float tail[LINE] = {0};
    memcpy(tail, x + at * LINE, rest * sizeof *x);
    k->sketch_add(counters, lines, count - 1, x);
    last->at = 0;
    k->sketch_add(counters, last, 1, tail);
}

void taciti_sketch_add(const taciti_sketch *s, const float *x, float *counters) {
    taciti_sketch_line lines[CHUNK];
    for (size_t z = 0; z < s->zones; z++) {
        const taciti_sketch_zone zone = zone_of(s, z);
        size_t before;
        const size_t count = zone_lines(s, z, &before);
        for (size_t i = 0; i < count; i += CHUNK) {
            const size_t m = count - i < CHUNK ? count - i : CHUNK;
            taciti_kernels_get()->sketch_lines(lines, &zone, (uint32_t)i, m);
            add_lines(s, lines, m, x, counters);
        }
    }
}

void taciti_sketch_sum(const taciti_sketch *s, float *acc, const float *other) {
    taciti_kernels_get()->add(acc, other, counters_of(s));
}

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

typedef struct workspace {
    taciti_sketch_line *lines; /* [lines] of all zones */
    uint16_t *pending;         /* [lines] */
    uint8_t *counts;           /* [counters] */
    size_t *left;              /* [zones]: lines with pending elements, the first of their zone */
} workspace;

static size_t pad_count(size_t bytes) { return taciti_round_up(bytes, TACITI_ALIGN_BYTES); }

static workspace parts_of(const taciti_sketch *s, const void *base) {
    const size_t lines = lines_of(s);
    char *p = (char *)(uintptr_t)base;
    workspace w;
    w.lines = (void *)p;
    w.pending = (void *)(p += pad_count(lines * sizeof *w.lines));
    w.counts = (void *)(p += pad_count(lines * sizeof *w.pending));
    w.left = (void *)(p + pad_count(counters_of(s)));
    return w;
}

size_t taciti_sketch_workspace_bytes(const taciti_sketch *s) {
    const size_t lines = lines_of(s);
    return pad_count(lines * sizeof(taciti_sketch_line)) + pad_count(lines * sizeof(uint16_t)) +
           pad_count(counters_of(s)) + pad_count(s->zones * sizeof(size_t));
}

static void map_zone(const taciti_sketch *s, const workspace *w, const uint64_t *index, size_t z) {
    const taciti_sketch_zone zone = zone_of(s, z);
    size_t first;
    const size_t count = zone_lines(s, z, &first);
    memset(w->counts + (size_t)zone.row * LINE, 0, (size_t)zone.rows * LINE);
    for (size_t i = 0; i < count; i += CHUNK) {
        const size_t m = count - i < CHUNK ? count - i : CHUNK;
        taciti_kernels_get()->sketch_lines(w->lines + first + i, &zone, (uint32_t)i, m);
        taciti_kernels_get()->sketch_count(w->counts, w->pending + first + i, w->lines + first + i, m, index);
    }
    w->left[z] = count;
}

tacit_status taciti_sketch_map(const taciti_sketch *s, const uint64_t *index, void *base) {
    const workspace w = parts_of(s, base);
    TACITI_TRY(check_index(index, s->n));
    for (size_t z = 0; z < s->zones; z++) map_zone(s, &w, index, z);
    return TACIT_OK;
}

/* A counter that holds too many elements is not counted to the end, and all of its zone stays pending: the zone is
 * hopelessly over-full. */
static void peel_zone(const taciti_sketch *s, const workspace *w, float *counters, float *x, size_t z) {
    const taciti_sketch_zone zone = zone_of(s, z);
    size_t first;
    (void)zone_lines(s, z, &first);
    taciti_sketch_peeling peel = {.lines = w->lines + first,
                                  .pending = w->pending + first,
                                  .count = w->left[z],
                                  .counters = counters,
                                  .counts = w->counts,
                                  .x = x};
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

/* The largest rest of a counter that holds no pending element: rounding errors. */
static uint32_t residue_max(const taciti_sketch *s, const float *counters) {
    uint32_t bits = taciti_kernels_get()->sketch_largest(counters, NULL, counters_of(s));
    float max;
    if (bits >= TACITI_MAGNITUDE_INF) return UINT32_MAX;
    memcpy(&max, &bits, sizeof max);
    max *= 0x1p-10f;
    memcpy(&bits, &max, sizeof bits);
    return bits;
}

static tacit_status check_residue(const taciti_sketch *s, const workspace *w, const float *counters, uint32_t max) {
    if (max == UINT32_MAX) return TACIT_OK; /* a number was not finite: the caller sees it in the sums */
    const uint32_t left = taciti_kernels_get()->sketch_largest(counters, w->counts, counters_of(s));
    if (left <= max) return TACIT_OK;
    return taciti_fail(TACIT_E_DATA, "a sketch of %zu elements holds some that its index lacks", s->n);
}

tacit_status taciti_sketch_peel(const taciti_sketch *s, float *counters, void *base, float *x, size_t *pending) {
    const workspace w = parts_of(s, base);
    const uint32_t max = residue_max(s, counters);
    memset(x, 0, s->n * sizeof *x);
    for (size_t z = 0; z < s->zones; z++) peel_zone(s, &w, counters, x, z);
    TACITI_TRY(check_residue(s, &w, counters, max));
    *pending = pending_of(s, &w);
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

/* ---- packed values ----------------------------------------------------------------------------------------------- */

tacit_status taciti_sketch_pack(const taciti_sketch *s, const uint64_t *index, const float *x, float *values) {
    TACITI_TRY(check_index(index, s->n));
    taciti_kernels_get()->sketch_pack(values, index, x, s->n);
    return TACIT_OK;
}

tacit_status taciti_sketch_unpack(const taciti_sketch *s, const uint64_t *index, const float *values, float *x) {
    TACITI_TRY(check_index(index, s->n));
    memset(x, 0, s->n * sizeof *x);
    taciti_kernels_get()->sketch_unpack(x, index, values, s->n);
    return TACIT_OK;
}
