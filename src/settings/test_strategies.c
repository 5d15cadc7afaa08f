/* SPDX-License-Identifier: Apache-2.0
 *
 * A registry with one strategy more, which no program has: it takes the place of strategy/registry.c in a test.
 */
#include "settings/test_strategies.h"

#include <string.h>

#include "base/log.h"

#define AT(member) offsetof(test_options, member)

static const taciti_option OPTIONS[] = {
    TACITI_OPTION("spread", REAL, AT(spread), "0.5", .max = 1, .help = "a share"),
    TACITI_OPTION("after", INT, AT(after), "3", .min = 1, .max = 99, .unit = "steps", .help = "a number of steps"),
    TACITI_OPTION("names", LIST, AT(names), "", .help = "words"),
};
static const taciti_option_table TABLE = TACITI_OPTION_TABLE("test-only", "a strategy of tests", OPTIONS);

static tacit_status check(const taciti_strategy_context *context, const taciti_hosts *hosts) {
    const test_options *o = context->options;
    if (hosts != NULL && hosts->ranks < o->after)
        return taciti_fail(TACIT_E_CONFIG, "test-only.after %d needs as many ranks", (int)o->after);
    return o->spread > 0 ? TACIT_OK : taciti_fail(TACIT_E_CONFIG, "test-only.spread is 0; give --test-only.spread 0.5");
}

static tacit_status patterns(const void *options, const taciti_hosts *hosts, taciti_pattern out[TACITI_PATTERNS_MAX],
                             size_t *count) {
    (void)hosts;
    const test_options *o = options;
    *out =
        (taciti_pattern){.label = "test-only", .order = TACITI_ORDER_ATC, .every = (int)o->after, .configured = true};
    *count = 1;
    return TACIT_OK;
}

static const taciti_strategy TEST_ONLY = {.name = "test-only",
                                          .help = "a strategy of tests",
                                          .source = "none",
                                          .options = &TABLE,
                                          .options_size = sizeof(test_options),
                                          .label = "spread after",
                                          .check = check,
                                          .patterns = patterns};

extern const taciti_strategy taciti_strategy_dp, taciti_strategy_gossip, taciti_strategy_localsgd;
static const taciti_strategy *const LIST[] = {&taciti_strategy_dp, &taciti_strategy_gossip, &TEST_ONLY,
                                              &taciti_strategy_localsgd, NULL};

const taciti_strategy *const *taciti_strategy_list(void) { return LIST; }

const taciti_strategy *taciti_strategy_find(const char *name) {
    for (size_t i = 0; LIST[i] != NULL; i++)
        if (strcmp(LIST[i]->name, name) == 0) return LIST[i];
    return NULL;
}

const char *taciti_strategy_name(size_t index) {
    return index < sizeof LIST / sizeof *LIST - 1 ? LIST[index]->name : NULL;
}
