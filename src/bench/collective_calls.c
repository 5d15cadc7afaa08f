/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/collective_calls.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

enum { HAND_OVERS = 1000 };

const char *const taciti_operation_names[TACITI_OPERATIONS] = {"all-reduce", "reduce-scatter", "all-gather",
                                                               "all-to-all", "send",           "mix"};

/* ---- numbers -------------------------------------------------------------------------------------------------------
 */

/* All-to-all moves equal blocks; what is left of the array belongs to nobody. */
static size_t block_n(const taciti_collective_task *task) { return task->n / (size_t)task->world.size; }

static void chunk_of(const taciti_collective_task *task, int member, size_t *begin, size_t *n) {
    size_t end = 0;
    taciti_group_chunk(&task->world, task->n, member, begin, &end);
    *n = end - *begin;
}

void taciti_collective_fill(taciti_collective_task *task, const taciti_caller *caller) {
    const int me = task->world.me;
    size_t begin = 0, n = task->n;
    if (task->what == TACITI_OPERATION_ALL_GATHER) chunk_of(task, me, &begin, &n);
    if (task->what == TACITI_OPERATION_SEND && me != 0) n = 0;
    if (n < task->n) memset(task->in, 0xff, task->n * sizeof *task->in);
    taciti_numbers_write(&task->numbers, me, begin, task->in + begin, n);
    if (caller->apart) memset(task->out, 0xff, task->n * sizeof *task->out);
}

void taciti_collective_clear(taciti_collective_task *task) { memset(task->in, 0, task->n * sizeof *task->in); }

static bool gathered_right(const taciti_collective_task *task) {
    bool right = true;
    for (int r = 0; r < task->world.size; r++) {
        size_t begin = 0, n = 0;
        chunk_of(task, r, &begin, &n);
        right = right && taciti_numbers_are(&task->numbers, r, begin, task->in + begin, n);
    }
    return right;
}

static bool swapped_right(const taciti_collective_task *task) {
    const size_t block = block_n(task), mine = (size_t)task->world.me * block;
    bool right = true;
    for (int r = 0; r < task->world.size; r++)
        right = right && taciti_numbers_are(&task->numbers, r, mine, task->out + (size_t)r * block, block);
    return right;
}

bool taciti_collective_is_right(const taciti_collective_task *task, const taciti_caller *caller) {
    const float *x = caller->apart ? task->out : task->in;
    const int me = task->world.me, sum = task->numbers.ranks;
    size_t begin = 0, n = task->n;
    if (caller->round >= 0) return taciti_collective_mix_is_right(&task->mix, &task->numbers, caller->round, x, n);
    switch (task->what) {
    case TACITI_OPERATION_REDUCE_SCATTER: chunk_of(task, me, &begin, &n); break;
    case TACITI_OPERATION_ALL_GATHER: return gathered_right(task);
    case TACITI_OPERATION_ALL_TO_ALL: return swapped_right(task);
    case TACITI_OPERATION_SEND: return me != task->receiver || taciti_numbers_are(&task->numbers, 0, 0, x, n);
    case TACITI_OPERATION_ALL_REDUCE:
    case TACITI_OPERATION_MIX:
    case TACITI_OPERATIONS: break;
    }
    return taciti_numbers_are(&task->numbers, sum, begin, x + begin, n);
}

/* ---- our all-reduce ------------------------------------------------------------------------------------------------
 */

/* As a program calls it: the exchange of a training step, blocking. */
static tacit_status sample_exchange(taciti_collective_task *task, const taciti_caller *caller, int calls,
                                    double *out_s) {
    (void)caller;
    const int64_t begin_ns = taciti_now_ns();
    for (int i = 0; i < calls; i++) TACITI_TRY(taciti_exchange_run(task->exchange, task->in));
    *out_s = (double)(taciti_now_ns() - begin_ns) / 1e9;
    return TACIT_OK;
}

static tacit_status sample_mix(taciti_collective_task *task, const taciti_caller *caller, int calls, double *out_s) {
    const int64_t begin_ns = taciti_now_ns();
    for (int i = 0; i < calls; i++)
        TACITI_TRY(taciti_collective_mix_run(&task->mix, &task->layout, task->in, caller->round));
    *out_s = (double)(taciti_now_ns() - begin_ns) / 1e9;
    return TACIT_OK;
}

/* ---- what runs in one job: the hand-over is not counted
 * --------------------------------------------------------------- */

typedef struct errand {
    taciti_collective_task *task;
    const taciti_caller *caller;
    int calls;
} errand;

static tacit_status call_native(taciti_comm *comm, const errand *e) {
    const taciti_collective_task *task = e->task;
    return taciti_comm_native_allreduce(comm, e->caller->native, task->in, e->caller->apart ? task->out : task->in,
                                        task->n, e->calls);
}

static tacit_status call_group(taciti_comm *comm, const errand *e) {
    taciti_collective_task *task = e->task;
    for (int i = 0; i < e->calls; i++) {
        if (task->what == TACITI_OPERATION_REDUCE_SCATTER)
            TACITI_TRY(taciti_group_reduce_scatter(comm, &task->world, task->in, task->n, task->out));
        else if (task->what == TACITI_OPERATION_ALL_GATHER)
            TACITI_TRY(taciti_group_all_gather(comm, &task->world, task->in, task->n));
        else
            TACITI_TRY(
                taciti_group_all_to_all(comm, &task->world, task->in, task->out, block_n(task) * sizeof *task->in));
    }
    return TACIT_OK;
}

static tacit_status call_send(taciti_comm *comm, const errand *e) {
    const taciti_collective_task *task = e->task;
    const size_t bytes = task->n * sizeof *task->in;
    taciti_engine_request message, answer;
    for (int i = 0; i < e->calls && task->world.me == 0; i++) {
        TACITI_TRY(taciti_comm_irecv(comm, task->receiver, NULL, 0, &answer));
        TACITI_TRY(taciti_comm_isend(comm, task->receiver, task->in, bytes, &message));
        TACITI_TRY(taciti_comm_await(comm, &message));
        TACITI_TRY(taciti_comm_await(comm, &answer));
    }
    for (int i = 0; i < e->calls && task->world.me == task->receiver; i++) {
        TACITI_TRY(taciti_comm_irecv(comm, 0, task->in, bytes, &message));
        TACITI_TRY(taciti_comm_await(comm, &message));
        TACITI_TRY(taciti_comm_isend(comm, 0, NULL, 0, &answer));
        TACITI_TRY(taciti_comm_await(comm, &answer));
    }
    return TACIT_OK;
}

static tacit_status run_errand(taciti_comm *comm, void *context) {
    const errand *e = context;
    if (e->caller->native >= 0) return call_native(comm, e);
    return e->task->what == TACITI_OPERATION_SEND ? call_send(comm, e) : call_group(comm, e);
}

static tacit_status sample_job(taciti_collective_task *task, const taciti_caller *caller, int calls, double *out_s) {
    errand e = {task, caller, calls};
    const char *name = caller->native >= 0 ? caller->name : taciti_operation_names[task->what];
    taciti_job job = {.run = run_errand, .context = &e, .name = name, .detail = -1};
    TACITI_TRY(taciti_job_submit(task->comm, &job));
    TACITI_TRY(taciti_job_wait(task->comm, &job));
    *out_s = (double)(job.end_ns - job.begin_ns) / 1e9;
    return TACIT_OK;
}

/* ---- who ------------------------------------------------------------------------------------------------------------
 */

static tacit_status list_natives(taciti_comm *comm, void *context) { return taciti_comm_natives(comm, context); }

/* The all-reduce, and every round up to the most that there may be. */
static int list_rounds(const taciti_collective_task *task, taciti_caller *out) {
    int count = 1;
    out[0] = (taciti_caller){.name = "all-reduce", .native = -1, .round = -1, .sample = sample_exchange};
    for (size_t r = 0; r < task->mix.topology.period && count < TACITI_COLLECTIVE_MAX_CALLERS; r++) {
        taciti_caller *caller = &out[count++];
        *caller = (taciti_caller){.native = -1, .round = (int)r, .sample = sample_mix};
        (void)snprintf(caller->name, sizeof caller->name, "round-%zu", r);
    }
    return count;
}

tacit_status taciti_collective_callers(taciti_collective_task *task, taciti_caller out[TACITI_COLLECTIVE_MAX_CALLERS],
                                       int *count) {
    const bool reduces = task->what == TACITI_OPERATION_ALL_REDUCE;
    const taciti_native *natives = NULL;
    if (task->what == TACITI_OPERATION_MIX) {
        *count = list_rounds(task, out);
        return TACIT_OK;
    }
    taciti_job job = {.run = list_natives, .context = &natives, .name = "list of the library's own", .detail = -1};
    out[0] = (taciti_caller){.name = "tacit",
                             .native = -1,
                             .round = -1,
                             .apart = task->what == TACITI_OPERATION_ALL_TO_ALL,
                             .sample = reduces ? sample_exchange : sample_job};
    *count = 1;
    if (!reduces) return TACIT_OK;
    TACITI_TRY(taciti_job_submit(task->comm, &job));
    TACITI_TRY(taciti_job_wait(task->comm, &job));
    for (int i = 0; natives[i].name != NULL && *count < TACITI_COLLECTIVE_MAX_CALLERS; i++) {
        taciti_caller *caller = &out[(*count)++];
        *caller = (taciti_caller){.native = i, .round = -1, .apart = natives[i].apart, .sample = sample_job};
        (void)snprintf(caller->name, sizeof caller->name, "%s", natives[i].name);
    }
    return TACIT_OK;
}

static tacit_status do_nothing(taciti_comm *comm, void *context) {
    (void)context;
    return taciti_comm_health(comm);
}

tacit_status taciti_collective_hand_over(taciti_comm *comm, double *out_s) {
    const int64_t begin_ns = taciti_now_ns();
    for (int i = 0; i < HAND_OVERS; i++) {
        taciti_job job = {.run = do_nothing, .name = "nothing", .detail = -1};
        TACITI_TRY(taciti_job_submit(comm, &job));
        TACITI_TRY(taciti_job_wait(comm, &job));
    }
    *out_s = (double)(taciti_now_ns() - begin_ns) / 1e9 / HAND_OVERS;
    return TACIT_OK;
}

/* ---- life -----------------------------------------------------------------------------------------------------------
 */

static void find_receiver(taciti_collective_task *task) {
    task->receiver = 1;
    for (int r = taciti_comm_size(task->comm) - 1; r > 0; r--)
        if (!taciti_comm_same_host(task->comm, 0, r)) task->receiver = r;
}

static tacit_status allocate_task(taciti_collective_task *task, size_t max_bytes) {
    const size_t bytes = taciti_round_up(max_bytes, TACITI_ALIGN_BYTES); /* the exchange moves whole lines */
    TACITI_TRY(taciti_group_world(task->comm, &task->world));
    const size_t scratch_bytes = taciti_group_scratch_n(&task->world, bytes / sizeof(float)) * sizeof(float);
    TACITI_TRY(taciti_numbers_create(taciti_comm_size(task->comm), &task->numbers));
    TACITI_TRY(taciti_pages_create(bytes, "the array", &task->in_pages));
    TACITI_TRY(
        taciti_pages_create(scratch_bytes > bytes ? scratch_bytes : bytes, "the second array", &task->out_pages));
    task->in = task->in_pages.base;
    task->out = task->out_pages.base;
    if (task->what != TACITI_OPERATION_MIX) return TACIT_OK;
    return taciti_collective_mix_open(task->comm, task->topology, &task->numbers, &task->options, &task->mix);
}

tacit_status taciti_collective_open(taciti_comm *comm, taciti_operation what, const taciti_exchange_options *options,
                                    const char *topology, size_t max_bytes, taciti_collective_task *out) {
    *out = (taciti_collective_task){.comm = comm, .what = what, .options = *options, .topology = topology};
    find_receiver(out);
    return taciti_comm_agree(comm, allocate_task(out, max_bytes));
}

static void forget_size(taciti_collective_task *task) {
    taciti_exchange_destroy(task->exchange);
    taciti_layout_destroy(&task->layout);
    task->exchange = NULL;
}

void taciti_collective_close(taciti_collective_task *task) {
    taciti_collective_mix_close(&task->mix);
    forget_size(task);
    taciti_group_destroy(&task->world);
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
    taciti_mix_destroy(task->mix.mix); /* borrows the layout */
    task->mix.mix = NULL;
    forget_size(task);
    task->n = bytes / sizeof(float);
    if (task->what == TACITI_OPERATION_ALL_TO_ALL && block_n(task) == 0)
        return task->world.me != 0
                   ? TACIT_E_CONFIG
                   : taciti_fail(TACIT_E_CONFIG, "--bytes %zu: all-to-all of %d ranks needs %zu or more", bytes,
                                 task->world.size, (size_t)task->world.size * sizeof(float));
    if (task->what != TACITI_OPERATION_ALL_REDUCE && task->what != TACITI_OPERATION_MIX) return TACIT_OK;
    TACITI_TRY(taciti_comm_agree(task->comm, describe_array(task)));
    TACITI_TRY(taciti_exchange_create(task->comm, &task->layout, &task->options, NULL, &task->exchange));
    if (task->what == TACITI_OPERATION_ALL_REDUCE) return TACIT_OK;
    return taciti_collective_mix_resize(&task->mix, &task->layout, &task->options);
}
