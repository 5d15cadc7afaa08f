/* SPDX-License-Identifier: Apache-2.0
 *
 * The output of `tacit plan`: as text, JSON and SVG.
 */
#ifndef TACITI_CLI_PLAN_PRINT_H
#define TACITI_CLI_PLAN_PRINT_H

#include "cli/plan_curves.h"

/* The results to print. Borrows everything. */
typedef struct taciti_plan_report {
    const char *model_path, *cluster_path;
    const taciti_settings *settings;
    const taciti_scene *scene;
    const taciti_plan_options *options;
    const taciti_candidates *candidates;
    const taciti_plan_curves *curves; /* for SVG and JSON; empty if neither was requested */
    const taciti_verdict *even;       /* the verdict without jitter, where cv is that of a busy machine; else NULL */
    const char *even_text;
    double cv; /* coefficient of variation of compute that was used */
    bool all;  /* the table of every method, not the short answer */
} taciti_plan_report;

void taciti_plan_print(const taciti_plan_report *report);

/* Compares pointers to candidates by their step, for qsort(). */
int taciti_plan_by_step(const void *a, const void *b);

/* Prints in words what pays and the best of each family; taciti_plan_print() begins with it unless all is asked for. */
void taciti_plan_print_answer(const taciti_plan_report *report);

/* Returns the verdict and its text. A busy machine gets none: nothing pays there, and the range holds those with and
 * without jitter. */
enum { TACITI_ANSWER_BYTES = 3 * TACITI_VERDICT_BYTES };
taciti_verdict taciti_plan_answer(const taciti_plan_report *report, char text[TACITI_ANSWER_BYTES]);

/* The same about compression, with the range that has jitter; text "" if there is nothing to compress with. */
taciti_verdict taciti_plan_compression_answer(const taciti_plan_report *report, char text[TACITI_ANSWER_BYTES]);

struct json_t;
/* Returns owned; NULL if out of memory. */
struct json_t *taciti_plan_json(const taciti_plan_report *report);

/* Writes two panels: step time over the rate between hosts and over the number of hosts. The file appears atomically.
 */
tacit_status taciti_plan_save_svg(const taciti_plan_report *report, const char *path);

#endif
