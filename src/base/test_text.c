/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <float.h>
#include <locale.h>
#include <string.h>

#include "base/rng.h"
#include "base/text.h"

static void integers_are_whole_and_fit(void **state) {
    (void)state;
    int64_t value = 0;
    assert_true(taciti_integer_parse("-9223372036854775808", &value) && value == INT64_MIN);
    assert_true(taciti_integer_parse("+7", &value) && value == 7);
    static const char *const bad[] = {"", "-", "1.0", "1e3", " 1", "1 ", "0x10", "9223372036854775808", "--1", "abc"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_false(taciti_integer_parse(bad[i], &value));
    assert_int_equal(value, 7);
}

static void reals_are_finite_decimals(void **state) {
    (void)state;
    double value = 0;
    assert_true(taciti_real_parse("-3e-4", &value) && value == -3e-4);
    assert_true(taciti_real_parse("1e-320", &value) && value > 0); /* denormal */
    assert_true(taciti_real_parse("-0.00e-400", &value) && value == 0);
    static const char *const bad[] = {"",       ".",         "e5",  "inf",  "nan", "0x1p3", "1e999",
                                      "1e-400", "-0.1e-999", "1,5", "1.5x", " 1",  "1..2"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_false(taciti_real_parse(bad[i], &value));
}

/* Law: parse(format(x)) is x bit for bit, for doubles of every magnitude. */
static void reals_survive_the_way_through_text(void **state) {
    (void)state;
    char text[TACITI_REAL_BYTES];
    for (uint64_t i = 0; i < 20000; i++) {
        const uint64_t bits = taciti_rng_u64(5, i);
        double x, y = 0;
        memcpy(&x, &bits, sizeof x);
        if (!(x >= -DBL_MAX && x <= DBL_MAX)) continue;
        taciti_real_format(x, text);
        assert_true(taciti_real_parse(text, &y));
        assert_memory_equal(&x, &y, sizeof x);
    }
    taciti_real_format(0.1, text);
    assert_string_equal(text, "0.1");
    taciti_real_format(86400, text);
    assert_string_equal(text, "86400");
    taciti_real_format(1048576, text);
    assert_string_equal(text, "1048576");
    taciti_real_format(1e12, text);
    assert_string_equal(text, "1e+12");
    taciti_real_format(1e300, text);
    assert_string_equal(text, "1e+300");
    taciti_real_format(-0.0, text);
    assert_string_equal(text, "-0");
}

static void a_decimal_comma_changes_nothing(void **state) {
    (void)state;
    if (setlocale(LC_ALL, "de_DE.UTF-8") == NULL && setlocale(LC_ALL, "de_DE") == NULL) skip();
    double value = 0;
    char text[TACITI_REAL_BYTES];
    assert_true(taciti_real_parse("0.5", &value) && value == 0.5);
    taciti_real_format(0.5, text);
    assert_string_equal(text, "0.5");
    (void)setlocale(LC_ALL, "C");
}

static void quotes_hide_control_bytes_and_cut_long_texts(void **state) {
    (void)state;
    char out[TACITI_QUOTED_BYTES], line[400];
    assert_string_equal(taciti_quote("a\n\x1b[31m", out), "\"a??[31m\"");
    assert_string_equal(taciti_quote("", out), "\"\"");
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = '\0';
    const size_t length = strlen(taciti_quote(line, out));
    assert_int_equal(length, TACITI_QUOTED_BYTES - 1);
    assert_string_equal(out + length - 4, "...\"");
    for (size_t shift = 0; shift < 3; shift++) { /* a cut never leaves half a character */
        for (size_t i = shift; i + 2 < sizeof line; i += 2) memcpy(line + i, "\xc3\xa4", 2);
        line[sizeof line - 2] = '\0';
        assert_true(taciti_utf8_valid(taciti_quote(line, out)));
    }
}

static void texts_are_appended_and_cut(void **state) {
    (void)state;
    char out[8] = "";
    taciti_text_add(out, sizeof out, "%s", "");
    assert_string_equal(out, "");
    taciti_text_add(out, sizeof out, "%d", 123);
    taciti_text_add(out, sizeof out, "-%s", "45");
    assert_string_equal(out, "123-45");
    taciti_text_add(out, sizeof out, "%s", "678");
    assert_string_equal(out, "123-456");
    taciti_text_add(out, sizeof out, "9");
    assert_string_equal(out, "123-456");
}

static void words_between_bars_are_compared_whole(void **state) {
    (void)state;
    static const char *const in[] = {"128", "true", ""}, *const out[] = {"12", "1280", "tru", "true|", "|"};
    for (int i = 0; i < 3; i++) assert_true(taciti_text_among(in[i], "128||true"));
    for (int i = 0; i < 5; i++) assert_false(taciti_text_among(out[i], "128||true"));
    assert_false(taciti_text_among("", "128|true"));
    assert_true(taciti_text_among("", ""));
}

static void utf8_is_checked(void **state) {
    (void)state;
    assert_true(taciti_utf8_valid("") && taciti_utf8_valid("a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"));
    static const char *const bad[] = {
        "\x80", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff", "a\xe2\x82"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_false(taciti_utf8_valid(bad[i]));
}

static void distances_are_a_metric_with_swaps(void **state) {
    (void)state;
    static const char *const words[] = {"", "a", "nmae", "name", "names", "strategy", "startegy"};
    enum { WORDS = sizeof words / sizeof words[0] };
    for (size_t i = 0; i < WORDS; i++)
        for (size_t j = 0; j < WORDS; j++) {
            const size_t d = taciti_edit_distance(words[i], words[j]);
            assert_int_equal(d, taciti_edit_distance(words[j], words[i]));
            assert_int_equal(d == 0, i == j);
        }
    assert_int_equal(taciti_edit_distance("nmae", "name"), 1);
    assert_int_equal(taciti_edit_distance("", "abc"), 3);
    assert_true(taciti_edit_close("nmae", 1));
    assert_false(taciti_edit_close("lr", 2));
    char longer[100];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_true(taciti_edit_distance(longer, "a") == SIZE_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_are_whole_and_fit),
        cmocka_unit_test(reals_are_finite_decimals),
        cmocka_unit_test(reals_survive_the_way_through_text),
        cmocka_unit_test(a_decimal_comma_changes_nothing),
        cmocka_unit_test(quotes_hide_control_bytes_and_cut_long_texts),
        cmocka_unit_test(texts_are_appended_and_cut),
        cmocka_unit_test(words_between_bars_are_compared_whole),
        cmocka_unit_test(utf8_is_checked),
        cmocka_unit_test(distances_are_a_metric_with_swaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
