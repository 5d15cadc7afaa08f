/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "switch_tap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEADER_BYTES = sizeof(struct virtio_net_hdr), ETHERNET_BYTES = 14 };

static int complain(const char *what, const char *where) {
    fprintf(stderr, "tacit-switch: %s of %s: %s\n", what, where, strerror(errno));
    return -1;
}

static int make_tap(const char *where, bool whole_segments) {
    const int tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (tap < 0) return complain("opening /dev/net/tun (kernel feature CONFIG_TUN; modprobe tun)", where);
    struct ifreq request = {.ifr_name = "eth0", .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
    const int header_bytes = HEADER_BYTES;
    const unsigned long offloads = whole_segments ? TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 : 0;
    if (ioctl(tap, TUNSETIFF, &request) == 0 && ioctl(tap, TUNSETVNETHDRSZ, &header_bytes) == 0 &&
        ioctl(tap, TUNSETOFFLOAD, offloads) == 0)
        return tap;
    (void)complain("making the TAP device", where);
    (void)close(tap);
    return -1;
}

/* Address, frame size and a transmit queue that holds what tbf lets out in one burst. */
static int set_up_device(const char *where, unsigned port, size_t mtu) {
    const int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (control < 0) return complain("opening a socket", where);
    struct ifreq address = {.ifr_name = "eth0", .ifr_hwaddr = {.sa_family = ARPHRD_ETHER}};
    struct ifreq size = {.ifr_name = "eth0", .ifr_mtu = (int)mtu}, queue = {.ifr_name = "eth0", .ifr_qlen = 4000};
    const uint8_t bytes[6] = {2, 0, 0, 0, 0, (uint8_t)port};
    memcpy(address.ifr_hwaddr.sa_data, bytes, sizeof bytes);
    const bool done = ioctl(control, SIOCSIFHWADDR, &address) == 0 && ioctl(control, SIOCSIFMTU, &size) == 0 &&
                      ioctl(control, SIOCSIFTXQLEN, &queue) == 0;
    const int result = done ? 0 : complain("setting address, MTU and queue", where);
    (void)close(control);
    return result;
}

int taciti_tap_open(const char *namespace_path, unsigned port, size_t mtu, bool whole_segments) {
    const int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), other = open(namespace_path, O_RDONLY | O_CLOEXEC);
    int tap = -1;
    if (own < 0 || other < 0 || setns(other, CLONE_NEWNET) != 0) {
        (void)complain("entering the network namespace", namespace_path);
    } else {
        tap = make_tap(namespace_path, whole_segments);
        const bool ready = tap >= 0 && set_up_device(namespace_path, port, mtu) == 0;
        const bool back =
            setns(own, CLONE_NEWNET) == 0 || complain("coming back from the namespace", namespace_path) == 0;
        if (tap >= 0 && !(ready && back)) {
            (void)close(tap);
            tap = -1;
        }
    }
    if (own >= 0) (void)close(own);
    if (other >= 0) (void)close(other);
    return tap;
}

/* Ethernet, IP and TCP headers of a frame that stands for several segments. The virtio field hdr_len is only a hint, so
 * the TCP header is looked at: it starts where its checksum does, and the upper half of its byte 12 counts words of 4
 * bytes. */
static size_t segment_header_bytes(const uint8_t *ethernet, size_t wire_bytes, const struct virtio_net_hdr *header) {
    const size_t tcp = header->csum_start;
    if (!(header->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) || tcp + 12 >= wire_bytes) return 0;
    return tcp + (size_t)(ethernet[tcp + 12] >> 4) * 4;
}

size_t taciti_tap_wire_bytes(const uint8_t *frame, size_t bytes) {
    struct virtio_net_hdr header;
    memcpy(&header, frame, sizeof header);
    const size_t wire_bytes = bytes - HEADER_BYTES;
    if (header.gso_type == VIRTIO_NET_HDR_GSO_NONE || header.gso_size == 0) return wire_bytes;
    const size_t header_bytes = segment_header_bytes(frame + HEADER_BYTES, wire_bytes, &header);
    if (wire_bytes <= header_bytes) return wire_bytes;
    const size_t segments = (wire_bytes - header_bytes + header.gso_size - 1) / header.gso_size;
    return wire_bytes + (segments - 1) * header_bytes;
}

int taciti_tap_destination(const uint8_t *frame, size_t bytes) {
    if (bytes < HEADER_BYTES + ETHERNET_BYTES) return -1;
    const uint8_t *address = frame + HEADER_BYTES;
    if (address[0] & 1) return TACITI_TAP_PORTS;
    static const uint8_t ours[5] = {2, 0, 0, 0, 0};
    return memcmp(address, ours, sizeof ours) == 0 && address[5] < TACITI_TAP_PORTS ? address[5] : -1;
}
