/* SPDX-License-Identifier: Apache-2.0
 *
 * For the tests of this folder: a scratch folder with files in it, and the text of the last error.
 */
#ifndef TACITI_DATA_TEST_SCRATCH_H
#define TACITI_DATA_TEST_SCRATCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the first four above first */
#include <cmocka.h>

#include "base/file.h"
#include "base/log.h"

static char g_scratch[256];
static char g_error[2048];

static void keep_error(void *context, taciti_log_level level, const char *line) {
    (void)context;
    if (level == TACITI_LOG_ERROR) (void)snprintf(g_error, sizeof g_error, "%s", line);
}

static int scratch_begin(void **state) {
    (void)state;
    const char *parent = getenv("TMPDIR");
    (void)snprintf(g_scratch, sizeof g_scratch, "%s/tacit-data-XXXXXX", parent == NULL ? "/tmp" : parent);
    taciti_log_set_sink(keep_error, NULL, TACITI_LOG_ERROR);
    return mkdtemp(g_scratch) == NULL;
}

static int scratch_end(void **state) {
    (void)state;
    return taciti_file_remove(g_scratch) != TACIT_OK;
}

/* Writes a file into the scratch folder; the path is one of a few static buffers. */
static inline char *scratch_file(const char *name, const void *bytes, size_t count) {
    static char paths[8][512];
    static size_t next;
    char *path = paths[next++ % 8];
    (void)snprintf(path, sizeof paths[0], "%s/%s", g_scratch, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    if (count != 0) assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
    return path;
}

static inline void assert_error_has(const char *part) {
    if (strstr(g_error, part) == NULL) fail_msg("the error \"%s\" does not contain \"%s\"", g_error, part);
}

#endif
