/* SPDX-License-Identifier: Apache-2.0
 *
 * How training goes on from a checkpoint: which values are taken, what a changed configuration means for them, and what
 * is logged about it. The training loop and the C interface resume by these rules alone.
 */
#ifndef TACITI_DRIVER_RESUME_H
#define TACITI_DRIVER_RESUME_H

#include <jansson.h>

#include "ckpt/state.h"
#include "driver/driver.h"
#include "settings/changes.h"

typedef struct taciti_resume {
    /* set by the caller; borrowed */
    taciti_ckpt_origin ckpt; /* all but `resumption` */
    taciti_driver *driver;
    const taciti_strategy *strategy;
    bool from_mean;                    /* go on from the mean although the ranks could go on as they were */
    const char *advice, *optim_advice; /* what else to do if state of the strategy, or of the optimizer, is lacking */

    /* set by taciti_resume_open() */
    const char *former;     /* name of the strategy that saved it; "" if unknown */
    int replicas;           /* ranks with values of their own; 0: all was shared */
    taciti_changes changes; /* of the configuration since */
} taciti_resume;

/* Reads the description of the checkpoint and decides how to go on: ckpt.resumption. now: the configuration, as for
 * taciti_changes_create(). Close also after an error. Not collective. */
tacit_status taciti_resume_open(taciti_resume *resume, json_t *now);
void taciti_resume_close(taciti_resume *resume);

/* Where a run stands after taciti_resume_restore(). */
typedef struct taciti_beginning {
    bool restored; /* every entry of the strategy is as it was: for taciti_driver_start() */
    bool equal;    /* the parameters must be the same on all ranks */
} taciti_beginning;

/* Restores the table of taciti_driver_list_state(), with whatever the caller has added. Returns E_CONFIG if the
 * checkpoint lacks state that this configuration needs, naming the keys that have changed since. Not collective. */
tacit_status taciti_resume_restore(taciti_resume *resume, const taciti_state *state, taciti_beginning *out);

#endif
