/* SPDX-License-Identifier: Apache-2.0
 *
 * The run folder before the first step: one run at a time, what can be known about it is checked, an old run is kept.
 */
#define _XOPEN_SOURCE 700 /* realpath */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "train/trainer.h"

enum { MANY_OLD = 3 };

/* ---- what cannot be ---------------------------------------------------------------------------------------------- */

typedef bool is_such(const char *folder, const char *name);

static bool has_entry(const char *folder, is_such *such) {
    bool found = false;
    DIR *entries = opendir(folder);
    for (const struct dirent *entry; entries != NULL && !found && (entry = readdir(entries)) != NULL;)
        found = such(folder, entry->d_name);
    if (entries != NULL) (void)closedir(entries);
    return found;
}

static bool is_checkpoint(const char *folder, const char *name) {
    char path[TACITI_PATH_BYTES];
    return strncmp(name, "step_", strlen("step_")) == 0 &&
           taciti_path_join(path, sizeof path, folder, name) == TACIT_OK &&
           taciti_file_exists_in(path, "manifest.json");
}

/* A run in the checkpoints of another one would be deleted with them. */
static tacit_status refuse_checkpoints(const char *folder) {
    const bool one = taciti_file_exists_in(folder, "manifest.json");
    char path[TACITI_PATH_BYTES];
    if (!one && !has_entry(folder, is_checkpoint)) return TACIT_OK;
    TACITI_TRY(taciti_path_join(path, sizeof path, folder, one ? "../.." : ".."));
    char *real = realpath(path, NULL);
    const char *run = real != NULL ? real : path;
    const tacit_status status = taciti_fail(
        TACIT_E_CONFIG, "%s %s of the run %s: --run.dir %s --resume goes on, --train.init %s starts from its weights",
        folder, one ? "is a checkpoint" : "holds the checkpoints", run, run, run);
    free(real);
    return status;
}

tacit_status taciti_check_run_folder(const char *folder) {
    struct stat info;
    if (*folder == '\0')
        return taciti_fail(TACIT_E_CONFIG, "run.dir is empty, and a run needs a folder: give --run.dir FOLDER");
    const bool found = stat(folder, &info) == 0, in_file = !found && errno == ENOTDIR;
    if (in_file || (found && !S_ISDIR(info.st_mode)))
        return taciti_fail(TACIT_E_CONFIG, "run.dir %s %s a file, and a run needs a folder: give another --run.dir",
                           folder, in_file ? "lies in" : "is");
    return refuse_checkpoints(folder);
}

static bool holds_run(const char *folder) {
    return taciti_file_exists_in(folder, "metrics.jsonl") || taciti_file_exists_in(folder, "ckpt");
}

static tacit_status check_input(const char *folder, const char *key, const char *path) {
    if (path == NULL || path[0] == '\0' || !taciti_file_lies_in(path, folder)) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "%s %s lies in run.dir %s, which holds an earlier run and would be moved aside whole: give "
                       "another --run.dir, or go on with that run with --resume",
                       key, path, folder);
}

static tacit_status check_inputs(const char *folder, const char *key, const taciti_list *paths) {
    tacit_status status = TACIT_OK;
    for (size_t i = 0; status == TACIT_OK && i < paths->count; i++) status = check_input(folder, key, paths->items[i]);
    return status;
}

/* A run that goes on adds to it. */
static tacit_status check_metrics(const char *folder) {
    char path[TACITI_PATH_BYTES];
    struct stat info;
    TACITI_TRY(taciti_path_join(path, sizeof path, folder, "metrics.jsonl"));
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG, "%s is a folder, and a run writes its metrics there: move it away", path);
}

tacit_status taciti_check_run_inputs(const taciti_train_settings *settings, const taciti_train_request *request) {
    const char *folder = settings->run.dir.text;
    const taciti_data_options *data = &settings->data;
    if (request->resume) return check_metrics(folder);
    if (!holds_run(folder)) return TACIT_OK;
    TACITI_TRY(check_input(folder, "train.init", settings->train.init.text));
    TACITI_TRY(check_inputs(folder, "data.train", &data->train));
    TACITI_TRY(check_inputs(folder, "data.validation", &data->validation));
    TACITI_TRY(check_input(folder, "data.vocab", data->vocab.text));
    TACITI_TRY(check_input(folder, "run.arrivals", settings->run.arrivals.text));
    TACITI_TRY(check_input(folder, "--replay", request->replay));
    return check_input(folder, "the configuration", request->file);
}

/* ---- claiming ---------------------------------------------------------------------------------------------------- */

static tacit_status check_space(const taciti_trainer *trainer, const taciti_state *state, const char *folder) {
    struct statvfs disk;
    if (trainer->rank != 0 || statvfs(folder, &disk) != 0) return TACIT_OK;
    const double available = (double)disk.f_bavail * (double)disk.f_frsize;
    double needed = 0; /* all ranks together; manifest and headers are small beside it */
    for (size_t i = 0; i < state->count; i++) {
        const taciti_state_entry *entry = &state->entries[i];
        const double one = (double)entry->n * (entry->kind == TACITI_STATE_ARRAY ? sizeof(float) : 1);
        /* the ranges of all ranks together are one array */
        const bool of_each = taciti_state_is_of_rank(entry) && entry->owner == TACITI_STATE_OWN;
        needed += of_each ? one * trainer->ranks : one;
    }
    const int digits = needed * TACITI_MIB < 10 ? 2 : 0;
    if (needed <= available) return TACIT_OK;
    return taciti_fail(TACIT_E_IO,
                       "%s: a checkpoint needs %.*f MiB, the disk has %.*f MiB; make room, use another --run.dir, or "
                       "--train.save_every -1 for a run without checkpoints",
                       folder, digits, needed * TACITI_MIB, digits, available * TACITI_MIB);
}

/* Where ranks write parts of their own, a host that does not share the folder would be found at the first checkpoint.
 */
static tacit_status check_shared(const taciti_trainer *trainer, const char *folder) {
    char path[TACITI_PATH_BYTES];
    bool sees = false;
    TACITI_TRY(taciti_path_join(path, sizeof path, folder, "lock"));
    TACITI_TRY(taciti_ckpt_sees(trainer->comm, path, &sees));
    tacit_status status = TACIT_OK;
    if (!sees)
        status = taciti_fail(
            TACIT_E_IO,
            "%s: rank %d on host %s does not share this folder, but with strategy %s every rank writes "
            "a part of its own; use a --run.dir that all hosts share",
            folder, trainer->rank, taciti_comm_peer(trainer->comm, trainer->rank)->host, trainer->strategy->name);
    return taciti_comm_agree(trainer->comm, status);
}

/* A log below run.dir is claimed with it. */
static tacit_status claim_log(taciti_trainer *trainer) {
    const char *log = trainer->settings->run.arrivals.text;
    if (*log == '\0' || taciti_file_lies_in(log, trainer->settings->run.dir.text)) return TACIT_OK;
    return taciti_lock_take(log, "run.arrivals", NULL, &trainer->log_lock);
}

tacit_status taciti_trainer_claim_folder(taciti_trainer *trainer) {
    const char *folder = trainer->settings->run.dir.text;
    tacit_status status = TACIT_OK;
    if (trainer->rank == 0) status = taciti_lock_take(folder, "run.dir", NULL, &trainer->lock);
    if (trainer->rank == 0 && status == TACIT_OK) status = claim_log(trainer);
    return taciti_comm_agree(trainer->comm, status);
}

tacit_status taciti_trainer_check_folder(const taciti_trainer *trainer) {
    const char *folder = trainer->settings->run.dir.text;
    taciti_state state = {.count = 0};
    if (trainer->settings->train.save_every < 0) return TACIT_OK;
    taciti_driver_list_state(trainer->driver, true, &state);
    TACITI_TRY(taciti_comm_agree(trainer->comm, check_space(trainer, &state, folder)));
    bool parts = false;
    for (size_t i = 0; i < state.count; i++) parts = parts || taciti_state_is_of_rank(&state.entries[i]);
    return parts ? check_shared(trainer, folder) : TACIT_OK;
}

/* ---- an old run -------------------------------------------------------------------------------------------------- */

/* A kind of files that go aside when their folder is used again. */
typedef struct leftovers {
    const char *what, *instead;
    bool (*holds)(const char *folder);
    is_such *moves;   /* an entry of the folder */
    const char *last; /* that is moved; NULL: any */
    bool advises;     /* says how to remove many of them: nothing else has such a name */
} leftovers;

static tacit_status fail_move(const leftovers *old, const char *folder, const char *aside) {
    return taciti_fail(TACIT_E_IO, "%s holds an earlier %s that cannot be moved to %s: %s; %s", folder, old->what,
                       aside, strerror(errno), old->instead);
}

/* folder.old1, folder.old2, ...: the first that does not exist is made. Where the folder is a link, beside its target,
 * so that what it holds stays on its disk. */
static tacit_status make_aside(const leftovers *old, const char *folder, char aside[TACITI_PATH_BYTES], int *number) {
    char *real = realpath(folder, NULL);
    if (real == NULL) return fail_move(old, folder, "another folder");
    int made = -1, length = 0;
    for (*number = 0; made != 0;) {
        length = snprintf(aside, TACITI_PATH_BYTES, "%s.old%d", real, ++*number);
        if (length >= TACITI_PATH_BYTES) break;
        made = mkdir(aside, 0777);
        if (made != 0 && errno != EEXIST) break;
    }
    free(real);
    if (length >= TACITI_PATH_BYTES) return taciti_fail(TACIT_E_IO, "%s: the path is too long", folder);
    return made == 0 ? TACIT_OK : fail_move(old, folder, aside);
}

static tacit_status move_entry(const leftovers *old, const char *folder, const char *aside, const char *name) {
    char from[TACITI_PATH_BYTES], to[TACITI_PATH_BYTES];
    TACITI_TRY(taciti_path_join(from, sizeof from, folder, name));
    TACITI_TRY(taciti_path_join(to, sizeof to, aside, name));
    return rename(from, to) == 0 ? TACIT_OK : fail_move(old, folder, aside);
}

static tacit_status move_entries(const leftovers *old, const char *folder, const char *aside) {
    DIR *entries = opendir(folder);
    if (entries == NULL) return fail_move(old, folder, aside);
    tacit_status status = TACIT_OK;
    for (const struct dirent *entry; status == TACIT_OK && (entry = readdir(entries)) != NULL;) {
        const bool waits = old->last != NULL && strcmp(entry->d_name, old->last) == 0;
        if (!waits && old->moves(folder, entry->d_name)) status = move_entry(old, folder, aside, entry->d_name);
    }
    (void)closedir(entries);
    if (status == TACIT_OK && old->last != NULL && taciti_file_exists_in(folder, old->last))
        status = move_entry(old, folder, aside, old->last);
    return status;
}

static tacit_status set_aside(const leftovers *old, const char *folder, const char *hint) {
    char aside[TACITI_PATH_BYTES], many[TACITI_PATH_BYTES] = "";
    int number = 0;
    if (!old->holds(folder)) return TACIT_OK;
    TACITI_TRY(make_aside(old, folder, aside, &number));
    const tacit_status moved = move_entries(old, folder, aside);
    if (moved != TACIT_OK) (void)rmdir(aside); /* unless something is in it */
    TACITI_TRY(moved);
    size_t stem = strlen(aside); /* without the number */
    while (stem > 0 && aside[stem - 1] >= '0' && aside[stem - 1] <= '9') stem--;
    if (number >= MANY_OLD && old->advises)
        (void)snprintf(many, sizeof many, "; %d old runs lie there, to remove them: rm -r %.*s*", number, (int)stem,
                       aside);
    taciti_log(TACITI_LOG_WARN, "%s held an earlier %s: it is now %s%s%s", folder, old->what, aside, hint, many);
    return TACIT_OK;
}

/* Everything but the lock. */
static bool moves_with_run(const char *folder, const char *name) {
    (void)folder;
    return strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && strcmp(name, "lock") != 0;
}

tacit_status taciti_set_old_run_aside(const char *folder, bool resume) {
    /* The metrics go last: after a kill in the middle they still say that the rest is an old run. */
    static const leftovers run = {.what = "run",
                                  .instead = "use --resume or another --run.dir",
                                  .holds = holds_run,
                                  .moves = moves_with_run,
                                  .last = "metrics.jsonl",
                                  .advises = true};
    return set_aside(&run, folder, resume ? "" : " (to go on with a run, use --resume)");
}

static bool is_log(const char *folder, const char *name) {
    char path[TACITI_PATH_BYTES];
    const size_t digits = strncmp(name, "rank-", 5) == 0 ? strspn(name + 5, "0123456789") : 0;
    return digits > 0 && strcmp(name + 5 + digits, ".log") == 0 &&
           taciti_path_join(path, sizeof path, folder, name) == TACIT_OK && taciti_file_is_plain(path);
}

static bool holds_log(const char *folder) { return has_entry(folder, is_log); }

tacit_status taciti_set_old_log_aside(const char *folder) {
    static const leftovers log = {
        .what = "log", .instead = "use another --run.arrivals", .holds = holds_log, .moves = is_log};
    return set_aside(&log, folder, "");
}

/* ---- a run that is not there ------------------------------------------------------------------------------------- */

void taciti_find_similar_run(const char *folder, char *out, size_t out_bytes) {
    char whole[TACITI_PATH_BYTES], parent[TACITI_PATH_BYTES], path[TACITI_PATH_BYTES];
    size_t end = strlen(folder); /* without trailing slashes */
    while (end > 0 && folder[end - 1] == '/') end--;
    (void)snprintf(whole, sizeof whole, "%.*s", (int)end, folder);
    if (taciti_path_parent(whole, parent) != TACIT_OK) return;
    const char *slash = strrchr(whole, '/'), *name = slash == NULL ? whole : slash + 1;
    taciti_nearest nearest = {0};
    DIR *entries = opendir(parent);
    for (const struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;)
        if (strcmp(entry->d_name, name) != 0 &&
            taciti_path_join(path, sizeof path, parent, entry->d_name) == TACIT_OK &&
            taciti_file_exists_in(path, "ckpt"))
            taciti_nearest_offer(&nearest, name, entry->d_name);
    if (entries != NULL) (void)closedir(entries);
    (void)snprintf(out, out_bytes, "%s", nearest.hint);
}
