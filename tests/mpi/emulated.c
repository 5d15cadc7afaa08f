/* SPDX-License-Identifier: Apache-2.0
 *
 * Emulated accelerators on many ranks that share few cores: what was asked for, what was drawn, what came out, and what
 * it cost. As a test it checks what holds on a busy machine, too: no step is shorter than drawn. By hand it measures:
 *
 *   . scripts/mpi-environment.sh
 *   $MPIRUN -n 16 build/release/mpi/mpi_emulated 400 free --compute.emulate FILE|PRESET --compute.cv 0.1
 *
 * The bar: mean within 0.5 %, cv within 5 % of what was asked, less than 5 % of the processor; with "barrier" the
 * slowest within 3 % of theory.
 *
 * The mode: "free", every rank goes on as soon as it can; "barrier", all ranks wait for each other after each step, as
 * after an all-reduce that takes no time; "mute", free and without gradients.
 */
#define _GNU_SOURCE
#include <math.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/memory.h"
#include "check.h"
#include "model/emulated.h"

enum { MAX_STEPS = 10000 };

typedef struct figures {
    double mean, cv;
} figures;

static figures figures_of(const double *values, size_t n) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) sum += values[i];
    const double mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) squares += (values[i] - mean) * (values[i] - mean);
    return (figures){mean, sqrt(squares / (double)n) / mean};
}

static int by_size(const void *left, const void *right) {
    double a, b;
    memcpy(&a, left, sizeof a);
    memcpy(&b, right, sizeof b);
    return (a > b) - (a < b);
}

/* Mean over the steps of the slowest rank; times are [rank][step]. */
static double mean_of_slowest(const double *times, int ranks, size_t steps) {
    double sum = 0;
    for (size_t s = 0; s < steps; s++) {
        double max = 0;
        for (int r = 0; r < ranks; r++) max = fmax(max, times[(size_t)r * steps + s]);
        sum += max;
    }
    return sum / (double)steps;
}

/* The mean of the maximum of n standard normals, by the trapezoidal rule. */
static double normal_maximum(int n) {
    const double width = 1e-3;
    double sum = 0;
    for (double x = -8; x <= 8; x += width)
        sum += x * n * pow(0.5 * erfc(-x / sqrt(2.0)), n - 1) * exp(-x * x / 2) / sqrt(2 * 3.14159265358979323846);
    return sum * width;
}

static double process_s(void) {
    struct rusage u;
    CHECK(getrusage(RUSAGE_SELF, &u) == 0);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static double thread_s(void) { return (double)taciti_thread_ns() / 1e9; }

static double now_s(void) { return (double)taciti_now_ns() / 1e9; }

static void take(void *context, size_t tensor) { *(size_t *)context += tensor + 1; }

typedef struct run {
    taciti_comm *comm;
    taciti_emulated *emulated;
    bool barrier, mute;
    int ranks;
    size_t steps, tensors;
    double *drawn, *realised; /* [rank][step]; this rank's part first at [0][step] */
    double wall_s, thread_s, process_s;
} run;

static void run_steps(run *r) {
    const taciti_network network = taciti_emulated_network(r->emulated);
    const size_t calls = r->tensors * (r->tensors + 1) / 2;
    CHECK(taciti_comm_barrier(r->comm) == TACIT_OK);
    const double begin_s = now_s(), thread_begin_s = thread_s(), process_begin_s = process_s();
    double last_s = begin_s;
    for (size_t s = 0; s < r->steps; s++) {
        size_t taken = 0;
        double loss = 0;
        const taciti_network_hooks hooks = {.ready = r->mute ? NULL : take, .context = &taken};
        CHECK(network.verbs->step(network.self, (int64_t)s, &hooks, NULL, &loss) == TACIT_OK);
        CHECK(taken == (r->mute ? 0 : calls));
        if (r->barrier) CHECK(taciti_comm_barrier(r->comm) == TACIT_OK);
        const double end_s = now_s();
        r->drawn[s] = taciti_emulated_step_s(r->emulated, (int64_t)s);
        r->realised[s] = end_s - last_s;
        CHECK(r->realised[s] >= r->drawn[s] - 1e-7); /* two clock readings, in doubles */
        last_s = end_s;
    }
    r->wall_s = last_s - begin_s;
    r->thread_s = thread_s() - thread_begin_s;
    r->process_s = process_s() - process_begin_s;
}

/* All ranks' times to all ranks; sums of processor time, the longest wall time. */
static void gather(run *r) {
    const size_t bytes = r->steps * sizeof(double);
    double *all = taciti_calloc((size_t)r->ranks * r->steps, sizeof *all);
    double sums[2] = {r->thread_s, r->process_s};
    CHECK(all != NULL);
    CHECK(taciti_comm_allgather(r->comm, r->drawn, bytes, all) == TACIT_OK);
    memcpy(r->drawn, all, (size_t)r->ranks * bytes);
    CHECK(taciti_comm_allgather(r->comm, r->realised, bytes, all) == TACIT_OK);
    memcpy(r->realised, all, (size_t)r->ranks * bytes);
    CHECK(taciti_comm_allreduce_f64(r->comm, sums, 2, TACITI_OP_SUM) == TACIT_OK);
    CHECK(taciti_comm_allreduce_f64(r->comm, &r->wall_s, 1, TACITI_OP_MAX) == TACIT_OK);
    r->thread_s = sums[0];
    r->process_s = sums[1];
    taciti_free(all);
}

/* Of steps that wait for nobody. */
static void print_realised(const run *r, double asked_s, double cv) {
    const size_t n = (size_t)r->ranks * r->steps;
    const figures drawn = figures_of(r->drawn, n), realised = figures_of(r->realised, n);
    double worst = 0;
    for (int k = 0; k < r->ranks; k++) {
        const size_t at = (size_t)k * r->steps;
        const double ratio = figures_of(r->realised + at, r->steps).mean / figures_of(r->drawn + at, r->steps).mean;
        worst = fmax(worst, fabs(ratio - 1));
    }
    printf("realised  mean %8.3f ms  cv %.5f  mean %+.3f %% of drawn (worst rank %.3f %%), %+.3f %% of asked", //
           realised.mean * 1e3, realised.cv, (realised.mean / drawn.mean - 1) * 100, worst * 100,
           (realised.mean / asked_s - 1) * 100);
    if (cv > 0)
        printf("; cv %+.2f %% of drawn, %+.2f %% of asked", (realised.cv / drawn.cv - 1) * 100,
               (realised.cv / cv - 1) * 100);
    printf("\n");
}

static void print_times(const run *r, double asked_s, double cv) {
    const size_t n = (size_t)r->ranks * r->steps;
    const figures drawn = figures_of(r->drawn, n);
    printf("%d ranks, %zu steps, %s\n", r->ranks, r->steps, r->barrier ? "barrier" : r->mute ? "mute" : "free");
    printf("asked     mean %8.3f ms  cv %.5f\n", asked_s * 1e3, cv);
    printf("drawn     mean %8.3f ms  cv %.5f\n", drawn.mean * 1e3, drawn.cv);
    if (!r->barrier) print_realised(r, asked_s, cv);
    printf("slowest   theory %8.4f  drawn %8.4f  realised %8.4f  of the asked mean\n",
           1 + cv * normal_maximum(r->ranks), mean_of_slowest(r->drawn, r->ranks, r->steps) / asked_s,
           mean_of_slowest(r->realised, r->ranks, r->steps) / asked_s);
}

static void print_costs(run *r) {
    const size_t n = (size_t)r->ranks * r->steps;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    for (size_t i = 0; i < n; i++) r->realised[i] -= r->drawn[i];
    qsort(r->realised, n, sizeof *r->realised, by_size);
    if (!r->barrier)
        printf("late      median %.3f ms  99 %% %.3f ms  most %.3f ms\n", r->realised[n / 2] * 1e3,
               r->realised[n - 1 - n / 100] * 1e3, r->realised[n - 1] * 1e3);
    printf("processor, all ranks together: emulation %.2f %% of one core (%.2f %% of the machine's %ld); whole "
           "processes %.2f %% of one core (%.2f %% of the machine)\n",
           r->thread_s / r->wall_s * 100, r->thread_s / r->wall_s * 100 / (double)cores, cores,
           r->process_s / r->wall_s * 100, r->process_s / r->wall_s * 100 / (double)cores);
    printf("per step and rank: emulation %.3f ms, whole process %.3f ms\n", r->thread_s / (double)n * 1e3,
           r->process_s / (double)n * 1e3);
}

static void measure(taciti_comm *comm, const taciti_compute_options *options, size_t steps, const char *mode) {
    run r = {.comm = comm,
             .ranks = taciti_comm_size(comm),
             .steps = steps,
             .barrier = strcmp(mode, "barrier") == 0,
             .mute = strcmp(mode, "mute") == 0};
    taciti_profile profile;
    taciti_layout layout;
    CHECK(taciti_compute_check(options, r.ranks) == TACIT_OK);
    CHECK(taciti_compute_profile(options, &profile) == TACIT_OK);
    CHECK(taciti_profile_layout(&profile, (size_t)25 << 20, &layout) == TACIT_OK);
    CHECK(taciti_emulated_create(options, &profile, &layout, g_rank, &r.emulated) == TACIT_OK);
    r.tensors = layout.tensor_count;
    r.drawn = taciti_calloc((size_t)r.ranks * steps, sizeof *r.drawn);
    r.realised = taciti_calloc((size_t)r.ranks * steps, sizeof *r.realised);
    CHECK(r.drawn != NULL && r.realised != NULL);
    run_steps(&r);
    gather(&r);
    if (g_rank == 0) {
        print_times(&r, taciti_profile_forward_s(&profile) + taciti_profile_backward_s(&profile), options->cv);
        print_costs(&r);
    }
    taciti_free(r.drawn);
    taciti_free(r.realised);
    taciti_emulated_destroy(r.emulated);
    taciti_layout_destroy(&layout);
    taciti_profile_destroy(&profile);
}

int main(int argc, char **argv) {
    taciti_compute_options options;
    const taciti_section section = {&taciti_compute_option_table, &options, NULL};
    const taciti_config config = {&section, 1};
    taciti_comm *comm = open_comm();
    CHECK(argc > 3);
    const long steps = strtol(argv[1], NULL, 10);
    CHECK(steps > 0 && steps <= MAX_STEPS);
    CHECK(taciti_config_defaults(&config) == TACIT_OK);
    int next = 3;
    while (next < argc) CHECK(taciti_config_flag(&config, argc, argv, &next) == TACIT_OK);
    measure(comm, &options, (size_t)steps, argv[2]);
    taciti_config_destroy(&config);
    CHECK(taciti_comm_barrier(comm) == TACIT_OK);
    taciti_comm_close(comm);
    return 0;
}
