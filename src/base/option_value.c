/* SPDX-License-Identifier: Apache-2.0 */
#include "base/option_value.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/json_text.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

bool taciti_option_choice(const taciti_option *option, int index, char out[TACITI_CHOICE_BYTES]) {
    const char *start = option->choices;
    if (option->type == TACITI_OPTION_NAME) {
        start = index < 0 ? NULL : option->names((size_t)index);
        index = 0;
    }
    for (int i = 0; i < index && start != NULL; i++) {
        start = strchr(start, '|');
        if (start != NULL) start++;
    }
    if (start == NULL || index < 0) return false;
    (void)snprintf(out, TACITI_CHOICE_BYTES, "%.*s", (int)strcspn(start, "|"), start);
    return true;
}

const char *taciti_option_choices(const taciti_option *option, char out[TACITI_CHOICES_BYTES]) {
    char choice[TACITI_CHOICE_BYTES];
    out[0] = '\0';
    for (int i = 0; taciti_option_choice(option, i, choice); i++)
        taciti_text_add(out, TACITI_CHOICES_BYTES, "%s%s", i > 0 ? "|" : "", choice);
    return out;
}

bool taciti_boolean_parse(const char *text, bool *out) {
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcasecmp(text, words[i]) == 0) { /* Python writes True */
            *out = i % 2 != 0;
            return true;
        }
    return false;
}

static tacit_status fail_value(const char *where, const char *text, const char *problem) {
    char quoted[TACITI_QUOTED_BYTES];
    return taciti_fail(TACIT_E_CONFIG, "%s: %s %s", where, taciti_quote(text, quoted), problem);
}

/* ---- numbers --------------------------------------------------------------------------------------------------- */

bool taciti_option_bounded(const taciti_option *option) { return fabs(option->min) > 0 || fabs(option->max) > 0; }

static tacit_status check_range(const taciti_option *option, const char *where, const char *text, double number) {
    const double min = option->min, max = option->max;
    const bool ends = max < TACITI_UNBOUNDED;
    if (!taciti_option_bounded(option) || (number >= min && (number <= max || !ends))) return TACIT_OK;
    if (option->zero && fabs(number) <= 0) return TACIT_OK;
    char low[TACITI_REAL_BYTES], high[TACITI_REAL_BYTES];
    taciti_real_format(min, low);
    taciti_real_format(max, high);
    if (!ends) return taciti_fail(TACIT_E_CONFIG, "%s: %s is below %s", where, text, low);
    const char *instead = option->below != NULL && number < min ? option->below : "";
    return taciti_fail(TACIT_E_CONFIG, "%s: %s is outside %s..%s%s%s", where, text, low, high,
                       *instead == '\0' ? "" : "; ", instead);
}

static tacit_status set_integer(const taciti_option *option, const char *where, const char *text, void *value) {
    int64_t number = 0;
    double real = 0;
    if (!taciti_integer_parse(text, &number)) {
        if (!taciti_real_parse(text, &real)) return fail_value(where, text, "is not a whole number");
        if (fabs(real) >= 0x1p63) return fail_value(where, text, "does not fit 64 bits");
        return fail_value(where, text, "is not a whole number; write it without point and exponent");
    }
    TACITI_TRY(check_range(option, where, text, (double)number));
    memcpy(value, &number, sizeof number);
    return TACIT_OK;
}

static tacit_status set_real(const taciti_option *option, const char *where, const char *text, void *value) {
    double number = 0;
    bool is_true = false;
    if (taciti_boolean_parse(text, &is_true) && isalpha((unsigned char)*text))
        return taciti_fail(TACIT_E_CONFIG, "%s: \"%s\" is not a number; %s is %d here", where, text, text, is_true);
    if (!taciti_real_parse(text, &number)) return fail_value(where, text, "is not a number");
    TACITI_TRY(check_range(option, where, text, number));
    memcpy(value, &number, sizeof number);
    return TACIT_OK;
}

/* Returns the bytes per unit of a size suffix, 0 for an unknown one. */
static int64_t suffix_bytes(const char *suffix) {
    static const struct {
        const char *suffix;
        int64_t bytes;
    } known[] = {{"", 1},          {"B", 1},         {"kB", 1000},    {"KB", 1000}, {"MB", 1000000}, {"GB", 1000000000},
                 {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(suffix, known[i].suffix) == 0) return known[i].bytes;
    return 0;
}

static tacit_status set_bytes(const taciti_option *option, const char *where, const char *text, void *value) {
    static const char problem[] = "is not a size; write for example 4096, 25MiB or 1.5GB";
    char digits[TACITI_REAL_BYTES];
    const size_t length = strspn(text, "0123456789+-.");
    if (length == 0 || length >= sizeof digits) return fail_value(where, text, problem);
    memcpy(digits, text, length);
    digits[length] = '\0';
    const int64_t unit = suffix_bytes(text + length + strspn(text + length, " "));
    double real = 0;
    int64_t number = 0;
    if (unit == 0 || !taciti_real_parse(digits, &real)) return fail_value(where, text, problem);
    if (fabs(real) * (double)unit >= 0x1p63) return fail_value(where, text, "does not fit 64 bits");
    if (taciti_integer_parse(digits, &number)) {
        number *= unit;
    } else {
        number = (int64_t)(real * (double)unit);
        if (fabs((double)number - real * (double)unit) > 0)
            return fail_value(where, text, "is not a whole number of bytes");
    }
    TACITI_TRY(check_range(option, where, text, (double)number));
    memcpy(value, &number, sizeof number);
    return TACIT_OK;
}

/* ---- words ----------------------------------------------------------------------------------------------------- */

/* Writes the index of the choice that the text is. */
static tacit_status find_choice(const taciti_option *option, const char *where, const char *text, int *out) {
    char choice[TACITI_CHOICE_BYTES], choices[TACITI_CHOICES_BYTES], quoted[TACITI_QUOTED_BYTES];
    taciti_nearest nearest = {0};
    for (int i = 0, ends = 0; ends < 2; i++) {
        if (!taciti_option_choice(option, i, choice)) {
            ends++; /* names that are not shown follow the first */
            continue;
        }
        if (strcmp(text, choice) == 0) {
            *out = i;
            return TACIT_OK;
        }
        taciti_nearest_offer(&nearest, text, choice);
    }
    (void)taciti_option_choices(option, choices);
    (void)taciti_quote(text, quoted);
    (void)snprintf(choice, sizeof choice, "%s.", text); /* of a member that has gone, no value is known */
    const taciti_old_key *old = (option->flags & TACITI_OPTION_MEMBER) == 0 ? NULL : taciti_old_key_find(choice);
    if (old != NULL && old->was == NULL && strcmp(old->key, choice) == 0)
        return taciti_fail(TACIT_E_CONFIG, "%s: %s has gone: %s", where, quoted, old->text);
    if (*nearest.name == '\0') return taciti_fail(TACIT_E_CONFIG, "%s: %s is not one of %s", where, quoted, choices);
    return taciti_fail(TACIT_E_CONFIG, "%s: %s is unknown%s legal: %s", where, quoted, nearest.hint, choices);
}

static tacit_status set_text(const char *where, const char *text, void *value) {
    if (strlen(text) >= sizeof(taciti_text))
        return taciti_fail(TACIT_E_CONFIG, "%s: the text has %zu bytes, at most %zu are allowed", where, strlen(text),
                           sizeof(taciti_text) - 1);
    if (!taciti_utf8_valid(text)) return fail_value(where, text, "is not valid UTF-8");
    taciti_text whole = {{0}};
    memcpy(whole.text, text, strlen(text));
    memcpy(value, &whole, sizeof whole);
    return TACIT_OK;
}

/* ---- lists ----------------------------------------------------------------------------------------------------- */

static void release_list(taciti_list *list) {
    for (size_t i = 0; i < list->count; i++) taciti_free(list->items[i]);
    taciti_free(list->items);
    *list = (taciti_list){0};
}

tacit_status taciti_value_set_list(const char *where, char *const *items, size_t count, void *value) {
    for (size_t i = 0; i < count; i++)
        if (!taciti_utf8_valid(items[i])) return fail_value(where, items[i], "is not valid UTF-8");
    taciti_list list = {0};
    if (count > 0 && (list.items = taciti_calloc(count, sizeof *list.items)) == NULL) return TACIT_E_MEMORY;
    for (; list.count < count; list.count++) {
        list.items[list.count] = taciti_strdup(items[list.count]);
        if (list.items[list.count] == NULL) {
            release_list(&list);
            return TACIT_E_MEMORY;
        }
    }
    release_list(value);
    memcpy(value, &list, sizeof list);
    return TACIT_OK;
}

static tacit_status set_list(const char *where, const char *text, void *value) {
    static const char blanks[] = " \t\n";
    char *copy = taciti_strdup(text);
    char **words = taciti_calloc(strlen(text) / 2 + 1, sizeof *words);
    tacit_status status = TACIT_E_MEMORY;
    if (copy != NULL && words != NULL) {
        size_t count = 0;
        for (char *word = copy + strspn(copy, blanks); *word != '\0'; word += strspn(word, blanks)) {
            words[count++] = word;
            word += strcspn(word, blanks);
            if (*word != '\0') *word++ = '\0';
        }
        status = taciti_value_set_list(where, words, count, value);
    }
    taciti_free(words);
    taciti_free(copy);
    return status;
}

/* ---- text ------------------------------------------------------------------------------------------------------ */

static void write_list(FILE *out, const taciti_list *list, taciti_quoter *quote) {
    (void)fputc('[', out);
    for (size_t i = 0; i < list->count; i++) {
        if (i > 0) (void)fputs(", ", out);
        quote(out, list->items[i]);
    }
    (void)fputc(']', out);
}

void taciti_value_write(FILE *out, const taciti_option *option, const void *value, taciti_quoter *quote) {
    char text[TACITI_CHOICE_BYTES] = "";
    switch (option->type) {
    case TACITI_OPTION_BOOL: (void)fputs(*(const bool *)value ? "true" : "false", out); break;
    case TACITI_OPTION_INT:
    case TACITI_OPTION_BYTES: (void)fprintf(out, "%" PRId64, *(const int64_t *)value); break;
    case TACITI_OPTION_REAL:
        taciti_real_format(*(const double *)value, text);
        (void)fputs(text, out);
        break;
    case TACITI_OPTION_ENUM:
        (void)taciti_option_choice(option, *(const int *)value, text);
        quote(out, text);
        break;
    case TACITI_OPTION_NAME:
    case TACITI_OPTION_TEXT: quote(out, ((const taciti_text *)value)->text); break;
    case TACITI_OPTION_LIST: write_list(out, value, quote); break;
    }
}

static void write_bare(FILE *out, const char *text) { (void)fputs(text, out); }

static void write_words(FILE *out, const void *object) {
    const taciti_place *place = object;
    const taciti_list *list = place->value;
    if (place->option->type != TACITI_OPTION_LIST)
        taciti_value_write(out, place->option, place->value, write_bare);
    else
        for (size_t i = 0; i < list->count; i++) (void)fprintf(out, "%s%s", i > 0 ? " " : "", list->items[i]);
}

char *taciti_place_whole_text(const taciti_place *place) { return taciti_text_of(write_words, place); }

const char *taciti_place_text(const taciti_place *place, char out[TACITI_VALUE_BYTES]) {
    char *text = taciti_place_whole_text(place);
    (void)snprintf(out, TACITI_VALUE_BYTES, "%s", text == NULL ? "" : text);
    taciti_free(text);
    return out;
}

/* ---- all ------------------------------------------------------------------------------------------------------- */

tacit_status taciti_value_set(const taciti_option *option, const char *where, const char *text, void *value) {
    int index = 0;
    switch (option->type) {
    case TACITI_OPTION_BOOL:
        return taciti_boolean_parse(text, value) ? TACIT_OK : fail_value(where, text, "is neither true nor false");
    case TACITI_OPTION_INT: return set_integer(option, where, text, value);
    case TACITI_OPTION_REAL: return set_real(option, where, text, value);
    case TACITI_OPTION_BYTES: return set_bytes(option, where, text, value);
    case TACITI_OPTION_ENUM: return find_choice(option, where, text, value);
    case TACITI_OPTION_NAME: TACITI_TRY(find_choice(option, where, text, &index)); return set_text(where, text, value);
    case TACITI_OPTION_TEXT: return set_text(where, text, value);
    case TACITI_OPTION_LIST: return set_list(where, text, value);
    }
    return taciti_fail(TACIT_E_INTERNAL, "%s: the option has an unknown type %d", where, (int)option->type);
}

void taciti_value_clear(const taciti_option *option, void *value) {
    if (option->type == TACITI_OPTION_LIST) memset(value, 0, sizeof(taciti_list));
}

bool taciti_place_is(const taciti_place *place, const char *text) {
    union {
        taciti_text text;
        taciti_list list;
        int64_t number;
        double real;
    } storage = {{{0}}};
    char mine[TACITI_VALUE_BYTES], theirs[TACITI_VALUE_BYTES];
    taciti_place other = *place;
    other.value = &storage;
    taciti_value_clear(place->option, &storage);
    if (taciti_value_set(place->option, place->option->key, text, &storage) != TACIT_OK) return false;
    const bool same = strcmp(taciti_place_text(place, mine), taciti_place_text(&other, theirs)) == 0;
    if (place->option->type == TACITI_OPTION_LIST) release_list(&storage.list);
    return same;
}

bool taciti_place_is_default(const taciti_place *place) { return taciti_place_is(place, place->option->fallback); }

static tacit_status mark_given(const taciti_place *place, tacit_status status) {
    if (status == TACIT_OK && place->given != NULL) *place->given = TACITI_GIVEN_TYPED;
    return status;
}

tacit_status taciti_place_set(const taciti_place *place, const char *where, const char *text) {
    return mark_given(place, taciti_value_set(place->option, where, text, place->value));
}

tacit_status taciti_place_set_list(const taciti_place *place, const char *where, char *const *items, size_t count) {
    return mark_given(place, taciti_value_set_list(where, items, count, place->value));
}
