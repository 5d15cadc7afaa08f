/* SPDX-License-Identifier: Apache-2.0
 *
 * What the TCP engine reads from strangers: hellos, headers of frames and records of the bootstrap store. Byte 0
 * chooses the parser and whether the checksum is made right first, since a mutation hardly ever finds it. What is
 * accepted must be legal and must be written as the same bytes.
 */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "comm/tcp_frame.h"
#include "fuzz.h"

enum { EPOCH = 3, NUMBER = 5 };

static const taciti_hello EXPECTED = {.cookie = "0123456789abcdef", .epoch = EPOCH, .to = 1, .size = 4, .streams = 2};

static void need(int condition) {
    if (!condition) abort();
}

static void read_frame(uint8_t *bytes, int repair) {
    taciti_frame frame;
    uint8_t again[TACITI_FRAME_HEADER_BYTES];
    const uint32_t sum = (uint32_t)XXH3_64bits(bytes + 4, TACITI_FRAME_HEADER_BYTES - 4);
    if (repair) memcpy(bytes, &sum, sizeof sum);
    if (taciti_frame_read(bytes, EPOCH, NUMBER, &frame) != NULL) return;
    need(frame.bytes <= TACITI_FRAME_CHUNK_BYTES && frame.value <= SIZE_MAX / 2);
    need(frame.kind == TACITI_FRAME_EAGER || frame.kind == TACITI_FRAME_CHUNK || frame.bytes == 0);
    taciti_frame_write(&frame, EPOCH, NUMBER, again);
    need(memcmp(bytes, again, sizeof again) == 0);
}

static void read_hello(uint8_t *bytes, int repair) {
    taciti_hello hello;
    uint8_t again[TACITI_HELLO_BYTES];
    const uint64_t sum = XXH3_64bits(bytes, 56);
    if (repair) memcpy(bytes + 56, &sum, sizeof sum);
    if (taciti_hello_read(bytes, &EXPECTED, &hello) != NULL) return;
    need(hello.from >= 0 && hello.from < 4 && hello.from != 1 && hello.stream >= 0 && hello.stream < 2);
    taciti_hello_write(&hello, again);
    need(memcmp(bytes, again, sizeof again) == 0);
}

static void read_record(uint8_t *bytes, size_t n, int repair) {
    taciti_tcp_record record;
    uint8_t again[TACITI_RECORD_BYTES];
    if (repair && n == TACITI_RECORD_BYTES) {
        const uint64_t sum = XXH3_64bits(bytes, 248);
        memcpy(bytes + 248, &sum, sizeof sum);
    }
    if (taciti_tcp_record_read(bytes, n, &record) != NULL) return;
    need(record.rank >= 0 && record.rank < record.size && record.streams > 0 && record.port > 0);
    need(record.addresses > 0 && record.addresses <= TACITI_RECORD_ADDRESSES);
    need(memchr(record.local, 0, sizeof record.local) != NULL);
    taciti_tcp_record_write(&record, again);
    need(taciti_tcp_record_read(again, sizeof again, &record) == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t bytes[TACITI_RECORD_BYTES] = {0};
    if (size < 1 || size > 1 + sizeof bytes) return 0;
    memcpy(bytes, data + 1, size - 1);
    const int repair = data[0] & 4;
    switch (data[0] % 3) {
    case 0: read_frame(bytes, repair); break;
    case 1: read_hello(bytes, repair); break;
    default: read_record(bytes, size - 1, repair); break;
    }
    return 0;
}

size_t fuzz_seed(size_t i, uint8_t *out) {
    static const taciti_tcp_record RECORD = {
        .local = "tacit-1", .size = 2, .streams = 1, .port = 1, .addresses = 2, .address = {{4, {127}}, {6, {1}}}};
    taciti_hello hello = EXPECTED;
    if (i >= 2 + TACITI_FRAME_GOODBYE) return 0;
    if (i == 0) {
        out[0] = 4; /* 4 % 3 == 1 */
        taciti_hello_write(&hello, out + 1);
        return 1 + TACITI_HELLO_BYTES;
    }
    if (i == 1) {
        out[0] = 5;
        taciti_tcp_record_write(&RECORD, out + 1);
        return 1 + TACITI_RECORD_BYTES;
    }
    const taciti_frame_kind kind = (taciti_frame_kind)(i - 1);
    const int has_bytes = kind == TACITI_FRAME_EAGER || kind == TACITI_FRAME_CHUNK;
    out[0] = 6;
    taciti_frame_write(&(taciti_frame){.kind = kind, .tag = 1, .bytes = has_bytes ? 100 : 0, .message = i}, EPOCH,
                       NUMBER, out + 1);
    return 1 + TACITI_FRAME_HEADER_BYTES;
}
