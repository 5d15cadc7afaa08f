/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/pool.h"
#include "comm/launcher.h"
#include "comm/state.h"
#include "comm/test_engine.h"

/* Tests begin without a launcher and with an empty log. */
static int set_up(void **state) {
    static const char *const VARIABLES[] = {
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "PMI_RANK", "PMI_SIZE"};
    (void)state;
    for (size_t i = 0; i < sizeof VARIABLES / sizeof *VARIABLES; i++) (void)unsetenv(VARIABLES[i]);
    test_log_keep();
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    test_log_drop();
    test_ranks_per_host(0);
    test_hosts(NULL);
    return 0;
}

/* Runs a function on `size` ranks with communication threads. */
static void run_ranks(int size, test_rank *rank, void *context) {
    const taciti_comm_options options = test_comm_options(true);
    test_world_run(size, &options, rank, context);
}

/* A test that is what ranks do. */
typedef struct on_ranks {
    test_rank *rank;
    int min, max;     /* numbers of ranks */
    bool both;        /* also without communication threads */
    const int *hosts; /* that they claim; NULL: one */
} on_ranks;

static void run_on_ranks(void **state) {
    const on_ranks *on = *state;
    const taciti_comm_options alone = test_comm_options(false);
    if (on->hosts != NULL) test_hosts(on->hosts);
    for (int size = on->min; size <= on->max; size++) {
        run_ranks(size, on->rank, NULL);
        if (on->both) test_world_run(size, &alone, on->rank, NULL);
    }
}

/* A peer that is silent for timeout_s, or keeps others waiting for stall_s, has failed. 0: as by default. */
static void run_limited(int size, bool thread, int timeout_s, int stall_s, test_rank *rank, void *context) {
    taciti_comm_options options = test_comm_options(thread);
    if (timeout_s > 0) options.warn_s = 1, options.timeout_s = timeout_s;
    if (stall_s > 0) options.stall_s = stall_s;
    test_world_run(size, &options, rank, context);
}

/* ---- witness ----------------------------------------------------------------------------------------------------- */
static void notes_keep_number_and_text(void **state) {
    (void)state;
    static taciti_note note;
    int64_t number = -1;
    char text[TACITI_NOTE_BYTES], longer[100];
    taciti_note_read(&note, &number, text);
    assert_int_equal(number, 0);
    assert_string_equal(text, "");
    taciti_note_write(&note, 118, "backward");
    taciti_note_read(&note, &number, text);
    assert_int_equal(number, 118);
    assert_string_equal(text, "backward");
    memset(longer, 'x', sizeof longer);
    longer[99] = 0;
    taciti_note_write(&note, -1, longer);
    taciti_note_read(&note, &number, text);
    assert_int_equal(strlen(text), TACITI_NOTE_BYTES - 1);
    taciti_note_write(&note, 2, "");
    taciti_note_read(&note, &number, text);
    assert_string_equal(text, "");
}

static void *write_notes(void *argument) {
    taciti_note *note = argument;
    for (int i = 1; i <= 20000; i++) {
        char text[TACITI_NOTE_BYTES];
        (void)snprintf(text, sizeof text, "this is a longer text, number %d", i);
        taciti_note_write(note, i, text);
    }
    return NULL;
}

static void notes_are_read_whole_while_written(void **state) {
    (void)state;
    static taciti_note note;
    taciti_note_write(&note, 0, "this is a longer text, number 0");
    pthread_t writer;
    assert_int_equal(pthread_create(&writer, NULL, write_notes, &note), 0);
    for (int64_t number = 0; number < 20000;) {
        char text[TACITI_NOTE_BYTES], expected[TACITI_NOTE_BYTES];
        const uint32_t before = atomic_load(&note.turn);
        taciti_note_read(&note, &number, text);
        (void)snprintf(expected, sizeof expected, "this is a longer text, number %d", (int)number);
        /* The reader gives up after some attempts, because the writer may have died; not so when nothing changed. */
        if (before % 2 == 0 && atomic_load(&note.turn) == before) assert_string_equal(text, expected);
        assert_int_equal(text[TACITI_NOTE_BYTES - 1], 0);
    }
    (void)pthread_join(writer, NULL);
}

static void sights_read_as_sentences(void **state) {
    (void)state;
    char text[TACITI_WITNESS_TEXT_BYTES];
    taciti_sight_text(&(taciti_sight){0}, text);
    assert_string_equal(text, "start-up");
    taciti_sight_text(&(taciti_sight){.step = 118, .doing = "backward", .job = "all-reduce of bucket", .detail = 3},
                      text);
    assert_string_equal(text, "step 118, backward, all-reduce of bucket 3");
    taciti_sight_text(&(taciti_sight){.step = 1, .doing = "wait", .job = "barrier", .detail = -1}, text);
    assert_string_equal(text, "step 1, wait, barrier");
    taciti_sight_text(&(taciti_sight){.step = -1, .doing = "probe", .detail = -1}, text);
    assert_string_equal(text, "probe");
}

/* ---- one process ------------------------------------------------------------------------------------------------- */
static tacit_status note_run(taciti_comm *comm, void *context) {
    (void)comm;
    *(int *)context += 1;
    return TACIT_OK;
}

static void a_single_process_needs_no_launcher(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(true);
    taciti_comm *comm = NULL;
    assert_int_equal(taciti_comm_open(&options, &comm), TACIT_OK);
    assert_int_equal(taciti_comm_size(comm), 1);
    assert_string_equal(taciti_comm_engine(comm)->name, "self");
    assert_int_equal(taciti_comm_peer(comm, 0)->local_size, 1);
    double x = 7;
    int calls = 0, in = 5, out = 0;
    assert_int_equal(taciti_comm_allreduce_f64(comm, &x, 1, TACITI_OP_SUM), TACIT_OK);
    assert_true(x == 7);
    assert_int_equal(taciti_comm_broadcast(comm, 0, &in, sizeof in), TACIT_OK);
    assert_int_equal(taciti_comm_allgather(comm, &in, sizeof in, &out), TACIT_OK);
    assert_int_equal(out, 5);
    assert_int_equal(taciti_comm_barrier(comm), TACIT_OK);
    assert_int_equal(taciti_comm_agree(comm, TACIT_E_IO), TACIT_E_IO);
    taciti_job job = {.run = note_run, .context = &calls, .name = "test", .detail = -1};
    taciti_job_submit(comm, &job);
    assert_true(taciti_job_done(&job));
    assert_int_equal(taciti_job_wait(comm, &job), TACIT_OK);
    assert_int_equal(calls, 1);
    assert_int_equal(taciti_comm_count(comm).messages_sent, 0);
    taciti_comm_close(comm);
    taciti_comm_close(NULL);
}

/* ---- several ranks ----------------------------------------------------------------------------------------------- */
static void collectives(taciti_comm *comm, void *context) {
    (void)context;
    const int size = taciti_comm_size(comm), rank = taciti_comm_rank(comm);
    taciti_comm_announce(comm, 3, "test");
    static const size_t SIZES[] = {0, 1, 4096, 8191, 8192, 8193, 50000};
    for (size_t s = 0; s < sizeof SIZES / sizeof *SIZES; s++) {
        const size_t n = SIZES[s];
        unsigned char *block = taciti_calloc(n + 1, 1), *all = taciti_calloc(n * (size_t)size + 1, 1);
        for (int root = 0; root < size; root++) {
            memset(block, rank == root ? root + 1 : 0, n);
            CHECK(taciti_comm_broadcast(comm, root, block, n) == TACIT_OK);
            for (size_t i = 0; i < n; i++) CHECK(block[i] == root + 1);
        }
        memset(block, rank + 10, n);
        CHECK(taciti_comm_allgather(comm, block, n, all) == TACIT_OK);
        for (size_t i = 0; i < n * (size_t)size; i++) CHECK(all[i] == i / n + 10);
        taciti_free(block);
        taciti_free(all);
    }
    double values[2] = {rank, 1};
    CHECK(taciti_comm_allreduce_f64(comm, values, 2, TACITI_OP_SUM) == TACIT_OK);
    CHECK(values[0] == size * (size - 1) / 2 && values[1] == size);
    double each[3] = {rank, rank, rank};
    CHECK(taciti_comm_allreduce_by(comm, each, 3, (taciti_op[]){TACITI_OP_MAX, TACITI_OP_SUM, TACITI_OP_MIN}) ==
          TACIT_OK);
    CHECK(each[0] == size - 1 && each[1] == size * (size - 1) / 2 && each[2] == 0);
    const bool refuses = rank == size - 1;
    taciti_error_set("%s", refuses ? "no data" : "of before");
    CHECK(taciti_comm_agree(comm, refuses ? TACIT_E_DATA : TACIT_OK) == TACIT_E_DATA);
    CHECK(strstr(taciti_error_text(), "no data") != NULL); /* the reason is known everywhere */
    CHECK(taciti_comm_agree_text(comm, "this", "same") == TACIT_OK);
    int64_t offset_ns = 0;
    CHECK(taciti_comm_clock_offset(comm, &offset_ns) == TACIT_OK);
    CHECK(taciti_comm_barrier(comm) == TACIT_OK);
}

/* Rank 0 sends `sent` bytes to rank 1, which has room for `room`. */
typedef struct letter {
    size_t sent, room;
    bool up_to; /* a shorter one is welcome */
    tacit_status expected;
    size_t arrived;
} letter;

static tacit_status write_letter(taciti_comm *comm, void *context) {
    static const char text[8192];
    const letter *l = context;
    return taciti_comm_send(comm, 1, text, l->sent);
}

static tacit_status read_letter(taciti_comm *comm, void *context) {
    letter *l = context;
    char text[8192] = {0};
    taciti_engine_request request;
    TACITI_TRY((l->up_to ? taciti_comm_irecv_up_to : taciti_comm_irecv)(comm, 0, text, l->room, &request));
    TACITI_TRY(taciti_comm_await(comm, &request));
    l->arrived = request.bytes;
    return TACIT_OK;
}

static void exchange_letter(taciti_comm *comm, void *context) {
    const bool reader = taciti_comm_rank(comm) == 1;
    letter l = *(const letter *)context;
    taciti_job job = {.run = reader ? read_letter : write_letter, .context = &l, .name = "letter", .detail = 7};
    const uint64_t before = taciti_comm_count(comm).bytes_received;
    taciti_job_submit(comm, &job);
    CHECK(taciti_job_wait(comm, &job) == (reader ? l.expected : TACIT_OK));
    if (!reader || l.expected != TACIT_OK) return;
    CHECK(l.arrived == l.sent);
    CHECK(taciti_comm_count(comm).bytes_received - before == l.sent);
}

static void a_receive_up_to_a_bound_tells_and_counts_what_arrived(void **state) {
    (void)state;
    static letter LETTERS[] = {{0, 100, true, TACIT_OK, 0},
                               {60, 100, true, TACIT_OK, 0},
                               {100, 100, true, TACIT_OK, 0},
                               {5000, 8192, true, TACIT_OK, 0},
                               {100, 100, false, TACIT_OK, 0}};
    for (size_t i = 0; i < sizeof LETTERS / sizeof *LETTERS; i++) run_ranks(2, exchange_letter, &LETTERS[i]);
}

/* The reader's communicator is broken afterwards, so the writer must not say goodbye to it. */
static void exchange_bad_letter(taciti_comm *comm, void *context) {
    exchange_letter(comm, context);
    if (taciti_comm_rank(comm) == 0) (void)taciti_comm_break(comm, TACIT_E_PEER);
}

static void a_message_of_another_length_names_rank_and_job(void **state) {
    (void)state;
    letter longer = {101, 100, true, TACIT_E_PEER, 0}, shorter = {99, 100, false, TACIT_E_PEER, 0};
    run_ranks(2, exchange_bad_letter, &longer);
    assert_int_equal(test_log_count("letter 7): a message of more than 100 bytes from rank 0"), 1);
    assert_int_equal(test_log_count("where at most 100 fit"), 1);
    run_ranks(2, exchange_bad_letter, &shorter);
    assert_int_equal(test_log_count("a message of 99 bytes from rank 0"), 1);
}

/* Every rank sends a block to the next one; hosts hold *context ranks each. */
static tacit_status pass_on(taciti_comm *comm, void *context) {
    static char block[1000];
    taciti_engine_request out, in;
    const int rank = taciti_comm_rank(comm), size = taciti_comm_size(comm);
    TACITI_TRY(taciti_comm_irecv(comm, (rank + size - 1) % size, (char *)context, sizeof block, &in));
    TACITI_TRY(taciti_comm_isend(comm, (rank + 1) % size, block, sizeof block, &out));
    TACITI_TRY(taciti_comm_await(comm, &in));
    return taciti_comm_await(comm, &out);
}

static void pass_between_hosts(taciti_comm *comm, void *context) {
    char received[1000];
    const int rank = taciti_comm_rank(comm), size = taciti_comm_size(comm), per_host = *(const int *)context;
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    const taciti_comm_counters before = taciti_comm_count(comm);
    taciti_job job = {.run = pass_on, .context = received, .name = "ring", .detail = -1};
    taciti_job_submit(comm, &job);
    CHECK(taciti_job_wait(comm, &job) == TACIT_OK);
    const taciti_comm_counters after = taciti_comm_count(comm);
    CHECK(after.bytes_sent - before.bytes_sent == 1000 && after.bytes_received - before.bytes_received == 1000);
    CHECK(!taciti_comm_same_host(comm, rank, next) == (next / per_host != rank / per_host));
    CHECK(taciti_comm_hosts(comm)->host_of[rank] == rank / per_host);
    CHECK(after.away_bytes_sent - before.away_bytes_sent == (next / per_host != rank / per_host ? 1000 : 0));
    CHECK(after.away_bytes_received - before.away_bytes_received ==
          (previous / per_host != rank / per_host ? 1000 : 0));
}

static void bytes_between_hosts_are_counted_apart(void **state) {
    (void)state;
    for (int per_host = 1; per_host <= 4; per_host++) {
        test_ranks_per_host(per_host);
        run_ranks(4, pass_between_hosts, &per_host);
    }
}

/* Host 5 holds the ranks 0 and 3, host 2 the ranks 1 and 4, host 7 rank 2. */
static const int THREE_HOSTS[5] = {5, 2, 7, 5, 2};

static void look_at_hosts(taciti_comm *comm, void *context) {
    (void)context;
    static const int HOST_OF[5] = {0, 1, 2, 0, 1}, LOCAL_RANK[5] = {0, 0, 0, 1, 1}, LOCAL_SIZE[5] = {2, 2, 1, 2, 2};
    const taciti_hosts *hosts = taciti_comm_hosts(comm);
    CHECK(hosts->ranks == 5 && hosts->count == 3);
    for (int r = 0; r < 5; r++) {
        CHECK(hosts->host_of[r] == HOST_OF[r]);
        CHECK(taciti_comm_peer(comm, r)->local_rank == LOCAL_RANK[r]);
        CHECK(taciti_comm_peer(comm, r)->local_size == LOCAL_SIZE[r]);
        CHECK(taciti_comm_same_host(comm, 0, r) == (HOST_OF[r] == 0));
    }
}

/* Ranks that nobody binds share the cores of their host; where each has its own, none is divided. */
static void count_cores(taciti_comm *comm, void *context) {
    (void)context;
    const int rank = taciti_comm_rank(comm), sharing = taciti_comm_peer(comm, rank)->local_size;
    CHECK(taciti_comm_cores(comm) == taciti_usable_cores() / sharing);
    for (int r = 0; r < taciti_comm_size(comm); r++) comm->peers[r].cores = (uint64_t)r;
    CHECK(taciti_comm_cores(comm) == taciti_usable_cores());
}

static void differ(taciti_comm *comm, void *context) {
    (void)context;
    const char *mine = taciti_comm_rank(comm) == 2 ? "optim.lr = 3e-4" : "optim.lr = 6e-4";
    CHECK(taciti_comm_agree_text(comm, "the configuration", mine) == TACIT_E_CONFIG);
    CHECK(strstr(taciti_error_text(), "has \"optim.lr = 3e-4\"") != NULL); /* on every rank */
    CHECK(taciti_comm_health(comm) == TACIT_OK);
}

static void a_difference_is_shown_once_with_both_values(void **state) {
    (void)state;
    run_ranks(4, differ, NULL);
    assert_int_equal(test_log_count(""), 1);
    assert_int_equal(test_log_count("rank 0 has \"optim.lr = 6e-4\", rank 2 on host"), 1);
    assert_int_equal(test_log_count("has \"optim.lr = 3e-4\""), 1);
}

static tacit_status refuse_payload(taciti_comm *comm, void *context) {
    (void)comm;
    (void)context;
    return taciti_fail(TACIT_E_DATA, "a payload is malformed");
}

static void wait_for_a_refusal(taciti_comm *comm, void *context) {
    (void)context;
    taciti_job job = {.run = refuse_payload, .name = "test", .detail = 0};
    taciti_job_submit(comm, &job);
    CHECK(taciti_job_wait(comm, &job) == TACIT_E_DATA);
    CHECK(strcmp(taciti_error_text(), "a payload is malformed") == 0);
}

/* Jobs that are handed over and jobs that the caller may run itself, one after the other. */
typedef struct diary {
    int ran, out_of_order, by_caller;
    pthread_t caller;
} diary;

typedef struct entry {
    diary *book;
    int number;
} entry;

static tacit_status write_entry(taciti_comm *comm, void *context) {
    const entry *e = context;
    e->book->out_of_order += e->number != e->book->ran++;
    e->book->by_caller += pthread_equal(pthread_self(), e->book->caller) != 0;
    return taciti_comm_health(comm);
}

enum { DIARY_ROUNDS = 200 };

static void mix_jobs(taciti_comm *comm, void *context) {
    (void)context;
    diary book = {.caller = pthread_self()};
    for (int i = 0; i < DIARY_ROUNDS; i++) {
        entry first = {&book, 2 * i}, second = {&book, 2 * i + 1};
        taciti_job queued = {.run = write_entry, .context = &first, .name = "queued", .detail = -1};
        taciti_job run = {.run = write_entry, .context = &second, .name = "run", .detail = -1};
        taciti_job_submit(comm, &queued);
        if (i % 2 == 0) CHECK(taciti_job_wait(comm, &queued) == TACIT_OK);
        if (i % 10 == 0) taciti_sleep_ns(TACITI_NS_PER_MS); /* let the communication thread fall asleep */
        CHECK(taciti_job_run(comm, &run) == TACIT_OK && taciti_job_done(&run));
        if (i % 2 != 0) CHECK(taciti_job_wait(comm, &queued) == TACIT_OK);
        CHECK(taciti_comm_barrier(comm) == TACIT_OK);
    }
    CHECK(book.ran == 2 * DIARY_ROUNDS && book.out_of_order == 0 && book.by_caller > 0);
}

/* A job that uses the communicator as the submitting thread does. */
static tacit_status submit_more(taciti_comm *comm, void *context) {
    diary book = {.caller = pthread_self()};
    entry first = {&book, 0}, second = {&book, 1};
    taciti_job submitted = {.run = write_entry, .context = &first, .name = "submitted", .detail = -1};
    taciti_job run = {.run = write_entry, .context = &second, .name = "run", .detail = -1};
    double *ranks = context;
    taciti_job_submit(comm, &submitted);
    CHECK(taciti_job_done(&submitted));
    CHECK(taciti_job_wait(comm, &submitted) == TACIT_OK && taciti_job_run(comm, &run) == TACIT_OK);
    CHECK(book.ran == 2 && book.out_of_order == 0 && book.by_caller == 2);
    return taciti_comm_allreduce_f64(comm, ranks, 1, TACITI_OP_SUM);
}

static void wait_for_outer_jobs(taciti_comm *comm, void *context) {
    double ranks[2] = {1, 1};
    taciti_job queued = {.run = submit_more, .context = &ranks[0], .name = "queued", .detail = -1};
    taciti_job run = {.run = submit_more, .context = &ranks[1], .name = "run", .detail = -1};
    (void)context;
    taciti_job_submit(comm, &queued);
    const tacit_status at_once = taciti_job_wait_for(comm, &queued, 0);
    CHECK(at_once == TACIT_OK || at_once == TACIT_PENDING);
    CHECK(taciti_job_wait_for(comm, &queued, 60) == TACIT_OK);
    CHECK(taciti_job_run(comm, &run) == TACIT_OK);
    CHECK(ranks[0] == taciti_comm_size(comm) && ranks[1] == taciti_comm_size(comm));
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */
/* Rank 2, or the last one, does nothing until the others have given it up. Without a communication thread it is silent.
 */
static void fall_silent(taciti_comm *comm, void *context) {
    _Atomic int *gave_up = context;
    const int size = taciti_comm_size(comm);
    taciti_comm_announce(comm, 118, "backward");
    CHECK(taciti_comm_barrier(comm) == TACIT_OK);
    for (int i = 0; i < 30; i++) { /* beats, so that the others learn what was announced */
        taciti_sleep_ns(20 * TACITI_NS_PER_MS);
        CHECK(taciti_comm_barrier(comm) == TACIT_OK);
    }
    if (taciti_comm_rank(comm) == (size > 2 ? 2 : 1))
        while (atomic_load(gave_up) < size - 1) taciti_sleep_ns(TACITI_NS_PER_MS);
    CHECK(taciti_comm_barrier(comm) == TACIT_E_PEER);
    CHECK(taciti_comm_health(comm) == TACIT_E_PEER);
    CHECK(taciti_comm_barrier(comm) == TACIT_E_PEER); /* and stays so */
    atomic_fetch_add(gave_up, 1);
}

static void a_silent_rank_is_named_once_and_ends_every_wait(void **state) {
    (void)state;
    for (int size = 3; size <= 5; size++) {
        _Atomic int gave_up = 0;
        test_log_keep(); /* drops the lines of the run before */
        run_limited(size, false, 2, 0, fall_silent, &gave_up);
        assert_int_equal(test_log_count("stopped answering"), 1);
        assert_int_equal(test_log_count("rank 2 on host"), 2); /* the warning and the verdict */
        assert_int_equal(test_log_count("has been silent for"), 1);
        assert_true(test_log_count("last seen in step 118, backward") == 2);
    }
}

static void a_rank_that_beats_but_does_not_come_is_named(void **state) {
    (void)state;
    _Atomic int gave_up = 0;
    run_limited(2, true, 0, 1, fall_silent, &gave_up);
    assert_int_equal(test_log_count("rank 1 on host"), 1);
    assert_int_equal(test_log_count("is alive but has kept rank 0 waiting"), 1);
    assert_int_equal(test_log_count("barrier; last seen in step 118, backward"), 1);
}

/* A job that does not come back, as a library call that hangs. */
static tacit_status hang(taciti_comm *comm, void *context) {
    (void)comm;
    while (atomic_load((_Atomic int *)context) == 0) taciti_sleep_ns(TACITI_NS_PER_MS);
    return TACIT_OK;
}

/* Nothing keeps a job whose memory ends here. */
static void submit_after_the_failure(taciti_comm *comm) {
    taciti_job late = {.run = hang, .name = "late", .detail = -1};
    taciti_job_submit(comm, &late);
    CHECK(taciti_job_done(&late) && taciti_job_wait(comm, &late) == TACIT_E_PEER);
}

static void hang_rank_one(taciti_comm *comm, void *context) {
    _Atomic int *go_on = context;
    taciti_job job = {.run = hang, .context = context, .name = "all-reduce of bucket", .detail = 3};
    if (taciti_comm_rank(comm) != 1) {
        CHECK(taciti_comm_barrier(comm) == TACIT_E_PEER);
        return;
    }
    taciti_job_submit(comm, &job);
    CHECK(taciti_job_wait(comm, &job) == TACIT_E_PEER);
    CHECK(taciti_comm_health(comm) == TACIT_E_PEER);
    submit_after_the_failure(comm);
    atomic_fetch_add(go_on, 1);
    while (!taciti_job_done(&job)) taciti_sleep_ns(TACITI_NS_PER_MS);
}

static void a_hanging_engine_ends_the_wait_too(void **state) {
    (void)state;
    _Atomic int go_on = 0;
    run_limited(2, true, 2, 0, hang_rank_one, &go_on);
    const int named = test_log_count("rank 1 on host");
    assert_true(test_log_count("has not returned for 2.0 s in all-reduce of bucket 3") + named > 0);
}

/* While rank 0 works for itself with the engine, another thread queues a job: it runs as soon as the engine is free. */
typedef struct relay {
    taciti_comm *comm;
    taciti_job queued;
    pthread_t thread, runner; /* runner: of the first job */
} relay;

static void *queue_behind(void *argument) {
    relay *r = argument;
    taciti_job_submit(r->comm, &r->queued);
    return NULL;
}

static tacit_status hold_engine(taciti_comm *comm, void *context) {
    relay *r = context;
    (void)comm;
    r->runner = pthread_self();
    CHECK(pthread_create(&r->thread, NULL, queue_behind, r) == 0);
    (void)pthread_join(r->thread, NULL);
    taciti_sleep_ns(10 * TACITI_NS_PER_MS);
    return TACIT_OK;
}

static void relay_jobs(taciti_comm *comm, void *context) {
    int64_t *best_ns = context;
    for (int i = 0; i < 10 && taciti_comm_rank(comm) == 0; i++) {
        relay r = {.comm = comm, .queued = {.run = note_run, .context = &(int){0}, .name = "queued", .detail = -1}};
        taciti_job first = {.run = hold_engine, .context = &r, .name = "first", .detail = -1};
        taciti_sleep_ns(5 * TACITI_NS_PER_MS); /* let the communication thread fall asleep */
        CHECK(taciti_job_run(comm, &first) == TACIT_OK && taciti_job_wait(comm, &r.queued) == TACIT_OK);
        const int64_t late_ns = r.queued.begin_ns - first.end_ns;
        if (late_ns < *best_ns && pthread_equal(r.runner, pthread_self()) != 0) *best_ns = late_ns;
    }
    CHECK(taciti_comm_barrier(comm) == TACIT_OK);
}

static void a_queued_job_begins_when_the_engine_is_free(void **state) {
    (void)state;
    int64_t best_ns = INT64_MAX;
    run_ranks(2, relay_jobs, &best_ns);
    assert_true(best_ns < 50 * TACITI_NS_PER_MS);
}

/* A close does not wait for a job that hangs, and names it. */
static void close_with_a_job(taciti_comm *comm, void *context) {
    _Atomic int *go_on = context;
    taciti_job job = {.run = hang, .context = context, .name = "all-reduce", .detail = 3};
    taciti_sight sight = {.job = ""};
    if (taciti_comm_rank(comm) != 0) return;
    taciti_job_submit(comm, &job);
    while (sight.job[0] == 0) taciti_witness_look(atomic_load(&comm->witness), &sight);
    CHECK(taciti_comm_close(comm) == TACIT_E_PEER);
    CHECK(strstr(taciti_error_text(), "the communication thread does not return from all-reduce") != NULL);
    atomic_store(go_on, 1);
    CHECK(taciti_job_wait(comm, &job) == TACIT_OK);
}

static void a_job_that_hangs_is_named_by_the_close(void **state) {
    (void)state;
    _Atomic int go_on = 0;
    run_ranks(2, close_with_a_job, &go_on);
    assert_int_equal(test_log_count("leaving without it"), 1);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
#define ON(name, ...)                                                                                                  \
    {                                                                                                                  \
#name, run_on_ranks, set_up, tear_down, &(on_ranks) { __VA_ARGS__ }                                            \
    }
    const struct CMUnitTest tests[] = {
        TEST(notes_keep_number_and_text),
        TEST(notes_are_read_whole_while_written),
        TEST(sights_read_as_sentences),
        TEST(a_single_process_needs_no_launcher),
        ON(collectives_hold_for_any_number_of_ranks, collectives, 1, 8, true, NULL),
        TEST(a_receive_up_to_a_bound_tells_and_counts_what_arrived),
        TEST(a_message_of_another_length_names_rank_and_job),
        TEST(bytes_between_hosts_are_counted_apart),
        ON(hosts_are_numbered_by_their_lowest_ranks, look_at_hosts, 5, 5, false, THREE_HOSTS),
        ON(bound_ranks_divide_no_cores, count_cores, 5, 5, false, THREE_HOSTS),
        TEST(a_difference_is_shown_once_with_both_values),
        ON(who_waits_for_a_job_knows_why_it_failed, wait_for_a_refusal, 2, 2, false, NULL),
        ON(the_caller_runs_what_it_would_only_wait_for, mix_jobs, 2, 3, true, NULL),
        ON(jobs_may_submit_jobs, wait_for_outer_jobs, 1, 3, true, NULL),
        TEST(a_silent_rank_is_named_once_and_ends_every_wait),
        TEST(a_rank_that_beats_but_does_not_come_is_named),
        TEST(a_hanging_engine_ends_the_wait_too),
        TEST(a_queued_job_begins_when_the_engine_is_free),
        TEST(a_job_that_hangs_is_named_by_the_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
