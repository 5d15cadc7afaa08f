/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TACITI_CLI_BENCH_SKETCH_H
#define TACITI_CLI_BENCH_SKETCH_H

#include "cli/verbs.h"

/* Measures and prints; isa NULL: all sets of this CPU. */
tacit_status taciti_cli_bench_sketch(const taciti_arguments *arguments, const char *isa);

#endif
