/* SPDX-License-Identifier: Apache-2.0
 *
 * The small collectives under a real launcher: exact results, the same bits on every rank, every root, sizes around the
 * segment.
 */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "check.h"

static void peers_are_known(taciti_comm *comm) {
    int local = 0;
    for (int r = 0; r < taciti_comm_size(comm); r++) {
        const taciti_peer *peer = taciti_comm_peer(comm, r);
        CHECK(peer->rank == r && peer->pid > 0 && peer->host[0] != 0);
        CHECK(peer->local_rank < peer->local_size);
        local += strcmp(peer->host, taciti_comm_peer(comm, g_rank)->host) == 0;
    }
    CHECK(local == taciti_comm_peer(comm, g_rank)->local_size);
    CHECK(taciti_comm_peer(comm, g_rank)->pid == getpid());
}

static void reductions_are_exact_and_equal(taciti_comm *comm) {
    const int size = taciti_comm_size(comm);
    double sum[3] = {g_rank + 1, -1, 0.1 * g_rank}, max = g_rank, min = g_rank,
           nan = g_rank == size / 2 ? (double)NAN : 1;
    CHECK(taciti_comm_allreduce_f64(comm, sum, 3, TACITI_OP_SUM) == TACIT_OK);
    CHECK(taciti_comm_allreduce_f64(comm, &max, 1, TACITI_OP_MAX) == TACIT_OK);
    CHECK(taciti_comm_allreduce_f64(comm, &min, 1, TACITI_OP_MIN) == TACIT_OK);
    CHECK(taciti_comm_allreduce_f64(comm, &nan, 1, TACITI_OP_MAX) == TACIT_OK);
    CHECK(taciti_comm_allreduce_f64(comm, sum, 0, TACITI_OP_SUM) == TACIT_OK);
    CHECK(sum[0] == size * (size + 1) / 2 && sum[1] == -size && max == size - 1 && min == 0 && isnan(nan));
    double *all = taciti_calloc((size_t)size, sizeof sum);
    CHECK(taciti_comm_allgather(comm, sum, sizeof sum, all) == TACIT_OK);
    for (int r = 0; r < size; r++) CHECK(memcmp(all + 3 * r, sum, sizeof sum) == 0);
    taciti_free(all);
}

static void every_root_broadcasts_every_size(taciti_comm *comm) {
    const size_t sizes[] = {0, 1, 1000, (1 << 16) - 1, 1 << 16, (1 << 16) + 1, 5 * (1 << 16) + 3};
    unsigned char *block = taciti_calloc(6u << 16, 1);
    for (int root = 0; root < taciti_comm_size(comm); root++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            memset(block, 0xee, 6u << 16);
            for (size_t i = 0; i < sizes[s] && g_rank == root; i++) block[i] = (unsigned char)(i * 7 + (size_t)root);
            CHECK(taciti_comm_broadcast(comm, root, block, sizes[s]) == TACIT_OK);
            for (size_t i = 0; i < sizes[s]; i++) CHECK(block[i] == (unsigned char)(i * 7 + (size_t)root));
            CHECK(block[sizes[s]] == 0xee);
        }
    taciti_free(block);
}

static void gathers_keep_rank_order(taciti_comm *comm) {
    const size_t sizes[] = {0, 1, 100, (1 << 16) + 1, 3 * (1 << 16)};
    const size_t size = (size_t)taciti_comm_size(comm), max = 3 * (1 << 16);
    unsigned char *mine = taciti_calloc(max, 1), *all = taciti_calloc(size, max);
    memset(mine, g_rank + 1, max);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        CHECK(taciti_comm_allgather(comm, mine, sizes[s], all) == TACIT_OK);
        for (size_t r = 0; r < size; r++)
            for (size_t i = 0; i < sizes[s]; i += 97) CHECK(all[r * sizes[s] + i] == r + 1);
    }
    taciti_free(mine);
    taciti_free(all);
}

static void agreement_takes_the_worst(taciti_comm *comm) {
    const int last = taciti_comm_size(comm) - 1;
    CHECK(taciti_comm_agree(comm, TACIT_OK) == TACIT_OK);
    CHECK(taciti_comm_agree(comm, g_rank == last ? TACIT_E_DATA : TACIT_OK) == TACIT_E_DATA);
    CHECK(taciti_comm_agree_text(comm, "the seed", "seed 7") == TACIT_OK);
    taciti_log_set_sink(NULL, NULL, TACITI_LOG_ERROR);
    char text[5000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = 0;
    text[4000] = g_rank == last && last > 0 ? 'y' : 'x';
    CHECK(taciti_comm_agree_text(comm, "the seed", text) == (last > 0 ? TACIT_E_CONFIG : TACIT_OK));
    taciti_log_set_sink(print_line, NULL, TACITI_LOG_INFO);
    CHECK(taciti_comm_barrier(comm) == TACIT_OK);
    CHECK(taciti_comm_health(comm) == TACIT_OK);
}

static tacit_status count_up(taciti_comm *comm, void *context) {
    (void)comm;
    ++*(int *)context;
    return *(int *)context == 77 ? TACIT_E_NUMERICS : TACIT_OK;
}

static void jobs_run_in_order_and_keep_their_status(taciti_comm *comm) {
    enum { JOBS = 3000 };
    static taciti_job jobs[JOBS];
    int calls = 0;
    for (int i = 0; i < JOBS; i++) {
        jobs[i] = (taciti_job){.run = count_up, .context = &calls, .name = "count", .detail = i};
        taciti_job_submit(comm, &jobs[i]);
    }
    for (int i = 0; i < JOBS; i++) CHECK(taciti_job_wait(comm, &jobs[i]) == (i == 76 ? TACIT_E_NUMERICS : TACIT_OK));
    CHECK(calls == JOBS);
}

static void counters_count_payload(taciti_comm *comm) {
    char block[1000] = {0};
    const taciti_comm_counters before = taciti_comm_count(comm);
    CHECK(taciti_comm_broadcast(comm, 0, block, sizeof block) == TACIT_OK);
    const taciti_comm_counters after = taciti_comm_count(comm);
    double sums[2] = {(double)(after.bytes_sent - before.bytes_sent),
                      (double)(after.bytes_received - before.bytes_received)};
    CHECK(taciti_comm_allreduce_f64(comm, sums, 2, TACITI_OP_SUM) == TACIT_OK);
    CHECK(sums[0] == 1000.0 * (taciti_comm_size(comm) - 1) && sums[1] == sums[0]);
    int64_t offset_ns = 1;
    CHECK(taciti_comm_clock_offset(comm, &offset_ns) == TACIT_OK);
    CHECK(g_rank != 0 || offset_ns == 0);
}

/* One message around the ring, of another length on every rank. */
enum { ROOM = 300000 };
static size_t length_of(int rank) { return rank % 3 == 0 ? 0 : rank % 3 == 1 ? 1000 : 200000; }

static tacit_status pass_lengths(taciti_comm *comm, void *context) {
    static char out[ROOM];
    taciti_engine_request sent, received;
    const int size = taciti_comm_size(comm), before = (g_rank + size - 1) % size;
    TACITI_TRY(taciti_comm_irecv_up_to(comm, before, context, ROOM, &received));
    TACITI_TRY(taciti_comm_isend(comm, (g_rank + 1) % size, out, length_of(g_rank), &sent));
    TACITI_TRY(taciti_comm_await(comm, &received));
    CHECK(received.bytes == length_of(before));
    return taciti_comm_await(comm, &sent);
}

static void a_receive_tells_what_arrived(taciti_comm *comm) {
    const int size = taciti_comm_size(comm);
    static char room[ROOM];
    taciti_job job = {.run = pass_lengths, .context = room, .name = "lengths", .detail = -1};
    if (size == 1) return;
    const uint64_t before = taciti_comm_count(comm).bytes_received;
    taciti_job_submit(comm, &job);
    CHECK(taciti_job_wait(comm, &job) == TACIT_OK);
    CHECK(taciti_comm_count(comm).bytes_received - before == length_of((g_rank + size - 1) % size));
}

static tacit_status send_too_much(taciti_comm *comm, void *context) {
    static char block[ROOM];
    const int64_t bytes = *(const int64_t *)context;
    return g_rank == 0 ? taciti_comm_receive(comm, 1, block, 100) : taciti_comm_send(comm, 0, block, (size_t)bytes);
}

/* Ends the job. */
static void a_message_that_does_not_fit_is_refused(taciti_comm *comm, int64_t bytes) {
    taciti_job job = {.run = send_too_much, .context = &bytes, .name = "overlong", .detail = 3};
    taciti_job_submit(comm, &job);
    const tacit_status status = taciti_job_wait(comm, &job);
    CHECK(status == (g_rank == 0 ? TACIT_E_PEER : TACIT_OK));
    if (g_rank == 0) taciti_comm_abort(comm, status);
    for (;;) (void)pause();
}

int main(void) {
    taciti_comm *comm = open_comm();
    taciti_comm_announce(comm, 1, "test");
    peers_are_known(comm);
    const char *overlong = getenv("TEST_OVERLONG");
    if (overlong != NULL) a_message_that_does_not_fit_is_refused(comm, atoll(overlong));
    for (int round = 0; round < 3; round++) {
        reductions_are_exact_and_equal(comm);
        every_root_broadcasts_every_size(comm);
        gathers_keep_rank_order(comm);
        agreement_takes_the_worst(comm);
        jobs_run_in_order_and_keep_their_status(comm);
        counters_count_payload(comm);
        a_receive_tells_what_arrived(comm);
    }
    taciti_comm_close(comm);
    return 0;
}
