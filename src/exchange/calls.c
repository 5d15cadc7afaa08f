/* SPDX-License-Identifier: Apache-2.0
 *
 * Links belong to the thread that runs the jobs. On each link READY is the last message before a meeting in either
 * direction, and something collective comes before the next call: no message is late.
 */
#include "exchange/calls.h"

#include <stdatomic.h>

#include "base/log.h"
#include "base/memory.h"

enum { NOTHING, CALLED, COME, READY };        /* stages */
enum { STAGE_BITS = 3, WAITS = 4, LAST = 8 }; /* a message: a stage; the sender knows of a rank that waits; goodbye */
enum { LINKS_MAX = 3 };

typedef struct link {
    int peer;
    bool above;
    char in, out;
    int heard, told; /* stages */
    bool told_waits, sending, ended;
    taciti_engine_request receive, send;
} link;

struct taciti_calls {
    taciti_comm *comm;
    int flow, links;
    link link[LINKS_MAX];
    _Atomic int own, all; /* stage of this rank; of all, as far as it knows */
    _Atomic int called, waits;
};

static void add_link(taciti_calls *c, int peer, bool above) {
    if (peer < taciti_comm_size(c->comm)) c->link[c->links++] = (link){.peer = peer, .above = above};
}

tacit_status taciti_calls_create(taciti_comm *comm, int flow, taciti_calls **out) {
    taciti_calls *c = taciti_calloc(1, sizeof *c);
    const int rank = taciti_comm_rank(comm);
    if (c == NULL) return TACIT_E_MEMORY;
    c->comm = comm;
    c->flow = flow;
    if (rank > 0) add_link(c, (rank - 1) / 2, true);
    add_link(c, 2 * rank + 1, false);
    add_link(c, 2 * rank + 2, false);
    *out = c;
    return TACIT_OK;
}

void taciti_calls_destroy(taciti_calls *c) { taciti_free(c); }

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static tacit_status listen_on(const taciti_calls *c, link *l) {
    return taciti_comm_irecv(c->comm, l->peer, &l->in, 1, &l->receive);
}

static tacit_status tell_link(const taciti_calls *c, link *l, int what) {
    l->out = (char)what;
    l->sending = true;
    return taciti_comm_isend(c->comm, l->peer, &l->out, 1, &l->send);
}

static tacit_status hear_link(taciti_calls *c, link *l) {
    l->ended = (l->in & LAST) != 0;
    l->heard = l->in & STAGE_BITS;
    if ((l->in & WAITS) != 0) atomic_store(&c->waits, 1);
    return l->ended ? TACIT_OK : listen_on(c, l);
}

static tacit_status look_at(taciti_calls *c, link *l) {
    bool done = false;
    if (l->sending) TACITI_TRY(taciti_comm_test(c->comm, &l->send, &done));
    if (done) l->sending = false;
    do {
        done = false;
        if (!l->ended) TACITI_TRY(taciti_comm_test(c->comm, &l->receive, &done));
        if (done) TACITI_TRY(hear_link(c, l));
    } while (done);
    return TACIT_OK;
}

/* The stage that all ranks have reached from this one on down. */
static int stage_below(const taciti_calls *c) {
    int stage = atomic_load(&c->own);
    for (int i = 0; i < c->links; i++)
        if (!c->link[i].above && c->link[i].heard < stage) stage = c->link[i].heard;
    return stage;
}

static void add_up(taciti_calls *c) {
    int all = stage_below(c), called = atomic_load(&c->own) != NOTHING || atomic_load(&c->waits) != 0;
    for (int i = 0; i < c->links; i++) {
        if (c->link[i].above) all = c->link[i].heard;
        called = called || c->link[i].heard != NOTHING;
    }
    atomic_store(&c->all, all);
    if (called) atomic_store(&c->called, 1);
}

static tacit_status pass_on(const taciti_calls *c, link *l) {
    const int known = l->above ? stage_below(c) : atomic_load(&c->all), called = atomic_load(&c->called);
    const int stage = known < CALLED && called != 0 ? CALLED : known;
    const bool waits = atomic_load(&c->waits) != 0, news = stage > l->told || (waits && !l->told_waits);
    if (!news || l->sending || l->told == READY) return TACIT_OK;
    l->told = stage;
    l->told_waits = waits;
    return tell_link(c, l, stage | (waits ? WAITS : 0));
}

static tacit_status move_all(taciti_calls *c) {
    for (int i = 0; i < c->links; i++) TACITI_TRY(look_at(c, &c->link[i]));
    add_up(c);
    for (int i = 0; i < c->links; i++) TACITI_TRY(pass_on(c, &c->link[i]));
    return TACIT_OK;
}

tacit_status taciti_calls_move(taciti_calls *c) {
    const int flow = taciti_comm_set_flow(c->comm, c->flow);
    const tacit_status status = move_all(c);
    (void)taciti_comm_set_flow(c->comm, flow);
    return status;
}

/* ---- steps and meetings ------------------------------------------------------------------------------------------ */

/* Says the next stage when it may be said. */
static void advance_stage(taciti_calls *c, bool due) {
    const int own = atomic_load(&c->own);
    if (own < COME && (due || atomic_load(&c->called) != 0)) atomic_store(&c->own, COME);
    if (own == COME && atomic_load(&c->all) >= COME) atomic_store(&c->own, READY);
}

bool taciti_calls_answer(taciti_calls *c, bool due) {
    if (c->links == 0) return due;
    if (atomic_load(&c->all) == READY || atomic_load(&c->waits) != 0) return true;
    advance_stage(c, due);
    return false;
}

static tacit_status await_sends(taciti_calls *c) {
    for (int i = 0; i < c->links; i++) {
        if (c->link[i].sending) TACITI_TRY(taciti_comm_await(c->comm, &c->link[i].send));
        c->link[i].sending = false;
    }
    return TACIT_OK;
}

/* Waits for a rank that has not said what this one has: all of its subtree, or what all have said. */
static tacit_status await_stage(taciti_calls *c) {
    const int own = atomic_load(&c->own);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < c->links; i++) {
            link *l = &c->link[i];
            if (l->above != (pass == 1) || l->heard >= own) continue;
            TACITI_TRY(taciti_comm_await(c->comm, &l->receive));
            return hear_link(c, l);
        }
    return TACIT_OK;
}

static tacit_status gather_all(taciti_comm *comm, void *context) {
    taciti_calls *c = context;
    (void)comm;
    atomic_store(&c->waits, 1);
    for (;;) {
        advance_stage(c, true);
        TACITI_TRY(await_sends(c));
        TACITI_TRY(move_all(c));
        if (atomic_load(&c->all) == READY) return await_sends(c);
        TACITI_TRY(await_stage(c));
    }
}

static tacit_status run_job(taciti_calls *c, tacit_status (*run)(taciti_comm *comm, void *context)) {
    taciti_job job = {.run = run, .context = c, .name = "call to a meeting", .detail = -1, .flow = c->flow};
    return taciti_job_run(c->comm, &job);
}

tacit_status taciti_calls_gather(taciti_calls *c) {
    if (c->links > 0) TACITI_TRY(run_job(c, gather_all));
    for (int i = 0; i < c->links; i++) c->link[i].heard = c->link[i].told = NOTHING, c->link[i].told_waits = false;
    atomic_store(&c->own, NOTHING);
    atomic_store(&c->all, NOTHING);
    atomic_store(&c->called, 0);
    atomic_store(&c->waits, 0);
    return TACIT_OK;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static tacit_status begin_all(taciti_comm *comm, void *context) {
    taciti_calls *c = context;
    (void)comm;
    for (int i = 0; i < c->links; i++) TACITI_TRY(listen_on(c, &c->link[i]));
    return TACIT_OK;
}

static tacit_status end_all(taciti_comm *comm, void *context) {
    taciti_calls *c = context;
    TACITI_TRY(await_sends(c));
    for (int i = 0; i < c->links; i++) TACITI_TRY(tell_link(c, &c->link[i], LAST));
    for (int i = 0; i < c->links; i++)
        while (!c->link[i].ended) {
            TACITI_TRY(taciti_comm_await(comm, &c->link[i].receive));
            TACITI_TRY(hear_link(c, &c->link[i]));
        }
    return await_sends(c);
}

tacit_status taciti_calls_begin(taciti_calls *c) { return run_job(c, begin_all); }
tacit_status taciti_calls_end(taciti_calls *c) { return run_job(c, end_all); }
