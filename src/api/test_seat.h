/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank of a test's threads as the C interface knows it. Include after cmocka.h.
 */
#ifndef TACITI_API_TEST_SEAT_H
#define TACITI_API_TEST_SEAT_H

#include "api/object.h"
#include "comm/test_engine.h"

/* A failure ends the program. */
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) == TACIT_OK) break;                                                                                 \
        (void)fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, tacit_error_text());                       \
        abort();                                                                                                       \
    } while (0)

static inline tacit_comm *seat_of(taciti_comm *comm, tacit_comm *out) {
    *out = (tacit_comm){.comm = comm};
    taciti_handle_open(&out->handle, TACITI_HANDLE_COMM);
    return out;
}

#endif
