/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/option.h"
#include "base/rng.h"

/* ---- a configuration with every type --------------------------------------------------------------------------- */

typedef struct optim_values {
    int name;
    double lr;
    int64_t warmup;
    bool nesterov;
} optim_values;

typedef struct data_values {
    taciti_list train;
    taciti_text vocab;
    int64_t bucket;
    uint64_t seed;
} data_values;

static taciti_text g_strategy;
static optim_values g_optim;
static data_values g_data;

static const taciti_option optim_options[] = {
    TACITI_OPTION("name", ENUM, offsetof(optim_values, name), "adamw", .choices = "adamw|sgd", .help = "update rule"),
    TACITI_OPTION("lr", REAL, offsetof(optim_values, lr), "3e-4", .max = 1, .help = "peak learning rate"),
    TACITI_OPTION("warmup", INT, offsetof(optim_values, warmup), "10", .unit = "steps", .help = "linear warm-up"),
    TACITI_OPTION("nesterov", BOOL, offsetof(optim_values, nesterov), "false", .help = "look ahead"),
};
static const taciti_option data_options[] = {
    TACITI_OPTION("train", LIST, offsetof(data_values, train), "", .help = "files"),
    TACITI_OPTION("vocab", TEXT, offsetof(data_values, vocab), "", .help = "file", .flags = TACITI_OPTION_NO_DIGEST),
    TACITI_OPTION("bucket", BYTES, offsetof(data_values, bucket), "25MiB", .min = 1, .max = 1e12, .unit = "bytes",
                  .help = "bucket"),
    TACITI_OPTION("seed", INT, offsetof(data_values, seed), "1", .max = 9.2e18, .help = "seed"),
};
static const taciti_option top_options[] = {
    TACITI_OPTION("strategy", TEXT, 0, "dp", .help = "what is exchanged, and when"),
};
static const taciti_option_table top_table = {.section = "", .help = "general", .options = top_options, .count = 1};
static const taciti_option_table optim_table = {
    .section = "optim", .help = "update rule", .options = optim_options, .count = 4};
static const taciti_option_table data_table = {
    .section = "data", .help = "what is learnt from", .options = data_options, .count = 4};
static const taciti_section g_sections[] = {
    {&top_table, &g_strategy, NULL}, {&optim_table, &g_optim, NULL}, {&data_table, &g_data, NULL}};
static const taciti_config g_config = {g_sections, 3};

static const char all_defaults[] = "{\"strategy\": \"dp\", \"optim.name\": \"adamw\", \"optim.lr\": 0.0003, "
                                   "\"optim.warmup\": 10, \"optim.nesterov\": false, \"data.train\": [], "
                                   "\"data.vocab\": \"\", \"data.bucket\": 26214400, \"data.seed\": 1}";

static char g_line[2048], g_path[64];
static int g_lines;

static void keep_line(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)level;
    (void)snprintf(g_line, sizeof g_line, "%s", line);
    g_lines++;
}

static int set_up(void **state) {
    (void)state;
    taciti_log_set_sink(keep_line, NULL, TACITI_LOG_INFO);
    (void)snprintf(g_path, sizeof g_path, "/tmp/tacit-option-%ld.yaml", (long)getpid());
    memset(&g_data, 0xff, sizeof g_data); /* defaults must not read what is there */
    return taciti_config_defaults(&g_config) != TACIT_OK;
}

static int tear_down(void **state) {
    (void)state;
    (void)unlink(g_path);
    taciti_config_destroy(&g_config);
    return g_data.train.items != NULL;
}

static void assert_json(const char *expected, int digest_only) {
    char *json = taciti_config_json(&g_config, digest_only);
    assert_non_null(json);
    assert_string_equal(json, expected);
    taciti_free(json);
}

static void write_file(const char *text, size_t bytes) {
    FILE *file = fopen(g_path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* ---- files ----------------------------------------------------------------------------------------------------- */

static void read_good(const char *text) {
    write_file(text, strlen(text));
    g_line[0] = '\0';
    const tacit_status status = taciti_config_file(&g_config, g_path);
    if (status != TACIT_OK) fail_msg("refused: %s", g_line);
}

/* The message, without the path in front, is exactly `expected`; one line was logged. */
static void read_bad(const char *text, const char *expected) {
    write_file(text, strlen(text));
    g_lines = 0;
    assert_int_equal(taciti_config_file(&g_config, g_path), TACIT_E_CONFIG);
    assert_int_equal(g_lines, 1);
    assert_memory_equal(g_line, g_path, strlen(g_path));
    assert_string_equal(g_line + strlen(g_path), expected);
}

/* Covers texts that YAML would take for something else, line breaks and characters that a file may not contain. */
static void a_printed_configuration_reads_back(void **state) {
    (void)state;
    static const char *const TEXTS[] = {"",
                                        "null",
                                        "~",
                                        "a b: c # d",
                                        "- x",
                                        "\"quoted\" \\",
                                        "\t\n\x01\x7f",
                                        "'",
                                        "1e3",
                                        "\xc2\x85\xc2\x9f\xe2\x80\xa8\xef\xbb\xbf",
                                        "gr\xc3\xbc\xc3\x9f",
                                        "\xf0\x9f\x90\x9f"};
    for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS; i++) {
        taciti_config_destroy(&g_config);
        assert_int_equal(taciti_config_defaults(&g_config), TACIT_OK);
        assert_int_equal(taciti_config_set(&g_config, "data.vocab", TEXTS[i], "test"), TACIT_OK);
        assert_int_equal(taciti_config_set(&g_config, "data.train", "a null -1", "test"), TACIT_OK);
        assert_int_equal(taciti_config_set(&g_config, "optim.lr", "0.1", "test"), TACIT_OK);
        char *before = taciti_config_json(&g_config, 0), *yaml = taciti_config_yaml(&g_config, i % 2 == 0);
        taciti_config_destroy(&g_config);
        assert_int_equal(taciti_config_defaults(&g_config), TACIT_OK);
        read_good(yaml);
        assert_json(before, 0);
        taciti_free(before);
        taciti_free(yaml);
    }
}

static void only_changes_are_printed(void **state) {
    (void)state;
    char *yaml = taciti_config_yaml(&g_config, true);
    assert_string_equal(yaml, "");
    taciti_free(yaml);
    read_good("optim: {lr: 0.5, warmup: 10}\ndata: {train: [a b, c]}\n");
    yaml = taciti_config_yaml(&g_config, true);
    assert_string_equal(yaml, "optim:\n  lr: 0.5\ndata:\n  train: [\"a b\", c]\n");
    taciti_free(yaml);
}

static const char valid_file[] = "# a run\n"
                                 "strategy: gossip\n"
                                 "optim:\n"
                                 "  name: sgd\n"
                                 "  lr: 0.1\n"
                                 "  nesterov: True\n"
                                 "data:\n"
                                 "  train: [a.txt, \"b c.txt\"]\n"
                                 "  vocab: 'it''s'\n"
                                 "  bucket: 1.5 KiB\n";
static const char valid_json[] = "{\"strategy\": \"gossip\", \"optim.name\": \"sgd\", \"optim.lr\": 0.1, "
                                 "\"optim.warmup\": 10, \"optim.nesterov\": true, \"data.train\": [\"a.txt\", "
                                 "\"b c.txt\"], \"data.vocab\": \"it's\", \"data.bucket\": 1536, \"data.seed\": 1}";

static void a_file_sets_what_it_names(void **state) {
    (void)state;
    assert_json(all_defaults, 0);
    read_good(valid_file);
    assert_json(valid_json, 0);
}

static void files_may_be_empty_have_a_mark_or_dos_lines(void **state) {
    (void)state;
    static const char *const nothing[] = {"",         "\n",           "# only words\n", "---\n",
                                          "--- {}\n", "\xef\xbb\xbf", "optim:\n",       "optim: {}\ndata: ~\n"};
    for (size_t i = 0; i < sizeof nothing / sizeof nothing[0]; i++) {
        read_good(nothing[i]);
        assert_json(all_defaults, 0);
    }
    read_good("\xef\xbb\xbfoptim:\r\n  lr: 0.5\r\ndata:\r\n  train:\r\n  - x\r\n");
    assert_true(g_optim.lr == 0.5);
    assert_string_equal(g_data.train.items[0], "x");
    read_bad("\xef\xbb\xbfoptim:\r\n  rl: 0.5\r\n", ":2:3: unknown key \"optim.rl\"; did you mean \"optim.lr\"?");
}

static void unknown_keys_name_the_place_and_the_nearest(void **state) {
    (void)state;
    read_bad("optim:\n  nmae: sgd\n", ":2:3: unknown key \"optim.nmae\"; did you mean \"optim.name\"?");
    read_bad("opitm:\n  name: sgd\n", ":1:1: unknown key \"opitm\"; did you mean \"optim\"?");
    read_bad("startegy: dp\n", ":1:1: unknown key \"startegy\"; did you mean \"strategy\"?");
    read_bad("data:\n  lr: 1\n", ":2:3: unknown key \"data.lr\"; did you mean \"optim.lr\"?");
    read_bad("lr: 1\n", ":1:1: unknown key \"lr\"; did you mean \"optim.lr\"?");
    read_bad("zzzzzz: 1\n", ":1:1: unknown key \"zzzzzz\"");
    read_bad("optim.lr: 0.1\n", ":1:1: write \"optim.lr\" as optim: {lr: ...}");
    read_bad("optim:\n  <<: {lr: 1}\n", ":2:3: unknown key \"optim.<<\"");
}

static void wrong_values_name_the_place_and_the_reason(void **state) {
    (void)state;
    read_bad("optim:\n  lr: abc\n", ":2:7: optim.lr: \"abc\" is not a number");
    read_bad("optim:\n  lr: 17\n", ":2:7: optim.lr: 17 is outside 0..1");
    read_bad("optim: {lr: .nan}\n", ":1:13: optim.lr: \".nan\" is not a number");
    read_bad("optim: {lr: \"0.1\"}\n", ":1:13: optim.lr: expects a number, not a quoted text; remove the quotes");
    read_bad("optim: {lr: [0.1]}\n", ":1:13: optim.lr: expects a number, not a sequence");
    read_bad("optim: {lr: {a: 1}}\n", ":1:13: optim.lr: expects a number, not a mapping");
    read_bad("optim: {lr: }\n", ":1:13: optim.lr: expects a number, not nothing; remove the key to keep its default");
    read_bad("optim: {warmup: 1e3}\n",
             ":1:17: optim.warmup: \"1e3\" is not a whole number; write it without point and exponent");
    read_bad("optim: {warmup: 99999999999999999999}\n",
             ":1:17: optim.warmup: \"99999999999999999999\" does not fit 64 bits");
    read_bad("optim: {nesterov: maybe}\n", ":1:19: optim.nesterov: \"maybe\" is neither true nor false");
    read_bad("optim: {name: adam}\n",
             ":1:15: optim.name: \"adam\" is unknown; did you mean \"adamw\"? legal: adamw|sgd");
    read_bad("optim: {name: lamb}\n", ":1:15: optim.name: \"lamb\" is not one of adamw|sgd");
    read_bad("data: {bucket: 0}\n", ":1:16: data.bucket: 0 is outside 1..1e+12");
    read_bad("data: {bucket: 5 MeB}\n",
             ":1:16: data.bucket: \"5 MeB\" is not a size; write for example 4096, 25MiB or 1.5GB");
    read_bad("data: {bucket: 0.3kB1}\n",
             ":1:16: data.bucket: \"0.3kB1\" is not a size; write for example 4096, 25MiB or 1.5GB");
    read_bad("data: {bucket: 1.0001kB}\n", ":1:16: data.bucket: \"1.0001kB\" is not a whole number of bytes");
    read_bad("data: {bucket: 99999999999GiB}\n", ":1:16: data.bucket: \"99999999999GiB\" does not fit 64 bits");
    read_bad("data: {seed: -1}\n", ":1:14: data.seed: -1 is below 0");
    read_bad("data:\n  train:\n  - a\n  - [b]\n",
             ":4:5: data.train: expects a sequence of texts, not an item of another kind");
    read_bad("data: {vocab: \"a\\0b\"}\n", ":1:15: a text must not contain a zero byte");
    assert_json(all_defaults, 0);
}

static void what_yaml_adds_is_refused(void **state) {
    (void)state;
    read_bad("optim:\n  lr: 0.1\n  lr: 0.2\n", ":3:3: \"optim.lr\" was already given on line 2");
    read_bad("optim: {lr: 1}\noptim: {lr: 1}\n", ":2:1: \"optim\" was already given on line 1");
    read_bad("strategy: a\nstrategy: b\n", ":2:1: \"strategy\" was already given on line 1");
    read_bad("data: &d {seed: 1}\n", ":1:7: anchors and aliases are not allowed; write the value out");
    read_bad("data: *d\n", ":1:7: anchors and aliases are not allowed; write the value out");
    read_bad("data: {seed: !!int 1}\n", ":1:14: tags are not allowed; the key decides the type");
    read_bad("optim: {lr: 1}\n---\noptim: {lr: 1}\n", ":2:1: only one document is allowed in a configuration");
    read_bad("- a\n", ":1:1: expects sections such as `train:` with keys and values below them");
    read_bad("hello\n", ":1:1: expects sections such as `train:` with keys and values below them");
    read_bad("optim: adamw\n", ":1:8: optim: expects keys and values, indented on the following lines");
    read_bad("[a]: 1\n", ":1:1: a key must be a word");
    read_bad("optim:\n  ? [a]\n  : 1\n", ":2:5: a key must be a word");
}

static void broken_yaml_names_the_place(void **state) {
    (void)state;
    static const char *const broken[] = {"optim: {lr: 1\n", "optim:\n\tlr: 1\n", "a: b: c\n",     "\"abc\n",
                                         "optim: \xff\n",   "optim: [}\n",       "%FOO\n---\n%%", "\x01"};
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        write_file(broken[i], strlen(broken[i]));
        g_lines = 0;
        assert_int_equal(taciti_config_file(&g_config, g_path), TACIT_E_CONFIG);
        assert_int_equal(g_lines, 1);
    }
    read_bad("optim:\n\tlr: 1\n", ":2:1: tabs do not indent; use spaces");
    read_bad("optim:\n \tlr: 1\n", ":2:2: tabs do not indent; use spaces");
    read_bad("optim:\n  lr: 1\n\tname: sgd\n", ":3:1: tabs do not indent; use spaces");
    read_bad("optim: @\n", ":1:8: found character that cannot start any token while scanning for the next token");
}

static void what_is_no_configuration_is_refused(void **state) {
    (void)state;
    assert_int_equal(taciti_config_file(&g_config, "/tmp"), TACIT_E_CONFIG);
    assert_string_equal(g_line, "/tmp: is a folder, not a regular file");
    assert_int_equal(taciti_config_file(&g_config, "/nonexistent.yaml"), TACIT_E_CONFIG);
    assert_string_equal(g_line, "/nonexistent.yaml: cannot open: No such file or directory");
    write_file("", 0);
    assert_int_equal(truncate(g_path, 100 << 20), 0);
    assert_int_equal(taciti_config_file(&g_config, g_path), TACIT_E_CONFIG);
    assert_non_null(strstr(g_line, "has 104857600 bytes, at most 1048576 are expected here"));
}

/* Every mutation of a valid file is either refused with one line or read; what was read is in range. */
static void mutations_never_crash(void **state) {
    (void)state;
    static const char alphabet[] = "\n\n  ::-[]{},\"'&*!|>%@`#?~\\\t\r\0\xc3\xff.019azA";
    size_t accepted = 0;
    for (uint64_t round = 0; round < 4000; round++) {
        char text[2 * sizeof valid_file];
        size_t length = sizeof valid_file - 1;
        memcpy(text, valid_file, length);
        const uint64_t key = taciti_rng_key(20, round), edits = 1 + taciti_rng_below(key, 0, 4);
        for (uint64_t e = 0; e < edits && length > 1; e++) {
            const size_t at = taciti_rng_below(key, 4 * e + 1, length);
            const char c = alphabet[taciti_rng_below(key, 4 * e + 2, sizeof alphabet - 1)];
            const uint64_t kind = taciti_rng_below(key, 4 * e + 3, 4);
            if (kind == 1) memmove(text + at + 1, text + at, length++ - at);
            if (kind == 2) memmove(text + at, text + at + 1, --length - at);
            if (kind == 3) length = at + 1;
            if (kind < 2) text[at] = c;
        }
        write_file(text, length);
        g_lines = 0;
        const tacit_status status = taciti_config_file(&g_config, g_path);
        assert_true(status == TACIT_OK || status == TACIT_E_CONFIG);
        assert_int_equal(g_lines, status != TACIT_OK);
        accepted += status == TACIT_OK;
        assert_true(g_optim.lr >= 0 && g_optim.lr <= 1 && (g_optim.name == 0 || g_optim.name == 1));
    }
    assert_in_range(accepted, 40, 3960);
}

static void random_bytes_never_crash(void **state) {
    (void)state;
    for (uint64_t round = 0; round < 500; round++) {
        char text[256];
        const size_t length = taciti_rng_below(77, round, sizeof text);
        for (size_t i = 0; i < length; i++) text[i] = (char)taciti_rng_below(round, i, round % 2 == 0 ? 256 : 128);
        write_file(text, length);
        const tacit_status status = taciti_config_file(&g_config, g_path);
        assert_true(status == TACIT_OK || status == TACIT_E_CONFIG);
    }
}

static void deep_nesting_ends_quickly(void **state) {
    (void)state;
    static char text[1 << 20];
    memset(text, '[', sizeof text);
    write_file(text, sizeof text);
    assert_int_equal(taciti_config_file(&g_config, g_path), TACIT_E_CONFIG);
    memcpy(text, "optim: ", 7);
    memset(text + 7, '{', sizeof text - 7);
    write_file(text, sizeof text);
    assert_int_equal(taciti_config_file(&g_config, g_path), TACIT_E_CONFIG);
}

/* ---- flags ----------------------------------------------------------------------------------------------------- */

enum { WORDS = 16 };

/* Splits at blanks, parses flags up to the first other word, returns how many words were consumed or the status. */
static int parse(const char *line) {
    static char copy[512];
    char *argv[WORDS + 1] = {0};
    int argc = 0, next = 0;
    (void)snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word != NULL && argc < WORDS; word = strtok(NULL, " ")) argv[argc++] = word;
    g_lines = 0;
    g_line[0] = '\0';
    while (next < argc && strncmp(argv[next], "--", 2) == 0) {
        const tacit_status status = taciti_config_flag(&g_config, argc, argv, &next);
        if (status != TACIT_OK) return (int)status;
    }
    return next;
}

static void flags_set_values(void **state) {
    (void)state;
    assert_int_equal(parse(""), 0);
    assert_int_equal(parse("gpt.yaml --optim.lr 0.5"), 0);
    assert_int_equal(parse("--optim.lr 0.5 --optim.name=sgd --strategy gossip gpt.yaml"), 5);
    assert_true(g_optim.lr == 0.5 && g_optim.name == 1);
    assert_string_equal(g_strategy.text, "gossip");
    assert_int_equal(parse("--optim.warmup -- 3"), TACIT_E_USAGE);
    assert_int_equal(parse("--optim.warmup -5 -x"), 2);
    assert_int_equal(g_optim.warmup, -5);
    assert_int_equal(parse("--data.vocab="), 1);
    assert_string_equal(g_data.vocab.text, "");
    assert_int_equal(parse("--data.vocab=a=b"), 1);
    assert_string_equal(g_data.vocab.text, "a=b");
}

static void boolean_flags_need_no_value(void **state) {
    (void)state;
    assert_int_equal(parse("--optim.nesterov gpt.yaml"), 1);
    assert_true(g_optim.nesterov);
    assert_int_equal(parse("--no-optim.nesterov true"), 1);
    assert_false(g_optim.nesterov);
    assert_int_equal(parse("--optim.nesterov on --optim.lr 1"), 4);
    assert_true(g_optim.nesterov);
    assert_int_equal(parse("--optim.nesterov=0"), 1);
    assert_false(g_optim.nesterov);
    assert_int_equal(parse("--no-optim.nesterov=1"), TACIT_E_USAGE);
    assert_int_equal(parse("--no-optim.lr"), TACIT_E_USAGE);
}

static void list_flags_take_words_up_to_the_next_flag(void **state) {
    (void)state;
    assert_int_equal(parse("--data.train a b -c --optim.lr 1"), 6);
    assert_int_equal(g_data.train.count, 3);
    assert_string_equal(g_data.train.items[2], "-c");
    assert_int_equal(parse("--data.train x --optim.lr=1 y"), 3);
    assert_int_equal(g_data.train.count, 1);
    assert_int_equal(parse("--data.train=p q"), 1);
    assert_int_equal(g_data.train.count, 1);
    assert_string_equal(g_data.train.items[0], "p");
    assert_int_equal(parse("--data.train="), 1);
    assert_int_equal(g_data.train.count, 0);
    assert_int_equal(parse("--data.train"), TACIT_E_USAGE);
}

static void bad_flags_are_named(void **state) {
    (void)state;
    assert_int_equal(parse("--optim.nmae sgd"), TACIT_E_USAGE);
    assert_string_equal(g_line, "unknown option \"--optim.nmae\"; did you mean \"--optim.name\"?");
    assert_int_equal(parse("--optim.lrate 1"), TACIT_E_USAGE);
    assert_string_equal(g_line, "unknown option \"--optim.lrate\"; did you mean \"--optim.lr\"?");
    assert_int_equal(parse("--optim.warmup_steps 1"), TACIT_E_USAGE);
    assert_string_equal(g_line, "unknown option \"--optim.warmup_steps\"; did you mean \"--optim.warmup\"?");
    assert_int_equal(parse("--strategy.seed 1"), TACIT_E_USAGE);
    assert_string_equal(g_line, "unknown option \"--strategy.seed\"; did you mean \"--data.seed\"?");
    assert_int_equal(parse("--optim.lr"), TACIT_E_USAGE);
    assert_string_equal(g_line, "--optim.lr: needs a value");
    assert_int_equal(parse("--optim.lr --optim.name sgd"), TACIT_E_USAGE);
    assert_int_equal(parse("--optim.lr 2"), TACIT_E_CONFIG);
    assert_string_equal(g_line, "--optim.lr: 2 is outside 0..1");
    assert_int_equal(taciti_config_set(&g_config, "data.seed", "9223372036854775807", "--data.seed"), TACIT_OK);
    assert_true(g_data.seed == INT64_MAX);
    assert_int_equal(parse("--data.vocab \xff"), TACIT_E_CONFIG);
    assert_int_equal(parse("--optim.lr="), TACIT_E_CONFIG);
    char line[400];
    (void)snprintf(line, sizeof line, "--%0300d", 7);
    assert_int_equal(parse(line), TACIT_E_USAGE);
    (void)snprintf(line, sizeof line, "--data.vocab=%0300d", 7);
    assert_int_equal(parse(line), TACIT_E_CONFIG);
    assert_string_equal(g_line, "--data.vocab: the text has 300 bytes, at most 255 are allowed");
}

/* ---- environment, set, JSON ------------------------------------------------------------------------------------ */

static void the_environment_is_read_and_checked(void **state) {
    (void)state;
    (void)setenv("TACIT_OPTIM_LR", "0.25", 1);
    (void)setenv("TACIT_STRATEGY", "shard", 1);
    (void)setenv("TACIT_DATA_TRAIN", " a  b ", 1);
    (void)setenv("TACIT_ISA", "scalar", 1); /* not ours: no section is called "isa" */
    assert_int_equal(taciti_config_environment(&g_config), TACIT_OK);
    assert_true(g_optim.lr == 0.25);
    assert_string_equal(g_strategy.text, "shard");
    assert_int_equal(g_data.train.count, 2);
    assert_string_equal(g_data.train.items[1], "b");
    (void)setenv("TACIT_OPTIM_LR", "x", 1);
    assert_int_equal(taciti_config_environment(&g_config), TACIT_E_CONFIG);
    assert_string_equal(g_line, "TACIT_OPTIM_LR: \"x\" is not a number");
    (void)unsetenv("TACIT_OPTIM_LR");
    (void)setenv("TACIT_OPTIM_NMAE", "sgd", 1);
    assert_int_equal(taciti_config_environment(&g_config), TACIT_E_CONFIG);
    assert_string_equal(g_line, "environment: unknown variable TACIT_OPTIM_NMAE; did you mean TACIT_OPTIM_NAME?");
    (void)unsetenv("TACIT_OPTIM_NMAE");
    (void)setenv("TACIT_OPITM_NAME", "sgd", 1); /* nearly a section */
    assert_int_equal(taciti_config_environment(&g_config), TACIT_E_CONFIG);
    assert_string_equal(g_line, "environment: unknown variable TACIT_OPITM_NAME; did you mean TACIT_OPTIM_NAME?");
    (void)unsetenv("TACIT_OPITM_NAME");
    (void)setenv("TACIT_SHELL_NAME", "x", 1); /* somebody else's */
    assert_int_equal(taciti_config_environment(&g_config), TACIT_OK);
    (void)unsetenv("TACIT_SHELL_NAME");
    (void)unsetenv("TACIT_STRATEGY");
    (void)unsetenv("TACIT_DATA_TRAIN");
    (void)unsetenv("TACIT_ISA");
}

static void set_reports_its_origin(void **state) {
    (void)state;
    assert_int_equal(taciti_config_set(&g_config, "data.bucket", "4KB", "here"), TACIT_OK);
    assert_int_equal(g_data.bucket, 4000);
    assert_int_equal(taciti_config_set(&g_config, "data.bucket", "4kB", "here"), TACIT_OK);
    assert_int_equal(g_data.bucket, 4000);
    assert_int_equal(taciti_config_set(&g_config, "data.bukcet", "4kB", "here"), TACIT_E_CONFIG);
    assert_string_equal(g_line, "here: unknown key \"data.bukcet\"; did you mean \"data.bucket\"?");
    assert_int_equal(taciti_config_set(&g_config, "data.bukcet", "4kB", "data.bukcet"), TACIT_E_CONFIG);
    assert_string_equal(g_line, "unknown key \"data.bukcet\"; did you mean \"data.bucket\"?");
    assert_int_equal(taciti_config_set(&g_config, "knee.max", "3", "knee.max"), TACIT_E_CONFIG);
    assert_int_equal(strncmp(g_line, "knee.max has gone: ", strlen("knee.max has gone: ")), 0);
}

static void json_escapes_and_leaves_out(void **state) {
    (void)state;
    assert_int_equal(taciti_config_set(&g_config, "data.vocab", "a\"\\\n\xc3\xa4", "here"), TACIT_OK);
    char *json = taciti_config_json(&g_config, 0);
    assert_non_null(strstr(json, "\"data.vocab\": \"a\\\"\\\\\\n\xc3\xa4\", "));
    taciti_free(json);
    json = taciti_config_json(&g_config, 1);
    assert_null(strstr(json, "vocab"));
    taciti_free(json);
    const taciti_config none = {NULL, 0};
    json = taciti_config_json(&none, 0);
    assert_string_equal(json, "{}");
    taciti_free(json);
}

static void an_illegal_default_is_a_defect(void **state) {
    (void)state;
    static const taciti_option wrong[] = {
        TACITI_OPTION("x", INT, 0, "many", .help = ""),
    };
    static const taciti_option_table table = {.section = "s", .help = "", .options = wrong, .count = 1};
    int64_t value = 0;
    const taciti_section section = {&table, &value, NULL};
    const taciti_config config = {&section, 1};
    assert_int_equal(taciti_config_defaults(&config), TACIT_E_INTERNAL);
}

static const char *shape_name(size_t index) {
    static const char *const names[] = {"line", "ring", "star"};
    return index < sizeof names / sizeof *names ? names[index] : NULL;
}

static void a_name_is_one_that_a_registry_lists(void **state) {
    (void)state;
    static const taciti_option shapes[] = {TACITI_OPTION("shape", NAME, 0, "ring", .names = shape_name, .help = "")};
    static const taciti_option_table table = {.section = "net", .help = "", .options = shapes, .count = 1};
    taciti_text value;
    char choice[TACITI_CHOICE_BYTES], choices[TACITI_CHOICES_BYTES];
    const taciti_section section = {&table, &value, NULL};
    const taciti_config config = {&section, 1};
    assert_int_equal(taciti_config_defaults(&config), TACIT_OK);
    assert_string_equal(value.text, "ring");
    assert_int_equal(taciti_config_set(&config, "net.shape", "star", "here"), TACIT_OK);
    assert_int_equal(taciti_config_set(&config, "net.shape", "rnig", "here"), TACIT_E_CONFIG);
    assert_string_equal(g_line, "here: \"rnig\" is unknown; did you mean \"ring\"? legal: line|ring|star");
    assert_int_equal(taciti_config_set(&config, "net.shape", "", "here"), TACIT_E_CONFIG);
    assert_string_equal(value.text, "star");
    assert_true(taciti_option_choice(shapes, 2, choice) && !taciti_option_choice(shapes, 3, choice));
    assert_false(taciti_option_choice(shapes, -1, choice));
    assert_string_equal(taciti_option_choices(shapes, choices), "line|ring|star");
    char *json = taciti_config_json(&config, 0);
    assert_string_equal(json, "{\"net.shape\": \"star\"}");
    taciti_free(json);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_printed_configuration_reads_back),
        TEST(only_changes_are_printed),
        TEST(a_file_sets_what_it_names),
        TEST(files_may_be_empty_have_a_mark_or_dos_lines),
        TEST(unknown_keys_name_the_place_and_the_nearest),
        TEST(wrong_values_name_the_place_and_the_reason),
        TEST(what_yaml_adds_is_refused),
        TEST(broken_yaml_names_the_place),
        TEST(what_is_no_configuration_is_refused),
        TEST(mutations_never_crash),
        TEST(random_bytes_never_crash),
        TEST(deep_nesting_ends_quickly),
        TEST(flags_set_values),
        TEST(boolean_flags_need_no_value),
        TEST(list_flags_take_words_up_to_the_next_flag),
        TEST(bad_flags_are_named),
        TEST(the_environment_is_read_and_checked),
        TEST(set_reports_its_origin),
        TEST(json_escapes_and_leaves_out),
        TEST(an_illegal_default_is_a_defect),
        TEST(a_name_is_one_that_a_registry_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
