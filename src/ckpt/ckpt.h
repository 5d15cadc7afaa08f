/* SPDX-License-Identifier: Apache-2.0
 *
 * One checkpoint format for everything a run must remember:
 *
 *   run/ckpt/step_00000100/manifest.json           written last; names every shard with bytes and XXH3-128
 *   run/ckpt/step_00000100/rank-00000.safetensors  whole tensors, spread over ranks by size
 *
 * A checkpoint is written into a temporary folder, every file and folder is synced, then renamed: it exists completely
 * or not at all. The newest `keep` are kept and one is only removed after a newer one was verified. What all ranks
 * share does not depend on how many ranks wrote it, so any number of ranks can load it. Where ranks differ, each writes
 * arrays of its own besides, under names of its own.
 */
#ifndef TACITI_CKPT_CKPT_H
#define TACITI_CKPT_CKPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/comm.h"
#include "tensor/layout.h"

/* A named array of the run: a flat array that `layout` describes, or a range of one, saved tensor by tensor as
 * "<prefix><tensor name>" (part.h says how a tensor is cut); or, with layout NULL, bytes saved as "<prefix>". */
typedef struct taciti_ckpt_array {
    const char *prefix; /* "model.", "optim.m.", "rank.00003.model.", ... */
    const taciti_layout *layout;
    float *flat;     /* of a range: its first float */
    bool own;        /* only this rank holds it, under a prefix that no other rank uses; when loading not looked at */
    bool add;        /* when loading: what is stored is added to what is there */
    size_t begin, n; /* the range: floats [begin, begin + n); n == 0: all. Of bytes: n */
    void *bytes;
} taciti_ckpt_array;

typedef struct taciti_ckpt_state {
    const taciti_ckpt_array *arrays;
    size_t array_count;
    const char *meta_json; /* object text: step, updates, configuration, seed, data position, tokenizer, ... */
} taciti_ckpt_state;

/* Writes checkpoint `step` under `folder` ("run/ckpt"). Of the arrays that all ranks hold each writes its share, and
 * its own ones and its ranges whole; these need a folder that every rank shares. On any rank's failure (disk full, ...)
 * all ranks return the error, nothing of it remains, and older ones are intact. Collective. */
tacit_status taciti_ckpt_save(taciti_comm *comm, const char *folder, int64_t step, int keep,
                              const taciti_ckpt_state *state);

/* Newest loadable checkpoint under `folder`: verifies checksums, names damaged files and falls back to the one before.
 * path receives its folder, *meta_json the manifest's "meta" object (owned; taciti_free()). comm may be NULL (local).
 * E_DATA when the folder holds none (*step is -1; nothing is logged, as that may be fine) or only damaged ones (*step
 * is the newest's; logged). Collective when comm is given. */
tacit_status taciti_ckpt_find(taciti_comm *comm, const char *folder, char *path, size_t path_bytes, int64_t *step,
                              char **meta_json);

/* The same for one checkpoint folder ("run/ckpt/step_00000100"). Not collective. */
tacit_status taciti_ckpt_check(const char *path, int64_t *step, char **meta_json);

/* The prefix of arrays that only this rank holds: "rank.00003.<what>". */
enum { TACITI_CKPT_PREFIX_BYTES = 64 };
void taciti_ckpt_own_prefix(int rank, const char *what, char out[TACITI_CKPT_PREFIX_BYTES]);

/* Fills the arrays from a checkpoint found by taciti_ckpt_find(). Every tensor must be there with its shape, whole or
 * in pieces that cover the array's range; both values are named when not. Not collective: each rank reads. */
tacit_status taciti_ckpt_load(const char *path, const taciti_ckpt_array *arrays, size_t array_count);

/* Size of the bytes saved under this prefix; *held false: there are none. Not collective. */
tacit_status taciti_ckpt_find_bytes(const char *path, const char *prefix, bool *held, size_t *bytes);

/* held[a]: the checkpoint holds array `a` completely. Not collective. */
tacit_status taciti_ckpt_find_held(const char *path, const taciti_ckpt_array *arrays, size_t array_count, bool *held);

#endif
