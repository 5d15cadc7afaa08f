/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "data/shard_writer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "data/shard.h"

enum { NAME_BYTES = 512, MODE = 0666 };

/* Path of shard `index`, under its temporary or its final name. */
static tacit_status shard_path(const taciti_shard_writer *writer, uint64_t index, bool temporary, char path[PATH_MAX]) {
    char name[NAME_BYTES], end[64] = "";
    if (temporary) (void)snprintf(end, sizeof end, ".tmp.%ld", (long)getpid());
    const int n = snprintf(name, sizeof name, "%s_%s_%06" PRIu64 ".bin%s", writer->name, writer->part, index, end);
    if (n < 0 || (size_t)n >= sizeof name)
        return taciti_fail(TACIT_E_CONFIG, "the name of the shards, \"%s\", is too long", writer->name);
    return taciti_path_join(path, PATH_MAX, writer->folder, name);
}

/* Refuses a folder that has a file name_part_*.bin. */
static tacit_status refuse_existing(const taciti_shard_writer *writer) {
    DIR *entries = opendir(writer->folder);
    if (entries == NULL) return taciti_file_fail("cannot list the folder", writer->folder);
    char start[NAME_BYTES];
    (void)snprintf(start, sizeof start, "%s_%s_", writer->name, writer->part);
    tacit_status status = TACIT_OK;
    for (const struct dirent *entry; status == TACIT_OK && (entry = readdir(entries)) != NULL;) {
        if (strncmp(entry->d_name, start, strlen(start)) == 0 && taciti_text_ends_with(entry->d_name, ".bin"))
            status = taciti_fail(TACIT_E_CONFIG,
                                 "%s/%s exists: choose another folder or name, or remove the old shards first",
                                 writer->folder, entry->d_name);
    }
    (void)closedir(entries);
    return status;
}

tacit_status taciti_shard_writer_open(const char *folder, const char *name, const char *part, uint64_t shard_tokens,
                                      taciti_shard_writer *out) {
    *out = (taciti_shard_writer){.folder = folder, .name = name, .part = part, .shard_tokens = shard_tokens, .fd = -1};
    return refuse_existing(out);
}

static tacit_status write_at(const taciti_shard_writer *writer, const unsigned char *bytes, size_t count, off_t at) {
    while (count > 0) {
        const ssize_t n = pwrite(writer->fd, bytes, count, at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return taciti_file_fail("cannot write a shard", writer->folder);
        bytes += n;
        count -= (size_t)n;
        at += n;
    }
    return TACIT_OK;
}

static tacit_status flush_buffer(taciti_shard_writer *writer) {
    const uint64_t end = TACITI_SHARD_HEADER_BYTES + 2 * writer->in_shard;
    TACITI_TRY(write_at(writer, writer->buffer, writer->buffered_bytes, (off_t)(end - writer->buffered_bytes)));
    writer->buffered_bytes = 0;
    return TACIT_OK;
}

static tacit_status begin_shard(taciti_shard_writer *writer) {
    char path[PATH_MAX];
    TACITI_TRY(shard_path(writer, writer->shards, true, path));
    writer->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, MODE);
    if (writer->fd < 0) return taciti_file_fail("cannot create the shard", path);
    writer->shards++;
    writer->in_shard = 0;
    return TACIT_OK;
}

tacit_status taciti_shard_writer_finish(taciti_shard_writer *writer) {
    if (writer->fd < 0) return TACIT_OK;
    unsigned char header[TACITI_SHARD_HEADER_BYTES];
    taciti_shard_header(writer->in_shard, header);
    TACITI_TRY(flush_buffer(writer));
    TACITI_TRY(write_at(writer, header, sizeof header, 0));
    if (fsync(writer->fd) != 0) return taciti_file_fail("cannot write a shard", writer->folder);
    const int closed = close(writer->fd);
    writer->fd = -1;
    return closed == 0 ? TACIT_OK : taciti_file_fail("cannot write a shard", writer->folder);
}

tacit_status taciti_shard_writer_append(taciti_shard_writer *writer, const int32_t *ids, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (writer->fd >= 0 && writer->in_shard == writer->shard_tokens) TACITI_TRY(taciti_shard_writer_finish(writer));
        if (writer->fd < 0) TACITI_TRY(begin_shard(writer));
        writer->buffer[writer->buffered_bytes++] = (unsigned char)ids[i];
        writer->buffer[writer->buffered_bytes++] = (unsigned char)(ids[i] >> 8);
        writer->in_shard++;
        writer->tokens++;
        if (writer->buffered_bytes == sizeof writer->buffer) TACITI_TRY(flush_buffer(writer));
    }
    return TACIT_OK;
}

tacit_status taciti_shard_writer_publish(taciti_shard_writer *writer) {
    for (uint64_t i = 0; i < writer->shards; i++) {
        char from[PATH_MAX], to[PATH_MAX];
        TACITI_TRY(shard_path(writer, i, true, from));
        TACITI_TRY(shard_path(writer, i, false, to));
        if (rename(from, to) != 0) return taciti_file_fail("cannot rename the finished shard", from);
    }
    return TACIT_OK;
}

void taciti_shard_writer_discard(taciti_shard_writer *writer) {
    if (writer->fd >= 0) (void)close(writer->fd);
    writer->fd = -1;
    for (uint64_t i = 0; i < writer->shards; i++) {
        char path[PATH_MAX];
        /* The final names too, when publish() got stuck halfway: open() saw that no others had them. */
        if (shard_path(writer, i, true, path) == TACIT_OK) (void)unlink(path);
        if (shard_path(writer, i, false, path) == TACIT_OK) (void)unlink(path);
    }
}
