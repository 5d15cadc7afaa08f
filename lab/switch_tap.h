/* SPDX-License-Identifier: Apache-2.0 */
/* TAP devices: the network card of an emulated host; the switch reads and writes its frames through a file descriptor.
 */
#ifndef TACIT_LAB_SWITCH_TAP_H
#define TACIT_LAB_SWITCH_TAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A frame as read and written: a virtio header, then Ethernet. With segmentation offload, as on real cards, one frame
 * stands for up to 64 KB of TCP; the switch forwards it whole. */
enum { TACITI_FRAME_BYTES = 65536 + 128, TACITI_TAP_PORTS = 64 };

/* Creates eth0 with the address 02:00:00:00:00:PORT in a network namespace (a file such as /run/netns/lab-n0). The
 * caller stays in its own namespace. Returns -1, with a line on stderr, on failure. */
int taciti_tap_open(const char *namespace_path, unsigned port, size_t mtu, bool whole_segments);

/* Returns the bytes that a frame takes on a link, including the headers of each segment that it stands for. */
size_t taciti_tap_wire_bytes(const uint8_t *frame, size_t bytes);

/* Returns the port of a frame's destination, TACITI_TAP_PORTS for a multicast, or -1 for an unknown address. */
int taciti_tap_destination(const uint8_t *frame, size_t bytes);

#endif
