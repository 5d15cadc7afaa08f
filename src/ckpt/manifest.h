/* SPDX-License-Identifier: Apache-2.0
 *
 * manifest.json: what a checkpoint consists of. Its first line holds the XXH3-128 of all bytes after that line, so that
 * every byte of the file is checked and it is still plain JSON:
 *
 *   {"digest": "<32 hexadecimal digits>",
 *    "format": 1, "tacit": "0.1.0", "step": 100, "world": 4, "tensors": 447,
 *    "files": [{"name": "rank-00000.safetensors", "bytes": 1024, "xxh3": "...", "tensors": 112}, ...],
 *    "meta": {...}}
 */
#ifndef TACITI_CKPT_MANIFEST_H
#define TACITI_CKPT_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include "ckpt/sink.h"
#include "tacit/tacit.h"

enum { TACITI_MANIFEST_FORMAT = 1, TACITI_MANIFEST_NAME_BYTES = 64 };

typedef struct taciti_manifest_file {
    char name[TACITI_MANIFEST_NAME_BYTES];
    uint64_t bytes, tensors;
    char digest[TACITI_DIGEST_BYTES];
} taciti_manifest_file;

typedef struct taciti_manifest {
    int64_t step;
    int world;                   /* ranks that wrote it; says nothing about who can read it */
    uint64_t tensors;            /* in all files */
    taciti_manifest_file *files; /* owned */
    size_t count;
    char *meta_json; /* owned */
} taciti_manifest;

void taciti_manifest_destroy(taciti_manifest *manifest); /* {0} is fine */

/* Text of the file. Returns owned in *out; taciti_free(). meta_json must be an object. */
tacit_status taciti_manifest_format(const taciti_manifest *manifest, char **out, size_t *out_bytes);

/* Checks the digest first, then everything that the text claims; `path` is for messages. */
tacit_status taciti_manifest_parse(const char *path, const char *text, size_t bytes, taciti_manifest *out);

/* Reads folder/manifest.json. */
tacit_status taciti_manifest_read(const char *folder, taciti_manifest *out);

/* Sizes and digests of all files against the manifest; names the first file that is missing or damaged, with both
 * values. Files must be plain files, not links. */
tacit_status taciti_manifest_verify(const char *folder, const taciti_manifest *manifest);

/* Missing files and wrong sizes only: cheap. Logs nothing. */
int taciti_manifest_complete(const char *folder, const taciti_manifest *manifest);

#endif
