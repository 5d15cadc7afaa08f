/* SPDX-License-Identifier: Apache-2.0
 *
 * The MPI library's own all-reduces, as benchmarks call them: every one that is listed gives exact sums; the list is
 * the same on all ranks; a call that lasts longer than comm.timeout is not taken for a death. Usage: native_laws NAMES
 * [long] where NAMES are expected, with commas between them; for `long`, set TEST_TIMEOUT to 1.
 */
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "check.h"

static const double LONG_S = 2.5; /* more than the timeout */

/* What a job does with one native. */
typedef struct call {
    int native, times;
    bool apart;
    float *in, *out;
    size_t n;
} call;

static tacit_status run_list(taciti_comm *comm, void *context) { return taciti_comm_natives(comm, context); }

static tacit_status run_call(taciti_comm *comm, void *context) {
    const call *c = context;
    return taciti_comm_native_allreduce(comm, c->native, c->in, c->apart ? c->out : c->in, c->n, c->times);
}

static void run(taciti_comm *comm, tacit_status (*what)(taciti_comm *comm, void *context), void *context) {
    taciti_job job = {.run = what, .context = context, .name = "native", .detail = -1};
    taciti_job_submit(comm, &job);
    CHECK(taciti_job_wait(comm, &job) == TACIT_OK);
}

static float small_integer(int rank, size_t i) { return (float)((int)((i * 7 + (size_t)rank * 3) % 17) - 8); }

/* Sums of n floats; of two calls in a row, in place, the second adds up sums. */
static void law(taciti_comm *comm, call c) {
    const int ranks = taciti_comm_size(comm);
    const int factor = c.times == 2 && !c.apart ? ranks : 1;
    for (size_t i = 0; i < c.n; i++) {
        c.in[i] = small_integer(g_rank, i);
        c.out[i] = -1000;
    }
    run(comm, run_call, &c);
    for (size_t i = 0; i < c.n; i++) {
        float sum = 0;
        for (int r = 0; r < ranks; r++) sum += small_integer(r, i);
        CHECK((c.apart ? c.out : c.in)[i] == sum * (float)factor);
        if (c.apart) CHECK(c.in[i] == small_integer(g_rank, i));
    }
}

static void laws(taciti_comm *comm, int native, bool apart) {
    const size_t lengths[] = {0, 1, 3, 1000, 300007};
    const size_t max = lengths[sizeof lengths / sizeof *lengths - 1];
    float *in = taciti_calloc(max, sizeof *in), *out = taciti_calloc(max, sizeof *out);
    CHECK(in != NULL && out != NULL);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int times = 1; times <= 2; times++) law(comm, (call){native, times, apart, in, out, lengths[i]});
    taciti_free(in);
    taciti_free(out);
}

/* All sit in the library, silent for longer than comm.timeout; then everybody goes on. */
static void a_long_call_is_no_death(taciti_comm *comm, bool apart) {
    enum { TRIAL = 20, TRIES = 4 };
    float in[1024] = {0}, out[1024];
    call c = {0, TRIAL, apart, in, out, sizeof in / sizeof *in};
    CHECK(taciti_comm_barrier(comm) == TACIT_OK);
    int64_t begin_ns = taciti_now_ns();
    run(comm, run_call, &c);
    double times = LONG_S * 1e9 * TRIAL / (double)(taciti_now_ns() - begin_ns) + 1;
    CHECK(taciti_comm_allreduce_f64(comm, &times, 1, TACITI_OP_MAX) == TACIT_OK);
    c.times = times < 1e6 ? (int)times : 1000000;
    double seconds = 0;
    for (int tries = 0; tries < TRIES && seconds < LONG_S / 2; tries++, c.times *= 3) { /* a busy machine became fast */
        begin_ns = taciti_now_ns();
        for (int i = 0; i < 2; i++) {
            run(comm, run_call, &c);
            CHECK(taciti_comm_barrier(comm) == TACIT_OK);
        }
        seconds = (double)(taciti_now_ns() - begin_ns) * 1e-9;
        CHECK(taciti_comm_allreduce_f64(comm, &seconds, 1, TACITI_OP_MAX) == TACIT_OK);
    }
    CHECK(seconds >= LONG_S / 2);
    CHECK(taciti_comm_health(comm) == TACIT_OK);
}

static void join_names(const taciti_native *natives, char *out, size_t bytes) {
    size_t used = 0;
    out[0] = 0;
    for (; natives->name != NULL; natives++) {
        CHECK(natives->text != NULL && used + strlen(natives->name) + 2 < bytes);
        used += (size_t)snprintf(out + used, bytes - used, "%s%s", used == 0 ? "" : ",", natives->name);
    }
}

int main(int argc, char **argv) {
    char names[256];
    const taciti_native *natives = NULL, *again = NULL;
    taciti_comm *comm = open_comm();
    CHECK(argc == 2 || argc == 3);
    run(comm, run_list, &natives);
    run(comm, run_list, &again);
    CHECK(natives == again || natives[0].name == NULL);
    join_names(natives, names, sizeof names);
    if (strcmp(names, argv[1]) != 0) (void)fprintf(stderr, "natives: %s instead of %s\n", names, argv[1]);
    CHECK(strcmp(names, argv[1]) == 0);
    CHECK(taciti_comm_agree_text(comm, "list of natives", names) == TACIT_OK);
    for (int i = 0; natives[i].name != NULL; i++) laws(comm, i, natives[i].apart);
    if (argc == 3) a_long_call_is_no_death(comm, natives[0].apart);
    taciti_comm_close(comm);
    return 0;
}
