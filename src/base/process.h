/* SPDX-License-Identifier: Apache-2.0
 *
 * Fields of /proc/PID/stat; see proc(5).
 */
#ifndef TACITI_BASE_PROCESS_H
#define TACITI_BASE_PROCESS_H

enum { TACITI_PROCESS_BYTES = 2048 };

enum { TACITI_PROCESS_STATE = 3, TACITI_PROCESS_PARENT = 4, TACITI_PROCESS_START = 22, TACITI_PROCESS_ARGUMENTS = 48 };

/* Reads the stat line of process `pid` into `line` and returns a pointer to the given field; later fields follow,
 * separated by blanks. Returns NULL if there is no such process. Any thread. */
const char *taciti_process_field(long pid, int field, char line[TACITI_PROCESS_BYTES]);

#endif
