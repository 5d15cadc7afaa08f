/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine block: the description of the hardware that precedes every report of measured rates.
 */
#ifndef TACITI_BENCH_MACHINE_BLOCK_H
#define TACITI_BENCH_MACHINE_BLOCK_H

#include <jansson.h>
#include <stddef.h>

#include "tacit/tacit.h"

typedef struct taciti_machine {
    char cpu[128];
    char caches[128]; /* "L1d 32 KiB, L2 1024 KiB, L3 32768 KiB" of the first core */
    char kernel[192]; /* operating system and release */
    char compiler[128];
    char huge_pages[64]; /* transparent huge pages: "always", "madvise" or "never" */
    const char *isa;     /* of the kernels in use; static */
    size_t memory_bytes;
    int cores;   /* available to this process */
    double load; /* load average of the last minute, to show disturbance by other processes; -1 if unknown */
} taciti_machine;

/* Fills *out; a text that cannot be determined is "unknown". Main thread. */
void taciti_machine_read(taciti_machine *out);

/* Returns E_MEMORY, which names the flag to lower, if nine tenths of the free memory are fewer bytes. Pages are only
 * claimed when they are written: too many would end the process, not fail. */
tacit_status taciti_machine_has_room(const char *flag, double bytes);

/* Prints the block on standard output. */
void taciti_machine_print(const taciti_machine *machine);

/* Returns the block as a JSON object, owned; NULL if out of memory. */
json_t *taciti_machine_json(const taciti_machine *machine);

#endif
