/* SPDX-License-Identifier: Apache-2.0 */
#include "data/data.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "data/builtin.h"
#include "data/partition.h"
#include "data/shard.h"
#include "data/tokenizer.h"

/* No id is larger than an int32_t can hold until the caller knows better. */
#define NO_LIMIT ((int64_t)INT32_MAX + 1)

struct taciti_data {
    taciti_tokens train;      /* with the held-out part at its end */
    taciti_tokens validation; /* of data.validation; empty: held out of train */
    taciti_tokenizer *tokenizer;
    taciti_data_info info;
    taciti_partition asked, partition; /* of the options; of this rank, global until it is assigned */
    int64_t limit;                     /* ids at or above are refused */
};

/* ---- text becomes ids -------------------------------------------------------------------------------------------- */

/* Ids packed as little-endian numbers of width_bytes. */
typedef struct packed {
    unsigned char *bytes; /* owned */
    size_t count, capacity, width_bytes;
} packed;

static tacit_status pack_ids(void *context, const int32_t *ids, size_t count, uint64_t bytes_done) {
    (void)bytes_done;
    packed *p = context;
    unsigned char *bytes = taciti_reserve(p->bytes, p->count, count, p->width_bytes, &p->capacity);
    if (bytes == NULL) return TACIT_E_MEMORY;
    p->bytes = bytes;
    unsigned char *out = p->bytes + p->count * p->width_bytes;
    for (size_t i = 0; i < count; i++)
        for (size_t b = 0; b < p->width_bytes; b++) *out++ = (unsigned char)((uint32_t)ids[i] >> (8 * b));
    p->count += count;
    return TACIT_OK;
}

static tacit_status encode_memory(const taciti_tokenizer *tokenizer, const taciti_segment *segment, packed *out) {
    int32_t *ids = NULL;
    size_t count = 0;
    TACITI_TRY(
        taciti_tokenizer_encode(tokenizer, (const char *)segment->memory, (size_t)segment->tokens, &ids, &count));
    const tacit_status status = pack_ids(out, ids, count, segment->tokens);
    taciti_free(ids);
    return status;
}

static tacit_status encode_view(const taciti_tokenizer *tokenizer, const taciti_segment *segment, packed *out) {
    taciti_encoder *encoder = NULL;
    TACITI_TRY(taciti_encoder_create(tokenizer, &encoder));
    const taciti_file_range range = {.view = &segment->view, .stop = segment->view.bytes};
    uint64_t reached = 0;
    const tacit_status status = taciti_encode_file(encoder, &range, pack_ids, out, &reached);
    taciti_encoder_destroy(encoder);
    return status;
}

/* Replaces the bytes of a segment, in a file or in memory, by their ids: 2 bytes each if the vocabulary allows, else 4.
 * Leaves the segment unchanged on failure. Text whose ids do not fit in memory is for `tacit data prepare`. */
static tacit_status tokenize_segment(const taciti_tokenizer *tokenizer, taciti_segment *segment) {
    packed out = {.width_bytes = taciti_tokenizer_vocabulary(tokenizer) <= 1 << 16 ? 2 : 4};
    const tacit_status status =
        segment->memory != NULL ? encode_memory(tokenizer, segment, &out) : encode_view(tokenizer, segment, &out);
    if (status != TACIT_OK) {
        taciti_free(out.bytes);
        return status;
    }
    taciti_view_close(&segment->view);
    taciti_free(segment->memory);
    segment->memory = out.bytes;
    segment->width_bytes = out.width_bytes;
    segment->offset_bytes = 0;
    segment->tokens = out.count;
    return TACIT_OK;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* The kinds of files seen so far: text at byte level and shards cannot be mixed. */
typedef struct kinds {
    const char *text, *shard;          /* the first file of each, or NULL */
    const taciti_tokenizer *tokenizer; /* of data.vocab: turns text into the ids of shards; or NULL */
} kinds;

/* Appends the segment, which is destroyed if making it has failed. */
static tacit_status append_segment(taciti_tokens *tokens, taciti_segment *segment, tacit_status made) {
    if (made == TACIT_OK) return taciti_tokens_append(tokens, segment);
    taciti_segment_destroy(segment);
    return made;
}

static tacit_status append_file(const char *path, kinds *met, taciti_tokens *tokens) {
    taciti_segment segment;
    int found;
    TACITI_TRY(taciti_shard_open(path, &found, &segment));
    const char **first = found == TACITI_DATA_TEXT ? &met->text : &met->shard;
    if (*first == NULL) *first = path;
    tacit_status status = TACIT_OK;
    if (met->tokenizer != NULL && found == TACITI_DATA_TEXT) {
        status = tokenize_segment(met->tokenizer, &segment);
    } else if (met->tokenizer == NULL && met->text != NULL && met->shard != NULL) {
        status = taciti_fail(TACIT_E_DATA,
                             "%s is text at byte level and %s holds tokens: their ids mean different things; "
                             "give one kind, or name the tokenizer (data.vocab)",
                             met->text, met->shard);
    }
    return append_segment(tokens, &segment, status);
}

enum { SPARE_FILES = 1024 };

/* Files stay open; SPARE_FILES are for all else, connections among them. */
static tacit_status open_list(const taciti_list *files, kinds *met, taciti_tokens *tokens) {
    taciti_file_allow(2 * files->count + SPARE_FILES);
    for (size_t i = 0; i < files->count; i++) TACITI_TRY(append_file(files->items[i], met, tokens));
    return TACIT_OK;
}

static tacit_status open_builtin(kinds *met, taciti_tokens *tokens) {
    static const char name[] = "built-in sources and docs";
    met->text = name;
    taciti_segment segment = {.width_bytes = 1, .view = {.fd = -1}, .name = taciti_strdup(name)};
    segment.memory = taciti_calloc(taciti_builtin_bytes, 1);
    tacit_status status = segment.name == NULL || segment.memory == NULL ? TACIT_E_MEMORY : TACIT_OK;
    for (size_t i = 0; status == TACIT_OK && i < taciti_builtin_bytes; i++)
        segment.memory[i] = (unsigned char)(taciti_builtin_words[i / 8] >> (56 - 8 * (i % 8)));
    segment.tokens = taciti_builtin_bytes;
    if (status == TACIT_OK && met->tokenizer != NULL) status = tokenize_segment(met->tokenizer, &segment);
    return append_segment(tokens, &segment, status);
}

static tacit_status digest_tokens(taciti_data *data, int64_t *largest) {
    XXH3_state_t *hash = XXH3_createState();
    if (hash == NULL) return taciti_fail(TACIT_E_MEMORY, "out of memory for the digest of the data");
    (void)XXH3_128bits_reset(hash);
    tacit_status status = taciti_tokens_digest(&data->train, hash, largest);
    if (status == TACIT_OK) status = taciti_tokens_digest(&data->validation, hash, largest);
    const XXH128_hash_t sum = XXH3_128bits_digest(hash);
    (void)XXH3_freeState(hash);
    (void)snprintf(data->info.digest, sizeof data->info.digest, "%016" PRIx64 "%016" PRIx64, (uint64_t)sum.high64,
                   (uint64_t)sum.low64);
    return status;
}

static tacit_status describe_data(taciti_data *data, const kinds *met) {
    int64_t largest = -1;
    TACITI_TRY(digest_tokens(data, &largest));
    if (met->shard == NULL && data->tokenizer == NULL) TACITI_TRY(taciti_tokenizer_byte(&data->tokenizer));
    data->info.vocabulary_known = data->tokenizer != NULL;
    data->info.vocabulary =
        data->tokenizer != NULL ? taciti_tokenizer_vocabulary(data->tokenizer) : (int32_t)(largest + 1);
    data->info.source = data->train.segments[0].name;
    return TACIT_OK;
}

static tacit_status open_all(const taciti_data_options *options, taciti_data *data) {
    TACITI_TRY(taciti_partition_parse(options->partition.text, &data->asked));
    if (options->vocab.text[0] != '\0') TACITI_TRY(taciti_tokenizer_load(options->vocab.text, &data->tokenizer));
    kinds met = {.tokenizer = data->tokenizer};
    if (options->train.count == 0)
        TACITI_TRY(open_builtin(&met, &data->train));
    else
        TACITI_TRY(open_list(&options->train, &met, &data->train));
    TACITI_TRY(open_list(&options->validation, &met, &data->validation));
    const uint64_t all = data->train.total, share = (uint64_t)((double)all * options->split);
    const uint64_t held = data->validation.count != 0 ? 0 : share > all ? all : share;
    data->info.train_tokens = all - held;
    data->info.validation_tokens = data->validation.count == 0 ? held : data->validation.total;
    return describe_data(data, &met);
}

tacit_status taciti_data_open(const taciti_data_options *options, taciti_data **out) {
    taciti_data *data = taciti_calloc(1, sizeof *data);
    if (data == NULL) return TACIT_E_MEMORY;
    data->limit = NO_LIMIT;
    const tacit_status status = open_all(options, data);
    if (status == TACIT_OK)
        *out = data;
    else
        taciti_data_close(data);
    return status;
}

void taciti_data_close(taciti_data *data) {
    if (data == NULL) return;
    taciti_tokens_destroy(&data->train);
    taciti_tokens_destroy(&data->validation);
    taciti_tokenizer_destroy(data->tokenizer);
    taciti_free(data);
}

taciti_data_info taciti_data_describe(const taciti_data *data) { return data->info; }

void taciti_data_limit_vocabulary(taciti_data *data, int32_t vocabulary) { data->limit = vocabulary; }

/* Tokens [start, start + time + 1) as inputs and, one further, targets. */
static tacit_status read_window(const taciti_data *data, const taciti_tokens *from, uint64_t start, size_t time,
                                int32_t *tokens, int32_t *targets) {
    TACITI_TRY(taciti_tokens_read(from, start, time, data->limit, tokens));
    memcpy(targets, tokens + 1, (time - 1) * sizeof *tokens);
    return taciti_tokens_read(from, start + time, 1, data->limit, targets + time - 1);
}

static tacit_status check_samples(const taciti_data *data, size_t time) {
    const uint64_t all = data->info.train_tokens;
    if (time == 0) return taciti_fail(TACIT_E_USAGE, "a sample needs at least one token (train.seq)");
    if (all > time) return TACIT_OK;
    return taciti_fail(TACIT_E_DATA,
                       "%s: %" PRIu64 " train tokens, but one sample of train.seq %zu needs %zu; "
                       "give more text, a smaller data.split or a smaller train.seq",
                       data->info.source, all, time, time + 1);
}

tacit_status taciti_data_check(const taciti_data *data, size_t time, bool evaluates) {
    TACITI_TRY(check_samples(data, time));
    if (!evaluates || taciti_data_validation_windows(data, time) > 0) return TACIT_OK;
    const bool apart = data->validation.count > 0;
    return taciti_fail(TACIT_E_DATA,
                       "%s: %" PRIu64 " validation tokens, but a loss needs 2; give %s, or --train.eval_every -1 for a "
                       "run without evaluation",
                       apart ? data->validation.segments[0].name : data->info.source, data->info.validation_tokens,
                       apart ? "a longer --data.validation" : "--data.validation FILE, a larger --data.split");
}

static tacit_status check_files(const taciti_tokens *tokens) {
    for (size_t i = 0; i < tokens->count; i++)
        if (tokens->segments[i].view.fd >= 0) TACITI_TRY(taciti_view_check(&tokens->segments[i].view));
    return TACIT_OK;
}

tacit_status taciti_data_unchanged(const taciti_data *data) {
    TACITI_TRY(check_files(&data->train));
    return check_files(&data->validation);
}

tacit_status taciti_data_assign(taciti_data *data, uint64_t seed, int rank, int ranks, size_t time) {
    taciti_partition partition = data->asked;
    taciti_partition_assign(&partition, seed, rank, ranks);
    const uint64_t tokens = taciti_partition_min_tokens(&partition, data->info.train_tokens);
    if (partition.kind != TACITI_PARTITION_GLOBAL && tokens <= time)
        return taciti_fail(TACIT_E_DATA,
                           "%s: data.partition leaves a part of %" PRIu64
                           " train tokens, but one sample of train.seq %zu needs %zu; give more text, fewer ranks or a "
                           "smaller train.seq",
                           data->info.source, tokens, time, time + 1);
    data->partition = partition;
    return TACIT_OK;
}

bool taciti_data_partitioned(const taciti_data *data) { return data->partition.kind != TACITI_PARTITION_GLOBAL; }

void taciti_data_describe_partition(const taciti_data *data, uint64_t seed, char *out, size_t out_bytes) {
    taciti_partition_describe(&data->partition, data->info.train_tokens, seed, out, out_bytes);
}

tacit_status taciti_data_train(const taciti_data *data, uint64_t seed, uint64_t first, size_t count, size_t time,
                               int32_t *tokens, int32_t *targets) {
    TACITI_TRY(check_samples(data, time));
    const uint64_t all = data->info.train_tokens;
    for (size_t i = 0; i < count; i++) {
        const uint64_t start = taciti_partition_start(&data->partition, all, time, seed, first + i);
        TACITI_TRY(read_window(data, &data->train, start, time, tokens + i * time, targets + i * time));
    }
    return TACIT_OK;
}

uint64_t taciti_data_validation_windows(const taciti_data *data, size_t time) {
    const uint64_t all = data->info.validation_tokens;
    return all < 2 || time == 0 ? 0 : (all - 2) / time + 1; /* the last token is a target only */
}

tacit_status taciti_data_validation(const taciti_data *data, uint64_t first, size_t count, size_t time, int32_t *tokens,
                                    int32_t *targets) {
    const uint64_t windows = taciti_data_validation_windows(data, time);
    if (first > windows || count > windows - first)
        return taciti_fail(TACIT_E_USAGE, "validation windows %" PRIu64 " + %zu asked for, %" PRIu64 " are there",
                           first, count, windows);
    const bool own = data->validation.count != 0;
    const taciti_tokens *from = own ? &data->validation : &data->train;
    const uint64_t base = own ? 0 : data->info.train_tokens, pairs = data->info.validation_tokens - 1;
    for (size_t i = 0; i < count; i++, tokens += time, targets += time) {
        const uint64_t at = (first + i) * time, left = pairs - at;
        const size_t n = left < time ? (size_t)left : time; /* inputs that have a target */
        TACITI_TRY(read_window(data, from, base + at, n, tokens, targets));
        for (size_t t = n; t < time; t++) {
            tokens[t] = 0;
            targets[t] = -1;
        }
    }
    return TACIT_OK;
}
