/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "strategy/test_replicas.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "exchange/demand.h"
#include "exchange/small.h"

test_replicas test_replicas_of(int ranks, int steps) {
    test_replicas t = {.strategy = "gossip",
                       .ranks = ranks,
                       .steps = steps,
                       .floats = 700,
                       .bucket_bytes = 4096,
                       .problem = TEST_UNEQUAL,
                       .start = 0.5,
                       .lr = 0.1,
                       .average_at = -1,
                       .wrong_rank = -1,
                       .bad_rank = -1};
    taciti_section sections[] = {{&taciti_gossip_option_table, &t.gossip, NULL},
                                 {&taciti_optim_option_table, &t.optim, NULL},
                                 {&taciti_exchange_option_table, &t.exchange, NULL}};
    const taciti_config config = {sections, sizeof sections / sizeof *sections};
    CHECK(taciti_config_defaults(&config) == TACIT_OK);
    t.optim.name = TACITI_OPTIM_SGD;
    t.optim.lr = t.lr;
    t.optim.momentum = t.optim.weight_decay = t.optim.clip = 0;
    t.optim.eps = 1e-8;
    t.optim.beta2 = 0.999;
    t.gossip.start = 0;
    t.gossip.denoise = 0;
    t.gossip.integral = 0;
    return t;
}

enum { PATH_BYTES = 64 };

/* The file behind topology `file`. */
static void matrices_path(int ranks, char path[PATH_BYTES]) {
    (void)snprintf(path, PATH_BYTES, "/tmp/tacit-test-matrices-%ld-%d.csv", (long)getpid(), ranks);
}

static void remove_matrices(void) {
    char path[PATH_BYTES];
    for (int ranks = 1; ranks <= TEST_MAX_RANKS; ranks++) {
        matrices_path(ranks, path);
        (void)unlink(path);
    }
}

/* Two directed rounds that are doubly stochastic: rank i keeps 1/4 and hears i + 1, then keeps 3/4 and hears i - 1. */
static void write_matrices(int ranks, const char *path) {
    static bool registered;
    if (!registered) CHECK(atexit(remove_matrices) == 0);
    registered = true;
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    for (int round = 0; file != NULL && round < 2; round++)
        for (int i = 0; i < ranks; i++)
            for (int j = 0; j < ranks; j++) {
                const int heard = (i + (round == 0 ? 1 : ranks - 1)) % ranks;
                const double keeps = round == 0 ? 0.25 : 0.75;
                const double w = (i == j ? keeps : 0) + (j == heard ? 1 - keeps : 0);
                (void)fprintf(file, "%g%s", w, j + 1 < ranks ? "," : "\n");
            }
    if (file != NULL) CHECK(fclose(file) == 0);
}

void test_topology(test_replicas *t, const char *name) {
    if (strcmp(name, "file") == 0) {
        char path[PATH_BYTES];
        matrices_path(t->ranks, path);
        write_matrices(t->ranks, path);
        (void)snprintf(t->gossip.file.text, sizeof t->gossip.file.text, "%s", path);
    }
    (void)snprintf(t->gossip.topology.text, sizeof t->gossip.topology.text, "%s", name);
}

test_replicas test_replicas_of_adam(int ranks, int steps, const char *topology) {
    test_replicas t = test_replicas_of(ranks, steps);
    t.optim.name = TACITI_OPTIM_ACCUM_ADAMW;
    t.optim.accum = 3;
    t.optim.weight_decay = 0.1;
    t.optim.clip = 1;
    t.lr = 0.01;
    test_topology(&t, topology);
    return t;
}

void test_make_layout(const size_t sizes[TEST_TENSORS], size_t count, size_t bucket_bytes, taciti_layout *out) {
    CHECK(taciti_layout_create(TEST_TENSORS, out) == TACIT_OK);
    for (size_t i = 0; i < count; i++) {
        const char name[2] = {(char)('a' + (int)i), 0};
        const size_t matrix[] = {sizes[i] / 35, 35}; /* for mixes of low rank */
        const bool whole = sizes[i] % 35 == 0;
        CHECK(taciti_layout_append(out, name, whole ? 2 : 1, whole ? matrix : &sizes[i], i != 1) == TACIT_OK);
    }
    CHECK(taciti_layout_seal(out, bucket_bytes) == TACIT_OK);
}

static void wait_for_nothing(void *self, size_t offset, size_t n) { (void)self, (void)offset, (void)n; }

tacit_status test_idle_optimizer(const taciti_layout *layout, taciti_optim **out) {
    return taciti_optim_create_idle(wait_for_nothing, NULL, layout, out);
}

/* Pairs of ranks that may talk are off by 96 floats in each bucket that is not short (demand.c). */
bool test_sends_as_planned(taciti_comm *comm, const taciti_layout *layout, const taciti_exchange_options *options,
                           uint64_t mine) {
    uint64_t all[TEST_MAX_RANKS], sent[TEST_MAX_RANKS] = {0}, most = 0;
    int here[TEST_MAX_RANKS] = {0}, pairs = 0;
    const taciti_hosts *hosts = taciti_comm_hosts(comm);
    const taciti_codec *wire = taciti_exchange_wire(options);
    const taciti_placement placement = taciti_exchange_placement(options);
    taciti_arrangement arrangement;
    double planned = 0, bound = 0;
    CHECK(taciti_arrangement_of(hosts, (taciti_members){0}, 0, placement, &arrangement) == TACIT_OK);
    CHECK(taciti_comm_allgather(comm, &mine, sizeof mine, all) == TACIT_OK);
    for (int r = 0; r < hosts->ranks; r++) {
        const int host = hosts->host_of[r];
        sent[host] += all[r];
        here[host]++;
        if (sent[host] > most) most = sent[host];
    }
    for (int h = 0; h < hosts->count; h++)
        if (here[h] * (hosts->ranks - here[h]) > pairs) pairs = here[h] * (hosts->ranks - here[h]);
    for (size_t b = 0; b < layout->bucket_count; b++) {
        const size_t n = layout->buckets[b].n;
        planned += taciti_allreduce_demand(hosts, NULL, 0, placement, wire->bound(wire, NULL, n), n * sizeof(float))
                       .host_bytes;
        if (!taciti_small_pays(&arrangement, n)) bound += 96 * (double)wire->bound(wire, NULL, 1) * pairs;
    }
    taciti_arrangement_destroy(&arrangement);
    return fabs((double)most - planned) <= bound;
}

/* One rank's own. */
typedef struct rank_state {
    taciti_layout layout;
    taciti_pool *pool;
    taciti_optim *optim;
    const taciti_strategy *strategy;
    void *self;
    taciti_strategy_figures figures;
    tacit_status predicted;
    float *p, *g;
    taciti_bf16 *copy;
} rank_state;

/* Mean 0, variance 1: the sum of 12 uniform numbers less 6. */
static double normal(int rank, int step, size_t i) {
    const uint64_t key = taciti_rng_key(taciti_rng_key(7, (uint64_t)rank), (uint64_t)step);
    double sum = -6;
    for (uint64_t k = 0; k < 12; k++) sum += (double)taciti_rng_below(key, 12 * i + k, 1 << 20) / (1 << 20);
    return sum;
}

/* Returns the gradient of the rank's own share of the batch. */
static double gradient(const test_replicas *t, int rank, int step, size_t i, double x) {
    const uint64_t key = taciti_rng_key(taciti_rng_key(3, (uint64_t)rank), (uint64_t)step);
    switch (t->problem) {
    case TEST_QUADRATIC: return x - t->c[rank];
    case TEST_UNEQUAL: return sin(3 * x + rank + 0.1 * step + 0.01 * (double)i);
    case TEST_EQUAL: return sin(3 * x + 0.1 * step + 0.01 * (double)i);
    case TEST_INTEGERS: return t->ranks * ((double)taciti_rng_below(key, i, 9) - 4);
    case TEST_NOISE: return normal(rank, step, i);
    }
    return 0;
}

static void backward(const test_replicas *t, const taciti_layout *layout, int rank, int step, const float *p,
                     float *g) {
    memset(g, 0, layout->n * sizeof *g);
    for (size_t a = 0; a < layout->tensor_count; a++)
        for (size_t k = 0; k < layout->tensors[a].n; k++) {
            const size_t i = layout->tensors[a].offset + k;
            g[i] = (float)(gradient(t, rank, step, i, (double)p[i]) / t->ranks);
        }
    if (rank == t->bad_rank && step == t->bad_step) g[layout->tensors[0].n / 2] = NAN;
}

static void dawdle(const test_replicas *t, int rank, int step) {
    if (!t->dawdle) return;
    const uint64_t key = taciti_rng_key(taciti_rng_key(11, (uint64_t)rank), (uint64_t)step);
    const struct timespec pause = {.tv_nsec = (long)taciti_rng_below(key, 0, 3000000)};
    (void)nanosleep(&pause, NULL);
}

static void close_rank(rank_state *s) {
    if (s->self != NULL) s->strategy->destroy(s->self);
    taciti_optim_destroy(s->optim);
    taciti_pool_destroy(s->pool);
    taciti_free(s->g);
    taciti_free(s->copy);
    taciti_layout_destroy(&s->layout);
}

/* create() also refuses what check() refuses before memory is held. */
static const taciti_codec *codec_of(const test_replicas *t) {
    return t->codec == NULL ? NULL : taciti_codec_find(t->codec);
}

static tacit_status open_rank(const test_replicas *t, taciti_comm *comm, const taciti_gossip_options *gossip,
                              rank_state *s) {
    const size_t sizes[TEST_TENSORS] = {t->floats, 17, t->floats / 2 + 1};
    test_make_layout(sizes, t->floats > 1 ? TEST_TENSORS : 1, t->bucket_bytes, &s->layout);
    CHECK(taciti_pool_create(1, 0, &s->pool) == TACIT_OK);
    CHECK(taciti_optim_create(&t->optim, &s->layout, s->pool, &s->optim) == TACIT_OK);
    s->p = taciti_calloc(s->layout.n, sizeof *s->p);
    s->g = taciti_calloc(s->layout.n, sizeof *s->g);
    s->copy = taciti_calloc(s->layout.n, sizeof *s->copy);
    s->strategy = taciti_strategy_find(t->strategy);
    CHECK(s->p != NULL && s->g != NULL && s->copy != NULL && s->strategy != NULL);
    static const taciti_compress_options COMPRESS = {.factor = 10, .start = 1, .feedback = 1};
    const taciti_encoding encoding = {.codec = codec_of(t)}, none = {.codec = NULL};
    const bool sums = s->strategy->compresses;
    const taciti_strategy_context context = {
        .comm = comm,
        .compression = {.options = &COMPRESS, .sums = sums ? encoding : none, .mixes = sums ? none : encoding},
        .layout = &s->layout,
        .pool = s->pool,
        .optim = s->optim,
        .optim_options = &t->optim,
        .exchange_options = &t->exchange,
        .options = gossip,
        .total_steps = t->total_steps,
        .parameters = s->p,
        .gradients = s->g,
        .copy16 = s->copy};
    s->predicted = s->strategy->describe(&context, NULL, &s->figures);
    const tacit_status status = s->strategy->create(&context, &s->self);
    CHECK(s->predicted == TACIT_OK || s->predicted == status);
    if (status != TACIT_OK)
        s->self = NULL;
    else
        CHECK(s->strategy->describe(&context, s->self, &s->figures) == TACIT_OK);
    return status;
}

static void fill(const test_replicas *t, int rank, rank_state *s) {
    for (size_t a = 0; a < s->layout.tensor_count; a++)
        for (size_t k = 0; k < s->layout.tensors[a].n; k++) {
            const size_t i = s->layout.tensors[a].offset + k;
            s->p[i] = (float)(t->scattered ? normal(rank, 1000, i) : t->start);
        }
}

static taciti_state state_of(const rank_state *s) {
    taciti_state state = {.count = 0};
    s->strategy->state(s->self, &state);
    CHECK(state.count <= TACITI_STATE_MAX_ENTRIES);
    return state;
}

static size_t bytes_of(const taciti_state_entry *entry) {
    switch (entry->kind) {
    case TACITI_STATE_ARRAY: return entry->n * sizeof(float);
    case TACITI_STATE_NUMBERS: return entry->n * sizeof(double);
    case TACITI_STATE_COUNT: return sizeof(int64_t);
    case TACITI_STATE_BYTES: break;
    }
    return entry->n;
}

/* Replicas that differ from the beginning are what a checkpoint would have brought. */
static void start(const test_replicas *t, int rank, rank_state *s) {
    fill(t, rank, s);
    const taciti_state state = state_of(s);
    const taciti_state_entry *handed = taciti_state_find(&state, "strategy.handed");
    if (t->scattered && handed != NULL) memcpy(handed->data, s->p, bytes_of(handed));
    if (s->strategy->start != NULL) CHECK(s->strategy->start(s->self, 0, t->scattered) == TACIT_OK);
}

/* Checkpoints do not hold it. */
static void forget_padding(const taciti_state_entry *entry, float *saved) {
    if (entry->kind != TACITI_STATE_ARRAY) return;
    for (size_t b = 0; b < entry->layout->bucket_count; b++) {
        const taciti_bucket *bucket = &entry->layout->buckets[b];
        taciti_layout_clear_gaps(entry->layout, b, (taciti_range){0, bucket->n}, saved + bucket->offset);
    }
}

static size_t count_required(const taciti_state *state) {
    size_t count = 0;
    for (size_t i = 0; i < state->count; i++) count += !state->entries[i].optional;
    return count;
}

/* All that a checkpoint holds goes to memory; all else is thrown away; a new rank takes it up. */
static tacit_status save_and_restore(const test_replicas *t, taciti_comm *comm, int step, rank_state *s) {
    void *saved[TACITI_STATE_MAX_ENTRIES];
    char names[TACITI_STATE_MAX_ENTRIES][TACITI_STATE_NAME_BYTES];
    const taciti_state before = state_of(s);
    for (size_t i = 0; i < before.count; i++) {
        saved[i] = taciti_calloc(1, bytes_of(&before.entries[i]));
        CHECK(saved[i] != NULL);
        (void)snprintf(names[i], sizeof names[i], "%s", before.entries[i].name); /* of what is closed below */
        memcpy(saved[i], before.entries[i].data, bytes_of(&before.entries[i]));
        forget_padding(&before.entries[i], saved[i]);
    }
    close_rank(s);
    taciti_free(s->p);
    *s = (rank_state){.p = NULL};
    CHECK(open_rank(t, comm, t->resumed != NULL ? t->resumed : &t->gossip, s) == TACIT_OK);
    const taciti_state after = state_of(s);
    CHECK(t->resumed != NULL || count_required(&after) == count_required(&before));
    CHECK(t->resumed != NULL || after.count >= before.count);
    for (size_t i = 0; i < before.count; i++) {
        const taciti_state_entry *now = taciti_state_find(&after, names[i]);
        if (now != NULL) memcpy(now->data, saved[i], bytes_of(now));
        taciti_free(saved[i]);
    }
    taciti_kernels_get()->bf16_encode(s->copy, s->p, s->layout.n);
    if (t->wrong_rank == TEST_EVERY_RANK || taciti_comm_rank(comm) == t->wrong_rank)
        ((double *)taciti_state_find(&after, "numbers")->data)[t->wrong_number] = t->wrong_value;
    return s->strategy->start == NULL ? TACIT_OK : s->strategy->start(s->self, step, true);
}

/* revert() brings everything back that average() changed. */
static void average(test_replicas *t, int rank, rank_state *s) {
    const size_t bytes = s->layout.n * sizeof(float);
    float *own = taciti_calloc(1, bytes);
    taciti_bf16 *copy = taciti_calloc(s->layout.n, sizeof *copy);
    CHECK(own != NULL && copy != NULL);
    memcpy(own, s->p, bytes);
    memcpy(copy, s->copy, s->layout.n * sizeof *copy);
    CHECK(s->strategy->replicas->average(s->self, &t->distance[rank]) == TACIT_OK);
    t->averages[rank] = taciti_calloc(1, bytes);
    CHECK(t->averages[rank] != NULL);
    memcpy(t->averages[rank], s->p, bytes);
    s->strategy->replicas->revert(s->self);
    CHECK(memcmp(own, s->p, bytes) == 0 && memcmp(copy, s->copy, s->layout.n * sizeof *copy) == 0);
    taciti_free(own);
    taciti_free(copy);
}

static double learning_rate(const test_replicas *t, int step) {
    return t->lr >= 0 ? t->lr : -t->lr * (1 - (double)step / t->steps);
}

static void await_first_bytes(taciti_comm *comm, uint64_t sent_before) {
    const int64_t begin_ns = taciti_now_ns();
    while (taciti_comm_count(comm).bytes_sent == sent_before) {
        CHECK(taciti_now_ns() - begin_ns < 30 * TACITI_NS_PER_S);
        taciti_sleep_ns(TACITI_NS_PER_MS);
    }
}

static void check_bytes(const test_replicas *t, taciti_comm *comm, const rank_state *s, taciti_comm_counters before) {
    CHECK(t->steps % (int)s->figures.period == 0);
    const uint64_t sent = taciti_comm_count(comm).bytes_sent - before.bytes_sent;
    CHECK(sent / (uint64_t)t->steps == s->figures.sent_bytes);
}

/* Keeps the state that a checkpoint would hold of a rank besides its parameters. */
static void keep_state(test_replicas *t, int rank, const rank_state *s) {
    const taciti_state state = state_of(s);
    const taciti_state_entry *numbers = taciti_state_find(&state, "numbers");
    if (rank == 0) t->lag = s->figures.lag, t->own_bytes = s->figures.own_bytes;
    if (numbers != NULL) memcpy(t->numbers[rank], numbers->data, bytes_of(numbers));
    for (size_t i = 0, a = 0; i < state.count; i++) {
        const taciti_state_entry *entry = &state.entries[i];
        if (strncmp(entry->name, "strategy.", strlen("strategy.")) != 0) continue;
        t->arrays[rank][a] = taciti_calloc(1, bytes_of(entry));
        CHECK(t->arrays[rank][a] != NULL);
        memcpy(t->arrays[rank][a++], entry->data, bytes_of(entry));
    }
}

static void train(taciti_comm *comm, void *context) {
    test_replicas *t = context;
    const int rank = taciti_comm_rank(comm);
    rank_state s = {.p = NULL};
    const bool odd = t->odd != NULL && rank == t->odd_rank;
    tacit_status status = t->created[rank] = open_rank(t, comm, odd ? t->odd : &t->gossip, &s);
    if (rank == 0) t->status = status;
    if (rank == 0) t->predicted = s.predicted;
    if (status == TACIT_OK) start(t, rank, &s);
    const taciti_comm_counters before = taciti_comm_count(comm);
    const int64_t begin_ns = taciti_now_ns();
    for (int step = 0; status == TACIT_OK && step < t->steps; step++) {
        taciti_step_report report;
        if (step > 0 && step == t->stop_after) {
            status = t->started[rank] = save_and_restore(t, comm, step, &s);
            if (status != TACIT_OK) break;
        }
        dawdle(t, rank, step);
        if (t->before_step != NULL) t->before_step(t->before_context, rank, step);
        backward(t, &s.layout, rank, step, s.p, s.g);
        if (step == t->average_at) {
            average(t, rank, &s);
            backward(t, &s.layout, rank, step, s.p, s.g);
        }
        if (rank == 0 && s.strategy->reads_early != NULL) t->early_steps += s.strategy->reads_early(s.self);
        for (size_t b = 0; s.strategy->ready != NULL && b < s.layout.bucket_count; b++)
            CHECK(s.strategy->ready(s.self, b) == TACIT_OK);
        if (step == 0 && t->sends_early) await_first_bytes(comm, before.bytes_sent);
        CHECK(s.strategy->finish(s.self, learning_rate(t, step), &report) == TACIT_OK);
        CHECK(step >= TEST_MAX_STEPS || rank >= TEST_MAX_RANKS || report.wait_ns >= 0);
        CHECK(report.wait_ns <= taciti_now_ns() - begin_ns);
        if (step < TEST_MAX_STEPS) t->reports[rank][step] = report;
        if (t->path != NULL) t->path[step][rank] = s.p[0];
    }
    t->sent[rank] = taciti_comm_count(comm).bytes_sent - before.bytes_sent;
    if (status == TACIT_OK && t->check_bytes) check_bytes(t, comm, &s, before);
    if (status == TACIT_OK) keep_state(t, rank, &s);
    if (rank == 0) t->n = s.layout.n;
    for (size_t i = 0; status == TACIT_OK && i < s.layout.n; i++) {
        taciti_bf16 expected;
        taciti_kernels_get()->bf16_encode(&expected, &s.p[i], 1);
        CHECK(memcmp(&expected, &s.copy[i], sizeof expected) == 0 || t->steps == 0);
    }
    t->parameters[rank] = s.p;
    close_rank(&s);
}

void test_replicas_run(test_replicas *t) {
    const taciti_comm_options options = test_comm_options(!t->no_thread);
    CHECK(t->ranks <= TEST_MAX_RANKS);
    t->exchange.bucket_bytes = (int64_t)t->bucket_bytes;
    test_world_run(t->ranks, &options, train, t);
}

void test_replicas_free(test_replicas *t) {
    for (int r = 0; r < t->ranks; r++) {
        taciti_free(t->parameters[r]);
        taciti_free(t->averages[r]);
        for (int i = 0; i < TEST_MAX_ARRAYS; i++) taciti_free(t->arrays[r][i]);
    }
}

bool test_replicas_same(const test_replicas *a, const test_replicas *b) {
    bool same = a->n == b->n && a->ranks == b->ranks;
    for (int r = 0; same && r < a->ranks; r++)
        same = memcmp(a->parameters[r], b->parameters[r], a->n * sizeof(float)) == 0;
    return same;
}

bool test_replicas_agree(test_replicas *a, test_replicas *b) {
    test_replicas_run(a);
    test_replicas_run(b);
    const bool agree = a->status == TACIT_OK && b->status == TACIT_OK && test_replicas_same(a, b);
    test_replicas_free(a);
    test_replicas_free(b);
    return agree;
}
