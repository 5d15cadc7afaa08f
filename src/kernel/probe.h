/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the peak rates of this machine, to which bench and the training loop compare theirs. The speed of a machine
 * drifts by tens of percent within minutes, so interleave probe and measurement and compare their ratios. The probes
 * use the widest instructions of the CPU, regardless of TACIT_ISA.
 *
 * Arithmetic is measured in wall-clock time: ranks that share cores share the peak. Passes over memory are measured in
 * processor time, so other processes on the cores do not disturb the ratio of kernel to probe.
 */
#ifndef TACITI_KERNEL_PROBE_H
#define TACITI_KERNEL_PROBE_H

#include <stddef.h>

#include "base/pool.h"

/* Single-precision multiply-add FLOP/s (two per multiply-add) of all threads of the pool together. Runs for
 * about `seconds`. Owner thread of the pool. */
double taciti_probe_fma_flops(taciti_pool *pool, double seconds);

/* The same for bf16 products accumulated in f32 (VDPBF16PS); 0 where the CPU lacks the instruction. */
double taciti_probe_bf16_flops(taciti_pool *pool, double seconds);

/* One stream of a bandwidth pass. */
typedef enum taciti_probe_use {
    TACITI_PROBE_READ,
    TACITI_PROBE_UPDATE, /* read and written back in place; the contents stay as they are */
    TACITI_PROBE_WRITE,  /* written past the caches; the contents are lost */
    TACITI_PROBE_STORE,  /* written through the caches, for results that are read again soon; the contents are lost */
} taciti_probe_use;

typedef struct taciti_probe_stream {
    void *base;   /* 64-byte aligned */
    size_t bytes; /* multiple of 64 */
    taciti_probe_use use;
} taciti_probe_stream;

/* Passes once over all streams side by side (each in proportion to its size), as an ideal kernel with this mix of reads
 * and writes would, on all threads; returns the processor seconds of the slowest thread. Owner thread of the
 * pool. */
double taciti_probe_pass(taciti_pool *pool, const taciti_probe_stream *streams, size_t count);

/* Runs a job on the pool and returns the processor seconds of its slowest thread: the clock to hold against a pass. */
double taciti_probe_time(taciti_pool *pool, taciti_pool_job *job, void *context);

/* Bytes that the pass moves: reads + writes (but not the reads with which a cache prepares a STORE). */
size_t taciti_probe_pass_bytes(const taciti_probe_stream *streams, size_t count);

#endif
