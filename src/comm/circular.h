/* SPDX-License-Identifier: Apache-2.0
 *
 * Asynchronous all-gather of small records. No rank waits for another rank's newest record: a record is collected when
 * the next one is posted, so ranks may drift apart by a whole job of the communication thread before one of them waits.
 *
 *   post(record 0)   post(record 1)   post(record 2), take() -> record 0 of all ranks
 *                                     post(record 3), take() -> record 1 of all ranks ...
 */
#ifndef TACITI_COMM_CIRCULAR_H
#define TACITI_COMM_CIRCULAR_H

#include "comm/comm.h"

typedef struct taciti_circular taciti_circular;

/* Borrows comm. max: maximum of records that are posted and not yet taken. Allocates all buffers. Not collective. */
tacit_status taciti_circular_create(taciti_comm *comm, size_t record_bytes, size_t max, taciti_circular **out);

/* Call this only after every rank has taken all records, or after communication has failed. NULL is allowed. */
void taciti_circular_destroy(taciti_circular *circular);

/* Starts sending this rank's next record to all ranks. At most `max` records may be posted and not yet taken. All ranks
 * must call it equally often and at the same point in their sequence of jobs. Submitting thread. With a communication
 * thread, does not block. */
tacit_status taciti_circular_post(taciti_circular *circular, const void *record);

/* Receives the oldest record not yet taken from every rank, in rank order. If a later record has been posted, this
 * waits for that job of the communication thread only; for the newest record it waits for all ranks and is then
 * collective. */
tacit_status taciti_circular_take(taciti_circular *circular, void *records);

#endif
