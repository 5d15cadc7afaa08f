/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "cli/machine.h"
#include "cli/step_bench.h"
#include "cli/verbs.h"

const taciti_flag taciti_bench_step_flags[] = {
    {"--json", NULL, NULL, "answer as one JSON object"},
    {"--model", "-m", "PRESET", "network (default gpt2-30m); see tacit info presets"},
    {"--batch", "-b", "COUNT", "sequences per step (default 4)"},
    {"--seq", NULL, "TOKENS", "tokens per sequence (default 256)"},
    {"--dtype", NULL, "f32|bf16", "operands of matrix products (default f32)"},
    {"--dropout", NULL, "SHARE", "probability of dropping an element (default 0)"},
    {"--threads", "-t", "COUNT", "compute threads (default: usable cores)"},
    {"--rounds", "-r", "COUNT", "steps that count, after two that do not (default 7)"},
    {NULL, NULL, NULL, NULL},
};

static tacit_status model_of(const taciti_arguments *arguments, taciti_model_options *out) {
    const char *name = taciti_arguments_get(arguments, "--model"), *dtype = taciti_arguments_get(arguments, "--dtype");
    const char *dropout = taciti_arguments_get(arguments, "--dropout");
    taciti_model_options model = {.tied = true};
    (void)snprintf(model.preset.text, sizeof model.preset.text, "%s", name != NULL ? name : "gpt2-30m");
    if (dtype != NULL && strcmp(dtype, "bf16") == 0)
        model.dtype = TACITI_DTYPE_BF16;
    else if (dtype != NULL && strcmp(dtype, "f32") != 0)
        return taciti_fail(TACIT_E_USAGE, "--dtype %s: give f32 or bf16", dtype);
    if (dropout != NULL && !taciti_real_parse(dropout, &model.dropout))
        return taciti_fail(TACIT_E_USAGE, "--dropout %s: give a number from 0 to 0.95", dropout);
    TACITI_TRY(taciti_model_resolve(&model));
    *out = model;
    return TACIT_OK;
}

static tacit_status options_of(const taciti_arguments *arguments, int cores, taciti_step_bench_options *out) {
    int64_t batch, time, threads, rounds;
    taciti_model_options model;
    TACITI_TRY(taciti_arguments_no_words(arguments));
    TACITI_TRY(model_of(arguments, &model));
    TACITI_TRY(taciti_arguments_count(arguments, "--batch", 4, 1, 1 << 20, &batch));
    TACITI_TRY(
        taciti_arguments_count(arguments, "--seq", model.context < 256 ? model.context : 256, 1, model.context, &time));
    TACITI_TRY(taciti_arguments_count(arguments, "--threads", cores, 1, 1024, &threads));
    TACITI_TRY(taciti_arguments_count(arguments, "--rounds", 7, 1, TACITI_STEP_BENCH_MOST_ROUNDS, &rounds));
    *out = (taciti_step_bench_options){model, (size_t)batch, (size_t)time, (int)threads, (int)rounds};
    return TACIT_OK;
}

static const char *const OP_NAMES[TACITI_MODEL_OPS] = {
    [TACITI_MODEL_OP_GEMM] = "gemm",
    [TACITI_MODEL_OP_HEAD] = "head",
    [TACITI_MODEL_OP_ATTENTION] = "attention",
    [TACITI_MODEL_OP_ELEMENTWISE] = "elementwise",
};

/* ---- text ------------------------------------------------------------------------------------------------------ */

static void print_time(const char *name, const taciti_spread *spread, const taciti_spread *step) {
    printf("  %-12s %9.2f ms  (%.2f-%.2f)  %5.1f %%\n", name, 1e3 * spread->median, 1e3 * spread->least,
           1e3 * spread->most, 100 * spread->median / step->median);
}

static void print_text(const taciti_machine *machine, const taciti_step_bench_options *o, const taciti_step_bench *b) {
    const double tokens = (double)o->batch * (double)o->time;
    taciti_machine_print(machine);
    printf("\n%s, %.2f million parameters, %s, dropout %g: %zu x %zu tokens, %d thread%s, %d rounds\n",
           o->model.preset.text, (double)b->parameters / 1e6, o->model.dtype == TACITI_DTYPE_BF16 ? "bf16" : "f32",
           o->model.dropout, o->batch, o->time, o->threads, o->threads == 1 ? "" : "s", o->rounds);
    printf("  %.0f tokens/s, %.1f GFLOP/s = %.1f %% (%.1f-%.1f) of the %s peak of %.1f GFLOP/s in the same rounds\n",
           tokens / b->step_s.median, b->flops.median / 1e9, 100 * b->ratio.median, 100 * b->ratio.least,
           100 * b->ratio.most, b->peak_is_bf16 ? "bf16" : "f32", b->peak_flops.median / 1e9);
    printf("\n  %-12s %12s  %s\n", "", "median", "(least-most) and share of the step");
    print_time("step", &b->step_s, &b->step_s);
    print_time("forward", &b->forward_s, &b->step_s);
    print_time("backward", &b->backward_s, &b->step_s);
    print_time("update", &b->update_s, &b->step_s);
    printf("  by operation:\n");
    for (int op = 0; op < TACITI_MODEL_OPS; op++) print_time(OP_NAMES[op], &b->op_s[op], &b->step_s);
    print_time("optimizer", &b->update_s, &b->step_s);
    printf("\n  loss %.4f -> %.4f nats per token on the same %.0f random tokens\n", b->first_loss, b->last_loss,
           tokens);
    printf("  memory: %.1f MB predicted for model and optimizer, %.1f MB held by the process at most\n",
           (double)b->predicted_bytes / 1e6, (double)b->resident_bytes / 1e6);
    if (b->busy.median < 0.95)
        printf("  other programs took %.0f %% of our cores' time: leave the machine alone and measure again\n",
               100 * (1 - b->busy.median));
}

/* ---- JSON ------------------------------------------------------------------------------------------------------ */

static json_t *times_json(const taciti_step_bench *b) {
    json_t *times = json_pack("{s:o, s:o, s:o, s:o}", "step", taciti_spread_json(&b->step_s), "forward",
                              taciti_spread_json(&b->forward_s), "backward", taciti_spread_json(&b->backward_s),
                              "update", taciti_spread_json(&b->update_s));
    for (int op = 0; op < TACITI_MODEL_OPS; op++)
        (void)json_object_set_new(times, OP_NAMES[op], taciti_spread_json(&b->op_s[op]));
    return times;
}

static json_t *bench_json(const taciti_machine *machine, const taciti_step_bench_options *o,
                          const taciti_step_bench *b) {
    json_t *root =
        json_pack("{s:s, s:o, s:s, s:s, s:f, s:I, s:I, s:i, s:i}", "program", "tacit", "machine",
                  taciti_machine_json(machine), "model", o->model.preset.text, "dtype",
                  o->model.dtype == TACITI_DTYPE_BF16 ? "bf16" : "f32", "dropout", o->model.dropout, "batch",
                  (json_int_t)o->batch, "seq", (json_int_t)o->time, "threads", o->threads, "rounds", o->rounds);
    json_t *figures =
        json_pack("{s:f, s:I, s:f, s:o, s:o, s:s, s:o, s:o, s:o, s:f, s:f, s:I, s:I}", "tokens_per_s",
                  (double)o->batch * (double)o->time / b->step_s.median, "parameters", (json_int_t)b->parameters,
                  "flops_per_step", b->flops_per_step, "flops_per_s", taciti_spread_json(&b->flops), "peak_flops_per_s",
                  taciti_spread_json(&b->peak_flops), "peak_of", b->peak_is_bf16 ? "bf16" : "f32", "ratio",
                  taciti_spread_json(&b->ratio), "busy", taciti_spread_json(&b->busy), "seconds", times_json(b),
                  "first_loss", b->first_loss, "last_loss", b->last_loss, "predicted_bytes",
                  (json_int_t)b->predicted_bytes, "resident_bytes", (json_int_t)b->resident_bytes);
    (void)json_object_update(root, figures);
    json_decref(figures);
    return root;
}

int taciti_verb_bench_step(int argc, char **argv) {
    taciti_arguments arguments;
    taciti_machine machine;
    taciti_step_bench_options options;
    taciti_step_bench bench;
    taciti_machine_read(&machine);
    tacit_status status = taciti_arguments_parse(taciti_verb_find("bench step"), NULL, argc, argv, &arguments);
    if (status == TACIT_OK) status = options_of(&arguments, machine.cores, &options);
    if (status == TACIT_OK) status = taciti_step_bench_run(&options, &bench);
    if (status == TACIT_OK && taciti_arguments_get(&arguments, "--json") != NULL)
        status = taciti_cli_print_json(bench_json(&machine, &options, &bench));
    else if (status == TACIT_OK)
        print_text(&machine, &options, &bench);
    return tacit_status_exit_code(status);
}
