/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of the strategy `localsgd`: every rank makes `every` steps of its own, then all replicas are averaged and an
 * outer optimizer takes a step along (anchor - average).
 *
 * Source: Stich, arXiv 1805.09767 (local SGD: outer_lr 1, no momentum); Douillard et al., arXiv 2311.08105 (DiLoCo:
 * outer Nesterov momentum).
 */
#ifndef TACITI_STRATEGY_LOCALSGD_H
#define TACITI_STRATEGY_LOCALSGD_H

#include <stdint.h>

#include "base/option.h"

typedef struct taciti_localsgd_options {
    int64_t every;         /* localsgd.every: steps between averages */
    double outer_lr;       /* localsgd.outer_lr */
    double outer_momentum; /* localsgd.outer_momentum: 0: plain averaging when outer_lr is 1 */
} taciti_localsgd_options;
extern const taciti_option_table taciti_localsgd_option_table; /* section "localsgd" */

#endif
