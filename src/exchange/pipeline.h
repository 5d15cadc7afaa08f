/* SPDX-License-Identifier: Apache-2.0
 *
 * How finely an array is cut for the wire, and how much of it is under way.
 */
#ifndef TACITI_EXCHANGE_PIPELINE_H
#define TACITI_EXCHANGE_PIPELINE_H

#include "exchange/payload.h"

/* Messages of this size leave at once: Open MPI's TCP asks the receiver first from 64 KiB on, and that question stands
 * behind all data on its way (4 hosts at 1 Gbit/s, 64 MB: 128 KiB reach 91 % of the line, 60 KiB 98 %). */
#define TACITI_WIRE_SEGMENT_BYTES ((size_t)60 << 10)

typedef struct taciti_pipeline {
    size_t segment_n; /* max floats of one message */
    size_t depth;     /* segments of one flow under way, beside the one that is worked on */
} taciti_pipeline;

/* sources: ranks whose payloads of one segment arrive at a rank, the maximum over ranks; lanes: ranks of a host that
 * talk to others (arrangement.h). Sender and receiver cut alike when both ask with the same.
 *
 * A segment has as many floats as its bytes hold, in f32 for codecs that fix the size: so all of them cut an array
 * alike, and where a result is owned, and its error kept, does not depend on the number format. For codecs of variable
 * size it is the payload's bound that fills the message. */
taciti_pipeline taciti_pipeline_of(const taciti_encoding *encoding, size_t segment_bytes, bool one_host, size_t lanes,
                                   size_t sources);

#endif
