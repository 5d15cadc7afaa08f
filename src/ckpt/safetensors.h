/* SPDX-License-Identifier: Apache-2.0
 *
 * The safetensors container: u64 little-endian header length, JSON header, data. Reading trusts nothing: the header is
 * at most 100 MB, keys are unique, offsets tile the data exactly, dtype x shape matches the byte range.
 */
#ifndef TACITI_CKPT_SAFETENSORS_H
#define TACITI_CKPT_SAFETENSORS_H

#include "base/file.h"
#include "tensor/state.h"

typedef enum taciti_safe_dtype {
    TACITI_SAFE_F32,
    TACITI_SAFE_BF16,
    TACITI_SAFE_F16,
    TACITI_SAFE_U8,
    TACITI_SAFE_OTHER
} taciti_safe_dtype;

typedef struct taciti_safe_entry {
    char *name; /* owned */
    taciti_safe_dtype dtype;
    int dims;
    size_t *shape;        /* [dims]; owned */
    size_t offset, bytes; /* in the file */
} taciti_safe_entry;

typedef struct taciti_safe_file {
    taciti_view view;
    taciti_safe_entry *entries; /* owned, in file order */
    size_t count;
} taciti_safe_file;

tacit_status taciti_safe_open(const char *path, taciti_safe_file *out);
void taciti_safe_close(taciti_safe_file *file);
const taciti_safe_entry *taciti_safe_find(const taciti_safe_file *file, const char *name);

/* Reads one tensor as f32 (from F32, BF16 or F16, exactly). n must equal the product of its shape. */
tacit_status taciti_safe_read_f32(const taciti_safe_file *file, const taciti_safe_entry *entry, float *out, size_t n);

/* Reads n floats from F16 or BF16 at this byte of a file, exactly, but that a signalling NaN of F16 becomes quiet. */
tacit_status taciti_safe_read_half(const taciti_view *view, size_t offset, taciti_safe_dtype dtype, float *out,
                                   size_t n);

/* One tensor to write. data is f32, stored as `dtype` F32 or BF16, or bytes, stored as U8. */
typedef struct taciti_safe_tensor {
    const char *name;
    int dims;
    const size_t *shape; /* [dims]; borrowed */
    const void *data;
    taciti_safe_dtype dtype;
    const taciti_state_access *access; /* not NULL: gives the floats instead of data, from `at` on. Borrows */
    size_t at;
} taciti_safe_tensor;

/* Streams to `path` (not atomic by itself: callers write into a temporary folder or name), fsyncs, and returns the size
 * and the XXH3-128 of the file as hex. metadata: key, value pairs, NULL-terminated, may be NULL. */
tacit_status taciti_safe_write(const char *path, const taciti_safe_tensor *tensors, size_t count,
                               const char *const *metadata, uint64_t *out_bytes, char out_digest[33]);

#endif
