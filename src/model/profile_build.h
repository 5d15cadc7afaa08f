/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of profiles: what their source files share. A profile grows layer by layer, a layer tensor by tensor.
 */
#ifndef TACITI_MODEL_PROFILE_BUILD_H
#define TACITI_MODEL_PROFILE_BUILD_H

#include "model/profile.h"

/* Append a zeroed layer or tensor. Borrowed from the profile; a layer moves when the next one is appended. NULL when
 * memory is short (logged). */
taciti_profile_layer *taciti_profile_append_layer(taciti_profile *profile);
taciti_profile_tensor *taciti_profile_append_tensor(taciti_profile_layer *layer);

/* "lstm-66m" into a profile in operations. Returns owned. */
tacit_status taciti_profile_preset(const char *name, taciti_profile *out);

/* The text of a profile file; `path` is for messages only. Returns owned. */
tacit_status taciti_profile_parse(const char *path, const char *text, size_t bytes, taciti_profile *out);

#endif
