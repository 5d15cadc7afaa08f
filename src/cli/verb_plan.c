/* SPDX-License-Identifier: Apache-2.0
 *
 * What would pay on this cluster - or that nothing does. One process; nothing is measured.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "cli/plan_print.h"
#include "cli/verbs.h"
#include "plan/reuse.h"
#include "train/train.h"

enum { RANKS_MAX = 4096 }; /* a plan of 4096 ranks takes some seconds */

static const double SGP_MAX_S = 1e6;

const taciti_flag taciti_plan_flags[] = {
    {"--cluster", "-c", "FILE", "description of the cluster: `tacit probe -o cluster.json`, or written by hand"},
    {"--ranks", "-n", "N", "as many ranks, on hosts like those of the description (default: its own)"},
    {"--hosts", NULL, "N", "as many hosts, the same"},
    {"--no-jitter", NULL, NULL, "all ranks compute evenly, whatever description and compute.cv say"},
    {"--sgp", NULL, "SECONDS", "with a row for stochastic gradient push; so long does it copy and weigh in every step"},
    {"--all", NULL, NULL, "every method in the table, and why some are not possible"},
    {"--svg", NULL, "FILE", "draw the step against the rate between hosts and against the number of hosts"},
    {"--json", NULL, NULL, "answer as one JSON object, curves included"},
    {NULL, NULL, NULL, NULL},
};

/* ---- what is asked ----------------------------------------------------------------------------------------------- */

typedef struct question {
    taciti_train_settings settings;
    taciti_arguments arguments;
    const char *model_path, *cluster_path, *svg;
    bool json;
    taciti_profile profile;
    taciti_layout layout, coded; /* coded: of methods that compress, by compress.layers */
    taciti_cluster cluster;
    taciti_hosts hosts;
    double *slow; /* [ranks] */
} question;

/* --cluster takes one file: what else a pattern of the shell has found stands among the words. */
static tacit_status refuse_clusters(const taciti_arguments *arguments) {
    for (size_t i = 0; i < arguments->positional_count; i++)
        if (taciti_cluster_recognise(arguments->positional[i]))
            return taciti_fail(
                TACIT_E_USAGE,
                "%s describes a cluster and stands where MODEL.yaml does: plan one cluster at a time, tacit "
                "plan MODEL.yaml --cluster %s",
                arguments->positional[i], arguments->positional[i]);
    return TACIT_OK;
}

/* The profile that MODEL.yaml names lies beside it, if there is one, or else it is a preset or one from where the
 * program runs. */
static void find_profile(const char *model_path, taciti_text *emulate) {
    taciti_text path;
    const char *slash = strrchr(model_path, '/'), *named = emulate->text;
    if (slash == NULL || named[0] == '\0' || named[0] == '/') return;
    const int length = snprintf(path.text, sizeof path.text, "%.*s/%s", (int)(slash - model_path), model_path, named);
    if (length < (int)sizeof path.text && taciti_file_is_plain(path.text)) *emulate = path;
}

/* The file comes before environment and flags, but its name stands among the flags: they are read twice. */
static tacit_status read_configuration(const taciti_verb *verb, int argc, char **argv, question *q) {
    const taciti_config *config = &q->settings.job.config;
    TACITI_TRY(taciti_train_settings_init(&q->settings));
    TACITI_TRY(taciti_arguments_parse(verb, config, argc, argv, &q->arguments));
    TACITI_TRY(refuse_clusters(&q->arguments));
    if (q->arguments.positional_count != 1)
        return taciti_fail(TACIT_E_USAGE,
                           "plan needs one MODEL.yaml, a configuration of tacit train; %zu were given: tacit plan "
                           "examples/gpt2-124m.yaml --cluster cluster.json",
                           q->arguments.positional_count);
    q->model_path = q->arguments.positional[0];
    taciti_config_destroy(config);
    TACITI_TRY(taciti_config_defaults(config));
    TACITI_TRY(taciti_config_file(config, q->model_path));
    find_profile(q->model_path, &q->settings.job.compute.emulate);
    TACITI_TRY(taciti_config_environment(config));
    TACITI_TRY(taciti_arguments_parse(verb, config, argc, argv, &q->arguments));
    TACITI_TRY(taciti_settings_complete(&q->settings.job));
    q->json = taciti_arguments_get(&q->arguments, "--json") != NULL;
    q->svg = taciti_arguments_get(&q->arguments, "--svg");
    q->cluster_path = taciti_arguments_get(&q->arguments, "--cluster");
    if (q->cluster_path != NULL) return TACIT_OK;
    return taciti_fail(TACIT_E_USAGE,
                       "plan needs --cluster FILE; measure one with `mpirun -n 8 tacit probe -o cluster.json`, or "
                       "begin with examples/clusters/8x4-25gbe.json");
}

/* ---- ranks ------------------------------------------------------------------------------------------------------- */

static tacit_status place_ranks(question *q) {
    int64_t ranks, hosts;
    TACITI_TRY(taciti_arguments_count(&q->arguments, "--ranks", 0, 1, RANKS_MAX, &ranks));
    TACITI_TRY(taciti_arguments_count(&q->arguments, "--hosts", 0, 1, RANKS_MAX, &hosts));
    if (ranks > 0 && hosts > 0) return taciti_fail(TACIT_E_USAGE, "give --ranks or --hosts, not both");
    if (ranks == 0) ranks = taciti_cluster_ranks_on(&q->cluster, hosts > 0 ? hosts : q->cluster.hosts, RANKS_MAX);
    if (ranks > RANKS_MAX && hosts > 0)
        return taciti_fail(TACIT_E_CONFIG,
                           "--hosts %lld: so many hosts like those of %s have more than %d ranks; plan fewer",
                           (long long)hosts, q->cluster_path, RANKS_MAX);
    if (ranks > RANKS_MAX)
        return taciti_fail(TACIT_E_CONFIG, "%s has more than %d ranks: plan a part of it with -n", q->cluster_path,
                           RANKS_MAX);
    TACITI_TRY(taciti_cluster_hosts(&q->cluster, (int)ranks, &q->hosts));
    TACITI_TRY(taciti_compute_check(&q->settings.job.compute, (int)ranks));
    q->slow = taciti_calloc((size_t)ranks, sizeof *q->slow);
    if (q->slow == NULL) return TACIT_E_MEMORY;
    for (int r = 0; r < (int)ranks; r++) q->slow[r] = taciti_compute_slow(&q->settings.job.compute, r);
    return TACIT_OK;
}

static tacit_status check_patterns(const taciti_settings *settings) {
    taciti_pattern patterns[TACITI_PATTERNS_MAX];
    for (const taciti_strategy *const *s = taciti_strategy_list(); *s != NULL; s++) {
        size_t count = 0;
        TACITI_TRY((*s)->patterns(taciti_settings_options(settings, (*s)->options), NULL, patterns, &count));
        if (count == 0 && *s == taciti_settings_strategy(settings))
            return taciti_fail(TACIT_E_CONFIG,
                               "tacit plan has no prices of strategy %s: plan another one, such as --strategy dp",
                               (*s)->name);
        for (size_t i = 0; i < count; i++)
            TACITI_TRY(taciti_plan_check_period((*s)->name, 1, patterns[i].every, patterns[i].shorten));
    }
    return TACIT_OK;
}

/* ---- what cannot be ---------------------------------------------------------------------------------------------- */

static const double CV_MAX = 2, RATES_APART = 10;

/* One rate of a host, against that of two ranks alone (`between`) and what all of its ranks could do; 0: unknown. */
static tacit_status check_rate(const question *q, const char *field, double beta_s_per_byte) {
    const taciti_cluster *c = &q->cluster;
    if (!(beta_s_per_byte > 0) || c->between.alpha_s < 0) return TACIT_OK;
    const double rate = 8e-9 / beta_s_per_byte, flow = 8e-9 / c->between.beta_s_per_byte;
    const double min = flow / RATES_APART, max = flow * RATES_APART * taciti_cluster_max_ranks_per_host(c);
    if (rate >= min && rate <= max) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "%s: links.%s is %g, but links.between.gbit_per_s %g; with %d ranks per host %g to %g can be: "
                       "correct one of them, or measure with `mpirun -n N tacit probe -o cluster.json`",
                       q->cluster_path, field, rate, flow, taciti_cluster_max_ranks_per_host(c), min, max);
}

/* A collective cannot be faster than the bytes that it must move. */
static tacit_status check_timings(const question *q) {
    const taciti_cluster *c = &q->cluster;
    for (size_t i = 0; i < c->timing_count; i++) {
        const taciti_cluster_timing *t = &c->timings[i];
        const double bound_s = taciti_cluster_bound_s(c, t->collective, t->group, t->bytes);
        if (t->seconds * RATES_APART >= bound_s) continue;
        return taciti_fail(
            TACIT_E_CONFIG,
            "%s: collectives[%zu].seconds is %g, but with these links %zu bytes take %g or more: correct "
            "one of them, or measure with `mpirun -n N tacit probe -o cluster.json`",
            q->cluster_path, i, t->seconds, t->bytes, bound_s);
    }
    return TACIT_OK;
}

static tacit_status check_cluster(const question *q) {
    const taciti_cluster *c = &q->cluster;
    TACITI_TRY(check_rate(q, "host_gbit_per_s", c->host_beta_s_per_byte));
    TACITI_TRY(check_rate(q, "duplex_gbit_per_s", c->duplex_beta_s_per_byte));
    TACITI_TRY(check_rate(q, "incast_gbit_per_s", c->incast_beta_s_per_byte));
    TACITI_TRY(check_timings(q));
    const bool asked = q->settings.job.compute.cv > 0 || taciti_arguments_get(&q->arguments, "--no-jitter") != NULL;
    if (asked || c->compute_cv <= CV_MAX) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "%s: compute.cv is %g, expected 0 to %g; plan without it (--no-jitter) or with another "
                       "(--compute.cv 0.05)",
                       q->cluster_path, c->compute_cv, CV_MAX);
}

/* ---- compute ----------------------------------------------------------------------------------------------------- */

/* From the network's operations: samples per rank are those of a step among the ranks of the plan. */
static tacit_status profile_of_model(question *q) {
    taciti_train_settings *s = &q->settings;
    if (!(s->job.compute.rate > 0))
        return taciti_fail(
            TACIT_E_CONFIG,
            "nothing says how fast a rank computes: measure it with `tacit train %s --profile profile.json` and plan "
            "with --compute.emulate profile.json, name a preset (--compute.emulate gpt2-124m; `tacit info profiles`), "
            "or give the accelerator's rate (--compute.rate 20e12)",
            q->model_path);
    TACITI_TRY(taciti_model_resolve(&s->job.model));
    const int64_t tokens = s->train.time > 0 ? s->train.time : s->job.model.context;
    TACITI_TRY(taciti_profile_of_gpt(&s->job.model, (size_t)tokens, &q->profile));
    q->profile.batch = ceil((double)s->train.batch / q->hosts.ranks); /* the rank with most sequences is waited for */
    if (s->train.batch < q->hosts.ranks)
        taciti_log(TACITI_LOG_WARN, "train.batch %lld is smaller than the %d ranks: %lld have nothing to compute",
                   (long long)s->train.batch, q->hosts.ranks, q->hosts.ranks - (long long)s->train.batch);
    return taciti_compute_apply(&s->job.compute, &q->profile);
}

/* A profile has tensors of its own: they count, not those of the section model. */
static void warn_of_other_model(const question *q) {
    taciti_model_options model = q->settings.job.model;
    taciti_layout layout;
    char reason[TACITI_REASON_BYTES];
    if (model.preset.text[0] == '\0' && model.layers == 0) return;
    taciti_log_capture(reason); /* sizes may be left to the data */
    const bool known = taciti_model_resolve(&model) == TACIT_OK &&
                       taciti_model_layout(&model, (size_t)q->settings.job.exchange.bucket_bytes, &layout) == TACIT_OK;
    taciti_log_capture(NULL);
    if (!known) return;
    if (layout.parameters != q->layout.parameters)
        taciti_log(TACITI_LOG_WARN,
                   "%s describes %.2f million parameters, the profile %s %.2f million: the plan is the profile's",
                   q->model_path, (double)layout.parameters / 1e6, q->profile.name, (double)q->layout.parameters / 1e6);
    taciti_layout_destroy(&layout);
}

/* Buckets of methods that compress. */
static tacit_status choose_layers(question *q) {
    const taciti_exchange_options *exchange = &q->settings.job.exchange;
    TACITI_TRY(taciti_profile_layout(&q->profile, (size_t)exchange->bucket_bytes, &q->coded));
    TACITI_TRY(taciti_settings_mark_layers(&q->settings.job, &q->coded));
    return taciti_layout_seal(&q->coded, taciti_exchange_bucket(exchange, &q->coded, true));
}

static tacit_status load_profile(question *q) {
    const bool named = q->settings.job.compute.emulate.text[0] != '\0';
    TACITI_TRY(named ? taciti_compute_profile(&q->settings.job.compute, &q->profile) : profile_of_model(q));
    TACITI_TRY(taciti_profile_layout(&q->profile, (size_t)q->settings.job.exchange.bucket_bytes, &q->layout));
    TACITI_TRY(choose_layers(q));
    if (named) warn_of_other_model(q);
    if (taciti_profile_forward_s(&q->profile) + taciti_profile_backward_s(&q->profile) > 0) return TACIT_OK;
    return taciti_fail(
        TACIT_E_CONFIG,
        "the profile \"%s\": forward_s and backward_s are 0 in all layers, expected some above 0: measure it "
        "with `tacit train %s --profile profile.json`",
        q->profile.name, q->model_path);
}

/* ---- the answer -------------------------------------------------------------------------------------------------- */

static void show_progress(void *context, size_t done, size_t count) {
    (void)context;
    taciti_cli_progress(done < count ? "plan: %zu of %zu methods" : NULL, done, count);
}

static taciti_scene scene_of(const question *q) {
    const taciti_train_settings *s = &q->settings;
    return (taciti_scene){
        .profile = &q->profile,
        .layout = &q->layout,
        .coded = &q->coded,
        .cluster = &q->cluster,
        .hosts = &q->hosts,
        .placement = {.scheme = (taciti_scheme)s->job.exchange.scheme, .lanes = (int)s->job.exchange.lanes},
        .slow = q->slow,
        .optim = &s->job.optim,
        .bf16 = s->job.model.dtype == TACITI_DTYPE_BF16,
    };
}

static tacit_status print_report(const question *q, const taciti_plan_report *report) {
    if (q->svg != NULL) TACITI_TRY(taciti_plan_save_svg(report, q->svg));
    if (q->json) return taciti_cli_print_json(taciti_plan_json(report));
    taciti_plan_print(report);
    if (q->svg != NULL) printf("drawn: %s\n", q->svg);
    return TACIT_OK;
}

static tacit_status print_answer(const question *q, taciti_candidates *candidates, taciti_reuse *reuse) {
    const taciti_train_settings *s = &q->settings;
    const taciti_scene scene = scene_of(q);
    const double measured = q->cluster.compute_cv > 0 ? q->cluster.compute_cv : 0;
    const double asked = s->job.compute.cv > 0 ? s->job.compute.cv : -1;
    const bool even = taciti_arguments_get(&q->arguments, "--no-jitter") != NULL;
    const taciti_plan_options options = {.seed = s->job.compute.seed, .cv = even ? 0 : asked, .reuse = reuse};
    taciti_plan_curves curves = {0};
    taciti_verdict without_jitter;
    char without_text[TACITI_VERDICT_BYTES];
    const bool busy = options.cv < 0 && measured > TACITI_PLAN_BUSY_CV;
    const taciti_plan_report report = {
        .model_path = q->model_path,
        .cluster_path = q->cluster_path,
        .settings = &s->job,
        .scene = &scene,
        .options = &options,
        .candidates = candidates,
        .curves = &curves,
        .even = busy ? &without_jitter : NULL,
        .even_text = without_text,
        .cv = options.cv >= 0 ? options.cv : measured,
        .all = taciti_arguments_get(&q->arguments, "--all") != NULL,
    };
    if (busy) {
        taciti_plan_options even_options = options;
        even_options.cv = 0;
        TACITI_TRY(taciti_candidates_predict(candidates, &scene, &even_options, NULL, NULL));
        without_jitter = taciti_candidates_verdict(candidates, without_text);
    }
    TACITI_TRY(taciti_candidates_predict(candidates, &scene, &options, show_progress, NULL));
    if (q->json || q->svg != NULL)
        TACITI_TRY(taciti_plan_curves_compute(&s->job, candidates, &scene, &options, &curves));
    return print_report(q, &report);
}

static tacit_status plan_model(const taciti_verb *verb, int argc, char **argv, question *q) {
    TACITI_TRY(read_configuration(verb, argc, argv, q));
    TACITI_TRY(taciti_cluster_load(q->cluster_path, &q->cluster));
    TACITI_TRY(check_cluster(q));
    TACITI_TRY(place_ranks(q));
    TACITI_TRY(taciti_settings_check(&q->settings.job, &q->hosts, TACITI_READER_PLAN));
    TACITI_TRY(check_patterns(&q->settings.job));
    TACITI_TRY(taciti_settings_warn_unread(&(const taciti_settings *){&q->settings.job}, 1, TACITI_READER_PLAN));
    TACITI_TRY(load_profile(q));
    taciti_candidates candidates;
    double sgp_s;
    TACITI_TRY(taciti_arguments_number(&q->arguments, "--sgp", -1, true, SGP_MAX_S, &sgp_s)); /* -1: not asked for */
    TACITI_TRY(taciti_candidates_create(&q->settings.job, &q->hosts, NULL, &candidates));
    taciti_candidates_add_others(&candidates, &q->cluster, &q->hosts, sgp_s);
    taciti_reuse reuse = {0};
    const tacit_status status = print_answer(q, &candidates, &reuse);
    taciti_reuse_destroy(&reuse);
    taciti_candidates_destroy(&candidates);
    return status;
}

tacit_status taciti_verb_plan(const taciti_verb *verb, int argc, char **argv) {
    question q;
    memset(&q, 0, sizeof q);
    const tacit_status status = plan_model(verb, argc, argv, &q);
    taciti_settings_destroy(&q.settings.job);
    taciti_layout_destroy(&q.layout);
    taciti_layout_destroy(&q.coded);
    taciti_profile_destroy(&q.profile);
    taciti_cluster_destroy(&q.cluster);
    taciti_hosts_destroy(&q.hosts);
    taciti_free(q.slow);
    return status;
}
