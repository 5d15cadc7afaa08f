/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/circular.h"

#include <string.h>

#include "base/log.h"
#include "base/memory.h"

/* Everything about one number: written by the submitting thread before its job is queued, then by the job alone. */
typedef struct slot {
    taciti_circular *circular;
    struct slot *before;                     /* to be collected by this one's job; NULL: none */
    char *records;                           /* of all ranks; owned */
    taciti_engine_request *sends, *receives; /* by rank; owned */
    taciti_job job;
} slot;

struct taciti_circular {
    taciti_comm *comm;
    size_t record_bytes;
    slot *slots; /* [most]; owned */
    size_t max;
    uint64_t posted, taken;
};

static slot *slot_of(taciti_circular *c, uint64_t number) { return &c->slots[number % c->max]; }

static tacit_status slot_create(taciti_circular *c, slot *s) {
    const size_t ranks = (size_t)taciti_comm_size(c->comm);
    *s = (slot){.circular = c,
                .records = taciti_calloc(ranks, c->record_bytes),
                .sends = taciti_calloc(ranks, sizeof *s->sends),
                .receives = taciti_calloc(ranks, sizeof *s->receives)};
    return s->records == NULL || s->sends == NULL || s->receives == NULL ? TACIT_E_MEMORY : TACIT_OK;
}

static tacit_status slots_create(taciti_circular *c, size_t max) {
    c->slots = taciti_calloc(max, sizeof *c->slots);
    if (c->slots == NULL) return TACIT_E_MEMORY;
    c->max = max;
    for (size_t i = 0; i < max; i++) TACITI_TRY(slot_create(c, &c->slots[i]));
    return TACIT_OK;
}

tacit_status taciti_circular_create(taciti_comm *comm, size_t record_bytes, size_t max, taciti_circular **out) {
    taciti_circular *c = taciti_calloc(1, sizeof *c);
    if (c == NULL) return TACIT_E_MEMORY;
    c->comm = comm;
    c->record_bytes = record_bytes;
    const tacit_status status = slots_create(c, max);
    if (status == TACIT_OK)
        *out = c;
    else
        taciti_circular_destroy(c);
    return status;
}

void taciti_circular_destroy(taciti_circular *circular) {
    if (circular == NULL) return;
    for (size_t i = 0; i < circular->max; i++) {
        taciti_free(circular->slots[i].records);
        taciti_free(circular->slots[i].sends);
        taciti_free(circular->slots[i].receives);
    }
    taciti_free(circular->slots);
    taciti_free(circular);
}

/* ---- on the communication thread --------------------------------------------------------------------------------- */

static char *record_of(const slot *s, int rank) { return s->records + (size_t)rank * s->circular->record_bytes; }

static tacit_status collect(taciti_comm *comm, slot *s) {
    for (int r = 0; r < taciti_comm_size(comm); r++) {
        if (r == taciti_comm_rank(comm)) continue;
        TACITI_TRY(taciti_comm_await(comm, &s->receives[r]));
        TACITI_TRY(taciti_comm_await(comm, &s->sends[r]));
    }
    return TACIT_OK;
}

static tacit_status run_collect(taciti_comm *comm, void *context) { return collect(comm, context); }

/* Each rank begins with the rank after its own, so that not all write to the same one at once. */
static tacit_status run_post(taciti_comm *comm, void *context) {
    slot *s = context;
    const int size = taciti_comm_size(comm), me = taciti_comm_rank(comm);
    for (int i = 1; i < size; i++) {
        const int to = (me + i) % size, from = (me - i + size) % size;
        TACITI_TRY(taciti_comm_irecv(comm, from, record_of(s, from), s->circular->record_bytes, &s->receives[from]));
        TACITI_TRY(taciti_comm_isend(comm, to, record_of(s, me), s->circular->record_bytes, &s->sends[to]));
    }
    return s->before == NULL ? TACIT_OK : collect(comm, s->before);
}

/* ---- on the submitting thread ------------------------------------------------------------------------------------ */

/* Posted and not taken. */
static size_t count_pending(const taciti_circular *circular) { return (size_t)(circular->posted - circular->taken); }

tacit_status taciti_circular_post(taciti_circular *circular, const void *record) {
    const size_t pending = count_pending(circular);
    if (pending == circular->max)
        return taciti_fail(TACIT_E_INTERNAL, "more than %zu records that nobody has taken", circular->max);
    slot *s = slot_of(circular, circular->posted);
    memcpy(record_of(s, taciti_comm_rank(circular->comm)), record, circular->record_bytes);
    s->before = pending > 0 ? slot_of(circular, circular->posted - 1) : NULL;
    s->job = (taciti_job){.run = run_post, .context = s, .name = "reports", .detail = -1};
    TACITI_TRY(taciti_job_submit(circular->comm, &s->job));
    circular->posted++;
    return TACIT_OK;
}

/* The newest record has no job after it that would collect it. */
static tacit_status collect_newest(taciti_circular *circular, slot *s) {
    TACITI_TRY(taciti_job_wait(circular->comm, &s->job));
    taciti_job job = {.run = run_collect, .context = s, .name = "reports", .detail = -1};
    return taciti_job_run(circular->comm, &job);
}

tacit_status taciti_circular_take(taciti_circular *circular, void *records) {
    const size_t pending = count_pending(circular);
    if (pending == 0) return taciti_fail(TACIT_E_INTERNAL, "a record was to be taken before one was posted");
    slot *s = slot_of(circular, circular->taken);
    if (pending == 1)
        TACITI_TRY(collect_newest(circular, s));
    else
        TACITI_TRY(taciti_job_wait(circular->comm, &slot_of(circular, circular->taken + 1)->job));
    memcpy(records, s->records, (size_t)taciti_comm_size(circular->comm) * circular->record_bytes);
    circular->taken++;
    return TACIT_OK;
}
