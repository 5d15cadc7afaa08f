/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of a rank's encodings of a bucket from step to step, one of
 *
 * - errors: error feedback. v = x + decay * residual is encoded; what v loses is the next residual. With momentum
 *   (Y. Lin et al., "Deep Gradient Compression", ICLR 2018, arXiv 1712.01887, section 3.2 and 3.3):
 *   u = momentum * u + x, v = u + decay * residual, and u becomes 0 where v was sent. The result has neither decay nor
 *   momentum.
 * - estimates: EF21 (P. Richtarik, I. Sokolov, I. Fatkhullin, arXiv 2106.05203, algorithm 2). x - estimate is encoded,
 *   and what is decoded is added to the estimate, by the sender and by the receivers. Every rank has an estimate of its
 *   contribution, an owner the sum of these, and all ranks an estimate of that sum, which is the result.
 *
 * Arrays have an element for every element of the bucket, at its position, so the number of ranks may change between
 * two runs. A rank writes to those elements only that it encodes; the memory of the others stays untouched.
 *
 * Commit and drop: there are two versions of everything. An encoding reads the version of the last committed step and
 * writes the other one. Committing a step swaps the versions; dropping it changes nothing. An array that is known to be
 * zero is neither read nor added.
 *
 * Errors are stored as floats, or in fewer bits: as bf16, or in lines of 16 with one scale (kernel line8_*). Both
 * versions are narrow. An encoding works on floats: enter widens a range into `scratch`, where the error is also
 * written, and leave narrows it. That rounding is lost; a dropped step changes no stored bit all the same.
 */
#ifndef TACITI_EXCHANGE_RESIDUAL_H
#define TACITI_EXCHANGE_RESIDUAL_H

#include "exchange/payload.h"

typedef enum taciti_residual_array {
    TACITI_RESIDUAL_CONTRIBUTION, /* residuals or estimates of this rank's contributions */
    TACITI_RESIDUAL_RESULT,       /* residuals of the results that it owns, or the sum of all ranks' estimates */
    TACITI_RESIDUAL_MEMORY,       /* momentum: u; estimates: that of the sum, as all ranks know it */
    TACITI_RESIDUAL_ARRAYS
} taciti_residual_array;

/* Two versions of one array. */
typedef struct taciti_versions {
    char *at[2];  /* borrows; NULL: there is none */
    size_t bytes; /* of a version */
    int now;      /* that of the last committed step */
    bool held[2]; /* may hold something else than zeros */
    bool written; /* the step under way has written the other version */
} taciti_versions;

/* The residuals of one bucket. The owner of the object sets what stands above `flushed`. {0} stores nothing. */
typedef struct taciti_residual {
    bool encodes; /* false: nothing is encoded, and the arrays hold only what a checkpoint brings */
    taciti_feedback feedback;
    bool results;  /* results are encoded, too */
    float *errors; /* [n] of the bucket: takes those of this rank's encodings, which are no feedback then; borrows */
    float back; /* with `errors`: this rank's result is the decoded one + back * errors; 0: all members have the same */
    const taciti_layout *layout; /* of the bucket: nothing is stored in its gaps; borrows; NULL: there are none */
    size_t bucket;
    float *scratch; /* of narrow forms and `errors`; borrows. Holds one range, or the whole bucket, each element at its
                       place */
    size_t scratch_n;
    bool scratch_is_bucket; /* several ranges are entered before the first one is left */

    bool flushed; /* in the step under way, arrays have been added to the bucket and count as empty */
    taciti_versions arrays[TACITI_RESIDUAL_ARRAYS];
} taciti_residual;

/* Where an encoding belongs: a range of the bucket. */
typedef struct taciti_residual_place {
    taciti_payload_kind kind;
    size_t at, n;
} taciti_residual_place;

/* Bytes of n floats in that form. Floats `at` .., a multiple of 16, begin at byte taciti_residual_form_bytes(at). */
size_t taciti_residual_form_bytes(taciti_residual_form form, size_t n);

/* Convert floats at .. at + n of what is stored; of a short last line of int8, zeros are stored behind it. Any thread.
 */
void taciti_residual_widen(taciti_residual_form form, const void *stored, size_t at, float *out, size_t n);
void taciti_residual_narrow(taciti_residual_form form, void *stored, size_t at, const float *x, size_t n);

/* Bytes of one version of an array for a bucket of n floats. */
size_t taciti_residual_bytes(const taciti_residual *residual, taciti_residual_array which, size_t n);

/* Whether a flush would add nothing: no step has left errors that are not zeros. Communication thread. */
bool taciti_residual_is_empty(const taciti_residual *residual);

/* Begins a bucket's step. flush: x[n] of the whole bucket += residuals (momentum: and u), which then count as empty, u
 * also after an encoding of the same step.
 * Communication thread, like the next four. */
void taciti_residual_begin(taciti_residual *residual, bool flush, float *x, size_t n);

/* Prepares the encoding of x[place.n]: turns x into what is to be encoded. Returns the array
 * for the encoding error, or NULL. */
float *taciti_residual_enter(taciti_residual *residual, const taciti_residual_place *place, float *x);

/* Called after the encoding of x, with its payload. */
tacit_status taciti_residual_leave(taciti_residual *residual, const taciti_residual_place *place, const float *x,
                                   const taciti_codec *codec, const taciti_codec_call *call, taciti_payload payload);

/* leave() for an error that was changed after it, and for encodings without payload: elements at .. are stored as they
 * are now in the array that enter() has returned, with zeros in gaps. */
void taciti_residual_keep(taciti_residual *residual, taciti_payload_kind kind, size_t at, size_t n);

/* Estimates: x[n], the sum of what was decoded for elements at .. of the bucket, becomes the array's new content. */
void taciti_residual_accumulate(taciti_residual *residual, taciti_residual_array which, size_t at, float *x, size_t n);

/* End a step of a bucket. Drop: everything is as before. Commit: `swap` says for each array whether its versions change
 * places, which is necessary if any bucket has written to it; a bucket that has not keeps its content. No run may be
 * under way. */
void taciti_residual_drop(taciti_residual *residual);
void taciti_residual_commit(taciti_residual *residual, const bool swap[TACITI_RESIDUAL_ARRAYS]);

#endif
