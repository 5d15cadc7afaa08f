/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/tcp_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"

enum {
    LINE_BYTES = 64,
    STEP_BYTES = 32 << 10, /* progress that the other end may see before a whole write or read is done */
    SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL
};

/* The two ends write to different lines of the cache. */
struct taciti_tcp_ring {
    _Alignas(LINE_BYTES) _Atomic uint64_t written;
    _Alignas(LINE_BYTES) _Atomic uint64_t read;
    _Alignas(LINE_BYTES) _Atomic uint32_t reader_sleeps;
    _Alignas(LINE_BYTES) _Atomic uint32_t writer_sleeps;
    _Alignas(LINE_BYTES) char bytes[TACITI_TCP_RING_BYTES];
};

/* ---- life -------------------------------------------------------------------------------------------------------- */
/* The lower rank of a pair writes the first ring. */
static taciti_tcp_memory *map_rings(int file, int bell, bool first) {
    void *map = mmap(NULL, 2 * sizeof(taciti_tcp_ring), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) return NULL;
    taciti_tcp_memory *memory = taciti_calloc(1, sizeof *memory);
    if (memory == NULL) {
        (void)munmap(map, 2 * sizeof(taciti_tcp_ring));
        return NULL;
    }
    taciti_tcp_ring *rings = map, *out = &rings[first ? 0 : 1], *in = &rings[first];
    *memory = (taciti_tcp_memory){
        .bell = bell,
        .rings = rings,
        .out = {.ring = out, .mine = &out->written, .theirs = &out->read, .lead = TACITI_TCP_RING_BYTES},
        .in = {.ring = in, .mine = &in->read, .theirs = &in->written}};
    return memory;
}

void taciti_tcp_memory_destroy(taciti_tcp_memory *memory) {
    if (memory == NULL) return;
    (void)munmap(memory->rings, 2 * sizeof(taciti_tcp_ring));
    taciti_free(memory);
}

/* A file longer than RLIMIT_FSIZE would be the end of the process. */
static bool may_create(void) {
    struct rlimit limit;
    errno = EFBIG;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= 2 * sizeof(taciti_tcp_ring);
}

static int create_file(void) {
    if (!may_create()) return -1;
    const int file = memfd_create("tacit", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0) return -1;
    if (ftruncate(file, 2 * sizeof(taciti_tcp_ring)) == 0 && fcntl(file, F_ADD_SEALS, SEALS) == 0) return file;
    const int error = errno;
    (void)close(file);
    errno = error;
    return -1;
}

/* A file that could shrink would kill whoever reads it. */
static bool is_sound(int file) {
    struct stat status;
    const int seals = fcntl(file, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(file, &status) == 0 &&
           status.st_size == (off_t)(2 * sizeof(taciti_tcp_ring));
}

/* ---- handing over: one byte, 1 if there is memory, and with an offer the file ------------------------------------ */
typedef union ancillary {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
} ancillary;

/* Tells the peer whether this end has the memory; *out receives it if the peer is there. file: of an offer, or -1. */
static tacit_status send_word(int fd, int file, taciti_tcp_memory *memory, taciti_tcp_memory **out) {
    ancillary control = {.bytes = {0}};
    char word = memory != NULL ? 1 : 0;
    struct iovec part = {.iov_base = &word, .iov_len = 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (file >= 0) {
        control.header =
            (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof file), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), &file, sizeof file);
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
    }
    if (sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1) {
        *out = memory;
        return TACIT_OK;
    }
    taciti_tcp_memory_destroy(memory);
    return TACIT_E_PEER;
}

/* Neither a signal nor a false alarm ends the wait. */
static ssize_t await_word(int fd, int64_t end_ns, struct msghdr *message) {
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    for (;;) {
        const int64_t left_ms = (end_ns - taciti_now_ns()) / TACITI_NS_PER_MS,
                      max_ms = left_ms < INT_MAX ? left_ms : INT_MAX;
        const int ready = poll(&wait, 1, max_ms > 0 ? (int)max_ms : 0);
        if (ready == 0) return -1;
        const ssize_t got = ready == 1 ? recvmsg(fd, message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) : -1;
        if (got >= 0 || (errno != EAGAIN && errno != EINTR)) return got;
    }
}

/* *file is -1 if none came with the word. */
static tacit_status hear_word(int fd, int64_t end_ns, bool *yes, int *file) {
    ancillary control;
    char word = 0;
    struct iovec part = {.iov_base = &word, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    *file = -1;
    if (await_word(fd, end_ns, &message) != 1) return TACIT_E_PEER;
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof *file))
        memcpy(file, CMSG_DATA(header), sizeof *file);
    *yes = word == 1;
    return TACIT_OK;
}

tacit_status taciti_tcp_memory_offer(int fd, bool wanted, taciti_tcp_memory **out, const char **why) {
    const int file = wanted ? create_file() : -1;
    taciti_tcp_memory *memory = file >= 0 ? map_rings(file, fd, true) : NULL;
    if (wanted && memory == NULL) *why = strerror(errno);
    const tacit_status status = send_word(fd, memory != NULL ? file : -1, memory, out);
    if (file >= 0) (void)close(file);
    return status;
}

tacit_status taciti_tcp_memory_accept(int fd, bool wanted, int64_t end_ns, taciti_tcp_memory **out, const char **why) {
    taciti_tcp_memory *memory = NULL;
    bool offered = false;
    int file = -1;
    TACITI_TRY(hear_word(fd, end_ns, &offered, &file));
    errno = EINVAL;
    if (wanted && file >= 0 && is_sound(file)) memory = map_rings(file, fd, false);
    if (wanted && memory == NULL) *why = offered ? strerror(errno) : NULL;
    if (file >= 0) (void)close(file);
    return send_word(fd, -1, memory, out);
}

tacit_status taciti_tcp_memory_confirm(int fd, int64_t end_ns, taciti_tcp_memory **memory) {
    bool taken = false;
    int file = -1;
    TACITI_TRY(hear_word(fd, end_ns, &taken, &file));
    if (file >= 0) (void)close(file);
    if (taken) return TACIT_OK;
    taciti_tcp_memory_destroy(*memory);
    *memory = NULL;
    return TACIT_OK;
}

/* ---- sleep ------------------------------------------------------------------------------------------------------- */
/* Wakes the other end if it sleeps. This end has moved its counter before it reads the flag, and the other one sets the
 * flag before it looks at the counter for the last time, so one of both sees the other. */
static void ring_bell(const taciti_tcp_memory *memory, _Atomic uint32_t *sleeps) {
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(sleeps, memory_order_relaxed) == 0) return;
    if (atomic_exchange(sleeps, 0) != 0) (void)send(memory->bell, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void taciti_tcp_memory_sleep(taciti_tcp_memory *memory, bool for_room) {
    atomic_store_explicit(&memory->in.ring->reader_sleeps, 1, memory_order_relaxed);
    if (for_room) atomic_store_explicit(&memory->out.ring->writer_sleeps, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
}

void taciti_tcp_memory_wake(taciti_tcp_memory *memory) {
    atomic_store_explicit(&memory->in.ring->reader_sleeps, 0, memory_order_relaxed);
    atomic_store_explicit(&memory->out.ring->writer_sleeps, 0, memory_order_relaxed);
}

bool taciti_tcp_memory_hear(const taciti_tcp_memory *memory) {
    char rings[LINE_BYTES];
    const ssize_t got = recv(memory->bell, rings, sizeof rings, MSG_DONTWAIT);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */
bool taciti_tcp_memory_has_bytes(const taciti_tcp_memory *memory) {
    return atomic_load_explicit(memory->in.theirs, memory_order_acquire) != memory->in.moved;
}

static bool is_half_empty(uint64_t written, uint64_t read) { return written - read <= TACITI_TCP_RING_BYTES / 2; }

bool taciti_tcp_memory_has_room(const taciti_tcp_memory *memory) {
    return is_half_empty(memory->out.moved, atomic_load_explicit(memory->out.theirs, memory_order_acquire));
}

/* Bytes from `at` on that lie behind each other in memory. */
static size_t straight_bytes(uint64_t at) { return TACITI_TCP_RING_BYTES - at % TACITI_TCP_RING_BYTES; }

static ssize_t fail_with(int error) {
    errno = error;
    return -1;
}

/* How many bytes can be moved in one copy, at most n; if none are known of, looks at the other end's counter. SIZE_MAX:
 * the counter is impossible. */
static size_t bytes_for(taciti_tcp_end *end, size_t n) {
    if (end->limit == end->moved) end->limit = atomic_load_explicit(end->theirs, memory_order_acquire) + end->lead;
    const uint64_t left = end->limit - end->moved;
    return left > TACITI_TCP_RING_BYTES ? SIZE_MAX : taciti_min(n, taciti_min(left, straight_bytes(end->moved)));
}

/* Copies between the parts and the ring. */
static ssize_t move_parts(taciti_tcp_end *end, const struct iovec *parts, int count) {
    const uint64_t begin = end->moved;
    uint64_t told = begin;
    for (int i = 0; i < count; i++)
        for (size_t at = 0, n = 0; at < parts[i].iov_len; at += n) {
            char *part = (char *)parts[i].iov_base + at, *bytes = end->ring->bytes + end->moved % TACITI_TCP_RING_BYTES;
            n = bytes_for(end, taciti_min(parts[i].iov_len - at, STEP_BYTES));
            if (n == SIZE_MAX) return fail_with(EPROTO);
            if (n == 0) goto stop;
            memcpy(end->lead > 0 ? bytes : part, end->lead > 0 ? part : bytes, n);
            end->moved += n;
            if (end->moved - told < STEP_BYTES) continue;
            told = end->moved;
            atomic_store_explicit(end->mine, told, memory_order_release);
        }
stop:
    if (end->moved == begin) return fail_with(EAGAIN);
    atomic_store_explicit(end->mine, end->moved, memory_order_release);
    return (ssize_t)(end->moved - begin);
}

ssize_t taciti_tcp_memory_write(taciti_tcp_memory *memory, const struct iovec *parts, int count) {
    const ssize_t moved = move_parts(&memory->out, parts, count);
    if (moved > 0) ring_bell(memory, &memory->out.ring->reader_sleeps);
    return moved;
}

ssize_t taciti_tcp_memory_read(taciti_tcp_memory *memory, const struct iovec *parts, int count) {
    const ssize_t moved = move_parts(&memory->in, parts, count);
    if (moved > 0 && is_half_empty(memory->in.limit, memory->in.moved))
        ring_bell(memory, &memory->in.ring->writer_sleeps);
    return moved;
}
