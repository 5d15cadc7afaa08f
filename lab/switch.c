/* SPDX-License-Identifier: Apache-2.0 */
/* tacit-switch: an Ethernet switch in user space for emulated clusters, where the kernel has no netem: rate, delay,
 * jitter and loss per link, changed at run time. lab/cluster starts it; docs/lab.md describes what it is faithful to.
 *
 *   tacit-switch serve SOCKET MTU_BYTES RATE_BPS DELAY_NS JITTER_NS LOSS_PPM NAMESPACE...     until a signal ends it
 *   tacit-switch ask SOCKET WORDS...                                                          see switch_control.h
 *
 * One thread. Each host has a TAP device; a frame that is read from one gets its times in virtual nanoseconds
 * (switch_line.h) and waits on an agenda: first until it stands at the port of its destination, then until its last bit
 * has left there. Since times are computed and not slept, being woken late delays single frames but lowers no rate. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "switch_control.h"
#include "switch_line.h"
#include "switch_tap.h"

typedef struct {
    bool queued; /* false: on its way to the port; true: leaving the port */
    uint8_t source, destination;
    size_t bytes, wire_bytes;
    uint8_t data[];
} frame;

typedef struct {
    taciti_port ports[TACITI_TAP_PORTS];
    size_t port_count;
    taciti_agenda agenda;
    int poll, timer, control;
    uint8_t scratch[TACITI_FRAME_BYTES]; /* where frames are read; most are shorter, and a copy is cheap */
} taciti_switch;

/* Events that epoll reports beside those of ports. */
enum { TIMER = TACITI_TAP_PORTS, CONTROL };

static uint64_t now_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void put_on_agenda(taciti_switch *self, uint64_t at_ns, frame *what) {
    if (taciti_agenda_put(&self->agenda, at_ns, what)) return;
    self->ports[what->destination].count.dropped++;
    free(what);
}

static void send_towards(taciti_switch *self, size_t source, size_t destination, size_t bytes, uint64_t now) {
    taciti_port *from = &self->ports[source], *to = &self->ports[destination];
    if (from->link.cut || to->link.cut) {
        to->count.discarded++;
        return;
    }
    frame *copy = malloc(sizeof *copy + bytes);
    if (copy == NULL) {
        to->count.dropped++;
        return;
    }
    *copy = (frame){.source = (uint8_t)source, .destination = (uint8_t)destination, .bytes = bytes};
    copy->wire_bytes = taciti_tap_wire_bytes(self->scratch, bytes);
    memcpy(copy->data, self->scratch, bytes);
    uint64_t *last_ns = &from->last_ns[destination];
    put_on_agenda(self, taciti_shaped_link_arrival_ns(&from->link, &to->link, &from->noise, last_ns, now), copy);
}

static void take_in(taciti_switch *self, size_t source, size_t bytes) {
    taciti_port *port = &self->ports[source];
    const int destination = taciti_tap_destination(self->scratch, bytes);
    if (destination < 0) return;
    port->count.frames++;
    port->count.bytes += taciti_tap_wire_bytes(self->scratch, bytes);
    if (taciti_shaped_link_loses(&port->link, &port->noise)) {
        port->count.lost++;
        return;
    }
    const uint64_t now = now_ns();
    for (size_t i = 0; i < self->port_count; i++)
        if (i != source && (destination == TACITI_TAP_PORTS || (size_t)destination == i))
            send_towards(self, source, i, bytes, now);
}

/* A few frames at a time, so that no host keeps the others waiting. */
static void read_port(taciti_switch *self, size_t source) {
    for (int i = 0; i < 16; i++) {
        const ssize_t got = read(self->ports[source].tap, self->scratch, sizeof self->scratch);
        if (got <= 0) return;
        take_in(self, source, (size_t)got);
    }
}

static void deliver_frame(taciti_switch *self, frame *what) {
    taciti_port *port = &self->ports[what->destination];
    if (port->link.cut || self->ports[what->source].link.cut)
        port->count.discarded++;
    else if (write(port->tap, what->data, what->bytes) < 0)
        port->count.dropped++;
    free(what);
}

static void enqueue_frame(taciti_switch *self, frame *what, uint64_t at_ns) {
    taciti_port *port = &self->ports[what->destination];
    uint64_t leaves_ns;
    if (!taciti_port_enqueue(&port->queue, &port->link, at_ns, what->wire_bytes, &leaves_ns)) {
        port->count.dropped++;
        free(what);
        return;
    }
    what->queued = true;
    put_on_agenda(self, leaves_ns, what);
}

static void do_what_is_due(taciti_switch *self) {
    while (self->agenda.count > 0 && self->agenda.heap[0].at_ns <= now_ns()) {
        const uint64_t at_ns = self->agenda.heap[0].at_ns;
        frame *what = taciti_agenda_take(&self->agenda);
        if (what->queued)
            deliver_frame(self, what);
        else
            enqueue_frame(self, what, at_ns);
    }
}

static void set_alarm(const taciti_switch *self) {
    struct itimerspec alarm = {0};
    if (self->agenda.count > 0) {
        const uint64_t at_ns = self->agenda.heap[0].at_ns;
        alarm.it_value =
            (struct timespec){.tv_sec = (time_t)(at_ns / 1000000000u), .tv_nsec = (long)(at_ns % 1000000000u)};
    }
    (void)timerfd_settime(self->timer, TFD_TIMER_ABSTIME, &alarm, NULL);
}

static _Noreturn void serve_ports(taciti_switch *self) {
    struct epoll_event events[TACITI_TAP_PORTS];
    for (;;) {
        set_alarm(self);
        const int ready = epoll_wait(self->poll, events, TACITI_TAP_PORTS, -1);
        for (int i = 0; i < ready; i++) {
            const uint32_t which = events[i].data.u32;
            uint64_t expirations;
            if (which == TIMER)
                (void)!read(self->timer, &expirations, sizeof expirations);
            else if (which == CONTROL)
                taciti_control_serve(self->control, self->ports, self->port_count);
            else
                read_port(self, which);
        }
        do_what_is_due(self);
    }
}

static bool watch_port(const taciti_switch *self, int file, uint32_t which) {
    struct epoll_event event = {.events = EPOLLIN, .data = {.u32 = which}};
    if (file >= 0 && epoll_ctl(self->poll, EPOLL_CTL_ADD, file, &event) == 0) return true;
    fprintf(stderr, "tacit-switch: watching a file descriptor: %s\n", strerror(errno));
    return false;
}

static bool open_files(taciti_switch *self, const char *control_path) {
    self->poll = epoll_create1(EPOLL_CLOEXEC);
    self->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    self->control = taciti_control_listen(control_path);
    return self->control >= 0 && watch_port(self, self->timer, TIMER) && watch_port(self, self->control, CONTROL);
}

/* Ahead of the ranks, which would otherwise spin while their frames wait here. Without the right the rates still hold.
 */
static void run_first(void) {
    const struct sched_param priority = {.sched_priority = 20};
    if (sched_setscheduler(0, SCHED_FIFO, &priority) != 0)
        fprintf(stderr,
                "tacit-switch: warning: no real-time priority (%s): frames will be late when the cores are busy\n",
                strerror(errno));
}

enum { FIRST_NAMESPACE = 8 };

static bool read_settings(int argc, char **argv, size_t *mtu, taciti_shaped_link *link) {
    uint64_t mtu_bytes = 0, loss_ppm = 0;
    if (argc <= FIRST_NAMESPACE || argc > FIRST_NAMESPACE + TACITI_TAP_PORTS) return false;
    if (!taciti_control_number(argv[3], 65000, &mtu_bytes) || mtu_bytes < 576) return false;
    if (!taciti_control_number(argv[4], TACITI_MAX_RATE_BPS, &link->rate_bps)) return false;
    if (!taciti_control_number(argv[5], TACITI_MAX_DELAY_NS, &link->delay_ns)) return false;
    if (!taciti_control_number(argv[6], TACITI_MAX_DELAY_NS, &link->jitter_ns)) return false;
    if (!taciti_control_number(argv[7], 1000000, &loss_ppm)) return false;
    *mtu = (size_t)mtu_bytes;
    link->loss_ppm = (uint32_t)loss_ppm;
    return true;
}

static int serve_command(int argc, char **argv) {
    static taciti_switch self;
    size_t mtu = 0;
    taciti_shaped_link link = {0};
    if (!read_settings(argc, argv, &mtu, &link)) {
        fputs("usage: tacit-switch serve SOCKET MTU_BYTES RATE_BPS DELAY_NS JITTER_NS LOSS_PPM NAMESPACE...\n", stderr);
        return 2;
    }
    if (!open_files(&self, argv[2])) return 7;
    /* Losses strike single frames, so then the hosts have to send single frames. */
    const bool whole_segments = link.loss_ppm == 0;
    for (int i = FIRST_NAMESPACE; i < argc; i++) {
        const size_t number = self.port_count++;
        taciti_port *port = &self.ports[number];
        *port = (taciti_port){.link = link, .noise = {.state = 0x9E3779B97F4A7C15u * (number + 1)}};
        port->tap = taciti_tap_open(argv[i], (unsigned)number, mtu, whole_segments);
        if (port->tap < 0 || !watch_port(&self, port->tap, (uint32_t)number)) return 7;
    }
    run_first();
    serve_ports(&self);
}

int main(int argc, char **argv) {
    if (argc > 3 && strcmp(argv[1], "ask") == 0) return taciti_control_ask(argv[2], argc - 3, argv + 3);
    if (argc > 1 && strcmp(argv[1], "serve") == 0) return serve_command(argc, argv);
    fprintf(stderr, "usage: tacit-switch serve ... | tacit-switch ask SOCKET WORDS...\n");
    return 2;
}
