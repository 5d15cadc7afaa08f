/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/tcp_link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/memory.h"

enum { READ_BUDGET_BYTES = 1 << 20, LONG_BYTES = 16 << 10 };

/* Room in `sealed`: for a chunk, then for the other frames in the ring. */
enum {
    CHUNK_ROOM = TACITI_FRAME_CHUNK_BYTES + TACITI_SEAL_TAG_BYTES,
    EAGER_ROOM = TACITI_FRAME_EAGER_BYTES + TACITI_SEAL_TAG_BYTES
};

tacit_status taciti_tcp_link_create(int fd, uint32_t epoch, taciti_seal *seal, taciti_tcp_link *out) {
    uint8_t *stage = taciti_calloc(TACITI_TCP_STAGE_BYTES, 1), *sealed = NULL;
    if (seal != NULL) sealed = taciti_calloc(CHUNK_ROOM + TACITI_TCP_OUT_FRAMES * EAGER_ROOM, 1);
    if (stage == NULL || (seal != NULL && sealed == NULL)) {
        taciti_free(stage);
        taciti_free(sealed);
        return TACIT_E_MEMORY;
    }
    *out = (taciti_tcp_link){.fd = fd, .epoch = epoch, .seal = seal, .sealed = sealed, .stage = stage};
    return TACIT_OK;
}

void taciti_tcp_link_close(taciti_tcp_link *link) {
    taciti_tcp_memory_destroy(link->memory);
    link->memory = NULL;
    if (link->fd >= 0) (void)close(link->fd);
    link->fd = -1;
    taciti_seal_destroy(link->seal);
    link->seal = NULL;
    taciti_free(link->sealed);
    link->sealed = NULL;
    taciti_free(link->stage);
    link->stage = NULL;
}

/* Bytes behind a header or a payload. */
static size_t tag_bytes(const taciti_tcp_link *link) { return link->seal != NULL ? TACITI_SEAL_TAG_BYTES : 0; }

static size_t header_bytes(const taciti_tcp_link *link) { return TACITI_FRAME_HEADER_BYTES + tag_bytes(link); }

static size_t payload_bytes(const taciti_tcp_link *link, const taciti_tcp_out *out) {
    return out->bytes == 0 ? 0 : out->bytes + tag_bytes(link);
}

/* Notes what the system said; false, for the caller to return. */
static bool note_loss(taciti_tcp_link *link, const char *what) {
    (void)snprintf(link->why, sizeof link->why, "%s", what);
    return false;
}

void taciti_tcp_link_hear(taciti_tcp_link *link) {
    link->system_calls++;
    if (!taciti_tcp_memory_hear(link->memory)) link->ended = true;
}

/* ---- out --------------------------------------------------------------------------------------------------------- */
bool taciti_tcp_link_has_room(const taciti_tcp_link *link, taciti_frame_kind kind) {
    return link->fd >= 0 && link->out_count < TACITI_TCP_OUT_FRAMES &&
           (kind != TACITI_FRAME_CHUNK || !link->out_has_chunk);
}

static void seal_frame(taciti_tcp_link *link, taciti_tcp_out *out) {
    uint8_t *to = out->is_chunk ? link->sealed : link->sealed + CHUNK_ROOM + (out - link->out) * EAGER_ROOM;
    taciti_seal_close(link->seal, out->header, TACITI_FRAME_HEADER_BYTES, out->header);
    if (out->bytes > 0) taciti_seal_close(link->seal, out->payload, out->bytes, to);
    out->payload = (const char *)to;
}

void taciti_tcp_link_put(taciti_tcp_link *link, const taciti_frame *frame, const void *payload, void *owner) {
    taciti_tcp_out *out = &link->out[(link->out_first + link->out_count++) % TACITI_TCP_OUT_FRAMES];
    const bool is_chunk = frame->kind == TACITI_FRAME_CHUNK;
    *out = (taciti_tcp_out){.payload = payload, .bytes = frame->bytes, .owner = owner, .is_chunk = is_chunk};
    taciti_frame_write(frame, link->epoch, link->out_number++, out->header);
    if (link->seal != NULL) seal_frame(link, out);
    link->out_has_chunk = link->out_has_chunk || is_chunk;
}

/* Adds what is left of a block of which `skip` bytes are gone; returns what of `skip` concerns the next block. */
static size_t add_part(struct iovec *parts, int *count, const void *bytes, size_t n, size_t skip) {
    if (skip >= n) return skip - n;
    parts[(*count)++] = (struct iovec){.iov_base = (char *)(uintptr_t)bytes + skip, .iov_len = n - skip};
    return 0;
}

static size_t gather_frames(const taciti_tcp_link *link, struct iovec *parts, int *count) {
    size_t skip = link->out_written, total = 0;
    for (int i = 0; i < link->out_count; i++) {
        const taciti_tcp_out *out = &link->out[(link->out_first + i) % TACITI_TCP_OUT_FRAMES];
        skip = add_part(parts, count, out->header, header_bytes(link), skip);
        skip = add_part(parts, count, out->payload, payload_bytes(link, out), skip);
    }
    for (int i = 0; i < *count; i++) total += parts[i].iov_len;
    return total;
}

static void drop_written(taciti_tcp_link *link, size_t bytes, void (*written)(void *owner, size_t bytes)) {
    link->out_written += bytes;
    while (link->out_count > 0) {
        const taciti_tcp_out *out = &link->out[link->out_first];
        const size_t whole = header_bytes(link) + payload_bytes(link, out);
        if (link->out_written < whole) return;
        link->out_written -= whole;
        link->out_first = (link->out_first + 1) % TACITI_TCP_OUT_FRAMES;
        link->out_count--;
        if (out->is_chunk) link->out_has_chunk = false;
        if (out->owner != NULL) written(out->owner, out->bytes);
    }
}

static ssize_t write_parts(taciti_tcp_link *link, struct iovec *parts, int count) {
    if (link->memory != NULL) return taciti_tcp_memory_write(link->memory, parts, count);
    const struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
    link->system_calls++;
    return sendmsg(link->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool taciti_tcp_link_flush(taciti_tcp_link *link, void (*written)(void *owner, size_t bytes)) {
    struct iovec parts[2 * TACITI_TCP_OUT_FRAMES];
    int count = 0;
    const size_t total = gather_frames(link, parts, &count);
    if (total == 0) return true;
    const ssize_t sent = write_parts(link, parts, count);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        link->out_broken = true;
        return note_loss(link, strerror(errno));
    }
    link->out_blocked = sent < (ssize_t)total;
    if (sent > 0) drop_written(link, (size_t)sent, written);
    return true;
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */
void taciti_tcp_link_is_readable(taciti_tcp_link *link) {
    link->in_drained = false;
    link->in_budget = READ_BUDGET_BYTES;
}

void taciti_tcp_link_sink(taciti_tcp_link *link, void *to, size_t bytes) {
    link->payload = link->sink = to;
    link->sink_bytes = bytes;
}

static void advance_sink(taciti_tcp_link *link, size_t bytes) {
    link->sink += bytes;
    link->sink_bytes -= bytes;
}

static void move_from_stage(taciti_tcp_link *link) {
    const size_t staged = link->stage_end - link->stage_begin,
                 n = staged < link->sink_bytes ? staged : link->sink_bytes;
    if (n == 0) return;
    memcpy(link->sink, link->stage + link->stage_begin, n);
    link->stage_begin += n;
    advance_sink(link, n);
}

/* Moves the beginning of a header to the front of the stage. */
static void make_stage_room(taciti_tcp_link *link) {
    const size_t staged = link->stage_end - link->stage_begin;
    if (staged > 0 && link->stage_begin > 0) memmove(link->stage, link->stage + link->stage_begin, staged);
    link->stage_begin = 0;
    link->stage_end = staged;
}

/* Memory is read to its end before the end of the connection counts. */
static ssize_t read_parts(taciti_tcp_link *link, struct iovec *parts, int count) {
    if (link->memory == NULL) {
        link->system_calls++;
        return readv(link->fd, parts, count);
    }
    const ssize_t got = taciti_tcp_memory_read(link->memory, parts, count);
    return got < 0 && errno == EAGAIN && link->ended ? 0 : got;
}

/* Reads once, first into the sink and then into the stage: where long payloads follow each other no further than
 * the tag and the next header, for the rest would have to be copied. */
static taciti_tcp_event read_more(taciti_tcp_link *link) {
    make_stage_room(link);
    const size_t stage_max = link->in_long ? tag_bytes(link) + header_bytes(link) : TACITI_TCP_STAGE_BYTES;
    struct iovec parts[2];
    int count = 0;
    if (link->sink_bytes > 0) parts[count++] = (struct iovec){.iov_base = link->sink, .iov_len = link->sink_bytes};
    parts[count++] = (struct iovec){.iov_base = link->stage + link->stage_end, .iov_len = stage_max - link->stage_end};
    const size_t wanted = link->sink_bytes + stage_max - link->stage_end;
    const ssize_t got = read_parts(link, parts, count);
    if (got < 0 && errno != EAGAIN && errno != EINTR) return note_loss(link, strerror(errno)), TACITI_TCP_LOST;
    if (got == 0 && link->payload == NULL && link->stage_end == 0) return TACITI_TCP_CLOSED;
    if (got == 0) return note_loss(link, "the connection ended within a frame"), TACITI_TCP_LOST;
    const size_t n = got > 0 ? (size_t)got : 0, sunk = n < link->sink_bytes ? n : link->sink_bytes;
    advance_sink(link, sunk);
    link->stage_end += n - sunk;
    link->in_budget -= n < link->in_budget ? n : link->in_budget;
    link->in_drained = n < wanted || link->in_budget == 0;
    return TACITI_TCP_NOTHING;
}

/* Takes a tag that is staged, and opens what it belongs to. */
static bool open_block(taciti_tcp_link *link, void *bytes, size_t n) {
    const uint8_t *tag = link->stage + link->stage_begin;
    link->stage_begin += tag_bytes(link);
    return link->seal == NULL || taciti_seal_open(link->seal, bytes, n, tag) ||
           note_loss(link, "a frame whose seal is broken");
}

static taciti_tcp_event read_header(taciti_tcp_link *link) {
    uint8_t *header = link->stage + link->stage_begin;
    link->stage_begin += TACITI_FRAME_HEADER_BYTES;
    if (!open_block(link, header, TACITI_FRAME_HEADER_BYTES)) return TACITI_TCP_LOST;
    const char *refusal = taciti_frame_read(header, link->epoch, link->in_number, &link->in_frame);
    if (refusal != NULL) return note_loss(link, refusal), TACITI_TCP_LOST;
    link->in_number++;
    link->in_long = link->in_frame.bytes > LONG_BYTES;
    return TACITI_TCP_FRAME;
}

static taciti_tcp_event finish_payload(taciti_tcp_link *link) {
    char *payload = link->payload;
    link->payload = NULL;
    return open_block(link, payload, link->in_frame.bytes) ? TACITI_TCP_PAYLOAD : TACITI_TCP_LOST;
}

taciti_tcp_event taciti_tcp_link_receive(taciti_tcp_link *link) {
    for (;;) {
        if (link->sink_bytes > 0) move_from_stage(link);
        const size_t staged = link->stage_end - link->stage_begin;
        if (link->payload != NULL && link->sink_bytes == 0 && staged >= tag_bytes(link)) return finish_payload(link);
        if (link->payload == NULL && staged >= header_bytes(link)) return read_header(link);
        if (link->in_drained) return TACITI_TCP_NOTHING;
        const taciti_tcp_event event = read_more(link);
        if (event != TACITI_TCP_NOTHING) return event;
    }
}
