/* SPDX-License-Identifier: Apache-2.0
 *
 * mixed, mixed4 and mixed8 send the bits of the codecs that their rungs name.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "codec/codec.h"
#include "codec/trial.h"

enum { N = 1000, ROOM = 4 * N + 64, HEAD = 4 };
enum { CODECS = 3 };
static const char *const MIXED[CODECS] = {"mixed", "mixed4", "mixed8"};
static const uint32_t RUNGS[CODECS] = {5, 3, 2};
static _Alignas(64) char g_scratch[16 * N];

typedef struct encoded {
    char payload[ROOM];
    float error[N];
    taciti_codec_tally tally;
    size_t bytes;
} encoded;

static void encode(const taciti_codec *codec, const taciti_codec_call *call, const float *x, encoded *out) {
    taciti_codec_call counted = *call;
    memset(out, 0, sizeof *out);
    counted.tally = &out->tally;
    assert_true(codec->bound(codec, call->options, N) <= sizeof out->payload);
    assert_true(codec->scratch_bytes == NULL || codec->scratch_bytes(codec, call->options, N) <= sizeof g_scratch);
    assert_int_equal(codec->encode(codec, &counted, x, N, out->payload, out->error, &out->bytes), TACIT_OK);
    assert_true(out->bytes <= codec->bound(codec, call->options, N));
}

static void sends_what(const taciti_codec *codec, const taciti_codec_rung *rung, double factor) {
    static encoded own, theirs;
    float x[N], y[N], z[N];
    const taciti_codec *other = rung->codec;
    const taciti_codec_call mine = {.setting = {.factor = factor}, .scratch = g_scratch},
                            call = {
                                .options = rung->options, .setting = {.factor = rung->selects}, .scratch = g_scratch};
    assert_ptr_equal(taciti_codec_rung_at(codec, factor), rung);
    taciti_gradient_like(7, x, N);
    encode(codec, &mine, x, &own);
    encode(other, &call, x, &theirs);
    assert_int_equal(own.bytes, theirs.bytes + HEAD);
    assert_true(taciti_codec_expected_bytes(codec, &mine, N) == HEAD + taciti_codec_expected_bytes(other, &call, N));
    assert_memory_equal(own.payload + HEAD, theirs.payload, theirs.bytes);
    assert_memory_equal(own.error, theirs.error, sizeof own.error);
    assert_memory_equal(&own.tally, &theirs.tally, sizeof own.tally);
    const taciti_codec_call plain = {.scratch = g_scratch};
    for (int i = 0; i < N; i++) y[i] = z[i] = (float)i;
    assert_int_equal(codec->decode(codec, &plain, own.payload, own.bytes, y, N, true), TACIT_OK);
    assert_int_equal(other->decode(other, &call, theirs.payload, theirs.bytes, z, N, true), TACIT_OK);
    assert_memory_equal(y, z, sizeof y);
    assert_int_equal(codec->decode(codec, &plain, own.payload, own.bytes, y, N, false), TACIT_OK);
    assert_int_equal(other->decode(other, &call, theirs.payload, theirs.bytes, z, N, false), TACIT_OK);
    assert_memory_equal(y, z, sizeof y);
}

static void every_rung_sends_the_bits_of_its_codec(void **state) {
    (void)state;
    for (int m = 0; m < CODECS; m++) {
        const taciti_codec *codec = taciti_codec_find(MIXED[m]);
        const taciti_codec_rung *r = codec->rungs, *last = NULL;
        for (double before = 1, loss = 0; r->factor > 0; before = r->factor, loss = r->loss, last = r++) {
            assert_true(r->factor > before && r->loss >= loss && (last == NULL || r->selects >= last->selects));
            sends_what(codec, r, r->factor);
            sends_what(codec, r, r->factor * 1.5); /* up to the next rung */
        }
        assert_int_equal(r - codec->rungs, RUNGS[m]);
        assert_true(RUNGS[m] <= TACITI_CODEC_RUNGS);
        sends_what(codec, last, 0);
        sends_what(codec, last, 1e6);
    }
    assert_string_equal(taciti_codec_rung_at(taciti_codec_find("mixed8"), 0)->codec->name, "int8");
    assert_string_equal(taciti_codec_rung_at(taciti_codec_find("mixed4"), 0)->codec->name, "int4");
}

/* Squares of int4 are counted in rotated groups. */
static void tallies_are_of_what_is_sent(void **state) {
    (void)state;
    static encoded own;
    float x[N], y[N];
    const taciti_codec *codec = taciti_codec_find("mixed4");
    taciti_gradient_like(7, x, N);
    for (const taciti_codec_rung *r = codec->rungs; r->factor > 0; r++) {
        double in = 0, sent = 0;
        encode(codec, &(taciti_codec_call){.setting = {.factor = r->factor}}, x, &own);
        assert_int_equal(
            codec->decode(codec, &(taciti_codec_call){.options = NULL}, own.payload, own.bytes, y, N, false), TACIT_OK);
        for (int i = 0; i < N; i++) {
            in += (double)x[i] * (double)x[i];
            sent += (double)y[i] * (double)y[i];
        }
        assert_true(own.tally.n == N && own.tally.selected == N && own.tally.near == N);
        assert_true(fabs(own.tally.squares_in / in - 1) < 1e-6);
        assert_true(fabs(own.tally.squares_out / sent - 1) < 1e-6);
    }
}

static void payloads_of_no_rung_are_refused(void **state) {
    (void)state;
    static encoded own;
    float x[N], y[N];
    taciti_gradient_like(7, x, N);
    for (int i = 0; i < N; i++) y[i] = 5;
    for (int m = 0; m < CODECS; m++) {
        const taciti_codec *codec = taciti_codec_find(MIXED[m]);
        const taciti_codec_call call = {.scratch = g_scratch};
        encode(codec, &(taciti_codec_call){.setting = {.factor = 4}}, x, &own);
        for (size_t bytes = 0; bytes < own.bytes + 5; bytes++)
            if (bytes != own.bytes)
                assert_int_equal(codec->decode(codec, &call, own.payload, bytes, y, N, false), TACIT_E_DATA);
        for (uint32_t rung = RUNGS[m]; rung < RUNGS[m] + 3; rung++) {
            memcpy(own.payload, &rung, sizeof rung);
            for (size_t bytes = HEAD; bytes < ROOM; bytes += 61)
                assert_int_equal(codec->decode(codec, &call, own.payload, bytes, y, N, true), TACIT_E_DATA);
        }
    }
    for (int i = 0; i < N; i++) assert_true(y[i] == 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rung_sends_the_bits_of_its_codec),
        cmocka_unit_test(tallies_are_of_what_is_sent),
        cmocka_unit_test(payloads_of_no_rung_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
