/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/verbs.h"
#include "comm/launcher.h"
#include "data/data.h"

const taciti_flag taciti_data_prepare_flags[] = {
    {"--output", "-o", "FOLDER", "where the shards go; made when it is not there"},
    {"--tokenizer", NULL, "byte|gpt2", "one token per byte, or BPE (default: gpt2 when --data.vocab is given)"},
    {"--data.vocab", NULL, "FILE", "vocab.json of the gpt2 tokenizer"},
    {"--split", NULL, "SHARE", "share of the text, at its end, for validation shards (default: 0.1)"},
    {"--shard-tokens", NULL, "N", "most tokens per shard (default: 100000000)"},
    {"--name", NULL, "NAME", "first part of the shards' names (default: text)"},
    {"--json", NULL, NULL, "answer as one JSON object"},
    {NULL, NULL, NULL, NULL},
};

static void show_progress(void *context, uint64_t done_bytes, uint64_t total_bytes) {
    const int64_t *start_ns = context;
    const double seconds = (double)(taciti_now_ns() - *start_ns) / (double)TACITI_NS_PER_S;
    taciti_cli_progress("tokenizing: %.1f %% of %.1f MB, %.1f MB/s", 100.0 * (double)done_bytes / (double)total_bytes,
                        (double)total_bytes / 1e6, (double)done_bytes / 1e6 / seconds);
}

static tacit_status open_tokenizer(const taciti_arguments *arguments, taciti_tokenizer **out) {
    enum { BYTE, GPT2 };
    int kind = BYTE;
    const char *vocab = taciti_arguments_get(arguments, "--data.vocab");
    TACITI_TRY(taciti_arguments_choice(arguments, "--tokenizer", "byte|gpt2", vocab != NULL ? GPT2 : BYTE, &kind));
    if (kind == BYTE && vocab != NULL) return taciti_fail(TACIT_E_USAGE, "--data.vocab belongs to --tokenizer gpt2");
    if (kind == BYTE) return taciti_tokenizer_byte(out);
    if (vocab == NULL)
        return taciti_fail(TACIT_E_USAGE, "--tokenizer gpt2 needs its files: --data.vocab vocab.json, with merges.txt "
                                          "beside it");
    return taciti_tokenizer_load(vocab, out);
}

static tacit_status parse_options(const taciti_arguments *arguments, taciti_prepare_options *out) {
    const char *folder = taciti_arguments_get(arguments, "--output"), *name = taciti_arguments_get(arguments, "--name");
    const char *split = taciti_arguments_get(arguments, "--split");
    double share = 0.1;
    int64_t tokens;
    if (arguments->positional_count == 0)
        return taciti_fail(TACIT_E_USAGE, "name the text files: tacit data prepare TEXT... -o FOLDER");
    if (folder == NULL || *folder == '\0')
        return taciti_fail(TACIT_E_USAGE, "name the folder of the shards: tacit data prepare TEXT... -o FOLDER");
    if (split != NULL && !(taciti_real_parse(split, &share) && share >= 0.0 && share < 1.0))
        return taciti_fail(TACIT_E_CONFIG, "--split: \"%s\" is not a number from 0 to below 1", split);
    TACITI_TRY(taciti_arguments_count(arguments, "--shard-tokens", 100000000, 1, INT32_MAX, &tokens));
    out->folder = folder;
    out->name = name == NULL ? "text" : name;
    out->split = share;
    out->shard_tokens = (uint64_t)tokens;
    return TACIT_OK;
}

static void print_plain(const taciti_prepare_options *o, const taciti_prepare_result *r) {
    const char *name = o->name, *folder = o->folder, *slash = taciti_text_ends_with(folder, "/") ? "" : "/";
    printf("%s%s%s_train_*.bin: %" PRIu64 " shard%s, %" PRIu64 " tokens\n", folder, slash, name, r->train_shards,
           r->train_shards == 1 ? "" : "s", r->train_tokens);
    printf("%s%s%s_val_*.bin: %" PRIu64 " shard%s, %" PRIu64 " tokens\n", folder, slash, name, r->validation_shards,
           r->validation_shards == 1 ? "" : "s", r->validation_tokens);
    if (r->train_tokens < 2) { /* a sample has a token and the next one */
        taciti_log(TACITI_LOG_WARN, "no run can train on %" PRIu64 " tokens: add text, or lower --split",
                   r->train_tokens);
        return;
    }
    printf("\ntacit train --data.train %s%s%s_train_*.bin", folder, slash, name);
    if (r->validation_shards > 0) printf(" --data.validation %s%s%s_val_*.bin", folder, slash, name);
    const int32_t vocabulary = taciti_tokenizer_vocabulary(o->tokenizer);
    printf(" --model.preset %s --model.vocabulary %" PRId32 "\n", vocabulary > 256 ? "gpt2-30m" : "byte-2m",
           vocabulary);
}

static tacit_status prepare_data(const taciti_arguments *arguments) {
    taciti_prepare_options options = {0};
    taciti_tokenizer *tokenizer = NULL;
    TACITI_TRY(parse_options(arguments, &options));
    TACITI_TRY(open_tokenizer(arguments, &tokenizer));
    int64_t start_ns = taciti_now_ns();
    options.tokenizer = tokenizer;
    options.progress = show_progress;
    options.context = &start_ns;
    taciti_prepare_result result;
    tacit_status status = taciti_data_prepare(&options, arguments->positional, arguments->positional_count, &result);
    taciti_cli_progress(NULL);
    if (status == TACIT_OK && taciti_arguments_get(arguments, "--json") != NULL)
        status = taciti_cli_print_json(json_pack(
            "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "folder", options.folder, "name", options.name, "bytes",
            (json_int_t)result.bytes, "vocabulary", (json_int_t)taciti_tokenizer_vocabulary(tokenizer), "train_tokens",
            (json_int_t)result.train_tokens, "train_shards", (json_int_t)result.train_shards, "validation_tokens",
            (json_int_t)result.validation_tokens, "validation_shards", (json_int_t)result.validation_shards));
    else if (status == TACIT_OK)
        print_plain(&options, &result);
    taciti_tokenizer_destroy(tokenizer);
    return status;
}

tacit_status taciti_verb_data_prepare(const taciti_verb *verb, int argc, char **argv) {
    taciti_arguments arguments;
    TACITI_TRY(taciti_arguments_parse(verb, NULL, argc, argv, &arguments));
    if (taciti_launcher_detect().rank != 0) return TACIT_OK; /* one process writes the shards */
    return prepare_data(&arguments);
}
