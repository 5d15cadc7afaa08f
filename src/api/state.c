/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of one rank of a job or a channel as a string of bytes, little-endian:
 *
 *   head          struct head
 *   description   JSON: what must be the same, such as settings and tensors, and the entries of
 *                 the state with their bytes; blanks fill it up to a multiple of 8
 *   values        the entries of the state, one after the other (ckpt/pack.h)
 *   checksum      XXH3-128 of all before it, in canonical form
 *
 * A job or a channel takes a string whose description is its own, byte by byte. Optional entries may be missing: a rank
 * alone drops its residuals after the first step, as it sends nothing.
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

/* A state, and what its string consists of. */
typedef struct image {
    const char *kind;   /* "job", for messages */
    const char *advice; /* FOLDER or ANEW */
    taciti_comm *comm;
    int64_t step, skipped;
    json_t *about; /* what must be the same; owned */
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

static tacit_status describe_image(image *of) {
    taciti_free(of->description);
    of->description = NULL;
    TACITI_TRY(taciti_pack_bytes(&of->state, &of->values));
    json_t *all = json_deep_copy(of->about);
    (void)json_object_set_new(all, "entries", describe_entries(&of->state));
    of->description = taciti_json_dump(all, JSON_COMPACT);
    if (of->description == NULL) return TACIT_E_MEMORY;
    of->description_bytes = (strlen(of->description) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    of->bytes = sizeof(head) + of->description_bytes + of->values + CHECKSUM_BYTES;
    return TACIT_OK;
}

/* Advice for those whose bytes suit another job or channel. */
static const char FOLDER[] = "; a folder of tacit_job_save() can go on with other settings and on any number of ranks";
static const char ANEW[] = "; begin without these bytes: what was not sent yet is forgotten";

static tacit_status open_job_image(const tacit_job *job, image *out) {
    *out = (image){.kind = "job",
                   .advice = job->gradients_only ? ANEW : FOLDER,
                   .comm = job->comm->comm,
                   .step = job->step,
                   .skipped = job->skipped,
                   .about = json_pack("{s:s, s:b, s:o, s:o}", "strategy", job->strategy->name, "own_optimizer",
                                      job->own_optimizer, "config", json_loads(job->config, 0, NULL), "tensors",
                                      describe_tensors(&job->layout))};
    taciti_driver_list_state(job->driver, false, &out->state);
    return describe_image(out);
}

static tacit_status open_channel_image(const tacit_channel *c, image *out) {
    *out = (image){.kind = "channel",
                   .advice = ANEW,
                   .comm = c->comm->comm,
                   .step = c->sums,
                   .about = json_pack("{s:i, s:I, s:o}", "collective", (int)c->collective, "elements",
                                      (json_int_t)c->elements, "config", json_loads(c->config, 0, NULL))};
    taciti_compression_state(c->compression, &out->state);
    return describe_image(out);
}

static void close_image(image *of) {
    json_decref(of->about);
    taciti_free(of->description);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void write_checksum(const unsigned char *bytes, size_t count, void *out) {
    XXH128_canonical_t checksum;
    XXH128_canonicalFromHash(&checksum, XXH3_128bits(bytes, count));
    memcpy(out, &checksum, sizeof checksum);
}

static void write_image(const image *from, unsigned char *out) {
    head h = {.bytes = from->bytes,
              .description = from->description_bytes,
              .step = from->step,
              .skipped = from->skipped,
              .rank = taciti_comm_rank(from->comm),
              .ranks = taciti_comm_size(from->comm)};
    const size_t length = strlen(from->description);
    memcpy(h.magic, MAGIC, sizeof MAGIC);
    memcpy(out, &h, sizeof h);
    memcpy(out + sizeof h, from->description, length);
    memset(out + sizeof h + length, ' ', from->description_bytes - length);
    taciti_pack(&from->state, out + sizeof h + from->description_bytes);
    write_checksum(out, from->bytes - CHECKSUM_BYTES, out + from->bytes - CHECKSUM_BYTES);
}

static tacit_status hand_out(const image *from, void *buffer, size_t room, size_t *bytes) {
    *bytes = from->bytes;
    if (buffer == NULL) return TACIT_OK;
    if (room < from->bytes)
        return taciti_fail(TACIT_E_USAGE, "tacit_%s_state: the state has %zu bytes, room is for %zu", from->kind,
                           from->bytes, room);
    write_image(from, buffer);
    return TACIT_OK;
}

tacit_status tacit_job_state(tacit_job *job, void *buffer, size_t room, size_t *bytes) {
    image mine;
    TACITI_TRY(taciti_handle_check(job, TACITI_HANDLE_JOB));
    TACITI_TRY(taciti_argument_check(bytes, "bytes"));
    TACITI_TRY(taciti_job_enter(job, TACITI_JOB_BETWEEN, TACITI_JOB_AVERAGED, "tacit_job_state"));
    tacit_status status = open_job_image(job, &mine);
    if (status == TACIT_OK) status = hand_out(&mine, buffer, room, bytes);
    close_image(&mine);
    return taciti_job_leave(job, job->before, status);
}

/* Between two starts, none of which has failed. */
static tacit_status check_at_rest(const tacit_channel *channel, const char *caller) {
    const tacit_status health = taciti_comm_health(channel->comm->comm);
    if (health != TACIT_OK) return taciti_api_report(channel->comm, health);
    if (!channel->under_way) return TACIT_OK;
    return taciti_fail(TACIT_E_USAGE,
                       "%s: a transfer is under way: call tacit_channel_wait() until it returns something else than "
                       "TACIT_PENDING",
                       caller);
}

tacit_status tacit_channel_state(tacit_channel *channel, void *buffer, size_t room, size_t *bytes) {
    image mine;
    TACITI_TRY(taciti_handle_check(channel, TACITI_HANDLE_CHANNEL));
    TACITI_TRY(taciti_argument_check(bytes, "bytes"));
    TACITI_TRY(check_at_rest(channel, "tacit_channel_state"));
    tacit_status status = open_channel_image(channel, &mine);
    if (status == TACIT_OK) status = hand_out(&mine, buffer, room, bytes);
    close_image(&mine);
    return status;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Returns E_DATA with what differs between two descriptions. */
static tacit_status explain_difference(const image *mine, const json_t *theirs) {
    const char *member = "entries", *key;
    const json_t *value;
    char text[CHANGES_BYTES] = "";
    taciti_changes changes;
    TACITI_TRY(taciti_changes_create(theirs, json_deep_copy(json_object_get(mine->about, "config")), &changes));
    taciti_changes_text(&changes, "", text, sizeof text);
    taciti_changes_destroy(&changes);
    if (text[0] != '\0') return taciti_fail(TACIT_E_DATA, "tacit_%s_restore: %s%s", mine->kind, text, mine->advice);
    json_object_foreach(mine->about, key, value) {
        if (json_equal(json_object_get(theirs, key), value) != 0) continue;
        member = key;
        break;
    }
    return taciti_fail(TACIT_E_DATA, "tacit_%s_restore: the bytes are of a %s with other %s%s", mine->kind, mine->kind,
                       member, mine->advice);
}

/* Drops the optional entries that the other state does not have. */
static tacit_status drop_entries(image *mine, const json_t *theirs) {
    const json_t *entries = json_object_get(theirs, "entries");
    size_t count = 0;
    for (size_t i = 0; i < mine->state.count; i++)
        if (!mine->state.entries[i].optional || json_object_get(entries, mine->state.entries[i].name) != NULL)
            mine->state.entries[count++] = mine->state.entries[i];
    mine->state.count = count;
    return describe_image(mine);
}

static tacit_status compare_descriptions(image *mine, const char *at, size_t bytes) {
    json_t *theirs = json_loadb(at, bytes, 0, NULL);
    if (theirs == NULL)
        return taciti_fail(TACIT_E_DATA, "tacit_%s_restore: the description in these bytes is not JSON", mine->kind);
    tacit_status status = drop_entries(mine, theirs);
    if (status == TACIT_OK &&
        (bytes != mine->description_bytes || memcmp(at, mine->description, strlen(mine->description)) != 0))
        status = explain_difference(mine, theirs);
    json_decref(theirs);
    return status;
}

static tacit_status check_ranks(const image *mine, const head *h) {
    const int rank = taciti_comm_rank(mine->comm), ranks = taciti_comm_size(mine->comm);
    if (h->ranks != ranks)
        return taciti_fail(TACIT_E_DATA, "tacit_%s_restore: the bytes are of %d ranks, these are %d%s", mine->kind,
                           h->ranks, ranks, mine->advice);
    if (h->rank == rank) return TACIT_OK;
    return taciti_fail(TACIT_E_DATA, "tacit_%s_restore: rank %d was given the bytes of rank %d", mine->kind, rank,
                       h->rank);
}

/* The bytes are as they were written. */
static tacit_status check_whole(const char *kind, const unsigned char *bytes, size_t count, head *out) {
    unsigned char checksum[CHECKSUM_BYTES];
    if (count < sizeof *out + CHECKSUM_BYTES || memcmp(bytes, MAGIC, sizeof MAGIC) != 0)
        return taciti_fail(TACIT_E_DATA, "tacit_%s_restore: these %zu bytes are no state of a job or a channel", kind,
                           count);
    memcpy(out, bytes, sizeof *out);
    if (out->bytes != count)
        return taciti_fail(TACIT_E_DATA, "tacit_%s_restore: %zu bytes, but the state has %" PRIu64, kind, count,
                           out->bytes);
    write_checksum(bytes, count - CHECKSUM_BYTES, checksum);
    if (memcmp(checksum, bytes + count - CHECKSUM_BYTES, CHECKSUM_BYTES) != 0 ||
        out->description > count - sizeof *out - CHECKSUM_BYTES || out->step < 0 || out->skipped < 0)
        return taciti_fail(TACIT_E_DATA, "tacit_%s_restore: the bytes are damaged: their checksum is wrong", kind);
    return TACIT_OK;
}

/* Returns OK if this rank can go on from the bytes. *values: where they begin. */
static tacit_status check_bytes(image *mine, const unsigned char *bytes, size_t count, const unsigned char **values) {
    head h;
    TACITI_TRY(taciti_argument_check(bytes, "bytes"));
    TACITI_TRY(check_whole(mine->kind, bytes, count, &h));
    TACITI_TRY(check_ranks(mine, &h));
    TACITI_TRY(compare_descriptions(mine, (const char *)bytes + sizeof h, (size_t)h.description));
    if (count != mine->bytes)
        return taciti_fail(TACIT_E_DATA, "tacit_%s_restore: %zu bytes, %zu are needed", mine->kind, count, mine->bytes);
    mine->step = h.step;
    mine->skipped = h.skipped;
    *values = bytes + sizeof h + mine->description_bytes;
    return taciti_pack_check(&mine->state, *values);
}

/* All ranks go on from the same step. */
static tacit_status agree_on_step(const image *mine) {
    double range[] = {(double)mine->step, -(double)mine->step};
    TACITI_TRY(taciti_comm_allreduce_f64(mine->comm, range, 2, TACITI_OP_MIN));
    if (range[0] >= -range[1]) return TACIT_OK;
    return taciti_fail(TACIT_E_DATA, "tacit_%s_restore: the bytes of the ranks are of steps %.0f to %.0f", mine->kind,
                       range[0], -range[1]);
}

/* mine: as it was opened, with `status`. On OK the state is restored, and mine->step is its step. Collective. */
static tacit_status take_over(image *mine, tacit_status status, const unsigned char *bytes, size_t count) {
    const unsigned char *values = NULL;
    if (status == TACIT_OK) status = check_bytes(mine, bytes, count, &values);
    TACITI_TRY(taciti_comm_agree(mine->comm, status));
    TACITI_TRY(agree_on_step(mine));
    taciti_unpack(&mine->state, values);
    return TACIT_OK;
}

static tacit_status restore_job(tacit_job *job, const unsigned char *bytes, size_t count) {
    image mine;
    const tacit_status opened = open_job_image(job, &mine), status = take_over(&mine, opened, bytes, count);
    close_image(&mine);
    TACITI_TRY(status);
    TACITI_TRY(taciti_driver_start(job->driver, mine.step, true));
    job->step = mine.step;
    job->skipped = mine.skipped;
    return TACIT_OK;
}

tacit_status tacit_job_restore(tacit_job *job, const void *bytes, size_t count) {
    TACITI_TRY(taciti_job_enter(job, TACITI_JOB_NEW, TACITI_JOB_NEW, "tacit_job_restore"));
    taciti_api_log_together(job->comm);
    const tacit_status status = restore_job(job, bytes, count);
    taciti_api_log_alone();
    return taciti_job_leave(job, TACITI_JOB_BETWEEN, status);
}

static tacit_status check_new(const tacit_channel *channel) {
    TACITI_TRY(check_at_rest(channel, "tacit_channel_restore"));
    if (channel->sums == 0) return TACIT_OK;
    return taciti_fail(TACIT_E_USAGE, "tacit_channel_restore: this channel has sent or was restored already: restore a "
                                      "new one, before its first start");
}

static tacit_status restore_channel(tacit_channel *c, const unsigned char *bytes, size_t count) {
    image mine;
    const tacit_status opened = open_channel_image(c, &mine), refused = check_new(c);
    const tacit_status status = take_over(&mine, refused != TACIT_OK ? refused : opened, bytes, count);
    close_image(&mine);
    TACITI_TRY(status);
    c->sums = mine.step;
    return taciti_compression_start(c->compression, c->sums, true);
}

tacit_status tacit_channel_restore(tacit_channel *channel, const void *bytes, size_t count) {
    TACITI_TRY(taciti_handle_check(channel, TACITI_HANDLE_CHANNEL));
    taciti_api_log_together(channel->comm);
    const tacit_status status = restore_channel(channel, bytes, count);
    taciti_api_log_alone();
    return taciti_api_report(channel->comm, status);
}
