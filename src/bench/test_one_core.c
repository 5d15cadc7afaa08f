/* SPDX-License-Identifier: Apache-2.0
 *
 * Measurements on one core: shares are ratios of the rates beside them; bytes of codecs and kernels are counted by
 * hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/codecs.h"
#include "bench/kernels.h"
#include "bench/local_step.h"
#include "bench/machine_block.h"
#include "settings/settings.h"

enum { N = 5003 };

static taciti_settings g_settings;

static int set_up(void **state) {
    (void)state;
    return taciti_settings_init(&g_settings, NULL, 0);
}

static int tear_down(void **state) {
    (void)state;
    taciti_settings_destroy(&g_settings);
    return 0;
}

static const void *options_of(const void *context, const taciti_codec *codec) {
    return taciti_settings_options(context, codec->options);
}

static taciti_codec_bench_options options_with(const char *codec, double factor, const char *isa) {
    return (taciti_codec_bench_options){.codec = taciti_codec_find(codec),
                                        .isa = isa,
                                        .options_of = options_of,
                                        .setting = {.factor = factor},
                                        .n = N,
                                        .rounds = 1,
                                        .context = &g_settings};
}

static void assert_near(double a, double b) { assert_true(fabs(a - b) <= 1e-12 * fabs(b)); }

/* Bytes that a pass moves per float, as docs/bench-codecs.md lists them. */
static void check_shares(const taciti_codec_figure *f) {
    static const double BESIDES_PAYLOAD[TACITI_TRIAL_PASSES] = {12, 4, 4, 8};
    for (int pass = 0; pass < TACITI_TRIAL_PASSES; pass++) {
        const taciti_codec_rate *r = &f->rate[pass];
        assert_true(r->input_bytes_per_s.median > 0);
        assert_near(r->moved_share.median, r->input_bytes_per_s.median / f->read_bytes_per_s.median *
                                               (BESIDES_PAYLOAD[pass] + f->payload_bytes_per_float) / 4);
    }
}

static void codecs_have_the_bytes_that_they_send(void **state) {
    static const struct {
        const char *codec;
        double factor, bytes, kept, energy; /* energy < 0: more than 0.5, less than 1 */
    } CASES[] = {{"f32", 1, 4, 1, 1}, {"bf16", 1, 2, 1, -1}, {"topk", 10, -1, 500.0 / N, -1}};
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const taciti_codec_bench_options o = options_with(CASES[i].codec, CASES[i].factor, "scalar");
        taciti_codec_bench bench;
        assert_int_equal(taciti_codec_bench_run(&o, &bench), TACIT_OK);
        assert_int_equal(bench.count, 2);
        const taciti_codec_figure *whole = &bench.figures[1];
        assert_true(whole->whole && !bench.figures[0].whole && whole->piece_n == N);
        assert_string_equal(whole->isa, "scalar");
        if (CASES[i].bytes > 0) assert_near(whole->payload_bytes_per_float, CASES[i].bytes);
        assert_true(fabs(whole->kept_share - CASES[i].kept) <= 1.0 / N);
        if (CASES[i].energy > 0) assert_near(whole->energy_kept, 1);
        if (CASES[i].energy < 0) assert_true(whole->energy_kept > 0.5 && whole->energy_kept < 1);
        assert_true(isnan(whole->index_bits) == (CASES[i].kept >= 1));
        if (CASES[i].kept < 1) assert_true(whole->index_bits >= whole->index_entropy && whole->index_entropy > 3);
        check_shares(whole);
        taciti_codec_bench_destroy(&bench);
    }
}

static void every_codec_that_is_not_for_reference_has_two_figures(void **state) {
    taciti_codec_bench_options o = options_with("f32", 10, "scalar");
    taciti_codec_bench bench;
    size_t expected = 0;
    (void)state;
    assert_near(taciti_codec_bench_memory_bytes(&o), (4.0 + TACITI_CODEC_BENCH_BYTES_PER_FLOAT) * N);
    o.codec = NULL;
    for (const taciti_codec *const *codec = taciti_codec_list(); *codec != NULL; codec++)
        expected += (*codec)->reference ? 0 : 2;
    assert_int_equal(taciti_codec_bench_run(&o, &bench), TACIT_OK);
    assert_int_equal(bench.count, expected);
    taciti_codec_bench_destroy(&bench);
}

static void kernels_move_the_bytes_of_their_operands(void **state) {
    static const struct {
        const char *name;
        double bytes;
    } CASES[] = {{"add", 12}, {"bf16_encode", 6}, {"bf16_encode_error", 10}, {"sum_squares", 4},
                 {"sgd", 20}, {"adamw", 28},      {"accum_adamw", 28}};
    static taciti_kernel_bench bench;
    size_t found = 0;
    (void)state;
    assert_int_equal(taciti_kernel_bench_run(1025, 0, 1, &bench), TACIT_E_USAGE);
    assert_int_equal(taciti_kernel_bench_run(1025, 1, 2, &bench), TACIT_OK);
    assert_true(bench.floats == 2048 && bench.rounds == 1 && bench.threads == 2);
    for (size_t k = 0; k < TACITI_BENCH_KERNELS; k++) {
        const taciti_kernel_figure *f = &bench.kernels[k];
        for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
            if (strcmp(CASES[i].name, f->name) != 0) continue;
            assert_near(f->bytes_per_element, CASES[i].bytes);
            found++;
        }
        for (int p = 0; p < 2; p++)
            assert_near(f->rate[p].ratio.median, f->rate[p].bytes_per_s.median / f->rate[p].probe_bytes_per_s.median);
    }
    assert_int_equal(found, sizeof CASES / sizeof *CASES);
}

/* nano: 6 N + 12 layers channels time per token; N is without positions. */
static void a_local_step_counts_its_operations(void **state) {
    taciti_step_bench_options o = {.batch = 3, .time = 11, .threads = 1, .rounds = 1};
    taciti_step_bench b;
    (void)state;
    o.model = g_settings.model;
    (void)strcpy(o.model.preset.text, "nano");
    assert_int_equal(taciti_model_resolve(&o.model), TACIT_OK);
    assert_int_equal(taciti_step_bench_run(&o, &b), TACIT_OK);
    const taciti_statistics *of = b.figures;
    assert_int_equal(b.parameters, 27936);
    const double positions = (double)(o.model.context * o.model.channels);
    const double per_token =
        6 * (27936 - positions) + 12.0 * (double)(o.model.layers * o.model.channels) * (double)o.time;
    assert_near(b.flops_per_step, 33 * per_token);
    assert_near(of[TACITI_STEP_RATIO].median, of[TACITI_STEP_FLOPS].median / of[TACITI_STEP_PEAK].median);
    assert_near(of[TACITI_STEP_FLOPS].median, b.flops_per_step / of[TACITI_STEP_WHOLE].median);
    assert_true(of[TACITI_STEP_FORWARD].median + of[TACITI_STEP_BACKWARD].median + of[TACITI_STEP_UPDATE].median <=
                of[TACITI_STEP_WHOLE].median);
    assert_true(b.first_loss > 4 && b.first_loss < 4.5 && b.last_loss < b.first_loss); /* ln 61 is 4.11 */
    assert_true(b.predicted_bytes > 16 * 27936 && b.resident_bytes > b.predicted_bytes);
}

static void a_machine_is_described(void **state) {
    static const taciti_machine MACHINE = {.cpu = "C",
                                           .caches = "L1",
                                           .kernel = "K",
                                           .compiler = "gcc",
                                           .huge_pages = "never",
                                           .isa = "scalar",
                                           .memory_bytes = 5,
                                           .cores = 3,
                                           .load = 0.5};
    taciti_machine here;
    (void)state;
    json_t *json = taciti_machine_json(&MACHINE);
    char *text = json_dumps(json, JSON_COMPACT);
    assert_string_equal(text, "{\"cpu\":\"C\",\"caches\":\"L1\",\"system\":\"K\",\"compiler\":\"gcc\",\"huge_pages\":"
                              "\"never\",\"isa\":\"scalar\",\"memory_bytes\":5,\"cores\":3,\"load\":0.5}");
    free(text);
    json_decref(json);
    taciti_machine_read(&here);
    assert_true(here.cpu[0] != '\0' && here.caches[0] != '\0' && here.kernel[0] != '\0' && here.huge_pages[0] != '\0');
    assert_true(here.cores >= 1 && here.memory_bytes > (size_t)1 << 20 && here.load >= -1 && here.isa != NULL);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(codecs_have_the_bytes_that_they_send),
        TEST(every_codec_that_is_not_for_reference_has_two_figures),
        TEST(kernels_move_the_bytes_of_their_operands),
        TEST(a_local_step_counts_its_operations),
        TEST(a_machine_is_described),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
