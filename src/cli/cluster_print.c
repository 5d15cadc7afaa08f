/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster_print.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tacit/tacit.h"

enum { TEXT_BYTES = 512 };
#define MS 1e3
#define MB 1e-6
#define PERCENT 100

static const taciti_bench_setting *setting_of(const taciti_cluster_options *o, size_t i) {
    return &o->settings->list[i];
}

static bool is_emulated(const taciti_cluster_options *o) { return taciti_bench_setting_emulated(setting_of(o, 0)); }

static double tokens_per_s(const taciti_cluster_options *o, const taciti_cluster_bench *b, size_t i) {
    if (is_emulated(o)) return (double)NAN;
    return (double)b->ranks * (double)o->batch * (double)o->time / b->figures[i].step_s.mean;
}

/* ---- text ------------------------------------------------------------------------------------------------------ */

/* "4 hosts x 2 ranks", or the ranks of each host when they differ. */
static void print_hosts(const taciti_cluster_bench *b) {
    bool even = true;
    for (size_t h = 1; h < b->hosts; h++) even = even && b->host_ranks[h] == b->host_ranks[0];
    printf("cluster     %zu host%s", b->hosts, b->hosts == 1 ? "" : "s");
    if (even) printf(" x %zu rank%s", b->host_ranks[0], b->host_ranks[0] == 1 ? "" : "s");
    for (size_t h = 0; h < b->hosts && !even; h++) printf("%s%zu", h == 0 ? " with ranks: " : " ", b->host_ranks[h]);
    printf(", %s%s%s\n", b->library, b->interfaces[0] == '\0' ? "" : ", interfaces: ", b->interfaces);
}

static void print_compute(const taciti_cluster_options *o, const taciti_cluster_bench *b) {
    const taciti_model_options *model = &setting_of(o, 0)->job.model;
    if (is_emulated(o))
        printf("compute     emulated %s: %.2f million parameters, forward %.2f ms, backward %.2f ms\n", b->profile,
               (double)b->parameters / 1e6, MS * b->forward_s, MS * b->backward_s);
    else
        printf("compute     %s %s: %.2f million parameters, %zu x %zu tokens and %d thread%s per rank\n",
               model->preset.text, model->dtype == TACITI_DTYPE_BF16 ? "bf16" : "f32", (double)b->parameters / 1e6,
               o->batch, o->time, b->threads, b->threads == 1 ? "" : "s");
}

static void print_heading(const taciti_machine *machine, const taciti_cluster_options *o,
                          const taciti_cluster_bench *b) {
    char text[TEXT_BYTES];
    taciti_machine_print(machine);
    print_hosts(b);
    print_compute(o, b);
    printf("memory      %.1f MB predicted per rank, %.1f MB held by a process at most\n",
           (double)b->predicted_bytes * MB, (double)b->resident_bytes * MB);
    printf("steps       %zu block%s of %zu + %zu steps per setting, in turns%s\n\n", b->blocks,
           b->blocks == 1 ? "" : "s", b->warm_up, b->rounds, b->interrupted ? "; more were to come" : "");
    taciti_bench_setting_text(setting_of(o, 0), text, sizeof text);
    for (size_t i = 0; i < b->setting_count; i++) {
        char method[TEXT_BYTES];
        const size_t period = b->figures[i].period;
        taciti_bench_setting_method(setting_of(o, i), method, sizeof method);
        printf("  %c  %s", (char)('A' + i), i == 0 ? text : setting_of(o, i)->label);
        if (method[0] != '\0') printf(" (%s; repeats after %zu step%s)", method, period, period == 1 ? "" : "s");
        printf("\n");
    }
}

/* A cell of a table, right-aligned; "-" for what there is no figure for. */
static void print_cell(int width, int digits, double value, const char *unit) {
    if (isnan(value))
        printf(" %*s", width, "-");
    else
        printf(" %*.*f%s", width - (int)strlen(unit), digits, value, unit);
}

static void print_times(const taciti_cluster_bench *b) {
    printf("\n  %-8s %9s %9s %19s %18s %6s %9s %8s %8s\n", "step, ms", "blocks", "median", "least-most",
           "mean +- error", "cv", "exposed", "of step", "overlap");
    for (size_t i = 0; i < b->setting_count; i++) {
        const taciti_setting_figures *f = &b->figures[i];
        const taciti_moments *step = &f->step_s;
        printf("  %-8c %9.2f %9.2f %9.2f-%-9.2f %9.2f", (char)('A' + i), MS * f->block_s.statistics.median,
               MS * step->statistics.median, MS * step->statistics.min, MS * step->statistics.max, MS * step->mean);
        if (isnan(step->standard_error)) /* of one sample */
            printf(" %8s", "");
        else
            printf(" +- %-5.2f", MS * step->standard_error);
        print_cell(6, 3, step->cv, "");
        print_cell(9, 2, MS * f->wait_s.statistics.median, "");
        print_cell(8, 1, PERCENT * f->wait_share, " %");
        print_cell(8, 1, PERCENT * f->overlap, " %");
        printf("\n");
    }
}

static void print_compute_times(const taciti_cluster_options *o, const taciti_cluster_bench *b) {
    printf("\n  %-8s %9s %9s %8s %8s %9s %8s %10s\n", "compute", "mean ms", "asked", "cv", "asked", "transfer", "CPU",
           "tokens/s");
    for (size_t i = 0; i < b->setting_count; i++) {
        const taciti_setting_figures *f = &b->figures[i];
        const taciti_compute_figures *c = &f->compute;
        printf("  %-8c", (char)('A' + i));
        print_cell(9, 3, MS * c->mean_s, "");
        print_cell(9, 3, MS * c->asked_mean_s, "");
        print_cell(8, 4, c->cv, "");
        print_cell(8, 4, c->asked_cv, "");
        print_cell(9, 2, MS * f->transfer_s.statistics.median, "");
        print_cell(8, 0, PERCENT * f->cpu_cores, " %");
        print_cell(10, 0, tokens_per_s(o, b, i), "");
        printf("\n");
    }
}

static void print_bytes(const taciti_cluster_bench *b) {
    const double unknown = (double)NAN;
    printf("\n  %-8s %9s %9s | %9s %9s %9s\n", "MB/step", "rank sent", "formula", "NIC out", "NIC in", "engine");
    for (size_t i = 0; i < b->setting_count; i++) {
        const taciti_setting_figures *f = &b->figures[i];
        const taciti_host_bytes *host = f->hosts; /* the busiest; where the load is even they are all alike */
        for (size_t h = 1; h < b->hosts; h++)
            if (f->hosts[h].payload_sent > host->payload_sent) host = &f->hosts[h];
        printf("  %-8c %9.3f %9.3f |", (char)('A' + i), MB * f->payload_bytes, MB * f->formula_bytes);
        print_cell(9, 3, host->measured ? MB * host->sent : unknown, "");
        print_cell(9, 3, host->measured ? MB * host->received : unknown, "");
        print_cell(9, 3, MB * host->payload_sent, "");
        printf("\n");
    }
    if (b->hosts == 1) printf("  one host: no network between the ranks, nothing to measure there\n");
}

static void print_ratios(const taciti_cluster_bench *b) {
    if (b->setting_count == 1) return;
    printf("\n  step / step of A in the same round of blocks: median, mean (least-most); drift from early blocks to "
           "late\n");
    for (size_t i = 0; i < b->setting_count; i++) {
        const taciti_setting_figures *f = &b->figures[i];
        const taciti_moments *ratio = &f->ratio;
        printf("  %c     %.4f, %.4f (%.4f-%.4f)", (char)('A' + i), ratio->statistics.median, ratio->mean,
               ratio->statistics.min, ratio->statistics.max);
        if (ratio->count > 1) printf(" +- %.4f; drift %+.1f %%", ratio->standard_error, PERCENT * f->drift);
        printf("\n");
    }
}

void taciti_cluster_print(const taciti_machine *machine, const taciti_cluster_options *o,
                          const taciti_cluster_bench *b) {
    print_heading(machine, o, b);
    print_times(b);
    print_compute_times(o, b);
    print_bytes(b);
    print_ratios(b);
    printf(
        "\nTimes are means over the ranks, step by step (period by period where steps differ in what they exchange), "
        "from\n"
        "the end of a step to the end of the next; \"blocks\" is the median of the blocks' means. CPU is of all ranks\n"
        "together, 100 %% is one core. NIC and engine are of the busiest host: what its interfaces carried, and what "
        "its\n"
        "ranks sent to other hosts. Definitions: docs/bench-step.md\n");
}

/* ---- JSON ------------------------------------------------------------------------------------------------------ */

static json_t *compute_json(const taciti_cluster_options *o, const taciti_cluster_bench *b) {
    const taciti_bench_setting *base = setting_of(o, 0);
    if (is_emulated(o))
        return json_pack("{s:b, s:s, s:s, s:I, s:f, s:f, s:I}", "emulated", 1, "profile", b->profile, "source",
                         b->profile_source, "parameters", (json_int_t)b->parameters, "forward_s", b->forward_s,
                         "backward_s", b->backward_s, "seed", (json_int_t)base->job.compute.seed);
    return json_pack("{s:b, s:s, s:s, s:I, s:I, s:I, s:i}", "emulated", 0, "model", base->job.model.preset.text,
                     "dtype", base->job.model.dtype == TACITI_DTYPE_BF16 ? "bf16" : "f32", "parameters",
                     (json_int_t)b->parameters, "batch", (json_int_t)o->batch, "seq", (json_int_t)o->time, "threads",
                     b->threads);
}

static json_t *hosts_json(const taciti_cluster_bench *b, const taciti_setting_figures *f) {
    json_t *list = json_array();
    for (size_t h = 0; h < b->hosts; h++) {
        const taciti_host_bytes *host = &f->hosts[h];
        const double unknown = (double)NAN;
        (void)json_array_append_new(
            list, json_pack("{s:s, s:o, s:o, s:f, s:f}", "host", b->host_names[h], "nic_sent",
                            taciti_real_json(host->measured ? host->sent : unknown), "nic_received",
                            taciti_real_json(host->measured ? host->received : unknown), "payload_sent",
                            host->payload_sent, "payload_received", host->payload_received));
    }
    return list;
}

static json_t *times_json(const taciti_setting_figures *f) {
    const taciti_compute_figures *c = &f->compute;
    json_t *compute =
        json_pack("{s:f, s:o, s:f, s:o, s:o, s:o}", "mean", c->mean_s, "cv", taciti_real_json(c->cv), "slowest_mean",
                  c->slowest_s, "asked_mean", taciti_real_json(c->asked_mean_s), "asked_cv",
                  taciti_real_json(c->asked_cv), "asked_slowest_mean", taciti_real_json(c->asked_slowest_s));
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "step", taciti_moments_json(&f->step_s), "slowest_step",
                     taciti_moments_json(&f->slowest_s), "exposed_wait", taciti_moments_json(&f->wait_s), "transfer",
                     taciti_moments_json(&f->transfer_s), "update", taciti_moments_json(&f->update_s), "compute",
                     compute, "block", taciti_moments_json(&f->block_s));
}

static json_t *method_json(const taciti_bench_setting *s, const taciti_setting_figures *f) {
    json_t *method = json_pack("{s:s, s:I}", "strategy", s->job.strategy.text, "period", (json_int_t)f->period);
    json_t *values = taciti_config_values(&s->job.config, 0);
    char key[TACITI_KEY_BYTES];
    taciti_place place;
    for (size_t i = 0; taciti_settings_label(&s->job, i, &place); i++)
        (void)json_object_set(method, place.option->key, json_object_get(values, taciti_place_key(&place, key)));
    json_decref(values);
    return method;
}

static json_t *setting_json(const taciti_cluster_options *o, const taciti_cluster_bench *b, size_t i) {
    const taciti_setting_figures *f = &b->figures[i];
    json_t *bytes =
        json_pack("{s:f, s:f, s:f, s:f, s:o}", "rank_sent", f->payload_bytes, "rank_sent_least", f->payload_min_bytes,
                  "rank_sent_most", f->payload_max_bytes, "rank_formula", f->formula_bytes, "hosts", hosts_json(b, f));
    return json_pack("{s:s, s:o, s:o, s:I, s:o, s:o, s:o, s:f, s:o, s:o, s:o, s:o}", "label", setting_of(o, i)->label,
                     "method", method_json(setting_of(o, i), f), "configuration",
                     taciti_config_values(&setting_of(o, i)->job.config, 0), "buckets", (json_int_t)b->buckets[i],
                     "seconds", times_json(f), "exposed_share", taciti_real_json(f->wait_share), "overlap",
                     taciti_real_json(f->overlap), "cpu_percent", PERCENT * f->cpu_cores, "bytes_per_step", bytes,
                     "tokens_per_s", taciti_real_json(tokens_per_s(o, b, i)), "ratio_to_base",
                     taciti_moments_json(&f->ratio), "drift", taciti_real_json(f->drift));
}

json_t *taciti_cluster_json(const taciti_machine *machine, const taciti_cluster_options *o,
                            const taciti_cluster_bench *b) {
    json_t *hosts = json_array(), *settings = json_array();
    for (size_t h = 0; h < b->hosts; h++)
        (void)json_array_append_new(
            hosts, json_pack("{s:s, s:I}", "host", b->host_names[h], "ranks", (json_int_t)b->host_ranks[h]));
    json_t *cluster = json_pack("{s:s, s:I, s:o, s:s}", "library", b->library, "ranks", (json_int_t)b->ranks, "hosts",
                                hosts, "interfaces", b->interfaces);
    for (size_t i = 0; i < b->setting_count; i++) (void)json_array_append_new(settings, setting_json(o, b, i));
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:I, s:b, s:I, s:I, s:I, s:I, s:o}", "program", "tacit", "version",
                     tacit_version(), "machine", taciti_machine_json(machine), "cluster", cluster, "compute",
                     compute_json(o, b), "blocks", (json_int_t)b->blocks, "interrupted", b->interrupted, "warm_up",
                     (json_int_t)b->warm_up, "rounds", (json_int_t)b->rounds, "predicted_bytes",
                     (json_int_t)b->predicted_bytes, "resident_bytes", (json_int_t)b->resident_bytes, "settings",
                     settings);
}
