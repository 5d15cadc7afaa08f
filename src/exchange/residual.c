/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/residual.h"

#include <string.h>

#include "kernel/kernel.h"

/* ---- forms ------------------------------------------------------------------------------------------------------- */
size_t taciti_residual_form_bytes(taciti_residual_form form, size_t n) {
    if (form == TACITI_RESIDUAL_INT8) return taciti_line8_bytes(n);
    return n * (form == TACITI_RESIDUAL_BF16 ? sizeof(taciti_bf16) : sizeof(float));
}

void taciti_residual_widen(taciti_residual_form form, const void *stored, size_t at, float *out, size_t n) {
    const char *from = (const char *)stored + taciti_residual_form_bytes(form, at);
    if (form == TACITI_RESIDUAL_INT8)
        taciti_kernels_get()->line8_decode(out, from, n);
    else if (form == TACITI_RESIDUAL_BF16)
        taciti_kernels_get()->bf16_decode(out, (const taciti_bf16 *)(const void *)from, n);
    else
        memcpy(out, from, n * sizeof *out);
}

void taciti_residual_narrow(taciti_residual_form form, void *stored, size_t at, const float *x, size_t n) {
    char *to = (char *)stored + taciti_residual_form_bytes(form, at);
    if (form == TACITI_RESIDUAL_INT8)
        taciti_kernels_get()->line8_encode(to, x, n);
    else if (form == TACITI_RESIDUAL_BF16)
        taciti_kernels_get()->bf16_encode((taciti_bf16 *)(void *)to, x, n);
    else
        memcpy(to, x, n * sizeof *x);
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */
static bool has_array(const taciti_residual *r, taciti_residual_array which) {
    const taciti_feedback *f = &r->feedback;
    if (which == TACITI_RESIDUAL_MEMORY) return f->estimates || f->momentum > 0;
    return (f->estimates || f->errors) && (which == TACITI_RESIDUAL_CONTRIBUTION || r->results);
}

size_t taciti_residual_bytes(const taciti_residual *r, taciti_residual_array which, size_t n) {
    return has_array(r, which) ? taciti_round_up(taciti_residual_form_bytes(r->feedback.stored, n), TACITI_ALIGN_BYTES)
                               : 0;
}

/* ---- places ------------------------------------------------------------------------------------------------------ */
static float *floats_at(const taciti_versions *v, int version, size_t at) {
    return (float *)(void *)v->at[version] + at;
}

static bool is_narrow(const taciti_residual *r) { return r->feedback.stored != TACITI_RESIDUAL_F32; }

static float *scratch_at(const taciti_residual *r, size_t at) { return r->scratch + (r->scratch_is_bucket ? at : 0); }

static bool is_committed(const taciti_residual *r, taciti_residual_array which) {
    const taciti_versions *v = &r->arrays[which];
    return v->held[v->now] && !r->flushed;
}

/* The committed floats there, or NULL if they are zeros. */
static const float *committed_floats(const taciti_residual *r, taciti_residual_array which, size_t at) {
    return is_committed(r, which) ? floats_at(&r->arrays[which], r->arrays[which].now, at) : NULL;
}

/* The same for n errors, whatever their form; of a narrow one they are in the scratch memory. */
static const float *committed_errors(const taciti_residual *r, taciti_residual_array which, size_t at, size_t n) {
    const taciti_versions *v = &r->arrays[which];
    if (!is_narrow(r)) return committed_floats(r, which, at);
    if (!is_committed(r, which)) return NULL;
    taciti_residual_widen(r->feedback.stored, v->at[v->now], at, scratch_at(r, at), n);
    return scratch_at(r, at);
}

/* The step under way writes to the array. */
static taciti_versions *write_to(taciti_residual *r, taciti_residual_array which) {
    taciti_versions *v = &r->arrays[which];
    v->written = v->held[!v->now] = true;
    return v;
}

/* The floats there that the step under way writes. */
static float *coming_floats(taciti_residual *r, taciti_residual_array which, size_t at) {
    const taciti_versions *v = write_to(r, which);
    return floats_at(v, !v->now, at);
}

/* Where the error of an encoding is written. */
static float *error_at(taciti_residual *r, taciti_payload_kind kind, size_t at) {
    return is_narrow(r) ? scratch_at(r, at) : coming_floats(r, (taciti_residual_array)kind, at);
}

/* ---- encoding ---------------------------------------------------------------------------------------------------- */
/* x becomes momentum * u + x, which is also stored. A flush has added u and the residual to x: they are no gradient
 * of this step, so u becomes 0. */
static void add_momentum(taciti_residual *r, size_t at, float *x, size_t n) {
    if (r->flushed) {
        memset(coming_floats(r, TACITI_RESIDUAL_MEMORY, at), 0, n * sizeof *x);
        return;
    }
    const float *u = committed_floats(r, TACITI_RESIDUAL_MEMORY, at);
    if (u != NULL) taciti_kernels_get()->add_scaled(x, u, (float)r->feedback.momentum, n);
    memcpy(coming_floats(r, TACITI_RESIDUAL_MEMORY, at), x, n * sizeof *x);
}

static void add_residual(const taciti_residual *r, taciti_payload_kind kind, size_t at, float *x, size_t n) {
    const float *residual = committed_errors(r, (taciti_residual_array)kind, at, n);
    const float decay = kind == TACITI_PAYLOAD_CONTRIBUTION ? (float)r->feedback.decay : 1;
    if (residual == NULL) return;
    if (decay == 1)
        taciti_kernels_get()->add(x, residual, n);
    else
        taciti_kernels_get()->add_scaled(x, residual, decay, n);
}

float *taciti_residual_enter(taciti_residual *r, const taciti_residual_place *p, float *x) {
    const taciti_feedback *f = &r->feedback;
    if (r->errors != NULL) return p->kind == TACITI_PAYLOAD_RESULT ? scratch_at(r, p->at) : r->errors + p->at;
    if (f->estimates) {
        const bool result = p->kind == TACITI_PAYLOAD_RESULT;
        const float *estimate =
            committed_floats(r, result ? TACITI_RESIDUAL_MEMORY : TACITI_RESIDUAL_CONTRIBUTION, p->at);
        if (estimate != NULL) taciti_kernels_get()->add_scaled(x, estimate, -1, p->n);
        return NULL;
    }
    if (f->momentum > 0 && p->kind == TACITI_PAYLOAD_CONTRIBUTION) add_momentum(r, p->at, x, p->n);
    if (!f->errors) return NULL;
    add_residual(r, p->kind, p->at, x, p->n);
    return error_at(r, p->kind, p->at);
}

/* Clears gaps: whatever a codec leaves in them is no part of a tensor. */
static void clear_gaps(const taciti_residual *r, size_t at, float *x, size_t n) {
    if (r->layout != NULL) taciti_layout_clear_gaps(r->layout, r->bucket, (taciti_range){at, n}, x);
}

tacit_status taciti_residual_leave(taciti_residual *r, const taciti_residual_place *p, const float *x,
                                   const taciti_codec *codec, const taciti_codec_call *call, taciti_payload payload) {
    const taciti_feedback *f = &r->feedback;
    if (r->errors != NULL && p->kind == TACITI_PAYLOAD_RESULT)
        taciti_kernels_get()->add(r->errors + p->at, scratch_at(r, p->at), p->n);
    taciti_residual_keep(r, p->kind, p->at, p->n);
    if (p->kind == TACITI_PAYLOAD_RESULT) return TACIT_OK;
    if (f->estimates) {
        float *estimate = coming_floats(r, TACITI_RESIDUAL_CONTRIBUTION, p->at);
        const float *before = committed_floats(r, TACITI_RESIDUAL_CONTRIBUTION, p->at);
        TACITI_TRY(codec->decode(codec, call, payload.data, payload.bytes, estimate, p->n, false));
        clear_gaps(r, p->at, estimate, p->n);
        if (before != NULL) taciti_kernels_get()->add(estimate, before, p->n);
    } else if (f->errors && f->momentum > 0)
        taciti_kernels_get()->keep_equal(coming_floats(r, TACITI_RESIDUAL_MEMORY, p->at),
                                         coming_floats(r, TACITI_RESIDUAL_CONTRIBUTION, p->at), x, p->n);
    return TACIT_OK;
}

void taciti_residual_keep(taciti_residual *r, taciti_payload_kind kind, size_t at, size_t n) {
    if (!r->feedback.errors) return;
    const taciti_versions *v = write_to(r, (taciti_residual_array)kind);
    clear_gaps(r, at, error_at(r, kind, at), n);
    if (is_narrow(r)) taciti_residual_narrow(r->feedback.stored, v->at[!v->now], at, scratch_at(r, at), n);
}

void taciti_residual_accumulate(taciti_residual *r, taciti_residual_array which, size_t at, float *x, size_t n) {
    const float *before = committed_floats(r, which, at);
    if (before != NULL) taciti_kernels_get()->add(x, before, n);
    memcpy(coming_floats(r, which, at), x, n * sizeof *x);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */
bool taciti_residual_is_empty(const taciti_residual *r) {
    bool empty = true;
    for (int a = 0; a < TACITI_RESIDUAL_ARRAYS; a++) empty = empty && !r->arrays[a].held[r->arrays[a].now];
    return empty || !r->feedback.errors;
}

void taciti_residual_begin(taciti_residual *r, bool flush, float *x, size_t n) {
    r->flushed = false;
    if (!flush || !r->feedback.errors) return;
    const float *u = committed_floats(r, TACITI_RESIDUAL_MEMORY, 0);
    if (u != NULL) taciti_kernels_get()->add_scaled(x, u, (float)r->feedback.momentum, n);
    const size_t step = is_narrow(r) ? r->scratch_n : n;
    for (int kind = 0; kind < TACITI_PAYLOAD_KINDS; kind++)
        for (size_t at = 0; at < n; at += step)
            add_residual(r, (taciti_payload_kind)kind, at, x + at, step < n - at ? step : n - at);
    r->flushed = true;
}

void taciti_residual_drop(taciti_residual *r) {
    r->flushed = false;
    for (int a = 0; a < TACITI_RESIDUAL_ARRAYS; a++) r->arrays[a].written = false;
}

/* Writes only where something changes: pages that nothing was written to stay without memory. from NULL: zeros. */
static void overwrite_bytes(char *to, const char *from, size_t bytes) {
    static const char zeros[4096];
    for (size_t i = 0; i < bytes; i += sizeof zeros) {
        const size_t part = bytes - i < sizeof zeros ? bytes - i : sizeof zeros;
        const char *source = from == NULL ? zeros : from + i;
        if (memcmp(to + i, source, part) != 0) memcpy(to + i, source, part);
    }
}

static void clear_version(taciti_versions *v, int version) {
    if (v->held[version]) overwrite_bytes(v->at[version], NULL, v->bytes);
    v->held[version] = false;
}

void taciti_residual_commit(taciti_residual *r, const bool swap[TACITI_RESIDUAL_ARRAYS]) {
    for (int a = 0; a < TACITI_RESIDUAL_ARRAYS; a++) {
        taciti_versions *v = &r->arrays[a];
        if (r->flushed) clear_version(v, v->now);
        if (swap[a] && !v->written) { /* the other version becomes a copy of the committed one */
            if (v->held[v->now]) overwrite_bytes(v->at[!v->now], v->at[v->now], v->bytes);
            if (!v->held[v->now]) clear_version(v, !v->now);
            v->held[!v->now] = v->held[v->now];
        }
        if (swap[a]) v->now = !v->now;
        v->written = false;
    }
    r->flushed = false;
}
