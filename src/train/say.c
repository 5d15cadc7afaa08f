/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>

#include "train/trainer.h"

enum { LINE_BYTES = 512 };

void taciti_trainer_say(const taciti_trainer *trainer, const char *format, ...) {
    if (trainer->rank != 0 || trainer->settings->run.quiet) return;
    char line[LINE_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    taciti_log(TACITI_LOG_INFO, "%s", line);
}
