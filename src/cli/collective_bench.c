/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/collective_bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

enum {
    MOST_CALLS = 10000,
    MOST_WARM_UPS = 3,
    PHASES = 4,    /* contributions are 0 .. PHASES - 1 */
    SUMMANDS = 64, /* that many ranks contribute to one element, so sums stay below 256: exact in bf16 too */
    SPEAK_EVERY_S = 10,
};
static const double SAMPLE_SECONDS = 0.05; /* calls are repeated until a sample takes about that long */

const char *const taciti_collective_names[TACITI_COLLECTIVES] = {"all-reduce", "send"};

struct bench;

/* Who can do the collective. */
typedef struct candidate {
    char name[TACITI_COLLECTIVE_NAME_BYTES];
    int native; /* index among the library's; -1: ours */
    bool apart; /* result in bench->out instead of bench->in */
    /* `calls` calls in a row; seconds of all of them on this rank. */
    tacit_status (*sample)(struct bench *bench, const struct candidate *candidate, int calls, double *out_s);
} candidate;

struct bench {
    taciti_comm *comm;
    const taciti_collective_options *options;
    taciti_collective_bench *result;
    candidate candidates[TACITI_COLLECTIVE_MOST_CANDIDATES];
    taciti_pages in_pages, out_pages;
    float *in, *out;
    size_t n; /* floats of the current size */
    taciti_layout layout;
    taciti_exchange *exchange;
    float *mine, *expected; /* what this rank contributes, and the result: both repeat after period_n elements */
    size_t period_n;
    int64_t spoke_ns;
};

/* ---- numbers and their sums ----------------------------------------------------------------------------------------
 */
/* Small integers, so that every order of additions and every wire format gives the exact sum. Of many ranks only some
 * contribute to an element. */
static size_t groups_of(int ranks) { return ((size_t)ranks + SUMMANDS - 1) / SUMMANDS; }

static float contribution(size_t i, int rank, int ranks) {
    const size_t r = (size_t)rank, groups = groups_of(ranks);
    return (i + r) % groups == 0 ? (float)((i / groups + r) % PHASES) : 0;
}

static tacit_status create_periods(struct bench *bench) {
    const int rank = taciti_comm_rank(bench->comm), ranks = taciti_comm_size(bench->comm);
    const bool send = bench->options->what == TACITI_COLLECTIVE_SEND;
    bench->period_n = groups_of(ranks) * PHASES;
    bench->mine = taciti_calloc(bench->period_n, sizeof *bench->mine);
    bench->expected = taciti_calloc(bench->period_n, sizeof *bench->expected);
    if (bench->mine == NULL || bench->expected == NULL) return TACIT_E_MEMORY;
    for (size_t i = 0; i < bench->period_n; i++) {
        bench->mine[i] = send && rank != 0 ? -1 : contribution(i, rank, ranks);
        for (int r = 0; r < (send ? 1 : ranks); r++) bench->expected[i] += contribution(i, r, ranks);
    }
    return TACIT_OK;
}

/* The result of the call before is overwritten, so that nobody lives on it. */
static void fill(struct bench *bench, const candidate *c) {
    for (size_t at = 0; at < bench->n; at += bench->period_n) {
        const size_t n = bench->n - at < bench->period_n ? bench->n - at : bench->period_n;
        memcpy(bench->in + at, bench->mine, n * sizeof *bench->in);
    }
    if (c->apart) memset(bench->out, 0xff, bench->n * sizeof *bench->out);
}

/* Many calls in a row add up sums of sums: zeros stay what they are. */
static void clear(struct bench *bench) { memset(bench->in, 0, bench->n * sizeof *bench->in); }

static bool is_right(const struct bench *bench, const candidate *c) {
    const float *x = c->apart ? bench->out : bench->in;
    if (bench->options->what == TACITI_COLLECTIVE_SEND && taciti_comm_rank(bench->comm) != bench->result->receiver)
        return true;
    for (size_t at = 0; at < bench->n; at += bench->period_n) {
        const size_t n = bench->n - at < bench->period_n ? bench->n - at : bench->period_n;
        if (memcmp(x + at, bench->expected, n * sizeof *x) != 0) return false;
    }
    return true;
}

/* ---- candidates -----------------------------------------------------------------------------------------------------
 */
/* Ours as a training step does it: from the calling thread through the queue and back. */
static tacit_status sample_exchange(struct bench *bench, const candidate *c, int calls, double *out_s) {
    (void)c;
    const size_t buckets = bench->layout.bucket_count;
    const int64_t begin_ns = taciti_now_ns();
    for (int i = 0; i < calls; i++) {
        for (size_t b = 0; b < buckets; b++) TACITI_TRY(taciti_exchange_begin(bench->exchange, bench->in, b));
        for (size_t b = 0; b < buckets; b++) TACITI_TRY(taciti_exchange_wait(bench->exchange, b));
    }
    *out_s = (double)(taciti_now_ns() - begin_ns) / 1e9;
    return TACIT_OK;
}

/* What the communication thread shall do. */
typedef struct errand {
    struct bench *bench;
    const candidate *candidate;
    int calls;
} errand;

static tacit_status run_errand(struct bench *bench, const candidate *c, int calls, const char *name,
                               tacit_status (*run)(taciti_comm *comm, void *context), double *out_s) {
    errand what = {bench, c, calls};
    taciti_job job = {.run = run, .context = &what, .name = name, .detail = -1};
    TACITI_TRY(taciti_job_submit(bench->comm, &job));
    TACITI_TRY(taciti_job_wait(bench->comm, &job));
    *out_s = (double)(job.end_ns - job.begin_ns) / 1e9;
    return TACIT_OK;
}

static tacit_status call_native(taciti_comm *comm, void *context) {
    const errand *e = context;
    const struct bench *bench = e->bench;
    return taciti_comm_native_allreduce(comm, e->candidate->native, bench->in,
                                        e->candidate->apart ? bench->out : bench->in, bench->n, e->calls);
}

/* The library's, called by the thread that owns it: the hand-over is not counted. */
static tacit_status sample_native(struct bench *bench, const candidate *c, int calls, double *out_s) {
    return run_errand(bench, c, calls, c->name, call_native, out_s);
}

static tacit_status call_send(taciti_comm *comm, void *context) {
    const errand *e = context;
    struct bench *bench = e->bench;
    const size_t bytes = bench->n * sizeof *bench->in;
    const int receiver = bench->result->receiver, rank = taciti_comm_rank(comm);
    taciti_engine_request message, answer;
    for (int i = 0; i < e->calls && rank == 0; i++) {
        TACITI_TRY(taciti_comm_irecv(comm, receiver, NULL, 0, &answer));
        TACITI_TRY(taciti_comm_isend(comm, receiver, bench->in, bytes, &message));
        TACITI_TRY(taciti_comm_await(comm, &message));
        TACITI_TRY(taciti_comm_await(comm, &answer));
    }
    for (int i = 0; i < e->calls && rank == receiver; i++) {
        TACITI_TRY(taciti_comm_irecv(comm, 0, bench->in, bytes, &message));
        TACITI_TRY(taciti_comm_await(comm, &message));
        TACITI_TRY(taciti_comm_isend(comm, 0, NULL, 0, &answer));
        TACITI_TRY(taciti_comm_await(comm, &answer));
    }
    return TACIT_OK;
}

static tacit_status sample_send(struct bench *bench, const candidate *c, int calls, double *out_s) {
    return run_errand(bench, c, calls, "send", call_send, out_s);
}

static void add_candidate(struct bench *bench, const char *name, int native, bool apart,
                          tacit_status (*sample)(struct bench *, const candidate *, int, double *)) {
    taciti_collective_bench *result = bench->result;
    if (result->who_count == TACITI_COLLECTIVE_MOST_CANDIDATES) return;
    candidate c = {.native = native, .apart = apart, .sample = sample};
    (void)snprintf(c.name, sizeof c.name, "%s", name);
    memcpy(result->who[result->who_count], c.name, sizeof c.name);
    bench->candidates[result->who_count++] = c;
}

static tacit_status call_natives(taciti_comm *comm, void *context) { return taciti_comm_natives(comm, context); }

static tacit_status find_candidates(struct bench *bench) {
    if (bench->options->what == TACITI_COLLECTIVE_SEND) {
        add_candidate(bench, "tacit", -1, false, sample_send);
        return TACIT_OK;
    }
    add_candidate(bench, "tacit", -1, false, sample_exchange);
    const taciti_native *natives = NULL;
    taciti_job job = {.run = call_natives, .context = &natives, .name = "list of the library's own", .detail = -1};
    TACITI_TRY(taciti_job_submit(bench->comm, &job));
    TACITI_TRY(taciti_job_wait(bench->comm, &job));
    for (int i = 0; natives[i].name != NULL; i++)
        add_candidate(bench, natives[i].name, i, natives[i].apart, sample_native);
    return TACIT_OK;
}

static int find_by_name(const taciti_collective_bench *result, const char *name) {
    int i = 0;
    while (i < result->who_count && strcmp(result->who[i], name) != 0) i++;
    return i;
}

/* Every rank comes to the same end; rank 0 says it. */
static tacit_status refuse_candidate(const struct bench *bench, const char *name) {
    char quoted[TACITI_QUOTED_BYTES], all[TACITI_COLLECTIVE_MOST_CANDIDATES * (TACITI_COLLECTIVE_NAME_BYTES + 2)];
    size_t used = 0;
    for (int k = 0; k < bench->result->who_count; k++)
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", k == 0 ? "" : ", ", bench->result->who[k]);
    if (taciti_comm_rank(bench->comm) != 0) return TACIT_E_USAGE;
    return taciti_fail(TACIT_E_USAGE, "--by %s: not offered for %s here; there are %s", taciti_quote(name, quoted),
                       taciti_collective_names[bench->options->what], all);
}

/* Keeps those that were asked for, in that order. */
static tacit_status choose_candidates(struct bench *bench) {
    const taciti_collective_options *o = bench->options;
    taciti_collective_bench *result = bench->result;
    TACITI_TRY(find_candidates(bench));
    candidate chosen[TACITI_COLLECTIVE_MOST_CANDIDATES];
    for (int i = 0; i < o->by_count; i++) {
        const int found = find_by_name(result, o->by[i]);
        if (found == result->who_count) return refuse_candidate(bench, o->by[i]);
        chosen[i] = bench->candidates[found];
    }
    for (int i = 0; i < o->by_count; i++) {
        bench->candidates[i] = chosen[i];
        memcpy(result->who[i], chosen[i].name, sizeof chosen[i].name);
    }
    if (o->by_count > 0) result->who_count = o->by_count;
    return TACIT_OK;
}

/* ---- one size -------------------------------------------------------------------------------------------------------
 */
static tacit_status describe_array(struct bench *bench) {
    TACITI_TRY(taciti_layout_create(1, &bench->layout));
    TACITI_TRY(taciti_layout_append(&bench->layout, "array", 1, &bench->n, false));
    return taciti_layout_seal(&bench->layout, (size_t)bench->options->exchange.bucket_bytes);
}

static tacit_status create_exchange(struct bench *bench) {
    if (bench->options->what != TACITI_COLLECTIVE_ALL_REDUCE) return TACIT_OK;
    TACITI_TRY(taciti_comm_agree(bench->comm, describe_array(bench)));
    return taciti_exchange_create(bench->comm, &bench->layout, &bench->options->exchange, &bench->exchange);
}

static void destroy_exchange(struct bench *bench) {
    taciti_exchange_destroy(bench->exchange);
    taciti_layout_destroy(&bench->layout);
    bench->exchange = NULL;
}

/* Seconds of the slowest rank, and whether all are content; the same on every rank. */
static tacit_status agree(struct bench *bench, const candidate *c, bool checked, double *seconds) {
    double values[2] = {*seconds, checked && !is_right(bench, c) ? 1 : 0};
    TACITI_TRY(taciti_comm_allreduce_f64(bench->comm, values, 2, TACITI_OP_MAX));
    *seconds = values[0];
    if (values[1] > 0 && taciti_comm_rank(bench->comm) == 0)
        (void)taciti_fail(TACIT_E_NUMERICS, "%s of %zu bytes by %s: the result is wrong",
                          taciti_collective_names[bench->options->what], bench->n * sizeof(float), c->name);
    return values[1] > 0 ? TACIT_E_NUMERICS : TACIT_OK;
}

/* One call whose result is checked. */
static tacit_status check_call(struct bench *bench, const candidate *c, double *seconds) {
    fill(bench, c);
    TACITI_TRY(taciti_comm_barrier(bench->comm));
    TACITI_TRY(c->sample(bench, c, 1, seconds));
    return agree(bench, c, true, seconds);
}

/* Seconds of one of `calls` calls. The first one's result is checked; a single call is its own check. */
static tacit_status sample(struct bench *bench, const candidate *c, int calls, double *seconds) {
    TACITI_TRY(check_call(bench, c, seconds));
    if (calls == 1) return TACIT_OK;
    clear(bench);
    TACITI_TRY(taciti_comm_barrier(bench->comm));
    TACITI_TRY(c->sample(bench, c, calls, seconds));
    *seconds /= calls;
    return agree(bench, c, false, seconds);
}

/* The first calls open connections. Chooses how many calls make a sample, the same on every rank. */
static tacit_status warm_up(struct bench *bench, const candidate *c, int *calls) {
    double seconds = 0;
    for (int i = 0; i == 0 || (i < MOST_WARM_UPS && seconds < SAMPLE_SECONDS); i++)
        TACITI_TRY(check_call(bench, c, &seconds));
    const double wanted = seconds > 0 ? ceil(SAMPLE_SECONDS / seconds) : MOST_CALLS;
    *calls = wanted < MOST_CALLS ? (int)wanted : MOST_CALLS;
    return TACIT_OK;
}

static void tell_progress(struct bench *bench, int round) {
    const int64_t now = taciti_now_ns();
    if (now - bench->spoke_ns < SPEAK_EVERY_S * TACITI_NS_PER_S) return;
    bench->spoke_ns = now;
    if (taciti_comm_rank(bench->comm) == 0)
        taciti_log(TACITI_LOG_INFO, "%zu bytes: round %d of %d", bench->n * sizeof(float), round + 1,
                   bench->options->rounds);
}

static tacit_status allocate_samples(const struct bench *bench, taciti_collective_figure *figures) {
    for (int k = 0; k < bench->result->who_count; k++) {
        figures[k].samples = taciti_calloc((size_t)bench->options->rounds, sizeof *figures[k].samples);
        if (figures[k].samples == NULL) return TACIT_E_MEMORY;
    }
    return TACIT_OK;
}

static tacit_status measure_rounds(struct bench *bench, taciti_collective_figure *figures) {
    const int count = bench->result->who_count;
    TACITI_TRY(taciti_comm_agree(bench->comm, allocate_samples(bench, figures)));
    for (int k = 0; k < count; k++) TACITI_TRY(warm_up(bench, &bench->candidates[k], &figures[k].calls));
    for (int round = 0; round < bench->options->rounds; round++)
        for (int k = 0; k < count; k++) {
            tell_progress(bench, round);
            TACITI_TRY(sample(bench, &bench->candidates[k], figures[k].calls, &figures[k].samples[round]));
        }
    return TACIT_OK;
}

static tacit_status summarise(struct bench *bench, taciti_collective_figure *figures) {
    const taciti_collective_options *o = bench->options;
    const double bits =
        taciti_collective_bus_bits(o->what, taciti_collective_sides(bench->result), bench->n * sizeof(float));
    double *sorted = taciti_calloc((size_t)o->rounds, sizeof *sorted), least = (double)INFINITY;
    if (sorted == NULL) return TACIT_E_MEMORY;
    for (int k = 0; k < bench->result->who_count; k++) {
        memcpy(sorted, figures[k].samples, (size_t)o->rounds * sizeof *sorted);
        figures[k].seconds = taciti_spread_of(sorted, o->rounds);
        figures[k].bus_bps = bits / figures[k].seconds.median;
        least = fmin(least, figures[k].seconds.median);
    }
    for (int k = 0; k < bench->result->who_count; k++) figures[k].ratio = least / figures[k].seconds.median;
    taciti_free(sorted);
    return TACIT_OK;
}

static tacit_status measure_size(struct bench *bench, int size) {
    taciti_collective_figure *figures = bench->result->figures[size];
    bench->n = bench->options->bytes[size] / sizeof(float);
    tacit_status status = create_exchange(bench);
    if (status == TACIT_OK) status = measure_rounds(bench, figures);
    destroy_exchange(bench);
    TACITI_TRY(status);
    return summarise(bench, figures);
}

/* ---- all ------------------------------------------------------------------------------------------------------------
 */
int taciti_collective_sides(const taciti_collective_bench *bench) {
    return bench->hosts > 1 ? bench->hosts : bench->ranks;
}

double taciti_collective_bus_bits(taciti_collective what, int sides, size_t bytes) {
    const double bits = 8 * (double)bytes;
    return what == TACITI_COLLECTIVE_SEND ? bits : 2 * (double)(sides - 1) / sides * bits;
}

static void look_around(struct bench *bench) {
    taciti_collective_bench *result = bench->result;
    result->ranks = taciti_comm_size(bench->comm);
    result->receiver = 1;
    for (int r = result->ranks - 1; r >= 0; r--) {
        const taciti_peer *peer = taciti_comm_peer(bench->comm, r);
        result->hosts += peer->local_rank == 0;
        if (strcmp(peer->host, taciti_comm_peer(bench->comm, 0)->host) != 0) result->receiver = r;
    }
}

static tacit_status allocate(struct bench *bench) {
    size_t most = 0;
    for (int i = 0; i < bench->options->size_count; i++)
        if (bench->options->bytes[i] > most) most = bench->options->bytes[i];
    most = taciti_round_up(most, TACITI_ALIGN_BYTES); /* the exchange moves whole lines */
    TACITI_TRY(taciti_pages_create(most, "the array to reduce", &bench->in_pages));
    TACITI_TRY(taciti_pages_create(most, "the reduced array", &bench->out_pages));
    bench->in = bench->in_pages.base;
    bench->out = bench->out_pages.base;
    return create_periods(bench);
}

static void destroy(struct bench *bench) {
    taciti_pages_destroy(&bench->in_pages);
    taciti_pages_destroy(&bench->out_pages);
    taciti_free(bench->mine);
    taciti_free(bench->expected);
}

tacit_status taciti_collective_bench_run(taciti_comm *comm, const taciti_collective_options *options,
                                         taciti_collective_bench *out) {
    struct bench bench = {.comm = comm, .options = options, .result = out, .spoke_ns = taciti_now_ns()};
    memset(out, 0, sizeof *out);
    out->size_count = options->size_count;
    out->rounds = options->rounds;
    look_around(&bench);
    tacit_status status = taciti_comm_agree(comm, allocate(&bench));
    if (status == TACIT_OK) status = choose_candidates(&bench);
    for (int i = 0; i < options->size_count && status == TACIT_OK; i++) status = measure_size(&bench, i);
    destroy(&bench);
    return status;
}

void taciti_collective_bench_close(taciti_collective_bench *bench) {
    for (int i = 0; i < bench->size_count; i++)
        for (int k = 0; k < bench->who_count; k++) taciti_free(bench->figures[i][k].samples);
    bench->size_count = 0;
}
