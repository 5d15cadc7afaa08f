/* SPDX-License-Identifier: Apache-2.0
 *
 * The signals that ask a run to stop: SIGTERM, SIGINT and SIGUSR1. No handler is installed: they are blocked in every
 * thread, and a thread of its own waits for them. A handler would run on the stack of a thread that computes, and
 * generated code of matrix products may keep its data where the kernel puts a handler's frame.
 */
#ifndef TACITI_TRAIN_STOP_H
#define TACITI_TRAIN_STOP_H

#include "tacit/tacit.h"

/* From now on the signals wait, in the calling thread and in all it creates. Call first of all, before any library can
 * start a thread. */
void taciti_stop_block(void);

/* Starts the thread that takes what taciti_stop_block() holds back; it lives as long as the process. A process that is
 * forked later gets the mask that was there before. */
tacit_status taciti_stop_listen(void);

/* The last of the signals that came; 0: none. Any thread. */
int taciti_stop_signal(void);

#endif
