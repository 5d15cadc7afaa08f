/* SPDX-License-Identifier: Apache-2.0
 *
 * The checkpoint format, which holds the whole state of a run:
 *
 *   run/ckpt/step_00000100/manifest.json           written last; names every shard with bytes and XXH3-128
 *   run/ckpt/step_00000100/rank-00000.safetensors  whole tensors, spread over ranks by size
 *
 * A checkpoint is written into a temporary folder, all its files and folders are synced, and the folder is renamed: it
 * exists completely or not at all. The newest `keep` checkpoints are kept; one is removed only after a newer one was
 * verified. Shared arrays do not depend on the number of ranks that wrote them, so any number of ranks can load them.
 * Where ranks differ, each also writes its own arrays under names of its own.
 */
#ifndef TACITI_CKPT_CKPT_H
#define TACITI_CKPT_CKPT_H

#include "comm/comm.h"
#include "tensor/layout.h"
#include "tensor/state.h"

/* An array or bytes of the run, as a checkpoint holds it: an array tensor by tensor as "<prefix><tensor name>" (part.h
 * says how ranges cut a tensor), bytes as "<prefix>". */
typedef struct taciti_ckpt_array {
    const char *prefix;       /* "model.", "optim.m.", "rank.00003.model.", ... */
    taciti_state_entry entry; /* what and where it is; of its name, owner and rules only `optional` counts */
    bool own; /* only this rank holds it, under a prefix that no other rank uses; ignored when loading */
    bool add; /* when loading: adds the stored values to the array */
} taciti_ckpt_array;

typedef struct taciti_ckpt_state {
    const taciti_ckpt_array *arrays;
    size_t array_count;
    const char *meta_json; /* object text: step, updates, configuration, seed, data position, tokenizer, ... */
} taciti_ckpt_state;

/* Writes checkpoint `step` under `folder` ("run/ckpt"). Each rank writes its share of the shared arrays, and its own
 * arrays and ranges, which need a folder that all ranks see. If any rank fails (disk full, ...), all ranks return the
 * error, the checkpoint is removed, and older ones are intact. Collective. */
tacit_status taciti_ckpt_save(taciti_comm *comm, const char *folder, int64_t step, int keep,
                              const taciti_ckpt_state *state);

/* Finds the newest loadable checkpoint under `folder`: verifies checksums, logs damaged files and falls back to the
 * previous checkpoint. path receives its folder, *meta_json the manifest's "meta" object (owned; release with
 * taciti_free()). comm may be NULL (local). Returns E_DATA if the folder has no checkpoint (*step is -1, nothing is
 * logged) or only damaged ones (*step is the newest's; logged). One that this user may not read (E_IO) or that a newer
 * version has written (E_UNSUPPORTED) is not damaged: it ends the search. Collective unless comm is NULL. */
tacit_status taciti_ckpt_find(taciti_comm *comm, const char *folder, char *path, size_t path_bytes, int64_t *step,
                              char **meta_json);

/* The same for one checkpoint folder ("run/ckpt/step_00000100"). Not collective. */
tacit_status taciti_ckpt_check(const char *path, int64_t *step, char **meta_json);

/* Sets *sees to whether this rank finds at `path` the file or folder that rank 0 finds there, and not one of the same
 * name on another host, or neither finds any. Collective unless comm is NULL. */
tacit_status taciti_ckpt_sees(taciti_comm *comm, const char *path, bool *sees);

/* The prefix of arrays that only this rank holds: "rank.00003.<what>". */
enum { TACITI_CKPT_PREFIX_BYTES = 64 };
void taciti_ckpt_own_prefix(int rank, const char *what, char out[TACITI_CKPT_PREFIX_BYTES]);

/* Fills the arrays from a checkpoint found by taciti_ckpt_find(). Every tensor must exist with its shape, whole or in
 * parts that cover the array's range; otherwise the message names both values. Not collective: each rank reads. */
tacit_status taciti_ckpt_load(const char *path, const taciti_ckpt_array *arrays, size_t array_count);

/* Returns the error that taciti_ckpt_load() would before it reads a value. Not collective. */
tacit_status taciti_ckpt_check_arrays(const char *path, const taciti_ckpt_array *arrays, size_t array_count);

/* Finds the size of the bytes saved under this prefix; *held is false if there are none. Not collective. */
tacit_status taciti_ckpt_find_bytes(const char *path, const char *prefix, bool *held, size_t *bytes);

/* held[a]: the checkpoint holds array `a` completely. other[a], false before: it has optional bytes of another size
 * instead, which is an error where `other` is NULL; other mismatches always are. Not collective. */
tacit_status taciti_ckpt_find_held(const char *path, const taciti_ckpt_array *arrays, size_t array_count, bool *held,
                                   bool *other);

#endif
