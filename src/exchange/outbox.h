/* SPDX-License-Identifier: Apache-2.0
 *
 * The sends of an exchange. At most `window` sends are under way; another one waits for the oldest to complete, so that
 * a link carries about one message per direction at a time. Communication thread.
 */
#ifndef TACITI_EXCHANGE_OUTBOX_H
#define TACITI_EXCHANGE_OUTBOX_H

#include "comm/comm.h"

typedef struct taciti_outbox {
    taciti_comm *comm;               /* borrows */
    taciti_engine_request *requests; /* [window] of sends under way; borrows */
    size_t window;
    size_t posted, left; /* counts since the start: sends posted, sends completed */
} taciti_outbox;

/* Blocks until the first `posted` sends have completed. */
static inline tacit_status taciti_outbox_await(taciti_outbox *box, size_t posted) {
    for (; box->left < posted; box->left++) {
        const tacit_status status = taciti_comm_await(box->comm, &box->requests[box->left % box->window]);
        if (status != TACIT_OK) return status;
    }
    return TACIT_OK;
}

static inline tacit_status taciti_outbox_send(taciti_outbox *box, int rank, const void *payload, size_t bytes) {
    if (box->posted - box->left == box->window) {
        const tacit_status status = taciti_outbox_await(box, box->left + 1);
        if (status != TACIT_OK) return status;
    }
    const tacit_status status =
        taciti_comm_isend(box->comm, rank, payload, bytes, &box->requests[box->posted % box->window]);
    if (status == TACIT_OK) box->posted++;
    return status;
}

#endif
