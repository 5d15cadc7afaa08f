/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "ckpt/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "kernel/kernel.h"

/* Files are little-endian and so are the arrays in memory; nothing here swaps bytes. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tacit reads and writes little-endian files and needs a little-endian machine"
#endif

/* Small enough to stay in the second-level cache between hashing and writing. */
static const size_t block_bytes = (size_t)256 << 10;

tacit_status taciti_sink_open(const char *path, taciti_sink *out) {
    taciti_sink sink = {.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)};
    if (sink.fd < 0) return taciti_fail(TACIT_E_IO, "%s: cannot be written: %s", path, strerror(errno));
    sink.path = taciti_strdup(path);
    sink.encode = taciti_calloc(block_bytes, 1);
    sink.state = XXH3_createState();
    if (sink.path == NULL || sink.encode == NULL || sink.state == NULL) {
        taciti_sink_abandon(&sink);
        return TACIT_E_MEMORY;
    }
    (void)XXH3_128bits_reset(sink.state);
    *out = sink;
    return TACIT_OK;
}

tacit_status taciti_sink_bytes(taciti_sink *sink, const void *bytes, size_t count) {
    const unsigned char *at = bytes;
    while (count > 0) {
        const size_t part = count < block_bytes ? count : block_bytes;
        (void)XXH3_128bits_update(sink->state, at, part);
        if (!taciti_file_put(sink->fd, at, part))
            return taciti_fail(TACIT_E_IO, "%s: writing failed after %llu bytes: %s", sink->path,
                               (unsigned long long)sink->bytes, strerror(errno));
        sink->bytes += part;
        at += part;
        count -= part;
    }
    return TACIT_OK;
}

tacit_status taciti_sink_floats(taciti_sink *sink, const float *x, size_t n, int half) {
    if (!half) return taciti_sink_bytes(sink, x, n * sizeof *x);
    taciti_bf16 *block = (taciti_bf16 *)(void *)sink->encode;
    const size_t max = block_bytes / sizeof *block;
    for (size_t at = 0; at < n; at += max) {
        const size_t part = n - at < max ? n - at : max;
        taciti_kernels_get()->bf16_encode(block, x + at, part);
        TACITI_TRY(taciti_sink_bytes(sink, block, part * sizeof *block));
    }
    return TACIT_OK;
}

static void release_sink(taciti_sink *sink) {
    taciti_free(sink->path);
    taciti_free(sink->encode);
    (void)XXH3_freeState(sink->state);
    *sink = (taciti_sink){.fd = -1};
}

static void format_digest(XXH128_hash_t hash, char digest[TACITI_DIGEST_BYTES]) {
    (void)snprintf(digest, TACITI_DIGEST_BYTES, "%016llx%016llx", (unsigned long long)hash.high64,
                   (unsigned long long)hash.low64);
}

tacit_status taciti_sink_finish(taciti_sink *sink, uint64_t *bytes, char digest[TACITI_DIGEST_BYTES]) {
    int failed = fsync(sink->fd) != 0 ? errno : 0;
    if (close(sink->fd) != 0 && failed == 0) failed = errno;
    sink->fd = -1;
    tacit_status status = TACIT_OK;
    if (failed != 0) {
        status = taciti_fail(TACIT_E_IO, "%s: syncing failed: %s", sink->path, strerror(failed));
        (void)unlink(sink->path);
    } else {
        *bytes = sink->bytes;
        format_digest(XXH3_128bits_digest(sink->state), digest);
    }
    release_sink(sink);
    return status;
}

void taciti_sink_abandon(taciti_sink *sink) {
    if (sink->fd < 0) return;
    (void)close(sink->fd);
    if (sink->path != NULL) (void)unlink(sink->path);
    release_sink(sink);
}

void taciti_digest_block(const void *bytes, size_t count, char digest[TACITI_DIGEST_BYTES]) {
    format_digest(XXH3_128bits(bytes, count), digest);
}

static tacit_status digest_descriptor(int fd, const char *path, XXH3_state_t *state, unsigned char *block,
                                      uint64_t *bytes) {
    uint64_t total = 0;
    for (;;) {
        const ssize_t got = read(fd, block, block_bytes);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return taciti_fail(TACIT_E_IO, "%s: reading failed: %s", path, strerror(errno));
        if (got == 0) break;
        (void)XXH3_128bits_update(state, block, (size_t)got);
        total += (uint64_t)got;
    }
    *bytes = total;
    return TACIT_OK;
}

tacit_status taciti_digest_file(const char *path, uint64_t *bytes, char digest[TACITI_DIGEST_BYTES]) {
    tacit_status status = TACIT_E_MEMORY;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return taciti_fail(TACIT_E_IO, "%s: cannot be read: %s", path, strerror(errno));
    XXH3_state_t *state = XXH3_createState();
    unsigned char *block = taciti_calloc(block_bytes, 1);
    if (state != NULL && block != NULL) {
        (void)XXH3_128bits_reset(state);
        status = digest_descriptor(fd, path, state, block, bytes);
        if (status == TACIT_OK) format_digest(XXH3_128bits_digest(state), digest);
    }
    taciti_free(block);
    (void)XXH3_freeState(state);
    (void)close(fd);
    return status;
}
