/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "strategy/strategy.h"

#define TACITI_STRATEGIES(X) X(dp) X(gossip) X(localsgd) X(none) X(shard)

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

const char *taciti_strategy_name(size_t index) {
    return index < sizeof STRATEGIES / sizeof *STRATEGIES - 1 ? STRATEGIES[index]->name : NULL;
}
