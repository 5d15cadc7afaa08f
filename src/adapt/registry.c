/* SPDX-License-Identifier: Apache-2.0
 *
 * Every controller. A new one is its file and one line here: options, configuration and documentation iterate over it.
 * Those that no result recommends are in adapt/reference/ and come last.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "adapt/adapt.h"

#define TACITI_CONTROLLERS(X) X(fixed) X(payoff) X(gravac) X(accordion)

#define DECLARE(name) extern const taciti_controller taciti_controller_##name;
TACITI_CONTROLLERS(DECLARE)
#undef DECLARE

#define ENTRY(name) &taciti_controller_##name,
static const taciti_controller *const CONTROLLERS[] = {TACITI_CONTROLLERS(ENTRY) NULL};
#undef ENTRY

const taciti_controller *const *taciti_controller_list(void) { return CONTROLLERS; }

const taciti_controller *taciti_controller_find(const char *name) {
    for (const taciti_controller *const *c = CONTROLLERS; *c != NULL; c++)
        if (strcmp((*c)->name, name) == 0) return *c;
    return NULL;
}

const char *taciti_controller_name(size_t index) {
    const size_t count = sizeof CONTROLLERS / sizeof *CONTROLLERS - 1;
    size_t shown = 0;
    while (shown < count && !CONTROLLERS[shown]->reference) shown++;
    const size_t at = index < shown ? index : index - 1;
    return index == shown || at >= count ? NULL : CONTROLLERS[at]->name;
}

void taciti_decision_explain(taciti_decision *decision, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(decision->reason, sizeof decision->reason, format, arguments);
    va_end(arguments);
    decision->changed = true;
}
