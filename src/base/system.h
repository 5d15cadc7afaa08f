/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads small files of /proc and /sys. Any thread.
 */
#ifndef TACITI_BASE_SYSTEM_H
#define TACITI_BASE_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>

/* Reads the first line of a file, without its newline. Returns false if it cannot be read. */
bool taciti_system_line(const char *path, char *out, size_t size);

/* Reads the number in the first line of a file. Returns false if there is none. */
bool taciti_system_number(const char *path, double *out);

/* Returns an entry of TACITI_MEMINFO ("MemAvailable") in bytes, or 0 if it does not exist. */
#define TACITI_MEMINFO "/proc/meminfo"
double taciti_meminfo_bytes(const char *path, const char *key);

#endif
