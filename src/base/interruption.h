/* SPDX-License-Identifier: Apache-2.0
 *
 * SIGINT and SIGTERM for a program that prints a partial result before it ends. The handler runs on the thread of
 * base/signals.h, so it works even if the main thread is blocked waiting for other ranks.
 */
#ifndef TACITI_BASE_INTERRUPTION_H
#define TACITI_BASE_INTERRUPTION_H

#include "tacit/tacit.h"

/* On the first of these signals, calls `speak` on the signal thread and then exits the process with 128 + the signal's
 * number. Call this before any other thread starts, because threads must inherit the blocked signal mask. Borrows
 * context until the process ends. */
tacit_status taciti_on_interruption(void (*speak)(void *context), void *context);

#endif
