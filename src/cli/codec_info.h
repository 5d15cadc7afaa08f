/* SPDX-License-Identifier: Apache-2.0
 *
 * `tacit info codecs`: class, properties, paper, options and preset of every codec, from the registry.
 */
#ifndef TACITI_CLI_CODEC_INFO_H
#define TACITI_CLI_CODEC_INFO_H

#include <stdbool.h>

struct json_t;

/* all: those to compare with, too. */
struct json_t *taciti_codecs_json(bool all);
void taciti_codecs_print(bool all);

#endif
