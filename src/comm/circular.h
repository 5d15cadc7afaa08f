/* SPDX-License-Identifier: Apache-2.0
 *
 * Small records that every rank sends to every rank while other things happen. No rank waits for another one's newest
 * record: what was posted is collected when the next one is posted, so ranks may drift apart by a whole turn of their
 * communication threads before one of them waits.
 *
 *   post(record 0)   post(record 1)   post(record 2), take() -> record 0 of all ranks
 *                                     post(record 3), take() -> record 1 of all ranks ...
 */
#ifndef TACITI_COMM_CIRCULAR_H
#define TACITI_COMM_CIRCULAR_H

#include "comm/comm.h"

typedef struct taciti_circular taciti_circular;

/* Borrows comm. most: records that may be posted and not taken. Every buffer is made here. Not collective. */
tacit_status taciti_circular_create(taciti_comm *comm, size_t record_bytes, size_t max, taciti_circular **out);

/* Every rank has taken what was posted, or communication has failed. NULL is fine. */
void taciti_circular_destroy(taciti_circular *circular);

/* Sends this rank's next record on its way; at most `most` that were not taken. One record per rank and
 * number: all ranks call it equally often, in the same place among their jobs. Owner thread, never blocks. */
tacit_status taciti_circular_post(taciti_circular *circular, const void *record);

/* Receives the oldest record that was not taken, of every rank, in rank order. When another was posted after it, this
 * waits for that job of the communication thread; for the newest it waits for all ranks. Collective in that case. */
tacit_status taciti_circular_take(taciti_circular *circular, void *records);

#endif
