/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/store.h"

static taciti_residual residual_of(const taciti_allreduce *reduce, size_t n, taciti_feedback feedback) {
    if (reduce != NULL) return taciti_allreduce_residual(reduce, n, feedback);
    return (taciti_residual){.pieces = 1, .members = 1, .feedback = feedback, .lasting = true};
}

/* Of one version of an array, all buckets together. Buckets are multiples of 64 bytes, so floats lie as in the flat
 * array. */
static size_t version_bytes(const taciti_allreduce *reduce, const taciti_layout *layout, taciti_feedback feedback,
                            taciti_residual_array which) {
    size_t bytes = 0;
    for (size_t b = 0; b < layout->bucket_count; b++) {
        const taciti_residual one = residual_of(reduce, layout->buckets[b].n, feedback);
        bytes += taciti_residual_bytes(&one, which, layout->buckets[b].n);
    }
    return bytes;
}

/* Of both versions of an array of floats: what this rank encodes, or owns. */
static size_t touched_bytes(const taciti_allreduce *reduce, const taciti_layout *layout, taciti_residual_array which) {
    size_t bytes = 0;
    taciti_range r;
    if (reduce == NULL) return 2 * layout->n * sizeof(float);
    for (size_t b = 0; b < layout->bucket_count; b++)
        for (size_t i = 0; which == TACITI_RESIDUAL_RESULT
                               ? !reduce->gather && taciti_allreduce_owned(reduce, layout->buckets[b].n, i, &r)
                               : taciti_allreduce_encoded(reduce, layout->buckets[b].n, i, &r);
             i++)
            bytes += r.n * sizeof(float);
    return 2 * bytes;
}

size_t taciti_store_predict_bytes(const taciti_allreduce *reduce, const taciti_layout *layout,
                                  taciti_feedback feedback) {
    size_t bytes = 2 * version_bytes(reduce, layout, feedback, TACITI_RESIDUAL_STATE);
    for (int a = 0; a < TACITI_RESIDUAL_STATE; a++)
        if (version_bytes(reduce, layout, feedback, (taciti_residual_array)a) > 0)
            bytes += touched_bytes(reduce, layout, (taciti_residual_array)a);
    return bytes;
}

/* Where an array is written in parts only, huge pages would need memory for the gaps. */
static tacit_status create_pages(taciti_store *store, const taciti_allreduce *reduce, taciti_feedback feedback) {
    const bool whole = reduce == NULL || reduce->arrangement.lanes == 1;
    for (int a = 0; a < TACITI_RESIDUAL_ARRAYS; a++) {
        const size_t bytes = version_bytes(reduce, store->layout, feedback, (taciti_residual_array)a);
        const bool small = a == TACITI_RESIDUAL_RESULT || (a < TACITI_RESIDUAL_STATE && !whole);
        for (int version = 0; version < 2 && bytes > 0; version++)
            TACITI_TRY((small ? taciti_pages_create_small : taciti_pages_create)(bytes, "the residuals of the exchange",
                                                                                 &store->pages[a][version]));
    }
    return TACIT_OK;
}

static void open_buckets(taciti_store *store, const taciti_allreduce *reduce, taciti_feedback feedback) {
    size_t at[TACITI_RESIDUAL_ARRAYS] = {0};
    for (size_t b = 0; b < store->layout->bucket_count; b++) {
        taciti_residual *one = &store->all[b];
        *one = residual_of(reduce, store->layout->buckets[b].n, feedback);
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
    *out = (taciti_store){.layout = layout};
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

void *taciti_store_array(const taciti_store *store, taciti_residual_array which, size_t *bytes) {
    *bytes = store->all == NULL ? 0 : store->pages[which][0].bytes;
    return *bytes == 0 ? NULL : store->pages[which][store->all[0].arrays[which].now].base;
}

void taciti_store_restored(taciti_store *store) {
    for (size_t b = 0; store->all != NULL && b < store->layout->bucket_count; b++)
        for (int a = 0; a < TACITI_RESIDUAL_ARRAYS; a++) {
            taciti_versions *v = &store->all[b].arrays[a];
            v->held[v->now] = v->bytes > 0;
        }
}
