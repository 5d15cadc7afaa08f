/* SPDX-License-Identifier: Apache-2.0
 *
 * Training data as tokens, from text at byte level (vocabulary 256), text with the GPT-2 BPE tokenizer, llm.c `.bin`
 * shards or nanoGPT raw uint16 shards. The global batch of a step is a function of (seed, step) alone: sample g = step
 * * batch + i of a run is the same window of `time` + 1 tokens for every number of ranks.
 *
 * With data.partition each rank draws from its own sequence instead; see data/partition.h.
 *
 * Order: the train tokens are cut into windows of `time` tokens. An epoch visits every window once, in the order of a
 * keyed permutation, with all cuts shifted by a random phase of that epoch (data/order.h).
 *
 * Several files form one sequence, end to end. Byte-level text and shards cannot be mixed, because their ids differ in
 * meaning.
 */
#ifndef TACITI_DATA_DATA_H
#define TACITI_DATA_DATA_H

#include "base/option.h"

enum { TACITI_DATA_TEXT, TACITI_DATA_LLMC, TACITI_DATA_U16 };

typedef struct taciti_data_options {
    taciti_list train;      /* data.train: files; empty: the text packed into the program at build time */
    taciti_list validation; /* data.validation: files; empty: the last `split` of train is held out */
    double split;           /* data.split: default 0.1 */
    taciti_text partition;  /* data.partition: "global|by-rank|dirichlet:ALPHA", see data/partition.h */
    taciti_text vocab;      /* data.vocab: vocab.json; with it and merges.txt beside it text is tokenized by BPE */
} taciti_data_options;
extern const taciti_option_table taciti_data_option_table; /* section "data" */

/* ---- tokenizers ------------------------------------------------------------------------------------------------ */
typedef struct taciti_tokenizer taciti_tokenizer;

enum { TACITI_BYTE_TOKENS = 256 };
tacit_status taciti_tokenizer_byte(taciti_tokenizer **out); /* identity, vocabulary TACITI_BYTE_TOKENS */
tacit_status taciti_tokenizer_bpe(const char *vocab_path, const char *merges_path, taciti_tokenizer **out);
tacit_status taciti_tokenizer_load(const char *vocab_path, taciti_tokenizer **out); /* with merges.txt beside it */
void taciti_tokenizer_destroy(taciti_tokenizer *tokenizer);
int32_t taciti_tokenizer_vocabulary(const taciti_tokenizer *tokenizer);
/* Appends the ids of a text of `bytes` bytes to *ids, which grows with taciti_calloc() and taciti_free(). A failure may
 * leave it grown, or NULL if it was empty, with *count as it was. Any bytes are legal. */
tacit_status taciti_tokenizer_encode(const taciti_tokenizer *tokenizer, const char *text, size_t bytes, int32_t **ids,
                                     size_t *count);
/* Returns the bytes of one id (borrowed), or NULL if the id is out of range. */
const char *taciti_tokenizer_piece(const taciti_tokenizer *tokenizer, int32_t id, size_t *bytes);

/* ---- the data of a run ------------------------------------------------------------------------------------------ */
typedef struct taciti_data taciti_data;

/* Opens all files and checks magic, version, sizes and token range. The message of E_DATA names file and reason. Not
 * collective. */
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

/* Sets the model's vocabulary; call this before the first batch. From then on an id >= vocabulary in a batch causes
 * E_DATA with file, position and value. Large shards are not scanned for their ids when they are opened. */
void taciti_data_limit_vocabulary(taciti_data *data, int32_t vocabulary);

/* Checks that the data suffice for samples of `time` tokens and, if `evaluates`, for a validation loss. The message of
 * E_DATA says what is missing and what to change. */
tacit_status taciti_data_check(const taciti_data *data, size_t time, bool evaluates);

/* Returns E_DATA and names the file if one was modified since it was opened: the digest then no longer describes the
 * samples. Tokenized text is held in memory and not affected. */
tacit_status taciti_data_unchanged(const taciti_data *data);

/* Selects the samples that data.partition assigns to this rank; without this call they are those of `global`. Returns
 * E_DATA if the part of any rank is shorter than a sample of `time` tokens. Not collective; every rank gets the same
 * status. */
tacit_status taciti_data_assign(taciti_data *data, uint64_t seed, int rank, int ranks, size_t time);

/* Returns true if sample indices count the samples of this rank, false if they count those of the run. */
bool taciti_data_partitioned(const taciti_data *data);

/* Describes in one line what each rank draws from; empty if all ranks share one sequence. */
void taciti_data_describe_partition(const taciti_data *data, uint64_t seed, char *out, size_t out_bytes);

/* Reads samples [first, first + count) of the endless sequence of the run, or of this rank, into tokens and targets,
 * both [count][time]. Returns E_DATA if there are fewer than time + 1 train tokens or a file was truncated. Any thread.
 */
tacit_status taciti_data_train(const taciti_data *data, uint64_t seed, uint64_t first, size_t count, size_t time,
                               int32_t *tokens, int32_t *targets);

/* The number of validation windows of `time` tokens, and a reader of windows [first, first + count). Windows are in
 * order and do not overlap. In the last one, targets beyond the end are -1 and tokens 0. Any thread. */
uint64_t taciti_data_validation_windows(const taciti_data *data, size_t time);
tacit_status taciti_data_validation(const taciti_data *data, uint64_t first, size_t count, size_t time, int32_t *tokens,
                                    int32_t *targets);

/* ---- shards from text (tacit data prepare) ---------------------------------------------------------------------- */
typedef struct taciti_prepare_options {
    const taciti_tokenizer *tokenizer; /* at most 65536 ids */
    const char *folder, *name;         /* folder/name_train_000000.bin ..., folder/name_val_000000.bin ... */
    double split;                      /* the last share of the text's bytes becomes validation shards; [0, 1) */
    uint64_t shard_tokens;             /* tokens per shard, 1 .. INT32_MAX */
    /* Called from time to time with the number of bytes processed; may be NULL. */
    void (*progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);
    void *context;
} taciti_prepare_options;

typedef struct taciti_prepare_result {
    uint64_t bytes; /* of text */
    uint64_t train_tokens, validation_tokens;
    uint64_t train_shards, validation_shards;
} taciti_prepare_result;

/* Converts text files, read end to end, to llm.c shards in constant memory. On failure no shard appears. Refuses a
 * folder that already holds shards of this name. Not collective. */
tacit_status taciti_data_prepare(const taciti_prepare_options *options, const char *const *files, size_t count,
                                 taciti_prepare_result *out);

#endif
