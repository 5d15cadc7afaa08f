/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the C interface on several ranks. Usage: library checks FOLDER | library levels | library frozen
 *
 *   checks  own SGD between settle and stepped gives the bits of finish with optim.name sgd, in every strategy; a job
 *           over the interface gives the bits of the driver used directly, with codecs and every stage of shard, too;
 * every stage of shard gives the bits of dp; two jobs at once on two communicators, and a job that goes on from a
 * checkpoint, give the bits of one after the other and of one that never stopped; codecs and controllers keep replicas
 * equal and what lies between tensors 0; a checkpoint is taken by another strategy; a refusal is logged once levels MPI
 * that has not begun, has ended, or allows no thread to send is refused, each with its status frozen  the last rank
 * stops: the others are called and get E_PEER from every function, and end by themselves
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <signal.h>
#include <string.h>

#include "api/object.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/rng.h"
#include "check.h"
#include "tacit/tacit_mpi.h"

enum { TENSORS = 5, STEPS = 7, MAX_FLOATS = 8192 };

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) == TACIT_OK) break;                                                                                 \
        (void)fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, tacit_error_text());                       \
        _exit(1);                                                                                                      \
    } while (0)

static tacit_layout *g_layout;
static size_t g_floats;

static void create_layout(void) {
    OK(tacit_layout_create(&g_layout));
    OK(tacit_layout_add(g_layout, "head.weight", 2, (const size_t[]){10, 41}, TACIT_DECAY));
    OK(tacit_layout_add(g_layout, "head.bias", 1, (const size_t[]){10}, 0));
    OK(tacit_layout_add(g_layout, "mid", 2, (const size_t[]){41, 100}, TACIT_DECAY));
    OK(tacit_layout_add(g_layout, "one", 0, NULL, 0));
    OK(tacit_layout_add(g_layout, "in", 5, (const size_t[]){100, 3, 7, 1, 1}, TACIT_DECAY));
    g_floats = tacit_layout_floats(g_layout);
    CHECK(g_floats <= MAX_FLOATS);
}

/* A gradient that depends on parameters, rank and step; clipped in some steps. Padding stays 0. */
static void compute(const float *parameters, float *gradients, int rank, int64_t step) {
    memset(gradients, 0, g_floats * sizeof *gradients);
    for (size_t t = 0; t < TENSORS; t++) {
        const taciti_tensor *tensor = &g_layout->layout.tensors[t];
        for (size_t i = tensor->offset; i < tensor->offset + tensor->n; i++) {
            const uint64_t key = taciti_rng_key(taciti_rng_key(17, (uint64_t)rank), (uint64_t)step);
            gradients[i] = 0.01F * (parameters[i] - 1) + 0.02F * ((float)(taciti_rng_key(key, i) % 1000) / 500 - 1);
        }
    }
}

static tacit_settings *settings_of(const char *const *list, const char *more) {
    tacit_settings *settings = NULL;
    const char *timeout = getenv("TEST_TIMEOUT"), *thread = getenv("TEST_THREAD");
    char text[64];
    OK(tacit_settings_create(&settings));
    (void)snprintf(text, sizeof text, "comm.timeout=%s", timeout == NULL ? "15" : timeout);
    OK(tacit_settings_set(settings, text));
    (void)snprintf(text, sizeof text, "comm.thread=%s", thread == NULL ? "1" : thread);
    OK(tacit_settings_set(settings, text));
    OK(tacit_settings_set(settings, "exchange.bucket=4096"));
    OK(tacit_settings_set(settings, "optim.lr=0.1"));
    OK(tacit_settings_set(settings, "optim.clip=0.2"));
    for (; list != NULL && *list != NULL; list++) OK(tacit_settings_set(settings, *list));
    if (more != NULL) OK(tacit_settings_set(settings, more));
    return settings;
}

static tacit_job *open_job(tacit_comm *comm, const char *const *list, const char *more, bool own) {
    tacit_settings *settings = settings_of(list, more);
    tacit_job *job = NULL;
    OK(tacit_job_open(comm, settings, g_layout,
                      &(tacit_job_options){.size = sizeof(tacit_job_options), .steps = STEPS, .own_optimizer = own},
                      &job));
    tacit_settings_destroy(settings);
    return job;
}

static void initialise(tacit_job *job) {
    for (size_t i = 0; i < g_floats; i++) tacit_job_parameters(job)[i] = (float)(i % 13) / 13 + (float)g_rank;
    for (size_t t = 0; t < TENSORS; t++) { /* padding is 0 */
        const taciti_tensor *a = &g_layout->layout.tensors[t];
        const size_t next = t + 1 < TENSORS ? g_layout->layout.tensors[t + 1].offset : g_floats;
        memset(tacit_job_parameters(job) + a->offset + a->n, 0, (next - a->offset - a->n) * sizeof(float));
    }
}

/* Tensors become ready in another order on every rank and in every step. */
static void backward(tacit_job *job, int64_t step) {
    compute(tacit_job_parameters(job), tacit_job_gradients(job), g_rank, step);
    for (size_t t = 0; t < TENSORS; t++) OK(tacit_job_ready(job, (t * 2 + (size_t)(g_rank + step)) % TENSORS));
}

static void update_parts(tacit_job *job, float lr) {
    tacit_part part = {.size = sizeof part};
    size_t floats = 0;
    for (size_t p = 0; tacit_job_part(job, p, &part); floats += part.floats, p++)
        for (size_t i = 0; i < part.floats; i++) part.parameters[i] = part.parameters[i] - lr * part.gradients[i];
    CHECK(floats <= g_floats);
}

static void make_step(tacit_job *job, bool own, int64_t s) {
    tacit_step step = {.size = sizeof step};
    backward(job, s);
    if (!own) {
        OK(tacit_job_finish(job, &step));
    } else {
        OK(tacit_job_settle(job, &step));
        update_parts(job, (float)step.lr);
        OK(tacit_job_stepped(job));
    }
    CHECK(step.number == s + 1 && !step.skipped && step.norm > 0);
}

static void take(tacit_job *job, float *out) {
    memcpy(out, tacit_job_parameters(job), g_floats * sizeof *out);
    OK(tacit_job_close(job));
}

static void train(tacit_comm *comm, const char *const *list, const char *more, bool own, float *out) {
    tacit_job *job = open_job(comm, list, more, own);
    initialise(job);
    OK(tacit_job_start(job));
    for (int64_t s = 0; s < STEPS; s++) make_step(job, own, s);
    take(job, out);
}

static void same(const float *a, const float *b, const char *what) {
    if (memcmp(a, b, g_floats * sizeof *a) == 0) return;
    (void)fprintf(stderr, "rank %d: %s: other bits\n", g_rank, what);
    _exit(1);
}

#define SGD "optim.name=sgd", "optim.momentum=0", "optim.weight_decay=0"
static const char *const DP[] = {"strategy=dp", SGD, NULL};
static const char *const AWC[] = {"strategy=gossip", "gossip.topology=ring", "gossip.integral=0", SGD, NULL};
static const char *const ATC[] = {"strategy=gossip", "gossip.topology=ring", "gossip.order=atc", SGD, NULL};
static const char *const EVERY[] = {
    "strategy=gossip", "gossip.topology=ring", "gossip.every=2", "gossip.integral=0", SGD, NULL};
static const char *const LOCAL[] = {"strategy=localsgd", "localsgd.every=3", SGD, NULL};
static const char *const DILOCO[] = {
    "strategy=localsgd", "localsgd.every=3", "localsgd.outer_lr=0.7", "localsgd.outer_momentum=0.9", SGD, NULL};
static const char *const OWNED[] = {"strategy=shard", "shard.stage=1", SGD, NULL};
#define CODEC(name) "compress.codec=" name, "compress.warmup=0"
#define TOPK CODEC("topk"), "compress.factor=7"
static const char *const INT4[] = {"strategy=dp", CODEC("int4"), NULL};
static const char *const SELECTED[] = {"strategy=dp", TOPK, NULL};
static const char *const POWERSGD[] = {"strategy=dp", CODEC("powersgd"), "powersgd.rank=2", NULL};
static const char *const AUTO[] = {"strategy=dp", "compress.codec=auto", NULL};
static const char *const GRAVAC[] = {"strategy=dp", TOPK, "adapt.policy=gravac", NULL};
static const char *const ACCORDION[] = {"strategy=dp", TOPK, "adapt.policy=accordion", NULL};
static const char *const OWNED_CHANGES[] = {"strategy=shard", "shard.stage=2", TOPK, "compress.gather=int4", SGD, NULL};
static const char *const PARTS1[] = {"strategy=shard", "shard.stage=1", CODEC("int4"), "compress.gather=int4", NULL};
static const char *const PARTS2[] = {"strategy=shard", "shard.stage=2", TOPK, NULL};
static const char *const PARTS3[] = {"strategy=shard", CODEC("int4"), NULL};
static const char *const PARTS_AUTO[] = {"strategy=shard", "compress.codec=auto", NULL};
static const char *const MOMENTS[] = {"strategy=gossip", "gossip.topology=ring", "optim.name=adamw", NULL};
static const char *const PERIODS[] = {"strategy=localsgd", "localsgd.every=3", TOPK, NULL};

static const char *const *const LISTS[] = {DP, AWC, ATC, EVERY, LOCAL, DILOCO, OWNED, OWNED_CHANGES};
enum { LIST_COUNT = sizeof LISTS / sizeof *LISTS };

static void check_own_optimizers(tacit_comm *comm) {
    static float ours[MAX_FLOATS], own[MAX_FLOATS];
    for (size_t i = 0; i < LIST_COUNT; i++) {
        train(comm, LISTS[i], NULL, false, ours);
        train(comm, LISTS[i], NULL, true, own);
        same(ours, own, LISTS[i][0]);
        if (LISTS[i] == AWC && tacit_size(comm) > 1) { /* it holds for replicas that differ, too */
            float first[2] = {ours[0], ours[0]};
            OK(taciti_comm_broadcast(comm->comm, 0, first, sizeof first));
            CHECK(g_rank == 0 || ours[0] < first[0] || ours[0] > first[0]);
        }
    }
}

/* ---- the driver used directly ------------------------------------------------------------------------------------ */

typedef struct plain {
    taciti_layout *layout;
    float *parameters, *gradients;
} plain;

static const taciti_layout *plain_layout(const void *self) { return ((const plain *)self)->layout; }

static taciti_network_arrays plain_arrays(void *self) {
    const plain *p = self;
    return (taciti_network_arrays){.parameters = p->parameters, .gradients = p->gradients};
}

static void drive(tacit_comm *comm, const char *const *list, float *x) {
    static const taciti_network_verbs VERBS = {.layout = plain_layout, .arrays = plain_arrays};
    static _Alignas(64) float g[MAX_FLOATS];
    tacit_settings *settings = settings_of(list, NULL);
    const taciti_settings *s = &settings->values;
    plain network = {&g_layout->layout, x, g};
    taciti_driver_setup setup = {.strategy = taciti_settings_strategy(s), .network = {&VERBS, &network}};
    taciti_strategy_context *c = &setup.context;
    taciti_trace trace;
    taciti_pool *pool = NULL;
    taciti_driver *driver = NULL;
    OK(taciti_trace_create(0, &trace));
    OK(taciti_pool_create(1, 0, &pool));
    OK(taciti_layout_seal(&g_layout->layout, (size_t)s->exchange.bucket_bytes));
    *c = (taciti_strategy_context){
        .comm = comm->comm, .layout = &g_layout->layout, .pool = pool, .total_steps = STEPS, .trace = &trace};
    c->optim_options = &s->optim;
    c->exchange_options = &s->exchange;
    c->compression = taciti_settings_compression(s);
    c->options = taciti_settings_options(s, setup.strategy->options);
    OK(taciti_driver_create(&setup, &driver));
    OK(taciti_driver_start(driver, 0, false));
    for (int64_t step = 0; step < STEPS; step++) {
        taciti_driver_record record;
        taciti_driver_begin(driver, step);
        compute(x, g, g_rank, step);
        OK(taciti_driver_finish(driver, taciti_optim_lr(&s->optim, step, STEPS), &record));
    }
    taciti_driver_destroy(driver);
    taciti_pool_destroy(pool);
    taciti_trace_destroy(&trace);
    tacit_settings_destroy(settings);
}

static void check_the_driver(tacit_comm *comm) {
    static const char *const ADAMW[] = {"strategy=gossip", "optim.name=adamw", NULL};
    static const char *const *const lists[] = {DP,      ADAMW,  LOCAL,  INT4,   SELECTED, POWERSGD,
                                               PERIODS, PARTS1, PARTS2, PARTS3, GRAVAC,   ACCORDION};
    static float ours[MAX_FLOATS];
    static _Alignas(64) float direct[MAX_FLOATS];
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        tacit_job *job = open_job(comm, lists[i], NULL, false);
        initialise(job);
        memcpy(direct, tacit_job_parameters(job), g_floats * sizeof *direct);
        OK(tacit_job_close(job));
        OK(taciti_comm_broadcast(comm->comm, 0, direct, g_floats * sizeof *direct));
        drive(comm, lists[i], direct);
        train(comm, lists[i], NULL, false, ours);
        same(ours, direct, lists[i][1]);
    }
}

/* ---- two jobs at once -------------------------------------------------------------------------------------------- */

/* One on the world, one on the half of it that this rank belongs to; their steps alternate. */
static void check_two_communicators(tacit_comm *comm) {
    static float alone[2][MAX_FLOATS], together[2][MAX_FLOATS];
    MPI_Comm half = MPI_COMM_NULL;
    tacit_comm *other = NULL;
    tacit_settings *settings = settings_of(NULL, NULL);
    CHECK(MPI_Comm_split(MPI_COMM_WORLD, g_rank % 2, g_rank, &half) == MPI_SUCCESS);
    OK(tacit_open_mpi(half, settings, &other));
    CHECK(MPI_Comm_free(&half) == MPI_SUCCESS); /* a duplicate is used */
    CHECK(tacit_size(other) == (tacit_size(comm) + 1 - g_rank % 2) / 2);
    train(comm, AWC, NULL, false, alone[0]);
    train(other, DP, NULL, false, alone[1]);
    tacit_job *a = open_job(comm, AWC, NULL, false), *b = open_job(other, DP, NULL, false);
    initialise(a);
    initialise(b);
    OK(tacit_job_start(a));
    OK(tacit_job_start(b));
    for (int64_t s = 0; s < STEPS; s++) {
        backward(a, s);
        backward(b, s);
        OK(tacit_job_finish(b, NULL));
        OK(tacit_job_finish(a, NULL));
    }
    take(a, together[0]);
    take(b, together[1]);
    same(alone[0], together[0], "two communicators, all ranks");
    same(alone[1], together[1], "two communicators, half of them");
    OK(tacit_close(other));
    tacit_settings_destroy(settings);
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

/* A load that fails says why on every rank, and leaves the job where it was. */
static void refuses_a_blob(tacit_job *job, const char *folder) {
    char small[2] = "";
    bool found = false;
    tacit_counters counters = {.size = sizeof counters};
    tacit_blob blob = {
        .size = sizeof blob, .name = "place", .bytes = small, .count = g_rank == 0 ? 2 : sizeof(int), .own = true};
    int place = 0;
    if (g_rank != 0) blob.bytes = &place;
    CHECK(tacit_job_load(job, folder, &blob, 1, &found) == TACIT_E_DATA && !found && !blob.loaded);
    CHECK(strstr(tacit_error_text(), "blob place") != NULL);
    OK(tacit_job_counters(job, &counters));
    CHECK(counters.steps == 0);
}

static void check_checkpoints(tacit_comm *comm, const char *const *list, const char *folder) {
    static float whole[MAX_FLOATS], resumed[MAX_FLOATS];
    int place = 100 + g_rank, word = 42;
    bool found = true;
    tacit_blob blobs[] = {{.size = sizeof *blobs, .name = "place", .bytes = &place, .count = sizeof place, .own = true},
                          {.size = sizeof *blobs, .name = "word", .bytes = &word, .count = sizeof word}};
    train(comm, list, NULL, false, whole);
    tacit_job *job = open_job(comm, list, NULL, false);
    OK(tacit_job_load(job, folder, blobs, 2, &found));
    CHECK(!found);
    initialise(job);
    OK(tacit_job_start(job));
    for (int64_t s = 0; s < 4; s++) {
        make_step(job, false, s);
        if (s == 1) CHECK(tacit_job_save(job, "/dev/null/folder", 2, blobs, 2) == TACIT_E_IO);
    }
    OK(tacit_job_save(job, folder, 2, blobs, 2));
    make_step(job, false, 4); /* a save changes nothing */
    OK(tacit_job_close(job));
    place = word = 0;
    job = open_job(comm, list, NULL, false);
    refuses_a_blob(job, folder);
    OK(tacit_job_load(job, folder, blobs, 2, &found));
    CHECK(found && place == 100 + g_rank && word == 42 && blobs[0].loaded && blobs[1].loaded);
    for (int64_t s = 4; s < STEPS; s++) make_step(job, false, s);
    take(job, resumed);
    same(whole, resumed, list[1]);
}

/* ---- shard, codecs, controllers ---------------------------------------------------------------------------------- */

static void check_gaps(const float *x) {
    for (size_t t = 0; t < TENSORS; t++) {
        const taciti_tensor *a = &g_layout->layout.tensors[t];
        const size_t next = t + 1 < TENSORS ? g_layout->layout.tensors[t + 1].offset : g_floats;
        for (size_t i = a->offset + a->n; i < next; i++) CHECK(memcmp(&x[i], &(float){0}, sizeof *x) == 0);
    }
}

static void check_equal(tacit_comm *comm, const float *x, const char *what) {
    static float first[MAX_FLOATS];
    memcpy(first, x, g_floats * sizeof *x);
    OK(taciti_comm_broadcast(comm->comm, 0, first, g_floats * sizeof *x));
    same(x, first, what);
}

/* Without clipping: with it the squares are added in another order. */
static void check_shard(tacit_comm *comm) {
    static const char *const DENSE[] = {"strategy=dp", "optim.clip=0", NULL};
    static const char *const PARTS[] = {"strategy=shard", "optim.clip=0", NULL};
    static const char *const STAGES[] = {"shard.stage=1", "shard.stage=2", "shard.stage=3"};
    static float dense[MAX_FLOATS], parts[MAX_FLOATS];
    train(comm, DENSE, NULL, false, dense);
    for (size_t i = 0; i < sizeof STAGES / sizeof *STAGES; i++) {
        train(comm, PARTS, STAGES[i], false, parts);
        same(dense, parts, STAGES[i]);
    }
}

/* What a codec sends all ranks decode to the same bits, and it writes to tensors alone. */
static void check_codecs(tacit_comm *comm) {
    static const char *const *const lists[] = {INT4,      SELECTED, POWERSGD, AUTO,   GRAVAC,
                                               ACCORDION, PARTS1,   PARTS2,   PARTS3, PARTS_AUTO};
    static float x[MAX_FLOATS], dense[MAX_FLOATS];
    train(comm, NULL, NULL, false, dense);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        train(comm, lists[i], NULL, false, x);
        check_equal(comm, x, lists[i][1]);
        check_gaps(x);
        if (lists[i] == INT4 && tacit_size(comm) > 1) CHECK(memcmp(x, dense, g_floats * sizeof *x) != 0);
    }
}

/* Controllers that measure time decide otherwise in every run; the others do not. */
static void check_all_checkpoints(tacit_comm *comm, const char *folder) {
    static const char *const *const lists[] = {MOMENTS, PERIODS,   INT4,   SELECTED, POWERSGD,
                                               GRAVAC,  ACCORDION, PARTS1, PARTS2,   PARTS3};
    char path[4096];
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        (void)snprintf(path, sizeof path, "%s/%zu", folder, i);
        check_checkpoints(comm, lists[i], path);
    }
}

/* ---- another configuration --------------------------------------------------------------------------------------- */

static _Atomic int g_errors;

static void count_errors(void *context, tacit_log_level level, const char *line) {
    (void)context, (void)level;
    if (g_rank >= 0 && line[0] != '\0') g_errors++;
}

/* On every rank the function has failed and the text is there; one rank has logged it. */
static void refused_once(tacit_comm *comm, tacit_status got, tacit_status want, const char *text) {
    double lines = g_errors;
    OK(taciti_comm_allreduce_f64(comm->comm, &lines, 1, TACITI_OP_SUM));
    g_errors = 0;
    if (got == want && strstr(tacit_error_text(), text) != NULL && lines >= 1 && lines <= 1) return;
    (void)fprintf(stderr, "rank %d: %s, %g lines: %s\n", g_rank, tacit_status_name(got), lines, tacit_error_text());
    _exit(1);
}

static void refuses_job(tacit_comm *comm, const char *const *list, const char *more, bool own, const char *text) {
    tacit_settings *settings = settings_of(list, more);
    const tacit_job_options options = {.size = sizeof options, .own_optimizer = own};
    tacit_job *job = NULL;
    const tacit_status status = tacit_job_open(comm, settings, g_layout, &options, &job);
    refused_once(comm, status, TACIT_E_CONFIG, text);
    CHECK(job == NULL);
    tacit_settings_destroy(settings);
}

static void refuses_load(tacit_comm *comm, const char *folder) {
    static const char *const MOMENTUM[] = {"strategy=gossip", "optim.name=sgd", NULL};
    tacit_job *job = open_job(comm, MOMENTUM, NULL, false);
    bool found = false;
    refused_once(comm, tacit_job_load(job, folder, NULL, 0, &found), TACIT_E_CONFIG, "optim.name was \"adamw\"");
    OK(tacit_job_close(job));
}

/* On three ranks and more, the graph with a hub weighs columns alone: it needs push-sum. */
static void refuses_push_sum(tacit_comm *comm, const char *folder) {
    const char *list[] = {"strategy=gossip", "gossip.topology=file", NULL, NULL};
    const int ranks = tacit_size(comm);
    char setting[4200];
    (void)snprintf(setting, sizeof setting, "gossip.file=%.4000s.hub.csv", folder);
    list[2] = setting;
    if (g_rank == 0) {
        FILE *file = fopen(setting + strlen("gossip.file="), "w");
        CHECK(file != NULL);
        for (int to = 0; to < ranks; to++)
            for (int from = 0; from < ranks; from++) {
                const double own = 0.5, told = from == 0 ? 0.5 / (ranks - 1) : to == 0 ? 0.5 : 0;
                (void)fprintf(file, "%.17g%s", to == from ? own : told, from + 1 < ranks ? "," : "\n");
            }
        CHECK(fclose(file) == 0);
    }
    OK(taciti_comm_barrier(comm->comm));
    refuses_job(comm, list, NULL, true, "needs push-sum");
}

static void check_refusals(tacit_comm *comm, const char *folder) {
    OK(tacit_log_to(count_errors, NULL, TACIT_LOG_ERROR));
    refuses_job(comm, AWC, "compress.codec=topk", false, "does not compress");
    if (tacit_size(comm) > 1)
        refuses_job(comm, DP, g_rank == 1 ? "optim.lr=0.2" : NULL, false, "optim.lr differs: rank 0 has \"0.1");
    refuses_load(comm, folder);
    if (tacit_size(comm) > 2) refuses_push_sum(comm, folder);
    OK(tacit_log_to(NULL, NULL, TACIT_LOG_ERROR));
}

/* All ranks go on from the mean of the replicas, which the checkpoint of gossip holds. */
static void check_another_strategy(tacit_comm *comm, const char *folder) {
    static const char *const ADAMW[] = {"strategy=dp", "optim.name=adamw", NULL};
    static float mean[MAX_FLOATS], x[MAX_FLOATS];
    bool found = false;
    tacit_job *job = open_job(comm, MOMENTS, NULL, false);
    OK(tacit_job_load(job, folder, NULL, 0, &found));
    OK(tacit_job_average(job, NULL));
    take(job, mean);
    job = open_job(comm, ADAMW, NULL, false);
    OK(tacit_job_load(job, folder, NULL, 0, &found));
    CHECK(found);
    memcpy(x, tacit_job_parameters(job), sizeof x);
    same(mean, x, "the mean, in dp");
    make_step(job, false, 4);
    take(job, x);
    check_equal(comm, x, "dp after gossip");
}

/* ---- a rank that stops ------------------------------------------------------------------------------------------- */

static _Atomic int g_called;
static char g_text[512];

static void note(void *context, tacit_status status, const char *text) {
    CHECK(context == &g_called && status == TACIT_E_PEER);
    (void)snprintf(g_text, sizeof g_text, "%s", text);
    g_called++;
}

static void stop_last_rank(tacit_comm *comm) {
    tacit_job *job = open_job(comm, DP, NULL, false);
    tacit_step step = {.size = sizeof step, .number = -1};
    char culprit[32];
    OK(tacit_on_failure(comm, note, &g_called));
    initialise(job);
    OK(tacit_job_start(job));
    make_step(job, false, 0);
    if (g_rank == tacit_size(comm) - 1) {
        (void)raise(SIGSTOP);
        _exit(0); /* woken by the launcher, which ends it */
    }
    const int64_t begin_ns = taciti_now_ns();
    tacit_status status = TACIT_OK;
    while (status == TACIT_OK) {
        compute(tacit_job_parameters(job), tacit_job_gradients(job), g_rank, 1);
        status = tacit_job_ready(job, TACIT_ALL_TENSORS);
        if (status == TACIT_OK) status = tacit_job_finish(job, &step);
    }
    const double seconds = (double)(taciti_now_ns() - begin_ns) * 1e-9;
    (void)snprintf(culprit, sizeof culprit, "rank %d ", tacit_size(comm) - 1);
    CHECK(status == TACIT_E_PEER && g_called == 1 && seconds < 5);
    CHECK(strncmp(g_text, culprit, strlen(culprit)) == 0 && strcmp(g_text, tacit_error_text()) == 0);
    CHECK(tacit_job_save(job, "nowhere", 1, NULL, 0) == TACIT_E_PEER);
    CHECK(tacit_job_close(job) == TACIT_E_PEER && tacit_close(comm) == TACIT_E_PEER);
    CHECK(tacit_job_close(job) == TACIT_E_USAGE && tacit_close(comm) == TACIT_E_USAGE);
    (void)printf("rank %d ended by itself after %.1f s\n", g_rank, seconds);
    (void)fflush(stdout);
    taciti_sleep_ns(2 * TACITI_NS_PER_S); /* the launcher ends the others with the first: they shall have their say */
}

/* MPI that has not begun, has ended, or allows too little. */
static void check_no_mpi(const tacit_settings *settings) {
    tacit_comm *comm = NULL;
    CHECK(tacit_open_mpi(MPI_COMM_WORLD, settings, &comm) == TACIT_E_USAGE && comm == NULL);
}

static int check_levels(void) {
    int level = 0;
    tacit_comm *comm = NULL;
    tacit_settings *settings = settings_of(NULL, "comm.thread=true");
    check_no_mpi(settings);
    CHECK(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) == MPI_SUCCESS && level == MPI_THREAD_FUNNELED);
    CHECK(tacit_open_mpi(MPI_COMM_WORLD, settings, &comm) == TACIT_E_UNSUPPORTED && comm == NULL);
    CHECK(strstr(tacit_error_text(), "MPI_THREAD_MULTIPLE") != NULL);
    OK(tacit_settings_set(settings, "comm.thread=false"));
    CHECK(tacit_open_mpi(MPI_COMM_NULL, settings, &comm) == TACIT_E_USAGE && comm == NULL);
    OK(tacit_open_mpi(MPI_COMM_WORLD, settings, &comm));
    OK(tacit_close(comm));
    CHECK(MPI_Finalize() == MPI_SUCCESS);
    comm = NULL;
    check_no_mpi(settings);
    CHECK(tacit_open(settings, &comm) == TACIT_E_USAGE && comm == NULL);
    tacit_settings_destroy(settings);
    return 0;
}

int main(int argc, char **argv) {
    int level = 0;
    tacit_comm *comm = NULL;
    if (argc < 2) return 2;
    if (strcmp(argv[1], "levels") == 0) return check_levels();
    CHECK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level) == MPI_SUCCESS && level == MPI_THREAD_MULTIPLE);
    tacit_settings *settings = settings_of(NULL, NULL);
    OK(tacit_open_mpi(MPI_COMM_WORLD, settings, &comm));
    g_rank = tacit_rank(comm);
    create_layout();
    if (strcmp(argv[1], "frozen") == 0) {
        stop_last_rank(comm);
        _exit(0);
    }
    check_own_optimizers(comm);
    check_the_driver(comm);
    check_two_communicators(comm);
    check_shard(comm);
    check_codecs(comm);
    if (argc > 2) {
        char gossip[4096];
        (void)snprintf(gossip, sizeof gossip, "%s/0", argv[2]);
        check_all_checkpoints(comm, argv[2]);
        check_another_strategy(comm, gossip);
        check_refusals(comm, gossip);
    }
    OK(tacit_close(comm));
    tacit_layout_destroy(g_layout);
    tacit_settings_destroy(settings);
    return MPI_Finalize() == MPI_SUCCESS ? 0 : 1;
}
