/* SPDX-License-Identifier: Apache-2.0
 *
 * The signals that ask a run to stop: SIGTERM, SIGINT and SIGUSR1, taken by the thread of base/signals.h.
 */
#ifndef TACITI_TRAIN_STOP_H
#define TACITI_TRAIN_STOP_H

#include <stdbool.h>

#include "tacit/tacit.h"

/* Blocks the signals until taciti_stop_listen(). Call before any library starts a thread. */
void taciti_stop_block(void);

/* Starts the thread that records the signals, including those that are pending, and logs the first one, with what
 * happens then. saves: the run makes checkpoints. Call after fork(), which does not copy threads. */
tacit_status taciti_stop_listen(bool saves);

/* Returns the last signal received; 0: none. Any thread. */
int taciti_stop_signal(void);

#endif
