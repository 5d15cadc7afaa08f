/* SPDX-License-Identifier: Apache-2.0
 *
 * A topology as SVG: one panel per round. Ranks stand on a circle, those of a host on one band; a group is a shape
 * around its members, an edge a line as thick as its weight, with a head where it has no partner in the other
 * direction.
 */
#include <math.h>
#include <stdio.h>

#include "base/json_text.h"
#include "base/memory.h"
#include "cli/topology_sheet.h"

enum { PANELS_MAX = 8, PANEL_COLUMNS = 4, NUMBERED_MAX = 40, PANEL = 296, RADIUS = 92, HEAD = 78, FOOT = 44 };
static const double ALONE = 1.6; /* scale of a panel that is the only one */

static const char INSIDE[] = "#2a7f62", ACROSS[] = "#d1600a", BAND[] = "#e4e8ee", INK[] = "#1f2933",
                  FAINT[] = "#66717f";

typedef struct point {
    double x, y;
} point;

/* A rank, and which ranks have the place of this number around the circle and in the graph. */
typedef struct seat {
    point at;
    double angle;
    int taken_by, rank_at;
    bool busy; /* in this round */
} seat;

typedef struct scene {
    FILE *out;
    const taciti_topology_sheet *sheet;
    const int *host_of; /* [ranks] */
    seat *seats;        /* [ranks] */
    double dot;         /* radius of a rank */
    double zoom;        /* of a panel */
    size_t left;        /* where the panels begin */
} scene;

static int ranks_of(const scene *s) { return s->sheet->topology.ranks; }

/* ---- where things are -------------------------------------------------------------------------------------------- */

/* Clockwise from the top, host by host in the order of places, with a gap as wide as a rank between hosts. */
static void lay_out(scene *s) {
    const int n = ranks_of(s), hosts = s->sheet->hosts->count, gaps = hosts > 1 ? hosts : 0;
    const double angle = 2 * acos(-1) / (n + gaps);
    for (int host = 0, next = 0; host < hosts; host++)
        for (int place = 0; place < n; place++) {
            const int rank = s->seats[place].taken_by;
            if (s->host_of[rank] != host) continue;
            s->seats[rank].angle = angle * (next + (gaps > 0 ? host : 0));
            s->seats[rank].at = (point){RADIUS * sin(s->seats[rank].angle), -RADIUS * cos(s->seats[rank].angle)};
            s->seats[next++].rank_at = rank;
        }
    s->dot = n <= 12 ? 10 : n <= 20 ? 9 : n <= NUMBERED_MAX ? 7 : 3;
}

static bool is_member(const int *members, size_t count, int rank) {
    for (size_t i = 0; i < count; i++)
        if (members[i] == rank) return true;
    return false;
}

static bool one_host(const scene *s, const int *members, size_t count) {
    for (size_t i = 1; i < count; i++)
        if (s->host_of[members[i]] != s->host_of[members[0]]) return false;
    return true;
}

/* ---- pieces of a panel ------------------------------------------------------------------------------------------- */

/* The band of a host, first .. last around the circle. */
static void draw_band(const scene *s, int first, int last) {
    const int a = s->seats[first].rank_at, b = s->seats[last].rank_at;
    const double width = 2 * s->dot + 8, sweep = s->seats[b].angle - s->seats[a].angle;
    (void)fprintf(s->out, "<path d=\"M%.1f %.1f", s->seats[a].at.x, s->seats[a].at.y);
    for (int p = first; p <= last; p++)
        (void)fprintf(s->out, "L%.1f %.1f", s->seats[s->seats[p].rank_at].at.x, s->seats[s->seats[p].rank_at].at.y);
    (void)fprintf(s->out,
                  "\" fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\" stroke-linecap=\"round\" "
                  "stroke-linejoin=\"round\"/>\n",
                  BAND, width);
    const double middle = s->seats[a].angle + sweep / 2, radius = RADIUS + width / 2 + 6;
    const char *anchor = sin(middle) > 0.2 ? "start" : sin(middle) < -0.2 ? "end" : "middle";
    if (s->sheet->hosts->count <= 16)
        (void)fprintf(s->out,
                      "<text x=\"%.1f\" y=\"%.1f\" font-size=\"10\" fill=\"%s\" text-anchor=\"%s\" "
                      "dy=\"0.35em\">host %d</text>\n",
                      radius * sin(middle), -radius * cos(middle), FAINT, anchor, s->host_of[a]);
}

static void draw_bands(const scene *s) {
    if (s->sheet->hosts->count == 1) return; /* then there is nothing to tell apart */
    int first = 0;
    for (int p = 1; p <= ranks_of(s); p++) {
        if (p < ranks_of(s) && s->host_of[s->seats[p].rank_at] == s->host_of[s->seats[first].rank_at]) continue;
        draw_band(s, first, p - 1);
        first = p;
    }
}

/* Whether the straight way between two ranks runs over a third. */
static bool is_blocked(const scene *s, point a, point b) {
    const double x = b.x - a.x, y = b.y - a.y, length = hypot(x, y);
    for (int r = 0; r < ranks_of(s); r++) {
        const double u = s->seats[r].at.x - a.x, v = s->seats[r].at.y - a.y, along = (u * x + v * y) / length;
        if (along > 1 && along < length - 1 && fabs(u * y - v * x) / length < s->dot) return true;
    }
    return false;
}

/* Where a line between two ranks bends: straight ones in their middle, others nearer to the centre. */
static point bend_edge(const scene *s, point a, point b) {
    const double share = is_blocked(s, a, b) ? 0.62 : 1;
    return (point){share * (a.x + b.x) / 2, share * (a.y + b.y) / 2};
}

static void draw_curve(const scene *s, point a, point bent, point b, double width, const char *colour) {
    (void)fprintf(s->out,
                  "<path d=\"M%.1f %.1fQ%.1f %.1f %.1f %.1f\" fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\"/>\n",
                  a.x, a.y, bent.x, bent.y, b.x, b.y, colour, ranks_of(s) > NUMBERED_MAX ? width / 2 : width);
}

static void draw_line(const scene *s, point a, point b, double width, const char *colour) {
    draw_curve(s, a, bend_edge(s, a, b), b, width, colour);
}

/* Begins the path along members in the order in which they stand: as a shape it is then convex. */
static void begin_path(const scene *s, const int *members, size_t count) {
    const char *to = "M";
    (void)fprintf(s->out, "<path d=\"");
    for (int p = 0; p < ranks_of(s); p++) {
        if (!is_member(members, count, s->seats[p].rank_at)) continue;
        const point at = s->seats[s->seats[p].rank_at].at;
        (void)fprintf(s->out, "%s%.1f %.1f", to, at.x, at.y);
        to = "L";
    }
}

/* The members that a host has on its band are next to each other: a broad line along it. */
static void draw_group(const scene *s, const int *members, size_t count) {
    const bool inside = one_host(s, members, count);
    const char *colour = inside ? INSIDE : ACROSS;
    for (size_t i = 0; i < count; i++) s->seats[members[i]].busy = true;
    if (count == 2) {
        draw_line(s, s->seats[members[0]].at, s->seats[members[1]].at, s->dot / 2.5, colour);
        return;
    }
    begin_path(s, members, count);
    if (inside && s->sheet->hosts->count > 1)
        (void)fprintf(s->out,
                      "\" fill=\"none\" stroke=\"%s\" stroke-opacity=\"0.55\" stroke-width=\"%.1f\" "
                      "stroke-linejoin=\"round\" stroke-linecap=\"round\"/>\n",
                      colour, 2 * s->dot + 5);
    else
        (void)fprintf(s->out,
                      "Z\" fill=\"%s\" fill-opacity=\"0.2\" stroke=\"%s\" stroke-width=\"%.1f\" "
                      "stroke-linejoin=\"round\"/>\n",
                      colour, colour, s->dot / 2.5);
}

/* A line that ends at the rim of its second rank, with a head. */
static void draw_arrow(const scene *s, point a, point b, double width, const char *colour) {
    const point bent = bend_edge(s, a, b);
    const double x = b.x - bent.x, y = b.y - bent.y, length = hypot(x, y), size = s->dot * 0.6;
    const point u = {x / length, y / length};
    const point tip = {b.x - u.x * (s->dot + 2), b.y - u.y * (s->dot + 2)};
    const point base = {tip.x - size * u.x, tip.y - size * u.y};
    draw_curve(s, a, bent, base, width, colour);
    (void)fprintf(s->out, "<path d=\"M%.1f %.1fL%.1f %.1fL%.1f %.1fZ\" fill=\"%s\"/>\n", tip.x, tip.y,
                  base.x - u.y * size / 2, base.y + u.x * size / 2, base.x + u.y * size / 2, base.y - u.x * size / 2,
                  colour);
}

static void draw_edge(const scene *s, size_t round, const taciti_edge *edge) {
    const bool mutual = taciti_topology_weight(&s->sheet->topology, round, edge->from, edge->to) > 0;
    const char *colour = s->host_of[edge->to] == s->host_of[edge->from] ? INSIDE : ACROSS;
    s->seats[edge->to].busy = s->seats[edge->from].busy = true;
    if (mutual && edge->from > edge->to) return; /* drawn once */
    (mutual ? draw_line : draw_arrow)(s, s->seats[edge->from].at, s->seats[edge->to].at, 0.6 + 4 * edge->weight,
                                      colour);
}

static void draw_ranks(const scene *s) {
    for (int r = 0; r < ranks_of(s); r++) {
        (void)fprintf(s->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\" stroke=\"%s\"/>\n",
                      s->seats[r].at.x, s->seats[r].at.y, s->dot, s->seats[r].busy ? "#ffffff" : BAND,
                      s->seats[r].busy ? INK : "#9aa5b1");
        if (ranks_of(s) <= NUMBERED_MAX)
            (void)fprintf(s->out,
                          "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%.0f\" fill=\"%s\" text-anchor=\"middle\" "
                          "dy=\"0.35em\">%d</text>\n",
                          s->seats[r].at.x, s->seats[r].at.y, s->dot + 1, s->seats[r].busy ? INK : "#9aa5b1", r);
    }
}

static void draw_panel(const scene *s, size_t which) {
    const taciti_round *round = &s->sheet->topology.rounds[which];
    const size_t column = which % PANEL_COLUMNS, row = which / PANEL_COLUMNS;
    const double x = (double)s->left + s->zoom * PANEL * ((double)column + 0.5);
    const double y = HEAD + (double)(row * (PANEL + 24)) + s->zoom * (PANEL / 2.0 + 20);
    (void)fprintf(s->out, "<g transform=\"translate(%.1f %.1f) scale(%.1f)\">\n", x, y, s->zoom);
    (void)fprintf(s->out,
                  "<text x=\"0\" y=\"%d\" font-size=\"%.1f\" fill=\"%s\" text-anchor=\"middle\">round %zu<tspan "
                  "fill=\"%s\">, %.3g on the busiest link</tspan></text>\n",
                  -PANEL / 2 + 2, 13 / s->zoom, INK, which, FAINT, s->sheet->nic[which]);
    for (int r = 0; r < ranks_of(s); r++) s->seats[r].busy = false;
    draw_bands(s);
    for (size_t g = 0; g < round->groups; g++)
        draw_group(s, round->members + round->first[g], round->first[g + 1] - round->first[g]);
    for (size_t e = 0; e < round->edge_count; e++) draw_edge(s, which, &round->edges[e]);
    draw_ranks(s);
    (void)fprintf(s->out, "</g>\n");
}

/* ---- the page ---------------------------------------------------------------------------------------------------- */

static void draw_head(const scene *s) {
    const taciti_topology_sheet *sheet = s->sheet;
    (void)fprintf(
        s->out,
        "<text x=\"20\" y=\"32\" font-size=\"20\" font-weight=\"bold\" fill=\"%s\">%s, %d ranks on %d host%s</text>"
        "\n<text x=\"20\" y=\"54\" font-size=\"13\" fill=\"%s\">%zu round%s",
        INK, sheet->topology.name, ranks_of(s), sheet->hosts->count, sheet->hosts->count == 1 ? "" : "s", FAINT,
        sheet->topology.period, sheet->topology.period == 1 ? "" : "s");
    if (sheet->topology.period > PANELS_MAX) (void)fprintf(s->out, ", the first %d drawn", PANELS_MAX);
    if (sheet->has_figures && sheet->figures.exact_after > 0)
        (void)fprintf(s->out, "; the exact mean after %zu", sheet->figures.exact_after);
    else if (sheet->has_figures)
        (void)fprintf(s->out, "; spectral gap %.3f", sheet->figures.spectral_gap);
    (void)fprintf(s->out, "; model sizes on the busiest host's link, per mix and direction: %.3g", sheet->nic_mean);
    if (sheet->topology.period > 1) (void)fprintf(s->out, " on average, %.3g in the busiest round", sheet->nic_peak);
    (void)fprintf(s->out, "</text>\n");
}

static void draw_legend(const scene *s, size_t y) {
    (void)fprintf(s->out,
                  "<g font-size=\"12\" fill=\"%s\" transform=\"translate(20 %zu)\">"
                  "<rect width=\"22\" height=\"12\" fill=\"%s\" fill-opacity=\"0.2\" stroke=\"%s\"/><text x=\"30\" "
                  "y=\"10\">inside a host</text>"
                  "<rect x=\"130\" width=\"22\" height=\"12\" fill=\"%s\" fill-opacity=\"0.2\" stroke=\"%s\"/><text "
                  "x=\"160\" y=\"10\">across hosts</text>"
                  "<rect x=\"256\" width=\"22\" height=\"12\" rx=\"6\" fill=\"%s\"/><text x=\"286\" y=\"10\">a host"
                  "</text>"
                  "<circle cx=\"356\" cy=\"6\" r=\"7\" fill=\"%s\" stroke=\"#9aa5b1\"/><text x=\"370\" y=\"10\">idle"
                  "</text></g>\n",
                  INK, y, INSIDE, INSIDE, ACROSS, ACROSS, BAND, BAND);
}

static void draw_page(FILE *out, const void *object) {
    scene own = *(const scene *)object, *s = &own;
    s->out = out;
    const size_t period = s->sheet->topology.period, panels = period < PANELS_MAX ? period : PANELS_MAX;
    const size_t columns = panels < PANEL_COLUMNS ? panels : PANEL_COLUMNS;
    const size_t rows = (panels + PANEL_COLUMNS - 1) / PANEL_COLUMNS;
    s->zoom = panels == 1 ? ALONE : 1;
    const size_t width = columns < 3 ? 3 * PANEL : columns * PANEL,
                 height = HEAD + (size_t)(s->zoom * (double)(rows * (PANEL + 24))) + FOOT;
    s->left = (size_t)((double)width - s->zoom * (double)(columns * PANEL)) / 2;
    (void)fprintf(s->out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %zu %zu\" width=\"%zu\" height=\"%zu\" "
                  "font-family=\"sans-serif\">\n<rect width=\"%zu\" height=\"%zu\" fill=\"#ffffff\"/>\n",
                  width, height, width, height, width, height);
    for (int r = 0; r < ranks_of(s); r++) s->seats[s->sheet->topology.position[r]].taken_by = r;
    lay_out(s);
    draw_head(s);
    for (size_t r = 0; r < panels; r++) draw_panel(s, r);
    draw_legend(s, height - 28);
    (void)fprintf(s->out, "</svg>\n");
}

char *taciti_topology_draw(const taciti_topology_sheet *sheet) {
    scene s = {.sheet = sheet, .host_of = sheet->hosts->host_of};
    s.seats = taciti_calloc((size_t)sheet->topology.ranks, sizeof *s.seats);
    char *text = s.seats == NULL ? NULL : taciti_text_of(draw_page, &s);
    taciti_free(s.seats);
    return text;
}
