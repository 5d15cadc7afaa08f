/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/log.h"
#include "strategy/strategy.h"

#define TACITI_STRATEGIES(X) X(dp) X(gossip) X(localsgd)

#define DECLARE(name) extern const taciti_strategy taciti_strategy_##name;
TACITI_STRATEGIES(DECLARE)
#undef DECLARE

#define ENTRY(name) &taciti_strategy_##name,
static const taciti_strategy *const STRATEGIES[] = {TACITI_STRATEGIES(ENTRY) NULL};
#undef ENTRY

const taciti_strategy *const *taciti_strategy_list(void) { return STRATEGIES; }

const taciti_strategy *taciti_strategy_find(const char *name) {
    for (const taciti_strategy *const *strategy = STRATEGIES; *strategy != NULL; strategy++)
        if (strcmp((*strategy)->name, name) == 0) return *strategy;
    return NULL;
}

tacit_status taciti_strategy_choose(const char *name, const taciti_strategy **out) {
    *out = taciti_strategy_find(name);
    if (*out != NULL) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG, "strategy: \"%s\" is not known; `tacit info strategies` lists all", name);
}
