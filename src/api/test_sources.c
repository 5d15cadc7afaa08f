/* SPDX-License-Identifier: Apache-2.0
 *
 * Jobs of the C interface between ranks that are threads of this process: gradients in the caller's memory are those of
 * the flat array, to the bit, in every strategy; sums of gradients alone are those of a job with parameters, also after
 * a resume.
 */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "api/test_jobs.h"
#include "base/rng.h"
#include "ckpt/test_folder.h"
#include "kernel/kernel.h"

enum { MAX_RANKS = 7, MAX_STEPS = 6, SEGMENT_BYTES = 256 };

/* Where the gradients of a run are. */
typedef enum where {
    FLAT,     /* in the job's array */
    SOURCES,  /* in memory of the test */
    BY_TURNS, /* tensors by turns; those of the flat array are reported without a source */
    BATCHES   /* in memory of the test, of two micro-batches that are equal: scale 1/2 */
} where;

typedef struct trial {
    int ranks, steps;
    test_job job;
    where place;
    int unused; /* tensor whose gradient is 0 on rank 1; -1: none */
    int stop;   /* step before which the run is saved and goes on in a new job; 0: never */
    const char *folder;

    /* what came of it, by rank */
    float parameters[MAX_RANKS][MAX_FLOATS];
    float sums[MAX_RANKS][MAX_STEPS][MAX_FLOATS]; /* of runs with an own optimizer */
    size_t floats;
} trial;

/* ---- one rank's run ---------------------------------------------------------------------------------------------- */

typedef struct run {
    const trial *t;
    tacit_comm *comm;
    tacit_job *job;
    int rank;
    float *x, *g;     /* the parameters, which the test holds if the job has none; the flat gradients */
    float *memory[2]; /* sources, in turns: at an odd place */
    size_t offset[TENSORS], floats;
} run;

static float *source_of(const run *r, int64_t step, int tensor) {
    return r->memory[step % 2] + r->offset[tensor] + 2 * (size_t)tensor + 1; /* behind its place, and never aligned */
}

static float gradient_at(const run *r, int64_t step, int tensor, size_t i) {
    const uint64_t key = taciti_rng_key(taciti_rng_key(17, (uint64_t)r->rank), (uint64_t)step);
    const size_t at = r->offset[tensor] + i;
    if (tensor == r->t->unused && r->rank == 1) return 0;
    return 0.01F * (r->x[at] - 1) + 0.02F * ((float)(taciti_rng_key(key, at) % 1000) / 500 - 1);
}

static void report_tensor(const run *r, int64_t step, int tensor) {
    const trial *t = r->t;
    const bool flat = t->place == FLAT || (t->place == BY_TURNS && tensor % 2 == 0);
    float *at = flat ? r->g + r->offset[tensor] : source_of(r, step, tensor);
    for (size_t i = 0; i < count_of(tensor); i++) {
        at[i] = gradient_at(r, step, tensor, i);
        if (t->place == BATCHES) at[i] += gradient_at(r, step, tensor, i);
    }
    if (flat)
        OK(tacit_job_ready(r->job, (size_t)tensor));
    else
        OK(tacit_job_ready_from(r->job, (size_t)tensor, tensor == t->unused && r->rank == 1 ? NULL : at, TACIT_F32,
                                t->place == BATCHES ? 0.5 : 1));
}

/* The caller's memory holds the bits of the flat array. */
static void check_sources(const run *r, int64_t step) {
    for (int tensor = 0; tensor < TENSORS && r->t->place == SOURCES; tensor++)
        if (tensor != r->t->unused || r->rank != 1)
            CHECK(memcmp(source_of(r, step, tensor), r->g + r->offset[tensor], count_of(tensor) * sizeof *r->g) == 0);
}

static void make_step(const run *r, trial *out, int64_t s) {
    tacit_step step = {.size = sizeof step};
    for (int i = 0; i < TENSORS; i++) report_tensor(r, s, (i * 2 + r->rank + (int)s) % TENSORS);
    if (!r->t->job.own && !r->t->job.only) {
        OK(tacit_job_finish(r->job, &step));
    } else {
        OK(tacit_job_settle(r->job, &step));
        check_sources(r, s);
        memcpy(out->sums[r->rank][s], r->g, r->floats * sizeof *r->g);
        for (size_t i = 0; i < r->floats; i++) r->x[i] -= (float)step.lr * r->g[i];
        OK(tacit_job_stepped(r->job));
    }
    CHECK(step.number == s + 1 && !step.skipped && step.norm > 0);
}

static void take_job(run *r) {
    float *of_job = tacit_job_parameters(r->job);
    if (of_job != NULL) r->x = of_job;
    CHECK((of_job == NULL) == r->t->job.only);
    r->g = tacit_job_gradients(r->job);
}

/* Saves, and goes on in another job; the parameters are in the checkpoint, or a blob of the caller's. */
static void resume(run *r) {
    tacit_blob blob = {.size = sizeof blob, .name = "x", .bytes = r->x, .count = MAX_FLOATS * sizeof *r->x};
    bool found = false;
    OK(tacit_job_save(r->job, r->t->folder, 1, &blob, r->t->job.only ? 1 : 0));
    OK(tacit_job_close(r->job));
    r->job = open_job(r->comm, &r->t->job);
    if (r->t->job.only) memset(r->x, 0, MAX_FLOATS * sizeof *r->x);
    OK(tacit_job_load(r->job, r->t->folder, &blob, r->t->job.only ? 1 : 0, &found));
    CHECK(found);
    take_job(r);
}

static void train(taciti_comm *comm, void *context) {
    trial *t = context;
    tacit_comm seat;
    run r = {.t = t, .comm = seat_of(comm, &seat), .rank = taciti_comm_rank(comm)};
    for (int i = 0; i < 2; i++) r.memory[i] = taciti_calloc(MAX_FLOATS + 2 * TENSORS, sizeof *r.memory[i]);
    float *own = taciti_calloc(MAX_FLOATS, sizeof *own);
    r.x = own;
    r.job = open_job(r.comm, &t->job);
    take_job(&r);
    r.floats = r.job->layout.n;
    for (int tensor = 0; tensor < TENSORS; tensor++) {
        r.offset[tensor] = r.job->layout.tensors[tensor].offset;
        for (size_t i = 0; i < count_of(tensor); i++) r.x[r.offset[tensor] + i] = (float)(i % 13) / 13;
    }
    OK(tacit_job_start(r.job));
    for (int s = 0; s < t->steps; s++) {
        if (s > 0 && s == t->stop) resume(&r);
        make_step(&r, t, s);
    }
    memcpy(t->parameters[r.rank], r.x, r.floats * sizeof *r.x);
    if (r.rank == 0) t->floats = r.floats;
    OK(tacit_job_close(r.job));
    taciti_handle_close(&seat.handle);
    for (int i = 0; i < 2; i++) taciti_free(r.memory[i]);
    taciti_free(own);
}

static trial *play(const trial *like, where place, const char *more) {
    trial *t = taciti_calloc(1, sizeof *t);
    taciti_comm_options options = test_comm_options(true);
    int i = 0;
    options.segment_bytes = SEGMENT_BYTES; /* a bucket goes in many pieces */
    CHECK(t != NULL);
    *t = *like;
    t->place = place;
    while (t->job.settings[i] != NULL) i++;
    if (more != NULL) t->job.settings[i] = more;
    test_world_run(t->ranks, &options, train, t);
    return t;
}

static void same(const trial *a, const trial *b, const char *what) {
    for (int r = 0; r < a->ranks; r++) {
        if (memcmp(a->parameters[r], b->parameters[r], a->floats * sizeof **a->parameters) != 0)
            fail_msg("%s, %s, rank %d of %d: other parameters", a->job.settings[0], what, r, a->ranks);
        for (int s = 0; s < a->steps && (a->job.own || a->job.only); s++)
            if (memcmp(a->sums[r][s], b->sums[r][s], a->floats * sizeof ***a->sums) != 0)
                fail_msg("%s, %s, rank %d of %d, step %d: other gradients", a->job.settings[0], what, r, a->ranks, s);
    }
}

/* ---- the same bits ----------------------------------------------------------------------------------------------- */

#define CODEC(name) "compress.codec=" name, "compress.warmup=0"
static const char *const LISTS[][SETTINGS] = {
    {"strategy=dp"},
    {"strategy=dp", CODEC("topk"), "compress.factor=7"},
    {"strategy=dp", CODEC("int4")},
    {"strategy=dp", CODEC("powersgd"), "powersgd.rank=2"},
    {"strategy=dp", CODEC("topk"), "compress.factor=7", "compress.what=change"},
    {"strategy=gossip", "gossip.topology=ring"},
    {"strategy=gossip", "gossip.topology=ring", "gossip.order=atc"},
    {"strategy=gossip", "gossip.topology=base-k", "gossip.codec=int4"},
    {"strategy=localsgd", "localsgd.every=2"},
    {"strategy=localsgd", "localsgd.every=2", CODEC("topk"), "compress.factor=7"},
    {"strategy=none"},
    {"strategy=shard", "shard.stage=1"},
    {"strategy=shard", "shard.stage=2", CODEC("topk"), "compress.factor=7"},
    {"strategy=shard", "shard.stage=3", CODEC("int4")},
    {"strategy=dp", CODEC("onebit"), "compress.what=momentum", "optim.freeze=2"},
};
enum { LIST_COUNT = sizeof LISTS / sizeof *LISTS, NO_OWN = 11 }; /* from there on: no optimizer of the caller's */

static void compare_places(const trial *like) {
    const bool by_bucket =
        strcmp(like->job.settings[0], "strategy=dp") == 0 || strcmp(like->job.settings[0], "strategy=shard") == 0;
    trial *flat = play(like, FLAT, NULL);
    trial *sources = play(like, SOURCES, NULL), *turns = play(like, BY_TURNS, NULL);
    same(flat, sources, "sources");
    same(flat, turns, "sources by turns");
    if (by_bucket) {
        trial *blocking = play(like, SOURCES, "exchange.overlap=false");
        same(flat, blocking, "sources without overlap");
        taciti_free(blocking);
    }
    taciti_free(flat);
    taciti_free(sources);
    taciti_free(turns);
}

static void compare_list(size_t list, int ranks, bool own) {
    trial *like = taciti_calloc(1, sizeof *like);
    *like = (trial){.ranks = ranks, .steps = 4, .job.own = own, .unused = -1};
    memcpy(like->job.settings, LISTS[list], sizeof like->job.settings);
    compare_places(like);
    taciti_free(like);
}

static void sources_have_the_bits_of_the_flat_array(void **state) {
    (void)state;
    for (size_t list = 0; list < LIST_COUNT; list++)
        for (int own = 0; own < (list < NO_OWN ? 2 : 1); own++) compare_list(list, own == 0 ? 3 : 2, own == 1);
}

static void so_they_have_on_any_number_of_ranks(void **state) {
    static const int RANKS[] = {1, 5, 6, 7};
    (void)state;
    for (size_t i = 0; i < sizeof RANKS / sizeof *RANKS; i++)
        for (size_t list = 0; list < 3; list++) compare_list(list, RANKS[i], list != 1);
}

/* A NULL source is a gradient of zeros; two equal micro-batches with scale 1/2 are one. */
static void unused_tensors_and_micro_batches(void **state) {
    static const int RANKS[] = {1, 2, 3};
    (void)state;
    for (size_t i = 0; i < 6; i++) {
        trial *like = taciti_calloc(1, sizeof *like);
        *like = (trial){.ranks = RANKS[i / 2], .steps = 3, .job = {{"strategy=dp"}, true, false}, .unused = -1};
        if (i % 2 == 1) like->unused = 2;
        trial *flat = play(like, FLAT, NULL), *other = play(like, i % 2 == 0 ? BATCHES : SOURCES, NULL);
        same(flat, other, i % 2 == 0 ? "micro-batches" : "an unused tensor");
        taciti_free(flat);
        taciti_free(other);
        taciti_free(like);
    }
}

/* Dense, and with residuals; also where the run stops in between. */
static void sums_alone_are_those_of_a_job_with_parameters(void **state) {
    static const int RANKS[] = {1, 2, 3};
    (void)state;
    for (size_t i = 0; i < 6; i++) {
        const test_path folder = folder_create();
        trial *like = taciti_calloc(1, sizeof *like);
        *like = (trial){.ranks = RANKS[i / 2], .steps = 6, .job.own = true, .unused = -1, .folder = folder.text};
        memcpy(like->job.settings, LISTS[i % 2], sizeof like->job.settings);
        trial *whole = play(like, FLAT, NULL);
        like->job.only = true;
        trial *alone = play(like, SOURCES, NULL);
        like->stop = 3;
        trial *resumed = play(like, SOURCES, NULL);
        same(whole, alone, "gradients_only");
        same(whole, resumed, "gradients_only, resumed");
        taciti_free(whole);
        taciti_free(alone);
        taciti_free(resumed);
        taciti_free(like);
        folder_remove(&folder);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sources_have_the_bits_of_the_flat_array),
        cmocka_unit_test(so_they_have_on_any_number_of_ranks),
        cmocka_unit_test(unused_tensors_and_micro_batches),
        cmocka_unit_test(sums_alone_are_those_of_a_job_with_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
