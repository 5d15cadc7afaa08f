/* SPDX-License-Identifier: Apache-2.0
 *
 * Waits that the program may end: the thread that waits asks it now and then. Threads of the library ask nobody.
 */
#ifndef TACITI_BASE_INTERRUPT_H
#define TACITI_BASE_INTERRUPT_H

#include <stdint.h>

#include "tacit/tacit.h"

/* From now on waits of the calling thread ask this function. NULL: they ask nobody. */
void taciti_interrupt_by(tacit_wait_callback *ask, void *context);

/* Call it again and again in a wait that began at begin_ns. Asks twice a second, first after half a second. Returns
 * PENDING if the answer is not OK, and sets the error's text (taciti_error_set). Any thread. */
tacit_status taciti_interrupt_check(int64_t begin_ns);

#endif
