/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/choice.h"

#include <regex.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

enum { WORD_BYTES = 256, REASON_BYTES = 128 };

/* ---- classes ----------------------------------------------------------------------------------------------------- */

/* A name belongs to the first class whose pattern it contains, in capitals or not. Norms come first because attention
 * and MLP have norms of their own. */
static const struct {
    const char *class_, *pattern;
} MODULES[] = {
    {"norm", "(^|\\.)(ln_?[0-9a-z]*|bn[0-9]*)(\\.|$)|norm"},
    {"position", "wpe|posi?t?i?o?n?(al)?_?emb|position"},
    {"head", "lm_head|(^|\\.)(head|output|classifier|decoder|fc)\\.(weight|bias)$"},
    {"embedding", "wte|emb|(^|\\.)(shared|encoder)\\.weight$"},
    {"attention", "att|[qkv]_proj|(^|\\.)(o|out)_proj"},
    {"mlp", "mlp|ffn|feed_?forward|c_fc|fc[0-9]|linear[0-9]|intermediate|experts|output\\.dense|(gate|up|down)_proj"},
    {"other", ""},
};
enum { CLASSES = sizeof MODULES / sizeof *MODULES };

const char *taciti_tensor_class_of(const char *name) {
    bool found = false;
    int i = 0;
    for (regex_t compiled; i < CLASSES - 1; i++) {
        if (regcomp(&compiled, MODULES[i].pattern, REG_EXTENDED | REG_NOSUB | REG_ICASE) != 0) continue;
        found = regexec(&compiled, name, 0, NULL, 0) == 0;
        regfree(&compiled);
        if (found) break;
    }
    return MODULES[i].class_;
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

/* Copies the next word and returns what follows it; NULL: the word is too long. A comma between slashes is part of a
 * regular expression. */
static const char *next_word(const char *list, char word[WORD_BYTES]) {
    size_t n = 0;
    bool pattern = false;
    while (*list == ' ') list++;
    for (; list[n] != '\0' && (pattern || list[n] != ','); n++)
        if (list[n] == '/' && (n == 0 || list[n - 1] != '\\')) pattern = !pattern;
    if (n >= WORD_BYTES) return NULL;
    memcpy(word, list, n);
    word[n] = '\0';
    for (size_t end = n; end > 0 && word[end - 1] == ' ';) word[--end] = '\0';
    return list + n + (list[n] == ',');
}

/* A word sets chosen[] of the tensors that it names to `value`. */
static tacit_status choose_class(const taciti_layout *layout, const char *origin, const char *word, bool value,
                                 bool *chosen) {
    const bool all = strcmp(word, "all") == 0;
    bool known = all;
    for (int i = 0; i < CLASSES; i++) known = known || strcmp(word, MODULES[i].class_) == 0;
    if (!known)
        return taciti_fail(TACIT_E_CONFIG,
                           "%s: \"%s\" is no class of tensors: all, attention, mlp, embedding, position, norm, head, "
                           "other, or a regular expression between slashes, such as /c_proj/",
                           origin, word);
    for (size_t t = 0; t < layout->tensor_count; t++)
        if (all || strcmp(word, taciti_tensor_class_of(layout->tensors[t].name)) == 0) chosen[t] = value;
    return TACIT_OK;
}

static tacit_status choose_pattern(const taciti_layout *layout, const char *origin, const char *word, bool value,
                                   bool *chosen) {
    char pattern[WORD_BYTES], reason[REASON_BYTES];
    const size_t n = strlen(word);
    size_t found = 0;
    regex_t compiled;
    if (n < 3 || word[n - 1] != '/')
        return taciti_fail(TACIT_E_CONFIG, "%s: %s is no regular expression between two slashes, such as /c_proj/",
                           origin, word);
    (void)snprintf(pattern, sizeof pattern, "%.*s", (int)(n - 2), word + 1);
    const int code = regcomp(&compiled, pattern, REG_EXTENDED | REG_NOSUB);
    if (code != 0) {
        (void)regerror(code, &compiled, reason, sizeof reason);
        return taciti_fail(TACIT_E_CONFIG, "%s: %s is no regular expression: %s", origin, word, reason);
    }
    for (size_t t = 0; t < layout->tensor_count; t++)
        if (regexec(&compiled, layout->tensors[t].name, 0, NULL, 0) == 0) {
            chosen[t] = value;
            found++;
        }
    regfree(&compiled);
    if (found > 0) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG, "%s: %s finds none of the %zu tensors; the first is called %s", origin, word,
                       layout->tensor_count, layout->tensor_count > 0 ? layout->tensors[0].name : "-");
}

tacit_status taciti_tensors_choose(const taciti_layout *layout, const char *origin, const char *list, bool *chosen) {
    char word[WORD_BYTES];
    while (*list == ' ') list++;
    for (size_t t = 0; t < layout->tensor_count; t++) chosen[t] = list[0] == '-';
    do {
        list = next_word(list, word);
        if (list == NULL)
            return taciti_fail(TACIT_E_CONFIG, "%s: a word has more than %d bytes", origin, WORD_BYTES - 1);
        const char *name = word + (word[0] == '-');
        TACITI_TRY((name[0] == '/' ? choose_pattern : choose_class)(layout, origin, name, name == word, chosen));
    } while (*list != '\0' || list[-1] == ',');
    return TACIT_OK;
}
