/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "cli/cli.h"

const taciti_verb *taciti_verb_find(const taciti_verb *verbs, const char *name) {
    for (const taciti_verb *verb = verbs; verb->name != NULL; verb++)
        if (strcmp(verb->name, name) == 0) return verb;
    return NULL;
}

/* The flag that the word names, with "=value" or not, by name or alias; the count of flags when there is none. */
static size_t find_flag(const taciti_verb *verb, const char *word, size_t length) {
    size_t i = 0;
    for (; verb->flags[i].name != NULL; i++) {
        const taciti_flag *flag = &verb->flags[i];
        if (strlen(flag->name) == length && strncmp(flag->name, word, length) == 0) break;
        if (flag->alias != NULL && strlen(flag->alias) == length && strncmp(flag->alias, word, length) == 0) break;
    }
    return i;
}

/* A negative number is a word, so is "-" (standard input). */
static bool is_flag(const char *word) {
    return word[0] == '-' && word[1] != '\0' && !isdigit((unsigned char)word[1]) && word[1] != '.';
}

static tacit_status fail_unknown(const taciti_verb *verb, const taciti_config *config, const char *word,
                                 size_t length) {
    char name[TACITI_QUOTED_BYTES], quoted[TACITI_QUOTED_BYTES];
    const size_t copied = length < sizeof name ? length : sizeof name - 1;
    memcpy(name, word, copied);
    name[copied] = '\0';
    const char *bare = name + strspn(name, "-"), *key = strncmp(bare, "no-", 3) == 0 ? bare + 3 : bare;
    const taciti_old_key *old = config == NULL && strchr(key, '.') == NULL ? NULL : taciti_old_key_find(key);
    if (old != NULL) {
        char text[TACITI_OLD_KEY_BYTES];
        return taciti_fail(TACIT_E_USAGE, "--%s", taciti_old_key_text(old, key, text));
    }
    taciti_nearest nearest = {0};
    for (const taciti_flag *flag = verb->flags; flag->name != NULL; flag++)
        taciti_nearest_offer(&nearest, bare, flag->name + 2);
    if (*nearest.name == '\0' && config != NULL) nearest = taciti_config_nearest(config, bare);
    if (*nearest.name == '\0')
        return taciti_fail(TACIT_E_USAGE, "unknown option %s; see `tacit %s --help`", taciti_quote(name, quoted),
                           verb->name);
    return taciti_fail(TACIT_E_USAGE, "unknown option %s; did you mean \"--%s\"?", taciti_quote(name, quoted),
                       nearest.name);
}

/* Whether the word is a key of the configuration, negated or not. */
static bool is_key(const taciti_config *config, const char *word, size_t length) {
    char key[TACITI_KEY_BYTES];
    taciti_place place;
    if (config == NULL || length < 3 || length - 2 >= sizeof key || strncmp(word, "--", 2) != 0) return false;
    memcpy(key, word + 2, length - 2);
    key[length - 2] = '\0';
    return taciti_config_find(config, key, &place) ||
           (strncmp(key, "no-", 3) == 0 && taciti_config_find(config, key + 3, &place));
}

static tacit_status take_value(const taciti_flag *flag, int argc, char **argv, int *next, const char **out) {
    const char *equals = strchr(argv[*next], '=');
    const bool optional = flag->argument != NULL && *flag->argument == '[';
    if (flag->argument == NULL && equals != NULL) return taciti_fail(TACIT_E_USAGE, "%s: takes no value", flag->name);
    if (flag->argument == NULL || (optional && equals == NULL))
        *out = "";
    else if (equals != NULL)
        *out = equals + 1;
    else if (*next + 1 < argc && strncmp(argv[*next + 1], "--", 2) != 0)
        *out = argv[++*next];
    else
        return taciti_fail(TACIT_E_USAGE, "%s: needs a value: %s %s", flag->name, flag->name, flag->argument);
    ++*next;
    return TACIT_OK;
}

/* Consumes the flag at argv[*next]. */
static tacit_status take_flag(const taciti_verb *verb, const taciti_config *config, int argc, char **argv, int *next,
                              taciti_arguments *arguments) {
    const char *word = argv[*next];
    const size_t length = strcspn(word, "="), i = find_flag(verb, word, length);
    if (verb->flags[i].name != NULL) {
        if (arguments->given_count == TACITI_GIVEN_MAX)
            return taciti_fail(TACIT_E_USAGE, "more than %d flags; give fewer", TACITI_GIVEN_MAX);
        TACITI_TRY(take_value(&verb->flags[i], argc, argv, next, &arguments->values[i]));
        arguments->given[arguments->given_count].flag = i;
        arguments->given[arguments->given_count++].value = arguments->values[i];
        return TACIT_OK;
    }
    if (is_key(config, word, length)) return taciti_config_flag(config, argc, argv, next);
    return fail_unknown(verb, config, word, length);
}

tacit_status taciti_arguments_parse(const taciti_verb *verb, const taciti_config *config, int argc, char **argv,
                                    taciti_arguments *out) {
    memset(out, 0, sizeof *out);
    out->verb = verb;
    bool only_words = false;
    for (int next = 1; next < argc;) {
        if (!only_words && strcmp(argv[next], "--") == 0) {
            only_words = true;
            next++;
        } else if (!only_words && is_flag(argv[next])) {
            TACITI_TRY(take_flag(verb, config, argc, argv, &next, out));
        } else if (out->positional_count == TACITI_POSITIONAL_MAX) {
            return taciti_fail(TACIT_E_USAGE, "more than %d words; name fewer at a time", TACITI_POSITIONAL_MAX);
        } else {
            out->positional[out->positional_count++] = argv[next++];
        }
    }
    return TACIT_OK;
}

const char *taciti_arguments_get(const taciti_arguments *arguments, const char *flag) {
    return arguments->values[find_flag(arguments->verb, flag, strlen(flag))];
}

const char *taciti_arguments_each(const taciti_arguments *arguments, const char *flag, size_t index) {
    const size_t wanted = find_flag(arguments->verb, flag, strlen(flag));
    for (size_t i = 0; i < arguments->given_count; i++)
        if (arguments->given[i].flag == wanted && index-- == 0) return arguments->given[i].value;
    return NULL;
}

tacit_status taciti_arguments_count(const taciti_arguments *arguments, const char *flag, int64_t fallback, int64_t min,
                                    int64_t max, int64_t *out) {
    const char *text = taciti_arguments_get(arguments, flag);
    int64_t value = fallback;
    if (text != NULL && (!taciti_integer_parse(text, &value) || value < min || value > max))
        return taciti_fail(TACIT_E_CONFIG, "%s %s: give a whole number from %lld to %lld", flag, text, (long long)min,
                           (long long)max);
    *out = value;
    return TACIT_OK;
}

tacit_status taciti_arguments_number(const taciti_arguments *arguments, const char *flag, double fallback, bool zero,
                                     double max, double *out) {
    const char *text = taciti_arguments_get(arguments, flag);
    double value = fallback;
    if (text != NULL && (!taciti_real_parse(text, &value) || value < 0 || value > max || (!zero && value <= 0)))
        return taciti_fail(TACIT_E_CONFIG, "%s %s: give a number %s %.0f", flag, text,
                           zero ? "from 0 to" : "above 0 and up to", max);
    *out = value;
    return TACIT_OK;
}

tacit_status taciti_arguments_choice(const taciti_arguments *arguments, const char *flag, const char *choices,
                                     int fallback, int *out) {
    const taciti_option option = {.type = TACITI_OPTION_ENUM, .choices = choices};
    const char *text = taciti_arguments_get(arguments, flag);
    if (text != NULL) return taciti_value_set(&option, flag, text, out);
    *out = fallback;
    return TACIT_OK;
}

tacit_status taciti_arguments_no_words(const taciti_arguments *arguments) {
    if (arguments->positional_count == 0) return TACIT_OK;
    const char *word = arguments->positional[0];
    return taciti_fail(TACIT_E_USAGE, "%s takes no words, but \"%s\" was given%s", arguments->verb->name, word,
                       taciti_text_ends_with(word, ".yaml") ? ": write its keys as flags, --section.key VALUE" : "");
}
