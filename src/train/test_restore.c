/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs that are saved and resumed. The strategy here keeps replicas equal and has a state of each rank's own: gradients
 * are sent in short numbers, and what that loses is added to the next ones (error feedback). A run is only then
 * bit-equal to one that never stopped when every rank has its own state back.
 */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <string.h>

#include "base/memory.h"
#include "ckpt/test_folder.h"
#include "comm/test_engine.h"
#include "train/trainer.h"

enum { MAX_RANKS = 3, WINDOW = 9 };

/* ---- a strategy with a state of its own -------------------------------------------------------------------------- */

typedef struct feedback {
    taciti_strategy_context context;
    void *dp;
    float *residual;
    float *shard, *window;   /* flat arrays: running sum of gradients; of the residual */
    taciti_range part, view; /* what this rank has of them; the view begins at float `rank` */
    double numbers[2];
    int64_t steps;
    int rank;
} feedback;

static taciti_state_regroup g_rule; /* of its numbers */
static int g_restored;              /* ranks whose strategy was started as restored */

static const taciti_strategy *dp(void) { return taciti_strategy_find("dp"); }

static tacit_status feedback_create(const taciti_strategy_context *context, void **out) {
    feedback *f = taciti_calloc(1, sizeof *f);
    CHECK(f != NULL);
    const size_t ranks = (size_t)taciti_comm_size(context->comm), n = context->layout->n;
    f->context = *context;
    f->rank = taciti_comm_rank(context->comm);
    f->part.at = n * (size_t)f->rank / ranks;
    f->part.n = n * (size_t)(f->rank + 1) / ranks - f->part.at;
    f->view = (taciti_range){(size_t)f->rank, WINDOW};
    f->residual = taciti_calloc(n, sizeof *f->residual);
    f->shard = taciti_calloc(n, sizeof *f->shard);
    f->window = taciti_calloc(n, sizeof *f->window);
    CHECK(f->residual != NULL && f->shard != NULL && f->window != NULL);
    *out = f;
    return dp()->create(context, &f->dp);
}

static void feedback_destroy(void *self) {
    feedback *f = self;
    dp()->destroy(f->dp);
    taciti_free(f->residual);
    taciti_free(f->shard);
    taciti_free(f->window);
    taciti_free(f);
}

static tacit_status feedback_start(void *self, int64_t step, bool restored) {
    (void)self, (void)step;
    if (restored) (void)__atomic_add_fetch(&g_restored, 1, __ATOMIC_RELAXED);
    return TACIT_OK;
}

static float shorten(float x) {
    uint32_t bits = 0;
    memcpy(&bits, &x, sizeof bits);
    bits &= 0xffff0000U;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

static tacit_status feedback_finish(void *self, double lr, taciti_step_report *out) {
    feedback *f = self;
    float *g = f->context.gradients;
    for (size_t i = 0; i < f->context.layout->n; i++) {
        const float whole = g[i] + f->residual[i];
        g[i] = shorten(whole);
        f->residual[i] = whole - g[i];
    }
    TACITI_TRY(dp()->finish(f->dp, lr, out));
    for (size_t i = f->part.at; i < f->part.at + f->part.n; i++) f->shard[i] = 0.5f * f->shard[i] + g[i];
    for (size_t i = f->view.at; i < f->view.at + f->view.n; i++) f->window[i] += f->residual[i];
    f->numbers[0] += out->grad_norm * (f->rank + 1);
    f->numbers[1] = f->rank;
    f->steps++;
    return TACIT_OK;
}

static void feedback_state(void *self, taciti_state *out) {
    feedback *f = self;
    const taciti_layout *layout = f->context.layout;
    taciti_optim_list_state(f->context.optim, TACITI_STATE_SHARED, out);
    taciti_state_add_array(out, "strategy.residual", TACITI_STATE_OWN, TACITI_STATE_SUM, layout, f->residual);
    taciti_state_add_ranges(out, "strategy.shard", TACITI_STATE_SHARED, TACITI_STATE_RESET, layout, f->shard, &f->part,
                            1);
    taciti_state_add_ranges(out, "strategy.window", TACITI_STATE_OWN, TACITI_STATE_RESET, layout, f->window, &f->view,
                            1);
    taciti_state_add_numbers(out, "numbers", TACITI_STATE_OWN, g_rule, f->numbers, 2);
    taciti_state_add(out, (taciti_state_entry){.name = "steps",
                                               .kind = TACITI_STATE_COUNT,
                                               .owner = TACITI_STATE_OWN,
                                               .regroup = TACITI_STATE_MEAN,
                                               .data = &f->steps});
}

static tacit_status feedback_describe(const taciti_strategy_context *context, const void *self,
                                      taciti_strategy_figures *out) {
    return dp()->describe(context, self == NULL ? NULL : ((const feedback *)self)->dp, out);
}

static const taciti_strategy FEEDBACK = {
    .name = "dp", /* what the configuration says */
    .describe = feedback_describe,
    .create = feedback_create,
    .destroy = feedback_destroy,
    .start = feedback_start,
    .finish = feedback_finish,
    .state = feedback_state,
};

/* ---- runs -------------------------------------------------------------------------------------------------------- */

/* The arrays of a rank at the end. */
typedef struct record {
    float *parameters, *residual, *shard;
    size_t n, begin, shard_n;
    float window[WINDOW];
    double numbers[2];
    int64_t steps, updates;
    float unfinished; /* largest element of "optim.a" */
} record;

typedef struct trial {
    int ranks;
    int64_t until; /* steps */
    const char *folder;
    const char *const *settings; /* key, value, ..., NULL; may be NULL */
    bool plain;                  /* the strategy that the settings name */
    bool resume, from_mean, save;
    tacit_status resumed[MAX_RANKS];
    bool found[MAX_RANKS];
    record records[MAX_RANKS];
} trial;

static test_path g_folder;

static void set(taciti_train_settings *settings, const char *key, const char *value) {
    CHECK(taciti_config_set(&settings->job.config, key, value, "test") == TACIT_OK);
}

static void configure(const trial *t, taciti_train_settings *settings) {
    static const struct {
        const char *key, *value;
    } small[] = {
        {"run.quiet", "true"},       {"model.layers", "1"}, {"model.heads", "1"},   {"model.channels", "4"},
        {"model.context", "4"},      {"train.batch", "6"},  {"train.threads", "1"}, {"optim.warmup", "0"},
        {"exchange.bucket", "1KiB"}, {"train.keep", "9"},
    };
    CHECK(taciti_train_settings_init(settings) == TACIT_OK);
    set(settings, "run.dir", t->folder);
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) set(settings, small[i].key, small[i].value);
    for (size_t i = 0; t->settings != NULL && t->settings[i] != NULL; i += 2)
        set(settings, t->settings[i], t->settings[i + 1]);
}

static float *copy_of(const float *x, size_t n) {
    float *copy = taciti_calloc(n, sizeof *copy);
    CHECK(copy != NULL);
    memcpy(copy, x, n * sizeof *copy);
    return copy;
}

static void keep(const trial *t, const taciti_trainer *trainer, record *out) {
    taciti_state state = {.count = 0};
    taciti_driver_list_state(trainer->driver, false, &state);
    const taciti_state_entry *updates = taciti_state_find(&state, "updates"), *a = taciti_state_find(&state, "optim.a");
    *out = (record){.n = trainer->layout.n, .updates = *(const int64_t *)updates->data};
    out->parameters = copy_of(taciti_model_parameters(trainer->model), out->n);
    for (size_t i = 0; a != NULL && i < a->n; i++) {
        const float x = ((const float *)a->data)[i];
        if (x > out->unfinished) out->unfinished = x;
    }
    if (t->plain) return;
    const taciti_state_entry *shard = taciti_state_find(&state, "strategy.shard");
    const taciti_state_entry *window = taciti_state_find(&state, "strategy.window");
    const taciti_range part = shard->ranges[0];
    out->residual = copy_of(taciti_state_find(&state, "strategy.residual")->data, out->n);
    out->shard = copy_of((const float *)shard->data + part.at, part.n);
    out->begin = part.at;
    out->shard_n = part.n;
    memcpy(out->window, (const float *)window->data + window->ranges[0].at, sizeof out->window);
    memcpy(out->numbers, taciti_state_find(&state, "numbers")->data, sizeof out->numbers);
    out->steps = *(const int64_t *)taciti_state_find(&state, "steps")->data;
}

static void make_steps(const trial *t, taciti_trainer *trainer, record *out) {
    double distance = 0;
    while (trainer->position.step < t->until) {
        CHECK(taciti_trainer_step(trainer, false) == TACIT_OK);
        while (taciti_reports_oldest_known(&trainer->reports) != NULL) taciti_reports_drop_oldest(&trainer->reports);
    }
    keep(t, trainer, out);
    if (!t->save) return;
    CHECK(taciti_reports_collect(trainer, 0) == TACIT_OK);
    CHECK(taciti_driver_average(trainer->driver, &distance) == TACIT_OK);
    CHECK(taciti_trainer_save(trainer) == TACIT_OK);
    taciti_driver_revert(trainer->driver);
}

static void run_rank(taciti_comm *comm, void *context) {
    trial *t = context;
    const int rank = taciti_comm_rank(comm);
    const taciti_train_request request = {.resume = t->resume, .from_mean = t->from_mean};
    taciti_train_settings settings;
    taciti_trainer trainer;
    configure(t, &settings);
    CHECK(taciti_trainer_prepare(&trainer, comm, &settings, &request) == TACIT_OK);
    if (!t->plain) trainer.strategy = &FEEDBACK;
    CHECK(taciti_trainer_build(&trainer) == TACIT_OK);
    t->resumed[rank] = t->resume ? taciti_trainer_resume(&trainer, &t->found[rank]) : TACIT_OK;
    if (!t->resume) CHECK(taciti_trainer_initialise(&trainer) == TACIT_OK);
    if (t->resumed[rank] == TACIT_OK) make_steps(t, &trainer, &t->records[rank]);
    taciti_trainer_close(&trainer);
    taciti_settings_destroy(&settings.job);
}

static void run(trial *t) {
    const taciti_comm_options options = test_comm_options(true);
    t->folder = g_folder.text;
    g_restored = 0;
    test_world_run(t->ranks, &options, run_rank, t);
}

static void let_go(trial *t) {
    for (int r = 0; r < t->ranks; r++) {
        taciti_free(t->records[r].parameters);
        taciti_free(t->records[r].residual);
        taciti_free(t->records[r].shard);
    }
}

static int set_up(void **state) {
    (void)state;
    g_folder = folder_create();
    g_rule = TACITI_STATE_RESET;
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    folder_remove(&g_folder);
    return 0;
}

static bool is_zero(const float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (x[i] != 0) return false;
    return true;
}

/* ---- properties
 * -------------------------------------------------------------------------------------------------------- */

static void a_rank_has_its_own_state_back(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= MAX_RANKS; ranks++) {
        trial through = {.ranks = ranks, .until = 6}, first = {.ranks = ranks, .until = 3, .save = true};
        trial second = {.ranks = ranks, .until = 6, .resume = true};
        run(&through);
        run(&first);
        run(&second);
        assert_int_equal(g_restored, ranks);
        for (int r = 0; r < ranks; r++) {
            const record *a = &through.records[r], *b = &second.records[r];
            assert_true(second.found[r] && second.resumed[r] == TACIT_OK);
            assert_memory_equal(a->parameters, b->parameters, a->n * sizeof(float));
            assert_memory_equal(a->parameters, through.records[0].parameters, a->n * sizeof(float));
            assert_memory_equal(a->residual, b->residual, a->n * sizeof(float));
            assert_memory_equal(a->shard, b->shard, a->shard_n * sizeof(float));
            assert_memory_equal(a->window, b->window, sizeof a->window);
            assert_memory_equal(a->numbers, b->numbers, sizeof a->numbers);
            assert_true(b->steps == 6 && b->updates == 6);
            assert_false(is_zero(first.records[r].residual, a->n));
            assert_true(r == 0 || memcmp(a->residual, through.records[0].residual, a->n * sizeof(float)) != 0);
        }
        let_go(&through);
        let_go(&first);
        let_go(&second);
        folder_remove(&g_folder);
        g_folder = folder_create();
    }
}

/* The shards of the former ranks, put together. */
static float *whole_shard(const trial *t) {
    float *whole = taciti_calloc(t->records[0].n, sizeof *whole);
    for (int r = 0; r < t->ranks; r++)
        memcpy(whole + t->records[r].begin, t->records[r].shard, t->records[r].shard_n * sizeof *whole);
    return whole;
}

static void expect_regrouped(const trial *before, const trial *after) {
    float *whole = whole_shard(before);
    for (int r = 0; r < after->ranks; r++) {
        const record *b = &after->records[r];
        assert_memory_equal(b->parameters, before->records[0].parameters, b->n * sizeof(float));
        assert_memory_equal(b->shard, whole + b->begin, b->shard_n * sizeof(float));
        for (size_t i = 0; i < b->n; i++) {
            float sum = 0;
            for (int f = r; f < before->ranks; f += after->ranks) sum += before->records[f].residual[i];
            assert_true(b->residual[i] == sum);
        }
        assert_true(is_zero(b->window, WINDOW) && b->numbers[0] == 0);
        assert_true(b->steps == 3 && b->updates == 3);
    }
    taciti_free(whole);
}

static void other_ranks_share_out_what_there_was(void **state) {
    (void)state;
    trial before = {.ranks = 3, .until = 3, .save = true};
    run(&before);
    for (int ranks = 1; ranks <= 2; ranks++) {
        trial after = {.ranks = ranks, .until = 3, .resume = true};
        run(&after);
        assert_int_equal(g_restored, 0);
        expect_regrouped(&before, &after);
        let_go(&after);
    }
    let_go(&before);
}

static void on_request_all_begin_from_the_mean(void **state) {
    (void)state;
    g_rule = TACITI_STATE_RESET;
    trial before = {.ranks = 2, .until = 2, .save = true};
    trial mean = {.ranks = 3, .until = 2, .resume = true, .from_mean = true};
    run(&before);
    run(&mean);
    for (int r = 0; r < 3; r++) {
        assert_true(mean.resumed[r] == TACIT_OK && is_zero(mean.records[r].residual, mean.records[r].n));
        assert_memory_equal(mean.records[r].parameters, before.records[0].parameters,
                            mean.records[r].n * sizeof(float));
    }
    let_go(&mean);
    let_go(&before);
}

/* A run of a strategy that has none of this goes on without it, and one that needs it says so. */
static void another_state_is_noticed(void **state) {
    (void)state;
    trial plain = {.ranks = 2, .until = 2, .plain = true, .save = true};
    trial own = {.ranks = 2, .until = 2, .resume = true},
          again = {.ranks = 2, .until = 3, .plain = true, .resume = true};
    run(&plain);
    test_log_keep();
    run(&own);
    assert_int_equal(own.resumed[0], TACIT_E_DATA);
    assert_true(test_log_count("strategy.residual") > 0);
    test_log_drop();
    run(&again);
    assert_int_equal(again.resumed[0], TACIT_OK);
    assert_int_equal(again.records[1].updates, 3);
    let_go(&plain);
    let_go(&again);
}

/* ---- the position, the window of the optimizer, refusals --------------------------------------------------------- */

static void an_empty_folder_is_no_error(void **state) {
    (void)state;
    trial t = {.ranks = 1, .resume = true, .plain = true};
    run(&t);
    assert_true(t.resumed[0] == TACIT_OK && !t.found[0]);
    let_go(&t);
}

/* 6 updates in windows of 4: one window has ended, and 2 gradients are in the next. */
static void windows_of_another_length_begin_anew(void **state) {
    (void)state;
    static const char *const four[] = {"optim.name", "accum-adamw", "optim.accum", "4", NULL};
    static const char *const three[] = {"optim.name", "accum-adamw", "optim.accum", "3", NULL};
    trial first = {.ranks = 1, .until = 6, .plain = true, .save = true, .settings = four};
    trial same = {.ranks = 1, .until = 6, .plain = true, .resume = true, .settings = four};
    trial other = {.ranks = 1, .until = 6, .plain = true, .resume = true, .settings = three};
    run(&first);
    run(&same);
    run(&other);
    assert_true(same.records[0].updates == 6 && same.records[0].unfinished > 0);
    assert_true(other.records[0].updates == 3 && other.records[0].unfinished == 0);
    let_go(&first);
    let_go(&same);
    let_go(&other);
}

static tacit_status resume_with(const char *key, const char *value, const char *message) {
    const char *const settings[] = {key, value, NULL};
    trial t = {.ranks = 1, .until = 2, .plain = true, .resume = true, .settings = settings};
    test_log_keep();
    run(&t);
    assert_true(test_log_count(message) > 0);
    test_log_drop();
    if (t.resumed[0] == TACIT_OK) let_go(&t);
    return t.resumed[0];
}

static void another_run_is_refused(void **state) {
    (void)state;
    trial first = {.ranks = 1, .until = 2, .plain = true, .save = true};
    run(&first);
    assert_int_equal(resume_with("train.seed", "7", "train.seed is 7 but the checkpoint was made with 1"),
                     TACIT_E_CONFIG);
    assert_int_equal(resume_with("optim.name", "accum-adamw",
                                 "it holds no state \"a\" of the optimizer: optim.name was \"adamw\" and is "
                                 "\"accum-adamw\" now"),
                     TACIT_E_CONFIG);
    assert_int_equal(resume_with("model.channels", "8", "model.channels 4"), TACIT_E_CONFIG);
    assert_int_equal(resume_with("data.train", "README.md", "the data differs from that of the checkpoint"), TACIT_OK);
    let_go(&first);
}

/* Replicas that differ: every rank its own, on other ranks the mean, and a new period begins. */
static void replicas_come_back_or_their_mean(void **state) {
    (void)state;
    static const char *const local[] = {"strategy", "localsgd", "localsgd.every", "4", NULL};
    trial first = {.ranks = 3, .until = 3, .plain = true, .save = true, .settings = local};
    trial same = {.ranks = 3, .until = 3, .plain = true, .resume = true, .settings = local};
    trial fewer = {.ranks = 2, .until = 3, .plain = true, .resume = true, .settings = local};
    run(&first);
    run(&same);
    run(&fewer);
    const size_t n = first.records[0].n;
    const float *x = first.records[0].parameters, *y = first.records[1].parameters, *z = first.records[2].parameters;
    const float *mean = fewer.records[0].parameters;
    for (int r = 0; r < 3; r++)
        assert_memory_equal(same.records[r].parameters, first.records[r].parameters, n * sizeof(float));
    assert_memory_equal(mean, fewer.records[1].parameters, n * sizeof(float));
    assert_true(memcmp(x, y, n * sizeof(float)) != 0);
    for (size_t i = 0; i < n; i++) assert_true(mean[i] - (x[i] + y[i] + z[i]) / 3 < 1e-6f);
    for (size_t i = 0; i < n; i++) assert_true((x[i] + y[i] + z[i]) / 3 - mean[i] < 1e-6f);
    let_go(&first);
    let_go(&same);
    let_go(&fewer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_rank_has_its_own_state_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_ranks_share_out_what_there_was, set_up, tear_down),
        cmocka_unit_test_setup_teardown(on_request_all_begin_from_the_mean, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_state_is_noticed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_empty_folder_is_no_error, set_up, tear_down),
        cmocka_unit_test_setup_teardown(windows_of_another_length_begin_anew, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_run_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(replicas_come_back_or_their_mean, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
