/* SPDX-License-Identifier: Apache-2.0
 *
 * Saves a table of state (tensor/state.h) in a checkpoint and restores it. Entries are saved under their names:
 *
 *   arrays and bytes    tensors "<name>.<tensor>" and "<name>"; those of rank 3 alone "rank.00003.<name>.<tensor>"
 *   numbers and counts  members of the description: "<name>"; those of rank 3 alone "replicas"[3]."<name>"
 *
 * Only this file applies the rule `regroup` of the entries on another number of ranks.
 */
#ifndef TACITI_CKPT_STATE_H
#define TACITI_CKPT_STATE_H

#include <jansson.h>

#include "ckpt/ckpt.h"
#include "tensor/state.h"

/* How a run continues. */
typedef enum taciti_resumption {
    TACITI_RESUME_EXACTLY,   /* on as many ranks as saved it: restores every entry */
    TACITI_RESUME_REGROUPED, /* on another number of ranks: applies the rule of a rank's own entries */
    TACITI_RESUME_FROM_MEAN, /* restores only entries with TACITI_STATE_MEAN */
} taciti_resumption;

/* A checkpoint as rank `rank` of `ranks` sees it. Borrows all. */
typedef struct taciti_ckpt_origin {
    const char *path;
    const json_t *meta; /* its description, as taciti_ckpt_find() returned it */
    int rank, ranks;
    taciti_resumption resumption;
} taciti_ckpt_origin;

/* Writes checkpoint `step`, as taciti_ckpt_save() does. `meta`, an object, receives the numbers and counts; it must
 * have no members of their names. The same names on every rank. comm may be NULL (one rank). Collective. */
tacit_status taciti_ckpt_save_state(taciti_comm *comm, const char *folder, int64_t step, int keep, json_t *meta,
                                    const taciti_state *state);

/* Finds the number of ranks that saved their own values; 0 if all was shared. Returns E_DATA if their list is damaged.
 */
tacit_status taciti_ckpt_former_ranks(const taciti_ckpt_origin *from, int *out);

/* Finds the first array or bytes that the table needs and the checkpoint lacks, the same on every rank; NULL if it has
 * all. Not collective. */
tacit_status taciti_ckpt_find_lacking(const taciti_ckpt_origin *from, const taciti_state *state,
                                      const taciti_state_entry **out);

/* Restores the entries. Each must exist in the checkpoint unless `regroup` leaves it unchanged. Not collective: each
 * rank reads. */
tacit_status taciti_ckpt_restore_state(const taciti_ckpt_origin *from, const taciti_state *state);

#endif
