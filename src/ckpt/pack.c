/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/pack.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"

enum { CHUNK_FLOATS = 4096, BLOCK_BYTES = 4096 };

/* Bytes of an entry that lie together in memory. */
typedef struct run {
    unsigned char *base;
    size_t bytes;
} run;

/* The index-th run of an entry without another form; false behind the last. */
static bool run_at(const taciti_state_entry *entry, size_t index, run *out) {
    taciti_range r;
    unsigned char *data = entry->data;
    if (entry->kind == TACITI_STATE_ARRAY) {
        if (!taciti_state_held(entry, index, &r)) return false;
        *out = (run){data + r.at * sizeof(float), r.n * sizeof(float)};
        return true;
    }
    *out = (run){data, entry->n};
    if (entry->kind == TACITI_STATE_COUNT) out->bytes = sizeof(int64_t);
    if (entry->kind == TACITI_STATE_NUMBERS) out->bytes *= sizeof(double);
    return index == 0;
}

size_t taciti_pack_entry_bytes(const taciti_state_entry *entry) {
    size_t bytes = 0;
    run r;
    if (entry->access.read != NULL) return entry->n * sizeof(float);
    for (size_t i = 0; run_at(entry, i, &r); i++) bytes += r.bytes;
    return bytes;
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

/* ---- arrays in another form -------------------------------------------------------------------------------------- */

static void pack_accessed(const taciti_state_entry *entry, copier *copy, unsigned char *out) {
    const taciti_state_access *access = &entry->access;
    float chunk[CHUNK_FLOATS];
    for (size_t at = 0; at < entry->n; at += CHUNK_FLOATS) {
        const size_t n = entry->n - at < CHUNK_FLOATS ? entry->n - at : CHUNK_FLOATS;
        access->read(access->object, access->which, at, chunk, n);
        copy(out + at * sizeof *chunk, (const unsigned char *)chunk, n * sizeof *chunk);
    }
}

static void unpack_accessed(const taciti_state_entry *entry, const unsigned char *bytes) {
    const taciti_state_access *access = &entry->access;
    float chunk[CHUNK_FLOATS];
    for (size_t at = 0; at < entry->n; at += CHUNK_FLOATS) {
        const size_t n = entry->n - at < CHUNK_FLOATS ? entry->n - at : CHUNK_FLOATS;
        memcpy(chunk, bytes + at * sizeof *chunk, n * sizeof *chunk);
        access->write(access->object, access->which, at, chunk, n);
    }
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static void pack_with(copier *copy, const taciti_state *state, unsigned char *out) {
    run r;
    for (const taciti_state_entry *e = state->entries; e < state->entries + state->count; e++) {
        const size_t bytes = taciti_pack_entry_bytes(e);
        if (e->access.read != NULL) pack_accessed(e, copy, out);
        for (size_t i = 0, at = 0; e->access.read == NULL && run_at(e, i, &r); at += r.bytes, i++)
            copy(out + at, r.base, r.bytes);
        out += bytes;
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
    run r;
    for (const taciti_state_entry *e = state->entries; e < state->entries + state->count; e++) {
        if (e->access.read != NULL) unpack_accessed(e, bytes);
        for (size_t i = 0, at = 0; e->access.read == NULL && run_at(e, i, &r); at += r.bytes, i++)
            if (r.bytes > 0) memcpy(r.base, bytes + at, r.bytes);
        bytes += taciti_pack_entry_bytes(e);
    }
}
