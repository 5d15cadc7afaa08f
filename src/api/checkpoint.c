/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints of a job: the table of state that its strategy lists, the model and the caller's blobs.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "api/object.h"
#include "base/file.h"
#include "ckpt/pack.h"
#include "driver/resume.h"

enum { MAX_BLOBS = 32, BLOB_NAME_BYTES = 40 };

/* The table, and the names of blobs in it. */
typedef struct table {
    taciti_state state;
    char names[MAX_BLOBS][TACITI_STATE_NAME_BYTES];
} table;

/* ---- blobs ------------------------------------------------------------------------------------------------------- */

static tacit_status check_name(const char *name) {
    static const char LEGAL[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    const size_t length = name == NULL ? 0 : strlen(name);
    if (length > 0 && length < BLOB_NAME_BYTES && strspn(name, LEGAL) == length) return TACIT_OK;
    return taciti_fail(TACIT_E_USAGE, "blob \"%.80s\": a name has 1 to %d letters, digits, '_', '-' or '.'",
                       name == NULL ? "" : name, BLOB_NAME_BYTES - 1);
}

static tacit_status check_blob(const tacit_blob *blob, bool loading) {
    TACITI_TRY(check_name(blob->name));
    if (blob->bytes != NULL || (loading && blob->room != NULL)) return TACIT_OK;
    return taciti_fail(TACIT_E_USAGE, "blob %s: its bytes are at NULL%s", blob->name,
                       loading ? ", and it has no function room()" : "");
}

/* Copies the list of a caller whose structs may have another size. */
static tacit_status read_blobs(const tacit_blob *list, size_t count, bool loading, tacit_blob out[MAX_BLOBS]) {
    if (count > MAX_BLOBS) return taciti_fail(TACIT_E_USAGE, "%zu blobs; %d is the maximum", count, MAX_BLOBS);
    if (count > 0) TACITI_TRY(taciti_argument_check(list, "blobs"));
    const char *at = (const char *)list;
    for (size_t i = 0; i < count; at += out[i++].size) {
        TACITI_TRY(taciti_struct_read(at, "tacit_blob", sizeof *out, &out[i]));
        if (out[i].size != out[0].size)
            return taciti_fail(TACIT_E_USAGE, "tacit_blob: blob 0 has size %zu, blob %zu size %zu", out[0].size, i,
                               out[i].size);
        TACITI_TRY(check_blob(&out[i], loading));
        for (size_t j = 0; j < i; j++)
            if (strcmp(out[i].name, out[j].name) == 0)
                return taciti_fail(TACIT_E_USAGE, "blob %s stands twice in the list", out[i].name);
    }
    return TACIT_OK;
}

static void write_blobs(const tacit_blob *from, size_t count, tacit_blob *list) {
    for (size_t i = 0; i < count; i++) taciti_struct_write(&from[i], sizeof *from, (char *)list + i * from[0].size);
}

static void add_blob(table *t, size_t index, const tacit_blob *blob) {
    (void)snprintf(t->names[index], sizeof t->names[index], "blob.%s", blob->name);
    taciti_state_add(&t->state, (taciti_state_entry){.name = t->names[index],
                                                     .kind = TACITI_STATE_BYTES,
                                                     .owner = blob->own ? TACITI_STATE_OWN : TACITI_STATE_SHARED,
                                                     .regroup = blob->own ? TACITI_STATE_RESET : TACITI_STATE_MEAN,
                                                     .data = blob->bytes,
                                                     .n = blob->count});
}

/* ---- save -------------------------------------------------------------------------------------------------------- */

/* Skipped steps of a rank whose replica is its own; ranks of another number take the mean. Other strategies read the
 * description. */
static void add_skipped(taciti_state *state, int64_t *skipped) {
    taciti_state_add(state, (taciti_state_entry){.name = "skipped",
                                                 .kind = TACITI_STATE_COUNT,
                                                 .owner = TACITI_STATE_OWN,
                                                 .regroup = TACITI_STATE_MEAN,
                                                 .data = skipped,
                                                 .optional = true});
}

/* Which rank writes what follows from the sizes of all that is shared. */
static tacit_status agree_on_blobs(taciti_comm *comm, const tacit_blob *blobs, size_t count) {
    char what[64], text[64];
    (void)snprintf(text, sizeof text, "%zu", count);
    TACITI_TRY(taciti_comm_agree_text(comm, "number of blobs", text));
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(what, sizeof what, "blob %zu", i);
        TACITI_TRY(taciti_comm_agree_text(comm, what, blobs[i].name));
        (void)snprintf(what, sizeof what, "blob %s", blobs[i].name);
        (void)snprintf(text, sizeof text, "%zu bytes, the same on all ranks", blobs[i].count);
        TACITI_TRY(taciti_comm_agree_text(comm, what, blobs[i].own ? "bytes of each rank's own" : text));
    }
    return TACIT_OK;
}

static tacit_status save_mean(tacit_job *job, const char *folder, int keep, const tacit_blob *blobs, size_t count) {
    table t = {.state.count = 0};
    taciti_driver_list_state(job->driver, true, &t.state);
    for (size_t i = 0; i < count; i++) add_blob(&t, i, &blobs[i]);
    if (job->strategy->replicas != NULL) add_skipped(&t.state, &job->skipped);
    json_t *config = json_loads(job->config, 0, NULL);
    json_t *meta = config == NULL ? NULL
                                  : json_pack("{s:I,s:I,s:i,s:s,s:o}", "step", (json_int_t)job->step, "skipped",
                                              (json_int_t)job->skipped, "ranks", taciti_comm_size(job->comm->comm),
                                              "strategy", job->strategy->name, "config", config);
    tacit_status status = taciti_comm_agree(job->comm->comm, meta == NULL ? TACIT_E_MEMORY : TACIT_OK);
    if (status == TACIT_OK) status = taciti_ckpt_save_state(job->comm->comm, folder, job->step, keep, meta, &t.state);
    json_decref(meta);
    return status;
}

tacit_status tacit_job_save(tacit_job *job, const char *folder, int keep, const tacit_blob *blobs, size_t blob_count) {
    double distance = 0;
    tacit_blob mine[MAX_BLOBS];
    TACITI_TRY(taciti_handle_check(job, TACITI_HANDLE_JOB));
    TACITI_TRY(taciti_argument_check(folder, "folder"));
    if (keep < 1) return taciti_fail(TACIT_E_USAGE, "tacit_job_save: keep %d checkpoints; 1 is the minimum", keep);
    TACITI_TRY(taciti_job_enter(job, TACITI_JOB_BETWEEN, TACITI_JOB_AVERAGED, "tacit_job_save"));
    taciti_comm_announce(job->comm->comm, job->step, "checkpoint");
    taciti_api_log_together(job->comm);
    tacit_status status = taciti_comm_agree_step(job->comm->comm, job->step);
    if (status == TACIT_OK) status = taciti_comm_agree(job->comm->comm, read_blobs(blobs, blob_count, false, mine));
    if (status == TACIT_OK) status = agree_on_blobs(job->comm->comm, mine, blob_count);
    if (status == TACIT_OK) status = taciti_driver_average(job->driver, &distance);
    if (status == TACIT_OK) status = save_mean(job, folder, keep, mine, blob_count);
    if (job->before == TACITI_JOB_BETWEEN) taciti_driver_revert(job->driver);
    taciti_api_log_alone();
    return taciti_job_leave(job, job->before, status);
}

/* ---- load -------------------------------------------------------------------------------------------------------- */

static tacit_status read_count(const char *path, const json_t *meta, const char *key, int64_t *out) {
    const json_t *value = json_object_get(meta, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return taciti_fail(TACIT_E_DATA, "%s: \"%s\" is missing from its description", path, key);
    *out = (int64_t)json_integer_value(value);
    return TACIT_OK;
}

/* The room that was made holds zeros, as what it holds is put aside. */
static tacit_status ask_for_room(const taciti_ckpt_origin *from, size_t bytes, tacit_blob *blob) {
    if (blob->bytes != NULL) return TACIT_OK;
    blob->bytes = blob->room(blob->context, bytes);
    if (bytes == 0) return TACIT_OK;
    if (blob->bytes == NULL)
        return taciti_fail(TACIT_E_MEMORY, "%s: the caller has no room for the %zu bytes of blob %s", from->path, bytes,
                           blob->name);
    memset(blob->bytes, 0, bytes);
    return TACIT_OK;
}

/* Warns about a blob of each rank's own that this load does not take. */
static tacit_status warn_of_lost(const taciti_ckpt_origin *from, const tacit_blob *blob) {
    char name[BLOB_NAME_BYTES + 8], prefix[TACITI_CKPT_PREFIX_BYTES];
    size_t bytes = 0;
    bool held = false;
    if (from->rank != 0) return TACIT_OK;
    (void)snprintf(name, sizeof name, "blob.%s", blob->name);
    taciti_ckpt_own_prefix(0, name, prefix);
    TACITI_TRY(taciti_ckpt_find_bytes(from->path, prefix, &held, &bytes));
    if (held)
        taciti_log(TACITI_LOG_WARN,
                   "%s: blob %s is each rank's own, and neither another number of ranks nor another strategy takes it",
                   from->path, blob->name);
    return TACIT_OK;
}

/* Adds the blob where the checkpoint has it for this rank. */
static tacit_status find_blob(const taciti_ckpt_origin *from, table *t, size_t index, tacit_blob *blob) {
    char prefix[TACITI_CKPT_PREFIX_BYTES];
    size_t bytes = 0;
    bool held = false;
    if (blob->own && from->resumption != TACITI_RESUME_EXACTLY) return warn_of_lost(from, blob);
    (void)snprintf(t->names[index], sizeof t->names[index], "blob.%s", blob->name);
    (void)snprintf(prefix, sizeof prefix, "%s", t->names[index]);
    if (blob->own) taciti_ckpt_own_prefix(from->rank, t->names[index], prefix);
    TACITI_TRY(taciti_ckpt_find_bytes(from->path, prefix, &held, &bytes));
    if (!held) return TACIT_OK;
    if (blob->bytes != NULL && bytes != blob->count)
        return taciti_fail(TACIT_E_DATA, "%s: blob %s has %zu bytes there, room is for %zu", from->path, blob->name,
                           bytes, blob->count);
    TACITI_TRY(ask_for_room(from, bytes, blob));
    blob->count = bytes;
    if (bytes > 0) add_blob(t, index, blob);
    blob->loaded = true;
    return TACIT_OK;
}

/* Where a saved job stood, and how it goes on; and what it takes to undo the load. */
typedef struct saved {
    int64_t step, skipped;
    taciti_beginning beginning;
    table t;
    taciti_pages before; /* the values of the table until then; nothing while none has changed */
} saved;

static tacit_status restore_table(taciti_resume *resume, tacit_blob *blobs, size_t count, saved *out) {
    taciti_driver_list_state(resume->driver, false, &out->t.state);
    add_skipped(&out->t.state, &out->skipped);
    for (size_t i = 0; i < count; i++) {
        blobs[i].loaded = false;
        TACITI_TRY(find_blob(&resume->ckpt, &out->t, i, &blobs[i]));
    }
    TACITI_TRY(taciti_pack_aside(&out->t.state, &out->before));
    return taciti_resume_restore(resume, &out->t.state, &out->beginning);
}

static tacit_status restore_job(tacit_job *job, const char *path, const json_t *meta, tacit_blob *blobs, size_t count,
                                saved *out) {
    static const char ADVICE[] = "give its parameters to a new job";
    const int rank = taciti_comm_rank(job->comm->comm), ranks = taciti_comm_size(job->comm->comm);
    taciti_resume resume = {.ckpt = {.path = path, .meta = meta, .rank = rank, .ranks = ranks},
                            .driver = job->driver,
                            .strategy = job->strategy,
                            .advice = ADVICE,
                            .optim_advice = ADVICE};
    TACITI_TRY(read_count(path, meta, "step", &out->step));
    TACITI_TRY(read_count(path, meta, "skipped", &out->skipped));
    tacit_status status = taciti_resume_open(&resume, json_loads(job->config, 0, NULL));
    if (status == TACIT_OK) status = restore_table(&resume, blobs, count, out);
    taciti_resume_close(&resume);
    return status;
}

/* Brings back what the job was before the load. A job whose communication has failed makes no more steps, and its
 * strategy may have released by then what the table names. */
static void undo_load(const tacit_job *job, const saved *from) {
    if (from->before.base == NULL || taciti_comm_health(job->comm->comm) != TACIT_OK) return;
    for (size_t i = 0; i < from->t.state.count; i++)
        if (from->t.state.entries[i].filled != NULL) *from->t.state.entries[i].filled = false;
    taciti_unpack(&from->t.state, from->before.base);
}

/* Values come back to every rank if one of them fails, or if the strategy refuses to go on from them. */
static tacit_status restore_and_start(tacit_job *job, const char *path, const char *meta_json, tacit_blob *blobs,
                                      size_t count) {
    saved from = {.step = 0};
    json_t *meta = json_loads(meta_json, 0, NULL);
    tacit_status status = meta == NULL ? taciti_fail(TACIT_E_DATA, "%s: its description is not JSON", path)
                                       : restore_job(job, path, meta, blobs, count, &from);
    json_decref(meta);
    status = taciti_comm_agree(job->comm->comm, status);
    if (status == TACIT_OK) status = taciti_driver_start(job->driver, from.step, from.beginning.restored);
    if (status == TACIT_OK) {
        job->step = from.step;
        job->skipped = from.skipped;
    } else {
        undo_load(job, &from);
    }
    taciti_pages_destroy(&from.before);
    return status;
}

/* A checkpoint holds no other one, so training would begin at step 0 without a word. */
static tacit_status check_folder(const tacit_job *job, const char *folder) {
    if (taciti_comm_rank(job->comm->comm) != 0 || !taciti_file_exists_in(folder, "manifest.json")) return TACIT_OK;
    return taciti_fail(TACIT_E_USAGE, "tacit_job_load: %s is a checkpoint; name the folder that holds it", folder);
}

/* As tacit_job_load(), with checked arguments. */
static tacit_status find_and_restore(tacit_job *job, const char *folder, tacit_blob *blobs, size_t count, bool *found) {
    char path[TACITI_PATH_BYTES], *meta = NULL;
    int64_t step = -1;
    TACITI_TRY(taciti_comm_agree(job->comm->comm, check_folder(job, folder)));
    tacit_status status = taciti_ckpt_find(job->comm->comm, folder, path, sizeof path, &step, &meta);
    *found = status != TACIT_E_DATA || step >= 0;
    if (!*found) return TACIT_OK;
    if (status == TACIT_OK) status = restore_and_start(job, path, meta, blobs, count);
    taciti_free(meta);
    return status;
}

tacit_status tacit_job_load(tacit_job *job, const char *folder, tacit_blob *blobs, size_t blob_count, bool *found) {
    bool there = false;
    tacit_blob mine[MAX_BLOBS];
    TACITI_TRY(taciti_handle_check(job, TACITI_HANDLE_JOB));
    TACITI_TRY(taciti_argument_check(folder, "folder"));
    TACITI_TRY(taciti_argument_check(found, "found"));
    TACITI_TRY(taciti_job_enter(job, TACITI_JOB_NEW, TACITI_JOB_NEW, "tacit_job_load"));
    taciti_api_log_together(job->comm);
    tacit_status status = taciti_comm_agree(job->comm->comm, read_blobs(blobs, blob_count, true, mine));
    if (status == TACIT_OK) status = find_and_restore(job, folder, mine, blob_count, &there);
    taciti_api_log_alone();
    if (status == TACIT_OK && there) write_blobs(mine, blob_count, blobs);
    if (status == TACIT_OK) *found = there;
    return taciti_job_leave(job, there ? TACITI_JOB_BETWEEN : TACITI_JOB_NEW, status);
}
