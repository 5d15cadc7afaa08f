/* SPDX-License-Identifier: Apache-2.0 */
#include "base/interrupt.h"

#include "base/clock.h"
#include "base/log.h"

#define ASK_NS (TACITI_NS_PER_S / 2)

static _Thread_local tacit_wait_callback *t_ask;
static _Thread_local void *t_context;
static _Thread_local int64_t t_asked_ns;

void taciti_interrupt_by(tacit_wait_callback *ask, void *context) {
    t_ask = ask;
    t_context = context;
}

tacit_status taciti_interrupt_check(int64_t begin_ns) {
    const int64_t now_ns = t_ask == NULL ? 0 : taciti_now_ns();
    if (t_ask == NULL || now_ns - begin_ns < ASK_NS || now_ns - t_asked_ns < ASK_NS) return TACIT_OK;
    t_asked_ns = now_ns;
    if (t_ask(t_context) == TACIT_OK) return TACIT_OK;
    taciti_error_set("this rank has ended a wait for others, as Ctrl-C does; communication has ended with it");
    return TACIT_PENDING;
}
