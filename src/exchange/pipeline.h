/* SPDX-License-Identifier: Apache-2.0
 *
 * How finely an array is cut for the wire, and how much of it is under way.
 */
#ifndef TACITI_EXCHANGE_PIPELINE_H
#define TACITI_EXCHANGE_PIPELINE_H

#include <stdbool.h>
#include <stddef.h>

/* Messages of this size leave at once: Open MPI's TCP asks the receiver first from 64 KiB on, and that question stands
 * behind all data on its way (4 hosts at 1 Gbit/s, 64 MB: 128 KiB reach 91 % of the line, 60 KiB 98 %). */
#define TACITI_WIRE_SEGMENT_BYTES ((size_t)60 << 10)

typedef struct taciti_pipeline {
    size_t segment_n; /* most floats of one message */
    size_t depth;     /* segments of one flow under way, beside the one that is worked on */
} taciti_pipeline;

/* sources: whose payloads of one segment arrive at a rank, the most of any rank; lanes: ranks of a host that talk to
 * others (arrangement.h). Sender and receiver cut alike when both ask with the same. */
taciti_pipeline taciti_pipeline_of(size_t segment_bytes, bool one_host, size_t lanes, size_t sources);

#endif
