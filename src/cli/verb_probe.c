/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "bench/machine_block.h"
#include "cli/ranks.h"
#include "cli/verbs.h"
#include "cluster/probe.h"
#include "comm/comm.h"
#include "comm/supervise.h"
#include "plan/plan.h"

const taciti_flag taciti_probe_flags[] = {
    TACITI_RANKS_FLAGS,
    {"--output", "-o", "FILE", "write the description of the cluster"},
    {"--seconds", "-s", "S", "most time for everything (default 60)"},
    {"--quick", NULL, NULL, "fewer sizes and rounds"},
    {"--no-natives", NULL, NULL, "leave out the MPI library's own all-reduces"},
    {"--json", NULL, NULL, "answer as one JSON object: what -o writes"},
    {NULL, NULL, NULL, NULL},
};

static const double SECONDS = 60, SECONDS_MAX = 86400;

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* Refuses before an hour is spent on measuring: another file of that name, a folder that takes no file. */
static tacit_status check_output(const char *path) {
    struct stat info;
    if (*path == '\0') return taciti_fail(TACIT_E_CONFIG, "--output needs the name of a file: -o cluster.json");
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return taciti_fail(TACIT_E_CONFIG, "%s is not a plain file; name another: -o cluster.json", path);
    if (stat(path, &info) == 0 && !taciti_cluster_recognise(path))
        return taciti_fail(TACIT_E_CONFIG,
                           "%s exists and does not describe a cluster; it is kept: name another file or move it away",
                           path);
    return taciti_file_check_writable(path);
}

/* Where and when: the probe itself knows nothing of it. */
static tacit_status sign_cluster(taciti_cluster *cluster) {
    taciti_machine machine;
    char day[32] = "";
    struct tm utc;
    const time_t now = (time_t)(taciti_wall_ns() / TACITI_NS_PER_S);
    if (gmtime_r(&now, &utc) != NULL) (void)strftime(day, sizeof day, "; %Y-%m-%d", &utc);
    taciti_text_add(cluster->source, sizeof cluster->source, "%s", day);
    taciti_machine_read(&machine);
    return taciti_cluster_add_note(cluster, "host of rank 0: %s, %d usable cores, kernels %s, %s", machine.cpu,
                                   machine.cores, machine.isa, machine.kernel);
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static void print_rate(double beta_s_per_byte) {
    const double gbit_per_s = 8e-9 / beta_s_per_byte;
    const bool slow = gbit_per_s < 1;
    printf("%10.2f %s", slow ? 1e3 * gbit_per_s : gbit_per_s, slow ? "Mbit/s" : "Gbit/s");
}

static void print_link(const char *name, const taciti_link_cost *link) {
    if (link->alpha_s < 0) return;
    printf("  %-34s %9.2f us ", name, 1e6 * link->alpha_s);
    print_rate(link->beta_s_per_byte);
    printf("   off by up to %.0f %%\n", 100 * link->fit_error);
}

static void print_crowd(const char *name, double beta_s_per_byte, const taciti_link_cost *alone) {
    if (beta_s_per_byte <= 0) return;
    printf("  %-34s %12s ", name, "");
    print_rate(beta_s_per_byte);
    printf("   %.0f %% of a pair alone\n", 100 * alone->beta_s_per_byte / beta_s_per_byte);
}

static void print_links(const taciti_cluster *c) {
    if (taciti_cluster_ranks(c) < 2) return;
    printf("\nlinks                                   latency          bandwidth\n");
    print_link("two ranks of one host", &c->inside);
    print_link("two ranks of different hosts", &c->between);
    print_crowd("all ranks of a host to another", c->host_beta_s_per_byte, &c->between);
    print_crowd("the same in both directions, each", c->duplex_beta_s_per_byte, &c->between);
    print_crowd("several hosts to one", c->incast_beta_s_per_byte, &c->between);
}

static void print_timing(const taciti_cluster *c, const taciti_cluster_timing *t) {
    const double bound_s = taciti_cluster_bound_s(c, t->collective, t->group, t->bytes);
    const bool large = t->bytes >= 1 << 20;
    printf("  %-15s %-9s %-16s %6zu %s %11.3f ms  +-%3.0f %%", taciti_collective_names[t->collective],
           taciti_group_kind_names[t->group], t->by, t->bytes >> (large ? 20 : 10), large ? "MiB" : "KiB",
           1e3 * t->seconds, 50 * t->spread);
    if (bound_s > 0) printf("   %5.1f %%", 100 * bound_s / t->seconds);
    printf("\n");
}

static void print_collectives(const taciti_cluster *c) {
    if (c->timing_count == 0) return;
    printf("\n%-53sbytes         median  spread   of the links' bound\n", "collectives");
    for (int collective = 0; collective < TACITI_COLLECTIVES; collective++)
        for (int group = 0; group < TACITI_GROUP_KINDS; group++)
            for (size_t i = 0; i < c->timing_count; i++)
                if ((int)c->timings[i].collective == collective && (int)c->timings[i].group == group)
                    print_timing(c, &c->timings[i]);
}

static void print_local(const taciti_cluster *c) {
    if (c->compression_count > 0)
        printf("\ncodecs, one rank alone          factor  bytes per float   encode   decode      add  ns per float\n");
    for (size_t i = 0; i < c->compression_count; i++) {
        const taciti_cluster_compression *row = &c->compressions[i];
        printf("  %-28s %7.6g %16.4f %8.3f %8.3f %8.3f\n", row->codec, row->factor, row->bytes, row->encode_s * 1e9,
               row->decode_s * 1e9, row->add_s * 1e9);
    }
    printf("\ncomputation: cv %.2f %%", 100 * c->compute_cv);
    if (c->compute_lag1 >= -1) printf(", correlation of neighbours in time %.2f", c->compute_lag1);
    if (c->compute_rank_spread >= 0) printf(", slowest - fastest rank %.2f %%", 100 * c->compute_rank_spread);
    printf("\n");
    if (c->memory_gib > 0) printf("memory: %.3g GiB free on the host that has the fewest\n", c->memory_gib);
}

static void print_next(const taciti_cluster *c, const char *path) {
    const int ranks = taciti_cluster_ranks(c);
    printf("\n");
    if (path != NULL) printf("written: %s\n", path);
    if (ranks == 1)
        printf("links need ranks: mpirun -n 4 tacit probe -o cluster.json\n");
    else if (path == NULL)
        printf("to keep it: mpirun -n %d tacit probe -o cluster.json\n", ranks);
    if (path != NULL && ranks > 1) printf("next: tacit plan MODEL.yaml --cluster %s\n", path);
}

static void print_text(const taciti_cluster *c, const char *path) {
    const int ranks = taciti_cluster_ranks(c), max = taciti_cluster_max_ranks_per_host(c);
    printf("%d host%s, %d rank%s", c->hosts, c->hosts == 1 ? "" : "s", ranks, ranks == 1 ? "" : "s");
    if (c->hosts > 1) printf(" (%s%d per host)", max * c->hosts == ranks ? "" : "up to ", max);
    printf("; %s\n", c->source);
    print_links(c);
    print_collectives(c);
    print_local(c);
    if (c->note_count > 0) printf("\nnotes\n");
    for (size_t i = 0; i < c->note_count; i++) printf("  - %s\n", c->notes[i]);
    print_next(c, path);
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

/* On rank 0. */
static tacit_status print_answer(taciti_cluster *cluster, const char *path, bool json) {
    TACITI_TRY(sign_cluster(cluster));
    if (path != NULL) TACITI_TRY(taciti_cluster_save(cluster, path));
    if (!json) {
        print_text(cluster, path);
        return TACIT_OK;
    }
    char *text = taciti_cluster_format(cluster);
    if (text == NULL) return TACIT_E_MEMORY;
    (void)fputs(text, stdout);
    taciti_free(text);
    return TACIT_OK;
}

static tacit_status probe_ranks(taciti_comm *comm, const taciti_probe_options *options, const char *path, bool json) {
    const bool first = taciti_comm_rank(comm) == 0;
    taciti_cluster cluster;
    TACITI_TRY(taciti_comm_agree(comm, first && path != NULL ? check_output(path) : TACIT_OK));
    TACITI_TRY(taciti_probe_run(comm, options, &cluster));
    const tacit_status status = taciti_comm_agree(comm, first ? print_answer(&cluster, path, json) : TACIT_OK);
    taciti_cluster_destroy(&cluster);
    return status;
}

tacit_status taciti_verb_probe(const taciti_verb *verb, int argc, char **argv) {
    taciti_comm_options comm_options = {0};
    const taciti_section section = {&taciti_comm_option_table, &comm_options, NULL};
    const taciti_config config = {&section, 1};
    taciti_arguments arguments;
    taciti_probe_options options;
    TACITI_TRY(taciti_config_defaults(&config));
    TACITI_TRY(taciti_config_environment(&config));
    TACITI_TRY(taciti_arguments_parse(verb, &config, argc, argv, &arguments));
    TACITI_TRY(taciti_arguments_no_words(&arguments));
    TACITI_TRY(taciti_arguments_number(&arguments, "--seconds", SECONDS, false, SECONDS_MAX, &options.seconds));
    options.quick = taciti_arguments_get(&arguments, "--quick") != NULL;
    options.natives = taciti_arguments_get(&arguments, "--no-natives") == NULL;
    taciti_comm *comm = NULL;
    taciti_witness *witness = taciti_supervise(comm_options.timeout_s); /* from here on this is the worker */
    TACITI_TRY(taciti_comm_open(&comm_options, &comm));
    if (witness != NULL) taciti_comm_attach(comm, witness);
    taciti_cli_log_init(taciti_comm_rank(comm));
    taciti_comm_announce(comm, -1, "probe");
    const tacit_status status = probe_ranks(comm, &options, taciti_arguments_get(&arguments, "--output"),
                                            taciti_arguments_get(&arguments, "--json") != NULL);
    taciti_comm_close(comm);
    return status;
}
