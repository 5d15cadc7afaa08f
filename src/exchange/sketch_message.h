/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages of ranks that add up a range by sketches (codec/homomorphic.h). Every member has n floats, most
 * of them 0, for the owner of the range, who wants their sum:
 *
 *   contribution   member to owner   index, head, and counters of the sketch where they are fewer than n
 *   reply          owner to members  how many sums did not decode, and what the next step's sketch is sized by
 *   pending        owner to members  the index of those elements, if there are any
 *   values         member to owner   its packed values of these elements
 *
 * The sums that did not decode are then exact: the members' values, added in the order of members. The reply may ask
 * for all elements of the union, if rounding errors are so large that the sketch does not look like that of its index.
 *
 * Pure functions of their arguments. Nothing allocates. Any thread. Decoders return E_DATA for what is malformed.
 */
#ifndef TACITI_EXCHANGE_SKETCH_MESSAGE_H
#define TACITI_EXCHANGE_SKETCH_MESSAGE_H

#include "codec/homomorphic.h"

/* How a range travels; the same on all members. */
typedef struct taciti_sketch_form {
    taciti_sketch sketch;
    bool packed; /* no counters, all of the union is pending: they would be no fewer than values */
} taciti_sketch_form;

typedef struct taciti_sketch_reply {
    uint32_t pending;  /* elements of the index that follows */
    uint32_t measured; /* taciti_sketch_measure() of the union */
    uint32_t zero;     /* reserved */
    uint32_t whole;    /* 1: all elements of the union are pending; else 0 */
} taciti_sketch_reply;

/* The owner's sum under way. The owner of the object sets it up to `counters`. */
typedef struct taciti_sketch_total {
    taciti_sketch_form form;
    float *x;         /* [n]: the sum; borrows, as the next three */
    void *workspace;  /* taciti_sketch_workspace_bound() */
    uint64_t *union_; /* [words], then the pending elements */
    float *counters;  /* taciti_sketch_message_bound() */
} taciti_sketch_total;

/* The form for n floats: rows for `measured` elements, or ratio > 0: n / ratio counters. */
taciti_sketch_form taciti_sketch_form_of(size_t n, size_t measured, double ratio, uint64_t seed);

/* Returns the elements that the sketch of n floats is sized by, if the union of the last step took this share of them:
 * room for trends, and for chance, as each of the 16 lanes has a sixteenth of the elements, whose number scatters by
 * its root. */
size_t taciti_sketch_room(size_t n, double density);

/* Bytes of a contribution; of any message or packed values of n floats, at most. */
size_t taciti_sketch_contribution_bytes(const taciti_sketch_form *form);
size_t taciti_sketch_message_bound(size_t n);

/* Bytes of workspace for any form of n floats. */
size_t taciti_sketch_workspace_bound(size_t n);

/* message = the contribution x[n]; aligned to 64. Returns E_USAGE from 2^32 elements on. */
tacit_status taciti_sketch_contribute(const taciti_sketch_form *form, const float *x, void *message);

/* Adds a contribution; call it in the order of members. */
tacit_status taciti_sketch_take(taciti_sketch_total *sum, const void *message, bool first);

/* After all contributions: decodes the sum into x. union_ becomes the index of pending elements. */
tacit_status taciti_sketch_resolve(taciti_sketch_total *sum, taciti_sketch_reply *reply);

/* Whether a reply can be one, and an index that of its pending elements. */
tacit_status taciti_sketch_check_reply(const taciti_sketch_form *form, const taciti_sketch_reply *reply);
tacit_status taciti_sketch_check_pending(const taciti_sketch_form *form, const taciti_sketch_reply *reply,
                                         const uint64_t *pending);

/* After the members' values have been added up: completes x. */
tacit_status taciti_sketch_complete(taciti_sketch_total *sum, const taciti_sketch_reply *reply, const float *values);

#endif
