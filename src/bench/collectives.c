/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/collectives.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

enum { MAX_CALLS = 10000, MAX_WARM_UPS = 3, SPEAK_EVERY_S = 10 };
static const double SAMPLE_SECONDS = 0.05; /* calls are repeated until a sample takes about that long */

struct bench {
    taciti_comm *comm;
    const taciti_collective_options *options;
    taciti_collective_bench *result;
    taciti_collective_task task;
    taciti_caller callers[TACITI_COLLECTIVE_MAX_CALLERS];
    int64_t spoke_ns;
};

/* ---- formulas ---------------------------------------------------------------------------------------------------- */

int taciti_collective_sides(const taciti_collective_bench *bench) {
    return bench->hosts > 1 ? bench->hosts : bench->ranks;
}

double taciti_collective_bus_bits(const taciti_collective_bench *bench, taciti_operation what, size_t bytes) {
    const double sides = taciti_collective_sides(bench), bits = 8 * (double)bytes;
    return what == TACITI_OPERATION_SEND ? bits : 2 * ((sides - 1) / sides) * bits;
}

const char *taciti_collective_bus_text(taciti_operation what) {
    return what == TACITI_OPERATION_SEND ? "1" : "2 (n-1)/n";
}

/* ---- who takes part ---------------------------------------------------------------------------------------------- */

/* Every rank comes to the same end; rank 0 says it. */
static tacit_status refuse_caller(const struct bench *bench, int count, const char *name) {
    char quoted[TACITI_QUOTED_BYTES], all[TACITI_COLLECTIVE_MAX_CALLERS * (TACITI_COLLECTIVE_NAME_BYTES + 2)] = "";
    for (int k = 0; k < count; k++)
        taciti_text_add(all, sizeof all, "%s%s", k == 0 ? "" : ", ", bench->callers[k].name);
    if (taciti_comm_rank(bench->comm) != 0) return TACIT_E_CONFIG;
    return taciti_fail(TACIT_E_CONFIG, "--by %s: not offered for %s here; there %s %s", taciti_quote(name, quoted),
                       taciti_operation_names[bench->options->what], count == 1 ? "is" : "are", all);
}

/* Keeps those that were asked for, in that order. */
static tacit_status choose_callers(struct bench *bench) {
    const taciti_collective_options *o = bench->options;
    taciti_caller chosen[TACITI_COLLECTIVE_MAX_CALLERS];
    int count = 0;
    TACITI_TRY(taciti_collective_callers(&bench->task, bench->callers, &count));
    for (int i = 0; i < o->by_count; i++) {
        int k = 0;
        while (k < count && strcmp(bench->callers[k].name, o->by[i]) != 0) k++;
        if (k == count) return refuse_caller(bench, count, o->by[i]);
        chosen[i] = bench->callers[k];
    }
    if (o->by_count > 0) {
        count = o->by_count;
        memcpy(bench->callers, chosen, (size_t)count * sizeof *chosen);
    }
    for (int k = 0; k < count; k++)
        memcpy(bench->result->who[k], bench->callers[k].name, sizeof bench->callers[k].name);
    bench->result->who_count = count;
    return TACIT_OK;
}

/* ---- samples ----------------------------------------------------------------------------------------------------- */

/* Seconds of the slowest rank, and whether all are content; the same on every rank. */
static tacit_status agree_on_sample(struct bench *bench, const taciti_caller *caller, bool checked, double *seconds) {
    double values[2] = {*seconds, checked && !taciti_collective_is_right(&bench->task, caller) ? 1 : 0};
    TACITI_TRY(taciti_comm_allreduce_f64(bench->comm, values, 2, TACITI_OP_MAX));
    *seconds = values[0];
    if (values[1] > 0 && taciti_comm_rank(bench->comm) == 0)
        (void)taciti_fail(TACIT_E_NUMERICS, "%s of %zu bytes by %s: the result is wrong",
                          taciti_operation_names[bench->options->what], bench->task.n * sizeof(float), caller->name);
    return values[1] > 0 ? TACIT_E_NUMERICS : TACIT_OK;
}

/* One call whose result is checked. */
static tacit_status check_call(struct bench *bench, const taciti_caller *caller, double *seconds) {
    taciti_collective_fill(&bench->task, caller);
    TACITI_TRY(taciti_comm_barrier(bench->comm));
    TACITI_TRY(caller->sample(&bench->task, caller, 1, seconds));
    return agree_on_sample(bench, caller, true, seconds);
}

/* Seconds of one of `calls` calls. The result of one before them is checked; a single call is its own check. */
static tacit_status take_sample(struct bench *bench, const taciti_caller *caller, int calls, double *seconds) {
    TACITI_TRY(check_call(bench, caller, seconds));
    if (calls == 1) return TACIT_OK;
    taciti_collective_clear(&bench->task);
    TACITI_TRY(taciti_comm_barrier(bench->comm));
    TACITI_TRY(caller->sample(&bench->task, caller, calls, seconds));
    *seconds /= calls;
    return agree_on_sample(bench, caller, false, seconds);
}

/* The first calls open connections. Chooses how many calls make a sample, the same on every rank. */
static tacit_status warm_up(struct bench *bench, const taciti_caller *caller, int *calls) {
    double seconds = 0;
    for (int i = 0; i == 0 || (i < MAX_WARM_UPS && seconds < SAMPLE_SECONDS); i++)
        TACITI_TRY(check_call(bench, caller, &seconds));
    const double wanted = seconds > 0 ? ceil(SAMPLE_SECONDS / seconds) : MAX_CALLS;
    *calls = wanted < MAX_CALLS ? (int)wanted : MAX_CALLS;
    return TACIT_OK;
}

/* ---- one size ---------------------------------------------------------------------------------------------------- */

static void tell_progress(struct bench *bench, int round) {
    const int64_t now = taciti_now_ns();
    if (now - bench->spoke_ns < SPEAK_EVERY_S * TACITI_NS_PER_S) return;
    bench->spoke_ns = now;
    if (taciti_comm_rank(bench->comm) == 0)
        taciti_log(TACITI_LOG_INFO, "%zu bytes: round %d of %d", bench->task.n * sizeof(float), round + 1,
                   bench->options->rounds);
}

static tacit_status measure_rounds(struct bench *bench, taciti_collective_figure *figures) {
    const int count = bench->result->who_count;
    bool room = true;
    for (int k = 0; k < count; k++) {
        figures[k].samples = taciti_calloc((size_t)bench->options->rounds, sizeof *figures[k].samples);
        room = room && figures[k].samples != NULL;
    }
    TACITI_TRY(taciti_comm_agree(bench->comm, room ? TACIT_OK : TACIT_E_MEMORY));
    for (int k = 0; k < count; k++) TACITI_TRY(warm_up(bench, &bench->callers[k], &figures[k].calls));
    for (int round = 0; round < bench->options->rounds; round++)
        for (int k = 0; k < count; k++) {
            tell_progress(bench, round);
            TACITI_TRY(take_sample(bench, &bench->callers[k], figures[k].calls, &figures[k].samples[round]));
        }
    return TACIT_OK;
}

static tacit_status summarise_size(struct bench *bench, size_t bytes, taciti_collective_figure *figures) {
    const size_t rounds = (size_t)bench->options->rounds;
    const double bits = taciti_collective_bus_bits(bench->result, bench->options->what, bytes);
    double *sorted = taciti_calloc(rounds, sizeof *sorted), min = (double)INFINITY;
    if (sorted == NULL) return TACIT_E_MEMORY;
    for (int k = 0; k < bench->result->who_count; k++) {
        memcpy(sorted, figures[k].samples, rounds * sizeof *sorted);
        figures[k].seconds = taciti_statistics_of(sorted, bench->options->rounds);
        figures[k].bus_bps = bits / figures[k].seconds.median;
        min = fmin(min, figures[k].seconds.median);
    }
    for (int k = 0; k < bench->result->who_count; k++) figures[k].ratio = min / figures[k].seconds.median;
    taciti_free(sorted);
    return TACIT_OK;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static tacit_status measure_sizes(struct bench *bench) {
    const taciti_collective_options *o = bench->options;
    size_t max = 0;
    for (int i = 0; i < o->size_count; i++) max = o->bytes[i] > max ? o->bytes[i] : max;
    TACITI_TRY(taciti_collective_open(bench->comm, o->what, &o->exchange, max, &bench->task));
    bench->result->receiver = bench->task.receiver;
    TACITI_TRY(choose_callers(bench));
    for (int i = 0; i < o->size_count; i++) {
        taciti_collective_figure *figures = bench->result->figures[i];
        TACITI_TRY(taciti_collective_resize(&bench->task, o->bytes[i]));
        TACITI_TRY(measure_rounds(bench, figures));
        TACITI_TRY(taciti_comm_agree(bench->comm, summarise_size(bench, o->bytes[i], figures)));
    }
    return TACIT_OK;
}

tacit_status taciti_collective_bench_run(taciti_comm *comm, const taciti_collective_options *options,
                                         taciti_collective_bench *out) {
    struct bench bench = {.comm = comm, .options = options, .result = out, .spoke_ns = taciti_now_ns()};
    *out = (taciti_collective_bench){
        .size_count = options->size_count, .rounds = options->rounds, .ranks = taciti_comm_size(comm)};
    for (int r = 0; r < out->ranks; r++) out->hosts += taciti_comm_peer(comm, r)->local_rank == 0;
    const tacit_status status = measure_sizes(&bench);
    taciti_collective_close(&bench.task);
    return status;
}

void taciti_collective_bench_close(taciti_collective_bench *bench) {
    for (int i = 0; i < bench->size_count; i++)
        for (int k = 0; k < bench->who_count; k++) taciti_free(bench->figures[i][k].samples);
    bench->size_count = 0;
}
