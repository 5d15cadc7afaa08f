/* SPDX-License-Identifier: Apache-2.0
 *
 * A table of state (tensor/state.h) in a checkpoint, and out of it again. Entries are saved under their names:
 *
 *   arrays and bytes    tensors "<name>.<tensor>" and "<name>"; those of rank 3 alone "rank.00003.<name>.<tensor>"
 *   numbers and counts  members of the description: "<name>"; those of rank 3 alone "replicas"[3]."<name>"
 *
 * What becomes of the entries on another number of ranks is decided here, by their `regroup`, and nowhere else.
 */
#ifndef TACITI_CKPT_STATE_H
#define TACITI_CKPT_STATE_H

#include <jansson.h>

#include "ckpt/ckpt.h"
#include "tensor/state.h"

/* How a run goes on. */
typedef enum taciti_resumption {
    TACITI_RESUME_EXACTLY,   /* on as many ranks as had saved: every entry as it was */
    TACITI_RESUME_REGROUPED, /* on another number of ranks: a rank's own entries go by their rule */
    TACITI_RESUME_FROM_MEAN, /* entries with TACITI_STATE_MEAN alone; all others stay as they are */
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

/* Ranks that had values of their own; 0: all was shared. E_DATA: the list of them is damaged. */
tacit_status taciti_ckpt_former_ranks(const taciti_ckpt_origin *from, int *out);

/* The first array or bytes that the table needs and the checkpoint lacks, the same on every rank; NULL: it has all. Not
 * collective. */
tacit_status taciti_ckpt_find_lacking(const taciti_ckpt_origin *from, const taciti_state *state,
                                      const taciti_state_entry **out);

/* Fills the entries. Each must be there, but for those that `regroup` leaves as they are; TACITI_STATE_REFUSE on
 * another number of ranks is E_CONFIG. Not collective: each rank reads. */
tacit_status taciti_ckpt_restore_state(const taciti_ckpt_origin *from, const taciti_state *state);

#endif
