/* SPDX-License-Identifier: Apache-2.0
 *
 * The communication pattern of a strategy's step, as far as time is concerned. The planner prices patterns and does not
 * know strategies.
 */
#ifndef TACITI_STRATEGY_PATTERN_H
#define TACITI_STRATEGY_PATTERN_H

#include <stdbool.h>

#include "topo/topo.h"

/* When the exchange happens. DENSE: the gradient's exchange overlaps backward, and the update needs all of it. AWC:
 * parameters are exchanged during the next step. ATC: parameters are exchanged after the update, in the same step. */
typedef enum taciti_order { TACITI_ORDER_DENSE, TACITI_ORDER_AWC, TACITI_ORDER_ATC } taciti_order;

typedef struct taciti_pattern {
    char label[64]; /* "dense", "gossip aer awc": first column of `tacit plan` */
    taciti_order order;
    taciti_topo_request topology; /* of the exchange; name NULL: all ranks. The planner sets ranks and hosts */
    int every;                    /* steps per exchange */
    int delay;                    /* awc: additional iterations that a transfer may take */
    bool compresses;              /* its sums over all ranks can go through compress.codec */
    bool configured;              /* the pattern of the options; the others are alternatives */
} taciti_pattern;

enum { TACITI_PATTERNS_MAX = 64 };

#endif
