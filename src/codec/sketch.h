/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of the codec `tagc`, for the exchange, which sends what it and `sketch` select as sketches
 * (taciti_codec.sketches).
 */
#ifndef TACITI_CODEC_SKETCH_H
#define TACITI_CODEC_SKETCH_H

#include "codec/selector.h"

typedef struct taciti_sketch_options {
    taciti_composed_options composed; /* of sums on their way back; without keys: values in f32, the shortest indices */
    double ratio;                     /* tagc.ratio: elements per counter; 0: from the measured union */
} taciti_sketch_options;

#endif
