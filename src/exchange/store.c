/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/store.h"

#include <string.h>

#include "base/number.h"
#include "kernel/kernel.h"

enum { LINE = TACITI_LINE8_N, CHUNK = 4096 };

static taciti_residual residual_of(const taciti_allreduce *reduce, size_t n, taciti_feedback feedback) {
    if (reduce != NULL) return taciti_allreduce_residual(reduce, n, feedback);
    return (taciti_residual){.encodes = true, .feedback = feedback};
}

/* Returns the bytes of one version of an array for all buckets. Buckets are multiples of 64 bytes, so floats lie as in
 * the flat array. */
static size_t version_bytes(const taciti_allreduce *reduce, const taciti_layout *layout, taciti_feedback feedback,
                            taciti_residual_array which) {
    size_t bytes = 0;
    for (size_t b = 0; b < layout->bucket_count; b++) {
        const taciti_residual one = residual_of(reduce, layout->buckets[b].n, feedback);
        bytes += taciti_residual_bytes(&one, which, layout->buckets[b].n);
    }
    return bytes;
}

static size_t padded_n(size_t n) { return taciti_round_up(n, LINE); }

/* Floats of scratch memory: of the longest range that is one encoding. Without `reduce` that is a bucket. */
static size_t scratch_n(const taciti_allreduce *reduce, const taciti_layout *layout, taciti_feedback feedback) {
    size_t n = 0;
    if (!feedback.errors || feedback.stored == TACITI_RESIDUAL_F32) return 0;
    for (size_t b = 0; b < layout->bucket_count; b++)
        if (padded_n(layout->buckets[b].n) > n) n = padded_n(layout->buckets[b].n);
    if (reduce == NULL || reduce->ranges_at_once) return n;
    return taciti_min(n, padded_n(reduce->wire_shape.range_n));
}

/* Returns the bytes that this rank writes to both versions of an array of floats, or errors: ranges it encodes, or
 * owns. */
static size_t touched_bytes(const taciti_allreduce *reduce, const taciti_layout *layout, taciti_residual_form form,
                            taciti_residual_array which) {
    size_t bytes = 0;
    taciti_range r;
    if (reduce == NULL) return 2 * taciti_residual_form_bytes(form, layout->n);
    for (size_t b = 0; b < layout->bucket_count; b++)
        for (size_t i = 0; which == TACITI_RESIDUAL_RESULT
                               ? !reduce->gather && taciti_allreduce_owned(reduce, layout->buckets[b].n, i, &r)
                               : taciti_allreduce_encoded(reduce, layout->buckets[b].n, i, &r);
             i++)
            bytes += taciti_residual_form_bytes(form, r.n);
    return 2 * bytes;
}

size_t taciti_store_predict_bytes(const taciti_allreduce *reduce, const taciti_layout *layout,
                                  taciti_feedback feedback) {
    size_t bytes = 0;
    for (int a = 0; a < TACITI_RESIDUAL_ARRAYS; a++)
        if (version_bytes(reduce, layout, feedback, (taciti_residual_array)a) > 0)
            bytes += touched_bytes(reduce, layout, feedback.stored, (taciti_residual_array)a);
    return bytes == 0 ? 0 : bytes + scratch_n(reduce, layout, feedback) * sizeof(float);
}

/* Where an array is written in parts only, huge pages would need memory for the gaps. */
static tacit_status create_pages(taciti_store *store, const taciti_allreduce *reduce, taciti_feedback feedback) {
    const bool whole = reduce == NULL || reduce->arrangement.lanes == 1;
    for (int a = 0; a < TACITI_RESIDUAL_ARRAYS; a++) {
        const size_t bytes = version_bytes(reduce, store->layout, feedback, (taciti_residual_array)a);
        const bool small = a == TACITI_RESIDUAL_RESULT || !whole;
        for (int version = 0; version < 2 && bytes > 0; version++)
            TACITI_TRY((small ? taciti_pages_create_small : taciti_pages_create)(bytes, "the residuals of the exchange",
                                                                                 &store->pages[a][version]));
    }
    const size_t scratch = scratch_n(reduce, store->layout, feedback) * sizeof(float);
    return scratch == 0 ? TACIT_OK : taciti_pages_create_small(scratch, "residuals on their way", &store->scratch);
}

static void open_buckets(taciti_store *store, const taciti_allreduce *reduce, taciti_feedback feedback) {
    size_t at[TACITI_RESIDUAL_ARRAYS] = {0};
    for (size_t b = 0; b < store->layout->bucket_count; b++) {
        taciti_residual *one = &store->all[b];
        *one = residual_of(reduce, store->layout->buckets[b].n, feedback);
        one->layout = store->layout;
        one->bucket = b;
        one->scratch = store->scratch.base;
        one->scratch_n = store->scratch.bytes / sizeof(float);
        one->scratch_is_bucket = reduce == NULL || reduce->ranges_at_once;
        for (int a = 0; a < TACITI_RESIDUAL_ARRAYS; a++) {
            taciti_versions *v = &one->arrays[a];
            v->bytes = taciti_residual_bytes(one, (taciti_residual_array)a, store->layout->buckets[b].n);
            for (int i = 0; i < 2 && v->bytes > 0; i++) v->at[i] = (char *)store->pages[a][i].base + at[a];
            at[a] += v->bytes;
        }
    }
}

tacit_status taciti_store_create(const taciti_allreduce *reduce, const taciti_layout *layout, taciti_feedback feedback,
                                 taciti_store *out) {
    *out = (taciti_store){.layout = layout, .form = feedback.stored};
    size_t bytes = 0;
    for (int a = 0; a < TACITI_RESIDUAL_ARRAYS; a++)
        bytes += version_bytes(reduce, layout, feedback, (taciti_residual_array)a);
    if (bytes == 0) return TACIT_OK;
    out->all = taciti_calloc(layout->bucket_count, sizeof *out->all);
    const tacit_status status = out->all == NULL ? TACIT_E_MEMORY : create_pages(out, reduce, feedback);
    if (status == TACIT_OK)
        open_buckets(out, reduce, feedback);
    else
        taciti_store_destroy(out);
    return status;
}

void taciti_store_destroy(taciti_store *store) {
    taciti_free(store->all);
    for (int a = 0; a < TACITI_RESIDUAL_ARRAYS; a++)
        for (int version = 0; version < 2; version++) taciti_pages_destroy(&store->pages[a][version]);
    taciti_pages_destroy(&store->scratch);
    *store = (taciti_store){0};
}

/* All buckets keep the same version of an array, so that it is one flat array for checkpoints. */
void taciti_store_settle(taciti_store *store, bool taken) {
    bool swap[TACITI_RESIDUAL_ARRAYS] = {false};
    const size_t buckets = store->all == NULL ? 0 : store->layout->bucket_count;
    for (size_t b = 0; b < buckets; b++)
        for (int a = 0; a < TACITI_RESIDUAL_ARRAYS; a++) swap[a] = swap[a] || store->all[b].arrays[a].written;
    for (size_t b = 0; b < buckets; b++)
        if (taken)
            taciti_residual_commit(&store->all[b], swap);
        else
            taciti_residual_drop(&store->all[b]);
}

float *taciti_store_array(const taciti_store *store, taciti_residual_array which) {
    if (store->all == NULL || store->form != TACITI_RESIDUAL_F32 || store->pages[which][0].bytes == 0) return NULL;
    return store->pages[which][store->all[0].arrays[which].now].base;
}

/* Where nothing is encoded, the run that goes on had no residuals: adding zeros would turn -0 into 0. */
static bool has_values(const taciti_versions *v, bool encodes) {
    const char *at = v->at[v->now];
    return v->bytes > 0 && (encodes || at[0] != 0 || memcmp(at, at + 1, v->bytes - 1) != 0);
}

void taciti_store_restored(taciti_store *store) {
    for (size_t b = 0; store->all != NULL && b < store->layout->bucket_count; b++)
        for (int a = 0; a < TACITI_RESIDUAL_ARRAYS; a++) {
            taciti_versions *v = &store->all[b].arrays[a];
            v->held[v->now] = has_values(v, store->all[b].encodes);
        }
}

/* ---- narrow forms as floats -------------------------------------------------------------------------------------- */
/* Whole lines of a bucket, of which floats `skip` .. skip + take are wanted. */
typedef struct span {
    void *stored;
    size_t first, n, skip, take;
} span;

/* The lines that hold float `at` of the flat array and up to n - 1 behind it. */
static span span_at(const taciti_store *store, int which, size_t at, size_t n) {
    const taciti_bucket *b = store->layout->buckets;
    while (at >= b->offset + b->n) b++;
    const taciti_versions *v = &store->all[b - store->layout->buckets].arrays[which];
    span s = {.stored = v->at[v->now], .skip = (at - b->offset) % LINE};
    s.first = at - b->offset - s.skip;
    s.n = taciti_min(taciti_min(padded_n(s.skip + n), CHUNK), b->n - s.first);
    s.take = taciti_min(n, s.n - s.skip);
    return s;
}

static void read_floats(void *object, int which, size_t at, float *out, size_t n) {
    const taciti_store *store = object;
    float lines[CHUNK];
    for (size_t done = 0; done < n;) {
        const span s = span_at(store, which, at + done, n - done);
        taciti_residual_widen(store->form, s.stored, s.first, lines, s.n);
        memcpy(out + done, lines + s.skip, s.take * sizeof *out);
        done += s.take;
    }
}

static void write_floats(void *object, int which, size_t at, const float *x, size_t n) {
    const taciti_store *store = object;
    float lines[CHUNK];
    for (size_t done = 0; done < n;) {
        const span s = span_at(store, which, at + done, n - done);
        taciti_residual_widen(store->form, s.stored, s.first, lines, s.n);
        memcpy(lines + s.skip, x + done, s.take * sizeof *x);
        taciti_residual_narrow(store->form, s.stored, s.first, lines, s.n);
        done += s.take;
    }
}

bool taciti_store_narrow(taciti_store *store, taciti_residual_array which, taciti_state_access *out) {
    if (store->all == NULL || store->form == TACITI_RESIDUAL_F32 || store->pages[which][0].bytes == 0) return false;
    *out = (taciti_state_access){.object = store, .which = (int)which, .read = read_floats, .write = write_floats};
    return true;
}
