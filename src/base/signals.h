/* SPDX-License-Identifier: Apache-2.0
 *
 * Signals without handlers: they are blocked in every thread, and a thread of its own waits for them. A handler would
 * run on the stack of a thread that computes, and generated code of matrix products may keep its data where the kernel
 * puts a handler's frame. Once per process.
 */
#ifndef TACITI_BASE_SIGNALS_H
#define TACITI_BASE_SIGNALS_H

#include "tacit/tacit.h"

/* From now on these signals (numbers up to a 0) wait, in the calling thread and in all it creates. Call first of all,
 * before any library can start a thread. */
void taciti_signals_block(const int *numbers);

/* Starts the thread that takes what is held back and hands each to `hear`; it lives as long as the process. A process
 * that is forked later gets the mask that was there before. */
tacit_status taciti_signals_listen(void (*hear)(int number));

/* Ends the process by this signal, as if it had never been blocked. From `hear`. */
void taciti_signals_die(int number);

#endif
