/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_TARGET [COUNT [SEED]]: runs the target on its seeds, then on COUNT mutations of them; without an argument on
 *                             TACIT_FUZZ_ROUNDS of the environment, or 100000.
 * fuzz_TARGET FILE...:        runs it on these files, to reproduce a finding.
 * fuzz_TARGET seeds FOLDER:   writes the seeds as files, for libFuzzer to begin with.
 *
 * What crashed is left in fuzz-last-input of the working folder: it is written before each run when FUZZ_KEEP is set.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "fuzz.h"

static uint64_t g_key, g_draws;

static size_t draw(size_t bound) { return (size_t)taciti_rng_below(g_key, g_draws++, bound); }

typedef struct input {
    uint8_t bytes[FUZZ_INPUT_MAX];
    size_t size;
} input;

/* Opens (count > 0) or closes a gap at `at`. */
static void insert(input *x, size_t at, size_t count) {
    if (x->size + count > sizeof x->bytes) return;
    memmove(x->bytes + at + count, x->bytes + at, x->size - at);
    memmove(x->bytes + at, x->bytes + draw(x->size - at + 1), count);
    x->size += count;
}

static void erase(input *x, size_t at, size_t count) {
    if (count > x->size - at) count = x->size - at;
    memmove(x->bytes + at, x->bytes + at + count, x->size - at - count);
    x->size -= count;
}

static void mutate_once(input *x) {
    static const char interesting[] = "0123456789-+eE.\"\\{}[]:,nulltruefalse\n \x7f\x80\xff";
    static const uint64_t numbers[] = {0, 1, UINT64_MAX, INT64_MAX, (uint64_t)1 << 63, UINT32_MAX, 1u << 31, 255};
    const size_t at = draw(x->size + 1);
    switch (draw(8)) {
    case 0:
        if (at < x->size) x->bytes[at] = (uint8_t)(x->bytes[at] ^ 1u << draw(8));
        break;
    case 1:
        if (at < x->size) x->bytes[at] = (uint8_t)interesting[draw(sizeof interesting)];
        break;
    case 2:
        if (at < x->size) x->bytes[at] = (uint8_t)draw(256);
        break;
    case 3: insert(x, at, 1 + draw(16)); break;
    case 4: erase(x, at, 1 + draw(16)); break;
    case 5: insert(x, at, draw(x->size + 1)); break;
    case 6: erase(x, at, draw(x->size + 1)); break;
    default:
        if (at + sizeof numbers[0] <= x->size) memcpy(x->bytes + at, &numbers[draw(8)], 1u << draw(4));
        break;
    }
}

static void keep(const input *x) {
    if (getenv("FUZZ_KEEP") == NULL) return;
    FILE *file = fopen("fuzz-last-input", "wb");
    if (file == NULL || fwrite(x->bytes, 1, x->size, file) != x->size || fclose(file) != 0) abort();
}

/* A copy of exactly that size, so that the sanitizer sees a read beyond its end. */
static void run(const input *x) {
    uint8_t *copy = malloc(x->size + (x->size == 0));
    if (copy == NULL) abort();
    memcpy(copy, x->bytes, x->size);
    keep(x);
    (void)LLVMFuzzerTestOneInput(copy, x->size);
    free(copy);
}

/* All seeds; making one may cost more than a run. */
static input *make_seeds(size_t *count) {
    static input seed;
    input *seeds = NULL;
    for (*count = 0; (seed.size = fuzz_seed(*count, seed.bytes)) > 0; ++*count) {
        seeds = realloc(seeds, (*count + 1) * sizeof *seeds);
        if (seeds == NULL) abort();
        seeds[*count] = seed;
    }
    if (*count == 0) abort();
    return seeds;
}

static void run_mutations(size_t count) {
    static input x;
    size_t n_seeds = 0;
    input *seeds = make_seeds(&n_seeds);
    for (size_t i = 0; i < n_seeds; i++) run(&seeds[i]);
    for (size_t i = 0; i < count; i++) {
        const input *seed = &seeds[draw(n_seeds)];
        memcpy(x.bytes, seed->bytes, seed->size);
        x.size = seed->size;
        for (size_t n = draw(6); n < 6; n++) mutate_once(&x);
        run(&x);
    }
    free(seeds);
    printf("%zu seeds, %zu mutations\n", n_seeds, count);
}

static void run_file(const char *path) {
    static input x;
    FILE *file = fopen(path, "rb");
    if (file == NULL) abort();
    x.size = fread(x.bytes, 1, sizeof x.bytes, file);
    (void)fclose(file);
    run(&x);
}

static void write_seeds(const char *folder) {
    static input x;
    for (size_t i = 0; (x.size = fuzz_seed(i, x.bytes)) > 0; i++) {
        char path[4096];
        (void)snprintf(path, sizeof path, "%s/seed-%zu", folder, i);
        FILE *file = fopen(path, "wb");
        if (file == NULL || fwrite(x.bytes, 1, x.size, file) != x.size || fclose(file) != 0) abort();
    }
}

int main(int argc, char **argv) {
    const char *rounds = argc > 1 ? argv[1] : getenv("TACIT_FUZZ_ROUNDS");
    const long count = rounds != NULL ? strtol(rounds, NULL, 10) : 100000;
    g_key = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    if (argc == 3 && strcmp(argv[1], "seeds") == 0)
        write_seeds(argv[2]);
    else if (argc > 1 && count == 0)
        for (int i = 1; i < argc; i++) run_file(argv[i]);
    else
        run_mutations((size_t)count);
    return 0;
}
