/* SPDX-License-Identifier: Apache-2.0
 *
 * The section `compute` of a configuration: whether computing is emulated, and how.
 */
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "model/emulated.h"

#define AT(member) offsetof(taciti_compute_options, member)

static const taciti_option OPTIONS[] = {
    TACITI_OPTION(
        "emulate", TEXT, AT(emulate), "",
        .help = "emulate an accelerator by timed waits: a preset (transformer-base, gpt2-124m, resnet-101, vgg-16, "
                "lstm-66m, ...) or a profile file; empty: compute for real"),
    TACITI_OPTION("rate", REAL, AT(rate), "0", .max = 1e21, .unit = "FLOP/s",
                  .help = "speed of the emulated accelerator, for profiles in operations; 0: what the profile says"),
    TACITI_OPTION("batch", REAL, AT(batch), "0", .max = 1e9, .unit = "samples",
                  .help = "samples per rank and step, for profiles in operations; 0: what the profile says"),
    TACITI_OPTION("scale", REAL, AT(scale), "1", .min = 1e-6, .max = 1e6,
                  .help = "all times of the profile are multiplied by it"),
    /* The cut at a tenth of the mean (emulated.c) moves the mean by less than 0.2 % up to here. */
    TACITI_OPTION("cv", REAL, AT(cv), "0", .max = 0.4,
                  .help = "standard deviation of a step's compute time, as a fraction of its mean"),
    TACITI_OPTION(
        "slow", LIST, AT(slow), "",
        .help = "persistent stragglers, RANK:FACTOR each: 3:1.5 makes rank 3 take half as long again in every step"),
    TACITI_OPTION("seed", INT, AT(seed), "1", .max = 9e18,
                  .help = "step times and synthetic gradients are functions of it"),
};

const taciti_option_table taciti_compute_option_table = {
    .section = "compute",
    .when = "emulation",
    .help = "an emulated accelerator: for step times, never for losses",
    .options = OPTIONS,
    .count = sizeof OPTIONS / sizeof OPTIONS[0],
};

/* ---- stragglers -------------------------------------------------------------------------------------------------- */

static const double SLOW_MIN = 0.01, SLOW_MAX = 1000;

/* "3:1.5" */
static bool parse_slow(const char *item, int64_t *rank, double *factor) {
    char digits[24];
    const char *colon = strchr(item, ':');
    if (colon == NULL || (size_t)(colon - item) >= sizeof digits) return false;
    memcpy(digits, item, (size_t)(colon - item));
    digits[colon - item] = '\0';
    return taciti_integer_parse(digits, rank) && taciti_real_parse(colon + 1, factor);
}

static tacit_status check_slow(const taciti_compute_options *options, size_t index, int ranks) {
    char quoted[TACITI_QUOTED_BYTES];
    int64_t rank = 0, other = 0;
    double factor = 0, other_factor = 0;
    taciti_quote(options->slow.items[index], quoted);
    if (!parse_slow(options->slow.items[index], &rank, &factor))
        return taciti_fail(TACIT_E_CONFIG, "compute.slow: %s is not RANK:FACTOR; write 3:1.5 to slow rank 3 by half",
                           quoted);
    if (rank < 0 || rank >= ranks)
        return taciti_fail(TACIT_E_CONFIG, "compute.slow: %s: there is no such rank; %d rank%s: 0 to %d", quoted, ranks,
                           ranks == 1 ? " runs" : "s run", ranks - 1);
    if (factor < SLOW_MIN || factor > SLOW_MAX)
        return taciti_fail(TACIT_E_CONFIG, "compute.slow: %s: the factor must be from %g to %g", quoted, SLOW_MIN,
                           SLOW_MAX);
    for (size_t i = 0; i < index; i++)
        if (parse_slow(options->slow.items[i], &other, &other_factor) && other == rank)
            return taciti_fail(TACIT_E_CONFIG, "compute.slow: %s: rank %d has a factor already", quoted, (int)rank);
    return TACIT_OK;
}

tacit_status taciti_compute_check(const taciti_compute_options *options, int ranks) {
    for (size_t i = 0; i < options->slow.count; i++) TACITI_TRY(check_slow(options, i, ranks));
    return TACIT_OK;
}

double taciti_compute_slow(const taciti_compute_options *options, int rank) {
    for (size_t i = 0; i < options->slow.count; i++) {
        int64_t slow_rank = 0;
        double factor = 1;
        if (parse_slow(options->slow.items[i], &slow_rank, &factor) && slow_rank == rank) return factor;
    }
    return 1;
}

/* ---- the profile ------------------------------------------------------------------------------------------------- */

tacit_status taciti_compute_apply(const taciti_compute_options *options, taciti_profile *profile) {
    if (profile->in_flops) {
        const double rate = options->rate > 0 ? options->rate : profile->rate;
        const double batch = options->batch > 0 ? options->batch : profile->batch;
        if (!(rate > 0 && batch > 0)) {
            const char *missing = !(rate > 0) ? "rate" : "batch";
            return taciti_fail(TACIT_E_CONFIG,
                               "the profile \"%s\" gives operations per sample and no %s: set compute.%s",
                               profile->name, missing, missing);
        }
        taciti_profile_to_seconds(profile, rate, batch);
    }
    for (size_t l = 0; l < profile->layer_count; l++) {
        profile->layers[l].forward_s *= options->scale;
        profile->layers[l].backward_s *= options->scale;
    }
    profile->update_s *= options->scale;
    return TACIT_OK;
}

tacit_status taciti_compute_profile(const taciti_compute_options *options, taciti_profile *out) {
    taciti_profile profile;
    TACITI_TRY(taciti_profile_load(options->emulate.text, &profile));
    const tacit_status status = taciti_compute_apply(options, &profile);
    if (status == TACIT_OK)
        *out = profile;
    else
        taciti_profile_destroy(&profile);
    return status;
}
