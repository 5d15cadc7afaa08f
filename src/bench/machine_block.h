/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine block that stands above every measured figure: without it a rate means nothing.
 */
#ifndef TACITI_BENCH_MACHINE_BLOCK_H
#define TACITI_BENCH_MACHINE_BLOCK_H

#include <jansson.h>
#include <stddef.h>

typedef struct taciti_machine {
    char cpu[128];
    char caches[128]; /* "L1d 32 KiB, L2 1024 KiB, L3 32768 KiB" of the first core */
    char kernel[192]; /* operating system and release */
    char compiler[128];
    char huge_pages[64]; /* transparent huge pages: "always", "madvise" or "never" */
    const char *isa;     /* of the kernels in use; static */
    size_t memory_bytes;
    int cores;   /* that this process may run on */
    double load; /* runnable processes of the last minute: what else disturbs a measurement; -1 when unknown */
} taciti_machine;

/* What cannot be found out reads "unknown". Main thread. */
void taciti_machine_read(taciti_machine *out);

/* Prints the block on standard output. */
void taciti_machine_print(const taciti_machine *machine);

/* The same as a JSON object. Returns owned, or NULL when memory is short. */
json_t *taciti_machine_json(const taciti_machine *machine);

#endif
