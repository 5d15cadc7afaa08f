/* SPDX-License-Identifier: Apache-2.0
 * A network of one's own: two layers that learn sin(x) + cos(y), with a backward pass by hand.
 *   cc own_network.c $(pkg-config --cflags --libs tacit) -lm && mpirun -n 4 ./a.out strategy=gossip optim.lr=0.01 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tacit/tacit.h>

#define TRY(call)                                                                                                      \
    if ((call) != TACIT_OK) return fprintf(stderr, "%s: %s\n", #call, tacit_error_text()), 1
enum { HIDDEN = 32, SAMPLES = 64, STEPS = 300 };

static double uniform(void) { return 2.0 * rand() / RAND_MAX - 1; }

int main(int argc, char **argv) {
    tacit_settings *settings;
    tacit_comm *comm;
    tacit_layout *layout;
    tacit_job *job;
    TRY(tacit_settings_create(&settings));
    for (int i = 1; i < argc; i++) TRY(tacit_settings_set(settings, argv[i]));
    TRY(tacit_open(settings, &comm));
    TRY(tacit_layout_create(&layout));
    TRY(tacit_layout_add(layout, "out", 1, (size_t[]){HIDDEN + 1}, TACIT_DECAY)); /* the last layer first */
    TRY(tacit_layout_add(layout, "in", 2, (size_t[]){HIDDEN, 3}, TACIT_DECAY));
    const tacit_job_options options = {.size = sizeof options, .steps = STEPS};
    TRY(tacit_job_open(comm, settings, layout, &options, &job));
    size_t at = 0;
    TRY(tacit_layout_offset(layout, 1, &at));
    float *out = tacit_job_parameters(job), *in = out + at, *d_out = tacit_job_gradients(job), *d_in = d_out + at;
    srand(1 + (unsigned)tacit_rank(comm)); /* every rank draws samples of its own, and begins as rank 0 does */
    for (int i = 0; i < 4 * HIDDEN; i++) *(i < HIDDEN ? &out[i] : &in[i - HIDDEN]) = (float)uniform();
    TRY(tacit_job_start(job));
    for (int step = 0; step < STEPS; step++) {
        double x[SAMPLES][3], h[SAMPLES][HIDDEN], d[SAMPLES], loss = 0;
        memset(d_out, 0, tacit_layout_floats(layout) * sizeof *d_out);
        for (int s = 0; s < SAMPLES; s++) {
            x[s][0] = 3 * uniform(), x[s][1] = 3 * uniform(), x[s][2] = 1;
            double y = (double)out[HIDDEN];
            for (int i = 0; i < HIDDEN; i++) {
                h[s][i] = tanh((double)in[3 * i] * x[s][0] + (double)in[3 * i + 1] * x[s][1] + (double)in[3 * i + 2]);
                y += (double)out[i] * h[s][i];
            }
            const double error = y - sin(x[s][0]) - cos(x[s][1]);
            loss += error * error / SAMPLES;
            d[s] = 2 * error / SAMPLES / tacit_size(comm); /* the sum over all ranks is the gradient */
            for (int i = 0; i < HIDDEN; i++) d_out[i] += (float)(d[s] * h[s][i]);
            d_out[HIDDEN] += (float)d[s];
        }
        TRY(tacit_job_ready(job, 0)); /* leaves while the next layer is computed */
        for (int s = 0; s < SAMPLES; s++)
            for (int i = 0; i < 3 * HIDDEN; i++)
                d_in[i] += (float)(d[s] * (double)out[i / 3] * (1 - h[s][i / 3] * h[s][i / 3]) * x[s][i % 3]);
        TRY(tacit_job_ready(job, 1));
        TRY(tacit_job_finish(job, NULL));
        if (tacit_rank(comm) == 0 && (step + 1) % 100 == 0) printf("step %d loss %.5f\n", step + 1, loss);
    }
    TRY(tacit_job_close(job));
    return tacit_close(comm) == TACIT_OK ? 0 : 1;
}
