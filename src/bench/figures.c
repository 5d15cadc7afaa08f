/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/figures.h"

#include <math.h>

#include "base/log.h"
#include "base/memory.h"

tacit_status taciti_cluster_records_create(const taciti_cluster_shape *shape, taciti_cluster_records *out) {
    const size_t blocks = shape->blocks * shape->ranks;
    out->steps = taciti_calloc(blocks * shape->rounds, sizeof *out->steps);
    out->blocks = taciti_calloc(blocks, sizeof *out->blocks);
    if (out->steps != NULL && out->blocks != NULL) return TACIT_OK;
    taciti_cluster_records_destroy(out);
    return TACIT_E_MEMORY;
}

void taciti_cluster_records_destroy(taciti_cluster_records *records) {
    taciti_free(records->steps);
    taciti_free(records->blocks);
    *records = (taciti_cluster_records){0};
}

void taciti_setting_figures_destroy(taciti_setting_figures *figures) {
    taciti_free(figures->hosts);
    *figures = (taciti_setting_figures){0};
}

/* ---- steps ------------------------------------------------------------------------------------------------------ */

static double step_of(const taciti_step_record *r) { return r->step_s; }
static double wait_of(const taciti_step_record *r) { return r->wait_s; }
static double transfer_of(const taciti_step_record *r) { return r->transfer_s; }
static double update_of(const taciti_step_record *r) { return r->update_s; }
static double compute_of(const taciti_step_record *r) { return r->compute_s; }
static double asked_of(const taciti_step_record *r) { return r->asked_s; }
typedef double member(const taciti_step_record *record);

static const taciti_step_record *record_at(const taciti_cluster_shape *shape, const taciti_cluster_records *records,
                                           size_t step, size_t rank) {
    const size_t block = step / shape->rounds, round = step % shape->rounds;
    return &records->steps[(block * shape->ranks + rank) * shape->rounds + round];
}

static size_t step_count(const taciti_cluster_shape *shape) { return shape->blocks * shape->rounds; }

/* Moments over all periods of the mean over the ranks, or, when `slowest`, of the slowest rank's. */
static taciti_moments moments_over(const taciti_cluster_shape *shape, const taciti_cluster_records *records, member *of,
                                   size_t period, bool slowest, double *samples) {
    const size_t count = step_count(shape) / period;
    for (size_t p = 0; p < count; p++) {
        double max = -(double)INFINITY, sum = 0;
        for (size_t r = 0; r < shape->ranks; r++) {
            double mean = 0; /* of the rank's steps in this period */
            for (size_t s = p * period; s < (p + 1) * period; s++) mean += of(record_at(shape, records, s, r));
            mean /= (double)period;
            sum += mean / (double)shape->ranks;
            max = isnan(mean) ? mean : fmax(max, mean);
        }
        samples[p] = slowest ? max : sum;
    }
    return taciti_moments_of(samples, count);
}

/* Mean over everything, and the deviation within each rank: how ranks differ lastingly is no jitter. */
static void compute_moments(const taciti_cluster_shape *shape, const taciti_cluster_records *records, member *of,
                            double *samples, double *out_mean, double *out_cv) {
    const double ranks = (double)shape->ranks;
    double mean = 0, squares = 0;
    for (size_t r = 0; r < shape->ranks; r++) {
        for (size_t s = 0; s < step_count(shape); s++) samples[s] = of(record_at(shape, records, s, r));
        const taciti_moments m = taciti_moments_of(samples, step_count(shape));
        mean += m.mean / ranks;
        squares += m.cv * m.cv / ranks;
    }
    *out_mean = mean;
    *out_cv = sqrt(squares);
}

static void fill_times(const taciti_cluster_shape *shape, const taciti_cluster_records *records, bool has_thread,
                       double *samples, taciti_setting_figures *out) {
    const size_t period = records->period;
    out->period = period;
    out->step_s = moments_over(shape, records, step_of, period, false, samples);
    out->slowest_s = moments_over(shape, records, step_of, period, true, samples);
    out->wait_s = moments_over(shape, records, wait_of, period, false, samples);
    out->transfer_s = moments_over(shape, records, transfer_of, period, false, samples);
    out->update_s = moments_over(shape, records, update_of, period, false, samples);
    taciti_compute_figures *compute = &out->compute;
    compute_moments(shape, records, compute_of, samples, &compute->mean_s, &compute->cv);
    compute_moments(shape, records, asked_of, samples, &compute->asked_mean_s, &compute->asked_cv);
    compute->slowest_s = moments_over(shape, records, compute_of, 1, true, samples).mean;
    compute->asked_slowest_s = moments_over(shape, records, asked_of, 1, true, samples).mean;
    out->wait_share = out->wait_s.mean / out->step_s.mean;
    const bool moved = has_thread && out->transfer_s.mean > 0;
    out->overlap = moved ? 1 - out->wait_s.mean / out->transfer_s.mean : (double)NAN;
}

/* ---- blocks ----------------------------------------------------------------------------------------------------- */

static double block_mean(const taciti_cluster_shape *shape, const taciti_cluster_records *records, size_t block) {
    const taciti_step_record *steps = &records->steps[block * shape->ranks * shape->rounds];
    const size_t count = shape->ranks * shape->rounds;
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += steps[i].step_s;
    return sum / (double)count;
}

static void fill_blocks(const taciti_cluster_shape *shape, const taciti_cluster_records *records,
                        const taciti_cluster_records *base, double *samples, taciti_setting_figures *out) {
    const size_t half = shape->blocks / 2; /* a block in the middle belongs to neither */
    double early = 0, late = 0;
    for (size_t b = 0; b < shape->blocks; b++) samples[b] = block_mean(shape, records, b);
    for (size_t b = 0; b < half; b++) {
        early += samples[b];
        late += samples[shape->blocks - 1 - b];
    }
    out->drift = half > 0 ? late / early - 1 : (double)NAN;
    out->block_s = taciti_moments_of(samples, shape->blocks);
    for (size_t b = 0; b < shape->blocks; b++) samples[b] = block_mean(shape, records, b) / block_mean(shape, base, b);
    out->ratio = taciti_moments_of(samples, shape->blocks);
}

static void fill_use(const taciti_cluster_shape *shape, const taciti_cluster_records *records,
                     taciti_setting_figures *out) {
    const double steps = (double)(shape->blocks * (shape->rounds + shape->warm_up)), ranks = (double)shape->ranks;
    double cpu_s = 0, wall_s = 0;
    out->payload_min_bytes = (double)INFINITY;
    for (size_t r = 0; r < shape->ranks; r++) {
        double bytes = 0;
        for (size_t b = 0; b < shape->blocks; b++) {
            const taciti_block_record *block = &records->blocks[b * shape->ranks + r];
            bytes += (double)block->payload_bytes / steps;
            cpu_s += block->cpu_s;
            wall_s += block->wall_s / ranks;
        }
        out->payload_bytes += bytes / ranks;
        out->formula_bytes += (double)records->blocks[r].formula_bytes / ranks;
        out->payload_min_bytes = fmin(out->payload_min_bytes, bytes);
        out->payload_max_bytes = fmax(out->payload_max_bytes, bytes);
    }
    out->cpu_cores = cpu_s / wall_s;
}

static void fill_hosts(const taciti_cluster_shape *shape, const taciti_cluster_records *records,
                       taciti_setting_figures *out) {
    const double steps = (double)(shape->blocks * (shape->rounds + shape->warm_up));
    for (size_t b = 0; b < shape->blocks; b++)
        for (size_t r = 0; r < shape->ranks; r++) {
            const taciti_block_record *block = &records->blocks[b * shape->ranks + r];
            taciti_host_bytes *host = &out->hosts[shape->hosts->host_of[r]];
            host->measured = host->measured || block->has_nic != 0;
            host->sent += (double)block->nic_sent_bytes / steps;
            host->received += (double)block->nic_received_bytes / steps;
            host->payload_sent += (double)block->away_sent_bytes / steps;
            host->payload_received += (double)block->away_received_bytes / steps;
        }
}

tacit_status taciti_cluster_figures_of(const taciti_cluster_shape *shape, const taciti_cluster_records *records,
                                       const taciti_cluster_records *base, bool has_thread,
                                       taciti_setting_figures *out) {
    taciti_setting_figures figures = {.hosts = taciti_calloc((size_t)shape->hosts->count, sizeof *figures.hosts)};
    double *samples = taciti_calloc(step_count(shape), sizeof *samples); /* at least one per block */
    if (figures.hosts == NULL || samples == NULL) {
        taciti_free(figures.hosts);
        taciti_free(samples);
        return TACIT_E_MEMORY;
    }
    fill_times(shape, records, has_thread, samples, &figures);
    fill_blocks(shape, records, base, samples, &figures);
    fill_use(shape, records, &figures);
    fill_hosts(shape, records, &figures);
    taciti_free(samples);
    *out = figures;
    return TACIT_OK;
}
