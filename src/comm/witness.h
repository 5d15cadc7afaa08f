/* SPDX-License-Identifier: Apache-2.0
 *
 * The last known activity of a process, for messages about its failure. Peers learn it from heartbeats, its watcher
 * from a page of shared memory. It is written and read without locks, because the writer may die or be stopped at any
 * instruction.
 */
#ifndef TACITI_COMM_WITNESS_H
#define TACITI_COMM_WITNESS_H

#include <stdatomic.h>
#include <stdint.h>

enum { TACITI_NOTE_WORDS = 6, TACITI_NOTE_BYTES = 48, TACITI_WITNESS_TEXT_BYTES = 160 };

/* Announced by a process before it shuts the engine's library down; from then on its peers hear nothing of it. */
#define TACITI_DOING_SHUT_DOWN "shut down"

/* A number and a text of up to TACITI_NOTE_BYTES - 1 bytes. */
typedef struct taciti_note {
    _Atomic uint32_t turn; /* odd while being written */
    _Atomic int64_t number;
    _Atomic uint64_t words[TACITI_NOTE_WORDS];
} taciti_note;

/* Truncates a longer text. Any thread; concurrent writers may mix their texts, but do no other harm. */
void taciti_note_write(taciti_note *note, int64_t number, const char *text);

/* Reads a consistent pair or, if the writer died while writing, whatever is there after some attempts. The text is
 * always terminated. Any thread. */
void taciti_note_read(const taciti_note *note, int64_t *number, char text[TACITI_NOTE_BYTES]);

/* Initialise with zeros. */
typedef struct taciti_witness {
    taciti_note doing;          /* (step or -1, word) as announced; no word: the ranks are not connected yet */
    taciti_note job;            /* (detail or -1, name) of the running communication job, or an empty text */
    _Atomic int64_t silence_ns; /* the longest silence of a peer, when it was last looked at */
} taciti_witness;

/* A snapshot of a witness, as a heartbeat carries it. */
typedef struct taciti_sight {
    int64_t step, detail;
    char doing[TACITI_NOTE_BYTES], job[TACITI_NOTE_BYTES];
} taciti_sight;

void taciti_witness_look(const taciti_witness *witness, taciti_sight *out);

/* Formats "step 118, backward, all-reduce of bucket 3", or "start-up" if nothing was announced. */
void taciti_sight_text(const taciti_sight *sight, char out[TACITI_WITNESS_TEXT_BYTES]);

#endif
