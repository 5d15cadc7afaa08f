/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/state.h"

#include <string.h>

#include "base/number.h"

taciti_state_entry *taciti_state_add(taciti_state *state, taciti_state_entry entry) {
    taciti_state_entry *added = &state->entries[taciti_min(state->count++, TACITI_STATE_MAX_ENTRIES)];
    *added = entry;
    return added;
}

taciti_state_entry *taciti_state_add_array(taciti_state *state, const char *name, taciti_state_owner owner,
                                           taciti_state_regroup regroup, const taciti_layout *layout, float *flat) {
    return taciti_state_add_ranges(state, name, owner, regroup, layout, flat, NULL, 0);
}

taciti_state_entry *taciti_state_add_ranges(taciti_state *state, const char *name, taciti_state_owner owner,
                                            taciti_state_regroup regroup, const taciti_layout *layout, float *flat,
                                            const taciti_range *ranges, size_t range_count) {
    return taciti_state_add(state, (taciti_state_entry){.name = name,
                                                        .kind = TACITI_STATE_ARRAY,
                                                        .owner = owner,
                                                        .regroup = regroup,
                                                        .data = flat,
                                                        .layout = layout,
                                                        .n = layout->n,
                                                        .ranges = ranges,
                                                        .range_count = range_count});
}

bool taciti_state_range(const taciti_state_entry *entry, size_t index, taciti_range *out) {
    if (index >= (entry->ranges == NULL ? 1 : entry->range_count)) return false;
    *out = entry->ranges == NULL ? (taciti_range){0, entry->layout->n} : entry->ranges[index];
    return true;
}

bool taciti_state_held(const taciti_state_entry *entry, size_t index, taciti_range *out) {
    if (!taciti_state_range(entry, index, out)) return false;
    if (entry->held != NULL) *out = entry->held[index];
    return true;
}

void taciti_state_read(const taciti_state_entry *entry, size_t at, float *out, size_t n) {
    const taciti_state_access *access = &entry->access;
    if (access->read != NULL)
        access->read(access->object, access->which, at, out, n);
    else
        memcpy(out, (const float *)entry->data + at, n * sizeof *out);
}

void taciti_state_write(const taciti_state_entry *entry, size_t at, const float *x, size_t n) {
    const taciti_state_access *access = &entry->access;
    if (access->read != NULL)
        access->write(access->object, access->which, at, x, n);
    else
        memcpy((float *)entry->data + at, x, n * sizeof *x);
}

taciti_state_entry *taciti_state_add_numbers(taciti_state *state, const char *name, taciti_state_owner owner,
                                             taciti_state_regroup regroup, double *numbers, size_t n) {
    return taciti_state_add(
        state,
        (taciti_state_entry){
            .name = name, .kind = TACITI_STATE_NUMBERS, .owner = owner, .regroup = regroup, .data = numbers, .n = n});
}

taciti_state_entry *taciti_state_add_bytes(taciti_state *state, const char *name, taciti_state_owner owner, void *bytes,
                                           size_t n) {
    return taciti_state_add(
        state, (taciti_state_entry){.name = name, .kind = TACITI_STATE_BYTES, .owner = owner, .data = bytes, .n = n});
}

bool taciti_state_is_of_rank(const taciti_state_entry *entry) {
    if (entry->kind != TACITI_STATE_ARRAY) return entry->kind == TACITI_STATE_BYTES && entry->owner == TACITI_STATE_OWN;
    return entry->owner == TACITI_STATE_OWN || entry->ranges != NULL;
}

const taciti_state_entry *taciti_state_find(const taciti_state *state, const char *name) {
    for (size_t i = 0; i < state->count && i < TACITI_STATE_MAX_ENTRIES; i++)
        if (strcmp(state->entries[i].name, name) == 0) return &state->entries[i];
    return NULL;
}
