/* SPDX-License-Identifier: Apache-2.0
 *
 * An append-only file of records. While the process lives, the file holds complete records only: a record that cannot
 * be written completely (full disk) is removed again.
 */
#ifndef TACITI_REPORT_APPENDER_H
#define TACITI_REPORT_APPENDER_H

#include <stddef.h>
#include <stdint.h>

#include "tacit/tacit.h"

typedef struct taciti_appender {
    int fd;
    int64_t size_bytes;
    char path[4096];
} taciti_appender;

/* Creates the file or continues at its end. */
tacit_status taciti_appender_open(const char *path, taciti_appender *out);

/* Appends a record with one write(). On E_IO the file is unchanged. */
tacit_status taciti_appender_put(taciti_appender *appender, const void *record, size_t count);

void taciti_appender_close(taciti_appender *appender); /* fd -1 is fine */

#endif
