/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of one rank of a job as a string of bytes, little-endian:
 *
 *   head          struct head
 *   description   JSON: strategy, settings, tensors, and the entries of the state with their
 *                 bytes; blanks fill it up to a multiple of 8
 *   values        the entries of the state, one after the other (ckpt/pack.h)
 *   checksum      XXH3-128 of all before it, in canonical form
 *
 * A job takes a string whose description is its own, byte by byte. Optional entries may be missing: a rank alone drops
 * its residuals after the first step, as it sends nothing.
 */
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <xxhash.h>

#include "api/object.h"
#include "base/json_text.h"
#include "ckpt/pack.h"
#include "settings/changes.h"

static const char MAGIC[16] = "tacit state 1";

typedef struct head {
    char magic[sizeof MAGIC];
    uint64_t bytes, description; /* of the string, and of its description */
    int64_t step, skipped;
    int32_t rank, ranks;
} head;

enum { ALIGNMENT = 8, CHANGES_BYTES = 512, CHECKSUM_BYTES = sizeof(XXH128_canonical_t) };

/* The state of a job, and what its string consists of. */
typedef struct image {
    taciti_state state;
    char *description; /* owned */
    size_t description_bytes, values, bytes;
} image;

/* ---- the description --------------------------------------------------------------------------------------------- */

static json_t *describe_tensors(const taciti_layout *layout) {
    json_t *list = json_array();
    for (const taciti_tensor *t = layout->tensors; t < layout->tensors + layout->tensor_count; t++) {
        json_t *tensor = json_pack("[s]", t->name);
        for (int i = 0; i < t->dims; i++) (void)json_array_append_new(tensor, json_integer((json_int_t)t->shape[i]));
        (void)json_array_append_new(list, tensor);
    }
    return list;
}

static json_t *describe_entries(const taciti_state *state) {
    json_t *list = json_object();
    for (const taciti_state_entry *e = state->entries; e < state->entries + state->count; e++)
        (void)json_object_set_new(list, e->name, json_integer((json_int_t)taciti_pack_entry_bytes(e)));
    return list;
}

static char *describe_job(const tacit_job *job, const taciti_state *state) {
    json_t *all = json_pack("{s:s, s:b, s:o, s:o, s:o}", "strategy", job->strategy->name, "own_optimizer",
                            job->own_optimizer, "config", json_loads(job->config, 0, NULL), "tensors",
                            describe_tensors(&job->layout), "entries", describe_entries(state));
    return taciti_json_dump(all, JSON_COMPACT);
}

static tacit_status describe_image(const tacit_job *job, image *of) {
    taciti_free(of->description);
    of->description = NULL;
    TACITI_TRY(taciti_pack_bytes(&of->state, &of->values));
    of->description = describe_job(job, &of->state);
    if (of->description == NULL) return TACIT_E_MEMORY;
    of->description_bytes = (strlen(of->description) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    of->bytes = sizeof(head) + of->description_bytes + of->values + CHECKSUM_BYTES;
    return TACIT_OK;
}

static tacit_status open_image(tacit_job *job, image *out) {
    *out = (image){.description = NULL};
    taciti_driver_list_state(job->driver, false, &out->state);
    return describe_image(job, out);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void write_checksum(const unsigned char *bytes, size_t count, void *out) {
    XXH128_canonical_t checksum;
    XXH128_canonicalFromHash(&checksum, XXH3_128bits(bytes, count));
    memcpy(out, &checksum, sizeof checksum);
}

static void write_image(const tacit_job *job, const image *from, unsigned char *out) {
    head h = {.bytes = from->bytes,
              .description = from->description_bytes,
              .step = job->step,
              .skipped = job->skipped,
              .rank = taciti_comm_rank(job->comm->comm),
              .ranks = taciti_comm_size(job->comm->comm)};
    const size_t length = strlen(from->description);
    memcpy(h.magic, MAGIC, sizeof MAGIC);
    memcpy(out, &h, sizeof h);
    memcpy(out + sizeof h, from->description, length);
    memset(out + sizeof h + length, ' ', from->description_bytes - length);
    taciti_pack(&from->state, out + sizeof h + from->description_bytes);
    write_checksum(out, from->bytes - CHECKSUM_BYTES, out + from->bytes - CHECKSUM_BYTES);
}

tacit_status tacit_job_state(tacit_job *job, void *buffer, size_t room, size_t *bytes) {
    image mine;
    taciti_job_phase was;
    TACITI_TRY(taciti_handle_check(job, TACITI_HANDLE_JOB));
    TACITI_TRY(taciti_argument_check(bytes, "bytes"));
    TACITI_TRY(taciti_job_enter(job, TACITI_JOB_BETWEEN, TACITI_JOB_AVERAGED, "tacit_job_state", &was));
    tacit_status status = open_image(job, &mine);
    if (status == TACIT_OK) *bytes = mine.bytes;
    if (status == TACIT_OK && buffer != NULL && room < mine.bytes)
        status =
            taciti_fail(TACIT_E_USAGE, "tacit_job_state: the state has %zu bytes, room is for %zu", mine.bytes, room);
    if (status == TACIT_OK && buffer != NULL) write_image(job, &mine, buffer);
    taciti_free(mine.description);
    return taciti_job_leave(job, was, status);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

#define ADVICE "; a folder of tacit_job_save() can go on with other settings and on any number of ranks"

/* Returns E_DATA with what differs between two descriptions. */
static tacit_status explain_difference(const json_t *theirs, const json_t *mine) {
    static const char *const MEMBERS[] = {"strategy", "own_optimizer", "tensors", "entries"};
    char text[CHANGES_BYTES] = "";
    taciti_changes changes;
    TACITI_TRY(taciti_changes_create(theirs, json_deep_copy(json_object_get(mine, "config")), &changes));
    taciti_changes_text(&changes, "", text, sizeof text);
    taciti_changes_destroy(&changes);
    if (text[0] != '\0') return taciti_fail(TACIT_E_DATA, "tacit_job_restore: %s" ADVICE, text);
    size_t i = 0;
    while (i + 1 < sizeof MEMBERS / sizeof *MEMBERS &&
           json_equal(json_object_get(theirs, MEMBERS[i]), json_object_get(mine, MEMBERS[i])) != 0)
        i++;
    return taciti_fail(TACIT_E_DATA, "tacit_job_restore: the bytes are of a job with other %s" ADVICE, MEMBERS[i]);
}

/* Drops the optional entries that the other job did not have. */
static tacit_status drop_entries(const tacit_job *job, image *mine, const json_t *theirs) {
    const json_t *entries = json_object_get(theirs, "entries");
    size_t count = 0;
    for (size_t i = 0; i < mine->state.count; i++)
        if (!mine->state.entries[i].optional || json_object_get(entries, mine->state.entries[i].name) != NULL)
            mine->state.entries[count++] = mine->state.entries[i];
    mine->state.count = count;
    return describe_image(job, mine);
}

static tacit_status compare_descriptions(const tacit_job *job, image *mine, const char *at, size_t bytes) {
    json_t *theirs = json_loadb(at, bytes, 0, NULL), *own = NULL;
    if (theirs == NULL)
        return taciti_fail(TACIT_E_DATA, "tacit_job_restore: the description in these bytes is not JSON");
    tacit_status status = drop_entries(job, mine, theirs);
    if (status == TACIT_OK &&
        (bytes != mine->description_bytes || memcmp(at, mine->description, strlen(mine->description)) != 0)) {
        own = json_loads(mine->description, 0, NULL);
        status = own == NULL ? TACIT_E_MEMORY : explain_difference(theirs, own);
    }
    json_decref(own);
    json_decref(theirs);
    return status;
}

static tacit_status check_ranks(const tacit_job *job, const head *h) {
    const int rank = taciti_comm_rank(job->comm->comm), ranks = taciti_comm_size(job->comm->comm);
    if (h->ranks != ranks)
        return taciti_fail(TACIT_E_DATA, "tacit_job_restore: the bytes are of %d ranks, these are %d" ADVICE, h->ranks,
                           ranks);
    if (h->rank == rank) return TACIT_OK;
    return taciti_fail(TACIT_E_DATA, "tacit_job_restore: rank %d was given the bytes of rank %d", rank, h->rank);
}

/* The bytes are as they were written. */
static tacit_status check_whole(const unsigned char *bytes, size_t count, head *out) {
    unsigned char checksum[CHECKSUM_BYTES];
    if (count < sizeof *out + CHECKSUM_BYTES || memcmp(bytes, MAGIC, sizeof MAGIC) != 0)
        return taciti_fail(TACIT_E_DATA,
                           "tacit_job_restore: these %zu bytes are none that tacit_job_state() has written", count);
    memcpy(out, bytes, sizeof *out);
    if (out->bytes != count)
        return taciti_fail(TACIT_E_DATA, "tacit_job_restore: %zu bytes, but the state has %" PRIu64, count, out->bytes);
    write_checksum(bytes, count - CHECKSUM_BYTES, checksum);
    if (memcmp(checksum, bytes + count - CHECKSUM_BYTES, CHECKSUM_BYTES) != 0 ||
        out->description > count - sizeof *out - CHECKSUM_BYTES || out->step < 0 || out->skipped < 0)
        return taciti_fail(TACIT_E_DATA, "tacit_job_restore: the bytes are damaged: their checksum is wrong");
    return TACIT_OK;
}

/* Returns OK if this rank can go on from the bytes. *values: where they begin. */
static tacit_status check_bytes(const tacit_job *job, image *mine, const unsigned char *bytes, size_t count, head *out,
                                const unsigned char **values) {
    TACITI_TRY(taciti_argument_check(bytes, "bytes"));
    TACITI_TRY(check_whole(bytes, count, out));
    TACITI_TRY(check_ranks(job, out));
    TACITI_TRY(compare_descriptions(job, mine, (const char *)bytes + sizeof *out, (size_t)out->description));
    if (count != mine->bytes)
        return taciti_fail(TACIT_E_DATA, "tacit_job_restore: %zu bytes, this job has %zu", count, mine->bytes);
    *values = bytes + sizeof *out + mine->description_bytes;
    return taciti_pack_check(&mine->state, *values);
}

/* All ranks go on from the same step. */
static tacit_status agree_on_step(taciti_comm *comm, int64_t step) {
    double range[] = {(double)step, -(double)step};
    TACITI_TRY(taciti_comm_allreduce_f64(comm, range, 2, TACITI_OP_MIN));
    if (range[0] >= -range[1]) return TACIT_OK;
    return taciti_fail(TACIT_E_DATA, "tacit_job_restore: the bytes of the ranks are of steps %.0f to %.0f", range[0],
                       -range[1]);
}

static tacit_status restore_image(tacit_job *job, const unsigned char *bytes, size_t count) {
    taciti_comm *comm = job->comm->comm;
    const unsigned char *values = NULL;
    head h = {.step = 0};
    image mine;
    tacit_status status = open_image(job, &mine);
    if (status == TACIT_OK) status = check_bytes(job, &mine, bytes, count, &h, &values);
    status = taciti_comm_agree(comm, status);
    if (status == TACIT_OK) status = agree_on_step(comm, h.step);
    if (status == TACIT_OK) taciti_unpack(&mine.state, values);
    taciti_free(mine.description);
    TACITI_TRY(status);
    TACITI_TRY(taciti_driver_start(job->driver, h.step, true));
    job->step = h.step;
    job->skipped = h.skipped;
    return TACIT_OK;
}

tacit_status tacit_job_restore(tacit_job *job, const void *bytes, size_t count) {
    taciti_job_phase was;
    TACITI_TRY(taciti_job_enter(job, TACITI_JOB_NEW, TACITI_JOB_NEW, "tacit_job_restore", &was));
    taciti_api_log_together(job->comm);
    const tacit_status status = restore_image(job, bytes, count);
    taciti_api_log_alone();
    return taciti_job_leave(job, status == TACIT_OK ? TACITI_JOB_BETWEEN : was, status);
}
