/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/links.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

/* What the line of a transfer may be off when no collective was measured, and when some were. */
static const double ERROR_UNMEASURED = 0.10, ERROR_MEASURED = 0.03;

enum { INSIDE, BETWEEN };

/* So many times beyond what was measured a measurement still speaks. */
static const double REACH = 16;

/* ---- seconds ----------------------------------------------------------------------------------------------------- */

/* An array is encoded once and added twice, as it is and as a sum. */
static double codec_s(const taciti_links *links, const taciti_transfer *t) {
    for (size_t i = 0; i < links->cluster->codec_count; i++) {
        const taciti_cluster_codec *rates = &links->cluster->codecs[i];
        if (strcmp(rates->name, t->codec->name) != 0) continue;
        const double encode = t->codec->identity ? 0 : 1 / rates->encode_bytes_per_s;
        const int lanes = t->demand.lanes > 0 ? t->demand.lanes : 1;
        return (double)t->f32_bytes / lanes * (encode + 2 / rates->decode_bytes_per_s);
    }
    return 0;
}

static taciti_transfer_time described(const taciti_links *links, const taciti_transfer *t) {
    const taciti_demand *d = &t->demand;
    const double beta = t->hosts > 2 ? links->crowd_beta_s : links->wire_beta_s, wire = d->host_bytes * beta;
    const double local = d->local_bytes * links->local_beta_s + codec_s(links, t);
    return (taciti_transfer_time){.latency_s =
                                      d->wire_turns * links->wire_alpha_s + d->local_turns * links->local_alpha_s,
                                  .bytes_s = wire > local ? wire : local};
}

/* The row that speaks for this size, or the lower one of two; NULL: none does. */
static const taciti_efficiency *find_row(const taciti_links *links, int kind, double bytes) {
    const taciti_efficiency *table = links->measured[kind];
    const size_t count = links->measured_count[kind];
    size_t above = 0;
    while (above < count && table[above].bytes < bytes) above++;
    const taciti_efficiency *row = above == 0 ? table : &table[above - 1];
    if (count == 0 || bytes * REACH < row->bytes) return NULL;
    return above == count && bytes > REACH * row->bytes ? NULL : row;
}

static double efficiency(const taciti_links *links, int kind, size_t f32_bytes) {
    const double bytes = (double)f32_bytes;
    const taciti_efficiency *row = find_row(links, kind, bytes);
    if (row == NULL) return 1;
    const bool last = row + 1 == links->measured[kind] + links->measured_count[kind];
    if (last || bytes <= row->bytes) return row->measured_s / row->described_s;
    const double share = (bytes - row->bytes) / (row[1].bytes - row->bytes);
    return (row->measured_s + share * (row[1].measured_s - row->measured_s)) /
           (row->described_s + share * (row[1].described_s - row->described_s));
}

bool taciti_links_calibrated(const taciti_links *links, bool several_hosts, size_t f32_bytes) {
    return find_row(links, several_hosts ? BETWEEN : INSIDE, (double)f32_bytes) != NULL;
}

taciti_transfer_time taciti_links_time(const taciti_links *links, const taciti_transfer *transfer) {
    const double factor = efficiency(links, transfer->hosts > 1 ? BETWEEN : INSIDE, transfer->f32_bytes);
    const taciti_transfer_time time = described(links, transfer);
    return (taciti_transfer_time){.latency_s = factor * time.latency_s, .bytes_s = factor * time.bytes_s};
}

int taciti_links_hosts(const taciti_where *where, const int *members, size_t count) {
    int hosts = 0;
    for (size_t i = 0; i < count; i++) {
        bool first = true;
        for (size_t j = 0; j < i && first; j++) first = where->host_of[members[j]] != where->host_of[members[i]];
        hosts += first;
    }
    return hosts;
}

/* ---- what was measured ------------------------------------------------------------------------------------------- */

static int by_bytes(const void *a, const void *b) {
    const double x = ((const taciti_efficiency *)a)->bytes, y = ((const taciti_efficiency *)b)->bytes;
    return (x > y) - (x < y);
}

static bool is_ours(const taciti_cluster_timing *t) {
    return t->collective == TACITI_COLLECTIVE_ALL_REDUCE && strcmp(t->by, "tacit") == 0;
}

/* The group whose ranks were timed: all, or those of the largest host. */
static size_t members_of(const taciti_where *where, taciti_group_kind group, int host, int *members) {
    size_t count = 0;
    for (int r = 0; r < where->ranks; r++)
        if (group == TACITI_GROUP_WORLD || where->host_of[r] == host) members[count++] = r;
    return count;
}

static int largest_host(const taciti_cluster *cluster) {
    int at = 0;
    for (int h = 1; h < cluster->hosts; h++)
        if (cluster->ranks_per_host[h] > cluster->ranks_per_host[at]) at = h;
    return at;
}

/* In the cluster as it was when it was measured. */
static void append(taciti_links *links, const taciti_where *where, const taciti_cluster_timing *timing, int *members) {
    const size_t count = members_of(where, timing->group, largest_host(links->cluster), members);
    const taciti_placement placement = {0};
    const size_t bytes = timing->bytes;
    taciti_transfer t = {.f32_bytes = bytes, .codec = taciti_codec_find("f32")};
    if (count < 2) return;
    t.hosts = taciti_links_hosts(where, members, count);
    t.demand = taciti_allreduce_demand(where, members, count, placement, bytes, bytes);
    const taciti_transfer_time time = described(links, &t);
    const double seconds = time.latency_s + time.bytes_s;
    const int kind = t.hosts > 1 ? BETWEEN : INSIDE;
    if (!(seconds > 0)) return;
    links->measured[kind][links->measured_count[kind]++] = (taciti_efficiency){
        .bytes = (double)bytes, .measured_s = timing->seconds, .described_s = seconds, .spread = timing->spread};
}

static tacit_status read_timings(taciti_links *links) {
    const taciti_cluster *cluster = links->cluster;
    const int ranks = taciti_cluster_ranks(cluster);
    taciti_where where;
    int *host_of = NULL, *members = taciti_calloc((size_t)ranks, sizeof *members);
    if (members == NULL) return TACIT_E_MEMORY;
    const tacit_status status = taciti_plan_where(cluster, ranks, &host_of, &where);
    for (size_t i = 0; status == TACIT_OK && i < cluster->timing_count; i++)
        if (is_ours(&cluster->timings[i]) && cluster->timings[i].group != TACITI_GROUP_CROSS)
            append(links, &where, &cluster->timings[i], members);
    for (int kind = INSIDE; kind <= BETWEEN; kind++)
        if (links->measured_count[kind] > 0)
            qsort(links->measured[kind], links->measured_count[kind], sizeof *links->measured[kind], by_bytes);
    taciti_free(host_of);
    taciti_free(members);
    return status;
}

/* Where collectives were measured, half of their spread; else what the line of two ranks is off, unless all ranks of a
 * host were measured at once. */
double taciti_links_error(const taciti_links *links, bool several_hosts, size_t f32_bytes) {
    const taciti_cluster *c = links->cluster;
    const taciti_efficiency *row = find_row(links, several_hosts ? BETWEEN : INSIDE, (double)f32_bytes);
    if (row != NULL) return ERROR_MEASURED + (row->spread > 0 ? row->spread / 2 : 0);
    if (several_hosts && (c->duplex_beta_s_per_byte > 0 || c->host_beta_s_per_byte > 0)) return ERROR_UNMEASURED;
    const taciti_link_cost *line = several_hosts ? &c->between : &c->inside;
    return ERROR_UNMEASURED + (line->alpha_s >= 0 && line->fit_error > 0 ? line->fit_error : 0);
}

/* ---- the links of a scene ---------------------------------------------------------------------------------------- */

double taciti_plan_wire_beta_s(const taciti_cluster *c) {
    if (c->between.alpha_s < 0) return 0;
    if (c->duplex_beta_s_per_byte > 0) return c->duplex_beta_s_per_byte;
    return c->host_beta_s_per_byte > 0 ? c->host_beta_s_per_byte : c->between.beta_s_per_byte;
}

static void describe(const taciti_cluster *c, taciti_links *out) {
    if (c->between.alpha_s >= 0) {
        out->wire_alpha_s = c->between.alpha_s;
        out->wire_beta_s = taciti_plan_wire_beta_s(c);
        out->crowd_beta_s = c->incast_beta_s_per_byte > out->wire_beta_s ? c->incast_beta_s_per_byte : out->wire_beta_s;
    }
    if (c->inside.alpha_s < 0) return;
    out->local_alpha_s = c->inside.alpha_s;
    out->local_beta_s = c->inside.beta_s_per_byte;
}

/* Another rate between hosts: all that hangs on it, in proportion. */
static void change_rate(taciti_links *links, double bit_per_s) {
    const double factor = 8 / bit_per_s / links->wire_beta_s;
    links->wire_beta_s *= factor;
    links->crowd_beta_s *= factor;
}

tacit_status taciti_links_create(const taciti_scene *scene, taciti_links *out) {
    const taciti_cluster *c = scene->cluster;
    if (scene->where->hosts > 1 && c->between.alpha_s < 0)
        return taciti_fail(TACIT_E_CONFIG,
                           "%d hosts are planned, but the cluster file has one host and no links.between; measure it "
                           "with `mpirun -n N tacit probe -o cluster.json` on several hosts, or write it by hand",
                           scene->where->hosts);
    taciti_links links = {.cluster = c};
    describe(c, &links);
    const size_t room = c->timing_count > 0 ? c->timing_count : 1;
    for (int kind = INSIDE; kind <= BETWEEN; kind++)
        links.measured[kind] = taciti_calloc(room, sizeof **links.measured);
    tacit_status status = links.measured[INSIDE] == NULL || links.measured[BETWEEN] == NULL ? TACIT_E_MEMORY : TACIT_OK;
    if (status == TACIT_OK) status = read_timings(&links);
    if (status != TACIT_OK) {
        taciti_links_destroy(&links);
        return status;
    }
    if (scene->between_bit_per_s > 0 && scene->where->hosts > 1) change_rate(&links, scene->between_bit_per_s);
    *out = links;
    return TACIT_OK;
}

void taciti_links_destroy(taciti_links *links) {
    for (int kind = INSIDE; kind <= BETWEEN; kind++) taciti_free(links->measured[kind]);
    *links = (taciti_links){0};
}
