/* SPDX-License-Identifier: Apache-2.0
 *
 * Collective calls in which one rank alone is wrong: all ranks refuse together, the text names the rank, and the next
 * call of the communicator works; and starts in an order of its own.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <math.h>

#include "api/test_jobs.h"
#include "base/clock.h"
#include "ckpt/test_folder.h"
#include "kernel/kernel.h"

enum { RANKS = 3, WRONG = 1 }; /* the rank that is wrong */

/* The text of the others begins with the rank that has refused. */
static void expect_refusal(tacit_comm *comm, tacit_status got, tacit_status want, const char *text) {
    const bool wrong = tacit_rank(comm) == WRONG;
    REFUSED(got, want, text);
    CHECK(wrong || strncmp(tacit_error_text(), "rank 1: ", 8) == 0);
    CHECK(comm->jobs == 0);
}

static void play(test_rank *rank) {
    const taciti_comm_options options = test_comm_options(true);
    test_world_run(RANKS, &options, rank, NULL);
}

static void end_job(tacit_comm *comm) {
    tacit_job *job = open_job(comm, &(test_job){.own = true});
    OK(tacit_job_start(job));
    OK(tacit_job_close(job));
    taciti_handle_close(&comm->handle);
}

/* ---- arguments --------------------------------------------------------------------------------------------------- */

static void open_wrong_jobs(taciti_comm *comm, void *context) {
    tacit_comm seat;
    tacit_settings *settings = NULL;
    tacit_job *job = NULL;
    tacit_layout *layout = create_layout();
    (void)context;
    (void)seat_of(comm, &seat);
    const bool wrong = taciti_comm_rank(comm) == WRONG;
    float *odd = taciti_calloc(MAX_FLOATS + 1, sizeof *odd);
    const tacit_job_options right = {.size = sizeof right}, sizeless = {.steps = 1},
                            unaligned = {.size = sizeof unaligned, .gradients = odd + 1};
    OK(tacit_settings_create(&settings));
    expect_refusal(&seat, tacit_job_open(&seat, wrong ? NULL : settings, layout, &right, &job), TACIT_E_USAGE,
                   "tacit_settings is NULL");
    expect_refusal(&seat, tacit_job_open(&seat, settings, wrong ? NULL : layout, &right, &job), TACIT_E_USAGE,
                   "tacit_layout is NULL");
    expect_refusal(&seat, tacit_job_open(&seat, settings, layout, wrong ? &sizeless : &right, &job), TACIT_E_USAGE,
                   "tacit_job_options: its size is 0");
    expect_refusal(&seat, tacit_job_open(&seat, settings, layout, &right, wrong ? NULL : &job), TACIT_E_USAGE,
                   "the argument out is NULL");
    expect_refusal(&seat, tacit_job_open(&seat, settings, layout, wrong ? &unaligned : &right, &job), TACIT_E_USAGE,
                   "does not begin at a multiple of 64 bytes");
    CHECK(job == NULL);
    tacit_layout_destroy(layout);
    tacit_settings_destroy(settings);
    taciti_free(odd);
    end_job(&seat);
}

static void a_wrong_argument_of_a_job_is_refused_by_all(void **state) {
    (void)state;
    play(open_wrong_jobs);
}

static void open_wrong_channels(taciti_comm *comm, void *context) {
    tacit_comm seat;
    tacit_settings *settings = NULL;
    tacit_channel *channel = NULL;
    (void)context;
    (void)seat_of(comm, &seat);
    const bool wrong = taciti_comm_rank(comm) == WRONG;
    OK(tacit_settings_create(&settings));
    expect_refusal(&seat, tacit_channel_open(&seat, wrong ? NULL : settings, TACIT_ALL_REDUCE, 9, &channel),
                   TACIT_E_USAGE, "tacit_settings is NULL");
    expect_refusal(&seat, tacit_channel_open(&seat, settings, (tacit_collective)(wrong ? 3 : 0), 9, &channel),
                   TACIT_E_USAGE, "3 is no collective");
    expect_refusal(&seat, tacit_channel_open(&seat, settings, TACIT_ALL_REDUCE, 9, wrong ? NULL : &channel),
                   TACIT_E_USAGE, "the argument out is NULL");
    CHECK(channel == NULL);
    tacit_settings_destroy(settings);
    end_job(&seat);
}

static void a_wrong_argument_of_a_channel_is_refused_by_all(void **state) {
    (void)state;
    play(open_wrong_channels);
}

/* ---- sizes that no machine has ----------------------------------------------------------------------------------- */

static void open_absurd_sizes(taciti_comm *comm, void *context) {
    static const size_t FLOATS[] = {(size_t)1 << 40, (size_t)1 << 42};
    tacit_comm seat;
    tacit_settings *settings = NULL;
    tacit_job *job = NULL;
    tacit_channel *channel = NULL;
    (void)context;
    (void)seat_of(comm, &seat);
    OK(tacit_settings_create(&settings));
    for (size_t i = 0; i < sizeof FLOATS / sizeof *FLOATS; i++) {
        const size_t n = taciti_comm_rank(comm) == WRONG ? FLOATS[i] : 16;
        tacit_layout *layout = NULL;
        OK(tacit_layout_create(&layout));
        OK(tacit_layout_add(layout, "all", 1, &n, 0));
        for (int only = 0; only < 2; only++) {
            const tacit_job_options options = {.size = sizeof options, .gradients_only = only == 1};
            expect_refusal(&seat, tacit_job_open(&seat, settings, layout, &options, &job), TACIT_E_MEMORY,
                           "a job: 3 ranks of host ");
        }
        tacit_layout_destroy(layout);
        expect_refusal(&seat, tacit_channel_open(&seat, settings, TACIT_ALL_REDUCE, n, &channel), TACIT_E_MEMORY,
                       "a channel: 3 ranks of host ");
    }
    const size_t n = taciti_comm_rank(comm) == WRONG ? SIZE_MAX : 16;
    expect_refusal(&seat, tacit_channel_open(&seat, settings, TACIT_ALL_REDUCE, n, &channel), TACIT_E_MEMORY,
                   "a channel: 3 ranks of host ");
    tacit_settings_destroy(settings);
    end_job(&seat);
}

static void sizes_that_no_machine_has_are_refused_by_all(void **state) {
    (void)state;
    play(open_absurd_sizes);
}

/* ---- layouts ----------------------------------------------------------------------------------------------------- */

enum { PLAIN, NAME, SHAPE, DECAY, UNIT, FEWER, MORE, DIFFERENCES };

/* Twenty tensors, of which the 13th is different, or the number. */
static tacit_layout *create_other_layout(int difference) {
    tacit_layout *layout = NULL;
    OK(tacit_layout_create(&layout));
    for (int t = 0; t < (difference == FEWER ? 13 : difference == MORE ? 21 : 20); t++) {
        char name[32];
        const bool here = t == 13;
        const size_t shape[2] = {3, here && difference == SHAPE ? 5 : 4};
        (void)snprintf(name, sizeof name, here && difference == NAME ? "b%d.bias" : "b%d.weight", t);
        if (here && difference == UNIT) OK(tacit_layout_next_unit(layout));
        OK(tacit_layout_add(layout, name, 2, shape, here && difference == DECAY ? TACIT_DECAY : 0));
    }
    return layout;
}

static void open_other_layouts(taciti_comm *comm, void *context) {
    static const char *const TEXTS[DIFFERENCES][2] = {
        [NAME] = {"tensor 13 (b13.weight) differs: rank 0 has \"b13.weight [3][4]", "rank 1 on host"},
        [SHAPE] = {"tensor 13 (b13.weight) differs: rank 0 has \"b13.weight [3][4]", "has \"b13.weight [3][5]"},
        [DECAY] = {"tensor 13 (b13.weight) differs: rank 0 has \"", "in unit 0, with decay\""},
        [UNIT] = {"tensor 13 (b13.weight) differs: rank 0 has \"b13.weight [3][4] in unit 0",
                  "b13.weight [3][4] in unit 1"},
        [FEWER] = {"tensor 13 (b13.weight) differs: rank 0 has \"b13.weight [3][4]", "has \"none: 13 tensors"},
        [MORE] = {"tensor 20 differs: rank 0 has \"none: 20 tensors", "has \"b20.weight [3][4]"}};
    tacit_comm seat;
    tacit_settings *settings = NULL;
    tacit_job *job = NULL;
    (void)context;
    OK(tacit_settings_create(&settings));
    (void)seat_of(comm, &seat);
    for (int d = NAME; d < DIFFERENCES; d++) {
        tacit_layout *layout = create_other_layout(taciti_comm_rank(comm) == WRONG ? d : PLAIN);
        REFUSED(tacit_job_open(&seat, settings, layout, NULL, &job), TACIT_E_CONFIG, TEXTS[d][0]);
        CHECK(strstr(tacit_error_text(), TEXTS[d][1]) != NULL && seat.jobs == 0);
        tacit_layout_destroy(layout);
    }
    /* Settings that follow from the tensors, such as a size of buckets, are not what is wrong. */
    const bool wrong = taciti_comm_rank(comm) == WRONG;
    tacit_layout *layout = create_other_layout(wrong ? SHAPE : PLAIN);
    OK(tacit_settings_set(settings, wrong ? "exchange.bucket=2MiB" : "exchange.bucket=1MiB"));
    REFUSED(tacit_job_open(&seat, settings, layout, NULL, &job), TACIT_E_CONFIG, TEXTS[SHAPE][0]);
    tacit_layout_destroy(layout);
    tacit_settings_destroy(settings);
    end_job(&seat);
}

static void the_first_tensor_that_differs_is_named(void **state) {
    (void)state;
    play(open_other_layouts);
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

/* Rank 1 starts the second channel first. Their lengths are the same, and so would be all messages. */
static void start_in_another_order(taciti_comm *comm, void *context) {
    static _Atomic int ended;
    float x[2][9] = {{0}};
    tacit_comm seat;
    tacit_settings *settings = NULL;
    tacit_channel *channels[2] = {NULL, NULL};
    const bool wrong = taciti_comm_rank(comm) == WRONG;
    (void)context;
    OK(tacit_settings_create(&settings));
    (void)seat_of(comm, &seat);
    for (int i = 0; i < 2; i++) OK(tacit_channel_open(&seat, settings, TACIT_ALL_REDUCE, 9, &channels[i]));
    for (int i = 0; i < 2; i++) {
        const int which = wrong ? 1 - i : i;
        const tacit_status started = tacit_channel_start(channels[which], x[which], x[which], TACIT_F32, 1);
        CHECK(started == TACIT_OK || (i == 1 && started == TACIT_E_PEER));
    }
    CHECK(tacit_channel_wait(channels[wrong ? 1 : 0], (double)INFINITY) == TACIT_E_PEER);
    if (strstr(tacit_error_text(), "is alive") != NULL)
        CHECK(strstr(tacit_error_text(), "all-reduce of channel 1") != NULL &&
              strstr(tacit_error_text(), "all-reduce of channel 2") != NULL);
    for (ended++; ended < 2;) taciti_sleep_ns(TACITI_NS_PER_MS); /* nobody frees what the other may still write to */
    for (int i = 0; i < 2; i++) CHECK(tacit_channel_close(channels[i]) == TACIT_E_PEER);
    tacit_settings_destroy(settings);
    taciti_handle_close(&seat.handle);
}

static void channels_in_another_order_are_noticed(void **state) {
    (void)state;
    taciti_comm_options options = test_comm_options(true);
    options.stall_s = 1;
    test_log_keep();
    test_world_run(2, &options, start_in_another_order, NULL);
    assert_true(test_log_count("is alive but has kept rank ") >= 1);
    assert_int_equal(test_log_count("all-reduce of channel 1"), test_log_count(""));
    assert_int_equal(test_log_count("all-reduce of channel 2"), test_log_count(""));
    test_log_drop();
}

/* A rank says another size of what is shared: which rank writes what follows from sizes. */
static void save_other_blobs(taciti_comm *comm, void *context) {
    tacit_comm seat;
    char bytes[8] = "kept";
    const char *folder = context;
    tacit_job *job = open_job(seat_of(comm, &seat), &(test_job){.own = true});
    const bool wrong = taciti_comm_rank(comm) == WRONG;
    tacit_blob blobs[2] = {{.size = sizeof *blobs, .name = "kept", .bytes = bytes, .count = wrong ? 4 : 8},
                           {.size = sizeof *blobs, .name = "own", .bytes = bytes, .count = wrong ? 4 : 8, .own = true}};
    OK(tacit_job_start(job));
    REFUSED(tacit_job_save(job, folder, 1, blobs, 2), TACIT_E_CONFIG, "blob kept differs: rank 0 has \"8 bytes");
    REFUSED(tacit_job_save(job, folder, 1, blobs, wrong ? 2 : 1), TACIT_E_CONFIG, "number of blobs differs");
    OK(tacit_job_save(job, folder, 1, &blobs[1], 1));
    OK(tacit_job_close(job));
    taciti_handle_close(&seat.handle);
}

static void a_blob_of_another_size_is_refused_by_all(void **state) {
    const taciti_comm_options options = test_comm_options(true);
    test_path folder = folder_create();
    (void)state;
    test_log_keep();
    test_world_run(RANKS, &options, save_other_blobs, folder.text);
    test_log_drop();
    folder_remove(&folder);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static void make_steps(tacit_job *job, int count) {
    for (int step = 0; step < count; step++) {
        OK(tacit_job_ready(job, TACIT_ALL_TENSORS));
        OK(tacit_job_settle(job, NULL));
        OK(tacit_job_stepped(job));
    }
}

/* Nobody waits in a step: all refuse, and go on when the rank has come. */
static void meet_after_other_steps(taciti_comm *comm, void *context) {
    static const char LATE[] = "ranks meet after different numbers of steps: 3 and, on rank 1, 2;";
    static const char *const STRATEGIES[] = {"strategy=none", "strategy=localsgd"};
    const char *folder = context;
    for (size_t i = 0; i < sizeof STRATEGIES / sizeof *STRATEGIES; i++) {
        tacit_comm seat;
        tacit_job *job = open_job(seat_of(comm, &seat), &(test_job){.settings = {STRATEGIES[i]}, .own = true});
        const bool wrong = taciti_comm_rank(comm) == WRONG;
        OK(tacit_job_start(job));
        make_steps(job, wrong ? 2 : 3);
        REFUSED(tacit_job_average(job, NULL), TACIT_E_USAGE, LATE);
        REFUSED(tacit_job_save(job, folder, 1, NULL, 0), TACIT_E_USAGE, LATE);
        make_steps(job, wrong ? 1 : 0);
        OK(tacit_job_average(job, NULL));
        OK(tacit_job_save(job, folder, 1, NULL, 0));
        OK(tacit_job_close(job));
        taciti_handle_close(&seat.handle);
    }
}

/* The others wait in a step. */
static void save_instead_of_a_step(taciti_comm *comm, void *context) {
    static _Atomic int ended;
    tacit_comm seat;
    tacit_job *job = open_job(seat_of(comm, &seat), &(test_job){.settings = {"strategy=dp"}, .own = true});
    const bool wrong = taciti_comm_rank(comm) == WRONG;
    OK(tacit_job_start(job));
    make_steps(job, 2);
    if (!wrong) (void)tacit_job_ready(job, TACIT_ALL_TENSORS);
    REFUSED(wrong ? tacit_job_save(job, context, 1, NULL, 0) : tacit_job_settle(job, NULL), TACIT_E_PEER,
            "ranks do different things: rank 0 on host ");
    CHECK(strstr(tacit_error_text(), " in step 2, checkpoint, all-reduce of numbers; all ranks must") != NULL);
    for (ended++; ended < RANKS;) taciti_sleep_ns(TACITI_NS_PER_MS); /* nobody frees what others may still write to */
    CHECK(tacit_job_close(job) == TACIT_E_PEER);
    taciti_handle_close(&seat.handle);
}

static void different_numbers_of_steps_are_told_to_all(void **state) {
    const taciti_comm_options options = test_comm_options(true);
    test_path folder = folder_create();
    (void)state;
    test_log_keep();
    test_world_run(RANKS, &options, meet_after_other_steps, folder.text);
    assert_int_equal(test_log_count("different numbers of steps"), 4);
    test_world_run(RANKS, &options, save_instead_of_a_step, folder.text);
    test_log_drop();
    folder_remove(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_argument_of_a_job_is_refused_by_all),
        cmocka_unit_test(a_wrong_argument_of_a_channel_is_refused_by_all),
        cmocka_unit_test(sizes_that_no_machine_has_are_refused_by_all),
        cmocka_unit_test(the_first_tensor_that_differs_is_named),
        cmocka_unit_test(channels_in_another_order_are_noticed),
        cmocka_unit_test(a_blob_of_another_size_is_refused_by_all),
        cmocka_unit_test(different_numbers_of_steps_are_told_to_all),
    };
    (void)taciti_kernels_get(); /* the first call must come from a single thread */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
