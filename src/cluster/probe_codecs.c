/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast one rank encodes and decodes, alone on its core, on gradient-like data (codec/trial.h): number formats, and
 * all other codecs at some factors.
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "cluster/fit.h"
#include "cluster/probe_state.h"
#include "codec/trial.h"
#include "exchange/pipeline.h"
#include "exchange/route.h"

enum { FORMAT_FLOATS = 4 << 20, FLOATS = 1 << 20, RANKS = 4, ROUNDS_MAX = 64, ROUNDS_MIN = 3 };
static const double FORMAT_MAX_S = 0.25, COMPRESSION_MAX_S = 0.05, FACTORS[] = {10, 100, 1000};
enum { FACTOR_COUNT = sizeof FACTORS / sizeof *FACTORS };

/* ---- one codec --------------------------------------------------------------------------------------------------- */

/* Median of the seconds per float of a pass, after one that does not count. */
static tacit_status time_pass(taciti_trial *trial, taciti_trial_pass pass, double max_s, double *out) {
    double seconds[ROUNDS_MAX];
    size_t rounds = 0;
    TACITI_TRY(taciti_trial_run(trial, pass));
    const int64_t begin_ns = taciti_now_ns();
    for (int64_t now_ns = begin_ns; rounds < ROUNDS_MAX; rounds++) {
        if (rounds >= ROUNDS_MIN && (double)(now_ns - begin_ns) / 1e9 >= max_s) break;
        TACITI_TRY(taciti_trial_run(trial, pass));
        const int64_t end_ns = taciti_now_ns();
        seconds[rounds] = (double)(end_ns - now_ns) / 1e9;
        now_ns = end_ns;
    }
    *out = taciti_median(seconds, rounds) / (double)trial->n;
    return TACIT_OK;
}

static tacit_status time_codec(taciti_trial *trial, double max_s, taciti_cluster_compression *out) {
    const bool format = taciti_codec_is_dense(trial->codec);
    TACITI_TRY(time_pass(trial, format ? TACITI_TRIAL_ENCODE : TACITI_TRIAL_FEEDBACK, max_s, &out->encode_s));
    TACITI_TRY(time_pass(trial, TACITI_TRIAL_DECODE, max_s, &out->decode_s));
    TACITI_TRY(time_pass(trial, TACITI_TRIAL_ADD, max_s, &out->add_s));
    (void)snprintf(out->codec, sizeof out->codec, "%s", trial->codec->name);
    out->factor = trial->setting.factor;
    out->bytes = (double)trial->payload_bytes / (double)trial->n;
    return TACIT_OK;
}

/* In pieces as the exchange's; codecs of class linear take whole buckets. */
static tacit_status measure_codec(const taciti_codec *codec, double factor, const float *gradient, size_t n,
                                  double max_s, taciti_cluster_compression *out) {
    const taciti_codec_setting setting = {.factor = factor};
    void *options = NULL;
    taciti_trial trial = {0};
    TACITI_TRY(taciti_codec_defaults(codec, &options));
    const taciti_encoding encoding = {.codec = codec, .options = options, .expected = setting};
    size_t piece = taciti_pipeline_of(&encoding, TACITI_WIRE_SEGMENT_BYTES, false, 1, RANKS).segment_n;
    if (taciti_route_of(codec)->whole) piece = 0;
    tacit_status status = taciti_trial_create(codec, options, setting, gradient, n, piece, &trial);
    if (status == TACIT_OK) status = time_codec(&trial, max_s, out);
    taciti_trial_destroy(&trial);
    taciti_free(options);
    return status;
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

/* max_s: of a pass. */
static tacit_status probe_codec(taciti_probe *probe, const taciti_codec *codec, double factor, const float *gradient,
                                size_t n, double max_s) {
    taciti_cluster_compression found = {.factor = 0};
    tacit_status status = TACIT_OK;
    if (probe->rank == 0) status = measure_codec(codec, factor, gradient, n, max_s, &found);
    TACITI_TRY(taciti_comm_agree(probe->comm, status));
    TACITI_TRY(taciti_comm_broadcast(probe->comm, 0, &found, sizeof found));
    return taciti_cluster_add_compression(probe->cluster, &found);
}

static tacit_status probe_formats(taciti_probe *probe, const float *gradient, double share) {
    double left_s = 0;
    size_t count = 0;
    while (taciti_codec_dense_name(count) != NULL) count++;
    TACITI_TRY(taciti_probe_left(probe, share, &left_s));
    const double each_s = left_s / (3 * (double)count), max_s = each_s < FORMAT_MAX_S ? each_s : FORMAT_MAX_S;
    for (size_t i = 0; i < count; i++) {
        const taciti_codec *codec = taciti_codec_find(taciti_codec_dense_name(i));
        TACITI_TRY(probe_codec(probe, codec, 1, gradient, FORMAT_FLOATS, max_s));
    }
    return TACIT_OK;
}

/* Codecs at their middle factor first, so that a short time leaves out factors and no codec. Those that send what
 * others do are not measured again. */
static tacit_status probe_factor(taciti_probe *probe, const float *gradient, size_t factor, double share,
                                 size_t *skipped) {
    for (const taciti_codec *const *codec = taciti_codec_list(); *codec != NULL; codec++) {
        const double used = taciti_codec_setting_of(*codec, (taciti_codec_setting){.factor = FACTORS[factor]}).factor;
        double left_s = 0;
        if (!taciti_codec_suits(*codec, TACITI_USE_BY_ITSELF) || (used == 0 && factor != FACTOR_COUNT / 2)) continue;
        TACITI_TRY(taciti_probe_left(probe, share, &left_s));
        if (left_s > 0)
            TACITI_TRY(probe_codec(probe, *codec, used > 0 ? used : 1, gradient, FLOATS, COMPRESSION_MAX_S));
        else
            ++*skipped;
    }
    return TACIT_OK;
}

static tacit_status probe_compressions(taciti_probe *probe, const float *gradient, double share) {
    size_t skipped = 0;
    for (size_t i = 0; i < FACTOR_COUNT; i++)
        TACITI_TRY(probe_factor(probe, gradient, (i + FACTOR_COUNT / 2) % FACTOR_COUNT, share, &skipped));
    if (skipped == 0) return TACIT_OK;
    return taciti_cluster_add_note(
        probe->cluster, "%zu codecs and factors of `compression` were skipped for lack of time; more: --seconds",
        skipped);
}

tacit_status taciti_probe_codecs(taciti_probe *probe, double formats_until, double compressions_until) {
    float *gradient = NULL;
    taciti_probe_say(probe, "codecs, on one rank alone");
    if (probe->rank == 0) gradient = taciti_calloc(FORMAT_FLOATS, sizeof *gradient);
    tacit_status status =
        taciti_comm_agree(probe->comm, probe->rank == 0 && gradient == NULL ? TACIT_E_MEMORY : TACIT_OK);
    if (status == TACIT_OK && probe->rank == 0) taciti_gradient_like(1, gradient, FORMAT_FLOATS);
    if (status == TACIT_OK) status = probe_formats(probe, gradient, formats_until);
    if (status == TACIT_OK) status = probe_compressions(probe, gradient, compressions_until);
    taciti_free(gradient);
    return status;
}
