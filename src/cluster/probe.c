/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/probe.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cluster/fit.h"
#include "cluster/probe_state.h"

/* Share of the time after which each part should be done. */
static const double FORMATS_UNTIL = 0.03, CODECS_UNTIL = 0.1, COMPUTE_UNTIL = 0.17, LINKS_UNTIL = 0.46,
                    COLLECTIVES_UNTIL = 1;

enum { DIGITS = 5 }; /* that a measurement deserves at most */

/* ---- which rank is on which host --------------------------------------------------------------------------------- */

static tacit_status list_hosts(taciti_probe *probe) {
    const taciti_hosts *hosts = taciti_comm_hosts(probe->comm);
    int count = 0;
    probe->hosts = hosts->count;
    probe->ranks = taciti_calloc((size_t)hosts->ranks, sizeof *probe->ranks);
    probe->first = taciti_calloc((size_t)hosts->count + 1, sizeof *probe->first);
    if (probe->ranks == NULL || probe->first == NULL) return TACIT_E_MEMORY;
    for (int h = 0; h < hosts->count; h++) {
        for (int r = 0; r < hosts->ranks; r++)
            if (hosts->host_of[r] == h) probe->ranks[count++] = r;
        probe->first[h + 1] = count;
    }
    return TACIT_OK;
}

static tacit_status describe_hosts(taciti_probe *probe) {
    taciti_cluster *cluster = probe->cluster;
    cluster->hosts = probe->hosts;
    cluster->ranks_per_host = taciti_calloc((size_t)probe->hosts, sizeof *cluster->ranks_per_host);
    if (cluster->ranks_per_host == NULL) return TACIT_E_MEMORY;
    for (int h = 0; h < probe->hosts; h++) cluster->ranks_per_host[h] = taciti_probe_host_size(probe, h);
    const taciti_engine *engine = taciti_comm_engine(probe->comm);
    (void)snprintf(cluster->source, sizeof cluster->source, "tacit probe %.16s%s, %.80s", tacit_version(),
                   probe->options->quick ? " --quick" : "", engine->library);
    return TACIT_OK;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

/* Rounds in the units of the file, so that the file is easy to read. */
static double tidy_beta(double beta_s_per_byte) {
    return beta_s_per_byte > 0 ? 8e-9 / taciti_rounded(8e-9 / beta_s_per_byte, DIGITS) : beta_s_per_byte;
}

static double tidy_latency(double alpha_s) {
    return alpha_s < 0 ? alpha_s : taciti_rounded(alpha_s * 1e6, DIGITS) / 1e6;
}

static void tidy_link(taciti_link_cost *link) {
    if (link->alpha_s < 0) return;
    link->alpha_s = tidy_latency(link->alpha_s);
    link->beta_s_per_byte = tidy_beta(link->beta_s_per_byte);
    link->fit_error = taciti_rounded(link->fit_error, 2);
}

static void tidy_numbers(taciti_cluster *cluster) {
    tidy_link(&cluster->inside);
    tidy_link(&cluster->between);
    cluster->host_beta_s_per_byte = tidy_beta(cluster->host_beta_s_per_byte);
    cluster->duplex_beta_s_per_byte = tidy_beta(cluster->duplex_beta_s_per_byte);
    cluster->incast_beta_s_per_byte = tidy_beta(cluster->incast_beta_s_per_byte);
    for (size_t i = 0; i < cluster->timing_count; i++) {
        cluster->timings[i].seconds = taciti_rounded(cluster->timings[i].seconds, DIGITS);
        cluster->timings[i].spread = taciti_rounded(cluster->timings[i].spread, 2);
    }
    for (size_t i = 0; i < cluster->compression_count; i++) {
        taciti_cluster_compression *c = &cluster->compressions[i];
        c->encode_s = taciti_rounded(c->encode_s * 1e9, 3) / 1e9;
        c->decode_s = taciti_rounded(c->decode_s * 1e9, 3) / 1e9;
        c->add_s = taciti_rounded(c->add_s * 1e9, 3) / 1e9;
        c->bytes = taciti_rounded(c->bytes, DIGITS);
    }
    cluster->compute_cv = taciti_rounded(cluster->compute_cv, 3);
    cluster->compute_lag1 = taciti_rounded(cluster->compute_lag1, 3);
    cluster->compute_rank_spread = taciti_rounded(cluster->compute_rank_spread, 3);
    cluster->compute_core_share = taciti_rounded(cluster->compute_core_share, 3);
    cluster->busy_alpha_s = tidy_latency(cluster->busy_alpha_s);
    cluster->hand_over_s = tidy_latency(cluster->hand_over_s);
}

tacit_status taciti_probe_run(taciti_comm *comm, const taciti_probe_options *options, taciti_cluster *out) {
    taciti_cluster cluster = taciti_cluster_unknown();
    taciti_probe probe = {.comm = comm,
                          .options = options,
                          .cluster = &cluster,
                          .rank = taciti_comm_rank(comm),
                          .size = taciti_comm_size(comm),
                          .begin_ns = taciti_now_ns()};
    tacit_status status = list_hosts(&probe);
    if (status == TACIT_OK) status = describe_hosts(&probe);
    status = taciti_comm_agree(comm, status);
    if (status == TACIT_OK) status = taciti_probe_codecs(&probe, FORMATS_UNTIL, CODECS_UNTIL);
    if (status == TACIT_OK) status = taciti_probe_compute(&probe, COMPUTE_UNTIL);
    if (status == TACIT_OK && probe.size > 1) status = taciti_probe_links(&probe, LINKS_UNTIL);
    if (status == TACIT_OK && probe.size > 1) status = taciti_probe_latency(&probe);
    if (status == TACIT_OK && probe.size > 1) status = taciti_probe_collectives(&probe, COLLECTIVES_UNTIL);
    taciti_free(probe.ranks);
    taciti_free(probe.first);
    if (status == TACIT_OK) {
        tidy_numbers(&cluster);
        *out = cluster;
    } else {
        taciti_cluster_destroy(&cluster);
    }
    return status;
}
