/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster.json as text, for people to read and edit: one line per link, measurement and codec, fields in the order of
 * docs/cluster.md, what is unknown left out.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "cluster/cluster.h"

enum { EXACT_DIGITS = 17, NEIGHBOURS = 3 };

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* The reader's conversions and their inverses: units of the file <-> units of taciti_cluster. */
static double keep_value(double x) { return x; }
static double s_of_us(double us) { return us / 1e6; }
static double us_of_s(double s) { return s * 1e6; }
static double s_of_ns(double ns) { return ns / 1e9; }
static double ns_of_s(double s) { return s * 1e9; }
static double of_gbit(double x) { return 8e-9 / x; } /* its own inverse */
static double bytes_of_gb(double gb) { return gb * 1e9; }
static double gb_of_bytes(double bytes) { return bytes / 1e9; }

typedef struct unit {
    double (*read)(double), (*write)(double);
} unit;
static const unit PLAIN = {keep_value, keep_value}, MICROSECONDS = {s_of_us, us_of_s}, GBIT_PER_S = {of_gbit, of_gbit},
                  GB_PER_S = {bytes_of_gb, gb_of_bytes}, NANOSECONDS = {s_of_ns, ns_of_s};

static bool reads_as(double shown, double value, unit in) {
    const double again = in.read(shown);
    return !(again < value) && !(again > value);
}

/* The shortest decimal that the reader turns into exactly this value, so that 25 Gbit/s stay "25"; a neighbour of the
 * inverse when that was rounded the other way; for a value that no decimal gives, the inverse. */
static double find_shortest(double value, unit in) {
    const double target = in.write(value);
    for (int digits = 1; digits <= EXACT_DIGITS; digits++) {
        char decimal[TACITI_REAL_BYTES];
        (void)snprintf(decimal, sizeof decimal, "%.*e", digits - 1, target);
        const double shown = strtod(decimal, NULL);
        if (reads_as(shown, value, in)) return shown;
    }
    double below = target, above = target;
    for (int i = 0; i < NEIGHBOURS; i++) {
        below = nextafter(below, -(double)INFINITY);
        above = nextafter(above, (double)INFINITY);
        if (reads_as(below, value, in)) return below;
        if (reads_as(above, value, in)) return above;
    }
    return target;
}

static void write_number(FILE *out, const char *before, const char *name, double value, unit in) {
    char text[TACITI_REAL_BYTES];
    taciti_real_format(find_shortest(value, in), text);
    (void)fprintf(out, "%s\"%s\": %s", before, name, text);
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static void write_notes(FILE *out, const taciti_cluster *cluster) {
    if (cluster->note_count == 0) return;
    (void)fputs("  \"notes\": [", out);
    for (size_t i = 0; i < cluster->note_count; i++) {
        (void)fputs(i == 0 ? "\n    " : ",\n    ", out);
        taciti_json_quote(out, cluster->notes[i]);
    }
    (void)fputs("\n  ],\n", out);
}

static void write_hosts(FILE *out, const taciti_cluster *cluster) {
    bool equal = true;
    for (int i = 1; i < cluster->hosts; i++) equal = equal && cluster->ranks_per_host[i] == cluster->ranks_per_host[0];
    (void)fprintf(out, "  \"hosts\": %d,\n  \"ranks_per_host\": ", cluster->hosts);
    if (equal) {
        (void)fprintf(out, "%d,\n", cluster->ranks_per_host[0]);
        return;
    }
    for (int i = 0; i < cluster->hosts; i++)
        (void)fprintf(out, "%s%d", i == 0 ? "[" : ", ", cluster->ranks_per_host[i]);
    (void)fputs("],\n", out);
}

/* Returns the separator of the next member of `links`. */
static const char *separator_of(size_t *count) { return (*count)++ == 0 ? "\n    " : ",\n    "; }

static void write_link(FILE *out, const char *name, const taciti_link_cost *link, size_t *count) {
    if (link->alpha_s < 0) return;
    (void)fprintf(out, "%s\"%s\": {", separator_of(count), name);
    write_number(out, "", "latency_us", link->alpha_s, MICROSECONDS);
    write_number(out, ", ", "gbit_per_s", link->beta_s_per_byte, GBIT_PER_S);
    if (link->fit_error >= 0) write_number(out, ", ", "fit_error", link->fit_error, PLAIN);
    (void)fputc('}', out);
}

static void write_rate(FILE *out, const char *name, double beta_s_per_byte, size_t *count) {
    if (beta_s_per_byte > 0) write_number(out, separator_of(count), name, beta_s_per_byte, GBIT_PER_S);
}

static void write_links(FILE *out, const taciti_cluster *cluster) {
    size_t count = 0;
    (void)fputs("  \"links\": {", out);
    write_link(out, "between", &cluster->between, &count);
    write_link(out, "inside", &cluster->inside, &count);
    write_rate(out, "host_gbit_per_s", cluster->host_beta_s_per_byte, &count);
    write_rate(out, "duplex_gbit_per_s", cluster->duplex_beta_s_per_byte, &count);
    write_rate(out, "incast_gbit_per_s", cluster->incast_beta_s_per_byte, &count);
    if (cluster->busy_alpha_s >= 0)
        write_number(out, separator_of(&count), "busy_latency_us", cluster->busy_alpha_s, MICROSECONDS);
    (void)fputs(count == 0 ? "}" : "\n  }", out);
}

static void write_timings(FILE *out, const taciti_cluster *cluster) {
    if (cluster->timing_count == 0) return;
    (void)fputs(",\n  \"collectives\": [", out);
    for (size_t i = 0; i < cluster->timing_count; i++) {
        const taciti_cluster_timing *t = &cluster->timings[i];
        (void)fprintf(out, "%s{\"collective\": \"%s\", \"group\": \"%s\", \"by\": ", i == 0 ? "\n    " : ",\n    ",
                      taciti_collective_name(t->collective), taciti_group_kind_name(t->group));
        taciti_json_quote(out, t->by);
        (void)fprintf(out, ", \"bytes\": %zu", t->bytes);
        write_number(out, ", ", "seconds", t->seconds, PLAIN);
        if (t->spread >= 0) write_number(out, ", ", "spread", t->spread, PLAIN);
        (void)fputc('}', out);
    }
    (void)fputs("\n  ]", out);
}

static void write_codecs(FILE *out, const taciti_cluster *cluster) {
    if (cluster->codec_count == 0) return;
    (void)fputs(",\n  \"codecs\": {", out);
    for (size_t i = 0; i < cluster->codec_count; i++) {
        const taciti_cluster_codec *codec = &cluster->codecs[i];
        (void)fputs(i == 0 ? "\n    " : ",\n    ", out);
        taciti_json_quote(out, codec->name);
        (void)fputs(": {", out);
        write_number(out, "", "encode_gb_per_s", codec->encode_bytes_per_s, GB_PER_S);
        write_number(out, ", ", "decode_gb_per_s", codec->decode_bytes_per_s, GB_PER_S);
        (void)fputc('}', out);
    }
    (void)fputs("\n  }", out);
}

static void write_compressions(FILE *out, const taciti_cluster *cluster) {
    if (cluster->compression_count == 0) return;
    (void)fputs(",\n  \"compression\": [", out);
    for (size_t i = 0; i < cluster->compression_count; i++) {
        const taciti_cluster_compression *c = &cluster->compressions[i];
        (void)fputs(i == 0 ? "\n    {\"codec\": " : ",\n    {\"codec\": ", out);
        taciti_json_quote(out, c->codec);
        write_number(out, ", ", "factor", c->factor, PLAIN);
        write_number(out, ", ", "encode_ns", c->encode_s, NANOSECONDS);
        write_number(out, ", ", "decode_ns", c->decode_s, NANOSECONDS);
        write_number(out, ", ", "add_ns", c->add_s, NANOSECONDS);
        write_number(out, ", ", "bytes", c->bytes, PLAIN);
        (void)fputc('}', out);
    }
    (void)fputs("\n  ]", out);
}

static void write_compute(FILE *out, const taciti_cluster *cluster) {
    if (cluster->compute_cv < 0) return;
    (void)fputs(",\n  \"compute\": {", out);
    write_number(out, "", "cv", cluster->compute_cv, PLAIN);
    if (cluster->compute_lag1 >= -1) write_number(out, ", ", "lag1", cluster->compute_lag1, PLAIN);
    if (cluster->compute_rank_spread >= 0) write_number(out, ", ", "rank_spread", cluster->compute_rank_spread, PLAIN);
    if (cluster->compute_core_share > 0) write_number(out, ", ", "core_share", cluster->compute_core_share, PLAIN);
    if (cluster->memory_gib > 0) write_number(out, ", ", "memory_gib", cluster->memory_gib, PLAIN);
    if (cluster->hand_over_s >= 0) write_number(out, ", ", "hand_over_us", cluster->hand_over_s, MICROSECONDS);
    (void)fputc('}', out);
}

static void write_named(FILE *out, const char *name, const char *text) {
    if (*text == '\0') return;
    (void)fprintf(out, "  \"%s\": ", name);
    taciti_json_quote(out, text);
    (void)fputs(",\n", out);
}

static void write_cluster(FILE *out, const void *object) {
    const taciti_cluster *cluster = object;
    (void)fputs("{\n  \"format\": \"" TACITI_CLUSTER_FORMAT "\",\n", out);
    write_named(out, "name", cluster->name);
    write_named(out, "source", cluster->source);
    write_notes(out, cluster);
    write_hosts(out, cluster);
    write_links(out, cluster);
    write_timings(out, cluster);
    write_codecs(out, cluster);
    write_compressions(out, cluster);
    write_compute(out, cluster);
    (void)fputs("\n}\n", out);
}

char *taciti_cluster_format(const taciti_cluster *cluster) {
    char *text = taciti_text_of(write_cluster, cluster);
    if (text == NULL) (void)taciti_fail(TACIT_E_MEMORY, "out of memory for the description of the cluster");
    return text;
}

tacit_status taciti_cluster_save(const taciti_cluster *cluster, const char *path) {
    taciti_cluster again;
    char *text = taciti_cluster_format(cluster);
    if (text == NULL) return TACIT_E_MEMORY;
    /* A description that is not legal is refused now, not when somebody reads it. */
    tacit_status status = taciti_cluster_parse(path, text, strlen(text), &again);
    if (status == TACIT_OK) {
        taciti_cluster_destroy(&again);
        status = taciti_file_write(path, text, strlen(text));
    }
    taciti_free(text);
    return status;
}
