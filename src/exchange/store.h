/* SPDX-License-Identifier: Apache-2.0
 *
 * The residuals of all buckets (residual.h), as arrays of the layout's flat array.
 */
#ifndef TACITI_EXCHANGE_STORE_H
#define TACITI_EXCHANGE_STORE_H

#include "exchange/allreduce.h"
#include "tensor/layout.h"
#include "tensor/state.h"

typedef struct taciti_store {
    const taciti_layout *layout;                   /* borrows */
    taciti_residual *all;                          /* [bucket_count]; NULL: nothing is stored. Owned, like the next */
    taciti_pages pages[TACITI_RESIDUAL_ARRAYS][2]; /* both versions of every array */
    taciti_pages scratch;                          /* of narrow forms, for all buckets: one is encoded at a time */
    taciti_residual_form form;
} taciti_store;

/* reduce: who encodes what; NULL: every rank encodes whole buckets, and nobody encodes results. Not collective. */
tacit_status taciti_store_create(const taciti_allreduce *reduce, const taciti_layout *layout, taciti_feedback feedback,
                                 taciti_store *out);
void taciti_store_destroy(taciti_store *store);

/* Predicts the bytes that a store will write to on this rank. Untouched pages have no memory, so they do not count. */
size_t taciti_store_predict_bytes(const taciti_allreduce *reduce, const taciti_layout *layout,
                                  taciti_feedback feedback);

/* Commits (taken) or drops the step of all buckets. */
void taciti_store_settle(taciti_store *store, bool taken);

/* Returns the committed content of an array, floats of the flat array. NULL: there is none, or it is stored in a narrow
 * form. The content may be replaced between two steps, with taciti_store_restored() afterwards. */
float *taciti_store_array(const taciti_store *store, taciti_residual_array which);
void taciti_store_restored(taciti_store *store);

/* Errors in a narrow form, whose floats at .. at + n of the flat array can be read and written instead, for
 * checkpoints. Returns false if there are none. Borrows the store, which must not move. */
bool taciti_store_narrow(taciti_store *store, taciti_residual_array which, taciti_state_access *out);

#endif
