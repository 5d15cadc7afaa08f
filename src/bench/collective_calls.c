/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/collective_calls.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "bench/machine_block.h"

const char *const taciti_operation_names[TACITI_OPERATIONS] = {"all-reduce", "send"};

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

void taciti_collective_fill(taciti_collective_task *task, const taciti_caller *caller) {
    const int me = taciti_comm_rank(task->comm);
    const bool empty = task->what == TACITI_OPERATION_SEND && me != 0;
    if (empty)
        memset(task->in, 0xff, task->n * sizeof *task->in);
    else
        taciti_numbers_write(&task->numbers, me, task->in, task->n);
    if (caller->apart) memset(task->out, 0xff, task->n * sizeof *task->out);
}

void taciti_collective_clear(taciti_collective_task *task) { memset(task->in, 0, task->n * sizeof *task->in); }

bool taciti_collective_is_right(const taciti_collective_task *task, const taciti_caller *caller) {
    const bool sends = task->what == TACITI_OPERATION_SEND;
    if (sends && taciti_comm_rank(task->comm) != task->receiver) return true;
    const float *x = caller->apart ? task->out : task->in;
    return taciti_numbers_are(&task->numbers, sends ? 0 : task->numbers.ranks, x, task->n);
}

/* ---- our all-reduce ---------------------------------------------------------------------------------------------- */

/* As a program calls it: the exchange of a training step, blocking. */
static tacit_status sample_exchange(taciti_collective_task *task, const taciti_caller *caller, int calls,
                                    double *out_s) {
    (void)caller;
    const int64_t begin_ns = taciti_now_ns();
    for (int i = 0; i < calls; i++) TACITI_TRY(taciti_exchange_run(task->exchange, task->in));
    *out_s = (double)(taciti_now_ns() - begin_ns) / 1e9;
    return TACIT_OK;
}

/* ---- what runs in one job: the hand-over is not counted ---------------------------------------------------------- */

typedef struct errand {
    taciti_collective_task *task;
    const taciti_caller *caller;
    int calls;
} errand;

static tacit_status call_send(taciti_comm *comm, const errand *e) {
    const taciti_collective_task *task = e->task;
    const size_t bytes = task->n * sizeof *task->in;
    const int me = taciti_comm_rank(comm);
    taciti_engine_request message, answer;
    for (int i = 0; i < e->calls && me == 0; i++) {
        TACITI_TRY(taciti_comm_irecv(comm, task->receiver, NULL, 0, &answer));
        TACITI_TRY(taciti_comm_isend(comm, task->receiver, task->in, bytes, &message));
        TACITI_TRY(taciti_comm_await(comm, &message));
        TACITI_TRY(taciti_comm_await(comm, &answer));
    }
    for (int i = 0; i < e->calls && me == task->receiver; i++) {
        TACITI_TRY(taciti_comm_irecv(comm, 0, task->in, bytes, &message));
        TACITI_TRY(taciti_comm_await(comm, &message));
        TACITI_TRY(taciti_comm_isend(comm, 0, NULL, 0, &answer));
        TACITI_TRY(taciti_comm_await(comm, &answer));
    }
    return TACIT_OK;
}

static tacit_status run_errand(taciti_comm *comm, void *context) {
    const errand *e = context;
    const taciti_collective_task *task = e->task;
    if (e->caller->native < 0) return call_send(comm, e);
    return taciti_comm_native_allreduce(comm, e->caller->native, task->in, e->caller->apart ? task->out : task->in,
                                        task->n, e->calls);
}

static tacit_status sample_job(taciti_collective_task *task, const taciti_caller *caller, int calls, double *out_s) {
    errand e = {task, caller, calls};
    const char *name = caller->native >= 0 ? caller->name : taciti_operation_names[task->what];
    taciti_job job = {.run = run_errand, .context = &e, .name = name, .detail = -1};
    taciti_job_submit(task->comm, &job);
    TACITI_TRY(taciti_job_wait(task->comm, &job));
    *out_s = (double)(job.end_ns - job.begin_ns) / 1e9;
    return TACIT_OK;
}

/* ---- who --------------------------------------------------------------------------------------------------------- */

static tacit_status list_natives(taciti_comm *comm, void *context) { return taciti_comm_natives(comm, context); }

tacit_status taciti_collective_callers(taciti_collective_task *task, taciti_caller out[TACITI_COLLECTIVE_MAX_CALLERS],
                                       int *count) {
    const bool reduces = task->what == TACITI_OPERATION_ALL_REDUCE;
    const taciti_native *natives = NULL;
    taciti_job job = {.run = list_natives, .context = &natives, .name = "list of the library's own", .detail = -1};
    out[0] = (taciti_caller){.name = "tacit", .native = -1, .sample = reduces ? sample_exchange : sample_job};
    *count = 1;
    if (!reduces) return TACIT_OK;
    taciti_job_submit(task->comm, &job);
    TACITI_TRY(taciti_job_wait(task->comm, &job));
    for (int i = 0; natives[i].name != NULL && *count < TACITI_COLLECTIVE_MAX_CALLERS; i++) {
        taciti_caller *caller = &out[(*count)++];
        *caller = (taciti_caller){.native = i, .apart = natives[i].apart, .sample = sample_job};
        (void)snprintf(caller->name, sizeof caller->name, "%s", natives[i].name);
    }
    return TACIT_OK;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static tacit_status allocate_task(taciti_collective_task *task, size_t max_bytes) {
    const size_t bytes = taciti_round_up(max_bytes, TACITI_ALIGN_BYTES); /* the exchange moves whole lines */
    const int ranks = taciti_comm_peer(task->comm, taciti_comm_rank(task->comm))->local_size;
    TACITI_TRY(taciti_machine_has_room("--bytes", 2.0 * (double)bytes * ranks));
    TACITI_TRY(taciti_numbers_create(taciti_comm_size(task->comm), &task->numbers));
    TACITI_TRY(taciti_pages_create(bytes, "the array", &task->in_pages));
    TACITI_TRY(taciti_pages_create(bytes, "the second array", &task->out_pages));
    task->in = task->in_pages.base;
    task->out = task->out_pages.base;
    return TACIT_OK;
}

tacit_status taciti_collective_open(taciti_comm *comm, taciti_operation what, const taciti_exchange_options *options,
                                    size_t max_bytes, taciti_collective_task *out) {
    *out = (taciti_collective_task){.comm = comm, .what = what, .options = *options, .receiver = 1};
    for (int r = taciti_comm_size(comm) - 1; r > 0; r--)
        if (!taciti_comm_same_host(comm, 0, r)) out->receiver = r;
    return taciti_comm_agree(comm, allocate_task(out, max_bytes));
}

static void forget_size(taciti_collective_task *task) {
    taciti_exchange_destroy(task->exchange);
    taciti_layout_destroy(&task->layout);
    task->exchange = NULL;
}

void taciti_collective_close(taciti_collective_task *task) {
    forget_size(task);
    taciti_numbers_destroy(&task->numbers);
    taciti_pages_destroy(&task->in_pages);
    taciti_pages_destroy(&task->out_pages);
}

static tacit_status describe_array(taciti_collective_task *task) {
    TACITI_TRY(taciti_layout_create(1, &task->layout));
    TACITI_TRY(taciti_layout_append(&task->layout, "array", 1, &task->n, false));
    return taciti_layout_seal(&task->layout, (size_t)task->options.bucket_bytes);
}

tacit_status taciti_collective_resize(taciti_collective_task *task, size_t bytes) {
    forget_size(task);
    task->n = bytes / sizeof(float);
    if (task->what == TACITI_OPERATION_SEND) return TACIT_OK;
    TACITI_TRY(taciti_comm_agree(task->comm, describe_array(task)));
    return taciti_exchange_create(task->comm, &task->layout, &task->options, NULL, &task->exchange);
}
