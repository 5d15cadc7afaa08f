/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/signals.h"
#include "base/terminal.h"
#include "bench/comparison.h"
#include "bench/local_step.h"
#include "bench/machine_block.h"
#include "cli/cluster_print.h"
#include "cli/ranks.h"
#include "cli/step_settings.h"
#include "cli/verbs.h"
#include "comm/launcher.h"
#include "comm/supervise.h"

const taciti_flag taciti_bench_step_flags[] = {
    TACITI_RANKS_FLAGS,
    {"--json", NULL, NULL, "answer as one JSON object"},
    {"--model", "-m", "PRESET", "network (default gpt2-30m, or the profile's); see tacit info presets"},
    {"--batch", "-b", "COUNT", "sequences per step and rank (default 4)"},
    {"--seq", NULL, "TOKENS", "tokens per sequence (default 256)"},
    {"--dtype", NULL, "f32|bf16", "operands of matrix products (default f32)"},
    {"--dropout", NULL, "SHARE", "probability of dropping an element (default 0)"},
    {"--threads", "-t", "COUNT", "compute threads per rank (default: usable cores / ranks that share them)"},
    {"--rounds", "-r", "COUNT",
     "steps that count, per block (default 7 alone; in a cluster up to 20, for about a minute)"},
    {"--warm-up", NULL, "COUNT",
     "steps of each block that do not count (default 3, or 1 when steps are long; alone always 2)"},
    {"--blocks", NULL, "COUNT", "blocks per setting (default 3, or 1 without --against)"},
    {"--dry-run", NULL, NULL, "check the command and list its settings; measure nothing"},
    {"--against", NULL, "CHANGES", "another setting: the base with \"KEY=VALUE ...\" changed; may be repeated"},
    {NULL, NULL, NULL, NULL},
};

/* ---- what is asked for ------------------------------------------------------------------------------------------- */

/* The flags that stand for keys of the section `model`, on every setting. */
static tacit_status apply_model_flags(const taciti_arguments *arguments, taciti_bench_settings *settings) {
    static const char *const names[][2] = {
        {"--model", "model.preset"}, {"--dtype", "model.dtype"}, {"--dropout", "model.dropout"}};
    for (size_t i = 0; i < settings->count; i++)
        for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
            const char *value = taciti_arguments_get(arguments, names[n][0]);
            if (value != NULL)
                TACITI_TRY(taciti_config_set(&settings->list[i].job.config, names[n][1], value, names[n][0]));
        }
    return TACIT_OK;
}

/* The network of the model section; "gpt2-30m" when nothing is said. */
static tacit_status resolve_model(const taciti_bench_setting *base, taciti_model_options *out) {
    taciti_model_options model = base->job.model;
    if (model.preset.text[0] == '\0' && model.layers == 0)
        (void)snprintf(model.preset.text, sizeof model.preset.text, "gpt2-30m");
    TACITI_TRY(taciti_model_resolve(&model));
    *out = model;
    return TACIT_OK;
}

/* An emulated accelerator has the network of its profile. A network named besides must be the same one. */
static tacit_status compare_with_profile(const taciti_bench_setting *base) {
    taciti_model_options model;
    taciti_layout layout;
    taciti_profile profile;
    if (base->job.model.preset.text[0] == '\0' && base->job.model.layers == 0) return TACIT_OK;
    TACITI_TRY(resolve_model(base, &model));
    TACITI_TRY(taciti_compute_profile(&base->job.compute, &profile));
    const size_t emulated = taciti_profile_parameters(&profile);
    taciti_profile_destroy(&profile);
    TACITI_TRY(taciti_model_layout(&model, (size_t)base->job.exchange.bucket_bytes, &layout));
    const size_t named = layout.parameters;
    taciti_layout_destroy(&layout);
    if (named == emulated) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "--model %s has %zu parameters, but the profile %s that takes its place has %zu: leave --model "
                       "away or name the profile of that network",
                       model.preset.text, named, base->job.compute.emulate.text, emulated);
}

/* Sequences and tokens of each; short ones by default, as attention to long ones is another measurement. */
static tacit_status tokens_of(const taciti_arguments *arguments, const taciti_model_options *model, int64_t *batch,
                              int64_t *time) {
    enum { SHORT = 256 };
    const int64_t context = model->context;
    TACITI_TRY(taciti_arguments_count(arguments, "--batch", 4, 1, 1 << 20, batch));
    return taciti_arguments_count(arguments, "--seq", context < SHORT ? context : SHORT, 1, context, time);
}

/* Refuses the flags of real computing, which emulated compute would not read. */
static tacit_status refuse_real_flags(const taciti_arguments *arguments) {
    static const char *const flags[] = {"--batch", "--seq", "--threads", "--dtype", "--dropout"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (taciti_arguments_get(arguments, flags[i]) != NULL)
            return taciti_fail(TACIT_E_USAGE,
                               "%s means nothing with compute.emulate: the profile says how long a step computes; see "
                               "compute.batch, compute.rate and compute.scale",
                               flags[i]);
    return TACIT_OK;
}

static tacit_status cluster_options_of(const taciti_arguments *arguments, taciti_bench_settings *settings,
                                       taciti_cluster_options *out) {
    int64_t batch = 0, time = 0, threads = 0, rounds, warm_up, blocks;
    taciti_bench_setting *base = &settings->list[0];
    if (taciti_bench_setting_emulated(base)) {
        TACITI_TRY(refuse_real_flags(arguments));
        TACITI_TRY(compare_with_profile(base));
    } else {
        for (size_t i = settings->count; i-- > 0;)
            TACITI_TRY(resolve_model(&settings->list[i], &settings->list[i].job.model));
        TACITI_TRY(tokens_of(arguments, &base->job.model, &batch, &time));
        TACITI_TRY(taciti_arguments_count(arguments, "--threads", 0, 1, 1024, &threads));
    }
    TACITI_TRY(taciti_arguments_count(arguments, "--rounds", 0, 1, TACITI_CLUSTER_MAX_ROUNDS, &rounds));
    TACITI_TRY(taciti_arguments_count(arguments, "--warm-up", 3, 0, TACITI_CLUSTER_MAX_ROUNDS, &warm_up));
    TACITI_TRY(taciti_arguments_count(arguments, "--blocks", settings->count > 1 ? 3 : 1, 1, TACITI_CLUSTER_MAX_BLOCKS,
                                      &blocks));
    *out = (taciti_cluster_options){.settings = settings,
                                    .length = {.blocks = (size_t)blocks,
                                               .rounds = (size_t)rounds,
                                               .warm_up = (size_t)warm_up,
                                               .keep_warm_up = taciti_arguments_get(arguments, "--warm-up") != NULL},
                                    .batch = (size_t)batch,
                                    .time = (size_t)time,
                                    .threads = (int)threads};
    return TACIT_OK;
}

static tacit_status options_of(const taciti_arguments *arguments, const taciti_bench_setting *base, int cores,
                               taciti_step_bench_options *out) {
    int64_t batch, time, threads, rounds;
    taciti_model_options model;
    TACITI_TRY(resolve_model(base, &model));
    TACITI_TRY(tokens_of(arguments, &model, &batch, &time));
    TACITI_TRY(taciti_arguments_count(arguments, "--threads", cores, 1, 1024, &threads));
    TACITI_TRY(taciti_arguments_count(arguments, "--rounds", 7, 1, TACITI_STEP_BENCH_MAX_ROUNDS, &rounds));
    *out = (taciti_step_bench_options){model, (size_t)batch, (size_t)time, (int)threads, (int)rounds};
    return TACIT_OK;
}

/* ---- text ------------------------------------------------------------------------------------------------------ */

static void print_time(const char *name, const taciti_statistics *statistics, const taciti_statistics *step) {
    printf("  %-12s %9.2f ms  (%.2f-%.2f)  %5.1f %%\n", name, 1e3 * statistics->median, 1e3 * statistics->min,
           1e3 * statistics->max, 100 * statistics->median / step->median);
}

static void print_text(const taciti_machine *machine, const taciti_step_bench_options *o, const taciti_step_bench *b) {
    const double tokens = (double)o->batch * (double)o->time, busy = b->figures[TACITI_STEP_BUSY].median;
    const taciti_statistics *step = &b->figures[TACITI_STEP_WHOLE], *ratio = &b->figures[TACITI_STEP_RATIO];
    taciti_machine_print(machine);
    printf("\n%s, %.2f million parameters, %s, dropout %g: %zu x %zu tokens, %d thread%s, %d rounds\n",
           o->model.preset.text, (double)b->parameters / 1e6, o->model.dtype == TACITI_DTYPE_BF16 ? "bf16" : "f32",
           o->model.dropout, o->batch, o->time, o->threads, o->threads == 1 ? "" : "s", o->rounds);
    printf("  %.0f tokens/s, %.1f GFLOP/s = %.1f %% (%.1f-%.1f) of the %s peak of %.1f GFLOP/s in the same rounds\n",
           tokens / step->median, b->figures[TACITI_STEP_FLOPS].median / 1e9, 100 * ratio->median, 100 * ratio->min,
           100 * ratio->max, b->peak_is_bf16 ? "bf16" : "f32", b->figures[TACITI_STEP_PEAK].median / 1e9);
    printf("\n  %-12s %12s  %s\n", "", "median", "(least-most) and share of the step");
    for (int i = 0; i < TACITI_STEP_TIMES; i++) {
        if (i == TACITI_STEP_OPS) printf("  by operation:\n");
        print_time(taciti_step_figure_names[i], &b->figures[i], step);
    }
    print_time("optimizer", &b->figures[TACITI_STEP_UPDATE], step);
    printf("\n  loss %.4f -> %.4f nats per token on the same %.0f random tokens\n", b->first_loss, b->last_loss,
           tokens);
    printf("  memory: %.1f MB predicted for model and optimizer, %.1f MB held by the process at most\n",
           (double)b->predicted_bytes / 1e6, (double)b->resident_bytes / 1e6);
    if (busy < 0.95)
        printf("  other programs took %.0f %% of our cores' time: leave the machine alone and measure again\n",
               100 * (1 - busy));
}

/* ---- JSON ------------------------------------------------------------------------------------------------------ */

static json_t *bench_json(const taciti_machine *machine, const taciti_step_bench_options *o,
                          const taciti_step_bench *b) {
    json_t *root =
        json_pack("{s:s, s:o, s:s, s:s, s:f, s:I, s:I, s:i, s:i, s:f, s:I, s:f}", "program", "tacit", "machine",
                  taciti_machine_json(machine), "model", o->model.preset.text, "dtype",
                  o->model.dtype == TACITI_DTYPE_BF16 ? "bf16" : "f32", "dropout", o->model.dropout, "batch",
                  (json_int_t)o->batch, "seq", (json_int_t)o->time, "threads", o->threads, "rounds", o->rounds,
                  "tokens_per_s", (double)o->batch * (double)o->time / b->figures[TACITI_STEP_WHOLE].median,
                  "parameters", (json_int_t)b->parameters, "flops_per_step", b->flops_per_step);
    json_t *seconds = json_object();
    for (int i = 0; i < TACITI_STEP_FIGURES; i++)
        (void)json_object_set_new(i < TACITI_STEP_TIMES ? seconds : root, taciti_step_figure_names[i],
                                  taciti_statistics_json(&b->figures[i]));
    json_t *rest = json_pack("{s:s, s:o, s:f, s:f, s:I, s:I}", "peak_of", b->peak_is_bf16 ? "bf16" : "f32", "seconds",
                             seconds, "first_loss", b->first_loss, "last_loss", b->last_loss, "predicted_bytes",
                             (json_int_t)b->predicted_bytes, "resident_bytes", (json_int_t)b->resident_bytes);
    (void)json_object_update(root, rest);
    json_decref(rest);
    return root;
}

/* ---- one process ------------------------------------------------------------------------------------------------- */

static tacit_status run_alone(const taciti_arguments *arguments, const taciti_bench_setting *base) {
    taciti_machine machine;
    taciti_step_bench_options options;
    taciti_step_bench bench;
    taciti_machine_read(&machine);
    TACITI_TRY(options_of(arguments, base, machine.cores, &options));
    TACITI_TRY(taciti_step_bench_run(&options, &bench));
    if (taciti_arguments_get(arguments, "--json") != NULL)
        return taciti_cli_print_json(bench_json(&machine, &options, &bench));
    print_text(&machine, &options, &bench);
    return TACIT_OK;
}

/* ---- a cluster --------------------------------------------------------------------------------------------------- */

/* State of the progress line, and what the answer to an interruption needs. */
typedef struct watch {
    double last_s; /* when the last line was written elsewhere */
    bool speaks;   /* rank 0 */
    const taciti_arguments *arguments;
    const taciti_cluster_options *options;
    pthread_mutex_t answering;     /* held by the one thread that answers, and while `run` changes */
    const taciti_cluster_run *run; /* NULL: none is measuring */
} watch;

static const double QUIET_S = 10;

/* Emulated compute that takes longer than asked by more than this share is worth a warning. */
static const double LATE_SHARE = 0.005;

static void show_progress(void *context, const taciti_cluster_progress *p) {
    watch *w = context;
    char text[160];
    (void)snprintf(text, sizeof text, "%zu of %zu blocks, %.0f s left; %s: %.2f ms per step", p->done, p->total,
                   p->left_s, p->label, 1e3 * p->step_s);
    taciti_cli_progress(p->done == p->total ? NULL : "%s", text);
    if (!taciti_terminal_live(stderr) && p->elapsed_s - w->last_s >= QUIET_S) {
        taciti_log(TACITI_LOG_INFO, "%s", text);
        w->last_s = p->elapsed_s;
    }
}

/* Step times of an emulation that did not keep its times are about this machine, not about the cluster. */
static void warn_of_late_compute(const taciti_cluster_options *options, const taciti_cluster_bench *bench) {
    for (size_t i = 0; i < bench->setting_count; i++) {
        const taciti_compute_figures *c = &bench->figures[i].compute;
        const double late = c->mean_s / c->asked_mean_s - 1;
        if (late > LATE_SHARE) /* never when nothing was asked: NaN */
            taciti_log(TACITI_LOG_WARN,
                       "%s: emulated compute took %.2f ms instead of %.2f (%+.1f %%): this machine was too busy, with "
                       "these ranks or with other things; trust the bytes, not the times",
                       options->settings->list[i].label, 1e3 * c->mean_s, 1e3 * c->asked_mean_s, 100 * late);
    }
}

static tacit_status print_cluster(const taciti_arguments *arguments, const taciti_cluster_options *options,
                                  const taciti_cluster_bench *bench) {
    taciti_machine machine;
    taciti_machine_read(&machine);
    warn_of_late_compute(options, bench);
    if (taciti_arguments_get(arguments, "--json") != NULL)
        return taciti_cli_print_json(taciti_cluster_json(&machine, options, bench));
    taciti_cluster_print(&machine, options, bench);
    return TACIT_OK;
}

static void keep_run(void *context, const taciti_cluster_run *run) {
    watch *w = context;
    (void)pthread_mutex_lock(&w->answering);
    w->run = run;
    (void)pthread_mutex_unlock(&w->answering);
}

/* On a thread of its own, before the process exits: the blocks that are complete. Nobody else may answer afterwards. */
static void answer_early(void *context) {
    const struct timespec moment = {.tv_sec = 1};
    watch *w = context;
    taciti_cluster_bench bench;
    if (!w->speaks) { /* the launcher ends the job with the first rank that fails: let that be rank 0 */
        (void)nanosleep(&moment, NULL);
        return;
    }
    (void)pthread_mutex_lock(&w->answering);
    if (w->run != NULL && taciti_cluster_run_figures(w->run, &bench) == TACIT_OK) {
        taciti_log(TACITI_LOG_WARN, "interrupted: %zu block%s of each of %zu setting%s %s complete", bench.blocks,
                   bench.blocks == 1 ? "" : "s", bench.setting_count, bench.setting_count == 1 ? "" : "s",
                   bench.blocks == 1 ? "is" : "are");
        (void)print_cluster(w->arguments, w->options, &bench);
    } else {
        taciti_log(TACITI_LOG_WARN, "interrupted before the first block was complete: there is nothing to print");
    }
}

static tacit_status measure_cluster(watch *w, taciti_bench_settings *settings, taciti_witness *witness) {
    taciti_cluster_bench bench;
    taciti_comm *comm = NULL;
    TACITI_TRY(taciti_comm_open(&settings->list[0].job.comm, &comm));
    if (witness != NULL) taciti_comm_attach(comm, witness);
    taciti_cli_log_init(taciti_comm_rank(comm));
    if (w->speaks)
        taciti_log(TACITI_LOG_INFO, "measuring %zu setting%s on %d rank%s", settings->count,
                   settings->count == 1 ? "" : "s", taciti_comm_size(comm), taciti_comm_size(comm) == 1 ? "" : "s");
    tacit_status status = taciti_cluster_bench_run(comm, w->options, &bench);
    (void)pthread_mutex_lock(&w->answering); /* and never unlocked */
    taciti_comm_close(comm);
    if (status != TACIT_OK) return status;
    if (w->speaks) status = print_cluster(w->arguments, w->options, &bench);
    taciti_cluster_bench_destroy(&bench);
    return status;
}

static tacit_status run_cluster(const taciti_arguments *arguments, taciti_bench_settings *settings) {
    static watch w = {.answering = PTHREAD_MUTEX_INITIALIZER}; /* the thread that answers early outlives this call */
    static taciti_cluster_options options;
    TACITI_TRY(cluster_options_of(arguments, settings, &options));
    options.progress = show_progress;
    options.running = keep_run;
    options.context = &w;
    w.speaks = taciti_launcher_detect().rank == 0;
    w.arguments = arguments;
    w.options = &options;
    taciti_witness *witness =
        taciti_supervise(settings->list[0].job.comm.timeout_s); /* from here on this is the worker */
    TACITI_TRY(taciti_on_interruption(answer_early, &w));
    return measure_cluster(&w, settings, witness);
}

/* --strategy, or a key of another section than the model's. */
static bool is_of_network(const char *word) {
    if (strncmp(word, "--", 2) != 0) return false;
    const char *key = word + (strncmp(word, "--no-", 5) == 0 ? 5 : 2);
    const size_t name = strcspn(key, "=");
    const bool keyed = memchr(key, '.', name) != NULL && strncmp(key, "model.", strlen("model.")) != 0;
    return keyed || strncmp(key, "strategy", strlen("strategy")) == 0;
}

/* One process that was asked for nothing but a network's size measures its arithmetic. */
static bool wants_cluster(const taciti_arguments *arguments, const taciti_launcher *launcher, int argc, char **argv) {
    static const char *const flags[] = {"--against", "--blocks", "--warm-up"};
    if (launcher->name != NULL) return true;
    for (size_t f = 0; f < sizeof flags / sizeof *flags; f++)
        if (taciti_arguments_get(arguments, flags[f]) != NULL) return true;
    bool asked = false;
    for (int i = 1; i < argc && !asked; i++) asked = is_of_network(argv[i]);
    return asked;
}

/* All that can be known of a command before a rank starts. */
static tacit_status rehearse_run(const taciti_arguments *arguments, taciti_bench_settings *settings, bool cluster) {
    taciti_step_bench_options alone;
    taciti_cluster_options options;
    char text[512];
    if (taciti_launcher_detect().rank > 0) return TACIT_OK; /* the first rank speaks for all */
    if (!cluster) TACITI_TRY(options_of(arguments, &settings->list[0], 1, &alone));
    if (cluster) TACITI_TRY(cluster_options_of(arguments, settings, &options));
    json_t *list = taciti_arguments_get(arguments, "--json") == NULL ? NULL : json_array();
    for (size_t i = 0; i < settings->count; i++) {
        taciti_bench_setting_text(&settings->list[i], text, sizeof text);
        if (list == NULL)
            printf("%c  %s: %s\n", (char)('A' + i), settings->list[i].label, text);
        else
            (void)json_array_append_new(list,
                                        json_pack("{s:s, s:s}", "label", settings->list[i].label, "settings", text));
    }
    return list == NULL ? TACIT_OK : taciti_cli_print_json(json_pack("{s:o}", "methods", list));
}

tacit_status taciti_verb_bench_step(const taciti_verb *verb, int argc, char **argv) {
    taciti_arguments arguments;
    taciti_bench_settings settings = {0};
    const taciti_launcher launcher = taciti_launcher_detect();
    tacit_status status = taciti_step_settings_read(verb, argc, argv, launcher.size, &arguments, &settings);
    if (status == TACIT_OK) status = taciti_arguments_no_words(&arguments);
    if (status == TACIT_OK) status = apply_model_flags(&arguments, &settings);
    const bool cluster = status == TACIT_OK && wants_cluster(&arguments, &launcher, argc, argv);
    if (status == TACIT_OK && taciti_arguments_get(&arguments, "--dry-run") != NULL)
        status = rehearse_run(&arguments, &settings, cluster);
    else if (status == TACIT_OK)
        status = cluster ? run_cluster(&arguments, &settings) : run_alone(&arguments, &settings.list[0]);
    taciti_bench_settings_destroy(&settings);
    return status;
}
