/* SPDX-License-Identifier: Apache-2.0
 *
 * Moves bytes between ranks. The lower layer is an engine with three functions that do not block (isend, irecv, test):
 * `mpi` under a launcher of MPI, `tcp` under torchrun and --ranks, `self` for a single process. The upper layer
 * consists of a communication thread that makes all calls into the engine, a queue of jobs that all ranks submit in the
 * same order, counters of bytes and messages, and a failure detector that ends every wait.
 *
 *   main thread                          communication thread
 *   submit(job) ------ queue ------>     job->run(comm, context): sends, receives, reduces. Every wait makes progress,
 *   ... compute ...                      sends heartbeats and checks how long each peer has been silent.
 *   wait(job)  <---- completion -----    done
 *
 * Without a communication thread (comm.thread false, a single rank, or an engine that does not allow a thread),
 * submit() runs the job on the calling thread and returns when it has finished.
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
#include "comm/bootstrap.h"
#include "comm/witness.h"
#include "tacit/tacit.h"

/* ---- the engine ---------------------------------------------------------------------------------------------------
 * One thread at a time owns the engine and calls it. isend, irecv and test never block. The caller provides the storage
 * of requests. Messages may have up to SIZE_MAX / 2 bytes; the engine splits messages that are too long for its
 * library. Messages between the same two ranks with the same tag arrive in the order in which they were sent. */
typedef struct taciti_engine_request {
    uintptr_t opaque[3]; /* used by the engine */
    size_t bytes;        /* set by test() when a receive completes: the length of the message */
    uintptr_t wait;      /* used by comm/: peer and kind of the message */
    size_t max_bytes;    /* used by comm/: maximum length of the message to receive */
} taciti_engine_request;

/* An all-reduce of the engine's library. */
typedef struct taciti_native {
    const char *name; /* "mpi-default", "mpi-ring", ... */
    const char *text; /* description, one line */
    bool apart;       /* needs separate input and output arrays; the others work in place */
} taciti_native;

typedef struct taciti_engine {
    const char *name; /* "mpi", "tcp", "self" */
    void *self;
    int rank, size;
    bool any_thread;    /* a thread other than the one that opened the engine may own it */
    bool keeps_buffers; /* after a failure the engine may still access the buffers of pending messages: they must not
                         * be freed before drop(), nor before the process ends if there is none */
    char host[64];      /* host name of this rank; empty: that of the operating system */
    char library[128];  /* "Open MPI v4.1.4": for `doctor`, `info build` and the start-up line */
    tacit_status (*isend)(void *self, int peer, int tag, const void *bytes, size_t count, taciti_engine_request *out);
    /* Receives a message of up to `count` bytes. */
    tacit_status (*irecv)(void *self, int peer, int tag, void *bytes, size_t count, taciti_engine_request *out);
    /* Sets *done = true when the request is complete; the request must not be tested again. For a receive,
     * request->bytes is then the length of the message. A message that is longer than `count` also completes the
     * receive, with request->bytes > count. Returns E_PEER if the library reports an error. */
    tacit_status (*test)(void *self, taciti_engine_request *request, bool *done);
    /* Sleeps until a message may have moved, or for `ns`; the caller tests again. NULL: the engine cannot. */
    tacit_status (*wait)(void *self, int64_t ns);
    /* Returns NULL, or why the connection to this peer is gone ("it has closed the connection"), valid until close().
     * Messages of such a peer that are not complete never will be: test() sets the error's text, which names the peer,
     * logs nothing and returns E_PEER. Others are not affected. NULL: the engine cannot tell. */
    const char *(*lost)(void *self, int peer);
    /* Ends all processes of the job with this exit code. Ends this process with taciti_guard_end_process(), so it
     * returns where a process must not be ended. */
    void (*abort)(void *self, int exit_code);
    /* Releases the engine. Not called after a failure. Collective. */
    void (*close)(void *self);

    /* The library's own all-reduces, for comparison in benchmarks; both NULL if it has none. They block forever if a
     * peer fails. Called through taciti_comm_natives() and taciti_comm_native_allreduce() only.
     * native_open() prepares them and may be called repeatedly. *out is borrowed and ends with a NULL name. Collective.
     */
    tacit_status (*native_open)(void *self, const taciti_native **out);
    /* out[n] = sum over ranks of in[n]; in == out unless the native has `apart` set. Collective. */
    tacit_status (*native_allreduce)(void *self, int native, const float *in, float *out, size_t n);

    /* Releases the engine after a failure, without its peers; it accesses no buffer any more. NULL: the engine cannot
     * do so and stays as it is. Not collective. */
    void (*drop)(void *self);
} taciti_engine;

/* ---- options -------------------------------------------------------------------------------------------------- */
enum { TACITI_SEGMENT_BYTES = 256 << 10 };

typedef enum taciti_engine_kind {
    TACITI_ENGINE_AUTO,
    TACITI_ENGINE_MPI,
    TACITI_ENGINE_TCP,
    TACITI_ENGINE_SELF
} taciti_engine_kind;

typedef struct taciti_comm_options {
    int engine;       /* comm.engine: a taciti_engine_kind */
    taciti_text meet; /* comm.meet: HOST:PORT or a folder, where ranks of the TCP engine meet; "": meet.h says where */
    taciti_text
        interface;        /* comm.interface: name or address; "": all that are up; of loopback: TCP inside a host too */
    taciti_text key_file; /* comm.key_file: seals the connections of the TCP engine (seal.h); "": they are not sealed */
    bool thread;          /* comm.thread */
    double timeout_s;     /* comm.timeout: a peer silent for longer is reported as failed (default 15) */
    double start_s;       /* comm.start: maximum time for all ranks to start and connect (default 120) */
    double stall_s;       /* comm.stall: a live peer that keeps this rank waiting for longer has failed (default 600) */
    double rate_mbps;     /* comm.rate: limit of what this rank sends, in Mbit/s; 0: none */
    /* Not in the table. */
    double warn_s;         /* a peer silent for longer is reported as slow; 0: a fifth of timeout_s */
    int64_t segment_bytes; /* unit in which collectives are pipelined; 0: TACITI_SEGMENT_BYTES */
    bool same_steps;       /* all ranks make the same steps: close() names one that has made others */
} taciti_comm_options;
extern const taciti_option_table taciti_comm_option_table; /* section "comm" */

/* ---- life ------------------------------------------------------------------------------------------------------ */
enum { TACITI_COMM_RANKS_MAX = 16384 };
typedef struct taciti_comm taciti_comm;

/* Identity of a rank, as messages print it. */
typedef struct taciti_peer {
    int rank, local_rank, local_size; /* local: among the ranks of the same host */
    int32_t pid;
    uint64_t cores; /* digest of those that it may use (base/pool.h) */
    char host[64];
} taciti_peer;

/* Directs announcements to `witness`, which is borrowed, and copies the last one to it. Call right after open. */
void taciti_comm_attach(taciti_comm *comm, taciti_witness *witness);

/* Publishes what this process is doing: the step and one word. Other ranks print it if this process fails. Lock-free.
 * Any thread. */
void taciti_comm_announce(taciti_comm *comm, int64_t step, const char *doing);

/* Opens the engine that taciti_engine_choose() names (engine.h: MPI under a launcher of MPI, tcp under torchrun and
 * --ranks, else self), exchanges the peers' identities and starts the communication thread. Returns E_USAGE, with the
 * command to type, if the MPI library sees one rank where the launcher started several. Fails on all ranks if one of
 * them called taciti_comm_refuse(). Collective. */
tacit_status taciti_comm_open(const taciti_comm_options *options, taciti_comm **out);

/* Like taciti_comm_open(), for a process in which other code may call MPI as well. family: that of an MPI
 * library; communicator: pointer to its MPI_Comm, which is duplicated before the call returns. Both NULL: all ranks of
 * the launcher. Collective. */
tacit_status taciti_comm_open_among(const taciti_comm_options *options, const char *family, const void *communicator,
                                    taciti_comm **out);

/* The engine tcp among the ranks that call this, which meet in a store of the caller's (bootstrap.h); a rank alone gets
 * the engine self. The store is not used after the return. E_USAGE for a rank that cannot be; E_CONFIG where
 * comm.engine or comm.meet say something else; E_PEER, naming a missing rank, after comm.start. Collective. */
tacit_status taciti_comm_open_store(const taciti_comm_options *options, int rank, int size,
                                    const taciti_bootstrap *store, taciti_comm **out);

/* Called instead of taciti_comm_open() by a rank that failed with `status` before: taciti_comm_open() then fails on all
 * other ranks. An error that several ranks have in common is logged once. The flags of section "comm" in the command
 * line are obeyed, so that this rank meets the others where they are. Call it once, in a process that a launcher
 * started. */
void taciti_comm_refuse(tacit_status status, int argc, char *const *argv);

/* Like taciti_comm_open(), over a given engine. Takes the engine. Collective. */
tacit_status taciti_comm_open_engine(const taciti_comm_options *options, const taciti_engine *engine,
                                     taciti_comm **out);

/* Closes the communicator; NULL is allowed. Collective, unless communication has failed before. If a peer fails during
 * the close, ends the job with taciti_comm_abort() where a process may be ended (guard.h). Returns E_PEER after any
 * failure: a thread may still call the listener. Returns E_USAGE, and nothing is left, where ranks that shall make the
 * same steps were last announced in different ones. */
tacit_status taciti_comm_close(taciti_comm *comm);

/* Call before the buffers of messages are freed. After a failure, stops the communication thread and drops the engine
 * if it can be dropped; no message is exchanged any more. False: the engine may still access them, so they must stay.
 * Not collective. */
bool taciti_comm_let_go(taciti_comm *comm);

int taciti_comm_rank(const taciti_comm *comm);
int taciti_comm_size(const taciti_comm *comm);
const taciti_peer *taciti_comm_peer(const taciti_comm *comm, int rank);
/* Cores that this rank may use, divided by the ranks of its host that may use the same ones; 0: fewer than ranks. A
 * launcher that binds ranks gives each its own, one that does not gives all of them the host's. At most this rank's
 * share of what the control group grants. */
int taciti_comm_cores(const taciti_comm *comm);
/* The host of every rank. Borrowed; valid until the communicator is closed. */
const taciti_hosts *taciti_comm_hosts(const taciti_comm *comm);
bool taciti_comm_same_host(const taciti_comm *comm, int a, int b);
const taciti_engine *taciti_comm_engine(const taciti_comm *comm);
size_t taciti_comm_segment_bytes(const taciti_comm *comm);
double taciti_comm_stall_s(const taciti_comm *comm); /* comm.stall */

/* Returns TACIT_OK, or the error that ended communication. Any thread. */
tacit_status taciti_comm_health(const taciti_comm *comm);

/* Called once, with the error that ended communication and the text that was logged. The calling thread is the one that
 * found the failure; this may be a thread of the library. The callback must not call the communicator. */
typedef void taciti_comm_listener(void *context, tacit_status status, const char *text);

/* Sets the listener; NULL: none. If communication has failed already, calls it before returning. Any thread. */
void taciti_comm_listen(taciti_comm *comm, taciti_comm_listener *listener, void *context);

/* Copies the text of the failure; "" if there was none. Any thread. */
void taciti_comm_failure_text(taciti_comm *comm, char out[TACITI_ERROR_BYTES]);

/* Declares that this rank cannot continue, for the reason in taciti_error_text(). Ends communication on all ranks.
 * Submitting thread. */
void taciti_comm_give_up(taciti_comm *comm);

/* Ends all processes of the job with the exit code of `status`; the caller has logged the cause. If the engine has not
 * done so within 3 s, ends this process only. For programs that installed a guard (guard.h). Any thread. */
_Noreturn void taciti_comm_abort(taciti_comm *comm, tacit_status status);

/* ---- jobs ------------------------------------------------------------------------------------------------------ */
typedef struct taciti_job {
    tacit_status (*run)(taciti_comm *comm, void *context); /* runs on the owner thread; may block in the waits below */
    void *context;
    const char *name; /* for error messages: "all-reduce of bucket"; up to 47 bytes */
    int detail;       /* bucket number, or -1 */
    int flow;         /* messages of jobs of different flows do not match, so ranks that run them in another order wait
                       * until comm.stall and name both; 0: of the job that it is a part of, or the common one */
    tacit_status status;
    _Atomic uint32_t done;    /* futex word: 0 queued, 1 finished */
    int64_t begin_ns, end_ns; /* when it ran */
    struct taciti_job *next;  /* in the queue */
} taciti_job;

/* Queues a job, which must stay valid, and is not submitted again, until taciti_job_wait() has returned. After a
 * failure of communication it is done at once, with that status. All ranks submit the same sequence of jobs. With a
 * communication thread, does not block; without one, runs the job before it returns. Never allocates. With a
 * communication thread, any thread; without one, one at a time. A job may submit others: each runs at once, as a part
 * of it, and the small collectives below work in it, too. */
void taciti_job_submit(taciti_comm *comm, taciti_job *job);

/* Blocks until the job has finished and returns the job's status. Returns E_PEER if the communication thread hangs in
 * the engine. _for: returns PENDING when that time is over. Any thread. */
tacit_status taciti_job_wait(taciti_comm *comm, taciti_job *job);
tacit_status taciti_job_wait_for(taciti_comm *comm, taciti_job *job, double seconds);
bool taciti_job_done(const taciti_job *job);
/* Returns whether jobs run beside the submitting thread. */
bool taciti_comm_has_thread(const taciti_comm *comm);

/* For a thread that waits for what a job does, in its own way: begin, and look every 0.1 s or so. Returns E_PEER when
 * communication has failed, or, as taciti_job_wait(), when the communication thread hangs in the engine. Any thread. */
typedef struct taciti_watch {
    int64_t stuck_ns, last_ns; /* how long the owner of the engine has shown no sign of life; the last look */
    uint32_t pulse;
} taciti_watch;
taciti_watch taciti_watch_begin(const taciti_comm *comm);
tacit_status taciti_watch_look(taciti_comm *comm, taciti_watch *watch);

/* Submits a job and waits for it. If the communication thread is idle, the job runs on the calling thread, which saves
 * handing it over (7 us if each thread has a core, 15 to 130 us if ranks share cores). Jobs run in the order of the
 * calls. Submitting thread. */
tacit_status taciti_job_run(taciti_comm *comm, taciti_job *job);

/* ---- for code that runs inside a job (owner thread) -------------------------------------------------------------- */
tacit_status taciti_comm_isend(taciti_comm *comm, int peer, const void *bytes, size_t count,
                               taciti_engine_request *out);
/* Receives a message of exactly `count` bytes. */
tacit_status taciti_comm_irecv(taciti_comm *comm, int peer, void *bytes, size_t count, taciti_engine_request *out);
/* Receives a message of up to `max` bytes; max <= TACITI_COMM_RECEIVE_UP_TO. */
tacit_status taciti_comm_irecv_up_to(taciti_comm *comm, int peer, void *bytes, size_t max, taciti_engine_request *out);
#define TACITI_COMM_RECEIVE_UP_TO ((size_t)1 << 30)
/* Blocks until the request is complete. For a receive, request->bytes is then the length of the message.
 * Returns E_PEER if the message has another length than the receive allows, or if the failure detector reports a
 * failure first. */
tacit_status taciti_comm_await(taciti_comm *comm, taciti_engine_request *request);
/* As await, but does not block: *done tells whether it is complete. */
tacit_status taciti_comm_test(taciti_comm *comm, taciti_engine_request *request, bool *done);
/* From now on the messages of this job are of another flow; returns the one before, to set it back. */
int taciti_comm_set_flow(taciti_comm *comm, int flow);
/* A pause between such tests, for a job that waits for several requests or for another thread: 1 ms or less, and less
 * when something moves. */
tacit_status taciti_comm_rest(taciti_comm *comm);
/* The end of such a wait, which began at begin_ns: E_PEER when `peer` has left, or has kept this rank waiting for
 * longer than comm.stall. */
tacit_status taciti_comm_check_wait(taciti_comm *comm, int peer, int64_t begin_ns);
/* Lists the MPI library's own all-reduces, the same on every rank. Ends with a NULL name. Borrowed. Collective. */
tacit_status taciti_comm_natives(taciti_comm *comm, const taciti_native **out);
/* Calls taciti_engine.native_allreduce() `times` times. Ranks send and expect no heartbeats during the calls: a rank
 * that dies is reported by its watcher and the launcher; one that hangs or is cut off is reported only after
 * comm.stall. Collective. */
tacit_status taciti_comm_native_allreduce(taciti_comm *comm, int native, const float *in, float *out, size_t n,
                                          int times);
/* Send or receive one message; both block. */
tacit_status taciti_comm_send(taciti_comm *comm, int peer, const void *bytes, size_t count);
tacit_status taciti_comm_receive(taciti_comm *comm, int peer, void *bytes, size_t count);
/* The trace of the communication thread: encode, transfer and decode spans. */
taciti_trace *taciti_comm_trace(taciti_comm *comm);

/* ---- small blocking collectives, from the submitting thread ------------------------------------------------------ */
typedef enum taciti_op { TACITI_OP_SUM, TACITI_OP_MAX, TACITI_OP_MIN } taciti_op;

/* Reduces in rank order: the result is bit-equal on every rank. Collective. */
tacit_status taciti_comm_allreduce_f64(taciti_comm *comm, double *values, size_t n, taciti_op op);
/* The same with operations[i] for values[i], the same list on all ranks. Collective. */
tacit_status taciti_comm_allreduce_by(taciti_comm *comm, double *values, size_t n, const taciti_op *operations);
tacit_status taciti_comm_broadcast(taciti_comm *comm, int root, void *bytes, size_t count);
/* out receives size * count bytes, in rank order. Collective. */
tacit_status taciti_comm_allgather(taciti_comm *comm, const void *bytes, size_t count, void *out);
tacit_status taciti_comm_barrier(taciti_comm *comm);

/* Returns the worst (most negative) status of all ranks, on every rank: collective set-up calls fail collectively. If
 * several ranks have the same error text since the last call, the first of them logs it; different texts are logged by
 * the ranks that have them. Collective. */
tacit_status taciti_comm_agree(taciti_comm *comm, tacit_status mine);

/* Compares the first TACITI_COMPARED_BYTES of one text per rank. If they differ, rank 0 logs `what`, the first rank
 * that differs and both values, and every rank returns E_CONFIG. Collective. */
enum { TACITI_COMPARED_BYTES = 4095 };
tacit_status taciti_comm_agree_text(taciti_comm *comm, const char *what, const char *text);

/* Returns E_USAGE on all ranks, naming one that has made fewer steps than others, unless `step` is the same.
 * Collective.
 */
tacit_status taciti_comm_agree_step(taciti_comm *comm, int64_t step);

/* ---- counters -------------------------------------------------------------------------------------------------- */
typedef struct taciti_comm_counters {
    uint64_t bytes_sent, bytes_received; /* payload without headers and heartbeats; received: counted by the wait */
    uint64_t messages_sent, messages_received;
    uint64_t away_bytes_sent, away_bytes_received; /* the part that went to or came from other hosts */
} taciti_comm_counters;
taciti_comm_counters taciti_comm_count(const taciti_comm *comm); /* since open; any thread */

/* Measures this rank's monotonic clock minus that of rank 0, from the shortest of several round trips. Collective. */
tacit_status taciti_comm_clock_offset(taciti_comm *comm, int64_t *out_ns);

#endif
