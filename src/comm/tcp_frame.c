/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/tcp_frame.h"

#include <sodium.h>
#include <stdbool.h>
#include <string.h>
#include <xxhash.h>

/* ---- frame ------------------------------------------------------------------------------------------------------- */
typedef struct header {
    uint32_t checksum, number, epoch;
    taciti_frame frame;
} header;

_Static_assert(sizeof(header) == TACITI_FRAME_HEADER_BYTES, "no gaps");

static uint32_t header_checksum(const header *h) {
    return (uint32_t)XXH3_64bits((const uint8_t *)h + sizeof h->checksum, sizeof *h - sizeof h->checksum);
}

void taciti_frame_write(const taciti_frame *frame, uint32_t epoch, uint32_t number,
                        uint8_t out[TACITI_FRAME_HEADER_BYTES]) {
    header h = {.number = number, .epoch = epoch, .frame = *frame};
    h.checksum = header_checksum(&h);
    memcpy(out, &h, sizeof h);
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
    header h;
    memcpy(&h, in, sizeof h);
    if (h.checksum != header_checksum(&h)) return "a frame with a wrong checksum";
    if (h.epoch != epoch) return "a frame of another epoch";
    if (h.number != number) return "a frame out of order";
    if (h.frame.kind < TACITI_FRAME_EAGER || h.frame.kind > TACITI_FRAME_GOODBYE) return "a frame of an unknown kind";
    const frame_limits *limits = &LIMITS[h.frame.kind];
    if (h.frame.bytes < limits->min_bytes || h.frame.bytes > limits->max_bytes)
        return "a frame of an impossible length";
    if (h.frame.value > limits->max_value) return "a frame with an impossible value";
    *out = h.frame;
    return NULL;
}

/* ---- hello ------------------------------------------------------------------------------------------------------- */
static const uint8_t HELLO_MAGIC[8] = {0xb5, 't', 'a', 'c', 'i', 't', 'h', 3};

void taciti_hello_complete(taciti_hello *hello, const taciti_seal_key *key, const uint8_t *before) {
    memcpy(hello->magic, HELLO_MAGIC, sizeof hello->magic);
    if (key != NULL)
        taciti_seal_prove(key, TACITI_SEAL_HELLO, before, hello, offsetof(taciti_hello, proof), hello->proof);
    hello->checksum = XXH3_64bits(hello, offsetof(taciti_hello, checksum));
}

int taciti_hello_may_begin(const uint8_t *bytes, size_t n) {
    return memcmp(bytes, HELLO_MAGIC, n < sizeof HELLO_MAGIC ? n : sizeof HELLO_MAGIC) == 0;
}

/* Returns NULL, or why the hello does not come from somebody with the same key, or also without one. */
static const char *check_hello_proof(const taciti_hello *hello, const taciti_seal_key *key, const uint8_t *before) {
    uint8_t proof[TACITI_SEAL_PROOF_BYTES];
    if (key == NULL && hello->cipher != TACITI_CIPHER_NONE) return "it has a comm.key_file, and this rank has none";
    if (key == NULL)
        return sodium_is_zero(hello->random, sizeof hello->random) != 0 &&
                       sodium_is_zero(hello->proof, sizeof hello->proof) != 0
                   ? NULL
                   : "its hello is damaged";
    if (hello->cipher == TACITI_CIPHER_NONE) return "it has no comm.key_file";
    taciti_seal_prove(key, TACITI_SEAL_HELLO, before, hello, offsetof(taciti_hello, proof), proof);
    if (!taciti_seal_proofs_match(proof, hello->proof)) return "it has another comm.key_file";
    return hello->cipher <= TACITI_CIPHER_AES256GCM ? NULL : "it has an unknown cipher";
}

const char *taciti_hello_read(const uint8_t in[TACITI_HELLO_BYTES], const taciti_hello *expected,
                              const taciti_seal_key *key, const uint8_t *before, taciti_hello *out) {
    taciti_hello hello;
    memcpy(&hello, in, sizeof hello);
    if (!taciti_hello_may_begin(in, sizeof hello)) return "it does not speak this protocol";
    if (hello.checksum != XXH3_64bits(&hello, offsetof(taciti_hello, checksum)) ||
        sodium_is_zero((const uint8_t *)hello.zeros, sizeof hello.zeros) == 0)
        return "its hello is damaged";
    const char *refusal = check_hello_proof(&hello, key, before);
    if (refusal != NULL) return refusal;
    /* In constant time: a stranger shall not learn the cookie byte by byte. */
    if (sodium_memcmp(hello.cookie, expected->cookie, sizeof hello.cookie) != 0) return "it belongs to another run";
    if (hello.epoch != expected->epoch) return "it belongs to another epoch";
    if (hello.to != expected->to) return "it looks for another rank";
    if (hello.size != expected->size) return "it believes in another number of ranks";
    if (hello.from < 0 || hello.from >= hello.size || hello.from == hello.to) return "its hello has impossible numbers";
    *out = hello;
    return NULL;
}

/* ---- record ------------------------------------------------------------------------------------------------------ */
static const uint8_t RECORD_MAGIC[8] = {0xb5, 't', 'a', 'c', 'i', 't', 'r', 3};

void taciti_tcp_record_complete(taciti_tcp_record *record, const taciti_seal_key *key) {
    memcpy(record->magic, RECORD_MAGIC, sizeof record->magic);
    if (key != NULL)
        taciti_seal_prove(key, TACITI_SEAL_RECORD, NULL, record, offsetof(taciti_tcp_record, proof), record->proof);
    record->checksum = XXH3_64bits(record, offsetof(taciti_tcp_record, checksum));
}

static const char *check_record_proof(const taciti_tcp_record *record, const taciti_seal_key *key) {
    uint8_t proof[TACITI_SEAL_PROOF_BYTES];
    const bool has_one = sodium_is_zero(record->proof, sizeof record->proof) == 0;
    if (key == NULL) return has_one ? "is of a rank with a comm.key_file, and this rank has none" : NULL;
    if (!has_one) return "is of a rank without a comm.key_file";
    taciti_seal_prove(key, TACITI_SEAL_RECORD, NULL, record, offsetof(taciti_tcp_record, proof), proof);
    return taciti_seal_proofs_match(proof, record->proof) ? NULL : "is of a rank with another comm.key_file";
}

static bool has_addresses(const taciti_tcp_record *record) {
    if (record->addresses < 1 || record->addresses > TACITI_RECORD_ADDRESSES) return false;
    for (int i = 0; i < record->addresses; i++)
        if (record->address[i].family != 4 && record->address[i].family != 6) return false;
    return true;
}

const char *taciti_tcp_record_read(const uint8_t *in, size_t n, const taciti_seal_key *key, taciti_tcp_record *out) {
    taciti_tcp_record r;
    if (n != sizeof r || memcmp(in, RECORD_MAGIC, sizeof RECORD_MAGIC) != 0) return "is not a record of this version";
    memcpy(&r, in, sizeof r);
    if (r.checksum != XXH3_64bits(&r, offsetof(taciti_tcp_record, checksum))) return "is damaged";
    const char *refusal = check_record_proof(&r, key);
    if (refusal != NULL) return refusal;
    if (r.rank < 0 || r.rank >= r.size || r.port == 0 || r.zero != 0) return "has impossible numbers";
    if (r.local[0] == 0 || memchr(r.local, 0, sizeof r.local) == NULL) return "has an impossible name of a socket";
    if (!has_addresses(&r)) return "has impossible addresses";
    *out = r;
    return NULL;
}
