/* SPDX-License-Identifier: Apache-2.0
 *
 * Several ranks in one process that train with a strategy whose replicas differ, on problems of which the outcome is
 * known; for the tests of this folder.
 */
#ifndef TACITI_STRATEGY_TEST_REPLICAS_H
#define TACITI_STRATEGY_TEST_REPLICAS_H

#include "comm/test_engine.h"
#include "strategy/gossip.h"
#include "strategy/strategy.h"

enum { TEST_MAX_RANKS = 16, TEST_MAX_STEPS = 400, TEST_MAX_NUMBERS = 8, TEST_MAX_ARRAYS = 24 };

typedef enum test_problem {
    TEST_QUADRATIC, /* f_i(x) = sum (x - c_i)^2 / 2 in every element */
    TEST_UNEQUAL,   /* a smooth function of x, rank, step and element: nothing is equal by chance */
    TEST_EQUAL,     /* the same without the rank */
    TEST_INTEGERS,  /* small integers that do not depend on x: exact in any order */
    TEST_NOISE,     /* no landscape: independent numbers of mean 0 and variance 1 */
} test_problem;

typedef struct test_replicas {
    const char *strategy;
    int ranks, steps, total_steps; /* 0: unknown */
    size_t floats, bucket_bytes;   /* per tensor, of three; floats 1: a single one */
    test_problem problem;
    const double *c; /* [ranks] of TEST_QUADRATIC */
    double start;    /* initial value of every element */
    double lr;       /* every step; below 0: falls linearly from -lr to 0 */
    taciti_gossip_options gossip;
    taciti_optim_options optim;
    taciti_exchange_options exchange;
    const char *codec;                    /* gossip.codec, or that of the strategy's sums; NULL: none */
    bool no_thread;                       /* every job runs in submit() */
    int stop_after;                       /* steps after which all is saved, thrown away and restored; 0: never */
    const taciti_gossip_options *resumed; /* from then on; NULL: the same */
    const taciti_gossip_options *odd;     /* of odd_rank alone; NULL: all have the same */
    int odd_rank;
    int wrong_rank, wrong_number; /* what a checkpoint has instead of a number of this rank's; -1: none */
    double wrong_value;
    int average_at; /* step before which the average is taken and reverted; -1: never */
    bool dawdle;    /* random delays of every rank */
    void (*before_step)(void *context, int rank, int step); /* NULL: nothing */
    void *before_context;
    int bad_rank; /* whose gradient of step bad_step is not finite; -1: none */
    int bad_step;
    bool scattered;   /* every rank begins with values of its own */
    bool check_bytes; /* over the whole run, which must be blocking and made of whole periods */
    bool sends_early; /* the first step sends before finish, or the test fails */

    /* what came of it */
    size_t n;
    float *parameters[TEST_MAX_RANKS];
    float *averages[TEST_MAX_RANKS]; /* of average_at */
    double distance[TEST_MAX_RANKS]; /* of average_at */
    float (*path)[TEST_MAX_RANKS];   /* [steps][rank] element 0 after every step; NULL: not kept */
    taciti_step_report reports[TEST_MAX_RANKS][TEST_MAX_STEPS];
    double numbers[TEST_MAX_RANKS][TEST_MAX_NUMBERS];
    uint64_t sent[TEST_MAX_RANKS];                  /* bytes of all steps */
    int early_steps;                                /* of rank 0: that read gradients before finish */
    size_t lag, own_bytes;                          /* of the strategy, as rank 0 says */
    float *arrays[TEST_MAX_RANKS][TEST_MAX_ARRAYS]; /* "strategy.*" of a checkpoint, in their order */
    tacit_status predicted, status;       /* of describe and create; where that failed nothing else is there */
    tacit_status created[TEST_MAX_RANKS]; /* of create, of every rank */
    tacit_status started[TEST_MAX_RANKS]; /* after stop_after; a run ends where it failed */
} test_replicas;

/* Defaults of all options; plain SGD, f32, no clipping, strategy gossip, which begins at once, knows of no noise
 * and has no integral. */
test_replicas test_replicas_of(int ranks, int steps);
void test_replicas_run(test_replicas *t);
void test_replicas_free(test_replicas *t);
bool test_replicas_same(const test_replicas *a, const test_replicas *b); /* bit for bit, on all ranks */
bool test_replicas_agree(test_replicas *a, test_replicas *b);            /* runs both, compares, frees */
/* `file` gets a file of matrices for t->ranks. */
void test_topology(test_replicas *t, const char *name);

/* AccumAdamW with windows of 3, decay and clipping. */
test_replicas test_replicas_of_adam(int ranks, int steps, const char *topology);

enum { TEST_TENSORS = 3, TEST_EVERY_RANK = -2 /* for wrong_rank */ };
/* Tensors a, b, c, of which b does not decay; the first `count` of them. */
void test_make_layout(const size_t sizes[TEST_TENSORS], size_t count, size_t bucket_bytes, taciti_layout *out);

/* An optimizer that does nothing with elements. */
tacit_status test_idle_optimizer(const taciti_layout *layout, taciti_optim **out);

/* Whether the busiest host has sent to others, by ranks that have sent `mine`, what the planner says of a dense sum of
 * all buckets. Collective. */
bool test_sends_as_planned(taciti_comm *comm, const taciti_layout *layout, const taciti_exchange_options *options,
                           uint64_t mine);

#endif
