/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/shard.h"
#include "data/shard_writer.h"
#include "data/tokenizer.h"

/* Two bytes per id in a shard. */
enum { MAX_IDS = 1 << 16 };

typedef struct preparation {
    const taciti_prepare_options *options;
    uint64_t total, cut; /* bytes; pieces that begin at or after `cut` are validation */
    uint64_t before;     /* bytes of the files before the current one */
    taciti_encoder *encoder;
    taciti_shard_writer train, validation;
    taciti_shard_writer *writer; /* the one that gets the ids now */
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
    return taciti_shard_writer_append(p->writer, ids, count);
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
    TACITI_TRY(taciti_shard_writer_open(o->folder, o->name, "train", o->shard_tokens, &p->train));
    TACITI_TRY(taciti_shard_writer_open(o->folder, o->name, "val", o->shard_tokens, &p->validation));
    TACITI_TRY(encode_all(p, files, count));
    TACITI_TRY(taciti_shard_writer_finish(&p->train));
    TACITI_TRY(taciti_shard_writer_finish(&p->validation));
    TACITI_TRY(taciti_shard_writer_publish(&p->train));
    TACITI_TRY(taciti_shard_writer_publish(&p->validation));
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
    p->train.fd = p->validation.fd = -1;
    const tacit_status status = write_all(p, files, count);
    if (status == TACIT_OK) {
        *out = (taciti_prepare_result){.bytes = p->before,
                                       .train_tokens = p->train.tokens,
                                       .validation_tokens = p->validation.tokens,
                                       .train_shards = p->train.shards,
                                       .validation_shards = p->validation.shards};
    } else {
        taciti_shard_writer_discard(&p->train);
        taciti_shard_writer_discard(&p->validation);
    }
    taciti_free(p);
    return status;
}
