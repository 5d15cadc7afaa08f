/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks tell each other about every step. Where replicas are equal, each step has waited for all ranks anyway, and
 * the reports of a step are taken in before the next one begins. Where they differ, that would be a barrier: the
 * reports travel while the next steps are computed, and metrics, requests to stop and skips are known two steps later,
 * or as many more as a transfer of the strategy may be under way, but at most LATE_MAX; all of them at once before an
 * evaluation, a checkpoint and the end. Where ranks count their own steps, a line is about this rank alone. (A report
 * is collected by the communication thread's job for the next one, which stands behind the transfers that were begun in
 * between. A stop must not take much longer for that.)
 */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "train/trainer.h"

enum { LATE_STEPS = 2, LATE_MAX = TACITI_REPORTS_MAX - 2 };

tacit_status taciti_reports_create(taciti_trainer *trainer, size_t lag) {
    taciti_reports *reports = &trainer->reports;
    const bool travel = trainer->strategy->replicas != NULL && trainer->ranks > 1;
    reports->late = !travel ? 0 : lag < LATE_MAX - LATE_STEPS ? LATE_STEPS + lag : LATE_MAX;
    reports->all = taciti_calloc((size_t)trainer->ranks, sizeof *reports->all);
    if (reports->all == NULL) return TACIT_E_MEMORY;
    if (!travel) return TACIT_OK;
    return taciti_circular_create(trainer->comm, sizeof *reports->all, reports->late + 2, &reports->circular);
}

void taciti_reports_destroy(taciti_reports *reports) {
    taciti_circular_destroy(reports->circular);
    taciti_free(reports->all);
}

static void fill_alone(taciti_trainer *trainer, const taciti_rank_report *mine, taciti_step_entry *out) {
    const double tokens = (double)trainer->share * (double)trainer->time;
    *out = (taciti_step_entry){.known = true, .stop = mine->stop != 0, .skips = mine->skipped != 0 ? 1 : 0};
    trainer->position.skipped += out->skips;
    trainer->alone.skipped += out->skips;
    out->metrics.skipped = trainer->position.skipped;
    out->metrics.loss = tokens > 0 ? mine->loss_sum / tokens : (double)NAN;
    out->metrics.consensus = sqrt(mine->moved);
    out->metrics.slowest_rank = -1; /* nobody has told */
    out->metrics.slowest_s = out->metrics.fastest_s = (double)NAN;
}

tacit_status taciti_reports_put(taciti_trainer *trainer, const taciti_rank_report *mine, taciti_step_entry **out) {
    taciti_reports *reports = &trainer->reports;
    if (reports->count == reports->late + 2)
        return taciti_fail(TACIT_E_INTERNAL, "more than %zu steps without a line", reports->count);
    reports->mine = *mine;
    if (trainer->alone.active) {
        *out = &reports->entries[reports->count++];
        fill_alone(trainer, mine, *out);
        return TACIT_OK;
    }
    if (reports->circular != NULL) TACITI_TRY(taciti_circular_post(reports->circular, mine));
    *out = &reports->entries[reports->count++];
    **out = (taciti_step_entry){.known = false};
    return TACIT_OK;
}

/* Sums are made in rank order, so they are the same bits on every rank. */
static void fill_entry(taciti_trainer *trainer, taciti_step_entry *entry) {
    const taciti_rank_report *all = trainer->reports.all;
    taciti_step_metrics *m = &entry->metrics;
    double loss = 0, skipped = 0, moved = 0;
    m->slowest_s = -1;
    m->fastest_s = (double)INFINITY;
    for (int r = 0; r < trainer->ranks; r++) {
        loss += all[r].loss_sum;
        skipped += all[r].skipped;
        moved += all[r].moved;
        entry->stop = entry->stop || all[r].stop != 0;
        entry->abandoned = entry->abandoned || all[r].abandoned != 0;
        if (all[r].compute_s > m->slowest_s) {
            m->slowest_s = all[r].compute_s;
            m->slowest_rank = r;
        }
        m->fastest_s = fmin(m->fastest_s, all[r].compute_s);
    }
    const bool equal = trainer->strategy->replicas == NULL;
    /* At most one per rank: what a rank says cannot be more, nor no number. */
    const int64_t max = entry->abandoned ? 0 : equal ? 1 : trainer->ranks;
    entry->skips = (int64_t)fmin(fmax(skipped, 0), (double)max);
    trainer->position.skipped += entry->skips;
    m->skipped = trainer->position.skipped;
    m->loss = loss / ((double)trainer->settings->train.batch * (double)trainer->time);
    m->consensus = equal ? (double)NAN : sqrt(moved / (double)trainer->ranks);
    entry->known = true;
}

tacit_status taciti_reports_collect(taciti_trainer *trainer, size_t late) {
    taciti_reports *reports = &trainer->reports;
    for (size_t i = 0; i + late < reports->count; i++) {
        taciti_step_entry *entry = &reports->entries[i];
        if (entry->known) continue;
        TACITI_TRY(reports->circular != NULL
                       ? taciti_circular_take(reports->circular, reports->all)
                       : taciti_comm_allgather(trainer->comm, &reports->mine, sizeof reports->mine, reports->all));
        fill_entry(trainer, entry);
        if (!entry->abandoned) taciti_profiling_add_reports(trainer);
    }
    return TACIT_OK;
}

void taciti_reports_take_back(taciti_reports *reports) {
    reports->stop = reports->stop || taciti_reports_newest(reports)->stop;
    reports->count--;
}

bool taciti_reports_stop(taciti_reports *reports) {
    bool stop = reports->stop;
    for (size_t i = 0; i < reports->count; i++) stop = stop || reports->entries[i].stop;
    return stop;
}

taciti_step_entry *taciti_reports_newest(taciti_reports *reports) { return &reports->entries[reports->count - 1]; }

taciti_step_entry *taciti_reports_oldest_known(taciti_reports *reports) {
    return reports->count == 0 || !reports->entries[0].known ? NULL : reports->entries;
}

void taciti_reports_drop_oldest(taciti_reports *reports) {
    reports->count--;
    memmove(reports->entries, reports->entries + 1, reports->count * sizeof *reports->entries);
}
