/* SPDX-License-Identifier: Apache-2.0
 *
 * tacit: training over links that are slow next to the compute.
 *
 * This header is the public face of libtacit. Everything in it is plain C11, also valid C++17, and needs neither
 * MPI nor Python. Every function says which threads may call it and whether it is collective.
 */
#ifndef TACIT_TACIT_H
#define TACIT_TACIT_H

#ifdef __cplusplus
extern "C" {
#endif

#define TACIT_VERSION_MAJOR 0
#define TACIT_VERSION_MINOR 1
#define TACIT_VERSION_PATCH 0

/* The one list of statuses: value, name, text. 0 is success, positive is "in progress", negative is an error. */
#define TACIT_STATUS_LIST(X)                                                                                           \
    X(OK, 0, "success")                                                                                                \
    X(PENDING, 1, "still in progress")                                                                                 \
    X(E_USAGE, -1, "wrong use of a command or function")                                                               \
    X(E_CONFIG, -2, "configuration refused")                                                                           \
    X(E_DATA, -3, "input data refused")                                                                                \
    X(E_PEER, -4, "a peer failed, froze or disagreed")                                                                 \
    X(E_NUMERICS, -5, "a number is not finite or out of range")                                                        \
    X(E_MEMORY, -6, "out of memory")                                                                                   \
    X(E_IO, -7, "input or output failed")                                                                              \
    X(E_UNSUPPORTED, -8, "not supported by this build or machine")                                                     \
    X(E_INTERNAL, -9, "a defect in tacit; please report it")

typedef enum tacit_status {
#define TACIT_STATUS_ENUM(name, value, text) TACIT_##name = (value),
    TACIT_STATUS_LIST(TACIT_STATUS_ENUM)
#undef TACIT_STATUS_ENUM
} tacit_status;

/* Short symbolic name, e.g. "E_CONFIG". Never NULL. Any thread, not collective. */
const char *tacit_status_name(tacit_status status);

/* One-line text, e.g. "configuration refused". Never NULL. Any thread, not collective. */
const char *tacit_status_text(tacit_status status);

/* Process exit code of a status: 0 ok, 2 usage, 3 configuration, 4 data, 5 peer failure, 6 numerics, 7 resources.
 * Any thread, not collective. */
int tacit_status_exit_code(tacit_status status);

/* Library version "MAJOR.MINOR.PATCH". Any thread, not collective. */
const char *tacit_version(void);

#ifdef __cplusplus
}
#endif
#endif
