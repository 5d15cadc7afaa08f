/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/verbs.h"
#include "train/loaded_model.h"

enum { EVAL_BATCH = 8 };
static const int64_t QUIET_NS = 10000000000; /* between lines of progress */

const taciti_flag taciti_eval_flags[] = {
    {"--json", NULL, NULL, "answer as one JSON object"},
    {NULL, NULL, NULL, NULL},
};

typedef struct evaluation {
    double loss_sum;
    uint64_t targets;
} evaluation;

static tacit_status add_windows(taciti_loaded_model *loaded, const taciti_data *data, size_t time, int32_t *tokens,
                                int32_t *targets, evaluation *out) {
    const uint64_t windows = taciti_data_validation_windows(data, time);
    int64_t said_ns = taciti_now_ns();
    for (uint64_t first = 0; first < windows; first += EVAL_BATCH) {
        const size_t count = windows - first < EVAL_BATCH ? (size_t)(windows - first) : EVAL_BATCH;
        double loss = 0;
        TACITI_TRY(taciti_data_validation(data, first, count, time, tokens, targets));
        TACITI_TRY(taciti_model_loss(loaded->model, tokens, targets, count, time, NULL, &loss));
        out->loss_sum += loss;
        for (size_t i = 0; i < count * time; i++) out->targets += targets[i] >= 0;
        if (taciti_now_ns() - said_ns < QUIET_NS) continue;
        said_ns = taciti_now_ns();
        taciti_log(TACITI_LOG_INFO, "%" PRIu64 " of %" PRIu64 " windows, loss so far %.4f", first + count, windows,
                   out->loss_sum / (double)out->targets);
    }
    if (out->targets == 0) return taciti_fail(TACIT_E_DATA, "the data holds no tokens to evaluate");
    if (isfinite(out->loss_sum)) return TACIT_OK;
    return taciti_fail(TACIT_E_NUMERICS, "the loss is not finite: the parameters of this model have diverged, or are "
                                         "damaged; take an earlier checkpoint");
}

static tacit_status evaluate_model(taciti_loaded_model *loaded, const taciti_data *data, evaluation *out) {
    const size_t time = loaded->time;
    int32_t *tokens = taciti_calloc(EVAL_BATCH * time, sizeof *tokens);
    int32_t *targets = taciti_calloc(EVAL_BATCH * time, sizeof *targets);
    *out = (evaluation){0};
    const tacit_status status =
        tokens == NULL || targets == NULL ? TACIT_E_MEMORY : add_windows(loaded, data, time, tokens, targets, out);
    taciti_free(tokens);
    taciti_free(targets);
    return status;
}

/* Weights of another program have no step. */
static void print_answer(const taciti_loaded_model *loaded, const evaluation *result, bool json) {
    const double loss = result->loss_sum / (double)result->targets;
    char step[32] = "null";
    if (loaded->step >= 0) (void)snprintf(step, sizeof step, "%" PRId64, loaded->step);
    char perplexity[32] = "null"; /* of more than 709 nats: too large for a number */
    if (isfinite(exp(loss))) (void)snprintf(perplexity, sizeof perplexity, "%.9g", exp(loss));
    if (json)
        printf("{\"step\": %s, \"loss\": %.9g, \"perplexity\": %s, \"bits_per_token\": %.9g, \"tokens\": %" PRIu64
               "}\n",
               step, loss, perplexity, loss / log(2.0), result->targets);
    else
        printf("loss %.4f nats per token, perplexity %.3f, %.4f bits per token, over %" PRIu64 " tokens%s%s%s\n", loss,
               exp(loss), loss / log(2.0), result->targets, loaded->step < 0 ? "" : " (step ",
               loaded->step < 0 ? "" : step, loaded->step < 0 ? "" : ")");
}

static tacit_status open_and_evaluate(const taciti_verb *verb, int argc, char **argv, taciti_loaded_options *options,
                                      taciti_loaded_model *loaded, taciti_data **data) {
    taciti_arguments arguments;
    evaluation result;
    TACITI_TRY(taciti_loaded_options_init(options));
    TACITI_TRY(taciti_config_environment(&options->config));
    TACITI_TRY(taciti_arguments_parse(verb, &options->config, argc, argv, &arguments));
    if (arguments.positional_count != 1)
        return taciti_fail(TACIT_E_USAGE, "name one run folder: tacit eval run/ [--data.validation FILE...]");
    TACITI_TRY(taciti_loaded_model_open(arguments.positional[0], options, EVAL_BATCH, loaded));
    TACITI_TRY(taciti_loaded_data_open(options, loaded, data));
    TACITI_TRY(evaluate_model(loaded, *data, &result));
    print_answer(loaded, &result, taciti_arguments_get(&arguments, "--json") != NULL);
    return TACIT_OK;
}

tacit_status taciti_verb_eval(const taciti_verb *verb, int argc, char **argv) {
    taciti_loaded_options options;
    taciti_loaded_model loaded = {0};
    taciti_data *data = NULL;
    const tacit_status status = open_and_evaluate(verb, argc, argv, &options, &loaded, &data);
    taciti_data_close(data);
    taciti_loaded_model_close(&loaded);
    taciti_config_destroy(&options.config);
    return status;
}
