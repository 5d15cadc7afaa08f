/* SPDX-License-Identifier: Apache-2.0
 *
 * A codec turns f32[n] into a payload of bytes and back; one method per file. It sees one array and the settings of
 * one call. It knows no communicator, allocates nothing, prints nothing, and keeps neither a residual (error feedback
 * belongs to the exchange and works with any codec) nor hidden state: encode and decode are functions of their
 * arguments, so an encode can be repeated, and a step that is dropped leaves no trace.
 *
 * The aggregation class says how payloads of several ranks combine:
 *
 *   SUM     every payload covers all n elements; adding the decoded payloads in rank order gives the sum of the arrays
 *   GATHER  payloads of different ranks select different elements; adding each in rank order gives the sum
 *   LINEAR  the payload is f32[m], with the same m on all ranks; the sum of the payloads decodes to the sum of the
 *           arrays. An all-reduce of floats carries it
 *
 * A codec of class LINEAR may need several rounds: every rank encodes, the payloads are summed, and the encode of the
 * next round reads that sum in `before`. Only the last round's payload is decoded. Its state is the same on all ranks:
 * the decode of the last round writes it, from the summed payload.
 *
 * A majority vote (`votes`) is a codec of class SUM that decodes to +1 and -1 and encodes the sign of a sum.
 *
 * A value that is not finite always travels: what is decoded is not finite there, or in its block. So every rank skips
 * that step.
 *
 * A new codec is one C file and one line in codec/registry.c; ARCHITECTURE.md has the recipe.
 */
#ifndef TACITI_CODEC_CODEC_H
#define TACITI_CODEC_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/option.h"
#include "base/rng.h"
#include "tacit/tacit.h"

typedef enum taciti_codec_class { TACITI_CODEC_SUM, TACITI_CODEC_GATHER, TACITI_CODEC_LINEAR } taciti_codec_class;

/* How strongly one call compresses. {0}: the codec's default. */
typedef struct taciti_codec_setting {
    double factor;    /* elements per element that is sent, k = max(1, floor(n / factor)); 1: all; or see `rungs` */
    double threshold; /* > 0: sends the elements with |v| >= threshold instead; for codecs with `thresholds` */
} taciti_codec_setting;

/* Counts of what encodes have seen; every call adds to them. The same bits on every instruction set. */
typedef struct taciti_codec_tally {
    double squares_in, squares_out; /* |v|^2 and |decoded payload|^2, in double */
    uint64_t n, selected;           /* elements; those that were sent */
    uint64_t near;                  /* of codecs with `thresholds`: elements with |v| >= half the threshold used,
                                       which tell the slope of the distribution */
    double threshold;               /* of the same: the largest threshold used in any call */
} taciti_codec_tally;

/* The matrices within an array, for codecs of low rank. */
typedef struct taciti_codec_matrix {
    size_t at, rows, columns; /* at: first element in the array */
} taciti_codec_matrix;

/* Arguments of one encode or decode besides the array. {0} suits a codec without options, setting and key. The
 * decoder gets the options, key, round and `before` of the encoder, but not the setting: a payload says
 * itself what else its decoder must know. With class LINEAR the decoder gets all of it, because setting and state are
 * the same on all ranks. */
typedef struct taciti_codec_call {
    const void *options; /* the struct that the codec's option table fills; NULL if it has none */
    taciti_codec_setting setting;
    uint64_t key;        /* taciti_codec_key(), then folded with whatever else tells this array from others */
    const void *state;   /* LINEAR: linear_state_bytes() as the last step that was taken left them; at first zeros */
    void *next;          /* LINEAR: those that the last decode writes in full; they become `state` if the
                            step is taken; NULL: not wanted */
    int round;           /* 0 .. rounds - 1 */
    const float *before; /* [payload_n of the round before]: the sum of that round's payloads; NULL in round 0 */
    int rank, ranks;     /* LINEAR: of the encoder, 0 .. ranks - 1, and how many payloads are summed */
    void *scratch;       /* scratch_bytes(), aligned to 64, contents unspecified; encode and decode may use it */
    taciti_codec_tally *tally;           /* encode adds to it; NULL: not wanted */
    const taciti_codec_matrix *matrices; /* [n_matrices], ascending; NULL: unknown */
    size_t n_matrices;
} taciti_codec_call;

typedef struct taciti_codec taciti_codec;

/* One of the forms that a codec of several has (codec/mixed.c). */
typedef struct taciti_codec_rung {
    double factor;             /* about how many times fewer bytes than in f32 */
    const taciti_codec *codec; /* sends this form */
    const void *options;       /* of that codec */
    double selects;            /* the factor of its setting; 0: it sends all elements */
    double loss; /* percent by which training may end above dense, as measured (docs/results/compression.md) */
} taciti_codec_rung;

enum { TACITI_CODEC_RUNGS = 5 }; /* at most */

struct taciti_codec {
    const char *name;   /* "f32": option value, payload record, documentation */
    const char *help;   /* one sentence */
    const char *source; /* paper or standard */
    bool reference;     /* it is there to compare with: no result recommends it; listed and measured on request */
    const char *preset; /* "key=value ...": defaults of other sections that the method needs; NULL: none */
    const taciti_option_table *options; /* NULL: none */
    size_t options_size;                /* of the struct that `options` fills */
    taciti_codec_class aggregation;
    int rounds;       /* dependent exchanges per bucket; 1 unless the method needs an intermediate result */
    bool fixed_size;  /* every payload has exactly bound() bytes */
    bool lossless;    /* decode(encode(x)) == x for every finite x, at every setting */
    bool no_feedback; /* the encoding error may be larger than the array: error feedback would grow without limit.
                         Others contract, |x - decode(encode(x))| <= |x| */
    bool selects;     /* it has a factor: elements are selected, the others are not sent */
    bool thresholds;  /* it also selects by taciti_codec_setting.threshold */
    bool sketches;    /* contributions travel as sketches that add up (exchange/sketch_reduce.h): options are
                         taciti_sketch_options, payloads lossless for what is selected, and every setting with the
                         threshold FLT_TRUE_MIN selects all elements that are not 0 */
    const taciti_codec_rung *rungs; /* it sends the form of the last rung up to the setting's factor; ascending, those
                              that select last; behind them one with factor 0. NULL: it has no such choice */
    bool votes;         /* a sum of payloads becomes the result only when its owner encodes it: a majority vote */
    bool number_format; /* each element becomes one number of fewer bits: the codec can be `exchange.wire` */
    bool identity;      /* the payload is the array's own bytes: the exchange may send from the array itself */
    bool shared_key;    /* all ranks must get the same key, because they must make the same choices */
    bool keyless;       /* neither encode nor decode reads the key: the exchange need not compute it */
    const void *method; /* what one of several codecs with the same functions has of its own; theirs alone */

    /* Functions receive their codec first. */

    /* Maximum bytes of a payload of n floats, for every setting. Grows with n. LINEAR: of the last round on one rank;
     * payload_n() tells the others. Any thread. */
    size_t (*bound)(const taciti_codec *codec, const void *options, size_t n);

    /* Mean bytes of a payload of n floats, of all rounds together, for predictions: a function of the call's options,
     * setting, matrices and ranks. NULL: bound(); LINEAR: payload_n() of all rounds. Any thread. */
    double (*expected_bytes)(const taciti_codec *codec, const taciti_codec_call *call, size_t n);

    /* Bytes of scratch memory for arrays of up to n floats. NULL: none is needed. Any thread. */
    size_t (*scratch_bytes)(const taciti_codec *codec, const void *options, size_t n);

    /* Class LINEAR only, NULL for others: floats of the payload of call->round, 0: the round is skipped; and bytes of
     * the state (0 without one). Functions of n and of the call's options, setting, round, matrices and ranks,
     * so they are the same on all ranks. Any thread. */
    size_t (*payload_n)(const taciti_codec_call *call, size_t n);
    size_t (*linear_state_bytes)(const taciti_codec_call *call, size_t n);

    /* Encodes x[n] into `out`, which holds bound() bytes and is aligned to 4, and sets *bytes to the payload's length.
     * error[n], if not NULL, receives the encoding error x - decode(payload), in the same pass; it overlaps neither x
     * nor out. On an error outputs are unspecified. Communication thread; never blocks. */
    tacit_status (*encode)(const taciti_codec *codec, const taciti_codec_call *call, const float *x, size_t n,
                           void *out, float *error, size_t *bytes);

    /* x[n] = decoded payload, elements that it does not select become 0; add: x[n] += decoded payload. `payload` is
     * aligned to 4; LINEAR: of the last round. Checks the whole payload before it writes anything: returns E_DATA if
     * the payload is malformed, and leaves x untouched. */
    tacit_status (*decode)(const taciti_codec *codec, const taciti_codec_call *call, const void *payload, size_t bytes,
                           float *x, size_t n, bool add);
};

/* Key of one bucket and step, for stochastic methods. rank: of the encoder, or TACITI_CODEC_ALL_RANKS for a codec
 * whose key is shared. Any thread. */
enum { TACITI_CODEC_ALL_RANKS = -1 };
static inline uint64_t taciti_codec_key(uint64_t seed, int64_t step, int rank, size_t bucket) {
    const uint64_t stream = taciti_rng_key(taciti_rng_key(seed, 'c'), (uint64_t)step);
    return taciti_rng_key(taciti_rng_key(stream, (uint64_t)(int64_t)rank), bucket);
}

/* The mean bytes that one encoder sends of n floats, in all rounds together. Any thread. */
double taciti_codec_expected_bytes(const taciti_codec *codec, const taciti_codec_call *call, size_t n);

/* Return the last rung up to that factor, at least the first, factor 0: the last of all; and the last rung that loses
 * at most `loss` percent, without `selecting` of those that send all elements. For codecs with rungs. */
static inline const taciti_codec_rung *taciti_codec_rung_at(const taciti_codec *codec, double factor) {
    const taciti_codec_rung *rung = codec->rungs;
    while (rung[1].factor > 0 && (factor == 0 || rung[1].factor <= factor)) rung++;
    return rung;
}
static inline const taciti_codec_rung *taciti_codec_rung_within(const taciti_codec *codec, double loss,
                                                                bool selecting) {
    const taciti_codec_rung *rung = codec->rungs;
    while (rung[1].factor > 0 && rung[1].loss <= loss && (selecting || rung[1].selects == 0)) rung++;
    return rung;
}

/* Counts n elements all of which were sent. tally NULL: not wanted. */
static inline void taciti_codec_count_all(taciti_codec_tally *tally, double squares_in, double squares_out, size_t n) {
    if (tally == NULL) return;
    tally->squares_in += squares_in;
    tally->squares_out += squares_out;
    tally->n += n;
    tally->selected += n;
    tally->near += n;
}

/* All codecs, those for reference last, ending with NULL. Any thread. */
const taciti_codec *const *taciti_codec_list(void);

/* For options of type NAME: names of codecs, those of reference codecs as names that are not shown. Any thread. */
const char *taciti_codec_name(size_t index);

/* "sum", "gather" or "linear". Any thread. */
const char *taciti_codec_class_name(const taciti_codec *codec);

/* Returns the name of the index-th property that lists of codecs show, and sets *letter to its letter if the codec has
 * it, else to '-'. NULL behind the last. Any thread. */
const char *taciti_codec_property(const taciti_codec *codec, size_t index, char *letter);

/* The codec called `name`, or NULL. Any thread. */
const taciti_codec *taciti_codec_find(const char *name);

/* Whether the codec can be `exchange.wire` (taciti_codec.number_format). Any thread. */
bool taciti_codec_is_dense(const taciti_codec *codec);

/* The name of the index-th dense codec of the list, or NULL behind the last: what `exchange.wire` may be. */
const char *taciti_codec_dense_name(size_t index);

#endif
