/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens. Text at byte level (vocabulary 256), llm.c `.bin` shards, nanoGPT raw uint16 shards, or text through the
 * GPT-2 BPE tokenizer. The sequence of global batches is a function of (seed, step) alone: sample g = step * batch + i
 * of the run is a window of `time` + 1 tokens that every number of ranks agrees on.
 *
 * With data.partition every rank draws from a sequence of its own instead; see data/partition.h.
 *
 * Order: the train tokens are cut into windows of `time` tokens; epoch e visits every window once in an order given by
 * a keyed permutation, and shifts all cuts by a phase drawn for that epoch (data/order.h).
 *
 * Several files are read as one sequence, end to end. Text at byte level and shards cannot be mixed: their ids mean
 * different things.
 */
#ifndef TACITI_DATA_DATA_H
#define TACITI_DATA_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/option.h"

enum { TACITI_DATA_AUTO, TACITI_DATA_TEXT, TACITI_DATA_LLMC, TACITI_DATA_U16 };

typedef struct taciti_data_options {
    taciti_list train;      /* data.train: files; empty: the text packed into the program at build time */
    taciti_list validation; /* data.validation: files; empty: the last `split` of train is held out */
    double split;           /* data.split: default 0.1 */
    taciti_text partition;  /* data.partition: "global|by-rank|dirichlet:ALPHA", see data/partition.h */
    int format;             /* data.format: "auto|text|llmc|u16" */
    taciti_text vocab;      /* data.vocab: vocab.json; with it text is tokenized by BPE */
    taciti_text merges;     /* data.merges: merges.txt */
} taciti_data_options;
extern const taciti_option_table taciti_data_option_table; /* section "data" */

/* ---- tokenizers ------------------------------------------------------------------------------------------------ */
typedef struct taciti_tokenizer taciti_tokenizer;

tacit_status taciti_tokenizer_byte(taciti_tokenizer **out); /* identity, vocabulary 256 */
tacit_status taciti_tokenizer_bpe(const char *vocab_path, const char *merges_path, taciti_tokenizer **out);
void taciti_tokenizer_destroy(taciti_tokenizer *tokenizer);
int32_t taciti_tokenizer_vocabulary(const taciti_tokenizer *tokenizer);
/* Appends ids for `bytes`; *ids is grown with taciti_calloc/free. Any bytes are legal input. */
tacit_status taciti_tokenizer_encode(const taciti_tokenizer *tokenizer, const char *text, size_t bytes, int32_t **ids,
                                     size_t *count);
/* The bytes of one id (borrowed) or NULL when out of range. */
const char *taciti_tokenizer_piece(const taciti_tokenizer *tokenizer, int32_t id, size_t *bytes);

/* ---- the data of a run ------------------------------------------------------------------------------------------ */
typedef struct taciti_data taciti_data;

/* Opens, checks magic, version, sizes and token range of all files. E_DATA names file and reason. Not collective. */
tacit_status taciti_data_open(const taciti_data_options *options, taciti_data **out);
void taciti_data_close(taciti_data *data);

typedef struct taciti_data_info {
    uint64_t train_tokens, validation_tokens;
    int32_t vocabulary;    /* of the tokenizer; for shards without one: the largest id seen + 1, a lower bound */
    bool vocabulary_known; /* false for shards without a tokenizer: the model's vocabulary must be configured */
    char digest[33];       /* XXH3-128 hex over format, sizes and contents (over 2 MiB: first and last MiB + size) */
    const char *source;    /* "built-in sources and docs" or the first file; borrowed */
} taciti_data_info;
taciti_data_info taciti_data_describe(const taciti_data *data);

/* From now on an id >= vocabulary in a batch is E_DATA, naming file, position and value. Ids of huge shards cannot be
 * known beforehand, so call this with the model's vocabulary before the first batch. */
void taciti_data_limit_vocabulary(taciti_data *data, int32_t vocabulary);

/* Whether samples of `time` tokens and, if `evaluates`, a validation loss can be had at all. E_DATA says what is
 * missing and what to change. */
tacit_status taciti_data_check(const taciti_data *data, size_t time, bool evaluates);

/* E_DATA names a file that was written to since it was opened: from then on the digest says nothing about the samples.
 * Text that a tokenizer has turned into ids is in memory and not affected. */
tacit_status taciti_data_unchanged(const taciti_data *data);

/* NULL for shards without data.vocab (no text to go back to). Borrowed. */
const taciti_tokenizer *taciti_data_tokenizer(const taciti_data *data);

/* From now on samples are those that data.partition gives to this rank; without this call those of global. E_DATA where
 * a part is shorter than a sample of `time` tokens. Not collective: the same outcome on every rank. */
tacit_status taciti_data_assign(taciti_data *data, uint64_t seed, int rank, int ranks, size_t time);

/* Whether sample indices count samples of this rank instead of the run's. */
bool taciti_data_partitioned(const taciti_data *data);

/* What ranks draw from, in one line; empty when it is the same for all. */
void taciti_data_describe_partition(const taciti_data *data, uint64_t seed, char *out, size_t out_bytes);

/* Samples [first, first + count) of the endless sample sequence of the run, or of this rank: tokens and targets
 * [count][time]. E_DATA when the train tokens are fewer than time + 1, or a file has shrunk. Any thread. */
tacit_status taciti_data_train(const taciti_data *data, uint64_t seed, uint64_t first, size_t count, size_t time,
                               int32_t *tokens, int32_t *targets);

/* Number of validation windows of this length, and window i of them (not overlapping, in order). The last window is
 * cut: targets beyond the end are -1 and tokens beyond it 0. Any thread. */
uint64_t taciti_data_validation_windows(const taciti_data *data, size_t time);
tacit_status taciti_data_validation(const taciti_data *data, uint64_t first, size_t count, size_t time, int32_t *tokens,
                                    int32_t *targets);

/* ---- shards from text (tacit data prepare) ---------------------------------------------------------------------- */
typedef struct taciti_prepare_options {
    const taciti_tokenizer *tokenizer; /* at most 65536 ids */
    const char *folder, *name;         /* folder/name_train_000000.bin ..., folder/name_val_000000.bin ... */
    double split;                      /* the last share of the text's bytes becomes validation shards; [0, 1) */
    uint64_t shard_tokens;             /* tokens per shard, 1 .. INT32_MAX */
    /* Called now and then with the bytes of text done; may be NULL. */
    void (*progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);
    void *context;
} taciti_prepare_options;

typedef struct taciti_prepare_result {
    uint64_t bytes; /* of text */
    uint64_t train_tokens, validation_tokens;
    uint64_t train_shards, validation_shards;
} taciti_prepare_result;

/* Writes text files, read end to end, as llm.c shards. Memory does not grow with the text. Either all shards appear or,
 * on failure, none; a folder that holds shards of this name already is refused. Not collective. */
tacit_status taciti_data_prepare(const taciti_prepare_options *options, const char *const *files, size_t count,
                                 taciti_prepare_result *out);

#endif
