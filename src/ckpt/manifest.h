/* SPDX-License-Identifier: Apache-2.0
 *
 * manifest.json lists the files of a checkpoint. Its first line contains the XXH3-128 of all bytes after that line,
 * which protects every byte and keeps the file plain JSON:
 *
 *   {"digest": "<32 hexadecimal digits>",
 *    "format": 1, "tacit": "0.2.0", "step": 100, "world": 4, "tensors": 447,
 *    "files": [{"name": "rank-00000.safetensors", "bytes": 1024, "xxh3": "...", "tensors": 112}, ...],
 *    "meta": {...}}
 */
#ifndef TACITI_CKPT_MANIFEST_H
#define TACITI_CKPT_MANIFEST_H

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
    int world;                   /* number of ranks that wrote it; any number can read it */
    uint64_t tensors;            /* in all files */
    taciti_manifest_file *files; /* owned */
    size_t count;
    char *meta_json; /* owned */
} taciti_manifest;

void taciti_manifest_destroy(taciti_manifest *manifest); /* {0} is fine */

/* Formats the file. Returns owned in *out; release with taciti_free(). meta_json must be an object. */
tacit_status taciti_manifest_format(const taciti_manifest *manifest, char **out, size_t *out_bytes);

/* Parses the file: checks the digest, then every value. `path` is used in messages. E_UNSUPPORTED for a format of a
 * newer version. */
tacit_status taciti_manifest_parse(const char *path, const char *text, size_t bytes, taciti_manifest *out);

/* Reads folder/manifest.json. E_IO also where this user may not read it. */
tacit_status taciti_manifest_read(const char *folder, taciti_manifest *out);

/* Compares sizes and digests of all files with the manifest; the message names the first missing or damaged file with
 * both values. Links are refused. */
tacit_status taciti_manifest_verify(const char *folder, const taciti_manifest *manifest);

/* Checks only that the files exist with the right sizes. Logs nothing. */
int taciti_manifest_complete(const char *folder, const taciti_manifest *manifest);

#endif
