/* SPDX-License-Identifier: Apache-2.0 */
#define _XOPEN_SOURCE 700
#include "ckpt/ckpt.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/memory.h"
#include "ckpt/manifest.h"
#include "ckpt/part.h"
#include "ckpt/stage.h"

/* ---- without a communicator everything is rank 0's --------------------------------------------------------------- */

static int rank_of(const taciti_comm *comm) { return comm == NULL ? 0 : taciti_comm_rank(comm); }

static int size_of(const taciti_comm *comm) { return comm == NULL ? 1 : taciti_comm_size(comm); }

static tacit_status agree_on(taciti_comm *comm, tacit_status mine) {
    return comm == NULL ? mine : taciti_comm_agree(comm, mine);
}

static tacit_status broadcast_bytes(taciti_comm *comm, void *bytes, size_t count) {
    return comm == NULL ? TACIT_OK : taciti_comm_broadcast(comm, 0, bytes, count);
}

static tacit_status gather_bytes(taciti_comm *comm, const void *bytes, size_t count, void *out) {
    if (comm != NULL) return taciti_comm_allgather(comm, bytes, count, out);
    memcpy(out, bytes, count);
    return TACIT_OK;
}

void taciti_ckpt_own_prefix(int rank, const char *what, char out[TACITI_CKPT_PREFIX_BYTES]) {
    (void)snprintf(out, TACITI_CKPT_PREFIX_BYTES, "rank.%05d.%s", rank, what);
}

/* ---- saving ------------------------------------------------------------------------------------------------------ */

tacit_status taciti_ckpt_sees(taciti_comm *comm, const char *path, bool *sees) {
    struct stat info;
    int64_t mine[3] = {-1}, root[3]; /* its number, and when it was written to */
    if (stat(path, &info) == 0) {
        mine[0] = (int64_t)info.st_ino;
        mine[1] = info.st_mtim.tv_sec;
        mine[2] = info.st_mtim.tv_nsec;
    }
    memcpy(root, mine, sizeof root);
    TACITI_TRY(broadcast_bytes(comm, root, sizeof root));
    *sees = memcmp(mine, root, sizeof root) == 0;
    return TACIT_OK;
}

/* One save. */
typedef struct save_work {
    char tmp[TACITI_PATH_BYTES]; /* where the files are written */
    int *writer;                 /* [ranks] */
    taciti_stage_share *shares;  /* [ranks] */
    int writers;
} save_work;

/* Chooses the ranks that take part: writer[r] is the number of rank r among the ranks that see rank 0's folder, or -1.
 * A host that does not share the folder keeps no share; the others write more. */
static tacit_status choose_writers(taciti_comm *comm, const char *folder, save_work *work) {
    bool same = false;
    TACITI_TRY(taciti_ckpt_sees(comm, work->tmp, &same));
    const int sees = same || rank_of(comm) == 0;
    TACITI_TRY(gather_bytes(comm, &sees, sizeof sees, work->writer));
    for (int r = 0; r < size_of(comm); r++) work->writer[r] = work->writer[r] ? work->writers++ : -1;
    if (rank_of(comm) == 0 && work->writers < size_of(comm))
        taciti_log(TACITI_LOG_WARN, "%s: %d of %d ranks do not share this folder; the others write their part", folder,
                   size_of(comm) - work->writers, size_of(comm));
    return TACIT_OK;
}

/* Nobody else can write what only this rank holds. */
static tacit_status check_own(taciti_comm *comm, const char *folder, const taciti_ckpt_state *state, bool writes) {
    for (size_t a = 0; a < state->array_count && !writes; a++)
        if (taciti_ckpt_part_of_rank(&state->arrays[a]))
            return taciti_fail(TACIT_E_IO,
                               "%s: rank %d on host %s does not share this folder, but every rank must write a part of "
                               "its own; use a --run.dir that all hosts share",
                               folder, rank_of(comm), taciti_comm_peer(comm, rank_of(comm))->host);
    return TACIT_OK;
}

static tacit_status write_shares(taciti_comm *comm, const char *folder, int64_t step, const taciti_ckpt_state *state,
                                 save_work *work) {
    taciti_stage_share mine = {.tensors = 0};
    TACITI_TRY(choose_writers(comm, folder, work));
    const int writer = work->writer[rank_of(comm)];
    tacit_status status = check_own(comm, folder, state, writer >= 0);
    if (status == TACIT_OK && writer >= 0)
        status = taciti_stage_write(work->tmp, step, state, writer, work->writers, &mine);
    TACITI_TRY(agree_on(comm, status));
    TACITI_TRY(gather_bytes(comm, &mine, sizeof mine, work->shares));
    for (int r = 0; r < size_of(comm); r++)
        if (work->writer[r] >= 0) work->shares[work->writer[r]] = work->shares[r];
    return TACIT_OK;
}

static tacit_status save_state(taciti_comm *comm, const char *folder, int64_t step, const taciti_ckpt_state *state,
                               save_work *work) {
    const int root = rank_of(comm) == 0;
    tacit_status status = taciti_stage_path(folder, step, ".tmp", work->tmp);
    if (status != TACIT_OK) work->tmp[0] = '\0'; /* a path that was cut off may be another folder's */
    if (work->writer == NULL || work->shares == NULL) status = TACIT_E_MEMORY;
    if (status == TACIT_OK && root) status = taciti_stage_begin(folder, work->tmp);
    TACITI_TRY(agree_on(comm, status));
    TACITI_TRY(write_shares(comm, folder, step, state, work));
    if (root) status = taciti_stage_commit(folder, work->tmp, step, state->meta_json, work->shares, work->writers);
    return agree_on(comm, status);
}

tacit_status taciti_ckpt_save(taciti_comm *comm, const char *folder, int64_t step, int keep,
                              const taciti_ckpt_state *state) {
    if (step < 0 || keep < 1)
        return taciti_fail(TACIT_E_INTERNAL, "checkpoint: step %" PRId64 " and keep %d are out of range", step, keep);
    const size_t ranks = (size_t)size_of(comm);
    save_work work = {.writer = taciti_calloc(ranks, sizeof *work.writer),
                      .shares = taciti_calloc(ranks, sizeof *work.shares)};
    const tacit_status status = save_state(comm, folder, step, state, &work);
    taciti_free(work.writer);
    taciti_free(work.shares);
    if (rank_of(comm) != 0) return status;
    if (status != TACIT_OK)
        (void)taciti_file_remove(work.tmp);
    else if (taciti_stage_rotate(folder, step, keep) != TACIT_OK)
        taciti_log(TACITI_LOG_WARN, "%s: checkpoint %" PRId64 " is safe, but old ones could not be removed", folder,
                   step);
    return status;
}

/* ---- finding ----------------------------------------------------------------------------------------------------- */

tacit_status taciti_ckpt_check(const char *path, int64_t *step, char **meta_json) {
    taciti_manifest manifest;
    TACITI_TRY(taciti_manifest_read(path, &manifest));
    const tacit_status status = taciti_manifest_verify(path, &manifest);
    if (status == TACIT_OK) {
        *step = manifest.step;
        *meta_json = manifest.meta_json;
        manifest.meta_json = NULL;
    }
    taciti_manifest_destroy(&manifest);
    return status;
}

/* A folder must hold the step that its name says: else a copied or renamed checkpoint would pass for another one. */
static tacit_status check_step(const char *folder, int64_t expected, char *path, char **meta_json) {
    int64_t step = -1;
    TACITI_TRY(taciti_stage_path(folder, expected, "", path));
    TACITI_TRY(taciti_ckpt_check(path, &step, meta_json));
    if (step == expected) return TACIT_OK;
    taciti_free(*meta_json);
    *meta_json = NULL;
    return taciti_fail(TACIT_E_DATA, "%s: holds step %" PRId64, path, step);
}

/* An error that is not about the data, such as no memory, says nothing about a checkpoint, and ends the search. */
static tacit_status find_local(const char *folder, char path[TACITI_PATH_BYTES], int64_t *step, char **meta_json) {
    int64_t *steps = NULL;
    size_t count = 0;
    *step = -1;
    TACITI_TRY(taciti_stage_list(folder, &steps, &count));
    tacit_status status = TACIT_E_DATA;
    for (size_t i = 0; i < count && status == TACIT_E_DATA; i++) {
        status = check_step(folder, steps[i], path, meta_json);
        if (status == TACIT_OK || i == 0) *step = steps[i];
        if (status == TACIT_E_DATA && i + 1 < count)
            taciti_log(TACITI_LOG_WARN, "%s: falling back from step %" PRId64 " to step %" PRId64, folder, steps[i],
                       steps[i + 1]);
    }
    if (count > 0 && status == TACIT_E_DATA)
        status = taciti_fail(TACIT_E_DATA, "%s: none of %zu checkpoints can be loaded", folder, count);
    taciti_free(steps);
    return status;
}

/* Result of rank 0's search, for the others. */
typedef struct found_head {
    int64_t step;
    uint64_t meta_bytes; /* with the final zero */
    int64_t status;
} found_head;

static tacit_status share_meta(taciti_comm *comm, size_t bytes, char **meta_json) {
    if (rank_of(comm) != 0) *meta_json = taciti_calloc(bytes, 1);
    tacit_status status = agree_on(comm, *meta_json == NULL ? TACIT_E_MEMORY : TACIT_OK);
    if (status == TACIT_OK) status = broadcast_bytes(comm, *meta_json, bytes);
    if (status != TACIT_OK) taciti_free(*meta_json);
    return status;
}

tacit_status taciti_ckpt_find(taciti_comm *comm, const char *folder, char *path, size_t path_bytes, int64_t *step,
                              char **meta_json) {
    char found[TACITI_PATH_BYTES] = "", *meta = NULL;
    found_head head = {.step = -1};
    if (rank_of(comm) == 0) {
        head.status = find_local(folder, found, &head.step, &meta);
        if (head.status == TACIT_OK) head.meta_bytes = strlen(meta) + 1;
        if (head.status == TACIT_OK && strlen(found) >= path_bytes)
            head.status = taciti_fail(TACIT_E_IO, "%s: path is longer than %zu bytes", found, path_bytes);
    }
    tacit_status status = broadcast_bytes(comm, &head, sizeof head);
    if (status == TACIT_OK) *step = head.step;
    if (status == TACIT_OK && head.status != TACIT_OK)
        status = agree_on(comm, rank_of(comm) == 0 || head.step < 0 ? (tacit_status)head.status : TACIT_OK);
    if (status == TACIT_OK) status = broadcast_bytes(comm, found, sizeof found);
    if (status != TACIT_OK) {
        taciti_free(meta);
        return status;
    }
    TACITI_TRY(share_meta(comm, (size_t)head.meta_bytes, &meta));
    memcpy(path, found, strlen(found) + 1);
    *meta_json = meta;
    return TACIT_OK;
}
