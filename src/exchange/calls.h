/* SPDX-License-Identifier: Apache-2.0
 *
 * How ranks that make steps without waiting for each other agree on a meeting. A rank that has reason to meet calls the
 * others, and all go on with their steps: nobody stands still because another rank is frozen or late. Each rank says at
 * the end of a step, first, that it has come, and when all have come, that it is ready; it goes to the meeting at the
 * first end of a step at which all are ready.
 *
 *   CALLED   some rank has reason to meet               passed on at once, to all
 *   COME     said at the end of a step, when called     all have come: whoever was frozen makes steps again
 *   READY    said at the end of a later step            all are ready: they meet at the end of the steps under way
 *
 * So a rank holds the others if it freezes between READY and the meeting, which is a step or two, but not if it does
 * earlier. A rank that makes no more steps waits in gather(), and says so: then all wait at the end of their step.
 *
 * Ranks are a tree, in which rank r is below rank (r - 1) / 2: what a subtree has said goes up, what all have said goes
 * down, so no rank has more than three others to listen to.
 */
#ifndef TACITI_EXCHANGE_CALLS_H
#define TACITI_EXCHANGE_CALLS_H

#include "comm/comm.h"

typedef struct taciti_calls taciti_calls;

/* Nobody listens yet. flow: of a job (comm.h), used by nothing else. Borrows comm. Not collective. */
tacit_status taciti_calls_create(taciti_comm *comm, int flow, taciti_calls **out);
/* Frees the memory alone. NULL is fine. */
void taciti_calls_destroy(taciti_calls *calls);

/* Begins to listen; ends it, with the last message to the others. Collective. */
tacit_status taciti_calls_begin(taciti_calls *calls);
tacit_status taciti_calls_end(taciti_calls *calls);

/* Takes in and passes on what has been said. Does not block. In a job of any flow. */
tacit_status taciti_calls_move(taciti_calls *calls);

/* At the end of a step. due: this rank has reason to meet. Returns whether it is to gather() now. Any thread; not
 * collective. */
bool taciti_calls_answer(taciti_calls *calls, bool due);
/* Waits until all are ready; then nobody is called any more. Something collective must follow before the next call of
 * answer. Submitting thread. Collective; ranks that make steps are called. */
tacit_status taciti_calls_gather(taciti_calls *calls);

#endif
