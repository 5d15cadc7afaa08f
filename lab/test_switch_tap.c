/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <linux/virtio_net.h>

#include "switch_tap.h"

enum { HEADER_BYTES = sizeof(struct virtio_net_hdr), ETHERNET_BYTES = 14, IP_BYTES = 20, TCP_BYTES = 32 };

static uint8_t frame[TACITI_FRAME_BYTES];

static void write_header(struct virtio_net_hdr header) {
    memset(frame, 0, sizeof frame);
    memcpy(frame, &header, sizeof header);
    if (header.csum_start > 0) frame[HEADER_BYTES + header.csum_start + 12] = TCP_BYTES / 4 << 4;
}

static void a_plain_frame_takes_its_bytes(void **state) {
    (void)state;
    write_header((struct virtio_net_hdr){0});
    assert_int_equal(taciti_tap_wire_bytes(frame, HEADER_BYTES + 9014), 9014);
    assert_int_equal(taciti_tap_wire_bytes(frame, HEADER_BYTES), 0);
}

/* A piece that TCP hands over takes as many bytes as its segments do one by one. */
static void segments_have_headers_each(void **state) {
    (void)state;
    const size_t header = ETHERNET_BYTES + IP_BYTES + TCP_BYTES, segment = 8948;
    write_header((struct virtio_net_hdr){.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                         .gso_type = VIRTIO_NET_HDR_GSO_TCPV4,
                                         .hdr_len = 4000, /* a hint, and a wrong one */
                                         .gso_size = (uint16_t)segment,
                                         .csum_start = ETHERNET_BYTES + IP_BYTES});
    for (size_t payload = 1; payload < 65000; payload += 777) {
        size_t one_by_one = 0;
        for (size_t left = payload; left > 0; left -= left < segment ? left : segment)
            one_by_one += header + (left < segment ? left : segment);
        assert_int_equal(taciti_tap_wire_bytes(frame, HEADER_BYTES + header + payload), one_by_one);
    }
}

static void headers_that_lie_are_survived(void **state) {
    (void)state;
    struct virtio_net_hdr header = {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                    .gso_type = VIRTIO_NET_HDR_GSO_TCPV4,
                                    .gso_size = 100,
                                    .csum_start = 65535};
    memset(frame, 0, sizeof frame);
    memcpy(frame, &header, sizeof header);
    assert_true(taciti_tap_wire_bytes(frame, HEADER_BYTES + 60) >= 60);
    header.gso_size = 0;
    memcpy(frame, &header, sizeof header);
    assert_int_equal(taciti_tap_wire_bytes(frame, HEADER_BYTES + 60), 60);
}

static int destination_of(const uint8_t address[6]) {
    write_header((struct virtio_net_hdr){0});
    memcpy(frame + HEADER_BYTES, address, 6);
    return taciti_tap_destination(frame, HEADER_BYTES + 60);
}

static void frames_go_to_their_port(void **state) {
    (void)state;
    assert_int_equal(destination_of((const uint8_t[6]){2, 0, 0, 0, 0, 0}), 0);
    assert_int_equal(destination_of((const uint8_t[6]){2, 0, 0, 0, 0, 63}), 63);
    assert_int_equal(destination_of((const uint8_t[6]){2, 0, 0, 0, 0, 64}), -1);
    assert_int_equal(destination_of((const uint8_t[6]){2, 0, 0, 0, 1, 3}), -1);
    assert_int_equal(destination_of((const uint8_t[6]){0, 1, 2, 3, 4, 5}), -1);
    assert_int_equal(destination_of((const uint8_t[6]){255, 255, 255, 255, 255, 255}), TACITI_TAP_PORTS);
    assert_int_equal(destination_of((const uint8_t[6]){1, 0, 94, 0, 0, 1}), TACITI_TAP_PORTS);
}

static void short_frames_belong_to_nobody(void **state) {
    (void)state;
    (void)destination_of((const uint8_t[6]){2, 0, 0, 0, 0, 1});
    for (size_t bytes = 0; bytes < HEADER_BYTES + ETHERNET_BYTES; bytes++)
        assert_int_equal(taciti_tap_destination(frame, bytes), -1);
    assert_int_equal(taciti_tap_destination(frame, HEADER_BYTES + ETHERNET_BYTES), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_frame_takes_its_bytes), cmocka_unit_test(segments_have_headers_each),
        cmocka_unit_test(headers_that_lie_are_survived), cmocka_unit_test(frames_go_to_their_port),
        cmocka_unit_test(short_frames_belong_to_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
