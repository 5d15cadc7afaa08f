/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "exchange/arrivals.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

#define FIRST_LINE "tacit arrivals 1 rank %d of %d run %016" PRIx64

enum { PATH_BYTES = 4096, HEAD_BYTES = 96 };

struct taciti_arrivals {
    FILE *file;
    char path[PATH_BYTES];
    int ranks;
    bool replays, failed;
    char *line; /* that was read last and not yet used up; owned */
    size_t line_bytes;
    int64_t number; /* of that line in the file */
    int64_t step;   /* that the line is about; -1: there is no line */
    bool complete;  /* the line ends with a newline, as every line that was written to its end */
};

static void close_file(taciti_arrivals *a) {
    if (a->file != NULL) (void)fclose(a->file);
    free(a->line);
    taciti_free(a);
}

static tacit_status open_file(const char *folder, const taciti_arrivals_run *run, const char *mode,
                              taciti_arrivals **out) {
    taciti_arrivals *a = taciti_calloc(1, sizeof *a);
    char name[HEAD_BYTES];
    if (a == NULL) return TACIT_E_MEMORY;
    (void)snprintf(name, sizeof name, "rank-%d.log", run->rank);
    tacit_status status = taciti_path_join(a->path, sizeof a->path, folder, name);
    a->ranks = run->ranks;
    a->replays = mode[0] == 'r';
    if (status == TACIT_OK && !a->replays) status = taciti_file_make_folder(folder);
    if (status == TACIT_OK) {
        a->file = fopen(a->path, mode);
        if (a->file == NULL) status = a->replays ? taciti_file_refuse(a->path) : taciti_file_fail("create", a->path);
    }
    if (status == TACIT_OK)
        *out = a;
    else
        close_file(a);
    return status;
}

tacit_status taciti_arrivals_record(const char *folder, const taciti_arrivals_run *run, taciti_arrivals **out) {
    TACITI_TRY(open_file(folder, run, "we", out));
    (*out)->failed = fprintf((*out)->file, FIRST_LINE "\n", run->rank, run->ranks, run->digest) < 0;
    return TACIT_OK;
}

/* ---- read -------------------------------------------------------------------------------------------------------- */

static tacit_status refuse_line(const taciti_arrivals *a, const char *why) {
    return taciti_fail(TACIT_E_DATA, "%s, line %" PRId64 ": %s; the run cannot be repeated beyond it", a->path,
                       a->number, why);
}

/* Reads the next line, and the step that it begins with. */
static void read_line(taciti_arrivals *a) {
    const ssize_t length = getline(&a->line, &a->line_bytes, a->file);
    a->step = -1;
    if (length <= 0) return;
    a->number++;
    a->complete = a->line[length - 1] == '\n';
    a->line[a->complete ? length - 1 : length] = '\0';
    if (a->number > 1 && sscanf(a->line, "%" SCNd64, &a->step) != 1) a->step = -1;
}

tacit_status taciti_arrivals_replay(const char *folder, const taciti_arrivals_run *run, taciti_arrivals **out) {
    taciti_arrivals *a = NULL;
    char expected[HEAD_BYTES];
    TACITI_TRY(open_file(folder, run, "re", &a));
    (void)snprintf(expected, sizeof expected, FIRST_LINE, run->rank, run->ranks, run->digest);
    read_line(a);
    if (a->number == 1 && strcmp(a->line, expected) == 0) {
        read_line(a);
        *out = a;
        return TACIT_OK;
    }
    const tacit_status status = taciti_fail(TACIT_E_CONFIG,
                                            "%s is not the log of this run: it begins with \"%.90s\" instead of "
                                            "\"%s\"; repeat a run with the options and ranks that it had",
                                            a->path, a->number == 1 ? a->line : "", expected);
    close_file(a);
    return status;
}

/* Reads ranks until a word comes; NULL: there is none that may stand here. */
static char *read_ranks(const taciti_arrivals *a, char *at, int *ranks, size_t *count) {
    for (;;) {
        char *end = NULL;
        const long rank = strtol(at, &end, 10);
        if (end == at) return at + strspn(at, " ");
        if (rank < 0 || rank >= a->ranks || *count == (size_t)a->ranks) return NULL;
        ranks[(*count)++] = (int)rank;
        at = end;
    }
}

static bool parse_line(const taciti_arrivals *a, taciti_arrivals_step *out) {
    char *at = strchr(a->line, ' ');
    if (at == NULL || strncmp(at, " take", 5) != 0) return false;
    at = read_ranks(a, at + 5, out->take, &out->taken);
    if (at == NULL || strncmp(at, "offer", 5) != 0) return false;
    at = read_ranks(a, at + 5, out->offer, &out->offered);
    return at != NULL && *at == '\0';
}

tacit_status taciti_arrivals_read(taciti_arrivals *a, taciti_arrivals_step *out) {
    out->taken = out->offered = 0;
    if (a->step < 0 || !a->complete) return refuse_line(a, "the log ends here, or is damaged");
    if (a->step > out->step || taciti_arrivals_meets(a, out->step)) return TACIT_OK;
    if (a->step < out->step) return refuse_line(a, "this step has passed");
    if (!parse_line(a, out)) return refuse_line(a, "not \"STEP take RANKS offer RANKS\"");
    read_line(a);
    return TACIT_OK;
}

bool taciti_arrivals_meets(const taciti_arrivals *a, int64_t step) {
    const char *word = a->step == step && a->complete ? strchr(a->line, ' ') : NULL;
    return word != NULL && strcmp(word, " meet") == 0;
}

/* ---- write ------------------------------------------------------------------------------------------------------- */

bool taciti_arrivals_replays(const taciti_arrivals *a) { return a != NULL && a->replays; }

static void put_ranks(taciti_arrivals *a, const char *word, const int *ranks, size_t count) {
    if (fputs(word, a->file) < 0) a->failed = true;
    for (size_t i = 0; i < count; i++)
        if (fprintf(a->file, " %d", ranks[i]) < 0) a->failed = true;
}

void taciti_arrivals_write(taciti_arrivals *a, const taciti_arrivals_step *step) {
    if (a == NULL) return;
    if (a->replays) { /* this meeting is over */
        if (step->meet && taciti_arrivals_meets(a, step->step)) read_line(a);
        return;
    }
    if (!step->meet && step->taken + step->offered == 0) return;
    if (fprintf(a->file, "%" PRId64, step->step) < 0) a->failed = true;
    if (step->meet) {
        put_ranks(a, " meet\n", NULL, 0);
        return;
    }
    put_ranks(a, " take", step->take, step->taken);
    put_ranks(a, " offer", step->offer, step->offered);
    put_ranks(a, "\n", NULL, 0);
}

void taciti_arrivals_flush(taciti_arrivals *a) {
    if (a != NULL && !a->replays && fflush(a->file) != 0) a->failed = true;
}

tacit_status taciti_arrivals_close(taciti_arrivals *a) {
    if (a == NULL) return TACIT_OK;
    taciti_arrivals_flush(a);
    const bool failed = a->failed;
    const tacit_status status = failed ? taciti_file_fail("write", a->path) : TACIT_OK;
    close_file(a);
    return status;
}
