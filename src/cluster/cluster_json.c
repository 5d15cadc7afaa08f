/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster.json. Each JSON object has a table of its fields for the strict reader and the writer; a field knows what is
 * legal and how it is turned into the units of taciti_cluster. docs/cluster.md says the same in words. The text is for
 * people to read and edit: one line per link, measurement and codec; fields that are unknown are left out.
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/strict_json.h"
#include "base/text.h"
#include "cluster/cluster.h"

enum { FILE_MAX_BYTES = 16 << 20 };

/* Beyond these a number has slipped a unit. */
#define RATE_MAX 1e6
#define RATE_MIN 1e-6
#define LATENCY_MAX_US 1e8
#define SECONDS_MAX 1e6

typedef taciti_strict_reader reader;
typedef taciti_strict_field field;

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* Conversions between the units of the file and those of taciti_cluster. */
static double s_of_us(double us) { return us / 1e6; }
static double us_of_s(double s) { return s * 1e6; }
static double s_of_ns(double ns) { return ns / 1e9; }
static double ns_of_s(double s) { return s * 1e9; }
static double of_gbit(double x) { return 8e-9 / x; } /* Gbit/s and seconds per byte; its own inverse */
static double keep_value(double x) { return x; }

/* The unit of a number stands at the end of its field's name. */
typedef struct unit {
    const char *end;
    double (*read)(double), (*write)(double);
} unit;

static const unit UNITS[] = {{"_us", s_of_us, us_of_s},
                             {"_ns", s_of_ns, ns_of_s},
                             {"gbit_per_s", of_gbit, of_gbit},
                             {"", keep_value, keep_value}};

static const unit *unit_of(const field *f) {
    const unit *in = UNITS;
    while (!taciti_text_ends_with(f->name, in->end)) in++;
    return in;
}

static tacit_status read_number(reader *r, const json_t *value, const field *f, void *out) {
    double number = 0;
    TACITI_TRY(taciti_strict_real(r, value, f, &number));
    *(double *)out = unit_of(f)->read(number);
    return TACIT_OK;
}

static const char *kind_name(const field *f, int kind) {
    return (strcmp(f->name, "group") == 0 ? taciti_group_kind_names : taciti_collective_names)[kind];
}

/* A collective or a kind of groups, of which there are f->max. */
static tacit_status read_kind(reader *r, const json_t *value, const field *f, void *out) {
    const char *text = json_string_value(value);
    for (int i = 0; text != NULL && i < (int)f->max; i++)
        if (strcmp(text, kind_name(f, i)) == 0) {
            *(int *)out = i;
            return TACIT_OK;
        }
    return taciti_strict_refuse(r, value, f->legal);
}

/* ---- objects ------------------------------------------------------------------------------------------------------
 */

#define AT(member) offsetof(taciti_cluster, member)
#define LINK(member) offsetof(taciti_link_cost, member)
#define TIMING(member) offsetof(taciti_cluster_timing, member)
#define CODEC(member) offsetof(taciti_cluster_compression, member)
#define AT_MIN_0 0, 1e6
#define LATENCY 0, LATENCY_MAX_US, "a number of at least 0, in microseconds (up to 1e8)", NULL
#define RATE RATE_MIN, RATE_MAX, "a number above 0, in Gbit/s (1e-6 to 1e6)"

static const field LINK_FIELDS[] = {
    {"latency_us", true, read_number, LINK(alpha_s), LATENCY},
    {"gbit_per_s", true, read_number, LINK(beta_s_per_byte), RATE, NULL},
    {"fit_error", false, read_number, LINK(fit_error), AT_MIN_0, "a share of at least 0", NULL},
    {.name = NULL},
};

static const field LINKS_FIELDS[] = {
    {"between", false, taciti_strict_nested, AT(between), 0, 0, "an object: {\"latency_us\": 30, \"gbit_per_s\": 25}",
     LINK_FIELDS},
    {"inside", false, taciti_strict_nested, AT(inside), 0, 0, "an object: {\"latency_us\": 1, \"gbit_per_s\": 80}",
     LINK_FIELDS},
    {"host_gbit_per_s", false, read_number, AT(host_beta_s_per_byte), RATE, NULL},
    {"duplex_gbit_per_s", false, read_number, AT(duplex_beta_s_per_byte), RATE, NULL},
    {"incast_gbit_per_s", false, read_number, AT(incast_beta_s_per_byte), RATE, NULL},
    {"busy_latency_us", false, read_number, AT(busy_alpha_s), LATENCY},
    {.name = NULL},
};

static const field COMPUTE_FIELDS[] = {
    {"cv", true, read_number, AT(compute_cv), AT_MIN_0, "a share of at least 0", NULL},
    {"lag1", false, read_number, AT(compute_lag1), -1, 1, "a number from -1 to 1", NULL},
    {"rank_spread", false, read_number, AT(compute_rank_spread), AT_MIN_0, "a share of at least 0", NULL},
    {"core_share", false, read_number, AT(compute_core_share), 1e-6, 1, "a share of a core, from 1e-6 to 1", NULL},
    {"memory_gib", false, read_number, AT(memory_gib), 1e-3, 1e6,
     "GiB of the smallest host, a number from 0.001 to 1e6", NULL},
    {"hand_over_us", false, read_number, AT(hand_over_s), LATENCY},
    {.name = NULL},
};

static const field TIMING_FIELDS[] = {
    {"collective", true, read_kind, TIMING(collective), 0, TACITI_COLLECTIVES, "\"all_reduce\" or \"all_to_all\"",
     NULL},
    {"group", true, read_kind, TIMING(group), 0, TACITI_GROUP_KINDS, "\"world\", \"host\", \"pair\" or \"two-hosts\"",
     NULL},
    {"by", true, taciti_strict_text, TIMING(by), 1, sizeof((taciti_cluster_timing *)0)->by,
     "a text of 1 to 23 bytes: \"tacit\", \"mpi-default\"", NULL},
    {"bytes", true, taciti_strict_size, TIMING(bytes), 1, 0x1p53, "a whole number above 0, without point and exponent",
     NULL},
    {"seconds", true, read_number, TIMING(seconds), 1e-9, SECONDS_MAX, "a number above 0, in seconds (1e-9 to 1e6)",
     NULL},
    {"spread", false, read_number, TIMING(spread), AT_MIN_0, "a share of at least 0", NULL},
    {.name = NULL},
};

#define NANOSECONDS 1e-6, 1e6, "a number above 0, in nanoseconds per float (1e-6 to 1e6)"

static const field COMPRESSION_FIELDS[] = {
    {"codec", true, taciti_strict_text, CODEC(codec), 1, sizeof((taciti_cluster_compression *)0)->codec,
     "the name of a codec, 1 to 23 bytes", NULL},
    {"factor", true, read_number, CODEC(factor), 1, 1e9, "elements per element sent, from 1 to 1e9", NULL},
    {"encode_ns", true, read_number, CODEC(encode_s), NANOSECONDS, NULL},
    {"decode_ns", true, read_number, CODEC(decode_s), NANOSECONDS, NULL},
    {"add_ns", true, read_number, CODEC(add_s), NANOSECONDS, NULL},
    {"bytes", true, read_number, CODEC(bytes), 1e-9, 16, "bytes of payload per float, above 0 and up to 16", NULL},
    {.name = NULL},
};

/* ---- lists ------------------------------------------------------------------------------------------------------- */

/* One number for all hosts, or a list of one for each. */
static tacit_status read_ranks(reader *r, const json_t *value, const field *f, void *out) {
    taciti_cluster *cluster = out;
    const bool list = json_is_array(value);
    if (list && json_array_size(value) != (size_t)cluster->hosts)
        return taciti_fail(TACIT_E_CONFIG, "%s: %s has %zu numbers, but hosts is %d; give one number for each host",
                           r->file, r->path, json_array_size(value), cluster->hosts);
    if (!list && !json_is_integer(value)) return taciti_strict_refuse(r, value, f->legal);
    cluster->ranks_per_host = taciti_calloc((size_t)cluster->hosts, sizeof *cluster->ranks_per_host);
    if (cluster->ranks_per_host == NULL) return TACIT_E_MEMORY;
    for (int i = 0; i < cluster->hosts; i++) {
        const size_t length = list ? taciti_strict_enter_item(r, (size_t)i) : strlen(r->path);
        TACITI_TRY(
            taciti_strict_count(r, list ? json_array_get(value, (size_t)i) : value, f, &cluster->ranks_per_host[i]));
        taciti_strict_leave(r, length);
    }
    return TACIT_OK;
}

/* Reads the items of a list, each into the description. */
typedef tacit_status item_reader(reader *r, const json_t *item, taciti_cluster *out);
static tacit_status read_items(reader *r, const json_t *value, const field *f, item_reader *read, void *out) {
    if (!json_is_array(value)) return taciti_strict_refuse(r, value, f->legal);
    if ((double)json_array_size(value) > f->max)
        return taciti_fail(TACIT_E_CONFIG, "%s: %s has %zu items; at most %.0f are read", r->file, r->path,
                           json_array_size(value), f->max);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const size_t length = taciti_strict_enter_item(r, i);
        TACITI_TRY(read(r, json_array_get(value, i), out));
        taciti_strict_leave(r, length);
    }
    return TACIT_OK;
}

static tacit_status read_note(reader *r, const json_t *value, taciti_cluster *out) {
    static const field NOTE = {
        "notes", false, taciti_strict_text, 0, 0, TACITI_CLUSTER_NOTE_BYTES, "a text of up to 1023 bytes", NULL};
    char note[TACITI_CLUSTER_NOTE_BYTES];
    TACITI_TRY(taciti_strict_text(r, value, &NOTE, note));
    return taciti_cluster_add_note(out, "%s", note);
}

/* A text, or a list of texts. */
static tacit_status read_notes(reader *r, const json_t *value, const field *f, void *out) {
    return json_is_string(value) ? read_note(r, value, out) : read_items(r, value, f, read_note, out);
}

static tacit_status refuse_repeated(const reader *r, const char *list, size_t i) {
    return taciti_fail(TACIT_E_CONFIG, "%s: %s measures the same as %s[%zu]; keep one of them", r->file, r->path, list,
                       i);
}

/* Earlier probes measured such rows; no planner reads them. */
static bool is_obsolete(const json_t *timing) {
    const char *collective = json_string_value(json_object_get(timing, "collective"));
    const char *group = json_string_value(json_object_get(timing, "group"));
    return (collective != NULL && taciti_text_among(collective, "reduce_scatter|all_gather")) ||
           (group != NULL && strcmp(group, "cross") == 0);
}

/* One place per (collective, group, by, bytes): a planner must not find two answers. */
static tacit_status read_timing(reader *r, const json_t *value, taciti_cluster *out) {
    static const char LEGAL[] = "an object: {\"collective\": \"all_reduce\", \"group\": \"world\", "
                                "\"by\": \"tacit\", \"bytes\": 4096, \"seconds\": 0.001}";
    taciti_cluster_timing item = {.spread = -1};
    if (is_obsolete(value)) return TACIT_OK;
    TACITI_TRY(taciti_strict_object(r, value, TIMING_FIELDS, LEGAL, &item));
    for (size_t i = 0; i < out->timing_count; i++) {
        const taciti_cluster_timing *t = &out->timings[i];
        if (t->collective == item.collective && t->group == item.group && t->bytes == item.bytes &&
            strcmp(t->by, item.by) == 0)
            return refuse_repeated(r, "collectives", i);
    }
    return taciti_cluster_add_timing(out, &item);
}

static tacit_status read_timings(reader *r, const json_t *value, const field *f, void *out) {
    return read_items(r, value, f, read_timing, out);
}

/* One place per codec and factor. */
static tacit_status read_compression(reader *r, const json_t *value, taciti_cluster *out) {
    static const char LEGAL[] = "an object: {\"codec\": \"topk\", \"factor\": 100, \"encode_ns\": 1, "
                                "\"decode_ns\": 0.5, \"add_ns\": 0.1, \"bytes\": 0.05}";
    taciti_cluster_compression item = {.factor = 0};
    TACITI_TRY(taciti_strict_object(r, value, COMPRESSION_FIELDS, LEGAL, &item));
    for (size_t i = 0; i < out->compression_count; i++)
        if (strcmp(out->compressions[i].codec, item.codec) == 0 &&
            fabs(out->compressions[i].factor - item.factor) < 1e-9 * item.factor)
            return refuse_repeated(r, "compression", i);
    return taciti_cluster_add_compression(out, &item);
}

static tacit_status read_compressions(reader *r, const json_t *value, const field *f, void *out) {
    return read_items(r, value, f, read_compression, out);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

#define CLUSTER_TEXT(member, text) 0, sizeof((taciti_cluster *)0)->member, text

/* hosts stands before ranks_per_host: the fields are read in this order. */
static const field FIELDS[] = {
    {"format", true, taciti_strict_literal, 0, 0, 0, "\"" TACITI_CLUSTER_FORMAT "\"", NULL},
    {"name", false, taciti_strict_text, AT(name), CLUSTER_TEXT(name, "a text of up to 63 bytes"), NULL},
    {"source", false, taciti_strict_text, AT(source), CLUSTER_TEXT(source, "a text of up to 127 bytes"), NULL},
    {"notes", false, read_notes, 0, 0, TACITI_CLUSTER_MAX_NOTES, "a text or a list of texts", NULL},
    {"hosts", true, taciti_strict_count, AT(hosts), 1, TACITI_CLUSTER_MAX_HOSTS, "a whole number from 1 to 100000",
     NULL},
    {"ranks_per_host", true, read_ranks, 0, 1, TACITI_CLUSTER_MAX_RANKS_PER_HOST,
     "a whole number from 1 to 10000, or a list of one for each host", NULL},
    {"links", true, taciti_strict_nested, 0, 0, 0, "an object: {\"between\": {\"latency_us\": 30, \"gbit_per_s\": 25}}",
     LINKS_FIELDS},
    {"collectives", false, read_timings, 0, 0, TACITI_CLUSTER_MAX_TIMINGS, "a list of measurements", NULL},
    {"compression", false, read_compressions, 0, 0, TACITI_CLUSTER_MAX_COMPRESSIONS, "a list of measurements", NULL},
    {"compute", false, taciti_strict_nested, 0, 0, 0, "an object: {\"cv\": 0.02}", COMPUTE_FIELDS},
    {.name = NULL},
};

tacit_status taciti_cluster_parse(const char *path, const char *text, size_t bytes, taciti_cluster *out) {
    reader r = {.file = path};
    taciti_cluster cluster = taciti_cluster_unknown();
    json_t *root = NULL;
    TACITI_TRY(taciti_strict_parse(&r, text, bytes, &root));
    tacit_status status =
        taciti_strict_object(&r, root, FIELDS, "an object: {\"format\": \"" TACITI_CLUSTER_FORMAT "\", ...}", &cluster);
    if (status == TACIT_OK && cluster.hosts > 1 && cluster.between.alpha_s < 0)
        status = taciti_fail(TACIT_E_CONFIG, "%s: links.between is missing, but there are %d hosts; give %s", path,
                             cluster.hosts, LINKS_FIELDS[0].legal);
    json_decref(root);
    if (status == TACIT_OK)
        *out = cluster;
    else
        taciti_cluster_destroy(&cluster);
    return status;
}

tacit_status taciti_cluster_load(const char *path, taciti_cluster *out) {
    char *text = NULL;
    size_t bytes = 0;
    TACITI_TRY(taciti_file_read(path, FILE_MAX_BYTES, &text, &bytes));
    const tacit_status status = taciti_cluster_parse(path, text, bytes, out);
    taciti_free(text);
    return status;
}

bool taciti_cluster_recognise(const char *path) {
    static const char family[] = "tacit-cluster-";
    json_t *root = json_load_file(path, 0, NULL);
    const char *format = json_string_value(json_object_get(root, "format"));
    const bool ours = format != NULL && strncmp(format, family, sizeof family - 1) == 0;
    json_decref(root);
    return ours;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Returns the number to five decimal digits, which a measurement deserves. */
static double round_number(double value) {
    char text[TACITI_REAL_BYTES];
    (void)snprintf(text, sizeof text, "%.4e", value);
    return strtod(text, NULL);
}

/* Whether an optional number, or the latency of an optional link, is unknown: it is below what the file may have. */
static bool is_unknown(const field *f, const void *member) {
    const field *number = f->fields != NULL ? f->fields : f;
    if (f->required || number->read != read_number) return false;
    const double shown = unit_of(number)->write(*(const double *)member);
    return shown < number->min || isinf(shown);
}

/* Writes the members of an object that are known, each behind `before`. Returns whether there are any. */
static bool write_fields(FILE *out, const char *before, const field *fields, const void *object) {
    bool any = false;
    for (const field *f = fields; f->name != NULL; f++) {
        const void *member = (const char *)object + f->offset;
        char text[TACITI_REAL_BYTES];
        if (is_unknown(f, member)) continue;
        (void)fprintf(out, "%s%s\"%s\": ", !any ? "" : *before == '\0' ? ", " : ",", before, f->name);
        any = true;
        if (f->read == read_number) {
            taciti_real_format(round_number(unit_of(f)->write(*(const double *)member)), text);
            (void)fputs(text, out);
        } else if (f->fields != NULL) {
            (void)fputc('{', out);
            (void)write_fields(out, "", f->fields, member);
            (void)fputc('}', out);
        } else if (f->read == taciti_strict_size) {
            (void)fprintf(out, "%zu", *(const size_t *)member);
        } else {
            taciti_json_quote(out, f->read == read_kind ? kind_name(f, *(const int *)member) : (const char *)member);
        }
    }
    return any;
}

static void write_list(FILE *out, const char *name, const field *fields, const void *items, size_t count, size_t size) {
    (void)fprintf(out, ",\n  \"%s\": [", name);
    for (size_t i = 0; i < count; i++) {
        (void)fputs(i == 0 ? "\n    {" : ",\n    {", out);
        (void)write_fields(out, "", fields, (const char *)items + i * size);
        (void)fputc('}', out);
    }
    (void)fputs("\n  ]", out);
}

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
    (void)fputs("  \"links\": {", out);
    (void)fputs(write_fields(out, "\n    ", LINKS_FIELDS, cluster) ? "\n  }" : "}", out);
    if (cluster->timing_count > 0)
        write_list(out, "collectives", TIMING_FIELDS, cluster->timings, cluster->timing_count,
                   sizeof *cluster->timings);
    if (cluster->compression_count > 0)
        write_list(out, "compression", COMPRESSION_FIELDS, cluster->compressions, cluster->compression_count,
                   sizeof *cluster->compressions);
    if (cluster->compute_cv >= 0) {
        (void)fputs(",\n  \"compute\": {", out);
        (void)write_fields(out, "", COMPUTE_FIELDS, cluster);
        (void)fputc('}', out);
    }
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
