/* SPDX-License-Identifier: Apache-2.0
 *
 * The local steps of writing a checkpoint, in the order in which taciti_ckpt_save() takes them:
 *
 *   begin   one rank    removes what interrupted saves left, creates step_XXXXXXXX.tmp
 *   write   every rank  writes its share and reads it back
 *   commit  one rank    writes the manifest, renames the folder
 *   rotate  one rank    removes the oldest
 *
 * None is collective; a "writer" is a rank that can see the folder. tmp: taciti_stage_path() with ".tmp", which is
 * removed if a step fails.
 */
#ifndef TACITI_CKPT_STAGE_H
#define TACITI_CKPT_STAGE_H

#include "base/file.h"
#include "ckpt/ckpt.h"
#include "ckpt/manifest.h"

/* folder/step_XXXXXXXX plus suffix ("" or ".tmp"). */
tacit_status taciti_stage_path(const char *folder, int64_t step, const char *suffix, char path[TACITI_PATH_BYTES]);

/* Lists the steps of all checkpoints in `folder`, newest first; none if it does not exist. Returns owned; release with
 * taciti_free(). */
tacit_status taciti_stage_list(const char *folder, int64_t **out, size_t *count);

tacit_status taciti_stage_begin(const char *folder, const char *tmp);

/* Assigns `count` pieces to writers: largest first, each to the writer with the fewest bytes so far. */
tacit_status taciti_stage_assign(const size_t *sizes, size_t count, int writers, int *owner);

/* A share as its writer describes it; tensors == 0: nothing to write, no file. */
typedef taciti_manifest_file taciti_stage_share;

tacit_status taciti_stage_write(const char *tmp, int64_t step, const taciti_ckpt_state *state, int writer, int writers,
                                taciti_stage_share *out);

tacit_status taciti_stage_commit(const char *folder, const char *tmp, int64_t step, const char *meta_json,
                                 const taciti_stage_share *shares, int writers);

/* Renames checkpoints of later steps, which cannot be loaded, to step_XXXXXXXX.damaged: the newest is that of `step`,
 * from which a run goes on, and what cannot be loaded is none of those that a run keeps. */
void taciti_stage_set_aside(const char *folder, int64_t step);

/* Keeps `step`, which has just been verified, and the newest keep - 1 complete ones before it. Does not touch later
 * steps, which remain if a run was resumed from an earlier step: the run replaces them when it reaches them. */
tacit_status taciti_stage_rotate(const char *folder, int64_t step, int keep);

#endif
