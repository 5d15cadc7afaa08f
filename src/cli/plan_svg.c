/* SPDX-License-Identifier: Apache-2.0
 *
 * The picture of a plan: two panels on logarithmic axes. Where lines run together, dashes let the ones below shine
 * through.
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/memory.h"
#include "cli/plan_print.h"

enum { WIDTH = 980, HEIGHT = 490, TOP = 138, BOTTOM = 430, PANEL = 390, LEFT = 70, RIGHT = 540, LEGEND_COLUMNS = 3 };
static const double MS = 1e3;

/* Colours that people with any colour vision tell apart (Okabe, Ito). */
static const struct {
    const char *colour, *dashes, *width;
} STYLES[] = {
    {"#222222", "none", "2.6"}, {"#8a8a8a", "none", "2.2"},   {"#0072b2", "none", "2.6"}, {"#009e73", "7 4", "2.2"},
    {"#cc79a7", "3 4", "2.2"},  {"#d58a00", "10 3 2 3", "2"}, {"#56b4e9", "1 3", "2.6"},
};
_Static_assert(sizeof STYLES / sizeof *STYLES == TACITI_CURVE_LINES, "every curve has a style");

/* Where values stand. */
typedef struct axes {
    double left, min_x, max_x, min_y, max_y;
} axes;

static double place_x(const axes *a, double x) {
    return a->left + PANEL * log(x / a->min_x) / log(a->max_x / a->min_x);
}

static double place_y(const axes *a, double y) {
    return BOTTOM - (BOTTOM - TOP) * log(y / a->min_y) / log(a->max_y / a->min_y);
}

/* ---- ranges ------------------------------------------------------------------------------------------------------ */

/* Where ticks stand in a decade of a short axis; of a long one at 1, 2 and 5. */
static const double TICKS[] = {1, 1.2, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8};
enum { TICKS_COUNT = sizeof TICKS / sizeof *TICKS };
static const double MIN_SPAN = 2, SHORT_AXIS = 20, LONG_AXIS = 1000;

static bool has_tick(double span, double tick) {
    if (span > LONG_AXIS) return tick == 1;
    return span < SHORT_AXIS || tick == 1 || tick == 2 || tick == 5;
}

/* The next tick that is not above (up: not below) the value. */
static double round_to_tick(double value, double span, bool up) {
    const double decade = pow(10, floor(log10(value)));
    double best = up ? 10 * decade : decade;
    for (size_t i = 0; i < TICKS_COUNT; i++) {
        if (!has_tick(span < LONG_AXIS ? span : LONG_AXIS, TICKS[i])) continue;
        const double tick = TICKS[i] * decade;
        if (up ? tick >= value * (1 - 1e-9) && tick < best : tick <= value * (1 + 1e-9) && tick > best) best = tick;
    }
    return best;
}

static axes axes_of(const taciti_plan_curves *curves, const taciti_plan_curve *curve, double left) {
    double min = 0, max = 0;
    for (size_t l = 0; l < curves->line_count; l++)
        for (size_t p = 0; p < curve->count; p++) {
            const double y = MS * curve->step_s[l][p];
            if (y > 0 && (min == 0 || y < min)) min = y;
            if (y > max) max = y;
        }
    if (min == 0) max = MIN_SPAN;
    if (min == 0) min = 1;
    if (max / min < MIN_SPAN) { /* 2 % must not look like much: the curves are in the middle */
        const double middle = sqrt(min * max);
        min = middle / sqrt(MIN_SPAN);
        max = middle * sqrt(MIN_SPAN);
    }
    axes a = {
        .left = left, .min_y = round_to_tick(min, max / min, false), .max_y = round_to_tick(max, max / min, true)};
    a.min_x = curve->x[0];
    a.max_x = curve->x[curve->count - 1];
    if (a.max_x <= a.min_x) a.max_x = 2 * a.min_x;
    return a;
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static void put_text(FILE *out, double x, double y, const char *attributes, const char *text) {
    (void)fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, attributes);
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '<': (void)fputs("&lt;", out); break;
        case '>': (void)fputs("&gt;", out); break;
        case '&': (void)fputs("&amp;", out); break;
        default: (void)fputc(*text, out); break;
        }
    }
    (void)fputs("</text>\n", out);
}

static void put_ticks_y(FILE *out, const axes *a) {
    char text[32];
    for (double decade = pow(10, floor(log10(a->min_y))); decade <= a->max_y * 1.001; decade *= 10)
        for (size_t i = 0; i < TICKS_COUNT; i++) {
            const double y = TICKS[i] * decade, at = place_y(a, y);
            if (!has_tick(a->max_y / a->min_y, TICKS[i]) || y < a->min_y * .999 || y > a->max_y * 1.001) continue;
            (void)snprintf(text, sizeof text, "%g", y);
            (void)fprintf(out, "<path class=\"grid\" d=\"M%.1f %.1fh%d\"/>\n", a->left, at, PANEL);
            put_text(out, a->left - 8, at + 4, "text-anchor=\"end\"", text);
        }
}

static void put_ticks_x(FILE *out, const axes *a, const taciti_plan_curve *curve, size_t step) {
    char text[32];
    for (size_t p = 0; p < curve->count; p += step) {
        const double at = place_x(a, curve->x[p]);
        (void)snprintf(text, sizeof text, "%g", curve->x[p]);
        (void)fprintf(out, "<path class=\"grid\" d=\"M%.1f %dV%d\"/>\n", at, TOP, BOTTOM);
        put_text(out, at, BOTTOM + 18, "text-anchor=\"middle\"", text);
    }
}

static void end_line(FILE *out, size_t style) {
    (void)fprintf(out, "\" stroke=\"%s\" stroke-width=\"%s\" stroke-dasharray=\"%s\"/>\n", STYLES[style].colour,
                  STYLES[style].width, STYLES[style].dashes);
}

static void put_line(FILE *out, const axes *a, const taciti_plan_curve *curve, const double *step_s, size_t style) {
    bool drawing = false;
    (void)fputs("<path class=\"line\" d=\"", out);
    for (size_t p = 0; p < curve->count; p++) {
        const bool known = step_s[p] > 0;
        if (known)
            (void)fprintf(out, "%s%.1f %.1f", drawing ? "L" : "M", place_x(a, curve->x[p]), place_y(a, MS * step_s[p]));
        drawing = known;
    }
    end_line(out, style);
}

static void put_here(FILE *out, const axes *a, double x, const char *text) {
    if (!(x >= a->min_x && x <= a->max_x)) {
        put_text(out, a->left + PANEL, TOP - 6, "text-anchor=\"end\" class=\"here\"", text);
        return;
    }
    const double at = place_x(a, x), share = (at - a->left) / PANEL;
    const char *anchor = share > .6 ? "text-anchor=\"end\" class=\"here\"" : "text-anchor=\"start\" class=\"here\"";
    (void)fprintf(out, "<path d=\"M%.1f %dV%d\" stroke=\"#c0392b\" stroke-dasharray=\"2 3\"/>\n", at, TOP, BOTTOM);
    put_text(out, at, TOP - 6, anchor, text);
}

/* ---- panels ------------------------------------------------------------------------------------------------------ */

typedef struct panel {
    const taciti_plan_curve *curve;
    double left;
    size_t step;       /* points of the curve from one tick to the next */
    const char *empty; /* why there is no curve */
    char here[64], below[64];
} panel;

static void put_panel(FILE *out, const taciti_plan_curves *curves, const panel *p) {
    const double middle = p->left + PANEL / 2.0;
    if (p->curve->count == 0) {
        put_text(out, middle, (TOP + BOTTOM) / 2.0, "text-anchor=\"middle\"", p->empty);
        return;
    }
    const axes a = axes_of(curves, p->curve, p->left);
    put_ticks_y(out, &a);
    put_ticks_x(out, &a, p->curve, p->step);
    for (size_t l = 0; l < curves->line_count; l++) put_line(out, &a, p->curve, p->curve->step_s[l], l);
    (void)fprintf(out, "<path class=\"frame\" d=\"M%.1f %dV%dh%d\"/>\n", a.left, TOP, BOTTOM, PANEL);
    put_here(out, &a, p->curve->here, p->here);
    put_text(out, middle, BOTTOM + 40, "text-anchor=\"middle\"", p->below);
}

static void put_rates(FILE *out, const taciti_plan_report *r) {
    const taciti_plan_curve *curve = &r->curves->rate;
    const double min = curve->x[0], max = curve->count > 0 ? curve->x[curve->count - 1] : 0;
    panel p = {curve, LEFT, TACITI_CURVE_DECADE, "one host: no link between hosts to vary", "", ""};
    (void)snprintf(p.here, sizeof p.here, "this cluster, %.3g Gbit/s%s", curve->here,
                   curve->here > max || curve->here < min ? ": not in the picture" : "");
    (void)snprintf(p.below, sizeof p.below, "Gbit/s of a host's link (%d hosts, %d ranks)", r->scene->hosts->count,
                   r->scene->hosts->ranks);
    put_panel(out, r->curves, &p);
}

static void put_hosts(FILE *out, const taciti_plan_report *r) {
    const taciti_cluster *c = r->scene->cluster;
    const int hosts = r->scene->hosts->count, max = taciti_cluster_max_ranks_per_host(c);
    const bool equal = taciti_cluster_ranks(c) == c->hosts * max;
    panel p = {&r->curves->hosts, RIGHT, 1, "no links.between: more hosts are unknown", "", ""};
    (void)snprintf(p.here, sizeof p.here, "this plan, %d host%s", hosts, hosts == 1 ? "" : "s");
    (void)snprintf(p.below, sizeof p.below, "hosts of %s%d rank%s each, the same work per rank", equal ? "" : "up to ",
                   max, max == 1 ? "" : "s");
    put_panel(out, r->curves, &p);
}

static void put_legend(FILE *out, const taciti_plan_curves *curves) {
    for (size_t l = 0; l < curves->line_count; l++) {
        const double x = LEFT + 290.0 * (double)(l % LEGEND_COLUMNS), y = 68 + 20.0 * (double)(l / LEGEND_COLUMNS);
        (void)fprintf(out, "<path class=\"line\" d=\"M%.1f %.1fh30", x, y - 4);
        end_line(out, l);
        put_text(out, x + 38, y, "", curves->lines[l]->method.label);
    }
}

static void put_picture(FILE *out, const void *report) {
    const taciti_plan_report *r = report;
    char title[160], verdict[TACITI_VERDICT_BYTES];
    if (r->even == NULL)
        (void)taciti_candidates_verdict(r->candidates, verdict);
    else
        (void)snprintf(verdict, sizeof verdict, "no verdict: compute.cv %.0f %% is that of a busy machine",
                       100 * r->cv);
    (void)snprintf(title, sizeof title, "predicted step of %s, ms", r->scene->profile->name);
    (void)fprintf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
                  "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"#333\">\n"
                  "<style>.grid{stroke:#e3e3e3;fill:none}.frame{stroke:#555;fill:none}.line{fill:none;"
                  "stroke-linejoin:round}.here{fill:#c0392b}</style>\n"
                  "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
                  WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT);
    put_text(out, LEFT, 26, "font-size=\"16\" font-weight=\"bold\"", title);
    put_text(out, LEFT, 46, "fill=\"#666\"", verdict);
    put_legend(out, r->curves);
    put_rates(out, r);
    put_hosts(out, r);
    (void)fputs("</svg>\n", out);
}

tacit_status taciti_plan_save_svg(const taciti_plan_report *report, const char *path) {
    char *text = taciti_text_of(put_picture, report);
    if (text == NULL) return taciti_fail(TACIT_E_MEMORY, "no memory for a picture");
    const tacit_status status = taciti_file_write(path, text, strlen(text));
    taciti_free(text);
    return status;
}
