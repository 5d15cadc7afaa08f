/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

static char g_folder[64], g_line[2048];

static void keep_line(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)level;
    (void)snprintf(g_line, sizeof g_line, "%s", line);
}

static int set_up(void **state) {
    (void)state;
    (void)snprintf(g_folder, sizeof g_folder, "/tmp/tacit-test-XXXXXX");
    taciti_log_set_sink(keep_line, NULL, TACITI_LOG_INFO);
    return mkdtemp(g_folder) == NULL;
}

static int tear_down(void **state) {
    (void)state;
    return taciti_file_remove(g_folder) != TACIT_OK;
}

static const char *below(const char *name) {
    static char path[512];
    assert_int_equal(taciti_path_join(path, sizeof path, g_folder, name), TACIT_OK);
    return path;
}

static size_t entries_of(const char *folder) {
    size_t count = 0;
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    while (readdir(entries) != NULL) count++;
    (void)closedir(entries);
    return count - 2;
}

static void what_is_written_is_read_again(void **state) {
    (void)state;
    static const char bytes[] = "a\0b\n";
    for (size_t n = 0; n <= sizeof bytes; n++) {
        char *out = NULL;
        size_t count = 99;
        assert_int_equal(taciti_file_write(below("x"), bytes, n), TACIT_OK);
        assert_int_equal(taciti_file_read(below("x"), 100, &out, &count), TACIT_OK);
        assert_int_equal(count, n);
        assert_memory_equal(out, bytes, n);
        assert_int_equal(out[n], 0);
        taciti_free(out);
    }
    assert_int_equal(entries_of(g_folder), 1); /* no temporary files are left */
}

static void a_failed_write_leaves_the_old_file_alone(void **state) {
    (void)state;
    assert_int_equal(taciti_file_make_folder(below("taken")), TACIT_OK);
    assert_int_equal(taciti_file_write(below("taken"), "x", 1), TACIT_E_IO); /* a folder cannot be replaced */
    assert_non_null(strstr(g_line, "taken: is a folder"));
    assert_int_equal(entries_of(g_folder), 1);
    assert_int_equal(taciti_file_write(below("none/x"), "x", 1), TACIT_E_IO);
    assert_non_null(strstr(g_line, "none/x: cannot create the file: No such file"));
    assert_int_equal(taciti_file_write("/dev/null/x", "x", 1), TACIT_E_IO);
}

/* A rename would put a file in the place of the device, or of the link. */
static void only_plain_files_are_replaced(void **state) {
    (void)state;
    char *out = NULL;
    struct stat status;
    assert_int_equal(mkfifo(below("pipe"), 0600), 0);
    assert_int_equal(taciti_file_write(below("pipe"), "x", 1), TACIT_E_IO);
    assert_non_null(strstr(g_line, "pipe: is not a plain file"));
    assert_int_equal(taciti_file_check_writable(below("pipe")), TACIT_E_IO);
    assert_int_equal(lstat(below("pipe"), &status), 0);
    assert_true(S_ISFIFO(status.st_mode));
    assert_int_equal(taciti_file_write(below("target"), "old", 3), TACIT_OK);
    assert_int_equal(symlink("target", below("link")), 0);
    assert_int_equal(taciti_file_write(below("link"), "new", 3), TACIT_OK);
    assert_int_equal(lstat(below("link"), &status), 0);
    assert_true(S_ISLNK(status.st_mode));
    assert_int_equal(taciti_file_read(below("target"), 10, &out, NULL), TACIT_OK);
    assert_string_equal(out, "new");
    taciti_free(out);
}

static void reading_refuses_what_is_no_file(void **state) {
    (void)state;
    char *out = NULL;
    size_t count = 0;
    assert_int_equal(taciti_file_read(g_folder, 100, &out, &count), TACIT_E_DATA);
    assert_non_null(strstr(g_line, "is a folder"));
    assert_int_equal(taciti_file_read(below("missing"), 100, &out, &count), TACIT_E_DATA);
    assert_int_equal(mkfifo(below("pipe"), 0600), 0);
    assert_int_equal(taciti_file_read(below("pipe"), 100, &out, &count), TACIT_E_DATA); /* and does not wait */
    assert_non_null(strstr(g_line, "is a pipe or device"));
    assert_int_equal(taciti_file_write(below("x"), "12345", 5), TACIT_OK);
    assert_int_equal(taciti_file_read(below("x"), 4, &out, &count), TACIT_E_DATA);
    assert_non_null(strstr(g_line, "has 5 bytes, at most 4"));
    assert_null(out);
}

static void a_view_that_shrinks_is_an_error_and_no_signal(void **state) {
    (void)state;
    char bytes[10000];
    memset(bytes, 'x', sizeof bytes);
    assert_int_equal(taciti_file_write(below("x"), bytes, sizeof bytes), TACIT_OK);
    taciti_view view = {.fd = -1};
    assert_int_equal(taciti_view_open(below("x"), &view), TACIT_OK);
    assert_int_equal(view.bytes, sizeof bytes);
    assert_int_equal(taciti_view_read(&view, 9999, 1, bytes), TACIT_OK);
    assert_int_equal(taciti_view_read(&view, 10000, 0, bytes), TACIT_OK);
    assert_int_equal(taciti_view_read(&view, 9999, 2, bytes), TACIT_E_DATA);
    assert_int_equal(taciti_view_read(&view, SIZE_MAX, 2, bytes), TACIT_E_DATA);
    assert_int_equal(taciti_view_read(&view, 2, SIZE_MAX, bytes), TACIT_E_DATA);
    assert_int_equal(truncate(below("x"), 100), 0);
    assert_int_equal(taciti_view_read(&view, 0, 100, bytes), TACIT_OK);
    assert_int_equal(taciti_view_read(&view, 0, 10000, bytes), TACIT_E_DATA);
    assert_non_null(strstr(g_line, "has shrunk from 10000 to 100 bytes"));
    taciti_view_close(&view);
    taciti_view_close(&view);
    assert_int_equal(taciti_view_open(g_folder, &view), TACIT_E_DATA);
    assert_int_equal(view.fd, -1);
}

static void folders_are_made_and_removed_with_all_below(void **state) {
    (void)state;
    assert_int_equal(taciti_file_make_folder(below("a//b/c/")), TACIT_OK);
    assert_int_equal(taciti_file_make_folder(below("a/b/c")), TACIT_OK);
    assert_int_equal(taciti_file_make_folder(""), TACIT_E_IO);
    assert_int_equal(taciti_file_write(below("a/b/x"), "", 0), TACIT_OK);
    assert_int_equal(taciti_file_make_folder(below("a/b/x")), TACIT_E_IO);
    assert_int_equal(taciti_file_make_folder(below("a/b/x/y")), TACIT_E_IO);
    assert_int_equal(taciti_file_write(below("keep"), "k", 1), TACIT_OK);
    char target[512];
    (void)snprintf(target, sizeof target, "%s", below("keep"));
    assert_int_equal(symlink(target, below("a/link")), 0);
    assert_int_equal(symlink(g_folder, below("a/b/up")), 0); /* followed, this would remove everything */
    assert_int_equal(taciti_file_remove(below("a")), TACIT_OK);
    assert_int_equal(taciti_file_remove(below("a")), TACIT_OK);
    assert_int_equal(entries_of(g_folder), 1);
}

static void whatever_has_the_name_is_removed_and_no_target_of_a_link(void **state) {
    (void)state;
    assert_int_equal(taciti_file_make_folder(below("kept/inside")), TACIT_OK);
    assert_int_equal(taciti_file_make_folder(below("folder/inside")), TACIT_OK);
    assert_int_equal(taciti_file_write(below("file"), "", 0), TACIT_OK);
    char target[512];
    (void)snprintf(target, sizeof target, "%s", below("kept"));
    assert_int_equal(symlink(target, below("link")), 0);
    assert_int_equal(symlink("nowhere", below("dangling")), 0);
    static const char *const names[] = {"folder", "file", "link", "dangling", "absent"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_int_equal(taciti_file_remove(below(names[i])), TACIT_OK);
    assert_int_equal(entries_of(g_folder), 1);
    assert_int_equal(entries_of(target), 1);
}

static void a_view_knows_whether_its_file_was_written_to(void **state) {
    (void)state;
    taciti_view view = {.fd = -1};
    assert_int_equal(taciti_file_write(below("x"), "abc", 3), TACIT_OK);
    const struct timespec long_ago[2] = {{.tv_sec = 1000000}, {.tv_sec = 1000000}};
    assert_int_equal(utimensat(AT_FDCWD, below("x"), long_ago, 0), 0);
    assert_int_equal(taciti_view_open(below("x"), &view), TACIT_OK);
    assert_int_equal(taciti_view_check(&view), TACIT_OK);
    assert_int_equal(taciti_file_write(below("x"), "def", 3), TACIT_OK); /* another file, ours lives on */
    assert_int_equal(taciti_view_check(&view), TACIT_OK);
    taciti_view_close(&view);
    assert_int_equal(taciti_view_open(below("x"), &view), TACIT_OK);
    assert_int_equal(utimensat(AT_FDCWD, below("x"), long_ago, 0), 0); /* the same size, written in place */
    assert_int_equal(taciti_view_check(&view), TACIT_E_DATA);
    assert_non_null(strstr(g_line, "x: was written to while it was in use (3 bytes before, 3 now)"));
    taciti_view_close(&view);
    assert_int_equal(taciti_view_open(below("x"), &view), TACIT_OK);
    assert_int_equal(truncate(below("x"), 4), 0);
    assert_int_equal(utimensat(AT_FDCWD, below("x"), long_ago, 0), 0);
    assert_int_equal(taciti_view_check(&view), TACIT_E_DATA);
    taciti_view_close(&view);
}

static void paths_join_with_one_slash_or_not_at_all(void **state) {
    (void)state;
    char path[8];
    assert_int_equal(taciti_path_join(path, sizeof path, "ab", "cde"), TACIT_OK);
    assert_string_equal(path, "ab/cde");
    assert_int_equal(taciti_path_join(path, sizeof path, "ab/", "cde"), TACIT_OK);
    assert_string_equal(path, "ab/cde");
    assert_int_equal(taciti_path_join(path, sizeof path, "", "x"), TACIT_OK);
    assert_string_equal(path, "x");
    assert_int_equal(taciti_path_join(path, sizeof path, "abc", "defg"), TACIT_E_IO);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(what_is_written_is_read_again),
        TEST(a_failed_write_leaves_the_old_file_alone),
        TEST(only_plain_files_are_replaced),
        TEST(reading_refuses_what_is_no_file),
        TEST(a_view_that_shrinks_is_an_error_and_no_signal),
        TEST(folders_are_made_and_removed_with_all_below),
        TEST(whatever_has_the_name_is_removed_and_no_target_of_a_link),
        TEST(a_view_knows_whether_its_file_was_written_to),
        TEST(paths_join_with_one_slash_or_not_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
