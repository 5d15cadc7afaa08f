/* SPDX-License-Identifier: Apache-2.0
 *
 * The index coder `rice`, for the list.
 */
#ifndef TACITI_CODEC_INDICES_RICE_H
#define TACITI_CODEC_INDICES_RICE_H

#include "codec/indices.h"

extern const taciti_index_coder taciti_index_coder_rice;

#endif
