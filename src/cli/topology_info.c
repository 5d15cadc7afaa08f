/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/topology_sheet.h"

#include <jansson.h>
#include <string.h>

#include "base/log.h"
#include "strategy/gossip.h"

enum { RANKS_MAX = 4096, ROUNDS_PRINTED = 16 };

static const char *const FLAGS[] = {"--ranks", "--per-host", "--degree", "--file", "--gamma", "--delay"};

/* ---- the list ---------------------------------------------------------------------------------------------------- */

json_t *taciti_topologies_list(bool json, bool all) {
    json_t *list = json ? json_array() : NULL;
    (void)all;
    for (const taciti_topo_kind *kind = taciti_topo_kinds(); kind->name != NULL; kind++)
        if (json)
            (void)json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s}", "name", kind->name, "help", kind->help,
                                                        "source", kind->source, "ranks", kind->demands));
        else
            printf("%-14s %s; ranks: %s (%s)\n", kind->name, kind->help, kind->demands, kind->source);
    if (!json) printf("%-14s the default: %s\n", TACITI_TOPO_AUTO, TACITI_TOPO_AUTO_RULE);
    return list;
}

/* ---- what is asked for ------------------------------------------------------------------------------------------- */

typedef struct question {
    taciti_topo_request request;
    taciti_topo_awc awc;
    int per_host;
    taciti_hosts hosts;
} question;

static tacit_status make_sheet(const question *q, const char *name, taciti_topology_sheet *out) {
    taciti_topo_request request = q->request;
    request.name = name;
    request.hosts = &q->hosts;
    return taciti_topology_sheet_create(&request, &q->awc, out);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *groups_json(const taciti_round *round) {
    json_t *groups = json_array();
    for (size_t g = 0; g < round->groups; g++) {
        json_t *group = json_array();
        for (size_t i = round->first[g]; i < round->first[g + 1]; i++)
            (void)json_array_append_new(group, json_integer(round->members[i]));
        (void)json_array_append_new(groups, group);
    }
    return groups;
}

static json_t *round_json(const taciti_topology *t, size_t which, double nic) {
    const taciti_round *round = &t->rounds[which];
    json_t *object = json_pack("{s:f}", "nic", nic);
    if (round->self == NULL) {
        (void)json_object_set_new(object, "groups", groups_json(round));
        return object;
    }
    json_t *edges = json_array(), *self = json_array();
    for (size_t e = 0; e < round->edge_count; e++)
        (void)json_array_append_new(edges, json_pack("{s:i, s:i, s:f}", "to", round->edges[e].to, "from",
                                                     round->edges[e].from, "weight", round->edges[e].weight));
    for (int r = 0; r < t->ranks; r++) (void)json_array_append_new(self, json_real(round->self[r]));
    (void)json_object_set_new(object, "edges", edges);
    (void)json_object_set_new(object, "self", self);
    return object;
}

static json_t *sheet_json(const taciti_topology_sheet *s, bool with_rounds) {
    const taciti_topology *t = &s->topology;
    json_t *object = json_pack("{s:s, s:b, s:b, s:I, s:f, s:f, s:i}", "name", t->name, "directed", t->directed,
                               "alternates", t->alternates, "period", (json_int_t)t->period, "nic_mean", s->nic_mean,
                               "nic_peak", s->nic_peak, "moved_ranks", s->moved);
    json_t *figures = json_null();
    if (s->has_figures) {
        const taciti_topo_figures *f = &s->figures;
        figures =
            json_pack("{s:I, s:f, s:f, s:o, s:f, s:o}", "partners", (json_int_t)f->max_partners, "contraction",
                      f->contraction, "spectral_gap", f->spectral_gap, "exact_after",
                      f->exact_after > 0 ? json_integer((json_int_t)f->exact_after) : json_null(), "least_eigenvalue",
                      f->min_eigenvalue, "awc_step_size_limit", s->has_limit ? json_real(s->awc_limit) : json_null());
    }
    (void)json_object_set_new(object, "figures", figures);
    json_t *position = json_array(), *rounds = with_rounds ? json_array() : NULL;
    for (int r = 0; r < t->ranks; r++) (void)json_array_append_new(position, json_integer(t->position[r]));
    (void)json_object_set_new(object, "position", position);
    for (size_t r = 0; r < t->period && with_rounds; r++)
        (void)json_array_append_new(rounds, round_json(t, r, s->nic[r]));
    if (with_rounds) (void)json_object_set_new(object, "rounds", rounds);
    return object;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static void print_heading(const question *q) {
    const int ranks = q->hosts.ranks, hosts = q->hosts.count, last = ranks - (hosts - 1) * q->per_host;
    printf("%d rank%s on %d host%s of %d", ranks, ranks > 1 ? "s" : "", hosts, hosts > 1 ? "s" : "",
           hosts > 1 ? q->per_host : last);
    if (last != q->per_host && hosts > 1) printf(" (the last has %d)", last);
    printf("\nnic: model sizes on a host's link per mix and direction: the busiest host's mean, the most in a round\n"
           "awc limit: gossip.order awc with sgd needs lr times the largest curvature below this (dense: 2)");
    if (q->awc.gamma < 1) printf(", gamma %g", q->awc.gamma);
    printf("%s\n\n", q->awc.delayed ? ", delay 1" : "");
    printf("%-14s %6s %8s %12s %11s %9s %8s %8s\n", "name", "period", "partners", "spectral gap", "exact after",
           "awc limit", "nic mean", "nic peak");
}

static void print_row(const taciti_topology_sheet *s) {
    const taciti_topo_figures *f = &s->figures;
    char partners[24] = "-", gap[24] = "-", exact[24] = "-", limit[24] = "-";
    if (s->has_figures) {
        (void)snprintf(partners, sizeof partners, "%zu", f->max_partners);
        (void)snprintf(gap, sizeof gap, f->spectral_gap > 0 && f->spectral_gap < 0.001 ? "%.0e" : "%.4f",
                       f->spectral_gap);
        (void)snprintf(exact, sizeof exact, f->exact_after > 0 ? "%zu" : "never", f->exact_after);
    }
    if (s->has_limit) (void)snprintf(limit, sizeof limit, "%.3f", s->awc_limit);
    printf("%-14s %6zu %8s %12s %11s %9s %8.3f %8.3f", s->topology.name, s->topology.period, partners, gap, exact,
           limit, s->nic_mean, s->nic_peak);
    if (s->topology.directed) printf("  directed: push-sum");
    if (s->moved > 0) printf("  %d ranks moved", s->moved);
    printf("\n");
}

static void print_round(const taciti_topology *t, size_t which, double nic) {
    const taciti_round *round = &t->rounds[which];
    printf("\nround %zu, nic %.3f:", which, nic);
    for (size_t g = 0; g < round->groups; g++) {
        printf(" {");
        for (size_t i = round->first[g]; i < round->first[g + 1]; i++)
            printf("%s%d", i > round->first[g] ? " " : "", round->members[i]);
        printf("}");
    }
    if (round->self != NULL && round->edge_count == 0) printf(" all idle");
    for (size_t e = 0; e < round->edge_count; e++) {
        const taciti_edge *edge = &round->edges[e];
        if (e == 0 || edge->to != edge[-1].to) printf("\n  rank %d keeps %.4g, hears", edge->to, round->self[edge->to]);
        printf(" %d (%.4g)", edge->from, edge->weight);
    }
    printf("\n");
}

static void print_rounds(const taciti_topology_sheet *s) {
    const size_t period = s->topology.period;
    for (size_t r = 0; r < period && r < ROUNDS_PRINTED; r++) print_round(&s->topology, r, s->nic[r]);
    if (period > ROUNDS_PRINTED) printf("\nand %zu rounds more; --json has them\n", period - ROUNDS_PRINTED);
    if (s->topology.alternates)
        printf(
            "\nhalf of the buckets make rounds 0 and 1, 2 and 3, ... in the other order: a link has half of a model in "
            "every mix\n");
    printf("\nplaces in the graph, rank by rank:");
    for (int r = 0; r < s->topology.ranks; r++) printf(" %d", s->topology.position[r]);
    printf("%s\n", s->moved > 0 ? "" : " (as they are numbered)");
}

/* ---- the flags --------------------------------------------------------------------------------------------------- */

const char *taciti_topologies_flag(const taciti_arguments *arguments) {
    for (size_t i = 0; i < sizeof FLAGS / sizeof *FLAGS; i++)
        if (taciti_arguments_get(arguments, FLAGS[i]) != NULL) return FLAGS[i];
    return NULL;
}

static tacit_status parse_awc(const taciti_arguments *arguments, taciti_topo_awc *out) {
    int64_t delay = 0;
    double gamma = 1;
    TACITI_TRY(taciti_arguments_count(arguments, "--delay", 0, 0, 1, &delay));
    TACITI_TRY(taciti_arguments_number(arguments, "--gamma", delay > 0 ? 0.5 : 1, false, 1, &gamma));
    if (delay > 0 && gamma > 0.5)
        return taciti_fail(TACIT_E_USAGE, "--delay 1 goes with --gamma 0.5 or less, as in train");
    *out = (taciti_topo_awc){.gamma = gamma, .delayed = delay > 0};
    return TACIT_OK;
}

static tacit_status parse_question(const taciti_arguments *arguments, question *out) {
    int64_t ranks = 0, per_host = 1, degree = 0;
    if (taciti_arguments_get(arguments, "--ranks") == NULL)
        return taciti_fail(TACIT_E_USAGE, "%s: of how many ranks? tacit info topologies -n 16 --per-host 4",
                           taciti_topologies_flag(arguments) != NULL ? taciti_topologies_flag(arguments)
                                                                     : "info topologies NAME");
    TACITI_TRY(taciti_arguments_count(arguments, "--ranks", 1, 1, RANKS_MAX, &ranks));
    TACITI_TRY(taciti_arguments_count(arguments, "--per-host", 1, 1, RANKS_MAX, &per_host));
    TACITI_TRY(taciti_arguments_count(arguments, "--degree", 0, 0, RANKS_MAX, &degree));
    question q = {.per_host = (int)per_host};
    TACITI_TRY(parse_awc(arguments, &q.awc));
    TACITI_TRY(taciti_hosts_by_size((int)ranks, q.per_host, &q.hosts));
    q.request = (taciti_topo_request){.ranks = (int)ranks,
                                      .degree = (int)degree,
                                      .seed = TACITI_GOSSIP_SEED,
                                      .file = taciti_arguments_get(arguments, "--file")};
    *out = q;
    return TACIT_OK;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static tacit_status show_one(const question *q, const char *name, bool json) {
    taciti_topology_sheet s;
    TACITI_TRY(make_sheet(q, name, &s));
    tacit_status status = TACIT_OK;
    if (json) {
        json_t *root = sheet_json(&s, true);
        (void)json_object_set_new(root, "ranks", json_integer(q->hosts.ranks));
        (void)json_object_set_new(root, "per_host", json_integer(q->per_host));
        status = taciti_cli_print_json(root);
    } else {
        print_heading(q);
        print_row(&s);
        print_rounds(&s);
    }
    taciti_topology_sheet_destroy(&s);
    return status;
}

/* Adds one topology to a table. One that the flags do not fit is left out, and its reason kept; a file was named, so it
 * must be right. */
static tacit_status add_row(const question *q, const char *name, json_t *rows, json_t *refused) {
    char reason[TACITI_REASON_BYTES] = "";
    const bool must_fit = strcmp(name, "file") == 0;
    taciti_topology_sheet s;
    if (!must_fit) taciti_log_capture(reason);
    const tacit_status status = make_sheet(q, name, &s);
    if (!must_fit) taciti_log_capture(NULL);
    if (status == TACIT_E_CONFIG && reason[0] != '\0') {
        (void)json_array_append_new(refused, json_pack("{s:s, s:s}", "topology", name, "reason", reason));
        return TACIT_OK;
    }
    if (status != TACIT_OK) return must_fit ? status : taciti_fail(status, "%s", reason);
    if (rows != NULL)
        (void)json_array_append_new(rows, sheet_json(&s, false));
    else
        print_row(&s);
    taciti_topology_sheet_destroy(&s);
    return TACIT_OK;
}

/* A table shows `file` only when one was named. */
static tacit_status show_table(const question *q, bool json) {
    json_t *rows = json ? json_array() : NULL, *refused = json_array();
    tacit_status status = TACIT_OK;
    if (!json) print_heading(q);
    for (const taciti_topo_kind *kind = taciti_topo_kinds(); kind->name != NULL && status == TACIT_OK; kind++)
        if (strcmp(kind->name, "file") != 0 || q->request.file != NULL) status = add_row(q, kind->name, rows, refused);
    if (status == TACIT_OK && json)
        return taciti_cli_print_json(json_pack("{s:i, s:i, s:i, s:o, s:o}", "ranks", q->hosts.ranks, "hosts",
                                               q->hosts.count, "per_host", q->per_host, "topologies", rows,
                                               "not_possible", refused));
    for (size_t i = 0; status == TACIT_OK && i < json_array_size(refused); i++)
        printf("%snot possible: %s\n", i == 0 ? "\n" : "",
               json_string_value(json_object_get(json_array_get(refused, i), "reason")));
    json_decref(rows);
    json_decref(refused);
    return status;
}

tacit_status taciti_topologies_show(const taciti_arguments *arguments, const char *name) {
    const bool json = taciti_arguments_get(arguments, "--json") != NULL;
    question q;
    TACITI_TRY(parse_question(arguments, &q));
    const tacit_status status = name != NULL ? show_one(&q, name, json) : show_table(&q, json);
    taciti_hosts_destroy(&q.hosts);
    return status;
}
