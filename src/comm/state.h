/* SPDX-License-Identifier: Apache-2.0
 *
 * The members of taciti_comm, private to this folder.
 *
 * Owner of the engine is the communication thread while it runs, except while the submitting thread has borrowed the
 * engine; otherwise the submitting thread. Only the owner accesses the members under "owner". The comments of atomics
 * name who writes them.
 */
#ifndef TACITI_COMM_STATE_H
#define TACITI_COMM_STATE_H

#include <pthread.h>

#include "comm/comm.h"
#include "comm/failure.h"

enum {
    TACITI_TAG_DATA = 1,
    TACITI_TAG_BEAT = 2,
    TACITI_TAG_FLOWS = 3,    /* the first of them */
    TACITI_FLOW_TAGS = 16384 /* numbers of flows repeat behind that many: every MPI has tags up to 32767 */
};

/* A list of jobs, in the order in which they came. `tail` is also the word on which the communication thread sleeps. */
typedef struct taciti_queue {
    taciti_job *first, *last;            /* borrows; last is valid only while first is not NULL */
    pthread_mutex_t lock;                /* of the two */
    _Alignas(64) _Atomic uint32_t head;  /* jobs taken; written by the communication thread */
    _Alignas(64) _Atomic uint32_t tail;  /* jobs queued; the futex word */
    _Atomic uint32_t sleeping;           /* the communication thread is about to wait for tail to change */
    _Alignas(64) _Atomic uint32_t pulse; /* of the engine's owner: counts its ticks (failure.h), in waits as well */
    _Atomic uint32_t blocked;            /* the owner is in a call without ticks, which may last up to comm.stall */
} taciti_queue;

struct taciti_comm {
    taciti_engine engine;
    taciti_comm_options options;
    taciti_peer *peers;
    taciti_hosts hosts;
    taciti_witness own_witness;
    taciti_witness *_Atomic witness;
    _Atomic int health; /* tacit_status */
    struct {
        pthread_mutex_t lock;
        char text[TACITI_ERROR_BYTES];
        char of_job[TACITI_ERROR_BYTES]; /* why the last job that failed did */
        taciti_comm_listener *listener;
        void *context;
    } failure;
    _Atomic uint32_t giving_up; /* another thread asks the owner to tell the peers of a failure */
    _Atomic int abort_code;     /* another thread asks the owner to end the job with this exit code; 0: none */
    _Atomic uint32_t stop;      /* the communication thread shall end */
    _Atomic uint32_t ended;     /* it is about to return */
    bool introduced;            /* all ranks have started; set before the thread starts */
    _Atomic bool threaded;
    pthread_t thread;
    pthread_mutex_t ownership; /* held by the owner of the engine while it uses it, if there is a thread */
    pthread_t borrower;        /* the submitting thread, while `borrowed` */
    _Atomic int borrowed;
    taciti_queue queue;

    /* ---- owner ---- */
    taciti_detector detector;
    taciti_trace trace;
    int data_tag;                    /* of the job that runs */
    int64_t wait_ns;                 /* how long waits last: mean of the last few */
    int64_t link_free_ns;            /* when a link of comm.rate has sent everything so far */
    taciti_engine_request *requests; /* one per rank, for the small collectives */
    char *scratch;
    size_t scratch_bytes;

    _Atomic uint64_t bytes_sent, bytes_received, messages_sent, messages_received;
    _Atomic uint64_t away_bytes_sent, away_bytes_received;
};

/* ---- state.c ---- */
/* Records the first failure with taciti_error_text() and tells the listener; later failures change nothing. Returns
 * `status`. */
tacit_status taciti_comm_break(taciti_comm *comm, tacit_status status);

/* Lets the program end a wait that began at begin_ns (base/interrupt.h): communication ends with it. While the program
 * answers, the communication thread beats. Returns E_PEER then, else OK. Any thread. */
tacit_status taciti_comm_ask(taciti_comm *comm, int64_t begin_ns);

/* One pause of a wait that has lasted `turns` turns: sleeps until something moves if the engine can do so; else nothing
 * or a yield at first, later a sleep, so that compute gets the core. Owner. */
void taciti_comm_pause(taciti_comm *comm, uint32_t turns);

/* ---- thread.c ---- */
tacit_status taciti_comm_thread_start(taciti_comm *comm);

/* Returns false if the thread did not end within a few seconds: it hangs inside the engine and must be left alone. */
bool taciti_comm_thread_stop(taciti_comm *comm);

/* True if the calling thread owns the engine. */
bool taciti_comm_owns(const taciti_comm *comm);

/* ---- collective.c ---- */
/* Fills `peers` and `hosts`. Waits for up to comm.start. Collective. */
tacit_status taciti_comm_introduce(taciti_comm *comm);

#endif
