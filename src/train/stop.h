/* SPDX-License-Identifier: Apache-2.0
 *
 * The signals that ask a run to stop: SIGTERM, SIGINT and SIGUSR1, taken by the thread of base/signals.h.
 */
#ifndef TACITI_TRAIN_STOP_H
#define TACITI_TRAIN_STOP_H

#include "tacit/tacit.h"

/* From now on the signals wait. Call before any library can start a thread. */
void taciti_stop_block(void);

/* From now on they are noted, also those that have waited. After a process has split in two: threads stay behind. */
tacit_status taciti_stop_listen(void);

/* The last of the signals that came; 0: none. Any thread. */
int taciti_stop_signal(void);

#endif
