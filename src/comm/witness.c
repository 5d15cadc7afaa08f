/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/witness.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { READ_ATTEMPTS = 64 };

void taciti_note_write(taciti_note *note, int64_t number, const char *text) {
    uint64_t words[TACITI_NOTE_WORDS] = {0};
    const size_t length = strlen(text);
    memcpy(words, text, length < TACITI_NOTE_BYTES ? length : TACITI_NOTE_BYTES - 1);
    const uint32_t turn = atomic_fetch_add_explicit(&note->turn, 1, memory_order_acq_rel);
    atomic_store_explicit(&note->number, number, memory_order_release);
    for (int i = 0; i < TACITI_NOTE_WORDS; i++) atomic_store_explicit(&note->words[i], words[i], memory_order_release);
    atomic_store_explicit(&note->turn, (turn | 1) + 1, memory_order_release); /* even, also where two write at once */
}

void taciti_note_read(const taciti_note *note, int64_t *number, char text[TACITI_NOTE_BYTES]) {
    for (int attempt = 0; attempt < READ_ATTEMPTS; attempt++) {
        uint64_t words[TACITI_NOTE_WORDS];
        const uint32_t turn = atomic_load_explicit(&note->turn, memory_order_acquire);
        *number = atomic_load_explicit(&note->number, memory_order_acquire);
        for (int i = 0; i < TACITI_NOTE_WORDS; i++)
            words[i] = atomic_load_explicit(&note->words[i], memory_order_acquire);
        memcpy(text, words, TACITI_NOTE_BYTES);
        text[TACITI_NOTE_BYTES - 1] = 0;
        if (turn % 2 == 0 && atomic_load_explicit(&note->turn, memory_order_acquire) == turn) return;
    }
}

void taciti_witness_look(const taciti_witness *witness, taciti_sight *out) {
    taciti_note_read(&witness->doing, &out->step, out->doing);
    taciti_note_read(&witness->job, &out->detail, out->job);
}

void taciti_sight_text(const taciti_sight *sight, char out[TACITI_WITNESS_TEXT_BYTES]) {
    const int size = TACITI_WITNESS_TEXT_BYTES, max = TACITI_NOTE_BYTES - 1; /* a peer's text may not end */
    int at = 0;
    if (sight->doing[0] == 0)
        at = snprintf(out, (size_t)size, "start-up");
    else if (sight->step < 0)
        at = snprintf(out, (size_t)size, "%.*s", max, sight->doing);
    else
        at = snprintf(out, (size_t)size, "step %" PRId64 ", %.*s", sight->step, max, sight->doing);
    if (sight->job[0] == 0) return;
    at += snprintf(out + at, (size_t)(size - at), ", %.*s", max, sight->job);
    if (sight->detail >= 0) (void)snprintf(out + at, (size_t)(size - at), " %" PRId64, sight->detail);
}
