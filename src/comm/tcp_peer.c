/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/tcp_peer.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

enum { WRITE_ROUNDS = 8 }; /* chunks before others have their turn */

/* ---- lists ------------------------------------------------------------------------------------------------------- */
static void append_message(taciti_tcp_list *list, taciti_tcp_message *m) {
    m->next = NULL;
    if (list->first == NULL)
        list->first = m;
    else
        list->last->next = m;
    list->last = m;
}

/* Takes this message, which is in the list, out of it; NULL: nothing. Returns it. */
static taciti_tcp_message *take_message(taciti_tcp_list *list, taciti_tcp_message *m) {
    taciti_tcp_message **at = &list->first, *before = NULL;
    if (m == NULL) return NULL;
    for (; *at != m; at = &before->next) before = *at;
    *at = m->next;
    if (list->last == m) list->last = before;
    return m;
}

static taciti_tcp_message *find_tag(const taciti_tcp_list *list, int tag) {
    taciti_tcp_message *m = list->first;
    while (m != NULL && m->tag != tag) m = m->next;
    return m;
}

static taciti_tcp_message *find_number(const taciti_tcp_list *list, uint64_t number) {
    taciti_tcp_message *m = list->first;
    while (m != NULL && m->number != number) m = m->next;
    return m;
}

static taciti_tcp_message *new_message(taciti_tcp_peer *peer, int tag, char *bytes, size_t count) {
    taciti_tcp_pool *pool = peer->pool;
    taciti_tcp_message *m = pool->spare, *older = m == NULL ? pool->newest : m->older;
    if (m != NULL)
        pool->spare = m->next;
    else
        m = pool->newest = taciti_calloc(1, sizeof *m);
    if (m == NULL) {
        pool->newest = older;
        return NULL;
    }
    *m = (taciti_tcp_message){.older = older, .peer = peer, .tag = tag, .bytes = bytes, .count = count};
    return m;
}

void taciti_tcp_message_release(taciti_tcp_message *m) {
    m->next = m->peer->pool->spare;
    m->peer->pool->spare = m;
}

void taciti_tcp_pool_destroy(taciti_tcp_pool *pool) {
    while (pool->newest != NULL) {
        taciti_tcp_message *m = pool->newest;
        pool->newest = m->older;
        taciti_free(m->copy);
        taciti_free(m);
    }
    pool->spare = NULL;
}

void taciti_tcp_peer_lose(taciti_tcp_peer *peer, const char *why) {
    if (peer->lost) return;
    peer->lost = true;
    (void)snprintf(peer->why, sizeof peer->why, "%s", why);
    taciti_tcp_link_close(&peer->link);
}

/* ---- out --------------------------------------------------------------------------------------------------------- */
static tacit_status queue_frame(taciti_tcp_peer *peer, const taciti_frame *frame) {
    taciti_tcp_message *m = new_message(peer, 0, NULL, 0);
    if (m == NULL) return TACIT_E_MEMORY;
    m->frame = *frame;
    m->is_control = true;
    append_message(&peer->out, m);
    return TACIT_OK;
}

tacit_status taciti_tcp_peer_tell(taciti_tcp_peer *peer, taciti_frame_kind kind, uint64_t value) {
    if (kind == TACITI_FRAME_GOODBYE) peer->said_goodbye = true;
    return queue_frame(peer, &(taciti_frame){.kind = kind, .value = value});
}

tacit_status taciti_tcp_peer_send(taciti_tcp_peer *peer, int tag, const void *bytes, size_t count,
                                  taciti_tcp_message **out) {
    const size_t cost = taciti_frame_cost(count);
    const bool eager = count <= TACITI_FRAME_EAGER_BYTES && peer->window_used + cost <= TACITI_FRAME_WINDOW_BYTES;
    if (!eager && peer->asked == TACITI_TCP_ASKED_MAX)
        return taciti_fail(TACIT_E_INTERNAL, "%d messages to %s wait for their receives", (int)TACITI_TCP_ASKED_MAX,
                           peer->name);
    taciti_tcp_message *m = new_message(peer, tag, (char *)(uintptr_t)bytes, count);
    if (m == NULL) return TACIT_E_MEMORY;
    m->number = peer->out_number++;
    m->frame = (taciti_frame){.kind = eager ? TACITI_FRAME_EAGER : TACITI_FRAME_ASK,
                              .tag = tag,
                              .bytes = eager ? (uint32_t)count : 0,
                              .message = m->number,
                              .value = eager ? 0 : count};
    if (eager)
        peer->window_used += cost;
    else
        peer->asked++;
    append_message(&peer->out, m);
    *out = m;
    return TACIT_OK;
}

/* An announced send must outlive its frame; a control frame is gone with it. */
static void note_written(void *owner, size_t bytes) {
    taciti_tcp_message *m = owner;
    if (m->is_control) {
        taciti_tcp_message_release(m);
    } else {
        m->moved += bytes;
        m->done = m->frame.kind == TACITI_FRAME_EAGER || m->moved == m->wanted;
    }
}

static void put_announcements(taciti_tcp_peer *peer) {
    while (peer->out.first != NULL && taciti_tcp_link_has_room(&peer->link, peer->out.first->frame.kind)) {
        taciti_tcp_message *m = peer->out.first;
        (void)take_message(&peer->out, m);
        const bool asks = !m->is_control && m->frame.kind == TACITI_FRAME_ASK;
        taciti_tcp_link_put(&peer->link, &m->frame, m->bytes, asks ? NULL : m);
        if (asks) append_message(&peer->asking, m);
    }
}

static void put_chunk(taciti_tcp_peer *peer) {
    if (peer->sending.first == NULL || !taciti_tcp_link_has_room(&peer->link, TACITI_FRAME_CHUNK)) return;
    taciti_tcp_message *m = peer->sending.first;
    (void)take_message(&peer->sending, m);
    const size_t left = m->wanted - m->claimed, n = left < TACITI_FRAME_CHUNK_BYTES ? left : TACITI_FRAME_CHUNK_BYTES;
    const taciti_frame frame = {
        .kind = TACITI_FRAME_CHUNK, .bytes = (uint32_t)n, .message = m->number, .value = m->claimed};
    taciti_tcp_link_put(&peer->link, &frame, m->bytes + m->claimed, m);
    m->claimed += n;
    if (m->claimed < m->wanted) append_message(&peer->sending, m); /* behind the others */
}

/* Returns true if the connection took everything and there is more. */
static bool write_once(taciti_tcp_peer *peer) {
    taciti_tcp_link *link = &peer->link;
    if (link->fd < 0 || link->out_broken) return false;
    put_announcements(peer);
    put_chunk(peer);
    if (link->out_count == 0) return false;
    if (!taciti_tcp_link_flush(link, note_written)) return false; /* its last words can still be read */
    return !link->out_blocked && taciti_tcp_peer_wants_out(peer);
}

void taciti_tcp_peer_write(taciti_tcp_peer *peer) {
    for (int round = 0; round < WRITE_ROUNDS && write_once(peer); round++) {
    }
}

bool taciti_tcp_peer_wants_out(const taciti_tcp_peer *peer) {
    if (peer->link.fd < 0 || peer->link.out_broken) return false;
    return peer->link.out_count > 0 || peer->sending.first != NULL || peer->out.first != NULL;
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */
/* The memory of an eager message is free again. The peer is told when it is worth a frame. */
static tacit_status give_credit(taciti_tcp_peer *peer, size_t bytes) {
    peer->window_held -= taciti_frame_cost(bytes);
    peer->credit += taciti_frame_cost(bytes);
    if (peer->credit < TACITI_FRAME_CREDIT_BYTES) return TACIT_OK;
    const taciti_frame frame = {.kind = TACITI_FRAME_CREDIT, .value = peer->credit};
    peer->credit = 0;
    return queue_frame(peer, &frame);
}

static tacit_status answer_asker(taciti_tcp_peer *peer, taciti_tcp_message *receive, const taciti_frame *asked) {
    receive->number = asked->message;
    receive->total = (size_t)asked->value;
    receive->wanted = receive->count < receive->total ? receive->count : receive->total;
    receive->done = receive->wanted == 0;
    if (!receive->done) append_message(&peer->arriving, receive);
    peer->asked_held--;
    return queue_frame(peer,
                       &(taciti_frame){.kind = TACITI_FRAME_GO, .message = asked->message, .value = receive->wanted});
}

static tacit_status deliver_copy(taciti_tcp_peer *peer, taciti_tcp_message *receive, taciti_tcp_message *kept) {
    const size_t n = kept->frame.bytes < receive->count ? kept->frame.bytes : receive->count, total = kept->frame.bytes;
    if (n > 0) memcpy(receive->bytes, kept->copy, n);
    receive->total = total;
    receive->done = true;
    taciti_free(kept->copy);
    kept->copy = NULL;
    taciti_tcp_message_release(kept);
    return give_credit(peer, total);
}

tacit_status taciti_tcp_peer_receive(taciti_tcp_peer *peer, int tag, void *bytes, size_t count,
                                     taciti_tcp_message **out) {
    taciti_tcp_message *m = new_message(peer, tag, bytes, count);
    if (m == NULL) return TACIT_E_MEMORY;
    taciti_tcp_message *kept = take_message(&peer->unexpected, find_tag(&peer->unexpected, tag));
    *out = m;
    if (kept == NULL) {
        append_message(&peer->posted, m);
        return TACIT_OK;
    }
    if (kept->frame.kind == TACITI_FRAME_EAGER) return deliver_copy(peer, m, kept);
    const tacit_status status = answer_asker(peer, m, &kept->frame);
    taciti_tcp_message_release(kept);
    return status;
}

static const char *keep_message(taciti_tcp_peer *peer, const taciti_frame *frame, taciti_tcp_message **out) {
    taciti_tcp_message *m = new_message(peer, frame->tag, NULL, 0);
    if (m == NULL) return "there is no memory for its message";
    m->frame = *frame;
    if (frame->bytes > 0) m->copy = taciti_calloc(frame->bytes, 1);
    if (frame->bytes > 0 && m->copy == NULL) return "there is no memory for its message";
    *out = m;
    return NULL;
}

/* The payload of an eager message is complete. A receive may have been posted while it came. */
static tacit_status end_eager(taciti_tcp_peer *peer, taciti_tcp_message *m) {
    if (m->frame.kind != TACITI_FRAME_EAGER) { /* a receive: it went straight there */
        m->done = true;
        return give_credit(peer, m->total);
    }
    taciti_tcp_message *receive = take_message(&peer->posted, find_tag(&peer->posted, m->tag));
    if (receive != NULL) return deliver_copy(peer, receive, m);
    append_message(&peer->unexpected, m);
    return TACIT_OK;
}

static const char *begin_eager(taciti_tcp_peer *peer, const taciti_frame *frame) {
    const size_t cost = taciti_frame_cost(frame->bytes);
    taciti_tcp_message *m = find_tag(&peer->posted, frame->tag);
    if (peer->window_held + cost > TACITI_FRAME_WINDOW_BYTES) return "it sends more than it may";
    if (m != NULL && m->count >= frame->bytes) {
        (void)take_message(&peer->posted, m);
        m->total = frame->bytes;
    } else {
        const char *refusal = keep_message(peer, frame, &m);
        if (refusal != NULL) return refusal;
    }
    peer->window_held += cost;
    peer->link.in_message = m;
    if (frame->bytes > 0) taciti_tcp_link_sink(&peer->link, m->copy != NULL ? m->copy : m->bytes, frame->bytes);
    if (frame->bytes > 0 || end_eager(peer, m) == TACIT_OK) return NULL;
    return "there is no memory for an answer";
}

static const char *begin_asked(taciti_tcp_peer *peer, const taciti_frame *frame) {
    if (peer->asked_held == TACITI_TCP_ASKED_MAX) return "it announces more messages than it may";
    peer->asked_held++;
    taciti_tcp_message *receive = take_message(&peer->posted, find_tag(&peer->posted, frame->tag)), *kept = NULL;
    if (receive != NULL) return answer_asker(peer, receive, frame) == TACIT_OK ? NULL : "there is no memory";
    const char *refusal = keep_message(peer, frame, &kept);
    if (refusal == NULL) append_message(&peer->unexpected, kept);
    return refusal;
}

static const char *begin_sending(taciti_tcp_peer *peer, const taciti_frame *frame) {
    taciti_tcp_message *m = take_message(&peer->asking, find_number(&peer->asking, frame->message));
    if (m == NULL) return "it answers what nobody asked";
    peer->asked--;
    if (frame->value > m->count) {
        append_message(&peer->asking, m);
        return "it wants more than there is";
    }
    m->wanted = (size_t)frame->value;
    m->done = m->wanted == 0;
    if (!m->done) append_message(&peer->sending, m);
    return NULL;
}

static const char *begin_chunk(taciti_tcp_peer *peer, const taciti_frame *frame) {
    taciti_tcp_message *m = find_number(&peer->arriving, frame->message);
    if (m == NULL) return "a part of a message that nobody receives";
    if (frame->value > m->wanted || frame->bytes > m->wanted - frame->value || frame->bytes > m->wanted - m->claimed)
        return "a part outside of its message";
    m->claimed += frame->bytes;
    peer->link.in_message = m;
    taciti_tcp_link_sink(&peer->link, m->bytes + frame->value, frame->bytes);
    return NULL;
}

static void end_chunk(taciti_tcp_peer *peer, taciti_tcp_message *m, size_t bytes) {
    m->moved += bytes;
    if (m->moved < m->wanted) return;
    (void)take_message(&peer->arriving, m);
    m->done = true;
}

static const char *take_credit(taciti_tcp_peer *peer, uint64_t value) {
    if (value > peer->window_used) return "it frees more than it was sent";
    peer->window_used -= (size_t)value;
    return NULL;
}

/* Returns NULL, or what is wrong with the frame. */
static const char *accept_frame(taciti_tcp_peer *peer) {
    const taciti_frame *frame = &peer->link.in_frame;
    if (peer->heard_goodbye) return "a frame after a goodbye";
    if ((frame->kind == TACITI_FRAME_EAGER || frame->kind == TACITI_FRAME_ASK) && frame->message != peer->in_number++)
        return "a message out of order";
    switch (frame->kind) {
    case TACITI_FRAME_EAGER: return begin_eager(peer, frame);
    case TACITI_FRAME_ASK: return begin_asked(peer, frame);
    case TACITI_FRAME_GO: return begin_sending(peer, frame);
    case TACITI_FRAME_CHUNK: return begin_chunk(peer, frame);
    case TACITI_FRAME_CREDIT: return take_credit(peer, frame->value);
    case TACITI_FRAME_ABORT: peer->abort_code = (int)frame->value; return NULL;
    case TACITI_FRAME_GOODBYE: peer->heard_goodbye = true; return NULL;
    }
    return "a frame of an unknown kind";
}

static const char *end_payload(taciti_tcp_peer *peer) {
    taciti_tcp_link *link = &peer->link;
    taciti_tcp_message *m = link->in_message;
    link->in_message = NULL;
    if (link->in_frame.kind == TACITI_FRAME_CHUNK)
        end_chunk(peer, m, link->in_frame.bytes);
    else if (end_eager(peer, m) != TACIT_OK)
        return "there is no memory for an answer";
    return NULL;
}

/* The end of a connection is no failure when one of both has said goodbye. */
static const char *end_connection(taciti_tcp_peer *peer) {
    if (!peer->heard_goodbye && !peer->said_goodbye)
        return peer->link.out_broken ? peer->link.why : "it has closed the connection";
    taciti_tcp_link_close(&peer->link);
    peer->heard_goodbye = true;
    return NULL;
}

/* Deals with one event; false when there are no more. */
static bool read_once(taciti_tcp_peer *peer, const char **refusal) {
    switch (taciti_tcp_link_receive(&peer->link)) {
    case TACITI_TCP_NOTHING: return false;
    case TACITI_TCP_FRAME: *refusal = accept_frame(peer); break;
    case TACITI_TCP_PAYLOAD: *refusal = end_payload(peer); break;
    case TACITI_TCP_CLOSED: *refusal = end_connection(peer); break;
    case TACITI_TCP_LOST: *refusal = peer->link.why; break;
    }
    return *refusal == NULL && peer->link.fd >= 0;
}

static void lose_to_abort(taciti_tcp_peer *peer) {
    char why[TACITI_TCP_WHY_BYTES];
    (void)snprintf(why, sizeof why, "it has ended the job with exit code %d", peer->abort_code);
    taciti_tcp_peer_lose(peer, why);
}

void taciti_tcp_peer_read(taciti_tcp_peer *peer) {
    const char *refusal = NULL;
    if (peer->link.fd < 0) return;
    taciti_tcp_link_is_readable(&peer->link);
    while (read_once(peer, &refusal)) {
    }
    if (peer->abort_code >= 0)
        lose_to_abort(peer);
    else if (refusal != NULL)
        taciti_tcp_peer_lose(peer, refusal);
}
