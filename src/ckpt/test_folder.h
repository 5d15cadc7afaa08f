/* SPDX-License-Identifier: Apache-2.0
 *
 * For the tests of this folder: a scratch folder and whole files. Every failure fails the test.
 */
#ifndef TACITI_CKPT_TEST_FOLDER_H
#define TACITI_CKPT_TEST_FOLDER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "ckpt/stage.h"

typedef struct test_path {
    char text[512];
} test_path;

static inline test_path path_in(const char *folder, const char *name) {
    test_path path;
    assert_true(snprintf(path.text, sizeof path.text, "%s/%s", folder, name) < (int)sizeof path.text);
    return path;
}

static inline test_path folder_create(void) {
    const char *base = getenv("TMPDIR");
    test_path path = path_in(base != NULL && base[0] != 0 ? base : "/tmp", "tacit-test-XXXXXX");
    assert_non_null(mkdtemp(path.text));
    return path;
}

static inline void folder_remove(const test_path *folder) {
    assert_int_equal(taciti_file_remove(folder->text), TACIT_OK);
}

static inline void file_put(const char *path, const void *bytes, size_t count) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

/* Returns owned; taciti_free(). */
static inline char *file_get(const char *path, size_t *count) {
    char *bytes = NULL;
    assert_int_equal(taciti_file_read(path, (size_t)1 << 30, &bytes, count), TACIT_OK);
    return bytes;
}

static inline int file_exists(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0;
}

/* The folder in which checkpoint `step` is written; stands until the next call. */
static inline const char *tmp_of(const char *folder, int64_t step) {
    static char tmp[TACITI_PATH_BYTES];
    assert_int_equal(taciti_stage_path(folder, step, ".tmp", tmp), TACIT_OK);
    return tmp;
}

#endif
