/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/pack.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "base/number.h"

enum { CHUNK_FLOATS = 4096, BLOCK_BYTES = 4096 };

/* Returns how long an entry is that is no array. */
static size_t value_bytes(const taciti_state_entry *entry) {
    if (entry->kind == TACITI_STATE_COUNT) return sizeof(int64_t);
    return entry->kind == TACITI_STATE_NUMBERS ? entry->n * sizeof(double) : entry->n;
}

size_t taciti_pack_entry_bytes(const taciti_state_entry *entry) {
    size_t floats = 0;
    taciti_range r;
    if (entry->kind != TACITI_STATE_ARRAY) return value_bytes(entry);
    for (size_t i = 0; taciti_state_held(entry, i, &r); i++) floats += r.n;
    return floats * sizeof(float);
}

tacit_status taciti_pack_bytes(const taciti_state *state, size_t *out) {
    if (state->count > TACITI_STATE_MAX_ENTRIES)
        return taciti_fail(TACIT_E_INTERNAL, "%zu entries of state, at most %d are possible", state->count,
                           (int)TACITI_STATE_MAX_ENTRIES);
    *out = 0;
    for (size_t i = 0; i < state->count; i++) *out += taciti_pack_entry_bytes(&state->entries[i]);
    return TACIT_OK;
}

/* ---- copying ----------------------------------------------------------------------------------------------------- */

typedef void copier(unsigned char *out, const unsigned char *from, size_t n);

static void copy_bytes(unsigned char *out, const unsigned char *from, size_t n) {
    if (n > 0) memcpy(out, from, n);
}

/* For an `out` of zeros: pages that would receive nothing else are not touched. */
static void copy_blocks(unsigned char *out, const unsigned char *from, size_t n) {
    static const unsigned char zeros[BLOCK_BYTES];
    for (size_t at = 0; at < n; at += BLOCK_BYTES) {
        const size_t bytes = n - at < BLOCK_BYTES ? n - at : BLOCK_BYTES;
        if (memcmp(from + at, zeros, bytes) != 0) memcpy(out + at, from + at, bytes);
    }
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static void pack_entry(copier *copy, const taciti_state_entry *entry, unsigned char *out) {
    float chunk[CHUNK_FLOATS];
    taciti_range r;
    if (entry->kind != TACITI_STATE_ARRAY) {
        copy(out, entry->data, value_bytes(entry));
        return;
    }
    for (size_t i = 0; taciti_state_held(entry, i, &r); i++)
        for (size_t at = 0; at < r.n; at += CHUNK_FLOATS) {
            const size_t n = taciti_min(r.n - at, CHUNK_FLOATS);
            taciti_state_read(entry, r.at + at, chunk, n);
            copy(out, (const unsigned char *)chunk, n * sizeof *chunk);
            out += n * sizeof *chunk;
        }
}

static void unpack_entry(const taciti_state_entry *entry, const unsigned char *bytes) {
    float chunk[CHUNK_FLOATS];
    taciti_range r;
    if (entry->kind != TACITI_STATE_ARRAY) {
        copy_bytes(entry->data, bytes, value_bytes(entry));
        return;
    }
    for (size_t i = 0; taciti_state_held(entry, i, &r); i++)
        for (size_t at = 0; at < r.n; at += CHUNK_FLOATS) {
            const size_t n = taciti_min(r.n - at, CHUNK_FLOATS);
            memcpy(chunk, bytes, n * sizeof *chunk);
            taciti_state_write(entry, r.at + at, chunk, n);
            bytes += n * sizeof *chunk;
        }
}

static void pack_with(copier *copy, const taciti_state *state, unsigned char *out) {
    for (const taciti_state_entry *e = state->entries; e < state->entries + state->count; e++) {
        pack_entry(copy, e, out);
        out += taciti_pack_entry_bytes(e);
    }
}

void taciti_pack(const taciti_state *state, unsigned char *out) { pack_with(copy_bytes, state, out); }

tacit_status taciti_pack_aside(const taciti_state *state, taciti_pages *out) {
    size_t bytes = 0;
    TACITI_TRY(taciti_pack_bytes(state, &bytes));
    TACITI_TRY(taciti_pages_create(bytes, "a copy of the state", out));
    pack_with(copy_blocks, state, out->base);
    return TACIT_OK;
}

tacit_status taciti_pack_check(const taciti_state *state, const unsigned char *bytes) {
    for (const taciti_state_entry *e = state->entries; e < state->entries + state->count; e++) {
        int64_t count = 0;
        if (e->kind == TACITI_STATE_COUNT) memcpy(&count, bytes, sizeof count);
        if (count < 0) return taciti_fail(TACIT_E_DATA, "%s is %" PRId64 ", below 0", e->name, count);
        bytes += taciti_pack_entry_bytes(e);
    }
    return TACIT_OK;
}

void taciti_unpack(const taciti_state *state, const unsigned char *bytes) {
    for (const taciti_state_entry *e = state->entries; e < state->entries + state->count; e++) {
        unpack_entry(e, bytes);
        bytes += taciti_pack_entry_bytes(e);
    }
}
