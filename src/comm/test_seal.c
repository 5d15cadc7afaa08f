/* SPDX-License-Identifier: Apache-2.0
 *
 * Key files, proofs and sealed blocks. test_tcp_peer.c and test_engine_tcp.c have their use on connections.
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "comm/seal.h"
#include "comm/test_engine.h"

enum { LONG_BYTES = 70000, PATH_BYTES = 64 };

static char g_folder[32];

static int set_up(void **state) {
    (void)state;
    (void)snprintf(g_folder, sizeof g_folder, "/tmp/tacit-test-XXXXXX");
    test_log_keep();
    return mkdtemp(g_folder) == NULL;
}

static int tear_down(void **state) {
    char command[64];
    (void)state;
    test_log_drop();
    (void)snprintf(command, sizeof command, "rm -rf %s", g_folder);
    return system(command);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */
static void write_key(char path[PATH_BYTES], const void *bytes, size_t n, mode_t mode) {
    (void)snprintf(path, PATH_BYTES, "%s/key", g_folder);
    (void)remove(path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static const char RAW[TACITI_SEAL_KEY_BYTES + 1] = "\x01\x23\x45\x67\x89\xab\xcd\xef 24 bytes that follow it";
static const char HEX[] = "0123456789aBcDeF203234206279746573207468617420666f6c6c6f77206974\n";

static void a_key_is_32_bytes_or_64_digits(void **state) {
    (void)state;
    char path[PATH_BYTES];
    taciti_seal_key raw, hex, line;
    write_key(path, RAW, 32, 0600);
    assert_int_equal(taciti_seal_key_read(path, &raw), TACIT_OK);
    assert_memory_equal(raw.bytes, RAW, 32);
    assert_true(raw.best == TACITI_CIPHER_AES256GCM || raw.best == TACITI_CIPHER_XCHACHA20);
    write_key(path, HEX, 64, 0400);
    assert_int_equal(taciti_seal_key_read(path, &hex), TACIT_OK);
    assert_memory_equal(&hex, &raw, sizeof raw);
    write_key(path, HEX, 65, 0600);
    assert_int_equal(setenv("HOME", g_folder, 1), 0);
    assert_int_equal(taciti_seal_key_read("~/key", &line), TACIT_OK);
    assert_memory_equal(&line, &raw, sizeof raw);
    assert_int_equal(test_log_count(""), 0);
    taciti_seal_key_forget(&raw);
    for (size_t i = 0; i < sizeof raw; i++) assert_int_equal(((const char *)&raw)[i], 0);
}

static void refuse_key(const void *bytes, size_t n, const char *why) {
    char path[PATH_BYTES];
    taciti_seal_key key;
    test_log_keep();
    write_key(path, bytes, n, 0600);
    assert_int_equal(taciti_seal_key_read(path, &key), TACIT_E_CONFIG);
    assert_int_equal(test_log_count(why), 1);
    assert_int_equal(test_log_count(path), 1);
}

static void anything_else_is_refused_with_the_command_to_type(void **state) {
    (void)state;
    static const char MAKE[] = "head -c 32 /dev/urandom > ";
    char path[PATH_BYTES], large[300] = "";
    taciti_seal_key key;
    static const size_t LENGTHS[] = {0, 1, 31, 33, 63, 66, sizeof large};
    for (size_t i = 0; i < sizeof LENGTHS / sizeof *LENGTHS; i++) refuse_key(large, LENGTHS[i], MAKE);
    refuse_key(large, 32 + 32, "it holds neither 32 bytes nor 64 hexadecimal digits");
    refuse_key("0123456789abcdef 123456789abcdef0123456789abcdef0123456789abcdef", 64, MAKE);
    refuse_key("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdefx", 65, MAKE);
    (void)snprintf(path, sizeof path, "%s/none", g_folder);
    assert_int_equal(taciti_seal_key_read(path, &key), TACIT_E_CONFIG);
    assert_int_equal(test_log_count("No such file or directory; make one with: (umask 077; head -c 32 /dev/urandom > "),
                     1);
    assert_int_equal(taciti_seal_key_read(g_folder, &key), TACIT_E_CONFIG);
    assert_int_equal(test_log_count("it is not a file that can be read"), 1);
    (void)snprintf(path, sizeof path, "%s/pipe", g_folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(taciti_seal_key_read(path, &key), TACIT_E_CONFIG); /* and does not wait for a writer */
    static const mode_t OPEN[] = {0640, 0604, 0620, 0602, 0610, 0644, 0777};
    for (size_t i = 0; i < sizeof OPEN / sizeof *OPEN; i++) {
        test_log_keep();
        write_key(path, RAW, 32, OPEN[i]);
        assert_int_equal(taciti_seal_key_read(path, &key), TACIT_E_CONFIG);
        assert_int_equal(test_log_count("others may read or write it"), 1);
        assert_int_equal(test_log_count("chmod 600 "), 1);
    }
    memset(large, 'x', sizeof large - 1);
    char longer[3 * sizeof large] = "";
    (void)snprintf(longer, sizeof longer, "%s%s", large, large);
    assert_int_equal(taciti_seal_key_read(longer, &key), TACIT_E_CONFIG);
    assert_int_equal(test_log_count("the path is longer than 511 bytes"), 1);
}

/* ---- proofs ------------------------------------------------------------------------------------------------------ */
static void a_proof_depends_on_all_it_covers(void **state) {
    (void)state;
    const taciti_seal_key key = test_seal_key_of('k'), other = test_seal_key_of('o');
    uint8_t proofs[7][TACITI_SEAL_PROOF_BYTES], before[TACITI_SEAL_PROOF_BYTES] = "before";
    static const uint8_t ZERO[TACITI_SEAL_PROOF_BYTES];
    taciti_seal_prove(&key, TACITI_SEAL_HELLO, NULL, "text", 4, proofs[0]);
    taciti_seal_prove(&key, TACITI_SEAL_HELLO, ZERO, "text", 4, proofs[1]);
    assert_true(taciti_seal_proofs_match(proofs[0], proofs[1]));
    taciti_seal_prove(&other, TACITI_SEAL_HELLO, NULL, "text", 4, proofs[1]);
    taciti_seal_prove(&key, TACITI_SEAL_STORE, NULL, "text", 4, proofs[2]);
    taciti_seal_prove(&key, TACITI_SEAL_HELLO, before, "text", 4, proofs[3]);
    taciti_seal_prove(&key, TACITI_SEAL_HELLO, NULL, "texT", 4, proofs[4]);
    taciti_seal_prove(&key, TACITI_SEAL_HELLO, NULL, "text", 3, proofs[5]);
    taciti_seal_prove(&key, TACITI_SEAL_HELLO, NULL, NULL, 0, proofs[6]);
    for (int i = 0; i < 7; i++)
        for (int j = 0; j < i; j++) assert_false(taciti_seal_proofs_match(proofs[i], proofs[j]));
    taciti_seal_prove(&key, TACITI_SEAL_HELLO, before, "text", 4, before); /* in place */
    assert_true(taciti_seal_proofs_match(before, proofs[3]));
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */
typedef struct session {
    taciti_seal *caller, *other;
} session;

static session begin_session(taciti_cipher cipher, uint8_t number) {
    const taciti_seal_key key = test_seal_key_of('k');
    const uint8_t proof[TACITI_SEAL_PROOF_BYTES] = {number};
    const session s = {taciti_seal_create(&key, cipher, proof, true), taciti_seal_create(&key, cipher, proof, false)};
    assert_true(s.caller != NULL && s.other != NULL);
    return s;
}

static void end_session(session s) {
    taciti_seal_destroy(s.caller);
    taciti_seal_destroy(s.other);
    taciti_seal_destroy(NULL);
}

static bool has_cipher(taciti_cipher cipher) { return cipher <= test_seal_key_of('k').best; }

static void pass_blocks(taciti_cipher cipher) {
    static const size_t LENGTHS[] = {1, 15, 16, 17, 40, 41, 1000, LONG_BYTES};
    uint8_t *plain = taciti_calloc(LONG_BYTES, 1), *sealed = taciti_calloc(LONG_BYTES + TACITI_SEAL_TAG_BYTES, 1);
    const session s = begin_session(cipher, 1);
    for (size_t i = 0; i < LONG_BYTES; i++) plain[i] = (uint8_t)(i * i);
    for (size_t i = 0; i < 2 * sizeof LENGTHS / sizeof *LENGTHS; i++) {
        const size_t n = LENGTHS[i / 2];
        taciti_seal_close(i % 2 == 0 ? s.caller : s.other, plain, n, sealed);
        assert_true(n < 16 || memcmp(sealed, plain, n) != 0);
        assert_true(taciti_seal_open(i % 2 == 0 ? s.other : s.caller, sealed, n, sealed + n));
        assert_memory_equal(sealed, plain, n);
        taciti_seal_close(s.caller, sealed, n, sealed); /* in place */
        assert_true(taciti_seal_open(s.other, sealed, n, sealed + n));
        assert_memory_equal(sealed, plain, n);
    }
    end_session(s);
    taciti_free(plain);
    taciti_free(sealed);
}

/* Every changed bit, another length, another place in the order, another direction, another session. */
static void refuse_changes(taciti_cipher cipher) {
    enum { N = 33, WHOLE = N + TACITI_SEAL_TAG_BYTES };
    uint8_t first[WHOLE], second[WHOLE], reply[WHOLE], foreign[WHOLE];
    const char plain[N] = "what nobody else shall change";
    for (unsigned bit = 0; bit < 8 * WHOLE; bit++) {
        const session s = begin_session(cipher, 1);
        taciti_seal_close(s.caller, plain, N, first);
        first[bit / 8] = (uint8_t)(first[bit / 8] ^ 1u << bit % 8);
        assert_false(taciti_seal_open(s.other, first, N, first + N));
        end_session(s);
    }
    session s = begin_session(cipher, 1);
    const session t = begin_session(cipher, 2);
    taciti_seal_close(s.caller, plain, N, first);
    taciti_seal_close(s.caller, plain, N, second);
    taciti_seal_close(s.other, plain, N, reply);
    taciti_seal_close(t.caller, plain, N, foreign);
    const uint8_t *const all[] = {first, second, reply, foreign};
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++) assert_memory_not_equal(all[i], all[j], N); /* no two have the same stream */
    const uint8_t *const wrong[] = {second, reply, foreign};
    for (int i = 0; i < 3; i++) {
        uint8_t block[WHOLE];
        end_session(s);
        s = begin_session(cipher, 1);
        memcpy(block, wrong[i], WHOLE);
        assert_false(taciti_seal_open(s.other, block, N, block + N));
    }
    end_session(s);
    s = begin_session(cipher, 1);
    assert_false(taciti_seal_open(s.other, first, N - 1, first + N));
    end_session(s);
    end_session(t);
}

static void sealed_blocks_come_back_as_they_were(void **state) {
    (void)state;
    pass_blocks(TACITI_CIPHER_XCHACHA20);
    if (has_cipher(TACITI_CIPHER_AES256GCM)) pass_blocks(TACITI_CIPHER_AES256GCM);
}

static void every_change_of_a_block_is_found(void **state) {
    (void)state;
    refuse_changes(TACITI_CIPHER_XCHACHA20);
    if (has_cipher(TACITI_CIPHER_AES256GCM)) refuse_changes(TACITI_CIPHER_AES256GCM);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_key_is_32_bytes_or_64_digits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(anything_else_is_refused_with_the_command_to_type, set_up, tear_down),
        cmocka_unit_test(a_proof_depends_on_all_it_covers),
        cmocka_unit_test(sealed_blocks_come_back_as_they_were),
        cmocka_unit_test(every_change_of_a_block_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
