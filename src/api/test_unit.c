/* SPDX-License-Identifier: Apache-2.0
 *
 * Jobs by units, of ranks that are threads of this process: the bits of a job that holds everything, the memory that is
 * given back, checkpoints, and what is refused.
 */
#define _DEFAULT_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "api/test_seat.h"
#include "base/rng.h"
#include "ckpt/test_folder.h"
#include "kernel/kernel.h"
#include "strategy/shard.h"

enum { MAX_RANKS = 7, TENSORS = 7, UNITS = 5, STEPS = 4, BAD_STEP = 2, PAGE = 4096, MAX_PAGES = 2000 };

static const size_t SIZES[TENSORS] = {10, 410, 9000, 33, 4100, 1, 12001};
static const size_t UNIT_OF[TENSORS] = {0, 0, 1, 1, 2, 3, 4};
static const int RANKS[] = {1, 2, 3, 5, 6, 7};
static const int HOSTS[][MAX_RANKS] = {{0, 0, 0, 0, 0, 0, 0}, {0, 1, 2, 3, 4, 5, 6}, {0, 0, 1, 1, 2, 2, 0}};
enum { RANK_COUNT = sizeof RANKS / sizeof *RANKS, HOST_COUNT = 3 };

typedef struct trial {
    int ranks;
    bool by_units;
    size_t large; /* factor of sizes; 0: 1 */
    const char *settings[8];
    const char *folder;                /* of checkpoints; NULL: none */
    enum { STAYS, SAVES, LOADS } does; /* after step 1 */
    bool looks;                        /* at the memory of a job of stage 3 */
    float *parameters[MAX_RANKS];
    size_t n;
} trial;

typedef struct seat {
    const trial *t;
    tacit_comm comm;
    int rank;
    tacit_layout layout;
    tacit_job *job;
    float *p, *g;
} seat;

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

static void make_layout(size_t factor, tacit_layout *out) {
    memset(out, 0, sizeof *out);
    OK(taciti_layout_create(TENSORS, &out->layout));
    for (size_t i = 0; i < TENSORS; i++) {
        const char name[2] = {(char)('a' + (int)i), 0};
        const size_t n = SIZES[i] * (factor > 0 ? factor : 1);
        if (i > 0 && UNIT_OF[i] != UNIT_OF[i - 1]) taciti_layout_next_unit(&out->layout);
        OK(taciti_layout_append(&out->layout, name, 1, &n, i % 2 == 0));
    }
    OK(taciti_layout_seal(&out->layout, out->layout.n * sizeof(float)));
    taciti_handle_open(&out->handle, TACITI_HANDLE_LAYOUT);
}

static void open_job(seat *s) {
    tacit_settings *settings = NULL;
    const tacit_job_options options = {.size = sizeof options, .by_units = s->t->by_units, .threads = 1};
    OK(tacit_settings_create(&settings));
    OK(tacit_settings_set(settings, "exchange.bucket=16KiB"));
    OK(tacit_settings_set(settings, "compress.warmup=0"));
    for (const char *const *set = s->t->settings; *set != NULL; set++) OK(tacit_settings_set(settings, *set));
    OK(tacit_job_open(&s->comm, settings, &s->layout, &options, &s->job));
    tacit_settings_destroy(settings);
    s->p = tacit_job_parameters(s->job);
    s->g = tacit_job_gradients(s->job);
    for (int i = 0; i < 2 && s->t->looks; i++) /* a huge page is resident as a whole */
        (void)madvise(s->job->pages[i].base, s->job->pages[i].bytes, MADV_NOHUGEPAGE);
}

static void open_seat(const trial *t, taciti_comm *comm, seat *s) {
    *s = (seat){.t = t, .comm = {.comm = comm}, .rank = taciti_comm_rank(comm)};
    taciti_handle_open(&s->comm.handle, TACITI_HANDLE_COMM);
    make_layout(t->large, &s->layout);
    open_job(s);
}

static void close_seat(seat *s) {
    OK(tacit_job_close(s->job));
    taciti_handle_close(&s->layout.handle);
    taciti_layout_destroy(&s->layout.layout);
    taciti_handle_close(&s->comm.handle);
}

static void need(const seat *s, size_t unit) {
    if (s->t->by_units) OK(tacit_job_need(s->job, unit));
}
static void release(const seat *s, size_t unit) {
    if (s->t->by_units) OK(tacit_job_release(s->job, unit));
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Bytes of whole pages of floats[at, at + n) that are in memory. */
static size_t resident(const float *floats, size_t at, size_t n) {
    unsigned char in_memory[MAX_PAGES];
    const uintptr_t begin = ((uintptr_t)(floats + at) + PAGE - 1) / PAGE, end = (uintptr_t)(floats + at + n) / PAGE;
    const size_t count = end > begin ? end - begin : 0;
    size_t bytes = 0;
    CHECK(count <= MAX_PAGES && (count == 0 || mincore((void *)(begin * PAGE), count * PAGE, in_memory) == 0));
    for (size_t i = 0; i < count; i++) bytes += in_memory[i] & 1 ? PAGE : 0;
    return bytes;
}

/* No more than this rank's part, what may be gathered at once, and the pages at the edges of parts. */
static void look(const seat *s) {
    const taciti_layout *layout = &s->job->layout;
    const size_t edges = 2 * (layout->bucket_count + UNITS) * PAGE, own = layout->n / (size_t)s->t->ranks;
    if (!s->t->looks) return;
    CHECK(resident(s->p, 0, layout->n) <= (own + taciti_shard_room(layout)) * sizeof(float) + edges);
    CHECK(resident(s->g, 0, layout->n) <= (own + 2 * taciti_shard_room(layout)) * sizeof(float) + edges);
}

/* A unit that was just released: of its pages only those with this rank's own part are left. */
static void look_behind(const seat *s, size_t unit) {
    const taciti_layout *layout = &s->job->layout;
    const taciti_range r = taciti_layout_unit(layout, unit);
    if (!s->t->looks) return;
    const size_t edges = 2 * (layout->bucket_count + 1) * PAGE;
    CHECK(resident(s->p, r.at, r.n) <= r.n / (size_t)s->t->ranks * sizeof(float) + edges);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static void initialise(const seat *s) {
    for (size_t u = 0; u < UNITS; u++) {
        need(s, u);
        for (size_t a = 0; a < TENSORS; a++) {
            const taciti_tensor *t = &s->job->layout.tensors[a];
            for (size_t i = t->offset; t->unit == u && i < t->offset + t->n && s->rank == 0; i++)
                s->p[i] = (float)(taciti_rng_unit(3, i) - 0.5);
        }
        release(s, u);
        look(s);
        look_behind(s, u);
    }
}

/* Depends on the parameters, so a rank that reads other ones is found out. */
static void backward(const seat *s, size_t unit, int step) {
    const uint64_t key = taciti_rng_key(taciti_rng_key(7, (uint64_t)s->rank), (uint64_t)step);
    if (s->t->by_units) OK(tacit_job_write(s->job, unit));
    for (size_t a = 0; a < TENSORS; a++) {
        const taciti_tensor *t = &s->job->layout.tensors[a];
        if (t->unit != unit) continue;
        for (size_t i = t->offset; i < t->offset + t->n; i++)
            s->g[i] = 0.1F * s->p[i] + (float)(taciti_rng_unit(key, i) - 0.5);
        if (s->rank == s->t->ranks - 1 && step == BAD_STEP) s->g[t->offset + t->n / 2] = NAN;
        look(s);
        OK(tacit_job_ready(s->job, a));
    }
}

static void make_step(const seat *s, int step) {
    tacit_step out = {.size = sizeof out};
    for (size_t u = UNITS; u-- > 0;) {
        need(s, u);
        look(s);
        release(s, u);
        if (u > 0) look_behind(s, u); /* the first unit of the backward pass stays, or is gathered ahead */
    }
    for (size_t u = 0; u < UNITS; u++) {
        need(s, u);
        backward(s, u, step);
        release(s, u);
    }
    OK(tacit_job_finish(s->job, &out));
    CHECK(out.number == step + 1 && out.skipped == (step == BAD_STEP));
}

static float *take(const seat *s) {
    float *out = taciti_calloc(s->job->layout.n, sizeof *out);
    for (size_t u = UNITS; u-- > 0;) {
        const taciti_range r = taciti_layout_unit(&s->job->layout, u);
        need(s, u);
        memcpy(out + r.at, s->p + r.at, r.n * sizeof *out);
        release(s, u);
    }
    return out;
}

static void play_job(taciti_comm *comm, void *context) {
    trial *t = context;
    seat s;
    bool found = false;
    open_seat(t, comm, &s);
    if (t->does == LOADS) {
        OK(tacit_job_load(s.job, t->folder, NULL, 0, &found));
        CHECK(found);
    } else {
        initialise(&s);
        OK(tacit_job_start(s.job));
    }
    for (int step = t->does == LOADS ? 2 : 0; step < STEPS; step++) {
        make_step(&s, step);
        if (step == 1 && t->does == SAVES) OK(tacit_job_save(s.job, t->folder, 1, NULL, 0));
    }
    t->parameters[s.rank] = take(&s);
    if (s.rank == 0) t->n = s.job->layout.n;
    close_seat(&s);
}

static void play(trial *t, const int *hosts, test_rank *rank) {
    const taciti_comm_options options = test_comm_options(true);
    test_hosts(hosts);
    test_world_run(t->ranks, &options, rank, t);
    test_hosts(NULL);
}

static void forget(trial *t) {
    for (int r = 0; r < t->ranks; r++) taciti_free(t->parameters[r]);
}

/* ---- the same bits ----------------------------------------------------------------------------------------------- */

static void same(const trial *a, const trial *b) {
    assert_int_equal(a->n, b->n);
    for (int r = 0; r < a->ranks; r++) assert_memory_equal(a->parameters[r], b->parameters[0], a->n * sizeof(float));
}

static void agrees(const int *hosts, int ranks, const char *const *settings) {
    trial whole = {.ranks = ranks}, units = {.ranks = ranks, .by_units = true};
    for (int i = 0; settings[i] != NULL; i++) whole.settings[i] = units.settings[i] = settings[i];
    play(&whole, hosts, play_job);
    play(&units, hosts, play_job);
    same(&units, &whole);
    forget(&whole);
    forget(&units);
}

static void units_have_the_bits_of_a_whole_job(void **state) {
    static const char *const STAGES[] = {"shard.stage=1", "shard.stage=2", "shard.stage=3"};
    (void)state;
    for (int r = 0; r < RANK_COUNT; r++)
        for (int h = 0; h < HOST_COUNT; h++)
            for (int stage = 0; stage < 3; stage++) {
                const char *const settings[] = {"strategy=shard", STAGES[stage], NULL};
                agrees(HOSTS[h], RANKS[r], settings);
            }
}

static void units_have_the_bits_of_dp(void **state) {
    (void)state;
    trial dp = {.ranks = 3, .settings = {"strategy=dp", "optim.clip=0"}};
    trial units = {.ranks = 3, .by_units = true, .settings = {"strategy=shard", "optim.clip=0"}};
    play(&dp, HOSTS[1], play_job);
    play(&units, HOSTS[1], play_job);
    same(&units, &dp);
    forget(&dp);
    forget(&units);
}

static void compression_and_hosts_change_nothing_of_that(void **state) {
    static const char *const LISTS[][8] = {
        {"strategy=shard", "shard.stage=3", "compress.codec=topk", "compress.gather=int8"},
        {"strategy=shard", "shard.stage=2", "compress.codec=int4", "compress.gather=topk", "compress.back=2"},
        {"strategy=shard", "shard.stage=1", "shard.gather=bf16"},
        {"strategy=shard", "shard.stage=3", "shard.secondary=true"},
        {"strategy=shard", "shard.stage=3", "shard.over=host"}};
    static const int PAIRS[MAX_RANKS] = {0, 0, 1, 1, 2, 2};
    (void)state;
    for (size_t i = 0; i < sizeof LISTS / sizeof *LISTS; i++) agrees(PAIRS, 6, LISTS[i]);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void what_is_released_is_given_back(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= 5; ranks += 3) {
        trial t = {.ranks = ranks,
                   .by_units = true,
                   .large = 10,
                   .looks = true,
                   .settings = {"strategy=shard", "exchange.bucket=128KiB"}};
        play(&t, HOSTS[0], play_job);
        forget(&t);
    }
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

static void checkpoints_are_those_of_a_whole_job(void **state) {
    (void)state;
    for (int stage = 1; stage <= 3; stage++)
        for (int by = 0; by < 4; by++) { /* who saves and who loads is by units */
            const test_path folder = folder_create();
            char text[16];
            (void)snprintf(text, sizeof text, "shard.stage=%d", stage);
            trial saves = {.ranks = 3,
                           .by_units = by & 1,
                           .settings = {"strategy=shard", text},
                           .folder = folder.text,
                           .does = SAVES};
            trial loads = saves;
            loads.by_units = by & 2;
            loads.does = LOADS;
            play(&saves, HOSTS[1], play_job);
            play(&loads, HOSTS[1], play_job);
            same(&loads, &saves);
            forget(&saves);
            forget(&loads);
            folder_remove(&folder);
        }
}

static void play_loaded(taciti_comm *comm, void *context) {
    trial *t = context;
    seat s;
    bool found = false;
    open_seat(t, comm, &s);
    OK(tacit_job_load(s.job, t->folder, NULL, 0, &found));
    CHECK(found);
    t->parameters[s.rank] = take(&s);
    if (s.rank == 0) t->n = s.job->layout.n;
    close_seat(&s);
}

static void other_ranks_take_a_checkpoint_up(void **state) {
    (void)state;
    const test_path folder = folder_create();
    trial t = {.ranks = 5, .by_units = true, .settings = {"strategy=shard"}, .folder = folder.text, .does = SAVES};
    trial whole = {.ranks = 1, .settings = {"strategy=dp"}, .folder = folder.text};
    trial two = {.ranks = 2, .by_units = true, .settings = {"strategy=shard"}, .folder = folder.text};
    play(&t, HOSTS[2], play_job);
    play(&whole, HOSTS[0], play_loaded);
    play(&two, HOSTS[0], play_loaded);
    same(&two, &whole);
    forget(&t);
    forget(&whole);
    forget(&two);
    folder_remove(&folder);
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void refused(tacit_status got, tacit_status want, const char *text) {
    assert_int_equal(got, want);
    if (strstr(tacit_error_text(), text) == NULL) fail_msg("\"%s\" is not in \"%s\"", text, tacit_error_text());
}

static void open_alone(const trial *t, tacit_comm **comm, seat *s) {
    assert_int_equal(tacit_open_self(NULL, comm), TACIT_OK);
    open_seat(t, (*comm)->comm, s);
}

static void calls_out_of_order_are_refused(void **state) {
    (void)state;
    const trial t = {.ranks = 1, .by_units = true, .settings = {"strategy=shard"}};
    tacit_comm *comm = NULL;
    seat s;
    tacit_step step = {.size = sizeof step};
    open_alone(&t, &comm, &s);
    refused(tacit_job_need(s.job, UNITS), TACIT_E_USAGE, "unit 5 of a layout of 5");
    refused(tacit_job_write(s.job, 0), TACIT_E_USAGE, "before tacit_job_start()");
    refused(tacit_job_release(s.job, 0), TACIT_E_USAGE, "not needed");
    assert_int_equal(tacit_job_need(s.job, 0), TACIT_OK);
    refused(tacit_job_start(s.job), TACIT_E_USAGE, "unit 0 is needed");
    assert_int_equal(tacit_job_release(s.job, 0), TACIT_OK);
    refused(tacit_job_need(s.job, 0), TACIT_E_USAGE, "set before");
    assert_int_equal(tacit_job_start(s.job), TACIT_OK);
    refused(tacit_job_ready(s.job, 1), TACIT_E_USAGE, "tensor 1 (b) is of unit 0");
    refused(tacit_job_ready(s.job, TACIT_ALL_TENSORS), TACIT_E_USAGE, "tacit_job_write()");
    for (size_t u = 0; u < UNITS; u++) assert_int_equal(tacit_job_write(s.job, u), TACIT_OK);
    assert_int_equal(tacit_job_ready(s.job, 1), TACIT_OK);
    refused(tacit_job_write(s.job, 0), TACIT_E_USAGE, "tensor 1 (b) of unit 0 is ready");
    assert_int_equal(tacit_job_ready(s.job, TACIT_ALL_TENSORS), TACIT_OK);
    assert_int_equal(tacit_job_need(s.job, 2), TACIT_OK);
    refused(tacit_job_finish(s.job, &step), TACIT_E_USAGE, "unit 2 is needed");
    assert_int_equal(tacit_job_release(s.job, 2), TACIT_OK);
    assert_int_equal(tacit_job_finish(s.job, &step), TACIT_OK);
    refused(tacit_job_ready(s.job, 1), TACIT_E_USAGE, "tacit_job_write()");
    close_seat(&s);
    assert_int_equal(tacit_close(comm), TACIT_OK);
}

/* Stage 1 would queue the sums of all buckets at once, and then all gathers. */
static void play_many_units(taciti_comm *comm, void *context) {
    enum { MANY = 6000, FLOATS = 16 };
    static const char *const SETTINGS[] = {"strategy=shard", "shard.stage=1", "optim.name=sgd", "optim.momentum=0",
                                           "optim.lr=0.5",   "optim.clip=0",  "optim.warmup=0", "optim.weight_decay=0"};
    const size_t n = FLOATS;
    char name[16];
    seat s = {.comm = {.comm = comm}};
    tacit_layout *layout = NULL;
    tacit_settings *settings = NULL;
    tacit_step step = {.size = sizeof step};
    (void)context;
    taciti_handle_open(&s.comm.handle, TACITI_HANDLE_COMM);
    OK(tacit_layout_create(&layout));
    for (int u = 0; u < MANY; u++) {
        (void)snprintf(name, sizeof name, "w%d", u);
        OK(tacit_layout_add(layout, name, 1, &n, 0));
        OK(tacit_layout_next_unit(layout));
    }
    OK(tacit_settings_create(&settings));
    for (size_t i = 0; i < sizeof SETTINGS / sizeof *SETTINGS; i++) OK(tacit_settings_set(settings, SETTINGS[i]));
    OK(tacit_job_open(&s.comm, settings, layout, NULL, &s.job));
    CHECK(s.job->layout.bucket_count == MANY);
    OK(tacit_job_start(s.job));
    for (size_t i = 0; i < (size_t)MANY * FLOATS; i++) tacit_job_gradients(s.job)[i] = (float)(i % 97);
    OK(tacit_job_ready(s.job, TACIT_ALL_TENSORS));
    OK(tacit_job_finish(s.job, &step));
    for (size_t i = 0; i < (size_t)MANY * FLOATS; i++)
        CHECK(tacit_job_parameters(s.job)[i] == -(float)(i % 97)); /* two ranks, half of the sum */
    OK(tacit_job_close(s.job));
    tacit_settings_destroy(settings);
    tacit_layout_destroy(layout);
    taciti_handle_close(&s.comm.handle);
}

static void more_units_than_the_queue_has_room_for(void **state) {
    const taciti_comm_options options = test_comm_options(true);
    (void)state;
    test_world_run(2, &options, play_many_units, NULL);
}

static void only_shard_has_units(void **state) {
    (void)state;
    const trial t = {.ranks = 1, .settings = {"strategy=shard"}};
    tacit_comm *comm = NULL;
    seat s;
    tacit_job *job = NULL;
    tacit_settings *settings = NULL;
    _Alignas(64) float mine[16];
    open_alone(&t, &comm, &s);
    refused(tacit_job_need(s.job, 0), TACIT_E_USAGE, "without by_units");
    assert_int_equal(tacit_settings_create(&settings), TACIT_OK);
    const tacit_job_options units = {.size = sizeof units, .by_units = true};
    const tacit_job_options own = {.size = sizeof own, .by_units = true, .parameters = mine};
    refused(tacit_job_open(&s.comm, settings, &s.layout, &units, &job), TACIT_E_CONFIG, "strategy=shard");
    assert_int_equal(tacit_settings_set(settings, "strategy=shard"), TACIT_OK);
    refused(tacit_job_open(&s.comm, settings, &s.layout, &own, &job), TACIT_E_USAGE, "NULL");
    assert_null(job);
    tacit_settings_destroy(settings);
    close_seat(&s);
    assert_int_equal(tacit_close(comm), TACIT_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_have_the_bits_of_a_whole_job),
        cmocka_unit_test(units_have_the_bits_of_dp),
        cmocka_unit_test(compression_and_hosts_change_nothing_of_that),
        cmocka_unit_test(what_is_released_is_given_back),
        cmocka_unit_test(checkpoints_are_those_of_a_whole_job),
        cmocka_unit_test(other_ranks_take_a_checkpoint_up),
        cmocka_unit_test(calls_out_of_order_are_refused),
        cmocka_unit_test(only_shard_has_units),
        cmocka_unit_test(more_units_than_the_queue_has_room_for),
    };
    (void)taciti_kernels_get(); /* the first call must come from a single thread */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
