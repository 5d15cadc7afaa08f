/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"

enum { FILES = 4 };

const char *fuzz_file_of(int number, const uint8_t *data, size_t size) {
    static int files[FILES];
    static char paths[FILES][32];
    if (number < 0 || number >= FILES) abort();
    if (files[number] == 0) files[number] = memfd_create("fuzz", MFD_CLOEXEC);
    const int file = files[number];
    if (file <= 0 || ftruncate(file, 0) != 0 || ftruncate(file, (off_t)size) != 0) abort();
    if (pwrite(file, data, size, 0) != (ssize_t)size) abort();
    (void)snprintf(paths[number], sizeof paths[number], "/proc/self/fd/%d", file);
    return paths[number];
}

const char *fuzz_file(const uint8_t *data, size_t size) { return fuzz_file_of(0, data, size); }
