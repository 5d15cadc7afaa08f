/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the planner: steps of methods whose ranks own parts (taciti_parts). A step is a list of operations, the
 * same on every rank: what the network asks for unit by unit (model/network.h), and what the strategy answers. All
 * ranks take part in every transfer, and transfers go one after the other in the order in which they are submitted:
 *
 *   submit j   E_j = max(E of the transfer before, max over ranks i of t_i) + c_j
 *   wait j     t_i = max(t_i, E_j)
 *   compute s  t_i = t_i + s x factor of rank i
 *
 * t_i: where rank i is; c_j: seconds of the transfer. A unit's gather is submitted when the unit before it in the step
 * is needed, its reduce-scatter when its backward pass has ended; what of it is gathered in the next step before
 * anything is needed, at the end.
 *
 * c_j is that of the unit's buckets (plan/links.h), with the number format of their class of traffic or through its
 * codec (plan/compressed.h), but for the buckets of tensors that are not compressed (compress.layers). A class that
 * adapts is dense where all its transfers take less time so.
 *
 *   gather   half of an all-reduce
 *   reduce   half of an all-reduce. Replicas: half of what it sends inside hosts, and all that it sends between them
 *   share    half of what an all-reduce sends inside hosts, in f32: gathers of replicas, and of a unit of which the
 *            ranks of a host have kept what they gathered before in the step
 *
 * Where gathers are compressed the ranks' own threads work as well: a rank copies what it owns, stages 1 and 2 subtract
 * what all ranks have, and add the changes after the wait. Each pass takes as long as an addition of `codecs` f32.
 */
#ifndef TACITI_PLAN_PARTS_H
#define TACITI_PLAN_PARTS_H

#include "plan/links.h"
#include "plan/recursion.h"

/* Classes of traffic. */
enum { TACITI_PARTS_GATHER, TACITI_PARTS_REDUCE, TACITI_PARTS_SHARE, TACITI_PARTS_CLASSES };

typedef enum taciti_parts_kind { TACITI_PARTS_COMPUTE, TACITI_PARTS_SUBMIT, TACITI_PARTS_WAIT } taciti_parts_kind;

typedef struct taciti_parts_op {
    taciti_parts_kind kind;
    size_t job;     /* class * units + unit */
    double seconds; /* of computing */
    bool update;    /* takes as long in every step and on every rank */
    bool coded;     /* only where gathers are compressed */
} taciti_parts_op;

/* The transfer of a unit in a class. Each is of one bucket; no ranks: there is none. */
typedef struct taciti_parts_job {
    size_t times;                 /* in a step */
    size_t buckets;               /* that may be compressed */
    taciti_transfer dense, coded; /* of one of them, as it is and compressed */
    size_t plain_buckets;         /* the others */
    taciti_transfer plain;
    double transfer_s[TACITI_SCENARIOS]; /* of all of them */
} taciti_parts_job;

typedef struct taciti_parts_plan {
    taciti_parts_op *ops; /* of a step, owned */
    size_t op_count, job_count;
    taciti_parts_job *jobs; /* owned */
    bool compressed[TACITI_PARTS_CLASSES], adapts[TACITI_PARTS_CLASSES];
    double spread[TACITI_SCENARIOS]; /* factors of the time of compressed sums */
    bool codes_gathers[TACITI_SCENARIOS];
} taciti_parts_plan;

/* plan/parts_step.c: how many ranks divide a model's updates. */
tacit_status taciti_parts_owners(const taciti_scene *scene, const taciti_method *method, int *out);

/* plan/parts_step.c: fills in the operations of a step as the network and the strategy make it. update_s: seconds at
 * its end. out: with its job_count. */
tacit_status taciti_parts_build_step(const taciti_scene *scene, const taciti_method *method, double update_s,
                                     taciti_parts_plan *out);

/* wait_s: what every step waits for besides transfers. Borrows the scene. Returns owned; all transfer times are 0. */
tacit_status taciti_parts_create(const taciti_scene *scene, const taciti_method *method, double wait_s,
                                 taciti_parts_plan *out);
void taciti_parts_destroy(taciti_parts_plan *plan); /* {0} is fine */

/* As the functions of plan/rounds.h. */
void taciti_parts_time(taciti_parts_plan *plan, size_t scenario, const taciti_links *links, double latency,
                       double bytes);
void taciti_parts_doubts(const taciti_parts_plan *plan, const taciti_links *links, double *error, double *calibrated);
uint64_t taciti_parts_key(const taciti_parts_plan *plan, uint64_t key);
double taciti_parts_transfer_s(const taciti_parts_plan *plan, size_t scenario);

/* Returns the bytes of a step on the busiest host's link, per direction. */
double taciti_parts_nic_bytes(const taciti_parts_plan *plan, const taciti_links *links);

/* Simulates the scenarios: out[TACITI_SCENARIOS]; compute_s is that of the first scenario. Reads ranks, slow, cv, seed,
 * draws, steps and even of the recursion. */
tacit_status taciti_parts_run(const taciti_parts_plan *plan, const taciti_recursion *r, taciti_recursion_times *out);

#endif
