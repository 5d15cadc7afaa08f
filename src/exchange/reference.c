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

static size_t count_arrays(const taciti_references *references) {
    size_t count = references->count > 0 ? 1 : 0; /* apart */
    for (size_t i = 0; i < references->count; i++) count += references->all[i].kind == TACITI_REFERENCE_GROUP ? 1 : 2;
    return count;
}

static size_t floats_of(const taciti_layout *layout) { return taciti_round_up(layout->n, 16); }

size_t taciti_references_bytes(const taciti_references *references, const taciti_layout *layout) {
    return count_arrays(references) * floats_of(layout) * sizeof(float);
}

tacit_status taciti_references_open(taciti_references *references, const taciti_layout *layout) {
    const size_t bytes = taciti_references_bytes(references, layout);
    references->layout = layout;
    if (bytes == 0) return TACIT_OK;
    TACITI_TRY(taciti_pages_create(bytes, "what neighbours know", &references->pages));
    memset(references->pages.base, 0, bytes);
    float *at = references->pages.base;
    references->apart = at;
    for (size_t i = 0; i < references->count; i++) {
        taciti_reference *reference = &references->all[i];
        reference->mine = at += floats_of(layout);
        if (reference->kind != TACITI_REFERENCE_GROUP) reference->other = at += floats_of(layout);
    }
    return TACIT_OK;
}

void taciti_references_close(taciti_references *references) { taciti_pages_destroy(&references->pages); }

void taciti_references_set(taciti_references *references, const float *x) {
    if (x == NULL) memset(references->pages.base, 0, references->pages.bytes);
    if (x == NULL) return;
    for (size_t i = 0; i < references->count; i++) {
        const taciti_reference *reference = &references->all[i];
        const size_t bytes = references->layout->n * sizeof *x;
        memcpy(reference->mine, x, bytes);
        if (reference->other == NULL) continue;
        memcpy(reference->other, x, bytes);
        if (reference->kind == TACITI_REFERENCE_EDGES)
            taciti_kernels_get()->scale(reference->other, (float)reference->w.row, references->layout->n);
    }
}

void taciti_reference_subtract(const taciti_reference *reference, float *x, size_t at, size_t n) {
    taciti_kernels_get()->add_scaled(x, reference->mine + at, -1, n);
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
    const taciti_kernels *kernels = taciti_kernels_get();
    kernels->add(r->mine + at, own, n);
    kernels->add(r->other + at, x, n);
    kernels->add_scaled(r->other + at, own, (float)r->w.self, n);
    memcpy(x, r->other + at, n * sizeof *x);
    kernels->add_scaled(x, r->mine + at, -1, n);
}

void taciti_reference_settle(const taciti_reference *reference, const float *apart, float *x, size_t at, size_t n) {
    switch (reference->kind) {
    case TACITI_REFERENCE_GROUP: settle_group(reference, apart, x, at, n); break;
    case TACITI_REFERENCE_PAIR: settle_pair(reference, apart, x, at, n); break;
    case TACITI_REFERENCE_EDGES: settle_edges(reference, apart, x, at, n); break;
    }
}

static void list_array(taciti_references *references, size_t number, const char *name, float *flat, taciti_state *out) {
    taciti_state one = {.count = 0};
    char *stored = references->names[number];
    (void)snprintf(stored, TACITI_REFERENCE_NAME_BYTES, "strategy.%s.%zu", name, number);
    taciti_state_add_array(&one, stored, TACITI_STATE_OWN, TACITI_STATE_RESET, references->layout, flat);
    one.entries[0].optional = true;
    taciti_state_add(out, one.entries[0]);
}

void taciti_references_list(taciti_references *references, const char *prefix, taciti_state *out) {
    for (size_t i = 0; i < references->count; i++) {
        const taciti_reference *reference = &references->all[i];
        list_array(references, 2 * i, prefix, reference->mine, out);
        if (reference->other != NULL) list_array(references, 2 * i + 1, prefix, reference->other, out);
    }
}
