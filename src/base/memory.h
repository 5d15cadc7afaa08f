/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory: 64-byte aligned blocks for small things, and page blocks for the large flat arrays (parameters, gradients,
 * moments, activations). Page blocks are 2 MiB aligned and ask for huge pages, which on machines with opt-in
 * transparent huge pages is worth 5-10 % of a training step.
 */
#ifndef TACITI_BASE_MEMORY_H
#define TACITI_BASE_MEMORY_H

#include <stddef.h>

#include "tacit/tacit.h"

#define TACITI_ALIGN_BYTES ((size_t)64)

/* `bytes` rounded up to a multiple of `unit` (a power of two). */
static inline size_t taciti_round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) & ~(unit - 1); }

/* Zeroed, 64-byte aligned block of count * size bytes; NULL when memory is short or the product overflows (logged).
 * bytes == 0 gives a valid pointer. Returns owned; release with taciti_free(). Any thread. */
void *taciti_calloc(size_t count, size_t size);
void taciti_free(void *block);

/* Copy of a string; NULL when memory is short (logged). Returns owned; release with taciti_free(). Any thread. */
char *taciti_strdup(const char *text);

/* A zeroed region of whole pages. */
typedef struct taciti_pages {
    void *base;   /* 2 MiB aligned */
    size_t bytes; /* usable bytes, as asked for */
    void *map;    /* what mmap returned */
    size_t map_bytes;
} taciti_pages;

/* Reserves zeroed memory; pages are touched first by whoever writes first. E_MEMORY names the bytes asked for.
 * Any thread. Outputs are written only on success. */
tacit_status taciti_pages_create(size_t bytes, const char *what, taciti_pages *out);
void taciti_pages_destroy(taciti_pages *pages); /* {0} is fine */

/* Peak resident set of this process in bytes (0 where the system does not say). */
size_t taciti_peak_resident_bytes(void);

/* Bytes that this host can still give to processes: free or reclaimable memory and swap, less where the control group
 * grants less. 0 where the system does not say. */
size_t taciti_available_bytes(void);

#endif
