/* SPDX-License-Identifier: Apache-2.0
 *
 * Homomorphic sketches as they arrive: for any legal shape, index and counters are anything. The decoder refuses, or
 * writes exactly the n floats and its workspace; bits of pending elements are bits of the index. A head that is zero
 * gives the sketch that belongs to the index; then what is decoded is right.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "codec/homomorphic.h"
#include "fuzz.h"

enum { HEAD_BYTES = 7, FLOATS_MAX = 2000, ROWS_MAX = 300, MIN_ROWS = 3, GUARD = 64 };

static unsigned char *memory(size_t bytes) {
    void *p = NULL;
    if (posix_memalign(&p, 64, bytes + GUARD) != 0) abort();
    memset(p, 0, bytes);
    memset((unsigned char *)p + bytes, 0xa5, GUARD);
    return p;
}

static void release(unsigned char *p, size_t bytes) {
    for (size_t i = 0; i < GUARD; i++)
        if (p[bytes + i] != 0xa5) abort();
    free(p);
}

static void ignore(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)level;
    (void)line;
}

static taciti_sketch shape_of(const uint8_t *h) {
    const size_t n = (h[1] + 256u * h[2]) % (FLOATS_MAX + 1), words = taciti_sketch_index_words(n);
    const size_t rows = MIN_ROWS + (h[3] + 256u * h[4]) % ROWS_MAX, zones = 1 + h[6] % (rows / MIN_ROWS);
    taciti_sketch s = taciti_sketch_init(n, rows, h[5]);
    s.zones = zones < words ? zones : words > 0 ? words : 1;
    return s;
}

/* Takes the next bytes of the input, over and over. */
static void fill(unsigned char *out, size_t bytes, const uint8_t **data, size_t *size) {
    const size_t take = bytes < *size ? bytes : *size;
    memcpy(out, *data, take);
    *data += take;
    *size -= take;
}

static float own_number(size_t i) { return (float)(i % 100) - 50.5f; }

/* The sketch of one rank that has the elements of the index. */
static void encode(const taciti_sketch *s, const uint64_t *index, float *counters) {
    float x[FLOATS_MAX + 1] = {0};
    for (size_t i = 0; i < s->n; i++)
        if (index[i / 64] >> (i % 64) & 1u) x[i] = own_number(i);
    taciti_sketch_add(s, x, counters);
}

static void check_floats(const taciti_sketch *s, const uint64_t *index, const uint64_t *pending, const float *x) {
    for (size_t i = 0; i < s->n; i++) {
        const unsigned there = index[i / 64] >> (i % 64) & 1u, open = pending[i / 64] >> (i % 64) & 1u;
        if (x[i] != (there && !open ? own_number(i) : 0)) abort();
    }
}

static void decode(const taciti_sketch *s, int genuine, const uint8_t *data, size_t size) {
    const size_t index_bytes = taciti_sketch_index_words(s->n) * 8, bytes = taciti_sketch_bytes(s);
    const size_t work = taciti_sketch_workspace_bytes(s), floats = s->n * sizeof(float);
    unsigned char *index = memory(index_bytes), *sums = memory(bytes), *workspace = memory(work), *x = memory(floats);
    float *counters = (float *)(void *)sums;
    unsigned char *pending = memory(index_bytes);
    size_t left = 0;
    fill(index, index_bytes, &data, &size);
    if (genuine && s->n % 64 != 0) ((uint64_t *)(void *)index)[s->n / 64] &= (UINT64_C(1) << (s->n % 64)) - 1;
    if (genuine)
        encode(s, (const uint64_t *)(const void *)index, counters);
    else
        fill(sums, bytes, &data, &size);
    tacit_status status = taciti_sketch_map(s, (const uint64_t *)(const void *)index, workspace);
    if (status == TACIT_OK) status = taciti_sketch_peel(s, counters, workspace, (float *)(void *)x, &left);
    if (status != TACIT_OK && (status != TACIT_E_DATA || genuine)) abort();
    if (status == TACIT_OK) {
        taciti_sketch_pending(s, workspace, (uint64_t *)(void *)pending);
        for (size_t i = 0; i < index_bytes; i++)
            if ((pending[i] & ~index[i]) != 0) abort();
        if (taciti_sketch_union((const uint64_t *)(const void *)pending, s->n) != left) abort();
        if (genuine)
            check_floats(s, (const uint64_t *)(const void *)index, (const uint64_t *)(const void *)pending,
                         (const float *)(const void *)x);
    }
    release(index, index_bytes);
    release(sums, bytes);
    release(workspace, work);
    release(x, floats);
    release(pending, index_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < HEAD_BYTES || size > FUZZ_INPUT_MAX) return 0;
    taciti_log_set_sink(ignore, NULL, TACITI_LOG_ERROR);
    const taciti_sketch s = shape_of(data);
    decode(&s, data[0] % 2 == 0, data + HEAD_BYTES, size - HEAD_BYTES);
    return 0;
}

size_t fuzz_seed(size_t i, uint8_t *out) {
    static const uint8_t HEADS[][HEAD_BYTES] = {
        {0, 200, 0, 27, 0, 1, 0}, {0, 100, 3, 77, 0, 2, 1}, {0, 208, 7, 197, 0, 3, 2},
        {0, 200, 0, 5, 0, 0, 0},  {0, 208, 7, 0, 0, 0, 0},  {1, 200, 0, 27, 0, 1, 0},
        {1, 100, 3, 77, 0, 2, 0}, {1, 1, 0, 14, 0, 1, 0},   {0, 0, 0, 12, 0, 1, 0},
    };
    if (i >= 2 * sizeof HEADS / sizeof *HEADS) return 0;
    memcpy(out, HEADS[i / 2], HEAD_BYTES);
    for (size_t j = 0; j < 400; j++) out[HEAD_BYTES + j] = (uint8_t)(i % 2 != 0 ? 17 * (j % 15) : j % 3);
    return HEAD_BYTES + 400;
}
