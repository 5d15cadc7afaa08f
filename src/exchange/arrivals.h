/* SPDX-License-Identifier: Apache-2.0
 *
 * The log of an asynchronous run: at which of its steps a rank took in whose arrays, and to whom it sent its own. With
 * it a run can be repeated bit for bit, on any machine. A folder has a file per rank, of lines:
 *
 *   tacit arrivals 1 rank 0 of 3 run 91ab33d04c6fe112 stamp 5f1b77c0a2e4d890
 *   12 begin ~90d1c3f5                  the first step that waits for nobody
 *   17 take 1 2 offer 2 ~1f03a9c2       at the end of step 17
 *   40 meet ~7745be01                   after step 40: all ranks together
 *
 * Each line ends with a checksum of all up to it: ranks that follow logs that do not fit together would wait for each
 * other without end.
 */
#ifndef TACITI_EXCHANGE_ARRIVALS_H
#define TACITI_EXCHANGE_ARRIVALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tacit/tacit.h"

typedef struct taciti_arrivals taciti_arrivals;

/* Identifies the run whose log it is. */
typedef struct taciti_arrivals_run {
    int rank, ranks;
    uint64_t digest; /* of all that decides its course, but for arrivals */
    uint64_t stamp;  /* of this run alone, the same on all its ranks; replay() does not read it */
} taciti_arrivals_run;

/* The work at the end of a step; peers in the order in which they were worked on. */
typedef struct taciti_arrivals_step {
    int64_t step;
    bool meet;
    size_t taken, offered;
    int *take, *offer; /* [ranks]; the caller's */
} taciti_arrivals_step;

/* Begins the log of this rank in a folder, which is made, and replaces an older one. Not collective. */
tacit_status taciti_arrivals_record(const char *folder, const taciti_arrivals_run *run, taciti_arrivals **out);
/* Opens the log of this rank. E_CONFIG, with what is expected, for that of another run. Not collective. */
tacit_status taciti_arrivals_replay(const char *folder, const taciti_arrivals_run *run, taciti_arrivals **out);
/* The stamp of the run whose log is followed: ranks with different ones hold logs of different runs. */
uint64_t taciti_arrivals_stamp(const taciti_arrivals *arrivals);
/* E_IO if a line could not be written, which was logged then. NULL is fine. */
tacit_status taciti_arrivals_close(taciti_arrivals *arrivals);

bool taciti_arrivals_replays(const taciti_arrivals *arrivals); /* NULL: no */

/* Before the first step: notes it, or returns E_CONFIG if the log begins with another. NULL: does nothing. */
tacit_status taciti_arrivals_begin(taciti_arrivals *arrivals, int64_t step);
/* Adds a line; none if nothing was taken or offered. An error is logged, and that of close. NULL: does nothing. */
void taciti_arrivals_write(taciti_arrivals *arrivals, const taciti_arrivals_step *step);
/* Writes what is buffered to the file. */
void taciti_arrivals_flush(taciti_arrivals *arrivals);

/* Sets what the log says of this step; nothing was done in a step without a line. out->step, take and offer are the
 * caller's. E_DATA, with the line, for a file that is damaged or ends before this step. */
tacit_status taciti_arrivals_read(taciti_arrivals *arrivals, taciti_arrivals_step *out);
/* Returns whether the log has ranks meet after this step. Call it after read(). */
bool taciti_arrivals_meets(const taciti_arrivals *arrivals, int64_t step);
/* Returns E_DATA, with the line, if a log that is followed goes on with something else than a line of it. A last line
 * without its end is the end of the log: a crash has cut it off. NULL: does nothing. Call it after a meeting. */
tacit_status taciti_arrivals_check(taciti_arrivals *arrivals);
/* Returns whether a log is followed and has no further line. NULL: no. */
bool taciti_arrivals_ended(const taciti_arrivals *arrivals);

#endif
