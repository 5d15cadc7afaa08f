/* SPDX-License-Identifier: Apache-2.0
 *
 * sparseloco: sends the largest elements of every chunk, in 2 bits each.
 *
 * Source: Sarfi, Therien, Lidin and Belilovsky, "Communication Efficient LLM Pre-training with SparseLoCo"
 * (2508.15706), algorithm 1: top-k of chunks of 4096, 2-bit values, error feedback with decay 0.95 in the place of the
 * outer momentum.
 * k of a chunk -> chunk / factor (preset: 64 of 4096); beta -> compress.feedback; the outer step has
 * no momentum and rate 1 (preset).
 *
 * Deviations: chunks are 4096 consecutive elements, not tiles of 64 x 64; a shorter last chunk keeps its share. Ranks
 * that do not send an element count as 0 in its mean, as in the equations, not as in the code.
 *
 * Properties (test_selection.c): what is sent are the largest of every chunk, lower indices first; with values f32
 * they arrive bit for bit; golden vectors of two steps; class GATHER; deterministic.
 *
 * Wire layout: composed.c.
 */
#include "codec/largest.h"
#include "codec/selector.h"

enum { CHUNK = 4096, DEFAULT_FACTOR = 64 };

static size_t kept_of_chunk(taciti_codec_setting setting, size_t length) {
    return taciti_kept_of(setting.factor, DEFAULT_FACTOR, length);
}

/* Adds what one chunk selects. The chunk before gave the hint. */
static void select_chunk(const float *x, size_t at, size_t length, size_t k, float *work, taciti_selection *out,
                         uint32_t *hint) {
    taciti_selection chunk = {.indices = out->indices + out->count,
                              .values = out->values + out->count,
                              .error = out->error != NULL ? out->error + at : NULL,
                              .measure = out->measure};
    taciti_select_largest_of_chunk(x + at, length, k, work, &chunk, hint);
    for (size_t i = 0; i < chunk.count; i++) chunk.indices[i] += (uint32_t)at;
    out->count += chunk.count;
    out->near += chunk.near;
    out->squares += chunk.squares;
    if (chunk.count > 0 && (out->threshold == 0 || chunk.threshold < out->threshold)) out->threshold = chunk.threshold;
}

static void select_chunks(const taciti_codec_call *call, const float *x, size_t n, void *scratch,
                          taciti_selection *out) {
    uint32_t hint = 1;
    if (kept_of_chunk(call->setting, CHUNK) >= CHUNK) {
        taciti_select_largest(x, n, n, scratch, out);
        return;
    }
    for (size_t at = 0; at < n; at += CHUNK) {
        const size_t length = n - at < CHUNK ? n - at : CHUNK;
        select_chunk(x, at, length, kept_of_chunk(call->setting, length), scratch, out, &hint);
    }
}

static size_t kept_of_chunks(const taciti_codec_call *call, size_t n) {
    const size_t rest = n % CHUNK;
    return n / CHUNK * kept_of_chunk(call->setting, CHUNK) + (rest > 0 ? kept_of_chunk(call->setting, rest) : 0);
}

static const taciti_selector SELECTOR = {.select = select_chunks, .kept = kept_of_chunks, .values = "signmag2"};

extern const taciti_codec taciti_codec_sparseloco;
const taciti_codec taciti_codec_sparseloco = {
    TACITI_COMPOSED(SELECTOR),
    .name = "sparseloco",
    .reference = true,
    .help = "sends the largest 1 / factor of every 4096 elements in 2 bits each",
    .source = "Sarfi et al. 2025 (2508.15706)",
    .preset = "compress.factor=64 compress.feedback=0.95 localsgd.outer_momentum=0 localsgd.outer_lr=1",
    .selects = true,
    .keyless = true,
};
