/* SPDX-License-Identifier: Apache-2.0
 *
 * Profiles as JSON. docs/profile.md says in words what the tables here say.
 */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/strict_json.h"
#include "base/text.h"
#include "model/profile_build.h"

static const char FORMAT[] = "tacit-profile-1";

/* Beyond these, a number has slipped a unit. */
#define SECONDS 0, 1e6
#define FLOPS 0, 1e21
static const size_t PARAMETERS_MAX = (size_t)1 << 40;

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static tacit_status read_shape(taciti_strict_reader *r, const json_t *value, const taciti_strict_field *field,
                               void *out) {
    static const taciti_strict_field SIZE = {.min = 1, .max = 0x1p40, .legal = "an integer of at least 1"};
    taciti_profile_tensor *tensor = out;
    const size_t dims = json_array_size(value);
    if (!json_is_array(value) || dims < 1 || dims > TACITI_PROFILE_DIMS)
        return taciti_strict_refuse(r, value, field->legal);
    for (size_t d = 0; d < dims; d++) {
        const size_t length = taciti_strict_enter_item(r, d);
        TACITI_TRY(taciti_strict_size(r, json_array_get(value, d), &SIZE, &tensor->shape[d]));
        taciti_strict_leave(r, length);
    }
    tensor->dims = (int)dims;
    return TACIT_OK;
}

/* The fields write into the whole tensor: shape and dims belong together. */
static const taciti_strict_field TENSOR_FIELDS[] = {
    {"name", true, taciti_strict_name, offsetof(taciti_profile_tensor, name), 1, TACITI_PROFILE_NAME_BYTES,
     "a text of 1 to 63 bytes that no other tensor has", NULL},
    {"shape", true, read_shape, 0, 0, 0, "a list of 1 to 4 sizes, such as [768, 2304]", NULL},
    {0},
};

static tacit_status read_tensors(taciti_strict_reader *r, const json_t *value, const taciti_strict_field *field,
                                 void *out) {
    taciti_profile_layer *layer = out;
    if (!json_is_array(value)) return taciti_strict_refuse(r, value, field->legal);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const size_t length = taciti_strict_enter_item(r, i);
        taciti_profile_tensor *tensor = taciti_profile_append_tensor(layer);
        if (tensor == NULL) return TACIT_E_MEMORY;
        TACITI_TRY(
            taciti_strict_object(r, json_array_get(value, i), TENSOR_FIELDS, "an object with name and shape", tensor));
        taciti_strict_leave(r, length);
    }
    return TACIT_OK;
}

#define LAYER(member) offsetof(taciti_profile_layer, member)
/* clang-format off */
#define LAYER_FIELDS(forward, backward, limits, legal) \
    {"name", true, taciti_strict_name, LAYER(name), 1, TACITI_PROFILE_NAME_BYTES, \
     "a text of 1 to 63 bytes, no control characters", NULL}, \
    {#forward, true, taciti_strict_real, LAYER(forward), limits, legal, NULL}, \
    {#backward, true, taciti_strict_real, LAYER(backward), limits, legal, NULL}, \
    {"tied", false, taciti_strict_flag, LAYER(tied), 0, 0, "true or false; leave it out for false", NULL}, \
    {"tensors", false, read_tensors, 0, 0, 0, "a list of objects with name and shape; leave it out for none", NULL}, \
    {0}
/* clang-format on */

static const taciti_strict_field SECONDS_FIELDS[] = {
    LAYER_FIELDS(forward_s, backward_s, SECONDS, "seconds per step, a number from 0 to 1e6")};
static const taciti_strict_field FLOPS_FIELDS[] = {
    LAYER_FIELDS(forward_flops, backward_flops, FLOPS, "operations per sample, a number from 0 to 1e21")};

static tacit_status read_layers(taciti_strict_reader *r, const json_t *value, const taciti_strict_field *field,
                                void *out) {
    taciti_profile *profile = out;
    const taciti_strict_field *fields = profile->in_flops ? FLOPS_FIELDS : SECONDS_FIELDS;
    if (!json_is_array(value) || json_array_size(value) == 0) return taciti_strict_refuse(r, value, field->legal);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const size_t length = taciti_strict_enter_item(r, i);
        taciti_profile_layer *layer = taciti_profile_append_layer(profile);
        if (layer == NULL) return TACIT_E_MEMORY;
        TACITI_TRY(
            taciti_strict_object(r, json_array_get(value, i), fields, "an object with name, times and tensors", layer));
        taciti_strict_leave(r, length);
    }
    return TACIT_OK;
}

static tacit_status read_unit(taciti_strict_reader *r, const json_t *value, const taciti_strict_field *field,
                              void *out) {
    const char *text = json_is_string(value) ? json_string_value(value) : "";
    const bool in_flops = strcmp(text, "flops") == 0;
    if (!in_flops && strcmp(text, "seconds") != 0) return taciti_strict_refuse(r, value, field->legal);
    memcpy(out, &in_flops, sizeof in_flops);
    return TACIT_OK;
}

/* In this order: the unit says what a layer must have. */
#define PROFILE(member) offsetof(taciti_profile, member)
static const taciti_strict_field PROFILE_FIELDS[] = {
    {"format", true, taciti_strict_literal, 0, 0, 0, "\"tacit-profile-1\"", NULL},
    {"name", true, taciti_strict_name, PROFILE(name), 1, sizeof((taciti_profile *)0)->name,
     "a text of 1 to 63 bytes, no control characters", NULL},
    {"source", false, taciti_strict_name, PROFILE(source), 0, sizeof((taciti_profile *)0)->source,
     "a text of at most 255 bytes, no control characters", NULL},
    {"unit", true, read_unit, PROFILE(in_flops), 0, 0,
     "\"seconds\" (forward_s, backward_s per step) or \"flops\" (forward_flops, backward_flops per sample)", NULL},
    {"rate_flops_per_s", false, taciti_strict_real, PROFILE(rate), 1, 1e21,
     "FLOP/s, a number from 1 to 1e21; leave it out if unknown", NULL},
    {"batch_samples", false, taciti_strict_real, PROFILE(batch), 1e-6, 1e9,
     "samples per step, a number from 1e-6 to 1e9; leave it out if unknown", NULL},
    {"sample_tokens", false, taciti_strict_real, PROFILE(sample_tokens), 1e-6, 1e12,
     "tokens (or images) per sample, a number above 0", NULL},
    {"floor_s", false, taciti_strict_real, PROFILE(floor_s), SECONDS,
     "seconds of forward and backward whatever the batch, a number from 0 to 1e6", NULL},
    {"update_s", false, taciti_strict_real, PROFILE(update_s), SECONDS, "seconds per step, a number from 0 to 1e6",
     NULL},
    {"layers", true, read_layers, 0, 0, 0, "a list of at least one layer", NULL},
    {0},
};

/* ---- checks of the whole profile --------------------------------------------------------------------------------- */

/* seen: {"NAME": [layer, tensor]} of all tensors in front of this one. */
static tacit_status check_name(const char *path, const taciti_profile *profile, size_t l, size_t t, json_t *seen) {
    const char *name = profile->layers[l].tensors[t].name;
    json_int_t layer = 0, tensor = 0;
    if (json_unpack(json_object_get(seen, name), "[I, I]", &layer, &tensor) == 0)
        return taciti_fail(TACIT_E_CONFIG,
                           "%s: layers[%zu].tensors[%zu].name is \"%s\", which is also the name of "
                           "layers[%lld].tensors[%lld]; give each tensor its own, and a tied one only once",
                           path, l, t, name, (long long)layer, (long long)tensor);
    json_t *place = json_pack("[I, I]", (json_int_t)l, (json_int_t)t);
    return json_object_set_new(seen, name, place) == 0 ? TACIT_OK : TACIT_E_MEMORY;
}

static tacit_status check_names(const char *path, const taciti_profile *profile) {
    json_t *seen = json_object();
    tacit_status status = TACIT_OK;
    for (size_t l = 0; l < profile->layer_count; l++)
        for (size_t t = 0; status == TACIT_OK && t < profile->layers[l].tensor_count; t++)
            status = check_name(path, profile, l, t, seen);
    json_decref(seen);
    return status;
}

/* Counts elements without overflow: sizes are at most 2^40 each. */
static tacit_status check_sizes(const char *path, const taciti_profile *profile) {
    size_t tensors = 0, total = 0;
    for (size_t l = 0; l < profile->layer_count; l++)
        for (size_t t = 0; t < profile->layers[l].tensor_count; t++) {
            const taciti_profile_tensor *tensor = &profile->layers[l].tensors[t];
            size_t n = 1;
            for (int d = 0; d < tensor->dims && n <= PARAMETERS_MAX; d++)
                n = tensor->shape[d] > PARAMETERS_MAX / n ? PARAMETERS_MAX + 1 : n * tensor->shape[d];
            total += n;
            tensors++;
            if (total > PARAMETERS_MAX)
                return taciti_fail(TACIT_E_CONFIG,
                                   "%s: layers[%zu].tensors[%zu].shape: all tensors up to here have "
                                   "more than 2^40 elements; give smaller ones",
                                   path, l, t);
        }
    if (tensors == 0)
        return taciti_fail(TACIT_E_CONFIG,
                           "%s: no layer has tensors: there would be nothing to exchange; give at "
                           "least one layer \"tensors\"",
                           path);
    return TACIT_OK;
}

static tacit_status check_whole(const char *path, const taciti_profile *profile) {
    TACITI_TRY(check_sizes(path, profile));
    const char *odd = profile->rate > 0 ? "rate_flops_per_s" : profile->batch > 0 ? "batch_samples" : NULL;
    if (odd == NULL && profile->floor_s > 0) odd = "floor_s";
    if (!profile->in_flops && odd != NULL)
        return taciti_fail(TACIT_E_CONFIG, "%s: %s means nothing when unit is \"seconds\"; leave it out", path, odd);
    return check_names(path, profile);
}

tacit_status taciti_profile_parse(const char *path, const char *text, size_t bytes, taciti_profile *out) {
    taciti_strict_reader reader = {.file = path};
    taciti_profile profile = {.sample_tokens = 1};
    json_t *root = NULL;
    TACITI_TRY(taciti_strict_parse(&reader, text, bytes, &root));
    tacit_status status = taciti_strict_object(&reader, root, PROFILE_FIELDS, "an object: docs/profile.md", &profile);
    json_decref(root);
    if (status == TACIT_OK) status = check_whole(path, &profile);
    if (status == TACIT_OK)
        *out = profile;
    else
        taciti_profile_destroy(&profile);
    return status;
}

/* Thousands of layers with tens of tensors each, with room to spare. */
enum { FILE_MAX_BYTES = 16 << 20 };

static tacit_status fail_unknown(const char *name) {
    char quoted[TACITI_QUOTED_BYTES], list[256] = "";
    taciti_nearest nearest = {0};
    for (const char *const *preset = taciti_profile_presets(); *preset != NULL; preset++) {
        taciti_nearest_offer(&nearest, name, *preset);
        taciti_text_add(list, sizeof list, "%s%s", *list == '\0' ? "" : ", ", *preset);
    }
    return taciti_fail(TACIT_E_CONFIG, "no compute profile is called %s%s; there are %s, or name a file as ./FILE",
                       taciti_quote(name, quoted), nearest.hint, list);
}

tacit_status taciti_profile_load(const char *name_or_path, taciti_profile *out) {
    if (taciti_profile_preset_help(name_or_path) != NULL) return taciti_profile_preset(name_or_path, out);
    if (strpbrk(name_or_path, "/.") == NULL) return fail_unknown(name_or_path);
    char *text = NULL;
    size_t bytes = 0;
    TACITI_TRY(taciti_file_read(name_or_path, FILE_MAX_BYTES, &text, &bytes));
    const tacit_status status = taciti_profile_parse(name_or_path, text, bytes, out);
    taciti_free(text);
    return status;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void put_text(FILE *file, const char *key, const char *text) {
    (void)fprintf(file, "\"%s\": ", key);
    taciti_json_quote(file, text);
}

static void put_real(FILE *file, const char *before, const char *key, double value) {
    char text[TACITI_REAL_BYTES];
    taciti_real_format(value, text);
    (void)fprintf(file, "%s\"%s\": %s", before, key, text);
}

static void put_tensor(FILE *file, const taciti_profile_tensor *tensor, bool first) {
    (void)fputs(first ? "\n     {" : ",\n     {", file);
    put_text(file, "name", tensor->name);
    (void)fputs(", \"shape\": [", file);
    for (int d = 0; d < tensor->dims; d++) (void)fprintf(file, "%s%zu", d == 0 ? "" : ", ", tensor->shape[d]);
    (void)fputs("]}", file);
}

static void put_layer(FILE *file, const taciti_profile_layer *layer, bool in_flops, bool first) {
    (void)fputs(first ? "\n  {" : ",\n  {", file);
    put_text(file, "name", layer->name);
    put_real(file, ", ", in_flops ? "forward_flops" : "forward_s", in_flops ? layer->forward_flops : layer->forward_s);
    put_real(file, ", ", in_flops ? "backward_flops" : "backward_s",
             in_flops ? layer->backward_flops : layer->backward_s);
    if (layer->tied) (void)fputs(", \"tied\": true", file);
    if (layer->tensor_count > 0) {
        (void)fputs(", \"tensors\": [", file);
        for (size_t t = 0; t < layer->tensor_count; t++) put_tensor(file, &layer->tensors[t], t == 0);
        (void)fputs("]", file);
    }
    (void)fputs("}", file);
}

static void put_profile(FILE *file, const void *object) {
    static const char NEXT[] = ",\n ";
    const taciti_profile *profile = object;
    (void)fprintf(file, "{\n \"format\": \"%s\",\n ", FORMAT);
    put_text(file, "name", profile->name);
    (void)fputs(",\n ", file);
    put_text(file, "source", profile->source);
    (void)fprintf(file, ",\n \"unit\": \"%s\"", profile->in_flops ? "flops" : "seconds");
    if (profile->in_flops && profile->rate > 0) put_real(file, NEXT, "rate_flops_per_s", profile->rate);
    if (profile->in_flops && profile->batch > 0) put_real(file, NEXT, "batch_samples", profile->batch);
    if (profile->in_flops && profile->floor_s > 0) put_real(file, NEXT, "floor_s", profile->floor_s);
    put_real(file, NEXT, "sample_tokens", profile->sample_tokens);
    put_real(file, NEXT, "update_s", profile->update_s);
    (void)fputs(",\n \"layers\": [", file);
    for (size_t l = 0; l < profile->layer_count; l++) put_layer(file, &profile->layers[l], profile->in_flops, l == 0);
    (void)fputs("\n ]\n}\n", file);
}

char *taciti_profile_format(const taciti_profile *profile) { return taciti_text_of(put_profile, profile); }

tacit_status taciti_profile_save(const taciti_profile *profile, const char *path) {
    char *text = taciti_profile_format(profile);
    if (text == NULL) return taciti_fail(TACIT_E_MEMORY, "%s: no memory for the text of a profile", path);
    const tacit_status status = taciti_file_write(path, text, strlen(text));
    taciti_free(text);
    return status;
}
