/* SPDX-License-Identifier: Apache-2.0
 *
 * A file that only grows, record by record, and holds nothing but whole records while the process lives: a record that
 * could not be written completely (full disk) is taken back.
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

/* One write() per record. E_IO leaves the file as it was. */
tacit_status taciti_appender_put(taciti_appender *appender, const void *record, size_t count);

void taciti_appender_close(taciti_appender *appender); /* fd -1 is fine */

#endif
