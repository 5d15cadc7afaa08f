/* SPDX-License-Identifier: Apache-2.0
 *
 * Time. Everything that waits or measures uses the monotonic clock, so that a jump of the wall clock can never look
 * like a dead peer.
 */
#ifndef TACITI_BASE_CLOCK_H
#define TACITI_BASE_CLOCK_H

#include <stdint.h>

#define TACITI_NS_PER_S INT64_C(1000000000)
#define TACITI_NS_PER_MS INT64_C(1000000)

/* Monotonic nanoseconds since an arbitrary start of this machine. Any thread. */
int64_t taciti_now_ns(void);

/* Processor time that the calling thread has used, nanoseconds; on a core of its own it runs like the monotonic clock,
 * and it stands still while others have the core. Any thread. */
int64_t taciti_thread_ns(void);

/* Wall clock, nanoseconds since 1970; for names and log files only. Any thread. */
int64_t taciti_wall_ns(void);

/* Sleeps at least `ns` nanoseconds (signals do not cut it short); returns at once when ns <= 0. Any thread. */
void taciti_sleep_ns(int64_t ns);

/* Sleeps until taciti_now_ns() is `deadline_ns` or later (signals do not cut it short), and asks the kernel not to
 * delay the wake-up in order to bundle it with others: on an idle core it comes within tens of microseconds. Returns at
 * once when the time has passed. Any thread. */
void taciti_sleep_until_ns(int64_t deadline_ns);

/* From now on the calling thread asks the scheduler for short turns, which lets it run at once when it wakes up while
 * others of equal weight have the cores: its share does not change. For a thread that mostly sleeps, or looks and
 * yields, and must be punctual. Needs Linux 6.12; without effect elsewhere. Any thread. */
void taciti_thread_short_turns(void);

#endif
