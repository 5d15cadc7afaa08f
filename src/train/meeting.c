/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that count their own steps: what a rank keeps by itself between two meetings, and what all ranks know after
 * one. Until they meet, figures of the whole run are guessed: as if all ranks had made this rank's steps.
 */
#include <inttypes.h>

#include "base/memory.h"
#include "base/text.h"
#include "train/trainer.h"

tacit_status taciti_trainer_step_alone(taciti_trainer *trainer) {
    taciti_alone *alone = &trainer->alone;
    if (!alone->active) { /* the reports of steps that all ranks made are on their way */
        TACITI_TRY(taciti_reports_collect(trainer, 0));
        *alone = (taciti_alone){.active = true, .met = trainer->position};
    }
    alone->made++;
    alone->tokens += (uint64_t)trainer->share * trainer->time;
    return TACIT_OK;
}

enum { TOKENS, SKIPPED, STOP, MADE, FIGURES };
enum { EVENT_BYTES = 32, NUMBER_BYTES = 24 };

/* Sets the position that all ranks have in common. */
static void add_up(taciti_trainer *trainer, const double *all) {
    taciti_position *position = &trainer->position;
    position->tokens = trainer->alone.met.tokens;
    position->skipped = trainer->alone.met.skipped;
    for (int r = 0; r < trainer->ranks; r++) {
        const double *of_rank = all + (size_t)r * FIGURES;
        position->tokens += (uint64_t)of_rank[TOKENS];
        position->skipped += (int64_t)of_rank[SKIPPED];
        trainer->reports.stop = trainer->reports.stop || of_rank[STOP] > 0;
    }
}

/* Writes the steps that each rank has made. */
static void report_meeting(const taciti_trainer *trainer, const double *all) {
    const size_t size = EVENT_BYTES + NUMBER_BYTES * (size_t)trainer->ranks;
    char *members = trainer->metrics == NULL ? NULL : taciti_calloc(size, 1);
    if (members == NULL) return;
    for (int r = 0; r < trainer->ranks; r++)
        taciti_text_add(members, size, "%s%.0f", r > 0 ? ", " : "\"made\": [", all[(size_t)r * FIGURES + MADE]);
    taciti_text_add(members, size, "]");
    (void)taciti_metrics_event(trainer->metrics, trainer->position.step, "meeting", members);
    taciti_free(members);
}

tacit_status taciti_trainer_meet(taciti_trainer *trainer) {
    taciti_alone *alone = &trainer->alone;
    bool ends = false; /* where the run that is repeated was stopped */
    void *strategy = taciti_driver_strategy(trainer->driver);
    taciti_comm_announce(trainer->comm, trainer->position.step, "meeting of ranks");
    TACITI_TRY(trainer->strategy->replicas->meet(strategy, &trainer->position.step, &ends));
    trainer->reports.stop = trainer->reports.stop || ends;
    const double mine[FIGURES] = {[TOKENS] = (double)alone->tokens,
                                  [SKIPPED] = (double)alone->skipped,
                                  [STOP] = taciti_reports_stop(&trainer->reports) ? 1 : 0,
                                  [MADE] = (double)alone->made};
    double *all = taciti_calloc((size_t)trainer->ranks, sizeof mine);
    tacit_status status = taciti_comm_agree(trainer->comm, all == NULL ? TACIT_E_MEMORY : TACIT_OK);
    if (status == TACIT_OK) status = taciti_comm_allgather(trainer->comm, mine, sizeof mine, all);
    if (status == TACIT_OK) {
        add_up(trainer, all);
        report_meeting(trainer, all);
        taciti_step_metrics *line = &taciti_reports_newest(&trainer->reports)->metrics;
        line->step = trainer->position.step;
        line->tokens = trainer->position.tokens;
        line->skipped = trainer->position.skipped;
        *alone = (taciti_alone){.active = true, .met = trainer->position};
    }
    taciti_free(all);
    return status;
}
