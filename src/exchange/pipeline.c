/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/pipeline.h"

#include <stdint.h>

#include "base/number.h"

/* Between hosts the flows of a rank share links that others use as well; what one flow is ahead of another at the end
 * is time in which a link stands idle, so not more than it takes to ride out a wait of some milliseconds. Inside one
 * host few stay in the cache (64 MB: 8.9 ms, 10.2 ms with 17). */
enum { DEPTH_NETWORK = 8, DEPTH_HOST = 3, DEPTH_MIN = 2, GRAIN = 16, SENDS_PER_MEMBER = 2 };

/* Payloads of a codec that takes a threshold of the model are long where the model's large elements are. Messages of a
 * quarter of the usual length leave room for four times the expected payload before they ask the receiver first
 * (pipeline.h) and give every rank a part of every layer, and up to four times as many of them are under way. */
enum { UNEVEN_PARTS = 4 };

/* The limit for a codec that compresses much: what it encodes in several passes stays in the cache, and a long array is
 * several messages, so that one travels while the next is encoded. */
#define MAX_SEGMENT_N ((size_t)1 << 18)

/* Arriving payloads of all sources and slots together; many ranks have small chunks anyway. */
#define STAGING_BYTES ((size_t)64 << 20)

taciti_pipeline taciti_pipeline_of(const taciti_encoding *encoding, size_t segment_bytes, bool one_host, size_t lanes,
                                   size_t sources) {
    const size_t room = STAGING_BYTES / taciti_max(sources, 1);
    const bool uneven = !one_host && taciti_encoding_is_uneven(encoding);
    size_t bytes =
        taciti_min(segment_bytes, one_host ? SIZE_MAX : TACITI_WIRE_SEGMENT_BYTES) / (uneven ? UNEVEN_PARTS : 1);
    bytes = taciti_max(taciti_min(bytes, room / (DEPTH_MIN + 1)), GRAIN * sizeof(float));
    const size_t n = taciti_encoding_segment(encoding, bytes, GRAIN, MAX_SEGMENT_N, &bytes);
    size_t depth = one_host ? DEPTH_HOST : taciti_max(DEPTH_NETWORK / lanes, DEPTH_MIN);
    if (uneven) depth *= taciti_min(UNEVEN_PARTS, MAX_SEGMENT_N / n);
    while (depth > DEPTH_MIN && bytes * (depth + 1) > room) depth--;
    return (taciti_pipeline){.segment_n = n, .depth = depth, .sends = uneven ? depth : SENDS_PER_MEMBER};
}
