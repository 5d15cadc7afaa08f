/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>

#include "train/trainer.h"

enum { LINE_BYTES = 512 };

TACITI_PRINTF(2, 0) static void log_line(taciti_log_level level, const char *format, va_list args) {
    char line[LINE_BYTES];
    (void)vsnprintf(line, sizeof line, format, args);
    taciti_log(level, "%s", line);
}

void taciti_trainer_say(const taciti_trainer *trainer, const char *format, ...) {
    if (trainer->rank != 0 || trainer->settings->run.quiet) return;
    va_list args;
    va_start(args, format);
    log_line(TACITI_LOG_INFO, format, args);
    va_end(args);
}

void taciti_trainer_warn(const taciti_trainer *trainer, const char *format, ...) {
    if (trainer->rank != 0) return;
    va_list args;
    va_start(args, format);
    log_line(TACITI_LOG_WARN, format, args);
    va_end(args);
}
