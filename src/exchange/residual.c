/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/residual.h"

#include <string.h>

#include "base/memory.h"
#include "kernel/kernel.h"

static size_t cells(const taciti_residual *r, int kind) {
    return r->pieces * (kind == TACITI_PAYLOAD_RESULT ? 1 : r->members);
}

static size_t error_bytes(const taciti_residual *r, int kind) {
    if (!r->errors) return 0;
    return taciti_round_up(cells(r, kind) * r->cell_n * sizeof(float), TACITI_ALIGN_BYTES);
}

/* Without lasting state all cells share one. */
static size_t state_bytes(const taciti_residual *r, int kind) {
    return (r->lasting ? cells(r, kind) : 1) * r->state_bytes;
}

size_t taciti_residual_bytes(const taciti_residual *r) {
    size_t bytes = 0;
    for (int kind = 0; kind < TACITI_PAYLOAD_KINDS; kind++)
        bytes += error_bytes(r, kind) * (r->feedback ? 2 : 1) + 2 * state_bytes(r, kind);
    return bytes;
}

void taciti_residual_open(taciti_residual *r, void *memory) {
    char *at = memory;
    for (int kind = 0; kind < TACITI_PAYLOAD_KINDS; kind++) {
        r->error[kind][0] = r->error[kind][1] = (float *)(void *)at;
        at += error_bytes(r, kind);
        if (r->feedback) r->error[kind][1] = (float *)(void *)at;
        if (r->feedback) at += error_bytes(r, kind);
        r->state[kind][0] = at;
        r->state[kind][1] = at + state_bytes(r, kind);
        at += 2 * state_bytes(r, kind);
    }
}

static size_t cell_of(const taciti_residual *r, taciti_payload_kind kind, size_t piece, size_t member) {
    return kind == TACITI_PAYLOAD_RESULT ? piece % r->pieces : piece % r->pieces * r->members + member;
}

float *taciti_residual_error(const taciti_residual *r, taciti_payload_kind kind, size_t piece, size_t member) {
    return r->error[kind][!r->now[kind]] + cell_of(r, kind, piece, member) * r->cell_n;
}

float *taciti_residual_enter(taciti_residual *r, taciti_payload_kind kind, size_t piece, size_t member, float *x,
                             size_t n, taciti_codec_call *call) {
    const size_t cell = cell_of(r, kind, piece, member), state = r->lasting ? cell * r->state_bytes : 0;
    const int now = r->now[kind];
    r->pending[kind] = true;
    if (r->state_bytes > 0) {
        if (!r->lasting) memset(r->state[kind][now], 0, r->state_bytes);
        call->state = r->state[kind][now] + state;
        call->next = r->state[kind][!now] + state;
    }
    if (r->feedback) taciti_kernels_get()->add(x, r->error[kind][now] + cell * r->cell_n, n);
    return r->errors ? taciti_residual_error(r, kind, piece, member) : NULL;
}

void taciti_residual_settle(taciti_residual *r, bool taken) {
    for (int kind = 0; kind < TACITI_PAYLOAD_KINDS; kind++) {
        if (r->pending[kind] && taken && (r->feedback || r->lasting)) r->now[kind] = !r->now[kind];
        r->pending[kind] = false;
    }
}

float *taciti_residual_array(const taciti_residual *r, taciti_payload_kind kind, size_t *n) {
    *n = r->feedback ? cells(r, (int)kind) * r->cell_n : 0;
    return r->error[kind][r->now[kind]];
}
