/* SPDX-License-Identifier: Apache-2.0
 *
 * What comm.key_file adds to the TCP engine: only processes that hold the file can join, and of what they say to each
 * other nobody else can read, change, repeat, reorder or drop a byte unnoticed. Others still see who sends how much,
 * and can cut a connection, which is a failure as any other.
 *
 *   key      the 32 bytes of the file. They never travel: every purpose has a subkey (crypto_kdf, BLAKE2b)
 *   proof    keyed BLAKE2b over the proof before it and new bytes, so that a proof covers the whole conversation. Each
 *            side begins with fresh random numbers, so that nothing of an earlier conversation is of use
 *   session  a key per direction of a connection, drawn from its last proof. Blocks are sealed by AES-256-GCM if both
 *            CPUs have it, else by XChaCha20-Poly1305; the nonce is the number of the block
 */
#ifndef TACITI_COMM_SEAL_H
#define TACITI_COMM_SEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tacit/tacit.h"

enum {
    TACITI_SEAL_KEY_BYTES = 32,
    TACITI_SEAL_RANDOM_BYTES = 32,
    TACITI_SEAL_PROOF_BYTES = 32,
    TACITI_SEAL_TAG_BYTES = 16
};

/* Both sides have the lower one of their best ciphers. */
typedef enum taciti_cipher { TACITI_CIPHER_NONE, TACITI_CIPHER_XCHACHA20, TACITI_CIPHER_AES256GCM } taciti_cipher;

typedef struct taciti_seal_key {
    uint8_t bytes[TACITI_SEAL_KEY_BYTES];
    taciti_cipher best; /* of this CPU */
} taciti_seal_key;

/* Reads a file of 32 bytes, or of 64 hexadecimal digits with or without a line end; "~/" is the home folder. E_CONFIG,
 * saying what to type, if there is no such file, if it holds anything else, or if others may read it. */
tacit_status taciti_seal_key_read(const char *path, taciti_seal_key *out);

/* Makes a key of these bytes. E_INTERNAL if libsodium cannot be used. */
tacit_status taciti_seal_key_make(const uint8_t bytes[TACITI_SEAL_KEY_BYTES], taciti_seal_key *out);
void taciti_seal_key_forget(taciti_seal_key *key); /* overwrites it */

typedef enum taciti_seal_purpose {
    TACITI_SEAL_RECORD = 1, /* what ranks publish */
    TACITI_SEAL_STORE,      /* talk with the store at rank 0's port */
    TACITI_SEAL_HELLO,      /* the beginning of a connection */
    TACITI_SEAL_SESSION,
} taciti_seal_purpose;

/* Writes the proof of `bytes` behind the proof `before`; NULL: the first. `out` may be `before`. */
void taciti_seal_prove(const taciti_seal_key *key, taciti_seal_purpose purpose, const uint8_t *before,
                       const void *bytes, size_t n, uint8_t out[TACITI_SEAL_PROOF_BYTES]);

/* Compares two proofs in a time that does not depend on them. */
bool taciti_seal_proofs_match(const uint8_t a[TACITI_SEAL_PROOF_BYTES], const uint8_t b[TACITI_SEAL_PROOF_BYTES]);

bool taciti_seal_draw(uint8_t out[TACITI_SEAL_RANDOM_BYTES]); /* false, with errno: the system has no random numbers */

/* The session of one side of a connection. `caller`: this side has connected, the other has accepted. Returns NULL,
 * after logging, without memory. Returns owned. */
typedef struct taciti_seal taciti_seal;
taciti_seal *taciti_seal_create(const taciti_seal_key *key, taciti_cipher cipher,
                                const uint8_t proof[TACITI_SEAL_PROOF_BYTES], bool caller);
void taciti_seal_destroy(taciti_seal *seal); /* NULL is fine */

/* Seals the next block to the other side: writes n + TACITI_SEAL_TAG_BYTES bytes. `out` may be `plain`. */
void taciti_seal_close(taciti_seal *seal, const void *plain, size_t n, uint8_t *out);

/* Opens the next block from the other side where it lies. Returns false if it is not what the other side has sealed;
 * then the block holds anything, and the session must not be used any more. */
bool taciti_seal_open(taciti_seal *seal, void *bytes, size_t n, const uint8_t tag[TACITI_SEAL_TAG_BYTES]);

#endif
