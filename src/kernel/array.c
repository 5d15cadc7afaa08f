/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays.
 */
#include "kernel/array_loops.h"

#include "kernel/array_fp16.h"
#include "kernel/array_line8.h"
#include "kernel/sets.h"

void FILL_OF_SET(array)(taciti_kernels *table) {
    table->add = add;
    table->add_scaled = add_scaled;
    table->keep_equal = keep_equal;
    table->scale = scale;
    table->scaled_copy = scaled_copy;
    table->bf16_encode = bf16_encode;
    table->bf16_encode_error = bf16_encode_error;
    table->bf16_decode = bf16_decode;
    table->bf16_add = bf16_add;
    table->sum_squares = sum_squares;
    table->dot = dot;
    table->all_finite = all_finite;
    table->blend = blend_alone;
    table->adamw = adamw;
    table->accum_adamw = accum_adamw;
    table->sgd = sgd;
    table->fp16_encode = fp16_encode;
    table->fp16_encode_error = fp16_encode_error;
    table->fp16_decode = fp16_decode;
    table->fp16_add = fp16_add;
    table->line8_encode = line8_encode;
    table->line8_decode = line8_decode;
}
