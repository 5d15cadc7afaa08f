/* SPDX-License-Identifier: Apache-2.0
 *
 * tcp_ping [RANKS [TCP [ROUNDS [CIPHER]]]]: starts RANKS processes (2) on this host, connects them by the TCP engine
 * and measures a ping-pong between the ranks 0 and 1. TCP: 1: over TCP; 0 (default): by memory that they share. ROUNDS:
 * of each measurement, 0: as many as fill half a second. CIPHER: aes or xchacha, sealed connections; then the cipher
 * alone is measured first.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "comm/engine_tcp.h"

enum { BYTES_MAX = 64 << 20 };

static const size_t SIZES[] = {8, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20, BYTES_MAX};

typedef struct measurement {
    char *in, *out;
    size_t bytes;
    int rounds;
    double seconds, cpu_s;
} measurement;

static void need(int condition, const char *what) {
    if (condition) return;
    (void)fprintf(stderr, "tcp_ping: %s: %s\n", what, taciti_error_text());
    _exit(1);
}

static tacit_status play_ping_pong(taciti_comm *comm, void *context) {
    measurement *m = context;
    const int rank = taciti_comm_rank(comm);
    const double cpu = (double)taciti_process_ns();
    const int64_t begin_ns = taciti_now_ns();
    for (int i = 0; i < m->rounds && rank < 2; i++) {
        taciti_engine_request request;
        if (rank == 0) TACITI_TRY(taciti_comm_send(comm, 1, m->out, m->bytes));
        TACITI_TRY(taciti_comm_irecv(comm, 1 - rank, m->in, m->bytes, &request));
        TACITI_TRY(taciti_comm_await(comm, &request));
        if (rank == 1) TACITI_TRY(taciti_comm_send(comm, 0, m->out, m->bytes));
    }
    m->seconds = (double)(taciti_now_ns() - begin_ns) * 1e-9;
    m->cpu_s = ((double)taciti_process_ns() - cpu) * 1e-9;
    return TACIT_OK;
}

static void measure(taciti_comm *comm, measurement *m, int rounds) {
    taciti_job job = {.run = play_ping_pong, .context = m, .name = "ping", .detail = -1};
    m->rounds = rounds > 0 ? rounds : 3;
    for (int pass = rounds > 0 ? 1 : 0; pass < 2; pass++) {
        need(taciti_job_run(comm, &job) == TACIT_OK, "ping");
        if (pass == 1) break;
        double seconds = m->seconds;
        need(taciti_comm_allreduce_f64(comm, &seconds, 1, TACITI_OP_MAX) == TACIT_OK, "sum");
        m->rounds = 1 + (int)(0.5 * m->rounds / seconds);
    }
    need(taciti_comm_allreduce_f64(comm, &m->cpu_s, 1, TACITI_OP_SUM) == TACIT_OK, "sum");
    if (taciti_comm_rank(comm) != 0) return;
    const double gb = 2e-9 * (double)m->bytes * m->rounds;
    (void)printf("ping-pong  %9zu bytes  %10.1f us one way  %7.3f GB/s  %7.3f CPU s per GB  (%d rounds)\n", m->bytes,
                 5e5 * m->seconds / m->rounds, gb / m->seconds, m->cpu_s / gb, m->rounds);
    (void)fflush(stdout);
}

/* Seals and opens blocks of the length that the engine uses, without sockets; in seconds of this thread. */
static void measure_cipher(const taciti_seal_key *key) {
    enum { BLOCK = 64 << 10, ROUNDS = 8192 };
    const uint8_t proof[TACITI_SEAL_PROOF_BYTES] = {0};
    taciti_seal *from = taciti_seal_create(key, key->best, proof, true),
                *to = taciti_seal_create(key, key->best, proof, false);
    uint8_t *plain = taciti_calloc(BLOCK, 1), *sealed = taciti_calloc(BLOCK + TACITI_SEAL_TAG_BYTES, 1);
    int64_t close_ns = 0, open_ns = 0;
    need(from != NULL && to != NULL && plain != NULL && sealed != NULL, "memory");
    for (int i = 0; i < ROUNDS; i++) {
        const int64_t begin_ns = taciti_thread_ns();
        taciti_seal_close(from, plain, BLOCK, sealed);
        const int64_t middle_ns = taciti_thread_ns();
        need(taciti_seal_open(to, sealed, BLOCK, sealed + BLOCK), "open");
        close_ns += middle_ns - begin_ns, open_ns += taciti_thread_ns() - middle_ns;
    }
    const double bytes = (double)ROUNDS * BLOCK;
    (void)printf("%s: seals %.2f GB/s, opens %.2f GB/s on one core\n",
                 key->best == TACITI_CIPHER_AES256GCM ? "AES-256-GCM" : "XChaCha20-Poly1305", bytes / (double)close_ns,
                 bytes / (double)open_ns);
    (void)fflush(stdout);
    taciti_seal_destroy(from);
    taciti_seal_destroy(to);
    taciti_free(plain);
    taciti_free(sealed);
}

static taciti_seal_key make_key(const char *cipher) {
    taciti_seal_key key;
    need(taciti_seal_key_make((const uint8_t *)"a key of a file has 32 bytes ...", &key) == TACIT_OK, "key");
    if (strcmp(cipher, "xchacha") == 0) key.best = TACITI_CIPHER_XCHACHA20;
    return key;
}

static int run_rank(int rank, int size, bool over_tcp, int rounds, const taciti_seal_key *key, const char *folder) {
    taciti_tcp_request request = {.rank = rank, .size = size, .interface = "lo", .start_s = 30};
    request.only_tcp = over_tcp;
    request.key = key;
    taciti_engine engine;
    taciti_comm *comm = NULL;
    const taciti_comm_options options = {.thread = true, .timeout_s = 15, .start_s = 30, .stall_s = 60};
    measurement m = {.in = taciti_calloc(BYTES_MAX, 1), .out = taciti_calloc(BYTES_MAX, 1)};
    need(m.in != NULL && m.out != NULL, "memory");
    memset(m.in, 1, BYTES_MAX);
    memset(m.out, 1, BYTES_MAX);
    need(taciti_bootstrap_folder_open(folder, &request.bootstrap) == TACIT_OK, "folder");
    const int64_t begin_ns = taciti_now_ns();
    need(taciti_engine_tcp_open(&request, &engine) == TACIT_OK, "engine");
    if (rank == 0) (void)printf("open       %.1f ms\n", (double)(taciti_now_ns() - begin_ns) * 1e-6);
    taciti_bootstrap_folder_close(&request.bootstrap);
    need(taciti_comm_open_engine(&options, &engine, &comm) == TACIT_OK, "communicator");
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        m.bytes = SIZES[i];
        measure(comm, &m, rounds);
    }
    const int64_t end_ns = taciti_now_ns();
    need(taciti_comm_close(comm) == TACIT_OK, "close");
    if (rank == 0) (void)printf("close      %.1f ms\n", (double)(taciti_now_ns() - end_ns) * 1e-6);
    (void)fflush(stdout);
    return 0;
}

int main(int argc, char **argv) {
    const int size = argc > 1 ? atoi(argv[1]) : 2, tcp = argc > 2 ? atoi(argv[2]) : 0,
              rounds = argc > 3 ? atoi(argv[3]) : 0;
    taciti_seal_key key = make_key(argc > 4 ? argv[4] : "");
    char folder[] = "/tmp/tacit-ping-XXXXXX", command[64];
    if (argc > 4) measure_cipher(&key);
    need(mkdtemp(folder) != NULL, "mkdtemp");
    for (int rank = 0; rank < size; rank++)
        if (fork() == 0) _exit(run_rank(rank, size, tcp != 0, rounds, argc > 4 ? &key : NULL, folder));
    int failed = 0, status = 0;
    while (wait(&status) > 0) failed |= status != 0;
    (void)snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0 || failed;
}
