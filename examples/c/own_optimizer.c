/* SPDX-License-Identifier: Apache-2.0
 * An optimizer of one's own (RMSprop) under dp, gossip and localsgd, on a linear model y = a x + b z whose answer is
 * known. cc own_optimizer.c $(pkg-config --cflags --libs tacit) -lm && mpirun -n 4 ./a.out strategy=localsgd */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tacit/tacit.h>

#define TRY(call)                                                                                                      \
    if ((call) != TACIT_OK) return fprintf(stderr, "%s: %s\n", #call, tacit_error_text()), 1
enum { SAMPLES = 16, STEPS = 400, FLOATS = 16 };

static double uniform(void) { return 2.0 * rand() / RAND_MAX - 1; }

static void compute(const float *parameters, float *gradients, int ranks) {
    memset(gradients, 0, FLOATS * sizeof *gradients);
    for (int s = 0; s < SAMPLES; s++) {
        const double x = uniform(), z = uniform(), error = parameters[0] * x + parameters[1] * z - (3 * x - 2 * z);
        gradients[0] += (float)(2 * error * x / SAMPLES / ranks); /* the sum over all ranks is the gradient */
        gradients[1] += (float)(2 * error * z / SAMPLES / ranks);
    }
}

/* What the optimizer remembers is this program's: it goes into checkpoints as a blob. */
static void update(float *parameters, const float *gradients, float *squares, double lr) {
    for (int i = 0; i < 2; i++) {
        squares[i] = 0.9F * squares[i] + 0.1F * gradients[i] * gradients[i];
        parameters[i] -= (float)lr * gradients[i] / (sqrtf(squares[i]) + 1e-6F);
    }
}

int main(int argc, char **argv) {
    tacit_settings *settings;
    tacit_comm *comm;
    tacit_layout *layout;
    tacit_job *job;
    tacit_step step = {.size = sizeof step};
    float squares[2] = {0, 0};
    double apart = 0;
    TRY(tacit_settings_create(&settings));
    TRY(tacit_settings_set(settings, "optim.lr=0.05"));
    for (int i = 1; i < argc; i++) TRY(tacit_settings_set(settings, argv[i]));
    TRY(tacit_open(settings, &comm));
    TRY(tacit_layout_create(&layout));
    TRY(tacit_layout_add(layout, "weights", 1, (size_t[]){2}, 0));
    const tacit_job_options options = {.size = sizeof options, .steps = STEPS, .own_optimizer = true};
    TRY(tacit_job_open(comm, settings, layout, &options, &job));
    float *parameters = tacit_job_parameters(job), *gradients = tacit_job_gradients(job);
    TRY(tacit_job_start(job));
    srand(1 + (unsigned)tacit_rank(comm));
    for (int i = 0; i < STEPS; i++) {
        compute(parameters, gradients, tacit_size(comm));
        TRY(tacit_job_ready(job, TACIT_ALL_TENSORS));
        TRY(tacit_job_settle(job, &step));
        if (!step.skipped) update(parameters, gradients, squares, step.lr);
        TRY(tacit_job_stepped(job));
    }
    TRY(tacit_job_average(job, &apart)); /* what is delivered is the mean of the replicas */
    printf("rank %d: %.4f %.4f, replicas were %.4f apart\n", tacit_rank(comm), parameters[0], parameters[1], apart);
    TRY(tacit_job_close(job));
    return tacit_close(comm) == TACIT_OK ? 0 : 1;
}
