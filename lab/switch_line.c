/* SPDX-License-Identifier: Apache-2.0 */
#include "switch_line.h"

#include <stdlib.h>

uint64_t taciti_shaped_link_serial_ns(uint64_t rate_bps, size_t bytes) {
    /* The most bytes are a full queue's at the highest rate: 625 MB, so the product stays below 2^63. */
    return rate_bps == 0 ? 0 : (uint64_t)bytes * 8u * 1000000000u / rate_bps;
}

uint64_t taciti_shaped_link_queue_bytes(uint64_t rate_bps) {
    const uint64_t bytes = rate_bps / 8 / 20;
    return bytes < 1000000 ? 1000000 : bytes;
}

static uint64_t next_random(taciti_link_noise *noise) {
    noise->state ^= noise->state >> 12;
    noise->state ^= noise->state << 25;
    noise->state ^= noise->state >> 27;
    return noise->state * 0x2545F4914F6CDD1Du;
}

bool taciti_shaped_link_loses(const taciti_shaped_link *link, taciti_link_noise *noise) {
    return link->loss_ppm > 0 && (next_random(noise) >> 11) % 1000000 < link->loss_ppm;
}

/* Jitter that were drawn for each frame would vanish in a row of frames that keep their order: all would wait for the
 * slowest. It holds for a millisecond instead, as the load of a path does. */
static uint64_t jitter_offset_ns(const taciti_shaped_link *link, taciti_link_noise *noise, uint64_t now_ns) {
    if (link->jitter_ns == 0) return 0;
    if (now_ns >= noise->jitter_until_ns) {
        noise->offset_ns = (next_random(noise) >> 11) % (2 * link->jitter_ns + 1);
        noise->jitter_until_ns = now_ns + TACITI_JITTER_STEP_NS;
    }
    return noise->offset_ns;
}

uint64_t taciti_shaped_link_arrival_ns(const taciti_shaped_link *from, const taciti_shaped_link *to,
                                       taciti_link_noise *noise, uint64_t *last_ns, uint64_t now_ns) {
    const uint64_t delay_ns = from->delay_ns / 2 + to->delay_ns / 2 + jitter_offset_ns(from, noise, now_ns);
    /* The offset lies around the delay, so half of its range is taken off; no path is shorter than 0. */
    const uint64_t at_ns = now_ns + (delay_ns > from->jitter_ns ? delay_ns - from->jitter_ns : 0);
    if (at_ns > *last_ns) *last_ns = at_ns;
    return *last_ns;
}

bool taciti_port_enqueue(taciti_port_queue *queue, const taciti_shaped_link *link, uint64_t now_ns, size_t bytes,
                         uint64_t *leaves_ns) {
    const uint64_t starts_ns = queue->free_ns > now_ns && link->rate_bps > 0 ? queue->free_ns : now_ns;
    const uint64_t waits_ns = starts_ns - now_ns;
    if (waits_ns > taciti_shaped_link_serial_ns(link->rate_bps, taciti_shaped_link_queue_bytes(link->rate_bps)))
        return false;
    queue->free_ns = starts_ns + taciti_shaped_link_serial_ns(link->rate_bps, bytes);
    *leaves_ns = queue->free_ns;
    return true;
}

static bool before(const taciti_event *a, const taciti_event *b) {
    return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->order < b->order);
}

static bool grow(taciti_agenda *agenda) {
    const size_t capacity = agenda->capacity == 0 ? 1024 : 2 * agenda->capacity;
    taciti_event *heap = realloc(agenda->heap, capacity * sizeof *heap);
    if (heap == NULL) return false;
    agenda->heap = heap;
    agenda->capacity = capacity;
    return true;
}

bool taciti_agenda_put(taciti_agenda *agenda, uint64_t at_ns, void *what) {
    if (agenda->count == agenda->capacity && !grow(agenda)) return false;
    const taciti_event event = {.at_ns = at_ns, .order = agenda->next_order++, .what = what};
    size_t hole = agenda->count++;
    while (hole > 0 && before(&event, &agenda->heap[(hole - 1) / 2])) {
        agenda->heap[hole] = agenda->heap[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    agenda->heap[hole] = event;
    return true;
}

void *taciti_agenda_take(taciti_agenda *agenda) {
    void *what = agenda->heap[0].what;
    const taciti_event last = agenda->heap[--agenda->count];
    size_t hole = 0;
    for (size_t child; (child = 2 * hole + 1) < agenda->count; hole = child) {
        if (child + 1 < agenda->count && before(&agenda->heap[child + 1], &agenda->heap[child])) child++;
        if (!before(&agenda->heap[child], &last)) break;
        agenda->heap[hole] = agenda->heap[child];
    }
    agenda->heap[hole] = last;
    return what;
}
