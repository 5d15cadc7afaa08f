/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/codecs.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/number.h"
#include "base/pool.h"
#include "codec/indices.h"
#include "exchange/pipeline.h"
#include "exchange/route.h"
#include "kernel/kernel.h"
#include "kernel/probe.h"

/* A figure that takes longer than this gets no further rounds, but three at least. */
static const double FIGURE_S = 4;
enum { ROUNDS_MIN = 3, RANKS = 4, BUCKET_FLOATS = (25 << 20) / sizeof(float) };

const char *const taciti_trial_pass_names[TACITI_TRIAL_PASSES] = {"encode_feedback", "encode", "decode", "decode_add"};

/* ---- one figure -------------------------------------------------------------------------------------------------- */

typedef struct samples {
    double read[TACITI_CODEC_BENCH_MAX_ROUNDS], seconds[TACITI_TRIAL_PASSES][TACITI_CODEC_BENCH_MAX_ROUNDS];
} samples;

typedef struct job {
    taciti_trial *trial;
    taciti_trial_pass pass;
    tacit_status status;
} job;

static void run_job(void *context, int thread, int threads) {
    job *j = context;
    (void)thread;
    (void)threads;
    j->status = taciti_trial_run(j->trial, j->pass);
}

static double read_rate(taciti_pool *pool, const taciti_trial *trial) {
    const size_t bytes = trial->n * sizeof(float) & ~(size_t)63;
    taciti_probe_stream stream = {.base = trial->arrays[2].base, .bytes = bytes, .use = TACITI_PROBE_READ};
    return (double)bytes / taciti_probe_pass(pool, &stream, 1);
}

/* A round: the probe, then every pass; the order turns around from round to round. */
static tacit_status run_round(taciti_pool *pool, taciti_trial *trial, int round, samples *s) {
    const int r = round < 0 ? 0 : round;
    if (r % 2 == 0) s->read[r] = read_rate(pool, trial);
    for (int pass = 0; pass < TACITI_TRIAL_PASSES; pass++) {
        job j = {.trial = trial, .pass = (taciti_trial_pass)pass};
        s->seconds[pass][r] = taciti_probe_time(pool, run_job, &j);
        TACITI_TRY(j.status);
    }
    if (r % 2 != 0) s->read[r] = read_rate(pool, trial);
    return TACIT_OK;
}

static taciti_codec_rate rate_of(const taciti_trial *trial, taciti_trial_pass pass, const samples *s, int rounds) {
    double rate[TACITI_CODEC_BENCH_MAX_ROUNDS], moved[TACITI_CODEC_BENCH_MAX_ROUNDS];
    const double more = taciti_trial_moved_bytes(trial, pass) / ((double)trial->n * sizeof(float));
    for (int r = 0; r < rounds; r++) {
        rate[r] = (double)trial->n * sizeof(float) / s->seconds[pass][r];
        moved[r] = more * (rate[r] / s->read[r]);
    }
    return (taciti_codec_rate){.input_bytes_per_s = taciti_statistics_of(rate, rounds),
                               .moved_share = taciti_statistics_of(moved, rounds)};
}

/* The elements of a piece that the first encode has sent: what it has lost of the others is all. */
static size_t list_sent(const taciti_trial *trial, size_t piece, uint32_t *indices) {
    const float *x = trial->gradient + piece * trial->piece_n,
                *error = taciti_trial_error(trial) + (x - trial->gradient);
    size_t count = 0;
    for (size_t i = 0; i < trial->piece_n; i++) {
        indices[count] = (uint32_t)i;
        count += x[i] < error[i] || x[i] > error[i];
    }
    return count;
}

/* Bits per index of all pieces, by the coder that is best for each. Nothing for codecs whose ranks choose alike. */
static tacit_status describe_indices(const taciti_trial *trial, taciti_codec_figure *figure) {
    double bytes = 0, entropy = 0, kept = 0;
    taciti_pages indices;
    if (!trial->codec->selects || trial->codec->shared_key) return TACIT_OK;
    TACITI_TRY(taciti_pages_create(trial->piece_n * sizeof(uint32_t), "the indices of a piece", &indices));
    for (size_t piece = 0; piece < trial->n / trial->piece_n; piece++) {
        size_t best = 0;
        const size_t count = list_sent(trial, piece, indices.base);
        (void)taciti_index_coder_best(indices.base, count, trial->piece_n, &best);
        bytes += (double)best;
        kept += (double)count;
        if (count > 0) entropy += (double)count * taciti_index_entropy(count, trial->piece_n);
    }
    taciti_pages_destroy(&indices);
    figure->kept_share = kept / (double)trial->n;
    if (kept > 0) {
        figure->index_bits = 8 * bytes / kept;
        figure->index_entropy = entropy / kept;
    }
    return TACIT_OK;
}

/* Fills in the figures of the first encode, which is that of the gradient itself. */
static tacit_status describe_first_encode(const taciti_trial *trial, taciti_codec_figure *figure) {
    const double all = taciti_kernels_get()->sum_squares(trial->gradient, trial->n);
    const double lost = taciti_kernels_get()->sum_squares(taciti_trial_error(trial), trial->n);
    figure->energy_kept = 1 - lost / all;
    figure->payload_bytes_per_float = (double)trial->payload_bytes / (double)trial->n;
    figure->kept_share = 1;
    figure->index_bits = figure->index_entropy = (double)NAN;
    return describe_indices(trial, figure);
}

static tacit_status measure_figure(taciti_pool *pool, taciti_trial *trial, int rounds, taciti_codec_figure *figure) {
    samples s;
    const int64_t begin_ns = taciti_now_ns();
    int done = 0;
    TACITI_TRY(taciti_trial_run(trial, TACITI_TRIAL_FEEDBACK));
    TACITI_TRY(describe_first_encode(trial, figure));
    TACITI_TRY(run_round(pool, trial, -1, &s));
    while (done < rounds) {
        if (done >= ROUNDS_MIN && (double)(taciti_now_ns() - begin_ns) / 1e9 > FIGURE_S) break;
        TACITI_TRY(run_round(pool, trial, done++, &s));
    }
    for (int pass = 0; pass < TACITI_TRIAL_PASSES; pass++)
        figure->rate[pass] = rate_of(trial, (taciti_trial_pass)pass, &s, done);
    figure->read_bytes_per_s = taciti_statistics_of(s.read, done);
    return TACIT_OK;
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

typedef struct run {
    const taciti_codec_bench_options *options;
    taciti_pool *pool;
    taciti_pages gradient;
    size_t total; /* figures */
    taciti_codec_bench *out;
} run;

/* Pieces are as long as one message of the exchange takes; linear codecs encode whole buckets. */
static tacit_status measure_codec(run *r, const taciti_codec *codec, const char *isa, bool whole) {
    const taciti_codec_bench_options *o = r->options;
    const void *options = o->options_of(o->context, codec);
    const taciti_encoding encoding = {.codec = codec, .options = options, .expected = o->setting};
    taciti_codec_figure *figure = &r->out->figures[r->out->count];
    taciti_trial trial;
    size_t piece = taciti_pipeline_of(&encoding, TACITI_WIRE_SEGMENT_BYTES, false, 1, RANKS).segment_n;
    if (taciti_route_of(codec)->whole) piece = taciti_min(BUCKET_FLOATS, o->n);
    TACITI_TRY(taciti_trial_create(codec, options, o->setting, r->gradient.base, o->n, whole ? 0 : piece, &trial));
    *figure = (taciti_codec_figure){.codec = codec, .isa = isa, .piece_n = trial.piece_n, .whole = whole};
    const tacit_status status = measure_figure(r->pool, &trial, o->rounds, figure);
    taciti_trial_destroy(&trial);
    if (status == TACIT_OK) r->out->count++;
    if (o->progress != NULL) o->progress(o->context, codec->name, isa, r->out->count, r->total);
    return status;
}

static bool is_wanted(const taciti_codec_bench_options *o, const char *isa) {
    return taciti_kernels_named(isa) != NULL && (o->isa == NULL || strcmp(o->isa, isa) == 0);
}

/* The one that is named, or all that results recommend. */
static bool is_measured(const taciti_codec_bench_options *o, const taciti_codec *codec) {
    return o->codec == NULL ? !codec->reference : o->codec == codec;
}

static tacit_status measure_all(run *r) {
    const taciti_codec_bench_options *o = r->options;
    for (const taciti_codec *const *codec = taciti_codec_list(); *codec != NULL; codec++) {
        if (!is_measured(o, *codec)) continue;
        for (size_t i = 0; taciti_kernels_isa(i) != NULL; i++) {
            if (!is_wanted(o, taciti_kernels_isa(i))) continue;
            (void)taciti_kernels_switch(taciti_kernels_isa(i));
            TACITI_TRY(measure_codec(r, *codec, taciti_kernels_isa(i), false));
            TACITI_TRY(measure_codec(r, *codec, taciti_kernels_isa(i), true));
        }
    }
    return TACIT_OK;
}

static tacit_status prepare_run(run *r) {
    const taciti_codec_bench_options *o = r->options;
    size_t sets = 0;
    for (size_t i = 0; taciti_kernels_isa(i) != NULL; i++) sets += is_wanted(o, taciti_kernels_isa(i));
    for (const taciti_codec *const *codec = taciti_codec_list(); *codec != NULL; codec++)
        r->total += is_measured(o, *codec) ? 2 * sets : 0;
    r->out->figures = taciti_calloc(r->total, sizeof *r->out->figures);
    if (r->out->figures == NULL) return TACIT_E_MEMORY;
    TACITI_TRY(taciti_pool_create(1, 0, &r->pool));
    TACITI_TRY(taciti_pages_create(o->n * sizeof(float), "the gradient", &r->gradient));
    taciti_gradient_like(1, r->gradient.base, o->n);
    return TACIT_OK;
}

tacit_status taciti_codec_bench_run(const taciti_codec_bench_options *options, taciti_codec_bench *out) {
    taciti_codec_bench bench = {0};
    run r = {.options = options, .out = &bench};
    tacit_status status = prepare_run(&r);
    if (status == TACIT_OK) status = measure_all(&r);
    (void)taciti_kernels_switch(NULL);
    taciti_pages_destroy(&r.gradient);
    taciti_pool_destroy(r.pool);
    if (status == TACIT_OK)
        *out = bench;
    else
        taciti_codec_bench_destroy(&bench);
    return status;
}

void taciti_codec_bench_destroy(taciti_codec_bench *bench) {
    taciti_free(bench->figures);
    *bench = (taciti_codec_bench){0};
}

double taciti_codec_bench_memory_bytes(const taciti_codec_bench_options *o) {
    double max = 0;
    for (const taciti_codec *const *codec = taciti_codec_list(); *codec != NULL; codec++) {
        const void *options = o->options_of(o->context, *codec);
        if (!is_measured(o, *codec)) continue;
        const double bytes = taciti_trial_codec_bytes(*codec, options, o->n);
        max = bytes > max ? bytes : max;
    }
    return max + TACITI_CODEC_BENCH_BYTES_PER_FLOAT * (double)o->n;
}
