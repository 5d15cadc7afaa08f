/* SPDX-License-Identifier: Apache-2.0 */
#include "data/data.h"

#define AT(field) offsetof(taciti_data_options, field)

/* Paths may differ between hosts: what they hold is compared by taciti_data_info.digest. */
static const taciti_option options[] = {
    {.key = "train",
     .type = TACITI_OPTION_LIST,
     .offset = AT(train),
     .fallback = "",
     .unit = "",
     .help = "files to train on, read end to end; none: the program's own sources and docs",
     .flags = TACITI_OPTION_NO_DIGEST},
    {.key = "validation",
     .type = TACITI_OPTION_LIST,
     .offset = AT(validation),
     .fallback = "",
     .unit = "",
     .help = "files to validate on; none: the last data.split of the train tokens, which are then not trained on",
     .flags = TACITI_OPTION_NO_DIGEST},
    {.key = "split",
     .type = TACITI_OPTION_REAL,
     .offset = AT(split),
     .fallback = "0.1",
     .least = 0.0,
     .most = 0.99,
     .unit = "",
     .help = "share of the train tokens that is held out when there are no validation files"},
    {.key = "format",
     .type = TACITI_OPTION_ENUM,
     .offset = AT(format),
     .fallback = "auto",
     .choices = "auto|text|llmc|u16",
     .unit = "",
     .help = "what the files hold: text, llm.c shards or raw uint16 tokens; auto looks at content and name"},
    {.key = "vocab",
     .type = TACITI_OPTION_TEXT,
     .offset = AT(vocab),
     .fallback = "",
     .unit = "",
     .help = "vocab.json of a GPT-2 style tokenizer: text becomes its ids instead of bytes; needs data.merges",
     .flags = TACITI_OPTION_NO_DIGEST},
    {.key = "merges",
     .type = TACITI_OPTION_TEXT,
     .offset = AT(merges),
     .fallback = "",
     .unit = "",
     .help = "merges.txt that belongs to data.vocab",
     .flags = TACITI_OPTION_NO_DIGEST},
};

const taciti_option_table taciti_data_option_table = {
    .section = "data",
    .help = "the tokens of a run: text or shards, and what is held out for validation",
    .options = options,
    .count = sizeof options / sizeof options[0],
};
