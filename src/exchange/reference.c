/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/reference.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "kernel/kernel.h"

taciti_reference *taciti_references_add(taciti_references *references, const taciti_reference *what) {
    if (references->count == TACITI_REFERENCES_MAX) return NULL;
    references->all[references->count] = *what;
    return &references->all[references->count++];
}

size_t taciti_reference_arrays(taciti_reference_kind kind) {
    static const size_t ARRAYS[] = {
        [TACITI_REFERENCE_GROUP] = 1, [TACITI_REFERENCE_PAIR] = 2, [TACITI_REFERENCE_EDGES] = 4};
    return ARRAYS[kind];
}

static size_t count_arrays(const taciti_references *references) {
    size_t count = references->count > 0 ? TACITI_REFERENCE_APART : 0;
    for (size_t i = 0; i < references->count; i++) count += taciti_reference_arrays(references->all[i].kind);
    return count;
}

static size_t floats_of(const taciti_layout *layout) { return taciti_round_up(layout->n, 16); }

size_t taciti_references_bytes(const taciti_references *references, const taciti_layout *layout) {
    return count_arrays(references) * floats_of(layout) * sizeof(float);
}

/* Returns what is behind them. */
static float *place_arrays(taciti_reference *reference, float *at, size_t floats) {
    if (reference->kind == TACITI_REFERENCE_EDGES) {
        reference->known = (double *)(void *)at;
        reference->sum = reference->known + floats;
        return at + 4 * floats;
    }
    reference->mine = at;
    if (reference->kind == TACITI_REFERENCE_PAIR) reference->other = at + floats;
    return at + (reference->kind == TACITI_REFERENCE_PAIR ? 2 : 1) * floats;
}

tacit_status taciti_references_open(taciti_references *references, const taciti_layout *layout) {
    const size_t bytes = taciti_references_bytes(references, layout);
    references->layout = layout;
    if (bytes == 0) return TACIT_OK;
    TACITI_TRY(taciti_pages_create(bytes, "what neighbours know", &references->pages));
    memset(references->pages.base, 0, bytes);
    float *at = references->pages.base;
    references->apart = at;
    at += floats_of(layout);
    for (size_t i = 0; i < references->count; i++) at = place_arrays(&references->all[i], at, floats_of(layout));
    return TACIT_OK;
}

void taciti_references_close(taciti_references *references) { taciti_pages_destroy(&references->pages); }

void taciti_references_set(taciti_references *references, const float *x) {
    if (x == NULL) memset(references->pages.base, 0, references->pages.bytes);
    if (x == NULL) return;
    const size_t n = references->layout->n;
    for (size_t i = 0; i < references->count; i++) {
        const taciti_reference *reference = &references->all[i];
        for (size_t k = 0; k < n && reference->known != NULL; k++) {
            reference->known[k] = (double)x[k];
            reference->sum[k] = reference->w.row * (double)x[k];
        }
        if (reference->mine != NULL) memcpy(reference->mine, x, n * sizeof *x);
        if (reference->other != NULL) memcpy(reference->other, x, n * sizeof *x);
    }
}

void taciti_reference_subtract(const taciti_reference *reference, float *x, size_t at, size_t n) {
    for (size_t i = 0; i < n && reference->known != NULL; i++) x[i] = (float)((double)x[i] - reference->known[at + i]);
    if (reference->mine != NULL) taciti_kernels_get()->add_scaled(x, reference->mine + at, -1, n);
}

/* x: the sum over members of what was decoded, the same on all of them; errors: what mine have lost. */
static void settle_group(const taciti_reference *r, const float *errors, float *x, size_t at, size_t n) {
    taciti_kernels_get()->add_scaled(r->mine + at, x, 1 / (float)r->members, n);
    memcpy(x, r->mine + at, n * sizeof *x);
    taciti_kernels_get()->add(x, errors, n);
}

/* p = self a + other b. Both of a pair compute it in this order. */
static void mix_two(float *p, const float *a, double self, const float *b, double other, size_t n) {
    memcpy(p, a, n * sizeof *p);
    taciti_kernels_get()->scale(p, (float)self, n);
    taciti_kernels_get()->add_scaled(p, b, (float)other, n);
}

enum { BLOCK = 1024 };

/* q: of the other; own: mine, as it was decoded. x^ are of up to BLOCK floats. */
static void settle_block(const taciti_reference *r, const float *own, float *q, size_t at, size_t n) {
    const taciti_kernels *kernels = taciti_kernels_get();
    float mine[BLOCK], theirs[BLOCK];
    memcpy(mine, r->mine + at, n * sizeof *mine);
    memcpy(theirs, r->other + at, n * sizeof *theirs);
    kernels->add(mine, own, n);
    kernels->add(theirs, q, n);
    mix_two(r->mine + at, mine, r->w.self, theirs, r->w.other, n);
    mix_two(r->other + at, theirs, r->w.their_self, mine, r->w.their_other, n);
    memcpy(q, r->mine + at, n * sizeof *q);
    kernels->add_scaled(q, mine, -1, n);
}

static void settle_pair(const taciti_reference *r, const float *own, float *x, size_t at, size_t n) {
    for (size_t done = 0; done < n; done += BLOCK)
        settle_block(r, own + done, x + done, at + done, n - done < BLOCK ? n - done : BLOCK);
}

/* x: the weighted sum of what was decoded of others; own: what others have decoded of mine. */
static void settle_edges(const taciti_reference *r, const float *own, float *x, size_t at, size_t n) {
    double *known = r->known + at, *sum = r->sum + at;
    for (size_t i = 0; i < n; i++) {
        known[i] += (double)own[i];
        sum[i] += (double)x[i] + r->w.self * (double)own[i];
        x[i] = (float)(sum[i] - known[i]);
    }
}

void taciti_reference_settle(const taciti_reference *reference, const float *apart, float *x, size_t at, size_t n) {
    switch (reference->kind) {
    case TACITI_REFERENCE_GROUP: settle_group(reference, apart, x, at, n); break;
    case TACITI_REFERENCE_PAIR: settle_pair(reference, apart, x, at, n); break;
    case TACITI_REFERENCE_EDGES: settle_edges(reference, apart, x, at, n); break;
    }
}

/* Exactly one of floats and doubles is given, or nothing. */
static void list_array(taciti_references *references, size_t number, const char *prefix, float *floats, double *doubles,
                       taciti_state *out) {
    const taciti_layout *layout = references->layout;
    char *name = references->names[number];
    (void)snprintf(name, TACITI_REFERENCE_NAME_BYTES, "strategy.%s.%zu", prefix, number);
    if (floats != NULL)
        taciti_state_add_array(out, name, TACITI_STATE_OWN, TACITI_STATE_RESET, layout, floats)->optional = true;
    if (doubles != NULL)
        taciti_state_add_bytes(out, name, TACITI_STATE_OWN, doubles, layout->n * sizeof *doubles)->optional = true;
}

void taciti_references_list(taciti_references *references, const char *prefix, taciti_state *out) {
    for (size_t i = 0; i < references->count; i++) {
        const taciti_reference *reference = &references->all[i];
        list_array(references, 2 * i, prefix, reference->mine, reference->known, out);
        list_array(references, 2 * i + 1, prefix, reference->other, reference->sum, out);
    }
}
