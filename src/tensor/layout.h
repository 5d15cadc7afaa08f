/* SPDX-License-Identifier: Apache-2.0
 *
 * Maps tensor names to offsets. All parameters of a model are stored in one flat f32 array; gradients, moments and
 * residuals are arrays of the same layout. Tensors are stored in the order in which their gradients become final, which
 * the model defines, so every bucket - a contiguous range of the flat array - is complete as early as possible. A
 * tensor larger than a bucket spans several.
 */
#ifndef TACITI_TENSOR_LAYOUT_H
#define TACITI_TENSOR_LAYOUT_H

#include "tacit/tacit.h"

typedef struct taciti_tensor {
    const char *name; /* UTF-8: "h.0.attn.c_attn.weight"; owned by the layout */
    int dims;         /* 0: a scalar */
    size_t *shape;    /* [dims]; owned by the layout */
    size_t n;         /* product of shape */
    size_t offset;    /* floats from the start of the flat array; multiple of 16 */
    size_t unit;      /* group of tensors that a pass uses together: the embedding, a block, the head; from 0 on */
    bool decay;       /* weight decay applies (matrices, not biases and norms) */
    bool plain;       /* not compressed: no bucket has it beside tensors that are */
    bool early;       /* its gradient is also written long before its turn: an embedding that is the output head, too */
} taciti_tensor;

/* Floats [at, at + n) of an array. */
typedef struct taciti_range {
    size_t at, n;
} taciti_range;

typedef struct taciti_bucket {
    size_t offset, n;   /* floats; multiples of 16 but for the last n */
    size_t first, last; /* tensors [first, last] overlap it */
    bool plain;         /* as its tensors are */
    int half;           /* 0 or 1: the buckets of each are half of the floats, as nearly as whole ones allow */
} taciti_bucket;

typedef struct taciti_layout {
    taciti_tensor *tensors; /* in ready order; owned */
    size_t tensor_count, tensor_capacity;
    size_t unit_count;      /* the last may be empty */
    size_t n;               /* floats of the flat array, padding included; padding is always 0 */
    size_t parameters;      /* floats without padding */
    taciti_bucket *buckets; /* owned */
    size_t bucket_count;
    size_t bucket_max; /* floats that a bucket may have */
} taciti_layout;

enum { TACITI_BUCKET_MAX = 25 << 20 }; /* bytes, of those that nobody chose */

/* Builder: create, append tensors in ready order, seal with the bucket size. A later seal replaces an earlier one, for
 * instance after `plain` was set. The capacity grows as needed. append copies name and shape; E_CONFIG for a size that
 * is 0 or too large. Not collective, one thread. */
tacit_status taciti_layout_create(size_t tensor_capacity, taciti_layout *out);
tacit_status taciti_layout_append(taciti_layout *layout, const char *name, int dims, const size_t *shape, bool decay);
/* Tensors that are appended from here on belong to the next unit. Without a call all are of unit 0. */
void taciti_layout_next_unit(taciti_layout *layout);
/* bucket_bytes 0: taciti_layout_choose_bucket(layout, false). */
tacit_status taciti_layout_seal(taciti_layout *layout, size_t bucket_bytes);
/* The same with buckets that end where a unit ends, so that no bucket belongs to two. */
tacit_status taciti_layout_seal_units(taciti_layout *layout, size_t bucket_bytes);
/* Bytes of a bucket where nobody says: a tenth of the array from 256 KiB on, and of what a codec makes small (coded) a
 * quarter from 1 MiB on; at most 25 MiB. Small models have several buckets, too: the last one travels after backward,
 * with nothing to hide behind. Each costs processor time, however little it sends. */
size_t taciti_layout_choose_bucket(const taciti_layout *layout, bool coded);
void taciti_layout_destroy(taciti_layout *layout);

/* The floats of a unit, padding included; n 0 if it has no tensors. */
taciti_range taciti_layout_unit(const taciti_layout *layout, size_t unit);

/* Sets the padding within elements range.at .. range.at + range.n of a bucket to 0. x[range.n] is that range. */
void taciti_layout_clear_gaps(const taciti_layout *layout, size_t bucket, taciti_range range, float *x);

/* "[41][10]", cut where it is too long for the text; a scalar: "[]". */
enum { TACITI_SHAPE_TEXT_BYTES = 96 };
const char *taciti_shape_text(int dims, const size_t *shape, char text[TACITI_SHAPE_TEXT_BYTES]);

bool taciti_shape_equals(int dims, const size_t *shape, int other_dims, const size_t *other);

/* Index of the tensor called `name`, or tensor_count. */
size_t taciti_layout_find(const taciti_layout *layout, const char *name);

/* Readiness counters: the number of tensors each bucket still waits for. Used by one thread, the model's. */
typedef struct taciti_readiness {
    const taciti_layout *layout; /* borrows */
    size_t *missing;             /* per bucket; owned */
} taciti_readiness;

tacit_status taciti_readiness_create(const taciti_layout *layout, taciti_readiness *out);
void taciti_readiness_destroy(taciti_readiness *readiness);
void taciti_readiness_reset(taciti_readiness *readiness);

/* Marks the gradient of one tensor as final and calls `full` for every bucket this completes, in ascending order. */
void taciti_readiness_mark(taciti_readiness *readiness, size_t tensor, void (*full)(void *context, size_t bucket),
                           void *context);

#endif
