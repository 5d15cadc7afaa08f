/* SPDX-License-Identifier: Apache-2.0
 *
 * Moves bytes. Underneath, an engine of four verbs (isend, irecv, test, clock): `mpi` under a launcher, `self` for a
 * single process. On top, a communication thread that owns every call into the engine, a queue of jobs that all ranks
 * submit in the same order, byte and time counters, and a failure detector that ends every wait.
 *
 *   main thread                          communication thread
 *   submit(job) --lock-free queue-->     job->run(comm, context): posts, waits (each wait makes progress, sends
 *   ... compute ...                      heartbeats and looks at the age of the peers), reduces, ...
 *   wait(job)  <---- completion -----    done
 *
 * Without a thread (comm.thread false, or an engine that forbids it) submit() runs the job at once.
 */
#ifndef TACITI_COMM_COMM_H
#define TACITI_COMM_COMM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hosts.h"
#include "base/log.h"
#include "base/option.h"
#include "base/trace.h"
#include "comm/witness.h"
#include "tacit/tacit.h"

/* ---- the engine ---------------------------------------------------------------------------------------------------
 * One owner thread at a time. Never blocks, natives aside. A request is storage of the caller. Message sizes up to
 * SIZE_MAX / 2: the engine splits what its library cannot count. Between one pair of ranks and one tag, messages do not
 * overtake. */
typedef struct taciti_engine_request {
    uintptr_t opaque[3]; /* the engine's */
    size_t bytes;        /* set by test() when a receive completes: bytes that arrived */
    uintptr_t wait;      /* the caller's: comm/ keeps peer and kind of the message here, to know whom a wait is for */
    size_t max_bytes;    /* the caller's: bytes that comm/ receives at most */
} taciti_engine_request;

/* An all-reduce of the engine's library. */
typedef struct taciti_native {
    const char *name; /* "mpi-default", "mpi-ring", ... */
    const char *text; /* what it is, one line */
    bool apart;       /* takes two arrays that do not overlap; the others work in place */
} taciti_native;

typedef struct taciti_engine {
    const char *name; /* "mpi", "self" */
    void *self;
    int rank, size;
    bool any_thread;    /* the owner may be another thread than the one that opened the engine */
    bool keeps_buffers; /* after a failure, messages may still be under way: their buffers must stay as long as the
                         * process */
    char host[64];      /* where this rank runs; empty: this machine's name */
    char library[128];  /* "Open MPI v4.1.4": for `doctor`, `info build` and the start-up line */
    tacit_status (*isend)(void *self, int peer, int tag, const void *bytes, size_t count, taciti_engine_request *out);
    /* Receives a message of up to `count` bytes. */
    tacit_status (*irecv)(void *self, int peer, int tag, void *bytes, size_t count, taciti_engine_request *out);
    /* *done = true when complete: the request is then dead, and
     * for a receive request->bytes tells the length of the message. A longer message than the receive has room for
     * completes it as well, with more in request->bytes than there is room. E_PEER when the library reports an error.
     */
    tacit_status (*test)(void *self, taciti_engine_request *request, bool *done);
    /* Ends the whole job now with this exit code, and this process as taciti_guard_end_process() does. */
    void (*abort)(void *self, int exit_code);
    /* Orderly end; collective. Skipped after a failure. */
    void (*close)(void *self);

    /* The library's own all-reduces, to measure ours against; both NULL when it has none. They block without an end
     * when a peer fails: for benchmarks only, through taciti_comm_natives() and taciti_comm_native_allreduce().
     * native_open() prepares them; collective; again and again is fine. *out is borrowed and ends with a NULL name. */
    tacit_status (*native_open)(void *self, const taciti_native **out);
    /* out[n] = sum over ranks of in[n]; in == out unless the native says `apart`. Collective. */
    tacit_status (*native_allreduce)(void *self, int native, const float *in, float *out, size_t n);
} taciti_engine;

/* ---- options -------------------------------------------------------------------------------------------------- */
typedef struct taciti_comm_options {
    bool thread;           /* comm.thread */
    double timeout_s;      /* comm.timeout: a peer silent for longer is reported as failed (default 15) */
    double warn_s;         /* comm.warn: a peer silent for longer is reported as slow (default 3) */
    double start_s;        /* comm.start: most seconds for all ranks to come up and meet (default 120) */
    double stall_s;        /* comm.stall: a live peer that keeps us waiting for longer counts as failed (default 600) */
    double rate_mbps;      /* comm.rate: cap of this rank's outgoing Mbit/s; 0: none */
    int64_t segment_bytes; /* comm.segment: pipelining unit of collectives */
} taciti_comm_options;
extern const taciti_option_table taciti_comm_option_table; /* section "comm" */

/* ---- life ------------------------------------------------------------------------------------------------------ */
typedef struct taciti_comm taciti_comm;

/* Who a rank is, for messages. */
typedef struct taciti_peer {
    int rank, local_rank, local_size; /* local: ranks that share this rank's host */
    int32_t pid;
    char host[64];
} taciti_peer;

/* From now on announcements also go to `witness`, which is borrowed. Call right after open. */
void taciti_comm_attach(taciti_comm *comm, taciti_witness *witness);

/* What this process is doing, shown by others when it fails: (step, one word). Any thread, lock-free, cheap. */
void taciti_comm_announce(taciti_comm *comm, int64_t step, const char *doing);

/* Starts the engine (MPI when the environment of a launcher with more than one rank is found, else self), checks
 * that launcher and library agree (several singletons of rank 0 are refused with the right command), learns all peers,
 * starts the thread. Fails when another rank has refused. Collective. */
tacit_status taciti_comm_open(const taciti_comm_options *options, taciti_comm **out);

/* The same for a process in which others may call MPI, too. communicator: an MPI_Comm, duplicated at once; NULL: the
 * one of the launcher. Collective. */
tacit_status taciti_comm_open_among(const taciti_comm_options *options, const void *communicator, taciti_comm **out);

/* In place of taciti_comm_open(), by a rank that has refused with `status` before it came so far: the others learn that
 * and end with it, and what several ranks refuse alike is logged once. For processes of a launcher, once. */
void taciti_comm_refuse(tacit_status status);

/* The same over a given engine (tests, SMPI). Takes the engine. Collective. */
tacit_status taciti_comm_open_engine(const taciti_comm_options *options, const taciti_engine *engine,
                                     taciti_comm **out);

/* Collective unless a failure was seen; then local. A peer that fails while saying goodbye ends the job as
 * taciti_comm_abort() does if a program may end its process (guard.h); else that is E_PEER. NULL is fine. */
tacit_status taciti_comm_close(taciti_comm *comm);

int taciti_comm_rank(const taciti_comm *comm);
int taciti_comm_size(const taciti_comm *comm);
const taciti_peer *taciti_comm_peer(const taciti_comm *comm, int rank);
/* Which rank is on which host. Borrowed, as long as the communicator lives. */
const taciti_hosts *taciti_comm_hosts(const taciti_comm *comm);
bool taciti_comm_same_host(const taciti_comm *comm, int a, int b);
const taciti_engine *taciti_comm_engine(const taciti_comm *comm);
size_t taciti_comm_segment_bytes(const taciti_comm *comm); /* comm.segment */

/* The status that ended communication (E_PEER) or TACIT_OK while healthy. Any thread. */
tacit_status taciti_comm_health(const taciti_comm *comm);

/* Called once, with the status that ended communication and the line that was logged, by the thread that notices: also
 * one of the library's, while the owner is elsewhere. Must not call the communicator. */
typedef void taciti_comm_listener(void *context, tacit_status status, const char *text);

/* NULL: none. A failure that is known already is told before this returns. Any thread. */
void taciti_comm_listen(taciti_comm *comm, taciti_comm_listener *listener, void *context);

/* The line of the failure; "" while healthy. Any thread. */
void taciti_comm_failure_text(taciti_comm *comm, char out[TACITI_ERROR_BYTES]);

/* This rank cannot go on, for the reason that taciti_error_text() gives, while others wait for it: they are told, and
 * communication is over on all ranks. Submitting thread. */
void taciti_comm_give_up(taciti_comm *comm);

/* Ends the whole job with the exit code of `status`, after the culprit line was logged; when the engine cannot do it
 * within 3 s, this process at least ends. Does not return. For programs (guard.h). Any thread. */
_Noreturn void taciti_comm_abort(taciti_comm *comm, tacit_status status);

/* ---- jobs ------------------------------------------------------------------------------------------------------ */
typedef struct taciti_job {
    tacit_status (*run)(taciti_comm *comm, void *context); /* on the communication thread; may block in waits below */
    void *context;
    const char *name; /* for error messages: "all-reduce of bucket"; up to 47 bytes */
    int detail;       /* bucket number or -1 */
    tacit_status status;
    _Atomic uint32_t done;    /* futex word: 0 queued, 1 finished */
    int64_t begin_ns, end_ns; /* when it ran */
} taciti_job;

/* Queues a job; storage stays the caller's until taciti_job_wait() returned. All ranks submit the same sequence.
 * One submitting thread. Never blocks, never allocates (at most 4096 unfinished jobs; more is E_INTERNAL). */
tacit_status taciti_job_submit(taciti_comm *comm, taciti_job *job);

/* Blocks until the job has finished or communication has failed. Returns the job's status. */
tacit_status taciti_job_wait(taciti_comm *comm, taciti_job *job);
bool taciti_job_done(const taciti_job *job);

/* submit and wait in one. When the communication thread has nothing to do, the job runs on the calling thread, which
 * saves the hand-over there and back (7 us with a core for each thread, 15 to 130 us when ranks share cores). The order
 * of jobs is that of the calls. Submitting thread. */
tacit_status taciti_job_run(taciti_comm *comm, taciti_job *job);

/* ---- for code that runs inside a job (communication thread) ------------------------------------------------------ */
tacit_status taciti_comm_isend(taciti_comm *comm, int peer, const void *bytes, size_t count,
                               taciti_engine_request *out);
/* Receives a message of exactly `count` bytes. */
tacit_status taciti_comm_irecv(taciti_comm *comm, int peer, void *bytes, size_t count, taciti_engine_request *out);
/* Receives a message of up to `max` bytes, at most TACITI_COMM_RECEIVE_UP_TO. */
tacit_status taciti_comm_irecv_up_to(taciti_comm *comm, int peer, void *bytes, size_t max, taciti_engine_request *out);
#define TACITI_COMM_RECEIVE_UP_TO ((size_t)1 << 30)
/* Makes progress until the request is complete. For a receive, request->bytes is then the length of the message.
 * Returns E_PEER if the message has another length than the receive allows, or if the failure detector reports a
 * failure first. */
tacit_status taciti_comm_await(taciti_comm *comm, taciti_engine_request *request);
/* The library's own all-reduces; ends with a NULL name; borrowed. Collective: every rank sees the same list. */
tacit_status taciti_comm_natives(taciti_comm *comm, const taciti_native **out);
/* `times` of them in a row, as taciti_engine.native_allreduce(). No heartbeat leaves this rank meanwhile, and none is
 * expected: a rank that dies ends the job through its watcher and the launcher, one that freezes or is cut off is
 * noticed after comm.stall only. */
tacit_status taciti_comm_native_allreduce(taciti_comm *comm, int native, const float *in, float *out, size_t n,
                                          int times);
/* One message, blocking. */
tacit_status taciti_comm_send(taciti_comm *comm, int peer, const void *bytes, size_t count);
tacit_status taciti_comm_receive(taciti_comm *comm, int peer, void *bytes, size_t count);
/* The recorder of the communication thread (encode, transfer, decode spans). */
taciti_trace *taciti_comm_trace(taciti_comm *comm);

/* ---- small blocking collectives, from the submitting thread ------------------------------------------------------ */
typedef enum taciti_op { TACITI_OP_SUM, TACITI_OP_MAX, TACITI_OP_MIN } taciti_op;

/* Same result bit for bit on every rank (reduced in rank order). Collective. */
tacit_status taciti_comm_allreduce_f64(taciti_comm *comm, double *values, size_t n, taciti_op op);
tacit_status taciti_comm_broadcast(taciti_comm *comm, int root, void *bytes, size_t count);
/* out has size * count bytes, in rank order. */
tacit_status taciti_comm_allgather(taciti_comm *comm, const void *bytes, size_t count, void *out);
tacit_status taciti_comm_barrier(taciti_comm *comm);

/* All ranks learn the worst (most negative) of the ranks' statuses: collective set-up calls fail collectively. What
 * several ranks refused with the same words since the last agreement, the first of them logs; other words are logged by
 * whoever has them. */
tacit_status taciti_comm_agree(taciti_comm *comm, tacit_status mine);

/* Compares one text per rank; on a difference rank 0 logs `what`, the first rank that differs and both values, and
 * every rank returns E_PEER. Collective. Texts up to 4 KiB. */
tacit_status taciti_comm_agree_text(taciti_comm *comm, const char *what, const char *text);

/* ---- counters -------------------------------------------------------------------------------------------------- */
typedef struct taciti_comm_counters {
    uint64_t bytes_sent, bytes_received; /* payload, without headers and heartbeats; received: once it is waited for */
    uint64_t messages_sent, messages_received;
    uint64_t away_bytes_sent, away_bytes_received; /* of the bytes: to and from other hosts, through a network */
} taciti_comm_counters;
taciti_comm_counters taciti_comm_count(const taciti_comm *comm); /* since open; any thread */

/* This rank's monotonic clock minus rank 0's, nanoseconds, by the least round trip of several. Collective. */
tacit_status taciti_comm_clock_offset(taciti_comm *comm, int64_t *out_ns);

#endif
