/* SPDX-License-Identifier: Apache-2.0
 *
 * model.safetensors.index.json of a Hugging Face folder whose shards are whole: what is accepted has filled every
 * tensor.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "ckpt/manifest.h"
#include "ckpt/safetensors.h"
#include "ckpt/weights.h"
#include "fuzz.h"

enum { SHARDS = 2 };
static const char config[] =
    "{\"model_type\":\"gpt2\",\"n_layer\":1,\"n_head\":1,\"n_embd\":2,\"n_positions\":3,\"vocab_size\":5}";

static char g_folder[64];
static taciti_model_options g_options;
static taciti_layout g_layout;
static float *g_flat;

static void path_of(const char *name, char out[128]) { (void)snprintf(out, 128, "%s/%s", g_folder, name); }

static void remove_folder(void) {
    static const char *const names[] = {"config.json", "model.safetensors.index.json", "a.safetensors",
                                        "b.safetensors"};
    char path[128];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        path_of(names[i], path);
        (void)unlink(path);
    }
    (void)rmdir(g_folder);
}

static void write_shard(const char *name, size_t first, size_t last) {
    static const char *const metadata[] = {"format", "pt", NULL};
    taciti_safe_tensor tensors[64];
    char path[128], digest[TACITI_DIGEST_BYTES];
    uint64_t bytes = 0;
    size_t count = 0;
    for (size_t t = first; t < last; t++) {
        const taciti_tensor *from = &g_layout.tensors[t];
        tensors[count++] = (taciti_safe_tensor){
            .name = from->name, .dims = from->dims, .shape = from->shape, .data = g_flat + from->offset};
    }
    path_of(name, path);
    if (taciti_safe_write(path, tensors, count, metadata, &bytes, digest) != TACIT_OK) abort();
}

/* The index itself is a link to the file in memory. */
static void make_folder(void) {
    char path[128];
    strcpy(g_folder, "/tmp/tacit-fuzz-XXXXXX");
    if (mkdtemp(g_folder) == NULL || atexit(remove_folder) != 0) abort();
    path_of("config.json", path);
    FILE *file = fopen(path, "w");
    if (file == NULL || fputs(config, file) < 0 || fclose(file) != 0) abort();
    taciti_weights_format format;
    if (taciti_weights_describe(g_folder, &format, &g_options) != TACIT_OK) abort();
    if (taciti_model_layout(&g_options, 1 << 20, &g_layout) != TACIT_OK || g_layout.tensor_count > 64) abort();
    g_flat = taciti_calloc(g_layout.n, sizeof *g_flat);
    if (g_flat == NULL) abort();
    write_shard("a.safetensors", 0, g_layout.tensor_count / 2);
    write_shard("b.safetensors", g_layout.tensor_count / 2, g_layout.tensor_count);
    path_of("model.safetensors.index.json", path);
    if (symlink(fuzz_file((const uint8_t *)"", 0), path) != 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > FUZZ_INPUT_MAX) return 0;
    if (g_flat == NULL) make_folder();
    (void)fuzz_file(data, size);
    for (size_t i = 0; i < g_layout.n; i++) g_flat[i] = 1;
    if (taciti_weights_read(g_folder, &g_options, &g_layout, g_flat) != TACIT_OK) return 0;
    for (size_t t = 0; t < g_layout.tensor_count; t++)
        for (size_t i = 0; i < g_layout.tensors[t].n; i++)
            if (g_flat[g_layout.tensors[t].offset + i] > 0) abort();
    return 0;
}

size_t fuzz_seed(size_t i, uint8_t *out) {
    static const char *const seeds[] = {
        "{\"metadata\":{\"total_size\":1},\"weight_map\":{\"wte.weight\":\"b\",\"ln_f.bias\":\"a.safetensors\"}}",
        "{\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"b.safetensors\",\"z\":\"c.safetensors\"}}",
        "{\"weight_map\":{\"x\":\"../a.safetensors\"}}",
    };
    if (i >= sizeof seeds / sizeof seeds[0]) return 0;
    memcpy(out, seeds[i], strlen(seeds[i]));
    return strlen(seeds[i]);
}
