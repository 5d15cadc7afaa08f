/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/local_step.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "bench/machine_block.h"
#include "kernel/probe.h"
#include "optim/optim.h"

enum { WARM_UP_ROUNDS = 2, SPIN_US = 100, BUCKET_BYTES = 4 << 20 };
static const double PROBE_SECONDS = 0.1;

const char *const taciti_step_figure_names[TACITI_STEP_FIGURES] = {
    [TACITI_STEP_WHOLE] = "step",
    [TACITI_STEP_FORWARD] = "forward",
    [TACITI_STEP_BACKWARD] = "backward",
    [TACITI_STEP_UPDATE] = "update",
    [TACITI_STEP_OPS + TACITI_MODEL_OP_GEMM] = "gemm",
    [TACITI_STEP_OPS + TACITI_MODEL_OP_HEAD] = "head",
    [TACITI_STEP_OPS + TACITI_MODEL_OP_ATTENTION] = "attention",
    [TACITI_STEP_OPS + TACITI_MODEL_OP_ELEMENTWISE] = "elementwise",
    [TACITI_STEP_FLOPS] = "flops_per_s",
    [TACITI_STEP_PEAK] = "peak_flops_per_s",
    [TACITI_STEP_RATIO] = "ratio",
    [TACITI_STEP_BUSY] = "busy",
};

struct bench {
    const taciti_step_bench_options *options;
    taciti_pool *pool;
    taciti_layout layout;
    taciti_model *model;
    taciti_optim *optim;
    taciti_trace trace;
    int32_t *window; /* batch x time tokens and one more: targets are the tokens one further */
    double lr;
    double *samples[TACITI_STEP_FIGURES];
    taciti_step_bench result;
};

static double probe_peak(struct bench *bench) {
    double peak = 0;
    if (bench->options->model.dtype == TACITI_DTYPE_BF16) peak = taciti_probe_bf16_flops(bench->pool, PROBE_SECONDS);
    bench->result.peak_is_bf16 = peak > 0;
    return peak > 0 ? peak : taciti_probe_fma_flops(bench->pool, PROBE_SECONDS);
}

/* One training step; writes its seconds and its update's into `sample`. */
static tacit_status run_step(struct bench *bench, double *sample, double *loss) {
    const taciti_step_bench_options *o = bench->options;
    const double tokens = (double)o->batch * (double)o->time;
    const taciti_model_batch batch = {.tokens = bench->window,
                                      .targets = bench->window + 1,
                                      .batch = o->batch,
                                      .time = o->time,
                                      .scale = (float)(1 / tokens),
                                      .dropout_key = 1};
    const int64_t begin = taciti_now_ns();
    TACITI_TRY(taciti_model_train(bench->model, &batch, &bench->trace, loss));
    const int64_t trained = taciti_now_ns();
    taciti_optim_update(bench->optim, taciti_model_parameters(bench->model), taciti_model_gradients(bench->model),
                        taciti_model_copy16(bench->model), bench->lr, 1);
    const int64_t end = taciti_now_ns();
    *loss /= tokens;
    sample[TACITI_STEP_WHOLE] = (double)(end - begin) / 1e9;
    sample[TACITI_STEP_UPDATE] = (double)(end - trained) / 1e9;
    return TACIT_OK;
}

/* Probe and step take turns. Samples of rounds below 0 are overwritten by round 0. */
static tacit_status measure_round(struct bench *bench, int round) {
    int64_t op_ns[TACITI_MODEL_OPS], span_ns[TACITI_SPAN_KINDS];
    double loss, sample[TACITI_STEP_FIGURES] = {[TACITI_STEP_PEAK] = probe_peak(bench)};
    const int64_t cpu_ns = taciti_process_ns();
    TACITI_TRY(run_step(bench, sample, &loss));
    const double step_s = sample[TACITI_STEP_WHOLE];
    sample[TACITI_STEP_BUSY] = (double)(taciti_process_ns() - cpu_ns) * 1e-9 / (step_s * bench->options->threads);
    taciti_model_take_op_ns(bench->model, op_ns);
    taciti_trace_take_totals(&bench->trace, span_ns);
    sample[TACITI_STEP_FORWARD] = (double)span_ns[TACITI_SPAN_FORWARD] / 1e9;
    sample[TACITI_STEP_BACKWARD] = (double)span_ns[TACITI_SPAN_BACKWARD] / 1e9;
    sample[TACITI_STEP_FLOPS] = bench->result.flops_per_step / step_s;
    sample[TACITI_STEP_RATIO] = sample[TACITI_STEP_FLOPS] / sample[TACITI_STEP_PEAK];
    for (int op = 0; op < TACITI_MODEL_OPS; op++) sample[TACITI_STEP_OPS + op] = (double)op_ns[op] / 1e9;
    for (int i = 0; i < TACITI_STEP_FIGURES; i++) bench->samples[i][round < 0 ? 0 : round] = sample[i];
    if (round == -WARM_UP_ROUNDS) bench->result.first_loss = loss;
    bench->result.last_loss = loss;
    return TACIT_OK;
}

static tacit_status read_optim_defaults(taciti_optim_options *out) {
    const taciti_section section = {&taciti_optim_option_table, out, NULL};
    const taciti_config defaults = {&section, 1};
    return taciti_config_defaults(&defaults);
}

static tacit_status check_memory(struct bench *bench, const taciti_optim_options *optim) {
    const taciti_step_bench_options *o = bench->options;
    const taciti_model_memory m = taciti_model_predict(&o->model, &bench->layout, o->batch, o->time, o->threads, true);
    bench->result.predicted_bytes = m.parameters + m.gradients + m.copy16 + m.activations + m.workspace +
                                    bench->layout.n * taciti_optim_bytes_per_float(optim);
    return taciti_machine_has_room("--batch and --model", (double)bench->result.predicted_bytes);
}

static tacit_status create_samples(struct bench *bench) {
    const taciti_step_bench_options *o = bench->options;
    const size_t tokens = o->batch * o->time + 1;
    bench->window = taciti_calloc(tokens, sizeof *bench->window);
    if (bench->window == NULL) return TACIT_E_MEMORY;
    for (size_t i = 0; i < tokens; i++)
        bench->window[i] = (int32_t)taciti_rng_below(2, i, (uint64_t)o->model.vocabulary);
    for (int i = 0; i < TACITI_STEP_FIGURES; i++) {
        bench->samples[i] = taciti_calloc((size_t)o->rounds, sizeof *bench->samples[i]);
        if (bench->samples[i] == NULL) return TACIT_E_MEMORY;
    }
    return TACIT_OK;
}

static tacit_status create_bench(struct bench *bench) {
    const taciti_step_bench_options *o = bench->options;
    taciti_optim_options optim;
    TACITI_TRY(taciti_model_layout(&o->model, BUCKET_BYTES, &bench->layout));
    TACITI_TRY(read_optim_defaults(&optim));
    TACITI_TRY(check_memory(bench, &optim));
    bench->lr = optim.lr;
    TACITI_TRY(taciti_pool_create(o->threads, SPIN_US, &bench->pool));
    TACITI_TRY(taciti_model_create(&o->model, &bench->layout, bench->pool, o->batch, o->time, TACITI_MODEL_TRAINING,
                                   &bench->model));
    TACITI_TRY(taciti_optim_create(&optim, &bench->layout, bench->pool, &bench->optim));
    TACITI_TRY(taciti_trace_create(0, &bench->trace));
    TACITI_TRY(create_samples(bench));
    taciti_model_init(bench->model, 1);
    bench->result.parameters = bench->layout.parameters;
    bench->result.flops_per_step =
        taciti_model_flops_per_token(&o->model, o->time) * (double)o->batch * (double)o->time;
    return TACIT_OK;
}

static void destroy_bench(struct bench *bench) {
    for (int i = 0; i < TACITI_STEP_FIGURES; i++) taciti_free(bench->samples[i]);
    taciti_free(bench->window);
    taciti_trace_destroy(&bench->trace);
    taciti_optim_destroy(bench->optim);
    taciti_model_destroy(bench->model);
    taciti_pool_destroy(bench->pool);
    taciti_layout_destroy(&bench->layout);
}

tacit_status taciti_step_bench_run(const taciti_step_bench_options *options, taciti_step_bench *out) {
    struct bench bench = {.options = options};
    tacit_status status = create_bench(&bench);
    for (int round = -WARM_UP_ROUNDS; status == TACIT_OK && round < options->rounds; round++)
        status = measure_round(&bench, round);
    for (int i = 0; status == TACIT_OK && i < TACITI_STEP_FIGURES; i++)
        bench.result.figures[i] = taciti_statistics_of(bench.samples[i], options->rounds);
    bench.result.resident_bytes = taciti_peak_resident_bytes();
    destroy_bench(&bench);
    if (status == TACIT_OK) *out = bench.result;
    return status;
}
