/* SPDX-License-Identifier: Apache-2.0
 *
 * The flags and functions of the verbs, which verb_*.c define and verbs.c puts into the table.
 */
#ifndef TACITI_CLI_VERBS_H
#define TACITI_CLI_VERBS_H

#include "cli/cli.h"

extern const taciti_flag taciti_doctor_flags[], taciti_data_prepare_flags[], taciti_info_flags[], taciti_probe_flags[],
    taciti_plan_flags[], taciti_train_flags[], taciti_eval_flags[], taciti_sample_flags[], taciti_import_flags[],
    taciti_export_flags[], taciti_bench_collectives_flags[], taciti_bench_codecs_flags[], taciti_bench_kernels_flags[],
    taciti_bench_step_flags[], taciti_man_flags[];

typedef tacit_status taciti_verb_function(const taciti_verb *verb, int argc, char **argv);
taciti_verb_function taciti_verb_doctor, taciti_verb_data_prepare, taciti_verb_info, taciti_verb_probe,
    taciti_verb_plan, taciti_verb_train, taciti_verb_eval, taciti_verb_sample, taciti_verb_import, taciti_verb_export,
    taciti_verb_bench_collectives, taciti_verb_bench_codecs, taciti_verb_bench_kernels, taciti_verb_bench_step,
    taciti_verb_completion, taciti_verb_man;

#endif
