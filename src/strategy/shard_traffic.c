/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes that strategy shard sends.
 */
#include "exchange/route.h"
#include "strategy/shard.h"

/* A rank, as its arrangement sees it, and what counts of what it sends. */
typedef struct sender {
    const taciti_strategy_context *context;
    const taciti_shard_options *options;
    const taciti_arrangement *arrangement;
    const taciti_shard_unit *units;       /* NULL: gathers per step as they are expected */
    taciti_encoding reduce[2], gather[2]; /* of the buckets that are compressed, and of those that are plain */
    bool away;                            /* only what leaves its host */
} sender;

static sender sender_of(const taciti_strategy_context *c, const taciti_arrangement *arrangement,
                        const taciti_shard_unit *units) {
    const taciti_exchange_options reduce = taciti_shard_reduce_options(c), gather = taciti_shard_gather_options(c);
    const taciti_encoding wire = {.codec = taciti_exchange_wire(&reduce)},
                          format = {.codec = taciti_exchange_wire(&gather)};
    const taciti_compression_setup *setup = &c->compression;
    return (sender){.context = c,
                    .options = c->options,
                    .arrangement = arrangement,
                    .units = units,
                    .reduce = {setup->sums.codec == NULL ? wire : setup->sums, wire},
                    .gather = {setup->gathers.codec == NULL ? format : setup->gathers, format}};
}

static bool counts_host(const sender *from, int host) {
    const taciti_arrangement *p = from->arrangement;
    return host != p->host && (!from->away || p->host_of[p->first[host]] != p->host_of[p->first[p->host]]);
}

/* A rank that is no lane has no part. */
static uint64_t part_bytes(const sender *from, const taciti_bucket *bucket, int host, const taciti_encoding how[2]) {
    const taciti_encoding *encoding = &how[bucket->plain];
    const taciti_arrangement *p = from->arrangement;
    const taciti_range range = taciti_shard_range(bucket, taciti_shard_part_of(p, host, p->number));
    return taciti_route_of(encoding->codec)->range_bytes(encoding, range.n);
}

/* Bytes of its own part to the other hosts of the arrangement; in the flat one each rank is a host. */
static uint64_t own_bytes(const sender *from, const taciti_bucket *bucket, const taciti_encoding how[2]) {
    uint64_t bytes = 0;
    for (int h = 0; h < from->arrangement->hosts; h++)
        if (counts_host(from, h)) bytes += part_bytes(from, bucket, from->arrangement->host, how);
    return bytes;
}

/* Bytes of its share to the ranks of its host. */
static uint64_t share_bytes(const sender *from, const taciti_bucket *bucket) {
    const taciti_arrangement *p = from->arrangement;
    const int others = taciti_arrangement_local_size(p, p->host) - 1;
    if (from->away) return 0;
    return (uint64_t)others * taciti_shard_range(bucket, taciti_shard_share_of(p, p->number)).n * sizeof(float);
}

/* Bytes of every lane's share to the lanes of its host. */
static uint64_t lanes_bytes(const sender *from, const taciti_bucket *bucket) {
    const taciti_arrangement *p = from->arrangement;
    uint64_t bytes = 0;
    if (from->away || taciti_arrangement_local_size(p, p->host) == 1) return 0;
    for (int lane = 0; lane < p->lanes; lane++)
        if (lane != p->number) bytes += taciti_shard_range(bucket, taciti_shard_share_of(p, lane)).n * sizeof(float);
    return bytes;
}

/* Bytes of a reduction: first every lane gets its share, then every host its part of the own share, and with
 * shard.over host the sum of the own part. */
static uint64_t reduce_bytes_of(const sender *from) {
    const taciti_layout *layout = from->context->layout;
    uint64_t bytes = 0;
    for (size_t b = 0; b < layout->bucket_count; b++) {
        const taciti_bucket *bucket = &layout->buckets[b];
        bytes += lanes_bytes(from, bucket);
        for (int h = 0; h < from->arrangement->hosts; h++)
            if (counts_host(from, h)) bytes += part_bytes(from, bucket, h, from->reduce);
        if (taciti_shard_is_over_host(from->context)) bytes += own_bytes(from, bucket, from->reduce);
    }
    return bytes;
}

/* How often a unit is gathered, counted in the last step or expected. */
static size_t gathers_of(const sender *from, size_t unit) {
    if (from->units != NULL) return from->units[unit].per_step;
    return taciti_shard_gathers(from->context->layout, unit, from->options->stage);
}

/* With shard.secondary the first gather alone leaves a host, with shard.over host none. */
static uint64_t gather_bytes_of(const sender *from) {
    const taciti_layout *layout = from->context->layout;
    uint64_t bytes = 0;
    for (size_t b = 0; b < layout->bucket_count; b++) {
        const taciti_bucket *bucket = &layout->buckets[b];
        const size_t all = gathers_of(from, layout->tensors[bucket->first].unit);
        bytes += all * share_bytes(from, bucket);
        if (!taciti_shard_is_over_host(from->context))
            bytes += (from->options->secondary ? 1 : all) * own_bytes(from, bucket, from->gather);
    }
    return bytes;
}

uint64_t taciti_shard_reduce_bytes(const taciti_shard *s) {
    const sender me = sender_of(&s->context, &s->arrangement, s->units);
    return reduce_bytes_of(&me);
}

uint64_t taciti_shard_gather_bytes(const taciti_shard *s) {
    const sender me = sender_of(&s->context, &s->arrangement, s->units);
    return gather_bytes_of(&me);
}

/* ---- the table of a run ------------------------------------------------------------------------------------------ */

/* Inside hosts only the flat arrangement encodes. */
static size_t add_rows(const sender *from, const char *what, uint64_t bytes_of(const sender *),
                       const taciti_codec *codec, bool compressed, taciti_traffic_class *out) {
    const bool flat = from->arrangement->hosts == from->arrangement->size;
    sender away = *from;
    away.away = true;
    const uint64_t between = bytes_of(&away), inside = bytes_of(from) - between;
    size_t count = 0;
    if (between > 0) out[count++] = (taciti_traffic_class){what, "between hosts", codec->name, compressed, between};
    if (inside > 0)
        out[count++] =
            (taciti_traffic_class){what, "inside hosts", flat ? codec->name : "f32", compressed && flat, inside};
    return count;
}

static void list_traffic(const taciti_strategy_context *context, const taciti_arrangement *p,
                         taciti_strategy_figures *out) {
    const taciti_compression_setup *setup = &context->compression;
    const sender me = sender_of(context, p, NULL);
    size_t count =
        add_rows(&me, "gradients", reduce_bytes_of, me.reduce->codec, setup->sums.codec != NULL, out->traffic);
    count += add_rows(&me, "parameters", gather_bytes_of, me.gather->codec, setup->gathers.codec != NULL,
                      out->traffic + count);
    out->traffic_count = count;
}

tacit_status taciti_shard_describe(const taciti_strategy_context *context, const void *self,
                                   taciti_strategy_figures *out) {
    taciti_arrangement arrangement;
    *out = (taciti_strategy_figures){.period = 1};
    TACITI_TRY(taciti_shard_predict_bytes(context, &out->own_bytes));
    TACITI_TRY(taciti_shard_arrange(context, &arrangement));
    list_traffic(context, &arrangement, out);
    taciti_arrangement_destroy(&arrangement);
    if (self == NULL) return TACIT_OK;
    out->sent_bytes = taciti_shard_reduce_bytes(self) + taciti_shard_gather_bytes(self);
    return TACIT_OK;
}
