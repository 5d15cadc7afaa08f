/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>

#include "train/trainer.h"

void taciti_trainer_say(const taciti_trainer *trainer, const char *format, ...) {
    if (trainer->rank != 0 || (trainer->settings->run.quiet && !trainer->dry_run)) return;
    va_list args;
    va_start(args, format);
    taciti_log_list(TACITI_LOG_INFO, format, args);
    va_end(args);
}
