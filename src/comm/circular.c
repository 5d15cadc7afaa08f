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

tacit_status taciti_circular_create(taciti_comm *comm, size_t record_bytes, size_t max, taciti_circular **out) {
    const size_t ranks = (size_t)taciti_comm_size(comm);
    taciti_circular *c = taciti_calloc(1, sizeof *c);
    if (c == NULL) return TACIT_E_MEMORY;
    c->comm = comm;
    c->record_bytes = record_bytes;
    c->slots = taciti_calloc(max, sizeof *c->slots);
    bool room = c->slots != NULL;
    for (; c->max < max && room; c->max++) {
        slot *s = &c->slots[c->max];
        *s = (slot){.circular = c,
                    .records = taciti_calloc(ranks, record_bytes),
                    .sends = taciti_calloc(ranks, sizeof *s->sends),
                    .receives = taciti_calloc(ranks, sizeof *s->receives)};
        room = s->records != NULL && s->sends != NULL && s->receives != NULL;
    }
    if (room)
        *out = c;
    else
        taciti_circular_destroy(c);
    return room ? TACIT_OK : TACIT_E_MEMORY;
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

static tacit_status collect_records(taciti_comm *comm, void *context) {
    slot *s = context;
    for (int r = 0; r < taciti_comm_size(comm); r++) {
        if (r == taciti_comm_rank(comm)) continue;
        TACITI_TRY(taciti_comm_await(comm, &s->receives[r]));
        TACITI_TRY(taciti_comm_await(comm, &s->sends[r]));
    }
    return TACIT_OK;
}

/* Each rank begins with the rank after its own, so that not all write to the same one at once. */
static tacit_status run_post(taciti_comm *comm, void *context) {
    slot *s = context;
    const int size = taciti_comm_size(comm), me = taciti_comm_rank(comm);
    for (int i = 1; i < size; i++) {
        const int to = (me + i) % size, from = (me - i + size) % size;
        TACITI_TRY(taciti_comm_irecv(comm, from, record_of(s, from), s->circular->record_bytes, &s->receives[from]));
        TACITI_TRY(taciti_comm_isend(comm, to, record_of(s, me), s->circular->record_bytes, &s->sends[to]));
    }
    return s->before == NULL ? TACIT_OK : collect_records(comm, s->before);
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
    taciti_job_submit(circular->comm, &s->job);
    circular->posted++;
    return TACIT_OK;
}

tacit_status taciti_circular_take(taciti_circular *circular, void *records) {
    const size_t pending = count_pending(circular);
    if (pending == 0) return taciti_fail(TACIT_E_INTERNAL, "a record was to be taken before one was posted");
    slot *s = slot_of(circular, circular->taken);
    TACITI_TRY(taciti_job_wait(circular->comm, pending == 1 ? &s->job : &slot_of(circular, circular->taken + 1)->job));
    taciti_job job = {.run = collect_records, .context = s, .name = "reports", .detail = -1};
    if (pending == 1) TACITI_TRY(taciti_job_run(circular->comm, &job)); /* no job after it would collect it */
    memcpy(records, s->records, (size_t)taciti_comm_size(circular->comm) * circular->record_bytes);
    circular->taken++;
    return TACIT_OK;
}
