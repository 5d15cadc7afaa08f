/* SPDX-License-Identifier: Apache-2.0 */
/* TAP devices: the network card of an emulated host, whose other end is a file descriptor of the switch. */
#ifndef TACIT_LAB_SWITCH_TAP_H
#define TACIT_LAB_SWITCH_TAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A frame as it is read and written: a virtio header, then Ethernet. With segmentation left to the card, as on real
 * cards, one such frame stands for up to 64 KB of TCP; the switch passes it on whole. */
enum { TACITI_FRAME_BYTES = 65536 + 128, TACITI_TAP_PORTS = 64 };

/* Makes eth0 in a network namespace (a file such as /run/netns/lab-n0) with the address 02:00:00:00:00:PORT. The caller
 * is back in its own namespace afterwards. -1: failed, and stderr says what. */
int taciti_tap_open(const char *namespace_path, unsigned port, size_t mtu, bool whole_segments);

/* Bytes that a frame takes on a link: each segment that it stands for has headers of its own. */
size_t taciti_tap_wire_bytes(const uint8_t *frame, size_t bytes);

/* The port of a frame's destination, TACITI_TAP_PORTS for all of them, or -1 when it belongs to nobody. */
int taciti_tap_destination(const uint8_t *frame, size_t bytes);

#endif
