/* SPDX-License-Identifier: Apache-2.0
 *
 * What the handles of the C interface point to. Each begins with a taciti_handle, and a list of the handles that are
 * open is kept, so that one that was closed is refused and not followed.
 */
#ifndef TACITI_API_OBJECT_H
#define TACITI_API_OBJECT_H

#include "base/memory.h"
#include "driver/driver.h"
#include "settings/settings.h"
#include "tacit/tacit.h"

typedef enum taciti_handle_kind {
    TACITI_HANDLE_SETTINGS,
    TACITI_HANDLE_COMM,
    TACITI_HANDLE_LAYOUT,
    TACITI_HANDLE_JOB,
} taciti_handle_kind;

typedef struct taciti_handle {
    taciti_handle_kind kind;
    struct taciti_handle *next; /* that is open */
} taciti_handle;

/* Any thread. A handle is `object`'s first member. */
void taciti_handle_open(taciti_handle *handle, taciti_handle_kind kind);
void taciti_handle_close(taciti_handle *handle);

/* Whether this is an open handle of the kind; E_USAGE says what it is instead. `object` is not followed. */
tacit_status taciti_handle_check(const void *object, taciti_handle_kind kind);

/* E_USAGE for a NULL argument, with its name. */
tacit_status taciti_argument_check(const void *argument, const char *name);

struct tacit_settings {
    taciti_handle handle;
    taciti_settings values;
    taciti_config config;     /* what of them counts here */
    taciti_section *sections; /* of config; owned */
};

struct tacit_layout {
    taciti_handle handle;
    taciti_layout layout; /* sealed with one bucket */
};

struct tacit_comm {
    taciti_handle handle;
    taciti_comm *comm;
    size_t jobs; /* that are open */
    tacit_failure_callback *callback;
    void *context;
};

/* Where a job is. */
typedef enum taciti_job_phase {
    TACITI_JOB_NEW,     /* not started */
    TACITI_JOB_BETWEEN, /* two steps */
    TACITI_JOB_COMPUTING,
    TACITI_JOB_SETTLED,
    TACITI_JOB_AVERAGED, /* parameters are the mean */
} taciti_job_phase;

struct tacit_job {
    taciti_handle handle;
    tacit_comm *comm;
    taciti_job_phase phase;
    taciti_layout layout; /* owned */
    const taciti_strategy *strategy;
    taciti_optim_options optim;
    taciti_exchange_options exchange;
    void *options;         /* of the strategy; owned */
    char *config;          /* JSON text of the settings; owned */
    taciti_pages pages[2]; /* arrays that the library has allocated */
    taciti_network_arrays arrays;
    taciti_pool *pool;
    taciti_trace trace;
    taciti_driver *driver;
    bool own_optimizer;
    int64_t total_steps;   /* of the schedule */
    int64_t step, skipped; /* finished */
    double wait_s;
    double lr;      /* of the step that runs */
    size_t missing; /* tensors that are not ready */
    bool *ready;    /* per tensor; owned */
};

/* Of a communicator that has failed, tacit_error_text() is the line of the failure. Returns `status`. */
tacit_status taciti_api_report(const tacit_comm *comm, tacit_status status);

/* The phases in which a function may be called, or E_USAGE. */
tacit_status taciti_job_check(const tacit_job *job, taciti_job_phase phase, const char *function);

#endif
