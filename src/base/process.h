/* SPDX-License-Identifier: Apache-2.0
 *
 * What the system tells of a process in /proc/PID/stat (proc(5)).
 */
#ifndef TACITI_BASE_PROCESS_H
#define TACITI_BASE_PROCESS_H

enum { TACITI_PROCESS_BYTES = 2048 };

enum { TACITI_PROCESS_STATE = 3, TACITI_PROCESS_PARENT = 4, TACITI_PROCESS_START = 22, TACITI_PROCESS_ARGUMENTS = 48 };

/* Where that field begins in `line`, which receives the text; those that come after it follow, one blank between two.
 * NULL: there is no such process. Any thread. */
const char *taciti_process_field(long pid, int field, char line[TACITI_PROCESS_BYTES]);

#endif
