/* SPDX-License-Identifier: Apache-2.0
 *
 * The objects behind the handles of the C interface. Each begins with a taciti_handle. The library keeps a list of open
 * handles, so that a closed handle is an error rather than a use after free.
 */
#ifndef TACITI_API_OBJECT_H
#define TACITI_API_OBJECT_H

#include <pthread.h>

#include "base/log.h"
#include <sys/types.h>

#include "base/memory.h"
#include "driver/driver.h"
#include "settings/settings.h"
#include "tacit/tacit.h"

typedef enum taciti_handle_kind {
    TACITI_HANDLE_SETTINGS,
    TACITI_HANDLE_COMM,
    TACITI_HANDLE_LAYOUT,
    TACITI_HANDLE_JOB,
    TACITI_HANDLE_CHANNEL,
} taciti_handle_kind;

typedef struct taciti_handle {
    taciti_handle_kind kind;
    struct taciti_handle *next; /* in the list of open handles */
    int users;                  /* calls that hold it */
    pid_t owner;                /* the process that opened it */
} taciti_handle;

/* Add the handle to the list of open handles, and remove it. The handle is the first member of an object. Any thread.
 */
void taciti_handle_open(taciti_handle *handle, taciti_handle_kind kind);
void taciti_handle_close(taciti_handle *handle);

/* Returns E_USAGE unless `object` is an open handle of the kind. Dereferences it only if it is open. From here on lines
 * of this thread are about the object's communicator, or about none: a function checks its communicator or job last. */
tacit_status taciti_handle_check(const void *object, taciti_handle_kind kind);

/* The same for a call that may run while another thread closes the object: until release, drain waits. drain follows
 * taciti_handle_close(). */
tacit_status taciti_handle_hold(void *object, taciti_handle_kind kind);
void taciti_handle_release(void *object);
void taciti_handle_drain(taciti_handle *handle);

/* Returns E_USAGE, naming the argument, if it is NULL. */
tacit_status taciti_argument_check(const void *argument, const char *name);

/* Structs of the interface begin with their size (tacit.h). read: copies the caller's struct to `out`, of `bytes`;
 * members that an older program does not know are 0. E_USAGE, naming the struct, unless the size is set;
 * E_UNSUPPORTED if a newer program has set a member that this library does not know. `given` is not NULL. write: copies
 * as much of `from` as the caller knows, whose size stays; call read before work begins that must not be in vain. */
tacit_status taciti_struct_read(const void *given, const char *name, size_t bytes, void *out);
void taciti_struct_write(const void *from, size_t bytes, void *given);

struct tacit_settings {
    taciti_handle handle;
    taciti_settings values;
    taciti_config config;     /* the sections that the library uses */
    taciti_section *sections; /* of config; owned */
};

struct tacit_layout {
    taciti_handle handle;
    taciti_layout layout; /* not sealed */
};

enum { TACITI_SETTINGS_KNOWN = 16 };

struct tacit_comm {
    taciti_handle handle;
    taciti_comm *comm;
    size_t jobs;                              /* open jobs and channels over it */
    int channels;                             /* calls of tacit_channel_open() so far, the same on all ranks */
    uint64_t settings[TACITI_SETTINGS_KNOWN]; /* digests of the newest that channels had */
    size_t settings_count;                    /* so far */
    tacit_failure_callback *callback;
    void *context;
    taciti_log_route log; /* of tacit_comm_log_to() */
};

/* Which functions may be called on a job. */
typedef enum taciti_job_phase {
    TACITI_JOB_NEW,     /* not started */
    TACITI_JOB_BETWEEN, /* between two steps */
    TACITI_JOB_COMPUTING,
    TACITI_JOB_SETTLED,
    TACITI_JOB_AVERAGED, /* parameters are the mean */
    TACITI_JOB_BUSY,     /* a function that may not meet another one is running */
} taciti_job_phase;

/* A unit of a job that is by_units. */
typedef struct taciti_job_unit {
    int users;    /* needs without release */
    bool set;     /* before the job starts: its parameters are the same on all ranks */
    bool written; /* in this step */
} taciti_job_unit;

struct tacit_job {
    taciti_handle handle;
    tacit_comm *comm;
    taciti_job_phase phase, before; /* before: the last one, while a function runs */
    taciti_layout layout;           /* owned */
    const taciti_strategy *strategy;
    taciti_settings settings; /* owned */
    char *config;             /* JSON text of the settings that affect results; owned */
    taciti_pages pages[2];    /* arrays that the library has allocated */
    taciti_network_arrays arrays;
    taciti_pool *pool;
    taciti_trace trace;
    taciti_driver *driver;
    bool own_optimizer, gradients_only;
    double lr;             /* in place of the schedule; NaN: the schedule */
    int64_t total_steps;   /* of the schedule */
    int64_t step, skipped; /* finished */
    double wait_s;
    taciti_step_report last; /* of the last step that was finished */
    pthread_mutex_t lock;    /* of both phases and all below, and of the driver inside a step */
    taciti_job_unit *units;  /* [layout.unit_count], owned; NULL: the job is not by_units */
};

struct tacit_channel {
    taciti_handle handle;
    tacit_comm *comm;
    int number; /* among all channels of comm, from 1 on */
    tacit_collective collective;
    size_t elements, part_n;   /* of the whole array, and of one part */
    int parts;                 /* 1 of an all-reduce, else the ranks; a bucket has as many slots */
    int *part_of;              /* [parts] the rank whose part slot i of a bucket holds; owned */
    taciti_layout layout;      /* owned */
    taciti_settings settings;  /* owned */
    bool codec_used;           /* something is compressed */
    char *config;              /* JSON text of the settings that it reads and that affect results; owned */
    int64_t sums;              /* starts that have ended; of those before a restore, too */
    taciti_pages flat;         /* the array in f32, in buckets of slots */
    taciti_bucket_hooks hooks; /* between it and the caller's arrays */
    double squares;            /* of what the transfer under way has written, if a codec is used */
    taciti_compression *compression;
    taciti_job job;
    _Atomic int64_t wait_ns; /* in which callers waited since a transfer was settled */
    _Atomic bool under_way;  /* started and not waited for; what follows belongs to the job meanwhile */
    const char *source;
    char *target;
    tacit_type type;
    float scale;
};

/* If the communicator has failed, sets tacit_error_text() to the text of the failure. Returns `status`. */
tacit_status taciti_api_report(const tacit_comm *comm, tacit_status status);

/* Returns E_MEMORY if the host does not have `bytes` for each of its ranks: memory is given on first use, so without
 * this an absurd size opens, and the process is killed in its first step. A double, in which a size that nobody can
 * have does not wrap around. what: for the message. */
tacit_status taciti_room_check(const tacit_comm *comm, const char *what, double bytes);

/* Around a collective call: what several ranks refuse in the same words is logged by the first of them alone. Meanwhile
 * errors of other threads of this process may be logged late. */
void taciti_api_log_together(const tacit_comm *comm);
void taciti_api_log_alone(void);

/* Returns E_USAGE, naming `function`, unless the job is in one of two phases, the first of which the message names.
 * With the lock. */
tacit_status taciti_job_check(const tacit_job *job, taciti_job_phase phase, taciti_job_phase other,
                              const char *function);

/* The same without the lock, at the begin of a function. The job is BUSY until leave, and refuses what other threads
 * call; then it is in phase `next`, or after an error in job->before again. leave returns taciti_api_report() of the
 * status. */
tacit_status taciti_job_enter(tacit_job *job, taciti_job_phase phase, taciti_job_phase other, const char *function);
tacit_status taciti_job_leave(tacit_job *job, taciti_job_phase next, tacit_status status);

/* For jobs with or without units, with the lock: return E_USAGE if one of them is needed; and if that of a tensor was
 * not written in this step. _end: a step is over. */
tacit_status taciti_units_check_released(const tacit_job *job, const char *function);
tacit_status taciti_units_check_written(const tacit_job *job, size_t tensor, const char *function);
void taciti_units_end(tacit_job *job);

#endif
