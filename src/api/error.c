/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

const char *tacit_error_text(void) { return taciti_error_text(); }
