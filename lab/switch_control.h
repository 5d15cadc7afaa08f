/* SPDX-License-Identifier: Apache-2.0 */
/* How a running switch is spoken to: one datagram of words to its socket, one datagram back.
 *
 *   rate PORT|all BPS      delay PORT|all NS      cut PORT      heal PORT
 *   stat     one line per port: frames, bytes, dropped by the full queue, lost by chance, discarded by the cut
 *   quit
 *
 * The answer starts with "ok" or "error: ". */
#ifndef TACIT_LAB_SWITCH_CONTROL_H
#define TACIT_LAB_SWITCH_CONTROL_H

#include <stdbool.h>
#include <stddef.h>

#include "switch_line.h"

enum { TACITI_CONTROL_BYTES = 16384 };

typedef struct {
    uint64_t frames, bytes;            /* that came in from the host */
    uint64_t dropped, lost, discarded; /* on the way to the host; on the way in; by the cut */
} taciti_port_count;

typedef struct {
    taciti_shaped_link link;
    taciti_link_noise noise;
    taciti_port_queue queue;
    taciti_port_count count;
    int tap;
} taciti_port;

/* Carries out a request; writes the answer. Sets *quit when that was asked. */
void taciti_control_apply(char *request, taciti_port *ports, size_t port_count, bool *quit,
                          char answer[TACITI_CONTROL_BYTES]);

/* The socket of a switch, or -1 with a line on stderr. Takes the place of a socket that nobody serves any more. */
int taciti_control_listen(const char *path);

/* Answers one waiting request. */
void taciti_control_serve(int control, taciti_port *ports, size_t port_count, bool *quit);

/* The other side: sends words, prints the answer. Returns an exit status: 0, 1 for an error in the answer, 7 for none.
 */
int taciti_control_ask(const char *path, int argc, char **argv);

#endif
