/* SPDX-License-Identifier: Apache-2.0
 *
 * The communication pattern of a strategy's step, as far as time is concerned. The planner prices patterns and does not
 * know strategies.
 */
#ifndef TACITI_STRATEGY_PATTERN_H
#define TACITI_STRATEGY_PATTERN_H

#include <stdbool.h>

#include "codec/codec.h"
#include "exchange/arrangement.h"
#include "optim/optim.h"
#include "tensor/layout.h"
#include "topo/topo.h"

/* When the exchange happens. DENSE: the gradient's exchange overlaps backward, and the update needs all of it. AWC:
 * parameters are exchanged during the next step. ATC: parameters are exchanged after the update, in the same step.
 * PARTS: gradients are reduce-scattered once, parameters gathered unit by unit (taciti_parts). ASYNC: as AWC, but two
 * ranks mix when both are ready, and nobody waits. */
typedef enum taciti_order {
    TACITI_ORDER_DENSE,
    TACITI_ORDER_AWC,
    TACITI_ORDER_ATC,
    TACITI_ORDER_PARTS,
    TACITI_ORDER_ASYNC
} taciti_order;

/* Bytes of the flat arrays of one rank. */
typedef struct taciti_strategy_memory {
    size_t parameters, gradients, copy16, moments;
} taciti_strategy_memory;

/* The arrays that ranks hold in parts. Every rank updates its own part of the parameters. */
typedef struct taciti_parts {
    int passes;     /* that gather parameters: 1 the forward pass, 2 the backward pass as well */
    bool gradients; /* the sum of one unit at most is under way while another unit's gradients are written */
    const taciti_codec *gather;    /* number format of the gathers; that of the sums is the wire */
    const taciti_codec *automatic; /* what compresses gathers with compress.codec auto; NULL: nothing */
    bool replicas;  /* the ranks of a host hold all parts between them, as on every other host: gathers stay inside, and
                       the sums of a part go on between hosts, to all that hold it */
    bool secondary; /* the ranks of a host keep between them what was gathered: a second gather stays inside */
    bool coded; /* gathers are compressed: changes of parameters with one pass, else their values. The planner sets it
                   for memory() and flags() */

    /* How ranks are arranged for its sums and gathers. */
    taciti_placement (*placement)(const taciti_hosts *hosts, taciti_placement requested);

    /* Predicts the memory of the largest part, that of the first rank, as taciti_unit_verbs.memory does. */
    void (*memory)(const struct taciti_parts *parts, const taciti_layout *layout, const taciti_optim_options *optim,
                   const taciti_arrangement *arrangement, taciti_strategy_memory *out);

    /* Writes what to type for these parts with their strategy, without compression. `coded` counts. */
    void (*flags)(const struct taciti_parts *parts, char *out, size_t size);
} taciti_parts;

/* Returns the stage, as ZeRO counts it: 1 moments, 2 also gradients, 3 also parameters. */
static inline int taciti_parts_stage(const taciti_parts *parts) {
    return parts->passes == 2 ? 3 : parts->gradients ? 2 : 1;
}

/* Sums over all ranks in a run whose replicas mix. {0}: none. */
typedef struct taciti_common_sums {
    double start;              /* share of the steps, at the start of a run, that sum gradients instead of mixing */
    int64_t every;             /* steps between two sums of an array of signals, with Adam; 0: none */
    const taciti_codec *codec; /* of these gradients and of the signals */
} taciti_common_sums;

typedef struct taciti_pattern {
    char label[64]; /* "dense", "gossip aer awc", "shard 3": first column of `tacit plan` */
    taciti_order order;
    taciti_topo_request topology; /* of the exchange; name NULL: all ranks. The planner sets ranks and hosts */
    int every;                    /* steps per exchange */
    const char *shorten;          /* the options that make the exchange repeat sooner; NULL: it repeats in every step */
    int delay;                    /* awc: additional iterations that a transfer may take */
    int also_mixed;               /* arrays that are mixed together with the parameters */
    taciti_common_sums common;    /* beside the exchange of a topology */
    size_t arrays;                /* flat ones of f32 that a rank holds beside parameters, gradients and moments */
    bool compresses;              /* its sums over all ranks can go through compress.codec */
    taciti_parts parts;           /* of order PARTS */
    bool configured;              /* the pattern of the options; the others are alternatives */
} taciti_pattern;

enum { TACITI_PATTERNS_MAX = 64 };

#endif
