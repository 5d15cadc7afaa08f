/* SPDX-License-Identifier: Apache-2.0
 *
 * The answer of `tacit plan`: for people, for programs, as a picture.
 */
#ifndef TACITI_CLI_PLAN_PRINT_H
#define TACITI_CLI_PLAN_PRINT_H

#include "plan/curves.h"

/* Everything that was computed. Borrows all of it. */
typedef struct taciti_plan_report {
    const char *model_path, *cluster_path;
    const taciti_settings *settings;
    const taciti_scene *scene;
    const taciti_plan_options *options;
    const taciti_candidates *candidates;
    const taciti_plan_curves *curves; /* of pictures and JSON; empty when neither was asked for */
    double cv;                        /* that was used */
    bool all;                         /* every method in the table, not just the best */
} taciti_plan_report;

void taciti_plan_print(const taciti_plan_report *report);

struct json_t;
/* Returns owned; NULL when memory is short. */
struct json_t *taciti_plan_json(const taciti_plan_report *report);

/* Two panels: steps against the rate between hosts and against the number of hosts. Atomic. */
tacit_status taciti_plan_save_svg(const taciti_plan_report *report, const char *path);

#endif
