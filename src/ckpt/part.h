/* SPDX-License-Identifier: Apache-2.0
 *
 * How an array lies in the shards of a checkpoint. A tensor that the array holds completely is stored under its own
 * name and shape. Of a tensor that a range cuts, floats [a, b) of n are stored as one dimension under the name
 * "<prefix><tensor>[a:b/n]": offset and full length stand in the name, so that readers which want other ranges can put
 * the pieces together. Not collective, any thread.
 */
#ifndef TACITI_CKPT_PART_H
#define TACITI_CKPT_PART_H

#include "ckpt/ckpt.h"

enum { TACITI_CKPT_PART_NAME_BYTES = 256 };

/* What an array holds of one tensor; of bytes (tensor NULL): all of them. */
typedef struct taciti_ckpt_part {
    const taciti_tensor *tensor;
    size_t first, n; /* floats [first, first + n) of the tensor */
    size_t at;       /* float of the array's memory where they begin */
} taciti_ckpt_part;

/* Only this rank can write it: an array of its own, or a range. */
bool taciti_ckpt_part_of_rank(const taciti_ckpt_array *array);

/* Tensors that an array may hold parts of; 1 for bytes. */
size_t taciti_ckpt_part_count(const taciti_ckpt_array *array);

/* The part of tensor `index`; false: none of it lies in the array's range. */
bool taciti_ckpt_part_get(const taciti_ckpt_array *array, size_t index, taciti_ckpt_part *out);

bool taciti_ckpt_part_is_whole(const taciti_ckpt_part *part);

/* E_INTERNAL: the name is too long. */
tacit_status taciti_ckpt_part_name(const taciti_ckpt_array *array, const taciti_ckpt_part *part,
                                   char out[TACITI_CKPT_PART_NAME_BYTES]);

/* The other way: which floats of which tensor a stored name stands for; out->at is not set. False: it belongs to
 * another array, or says what cannot be. */
bool taciti_ckpt_part_parse(const taciti_ckpt_array *array, const char *name, taciti_ckpt_part *out);

#endif
