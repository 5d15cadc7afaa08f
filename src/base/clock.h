/* SPDX-License-Identifier: Apache-2.0
 *
 * Clocks and sleeping. All waits and measurements use the monotonic clock, so a jump of the wall clock cannot be
 * mistaken for a dead peer.
 */
#ifndef TACITI_BASE_CLOCK_H
#define TACITI_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define TACITI_NS_PER_S INT64_C(1000000000)
#define TACITI_NS_PER_MS INT64_C(1000000)

/* Monotonic nanoseconds since an arbitrary point in the past, on this host. Any thread. */
int64_t taciti_now_ns(void);

/* Processor time used by the calling thread, in nanoseconds. It does not advance while the thread is not scheduled. Any
 * thread. */
int64_t taciti_thread_ns(void);

/* Processor time used by all threads of the process, in nanoseconds. Any thread. */
int64_t taciti_process_ns(void);

/* Wall clock, nanoseconds since 1970. For file names and logs only. Any thread. */
int64_t taciti_wall_ns(void);

/* Sleeps for at least `ns` nanoseconds, even if signals arrive. Returns at once if ns <= 0. Any thread. */
void taciti_sleep_ns(int64_t ns);

/* Sleeps before another look for something that somebody else provides: 1 ms if *nap_ns is 0, then twice as long each
 * time, up to 100 ms. Returns false, at once, if end_ns has passed. Any thread. */
bool taciti_sleep_between_looks(int64_t end_ns, int64_t *nap_ns);

/* Sleeps until taciti_now_ns() >= deadline_ns, even if signals arrive. Returns at once if the deadline has passed.
 * Minimises the kernel's timer slack: on an idle core the thread wakes within tens of microseconds of the deadline. Any
 * thread. */
void taciti_sleep_until_ns(int64_t deadline_ns);

/* Requests a short scheduler slice for the calling thread from now on. The thread is then scheduled as soon as it
 * wakes, even while threads of equal weight occupy the cores; its share of the CPU does not change. Meant for threads
 * that mostly sleep or poll and must react promptly. Needs Linux 6.12; no effect elsewhere. Any thread. */
void taciti_thread_short_turns(void);

#endif
