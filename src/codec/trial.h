/* SPDX-License-Identifier: Apache-2.0
 *
 * A codec at work on gradient-like data, as an exchange uses it: piece by piece, with error feedback, the payloads in a
 * few buffers that are used again and again. `tacit bench codecs` and `tacit probe` time its passes.
 */
#ifndef TACITI_CODEC_TRIAL_H
#define TACITI_CODEC_TRIAL_H

#include "base/memory.h"
#include "codec/codec.h"

/* Fills x[n] with numbers like those of a gradient: symmetric, heavy tails (a mixture of two Laplace distributions),
 * and a scale for each stretch of TACITI_TRIAL_LAYER elements that differs by up to 100 times from that of others. A
 * function of seed and index. */
enum { TACITI_TRIAL_LAYER = 1 << 17 };
void taciti_gradient_like(uint64_t seed, float *x, size_t n);

/* The work of a pass over all pieces. DECODE and ADD need a pass of an encode before them. */
typedef enum taciti_trial_pass {
    TACITI_TRIAL_FEEDBACK, /* v = gradient + error of the pass before; encode(v), with the error */
    TACITI_TRIAL_ENCODE,   /* encode(gradient) */
    TACITI_TRIAL_DECODE,
    TACITI_TRIAL_ADD, /* decode, and add */
    TACITI_TRIAL_PASSES
} taciti_trial_pass;

typedef struct taciti_trial {
    const taciti_codec *codec;
    const void *options;
    taciti_codec_setting setting;
    size_t n, piece_n;      /* floats: whole pieces; of a piece */
    const float *gradient;  /* [n]; borrowed */
    taciti_pages arrays[3]; /* [n] two that are error and v in turns, and the decoded one; owned, as are all below */
    taciti_pages payloads;  /* a few, `stride` bytes apart */
    taciti_pages scratch;   /* of the codec; then what a codec of several rounds is told of the round before */
    taciti_pages states;    /* of all pieces, before and after the pass */
    size_t stride, state_stride, before_at;
    size_t *bytes;              /* of each payload that is kept */
    size_t payload_bytes;       /* of all pieces, in the last pass of an encode */
    taciti_codec_tally tally;   /* of the same pass */
    taciti_codec_matrix matrix; /* what a piece is called; rows 0: it is too short for one */
    int now;                    /* which of arrays[0..1] and of the states is that of the pass before */
} taciti_trial;

/* n is rounded down to whole pieces of piece_n floats; 0: the whole array is one. Borrows options and gradient. Returns
 * owned; after an error destroy is legal, too. */
tacit_status taciti_trial_create(const taciti_codec *codec, const void *options, taciti_codec_setting setting,
                                 const float *gradient, size_t n, size_t piece_n, taciti_trial *out);
void taciti_trial_destroy(taciti_trial *trial); /* {0} is fine */

/* Makes one pass. Any thread. */
tacit_status taciti_trial_run(taciti_trial *trial, taciti_trial_pass pass);

/* Returns the errors [n] of the last FEEDBACK pass. */
static inline const float *taciti_trial_error(const taciti_trial *trial) {
    return (const float *)trial->arrays[trial->now].base;
}

/* Bytes that a pass cannot but read and write, the payloads included. */
double taciti_trial_moved_bytes(const taciti_trial *trial, taciti_trial_pass pass);

/* Bytes that the codec itself needs in a trial of one piece of n floats: payload, scratch memory, states. */
double taciti_trial_codec_bytes(const taciti_codec *codec, const void *options, size_t n);

/* The options of a codec at their defaults; NULL for a codec without options. Returns owned; taciti_free(). */
tacit_status taciti_codec_defaults(const taciti_codec *codec, void **out);

#endif
