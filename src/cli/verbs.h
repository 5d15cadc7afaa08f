/* SPDX-License-Identifier: Apache-2.0
 *
 * The flags and functions of the verbs, which verb_*.c define and verbs.c puts into the table.
 */
#ifndef TACITI_CLI_VERBS_H
#define TACITI_CLI_VERBS_H

#include "cli/cli.h"

/* For verbs without flags. */
extern const taciti_flag taciti_no_flags[];

extern const taciti_flag taciti_doctor_flags[];
int taciti_verb_doctor(const taciti_verb *verbs, int argc, char **argv);

extern const taciti_flag taciti_data_prepare_flags[];
int taciti_verb_data_prepare(const taciti_verb *verbs, int argc, char **argv);

extern const taciti_flag taciti_info_flags[];
int taciti_verb_info(const taciti_verb *verbs, int argc, char **argv);

extern const taciti_flag taciti_probe_flags[];
int taciti_verb_probe(const taciti_verb *verbs, int argc, char **argv);

extern const taciti_flag taciti_plan_flags[];
int taciti_verb_plan(const taciti_verb *verbs, int argc, char **argv);

extern const taciti_flag taciti_train_flags[];
int taciti_verb_train(const taciti_verb *verbs, int argc, char **argv);

extern const taciti_flag taciti_eval_flags[];
int taciti_verb_eval(const taciti_verb *verbs, int argc, char **argv);

extern const taciti_flag taciti_sample_flags[];
int taciti_verb_sample(const taciti_verb *verbs, int argc, char **argv);

extern const taciti_flag taciti_bench_collectives_flags[];
int taciti_verb_bench_collectives(const taciti_verb *verbs, int argc, char **argv);

extern const taciti_flag taciti_bench_codecs_flags[];
int taciti_verb_bench_codecs(const taciti_verb *verbs, int argc, char **argv);

extern const taciti_flag taciti_bench_kernels_flags[];
int taciti_verb_bench_kernels(const taciti_verb *verbs, int argc, char **argv);

extern const taciti_flag taciti_bench_step_flags[];
int taciti_verb_bench_step(const taciti_verb *verbs, int argc, char **argv);

extern const taciti_flag taciti_import_flags[];
int taciti_verb_import(const taciti_verb *verbs, int argc, char **argv);

extern const taciti_flag taciti_export_flags[];
int taciti_verb_export(const taciti_verb *verbs, int argc, char **argv);

extern const taciti_flag taciti_man_flags[];
int taciti_verb_man(const taciti_verb *verbs, int argc, char **argv);

int taciti_verb_completion(const taciti_verb *verbs, int argc, char **argv);

#endif
