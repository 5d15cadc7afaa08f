/* SPDX-License-Identifier: Apache-2.0 */
#include "data/data.h"

#define AT(field) offsetof(taciti_data_options, field)

/* Paths may differ between hosts: what they hold is compared by taciti_data_info.digest. */
static const taciti_option OPTIONS[] = {
    TACITI_OPTION("train", LIST, AT(train), "",
                  .help = "files to train on, read end to end; none: the program's own sources and docs",
                  .flags = TACITI_OPTION_NO_DIGEST),
    TACITI_OPTION(
        "validation", LIST, AT(validation), "",
        .help = "files to validate on; none: the last data.split of the train tokens, which are then not trained on",
        .flags = TACITI_OPTION_NO_DIGEST),
    TACITI_OPTION("split", REAL, AT(split), "0.1", .min = 0.0, .max = 0.99, .when = "data.validation=",
                  .help = "share of the train tokens that is held out when there are no validation files"),
    TACITI_OPTION(
        "partition", TEXT, AT(partition), "global",
        .help =
            "what a rank draws samples from: global|by-rank|dirichlet:ALPHA; all but global make ranks' data unequal",
        .flags = TACITI_OPTION_EXPERT),
    TACITI_OPTION(
        "vocab", TEXT, AT(vocab), "",
        .help = "vocab.json of a GPT-2 style tokenizer, with merges.txt beside it; text becomes its ids, not bytes",
        .flags = TACITI_OPTION_NO_DIGEST),
};

const taciti_option_table taciti_data_option_table =
    TACITI_OPTION_TABLE("data", "the tokens of a run: text or shards, and what is held out for validation", OPTIONS);
