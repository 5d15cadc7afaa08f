/* SPDX-License-Identifier: Apache-2.0
 *
 * File access. Writes are atomic: temporary name, fsync, rename, fsync of the folder. Every error message contains the
 * path and the system's reason. Any thread, not collective.
 */
#ifndef TACITI_BASE_FILE_H
#define TACITI_BASE_FILE_H

#include "tacit/tacit.h"

/* Lets this process have `count` files open at once, or as many as its hard limit allows. */
void taciti_file_allow(size_t count);

/* Creates the folder and its parents (mode 0777 minus the umask). Succeeds if it exists. */
tacit_status taciti_file_make_folder(const char *path);

/* Replaces the whole file atomically: readers see the old content or the new one, even after a crash. A link
 * stays, and what it leads to is replaced. E_IO for what is no plain file, a device say. */
tacit_status taciti_file_write(const char *path, const void *bytes, size_t count);

/* Writes all bytes to the open file. Returns false, with errno, if it cannot. */
bool taciti_file_put(int fd, const void *bytes, size_t count);

/* Checks whether taciti_file_write() would succeed now, by creating and removing a file next to `path`. */
tacit_status taciti_file_check_writable(const char *path);

/* Reads a whole file of at most `limit` bytes and appends one zero byte. out_count may be NULL. Refuses folders, pipes
 * and devices. E_DATA for a path that leads to no readable file. Returns owned; release with taciti_free(). */
tacit_status taciti_file_read(const char *path, size_t limit, char **out, size_t *out_count);

/* Logs "PATH: WHAT: " and errno's reason after a system call that failed. Returns E_IO. */
tacit_status taciti_file_fail(const char *what, const char *path);

/* Call after a system call that should have opened the input `path`: logs errno as the reason. Returns E_DATA if the
 * path leads to no readable file, which is a mistake of whoever named it, else E_IO. */
tacit_status taciti_file_refuse(const char *path);

/* A read-only view of a file that may be larger than memory. Reads use pread instead of mmap, so a file that is
 * truncated by another process causes E_DATA and never SIGBUS. */
typedef struct taciti_view {
    int fd;
    size_t bytes;       /* size at the time of opening */
    int64_t written_ns; /* modification time at the time of opening */
    char *path;         /* owned */
} taciti_view;

tacit_status taciti_view_open(const char *path, taciti_view *out);
void taciti_view_close(taciti_view *view); /* {.fd = -1} is fine */

/* Copies bytes [offset, offset + count) into out. Any number of threads at once. */
tacit_status taciti_view_read(const taciti_view *view, size_t offset, size_t count, void *out);

/* Returns E_DATA if the file's size or modification time has changed since it was opened. Replacing the file by rename
 * is allowed: the view keeps showing the old file. */
tacit_status taciti_view_check(const taciti_view *view);

/* Calls fsync on a folder, which makes a rename in it durable. */
tacit_status taciti_file_sync_folder(const char *path);
tacit_status taciti_file_sync_parent(const char *path); /* the same on the folder that holds `path` */

/* Removes a folder with everything below it, a file, or a symbolic link, whose target stays. Succeeds if nothing
 * exists. */
tacit_status taciti_file_remove(const char *path);

/* Returns whether the path leads to a regular file that this process may read. */
bool taciti_file_is_plain(const char *path);

/* Returns whether the folder has an entry of that name that this process can see. */
bool taciti_file_exists_in(const char *folder, const char *name);

/* Returns whether `path` is the folder or lies in it, whatever links are on the way. False if one does not exist. */
bool taciti_file_lies_in(const char *path, const char *folder);

/* Copies a path into a buffer of `size` bytes. Returns E_IO if it does not fit. */
tacit_status taciti_path_copy(char *out, size_t size, const char *path);

/* Writes a "/" b into `joined`, a buffer of `size` bytes. Returns E_IO if it does not fit. */
enum { TACITI_PATH_BYTES = 4096 }; /* of every buffer for a path */
tacit_status taciti_path_join(char *joined, size_t size, const char *a, const char *b);

/* The folder that holds `path`: "a/b" -> "a", "b" -> ".", "/b" -> "/". */
tacit_status taciti_path_parent(const char *path, char out[TACITI_PATH_BYTES]);

#endif
