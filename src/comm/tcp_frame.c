/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/tcp_frame.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <xxhash.h>

/* The memory of these structs goes over the wire: the machine is little-endian (ckpt/sink.c insists). */
typedef struct wire_frame {
    uint32_t checksum, number, epoch, kind, tag, bytes;
    uint64_t message, value;
} wire_frame;

typedef struct wire_hello {
    uint8_t magic[TACITI_HELLO_MAGIC_BYTES], cookie[TACITI_COOKIE_BYTES];
    uint32_t epoch, from, to, size, cipher, zeros[3];
    uint8_t random[TACITI_SEAL_RANDOM_BYTES];
    uint8_t proof[TACITI_SEAL_PROOF_BYTES]; /* of all before it */
    uint64_t checksum;                      /* of all before it */
} wire_hello;

typedef struct wire_record {
    uint8_t magic[8], cookie[TACITI_COOKIE_BYTES], host[TACITI_TCP_HOST_BYTES];
    char local[TACITI_LOCAL_BYTES];
    uint32_t epoch, rank, size, port, addresses, zeros[3];
    struct {
        uint8_t family, bytes[16];
    } address[TACITI_RECORD_ADDRESSES];
    uint8_t more_zeros[52];
    uint8_t proof[TACITI_SEAL_PROOF_BYTES]; /* of all before it */
    uint64_t checksum;                      /* of all before it */
} wire_record;

_Static_assert(sizeof(wire_frame) == TACITI_FRAME_HEADER_BYTES, "no gaps");
_Static_assert(sizeof(wire_hello) == TACITI_HELLO_BYTES, "no gaps");
_Static_assert(sizeof(wire_record) == TACITI_RECORD_BYTES, "no gaps");

static bool are_zero(const void *bytes, size_t n) {
    const uint8_t *in = bytes;
    for (size_t i = 0; i < n; i++)
        if (in[i] != 0) return false;
    return true;
}

/* ---- frame ------------------------------------------------------------------------------------------------------- */
static uint32_t frame_checksum(const wire_frame *w) {
    return (uint32_t)XXH3_64bits((const uint8_t *)w + sizeof w->checksum, sizeof *w - sizeof w->checksum);
}

void taciti_frame_write(const taciti_frame *frame, uint32_t epoch, uint32_t number,
                        uint8_t out[TACITI_FRAME_HEADER_BYTES]) {
    wire_frame w = {.number = number,
                    .epoch = epoch,
                    .kind = (uint32_t)frame->kind,
                    .tag = (uint32_t)frame->tag,
                    .bytes = frame->bytes,
                    .message = frame->message,
                    .value = frame->value};
    w.checksum = frame_checksum(&w);
    memcpy(out, &w, sizeof w);
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
    wire_frame w;
    memcpy(&w, in, sizeof w);
    if (w.checksum != frame_checksum(&w)) return "a frame with a wrong checksum";
    if (w.epoch != epoch) return "a frame of another epoch";
    if (w.number != number) return "a frame out of order";
    if (w.kind < TACITI_FRAME_EAGER || w.kind > TACITI_FRAME_GOODBYE) return "a frame of an unknown kind";
    const frame_limits *limits = &LIMITS[w.kind];
    if (w.bytes < limits->min_bytes || w.bytes > limits->max_bytes) return "a frame of an impossible length";
    if (w.value > limits->max_value) return "a frame with an impossible value";
    *out = (taciti_frame){
        .kind = (taciti_frame_kind)w.kind, .tag = (int)w.tag, .bytes = w.bytes, .message = w.message, .value = w.value};
    return NULL;
}

/* ---- hello ------------------------------------------------------------------------------------------------------- */
static const uint8_t HELLO_MAGIC[TACITI_HELLO_MAGIC_BYTES] = {0xb5, 't', 'a', 'c', 'i', 't', 'h', 3};

void taciti_hello_write(taciti_hello *hello, const taciti_seal_key *key, const uint8_t *before,
                        uint8_t out[TACITI_HELLO_BYTES]) {
    wire_hello w = {.epoch = hello->epoch,
                    .from = (uint32_t)hello->from,
                    .to = (uint32_t)hello->to,
                    .size = (uint32_t)hello->size,
                    .cipher = (uint32_t)hello->cipher};
    memcpy(w.magic, HELLO_MAGIC, sizeof w.magic);
    memcpy(w.cookie, hello->cookie, sizeof w.cookie);
    memcpy(w.random, hello->random, sizeof w.random);
    if (key != NULL) taciti_seal_prove(key, TACITI_SEAL_HELLO, before, &w, offsetof(wire_hello, proof), hello->proof);
    memcpy(w.proof, hello->proof, sizeof w.proof);
    w.checksum = XXH3_64bits(&w, offsetof(wire_hello, checksum));
    memcpy(out, &w, sizeof w);
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
static const char *check_hello_proof(const wire_hello *w, const taciti_seal_key *key, const uint8_t *before,
                                     uint8_t proof[TACITI_SEAL_PROOF_BYTES]) {
    if (key == NULL && w->cipher != TACITI_CIPHER_NONE) return "it has a comm.key_file, and this rank has none";
    if (key == NULL)
        return are_zero(w->random, sizeof w->random) && are_zero(w->proof, sizeof w->proof) ? NULL
                                                                                            : "its hello is damaged";
    if (w->cipher == TACITI_CIPHER_NONE) return "it has no comm.key_file";
    taciti_seal_prove(key, TACITI_SEAL_HELLO, before, w, offsetof(wire_hello, proof), proof);
    if (!taciti_seal_proofs_match(proof, w->proof)) return "it has another comm.key_file";
    return w->cipher <= TACITI_CIPHER_AES256GCM ? NULL : "it has an unknown cipher";
}

const char *taciti_hello_read(const uint8_t in[TACITI_HELLO_BYTES], const taciti_hello *expected,
                              const taciti_seal_key *key, const uint8_t *before, taciti_hello *out) {
    wire_hello w;
    memcpy(&w, in, sizeof w);
    taciti_hello hello = {.epoch = w.epoch,
                          .from = (int)w.from,
                          .to = expected->to,
                          .size = expected->size,
                          .cipher = (taciti_cipher)w.cipher};
    if (!taciti_hello_may_begin(in, sizeof w)) return "it does not speak this protocol";
    if (w.checksum != XXH3_64bits(&w, offsetof(wire_hello, checksum)) || !are_zero(w.zeros, sizeof w.zeros))
        return "its hello is damaged";
    const char *refusal = check_hello_proof(&w, key, before, hello.proof);
    if (refusal != NULL) return refusal;
    if (cookies_differ(w.cookie, expected->cookie)) return "it belongs to another run";
    if (w.epoch != expected->epoch) return "it belongs to another epoch";
    if (w.to != (uint32_t)expected->to) return "it looks for another rank";
    if (w.size != (uint32_t)expected->size) return "it believes in another number of ranks";
    if (w.from >= w.size || w.from == w.to) return "its hello has impossible numbers";
    memcpy(hello.cookie, w.cookie, sizeof hello.cookie);
    memcpy(hello.random, w.random, sizeof hello.random);
    *out = hello;
    return NULL;
}

/* ---- record ------------------------------------------------------------------------------------------------------ */
static const uint8_t RECORD_MAGIC[8] = {0xb5, 't', 'a', 'c', 'i', 't', 'r', 3};

void taciti_tcp_record_write(const taciti_tcp_record *record, const taciti_seal_key *key,
                             uint8_t out[TACITI_RECORD_BYTES]) {
    wire_record w = {.epoch = record->epoch,
                     .rank = (uint32_t)record->rank,
                     .size = (uint32_t)record->size,
                     .port = record->port,
                     .addresses = (uint32_t)record->addresses};
    memcpy(w.magic, RECORD_MAGIC, sizeof w.magic);
    memcpy(w.cookie, record->cookie, sizeof w.cookie);
    memcpy(w.host, record->host, sizeof w.host);
    memcpy(w.local, record->local, sizeof w.local);
    for (int i = 0; i < record->addresses; i++) {
        w.address[i].family = (uint8_t)record->address[i].family;
        memcpy(w.address[i].bytes, record->address[i].bytes, sizeof w.address[i].bytes);
    }
    if (key != NULL) taciti_seal_prove(key, TACITI_SEAL_RECORD, NULL, &w, offsetof(wire_record, proof), w.proof);
    w.checksum = XXH3_64bits(&w, offsetof(wire_record, checksum));
    memcpy(out, &w, sizeof w);
}

static const char *check_record_proof(const wire_record *w, const taciti_seal_key *key) {
    uint8_t proof[TACITI_SEAL_PROOF_BYTES];
    const bool has_one = !are_zero(w->proof, sizeof w->proof);
    if (key == NULL) return has_one ? "is of a rank with a comm.key_file, and this rank has none" : NULL;
    if (!has_one) return "is of a rank without a comm.key_file";
    taciti_seal_prove(key, TACITI_SEAL_RECORD, NULL, w, offsetof(wire_record, proof), proof);
    return taciti_seal_proofs_match(proof, w->proof) ? NULL : "is of a rank with another comm.key_file";
}

static bool take_addresses(const wire_record *w, taciti_tcp_record *record) {
    if (w->addresses < 1 || w->addresses > TACITI_RECORD_ADDRESSES) return false;
    record->addresses = (int)w->addresses;
    for (int i = 0; i < record->addresses; i++) {
        if (w->address[i].family != 4 && w->address[i].family != 6) return false;
        record->address[i].family = w->address[i].family;
        memcpy(record->address[i].bytes, w->address[i].bytes, sizeof w->address[i].bytes);
    }
    return true;
}

const char *taciti_tcp_record_read(const uint8_t *in, size_t n, const taciti_seal_key *key, taciti_tcp_record *out) {
    wire_record w;
    if (n != sizeof w || memcmp(in, RECORD_MAGIC, sizeof RECORD_MAGIC) != 0) return "is not a record of this version";
    memcpy(&w, in, sizeof w);
    if (w.checksum != XXH3_64bits(&w, offsetof(wire_record, checksum))) return "is damaged";
    const char *refusal = check_record_proof(&w, key);
    if (refusal != NULL) return refusal;
    if (w.size > INT_MAX || w.rank >= w.size || w.port == 0 || w.port > UINT16_MAX) return "has impossible numbers";
    if (w.local[0] == 0 || memchr(w.local, 0, sizeof w.local) == NULL) return "has an impossible name of a socket";
    taciti_tcp_record record = {.epoch = w.epoch, .rank = (int)w.rank, .size = (int)w.size, .port = (uint16_t)w.port};
    if (!take_addresses(&w, &record)) return "has impossible addresses";
    memcpy(record.cookie, w.cookie, sizeof record.cookie);
    memcpy(record.host, w.host, sizeof record.host);
    memcpy(record.local, w.local, sizeof record.local);
    *out = record;
    return NULL;
}
