/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/tcp_frame.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <xxhash.h>

static void put_number(uint8_t *out, uint64_t x, int bytes) {
    for (int i = 0; i < bytes; i++) out[i] = (uint8_t)(x >> (8 * i));
}

static uint64_t take_number(const uint8_t *in, int bytes) {
    uint64_t x = 0;
    for (int i = 0; i < bytes; i++) x |= (uint64_t)in[i] << (8 * i);
    return x;
}

static void put_u32(uint8_t *out, uint32_t x) { put_number(out, x, 4); }

static uint32_t take_u32(const uint8_t *in) { return (uint32_t)take_number(in, 4); }

static bool are_zero(const uint8_t *in, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (in[i] != 0) return false;
    return true;
}

/* A rank or count that the reader may use as an int. */
static bool take_count(const uint8_t *in, int *out) {
    const uint32_t x = take_u32(in);
    *out = (int)(x & INT_MAX);
    return x <= INT_MAX;
}

/* ---- frame ------------------------------------------------------------------------------------------------------- */
static uint32_t frame_checksum(const uint8_t *header) {
    return (uint32_t)XXH3_64bits(header + 4, TACITI_FRAME_HEADER_BYTES - 4);
}

void taciti_frame_write(const taciti_frame *frame, uint32_t epoch, uint32_t number,
                        uint8_t out[TACITI_FRAME_HEADER_BYTES]) {
    put_u32(out + 4, number);
    put_u32(out + 8, epoch);
    put_u32(out + 12, (uint32_t)frame->kind);
    put_u32(out + 16, (uint32_t)frame->tag);
    put_u32(out + 20, frame->bytes);
    put_number(out + 24, frame->message, 8);
    put_number(out + 32, frame->value, 8);
    put_u32(out, frame_checksum(out));
}

/* The limits of each kind. Kinds without a payload have max_bytes 0. */
typedef struct frame_limits {
    uint32_t min_bytes, max_bytes;
    uint64_t max_value;
} frame_limits;

static const frame_limits LIMITS[] = {
    [TACITI_FRAME_EAGER] = {0, TACITI_FRAME_EAGER_BYTES, 0},
    [TACITI_FRAME_ASK] = {0, 0, SIZE_MAX / 2},
    [TACITI_FRAME_GO] = {0, 0, SIZE_MAX / 2},
    [TACITI_FRAME_CHUNK] = {1, TACITI_FRAME_CHUNK_BYTES, SIZE_MAX / 2},
    [TACITI_FRAME_CREDIT] = {0, 0, TACITI_FRAME_WINDOW_BYTES},
    [TACITI_FRAME_ABORT] = {0, 0, 255},
    [TACITI_FRAME_GOODBYE] = {0, 0, 0},
};

const char *taciti_frame_read(const uint8_t in[TACITI_FRAME_HEADER_BYTES], uint32_t epoch, uint32_t number,
                              taciti_frame *out) {
    const uint32_t kind = take_u32(in + 12), bytes = take_u32(in + 20);
    const uint64_t value = take_number(in + 32, 8);
    if (take_u32(in) != frame_checksum(in)) return "a frame with a wrong checksum";
    if (take_u32(in + 8) != epoch) return "a frame of another epoch";
    if (take_u32(in + 4) != number) return "a frame out of order";
    if (kind < TACITI_FRAME_EAGER || kind > TACITI_FRAME_GOODBYE) return "a frame of an unknown kind";
    const frame_limits *limits = &LIMITS[kind];
    if (bytes < limits->min_bytes || bytes > limits->max_bytes) return "a frame of an impossible length";
    if (value > limits->max_value) return "a frame with an impossible value";
    *out = (taciti_frame){.kind = (taciti_frame_kind)kind,
                          .tag = (int)take_u32(in + 16),
                          .bytes = bytes,
                          .message = take_number(in + 24, 8),
                          .value = value};
    return NULL;
}

/* ---- hello ------------------------------------------------------------------------------------------------------- */
static const uint8_t HELLO_MAGIC[TACITI_HELLO_MAGIC_BYTES] = {0xb5, 't', 'a', 'c', 'i', 't', 'h', 3};

enum { HELLO_ZEROS_AT = 44, HELLO_RANDOM_AT = 56, HELLO_PROOF_AT = 88, HELLO_CHECKSUM_AT = 120 };

static uint64_t checksum_before(const uint8_t *bytes, size_t n) { return XXH3_64bits(bytes, n); }

/* Magic 8, cookie 16, epoch 4, from 4, to 4, size 4, cipher 4, zeros 12, random 32, proof of all that 32, checksum 8.
 */
void taciti_hello_write(taciti_hello *hello, const taciti_seal_key *key, const uint8_t *before,
                        uint8_t out[TACITI_HELLO_BYTES]) {
    memset(out, 0, TACITI_HELLO_BYTES);
    memcpy(out, HELLO_MAGIC, sizeof HELLO_MAGIC);
    memcpy(out + 8, hello->cookie, TACITI_COOKIE_BYTES);
    put_u32(out + 24, hello->epoch);
    put_u32(out + 28, (uint32_t)hello->from);
    put_u32(out + 32, (uint32_t)hello->to);
    put_u32(out + 36, (uint32_t)hello->size);
    put_u32(out + 40, (uint32_t)hello->cipher);
    memcpy(out + HELLO_RANDOM_AT, hello->random, sizeof hello->random);
    if (key != NULL) taciti_seal_prove(key, TACITI_SEAL_HELLO, before, out, HELLO_PROOF_AT, hello->proof);
    memcpy(out + HELLO_PROOF_AT, hello->proof, sizeof hello->proof);
    put_number(out + HELLO_CHECKSUM_AT, checksum_before(out, HELLO_CHECKSUM_AT), 8);
}

int taciti_hello_may_begin(const uint8_t *bytes, size_t n) {
    return memcmp(bytes, HELLO_MAGIC, n < sizeof HELLO_MAGIC ? n : sizeof HELLO_MAGIC) == 0;
}

/* Takes the same time whatever differs: a stranger shall not learn the cookie byte by byte. */
static bool cookies_differ(const uint8_t *a, const uint8_t *b) {
    unsigned difference = 0;
    for (int i = 0; i < TACITI_COOKIE_BYTES; i++) difference |= (unsigned)(a[i] ^ b[i]);
    return difference != 0;
}

/* Returns NULL, or why the hello does not come from somebody with the same key, or also without one. */
static const char *check_hello_proof(const uint8_t *in, const taciti_seal_key *key, const uint8_t *before,
                                     taciti_hello *hello) {
    const uint32_t cipher = take_u32(in + 40);
    hello->cipher = (taciti_cipher)cipher;
    memcpy(hello->random, in + HELLO_RANDOM_AT, sizeof hello->random);
    if (key == NULL && cipher != TACITI_CIPHER_NONE) return "it has a comm.key_file, and this rank has none";
    if (key == NULL)
        return are_zero(in + HELLO_RANDOM_AT, HELLO_CHECKSUM_AT - HELLO_RANDOM_AT) ? NULL : "its hello is damaged";
    if (cipher == TACITI_CIPHER_NONE) return "it has no comm.key_file";
    taciti_seal_prove(key, TACITI_SEAL_HELLO, before, in, HELLO_PROOF_AT, hello->proof);
    if (!taciti_seal_proofs_match(hello->proof, in + HELLO_PROOF_AT)) return "it has another comm.key_file";
    return cipher <= TACITI_CIPHER_AES256GCM ? NULL : "it has an unknown cipher";
}

const char *taciti_hello_read(const uint8_t in[TACITI_HELLO_BYTES], const taciti_hello *expected,
                              const taciti_seal_key *key, const uint8_t *before, taciti_hello *out) {
    taciti_hello hello = {.epoch = take_u32(in + 24)};
    if (!taciti_hello_may_begin(in, TACITI_HELLO_BYTES)) return "it does not speak this protocol";
    if (take_number(in + HELLO_CHECKSUM_AT, 8) != checksum_before(in, HELLO_CHECKSUM_AT) ||
        !are_zero(in + HELLO_ZEROS_AT, HELLO_RANDOM_AT - HELLO_ZEROS_AT))
        return "its hello is damaged";
    const char *refusal = check_hello_proof(in, key, before, &hello);
    if (refusal != NULL) return refusal;
    memcpy(hello.cookie, in + 8, TACITI_COOKIE_BYTES);
    if (cookies_differ(hello.cookie, expected->cookie)) return "it belongs to another run";
    if (hello.epoch != expected->epoch) return "it belongs to another epoch";
    if (!take_count(in + 28, &hello.from) || !take_count(in + 32, &hello.to) || !take_count(in + 36, &hello.size))
        return "its hello has impossible numbers";
    if (hello.to != expected->to) return "it looks for another rank";
    if (hello.size != expected->size) return "it believes in another number of ranks";
    if (hello.from >= hello.size || hello.from == hello.to) return "its hello has impossible numbers";
    *out = hello;
    return NULL;
}

/* ---- record ------------------------------------------------------------------------------------------------------ */
static const uint8_t RECORD_MAGIC[8] = {0xb5, 't', 'a', 'c', 'i', 't', 'r', 3};

enum { ADDRESSES_AT = 96, ADDRESS_BYTES = 17, RECORD_PROOF_AT = 216, RECORD_CHECKSUM_AT = 248 };

/* Magic 8, cookie 16, host 16, local 24, epoch 4, rank 4, size 4, port 4, addresses 4; at 96: 17 bytes for
 * each address; zeros; at 216: proof; at 248: checksum. */
void taciti_tcp_record_write(const taciti_tcp_record *record, const taciti_seal_key *key,
                             uint8_t out[TACITI_RECORD_BYTES]) {
    memset(out, 0, TACITI_RECORD_BYTES);
    memcpy(out, RECORD_MAGIC, sizeof RECORD_MAGIC);
    memcpy(out + 8, record->cookie, TACITI_COOKIE_BYTES);
    memcpy(out + 24, record->host, TACITI_TCP_HOST_BYTES);
    memcpy(out + 40, record->local, TACITI_LOCAL_BYTES);
    put_u32(out + 64, record->epoch);
    put_u32(out + 68, (uint32_t)record->rank);
    put_u32(out + 72, (uint32_t)record->size);
    put_u32(out + 76, record->port);
    put_u32(out + 80, (uint32_t)record->addresses);
    for (int i = 0; i < record->addresses; i++) {
        uint8_t *at = out + ADDRESSES_AT + i * ADDRESS_BYTES;
        at[0] = (uint8_t)record->address[i].family;
        memcpy(at + 1, record->address[i].bytes, 16);
    }
    if (key != NULL) taciti_seal_prove(key, TACITI_SEAL_RECORD, NULL, out, RECORD_PROOF_AT, out + RECORD_PROOF_AT);
    put_number(out + RECORD_CHECKSUM_AT, checksum_before(out, RECORD_CHECKSUM_AT), 8);
}

static const char *check_record_proof(const uint8_t *in, const taciti_seal_key *key) {
    uint8_t proof[TACITI_SEAL_PROOF_BYTES];
    const bool has_one = !are_zero(in + RECORD_PROOF_AT, sizeof proof);
    if (key == NULL) return has_one ? "is of a rank with a comm.key_file, and this rank has none" : NULL;
    if (!has_one) return "is of a rank without a comm.key_file";
    taciti_seal_prove(key, TACITI_SEAL_RECORD, NULL, in, RECORD_PROOF_AT, proof);
    return taciti_seal_proofs_match(proof, in + RECORD_PROOF_AT) ? NULL : "is of a rank with another comm.key_file";
}

static bool take_addresses(const uint8_t *in, taciti_tcp_record *record) {
    if (record->addresses < 1 || record->addresses > TACITI_RECORD_ADDRESSES) return false;
    for (int i = 0; i < record->addresses; i++) {
        const uint8_t *at = in + ADDRESSES_AT + i * ADDRESS_BYTES;
        if (at[0] != 4 && at[0] != 6) return false;
        record->address[i].family = at[0];
        memcpy(record->address[i].bytes, at + 1, 16);
    }
    return true;
}

const char *taciti_tcp_record_read(const uint8_t *in, size_t n, const taciti_seal_key *key, taciti_tcp_record *out) {
    taciti_tcp_record record = {0};
    if (n != TACITI_RECORD_BYTES || memcmp(in, RECORD_MAGIC, sizeof RECORD_MAGIC) != 0)
        return "is not a record of this version";
    if (take_number(in + RECORD_CHECKSUM_AT, 8) != checksum_before(in, RECORD_CHECKSUM_AT)) return "is damaged";
    const char *refusal = check_record_proof(in, key);
    if (refusal != NULL) return refusal;
    memcpy(record.cookie, in + 8, TACITI_COOKIE_BYTES);
    memcpy(record.host, in + 24, TACITI_TCP_HOST_BYTES);
    memcpy(record.local, in + 40, TACITI_LOCAL_BYTES);
    record.epoch = take_u32(in + 64);
    const uint32_t port = take_u32(in + 76);
    if (!take_count(in + 68, &record.rank) || !take_count(in + 72, &record.size) ||
        !take_count(in + 80, &record.addresses))
        return "has impossible numbers";
    if (record.rank >= record.size || port == 0 || port > UINT16_MAX) return "has impossible numbers";
    if (record.local[0] == 0 || memchr(record.local, 0, sizeof record.local) == NULL)
        return "has an impossible name of a socket";
    if (!take_addresses(in, &record)) return "has impossible addresses";
    record.port = (uint16_t)port;
    *out = record;
    return NULL;
}
