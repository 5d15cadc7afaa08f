/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients that lie in the caller's memory, and waits for their sums.
 *
 * The flat array of gradients is what ranks exchange. A tensor of it may have a source: memory of the caller's, which
 * is read into the array just before a piece of a bucket leaves, on the thread that moves it, and, where updates are
 * the caller's, written with the sum as soon as that has arrived. Strategies that do not sum gradients by bucket need
 * the array earlier: then a source is read when it is given.
 *
 * Three threads may use it at once: one that gives sources (take), one that waits (wait), and the one that begins and
 * ends steps; besides, the communication thread calls the hooks.
 */
#ifndef TACITI_DRIVER_SOURCES_H
#define TACITI_DRIVER_SOURCES_H

#include "exchange/exchange.h"
#include "optim/optim.h"

/* The gradient of a tensor is at[n] * scale. at NULL: it is zero. */
typedef struct taciti_source {
    void *at; /* borrowed until the step is settled */
    tacit_type type;
    float scale;
} taciti_source;

static inline size_t taciti_element_bytes(tacit_type type) { return type == TACIT_F32 ? sizeof(float) : 2; }

/* out[n] = scale * elements [at, at + n) of an array of the type, in f32; and x[n] rounded to the type. For f32 the two
 * may be the same memory. */
void taciti_elements_read(tacit_type type, const void *from, size_t at, float scale, float *out, size_t n);
void taciti_elements_write(tacit_type type, void *to, size_t at, const float *x, size_t n);

typedef struct taciti_sources taciti_sources;

/* flat: the array of gradients, of this layout. by_bucket: the hooks are called for every bucket; write_back: sums are
 * written to the sources. Borrows comm, layout and flat. */
typedef struct taciti_sources_setup {
    taciti_comm *comm;
    const taciti_layout *layout;
    float *flat;
    bool by_bucket, write_back;
    bool overlap; /* buckets leave as soon as they are ready */
} taciti_sources_setup;

tacit_status taciti_sources_create(const taciti_sources_setup *setup, taciti_sources **out);
void taciti_sources_destroy(taciti_sources *sources); /* after the exchange that calls the hooks; NULL is allowed */

/* For taciti_strategy_context.hooks. Borrowed. */
const taciti_bucket_hooks *taciti_sources_hooks(const taciti_sources *sources);

/* A step begins: no tensor is ready. */
void taciti_sources_begin(taciti_sources *sources);

/* The gradient of this tensor is final. source NULL: it lies in the flat array. */
void taciti_sources_take(taciti_sources *sources, size_t tensor, const taciti_source *source);

/* Writes what the flat array holds to the sources of the step, on the threads of `optim`. */
void taciti_sources_write_all(taciti_sources *sources, taciti_optim *optim);

/* Blocks until the sum of the tensor has arrived, in the step under way or in the last one; PENDING after that many
 * seconds. by_bucket alone. E_USAGE: the tensor is not ready; the bucket has waited for comm.stall for another tensor,
 * which is named, or for the end of the step; or the job was closed. E_PEER: communication has failed. Any thread. */
tacit_status taciti_sources_wait(taciti_sources *sources, size_t tensor, double seconds);

/* Ends all waits, also those to come. Any thread. */
void taciti_sources_close(taciti_sources *sources);

#endif
