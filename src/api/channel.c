/* SPDX-License-Identifier: Apache-2.0
 *
 * Channels: sums and gathers of the caller's own arrays, each with a compression of its own.
 *
 * A start is one job of the communication thread. Bucket by bucket it exchanges the caller's array, which hooks read
 * into f32 and write. Then it settles the compression, which is a collective of its own, so that the waiting
 * thread has nothing left to do.
 *
 * A bucket has one slot for each part of the array: one in an all-reduce, where all buckets in a row are the array; one
 * for each rank in the others, the range of the bucket that this rank owns in the exchange. Ranks may own ranges in
 * another order than that of the ranks. Its slot in bucket b holds the elements of a part from b * slot on:
 *
 *   array  0 0 0 0 0 | 1 1 1 1 1      bucket 0  0 0 | 1 1      bucket 1  0 0 | 1 1      bucket 2  0 . | 1 .
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "api/object.h"
#include "base/clock.h"
#include "base/number.h"
#include "driver/sources.h"
#include "exchange/route.h"
#include "kernel/kernel.h"
#include "strategy/shard.h"

enum { GRAIN = 16, NAME_BYTES = 64, TEXT_BYTES = 128 };

static const char *const NAMES[] = {"all-reduce", "reduce-scatter", "all-gather"};
static const taciti_phase PHASES[] = {TACITI_PHASE_ALL_REDUCE, TACITI_PHASE_REDUCE_SCATTER, TACITI_PHASE_ALL_GATHER};
static const char *const JOBS[] = {"all-reduce of channel", "reduce-scatter of channel", "all-gather of channel"};

static int rank_of(const tacit_channel *c) { return taciti_comm_rank(c->comm->comm); }

static bool is_split(const tacit_channel *c) { return c->collective != TACIT_ALL_REDUCE; }

/* ---- the array in buckets ---------------------------------------------------------------------------------------- */

/* Elements of one slot in a range of a bucket: where they are in the flat array, and in the array of all parts or in
 * that of one. */
typedef struct strip {
    size_t flat, at, n;
} strip;

static size_t slot_length(const tacit_channel *c, size_t bucket) {
    return c->layout.buckets[bucket].n / (size_t)c->parts;
}

/* single: the array holds this rank's part alone; n is 0 for the slots of others. */
static strip strip_of(const tacit_channel *c, size_t bucket, size_t slot, taciti_range range, bool single) {
    const taciti_bucket *b = &c->layout.buckets[bucket];
    const size_t slot_n = slot_length(c, bucket), begin = slot * slot_n, first = b->offset / (size_t)c->parts;
    const size_t end = begin + taciti_min(slot_n, c->part_n - first);
    const size_t low = taciti_max(range.at, begin), high = taciti_min(range.at + range.n, end);
    const bool wanted = high > low && (!single || c->part_of[slot] == rank_of(c));
    const size_t part = single ? 0 : (size_t)c->part_of[slot];
    return (strip){b->offset + low, part * c->part_n + first + low - begin, wanted ? high - low : 0};
}

static void read_range(void *context, size_t bucket, taciti_range range) {
    const tacit_channel *c = context;
    const size_t slot_n = slot_length(c, bucket);
    for (size_t slot = range.at / slot_n; slot * slot_n < range.at + range.n; slot++) {
        const strip s = strip_of(c, bucket, slot, range, c->collective == TACIT_ALL_GATHER);
        if (s.n > 0) taciti_elements_read(c->type, c->source, s.at, c->scale, (float *)c->flat.base + s.flat, s.n);
    }
}

static void write_range(void *context, size_t bucket, taciti_range range) {
    tacit_channel *c = context;
    const size_t slot_n = slot_length(c, bucket);
    for (size_t slot = range.at / slot_n; slot * slot_n < range.at + range.n; slot++) {
        const strip s = strip_of(c, bucket, slot, range, c->collective == TACIT_REDUCE_SCATTER);
        if (s.n > 0) taciti_elements_write(c->type, c->target, s.at, (const float *)c->flat.base + s.flat, s.n);
    }
}

/* Adds the squares of what was written, in the same parts on all ranks. */
static void end_bucket(void *context, size_t bucket, tacit_status status) {
    tacit_channel *c = context;
    const taciti_range whole = {.n = c->layout.buckets[bucket].n};
    for (size_t slot = 0; c->codec_used && status == TACIT_OK && slot < (size_t)c->parts; slot++) {
        const strip s = strip_of(c, bucket, slot, whole, c->collective == TACIT_REDUCE_SCATTER);
        if (s.n > 0) c->squares += taciti_kernels_get()->sum_squares((const float *)c->flat.base + s.flat, s.n);
    }
}

/* ---- the job ----------------------------------------------------------------------------------------------------- */

/* Residuals follow a result that is finite on all ranks; only a reduce-scatter shows each rank another one. */
static tacit_status settle_residuals(tacit_channel *c, taciti_comm *comm) {
    double squares = c->squares;
    taciti_step_report report = {.wait_ns = atomic_exchange(&c->wait_ns, 0)};
    if (c->codec_used && c->collective == TACIT_REDUCE_SCATTER)
        TACITI_TRY(taciti_comm_allreduce_f64(comm, &squares, 1, TACITI_OP_SUM));
    return taciti_compression_settle(c->compression, isfinite(squares), 0, sqrt(squares), &report);
}

static tacit_status transfer_buckets(tacit_channel *c, taciti_comm *comm) {
    c->squares = 0;
    for (size_t b = 0; b < c->layout.bucket_count; b++) {
        TACITI_TRY(taciti_compression_begin(c->compression, c->flat.base, b));
        TACITI_TRY(taciti_exchange_wait(taciti_compression_exchange(c->compression), b));
    }
    TACITI_TRY(settle_residuals(c, comm));
    c->sums++;
    return TACIT_OK;
}

/* The others would wait for a rank that cannot go on. */
static tacit_status run_channel(taciti_comm *comm, void *context) {
    const tacit_status status = transfer_buckets(context, comm);
    if (status != TACIT_OK && taciti_comm_health(comm) == TACIT_OK) taciti_comm_give_up(comm);
    return status;
}

/* ---- the layout -------------------------------------------------------------------------------------------------- */

/* One tensor; or in every bucket, which is a unit, one per slot. */
static tacit_status lay_out_parts(tacit_channel *c, size_t bucket_bytes) {
    const size_t parts = (size_t)c->parts, floats = bucket_bytes / sizeof(float) / parts;
    const size_t slot_n = is_split(c) ? taciti_max(floats / GRAIN, 1) * GRAIN : c->part_n;
    const size_t slots = c->part_n / slot_n + (c->part_n % slot_n != 0);
    TACITI_TRY(taciti_layout_create(slots * parts, &c->layout));
    for (size_t i = 0; i < slots * parts; i++) {
        char name[NAME_BYTES];
        const size_t at = i / parts * slot_n, n = taciti_min(slot_n, c->part_n - at);
        (void)snprintf(name, sizeof name, "slot %zu of bucket %zu", i % parts, i / parts);
        if (i % parts == 0) taciti_layout_next_unit(&c->layout);
        TACITI_TRY(taciti_layout_append(&c->layout, name, 1, &n, true));
    }
    if (is_split(c)) return taciti_layout_seal_units(&c->layout, slot_n * parts * sizeof(float));
    return taciti_layout_seal(&c->layout, bucket_bytes);
}

/* Finds out which rank owns each slot of a bucket. */
static tacit_status find_slots(tacit_channel *c) {
    taciti_comm *comm = c->comm->comm;
    taciti_arrangement a;
    c->part_of = taciti_calloc((size_t)c->parts, sizeof *c->part_of);
    if (c->part_of == NULL) return TACIT_E_MEMORY;
    if (!is_split(c)) return TACIT_OK;
    const taciti_placement placement =
        taciti_shard_placement(taciti_comm_hosts(comm), taciti_exchange_placement(&c->settings.exchange));
    c->settings.exchange.scheme = (int)placement.scheme;
    c->settings.exchange.lanes = placement.lanes;
    c->settings.exchange.contiguous = true;
    TACITI_TRY(taciti_arrangement_of(taciti_comm_hosts(comm), (taciti_members){0}, rank_of(c), placement, &a));
    const bool all_own = a.lanes * a.hosts == c->parts;
    for (int h = 0; h < a.hosts && all_own; h++)
        for (int l = 0; l < a.lanes; l++) c->part_of[l * a.hosts + h] = taciti_arrangement_rank(&a, h, l);
    taciti_arrangement_destroy(&a);
    if (all_own) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "exchange.scheme and exchange.lanes: in a channel of kind %s every rank owns a part, and here "
                       "ranks would own none: leave them out",
                       NAMES[c->collective]);
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

static tacit_status check_gather(const taciti_compression_setup *s) {
    const taciti_compress_options *o = s->options;
    if (!taciti_compression_is_fixed(s))
        return taciti_fail(TACIT_E_CONFIG, "compress.codec auto is for sums, and this channel gathers: int4, or topk");
    if (!taciti_route_of(s->gathers.codec)->results)
        return taciti_fail(TACIT_E_CONFIG, "compress.codec %s is for sums, and this channel gathers: int4, or topk",
                           s->gathers.codec->name);
    if (!taciti_codec_suits(s->gathers.codec, TACITI_USE_FEEDBACK) && o->feedback > 0)
        return taciti_fail(TACIT_E_CONFIG,
                           "compress.feedback: the errors of codec %s would grow without limit; "
                           "compress.feedback=0, or compress.codec=int4",
                           s->gathers.codec->name);
    if ((o->feedback > 0 && o->feedback < 1) || o->momentum > 0)
        return taciti_fail(TACIT_E_CONFIG,
                           "compress.%s: a channel that gathers adds what it has lost as a whole, or with "
                           "compress.feedback=0 nothing",
                           o->momentum > 0 ? "momentum" : "feedback");
    return TACIT_OK;
}

/* Every rank of a reduce-scatter or an all-gather has its part alone. */
static tacit_status check_split(const tacit_channel *c, const taciti_compression_setup *s) {
    const bool gathers = c->collective == TACIT_ALL_GATHER;
    const taciti_codec *codec = gathers ? s->gathers.codec : s->sums.codec;
    if (!taciti_route_of(codec)->phases || !taciti_codec_suits(codec, TACITI_USE_MAGNITUDES))
        return taciti_fail(TACIT_E_CONFIG,
                           "compress.codec %s needs the sum on all ranks: int4 or topk in a channel of "
                           "kind %s, or an all-reduce",
                           codec->name, NAMES[c->collective]);
    if (s->options->what == TACITI_SENDS_CHANGE || s->options->collective == TACITI_WAY_GATHER)
        return taciti_fail(TACIT_E_CONFIG, "compress.%s: that is for an all-reduce, and this channel is of kind %s",
                           s->options->what == TACITI_SENDS_CHANGE ? "what change" : "collective gather",
                           NAMES[c->collective]);
    return gathers ? check_gather(s) : TACIT_OK;
}

/* Refuses settings that follow the steps of a job. */
static tacit_status check_steps(const taciti_settings *values) {
    const taciti_compress_options *o = &values->compress;
    const taciti_compression_setup asked = taciti_settings_sums(values);
    if (asked.sums.codec == NULL) return TACIT_OK;
    if (!asked.controller->measures && !taciti_compression_is_fixed(&asked))
        return taciti_fail(TACIT_E_CONFIG,
                           "adapt.policy %s follows the steps of a job, and a channel has none: leave it out, or take "
                           "compress.codec=auto",
                           values->adapt.policy.text);
    if (strcmp(o->layers.text, "all") != 0)
        return taciti_fail(TACIT_E_CONFIG,
                           "compress.layers %s chooses tensors by their names, and a channel has none: "
                           "leave it out, or open channels with and without compress.codec",
                           o->layers.text);
    if (o->what == TACITI_SENDS_MOMENTUM)
        return taciti_fail(TACIT_E_CONFIG, "compress.what momentum is that of an optimizer, and a channel has none: "
                                           "compress.what=gradient");
    return TACIT_OK;
}

static tacit_status choose_compression(tacit_channel *c, taciti_compression_setup *out) {
    taciti_settings *values = &c->settings;
    const taciti_compression_setup asked = taciti_settings_sums(values);
    const taciti_codec *codec = asked.sums.codec;
    taciti_compression_setup setup = {.options = &values->compress,
                                      .phase = PHASES[c->collective],
                                      .gather_feedback = true,
                                      .controller = asked.controller};
    TACITI_TRY(check_steps(values));
    c->codec_used = codec != NULL;
    taciti_encoding *encoding = c->collective == TACIT_ALL_GATHER ? &setup.gathers : &setup.sums;
    *encoding = asked.sums;
    if (c->collective == TACIT_ALL_GATHER) values->compress.back = 0; /* there is one way */
    if (codec != NULL && is_split(c)) TACITI_TRY(check_split(c, &setup));
    TACITI_TRY(taciti_compression_check(&setup));
    *out = setup;
    return TACIT_OK;
}

/* Returns whether no channel of this communicator had these settings before: a model may have hundreds of channels. */
static bool note_settings(tacit_comm *comm, const taciti_config *config) {
    char *text = taciti_config_json(config, 0);
    if (text == NULL) return true;
    const uint64_t digest = XXH3_64bits(text, strlen(text));
    taciti_free(text);
    for (size_t i = 0; i < taciti_min(comm->settings_count, TACITI_SETTINGS_KNOWN); i++)
        if (comm->settings[i] == digest) return false;
    comm->settings[comm->settings_count++ % TACITI_SETTINGS_KNOWN] = digest;
    return true;
}

static tacit_status warn_unread(tacit_comm *comm, const tacit_settings *settings) {
    const taciti_settings *values = &settings->values;
    if (taciti_comm_rank(comm->comm) != 0 || !note_settings(comm, &settings->config)) return TACIT_OK;
    return taciti_settings_warn_unread(&values, 1, TACITI_READER_CHANNEL);
}

/* ---- open -------------------------------------------------------------------------------------------------------- */

static tacit_status check_elements(const tacit_channel *c) {
    if (c->elements == 0) return taciti_fail(TACIT_E_USAGE, "a channel of 0 elements: nothing to send");
    if (c->elements % (size_t)c->parts == 0) return TACIT_OK;
    return taciti_fail(TACIT_E_USAGE,
                       "%s of %zu elements: every rank has a part of the same length, and %d ranks do "
                       "not divide them; pad the array",
                       NAMES[c->collective], c->elements, c->parts);
}

static tacit_status build_alone(tacit_channel *c, const tacit_settings *settings, taciti_compression_setup *out) {
    c->parts = is_split(c) ? taciti_comm_size(c->comm->comm) : 1;
    TACITI_TRY(check_elements(c));
    c->config = taciti_settings_read_json(&settings->values, TACITI_READER_CHANNEL);
    if (c->config == NULL) return TACIT_E_MEMORY;
    c->part_n = c->elements / (size_t)c->parts;
    TACITI_TRY(taciti_settings_copy(&settings->values, &c->settings));
    TACITI_TRY(taciti_room_check(c->comm, "a channel", (double)c->elements * sizeof(float)));
    TACITI_TRY(choose_compression(c, out));
    TACITI_TRY(find_slots(c));
    const int64_t bucket_bytes = c->settings.exchange.bucket_bytes;
    TACITI_TRY(lay_out_parts(c, bucket_bytes > 0 ? (size_t)bucket_bytes : TACITI_BUCKET_MAX));
    return taciti_pages_create(c->layout.n * sizeof(float), "the array of a channel", &c->flat);
}

/* Refuses arguments that this rank alone may have wrong. */
static tacit_status check_arguments(const tacit_settings *settings, tacit_collective collective,
                                    tacit_channel *const *out) {
    TACITI_TRY(taciti_handle_check(settings, TACITI_HANDLE_SETTINGS));
    TACITI_TRY(taciti_argument_check(out, "out"));
    if ((unsigned)collective <= TACIT_ALL_GATHER) return TACIT_OK;
    return taciti_fail(TACIT_E_USAGE, "tacit_channel_open: %d is no collective", (int)collective);
}

static tacit_status create_channel(tacit_comm *comm, tacit_collective collective, size_t elements,
                                   tacit_channel **out) {
    tacit_channel *c = taciti_calloc(1, sizeof *c);
    if (c == NULL) return TACIT_E_MEMORY;
    c->comm = comm;
    c->number = comm->channels;
    c->collective = collective;
    c->elements = elements;
    *out = c;
    return TACIT_OK;
}

/* The part after which all ranks go on or none. */
static tacit_status build_together(tacit_channel *c, const tacit_settings *settings,
                                   const taciti_compression_setup *setup) {
    taciti_comm *comm = c->comm->comm;
    char text[TEXT_BYTES];
    (void)snprintf(text, sizeof text, "number %d, %s of %zu elements", c->number, NAMES[c->collective], c->elements);
    TACITI_TRY(taciti_comm_agree_text(comm, "libtacit", tacit_version()));
    TACITI_TRY(taciti_comm_agree_text(comm, "channel", text));
    TACITI_TRY(taciti_agree_on_configuration(comm, &settings->config));
    c->hooks = (taciti_bucket_hooks){read_range, write_range, end_bucket, c};
    const taciti_strategy_context context = {.comm = comm,
                                             .hooks = &c->hooks,
                                             .layout = &c->layout,
                                             .optim_options = &c->settings.optim,
                                             .exchange_options = &c->settings.exchange,
                                             .compression = *setup};
    TACITI_TRY(taciti_compression_create(&context, &c->compression));
    c->job = (taciti_job){
        .run = run_channel, .context = c, .name = JOBS[c->collective], .detail = c->number, .flow = c->number};
    return taciti_compression_start(c->compression, 0, false);
}

/* NULL is fine. */
static void release_channel(tacit_channel *c) {
    if (c == NULL || !taciti_comm_let_go(c->comm->comm)) return;
    taciti_compression_destroy(c->compression);
    taciti_layout_destroy(&c->layout);
    taciti_pages_destroy(&c->flat);
    taciti_settings_destroy(&c->settings);
    taciti_free(c->config);
    taciti_free(c->part_of);
    taciti_free(c);
}

tacit_status tacit_channel_open(tacit_comm *comm, const tacit_settings *settings, tacit_collective collective,
                                size_t elements, tacit_channel **out) {
    taciti_compression_setup setup = {.options = NULL};
    tacit_channel *c = NULL;
    TACITI_TRY(taciti_handle_check(comm, TACITI_HANDLE_COMM));
    taciti_api_log_together(comm);
    comm->channels++;
    tacit_status mine = check_arguments(settings, collective, out);
    taciti_log_about(comm->comm);
    if (mine == TACIT_OK) mine = create_channel(comm, collective, elements, &c);
    if (mine == TACIT_OK) mine = build_alone(c, settings, &setup);
    if (mine == TACIT_OK) mine = warn_unread(comm, settings);
    tacit_status status = taciti_comm_agree(comm->comm, mine); /* the others must not wait for a rank that refuses */
    if (mine == TACIT_OK && status == TACIT_OK) status = build_together(c, settings, &setup);
    taciti_api_log_alone();
    if (mine != TACIT_OK || status != TACIT_OK) {
        release_channel(c);
        return taciti_api_report(comm, status);
    }
    comm->jobs++;
    taciti_handle_open(&c->handle, TACITI_HANDLE_CHANNEL);
    *out = c;
    return TACIT_OK;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static bool arrays_overlap(const char *a, size_t a_bytes, const char *b, size_t b_bytes) {
    const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return x < y + b_bytes && y < x + a_bytes;
}

static tacit_status check_arrays(const tacit_channel *c, const char *source, const char *target, tacit_type type) {
    const size_t unit = taciti_element_bytes(type), whole = c->elements * unit, part = c->part_n * unit;
    const size_t mine = is_split(c) ? (size_t)rank_of(c) * part : 0;
    const size_t in = c->collective == TACIT_ALL_GATHER ? part : whole,
                 out = c->collective == TACIT_REDUCE_SCATTER ? part : whole;
    const bool in_place = c->collective == TACIT_ALL_GATHER ? source == target + mine : target == source + mine;
    TACITI_TRY(taciti_argument_check(source, "source"));
    TACITI_TRY(taciti_argument_check(target, "target"));
    if ((uintptr_t)source % unit != 0 || (uintptr_t)target % unit != 0)
        return taciti_fail(TACIT_E_USAGE,
                           "tacit_channel_start: an array does not begin at a multiple of its %zu-byte "
                           "elements",
                           unit);
    if (in_place || !arrays_overlap(source, in, target, out)) return TACIT_OK;
    return taciti_fail(TACIT_E_USAGE, "tacit_channel_start: source and target overlap; they may be the same array, or "
                                      "the one this rank's part of the other, or have nothing in common");
}

static tacit_status check_start(const tacit_channel *c, tacit_type type, double scale) {
    const tacit_status health = taciti_comm_health(c->comm->comm);
    if (health != TACIT_OK) return taciti_api_report(c->comm, health);
    if ((unsigned)type > TACIT_F16)
        return taciti_fail(TACIT_E_USAGE, "tacit_channel_start: %d is no tacit_type", (int)type);
    if (!isfinite((float)scale))
        return taciti_fail(TACIT_E_USAGE, "tacit_channel_start: a scale of %g is not finite in f32", scale);
    if (!c->under_way) return TACIT_OK;
    return taciti_fail(TACIT_E_USAGE, "tacit_channel_start: the start before was not waited for: call "
                                      "tacit_channel_wait() until it returns something else than TACIT_PENDING");
}

tacit_status tacit_channel_start(tacit_channel *channel, const void *source, void *target, tacit_type type,
                                 double scale) {
    TACITI_TRY(taciti_handle_check(channel, TACITI_HANDLE_CHANNEL));
    TACITI_TRY(check_start(channel, type, scale));
    TACITI_TRY(check_arrays(channel, source, target, type));
    channel->source = source;
    channel->target = target;
    channel->type = type;
    channel->scale = (float)scale;
    const int64_t begin_ns = taciti_now_ns(); /* without comm.thread the transfer is made here */
    taciti_job_submit(channel->comm->comm, &channel->job);
    (void)atomic_fetch_add(&channel->wait_ns, taciti_now_ns() - begin_ns);
    channel->under_way = true;
    return TACIT_OK;
}

/* A wait after a transfer was settled counts for the next one. */
static tacit_status wait_for(tacit_channel *c, double seconds) {
    const int64_t begin_ns = taciti_now_ns();
    if (!(seconds >= 0))
        return taciti_fail(TACIT_E_USAGE, "tacit_channel_wait: %g seconds; 0 or more is possible", seconds);
    if (!c->under_way)
        return taciti_fail(TACIT_E_USAGE, "tacit_channel_wait: nothing was started since the last result");
    const tacit_status status = taciti_job_wait_for(c->comm->comm, &c->job, seconds);
    (void)atomic_fetch_add(&c->wait_ns, taciti_now_ns() - begin_ns);
    if (status != TACIT_PENDING) c->under_way = false;
    return status;
}

tacit_status tacit_channel_wait(tacit_channel *channel, double seconds) {
    TACITI_TRY(taciti_handle_hold(channel, TACITI_HANDLE_CHANNEL));
    const tacit_status status = taciti_api_report(channel->comm, wait_for(channel, seconds));
    taciti_handle_release(channel);
    return status;
}

tacit_status tacit_channel_close(tacit_channel *channel) {
    if (channel == NULL) return TACIT_OK;
    TACITI_TRY(taciti_handle_check(channel, TACITI_HANDLE_CHANNEL));
    tacit_comm *comm = channel->comm;
    if (channel->under_way) (void)taciti_job_wait(comm->comm, &channel->job);
    taciti_handle_close(&channel->handle);
    taciti_handle_drain(&channel->handle);
    comm->jobs--;
    release_channel(channel);
    return taciti_api_report(comm, taciti_comm_health(comm->comm));
}
