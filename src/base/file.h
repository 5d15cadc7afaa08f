/* SPDX-License-Identifier: Apache-2.0
 *
 * Files: every write that matters is atomic (temporary name, fsync, rename, fsync of the folder), every failure names
 * the path and the system's reason. Any thread, not collective.
 */
#ifndef TACITI_BASE_FILE_H
#define TACITI_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "tacit/tacit.h"

/* Creates the folder and its parents (mode 0777 less the umask); fine when it exists. */
tacit_status taciti_file_make_folder(const char *path);

/* Writes the whole file atomically: readers see the old content or the new, also after a crash. */
tacit_status taciti_file_write(const char *path, const void *bytes, size_t count);

/* Whether taciti_file_write() could make such a file now: one is made beside `path` and removed again. */
tacit_status taciti_file_check_writable(const char *path);

/* Reads a whole file of at most `limit` bytes; the block has one extra zero byte. out_count may be NULL.
 * Folders, pipes and devices are refused. Returns owned; taciti_free(). */
tacit_status taciti_file_read(const char *path, size_t limit, char **out, size_t *out_count);

/* A read-only view of a file that may be larger than memory. It is read by pread, not mapped, so that a file that
 * shrinks under us is an error (E_DATA) and never SIGBUS. */
typedef struct taciti_view {
    int fd;
    size_t bytes;       /* when it was opened */
    int64_t written_ns; /* time of the last change of its content, when it was opened */
    char *path;         /* owned */
} taciti_view;

tacit_status taciti_view_open(const char *path, taciti_view *out);
void taciti_view_close(taciti_view *view); /* {.fd = -1} is fine */

/* Copies bytes [offset, offset + count) into out. Any number of threads at once. */
tacit_status taciti_view_read(const taciti_view *view, size_t offset, size_t count, void *out);

/* E_DATA when the file's size or the time of its last change is another than when it was opened. A file that was
 * replaced by another one of its name is fine: the view goes on to show the old one. */
tacit_status taciti_view_check(const taciti_view *view);

/* fsync of a folder, so that a rename in it is durable. */
tacit_status taciti_file_sync_folder(const char *path);

/* Removes a folder and everything below it (no symbolic links followed); fine when it does not exist, an error when the
 * path is something else than a folder. */
tacit_status taciti_file_remove_tree(const char *path);

/* Removes whatever has this name: a folder with everything below it, a file, or a link itself, not what it points to.
 * Fine when there is nothing. */
tacit_status taciti_file_remove(const char *path);

/* joined = a "/" b into a buffer of `size` bytes; E_IO when it does not fit. */
tacit_status taciti_path_join(char *joined, size_t size, const char *a, const char *b);

#endif
