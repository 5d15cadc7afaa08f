/* SPDX-License-Identifier: Apache-2.0
 *
 * What the TCP engine reads from strangers: hellos, headers of frames and records of the bootstrap store. Byte 0
 * chooses the parser, whether there is a key, and whether checksum and proof are made right first, since a mutation
 * hardly ever finds them. What is accepted must be legal and must be written as the same bytes; with a key nothing is
 * accepted whose proof was not made right, and no frame whose seal was touched.
 */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "comm/tcp_frame.h"
#include "fuzz.h"

enum { EPOCH = 3, NUMBER = 5 };

static const taciti_hello EXPECTED = {.cookie = "0123456789abcdef", .epoch = EPOCH, .to = 1, .size = 4};

static const uint8_t BEFORE[TACITI_SEAL_PROOF_BYTES] = "the hello that was answered";
static taciti_seal_key g_key;

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

/* Sealed, changed in one bit if it is not to be repaired, and opened. */
static void open_frame(uint8_t *bytes, int repair) {
    uint8_t sealed[TACITI_FRAME_HEADER_BYTES + TACITI_SEAL_TAG_BYTES];
    taciti_seal *from = taciti_seal_create(&g_key, g_key.best, BEFORE, true);
    taciti_seal *to = taciti_seal_create(&g_key, g_key.best, BEFORE, false);
    need(from != NULL && to != NULL);
    taciti_seal_close(from, bytes, TACITI_FRAME_HEADER_BYTES, sealed);
    if (!repair) sealed[bytes[0] % sizeof sealed] ^= (uint8_t)(1 << bytes[1] % 8);
    need(taciti_seal_open(to, sealed, TACITI_FRAME_HEADER_BYTES, sealed + TACITI_FRAME_HEADER_BYTES) == (repair != 0));
    if (repair) read_frame(sealed, repair);
    taciti_seal_destroy(from);
    taciti_seal_destroy(to);
}

static void read_hello(uint8_t *bytes, const taciti_seal_key *key, int repair) {
    enum { PROOF_AT = 88, CHECKSUM_AT = 120 };
    taciti_hello hello;
    if (repair && key != NULL) taciti_seal_prove(key, TACITI_SEAL_HELLO, BEFORE, bytes, PROOF_AT, bytes + PROOF_AT);
    const uint64_t sum = XXH3_64bits(bytes, CHECKSUM_AT);
    if (repair) memcpy(bytes + CHECKSUM_AT, &sum, sizeof sum);
    if (taciti_hello_read(bytes, &EXPECTED, key, BEFORE, &hello) != NULL) return;
    need(hello.from >= 0 && hello.from < 4 && hello.from != 1);
    need(key != NULL ? hello.cipher > 0 && hello.cipher <= TACITI_CIPHER_AES256GCM : hello.cipher == 0);
    taciti_hello_complete(&hello, key, BEFORE);
    need(memcmp(bytes, &hello, sizeof hello) == 0);
}

static void read_record(uint8_t *bytes, size_t n, const taciti_seal_key *key, int repair) {
    enum { PROOF_AT = 216, CHECKSUM_AT = 248 };
    taciti_tcp_record record;
    if (repair && n == TACITI_RECORD_BYTES) {
        if (key != NULL) taciti_seal_prove(key, TACITI_SEAL_RECORD, NULL, bytes, PROOF_AT, bytes + PROOF_AT);
        const uint64_t sum = XXH3_64bits(bytes, CHECKSUM_AT);
        memcpy(bytes + CHECKSUM_AT, &sum, sizeof sum);
    }
    if (taciti_tcp_record_read(bytes, n, key, &record) != NULL) return;
    need(record.rank >= 0 && record.rank < record.size && record.port > 0);
    need(record.addresses > 0 && record.addresses <= TACITI_RECORD_ADDRESSES);
    need(memchr(record.local, 0, sizeof record.local) != NULL);
    taciti_tcp_record_complete(&record, key);
    need(memcmp(bytes, &record, sizeof record) == 0);
}

static void make_key(void) {
    if (g_key.best == 0) need(taciti_seal_key_make((const uint8_t *)"a key of a file has 32 bytes ...", &g_key) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t bytes[TACITI_RECORD_BYTES] = {0};
    if (size < 1 || size > 1 + sizeof bytes) return 0;
    memcpy(bytes, data + 1, size - 1);
    const int repair = data[0] & 4;
    make_key();
    const taciti_seal_key *key = (data[0] & 8) != 0 ? &g_key : NULL;
    switch (data[0] % 3) {
    case 0: key != NULL ? open_frame(bytes, repair) : read_frame(bytes, repair); break;
    case 1: read_hello(bytes, key, repair); break;
    default: read_record(bytes, size - 1, key, repair); break;
    }
    return 0;
}

size_t fuzz_seed(size_t i, uint8_t *out) {
    taciti_tcp_record record = {
        .local = "tacit-1", .size = 2, .port = 1, .addresses = 2, .address = {{4, {127}}, {6, {1}}}};
    taciti_hello hello = EXPECTED;
    make_key();
    const taciti_seal_key *key = i % 2 == 1 ? &g_key : NULL;
    if (i >= 4 + 2 * TACITI_FRAME_GOODBYE) return 0;
    if (i < 2) {
        out[0] = key != NULL ? 28 : 4; /* 28 % 3 == 4 % 3 == 1 */
        hello.cipher = key != NULL ? TACITI_CIPHER_XCHACHA20 : TACITI_CIPHER_NONE;
        taciti_hello_complete(&hello, key, BEFORE);
        memcpy(out + 1, &hello, sizeof hello);
        return 1 + TACITI_HELLO_BYTES;
    }
    if (i < 4) {
        out[0] = key != NULL ? 44 : 20;
        taciti_tcp_record_complete(&record, key);
        memcpy(out + 1, &record, sizeof record);
        return 1 + TACITI_RECORD_BYTES;
    }
    const taciti_frame_kind kind = (taciti_frame_kind)(i / 2 - 1);
    const int has_bytes = kind == TACITI_FRAME_EAGER || kind == TACITI_FRAME_CHUNK;
    out[0] = key != NULL ? 12 : 6;
    taciti_frame_write(&(taciti_frame){.kind = kind, .tag = 1, .bytes = has_bytes ? 100 : 0, .message = i}, EPOCH,
                       NUMBER, out + 1);
    return 1 + TACITI_FRAME_HEADER_BYTES;
}
