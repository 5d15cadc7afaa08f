/* SPDX-License-Identifier: Apache-2.0
 *
 * SIGINT and SIGTERM for a program that has part of an answer to give, on the thread of base/signals.h: one that waits
 * for other ranks need not wake up.
 */
#ifndef TACITI_BASE_INTERRUPTION_H
#define TACITI_BASE_INTERRUPTION_H

#include "tacit/tacit.h"

/* At the first of these signals `speak` runs on a thread of its own, then the process exits with 128 + the signal's
 * number. Call before any other thread starts: they must inherit that both signals are blocked. Borrows context for
 * ever. */
tacit_status taciti_on_interruption(void (*speak)(void *context), void *context);

#endif
