/* SPDX-License-Identifier: Apache-2.0 */
#include "train/train.h"

#include <string.h>

#define FIELD(member) offsetof(taciti_train_options, member)
static const taciti_option TRAIN_OPTIONS[] = {
    {"steps", TACITI_OPTION_INT, FIELD(steps), "1000", 1, 1e12, NULL, "steps", "optimizer steps of the whole run", 0},
    {"batch", TACITI_OPTION_INT, FIELD(batch), "32", 1, 1e9, NULL, "sequences",
     "sequences per step, over all ranks: the same run for every number of ranks", 0},
    {"micro_batch", TACITI_OPTION_INT, FIELD(micro_batch), "0", 0, 1e9, NULL, "sequences",
     "sequences per rank and pass; smaller saves memory (gradient accumulation); 0: the rank's whole share", 0},
    {"seq", TACITI_OPTION_INT, FIELD(time), "0", 0, 1e6, NULL, "tokens", "tokens per sequence; 0: model.context", 0},
    {"threads", TACITI_OPTION_INT, FIELD(threads), "0", 0, 4096, NULL, "threads",
     "compute threads per rank; 0: cores of the host divided by the ranks on it", TACITI_OPTION_NO_DIGEST},
    {"eval_every", TACITI_OPTION_INT, FIELD(eval_every), "100", -1, 1e12, NULL, "steps",
     "validation loss every so many steps; 0: only at the end; -1: never", TACITI_OPTION_NO_DIGEST},
    {"eval_windows", TACITI_OPTION_INT, FIELD(eval_windows), "0", 0, 1e12, NULL, "sequences",
     "validation windows per evaluation; 0: all of them", TACITI_OPTION_NO_DIGEST},
    {"save_every", TACITI_OPTION_INT, FIELD(save_every), "500", -1, 1e12, NULL, "steps",
     "checkpoint every so many steps; 0: only early and at the end; -1: never", TACITI_OPTION_NO_DIGEST},
    {"save_early", TACITI_OPTION_INT, FIELD(save_early), "10", 0, 1e12, NULL, "steps",
     "first checkpoint after this step, so that a full disk shows early; 0: none", TACITI_OPTION_NO_DIGEST},
    {"keep", TACITI_OPTION_INT, FIELD(keep), "2", 1, 1e6, NULL, "checkpoints", "newest checkpoints that are kept",
     TACITI_OPTION_NO_DIGEST},
    {"max_minutes", TACITI_OPTION_REAL, FIELD(max_minutes), "0", 0, 1e9, NULL, "minutes",
     "save a checkpoint and stop cleanly after this time; 0: never", TACITI_OPTION_NO_DIGEST},
    {"seed", TACITI_OPTION_INT, FIELD(seed), "1", 0, TACITI_UNBOUNDED, NULL, "",
     "initial values, order of the data and dropout are functions of it", 0},
    {"init", TACITI_OPTION_TEXT, FIELD(init), "", 0, 0, NULL, "",
     "weights to start from: a run folder, a Hugging Face GPT-2 folder or a llm.c file", 0},
    {"max_skips", TACITI_OPTION_INT, FIELD(max_skips), "100", 0, 1e12, NULL, "steps",
     "give up when so many steps in a row are skipped because the gradient is not finite; 0: never",
     TACITI_OPTION_NO_DIGEST},
    {"fail_at", TACITI_OPTION_INT, FIELD(fail_at), "-1", -1, 1e12, NULL, "steps",
     "for tests: poison the last rank's gradient of this step with NaN; -1: never",
     TACITI_OPTION_NO_DIGEST | TACITI_OPTION_EXPERT},
    {"fail_steps", TACITI_OPTION_INT, FIELD(fail_steps), "1", 1, 1e12, NULL, "steps",
     "for tests: number of steps that train.fail_at poisons", TACITI_OPTION_NO_DIGEST | TACITI_OPTION_EXPERT},
};
#undef FIELD
const taciti_option_table taciti_train_option_table = {"train", "length, batch, evaluation and checkpoints of a run",
                                                       TRAIN_OPTIONS, sizeof TRAIN_OPTIONS / sizeof *TRAIN_OPTIONS};

#define FIELD(member) offsetof(taciti_run_options, member)
static const taciti_option RUN_OPTIONS[] = {
    {"dir", TACITI_OPTION_TEXT, FIELD(dir), "run", 0, 0, NULL, "", "folder for checkpoints, metrics and traces",
     TACITI_OPTION_NO_DIGEST},
    {"trace", TACITI_OPTION_BOOL, FIELD(trace), "false", 0, 0, NULL, "",
     "write trace.json (Chrome trace of all ranks on one clock) at the end", TACITI_OPTION_NO_DIGEST},
    {"tensorboard", TACITI_OPTION_BOOL, FIELD(tensorboard), "true", 0, 0, NULL, "",
     "write a TensorBoard event file beside metrics.jsonl", TACITI_OPTION_NO_DIGEST},
    {"quiet", TACITI_OPTION_BOOL, FIELD(quiet), "false", 0, 0, NULL, "", "no progress on the console",
     TACITI_OPTION_NO_DIGEST},
};
#undef FIELD
const taciti_option_table taciti_run_option_table = {"run", "where a run leaves its files", RUN_OPTIONS,
                                                     sizeof RUN_OPTIONS / sizeof *RUN_OPTIONS};

static const taciti_option TOP_OPTIONS[] = {
    {"strategy", TACITI_OPTION_TEXT, 0, "dp", 0, 0, NULL, "",
     "what is exchanged and when; `tacit info strategies` lists them", 0},
};
const taciti_option_table taciti_top_option_table = {"", "how the ranks work together", TOP_OPTIONS, 1};

tacit_status taciti_settings_init(taciti_settings *settings) {
    memset(settings, 0, sizeof *settings);
    const taciti_section sections[] = {
        {&taciti_top_option_table, &settings->strategy},      {&taciti_train_option_table, &settings->train},
        {&taciti_run_option_table, &settings->run},           {&taciti_model_option_table, &settings->model},
        {&taciti_data_option_table, &settings->data},         {&taciti_optim_option_table, &settings->optim},
        {&taciti_exchange_option_table, &settings->exchange}, {&taciti_gossip_option_table, &settings->gossip},
        {&taciti_localsgd_option_table, &settings->localsgd}, {&taciti_comm_option_table, &settings->comm},
        {&taciti_compute_option_table, &settings->compute},
    };
    const size_t count = sizeof sections / sizeof *sections;
    memcpy(settings->sections, sections, sizeof sections);
    settings->config = (taciti_config){settings->sections, count};
    return taciti_config_defaults(&settings->config);
}
