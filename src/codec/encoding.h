/* SPDX-License-Identifier: Apache-2.0
 *
 * The description of a compressed sum, from the options to the codec, and what follows from it without a communicator:
 * how long payloads are, what an encode is told, what the codec is good for. Callers outside of codec/ ask for these
 * answers instead of testing the properties of a codec.
 */
#ifndef TACITI_CODEC_ENCODING_H
#define TACITI_CODEC_ENCODING_H

#include "codec/codec.h"

/* How payloads travel between hosts (between ranks, in the flat arrangement). */
typedef enum taciti_way {
    TACITI_WAY_AUTO,    /* whichever sends fewer bytes; gather between two */
    TACITI_WAY_SCATTER, /* parts to their owners, who encode the sum for all: two encodings */
    TACITI_WAY_GATHER   /* everything to all: one encoding; only contributions have residuals */
} taciti_way;

typedef enum taciti_residual_form {
    TACITI_RESIDUAL_F32,
    TACITI_RESIDUAL_BF16,
    TACITI_RESIDUAL_INT8
} taciti_residual_form;

/* The form in which a rank keeps its encoding errors for the next step (exchange/residual.h). {0}: nothing. */
typedef struct taciti_feedback {
    bool errors;                 /* errors are added to what is encoded next */
    double decay;                /* factor of a contribution's residual; 1: nothing is forgotten */
    double momentum;             /* of contributions; 0: none. Without errors u itself is encoded, and stays (Signum) */
    bool estimates;              /* EF21 instead: without errors, decay and momentum */
    bool half;                   /* results have none: what ranks own is not the sum that they gather */
    taciti_residual_form stored; /* how errors are; other than f32: without estimates and momentum */
} taciti_feedback;

/* A sum, from the options to the codec: what is not said is 0. */
typedef struct taciti_encoding {
    const taciti_codec *codec;     /* NULL: nothing is compressed */
    const void *options;           /* the codec's; borrowed; NULL if it has none */
    uint64_t seed;                 /* of the keys */
    taciti_codec_setting expected; /* messages are sized for payloads at this setting; every other one is legal, too */
    taciti_codec_setting back;     /* what predictions expect of results; factor 0: as `expected` */
    taciti_feedback feedback;
    taciti_way way; /* of payloads between their owners */
} taciti_encoding;

/* Purposes for which a codec may be wanted. */
typedef enum taciti_codec_use {
    TACITI_USE_SUMS,       /* owners of ranges add payloads up */
    TACITI_USE_FEEDBACK,   /* its errors are added to what it encodes next, and do not grow without limit */
    TACITI_USE_MAGNITUDES, /* its sums have the scale of what was added, and are no votes on a direction */
    TACITI_USE_VALUES,     /* no element of an array is left out */
    TACITI_USE_FACTORS,    /* a factor says how many of the elements it sends */
    TACITI_USE_COPIES,     /* what is decoded is what was encoded */
    TACITI_USE_BY_OTHERS,  /* any rank makes the payloads of all, without scratch memory */
    TACITI_USE_BY_ITSELF   /* results recommend it, and neither another codec nor exchange.wire sends the same */
} taciti_codec_use;
bool taciti_codec_suits(const taciti_codec *codec, taciti_codec_use use);

/* Returns the part of a setting that the codec reads; the rest is 0, such as the factor of a codec that has none. */
taciti_codec_setting taciti_codec_setting_of(const taciti_codec *codec, taciti_codec_setting wanted);

/* Returns the name to type for a number format that rounds; NULL: it is f32, the default. */
const char *taciti_codec_narrow_name(const taciti_codec *format);

/* Length of a payload of n floats in bytes. */
typedef struct taciti_payload_length {
    size_t max;
    bool exact; /* every payload has `max` bytes */
} taciti_payload_length;
static inline taciti_payload_length taciti_codec_length(const taciti_codec *codec, const void *options, size_t n) {
    return (taciti_payload_length){codec->bound(codec, options, n), codec->fixed_size};
}

static inline size_t taciti_encoding_bound(const taciti_encoding *encoding, size_t n) {
    return encoding->codec->bound(encoding->codec, encoding->options, n);
}

/* Bytes of scratch memory for encoding or decoding up to n floats, a multiple of 64. */
size_t taciti_encoding_scratch_bytes(const taciti_encoding *encoding, size_t n);

/* Whether payloads are made from arrays and decoded; false: they are the bytes of the arrays themselves. */
static inline bool taciti_encoding_encodes(const taciti_encoding *encoding) { return !encoding->codec->identity; }

/* Whether the payloads of some ranges may be much longer than those of others: where a threshold of the whole model
 * selects, they are long where the model's large elements are. */
static inline bool taciti_encoding_is_uneven(const taciti_encoding *encoding) { return encoding->codec->thresholds; }

/* Elements per element sent of contributions, as expected; 1: all elements are sent. */
double taciti_encoding_factor(const taciti_encoding *encoding);

/* Sets *out to the share that one encoding loses of normally distributed numbers: |x - decode(encode(x))| / |x|.
 * Allocates for the call. */
tacit_status taciti_encoding_loss(const taciti_encoding *encoding, double *out);

/* Returns the setting of the result of these contributions, which has no more elements than they have together. */
taciti_codec_setting taciti_encoding_result_setting(const taciti_encoding *encoding, int contributions);

/* Mean bytes of a payload of n floats, between that many ranks. Matrices count as ones of 1024 columns. */
double taciti_encoding_expected_bytes(const taciti_encoding *encoding, taciti_codec_setting setting, size_t n,
                                      int ranks);

/* Returns the floats, a multiple of `grain` and at most max_n, whose payload is expected to have up to `bytes`. For
 * number formats: whose bytes in f32 are, so that all of them divide an array alike. *buffer receives the bytes that a
 * payload may need. */
size_t taciti_encoding_segment(const taciti_encoding *encoding, size_t bytes, size_t grain, size_t max_n,
                               size_t *buffer);

/* Returns the call for the payload that `rank` encodes of a bucket. part: tells the payloads of one bucket, rank and
 * step apart. */
static inline taciti_codec_call taciti_encoding_call(const taciti_encoding *encoding, taciti_codec_setting setting,
                                                     int64_t step, int rank, size_t bucket, uint64_t part) {
    const taciti_codec *codec = encoding->codec;
    taciti_codec_call call = {.options = encoding->options, .setting = setting};
    if (codec->keyless) return call; /* 40 ns, which short arrays would feel */
    const int who = codec->shared_key ? (int)TACITI_CODEC_ALL_RANKS : rank;
    call.key = taciti_rng_key(taciti_codec_key(encoding->seed, step, who, bucket), part);
    return call;
}

#endif
