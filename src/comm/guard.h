/* SPDX-License-Identifier: Apache-2.0
 *
 * A guard against calls into the MPI library that never return (a rank is missing at start-up, a peer is lost during
 * shutdown, an abort hangs): a thread that ends this process unless it is disarmed in time. Time during which the
 * process was stopped does not count. Only a program may end its process, by installing a function for it. Without one,
 * as in the C library, the thread logs an error and the process continues.
 */
#ifndef TACITI_COMM_GUARD_H
#define TACITI_COMM_GUARD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct taciti_guard {
    pthread_t thread;
    bool armed;
    _Atomic uint32_t off;
    double seconds;
    int exit_code;
    const char *text;                              /* logged as an error when the time is over; NULL: nothing */
    void (*late)(void *context, const char *text); /* called after that; NULL: nothing */
    void *context;
    const void *subject; /* of its lines: that of the thread that armed it */
} taciti_guard;

/* Sets the function that ends the process, such as _exit(). NULL, the default: the process is never ended. Call it
 * before threads start. */
void taciti_guard_install(void (*end)(int exit_code));

/* Ends the process with the installed function. Returns if none is installed. Any thread. */
void taciti_guard_end_process(int exit_code);
bool taciti_guard_installed(void);

/* Ends the process with `exit_code` after `seconds` unless disarmed. The caller sets `late` and `context`, this
 * function sets the other members; the struct must not move while armed. Borrows text. If no thread can be started,
 * logs a warning and does nothing. */
void taciti_guard_arm(taciti_guard *guard, double seconds, int exit_code, const char *text);
void taciti_guard_disarm(taciti_guard *guard); /* allowed if not armed */

#endif
