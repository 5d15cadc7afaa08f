/* SPDX-License-Identifier: Apache-2.0
 *
 * A comparison of settings as text and as JSON; docs/bench-step.md defines every figure.
 */
#ifndef TACITI_CLI_CLUSTER_PRINT_H
#define TACITI_CLI_CLUSTER_PRINT_H

#include "bench/comparison.h"
#include "bench/machine_block.h"

/* Prints to standard output. */
void taciti_cluster_print(const taciti_machine *machine, const taciti_cluster_options *options,
                          const taciti_cluster_bench *bench);

/* Returns owned; NULL if out of memory. */
json_t *taciti_cluster_json(const taciti_machine *machine, const taciti_cluster_options *options,
                            const taciti_cluster_bench *bench);

#endif
