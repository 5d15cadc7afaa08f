/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/shard.h"
#include "data/tokenizer.h"

enum {
    MAX_IDS = 1 << 16, /* two bytes per id in a shard */
    NAME_BYTES = 512,
};

/* ---- shards ------------------------------------------------------------------------------------------------------ */

/* Writes a stream of ids as numbered llm.c shards folder/name_part_000000.bin, ... They have temporary names until
 * publish_shards(), so a failure leaves nothing behind. */
typedef struct shard_writer {
    const char *folder, *name, *part; /* borrows */
    uint64_t shard_tokens;            /* maximum per shard */
    uint64_t tokens, shards;          /* written, begun */
    uint64_t in_shard;                /* tokens in the open one */
    FILE *file;                       /* the open shard, or NULL; owned */
} shard_writer;

/* Path of shard `index`, under its temporary or its final name. */
static tacit_status shard_path(const shard_writer *writer, uint64_t index, bool temporary, char path[PATH_MAX]) {
    char name[NAME_BYTES], end[64] = "";
    if (temporary) (void)snprintf(end, sizeof end, ".tmp.%ld", (long)getpid());
    const int n = snprintf(name, sizeof name, "%s_%s_%06" PRIu64 ".bin%s", writer->name, writer->part, index, end);
    if (n < 0 || (size_t)n >= sizeof name)
        return taciti_fail(TACIT_E_CONFIG, "the name of the shards, \"%s\", is too long", writer->name);
    return taciti_path_join(path, PATH_MAX, writer->folder, name);
}

/* Refuses a folder that has a file name_part_*.bin. */
static tacit_status refuse_existing(const shard_writer *writer) {
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

static tacit_status open_writer(const char *folder, const char *name, const char *part, uint64_t shard_tokens,
                                shard_writer *out) {
    *out = (shard_writer){.folder = folder, .name = name, .part = part, .shard_tokens = shard_tokens};
    return refuse_existing(out);
}

static tacit_status begin_shard(shard_writer *writer) {
    char path[PATH_MAX];
    TACITI_TRY(shard_path(writer, writer->shards, true, path));
    writer->file = fopen(path, "wbe");
    if (writer->file == NULL) return taciti_file_fail("cannot create the shard", path);
    writer->shards++;
    writer->in_shard = 0;
    if (fseek(writer->file, TACITI_SHARD_HEADER_BYTES, SEEK_SET) == 0) return TACIT_OK;
    return taciti_file_fail("cannot write a shard", writer->folder);
}

static tacit_status finish_shard(shard_writer *writer) {
    FILE *file = writer->file;
    if (file == NULL) return TACIT_OK;
    unsigned char header[TACITI_SHARD_HEADER_BYTES];
    taciti_shard_header(writer->in_shard, header);
    bool done = fseek(file, 0, SEEK_SET) == 0 && fwrite(header, sizeof header, 1, file) == 1;
    done = done && fflush(file) == 0 && fsync(fileno(file)) == 0;
    if (!done) return taciti_file_fail("cannot write a shard", writer->folder);
    writer->file = NULL;
    return fclose(file) == 0 ? TACIT_OK : taciti_file_fail("cannot write a shard", writer->folder);
}

/* Ids are below 65536. */
static tacit_status append_ids(shard_writer *writer, const int32_t *ids, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (writer->file != NULL && writer->in_shard == writer->shard_tokens) TACITI_TRY(finish_shard(writer));
        if (writer->file == NULL) TACITI_TRY(begin_shard(writer));
        if (putc_unlocked(ids[i] & 0xff, writer->file) == EOF || putc_unlocked(ids[i] >> 8, writer->file) == EOF)
            return taciti_file_fail("cannot write a shard", writer->folder);
        writer->in_shard++;
        writer->tokens++;
    }
    return TACIT_OK;
}

/* The caller syncs the folder. */
static tacit_status publish_shards(shard_writer *writer) {
    for (uint64_t i = 0; i < writer->shards; i++) {
        char from[PATH_MAX], to[PATH_MAX];
        TACITI_TRY(shard_path(writer, i, true, from));
        TACITI_TRY(shard_path(writer, i, false, to));
        if (rename(from, to) != 0) return taciti_file_fail("cannot rename the finished shard", from);
    }
    return TACIT_OK;
}

static void discard_shards(shard_writer *writer) {
    if (writer->file != NULL) (void)fclose(writer->file);
    writer->file = NULL;
    for (uint64_t i = 0; i < writer->shards; i++) {
        char path[PATH_MAX];
        /* The final names too, when publish_shards() got stuck halfway: open_writer() saw that no others had them. */
        if (shard_path(writer, i, true, path) == TACIT_OK) (void)unlink(path);
        if (shard_path(writer, i, false, path) == TACIT_OK) (void)unlink(path);
    }
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

typedef struct preparation {
    const taciti_prepare_options *options;
    uint64_t total, cut; /* bytes; pieces that begin at or after `cut` are validation */
    uint64_t before;     /* bytes of the files before the current one */
    taciti_encoder *encoder;
    shard_writer train, validation;
    shard_writer *writer; /* the one that gets the ids now */
} preparation;

static tacit_status check_options(const taciti_prepare_options *options) {
    const int32_t ids = taciti_tokenizer_vocabulary(options->tokenizer);
    if (ids > MAX_IDS)
        return taciti_fail(TACIT_E_UNSUPPORTED, "the vocabulary has %" PRId32 " ids; shards hold at most %d", ids,
                           MAX_IDS);
    if (!(options->split >= 0.0 && options->split < 1.0))
        return taciti_fail(TACIT_E_CONFIG, "split %g: must be at least 0 and less than 1", options->split);
    if (options->shard_tokens == 0 || options->shard_tokens > INT32_MAX)
        return taciti_fail(TACIT_E_CONFIG, "%" PRIu64 " tokens per shard: must be 1 to %" PRId32, options->shard_tokens,
                           INT32_MAX);
    if (*options->name == '\0' || strchr(options->name, '/') != NULL)
        return taciti_fail(TACIT_E_CONFIG, "\"%s\" cannot be the name of shards", options->name);
    return TACIT_OK;
}

/* One file at a time is open: there may be thousands. */
static tacit_status open_text(const char *path, taciti_segment *out) {
    int found;
    TACITI_TRY(taciti_shard_open(path, &found, out));
    if (found == TACITI_DATA_TEXT) return TACIT_OK;
    taciti_segment_destroy(out);
    return taciti_fail(TACIT_E_DATA, "%s: holds tokens already, not text", path);
}

static tacit_status add_sizes(const char *const *files, size_t count, uint64_t *total) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        taciti_segment segment;
        TACITI_TRY(open_text(files[i], &segment));
        sum += segment.view.bytes;
        taciti_segment_destroy(&segment);
    }
    *total = sum;
    return count == 0 ? taciti_fail(TACIT_E_USAGE, "no text files were named") : TACIT_OK;
}

static tacit_status write_ids(void *context, const int32_t *ids, size_t count, uint64_t bytes_done) {
    preparation *p = context;
    if (p->options->progress != NULL) p->options->progress(p->options->context, p->before + bytes_done, p->total);
    return append_ids(p->writer, ids, count);
}

/* Encodes the part of a file before the cut, then the part after it. */
static tacit_status encode_both(preparation *p, const taciti_view *view) {
    const uint64_t left = p->before < p->cut ? p->cut - p->before : 0;
    taciti_file_range range = {.view = view, .stop = left < view->bytes ? left : view->bytes};
    p->writer = &p->train;
    TACITI_TRY(taciti_encode_file(p->encoder, &range, write_ids, p, &range.from));
    range.stop = view->bytes;
    p->writer = &p->validation;
    return taciti_encode_file(p->encoder, &range, write_ids, p, &range.from);
}

static tacit_status encode_all(preparation *p, const char *const *files, size_t count) {
    TACITI_TRY(taciti_encoder_create(p->options->tokenizer, &p->encoder));
    tacit_status status = TACIT_OK;
    for (size_t i = 0; i < count && status == TACIT_OK; i++) {
        taciti_segment segment;
        status = open_text(files[i], &segment);
        if (status != TACIT_OK) break;
        status = encode_both(p, &segment.view);
        p->before += segment.view.bytes;
        taciti_segment_destroy(&segment);
    }
    taciti_encoder_destroy(p->encoder);
    return status;
}

static tacit_status write_all(preparation *p, const char *const *files, size_t count) {
    const taciti_prepare_options *o = p->options;
    TACITI_TRY(open_writer(o->folder, o->name, "train", o->shard_tokens, &p->train));
    TACITI_TRY(open_writer(o->folder, o->name, "val", o->shard_tokens, &p->validation));
    TACITI_TRY(encode_all(p, files, count));
    TACITI_TRY(finish_shard(&p->train));
    TACITI_TRY(finish_shard(&p->validation));
    TACITI_TRY(publish_shards(&p->train));
    TACITI_TRY(publish_shards(&p->validation));
    return taciti_file_sync_folder(o->folder);
}

tacit_status taciti_data_prepare(const taciti_prepare_options *options, const char *const *files, size_t count,
                                 taciti_prepare_result *out) {
    TACITI_TRY(check_options(options));
    uint64_t total = 0;
    TACITI_TRY(add_sizes(files, count, &total));
    if (taciti_file_is_plain(options->folder))
        return taciti_fail(TACIT_E_CONFIG, "%s: is a file where a folder is needed; name another folder",
                           options->folder);
    TACITI_TRY(taciti_file_make_folder(options->folder));
    preparation *p = taciti_calloc(1, sizeof *p);
    if (p == NULL) return TACIT_E_MEMORY;
    p->options = options;
    p->total = total;
    p->cut = total - (uint64_t)((double)total * options->split);
    const tacit_status status = write_all(p, files, count);
    if (status == TACIT_OK) {
        *out = (taciti_prepare_result){.bytes = p->before,
                                       .train_tokens = p->train.tokens,
                                       .validation_tokens = p->validation.tokens,
                                       .train_shards = p->train.shards,
                                       .validation_shards = p->validation.shards};
    } else {
        discard_shards(&p->train);
        discard_shards(&p->validation);
    }
    taciti_free(p);
    return status;
}
