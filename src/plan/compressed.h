/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/* Inside of the planner: what a compressed sum over all ranks sends and computes (exchange/: `compress`).
 *
 *   H hosts (ranks, where ranks are arranged flat or share one host), L lanes of each; an array of n floats is cut into
 *   shares of n / L, one per lane, and chunks of n / (L H). e_f(m): mean payload of m floats at the factor f
 *
 *   scatter   a lane sends e_f(chunk) to each other host and, as owner, e_b(chunk) of the sum; b: the factor back
 *   gather    a lane sends e_f(share) to each other host; everybody adds all of them
 *   linear    every round's payload of the whole array, of floats, goes through a dense all-reduce of its own
 *   sketches  scatter, and a contribution is that of plan/sketched.h; without a pipeline within a bucket
 *
 *   codec     scatter  n/L encode + n/(LH) (decode + (H-1) add + encode_b) + n/L decode_b
 *             gather   n/L (encode + decode + (H-1) add)
 *             linear   n (encode + decode)
 *
 * Halves of it, of methods whose ranks own parts: N ranks, each of which owns n / N of the array
 *
 *   reduce-scatter  a rank sends e(n/N) to each other one   codec  n encode + n/N (decode + (N-1) add)
 *   all-gather      a rank sends e(n/N) to each other one   codec  n/N encode + n decode
 *
 *   Replicas in parts: gradients as scatter between hosts, in L lanes, and no gathers between hosts.
 *
 *   A sum of H arrays of which each has a share p of elements that are not 0 has 1 - (1-p)^H of them: on its way back
 *   no more than these are sent.
 *
 * Seconds per float are those of the cluster file (`compression`). A selector looks at every float and does something
 * for each that it keeps, so they are lines in the share that is kept, 1 / factor: between the factors of the file, and
 * beyond its smallest one. All ranks encode at the same time, so a rank that has a part of a core takes as much longer
 * (`compute.core_share`).
 *
 * Where one threshold selects in the whole model, wire bytes of scatter are those of the busiest host's link
 * (taciti_plan_compression.busiest, plan/uneven.h).
 */
/* clang-format on */
#ifndef TACITI_PLAN_COMPRESSED_H
#define TACITI_PLAN_COMPRESSED_H

#include "exchange/allreduce.h"
#include "plan/plan.h"

typedef struct taciti_compressed_sum {
    taciti_length length; /* of an array whose dense all-reduce would send and add as much */
    double codec_s;       /* encoding and decoding on the communication thread of a lane; 0: unknown */
    double busiest;       /* bytes of the busiest host's link / those that `length` says; linear: of all rounds */
    size_t fillings;      /* of the pipeline of messages: all but the first are encoded while others travel */
    size_t messages;      /* that a lane sends to other hosts, and receives */
    int wire_hops;        /* messages between hosts that wait for each other */
} taciti_compressed_sum;

/* The encoding of its payloads. */
static inline taciti_encoding taciti_plan_encoding(const taciti_plan_compression *c) {
    return (taciti_encoding){.codec = c->codec, .options = c->options, .expected = c->forth};
}

/* The mean bytes of n floats, between that many ranks. Matrices count as ones of 1024 columns. */
double taciti_plan_expected_bytes(const taciti_plan_compression *compression, taciti_codec_setting setting, size_t n,
                                  int ranks);

/* Returns what the sum of so many contributions is sent with: no more elements than there are. */
taciti_codec_setting taciti_plan_result_setting(const taciti_plan_compression *compression, int contributions);

/* How ranks are arranged for the method's sums; as rank 0 sees it, which the caller destroys. */
taciti_placement taciti_plan_placement(const taciti_scene *scene, const taciti_method *method);
tacit_status taciti_plan_arrange(const taciti_scene *scene, const taciti_method *method, taciti_arrangement *out);

/* Describes the all-reduce that carries the payloads, by owners or (gather) from all to all. Not for codecs of class
 * linear. Borrows the encoding; *out must not move. Returns owned: taciti_allreduce_destroy(). */
tacit_status taciti_plan_describe(const taciti_scene *scene, const taciti_method *method,
                                  const taciti_encoding *encoding, bool gather, taciti_allreduce *out);

/* Of an array of n > 0 floats. Returns E_MEMORY if memory is exhausted. */
tacit_status taciti_compressed_sum_of(const taciti_scene *scene, const taciti_method *method, size_t n,
                                      taciti_compressed_sum *out);

/* Half of the all-reduce of an array of n > 0 floats with order PARTS, through the method's compression or gather,
 * which must be there: half of the dense one of out->length sends as much. The reduce-scatter of replicas is all of it
 * between hosts: the dense one of out->length sends as much there. Returns E_MEMORY if memory is exhausted. */
tacit_status taciti_compressed_half_of(const taciti_scene *scene, const taciti_method *method, taciti_phase phase,
                                       size_t n, taciti_compressed_sum *out);

/* Bytes that rank 0 keeps of its encodings from step to step: residuals, momenta, estimates, states. No other rank
 * keeps more. */
tacit_status taciti_plan_residual_bytes(const taciti_scene *scene, const taciti_method *method, size_t *out);

/* Makes the demand of the dense all-reduce of sum->length the demand of the sum. */
static inline void taciti_compressed_demand(const taciti_compressed_sum *sum, taciti_demand *demand) {
    if (demand->wire_hops > 0) demand->wire_hops = sum->wire_hops;
    demand->host_bytes *= sum->busiest;
    demand->flow_bytes *= sum->busiest;
}

#endif
