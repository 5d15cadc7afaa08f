/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/verbs.h"
#include "model/sampler.h"
#include "train/loaded_model.h"

const taciti_flag taciti_sample_flags[] = {
    {"--prompt", "-p", "TEXT", "text to go on from (default: a line break)"},
    {"--tokens", "-n", "N", "tokens to write (default 300)"},
    {"--temperature", "-t", "X", "0 takes the likeliest token, 1 samples the model's distribution (default 0.8)"},
    {"--top-k", NULL, "K", "only the K likeliest tokens; 0: all (default 0)"},
    {"--top-p", NULL, "P", "only the smallest set with this probability (default 1)"},
    {"--seed", "-s", "N", "the same seed writes the same text (default 1)"},
    {"--json", NULL, NULL, "answer as one JSON object"},
    {NULL, NULL, NULL, NULL},
};

typedef struct sample_request {
    taciti_sampler sampler;
    const char *prompt;
    int64_t tokens, seed;
    bool json;
} sample_request;

static tacit_status read_request(const taciti_arguments *arguments, sample_request *out) {
    const int64_t max = 1000000000;
    int64_t top_k;
    *out = (sample_request){.prompt = "\n", .json = taciti_arguments_get(arguments, "--json") != NULL};
    TACITI_TRY(taciti_arguments_count(arguments, "--tokens", 300, 0, max, &out->tokens));
    TACITI_TRY(taciti_arguments_number(arguments, "--temperature", 0.8, true, 100, &out->sampler.temperature));
    TACITI_TRY(taciti_arguments_count(arguments, "--top-k", 0, 0, max, &top_k));
    TACITI_TRY(taciti_arguments_number(arguments, "--top-p", 1, true, 1, &out->sampler.top_p));
    TACITI_TRY(taciti_arguments_count(arguments, "--seed", 1, 0, INT64_MAX, &out->seed));
    const char *prompt = taciti_arguments_get(arguments, "--prompt");
    if (prompt != NULL && prompt[0] != '\0') out->prompt = prompt;
    out->sampler.top_k = (size_t)top_k;
    return TACIT_OK;
}

/* Tokens of the text so far; grows by one per step. */
typedef struct token_row {
    int32_t *ids;
    size_t count, prompt;
} token_row;

static tacit_status start_row(const taciti_loaded_model *loaded, const sample_request *request, token_row *row) {
    int32_t *prompt = NULL;
    *row = (token_row){0};
    TACITI_TRY(
        taciti_tokenizer_encode(loaded->tokenizer, request->prompt, strlen(request->prompt), &prompt, &row->prompt));
    row->ids = taciti_calloc(row->prompt + (size_t)request->tokens, sizeof *row->ids);
    if (row->ids != NULL) memcpy(row->ids, prompt, row->prompt * sizeof *prompt);
    row->count = row->prompt;
    taciti_free(prompt);
    return row->ids == NULL ? TACIT_E_MEMORY : TACIT_OK;
}

static void print_piece(const taciti_loaded_model *loaded, int32_t id, FILE *out) {
    size_t bytes = 0;
    const char *piece = taciti_tokenizer_piece(loaded->tokenizer, id, &bytes);
    if (piece != NULL) (void)fwrite(piece, 1, bytes, out);
    (void)fflush(out);
}

/* Writes token after token; the model sees the last `context` of them. */
static tacit_status write_tokens(taciti_loaded_model *loaded, const sample_request *request, token_row *row) {
    const size_t vocabulary = (size_t)loaded->options.vocabulary, context = (size_t)loaded->options.context;
    float *logits = taciti_calloc(vocabulary, sizeof *logits);
    int32_t *order = taciti_calloc(vocabulary, sizeof *order);
    tacit_status status = logits == NULL || order == NULL ? TACIT_E_MEMORY : TACIT_OK;
    for (int64_t i = 0; status == TACIT_OK && i < request->tokens; i++) {
        const size_t seen = row->count < context ? row->count : context;
        status = taciti_model_next_logits(loaded->model, row->ids + row->count - seen, seen, logits);
        if (status != TACIT_OK) break;
        const double unit = taciti_rng_unit((uint64_t)request->seed, (uint64_t)i);
        const int32_t id = taciti_sampler_choose(&request->sampler, logits, order, vocabulary, unit);
        if (id < 0)
            status = taciti_fail(TACIT_E_NUMERICS, "the model's output is not finite; was the run stopped by NaN?");
        if (status != TACIT_OK) break;
        row->ids[row->count++] = id;
        if (!request->json) print_piece(loaded, id, stdout);
    }
    taciti_free(order);
    taciti_free(logits);
    return status;
}

/* A text in which bytes that are no UTF-8 are replaced. Returns owned. */
static json_t *string_of(char *text, size_t bytes) {
    for (size_t i = 0, length; i < bytes; i += length) {
        uint32_t code;
        length = taciti_utf8_decode(text + i, bytes - i, &code);
        if (length > 0 && length <= bytes - i) continue;
        text[i] = '?';
        length = 1;
    }
    return json_stringn(text, bytes);
}

/* The bytes of the row behind the prompt. Returns owned. */
static json_t *text_of(const taciti_loaded_model *loaded, const token_row *row) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    if (stream == NULL) return NULL;
    for (size_t i = row->prompt; i < row->count; i++) print_piece(loaded, row->ids[i], stream);
    json_t *value = fclose(stream) == 0 ? string_of(text, bytes) : NULL;
    free(text);
    return value;
}

/* {"step": ..., "prompt": ..., "tokens": [...], "text": ...} on standard output. */
static tacit_status print_json(const taciti_loaded_model *loaded, const char *prompt, const token_row *row) {
    json_t *tokens = json_array();
    for (size_t i = row->prompt; i < row->count; i++) (void)json_array_append_new(tokens, json_integer(row->ids[i]));
    json_t *step = loaded->step < 0 ? json_null() : json_integer(loaded->step); /* other programs count none */
    char *asked = taciti_strdup(prompt);
    json_t *answer =
        json_pack("{s:o,s:o,s:o,s:o}", "step", step, "prompt", asked == NULL ? NULL : string_of(asked, strlen(asked)),
                  "tokens", tokens, "text", text_of(loaded, row));
    taciti_free(asked);
    const int printed = answer == NULL ? -1 : json_dumpf(answer, stdout, JSON_INDENT(1));
    json_decref(answer);
    (void)putchar('\n');
    return printed == 0 ? TACIT_OK : taciti_fail(TACIT_E_IO, "the answer could not be written");
}

static tacit_status sample_text(taciti_loaded_model *loaded, const sample_request *request) {
    token_row row;
    TACITI_TRY(start_row(loaded, request, &row));
    if (!request->json)
        for (size_t i = 0; i < row.prompt; i++) print_piece(loaded, row.ids[i], stdout);
    tacit_status status = write_tokens(loaded, request, &row);
    if (!request->json) (void)putchar('\n');
    if (status == TACIT_OK && request->json) status = print_json(loaded, request->prompt, &row);
    taciti_free(row.ids);
    return status;
}

static tacit_status open_and_sample(const taciti_verb *verb, int argc, char **argv, taciti_loaded_options *options,
                                    taciti_loaded_model *loaded) {
    taciti_arguments arguments;
    sample_request request;
    TACITI_TRY(taciti_loaded_options_init(options));
    TACITI_TRY(taciti_config_environment(&options->config));
    TACITI_TRY(taciti_arguments_parse(verb, &options->config, argc, argv, &arguments));
    if (arguments.positional_count != 1)
        return taciti_fail(TACIT_E_USAGE, "name one run folder: tacit sample run/ --prompt \"...\"");
    TACITI_TRY(read_request(&arguments, &request));
    TACITI_TRY(taciti_loaded_model_open(arguments.positional[0], options, 1, loaded));
    TACITI_TRY(taciti_loaded_tokens_check(loaded, taciti_tokenizer_vocabulary(loaded->tokenizer)));
    return sample_text(loaded, &request);
}

tacit_status taciti_verb_sample(const taciti_verb *verb, int argc, char **argv) {
    taciti_loaded_options options;
    taciti_loaded_model loaded = {0};
    const tacit_status status = open_and_sample(verb, argc, argv, &options, &loaded);
    taciti_loaded_model_close(&loaded);
    taciti_config_destroy(&options.config);
    return status;
}
