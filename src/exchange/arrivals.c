/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "exchange/arrivals.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

#define FIRST_LINE "tacit arrivals 1 rank %d of %d run %016" PRIx64

#define SUM " ~%08" PRIx32
#define STAMP " stamp %016" PRIx64

enum { PATH_BYTES = 4096, HEAD_BYTES = 128, SUM_BYTES = 16, NUMBER_BYTES = 21 };

struct taciti_arrivals {
    FILE *file;
    char path[PATH_BYTES];
    int ranks;
    bool replays;
    bool failed; /* a line could not be written, and none is from then on */
    char *line;  /* that was read last and not yet used up; owned */
    size_t line_bytes;
    int64_t number;      /* of that line in the file */
    int64_t step;        /* that the line is about; -1: there is no line */
    bool complete;       /* the line is as it was written, to its end */
    bool whole;          /* it ends with a line break: no crash has cut it off */
    bool ended;          /* there is no further line */
    uint64_t stamp, sum; /* sum: of all lines so far */
    size_t text_bytes;
    char text[]; /* the line that is being written */
};

static void close_file(taciti_arrivals *a) {
    if (a->file != NULL) (void)fclose(a->file);
    free(a->line);
    taciti_free(a);
}

static tacit_status open_file(const char *folder, const taciti_arrivals_run *run, const char *mode,
                              taciti_arrivals **out) {
    const size_t text_bytes = HEAD_BYTES + 2 * NUMBER_BYTES * (size_t)run->ranks;
    taciti_arrivals *a = taciti_calloc(1, sizeof *a + text_bytes);
    char name[HEAD_BYTES];
    if (a == NULL) return TACIT_E_MEMORY;
    a->text_bytes = text_bytes;
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

/* A full disk must not end a run of days: the log stops with one loud line, training goes on. */
static void note_failure(taciti_arrivals *a) {
    a->failed = true;
    taciti_log(TACITI_LOG_ERROR, "%s: cannot write: %s; training goes on, but this log cannot be replayed", a->path,
               strerror(errno != 0 ? errno : EIO));
}

static uint32_t add_to_sum(taciti_arrivals *a, const char *line) {
    a->sum = XXH3_64bits_withSeed(line, strlen(line), a->sum);
    return (uint32_t)a->sum;
}

tacit_status taciti_arrivals_record(const char *folder, const taciti_arrivals_run *run, taciti_arrivals **out) {
    taciti_arrivals *a = NULL;
    char line[HEAD_BYTES];
    TACITI_TRY(open_file(folder, run, "we", &a));
    (void)snprintf(line, sizeof line, FIRST_LINE STAMP, run->rank, run->ranks, run->digest, run->stamp);
    (void)add_to_sum(a, line);
    if (fprintf(a->file, "%s\n", line) < 0) note_failure(a);
    *out = a;
    return TACIT_OK;
}

/* ---- read -------------------------------------------------------------------------------------------------------- */

static tacit_status refuse_line(const taciti_arrivals *a, const char *why) {
    return taciti_fail(TACIT_E_DATA, "%s, line %" PRId64 ": %s; the run cannot be repeated beyond it", a->path,
                       a->number, why);
}

/* Returns whether the line ends with the checksum, which it takes off. */
static bool take_sum_off(taciti_arrivals *a) {
    char expected[SUM_BYTES], *sum = strstr(a->line, " ~");
    if (sum == NULL) return false;
    *sum = '\0';
    (void)snprintf(expected, sizeof expected, SUM "\n", add_to_sum(a, a->line));
    *sum = ' ';
    const bool fits = strcmp(sum, expected) == 0;
    *sum = '\0';
    return fits;
}

/* Reads the next line, and the step that it begins with. */
static void read_line(taciti_arrivals *a) {
    a->step = -1;
    a->complete = false;
    a->ended = getline(&a->line, &a->line_bytes, a->file) <= 0;
    if (a->ended) return;
    a->number++;
    a->whole = strchr(a->line, '\n') != NULL;
    a->complete = take_sum_off(a);
    if (a->complete && sscanf(a->line, "%" SCNd64, &a->step) != 1) a->step = -1;
}

/* Returns whether the first line is that of the run; takes the stamp from it. */
static bool read_head(taciti_arrivals *a, const char *expected) {
    const size_t n = strlen(expected);
    const ssize_t length = getline(&a->line, &a->line_bytes, a->file);
    if (length <= 0) return false;
    a->number = 1;
    a->line[strcspn(a->line, "\n")] = '\0';
    for (char *c = a->line; *c != '\0'; c++) /* a message may quote it */
        if (*c < ' ' || *c > '~') *c = '?';
    (void)add_to_sum(a, a->line);
    return strncmp(a->line, expected, n) == 0 && sscanf(a->line + n, " stamp %" SCNx64, &a->stamp) == 1;
}

tacit_status taciti_arrivals_replay(const char *folder, const taciti_arrivals_run *run, taciti_arrivals **out) {
    taciti_arrivals *a = NULL;
    char expected[HEAD_BYTES];
    TACITI_TRY(open_file(folder, run, "re", &a));
    (void)snprintf(expected, sizeof expected, FIRST_LINE, run->rank, run->ranks, run->digest);
    if (read_head(a, expected)) {
        read_line(a);
        *out = a;
        return TACIT_OK;
    }
    const tacit_status status = taciti_fail(TACIT_E_CONFIG,
                                            "%s is not the log of this run: it begins with \"%.60s\" instead of "
                                            "\"%s\"; repeat a run with the options and ranks that it had",
                                            a->path, a->number == 1 ? a->line : "", expected);
    close_file(a);
    return status;
}

uint64_t taciti_arrivals_stamp(const taciti_arrivals *a) { return a->stamp; }

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

/* Returns whether `at` begins with `word`, or ends within it; then *rest is where it goes on. */
static bool skip_word(const char *at, const char *word, const char **rest) {
    const size_t n = strlen(word), left = strlen(at), common = left < n ? left : n;
    *rest = at + common;
    return strncmp(at, word, common) == 0;
}

/* Returns whether the line may be the beginning of one that would have been written. A checksum is off already. */
static bool is_cut_off(const char *line) {
    static const char DIGITS[] = "0123456789", RANKS[] = " 0123456789";
    const char *word = line + strspn(line, DIGITS), *rest = word;
    if (word == line) return false;
    if (skip_word(word, " begin", &rest) || skip_word(word, " meet", &rest)) return rest[strspn(rest, " ")] == '\0';
    if (!skip_word(word, " take", &rest) || !skip_word(rest + strspn(rest, RANKS), "offer", &rest)) return false;
    return rest[strspn(rest, RANKS)] == '\0';
}

tacit_status taciti_arrivals_check(taciti_arrivals *a) {
    if (!taciti_arrivals_replays(a) || a->ended || a->complete) return TACIT_OK;
    return a->whole || !is_cut_off(a->line) ? refuse_line(a, "the log is damaged") : TACIT_OK;
}

bool taciti_arrivals_ended(const taciti_arrivals *a) { return taciti_arrivals_replays(a) && a->ended; }

/* ---- write ------------------------------------------------------------------------------------------------------- */

bool taciti_arrivals_replays(const taciti_arrivals *a) { return a != NULL && a->replays; }

/* Begins a line: a step, and what is said of it. */
static void begin_line(taciti_arrivals *a, int64_t step, const char *word) {
    (void)snprintf(a->text, a->text_bytes, "%" PRId64 " %s", step, word);
}

static void add_ranks(taciti_arrivals *a, const int *ranks, size_t count) {
    for (size_t i = 0; i < count; i++) taciti_text_add(a->text, a->text_bytes, " %d", ranks[i]);
}

static void end_line(taciti_arrivals *a) {
    if (!a->failed && fprintf(a->file, "%s" SUM "\n", a->text, add_to_sum(a, a->text)) < 0) note_failure(a);
}

tacit_status taciti_arrivals_begin(taciti_arrivals *a, int64_t step) {
    if (a == NULL) return TACIT_OK;
    if (!a->replays) {
        begin_line(a, step, "begin");
        end_line(a);
        return TACIT_OK;
    }
    if (a->step < 0 || strstr(a->line, " begin") == NULL) return refuse_line(a, "the log ends here, or is damaged");
    if (a->step != step)
        return taciti_fail(TACIT_E_CONFIG,
                           "%s begins after step %" PRId64 ", and this run after step %" PRId64
                           "; begin where it did: --resume from the same checkpoint, or without it",
                           a->path, a->step, step);
    read_line(a);
    return TACIT_OK;
}

void taciti_arrivals_write(taciti_arrivals *a, const taciti_arrivals_step *step) {
    if (a == NULL) return;
    if (a->replays) { /* this meeting is over */
        if (step->meet && taciti_arrivals_meets(a, step->step)) read_line(a);
        return;
    }
    if (!step->meet && step->taken + step->offered == 0) return;
    begin_line(a, step->step, step->meet ? "meet" : "take");
    if (!step->meet) {
        add_ranks(a, step->take, step->taken);
        taciti_text_add(a->text, a->text_bytes, " offer");
        add_ranks(a, step->offer, step->offered);
    }
    end_line(a);
}

void taciti_arrivals_flush(taciti_arrivals *a) {
    if (a != NULL && !a->replays && !a->failed && fflush(a->file) != 0) note_failure(a);
}

tacit_status taciti_arrivals_close(taciti_arrivals *a) {
    if (a == NULL) return TACIT_OK;
    taciti_arrivals_flush(a);
    if (fclose(a->file) != 0 && !a->replays && !a->failed) note_failure(a); /* a full disk shows here on NFS */
    a->file = NULL;
    if (a->failed) taciti_error_set("%s: a line could not be written", a->path);
    const tacit_status status = a->failed ? TACIT_E_IO : TACIT_OK;
    close_file(a);
    return status;
}
