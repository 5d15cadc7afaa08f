/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory: 64-byte aligned blocks for small objects, and page blocks for the large flat arrays (parameters, gradients,
 * moments, activations). Page blocks are 2 MiB aligned and request huge pages. Where transparent huge pages are opt-in,
 * this makes a training step 5-10 % faster.
 */
#ifndef TACITI_BASE_MEMORY_H
#define TACITI_BASE_MEMORY_H

#include "tacit/tacit.h"

#define TACITI_ALIGN_BYTES ((size_t)64)

/* `bytes` rounded up to a multiple of `unit` (a power of two). */
static inline size_t taciti_round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) & ~(unit - 1); }

/* Allocates a zeroed, 64-byte aligned block of count * size bytes. Returns NULL, after logging, if memory is exhausted
 * or the product overflows. A size of 0 gives a valid pointer. Returns owned; release with taciti_free(). Any thread.
 */
void *taciti_calloc(size_t count, size_t size);
void taciti_free(void *block);

/* Returns the block with room for one more behind its `count` elements: it is moved where count is 0 (NULL is fine) or
 * a power of two. Returns NULL, and leaves the block, if memory is exhausted. */
void *taciti_with_room(void *block, size_t count, size_t size);

/* Returns the block with room for `more` elements behind its `count`; *room, which it updates, says for how many it has
 * room in all. NULL is fine for an empty one. Returns NULL, and leaves the block, if memory is exhausted. */
void *taciti_reserve(void *block, size_t count, size_t more, size_t size, size_t *room);

/* Copies a string. Returns NULL, after logging, if memory is exhausted. Returns owned; release with taciti_free(). Any
 * thread. */
char *taciti_strdup(const char *text);

/* A zeroed region of whole pages. */
typedef struct taciti_pages {
    void *base;   /* 2 MiB aligned */
    size_t bytes; /* usable bytes, as requested */
    void *map;    /* what mmap returned */
    size_t map_bytes;
    bool kept; /* commit and drop do nothing: all of it stays in memory */
} taciti_pages;

/* Reserves zeroed memory. A page is placed near the core that first writes to it. The error E_MEMORY names `what` and
 * the bytes requested. Writes *out only on success. Any thread. */
tacit_status taciti_pages_create(size_t bytes, const char *what, taciti_pages *out);
/* The same with small pages, for regions of which only parts are written to: the others need no memory. */
tacit_status taciti_pages_create_small(size_t bytes, const char *what, taciti_pages *out);
/* Reserves addresses without memory: accessing them is fatal until they are committed. */
tacit_status taciti_pages_reserve(size_t bytes, const char *what, taciti_pages *out);
void taciti_pages_destroy(taciti_pages *pages); /* {0} is fine */

/* For a reserved region: commit makes `bytes` bytes from `at` on accessible, in whole pages: those that were not are
 * zero, others keep their content. Returns E_MEMORY, naming `what`, if the system or a limit of the process refuses.
 * drop gives the memory of the pages back that lie completely in this range. Their content is lost and they must not be
 * accessed. Different ranges may be used by different threads, but commit and drop come from one thread at a time. */
tacit_status taciti_pages_commit(const taciti_pages *pages, size_t at, size_t bytes, const char *what);
void taciti_pages_drop(const taciti_pages *pages, size_t at, size_t bytes);

/* Peak resident set of this process in bytes, or 0 if unknown. */
size_t taciti_peak_resident_bytes(void);

/* Bytes that processes on this host can still allocate: free and reclaimable memory plus swap, limited by the control
 * group. 0 if unknown. */
size_t taciti_available_bytes(void);

/* Private memory that this process has mapped, touched or not, and its own limit for that (RLIMIT_DATA: prlimit --data,
 * ulimit -d). SIZE_MAX if there is none. */
size_t taciti_data_bytes(void);
size_t taciti_data_limit_bytes(void);

#endif
