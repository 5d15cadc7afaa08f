/* SPDX-License-Identifier: Apache-2.0
 *
 * The candidates of `tacit plan`: every strategy, topology, order and wire of this build on given ranks, with their
 * predictions.
 */
#ifndef TACITI_ADVISE_CANDIDATES_H
#define TACITI_ADVISE_CANDIDATES_H

#include "base/log.h"
#include "plan/plan.h"
#include "settings/settings.h"

enum { TACITI_CANDIDATES_MAX = 768, TACITI_TOPOLOGIES_MAX = 32 };

typedef struct taciti_candidate {
    taciti_method method;
    const char *strategy; /* name; "library", "sgp": methods of others, for comparison */
    const char *topology; /* name, or "" */
    bool theirs;          /* a method of others */
    bool configured;      /* the method that the configuration selects */
    taciti_prediction prediction;
    taciti_verdict verdict; /* against taciti_candidates_dense() */
    taciti_caution caution; /* the known effect of its compression on accuracy */
    bool priced;            /* false: nothing is known of a codec's speed; encoding counts as free */
} taciti_candidate;

/* A topology of the list on these ranks. */
typedef struct taciti_plan_topology {
    taciti_topology topology; /* owned */
    double gap;               /* 1 - contraction per round; NaN: not computed */
    size_t exact_after;       /* rounds; 0: never, or unknown */
    const char *strategy, *name;
} taciti_plan_topology;

/* A topology that these ranks do not support. */
typedef struct taciti_plan_refusal {
    const char *strategy, *name;
    char reason[TACITI_REASON_BYTES];
} taciti_plan_refusal;

typedef struct taciti_candidates {
    taciti_candidate *list; /* owned; [0] is dense with f32 */
    size_t count;
    taciti_plan_topology topologies[TACITI_TOPOLOGIES_MAX];
    size_t topology_count;
    taciti_plan_refusal refused[TACITI_TOPOLOGIES_MAX];
    size_t refused_count;
} taciti_candidates;

/* Creates the candidates without predictions. wanted: NULL-terminated names of topologies, created without figures;
 * NULL: all topologies, with figures. Borrows nothing. Returns owned; the object must not move. Logs nothing while it
 * tries topologies. */
tacit_status taciti_candidates_create(const taciti_settings *settings, const taciti_hosts *hosts,
                                      const char *const *wanted, taciti_candidates *out);
void taciti_candidates_destroy(taciti_candidates *candidates); /* {0} is fine */

/* Appends methods of others: a ring as in NCCL and Gloo, the fastest all-reduce of another library in `collectives`
 * (these ranks only) and, with sgp_s >= 0, stochastic gradient push as published, with sgp_s seconds of copying and
 * weighting per step. Borrows the cluster. */
void taciti_candidates_add_others(taciti_candidates *candidates, const taciti_cluster *cluster,
                                  const taciti_hosts *hosts, double sgp_s);

/* Predicts all candidates and compares each with the fastest dense one. Calls `progress`, if not NULL, after each of
 * them. */
tacit_status taciti_candidates_predict(taciti_candidates *candidates, const taciti_scene *scene,
                                       const taciti_plan_options *options,
                                       void (*progress)(void *context, size_t done, size_t count), void *context);

/* The topology of a candidate, or NULL. */
const taciti_plan_topology *taciti_candidate_topology(const taciti_candidates *candidates,
                                                      const taciti_candidate *candidate);

/* Returns true if the candidate mixes fast enough to be recommended: 1 / gap, the number of mixes that reduces a
 * disagreement to 1/e, is at most TACITI_PLAN_MIXES. Noise of variance s^2 per step keeps replicas about eta s /
 * sqrt(gap (2 - gap)) apart: at this bound five times as far as with a gap of 1. True for dense and localsgd. */
enum { TACITI_PLAN_MIXES = 50 };
bool taciti_candidate_mixes(const taciti_candidates *candidates, const taciti_candidate *candidate);

/* Returns the fastest dense candidate of all wires and lanes, of tacit or of another library: what every speed-up and
 * verdict compares with. */
const taciti_candidate *taciti_candidates_dense(const taciti_candidates *candidates);

/* Returns what to add to the name of a dense candidate, with a flag to type, where it is not tacit's; else "". */
const char *taciti_candidate_owner(const taciti_candidate *dense);

/* Writes the flags to type for a method of order PARTS with its strategy; codecs only if a controller takes or leaves
 * them. */
enum { TACITI_FLAGS_BYTES = 160 };
void taciti_method_flags(const taciti_method *method, char *out, size_t size);

/* Returns the fastest gossip candidate that mixes fast enough, with a mix in every `every` steps; of those
 * within 1 % of it, with links as described and with slow ones, the one that mixes best. NULL: there is none. */
const taciti_candidate *taciti_candidates_gossip(const taciti_candidates *candidates);

/* Returns the one that is as fast as the gossip candidate above, within the same 1 %, and sends far less with the same
 * order and wire, but mixes more slowly. NULL: there is none. */
const taciti_candidate *taciti_candidates_sparser(const taciti_candidates *candidates);

/* Says why taciti_candidates_gossip() returns NULL. */
const char *taciti_candidates_no_gossip(const taciti_candidates *candidates);

/* Returns the fastest of all candidates, or of those that `which` demands; NULL: there is none. Speeds of codecs must
 * be known and cautions not STRONG. */
enum {
    TACITI_FASTEST_FITS = 1,     /* those that fit into memory */
    TACITI_FASTEST_PERIODIC = 2, /* those that average all replicas now and then */
    TACITI_FASTEST_PARTS = 4     /* those of order PARTS */
};
const taciti_candidate *taciti_candidates_fastest(const taciti_candidates *candidates, int which);

/* Returns the fastest compressed candidate of class dense that may be recommended: its codec's speed is known, and its
 * caution is not STRONG; of those within 1 % of it, the one that sends most. NULL: there is none. */
const taciti_candidate *taciti_candidates_compressed(const taciti_candidates *candidates);

/* "pays: 1.6x (1.5-1.7) with gossip aer awc f32 instead of dense bf16", "does not pay: keep dense bf16 (...)": the best
 * gossip against the best dense. If there is no such gossip, says why. */
enum { TACITI_VERDICT_BYTES = 512 };
taciti_verdict taciti_candidates_verdict(const taciti_candidates *candidates, char text[TACITI_VERDICT_BYTES]);

/* The verdict about taciti_candidates_compressed() against the best dense without compression: "compression pays: 3.1x
 * (2.9-3.3) with dense topk 100 instead of dense bf16", "compression does not pay: ..."; text "" if there is nothing to
 * compress with. */
taciti_verdict taciti_candidates_compression_verdict(const taciti_candidates *candidates,
                                                     char text[TACITI_VERDICT_BYTES]);

/* Finds the same strategy, topology, order, wire and lanes among other candidates; the default number of lanes stands
 * for an equal one, and for one that their hosts do not have. NULL: not possible on their ranks. */
const taciti_candidate *taciti_candidates_find(const taciti_candidates *candidates, const taciti_candidate *like);

#endif
