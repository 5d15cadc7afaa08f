/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/seal.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"

enum { PATH_BYTES = 512, HEX_DIGITS = 2 * TACITI_SEAL_KEY_BYTES, NONCE_BYTES = 24 };

static const char CONTEXT[crypto_kdf_CONTEXTBYTES + 1] = "tacitcom";

struct taciti_seal {
    taciti_cipher cipher;
    struct direction {
        crypto_aead_aes256gcm_state aes;
        uint8_t key[TACITI_SEAL_KEY_BYTES];
        uint64_t count; /* of blocks */
    } out, in;
};

/* ---- the file ---------------------------------------------------------------------------------------------------- */
static tacit_status expand_home(const char *path, char out[PATH_BYTES]) {
    const char *home = strncmp(path, "~/", 2) == 0 ? getenv("HOME") : NULL;
    const int n =
        home == NULL ? snprintf(out, PATH_BYTES, "%s", path) : snprintf(out, PATH_BYTES, "%s%s", home, path + 1);
    if (n > 0 && n < PATH_BYTES) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG, "comm.key_file: the path is longer than %d bytes", (int)PATH_BYTES - 1);
}

static tacit_status refuse_file(const char *path, const char *why) {
    return taciti_fail(TACIT_E_CONFIG,
                       "comm.key_file %s: %s; make one with: (umask 077; head -c 32 /dev/urandom > ~/.tacit.key)", path,
                       why);
}

/* Reads up to `max` bytes of a plain file that is nobody else's business. */
static tacit_status read_secret(const char *path, uint8_t *out, size_t max, size_t *n) {
    struct stat info;
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return refuse_file(path, strerror(errno));
    const bool known = fstat(file, &info) == 0;
    const ssize_t got = known && S_ISREG(info.st_mode) ? read(file, out, max) : -1;
    (void)close(file);
    if (got < 0) return refuse_file(path, "it is not a file that can be read");
    *n = (size_t)got;
    if ((info.st_mode & 077) == 0) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG, "comm.key_file %s: others may read or write it (mode %03o); type: chmod 600 %s",
                       path, (unsigned)info.st_mode & 0777, path);
}

static bool take_key(const uint8_t *text, size_t n, uint8_t out[TACITI_SEAL_KEY_BYTES]) {
    size_t bytes = 0;
    if (n == TACITI_SEAL_KEY_BYTES) {
        memcpy(out, text, n);
        return true;
    }
    if (n == HEX_DIGITS + 1 && text[HEX_DIGITS] == '\n') n--;
    return n == HEX_DIGITS &&
           sodium_hex2bin(out, TACITI_SEAL_KEY_BYTES, (const char *)text, n, NULL, &bytes, NULL) == 0 &&
           bytes == TACITI_SEAL_KEY_BYTES;
}

tacit_status taciti_seal_key_read(const char *path, taciti_seal_key *out) {
    char name[PATH_BYTES];
    uint8_t text[HEX_DIGITS + 2], bytes[TACITI_SEAL_KEY_BYTES];
    size_t n = 0;
    TACITI_TRY(expand_home(path, name));
    TACITI_TRY(read_secret(name, text, sizeof text, &n));
    const tacit_status status = take_key(text, n, bytes)
                                    ? taciti_seal_key_make(bytes, out)
                                    : refuse_file(name, "it holds neither 32 bytes nor 64 hexadecimal digits");
    sodium_memzero(text, sizeof text);
    sodium_memzero(bytes, sizeof bytes);
    return status;
}

tacit_status taciti_seal_key_make(const uint8_t bytes[TACITI_SEAL_KEY_BYTES], taciti_seal_key *out) {
    if (sodium_init() < 0) return taciti_fail(TACIT_E_INTERNAL, "libsodium cannot be used on this machine");
    memcpy(out->bytes, bytes, TACITI_SEAL_KEY_BYTES);
    out->best = crypto_aead_aes256gcm_is_available() == 1 ? TACITI_CIPHER_AES256GCM : TACITI_CIPHER_XCHACHA20;
    return TACIT_OK;
}

void taciti_seal_key_forget(taciti_seal_key *key) { sodium_memzero(key, sizeof *key); }

/* ---- proofs ------------------------------------------------------------------------------------------------------ */
/* Hashes the proof before and the bytes under the subkey of this purpose. */
static void hash_keyed(const taciti_seal_key *key, taciti_seal_purpose purpose, const uint8_t *before,
                       const void *bytes, size_t n, uint8_t *out, size_t out_bytes) {
    static const uint8_t NOTHING[TACITI_SEAL_PROOF_BYTES];
    uint8_t subkey[TACITI_SEAL_KEY_BYTES];
    crypto_generichash_state state;
    (void)crypto_kdf_derive_from_key(subkey, sizeof subkey, (uint64_t)purpose, CONTEXT, key->bytes);
    (void)crypto_generichash_init(&state, subkey, sizeof subkey, out_bytes);
    (void)crypto_generichash_update(&state, before == NULL ? NOTHING : before, TACITI_SEAL_PROOF_BYTES);
    (void)crypto_generichash_update(&state, bytes, n);
    (void)crypto_generichash_final(&state, out, out_bytes);
    sodium_memzero(subkey, sizeof subkey);
    sodium_memzero(&state, sizeof state);
}

void taciti_seal_prove(const taciti_seal_key *key, taciti_seal_purpose purpose, const uint8_t *before,
                       const void *bytes, size_t n, uint8_t out[TACITI_SEAL_PROOF_BYTES]) {
    hash_keyed(key, purpose, before, bytes, n, out, TACITI_SEAL_PROOF_BYTES);
}

bool taciti_seal_proofs_match(const uint8_t a[TACITI_SEAL_PROOF_BYTES], const uint8_t b[TACITI_SEAL_PROOF_BYTES]) {
    return sodium_memcmp(a, b, TACITI_SEAL_PROOF_BYTES) == 0;
}

bool taciti_seal_draw(uint8_t out[TACITI_SEAL_RANDOM_BYTES]) {
    return getrandom(out, TACITI_SEAL_RANDOM_BYTES, 0) == TACITI_SEAL_RANDOM_BYTES;
}

/* ---- sessions ---------------------------------------------------------------------------------------------------- */
static void set_direction(struct direction *d, taciti_cipher cipher, const uint8_t key[TACITI_SEAL_KEY_BYTES]) {
    memcpy(d->key, key, sizeof d->key);
    if (cipher == TACITI_CIPHER_AES256GCM) (void)crypto_aead_aes256gcm_beforenm(&d->aes, key);
}

taciti_seal *taciti_seal_create(const taciti_seal_key *key, taciti_cipher cipher,
                                const uint8_t proof[TACITI_SEAL_PROOF_BYTES], bool caller) {
    uint8_t both[2 * TACITI_SEAL_KEY_BYTES]; /* from the caller, to the caller */
    taciti_seal *seal = taciti_calloc(1, sizeof *seal);
    if (seal == NULL) return NULL;
    hash_keyed(key, TACITI_SEAL_SESSION, proof, NULL, 0, both, sizeof both);
    seal->cipher = cipher;
    set_direction(caller ? &seal->out : &seal->in, cipher, both);
    set_direction(caller ? &seal->in : &seal->out, cipher, both + TACITI_SEAL_KEY_BYTES);
    sodium_memzero(both, sizeof both);
    return seal;
}

void taciti_seal_destroy(taciti_seal *seal) {
    if (seal != NULL) sodium_memzero(seal, sizeof *seal);
    taciti_free(seal);
}

static void take_nonce(struct direction *d, uint8_t nonce[NONCE_BYTES]) {
    memset(nonce, 0, NONCE_BYTES);
    for (int i = 0; i < 8; i++) nonce[i] = (uint8_t)(d->count >> (8 * i));
    d->count++;
}

void taciti_seal_close(taciti_seal *seal, const void *plain, size_t n, uint8_t *out) {
    uint8_t nonce[NONCE_BYTES];
    take_nonce(&seal->out, nonce);
    if (seal->cipher == TACITI_CIPHER_AES256GCM)
        (void)crypto_aead_aes256gcm_encrypt_detached_afternm(out, out + n, NULL, plain, n, NULL, 0, NULL, nonce,
                                                             &seal->out.aes);
    else
        (void)crypto_aead_xchacha20poly1305_ietf_encrypt_detached(out, out + n, NULL, plain, n, NULL, 0, NULL, nonce,
                                                                  seal->out.key);
}

bool taciti_seal_open(taciti_seal *seal, void *bytes, size_t n, const uint8_t tag[TACITI_SEAL_TAG_BYTES]) {
    uint8_t nonce[NONCE_BYTES];
    take_nonce(&seal->in, nonce);
    if (seal->cipher == TACITI_CIPHER_AES256GCM)
        return crypto_aead_aes256gcm_decrypt_detached_afternm(bytes, NULL, bytes, n, tag, NULL, 0, nonce,
                                                              &seal->in.aes) == 0;
    return crypto_aead_xchacha20poly1305_ietf_decrypt_detached(bytes, NULL, bytes, n, tag, NULL, 0, nonce,
                                                               seal->in.key) == 0;
}
