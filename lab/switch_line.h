/* SPDX-License-Identifier: Apache-2.0 */
/* The links of the switch in virtual time: computes when an incoming frame reaches its destination. Pure arithmetic on
 * nanoseconds, without clock or device. */
#ifndef TACIT_LAB_SWITCH_LINE_H
#define TACIT_LAB_SWITCH_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The settings of one host's link. The switch enforces the rate towards the host. The host's own tbf enforces the rate
 * from the host, where TCP sees how full the queue is. The delay of a path is half the sum of both links' delays. */
typedef struct {
    uint64_t rate_bps; /* 0: no limit */
    uint64_t delay_ns, jitter_ns;
    uint32_t loss_ppm; /* of frames that enter the switch on this link */
    bool cut;
} taciti_shaped_link;

/* The queue of a switch port towards its host. */
typedef struct {
    uint64_t free_ns; /* when the last queued bit leaves */
} taciti_port_queue;

/* Pseudo-random source of jitter and losses (xorshift64*), which makes a cluster behave the same each time. */
typedef struct {
    uint64_t state;           /* never 0 */
    uint64_t jitter_until_ns; /* end of the current offset's validity */
    uint64_t offset_ns;       /* 0 .. 2 jitter */
} taciti_link_noise;

enum { TACITI_JITTER_STEP_NS = 1000000 };

/* Above this rate, 50 ms of queue times the nanoseconds of a second overflow 64 bits. */
#define TACITI_MAX_RATE_BPS UINT64_C(100000000000)
enum { TACITI_MAX_DELAY_NS = 2000000000 };

/* Returns the nanoseconds that this many bytes take on a link; 0 if its rate is not limited. */
uint64_t taciti_shaped_link_serial_ns(uint64_t rate_bps, size_t bytes);

/* Returns the queue capacity of a port: 50 ms of its rate, at least 1 MB. lab/cluster configures tbf with the same
 * size. */
uint64_t taciti_shaped_link_queue_bytes(uint64_t rate_bps);

/* Returns true if this incoming frame is lost. */
bool taciti_shaped_link_loses(const taciti_shaped_link *link, taciti_link_noise *noise);

/* Returns when a frame that enters on `from` at now_ns reaches the port towards `to`. Frames of a path never overtake
 * each other: *last_ns is when its last one does. */
uint64_t taciti_shaped_link_arrival_ns(const taciti_shaped_link *from, const taciti_shaped_link *to,
                                       taciti_link_noise *noise, uint64_t *last_ns, uint64_t now_ns);

/* Appends a frame to the port's queue; *leaves_ns receives the time when its last bit reaches the host. Returns false
 * if the queue is full. */
bool taciti_port_enqueue(taciti_port_queue *queue, const taciti_shaped_link *link, uint64_t now_ns, size_t bytes,
                         uint64_t *leaves_ns);

/* A queue of timed events, earliest first; events of equal time are in order of insertion. */
typedef struct {
    uint64_t at_ns, order;
    void *what;
} taciti_event;

typedef struct {
    taciti_event *heap; /* owned */
    size_t count, capacity;
    uint64_t next_order;
} taciti_agenda;

bool taciti_agenda_put(taciti_agenda *agenda, uint64_t at_ns, void *what); /* false: out of memory */
void *taciti_agenda_take(taciti_agenda *agenda); /* removes the earliest; the agenda must not be empty */

#endif
