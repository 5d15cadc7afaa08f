/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal functions of the profile files: a profile grows layer by layer, a layer tensor by tensor.
 */
#ifndef TACITI_MODEL_PROFILE_BUILD_H
#define TACITI_MODEL_PROFILE_BUILD_H

#include "model/profile.h"

/* Append a zeroed layer or tensor. Returns a borrowed pointer; layers move when the next one is appended. Returns NULL,
 * after logging, if memory is exhausted. */
taciti_profile_layer *taciti_profile_append_layer(taciti_profile *profile);
taciti_profile_tensor *taciti_profile_append_tensor(taciti_profile_layer *layer);

/* Creates the profile of a preset, "lstm-66m", in operations. Returns owned. */
tacit_status taciti_profile_preset(const char *name, taciti_profile *out);

/* Parses a profile file; `path` is used in messages only. Returns owned. */
tacit_status taciti_profile_parse(const char *path, const char *text, size_t bytes, taciti_profile *out);

#endif
