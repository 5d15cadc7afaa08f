/* SPDX-License-Identifier: Apache-2.0
 *
 * What a registry brings is in every configuration: proven with a strategy that no program has.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "advise/candidates.h"
#include "base/log.h"
#include "base/memory.h"
#include "codec/codec.h"
#include "settings/settings.h"
#include "settings/test_strategies.h"

static char g_line[512];
static void keep_line(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)level;
    (void)snprintf(g_line, sizeof g_line, "%s", line);
}

static taciti_settings g_settings;
static taciti_list g_words;
static int64_t g_count;

static const taciti_option OWN[] = {
    TACITI_OPTION("count", INT, 0, "7", .help = "a number"),
};
static const taciti_option_table OWN_TABLE = {.section = "mine", .help = "a caller's", .options = OWN, .count = 1};
static const taciti_option WORDS[] = {
    TACITI_OPTION("words", LIST, 0, "a b", .help = "words"),
};
static const taciti_option_table WORDS_TABLE = {.section = "text", .help = "a caller's", .options = WORDS, .count = 1};

static int open_settings(void **state) {
    (void)state;
    const taciti_own_section own[] = {{{&OWN_TABLE, &g_count, NULL}, &taciti_model_option_table},
                                      {{&WORDS_TABLE, &g_words, NULL}, &taciti_optim_option_table}};
    taciti_log_set_sink(keep_line, NULL, TACITI_LOG_ERROR);
    g_line[0] = '\0';
    return taciti_settings_init(&g_settings, own, sizeof own / sizeof *own) == TACIT_OK ? 0 : -1;
}

static int close_settings(void **state) {
    (void)state;
    taciti_settings_destroy(&g_settings);
    return 0;
}

static const taciti_strategy *choose(const char *name) {
    assert_int_equal(taciti_config_set(&g_settings.config, "strategy", name, "test"), TACIT_OK);
    return taciti_settings_strategy(&g_settings);
}

static void set(const char *key, const char *value) {
    assert_int_equal(taciti_config_set(&g_settings.config, key, value, "test"), TACIT_OK);
}

static bool is_registered_elsewhere(const taciti_option_table *table) {
    for (const taciti_codec *const *c = taciti_codec_list(); *c != NULL; c++)
        if ((*c)->options == table) return true;
    for (const taciti_controller *const *c = taciti_controller_list(); *c != NULL; c++)
        if ((*c)->options == table) return true;
    return false;
}

static void sections_are_in_their_order(void **state) {
    (void)state;
    static const char *const sections[] = {"",          "mine",     "model",    "text",  "optim", "exchange", "gossip",
                                           "test-only", "localsgd", "compress", "adapt", "comm",  "compute"};
    size_t seen = 0;
    for (size_t i = 0; i < g_settings.config.count; i++) {
        const taciti_option_table *table = g_settings.config.sections[i].table;
        if (is_registered_elsewhere(table)) continue;
        assert_true(seen < sizeof sections / sizeof *sections);
        assert_string_equal(table->section, sections[seen++]);
    }
    assert_int_equal(seen, sizeof sections / sizeof *sections);
    assert_int_equal(g_count, 7);
    assert_int_equal(g_words.count, 2);
}

static void a_strategy_brings_its_options(void **state) {
    (void)state;
    const taciti_strategy *strategy = choose("test-only");
    const test_options *o = taciti_settings_options(&g_settings, strategy->options);
    assert_true(taciti_settings_registered(strategy->options));
    assert_false(taciti_settings_registered(&OWN_TABLE));
    assert_true(o->spread > 0.4 && o->spread < 0.6 && o->after == 3 && o->names.count == 0);
    set("test-only.after", "12");
    set("test-only.names", "one two");
    set("gossip.degree", "77");
    set("localsgd.every", "5");
    assert_true(o->after == 12 && o->names.count == 2);
    assert_null(taciti_settings_options(&g_settings, NULL));
    char *json = taciti_config_json(&g_settings.config, 1);
    assert_non_null(strstr(json, "\"test-only.spread\": 0.5, \"test-only.after\": 12, "
                                 "\"test-only.names\": [\"one\", \"two\"], \"localsgd.every\": 5"));
    taciti_free(json);
}

static void a_copy_stands_alone(void **state) {
    (void)state;
    static const char *const VALUES[][2] = {
        {"optim.lr", "0.012345678901234567"}, {"compress.codec", "topk"}, {"test-only.names", "one two"}};
    taciti_settings from, copy;
    assert_int_equal(taciti_settings_init(&from, NULL, 0), TACIT_OK);
    for (size_t i = 0; i < sizeof VALUES / sizeof *VALUES; i++)
        assert_int_equal(taciti_config_set(&from.config, VALUES[i][0], VALUES[i][1], "test"), TACIT_OK);
    assert_int_equal(taciti_settings_copy(&from, &copy), TACIT_OK);
    char *expected = taciti_config_json(&from.config, 0);
    taciti_settings_destroy(&from);
    char *json = taciti_config_json(&copy.config, 0);
    assert_string_equal(json, expected);
    taciti_free(expected);
    taciti_free(json);
    taciti_place lr;
    assert_true(taciti_config_find(&copy.config, "optim.lr", &lr) && *lr.given == TACITI_GIVEN_TYPED);
    taciti_settings_destroy(&copy);
}

static void refused(const char *key, const char *value, const char *message) {
    assert_int_equal(taciti_config_set(&g_settings.config, key, value, "FILE:3"), TACIT_E_CONFIG);
    if (strstr(g_line, message) == NULL) fail_msg("\"%s\" does not contain \"%s\"", g_line, message);
}

static void what_is_refused_is_named(void **state) {
    (void)state;
    refused("test-only.afer", "1", "did you mean \"test-only.after\"?");
    refused("test-only.after", "100", "FILE:3: 100 is outside 1..99");
    refused("strategy", "test-olny", "is unknown; did you mean \"test-only\"? legal: dp|gossip|test-only|localsgd");
    refused("exchange.wire", "bf61", "did you mean \"bf16\"?");
    refused("gossip.topology", "aar", "did you mean \"aer\"?");
    assert_string_equal(g_settings.strategy.text, "dp");
}

static void preset_is(const char *codec, double factor, double feedback, double momentum) {
    taciti_place place;
    set("compress.codec", codec);
    assert_int_equal(taciti_settings_complete(&g_settings), TACIT_OK);
    assert_true(taciti_config_find(&g_settings.config, "localsgd.outer_momentum", &place));
    assert_true(g_settings.compress.factor == factor && g_settings.compress.feedback == feedback);
    assert_true(*(const double *)place.value == momentum);
}

/* A preset changes defaults, and only while its codec is chosen; what is given stays, even if it is the default. */
static void presets_are_defaults(void **state) {
    (void)state;
    preset_is("topk", 10, 1, 0);
    preset_is("sparseloco", 64, 0.95, 0);
    preset_is("topk", 10, 1, 0);
    set("compress.feedback", "1");
    set("localsgd.outer_momentum", "0.5");
    preset_is("sparseloco", 64, 1, 0.5);
    preset_is("none", 10, 1, 0.5);
}

/* The owner of a sum alone decodes sketches. */
static void sketches_are_for_owners(void **state) {
    (void)state;
    static const char *const KEYS[][3] = {{"compress.collective", "gather", "auto"},
                                          {"compress.what", "change", "gradient"}};
    set("compress.codec", "sketch");
    assert_int_equal(taciti_settings_check(&g_settings, NULL, TACITI_READER_TRAIN), TACIT_OK);
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++) {
        set(KEYS[i][0], KEYS[i][1]);
        assert_int_equal(taciti_settings_check(&g_settings, NULL, TACITI_READER_TRAIN), TACIT_E_CONFIG);
        set(KEYS[i][0], KEYS[i][2]);
    }
}

static void a_bucket_without_its_unit_is_refused(void **state) {
    (void)state;
    assert_int_equal(taciti_config_set(&g_settings.config, "exchange.bucket", "25", "test"), TACIT_E_CONFIG);
    assert_non_null(strstr(g_line, "25 is outside 1024..17179869184; a size has a unit, as 25MiB"));
    assert_int_equal(taciti_config_set(&g_settings.config, "exchange.bucket", "-1", "test"), TACIT_E_CONFIG);
    set("exchange.bucket", "1KiB");
    set("exchange.bucket", "0");
}

/* A model of 20 MB, of which compress.layers leaves out every second tensor. */
static size_t buckets_of(bool *plain) {
    enum { TENSORS = 8, FLOATS = 655360 };
    taciti_layout layout;
    assert_int_equal(taciti_layout_create(TENSORS, &layout), TACIT_OK);
    for (size_t t = 0; t < TENSORS; t++)
        assert_int_equal(taciti_layout_append(&layout, t % 2 == 0 ? "wte" : "ln_f.weight", 1, (size_t[]){FLOATS}, true),
                         TACIT_OK);
    assert_int_equal(taciti_settings_seal(&g_settings, &layout), TACIT_OK);
    const size_t count = layout.bucket_count;
    *plain = false;
    for (size_t b = 0; b < count; b++) *plain = *plain || layout.buckets[b].plain;
    taciti_layout_destroy(&layout);
    return count;
}

/* With factor 1 steps are dense, and so are buckets, as the planner has it: unless a controller may choose more. */
static void factor_one_has_the_buckets_of_dense_sums(void **state) {
    (void)state;
    bool plain = true;
    const size_t dense = buckets_of(&plain);
    assert_false(plain);
    set("compress.codec", "topk");
    set("compress.layers", "all,-norm");
    set("compress.factor", "10");
    const size_t coded = buckets_of(&plain);
    assert_true(coded != dense && plain);
    set("compress.factor", "1");
    assert_int_equal(buckets_of(&plain), dense);
    assert_false(plain);
    set("adapt.policy", "gravac");
    assert_int_equal(buckets_of(&plain), coded);
}

static void compression_is_checked(void **state) {
    (void)state;
    set("compress.codec", "topk");
    set("compress.factor", "7");
    assert_int_equal(taciti_settings_check(&g_settings, NULL, TACITI_READER_TRAIN), TACIT_OK);
    set("compress.start", "8");
    assert_int_equal(taciti_settings_check(&g_settings, NULL, TACITI_READER_TRAIN), TACIT_E_CONFIG);
    assert_non_null(strstr(g_line, "compress.start 8 is above compress.factor 7"));
    set("compress.start", "7");
    set("compress.codec", "auto");
    set("adapt.policy", "gravac");
    assert_int_equal(taciti_settings_check(&g_settings, NULL, TACITI_READER_TRAIN), TACIT_E_CONFIG);
    assert_non_null(strstr(g_line, "compress.codec auto does not select"));
    assert_null(strstr(g_line, "mixed4"));
    set("compress.codec", "none");
    set("adapt.policy", "payoff");
    assert_int_equal(taciti_settings_check(&g_settings, NULL, TACITI_READER_TRAIN), TACIT_E_CONFIG);
    assert_non_null(strstr(g_line, "give --compress.codec auto"));
    set("adapt.policy", "fixed");
    set("compress.codec", "auto");
    assert_int_equal(taciti_settings_check(&g_settings, NULL, TACITI_READER_TRAIN), TACIT_E_CONFIG);
    assert_non_null(strstr(g_line, "adapt.policy fixed: compress.codec auto chooses by measured time"));
    set("compress.codec", "topk");
    assert_int_equal(taciti_settings_check(&g_settings, NULL, TACITI_READER_TRAIN), TACIT_OK);
    (void)choose("gossip");
    assert_int_equal(taciti_settings_check(&g_settings, NULL, TACITI_READER_TRAIN), TACIT_E_CONFIG);
    assert_non_null(strstr(g_line, "strategy gossip does not compress"));
    set("compress.codec", "none");
    set("compress.what", "momentum");
    assert_int_equal(taciti_settings_check(&g_settings, NULL, TACITI_READER_TRAIN), TACIT_E_CONFIG);
    assert_non_null(strstr(g_line, "strategy gossip has no momentum"));
    set("compress.what", "gradient");
    set("adapt.policy", "gravac");
    assert_int_equal(taciti_settings_check(&g_settings, NULL, TACITI_READER_TRAIN), TACIT_E_CONFIG);
    assert_non_null(strstr(g_line, "adapt.policy gravac chooses how sums over all ranks are compressed"));
}

static const char *codec_of_mixes(void) {
    const taciti_compression_setup setup = taciti_settings_compression(&g_settings);
    assert_null(setup.sums.codec);
    assert_true(taciti_compression_is_fixed(&setup));
    assert_int_equal(taciti_settings_check(&g_settings, NULL, TACITI_READER_TRAIN), TACIT_OK);
    return setup.mixes.codec == NULL ? "none" : setup.mixes.codec->name;
}

static void refused_beside(const char *begin) {
    static const char *const OTHERS[][3] = {
        {"gossip.async", "true", "false"}, {"gossip.tracker", "true", "false"}, {"gossip.delay", "1", "0"}};
    set("gossip.gamma", "0.5"); /* of delay */
    for (size_t i = 0; i < sizeof OTHERS / sizeof *OTHERS; i++) {
        set(OTHERS[i][0], OTHERS[i][1]);
        assert_int_equal(taciti_settings_check(&g_settings, NULL, TACITI_READER_TRAIN), TACIT_E_CONFIG);
        assert_ptr_equal(strstr(g_line, begin), g_line);
        assert_non_null(strstr(g_line, OTHERS[i][0]));
        set(OTHERS[i][0], OTHERS[i][2]);
    }
}

/* compress.codec auto is one answer for all strategies; a name goes before it. */
static void auto_compresses_mixes(void **state) {
    (void)state;
    (void)choose("gossip");
    assert_string_equal(codec_of_mixes(), "none");
    set("compress.codec", "auto");
    assert_string_equal(codec_of_mixes(), "int4");
    refused_beside("compress.codec auto: ");
    set("gossip.codec", "signmag2");
    assert_string_equal(codec_of_mixes(), "signmag2");
    refused_beside("gossip.codec signmag2: ");
    set("compress.codec", "none");
    set("gossip.codec", "auto");
    assert_string_equal(codec_of_mixes(), "int4");
    set("gossip.codec", "powergossip");
    refused_beside("gossip.codec powergossip: ");
}

/* localsgd sums differences of averages. */
static void votes_are_for_gradients(void **state) {
    (void)state;
    set("compress.codec", "signsgd");
    set("compress.feedback", "0");
    assert_int_equal(taciti_settings_check(&g_settings, NULL, TACITI_READER_TRAIN), TACIT_OK);
    (void)choose("localsgd");
    assert_int_equal(taciti_settings_check(&g_settings, NULL, TACITI_READER_TRAIN), TACIT_E_CONFIG);
    assert_non_null(strstr(g_line, "compress.codec signsgd: ranks vote on the sign of every gradient"));
}

static void check_is_that_of_the_strategy(void **state) {
    (void)state;
    taciti_hosts hosts = {0};
    assert_int_equal(taciti_hosts_create(2, &hosts), TACIT_OK);
    set("test-only.spread", "0");
    assert_int_equal(taciti_settings_check(&g_settings, &hosts, TACITI_READER_TRAIN), TACIT_OK); /* dp: nobody asks */
    (void)choose("test-only");
    assert_int_equal(taciti_settings_check(&g_settings, NULL, TACITI_READER_TRAIN), TACIT_E_CONFIG);
    assert_non_null(strstr(g_line, "give --test-only.spread 0.5"));
    set("test-only.spread", "1");
    assert_int_equal(taciti_settings_check(&g_settings, NULL, TACITI_READER_TRAIN), TACIT_OK);
    assert_int_equal(taciti_settings_check(&g_settings, &hosts, TACITI_READER_TRAIN), TACIT_E_CONFIG);
    assert_non_null(strstr(g_line, "test-only.after 3 needs as many ranks"));
    taciti_hosts_destroy(&hosts);
}

static void labels_are_the_strategy_s(void **state) {
    (void)state;
    taciti_place place;
    assert_false(taciti_settings_label(&g_settings, 0, &place));
    (void)choose("test-only");
    assert_true(taciti_settings_label(&g_settings, 0, &place));
    assert_string_equal(place.option->key, "spread");
    assert_true(taciti_settings_label(&g_settings, 1, &place));
    assert_string_equal(place.option->key, "after");
    assert_false(taciti_settings_label(&g_settings, 2, &place));
    for (const taciti_strategy *const *s = taciti_strategy_list(); *s != NULL; s++) { /* keys that there are */
        (void)choose((*s)->name);
        size_t words = (*s)->label == NULL ? 0 : 1, labels = 0;
        for (const char *c = (*s)->label; c != NULL && *c != '\0'; c++) words += *c == ' ';
        while (taciti_settings_label(&g_settings, labels, &place)) labels++;
        assert_int_equal(labels, words);
    }
}

/* Patterns of a strategy that plan/ has never heard of are priced, on every dense wire. */
static void the_planner_prices_its_patterns(void **state) {
    (void)state;
    taciti_hosts hosts = {0};
    taciti_candidates candidates;
    size_t wires = 0, found = 0, configured = 0;
    while (taciti_codec_dense_name(wires) != NULL) wires++;
    (void)choose("test-only");
    set("exchange.wire", "bf16");
    assert_int_equal(taciti_hosts_by_size(8, 2, &hosts), TACIT_OK);
    assert_int_equal(taciti_candidates_create(&g_settings, &hosts, NULL, &candidates), TACIT_OK);
    for (size_t i = 0; i < candidates.count; i++) {
        const taciti_candidate *c = &candidates.list[i];
        configured += c->configured;
        if (strcmp(c->strategy, "test-only") != 0) continue;
        found++;
        assert_int_equal(c->method.every, 3);
        assert_int_equal(c->configured, strcmp(c->method.label, "test-only bf16") == 0);
    }
    assert_true(wires >= 2 && found == wires && configured == 1);
    taciti_candidates_destroy(&candidates);
    taciti_hosts_destroy(&hosts);
}

/* Checkpoints record this text, and ranks compare it: keys and their order stay. */
static void the_text_of_today_stays(void **state) {
    (void)state;
    taciti_place place;
    char key[TACITI_KEY_BYTES];
    assert_true(taciti_config_at(&g_settings.config, 0, &place));
    assert_string_equal(taciti_place_key(&place, key), "strategy");
    char *json = taciti_config_json(&g_settings.config, 0);
    assert_non_null(strstr(json, "\"exchange.wire\": \"f32\", \"exchange.bucket\": 0, \"exchange.scheme\": \"auto\", "
                                 "\"exchange.lanes\": 0, \"exchange.overlap\": true, \"gossip.topology\": \"auto\", "
                                 "\"gossip.file\": \"\", \"gossip.order\": \"awc\""));
    taciti_free(json);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sections_are_in_their_order, open_settings, close_settings),
        cmocka_unit_test_setup_teardown(a_strategy_brings_its_options, open_settings, close_settings),
        cmocka_unit_test(a_copy_stands_alone),
        cmocka_unit_test_setup_teardown(what_is_refused_is_named, open_settings, close_settings),
        cmocka_unit_test_setup_teardown(presets_are_defaults, open_settings, close_settings),
        cmocka_unit_test_setup_teardown(sketches_are_for_owners, open_settings, close_settings),
        cmocka_unit_test_setup_teardown(a_bucket_without_its_unit_is_refused, open_settings, close_settings),
        cmocka_unit_test_setup_teardown(factor_one_has_the_buckets_of_dense_sums, open_settings, close_settings),
        cmocka_unit_test_setup_teardown(compression_is_checked, open_settings, close_settings),
        cmocka_unit_test_setup_teardown(auto_compresses_mixes, open_settings, close_settings),
        cmocka_unit_test_setup_teardown(votes_are_for_gradients, open_settings, close_settings),
        cmocka_unit_test_setup_teardown(check_is_that_of_the_strategy, open_settings, close_settings),
        cmocka_unit_test_setup_teardown(labels_are_the_strategy_s, open_settings, close_settings),
        cmocka_unit_test_setup_teardown(the_planner_prices_its_patterns, open_settings, close_settings),
        cmocka_unit_test_setup_teardown(the_text_of_today_stays, open_settings, close_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
