/* SPDX-License-Identifier: Apache-2.0 */
/* The links of the switch in virtual time: when does a frame that comes in now reach the host it is for? Pure
 * arithmetic on nanoseconds, no clock and no device. */
#ifndef TACIT_LAB_SWITCH_LINE_H
#define TACIT_LAB_SWITCH_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is set of one host's link. Its rate downwards is kept here; upwards the host's own tbf keeps it, where TCP can
 * see how full that queue is. The delay of a path is half of the one link's plus half of the other's. */
typedef struct {
    uint64_t rate_bps; /* 0: no limit */
    uint64_t delay_ns, jitter_ns;
    uint32_t loss_ppm; /* of frames that enter the switch on this link */
    bool cut;
} taciti_shaped_link;

/* The queue of a switch port, towards the host. */
typedef struct {
    uint64_t free_ns; /* when the last bit of what is queued has left */
} taciti_port_queue;

/* A source of the jitter and the losses: xorshift64*, so that a cluster behaves the same each time. */
typedef struct {
    uint64_t state;           /* never 0 */
    uint64_t jitter_until_ns; /* the present offset holds so long */
    uint64_t offset_ns;       /* 0 .. 2 jitter */
    uint64_t last_ns;         /* frames of a link never overtake each other */
} taciti_link_noise;

enum { TACITI_JITTER_STEP_NS = 1000000 };

/* Above it, 50 ms of queue times the nanoseconds of a second leave 64 bits. */
#define TACITI_MAX_RATE_BPS UINT64_C(100000000000)

/* Nanoseconds that this many bytes take on a link; 0 without a limit. */
uint64_t taciti_shaped_link_serial_ns(uint64_t rate_bps, size_t bytes);

/* Bytes that a port may hold: 50 ms of its rate, at least 1 MB, the same as lab/cluster gives tbf. */
uint64_t taciti_shaped_link_queue_bytes(uint64_t rate_bps);

/* True: this frame is lost on the way in. */
bool taciti_shaped_link_loses(const taciti_shaped_link *link, taciti_link_noise *noise);

/* When a frame that enters on FROM at now_ns stands at the port towards TO. */
uint64_t taciti_shaped_link_arrival_ns(const taciti_shaped_link *from, const taciti_shaped_link *to,
                                       taciti_link_noise *noise, uint64_t now_ns);

/* Takes the frame into the port's queue: *leaves_ns is when its last bit has reached the host. False: the queue is
 * full. */
bool taciti_port_enqueue(taciti_port_queue *queue, const taciti_shaped_link *link, uint64_t now_ns, size_t bytes,
                         uint64_t *leaves_ns);

/* Things that happen at a time, earliest first, those of one time in the order in which they came. */
typedef struct {
    uint64_t at_ns, order;
    void *what;
} taciti_event;

typedef struct {
    taciti_event *heap;
    size_t count, capacity;
    uint64_t next_order;
} taciti_agenda;

bool taciti_agenda_put(taciti_agenda *agenda, uint64_t at_ns, void *what); /* false: out of memory */
void *taciti_agenda_take(taciti_agenda *agenda); /* the earliest; the agenda must not be empty */
void taciti_agenda_free(taciti_agenda *agenda);  /* the things themselves are the caller's */

#endif
