/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/links.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "cluster/grouping.h"

/* Relative error of a transfer's line when no collective was measured, and when some were. */
static const double ERROR_UNMEASURED = 0.10, ERROR_MEASURED = 0.03;

/* A measurement counts for sizes up to this many times smaller or larger. */
static const double REACH = 16;

/* A measured world counts as one for up to this many times its hosts. */
enum { MANY_TIMES = 2 };

/* Messages of which latency and handling take longer than bytes. */
enum { SHORT_BYTES = 16 << 10 };

/* ---- seconds ----------------------------------------------------------------------------------------------------- */

/* An array is encoded once and added twice, as it is and as a sum. */
static double codec_s(const taciti_links *links, const taciti_transfer *t) {
    const taciti_cluster_compression *speed =
        t->codec == NULL ? NULL : taciti_cluster_format_speed(links->cluster, t->codec->name);
    const int lanes = t->demand.lanes > 0 ? t->demand.lanes : 1;
    if (speed == NULL) return 0;
    return (double)t->price.length.f32_bytes / sizeof(float) / lanes *
           ((t->codec->identity ? 0 : speed->encode_s) + 2 * speed->add_s);
}

/* The busiest host's link, or the busiest rank's connections. */
static double wire_s(const taciti_links *links, const taciti_transfer *t) {
    const double beta = t->hosts > 2 ? links->crowd_beta_s : links->wire_beta_s;
    return taciti_max_real(t->demand.host_bytes * beta, t->demand.flow_bytes * links->flow_beta_s);
}

/* A compressed array is as good as the dense one that sends as many bytes. */
static double bytes_of(const taciti_transfer *t) {
    return (double)(t->compressed ? t->price.length.wire_bytes : t->price.length.f32_bytes);
}

/* While all ranks exchange. */
static double busy_latency_s(const taciti_links *links, int wire_hops, int local_hops) {
    const taciti_cluster *c = links->cluster;
    const double wire_s = c->hosts > 1 ? taciti_max_real(links->wire_alpha_s, c->busy_alpha_s) : links->wire_alpha_s;
    const double local_s = c->hosts > 1 ? links->local_alpha_s : taciti_max_real(links->local_alpha_s, c->busy_alpha_s);
    return wire_hops * wire_s + local_hops * local_s;
}

static taciti_transfer_time described_time(const taciti_links *links, const taciti_transfer *t) {
    const taciti_demand *d = &t->demand;
    const double local = d->local_bytes * links->local_beta_s + codec_s(links, t);
    return (taciti_transfer_time){.latency_s =
                                      d->wire_hops * links->wire_alpha_s + d->local_hops * links->local_alpha_s,
                                  .bytes_s = taciti_max_real(wire_s(links, t), local)};
}

/* The row that speaks for this size, or the lower one of two; NULL: none does. */
static const taciti_efficiency *find_row(const taciti_links *links, taciti_group_kind kind, double bytes) {
    const taciti_efficiency *table = links->measured[kind];
    const size_t count = links->measured_count[kind];
    size_t above = 0;
    while (above < count && table[above].bytes <= bytes) above++;
    const taciti_efficiency *row = above == 0 ? table : &table[above - 1];
    if (count == 0 || bytes * REACH < row->bytes) return NULL;
    return above == count && bytes > REACH * row->bytes ? NULL : row;
}

static double efficiency_at(const taciti_links *links, taciti_group_kind kind, double bytes) {
    const taciti_efficiency *row = find_row(links, kind, bytes);
    if (row == NULL) return 1;
    const bool last = row + 1 == links->measured[kind] + links->measured_count[kind];
    if (last || bytes <= row->bytes) return row->measured_s / row->described_s;
    const double share = (bytes - row->bytes) / (row[1].bytes - row->bytes);
    return (row->measured_s + share * (row[1].measured_s - row->measured_s)) /
           (row->described_s + share * (row[1].described_s - row->described_s));
}

static taciti_group_kind kind_of(const taciti_transfer *t) {
    if (t->hosts <= 1) return TACITI_GROUP_HOST;
    if (t->ranks == 2) return TACITI_GROUP_PAIR;
    return t->hosts == 2 ? TACITI_GROUP_TWO_HOSTS : TACITI_GROUP_WORLD;
}

/* Returns the relative error of a transfer without a measurement of its own: that of the line of two ranks, unless all
 * ranks of a host were measured at once, and that of the world. */
static double error_without_measurement(const taciti_links *links, const taciti_transfer *t) {
    const taciti_cluster *c = links->cluster;
    const taciti_link_cost *line = t->hosts > 1 ? &c->between : &c->inside;
    const bool crowd = t->hosts > 1 && (c->duplex_beta_s_per_byte > 0 || c->host_beta_s_per_byte > 0);
    const double lost = fabs(efficiency_at(links, TACITI_GROUP_WORLD, bytes_of(t)) - 1);
    const double line_error = !crowd && line->alpha_s >= 0 && line->fit_error > 0 ? line->fit_error : 0;
    return ERROR_UNMEASURED + line_error + (t->hosts > 1 ? lost : 0);
}

/* A measurement among a few hosts says too little of many: all of them wait for the slowest. */
static bool is_far_larger(const taciti_links *links, const taciti_transfer *t) {
    return kind_of(t) == TACITI_GROUP_WORLD && t->hosts > MANY_TIMES * links->cluster->hosts;
}

static taciti_transfer_time time_of_ours(const taciti_links *links, const taciti_transfer *t) {
    const double bytes = bytes_of(t);
    const taciti_efficiency *row = find_row(links, kind_of(t), bytes);
    const double factor = efficiency_at(links, kind_of(t), bytes);
    taciti_transfer_time time = described_time(links, t);
    time.latency_s *= factor;
    time.bytes_s *= factor;
    if (t->compressed) {
        time.latency_s = busy_latency_s(links, t->demand.wire_hops, t->demand.local_hops);
        /* The pieces that fill the pipeline are encoded before the first message is awaited, later pieces while others
         * travel. Messages are handled while others travel. */
        const taciti_price *p = &t->price;
        const double own_s = t->demand.local_bytes * links->local_beta_s + p->codec_s;
        const double on_wire_s = factor * wire_s(links, t), fillings = p->fillings > 0 ? (double)p->fillings : 1;
        time.bytes_s = taciti_max_real(on_wire_s, own_s + (double)p->messages * links->message_s) +
                       (on_wire_s < own_s ? on_wire_s : own_s) / fillings;
    }
    time.calibrated = row != NULL && !is_far_larger(links, t);
    time.error = time.calibrated ? ERROR_MEASURED + (row->spread > 0 ? row->spread / 2 : 0)
                                 : error_without_measurement(links, t);
    return time;
}

double taciti_links_messages_s(const taciti_links *links, const taciti_hosts *hosts, int messages, double bytes) {
    const bool between = hosts->count > 1;
    return busy_latency_s(links, between ? messages : 0, between ? 0 : messages) +
           bytes * (between ? links->flow_beta_s : links->local_beta_s);
}

/* ---- other libraries --------------------------------------------------------------------------------------------- */

taciti_demand taciti_links_ring(int ranks, int hosts, size_t bytes) {
    if (ranks < 2) return (taciti_demand){0};
    const double sent = 2 * (ranks - 1.0) / ranks * (double)bytes;
    const int hops = 2 * (ranks - 1), crossing = hosts < 2 ? 0 : hosts == ranks ? hops : 2 * hosts;
    return (taciti_demand){.host_bytes = hosts > 1 ? sent : 0,
                           .flow_bytes = hosts > 1 ? sent : 0,
                           .local_bytes = ranks > hosts ? sent : 0,
                           .wire_hops = crossing,
                           .local_hops = hops - crossing,
                           .lanes = 1};
}

/* A ring runs around as fast as its slowest part, and additions do not delay it. It loses as much as our all-reduce. */
static taciti_transfer_time time_of_ring(const taciti_links *links, const taciti_transfer *t) {
    taciti_transfer ring = *t;
    ring.hosts = t->hosts > 1 ? 2 : 1; /* each host receives from one */
    ring.codec = taciti_codec_find("f32");
    ring.demand = taciti_links_ring(t->ranks, t->hosts, t->price.length.f32_bytes);
    taciti_transfer_time time = described_time(links, &ring);
    const double local = ring.demand.local_bytes * links->local_beta_s, wire = wire_s(links, &ring);
    const double factor = taciti_max_real(1, efficiency_at(links, TACITI_GROUP_WORLD, bytes_of(t)));
    time.bytes_s = factor * taciti_max_real(wire, local);
    time.latency_s *= factor;
    time.error = error_without_measurement(links, t);
    return time;
}

/* The measured sizes around this one; NULL: none on that side. */
static void find_around(const taciti_cluster *c, const char *by, double bytes, const taciti_cluster_timing **below,
                        const taciti_cluster_timing **above) {
    *below = *above = NULL;
    for (size_t i = 0; i < c->timing_count; i++) {
        const taciti_cluster_timing *t = &c->timings[i];
        if (t->collective != TACITI_COLLECTIVE_ALL_REDUCE || t->group != TACITI_GROUP_WORLD) continue;
        if (strcmp(t->by, by) != 0) continue;
        if ((double)t->bytes <= bytes && (*below == NULL || t->bytes > (*below)->bytes)) *below = t;
        if ((double)t->bytes > bytes && (*above == NULL || t->bytes < (*above)->bytes)) *above = t;
    }
}

/* Longer arrays than were measured take longer in proportion, shorter ones as long as the shortest. */
static taciti_transfer_time time_of_measured(const taciti_links *links, const taciti_transfer *t) {
    const taciti_cluster_timing *below, *above;
    const double bytes = bytes_of(t);
    taciti_transfer_time time = {.calibrated = true, .error = ERROR_MEASURED};
    find_around(links->cluster, t->by, bytes, &below, &above);
    const taciti_cluster_timing *nearest = below != NULL ? below : above;
    if (nearest == NULL || t->ranks < 2) return time;
    if (nearest->spread > 0) time.error += nearest->spread / 2;
    if (below == NULL)
        time.bytes_s = above->seconds;
    else if (above == NULL)
        time.bytes_s = below->seconds * bytes / (double)below->bytes;
    else
        time.bytes_s = below->seconds + (above->seconds - below->seconds) * (bytes - (double)below->bytes) /
                                            (double)(above->bytes - below->bytes);
    return time;
}

taciti_transfer_time taciti_links_time(const taciti_links *links, const taciti_transfer *transfer) {
    switch (transfer->library) {
    case TACITI_LIBRARY_RING: return time_of_ring(links, transfer);
    case TACITI_LIBRARY_MEASURED: return time_of_measured(links, transfer);
    case TACITI_LIBRARY_OURS: break;
    }
    return time_of_ours(links, transfer);
}

/* ---- what was measured ------------------------------------------------------------------------------------------- */

static int by_bytes(const void *a, const void *b) {
    const double x = ((const taciti_efficiency *)a)->bytes, y = ((const taciti_efficiency *)b)->bytes;
    return (x > y) - (x < y);
}

/* Whether this group is of that kind, or is called so where hosts are few or have one rank each. */
static bool counts_as(const taciti_cluster *c, taciti_group_kind group, taciti_group_kind kind) {
    const int ranks = taciti_cluster_ranks(c);
    if (group == kind) return c->hosts > 1 || kind != TACITI_GROUP_WORLD;
    if (group == TACITI_GROUP_TWO_HOSTS) return kind == TACITI_GROUP_PAIR && ranks == c->hosts;
    if (group != TACITI_GROUP_WORLD) return false;
    return (kind == TACITI_GROUP_HOST && c->hosts == 1) ||
           (c->hosts == 2 && (kind == TACITI_GROUP_TWO_HOSTS || (kind == TACITI_GROUP_PAIR && ranks == 2)));
}

static double described_s(const taciti_links *links, const taciti_transfer *t) {
    const taciti_transfer_time time = described_time(links, t);
    return time.latency_s + time.bytes_s;
}

/* The busiest of the largest groups of the kind, in the cluster as it was when it was measured. */
static tacit_status describe_group(const taciti_links *links, const taciti_hosts *hosts, taciti_group_kind kind,
                                   taciti_transfer *t) {
    taciti_topology grouping = {.period = 0};
    taciti_demand *demands = taciti_calloc((size_t)hosts->ranks, sizeof *demands);
    if (demands == NULL) return TACIT_E_MEMORY;
    tacit_status status = taciti_grouping_create(hosts, kind, &grouping);
    if (status == TACIT_OK)
        status = taciti_mix_demands(hosts, &grouping, 0, (taciti_placement){0}, &t->price.length, 1, demands);
    for (size_t g = 0; status == TACIT_OK && g < grouping.rounds[0].groups; g++) {
        const taciti_members members = taciti_members_of(&grouping.rounds[0], g);
        taciti_transfer one = *t;
        one.ranks = (int)members.count;
        one.demand = demands[members.ranks[0]];
        one.hosts = one.demand.hosts;
        if (one.ranks > t->ranks || (one.ranks == t->ranks && described_s(links, &one) > described_s(links, t)))
            *t = one;
    }
    taciti_topology_destroy(&grouping);
    taciti_free(demands);
    return status;
}

static tacit_status append_timing(taciti_links *links, const taciti_hosts *hosts, const taciti_cluster_timing *timing) {
    taciti_transfer t = {.price = {.length = {timing->bytes, timing->bytes}}, .codec = taciti_codec_find("f32")};
    TACITI_TRY(describe_group(links, hosts, timing->group, &t));
    const double seconds = described_s(links, &t);
    for (int kind = 0; kind < TACITI_GROUP_KINDS && t.ranks > 1 && seconds > 0; kind++)
        if (counts_as(links->cluster, timing->group, (taciti_group_kind)kind))
            links->measured[kind][links->measured_count[kind]++] = (taciti_efficiency){.bytes = (double)timing->bytes,
                                                                                       .measured_s = timing->seconds,
                                                                                       .described_s = seconds,
                                                                                       .spread = timing->spread};
    return TACIT_OK;
}

static double message_s(const taciti_links *links) {
    const taciti_cluster *c = links->cluster;
    const taciti_cluster_timing *shortest = NULL;
    const int ranks = taciti_cluster_ranks(c);
    for (size_t i = 0; i < c->timing_count && ranks > 1; i++) {
        const taciti_cluster_timing *t = &c->timings[i];
        if (t->collective != TACITI_COLLECTIVE_ALL_TO_ALL || t->group != TACITI_GROUP_WORLD) continue;
        if (strcmp(t->by, "tacit") != 0 || t->bytes > SHORT_BYTES) continue;
        if (shortest == NULL || t->bytes < shortest->bytes) shortest = t;
    }
    if (shortest == NULL) return 0;
    const double bytes_s = taciti_cluster_bound_s(c, shortest->collective, shortest->group, shortest->bytes);
    const double latency_s = busy_latency_s(links, c->hosts > 1 ? 1 : 0, c->hosts > 1 ? 0 : 1);
    return taciti_max_real(shortest->seconds - bytes_s - latency_s, 0) / (ranks - 1);
}

static tacit_status read_timings(taciti_links *links) {
    const taciti_cluster *cluster = links->cluster;
    taciti_hosts hosts = {0};
    tacit_status status = TACIT_OK;
    for (size_t i = 0; status == TACIT_OK && i < cluster->timing_count; i++) {
        const taciti_cluster_timing *t = &cluster->timings[i];
        if (t->collective != TACITI_COLLECTIVE_ALL_REDUCE || strcmp(t->by, "tacit") != 0) continue;
        if (hosts.ranks == 0) status = taciti_cluster_hosts(cluster, taciti_cluster_ranks(cluster), &hosts);
        if (status == TACIT_OK) status = append_timing(links, &hosts, t);
    }
    for (int kind = 0; kind < TACITI_GROUP_KINDS; kind++)
        if (links->measured_count[kind] > 0)
            qsort(links->measured[kind], links->measured_count[kind], sizeof *links->measured[kind], by_bytes);
    taciti_hosts_destroy(&hosts);
    return status;
}

/* ---- the links of a scene ---------------------------------------------------------------------------------------- */

double taciti_links_busy_s(const taciti_links *links, double bytes) {
    const size_t count = links->measured_count[TACITI_GROUP_WORLD];
    const taciti_efficiency *longest = count == 0 ? NULL : &links->measured[TACITI_GROUP_WORLD][count - 1];
    const bool faster = longest != NULL && longest->measured_s < longest->described_s;
    return bytes * links->wire_beta_s * (faster ? longest->measured_s / longest->described_s : 1);
}

double taciti_plan_wire_beta_s(const taciti_cluster *c) {
    if (c->between.alpha_s < 0) return 0;
    if (c->duplex_beta_s_per_byte > 0) return c->duplex_beta_s_per_byte;
    return c->host_beta_s_per_byte > 0 ? c->host_beta_s_per_byte : c->between.beta_s_per_byte;
}

static void read_rates(const taciti_cluster *c, taciti_links *out) {
    if (c->between.alpha_s >= 0) {
        out->wire_alpha_s = c->between.alpha_s;
        out->wire_beta_s = taciti_plan_wire_beta_s(c);
        const double part = taciti_cluster_max_ranks_per_host(c) * out->wire_beta_s;
        out->flow_beta_s = c->between.beta_s_per_byte < part ? c->between.beta_s_per_byte : part;
        out->crowd_beta_s = c->incast_beta_s_per_byte > out->wire_beta_s ? c->incast_beta_s_per_byte : out->wire_beta_s;
    }
    if (c->inside.alpha_s < 0) return;
    out->local_alpha_s = c->inside.alpha_s;
    out->local_beta_s = c->inside.beta_s_per_byte;
}

tacit_status taciti_links_create(const taciti_scene *scene, taciti_links *out) {
    const taciti_cluster *c = scene->cluster;
    if (scene->hosts->count > 1 && c->between.alpha_s < 0)
        return taciti_fail(TACIT_E_CONFIG,
                           "%d ranks need %d hosts like that of the cluster file, which has %d rank%s and no "
                           "links.between; measure it with `mpirun -n N tacit probe -o cluster.json` on several hosts, "
                           "or write it by hand",
                           scene->hosts->ranks, scene->hosts->count, taciti_cluster_ranks(c),
                           taciti_cluster_ranks(c) == 1 ? "" : "s");
    taciti_links links = {.cluster = c};
    read_rates(c, &links);
    links.message_s = message_s(&links);
    const size_t room = c->timing_count > 0 ? c->timing_count : 1;
    tacit_status status = TACIT_OK;
    for (int kind = 0; kind < TACITI_GROUP_KINDS; kind++) {
        links.measured[kind] = taciti_calloc(room, sizeof **links.measured);
        if (links.measured[kind] == NULL) status = TACIT_E_MEMORY;
    }
    if (status == TACIT_OK) status = read_timings(&links);
    if (status == TACIT_OK)
        *out = links;
    else
        taciti_links_destroy(&links);
    return status;
}

taciti_links taciti_links_at(const taciti_links *links, double bit_per_s) {
    taciti_links at = *links;
    if (bit_per_s <= 0 || links->wire_beta_s <= 0) return at;
    const double factor = 8 / bit_per_s / links->wire_beta_s;
    at.wire_beta_s *= factor;
    at.flow_beta_s *= factor;
    at.crowd_beta_s *= factor;
    return at;
}

void taciti_links_destroy(taciti_links *links) {
    for (int kind = 0; kind < TACITI_GROUP_KINDS; kind++) taciti_free(links->measured[kind]);
    *links = (taciti_links){0};
}
