/* SPDX-License-Identifier: Apache-2.0
 * Sums of gradients and nothing else: parameters, gradients and the optimizer (momentum) are this program's, in memory
 * of its own that the library has not laid out. y = gain * (w x + b) learns another such function.
 *   cc gradients.c $(pkg-config --cflags --libs tacit) -o g
 *   export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29400; RANK=0 ./g & RANK=1 ./g      no MPI, no launcher */
#include <stdio.h>
#include <stdlib.h>
#include <tacit/tacit.h>

#define TRY(call)                                                                                                      \
    if ((call) != TACIT_OK) return fprintf(stderr, "%s: %s\n", #call, tacit_error_text()), 1
enum { IN = 41, OUT = 10, SAMPLES = 16, STEPS = 400, NUMBERS = OUT * IN + OUT + 1 };

typedef struct network {
    float w[OUT][IN], b[OUT], gain;
} network;

static double uniform(void) { return 2.0 * rand() / RAND_MAX - 1; }

static double product(const network *n, int row, const double *x) {
    double y = (double)n->b[row];
    for (int i = 0; i < IN; i++) y += (double)n->w[row][i] * x[i];
    return y;
}

/* Adds one sample's gradient of |y - wanted|^2 / 2, which it returns. */
static double backward(const network *n, const network *wanted, network *d) {
    double x[IN], loss = 0;
    for (int i = 0; i < IN; i++) x[i] = uniform();
    for (int row = 0; row < OUT; row++) {
        const double y = product(n, row, x),
                     error = (double)n->gain * y - (double)wanted->gain * product(wanted, row, x);
        loss += error * error / 2;
        d->gain += (float)(error * y);
        d->b[row] += (float)(error * (double)n->gain);
        for (int i = 0; i < IN; i++) d->w[row][i] += (float)(error * (double)n->gain * x[i]);
    }
    return loss;
}

static void update(float *x, const float *d, float *velocity, double lr) {
    for (int i = 0; i < NUMBERS; i++) {
        velocity[i] = 0.9F * velocity[i] + d[i];
        x[i] -= (float)lr * velocity[i];
    }
}

int main(int argc, char **argv) {
    static network mine, wanted, gradients[2], velocity;
    tacit_settings *settings;
    tacit_comm *comm;
    tacit_layout *layout;
    tacit_job *job;
    tacit_step step = {.size = sizeof step};
    TRY(tacit_settings_create(&settings));
    TRY(tacit_settings_set(settings, "optim.lr=0.01"));
    for (int i = 1; i < argc; i++) TRY(tacit_settings_set(settings, argv[i]));
    TRY(tacit_open(settings, &comm));
    TRY(tacit_layout_create(&layout)); /* in the order in which the backward pass ends */
    TRY(tacit_layout_add(layout, "gain", 0, NULL, 0));
    TRY(tacit_layout_add(layout, "b", 1, (size_t[]){OUT}, 0));
    TRY(tacit_layout_add(layout, "w", 2, (size_t[]){OUT, IN}, 0));
    const tacit_job_options options = {.size = sizeof options, .steps = STEPS, .gradients_only = true};
    TRY(tacit_job_open(comm, settings, layout, &options, &job));
    TRY(tacit_job_start(job));
    for (int i = 0; i < NUMBERS; i++) ((float *)&wanted)[i] = (float)(i % 7 - 3) / 3;
    for (int i = 0; i < NUMBERS; i++) ((float *)&mine)[i] = (float)(i % 5 - 2) / 9; /* the same on all ranks */
    wanted.gain = mine.gain = 1;
    srand(1 + (unsigned)tacit_rank(comm));
    const double share = 1.0 / SAMPLES / tacit_size(comm); /* the sum over all ranks is the gradient */
    for (int s = 0; s < STEPS; s++) {
        network *d = &gradients[s % 2]; /* another place in every step */
        double loss = 0;
        *d = (network){.gain = 0};
        for (int i = 0; i < SAMPLES; i++) loss += backward(&mine, &wanted, d) / SAMPLES;
        TRY(tacit_job_ready_from(job, 0, &d->gain, TACIT_F32, share));
        TRY(tacit_job_ready_from(job, 1, d->b, TACIT_F32, share));
        TRY(tacit_job_ready_from(job, 2, d->w, TACIT_F32, share));
        TRY(tacit_job_settle(job, &step)); /* now *d is the sum */
        if (!step.skipped) update((float *)&mine, (const float *)d, (float *)&velocity, step.lr);
        TRY(tacit_job_stepped(job));
        if (tacit_rank(comm) == 0 && (s + 1) % 100 == 0) printf("step %d loss %.6f\n", s + 1, loss);
    }
    printf("rank %d of %d: gain %a, w[9][40] %a\n", tacit_rank(comm), tacit_size(comm), (double)mine.gain,
           (double)mine.w[9][40]);
    TRY(tacit_job_close(job));
    tacit_layout_destroy(layout);
    tacit_settings_destroy(settings);
    return tacit_close(comm) == TACIT_OK ? 0 : 1;
}
