/* SPDX-License-Identifier: Apache-2.0 */
#include "strategy/shard.h"

#define AT(member) offsetof(taciti_shard_options, member)

static const taciti_option OPTIONS[] = {
    TACITI_OPTION("stage", INT, AT(stage), "3", .min = 0, .max = 3,
                  .help = "what ranks hold in parts: 1 moments, 2 also gradients, 3 also parameters; 0 is strategy dp"),
    TACITI_OPTION("gather", ENUM, AT(gather), "f32", .choices = "f32|bf16",
                  .help = "number format in which parameters travel; updates are made in f32"),
};

const taciti_option_table taciti_shard_option_table = {.section = "shard",
                                                       .help = "what every rank holds a part of",
                                                       .options = OPTIONS,
                                                       .count = sizeof OPTIONS / sizeof *OPTIONS};
