/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "base/text.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

enum { WORD_BYTES = 64 };

/* A host program may have set a locale with a decimal comma; this thread's is put aside for the conversion. */
typedef struct plain_locale {
    locale_t plain, previous;
} plain_locale;

static plain_locale plain_locale_enter(void) {
    plain_locale scope = {.plain = newlocale(LC_ALL_MASK, "C", (locale_t)0)};
    if (scope.plain != (locale_t)0) scope.previous = uselocale(scope.plain);
    return scope;
}

static void plain_locale_leave(const plain_locale *scope) {
    if (scope->plain == (locale_t)0) return;
    (void)uselocale(scope->previous);
    freelocale(scope->plain);
}

bool taciti_integer_parse(const char *text, int64_t *out) {
    const char *digits = text + (*text == '-' || *text == '+');
    if (*digits == '\0' || strspn(digits, "0123456789") != strlen(digits)) return false;
    errno = 0;
    const long long value = strtoll(text, NULL, 10);
    if (errno != 0) return false;
    *out = value;
    return true;
}

bool taciti_real_parse(const char *text, double *out) {
    if (*text == '\0' || strspn(text, "0123456789+-.eE") != strlen(text)) return false;
    const plain_locale scope = plain_locale_enter();
    char *end = NULL;
    const double value = strtod(text, &end);
    plain_locale_leave(&scope);
    if (end == text || *end != '\0' || !isfinite(value)) return false;
    const bool underflows = fabs(value) <= 0 && strcspn(text, "123456789") < strcspn(text, "eE");
    if (underflows) return false;
    *out = value;
    return true;
}

void taciti_real_format(double value, char out[TACITI_REAL_BYTES]) {
    const plain_locale scope = plain_locale_enter();
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(out, TACITI_REAL_BYTES, "%.*g", digits, value);
        const double again = strtod(out, NULL);
        if (!(again < value) && !(again > value)) break;
    }
    /* 86400 rather than 8.64e+04, but 1e+12 rather than 1000000000000. */
    if (fabs(value) < 1e15 && fabs(value - rint(value)) <= 0) {
        char whole[TACITI_REAL_BYTES];
        const int length = snprintf(whole, sizeof whole, "%.0f", value);
        if (length > 0 && (size_t)length <= strlen(out) + 3) memcpy(out, whole, (size_t)length + 1);
    }
    plain_locale_leave(&scope);
}

void taciti_text_add(char *out, size_t size, const char *format, ...) {
    const size_t used = strlen(out);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(out + used, size - used, format, arguments);
    va_end(arguments);
}

const char *taciti_quote(const char *text, char out[TACITI_QUOTED_BYTES]) {
    size_t n = 0;
    out[n++] = '"';
    for (; *text != '\0' && n < TACITI_QUOTED_BYTES - 5; text++) {
        const unsigned char c = (unsigned char)*text;
        out[n++] = c < 0x20 || c == 0x7f ? '?' : *text;
    }
    while (*text != '\0' && n > 1 && ((unsigned char)out[n - 1] & 0x80) != 0) n--; /* no half character at the cut */
    (void)snprintf(out + n, TACITI_QUOTED_BYTES - n, "%s\"", *text == '\0' ? "" : "...");
    return out;
}

bool taciti_text_ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

bool taciti_text_among(const char *value, const char *values) {
    for (const char *word = values;; word += strcspn(word, "|") + 1) {
        const size_t length = strcspn(word, "|");
        if (strlen(value) == length && strncmp(value, word, length) == 0) return true;
        if (word[length] == '\0') return false;
    }
}

size_t taciti_utf8_decode(const char *text, size_t bytes, uint32_t *code) {
    const unsigned char *s = (const unsigned char *)text;
    *code = s[0];
    if (s[0] < 0x80) return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4) return 0;
    const size_t n = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    /* The second byte is bounded more tightly after some first bytes: table 3-7 of Unicode. */
    const unsigned char min = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
    const unsigned char max = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
    *code = s[0] & (0x7fu >> n);
    for (size_t i = 1; i < n && i < bytes; i++) {
        if (i == 1 ? s[1] < min || s[1] > max : (s[i] & 0xc0) != 0x80) return 0;
        *code = *code << 6 | (s[i] & 0x3fu);
    }
    return n;
}

bool taciti_utf8_valid(const char *text) {
    uint32_t code;
    for (size_t bytes; *text != '\0'; text += bytes)
        if ((bytes = taciti_utf8_decode(text, SIZE_MAX, &code)) == 0) return false;
    return true;
}

/* Optimal string alignment: the table of prefixes, three rows of it. */
size_t taciti_edit_distance(const char *a, const char *b) {
    const size_t n = strlen(a), m = strlen(b);
    if (n >= WORD_BYTES || m >= WORD_BYTES) return SIZE_MAX;
    size_t rows[3][WORD_BYTES];
    for (size_t j = 0; j <= m; j++) rows[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *row = rows[i % 3];
        const size_t *up = rows[(i + 2) % 3], *up2 = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            row[j] = taciti_min(taciti_min(up[j], row[j - 1]) + 1, up[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = taciti_min(row[j], up2[j - 2] + 1);
        }
    }
    return rows[n % 3][m];
}

bool taciti_edit_close(const char *word, size_t distance) {
    const size_t length = strlen(word);
    return distance <= 1 + length / 5 && distance < length;
}

void taciti_nearest_offer(taciti_nearest *nearest, const char *word, const char *name) {
    const size_t distance = taciti_edit_distance(word, name);
    if (taciti_edit_close(word, distance)) taciti_nearest_take(nearest, distance, name);
}

void taciti_nearest_take(taciti_nearest *nearest, size_t distance, const char *name) {
    if (nearest->name[0] != '\0' && distance >= nearest->distance) return;
    nearest->distance = distance;
    (void)snprintf(nearest->name, sizeof nearest->name, "%s", name);
    (void)snprintf(nearest->hint, sizeof nearest->hint, "; did you mean \"%s\"?", nearest->name);
}
