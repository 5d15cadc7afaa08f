/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/strict_json.h"
#include "kernel/kernel.h"

static const char replicas_key[] = "replicas";
enum { CHUNK_FLOATS = 4096 };

/* Entries as arrays of a checkpoint, with room for their names. */
typedef struct array_list {
    taciti_ckpt_array arrays[2 * TACITI_STATE_MAX_ENTRIES];
    char prefixes[2 * TACITI_STATE_MAX_ENTRIES][TACITI_CKPT_PREFIX_BYTES];
    size_t count;
} array_list;

static bool is_stored_in_shards(const taciti_state_entry *entry) {
    return entry->kind == TACITI_STATE_ARRAY || entry->kind == TACITI_STATE_BYTES;
}

/* Appends the entry as `rank` alone holds it, or as all do (rank < 0). add: the load adds the stored values. */
static void append_entry(array_list *list, const taciti_state_entry *entry, int rank, bool add) {
    char *prefix = list->prefixes[list->count], what[TACITI_STATE_NAME_BYTES];
    (void)snprintf(what, sizeof what, "%s%s", entry->name, entry->kind == TACITI_STATE_ARRAY ? "." : "");
    if (rank < 0)
        (void)snprintf(prefix, TACITI_CKPT_PREFIX_BYTES, "%s", what);
    else
        taciti_ckpt_own_prefix(rank, what, prefix);
    list->arrays[list->count++] = (taciti_ckpt_array){.prefix = prefix, .entry = *entry, .own = rank >= 0, .add = add};
}

static bool adds_up(taciti_state_regroup rule) { return rule == TACITI_STATE_SUM || rule == TACITI_STATE_TERM; }

/* Refuses tables that no checkpoint can hold. */
static tacit_status check_table(const taciti_state *state) {
    if (state->count > TACITI_STATE_MAX_ENTRIES)
        return taciti_fail(TACIT_E_INTERNAL, "checkpoint: %zu entries of state, at most %d are possible", state->count,
                           (int)TACITI_STATE_MAX_ENTRIES);
    for (size_t i = 0; i < state->count; i++) {
        const taciti_state_entry *entry = &state->entries[i];
        if (strlen(entry->name) + 2 > TACITI_STATE_NAME_BYTES)
            return taciti_fail(TACIT_E_INTERNAL, "checkpoint: \"%s\" is too long a name", entry->name);
        const bool adds = adds_up(entry->regroup) || entry->regroup == TACITI_STATE_MEAN;
        if (entry->owner == TACITI_STATE_OWN && adds && (entry->kind == TACITI_STATE_BYTES || entry->ranges != NULL))
            return taciti_fail(TACIT_E_INTERNAL, "checkpoint: \"%s\": bytes and ranges of ranks cannot be added up",
                               entry->name);
        if (entry->access.read != NULL && (entry->kind != TACITI_STATE_ARRAY || entry->ranges != NULL))
            return taciti_fail(TACIT_E_INTERNAL, "checkpoint: \"%s\": only whole arrays can have another form",
                               entry->name);
    }
    return TACIT_OK;
}

/* ---- saving: numbers --------------------------------------------------------------------------------------------- */

static size_t bytes_of(const taciti_state_entry *entry) {
    return entry->kind == TACITI_STATE_COUNT ? sizeof(int64_t) : entry->n * sizeof(double);
}

static json_t *value_json(const taciti_state_entry *entry, const void *data) {
    if (entry->kind == TACITI_STATE_COUNT) {
        int64_t count = 0;
        memcpy(&count, data, sizeof count);
        return json_integer((json_int_t)count);
    }
    json_t *list = json_array();
    for (size_t i = 0; i < entry->n; i++) {
        const double value = ((const double *)data)[i]; /* JSON knows no infinity: it comes back as NaN */
        (void)json_array_append_new(list, isfinite(value) ? json_real(value) : json_null());
    }
    return list;
}

/* Numbers and counts of one owner, one after the other in memory. */
typedef struct number_list {
    const taciti_state_entry *entries[TACITI_STATE_MAX_ENTRIES];
    size_t count, bytes;
} number_list;

static number_list list_numbers(const taciti_state *state, taciti_state_owner owner) {
    number_list list = {.count = 0};
    for (size_t i = 0; i < state->count; i++) {
        const taciti_state_entry *entry = &state->entries[i];
        if (is_stored_in_shards(entry) || entry->owner != owner) continue;
        list.entries[list.count++] = entry;
        list.bytes += bytes_of(entry);
    }
    return list;
}

/* Puts the values, one after the other in memory (NULL: those of the entries), into the object. */
static tacit_status put_numbers(const number_list *list, const char *values, json_t *object) {
    for (size_t i = 0; i < list->count; i++) {
        const taciti_state_entry *entry = list->entries[i];
        if (json_object_get(object, entry->name) != NULL)
            return taciti_fail(TACIT_E_INTERNAL, "checkpoint: its description has two members \"%s\"", entry->name);
        if (json_object_set_new(object, entry->name, value_json(entry, values == NULL ? entry->data : values)) != 0)
            return TACIT_E_MEMORY;
        if (values != NULL) values += bytes_of(entry);
    }
    return TACIT_OK;
}

/* Puts a list by rank of the ranks' own values into the description. */
static tacit_status put_replicas(const number_list *own, const char *all, int ranks, json_t *meta) {
    json_t *replicas = json_array();
    tacit_status status =
        replicas == NULL || json_object_set_new(meta, replicas_key, replicas) != 0 ? TACIT_E_MEMORY : TACIT_OK;
    for (int r = 0; status == TACIT_OK && r < ranks; r++) {
        json_t *replica = json_object();
        status = put_numbers(own, all + (size_t)r * own->bytes, replica);
        if (json_array_append_new(replicas, replica) != 0) status = TACIT_E_MEMORY;
    }
    return status;
}

static tacit_status describe_own(taciti_comm *comm, const taciti_state *state, json_t *meta) {
    const number_list own = list_numbers(state, TACITI_STATE_OWN);
    const int ranks = comm == NULL ? 1 : taciti_comm_size(comm);
    bool any = false;
    for (size_t i = 0; i < state->count; i++) any = any || state->entries[i].owner == TACITI_STATE_OWN;
    if (!any) return TACIT_OK;
    char *mine = taciti_calloc(own.bytes, 1), *all = taciti_calloc((size_t)ranks, own.bytes);
    tacit_status status = mine == NULL || all == NULL ? TACIT_E_MEMORY : TACIT_OK;
    if (comm != NULL) status = taciti_comm_agree(comm, status);
    for (size_t i = 0, at = 0; status == TACIT_OK && i < own.count; at += bytes_of(own.entries[i++]))
        memcpy((comm == NULL ? all : mine) + at, own.entries[i]->data, bytes_of(own.entries[i]));
    if (status == TACIT_OK && comm != NULL && own.bytes > 0) status = taciti_comm_allgather(comm, mine, own.bytes, all);
    if (status == TACIT_OK) status = put_replicas(&own, all, ranks, meta);
    taciti_free(mine);
    taciti_free(all);
    return status;
}

/* Owned text of the description, free(). The same outcome on every rank. */
static tacit_status describe_state(taciti_comm *comm, const taciti_state *state, json_t *meta, char **out) {
    tacit_status status = check_table(state);
    if (status == TACIT_OK) {
        const number_list shared = list_numbers(state, TACITI_STATE_SHARED);
        status = put_numbers(&shared, NULL, meta);
    }
    if (comm != NULL) status = taciti_comm_agree(comm, status);
    if (status == TACIT_OK) status = describe_own(comm, state, meta);
    char *text = status == TACIT_OK ? json_dumps(meta, JSON_INDENT(1)) : NULL;
    if (status == TACIT_OK && text == NULL) status = TACIT_E_MEMORY;
    if (comm != NULL) status = taciti_comm_agree(comm, status);
    if (status == TACIT_OK)
        *out = text;
    else
        free(text);
    return status;
}

tacit_status taciti_ckpt_save_state(taciti_comm *comm, const char *folder, int64_t step, int keep, json_t *meta,
                                    const taciti_state *state) {
    array_list list = {.count = 0};
    char *text = NULL;
    const int rank = comm == NULL ? 0 : taciti_comm_rank(comm);
    TACITI_TRY(describe_state(comm, state, meta, &text));
    for (size_t i = 0; i < state->count; i++) {
        const taciti_state_entry *entry = &state->entries[i];
        if (is_stored_in_shards(entry)) append_entry(&list, entry, entry->owner == TACITI_STATE_OWN ? rank : -1, false);
    }
    const taciti_ckpt_state arrays = {.arrays = list.arrays, .array_count = list.count, .meta_json = text};
    const tacit_status status = taciti_ckpt_save(comm, folder, step, keep, &arrays);
    free(text);
    return status;
}

/* ---- the action for an entry ------------------------------------------------------------------------------------ */

typedef enum action {
    LEAVE,       /* the value stays */
    BEGIN_AGAIN, /* the value stays: the stored one has another size */
    TAKE_SHARED, /* the value that all ranks shared */
    TAKE_OWN,    /* the value of this rank */
    TAKE_SUM,    /* the sum over former ranks rank, rank + ranks, ..., by its rule for another number of ranks */
    TAKE_MEAN,   /* the mean over all former ranks */
    LACKING,     /* the checkpoint does not have it */
} action;

/* Decides by the stored values, how the run goes on, and the entry's rule. */
static action decide_required(const taciti_ckpt_origin *from, const taciti_state_entry *entry, bool shared, bool own) {
    const bool mean = entry->regroup == TACITI_STATE_MEAN;
    if (from->resumption == TACITI_RESUME_FROM_MEAN && !mean) return LEAVE;
    if (from->resumption == TACITI_RESUME_EXACTLY && entry->owner == TACITI_STATE_OWN) return own ? TAKE_OWN : LACKING;
    if (entry->owner == TACITI_STATE_SHARED || mean) {
        if (shared && (is_stored_in_shards(entry) || !own)) return TAKE_SHARED;
        return own && mean && entry->kind != TACITI_STATE_BYTES ? TAKE_MEAN : LACKING;
    }
    return adds_up(entry->regroup) && own ? TAKE_SUM : LEAVE;
}

/* The same for an entry that may be optional. */
static action decide_action(const taciti_ckpt_origin *from, const taciti_state_entry *entry, bool shared, bool own) {
    const action what = decide_required(from, entry, shared, own);
    return what == LACKING && entry->optional ? LEAVE : what;
}

tacit_status taciti_ckpt_former_ranks(const taciti_ckpt_origin *from, int *out) {
    const json_t *replicas = json_object_get(from->meta, replicas_key);
    *out = 0;
    if (replicas == NULL) return TACIT_OK;
    if (!json_is_array(replicas) || json_array_size(replicas) == 0 || json_array_size(replicas) > INT32_MAX)
        return taciti_fail(TACIT_E_DATA, "%s: \"%s\" must be a list with an entry for each rank", from->path,
                           replicas_key);
    *out = (int)json_array_size(replicas);
    return TACIT_OK;
}

static const json_t *own_number(const taciti_ckpt_origin *from, int rank, const char *name) {
    return json_object_get(json_array_get(json_object_get(from->meta, replicas_key), (size_t)rank), name);
}

/* Shards are looked into once for all entries. A rank looks for its own where it needs that, else for those of rank 0.
 */
static tacit_status decide_all(const taciti_ckpt_origin *from, const taciti_state *state, action *out) {
    array_list list = {.count = 0};
    bool held[2 * TACITI_STATE_MAX_ENTRIES] = {false}, other[2 * TACITI_STATE_MAX_ENTRIES] = {false};
    const int rank = from->resumption == TACITI_RESUME_EXACTLY ? from->rank : 0;
    for (size_t i = 0; i < state->count; i++) {
        if (!is_stored_in_shards(&state->entries[i])) continue;
        append_entry(&list, &state->entries[i], -1, false);
        append_entry(&list, &state->entries[i], rank, false);
    }
    TACITI_TRY(taciti_ckpt_find_held(from->path, list.arrays, list.count, held, other));
    for (size_t i = 0, at = 0; i < state->count; i++) {
        const taciti_state_entry *entry = &state->entries[i];
        if (!is_stored_in_shards(entry)) {
            out[i] = decide_action(from, entry, json_object_get(from->meta, entry->name) != NULL,
                                   own_number(from, rank, entry->name) != NULL);
            continue;
        }
        /* Optional bytes of another size are of other buckets or of another version. */
        out[i] = other[at] || other[at + 1] ? BEGIN_AGAIN : decide_action(from, entry, held[at], held[at + 1]);
        at += 2;
    }
    return TACIT_OK;
}

tacit_status taciti_ckpt_find_lacking(const taciti_ckpt_origin *from, const taciti_state *state,
                                      const taciti_state_entry **out) {
    action actions[TACITI_STATE_MAX_ENTRIES];
    *out = NULL;
    TACITI_TRY(check_table(state));
    TACITI_TRY(decide_all(from, state, actions));
    for (size_t i = 0; i < state->count && *out == NULL; i++)
        if (actions[i] == LACKING && is_stored_in_shards(&state->entries[i])) *out = &state->entries[i];
    return TACIT_OK;
}

/* ---- restoring: arrays ------------------------------------------------------------------------------------------- */

/* Returns the rank whose value is taken, or -1 for the value that all shared. */
static int taken_from(const taciti_ckpt_origin *from, const taciti_state_entry *entry) {
    return entry->owner == TACITI_STATE_OWN && from->resumption == TACITI_RESUME_EXACTLY ? from->rank : -1;
}

/* Loads entries that are lacking as well: then the load names the tensor. */
static tacit_status restore_taken(const taciti_ckpt_origin *from, const taciti_state *state, const action *actions) {
    array_list list = {.count = 0};
    for (size_t i = 0; i < state->count; i++) {
        const taciti_state_entry *entry = &state->entries[i];
        if (!is_stored_in_shards(entry)) continue;
        if (actions[i] == TAKE_SHARED || actions[i] == TAKE_OWN || actions[i] == LACKING)
            append_entry(&list, entry, taken_from(from, entry), false);
    }
    return taciti_ckpt_load(from->path, list.arrays, list.count);
}

static bool is_added(const taciti_ckpt_origin *from, action what, int former) {
    return what == TAKE_MEAN || (what == TAKE_SUM && former % from->ranks == from->rank);
}

/* Returns the factor of a value that was added up over former ranks. */
static double factor_of(const taciti_ckpt_origin *from, const taciti_state_entry *entry, action what, int formers) {
    if (what == TAKE_MEAN) return 1.0 / formers;
    return what == TAKE_SUM && entry->regroup == TACITI_STATE_TERM ? (double)from->ranks / formers : 1;
}

/* A factor of 0 clears. */
static void scale_entry(const taciti_state_entry *entry, float factor) {
    float chunk[CHUNK_FLOATS] = {0};
    taciti_range r;
    for (size_t i = 0; taciti_state_range(entry, i, &r); i++)
        for (size_t done = 0; done < r.n; done += CHUNK_FLOATS) {
            const size_t at = r.at + done, n = taciti_min(r.n - done, CHUNK_FLOATS);
            if (factor > 0) {
                taciti_state_read(entry, at, chunk, n);
                taciti_kernels_get()->scale(chunk, factor, n);
            }
            taciti_state_write(entry, at, chunk, n);
        }
}

/* Former ranks in order, so that all ranks add up the same bits. */
static tacit_status restore_added(const taciti_ckpt_origin *from, const taciti_state *state, const action *actions,
                                  int formers) {
    for (size_t i = 0; i < state->count; i++)
        if (actions[i] == TAKE_SUM && is_stored_in_shards(&state->entries[i])) scale_entry(&state->entries[i], 0);
    for (int r = 0; r < formers; r++) {
        array_list list = {.count = 0};
        for (size_t i = 0; i < state->count; i++)
            if (is_stored_in_shards(&state->entries[i]) && is_added(from, actions[i], r))
                append_entry(&list, &state->entries[i], r, r > 0 || actions[i] == TAKE_SUM);
        if (list.count > 0) TACITI_TRY(taciti_ckpt_load(from->path, list.arrays, list.count));
    }
    for (size_t i = 0; i < state->count; i++) {
        const double factor = factor_of(from, &state->entries[i], actions[i], formers);
        if (factor != 1 && is_stored_in_shards(&state->entries[i])) scale_entry(&state->entries[i], (float)factor);
    }
    return TACIT_OK;
}

/* ---- restoring: numbers ------------------------------------------------------------------------------------------ */

/* A number that was not finite is null, and comes back as NaN. */
static tacit_status read_list(taciti_strict_reader *r, const json_t *value, size_t n, double *out) {
    char legal[TACITI_STATE_NAME_BYTES];
    (void)snprintf(legal, sizeof legal, "a list of %zu numbers", n);
    if (!json_is_array(value) || json_array_size(value) != n) return taciti_strict_refuse(r, value, legal);
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(value, i);
        const size_t length = taciti_strict_enter_item(r, i);
        if (!json_is_number(item) && !json_is_null(item)) return taciti_strict_refuse(r, item, "a number or null");
        out[i] = json_is_null(item) ? (double)NAN : json_number_value(item);
        taciti_strict_leave(r, length);
    }
    return TACIT_OK;
}

/* Reads the values of one rank, or those that all shared (rank < 0). */
static tacit_status read_values(const taciti_ckpt_origin *from, const taciti_state_entry *entry, int rank, void *out) {
    static const taciti_strict_field COUNT = {.max = 0x1p63, .legal = "an integer from 0 on"};
    taciti_strict_reader reader = {.file = from->path, .status = TACIT_E_DATA};
    if (rank >= 0) {
        (void)taciti_strict_enter(&reader, replicas_key);
        (void)taciti_strict_enter_item(&reader, (size_t)rank);
    }
    (void)taciti_strict_enter(&reader, entry->name);
    const json_t *value = rank < 0 ? json_object_get(from->meta, entry->name) : own_number(from, rank, entry->name);
    if (entry->kind == TACITI_STATE_NUMBERS) return read_list(&reader, value, entry->n, out);
    return value == NULL ? taciti_strict_refuse(&reader, value, COUNT.legal)
                         : taciti_strict_integer(&reader, value, &COUNT, out);
}

/* Adds up in doubles; `one` has room for one rank's values, and sum[] is 0. */
static tacit_status add_values(const taciti_ckpt_origin *from, const taciti_state_entry *entry, action what,
                               int formers, double *sum, double *one) {
    const size_t n = entry->kind == TACITI_STATE_COUNT ? 1 : entry->n;
    for (int r = 0; r < formers; r++) {
        if (!is_added(from, what, r)) continue;
        TACITI_TRY(read_values(from, entry, r, one));
        int64_t count = 0;
        memcpy(&count, one, sizeof count);
        if (entry->kind == TACITI_STATE_COUNT) one[0] = (double)count;
        for (size_t i = 0; i < n; i++) sum[i] += one[i];
    }
    for (size_t i = 0; i < n && what == TAKE_MEAN; i++) sum[i] /= formers;
    for (size_t i = 0; i < n && what == TAKE_SUM; i++) sum[i] *= factor_of(from, entry, what, formers);
    if (entry->kind == TACITI_STATE_NUMBERS) {
        memcpy(entry->data, sum, n * sizeof *sum);
        return TACIT_OK;
    }
    if (sum[0] >= 0x1p63) return taciti_fail(TACIT_E_DATA, "%s: %s: %g are too many", from->path, entry->name, sum[0]);
    *(int64_t *)entry->data = llround(sum[0]);
    return TACIT_OK;
}

static tacit_status restore_numbers(const taciti_ckpt_origin *from, const taciti_state_entry *entry, action what,
                                    int formers) {
    if (what == LEAVE) return TACIT_OK;
    if (what != TAKE_MEAN && what != TAKE_SUM) return read_values(from, entry, taken_from(from, entry), entry->data);
    double *sum = taciti_calloc(entry->n + 1, sizeof *sum), *one = taciti_calloc(entry->n + 1, sizeof *one);
    const tacit_status status =
        sum == NULL || one == NULL ? TACIT_E_MEMORY : add_values(from, entry, what, formers, sum, one);
    taciti_free(sum);
    taciti_free(one);
    return status;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static void tell_filled(const taciti_state *state, const action *actions) {
    for (size_t i = 0; i < state->count; i++)
        if (state->entries[i].filled != NULL && actions[i] != LEAVE && actions[i] != BEGIN_AGAIN)
            *state->entries[i].filled = true;
}

/* Sums and means over ranks need their number. */
static tacit_status check_formers(const taciti_ckpt_origin *from, const taciti_state *state, const action *actions,
                                  int formers) {
    for (size_t i = 0; i < state->count && formers == 0; i++)
        if (actions[i] == TAKE_MEAN || actions[i] == TAKE_SUM)
            return taciti_fail(TACIT_E_DATA, "%s: %s is of several ranks, and \"%s\", which lists them, is missing",
                               from->path, state->entries[i].name, replicas_key);
    return TACIT_OK;
}

tacit_status taciti_ckpt_restore_state(const taciti_ckpt_origin *from, const taciti_state *state) {
    action actions[TACITI_STATE_MAX_ENTRIES];
    int formers = 0;
    TACITI_TRY(check_table(state));
    TACITI_TRY(taciti_ckpt_former_ranks(from, &formers));
    TACITI_TRY(decide_all(from, state, actions));
    TACITI_TRY(check_formers(from, state, actions, formers));
    for (size_t i = 0; i < state->count && from->rank == 0; i++)
        if (actions[i] == BEGIN_AGAIN)
            taciti_log(TACITI_LOG_WARN,
                       "%s: %s is of another number of ranks, of other buckets or of another version: it begins anew",
                       from->path, state->entries[i].name);
    TACITI_TRY(restore_taken(from, state, actions));
    TACITI_TRY(restore_added(from, state, actions, formers));
    for (size_t i = 0; i < state->count; i++)
        if (!is_stored_in_shards(&state->entries[i]))
            TACITI_TRY(restore_numbers(from, &state->entries[i], actions[i], formers));
    tell_filled(state, actions);
    return TACIT_OK;
}
