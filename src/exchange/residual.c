/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/residual.h"

#include <string.h>

#include "kernel/kernel.h"

static size_t cells(const taciti_residual *r, int kind) {
    return r->pieces * (kind == TACITI_PAYLOAD_RESULT ? 1 : r->members);
}

static bool in_cells(const taciti_residual *r) { return r->back != 0; }

/* ---- sizes ------------------------------------------------------------------------------------------------------- */
static bool has(const taciti_residual *r, taciti_residual_array which) {
    const taciti_feedback *f = &r->feedback;
    if (which == TACITI_RESIDUAL_MEMORY) return f->estimates || f->momentum > 0;
    return (f->estimates || f->errors) && (which == TACITI_RESIDUAL_CONTRIBUTION || r->results);
}

size_t taciti_residual_bytes(const taciti_residual *r, taciti_residual_array which, size_t n) {
    if (which == TACITI_RESIDUAL_STATE)
        return r->lasting ? (cells(r, TACITI_PAYLOAD_CONTRIBUTION) + cells(r, TACITI_PAYLOAD_RESULT)) * r->state_bytes
                          : 0;
    return has(r, which) ? taciti_round_up(n * sizeof(float), TACITI_ALIGN_BYTES) : 0;
}

static size_t cell_bytes(const taciti_residual *r, int kind) { return cells(r, kind) * r->cell_n * sizeof(float); }

size_t taciti_residual_back_bytes(const taciti_residual *r) {
    return cell_bytes(r, TACITI_PAYLOAD_CONTRIBUTION) + cell_bytes(r, TACITI_PAYLOAD_RESULT) + 2 * r->state_bytes;
}

void taciti_residual_back_open(taciti_residual *r, void *memory) {
    char *at = memory;
    for (int kind = 0; kind < TACITI_PAYLOAD_KINDS; kind++) {
        r->arrays[kind].at[0] = r->arrays[kind].at[1] = at;
        at += cell_bytes(r, kind);
    }
    r->arrays[TACITI_RESIDUAL_STATE].at[0] = at;
    r->arrays[TACITI_RESIDUAL_STATE].at[1] = at + r->state_bytes;
}

/* ---- places ------------------------------------------------------------------------------------------------------ */
static size_t cell_of(const taciti_residual *r, taciti_payload_kind kind, size_t piece, size_t member) {
    return kind == TACITI_PAYLOAD_RESULT ? piece % r->pieces : piece % r->pieces * r->members + member;
}

static float *floats_at(const taciti_versions *v, int version, size_t at) {
    return (float *)(void *)v->at[version] + at;
}

float *taciti_residual_error(const taciti_residual *r, taciti_payload_kind kind, size_t piece, size_t member) {
    return floats_at(&r->arrays[kind], 0, cell_of(r, kind, piece, member) * r->cell_n);
}

/* The committed floats there, or NULL if they are zeros. */
static const float *committed(const taciti_residual *r, taciti_residual_array which, size_t at) {
    const taciti_versions *v = &r->arrays[which];
    return v->held[v->now] && !r->flushed ? floats_at(v, v->now, at) : NULL;
}

/* The floats there that the step under way writes. */
static float *coming(taciti_residual *r, taciti_residual_array which, size_t at) {
    taciti_versions *v = &r->arrays[which];
    v->written = v->held[!v->now] = true;
    return floats_at(v, !v->now, at);
}

/* ---- encoding ---------------------------------------------------------------------------------------------------- */
static void set_state(taciti_residual *r, const taciti_residual_place *p, taciti_codec_call *call) {
    taciti_versions *v = &r->arrays[TACITI_RESIDUAL_STATE];
    size_t cell = 0;
    if (r->state_bytes == 0) return;
    if (r->lasting) {
        cell = cell_of(r, p->kind, p->piece, p->member);
        if (p->kind == TACITI_PAYLOAD_RESULT) cell += cells(r, TACITI_PAYLOAD_CONTRIBUTION);
        v->written = v->held[!v->now] = true;
    } else
        memset(v->at[0], 0, r->state_bytes);
    call->state = v->at[v->now] + cell * r->state_bytes;
    call->next = v->at[!v->now] + cell * r->state_bytes;
}

/* x becomes momentum * u + x, which is also stored. */
static void add_momentum(taciti_residual *r, size_t at, float *x, size_t n) {
    const float *u = committed(r, TACITI_RESIDUAL_MEMORY, at);
    if (u != NULL) taciti_kernels_get()->add_scaled(x, u, (float)r->feedback.momentum, n);
    memcpy(coming(r, TACITI_RESIDUAL_MEMORY, at), x, n * sizeof *x);
}

static void add_residual(const taciti_residual *r, taciti_payload_kind kind, size_t at, float *x, size_t n) {
    const float *residual = committed(r, (taciti_residual_array)kind, at);
    const float decay = kind == TACITI_PAYLOAD_CONTRIBUTION ? (float)r->feedback.decay : 1;
    if (residual == NULL) return;
    if (decay == 1)
        taciti_kernels_get()->add(x, residual, n);
    else
        taciti_kernels_get()->add_scaled(x, residual, decay, n);
}

double taciti_residual_squares(const taciti_residual *r, const taciti_residual_place *p) {
    const bool adds = !in_cells(r) && r->feedback.errors;
    const float *residual = adds ? committed(r, TACITI_RESIDUAL_CONTRIBUTION, p->at) : NULL;
    if (residual == NULL) return 0;
    return r->feedback.decay * r->feedback.decay * taciti_kernels_get()->sum_squares(residual, p->n);
}

float *taciti_residual_enter(taciti_residual *r, const taciti_residual_place *p, float *x, taciti_codec_call *call) {
    const taciti_feedback *f = &r->feedback;
    set_state(r, p, call);
    if (in_cells(r)) return taciti_residual_error(r, p->kind, p->piece, p->member);
    if (f->estimates) {
        const bool result = p->kind == TACITI_PAYLOAD_RESULT;
        const float *estimate = committed(r, result ? TACITI_RESIDUAL_MEMORY : TACITI_RESIDUAL_CONTRIBUTION, p->at);
        if (estimate != NULL) taciti_kernels_get()->add_scaled(x, estimate, -1, p->n);
        return NULL;
    }
    if (f->momentum > 0 && p->kind == TACITI_PAYLOAD_CONTRIBUTION) add_momentum(r, p->at, x, p->n);
    if (!f->errors) return NULL;
    add_residual(r, p->kind, p->at, x, p->n);
    return coming(r, (taciti_residual_array)p->kind, p->at);
}

tacit_status taciti_residual_leave(taciti_residual *r, const taciti_residual_place *p, const float *x,
                                   const taciti_codec *codec, const taciti_codec_call *call, taciti_payload payload) {
    const taciti_feedback *f = &r->feedback;
    if (in_cells(r) || p->kind == TACITI_PAYLOAD_RESULT) return TACIT_OK;
    if (f->estimates) {
        float *estimate = coming(r, TACITI_RESIDUAL_CONTRIBUTION, p->at);
        const float *before = committed(r, TACITI_RESIDUAL_CONTRIBUTION, p->at);
        TACITI_TRY(codec->decode(call, payload.data, payload.bytes, estimate, p->n));
        if (before != NULL) taciti_kernels_get()->add(estimate, before, p->n);
    } else if (f->errors && f->momentum > 0)
        taciti_kernels_get()->keep_equal(coming(r, TACITI_RESIDUAL_MEMORY, p->at),
                                         coming(r, TACITI_RESIDUAL_CONTRIBUTION, p->at), x, p->n);
    return TACIT_OK;
}

void taciti_residual_accumulate(taciti_residual *r, taciti_residual_array which, size_t at, float *x, size_t n) {
    const float *before = committed(r, which, at);
    if (before != NULL) taciti_kernels_get()->add(x, before, n);
    memcpy(coming(r, which, at), x, n * sizeof *x);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */
void taciti_residual_begin(taciti_residual *r, bool flush, float *x, size_t n) {
    r->flushed = false;
    if (!flush || !r->feedback.errors) return;
    const float *u = committed(r, TACITI_RESIDUAL_MEMORY, 0);
    if (u != NULL) taciti_kernels_get()->add_scaled(x, u, (float)r->feedback.momentum, n);
    for (int kind = 0; kind < TACITI_PAYLOAD_KINDS; kind++) add_residual(r, (taciti_payload_kind)kind, 0, x, n);
    r->flushed = true;
}

void taciti_residual_drop(taciti_residual *r) {
    r->flushed = false;
    for (int a = 0; a < TACITI_RESIDUAL_ARRAYS; a++) r->arrays[a].written = false;
}

/* Writes only where something changes: pages that nothing was written to stay without memory. from NULL: zeros. */
static void overwrite(char *to, const char *from, size_t bytes) {
    static const char zeros[4096];
    for (size_t i = 0; i < bytes; i += sizeof zeros) {
        const size_t part = bytes - i < sizeof zeros ? bytes - i : sizeof zeros;
        const char *source = from == NULL ? zeros : from + i;
        if (memcmp(to + i, source, part) != 0) memcpy(to + i, source, part);
    }
}

static void clear(taciti_versions *v, int version) {
    if (v->held[version]) overwrite(v->at[version], NULL, v->bytes);
    v->held[version] = false;
}

/* The other version becomes a copy of the committed one. */
static void carry(taciti_versions *v) {
    if (!v->held[v->now])
        clear(v, !v->now);
    else
        overwrite(v->at[!v->now], v->at[v->now], v->bytes);
    v->held[!v->now] = v->held[v->now];
}

void taciti_residual_commit(taciti_residual *r, const bool swap[TACITI_RESIDUAL_ARRAYS]) {
    for (int a = 0; a < TACITI_RESIDUAL_ARRAYS; a++) {
        taciti_versions *v = &r->arrays[a];
        if (r->flushed && a != TACITI_RESIDUAL_STATE) clear(v, v->now);
        if (swap[a] && !v->written) carry(v);
        if (swap[a]) v->now = !v->now;
        v->written = false;
    }
    r->flushed = false;
}
