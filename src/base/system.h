/* SPDX-License-Identifier: Apache-2.0
 *
 * Small files in which the system describes itself: /proc and /sys. Any thread.
 */
#ifndef TACITI_BASE_SYSTEM_H
#define TACITI_BASE_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>

/* The first line of a small file of the system without its newline; false when it cannot be read. */
bool taciti_system_line(const char *path, char *out, size_t size);

/* The number in the first line of a small file of the system. */
bool taciti_system_number(const char *path, double *out);

/* A figure of /proc/meminfo in bytes ("MemAvailable"), 0 when it is not there. */
double taciti_meminfo_bytes(const char *key);

#endif
