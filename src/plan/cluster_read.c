/* SPDX-License-Identifier: Apache-2.0
 *
 * The strict reader of cluster.json. Each JSON object has a table of its fields; a field knows what is legal and how it
 * is turned into the units of taciti_cluster. docs/cluster.md says the same in words.
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "plan/cluster.h"

enum { PATH_BYTES = 160, FOUND_BYTES = 60, NAMES_BYTES = 256 };

/* Beyond these a number has slipped a unit. */
#define RATE_MOST 1e6
#define RATE_LEAST 1e-6
#define LATENCY_MOST_US 1e8
#define SECONDS_MOST 1e6

/* Where we are, for messages: "links.between.gbit_per_s". */
typedef struct reader {
    const char *file;
    char path[PATH_BYTES];
} reader;

typedef struct field field;
typedef tacit_status read_value(reader *r, const json_t *value, const field *f, void *out);

struct field {
    const char *name; /* NULL ends a table */
    bool required;
    read_value *read; /* writes at (char *)object + offset */
    size_t offset;
    double least, most;  /* of numbers; of the bytes of texts, `most` is the size of the array */
    const char *legal;   /* what the message says: "a number above 0" */
    const field *fields; /* of an object within */
};

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* Appends to the path and returns its length before, for leave(). */
static size_t enter(reader *r, const char *separator, const char *name) {
    const size_t length = strlen(r->path);
    (void)snprintf(r->path + length, sizeof r->path - length, "%s%.40s", length == 0 ? "" : separator, name);
    return length;
}

static size_t enter_item(reader *r, size_t i) {
    const size_t length = strlen(r->path);
    (void)snprintf(r->path + length, sizeof r->path - length, "[%zu]", i);
    return length;
}

static void leave(reader *r, size_t length) { r->path[length] = '\0'; }

/* The value as it stands in the file, shortened. */
static const char *found(const json_t *value, char out[FOUND_BYTES]) {
    if (json_is_object(value) || json_is_array(value)) {
        (void)snprintf(out, FOUND_BYTES, "%s", json_is_object(value) ? "an object" : "a list");
        return out;
    }
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15));
    (void)snprintf(out, FOUND_BYTES, "%.40s%s", text == NULL ? "?" : text,
                   text != NULL && strlen(text) > 40 ? "..." : "");
    free(text); /* NOLINT: jansson's */
    return out;
}

static tacit_status refuse(const reader *r, const json_t *value, const char *legal) {
    char text[FOUND_BYTES];
    return taciti_fail(TACIT_E_CONFIG, "%s: %s is %s; give %s", r->file, r->path, found(value, text), legal);
}

static tacit_status refuse_unknown(const reader *r, const char *name, const field *fields) {
    char quoted[TACITI_QUOTED_BYTES], names[NAMES_BYTES] = "";
    const char *nearest = NULL, *where = r->path[0] == '\0' ? "" : r->path, *dot = r->path[0] == '\0' ? "" : ": ";
    size_t least = SIZE_MAX, used = 0;
    for (const field *f = fields; f->name != NULL; f++) {
        const size_t distance = taciti_edit_distance(name, f->name);
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used == 0 ? "" : ", ", f->name);
        if (distance >= least || !taciti_edit_close(name, distance)) continue;
        least = distance;
        nearest = f->name;
    }
    if (nearest != NULL)
        return taciti_fail(TACIT_E_CONFIG, "%s: %s%sunknown field %s; did you mean \"%s\"?", r->file, where, dot,
                           taciti_quote(name, quoted), nearest);
    return taciti_fail(TACIT_E_CONFIG, "%s: %s%sunknown field %s; legal here: %s", r->file, where, dot,
                       taciti_quote(name, quoted), names);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* A number in [least, most]. JSON has no NaN and no infinity, and jansson refuses what overflows. */
static tacit_status number(const reader *r, const json_t *value, const field *f, double *out) {
    const double x = json_number_value(value);
    if (!json_is_number(value) || !(x >= f->least && x <= f->most)) return refuse(r, value, f->legal);
    *out = x + 0.0; /* -0 becomes 0 */
    return TACIT_OK;
}

static tacit_status read_real(reader *r, const json_t *value, const field *f, void *out) {
    return number(r, value, f, out);
}

static tacit_status read_latency(reader *r, const json_t *value, const field *f, void *out) {
    double us = 0;
    TACITI_TRY(number(r, value, f, &us));
    *(double *)out = us / 1e6;
    return TACIT_OK;
}

/* Gbit/s as seconds per byte. */
static tacit_status read_beta(reader *r, const json_t *value, const field *f, void *out) {
    double gbit_per_s = 0;
    TACITI_TRY(number(r, value, f, &gbit_per_s));
    *(double *)out = 8e-9 / gbit_per_s;
    return TACIT_OK;
}

static tacit_status read_gigabytes(reader *r, const json_t *value, const field *f, void *out) {
    double gb_per_s = 0;
    TACITI_TRY(number(r, value, f, &gb_per_s));
    *(double *)out = gb_per_s * 1e9;
    return TACIT_OK;
}

static tacit_status whole(const reader *r, const json_t *value, const field *f, json_int_t *out) {
    const json_int_t x = json_integer_value(value);
    if (!json_is_integer(value) || (double)x < f->least || (double)x > f->most) return refuse(r, value, f->legal);
    *out = x;
    return TACIT_OK;
}

static tacit_status read_count(reader *r, const json_t *value, const field *f, void *out) {
    json_int_t x = 0;
    TACITI_TRY(whole(r, value, f, &x));
    *(int *)out = (int)x;
    return TACIT_OK;
}

static tacit_status read_size(reader *r, const json_t *value, const field *f, void *out) {
    json_int_t x = 0;
    TACITI_TRY(whole(r, value, f, &x));
    *(size_t *)out = (size_t)x;
    return TACIT_OK;
}

static tacit_status read_text(reader *r, const json_t *value, const field *f, void *out) {
    const size_t most = (size_t)f->most;
    if (!json_is_string(value) || json_string_length(value) >= most || (double)json_string_length(value) < f->least)
        return refuse(r, value, f->legal);
    memcpy(out, json_string_value(value), json_string_length(value) + 1);
    return TACIT_OK;
}

static tacit_status read_format(reader *r, const json_t *value, const field *f, void *out) {
    (void)out;
    const char *text = json_string_value(value);
    if (text == NULL || strcmp(text, TACITI_CLUSTER_FORMAT) != 0) return refuse(r, value, f->legal);
    return TACIT_OK;
}

static tacit_status read_collective(reader *r, const json_t *value, const field *f, void *out) {
    const char *text = json_string_value(value);
    for (int i = 0; text != NULL && i < TACITI_COLLECTIVES; i++)
        if (strcmp(text, taciti_collective_name((taciti_collective)i)) == 0) {
            *(taciti_collective *)out = (taciti_collective)i;
            return TACIT_OK;
        }
    return refuse(r, value, f->legal);
}

static tacit_status read_group(reader *r, const json_t *value, const field *f, void *out) {
    const char *text = json_string_value(value);
    for (int i = 0; text != NULL && i < TACITI_GROUP_KINDS; i++)
        if (strcmp(text, taciti_group_kind_name((taciti_group_kind)i)) == 0) {
            *(taciti_group_kind *)out = (taciti_group_kind)i;
            return TACIT_OK;
        }
    return refuse(r, value, f->legal);
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

static tacit_status check_names(const reader *r, json_t *object, const field *fields) {
    for (void *at = json_object_iter(object); at != NULL; at = json_object_iter_next(object, at)) {
        const field *f = fields;
        while (f->name != NULL && strcmp(f->name, json_object_iter_key(at)) != 0) f++;
        if (f->name == NULL) return refuse_unknown(r, json_object_iter_key(at), fields);
    }
    return TACIT_OK;
}

/* `out` is the struct that the offsets of `fields` are of. jansson's iterators want an object that they could change.
 */
static tacit_status read_fields(reader *r, json_t *object, const field *fields, void *out) {
    TACITI_TRY(check_names(r, object, fields));
    for (const field *f = fields; f->name != NULL; f++) {
        const json_t *value = json_object_get(object, f->name);
        const size_t length = enter(r, ".", f->name);
        if (value == NULL && f->required)
            return taciti_fail(TACIT_E_CONFIG, "%s: %s is missing; give %s", r->file, r->path, f->legal);
        if (value != NULL) TACITI_TRY(f->read(r, value, f, (char *)out + f->offset));
        leave(r, length);
    }
    return TACIT_OK;
}

static json_t *writable(const json_t *value) {
    json_t *result = NULL;
    memcpy(&result, &value, sizeof result);
    return result;
}

static tacit_status read_object(reader *r, const json_t *value, const field *f, void *out) {
    if (!json_is_object(value)) return refuse(r, value, f->legal);
    return read_fields(r, writable(value), f->fields, out);
}

#define AT_LEAST_0 0, 1e6
#define RATE RATE_LEAST, RATE_MOST, "a number above 0, in Gbit/s (1e-6 to 1e6)"

static const field LINK_FIELDS[] = {
    {"latency_us", true, read_latency, offsetof(taciti_link_cost, alpha_s), 0, LATENCY_MOST_US,
     "a number of at least 0, in microseconds (up to 1e8)", NULL},
    {"gbit_per_s", true, read_beta, offsetof(taciti_link_cost, beta_s_per_byte), RATE, NULL},
    {"fit_error", false, read_real, offsetof(taciti_link_cost, fit_error), AT_LEAST_0, "a share of at least 0", NULL},
    {.name = NULL},
};

static const field LINKS_FIELDS[] = {
    {"between", false, read_object, offsetof(taciti_cluster, between), 0, 0,
     "an object: {\"latency_us\": 30, \"gbit_per_s\": 25}", LINK_FIELDS},
    {"inside", false, read_object, offsetof(taciti_cluster, inside), 0, 0,
     "an object: {\"latency_us\": 1, \"gbit_per_s\": 80}", LINK_FIELDS},
    {"host_gbit_per_s", false, read_beta, offsetof(taciti_cluster, host_beta_s_per_byte), RATE, NULL},
    {"duplex_gbit_per_s", false, read_beta, offsetof(taciti_cluster, duplex_beta_s_per_byte), RATE, NULL},
    {"incast_gbit_per_s", false, read_beta, offsetof(taciti_cluster, incast_beta_s_per_byte), RATE, NULL},
    {.name = NULL},
};

static const field COMPUTE_FIELDS[] = {
    {"cv", true, read_real, offsetof(taciti_cluster, compute_cv), AT_LEAST_0, "a share of at least 0", NULL},
    {"lag1", false, read_real, offsetof(taciti_cluster, compute_lag1), -1, 1, "a number from -1 to 1", NULL},
    {"rank_spread", false, read_real, offsetof(taciti_cluster, compute_rank_spread), AT_LEAST_0,
     "a share of at least 0", NULL},
    {.name = NULL},
};

static const field TIMING_FIELDS[] = {
    {"collective", true, read_collective, offsetof(taciti_cluster_timing, collective), 0, 0,
     "\"all_reduce\", \"reduce_scatter\", \"all_gather\" or \"all_to_all\"", NULL},
    {"group", true, read_group, offsetof(taciti_cluster_timing, group), 0, 0, "\"world\", \"host\" or \"cross\"", NULL},
    {"by", true, read_text, offsetof(taciti_cluster_timing, by), 1, sizeof((taciti_cluster_timing *)0)->by,
     "a text of 1 to 23 bytes: \"tacit\", \"mpi-default\"", NULL},
    {"bytes", true, read_size, offsetof(taciti_cluster_timing, bytes), 1, 0x1p53,
     "a whole number above 0, without point and exponent", NULL},
    {"seconds", true, read_real, offsetof(taciti_cluster_timing, seconds), 1e-9, SECONDS_MOST,
     "a number above 0, in seconds (1e-9 to 1e6)", NULL},
    {"spread", false, read_real, offsetof(taciti_cluster_timing, spread), AT_LEAST_0, "a share of at least 0", NULL},
    {.name = NULL},
};

static const field CODEC_FIELDS[] = {
    {"encode_gb_per_s", true, read_gigabytes, offsetof(taciti_cluster_codec, encode_bytes_per_s), RATE_LEAST, RATE_MOST,
     "a number above 0, in GB/s (1e-6 to 1e6)", NULL},
    {"decode_gb_per_s", true, read_gigabytes, offsetof(taciti_cluster_codec, decode_bytes_per_s), RATE_LEAST, RATE_MOST,
     "a number above 0, in GB/s (1e-6 to 1e6)", NULL},
    {.name = NULL},
};

/* ---- lists ------------------------------------------------------------------------------------------------------- */

static const field RANKS = {"ranks_per_host",
                            true,
                            read_count,
                            0,
                            1,
                            TACITI_CLUSTER_MOST_RANKS_PER_HOST,
                            "a whole number from 1 to 10000, or a list of one for each host",
                            NULL};

/* One number for all hosts, or a list of one for each. */
static tacit_status read_ranks(reader *r, const json_t *value, const field *f, void *out) {
    taciti_cluster *cluster = out;
    const bool list = json_is_array(value);
    if (list && json_array_size(value) != (size_t)cluster->hosts)
        return taciti_fail(TACIT_E_CONFIG, "%s: %s has %zu numbers, but hosts is %d; give one number for each host",
                           r->file, r->path, json_array_size(value), cluster->hosts);
    if (!list && !json_is_integer(value)) return refuse(r, value, f->legal);
    cluster->ranks_per_host = taciti_calloc((size_t)cluster->hosts, sizeof *cluster->ranks_per_host);
    if (cluster->ranks_per_host == NULL) return TACIT_E_MEMORY;
    for (int i = 0; i < cluster->hosts; i++) {
        const size_t length = list ? enter_item(r, (size_t)i) : strlen(r->path);
        TACITI_TRY(read_count(r, list ? json_array_get(value, (size_t)i) : value, &RANKS, &cluster->ranks_per_host[i]));
        leave(r, length);
    }
    return TACIT_OK;
}

static tacit_status check_list(const reader *r, const json_t *value, const field *f) {
    if (!json_is_array(value)) return refuse(r, value, f->legal);
    if ((double)json_array_size(value) <= f->most) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG, "%s: %s has %zu items; at most %.0f are read", r->file, r->path,
                       json_array_size(value), f->most);
}

/* A text, or a list of texts. */
static tacit_status read_notes(reader *r, const json_t *value, const field *f, void *out) {
    static const field NOTE = {"notes", false, read_text, 0, 0, TACITI_CLUSTER_NOTE_BYTES, "a text of up to 1023 bytes",
                               NULL};
    char note[TACITI_CLUSTER_NOTE_BYTES];
    taciti_cluster *cluster = out;
    if (json_is_string(value)) {
        TACITI_TRY(read_text(r, value, &NOTE, note));
        return taciti_cluster_add_note(cluster, note);
    }
    TACITI_TRY(check_list(r, value, f));
    for (size_t i = 0; i < json_array_size(value); i++) {
        const size_t length = enter_item(r, i);
        TACITI_TRY(read_text(r, json_array_get(value, i), &NOTE, note));
        TACITI_TRY(taciti_cluster_add_note(cluster, note));
        leave(r, length);
    }
    return TACIT_OK;
}

/* One place per (collective, group, by, bytes): a planner must not find two answers. */
static tacit_status check_repeated(const reader *r, const taciti_cluster *cluster) {
    const taciti_cluster_timing *last = &cluster->timings[cluster->timing_count - 1];
    for (size_t i = 0; i + 1 < cluster->timing_count; i++) {
        const taciti_cluster_timing *t = &cluster->timings[i];
        if (t->collective == last->collective && t->group == last->group && t->bytes == last->bytes &&
            strcmp(t->by, last->by) == 0)
            return taciti_fail(TACIT_E_CONFIG, "%s: %s measures the same as collectives[%zu]; keep one of them",
                               r->file, r->path, i);
    }
    return TACIT_OK;
}

static tacit_status read_timings(reader *r, const json_t *value, const field *f, void *out) {
    static const field TIMING = {.legal = "an object: {\"collective\": \"all_reduce\", \"group\": \"world\", "
                                          "\"by\": \"tacit\", \"bytes\": 4096, \"seconds\": 0.001}",
                                 .fields = TIMING_FIELDS};
    taciti_cluster *cluster = out;
    TACITI_TRY(check_list(r, value, f));
    const size_t count = json_array_size(value);
    cluster->timings = taciti_calloc(count, sizeof *cluster->timings);
    if (cluster->timings == NULL) return TACIT_E_MEMORY;
    for (size_t i = 0; i < count; i++) {
        const size_t length = enter_item(r, i);
        cluster->timings[i].spread = -1;
        TACITI_TRY(read_object(r, json_array_get(value, i), &TIMING, &cluster->timings[i]));
        cluster->timing_count = i + 1;
        TACITI_TRY(check_repeated(r, cluster));
        leave(r, length);
    }
    return TACIT_OK;
}

/* An object from names to rates: a file may know codecs that this build does not. */
static tacit_status read_codecs(reader *r, const json_t *value, const field *f, void *out) {
    static const field CODEC = {.legal = "an object: {\"encode_gb_per_s\": 5, \"decode_gb_per_s\": 6}",
                                .fields = CODEC_FIELDS};
    taciti_cluster *cluster = out;
    json_t *object = writable(value);
    if (!json_is_object(value)) return refuse(r, value, f->legal);
    if ((double)json_object_size(value) > f->most)
        return taciti_fail(TACIT_E_CONFIG, "%s: %s has %zu codecs; at most %.0f are read", r->file, r->path,
                           json_object_size(value), f->most);
    for (void *at = json_object_iter(object); at != NULL; at = json_object_iter_next(object, at)) {
        taciti_cluster_codec codec = {.encode_bytes_per_s = -1, .decode_bytes_per_s = -1};
        const char *name = json_object_iter_key(at);
        const size_t length = enter(r, ".", name);
        if (*name == '\0' || strlen(name) >= sizeof codec.name)
            return taciti_fail(TACIT_E_CONFIG, "%s: %s: the name of a codec has 1 to %zu bytes", r->file, r->path,
                               sizeof codec.name - 1);
        (void)snprintf(codec.name, sizeof codec.name, "%s", name);
        TACITI_TRY(read_object(r, json_object_iter_value(at), &CODEC, &codec));
        TACITI_TRY(taciti_cluster_add_codec(cluster, &codec));
        leave(r, length);
    }
    return TACIT_OK;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

#define CLUSTER_TEXT(member, text) 0, sizeof((taciti_cluster *)0)->member, text

/* hosts stands before ranks_per_host: the fields are read in this order. */
static const field FIELDS[] = {
    {"format", true, read_format, 0, 0, 0, "\"" TACITI_CLUSTER_FORMAT "\"", NULL},
    {"name", false, read_text, offsetof(taciti_cluster, name), CLUSTER_TEXT(name, "a text of up to 63 bytes"), NULL},
    {"source", false, read_text, offsetof(taciti_cluster, source), CLUSTER_TEXT(source, "a text of up to 127 bytes"),
     NULL},
    {"notes", false, read_notes, 0, 0, TACITI_CLUSTER_MOST_NOTES, "a text or a list of texts", NULL},
    {"hosts", true, read_count, offsetof(taciti_cluster, hosts), 1, TACITI_CLUSTER_MOST_HOSTS,
     "a whole number from 1 to 100000", NULL},
    {"ranks_per_host", true, read_ranks, 0, 0, 0, "a whole number from 1 to 10000, or a list of one for each host",
     NULL},
    {"links", true, read_object, 0, 0, 0, "an object: {\"between\": {\"latency_us\": 30, \"gbit_per_s\": 25}}",
     LINKS_FIELDS},
    {"collectives", false, read_timings, 0, 0, TACITI_CLUSTER_MOST_TIMINGS, "a list of measurements", NULL},
    {"codecs", false, read_codecs, 0, 0, TACITI_CLUSTER_MOST_CODECS, "an object from names of codecs to their rates",
     NULL},
    {"compute", false, read_object, 0, 0, 0, "an object: {\"cv\": 0.02}", COMPUTE_FIELDS},
    {.name = NULL},
};

static tacit_status read_cluster(reader *r, json_t *root, taciti_cluster *cluster) {
    if (!json_is_object(root))
        return taciti_fail(TACIT_E_CONFIG, "%s: the file must be one JSON object: {\"format\": \"%s\", ...}", r->file,
                           TACITI_CLUSTER_FORMAT);
    TACITI_TRY(read_fields(r, root, FIELDS, cluster));
    if (cluster->hosts > 1 && cluster->between.alpha_s < 0)
        return taciti_fail(TACIT_E_CONFIG, "%s: links.between is missing, but there are %d hosts; give %s", r->file,
                           cluster->hosts, LINKS_FIELDS[0].legal);
    return TACIT_OK;
}

tacit_status taciti_cluster_parse(const char *path, const char *text, size_t bytes, taciti_cluster *out) {
    reader r = {.file = path};
    taciti_cluster cluster = taciti_cluster_unknown();
    json_error_t error = {0};
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL)
        return taciti_fail(TACIT_E_CONFIG, "%s:%d:%d: not JSON: %s", path, error.line, error.column, error.text);
    const tacit_status status = read_cluster(&r, root, &cluster);
    json_decref(root);
    if (status == TACIT_OK)
        *out = cluster;
    else
        taciti_cluster_destroy(&cluster);
    return status;
}
