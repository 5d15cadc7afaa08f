/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank does by itself: codecs, and equal pieces of computation.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "codec/codec.h"
#include "plan/fit.h"
#include "plan/probe_state.h"

enum { CODEC_FLOATS = 4 << 20, CODEC_ROUNDS_MAX = 64, CODEC_ROUNDS_MIN = 3 };
enum { PIECES_MIN = 20, PIECES_MAX = 200, PIECES_QUICK = 60, WARM_UP_PIECES = 4, CALIBRATION_STEPS = 1 << 14 };
static const double PIECE_S = 5e-3, CODEC_MAX_S = 0.5, BUSY_SHARE = 0.9;

/* ---- codecs ------------------------------------------------------------------------------------------------------ */

typedef struct codec_bench {
    const taciti_codec *codec;
    float *x;
    void *payload;
    size_t payload_bytes;
} codec_bench;

static tacit_status encode(codec_bench *bench) {
    return bench->codec->encode(&(taciti_codec_call){.key = 1}, bench->x, CODEC_FLOATS, bench->payload, NULL,
                                &bench->payload_bytes);
}

static tacit_status decode(codec_bench *bench) {
    return bench->codec->decode_add(&(taciti_codec_call){0}, bench->payload, bench->payload_bytes, bench->x,
                                    CODEC_FLOATS);
}

/* Median rate in bytes of f32 per second, after one call that does not count. */
static tacit_status rate(codec_bench *bench, tacit_status (*call)(codec_bench *), double max_s, double *out) {
    double seconds[CODEC_ROUNDS_MAX];
    size_t rounds = 0;
    TACITI_TRY(call(bench));
    const int64_t begin_ns = taciti_now_ns();
    for (int64_t now_ns = begin_ns; rounds < CODEC_ROUNDS_MAX; rounds++) {
        if (rounds >= CODEC_ROUNDS_MIN && (double)(now_ns - begin_ns) / 1e9 >= max_s) break;
        TACITI_TRY(call(bench));
        const int64_t end_ns = taciti_now_ns();
        seconds[rounds] = (double)(end_ns - now_ns) / 1e9;
        now_ns = end_ns;
    }
    *out = CODEC_FLOATS * sizeof(float) / taciti_median(seconds, rounds);
    return TACIT_OK;
}

/* The values do not matter to the codecs' speed; these are 0.75 and stay far from overflow. */
static tacit_status measure_codec(const taciti_codec *codec, double max_s, taciti_cluster_codec *out) {
    codec_bench bench = {.codec = codec,
                         .x = taciti_calloc(CODEC_FLOATS, sizeof(float)),
                         .payload = taciti_calloc(codec->bound(NULL, CODEC_FLOATS), 1)};
    tacit_status status = bench.x == NULL || bench.payload == NULL ? TACIT_E_MEMORY : TACIT_OK;
    if (status == TACIT_OK) {
        memset(bench.x, 0x3f, CODEC_FLOATS * sizeof(float));
        (void)snprintf(out->name, sizeof out->name, "%s", codec->name);
        status = rate(&bench, encode, max_s, &out->encode_bytes_per_s);
    }
    if (status == TACIT_OK) status = rate(&bench, decode, max_s, &out->decode_bytes_per_s);
    taciti_free(bench.x);
    taciti_free(bench.payload);
    return status;
}

tacit_status taciti_probe_codecs(taciti_probe *probe, double share) {
    double left_s = 0;
    size_t count = 0;
    while (taciti_codec_list()[count] != NULL) count++;
    taciti_probe_say(probe, "codecs, on one rank alone");
    TACITI_TRY(taciti_probe_left(probe, share, &left_s));
    const double each_s = left_s / (2 * (double)count);
    for (size_t i = 0; i < count; i++) {
        taciti_cluster_codec codec = {.name = ""};
        tacit_status status = TACIT_OK;
        if (probe->rank == 0)
            status = measure_codec(taciti_codec_list()[i], each_s < CODEC_MAX_S ? each_s : CODEC_MAX_S, &codec);
        TACITI_TRY(taciti_comm_agree(probe->comm, status));
        TACITI_TRY(taciti_comm_broadcast(probe->comm, 0, &codec, sizeof codec));
        TACITI_TRY(taciti_cluster_add_codec(probe->cluster, &codec));
    }
    return TACIT_OK;
}

/* ---- jitter ------------------------------------------------------------------------------------------------------ */

/* Computation that needs nothing but the processor; the result keeps the compiler from leaving it out. */
static uint64_t compute(uint64_t steps, uint64_t x) {
    for (uint64_t i = 0; i < steps; i++) x = taciti_mix64(x + i);
    return x;
}

/* Steps that take PIECE_S of a processor. */
static uint64_t calibrate(void) {
    volatile uint64_t sink = 1;
    uint64_t steps = CALIBRATION_STEPS;
    double spent_s = 0;
    while (spent_s < PIECE_S) {
        steps *= 2;
        const int64_t begin_ns = taciti_thread_ns();
        sink = compute(steps, sink);
        spent_s = (double)(taciti_thread_ns() - begin_ns) / 1e9;
    }
    return (uint64_t)((double)steps * PIECE_S / spent_s) + 1;
}

/* Durations of the pieces; returns processor time / time. */
static double do_pieces(uint64_t steps, double *seconds, size_t pieces) {
    volatile uint64_t sink = 1;
    const int64_t begin_ns = taciti_now_ns(), cpu_ns = taciti_thread_ns();
    int64_t last_ns = begin_ns;
    for (size_t i = 0; i < pieces; i++) {
        sink = compute(steps, sink);
        const int64_t now_ns = taciti_now_ns();
        seconds[i] = (double)(now_ns - last_ns) / 1e9;
        last_ns = now_ns;
    }
    return (double)(taciti_thread_ns() - cpu_ns) / (double)(last_ns - begin_ns);
}

/* As many pieces as there is time for, the same number on all ranks. */
static tacit_status count_pieces(taciti_probe *probe, double share, uint64_t steps, size_t *out) {
    double warm_up[WARM_UP_PIECES], longest_s, left_s = 0;
    (void)do_pieces(steps, warm_up, WARM_UP_PIECES);
    longest_s = taciti_median(warm_up, WARM_UP_PIECES);
    TACITI_TRY(taciti_comm_allreduce_f64(probe->comm, &longest_s, 1, TACITI_OP_MAX));
    TACITI_TRY(taciti_probe_left(probe, share, &left_s));
    const double max = probe->options->quick ? PIECES_QUICK : PIECES_MAX, fit = left_s / longest_s;
    *out = fit > max ? (size_t)max : fit > PIECES_MIN ? (size_t)fit : PIECES_MIN;
    return TACIT_OK;
}

static tacit_status note_shared_cores(taciti_probe *probe, double busy) {
    char note[160];
    if (busy >= BUSY_SHARE) return TACIT_OK;
    (void)snprintf(note, sizeof note,
                   "ranks had a core for %.0f %% of the compute test: more ranks than cores, or other programs; the "
                   "jitter is theirs",
                   100 * busy);
    return taciti_cluster_add_note(probe->cluster, note);
}

tacit_status taciti_probe_compute(taciti_probe *probe, double share) {
    uint64_t steps = probe->rank == 0 ? calibrate() : 0;
    size_t pieces = 0;
    taciti_probe_say(probe, "computation, on all ranks at once");
    TACITI_TRY(taciti_comm_broadcast(probe->comm, 0, &steps, sizeof steps));
    TACITI_TRY(count_pieces(probe, share, steps, &pieces));
    double *mine = taciti_calloc(pieces, sizeof *mine), busy = 0;
    double *all = taciti_calloc(pieces * (size_t)probe->size, sizeof *all);
    tacit_status status = taciti_comm_agree(probe->comm, mine == NULL || all == NULL ? TACIT_E_MEMORY : TACIT_OK);
    if (status == TACIT_OK) {
        busy = do_pieces(steps, mine, pieces) / probe->size;
        status = taciti_comm_allreduce_f64(probe->comm, &busy, 1, TACITI_OP_SUM);
    }
    if (status == TACIT_OK) status = taciti_comm_allgather(probe->comm, mine, pieces * sizeof *mine, all);
    if (status == TACIT_OK) {
        const taciti_jitter jitter = taciti_jitter_of(all, (size_t)probe->size, pieces);
        probe->cluster->compute_cv = jitter.cv;
        probe->cluster->compute_lag1 = jitter.lag1;
        probe->cluster->compute_rank_spread = probe->size > 1 ? jitter.rank_spread : -1;
        status = note_shared_cores(probe, busy);
    }
    taciti_free(mine);
    taciti_free(all);
    return status;
}
