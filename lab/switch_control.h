/* SPDX-License-Identifier: Apache-2.0 */
/* The control protocol of a running switch: one datagram of words to its socket, one datagram back.
 *
 *   rate PORT BPS      delay PORT NS      cut PORT      heal PORT
 *   stat     one line per port: frames, bytes, dropped by the full queue, lost by chance, discarded by the cut
 *
 * The answer starts with "ok" or "error: ". */
#ifndef TACIT_LAB_SWITCH_CONTROL_H
#define TACIT_LAB_SWITCH_CONTROL_H

#include <stdbool.h>
#include <stddef.h>

#include "switch_line.h"
#include "switch_tap.h"

enum { TACITI_CONTROL_BYTES = 16384 };

typedef struct {
    uint64_t frames, bytes;            /* received from the host */
    uint64_t dropped, lost, discarded; /* by a full queue towards the host; by loss; by a cut link */
} taciti_port_count;

typedef struct {
    taciti_shaped_link link;
    taciti_link_noise noise;
    taciti_port_queue queue;
    taciti_port_count count;
    uint64_t last_ns[TACITI_TAP_PORTS]; /* when the last frame reaches each port */
    int tap;
} taciti_port;

/* Reads a whole number of decimal digits, at most max. Returns false, and leaves *number, for any other word and NULL.
 */
bool taciti_control_number(const char *word, uint64_t max, uint64_t *number);

/* Executes a request and writes the answer. */
void taciti_control_apply(char *request, taciti_port *ports, size_t port_count, char answer[TACITI_CONTROL_BYTES]);

/* Opens the control socket of a switch and replaces a stale one. Returns -1, with a line on stderr, on failure. */
int taciti_control_listen(const char *path);

/* Receives and answers one request. */
void taciti_control_serve(int control, taciti_port *ports, size_t port_count);

/* The client: sends words and prints the answer. Returns an exit status: 0, 1 if the answer is an error, 7 if there is
 * none. */
int taciti_control_ask(const char *path, int argc, char **argv);

#endif
