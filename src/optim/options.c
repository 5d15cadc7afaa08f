/* SPDX-License-Identifier: Apache-2.0
 *
 * The section `optim` of a configuration, and the learning rate that it describes.
 */
#include <math.h>

#include "optim/optim.h"

#define AT(member) offsetof(taciti_optim_options, member)

/* eps > 0 and beta < 1 are what keeps 0 / 0 out of an update with a zero gradient. */
static const taciti_option OPTIONS[] = {
    TACITI_OPTION(
        "name", ENUM, AT(name), "adamw", .choices = "adamw|sgd|adam|accum-adamw|accum-adam",
        .help = "the optimizer; accum-: moments follow the mean gradient of optim.accum steps, parameters every step; "
                "without w: the decay is part of the gradient (L2)"),
    TACITI_OPTION("lr", REAL, AT(lr), "6e-4", .max = 1e3, .help = "peak learning rate"),
    TACITI_OPTION("schedule", ENUM, AT(schedule), "cosine", .choices = "cosine|inverse-sqrt|constant",
                  .help = "how the learning rate falls after the warm-up; inverse-sqrt: as sqrt(warmup / step)"),
    TACITI_OPTION("lr_min", REAL, AT(lr_min), "0.1", .max = 1, .when = "optim.schedule=cosine optim.decay_steps!=-1",
                  .help = "cosine: its floor as a fraction of lr"),
    TACITI_OPTION("warmup", INT, AT(warmup_steps), "100", .max = 1e15, .unit = "steps",
                  .help = "steps of linear warm-up"),
    TACITI_OPTION("decay_steps", INT, AT(decay_steps), "0", .min = -1, .max = 1e15, .unit = "steps",
                  .when = "optim.schedule=cosine",
                  .help = "cosine: step at which it reaches its floor; 0: train.steps; -1: constant after warm-up"),
    TACITI_OPTION(
        "restart", REAL, AT(restart), "0", .max = 1000, .when = "optim.schedule=cosine optim.decay_steps!=-1",
        .help = "cosine: at the floor start a new one, this many times as long as the one before; 0: stay at the floor",
        .flags = TACITI_OPTION_EXPERT),
    TACITI_OPTION("beta1", REAL, AT(beta1), "0.9", .max = 0.999999, .when = "optim.name!=sgd",
                  .help = "adam: decay of the first moment"),
    TACITI_OPTION("beta2", REAL, AT(beta2), "0.95", .max = 0.999999, .when = "optim.name!=sgd",
                  .help = "adam: decay of the second moment"),
    TACITI_OPTION("eps", REAL, AT(eps), "1e-8", .min = 1e-30, .max = 1, .when = "optim.name!=sgd",
                  .help = "adam: added to the root of the second moment", .flags = TACITI_OPTION_EXPERT),
    TACITI_OPTION("freeze", INT, AT(freeze), "0", .max = 1e15, .unit = "steps", .when = "optim.name=adamw|adam",
                  .help = "adam(w): after so many steps second moments stay as they are (1-bit Adam: 15 to 20 % of the "
                          "run); 0: never",
                  .flags = TACITI_OPTION_EXPERT),
    TACITI_OPTION("accum", INT, AT(accum), "4", .min = 1, .max = 1e6, .unit = "steps",
                  .when = "optim.name=accum-adamw|accum-adam",
                  .help = "accum-adam(w): steps of a window; more for more ranks (4 at 8, 8 at 16); 1: adam(w)"),
    TACITI_OPTION("momentum", REAL, AT(momentum), "0.9", .max = 0.999999, .when = "optim.name=sgd",
                  .help = "sgd: momentum; 0 keeps no state"),
    TACITI_OPTION("weight_decay", REAL, AT(weight_decay), "0.1", .max = 100,
                  .help = "weight decay of matrices (biases and norms have none)"),
    TACITI_OPTION("clip", REAL, AT(clip), "1", .max = 1e30, .help = "bound of the global gradient norm; 0: none"),
};

const taciti_option_table taciti_optim_option_table =
    TACITI_OPTION_TABLE("optim", "how parameters follow their gradients", OPTIONS);

/* cos^2(pi r / 2) for r in [0, 1/2] by the Taylor series of the cosine; its first omitted term is below 3e-18. The C
 * library's cos is not used because it picks its code by CPU, and every rank must find the same bits. */
static double half_cosine(double r) {
    const double x = 1.57079632679489661923 * r, x2 = x * x;
    double sum = 1;
    for (int k = 16; k >= 2; k -= 2) sum = 1 - x2 / (double)(k * (k - 1)) * sum;
    return sum * sum;
}

static double cosine_lr(const taciti_optim_options *options, int64_t step, int64_t total_steps) {
    const int64_t warmup = options->warmup_steps;
    const int64_t end = options->decay_steps > 0 ? options->decay_steps : total_steps;
    double begin = (double)warmup, length = (double)(end - warmup);
    while (options->restart > 0 && length >= 1 && (double)step >= begin + length) {
        begin += length;
        length *= options->restart;
    }
    if (length < 1 || (double)step >= begin + length) return options->lr * options->lr_min;
    const double r = ((double)step - begin) / length;
    /* 0.5 (1 + cos(pi r)), from 1 to 0 */
    const double height = r <= 0.5 ? half_cosine(r) : 1 - half_cosine(1 - r);
    return options->lr * (options->lr_min + (1 - options->lr_min) * height);
}

double taciti_optim_lr(const taciti_optim_options *options, int64_t step, int64_t total_steps) {
    const int64_t warmup = options->warmup_steps;
    if (step < warmup) return options->lr * ((double)(step + 1) / (double)warmup);
    switch (options->schedule) {
    case TACITI_SCHEDULE_INVERSE_SQRT:
        return options->lr * sqrt((double)(warmup > 0 ? warmup : 1) / (double)(step + 1));
    case TACITI_SCHEDULE_CONSTANT: return options->lr;
    default: return options->decay_steps < 0 ? options->lr : cosine_lr(options, step, total_steps);
    }
}

double taciti_optim_clip_scale(const taciti_optim_options *options, double norm) {
    return options->clip > 0 && norm > options->clip ? options->clip / norm : 1;
}
