/* SPDX-License-Identifier: Apache-2.0
 *
 * Predicts the step time of a network with a compute profile (model/profile.h) on a described cluster
 * (cluster/cluster.h). exchange/demand.h has the traffic of an exchange; this folder converts it into seconds on the
 * cluster's links and simulates which ranks wait for which.
 */
#ifndef TACITI_PLAN_PLAN_H
#define TACITI_PLAN_PLAN_H

#include "cluster/cluster.h"
#include "codec/codec.h"
#include "exchange/demand.h"
#include "exchange/residual.h"
#include "model/profile.h"
#include "strategy/pattern.h"
#include "tensor/layout.h"
#include "topo/topo.h"

/* ---- the runtime model ----------------------------------------------------------------------------------------------
 * A rank's step is forward, backward bucket by bucket, and updates. The exchange of a bucket begins when all its ranks
 * have submitted it and the channel is free. Which ranks wait for which: plan/recursion.h. Time of a transfer:
 * plan/links.h. docs/plan.md has both on one page. */

/* Whole periods are simulated: all rounds of a topology, one in `every` steps. Returns E_CONFIG, naming `what` and
 * the options to `shorten` (taciti_pattern), if this is more than TACITI_PLAN_PERIOD_MAX steps. */
enum { TACITI_PLAN_PERIOD_MAX = 1 << 14 };
tacit_status taciti_plan_check_period(const char *what, size_t rounds, int every, const char *shorten);

/* The implementation of a dense method's all-reduce. */
typedef enum taciti_library {
    TACITI_LIBRARY_OURS,
    TACITI_LIBRARY_RING,    /* one ring of all ranks, ordered by host, as in NCCL and Gloo: by formula */
    TACITI_LIBRARY_MEASURED /* times from `collectives` of the cluster file */
} taciti_library;

/* A compressed sum (plan/compressed.h), or half of one. */
typedef struct taciti_plan_compression {
    taciti_encoding encoding; /* codec NULL: sums are dense */
    bool adapts;              /* dense where that takes less time (adapt.policy payoff) */
    bool automatic;           /* a controller chooses this form from those that a codec has (compress.codec auto) */
    bool uneven;              /* one threshold for the whole model: some owners receive more than others */
    double busiest; /* bytes of the busiest host's link / those of even payloads; 0: taciti_predict() finds it */
} taciti_plan_compression;

/* How uneven payloads are depends on the gradients (plan/uneven.h). The range of a prediction holds even ones, and a
 * busiest link with this many times the bytes of even ones. */
#define TACITI_PLAN_UNEVEN 2.0

/* Elements per element sent; 1 for codecs without a factor. */
double taciti_plan_factor(const taciti_plan_compression *compression);

/* Returns whether the cluster file can say how fast a codec is (`compression`). */
bool taciti_plan_can_price(const taciti_codec *codec);

/* Returns whether the cluster file says how fast the codec is. It never does for sketches: how long these take to add
 * up and decode is not probed. */
bool taciti_plan_compression_known(const taciti_cluster *cluster, const taciti_codec *codec);

/* Returns whether something is compressed and arrives with errors. */
bool taciti_plan_is_lossy(const taciti_plan_compression *compression);

/* The known effect of a compression on accuracy, as a sentence; "" for none. Methods of STRONG are not recommended. */
typedef enum taciti_caution { TACITI_CAUTION_NONE, TACITI_CAUTION_SOME, TACITI_CAUTION_STRONG } taciti_caution;
enum { TACITI_CAUTION_BYTES = 200 };
taciti_caution taciti_plan_caution(const taciti_plan_compression *compression, char *out, size_t size);

/* A training method, as far as time is concerned. */
typedef struct taciti_method {
    char label[96];                  /* "gossip aer awc, f32" */
    taciti_order order;              /* when the exchange happens */
    const taciti_topology *topology; /* NULL: all-reduce among all ranks; borrowed */
    const taciti_codec *wire;
    size_t arrays;                       /* flat ones of f32 that the strategy and this wire of mixes hold */
    taciti_plan_compression compression; /* of sums over all ranks */
    taciti_plan_compression gather;      /* order PARTS: of gathered parameters, at the factor `expected` */
    int lanes;                           /* without a topology: replaces the scene's; 0: the scene's */
    bool overlap;                        /* exchange.overlap: the exchange overlaps computation */
    int every;                           /* steps per exchange */
    int delay;                           /* awc: additional steps that a transfer may take */
    int also_mixed;                      /* arrays that are mixed together with the parameters */
    taciti_common_sums common;           /* with a topology: sums over all ranks, which count in the mean step */
    taciti_parts parts;                  /* order PARTS: what ranks hold of the network, and what they gather */
    double serial_s;                     /* additional computation and copying in every step */
    taciti_library library;              /* dense only */
    const char *by;                      /* LIBRARY_MEASURED: the name in the file; borrowed */
} taciti_method;

/* The stronger caution of a method's sums and gathers. */
taciti_caution taciti_method_caution(const taciti_method *method, char *out, size_t size);

/* The network, the cluster and the ranks. Everything is borrowed. */
typedef struct taciti_scene {
    const taciti_profile *profile; /* in seconds */
    const taciti_layout *layout;   /* of taciti_profile_layout() */
    const taciti_layout *coded; /* the same with the buckets of methods that compress; what compress.layers leaves out
                                   has plain ones; NULL: all is compressed, in the same buckets */
    const taciti_cluster *cluster; /* its links */
    const taciti_hosts *hosts;     /* the ranks: those of the cluster, or another number of them */
    taciti_placement placement;
    const double *slow;                /* [ranks] persistent stragglers; NULL: none */
    const taciti_optim_options *optim; /* for memory; NULL: unknown */
    bool bf16;                         /* ranks hold a bf16 copy of the parameters */
    double between_bit_per_s;          /* replaces the cluster's rate between hosts; 0: the cluster's */
} taciti_scene;

/* The tensors of a scene's network that compress.layers chooses: all where `coded` is NULL. */
typedef struct taciti_plan_layers {
    size_t tensors, coded_tensors, other_tensors; /* other: of no class (tensor/choice.h) */
    double coded_share, other_share;              /* of the parameters */
    const char *other;                            /* name of the first one, or NULL; borrowed */
} taciti_plan_layers;
taciti_plan_layers taciti_plan_layers_of(const taciti_scene *scene);

/* Coefficient of variation of compute times that is assumed possible where the cluster's is unknown. */
#define TACITI_PLAN_DOUBTFUL_CV 0.1

/* Above this one the machine was busy when it was measured: no accelerator computes so unevenly. */
#define TACITI_PLAN_BUSY_CV 0.3

typedef struct taciti_plan_options {
    int64_t seed; /* of the jitter */
    double
        cv; /* of compute times; < 0: the cluster's. If that is unknown: 0, and `uneven_s` has the time with jitter */
    bool brief;                 /* only the means: no low and high, no causes; links count as exact */
    struct taciti_reuse *reuse; /* what predictions of the same ranks and topologies share; NULL: nothing */
} taciti_plan_options;

/* The causes that limit a step. */
typedef enum taciti_bottleneck {
    TACITI_BOTTLENECK_COMPUTE,
    TACITI_BOTTLENECK_LINK,       /* bytes */
    TACITI_BOTTLENECK_LATENCY,    /* consecutive messages */
    TACITI_BOTTLENECK_STRAGGLERS, /* differing compute times */
    TACITI_BOTTLENECKS
} taciti_bottleneck;
const char *taciti_bottleneck_name(taciti_bottleneck bottleneck);

typedef struct taciti_prediction {
    double step_s;                     /* mean over ranks and steps; the sum of compute and exposed */
    double compute_s;                  /* forward, backward, update */
    double exposed_s;                  /* waiting */
    double transfer_s;                 /* sum over buckets, longest in a round, hand-over and short messages included;
                                          mean per step */
    double memory_bytes;               /* of the flat arrays of a rank: parameters, gradients, moments, residuals and
                                          references; 0:
                                          unknown */
    bool fits;                         /* those of a host's ranks fit into its memory, as far as both are known */
    double nic_bytes;                  /* per step, of the busiest host, per direction */
    double link_error;                 /* relative uncertainty of transfers */
    double model_error;                /* uncertainty of the formulas, as a share of the step */
    double fast_links_s, slow_links_s; /* the step with transfers shorter or longer by link_error */
    double uneven_s;      /* the step at a cv of TACITI_PLAN_DOUBTFUL_CV if the cluster's is unknown; else 0 */
    double low_s, high_s; /* range from these and the model's error */
    double cost_s[TACITI_BOTTLENECKS]; /* by how much a step would be shorter without it; compute: its own time */
    taciti_bottleneck bottleneck;      /* the largest of them */
    bool calibrated;                   /* measured collectives of the cluster file were used */
} taciti_prediction;

/* Predicts the step of a method. Returns E_CONFIG if the description lacks a link that the ranks need, or a period is
 * too long. Pure: the same result on every machine. Any thread. */
tacit_status taciti_predict(const taciti_scene *scene, const taciti_method *method, const taciti_plan_options *options,
                            taciti_prediction *out);

/* Predicts the mean steps for several rates between hosts: step_s[count]. As above. */
tacit_status taciti_predict_rates(const taciti_scene *scene, const taciti_method *method,
                                  const taciti_plan_options *options, const double *bit_per_s, size_t count,
                                  double *step_s);

/* Error of the formulas for each method, as a share of the step: if transfers of its groups and sizes were measured on
 * the cluster, and if not. */
#define TACITI_PLAN_MODEL_ERROR 0.05
#define TACITI_PLAN_MODEL_ERROR_UNMEASURED 0.10

/* Compares `other` with `dense`: dense's step / other's, and its range under the uncertainties. An error of the links
 * affects both; the range is widened once, by the larger of their errors of the model. */
typedef struct taciti_verdict {
    double speedup, low, high;
    bool pays; /* low > 1 */
} taciti_verdict;
taciti_verdict taciti_verdict_of(const taciti_prediction *dense, const taciti_prediction *other);

/* Returns the seconds per byte used for exchanges between hosts: of both directions at once if known, else of one, else
 * of two ranks. 0: one host, or unknown. */
double taciti_plan_wire_beta_s(const taciti_cluster *cluster);

#endif
