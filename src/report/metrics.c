/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/memory.h"
#include "report/appender.h"
#include "report/report.h"
#include "report/tensorboard.h"

enum { PATH_BYTES = 4096 };

struct taciti_metrics {
    taciti_appender lines, events; /* events.fd is -1 without TensorBoard */
};

/* ---- what stays of an old file ---------------------------------------------------------------------------------- */
typedef struct trim {
    const char *path;
    int64_t resume_step;
    size_t kept, dropped, damaged;
} trim;

static bool line_stays(trim *t, const char *line, size_t count) {
    json_t *object = json_loadb(line, count, 0, NULL);
    const json_t *step = json_object_get(object, "step");
    const bool whole = json_is_object(object) && count > 0 && line[count - 1] == '\n';
    const bool stays = whole && t->resume_step > 0 &&
                       (!json_is_integer(step) || json_integer_value(step) <= (json_int_t)t->resume_step);
    json_decref(object);
    t->kept += stays;
    t->dropped += whole && !stays;
    t->damaged += !whole;
    return stays;
}

static tacit_status copy_lines(trim *t, FILE *from, FILE *to) {
    char *line = NULL;
    size_t capacity = 0;
    ssize_t count = 0;
    bool good = true;
    while (good && (count = getline(&line, &capacity, from)) >= 0)
        if (line_stays(t, line, (size_t)count)) good = fwrite(line, 1, (size_t)count, to) == (size_t)count;
    good = good && !ferror(from) && fflush(to) == 0 && fsync(fileno(to)) == 0;
    const int reason = errno;
    free(line);
    return good ? TACIT_OK : taciti_fail(TACIT_E_IO, "%s: cannot copy its lines: %s", t->path, strerror(reason));
}

static tacit_status replace_file(trim *t, const char *temporary, const char *folder, FILE *from) {
    FILE *to = fopen(temporary, "we");
    if (to == NULL) return taciti_fail(TACIT_E_IO, "%s: cannot create it: %s", temporary, strerror(errno));
    tacit_status status = copy_lines(t, from, to);
    if (fclose(to) != 0 && status == TACIT_OK)
        status = taciti_fail(TACIT_E_IO, "%s: cannot write it: %s", temporary, strerror(errno));
    if (status == TACIT_OK && t->dropped + t->damaged > 0) {
        if (rename(temporary, t->path) == 0) return taciti_file_sync_folder(folder);
        status = taciti_fail(TACIT_E_IO, "%s: cannot replace it: %s", t->path, strerror(errno));
    }
    unlink(temporary);
    return status;
}

static tacit_status trim_file(const char *folder, const char *path, int64_t resume_step) {
    FILE *from = fopen(path, "re");
    if (from == NULL && errno == ENOENT) return TACIT_OK;
    if (from == NULL) return taciti_fail(TACIT_E_IO, "%s: cannot open it: %s", path, strerror(errno));
    char temporary[PATH_BYTES];
    trim t = {.path = path, .resume_step = resume_step};
    tacit_status status = taciti_path_join(temporary, sizeof temporary, folder, ".metrics.jsonl.new");
    if (status == TACIT_OK) status = replace_file(&t, temporary, folder, from);
    fclose(from);
    if (status == TACIT_OK && t.damaged > 0)
        taciti_log(TACITI_LOG_WARN, "%s: dropped %zu damaged line(s), as a killed run leaves behind", path, t.damaged);
    return status;
}

/* ---- life ------------------------------------------------------------------------------------------------------- */
static tacit_status open_files(const char *run_dir, int64_t resume_step, bool tensorboard, taciti_metrics *metrics) {
    char path[PATH_BYTES];
    TACITI_TRY(taciti_path_join(path, sizeof path, run_dir, "metrics.jsonl"));
    TACITI_TRY(trim_file(run_dir, path, resume_step));
    TACITI_TRY(taciti_appender_open(path, &metrics->lines));
    if (!tensorboard) return TACIT_OK;
    TACITI_TRY(taciti_path_join(path, sizeof path, run_dir, "tb"));
    return taciti_tensorboard_open(path, resume_step + 1, &metrics->events);
}

tacit_status taciti_metrics_open(const char *run_dir, int64_t resume_step, bool tensorboard, taciti_metrics **out) {
    taciti_metrics *metrics = taciti_calloc(1, sizeof *metrics);
    if (metrics == NULL) return TACIT_E_MEMORY;
    metrics->lines.fd = metrics->events.fd = -1;
    const tacit_status status = open_files(run_dir, resume_step, tensorboard, metrics);
    if (status != TACIT_OK) {
        taciti_metrics_close(metrics);
        return status;
    }
    *out = metrics;
    return TACIT_OK;
}

void taciti_metrics_close(taciti_metrics *metrics) {
    if (metrics == NULL) return;
    taciti_appender_close(&metrics->lines);
    taciti_appender_close(&metrics->events);
    taciti_free(metrics);
}

/* ---- lines ------------------------------------------------------------------------------------------------------ */
/* A figure of a step and its names in metrics.jsonl and in TensorBoard. */
typedef struct figure {
    const char *key, *tag; /* NULL: it has none there */
    double value;          /* NaN: not measured */
    const uint64_t *count; /* what metrics.jsonl holds of a count; NULL: the value */
} figure;

enum { FIGURES_MAX = 32 };

static double or_nan_if_zero(double value) { return value > 0 ? value : (double)NAN; }

/* Appends the figures to the line and to the scalars, in the order of the line. */
static size_t put_figures(const taciti_step_metrics *m, FILE *line, taciti_scalar scalars[FIGURES_MAX]) {
    const double megabyte = 1e6;
    const uint64_t slowest_rank = (uint64_t)m->slowest_rank, skipped = (uint64_t)m->skipped;
    const figure figures[] = {
        {"loss", "train/loss", m->loss, NULL},
        {"val_loss", "val/loss", m->val_loss, NULL},
        {"lr", "train/lr", m->lr, NULL},
        {"grad_norm", "train/grad_norm", m->grad_norm, NULL},
        {"consensus", "train/consensus", m->consensus, NULL},
        {"distance", "train/distance", m->distance, NULL},
        {"tokens_per_s", "perf/tokens_per_s", m->tokens_per_s, NULL},
        {"step_s", "perf/step_s", m->step_s, NULL},
        {"compute_s", "perf/compute_s", m->compute_s, NULL},
        {"encode_s", "perf/encode_s", m->encode_s, NULL},
        {"wait_s", "perf/wait_s", m->wait_s, NULL},
        {"update_s", "perf/update_s", m->update_s, NULL},
        {m->slowest_rank >= 0 ? "slowest_rank" : NULL, NULL, (double)NAN, &slowest_rank},
        {"slowest_s", NULL, m->slowest_s, NULL},
        {"fastest_s", NULL, m->fastest_s, NULL},
        {"bytes_sent", "wire/sent_MB", (double)m->bytes_sent / megabyte, &m->bytes_sent},
        {"bytes_received", "wire/received_MB", (double)m->bytes_received / megabyte, &m->bytes_received},
        {"compression", "wire/compression", or_nan_if_zero(m->compression), NULL},
        {"factor", "wire/factor", or_nan_if_zero(m->factor), NULL},
        {"gain", "wire/gain", or_nan_if_zero(m->gain), NULL},
        {"kept", NULL, or_nan_if_zero(m->kept), NULL},
        {"pending", NULL, or_nan_if_zero(m->pending), NULL},
        {"mfu", "perf/mfu", m->mfu, NULL},
        {"skipped", "train/skipped", (double)m->skipped, &skipped},
        {"tokens", "train/tokens", (double)m->tokens, &m->tokens},
    };
    size_t count = 0;
    for (const figure *f = figures; f < figures + sizeof figures / sizeof *figures; f++) {
        if (f->tag != NULL) scalars[count++] = (taciti_scalar){f->tag, f->value};
        if (f->key != NULL && f->count != NULL) (void)fprintf(line, ",\"%s\":%" PRIu64, f->key, *f->count);
        if (f->key != NULL && f->count == NULL && isfinite(f->value)) /* nine digits preserve any float */
            (void)fprintf(line, ",\"%s\":%.9g", f->key, f->value);
    }
    return count;
}

/* ,"time": seconds, with three decimals. */
static void put_time(FILE *out) {
    const int64_t ms = taciti_wall_ns() / 1000000;
    (void)fprintf(out, ",\"time\":%" PRId64 ".%03" PRId64, ms / 1000, ms % 1000);
}

typedef struct step_line {
    const taciti_step_metrics *m;
    taciti_scalar *scalars; /* [FIGURES_MAX] */
    size_t *scalar_count;
} step_line;

static void write_step(FILE *out, const void *object) {
    const step_line *line = object;
    (void)fprintf(out, "{\"step\":%" PRId64, line->m->step);
    put_time(out);
    *line->scalar_count = put_figures(line->m, out, line->scalars);
    (void)fputs("}\n", out);
}

tacit_status taciti_metrics_step(taciti_metrics *metrics, const taciti_step_metrics *m) {
    taciti_scalar scalars[FIGURES_MAX];
    size_t count = 0;
    char *line = taciti_text_of(write_step, &(step_line){m, scalars, &count});
    if (line == NULL) return TACIT_E_MEMORY;
    const tacit_status status = taciti_appender_put(&metrics->lines, line, strlen(line));
    taciti_free(line);
    if (status != TACIT_OK || metrics->events.fd < 0) return status;
    return taciti_tensorboard_put(&metrics->events, m->step, scalars, count);
}

typedef struct event_line {
    int64_t step;
    const char *event, *members; /* members: "" if there are none */
} event_line;

static void write_event(FILE *out, const void *object) {
    const event_line *line = object;
    (void)fputs("{\"event\":", out);
    taciti_json_quote(out, line->event);
    (void)fprintf(out, ",\"step\":%" PRId64, line->step);
    put_time(out);
    if (*line->members != '\0') (void)fputc(',', out);
    /* A newline inside a JSON text stands between tokens only: strings hold it escaped. */
    for (const char *c = line->members; *c != '\0'; c++) (void)fputc(*c == '\n' || *c == '\r' ? ' ' : *c, out);
    (void)fputs("}\n", out);
}

tacit_status taciti_metrics_event(taciti_metrics *metrics, int64_t step, const char *event, const char *members_json) {
    const char *members = members_json == NULL ? "" : members_json + strspn(members_json, " \t\r\n");
    char *line = taciti_text_of(write_event, &(event_line){step, event, members});
    if (line == NULL) return TACIT_E_MEMORY;
    json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    const tacit_status status = json_is_object(object)
                                    ? taciti_appender_put(&metrics->lines, line, strlen(line))
                                    : taciti_fail(TACIT_E_INTERNAL, "event %s: not JSON members: %s", event, members);
    json_decref(object);
    taciti_free(line);
    return status;
}
