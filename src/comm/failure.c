/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/failure.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "comm/state.h"

#define LOOK_NS (50 * TACITI_NS_PER_MS)
#define BEAT_NS (200 * TACITI_NS_PER_MS)
#define GAP_NS TACITI_NS_PER_S   /* a longer gap between two looks means that this process was stopped */
#define GRACE_NS TACITI_NS_PER_S /* between one neighbour's chance to speak and the next one's */
#define LATE_S 1.0               /* until the engine knows that a rank had received what was sent to it when it left */

/* Beats that were under way say what a peer did before. */
#define FRESH_BEATS 2
#define FRESH_NS (TACITI_NS_PER_S / 2)

#define LAST_WORDS_NS (TACITI_NS_PER_S / 2)
/* A rank that ends because of another one's failure closes its connections too; what says so may still be on its way.
 */
#define LAST_WORDS_COME_NS (100 * TACITI_NS_PER_MS)

enum {
    BEAT,
    WATCHED_BEAT,
    GOODBYE,
    DEATH_KNOWN,
    DIFFERENCE,
    ALL_PAIRS_RANKS = 32,
    NAME_BYTES = 128,
    SEEN_BYTES = TACITI_WITNESS_TEXT_BYTES + 16
};

static bool are_neighbours(int a, int b, int size) {
    if (a == b) return false;
    if (size <= ALL_PAIRS_RANKS) return true;
    const int distance = a < b ? b - a : a - b, other_way = size - distance;
    return (distance & (distance - 1)) == 0 || (other_way & (other_way - 1)) == 0;
}

static void name_of(const taciti_comm *comm, int rank, char out[NAME_BYTES]) {
    const taciti_peer *peer = &comm->peers[rank];
    if (peer->pid == 0)
        (void)snprintf(out, NAME_BYTES, "rank %d (not yet introduced)", rank);
    else
        (void)snprintf(out, NAME_BYTES, "rank %d on host %s (pid %" PRId32 ")", rank, peer->host, peer->pid);
}

/* How long a peer may be silent. */
static double timeout_s(const taciti_comm *comm) {
    return comm->introduced ? comm->options.timeout_s : comm->options.start_s;
}

/* How long a live peer may keep this rank waiting. Neighbours of a rank that does not come up speak first. */
static double stall_s(const taciti_comm *comm) {
    return comm->introduced ? comm->options.stall_s : comm->options.start_s + 2e-9 * GRACE_NS;
}

static tacit_status listen_to(taciti_comm *comm, taciti_link *link) {
    link->receiving = true;
    return comm->engine.irecv(comm->engine.self, link->peer, TACITI_TAG_BEAT, &link->in, sizeof link->in,
                              &link->in_request);
}

static tacit_status send_beat(taciti_comm *comm, taciti_link *link) {
    if (link->sending || link->lost_ns != 0)
        return TACIT_OK; /* the engine still holds the last one: it counts for this one too */
    const taciti_witness *witness = atomic_load_explicit(&comm->witness, memory_order_acquire);
    link->out =
        (taciti_beat){.kind = witness == &comm->own_witness ? BEAT : WATCHED_BEAT, .awaited = comm->detector.awaited};
    taciti_witness_look(witness, &link->out.sight);
    link->sending = true;
    return comm->engine.isend(comm->engine.self, link->peer, TACITI_TAG_BEAT, &link->out, sizeof link->out,
                              &link->out_request);
}

/* Nothing is said to this neighbour after it. */
static tacit_status say_last(taciti_comm *comm, taciti_link *link, const taciti_beat *words) {
    if (link->said || link->lost_ns != 0) return TACIT_OK;
    link->last = *words;
    link->last.sent = link->sent;
    link->said = link->leaving = true;
    return comm->engine.isend(comm->engine.self, link->peer, TACITI_TAG_BEAT, &link->last, sizeof link->last,
                              &link->last_request);
}

/* culprit: of a death or difference. other: of a difference. */
static tacit_status send_last_word(taciti_comm *comm, taciti_link *link, int kind, int culprit,
                                   const taciti_sight *other) {
    taciti_beat words = {.kind = kind, .culprit = culprit, .finder = comm->engine.rank, .awaited = -1};
    if (other != NULL) words.other = *other;
    taciti_witness_look(atomic_load_explicit(&comm->witness, memory_order_acquire), &words.sight);
    return say_last(comm, link, &words);
}

static const char *reason_of_loss(taciti_comm *comm, int peer) {
    return comm->engine.lost != NULL ? comm->engine.lost(comm->engine.self, peer) : NULL;
}

/* Tests a message of a link. A lost connection is noted, and whoever's turn it is speaks of it (judge_link). */
static tacit_status test_link(taciti_comm *comm, taciti_link *link, taciti_engine_request *request, bool *done) {
    const tacit_status status = comm->engine.test(comm->engine.self, request, done);
    if (status != TACIT_E_PEER || reason_of_loss(comm, link->peer) == NULL) return status;
    if (link->lost_ns == 0) link->lost_ns = taciti_now_ns();
    *done = false;
    return TACIT_OK;
}

/* *busy turns false when the engine has let go of the message. */
static tacit_status has_left(taciti_comm *comm, taciti_link *link, taciti_engine_request *request, bool *busy) {
    bool done = true;
    if (*busy) TACITI_TRY(test_link(comm, link, request, &done));
    *busy = !done && link->lost_ns == 0;
    return TACIT_OK;
}

tacit_status taciti_detector_create(taciti_comm *comm) {
    taciti_detector *d = &comm->detector;
    const int size = comm->engine.size, me = comm->engine.rank;
    d->links = taciti_calloc((size_t)size, sizeof *d->links);
    d->link_of = taciti_calloc((size_t)size, sizeof *d->link_of);
    if (d->links == NULL || d->link_of == NULL) return TACIT_E_MEMORY;
    const int64_t now = taciti_now_ns();
    d->last_look_ns = d->rearmed_ns = now;
    d->awaited = -1;
    for (int rank = 0; rank < size; rank++) {
        if (!are_neighbours(me, rank, size)) continue;
        taciti_link *link = d->link_of[rank] = &d->links[d->count++];
        *link = (taciti_link){.peer = rank, .heard_ns = now, .awaited = -1};
        TACITI_TRY(listen_to(comm, link));
    }
    return TACIT_OK;
}

void taciti_detector_destroy(taciti_comm *comm) {
    taciti_free(comm->detector.links);
    taciti_free(comm->detector.link_of);
}

void taciti_detector_sent(taciti_comm *comm, int peer) {
    if (comm->detector.link_of[peer] != NULL) comm->detector.link_of[peer]->sent++;
}

void taciti_detector_heard(taciti_comm *comm, int peer, int64_t now_ns) {
    taciti_link *link = comm->detector.link_of[peer];
    if (link == NULL) return;
    link->heard_ns = now_ns;
    link->received++;
}

static void tell_neighbours(taciti_comm *comm, int culprit) {
    for (int i = 0; i < comm->detector.count; i++)
        (void)send_last_word(comm, &comm->detector.links[i], DEATH_KNOWN, culprit, NULL);
}

/* Sets the text about two ranks of which each waits for something else than the other. */
static void set_difference(const taciti_comm *comm, int rank, const taciti_sight *sight, int other,
                           const taciti_sight *elsewhere) {
    char names[2][NAME_BYTES], places[2][TACITI_WITNESS_TEXT_BYTES];
    const bool first = rank < other;
    name_of(comm, rank, names[!first]);
    name_of(comm, other, names[first]);
    taciti_sight_text(sight, places[!first]);
    taciti_sight_text(elsewhere, places[first]);
    taciti_error_set("ranks do different things: %s is in %s, and %s in %s; all ranks must make the same steps",
                     names[0], places[0], names[1], places[1]);
}

static bool is_rank(const taciti_comm *comm, int rank) { return rank >= 0 && rank < comm->engine.size; }

/* The rank that has noticed it has logged it. */
static tacit_status hear_of_difference(taciti_comm *comm, const taciti_link *link) {
    const taciti_beat report = link->in;
    if (is_rank(comm, report.culprit) && is_rank(comm, report.finder))
        set_difference(comm, report.finder, &report.sight, report.culprit, &report.other);
    else
        taciti_error_set("rank %d reports that another rank does something else", link->peer);
    const tacit_status status = taciti_comm_break(comm, TACIT_E_PEER);
    for (int i = 0; i < comm->detector.count && comm->engine.size > ALL_PAIRS_RANKS; i++)
        (void)say_last(comm, &comm->detector.links[i], &report); /* the finder may not reach them */
    return status;
}

/* Whoever speaks for the failed peer has logged it; this rank only ends its waits. */
static tacit_status hear_of_death(taciti_comm *comm, const taciti_link *link) {
    const int culprit = link->in.culprit, size = comm->engine.size;
    char name[NAME_BYTES] = "a rank", teller[NAME_BYTES];
    if (culprit >= 0 && culprit < size) name_of(comm, culprit, name);
    name_of(comm, link->peer, teller);
    if (culprit == comm->engine.rank)
        taciti_error_set("%s reports that this rank, %d, has left or failed", teller, culprit);
    else
        taciti_error_set("%s has failed, as %s reports", name, teller);
    const tacit_status status = taciti_comm_break(comm, TACIT_E_PEER);
    if (size > ALL_PAIRS_RANKS) tell_neighbours(comm, culprit); /* that rank may not reach them */
    return status;
}

static tacit_status hear_link(taciti_comm *comm, taciti_link *link, int64_t now) {
    while (link->receiving) {
        bool done = false;
        TACITI_TRY(test_link(comm, link, &link->in_request, &done));
        if (!done) break;
        link->receiving = false;
        link->heard_ns = now;
        link->beats++;
        link->watched = link->in.kind == WATCHED_BEAT;
        link->awaited = link->in.awaited;
        if (link->watched || link->in.kind == BEAT || link->in.kind == GOODBYE) link->seen = link->in.sight;
        if (link->in.kind == DEATH_KNOWN) return hear_of_death(comm, link);
        if (link->in.kind == DIFFERENCE) return hear_of_difference(comm, link);
        link->gone = link->in.kind == GOODBYE;
        if (!link->gone) TACITI_TRY(listen_to(comm, link));
    }
    TACITI_TRY(has_left(comm, link, &link->out_request, &link->sending));
    return has_left(comm, link, &link->last_request, &link->leaving);
}

/* How many neighbours of `peer` come before this rank and look well from here: they speak first. */
static int speakers_before_me(const taciti_comm *comm, int peer, int64_t now, int64_t limit_ns) {
    int count = 0;
    for (int rank = 0; rank < comm->engine.rank; rank++) {
        if (!are_neighbours(rank, peer, comm->engine.size)) continue;
        const taciti_link *link = comm->detector.link_of[rank];
        count += link == NULL || (!link->gone && link->lost_ns == 0 && now - link->heard_ns < limit_ns);
    }
    return count;
}

/* "; so did rank 3 on host n1 (pid 7), rank 4 ..." for the peers that are silent as well; cut when it is long. */
static void name_others(const taciti_comm *comm, const taciti_link *first, int64_t silent_since_ns, char *out,
                        size_t bytes) {
    out[0] = 0;
    for (int i = 0; i < comm->detector.count; i++) {
        const taciti_link *link = &comm->detector.links[i];
        if (link == first || link->gone || link->heard_ns > silent_since_ns) continue;
        char name[NAME_BYTES];
        name_of(comm, link->peer, name);
        taciti_text_add(out, bytes, "%s%s", out[0] == 0 ? "; so did " : ", ", name);
    }
}

static tacit_status tell_death(taciti_comm *comm, int culprit) {
    const tacit_status status = taciti_comm_break(comm, TACIT_E_PEER);
    tell_neighbours(comm, culprit);
    return status;
}

/* Neighbours learn in which steps this rank and the other one are. */
static tacit_status tell_difference(taciti_comm *comm, int other, const taciti_sight *elsewhere) {
    const tacit_status status = taciti_comm_break(comm, TACIT_E_PEER);
    for (int i = 0; i < comm->detector.count; i++)
        (void)send_last_word(comm, &comm->detector.links[i], DIFFERENCE, other, elsewhere);
    return status;
}

void taciti_detector_tell(taciti_comm *comm) { tell_neighbours(comm, comm->engine.rank); }

/* While ranks introduce each other it does not matter whether the one that is missing beats. */
static tacit_status declare_missing(taciti_comm *comm, int peer) {
    char name[NAME_BYTES];
    name_of(comm, peer, name);
    (void)taciti_fail(TACIT_E_PEER, "%s has not come up within %g s; --comm.start waits longer", name,
                      comm->options.start_s);
    return tell_death(comm, peer);
}

/* Writes its name, and "; last seen in step 5, play", or nothing about a rank that sends this one no heartbeats. */
static void describe_peer(const taciti_comm *comm, int peer, char name[NAME_BYTES], char seen[SEEN_BYTES]) {
    const taciti_link *link = comm->detector.link_of[peer];
    char sight[TACITI_WITNESS_TEXT_BYTES];
    name_of(comm, peer, name);
    seen[0] = 0;
    if (link == NULL) return;
    taciti_sight_text(&link->seen, sight);
    (void)snprintf(seen, SEEN_BYTES, "; last seen in %s", sight);
}

static tacit_status pronounce_dead(taciti_comm *comm, const taciti_link *link, int64_t now) {
    if (!comm->introduced) return declare_missing(comm, link->peer);
    char name[NAME_BYTES], seen[SEEN_BYTES], others[512];
    describe_peer(comm, link->peer, name, seen);
    name_others(comm, link, now - (int64_t)(comm->options.warn_s * 1e9), others, sizeof others);
    (void)taciti_fail(TACIT_E_PEER, "%s stopped answering %.1f s ago%s%s", name, (double)(now - link->heard_ns) * 1e-9,
                      seen, others);
    return tell_death(comm, link->peer);
}

/* One error is enough: that of a watcher, if there is one, says more. */
static tacit_status pronounce_lost(taciti_comm *comm, int peer) {
    const taciti_link *link = comm->detector.link_of[peer];
    const char *reason = reason_of_loss(comm, peer);
    char name[NAME_BYTES], seen[SEEN_BYTES];
    describe_peer(comm, peer, name, seen);
    taciti_error_set("%s has failed: %s%s", name, reason != NULL ? reason : "its connection is gone", seen);
    taciti_log(link != NULL && link->watched ? TACITI_LOG_WARN : TACITI_LOG_ERROR, "%s", taciti_error_text());
    return tell_death(comm, peer);
}

tacit_status taciti_detector_lost(taciti_comm *comm, int peer) {
    return comm->detector.link_of[peer] != NULL ? TACIT_OK : pronounce_lost(comm, peer);
}

static tacit_status judge_link(taciti_comm *comm, taciti_link *link, int64_t now) {
    const int64_t age = now - link->heard_ns, warn_ns = (int64_t)(comm->options.warn_s * 1e9),
                  timeout_ns = (int64_t)(timeout_s(comm) * 1e9);
    char name[NAME_BYTES], seen[SEEN_BYTES];
    if (link->gone) return TACIT_OK;
    if (link->lost_ns != 0) {
        const int before = speakers_before_me(comm, link->peer, now, warn_ns);
        return now - link->lost_ns >= LAST_WORDS_COME_NS + before * GRACE_NS ? pronounce_lost(comm, link->peer)
                                                                             : TACIT_OK;
    }
    if (age <= warn_ns && !link->warned) return TACIT_OK;
    if (age <= warn_ns) {
        link->warned = false;
        name_of(comm, link->peer, name);
        taciti_log(TACITI_LOG_WARN, "%s answers again", name);
        return TACIT_OK;
    }
    const int before = speakers_before_me(comm, link->peer, now, warn_ns);
    if (age > timeout_ns + before * GRACE_NS) return pronounce_dead(comm, link, now);
    if (link->warned || before > 0) return TACIT_OK;
    link->warned = true;
    describe_peer(comm, link->peer, name, seen);
    taciti_log(TACITI_LOG_WARN, "%s has been silent for %.1f s (it counts as failed after %.1f s)%s", name,
               (double)age * 1e-9, timeout_s(comm), seen);
    return TACIT_OK;
}

void taciti_detector_forgive(taciti_comm *comm) {
    taciti_detector *d = &comm->detector;
    d->rearmed_ns = taciti_now_ns();
    for (int i = 0; i < d->count; i++) d->links[i].heard_ns = d->rearmed_ns;
}

/* True once, so that peers hear of it at once: until then this rank was last seen in start-up. */
static bool begins_steps(taciti_comm *comm) {
    taciti_sight mine;
    if (comm->detector.begun) return false;
    taciti_witness_look(atomic_load_explicit(&comm->witness, memory_order_acquire), &mine);
    comm->detector.begun = mine.doing[0] != 0 && mine.step >= 0;
    return comm->detector.begun;
}

static tacit_status look_at_links(taciti_comm *comm, int64_t now) {
    taciti_detector *d = &comm->detector;
    const int code = atomic_load_explicit(&comm->abort_code, memory_order_acquire);
    if (code != 0) comm->engine.abort(comm->engine.self, code);
    if (now - d->last_look_ns > GAP_NS) taciti_detector_forgive(comm);
    d->last_look_ns = now;
    d->next_look_ns = now + LOOK_NS;
    const bool beat = !d->leaving && (begins_steps(comm) || now >= d->next_beat_ns);
    if (beat) d->next_beat_ns = now + BEAT_NS;
    int64_t silence_ns = 0;
    for (int i = 0; i < d->count; i++) {
        taciti_link *link = &d->links[i];
        TACITI_TRY(hear_link(comm, link, now));
        if (beat) TACITI_TRY(send_beat(comm, link));
        TACITI_TRY(judge_link(comm, link, now));
        if (!link->gone && now - link->heard_ns > silence_ns) silence_ns = now - link->heard_ns;
    }
    atomic_store(&atomic_load_explicit(&comm->witness, memory_order_acquire)->silence_ns, silence_ns);
    return TACIT_OK;
}

/* After a failure nothing is exchanged any more, but the last words must leave, and an abort must be obeyed. True: some
 * have not left. */
static bool look_after_failure(taciti_comm *comm, int64_t now) {
    bool busy = false;
    const int code = atomic_load_explicit(&comm->abort_code, memory_order_acquire);
    if (code != 0) comm->engine.abort(comm->engine.self, code);
    comm->detector.next_look_ns = now + LOOK_NS;
    if (atomic_exchange(&comm->giving_up, 0) != 0) taciti_detector_tell(comm);
    for (int i = 0; i < comm->detector.count; i++) {
        taciti_link *link = &comm->detector.links[i];
        if (has_left(comm, link, &link->last_request, &link->leaving) != TACIT_OK) link->leaving = false;
        busy = busy || link->leaving;
    }
    return busy;
}

void taciti_detector_last_words(taciti_comm *comm) {
    const int64_t begin_ns = taciti_now_ns();
    uint32_t turn = 0;
    while (look_after_failure(comm, taciti_now_ns()) && taciti_now_ns() - begin_ns < LAST_WORDS_NS)
        taciti_comm_pause(comm, turn++);
}

tacit_status taciti_detector_tick(taciti_comm *comm, int64_t now_ns) {
    const tacit_status health = taciti_comm_health(comm);
    atomic_fetch_add_explicit(&comm->queue.pulse, 1, memory_order_relaxed);
    if (now_ns < comm->detector.next_look_ns) return health;
    if (health == TACIT_OK) return taciti_comm_break(comm, look_at_links(comm, now_ns));
    (void)look_after_failure(comm, now_ns);
    return health;
}

/* Waits until `enough` beats of the peer have come, and sends it some. */
static tacit_status hear_anew(taciti_comm *comm, const taciti_link *link, uint64_t enough) {
    const int64_t end_ns = taciti_now_ns() + FRESH_NS;
    while (link->beats < enough && link->receiving && link->lost_ns == 0 && taciti_now_ns() < end_ns) {
        TACITI_TRY(taciti_comm_break(comm, look_at_links(comm, taciti_now_ns())));
        taciti_sleep_ns(TACITI_NS_PER_MS);
    }
    return TACIT_OK;
}

static bool are_different(const char *a, const char *b) { return strncmp(a, b, TACITI_NOTE_BYTES - 1) != 0; }

/* In one step a rank may compute while its buckets travel, and another one wait for them. */
static bool is_elsewhere(const taciti_sight *mine, const taciti_sight *theirs) {
    if (mine->doing[0] == 0 || theirs->doing[0] == 0) return false; /* nothing was announced */
    return mine->step != theirs->step ||
           (are_different(mine->doing, theirs->doing) && are_different(mine->job, theirs->job));
}

tacit_status taciti_detector_compare(taciti_comm *comm, int peer) {
    taciti_detector *d = &comm->detector;
    taciti_sight mine;
    const taciti_link *link = d->link_of[peer];
    if (link == NULL) return TACIT_OK;
    const uint64_t enough = link->beats + FRESH_BEATS;
    TACITI_TRY(hear_anew(comm, link, enough));
    if (link->beats < enough) return TACIT_OK; /* what it did earlier tells nothing */
    taciti_witness_look(atomic_load_explicit(&comm->witness, memory_order_acquire), &mine);
    if (!is_elsewhere(&mine, &link->seen)) return TACIT_OK;
    set_difference(comm, comm->engine.rank, &mine, peer, &link->seen);
    taciti_log(TACITI_LOG_ERROR, "%s", taciti_error_text());
    return tell_difference(comm, peer, &link->seen);
}

/* Where no wait is under way a step that is not this rank's tells that one of both has left early. */
tacit_status taciti_detector_compare_ends(const taciti_comm *comm) {
    taciti_sight mine;
    char name[NAME_BYTES], texts[2][TACITI_WITNESS_TEXT_BYTES];
    taciti_witness_look(atomic_load_explicit(&comm->witness, memory_order_acquire), &mine);
    for (int i = 0; i < comm->detector.count; i++) {
        const taciti_link *link = &comm->detector.links[i];
        if (link->seen.step == mine.step) continue;
        name_of(comm, link->peer, name);
        taciti_sight_text(&link->seen, texts[0]);
        taciti_sight_text(&mine, texts[1]);
        return taciti_fail(TACIT_E_USAGE,
                           "%s has left the job in %s, and rank %d in %s; all ranks must make the same steps", name,
                           texts[0], comm->engine.rank, texts[1]);
    }
    return TACIT_OK;
}

/* A rank that has left, and whose messages have all arrived, will never send what is waited for. Steps do not tell:
 * jobs of one communicator have their own, and ranks may count theirs. */
static bool has_sent_all(const taciti_link *link) {
    return link->received == link->in.sent && taciti_now_ns() - link->heard_ns > (int64_t)(LATE_S * 1e9);
}

static double patience_s(const taciti_comm *comm, const taciti_link *link) {
    if (link == NULL || !link->gone) return stall_s(comm);
    const double limit_s = timeout_s(comm);
    return comm->introduced && has_sent_all(link) && limit_s > LATE_S ? LATE_S : limit_s;
}

static tacit_status declare_left(taciti_comm *comm, const taciti_link *link, const char *mine) {
    char name[NAME_BYTES], sight[TACITI_WITNESS_TEXT_BYTES];
    name_of(comm, link->peer, name);
    taciti_sight_text(&link->seen, sight);
    (void)taciti_fail(TACIT_E_PEER,
                      "%s has left the job in %s, but rank %d waits for it in %s; all ranks must make the same steps",
                      name, sight, comm->engine.rank, mine);
    return tell_difference(comm, link->peer, &link->seen);
}

static tacit_status declare_stalled(taciti_comm *comm, int peer, double waited_s, const char *mine) {
    char name[NAME_BYTES], seen[SEEN_BYTES];
    describe_peer(comm, peer, name, seen);
    (void)taciti_fail(TACIT_E_PEER, "%s is alive but has kept rank %d waiting for %.1f s in %s%s", name,
                      comm->engine.rank, waited_s, mine, seen);
    return tell_death(comm, peer);
}

/* Returns the rank that keeps the peer waiting, directly or not; the peer where this rank cannot tell. */
static int find_cause(const taciti_comm *comm, int peer) {
    const int64_t silent_since_ns = taciti_now_ns() - (int64_t)(comm->options.warn_s * 1e9);
    int at = peer;
    for (int hops = 0; hops < comm->engine.size; hops++) {
        const taciti_link *link = comm->detector.link_of[at];
        if (link == NULL || link->gone) return peer;
        if (!is_rank(comm, link->awaited) || link->lost_ns != 0 || link->heard_ns < silent_since_ns) return at;
        at = link->awaited;
    }
    return peer;
}

tacit_status taciti_detector_stall(taciti_comm *comm, int peer, int64_t begin_ns) {
    const taciti_detector *d = &comm->detector;
    const taciti_link *link = d->link_of[peer];
    const int64_t since_ns = begin_ns > d->rearmed_ns ? begin_ns : d->rearmed_ns;
    const double waited_s = (double)(taciti_now_ns() - since_ns) * 1e-9;
    if (waited_s <= patience_s(comm, link)) return taciti_comm_ask(comm, begin_ns);
    if (!comm->introduced) return declare_missing(comm, peer);
    taciti_sight own;
    char mine[TACITI_WITNESS_TEXT_BYTES];
    taciti_witness_look(atomic_load_explicit(&comm->witness, memory_order_acquire), &own);
    taciti_sight_text(&own, mine);
    if (link != NULL && link->gone) return declare_left(comm, link, mine);
    return declare_stalled(comm, find_cause(comm, peer), waited_s, mine);
}

tacit_status taciti_detector_goodbye(taciti_comm *comm) {
    taciti_detector *d = &comm->detector;
    d->leaving = true;
    const int64_t begin_ns = taciti_now_ns();
    for (uint32_t turn = 0;; turn++) {
        TACITI_TRY(taciti_comm_break(comm, look_at_links(comm, taciti_now_ns())));
        bool over = true;
        for (int i = 0; i < d->count; i++) {
            taciti_link *link = &d->links[i];
            TACITI_TRY(taciti_comm_break(comm, send_last_word(comm, link, GOODBYE, -1, NULL)));
            over = over && !link->sending && !link->leaving && link->gone;
            if (!link->gone) TACITI_TRY(taciti_detector_stall(comm, link->peer, begin_ns));
        }
        if (over) return TACIT_OK;
        taciti_comm_pause(comm, turn);
    }
}
