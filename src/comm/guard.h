/* SPDX-License-Identifier: Apache-2.0
 *
 * The last resort against calls into an MPI library that never return (a rank that is missing at start-up, a peer lost
 * at the end, an abort that hangs): a thread that ends this process unless it is called off in time. Time during which
 * the process itself was stopped does not count. Only a program may end its process: inside of the C library the thread
 * logs an error and leaves the process as it is.
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
    const char *text;                              /* logged as an error when the time is over; NULL: silent */
    void (*late)(void *context, const char *text); /* then called; NULL: nothing is */
    void *context;
} taciti_guard;

/* What ends the process, installed by a program: _exit(). NULL, as at first: nothing does. Before threads start. */
void taciti_guard_install(void (*end)(int exit_code));

/* Calls what is installed; returns where nothing is. Any thread. */
void taciti_guard_end_process(int exit_code);
bool taciti_guard_installed(void);

/* Ends the process with `exit_code` after `seconds` unless disarmed. The struct must stay in place, with `late` set by
 * the caller and the rest by this function; text is borrowed.
 * Without a thread to spare the guard is left out (logged as a warning). */
void taciti_guard_arm(taciti_guard *guard, double seconds, int exit_code, const char *text);
void taciti_guard_disarm(taciti_guard *guard); /* fine when not armed */

#endif
