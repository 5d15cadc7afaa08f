/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "report/appender.h"
#include "report/report.h"
#include "report/tensorboard.h"

enum { PATH_BYTES = 4096 };

struct taciti_metrics {
    taciti_appender lines, events; /* events.fd is -1 without TensorBoard */
};

/* ---- what stays of an old file ---------------------------------------------------------------------------------- */
static bool line_stays(const char *line, size_t count, int64_t resume_step, size_t *damaged) {
    json_t *object = json_loadb(line, count, 0, NULL);
    const json_t *step = json_object_get(object, "step");
    const bool whole = json_is_object(object) && line[count - 1] == '\n';
    const bool stays =
        whole && resume_step > 0 && (!json_is_integer(step) || json_integer_value(step) <= (json_int_t)resume_step);
    json_decref(object);
    *damaged += !whole;
    return stays;
}

/* A file that needs no cut is not rewritten. */
static tacit_status trim_file(const char *path, int64_t resume_step) {
    char *text = NULL;
    size_t bytes = 0, kept = 0, damaged = 0, count = 0;
    if (access(path, F_OK) != 0 && errno == ENOENT) return TACIT_OK;
    TACITI_TRY(taciti_file_read(path, SIZE_MAX, &text, &bytes));
    for (size_t at = 0; at < bytes; at += count) {
        const char *newline = memchr(text + at, '\n', bytes - at);
        count = newline == NULL ? bytes - at : (size_t)(newline + 1 - (text + at));
        if (!line_stays(text + at, count, resume_step, &damaged)) continue;
        memmove(text + kept, text + at, count);
        kept += count;
    }
    const tacit_status status = kept < bytes ? taciti_file_write(path, text, kept) : TACIT_OK;
    taciti_free(text);
    if (status == TACIT_OK && damaged > 0)
        taciti_log(TACITI_LOG_WARN, "%s: dropped %zu damaged line(s), as a killed run leaves behind", path, damaged);
    return status;
}

/* ---- life ------------------------------------------------------------------------------------------------------- */
static tacit_status open_files(const char *run_dir, int64_t resume_step, bool tensorboard, taciti_metrics *metrics) {
    char path[PATH_BYTES];
    TACITI_TRY(taciti_path_join(path, sizeof path, run_dir, "metrics.jsonl"));
    TACITI_TRY(trim_file(path, resume_step));
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

/* A line has room for every figure: a key of at most 16 characters and a number of at most 20. */
enum { FIGURES_MAX = 32, LINE_BYTES = 2048, STAMP_BYTES = 80 };

static double or_nan_if_zero(double value) { return value > 0 ? value : (double)NAN; }

/* Appends the figures to the line and to the scalars, in the order of the line. */
static size_t put_figures(const taciti_step_metrics *m, char line[LINE_BYTES], taciti_scalar scalars[FIGURES_MAX]) {
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
        if (f->key != NULL && f->count != NULL)
            taciti_text_add(line, LINE_BYTES, ",\"%s\":%" PRIu64, f->key, *f->count);
        if (f->key != NULL && f->count == NULL && isfinite(f->value)) /* nine digits preserve any float */
            taciti_text_add(line, LINE_BYTES, ",\"%s\":%.9g", f->key, f->value);
    }
    return count;
}

/* "step":STEP,"time":SECONDS with three decimals. */
static const char *stamp_step(int64_t step, char out[STAMP_BYTES]) {
    const int64_t ms = taciti_wall_ns() / 1000000;
    (void)snprintf(out, STAMP_BYTES, "\"step\":%" PRId64 ",\"time\":%" PRId64 ".%03" PRId64, step, ms / 1000,
                   ms % 1000);
    return out;
}

tacit_status taciti_metrics_step(taciti_metrics *metrics, const taciti_step_metrics *m) {
    char line[LINE_BYTES], stamp[STAMP_BYTES];
    taciti_scalar scalars[FIGURES_MAX];
    (void)snprintf(line, sizeof line, "{%s", stamp_step(m->step, stamp));
    const size_t count = put_figures(m, line, scalars);
    taciti_text_add(line, sizeof line, "}\n");
    TACITI_TRY(taciti_appender_put(&metrics->lines, line, strlen(line)));
    return metrics->events.fd < 0 ? TACIT_OK : taciti_tensorboard_put(&metrics->events, m->step, scalars, count);
}

typedef struct event_line {
    int64_t step;
    const char *event, *members; /* members: "" if there are none */
} event_line;

static void write_event(FILE *out, const void *object) {
    const event_line *line = object;
    char stamp[STAMP_BYTES];
    (void)fputs("{\"event\":", out);
    taciti_json_quote(out, line->event);
    (void)fprintf(out, ",%s", stamp_step(line->step, stamp));
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
