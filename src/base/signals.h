/* SPDX-License-Identifier: Apache-2.0
 *
 * Signals without handlers: all threads block them, and a dedicated thread waits for them. A handler would run on the
 * stack of a compute thread, where the generated code of matrix products may keep data in the area that the kernel
 * overwrites with the handler's frame. Use once per process.
 */
#ifndef TACITI_BASE_SIGNALS_H
#define TACITI_BASE_SIGNALS_H

#include "tacit/tacit.h"

/* Blocks these signals (a list that ends with 0) in the calling thread and in all threads it creates. Call this before
 * any library can start a thread. */
void taciti_signals_block(const int *numbers);

/* Starts the thread that receives the blocked signals and calls `hear` for each; it runs until the process ends.
 * Processes forked later get the original signal mask. */
tacit_status taciti_signals_listen(void (*hear)(int number));

/* Terminates the process by this signal with its default action. Call only from `hear`. */
void taciti_signals_die(int number);

/* For a program that prints a partial result before it ends: on the first SIGINT or SIGTERM calls `speak`, even if the
 * main thread waits for other ranks, and then exits the process with 128 + the signal's number. Call this before any
 * other thread starts. Borrows context until the process ends. */
tacit_status taciti_on_interruption(void (*speak)(void *context), void *context);

#endif
