/* SPDX-License-Identifier: Apache-2.0 */
#include "train/train.h"

#include <string.h>

#include "base/log.h"

#define AT(member) offsetof(taciti_train_options, member)
static const taciti_option TRAIN_OPTIONS[] = {
    TACITI_OPTION("steps", INT, AT(steps), "1000", .min = 1, .max = 1e12, .unit = "steps",
                  .help = "optimizer steps of the whole run"),
    TACITI_OPTION("batch", INT, AT(batch), "32", .min = 1, .max = 1e9, .unit = "sequences",
                  .help = "sequences per step, over all ranks: the same run for every number of ranks"),
    TACITI_OPTION(
        "micro_batch", INT, AT(micro_batch), "0", .max = 1e9, .unit = "sequences",
        .help = "sequences per rank and pass; smaller saves memory (gradient accumulation); 0: the rank's whole share"),
    TACITI_OPTION("seq", INT, AT(time), "0", .max = 1e6, .unit = "tokens",
                  .help = "tokens per sequence; 0: model.context"),
    TACITI_OPTION(
        "threads", INT, AT(threads), "0", .max = 4096, .unit = "threads",
        .help = "compute threads per rank; 0: the cores that a rank may use, divided by the ranks that share them",
        .flags = TACITI_OPTION_NO_DIGEST),
    TACITI_OPTION("eval_every", INT, AT(eval_every), "100", .min = -1, .max = 1e12, .unit = "steps",
                  .help = "validation loss every so many steps; 0: only at the end; -1: never",
                  .flags = TACITI_OPTION_NO_DIGEST),
    TACITI_OPTION("eval_windows", INT, AT(eval_windows), "0", .max = 1e12, .unit = "sequences",
                  .when = "train.eval_every!=-1", .help = "validation windows per evaluation; 0: all of them",
                  .flags = TACITI_OPTION_NO_DIGEST),
    TACITI_OPTION("save_every", INT, AT(save_every), "500", .min = -1, .max = 1e12, .unit = "steps",
                  .help = "checkpoint every so many steps; 0: only early and at the end; -1: never",
                  .flags = TACITI_OPTION_NO_DIGEST),
    TACITI_OPTION("save_early", INT, AT(save_early), "10", .max = 1e12, .unit = "steps", .when = "train.save_every!=-1",
                  .help = "first checkpoint after this step, so that a full disk shows early; 0: none",
                  .flags = TACITI_OPTION_NO_DIGEST | TACITI_OPTION_EXPERT),
    TACITI_OPTION("keep", INT, AT(keep), "2", .min = 1, .max = 1e6, .unit = "checkpoints",
                  .when = "train.save_every!=-1", .help = "newest checkpoints that are kept",
                  .flags = TACITI_OPTION_NO_DIGEST),
    TACITI_OPTION("max_minutes", REAL, AT(max_minutes), "0", .max = 1e9, .unit = "minutes",
                  .help = "save a checkpoint and stop cleanly after this time; 0: never",
                  .flags = TACITI_OPTION_NO_DIGEST),
    TACITI_OPTION("seed", INT, AT(seed), "1", .max = TACITI_UNBOUNDED,
                  .help = "initial values, order of the data and dropout are functions of it"),
    TACITI_OPTION("init", TEXT, AT(init), "",
                  .help = "weights to start from: a run folder, a Hugging Face GPT-2 folder or a llm.c file"),
};
#undef AT
const taciti_option_table taciti_train_option_table =
    TACITI_OPTION_TABLE("train", "length, batch, evaluation and checkpoints of a run", TRAIN_OPTIONS);

#define AT(member) offsetof(taciti_run_options, member)
static const taciti_option RUN_OPTIONS[] = {
    TACITI_OPTION("dir", TEXT, AT(dir), "run", .help = "folder for checkpoints, metrics and traces",
                  .flags = TACITI_OPTION_NO_DIGEST),
    TACITI_OPTION("trace", BOOL, AT(trace), "false",
                  .help = "write trace.json (Chrome trace of all ranks on one clock) at the end",
                  .flags = TACITI_OPTION_NO_DIGEST),
    TACITI_OPTION("tensorboard", BOOL, AT(tensorboard), "true",
                  .help = "write a TensorBoard event file beside metrics.jsonl",
                  .flags = TACITI_OPTION_NO_DIGEST | TACITI_OPTION_EXPERT),
    TACITI_OPTION("arrivals", TEXT, AT(arrivals), "", .when = "gossip.async=true",
                  .help = "folder for the log of who took in whose parameters when; `train --replay FOLDER` repeats it",
                  .flags = TACITI_OPTION_NO_DIGEST),
    TACITI_OPTION("quiet", BOOL, AT(quiet), "false", .help = "no progress on the console",
                  .flags = TACITI_OPTION_NO_DIGEST),
};
#undef AT
const taciti_option_table taciti_run_option_table =
    TACITI_OPTION_TABLE("run", "where a run leaves its files", RUN_OPTIONS);

bool taciti_train_is_asynchronous(const taciti_train_settings *settings) {
    taciti_place place;
    return strcmp(settings->job.strategy.text, "gossip") == 0 &&
           taciti_config_find(&settings->job.config, "gossip.async", &place) && *(const bool *)place.value;
}

tacit_status taciti_train_settings_complete(taciti_train_settings *settings) {
    TACITI_TRY(taciti_settings_complete(&settings->job));
    return taciti_config_preset(&settings->job.config, "comm.timeout",
                                taciti_train_is_asynchronous(settings) ? "60" : NULL, "gossip.async");
}

tacit_status taciti_train_settings_init(taciti_train_settings *settings) {
    const taciti_own_section own[] = {
        {{&taciti_train_option_table, &settings->train, NULL}, &taciti_model_option_table},
        {{&taciti_run_option_table, &settings->run, NULL}, &taciti_model_option_table},
        {{&taciti_data_option_table, &settings->data, NULL}, &taciti_optim_option_table},
    };
    memset(settings, 0, sizeof *settings);
    return taciti_settings_init(&settings->job, own, sizeof own / sizeof *own);
}
