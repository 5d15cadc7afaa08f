/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/cli.h"
#include "cli/option_text.h"

static const taciti_flag FLAGS[] = {
    {"--json", NULL, NULL, "answer as JSON"},
    {"--prompt", "-p", "TEXT", "text to go on from"},
    {"--output", "-o", "FILE", "where to"},
    {NULL, NULL, NULL, NULL},
};

static const taciti_verb VERB = {.name = "sample", .flags = FLAGS};

typedef struct values {
    double lr;
    bool trace;
    taciti_list train;
} values;
static values g_values;
#define AT(member) offsetof(values, member)

static const taciti_option OPTIONS[] = {
    TACITI_OPTION("lr", REAL, AT(lr), "0.1", .max = 1, .help = "rate"),
    TACITI_OPTION("trace", BOOL, AT(trace), "false", .help = "trace"),
    TACITI_OPTION("train", LIST, AT(train), "", .help = "files"),
};
static const taciti_option_table TABLE = {.section = "optim", .help = "", .options = OPTIONS, .count = 3};
static const taciti_section SECTION = {&TABLE, &g_values, NULL};
static const taciti_config CONFIG = {&SECTION, 1};

static char g_line[512];
static void keep_line(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)level;
    (void)snprintf(g_line, sizeof g_line, "%s", line);
}

static taciti_arguments g_arguments;
static char g_copy[512];

static tacit_status parse(const char *line) {
    enum { WORDS = 16 };
    char *argv[WORDS + 1] = {0};
    int argc = 0;
    (void)snprintf(g_copy, sizeof g_copy, "sample %s", line);
    for (char *word = strtok(g_copy, " "); word != NULL && argc < WORDS; word = strtok(NULL, " ")) argv[argc++] = word;
    g_line[0] = '\0';
    return taciti_arguments_parse(&VERB, &CONFIG, argc, argv, &g_arguments);
}

static void assert_flag(const char *flag, const char *value) {
    const char *found = taciti_arguments_get(&g_arguments, flag);
    if (value == NULL) {
        assert_null(found);
    } else {
        assert_non_null(found);
        assert_string_equal(found, value);
    }
}

static int set_up(void **state) {
    (void)state;
    taciti_log_set_sink(keep_line, NULL, TACITI_LOG_INFO);
    return taciti_config_defaults(&CONFIG) != TACIT_OK;
}

static int tear_down(void **state) {
    (void)state;
    taciti_config_destroy(&CONFIG);
    return 0;
}

static void flags_words_and_keys_may_be_mixed(void **state) {
    (void)state;
    assert_int_equal(parse("a --json -p hello --optim.lr 0.5 b --output=c=d -5 - --optim.trace -.5"), TACIT_OK);
    assert_flag("--json", "");
    assert_flag("--prompt", "hello");
    assert_flag("--output", "c=d");
    assert_flag("--none", NULL);
    assert_int_equal(g_arguments.positional_count, 5);
    static const char *const words[] = {"a", "b", "-5", "-", "-.5"};
    for (size_t i = 0; i < 5; i++) assert_string_equal(g_arguments.positional[i], words[i]);
    assert_true(g_values.lr > 0.4 && g_values.trace);
}

static void nothing_is_legal_and_dashes_end_the_flags(void **state) {
    (void)state;
    assert_int_equal(parse(""), TACIT_OK);
    assert_int_equal(g_arguments.positional_count, 0);
    assert_flag("--json", NULL);
    assert_int_equal(parse("-- --json -- -p"), TACIT_OK);
    assert_flag("--json", NULL);
    assert_int_equal(g_arguments.positional_count, 3);
    assert_int_equal(parse("--optim.train x y -- z"), TACIT_OK);
    assert_int_equal(g_values.train.count, 2);
    assert_int_equal(g_arguments.positional_count, 1);
    assert_int_equal(parse("-p a --prompt b"), TACIT_OK);
    assert_flag("--prompt", "b");
}

static void mistakes_are_named(void **state) {
    (void)state;
    assert_int_equal(parse("--jsno"), TACIT_E_USAGE);
    assert_string_equal(g_line, "unknown option \"--jsno\"; did you mean \"--json\"?");
    assert_int_equal(parse("--optim.rl=1"), TACIT_E_USAGE);
    assert_string_equal(g_line, "unknown option \"--optim.rl\"; did you mean \"--optim.lr\"?");
    assert_int_equal(parse("-z"), TACIT_E_USAGE);
    assert_string_equal(g_line, "unknown option \"-z\"; see `tacit sample --help`");
    assert_int_equal(parse("--prompt"), TACIT_E_USAGE);
    assert_string_equal(g_line, "--prompt: needs a value: --prompt TEXT");
    assert_int_equal(parse("--prompt --json"), TACIT_E_USAGE);
    assert_int_equal(parse("--json=1"), TACIT_E_USAGE);
    assert_int_equal(parse("--optim.lr 7"), TACIT_E_CONFIG);
    assert_int_equal(parse("--no-optim.lr"), TACIT_E_USAGE);
}

static void a_verb_without_configuration_knows_no_keys(void **state) {
    (void)state;
    char name[] = "sample", key[] = "--optim.lr", value[] = "0.3";
    char *argv[] = {name, key, value, NULL};
    assert_int_equal(taciti_arguments_parse(&VERB, NULL, 3, argv, &g_arguments), TACIT_E_USAGE);
}

static void repeated_flags_are_kept_in_order(void **state) {
    (void)state;
    assert_int_equal(parse("-p a --output=x --prompt b -p= c"), TACIT_OK);
    assert_string_equal(taciti_arguments_each(&g_arguments, "--prompt", 0), "a");
    assert_string_equal(taciti_arguments_each(&g_arguments, "--prompt", 1), "b");
    assert_string_equal(taciti_arguments_each(&g_arguments, "--prompt", 2), "");
    assert_null(taciti_arguments_each(&g_arguments, "--prompt", 3));
    assert_string_equal(taciti_arguments_each(&g_arguments, "--output", 0), "x");
    assert_null(taciti_arguments_each(&g_arguments, "--json", 0));
    assert_null(taciti_arguments_each(&g_arguments, "--none", 0));
    assert_flag("--prompt", "");
}

static void too_many_flags_are_refused(void **state) {
    (void)state;
    static char verb[] = "sample", flag[] = "--json", *argv[TACITI_GIVEN_MAX + 2];
    argv[0] = verb;
    for (size_t i = 1; i < sizeof argv / sizeof argv[0]; i++) argv[i] = flag;
    const int max = TACITI_GIVEN_MAX + 1;
    assert_int_equal(taciti_arguments_parse(&VERB, NULL, max, argv, &g_arguments), TACIT_OK);
    assert_int_equal(taciti_arguments_parse(&VERB, NULL, max + 1, argv, &g_arguments), TACIT_E_USAGE);
}

static void numbers_are_checked_against_their_range(void **state) {
    (void)state;
    int64_t count = -1;
    double number = -1;
    assert_int_equal(parse(""), TACIT_OK);
    assert_int_equal(taciti_arguments_count(&g_arguments, "--prompt", 7, 1, 5, &count), TACIT_OK);
    assert_int_equal(count, 7); /* a fallback may lie outside */
    assert_int_equal(parse("-p 5 -o 0.25"), TACIT_OK);
    assert_int_equal(taciti_arguments_count(&g_arguments, "--prompt", 7, 0, 5, &count), TACIT_OK);
    assert_int_equal(count, 5);
    assert_int_equal(taciti_arguments_number(&g_arguments, "--output", 7, false, 1, &number), TACIT_OK);
    assert_true(number > 0.24 && number < 0.26);
    assert_int_equal(taciti_arguments_count(&g_arguments, "--prompt", 7, 0, 4, &count), TACIT_E_CONFIG);
    assert_string_equal(g_line, "--prompt 5: give a whole number from 0 to 4");
    assert_int_equal(count, 5); /* outputs are written only on success */
    assert_int_equal(taciti_arguments_count(&g_arguments, "--output", 7, 0, 4, &count), TACIT_E_CONFIG);
    assert_int_equal(taciti_arguments_number(&g_arguments, "--prompt", 7, false, 4, &number), TACIT_E_CONFIG);
    assert_string_equal(g_line, "--prompt 5: give a number above 0 and up to 4");
    static const char *const wrong[] = {"-p=0", "-p=-1", "-p=nan", "-p=1x", "-p="};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(parse(wrong[i]), TACIT_OK);
        assert_int_equal(taciti_arguments_number(&g_arguments, "--prompt", 7, false, 4, &number), TACIT_E_CONFIG);
        assert_int_equal(taciti_arguments_count(&g_arguments, "--prompt", 7, 1, 4, &count), TACIT_E_CONFIG);
        const bool zero = i == 0; /* where 0 is legal */
        assert_int_equal(taciti_arguments_number(&g_arguments, "--prompt", 7, true, 4, &number),
                         zero ? TACIT_OK : TACIT_E_CONFIG);
        assert_string_equal(g_line + (zero ? 0 : strcspn(g_line, ":")), zero ? g_line : ": give a number from 0 to 4");
    }
}

static void choices_are_told_where_a_value_is_none(void **state) {
    (void)state;
    int choice = 7;
    assert_int_equal(parse("one"), TACIT_OK);
    assert_int_equal(taciti_arguments_choice(&g_arguments, "--output", "hf|llmc", 5, &choice), TACIT_OK);
    assert_int_equal(choice, 5);
    assert_int_equal(parse("-o llmc"), TACIT_OK);
    assert_int_equal(taciti_arguments_choice(&g_arguments, "--output", "hf|llmc", 5, &choice), TACIT_OK);
    assert_int_equal(choice, 1);
    assert_int_equal(parse("-o foo"), TACIT_OK);
    assert_int_equal(taciti_arguments_choice(&g_arguments, "--output", "hf|llmc", 5, &choice), TACIT_E_CONFIG);
    assert_int_equal(choice, 1);
    assert_non_null(strstr(g_line, "--output: \"foo\" is"));
    assert_non_null(strstr(g_line, "hf"));
}

static void a_verb_without_words_names_the_first(void **state) {
    (void)state;
    assert_int_equal(parse("--json"), TACIT_OK);
    assert_int_equal(taciti_arguments_no_words(&g_arguments), TACIT_OK);
    assert_int_equal(parse("one two"), TACIT_OK);
    assert_int_equal(taciti_arguments_no_words(&g_arguments), TACIT_E_USAGE);
    assert_string_equal(g_line, "sample takes no words, but \"one\" was given");
    assert_int_equal(parse("my.yaml"), TACIT_OK);
    assert_int_equal(taciti_arguments_no_words(&g_arguments), TACIT_E_USAGE);
    assert_string_equal(g_line,
                        "sample takes no words, but \"my.yaml\" was given: write its keys as flags, --section.key "
                        "VALUE");
}

/* --help, completion and manual pages list these keys. */
static void verbs_accept_whole_sections_and_single_keys(void **state) {
    (void)state;
    taciti_place lr, trace;
    assert_true(taciti_config_find(&CONFIG, "optim.lr", &lr) && taciti_config_find(&CONFIG, "optim.trace", &trace));
    assert_true(taciti_option_accepted("", &lr));
    assert_false(taciti_option_accepted(NULL, &lr));
    assert_true(taciti_option_accepted("data. optim.", &lr) && taciti_option_accepted("optim. data.", &lr));
    assert_false(taciti_option_accepted("data. exchange.", &lr));
    assert_true(taciti_option_accepted("strategy optim.lr", &lr));
    assert_false(taciti_option_accepted("strategy optim.lr", &trace));
    assert_false(taciti_option_accepted("optim.l", &lr));
    assert_false(taciti_option_accepted("optim", &lr));
}

static void too_many_words_are_refused(void **state) {
    (void)state;
    static char word[] = "x", *argv[TACITI_POSITIONAL_MAX + 2];
    for (size_t i = 0; i < sizeof argv / sizeof argv[0]; i++) argv[i] = word;
    const int max = TACITI_POSITIONAL_MAX + 1;
    assert_int_equal(taciti_arguments_parse(&VERB, NULL, max, argv, &g_arguments), TACIT_OK);
    assert_int_equal(g_arguments.positional_count, TACITI_POSITIONAL_MAX);
    assert_int_equal(taciti_arguments_parse(&VERB, NULL, max + 1, argv, &g_arguments), TACIT_E_USAGE);
}

/* Properties of the table itself. */
static void every_verb_is_complete(void **state) {
    (void)state;
    for (const taciti_verb *verb = taciti_verbs(); verb->name != NULL; verb++) {
        assert_ptr_equal(taciti_verb_find(taciti_verbs(), verb->name), verb); /* names are unique */
        assert_non_null(verb->run);
        assert_true(strlen(verb->summary) > 0 && strlen(verb->summary) <= 64);
        assert_true(strlen(verb->description) > 0 && strlen(verb->synopsis) <= 120);
        assert_true(strstr(verb->example, "tacit ") != NULL);
        size_t flags = 0;
        for (; verb->flags[flags].name != NULL; flags++) {
            assert_memory_equal(verb->flags[flags].name, "--", 2);
            assert_true(verb->flags[flags].alias == NULL || strlen(verb->flags[flags].alias) == 2);
            assert_true(strlen(verb->flags[flags].help) > 0);
        }
        assert_true(flags < TACITI_FLAGS_MAX);
    }
    assert_null(taciti_verb_find(taciti_verbs(), "trian"));
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(flags_words_and_keys_may_be_mixed),
        TEST(nothing_is_legal_and_dashes_end_the_flags),
        TEST(mistakes_are_named),
        TEST(a_verb_without_configuration_knows_no_keys),
        TEST(repeated_flags_are_kept_in_order),
        TEST(too_many_flags_are_refused),
        TEST(numbers_are_checked_against_their_range),
        TEST(choices_are_told_where_a_value_is_none),
        TEST(a_verb_without_words_names_the_first),
        TEST(verbs_accept_whole_sections_and_single_keys),
        TEST(too_many_words_are_refused),
        TEST(every_verb_is_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
