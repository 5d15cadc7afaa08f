/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads small files of /proc and /sys. Any thread.
 */
#ifndef TACITI_BASE_SYSTEM_H
#define TACITI_BASE_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads the first line of a file, without its newline. Returns false if it cannot be read. */
bool taciti_system_line(const char *path, char *out, size_t size);

/* Reads the number in the first line of a file. Returns false if there is none. */
bool taciti_system_number(const char *path, double *out);

/* Reads the number behind `key` in a file of "key number" lines. */
bool taciti_system_field(const char *path, const char *key, uint64_t *out);

/* Returns an entry of TACITI_MEMINFO ("MemAvailable") in bytes, or 0 if it does not exist. */
#define TACITI_MEMINFO "/proc/meminfo"
double taciti_meminfo_bytes(const char *path, const char *key);

/* Fields of /proc/PID/stat; see proc(5). */
enum { TACITI_PROCESS_BYTES = 2048 };
enum { TACITI_PROCESS_STATE = 3, TACITI_PROCESS_PARENT = 4, TACITI_PROCESS_START = 22, TACITI_PROCESS_ARGUMENTS = 48 };

/* Reads the stat line of process `pid` into `line` and returns a pointer to the given field; later fields follow,
 * separated by blanks. Returns NULL if there is no such process. Any thread. */
const char *taciti_process_field(long pid, int field, char line[TACITI_PROCESS_BYTES]);

#endif
