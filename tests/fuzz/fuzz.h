/* SPDX-License-Identifier: Apache-2.0
 *
 * One parser per fuzz_*.c, with libFuzzer's entry point. Built by clang with -fsanitize=fuzzer (preset "fuzz"), or with
 * driver.c, which mutates the target's own seeds a fixed number of times and so also is a plain test.
 */
#ifndef TACIT_TESTS_FUZZ_FUZZ_H
#define TACIT_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

enum { FUZZ_INPUT_MAX = 1 << 14 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Valid input number i, of at most FUZZ_INPUT_MOST bytes; 0: there are no more. */
size_t fuzz_seed(size_t i, uint8_t *out);

/* A file in memory that holds these bytes; its path is valid until the next call. Any failure ends the program. */
const char *fuzz_file(const uint8_t *data, size_t size);

/* One of several such files, 0 to 3. */
const char *fuzz_file_of(int number, const uint8_t *data, size_t size);

#endif
