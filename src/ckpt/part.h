/* SPDX-License-Identifier: Apache-2.0
 *
 * How an array is stored in the shards of a checkpoint. A tensor that the array holds completely is stored under its
 * own name and shape. If a range cuts a tensor, its floats [a, b) of n are stored as one dimension under the name
 * "<prefix><tensor>[a:b/n]". The name contains offset and full length, so readers with other ranges can assemble the
 * parts. Not collective, any thread.
 */
#ifndef TACITI_CKPT_PART_H
#define TACITI_CKPT_PART_H

#include "ckpt/ckpt.h"

/* The part of one tensor that an array holds; of bytes (tensor NULL): all of them. */
typedef struct taciti_ckpt_part {
    const taciti_tensor *tensor;
    size_t first, n; /* floats [first, first + n) of the tensor */
    size_t at;       /* float of the array's memory where they begin */
} taciti_ckpt_part;

/* Returns true if only this rank can write the array: its own, or a range. */
bool taciti_ckpt_part_of_rank(const taciti_ckpt_array *array);

/* Returns the number of ranges: 1 unless it is a list. */
size_t taciti_ckpt_ranges(const taciti_ckpt_array *array);

/* Returns the number of parts that an array may have: one per tensor and range; 1 for bytes. */
size_t taciti_ckpt_part_count(const taciti_ckpt_array *array);

/* Computes part `index`, of tensor index / ranges and range index % ranges. Returns false if they do not overlap. */
bool taciti_ckpt_part_get(const taciti_ckpt_array *array, size_t index, taciti_ckpt_part *out);

bool taciti_ckpt_part_is_whole(const taciti_ckpt_part *part);

/* Formats the name of a part. Returns owned; NULL: no memory. */
char *taciti_ckpt_part_name(const taciti_ckpt_array *array, const taciti_ckpt_part *part);

/* Whether a name ends like that of a part, in "[a:b/n]": no tensor may have such a name. */
bool taciti_ckpt_is_part_name(const char *name);

/* Parses the name of a part into tensor, first and n; does not set out->at. Returns false if the name belongs to
 * another array or is invalid. */
bool taciti_ckpt_part_parse(const taciti_ckpt_array *array, const char *name, taciti_ckpt_part *out);

#endif
