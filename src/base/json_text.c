/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "base/json_text.h"

#include <stdlib.h>

#include "base/memory.h"

char *taciti_text_of(taciti_text_writer *write, const void *object) {
    char *text = NULL, *copy = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out != NULL) {
        write(out, object);
        const int wrong = ferror(out);
        if (fclose(out) == 0 && !wrong) copy = taciti_strdup(text);
    }
    free(text); /* NOLINT: of open_memstream, not ours */
    return copy;
}

char *taciti_json_dump(json_t *value, size_t flags) {
    char *text = value == NULL ? NULL : json_dumps(value, flags);
    char *copy = text == NULL ? NULL : taciti_strdup(text);
    free(text); /* NOLINT: jansson's */
    json_decref(value);
    return copy;
}

void taciti_json_quote(FILE *out, const char *text) {
    char *quoted = taciti_json_dump(json_string(text), JSON_ENCODE_ANY);
    (void)fputs(quoted == NULL ? "\"\"" : quoted, out);
    taciti_free(quoted);
}
