/* SPDX-License-Identifier: Apache-2.0
 *
 * The size of messages, and how many of them are under way.
 */
#ifndef TACITI_EXCHANGE_PIPELINE_H
#define TACITI_EXCHANGE_PIPELINE_H

#include "exchange/payload.h"

/* Messages of this size are sent eagerly. From 64 KiB on, Open MPI's TCP first asks the receiver, and that request
 * queues behind all data under way (4 hosts at 1 Gbit/s, 64 MB: 128 KiB reach 91 % of the line rate, 60 KiB 98 %). */
#define TACITI_WIRE_SEGMENT_BYTES ((size_t)60 << 10)

typedef struct taciti_pipeline {
    size_t segment_n; /* max floats of one message */
    size_t depth;     /* segments of one flow under way, in addition to the one being processed */
    size_t sends;     /* messages to one member that have been posted and not yet left */
} taciti_pipeline;

/* Computes the pipeline from: sources, the maximum over ranks of ranks that send it a payload of one segment; lanes per
 * host (arrangement.h). Sender and receiver must use the same arguments.
 *
 * For number formats, a segment holds segment_bytes in f32. So all of them divide an array alike, and the owner of a
 * result does not depend on the number format. For other codecs, a segment's payload is expected to have segment_bytes
 * at the setting taciti_encoding.expected, but a segment has at most 2^18 floats. If the codec takes a threshold, its
 * payloads are uneven: between hosts, a quarter of segment_bytes is expected, and more messages are under way. */
taciti_pipeline taciti_pipeline_of(const taciti_encoding *encoding, size_t segment_bytes, bool one_host, size_t lanes,
                                   size_t sources);

#endif
