/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "model/emulated.h"
#include "model/synthetic.h"

/* The last line that was logged. */
static char g_line[2048];

static void keep_line(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)level;
    (void)snprintf(g_line, sizeof g_line, "%s", line);
}

static int watch_log(void **state) {
    (void)state;
    taciti_log_set_sink(keep_line, NULL, TACITI_LOG_ERROR);
    return 0;
}

/* Two layers of 1 ms, with tensors of awkward sizes, and one that takes no time and has the largest tensor. */
static taciti_profile_tensor g_low[] = {{"embedding", 2, {1000, 131}}};
static taciti_profile_tensor g_middle[] = {{"w", 1, {1}}, {"x", 2, {17, 3}}};
static taciti_profile_tensor g_high[] = {{"y", 1, {8192}}, {"z", 1, {8193}}};
static taciti_profile_layer g_layers[] = {
    {.name = "low", .tensors = g_low, .tensor_count = 1},
    {.name = "middle", .forward_s = 5e-4, .backward_s = 5e-4, .tensors = g_middle, .tensor_count = 2},
    {.name = "no tensors", .forward_s = 1e-4, .backward_s = 1e-4},
    {.name = "high", .forward_s = 5e-4, .backward_s = 5e-4, .tensors = g_high, .tensor_count = 2},
};
static const taciti_profile PROFILE = {.name = "test", .layers = g_layers, .layer_count = 4, .update_s = 2e-3};
enum { TENSORS = 5 };

typedef struct fixture {
    taciti_layout layout;
    taciti_emulated *emulated;
    int64_t start_ns, at_ns[TENSORS];
    size_t calls;
    float *copy; /* gradients as they were when they became ready */
} fixture;

static void set_up_buckets(fixture *f, taciti_compute_options options, int rank, size_t bucket_bytes) {
    *f = (fixture){0};
    assert_int_equal(taciti_profile_layout(&PROFILE, bucket_bytes, &f->layout), TACIT_OK);
    assert_int_equal(taciti_emulated_create(&options, &PROFILE, &f->layout, rank, &f->emulated), TACIT_OK);
    f->copy = taciti_calloc(f->layout.n, sizeof *f->copy);
    assert_non_null(f->copy);
}

static void set_up(fixture *f, taciti_compute_options options, int rank) { set_up_buckets(f, options, rank, 1 << 16); }

static void tear_down(fixture *f) {
    taciti_free(f->copy);
    taciti_emulated_destroy(f->emulated);
    taciti_layout_destroy(&f->layout);
}

static float *gradients(const fixture *f) {
    const taciti_network network = taciti_emulated_network(f->emulated);
    return network.verbs->arrays(network.self).gradients;
}

static void run(fixture *f, int64_t number, taciti_trace *trace, void (*ready)(void *context, size_t tensor)) {
    const taciti_network network = taciti_emulated_network(f->emulated);
    const taciti_network_hooks hooks = {.ready = ready, .context = f};
    double loss = 0;
    assert_int_equal(network.verbs->step(network.self, number, &hooks, trace, &loss), TACIT_OK);
    assert_true(isnan(loss));
}

static void on_ready(void *context, size_t tensor) {
    fixture *f = context;
    const taciti_tensor *t = &f->layout.tensors[tensor];
    assert_int_equal(tensor, f->calls);
    f->at_ns[f->calls++] = taciti_now_ns();
    memcpy(f->copy + t->offset, gradients(f) + t->offset, t->n * sizeof(float));
}

static void step(fixture *f, int64_t number) {
    f->calls = 0;
    f->start_ns = taciti_now_ns();
    run(f, number, NULL, on_ready);
    assert_int_equal(f->calls, TENSORS);
}

/* Never before: forward 1.1 ms, then 0.5, 0.6 (with the layer that has no tensors) and 0. How much later is the
 * machine's business. */
static void no_tensor_is_ready_before_its_time(void **state) {
    (void)state;
    static const double due_s[TENSORS] = {1.6e-3, 1.6e-3, 2.2e-3, 2.2e-3, 2.2e-3};
    fixture f;
    set_up(&f, (taciti_compute_options){0}, 0);
    for (int64_t s = 0; s < 3; s++) {
        step(&f, s);
        for (size_t t = 0; t < TENSORS; t++) assert_true((double)(f.at_ns[t] - f.start_ns) / 1e9 >= due_s[t] - 2e-9);
    }
    tear_down(&f);
}

/* ---- by units -----------------------------------------------------------------------------------------------------
 */

enum { EVENTS = 64, BLOCKED_MS = 3 };

/* Calls of a step: "n2" need unit 2, "w" write, "r" release, "t" tensor ready. */
typedef struct asked {
    fixture *f;
    char text[4 * EVENTS];
    bool writable[4];
    int blocked; /* needs that take BLOCKED_MS */
} asked;

static void note(asked *a, char what, size_t number) {
    const size_t length = strlen(a->text);
    (void)snprintf(a->text + length, sizeof a->text - length, "%s%c%zu", length > 0 ? " " : "", what, number);
}

static tacit_status on_need(void *context, size_t unit) {
    asked *a = context;
    note(a, 'n', unit);
    if (a->blocked-- > 0) taciti_sleep_ns(BLOCKED_MS * TACITI_NS_PER_MS);
    return TACIT_OK;
}

static void on_release(void *context, size_t unit) { note(context, 'r', unit); }

static tacit_status on_write(void *context, size_t unit) {
    asked *a = context;
    const taciti_range r = taciti_layout_unit(&a->f->layout, unit);
    note(a, 'w', unit);
    if (!a->writable[unit]) memset(gradients(a->f) + r.at, 0xff, r.n * sizeof(float)); /* nothing is there before */
    a->writable[unit] = true;
    return TACIT_OK;
}

static void unit_ready(void *context, size_t tensor) {
    asked *a = context;
    fixture *f = a->f;
    const taciti_tensor *t = &f->layout.tensors[tensor];
    note(a, 't', tensor);
    assert_true(a->writable[t->unit]);
    f->at_ns[f->calls++] = taciti_now_ns();
    memcpy(f->copy + t->offset, gradients(f) + t->offset, t->n * sizeof(float));
}

static void run_units(asked *a, int64_t number, taciti_trace *trace) {
    fixture *f = a->f;
    const taciti_network network = taciti_emulated_network(f->emulated);
    const taciti_network_hooks hooks = {
        .ready = unit_ready, .need = on_need, .release = on_release, .write = on_write, .context = a, .units = a};
    double loss = 0;
    f->calls = 0;
    f->start_ns = taciti_now_ns();
    assert_int_equal(network.verbs->step(network.self, number, &hooks, trace, &loss), TACIT_OK);
    assert_int_equal(f->calls, TENSORS);
}

/* Units are high 0, middle 1, low 2; "no tensors" is none. */
static const char UNTIED[] = "n2 r2 n1 r1 n0 w0 r0 t0 t1 n1 w1 r1 t2 t3 w2 t4";
static const char TIED[] = "n2 r2 n1 r1 n0 n2 w0 w2 r2 r0 t0 t1 n1 w1 r1 t2 t3 w2 t4";

static void a_step_asks_for_its_units(void **state) {
    (void)state;
    fixture f, whole;
    for (int tied = 0; tied < 2; tied++) {
        g_layers[3].tied = tied != 0;
        set_up(&f, (taciti_compute_options){0}, 1);
        set_up(&whole, (taciti_compute_options){0}, 1);
        assert_int_equal(f.layout.unit_count, 3);
        assert_int_equal(f.layout.tensors[TENSORS - 1].early, tied);
        assert_false(f.layout.tensors[0].early);
        asked a = {.f = &f};
        run_units(&a, 5, NULL);
        assert_string_equal(a.text, tied ? TIED : UNTIED);
        step(&whole, 5);
        assert_memory_equal(f.copy, whole.copy, f.layout.n * sizeof *f.copy);
        tear_down(&f);
        tear_down(&whole);
    }
    g_layers[3].tied = false;
}

/* A gather that is late holds up all layers behind it, and no span of compute contains it. */
static void the_accelerator_stands_still_while_it_waits(void **state) {
    (void)state;
    static const double due_s[TENSORS] = {1.6e-3, 1.6e-3, 2.2e-3, 2.2e-3, 2.2e-3};
    int64_t totals[TACITI_SPAN_KINDS];
    fixture f;
    taciti_trace trace;
    set_up(&f, (taciti_compute_options){0}, 0);
    assert_int_equal(taciti_trace_create(16, &trace), TACIT_OK);
    asked a = {.f = &f, .blocked = 2};
    run_units(&a, 0, &trace);
    for (size_t t = 0; t < TENSORS; t++)
        assert_true((double)(f.at_ns[t] - f.start_ns) / 1e9 >= due_s[t] + 2 * BLOCKED_MS * 1e-3 - 2e-9);
    const int64_t all_ns = taciti_now_ns() - f.start_ns;
    taciti_trace_take_totals(&trace, totals);
    assert_true(totals[TACITI_SPAN_FORWARD] > 0 && totals[TACITI_SPAN_BACKWARD] > 0);
    assert_true(totals[TACITI_SPAN_FORWARD] + totals[TACITI_SPAN_BACKWARD] <=
                all_ns - 2 * BLOCKED_MS * TACITI_NS_PER_MS);
    taciti_trace_destroy(&trace);
    tear_down(&f);
}

static tacit_status refuse(void *context, size_t unit) {
    asked *a = context;
    return unit == 1 && a->writable[0] ? TACIT_E_PEER : TACIT_OK;
}

static tacit_status allow(void *context, size_t unit) {
    ((asked *)context)->writable[unit] = true;
    return TACIT_OK;
}

static void an_error_of_a_hook_ends_the_step(void **state) {
    (void)state;
    fixture f;
    double loss = 0;
    set_up(&f, (taciti_compute_options){0}, 0);
    asked a = {.f = &f};
    const taciti_network network = taciti_emulated_network(f.emulated);
    const taciti_network_hooks hooks = {.need = refuse, .write = allow, .units = &a};
    assert_int_equal(network.verbs->step(network.self, 0, &hooks, NULL, &loss), TACIT_E_PEER);
    assert_false(a.writable[1]);
    tear_down(&f);
}

/* One for the forward pass, one for each layer that fills a bucket; they adjoin. */
static void check_spans(size_t bucket_bytes, const int *details, size_t count) {
    fixture f;
    taciti_trace trace;
    set_up_buckets(&f, (taciti_compute_options){0}, 0, bucket_bytes);
    assert_int_equal(taciti_trace_create(16, &trace), TACIT_OK);
    run(&f, 0, &trace, on_ready);
    assert_int_equal(f.calls, TENSORS);
    assert_int_equal(trace.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(trace.spans[i].kind, i == 0 ? TACITI_SPAN_FORWARD : TACITI_SPAN_BACKWARD);
        assert_int_equal(trace.spans[i].detail, details[i]);
        if (i > 0) assert_int_equal(trace.spans[i].begin_ns, trace.spans[i - 1].end_ns);
    }
    taciti_trace_destroy(&trace);
    tear_down(&f);
}

static void waits_end_where_a_bucket_is_full(void **state) {
    (void)state;
    static const int fine[] = {-1, 3, 1, 0}, coarse[] = {-1, 0};
    check_spans(64, fine, 4);
    check_spans(1 << 16, fine, 4);
    check_spans(1 << 20, coarse, 2);
}

/* Values that an exchange leaves in place, even infinities, are overwritten; padding is never touched. */
static void gradients_do_not_depend_on_what_was_there(void **state) {
    (void)state;
    fixture a, b;
    set_up(&a, (taciti_compute_options){0}, 2);
    set_up(&b, (taciti_compute_options){0}, 2);
    step(&a, 0);
    float *g = gradients(&a);
    for (size_t i = 0; i < TENSORS; i++)
        for (size_t e = 0; e < a.layout.tensors[i].n; e++)
            g[a.layout.tensors[i].offset + e] = e % 2 == 0 ? INFINITY : NAN;
    step(&a, 1);
    step(&b, 1);
    assert_memory_equal(g, gradients(&b), a.layout.n * sizeof(float));
    assert_memory_equal(g, a.copy, a.layout.n * sizeof(float)); /* final when ready; padding of the copy is 0 */
    tear_down(&a);
    tear_down(&b);
}

static size_t equal_elements(const fixture *a, const fixture *b) {
    size_t equal = 0;
    for (size_t i = 0; i < TENSORS; i++)
        for (size_t e = 0; e < a->layout.tensors[i].n; e++) {
            const size_t at = a->layout.tensors[i].offset + e;
            equal += memcmp(&a->copy[at], &b->copy[at], sizeof(float)) == 0;
        }
    return equal;
}

static void gradients_differ_between_ranks_steps_and_seeds(void **state) {
    (void)state;
    fixture base, rank, later, seed;
    set_up(&base, (taciti_compute_options){.seed = 1}, 0);
    set_up(&rank, (taciti_compute_options){.seed = 1}, 1);
    set_up(&later, (taciti_compute_options){.seed = 1}, 0);
    set_up(&seed, (taciti_compute_options){.seed = 2}, 0);
    step(&base, 7);
    step(&rank, 7);
    step(&later, 8);
    step(&seed, 7);
    /* Among 147 thousand floats, a few are equal by chance. */
    assert_true(equal_elements(&base, &rank) < 100);
    assert_true(equal_elements(&base, &later) < 100);
    assert_true(equal_elements(&base, &seed) < 100);
    tear_down(&base);
    tear_down(&rank);
    tear_down(&later);
    tear_down(&seed);
}

/* Over many blocks: finite, nowhere 0, mean 0, heavier tails than a normal distribution, the same size at every step.
 */
static void gradients_are_heavy_tailed_noise(void **state) {
    (void)state;
    enum { N = 1 << 22 };
    float *x = taciti_calloc(N, sizeof *x);
    taciti_synthetic *noise = NULL;
    assert_non_null(x);
    assert_int_equal(taciti_synthetic_create(5, &noise), TACIT_OK);
    for (uint64_t key = 0; key < 4; key++) {
        double sum = 0, squares = 0, fourth = 0;
        size_t zeros = 0;
        taciti_synthetic_write(noise, taciti_rng_key(9, key), 1e-3f, 0, N, x);
        for (size_t i = 0; i < N; i++) {
            const double v = (double)x[i];
            assert_true(isfinite(v));
            zeros += !(v > 0) && !(v < 0);
            sum += v;
            squares += v * v;
            fourth += v * v * v * v;
        }
        assert_int_equal(zeros, 0);
        /* The effective number of elements is smaller than N by the tail's kurtosis (below 200). */
        assert_true(fabs(sum / N) <= 6 * sqrt(squares / N) * sqrt(200.0 / N));
        assert_true(fourth / N > 6 * (squares / N) * (squares / N));
        /* e^2 * 1e-6 is the variance of exp(normal) * normal * 1e-3. */
        assert_true(squares / N > 0.3e-6 * 7.4 && squares / N < 3e-6 * 7.4);
    }
    taciti_synthetic_destroy(noise);
    taciti_free(x);
}

/* A gradient that is written in pieces is the one that is written at once, whatever its size. */
static void pieces_give_the_whole(void **state) {
    (void)state;
    enum { N = 3 * TACITI_SYNTHETIC_BLOCK + 5, BLOCK = TACITI_SYNTHETIC_BLOCK };
    static float whole[N + 1], pieces[N + 1];
    static const size_t sizes[] = {0, 1, 15, 16, 17, BLOCK - 1, BLOCK, BLOCK + 1, N};
    taciti_synthetic *noise = NULL;
    assert_int_equal(taciti_synthetic_create(5, &noise), TACIT_OK);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        memset(whole, 0, sizeof whole);
        memset(pieces, 0, sizeof pieces);
        taciti_synthetic_write(noise, 77, 1, 0, sizes[s], whole);
        for (size_t at = 0; at < sizes[s]; at += BLOCK)
            taciti_synthetic_write(noise, 77, 1, at, sizes[s] - at < BLOCK ? sizes[s] : at + BLOCK, pieces);
        assert_memory_equal(whole, pieces, sizeof whole);
        for (size_t i = 0; i <= N; i++) assert_int_equal(whole[i] < 0 || whole[i] > 0, i < sizes[s]);
    }
    taciti_synthetic_destroy(noise);
}

static void nobody_wants_gradients(void **state) {
    (void)state;
    fixture f;
    set_up(&f, (taciti_compute_options){0}, 0);
    step(&f, 0);
    memset(gradients(&f), 0, f.layout.n * sizeof(float));
    run(&f, 1, NULL, NULL);
    for (size_t i = 0; i < f.layout.n; i++) assert_true(fabsf(gradients(&f)[i]) <= 0);
    tear_down(&f);
}

/* ---- times ------------------------------------------------------------------------------------------------------- */

/* Asked for: mean 2.2 ms, and cv. The tolerance is 5 standard errors of 20000 draws. */
static void step_times_have_the_mean_and_deviation_asked_for(void **state) {
    (void)state;
    static const double cvs[] = {0, 0.05, 0.1, 0.4};
    enum { STEPS = 20000 };
    for (size_t c = 0; c < sizeof cvs / sizeof cvs[0]; c++) {
        fixture f;
        double sum = 0, squares = 0, product = 0, last = 0;
        set_up(&f, (taciti_compute_options){.cv = cvs[c]}, 3);
        for (int64_t s = 0; s < STEPS; s++) {
            const double d = taciti_emulated_step_s(f.emulated, s) / 2.2e-3 - 1;
            assert_true(d >= -0.9 - 1e-12);
            sum += d;
            squares += d * d;
            product += s > 0 ? d * last : 0;
            last = d;
        }
        const double cv = sqrt(squares / STEPS), error = 5 / sqrt(STEPS);
        assert_true(fabs(sum / STEPS) <= cvs[c] * error + 0.002 * (cvs[c] >= 0.4) + 1e-12);
        assert_true(fabs(cv - cvs[c]) <= cvs[c] * (error + 0.01 * (cvs[c] >= 0.4)) + 1e-12);
        assert_true(fabs(product / STEPS) <= squares / STEPS * error + 1e-12); /* no autocorrelation */
        tear_down(&f);
    }
}

/* E[max over N ranks] = 1 + cv e_N (docs/profile.md); e_8 = 1.4236, e_16 = 1.7660. The maximum of N normals has a
 * standard deviation below 0.65. */
static void the_slowest_of_n_ranks_is_as_slow_as_theory_says(void **state) {
    (void)state;
    static const struct {
        int ranks;
        double expected;
    } cases[] = {{2, 0.5642}, {4, 1.0294}, {8, 1.4236}, {16, 1.7660}};
    enum { STEPS = 5000 };
    static taciti_emulated *ranks[16];
    taciti_layout layout;
    const taciti_compute_options options = {.cv = 0.1, .seed = 4};
    assert_int_equal(taciti_profile_layout(&PROFILE, 1 << 16, &layout), TACIT_OK);
    for (int r = 0; r < 16; r++)
        assert_int_equal(taciti_emulated_create(&options, &PROFILE, &layout, r, &ranks[r]), TACIT_OK);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        double sum = 0;
        for (int64_t s = 0; s < STEPS; s++) {
            double max = 0;
            for (int r = 0; r < cases[c].ranks; r++) max = fmax(max, taciti_emulated_step_s(ranks[r], s));
            sum += (max / 2.2e-3 - 1) / 0.1;
        }
        assert_true(fabs(sum / STEPS - cases[c].expected) <= 5 * 0.83 / sqrt(STEPS));
    }
    for (int r = 0; r < 16; r++) taciti_emulated_destroy(ranks[r]);
    taciti_layout_destroy(&layout);
}

static char *g_slow[] = {(char[]){"3:1.5"}, (char[]){"0:0.5"}};

static void a_straggler_is_slow_in_every_step(void **state) {
    (void)state;
    const taciti_compute_options options = {.cv = 0.1, .slow = {.items = g_slow, .count = 2}};
    static const double expected[5] = {0.5, 1, 1, 1.5, 1};
    assert_int_equal(taciti_compute_check(&options, 4), TACIT_OK);
    for (int r = 0; r < 5; r++) {
        fixture with, without;
        set_up(&with, options, r);
        set_up(&without, (taciti_compute_options){.cv = 0.1}, r);
        for (int64_t s = 0; s < 10; s++) {
            const double ratio = taciti_emulated_step_s(with.emulated, s) / taciti_emulated_step_s(without.emulated, s);
            assert_true(fabs(ratio - expected[r]) <= 1e-12);
        }
        tear_down(&with);
        tear_down(&without);
    }
}

static void wrong_stragglers_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *items[2], *says;
    } cases[] = {
        {{"3"}, "\"3\" is not RANK:FACTOR"},
        {{"x:2"}, "is not RANK:FACTOR"},
        {{"1:"}, "is not RANK:FACTOR"},
        {{":2"}, "is not RANK:FACTOR"},
        {{"1:nan"}, "is not RANK:FACTOR"},
        {{"1:2:3"}, "is not RANK:FACTOR"},
        {{""}, "is not RANK:FACTOR"},
        {{"4:2"}, "4 ranks run: 0 to 3"},
        {{"-1:2"}, "no such rank"},
        {{"1:0"}, "from 0.01 to 1000"},
        {{"1:-2"}, "from 0.01 to 1000"},
        {{"1:1e9"}, "from 0.01 to 1000"},
        {{"1:2", "1:3"}, "has a factor"},
        {{"99999999999999999999:2"}, "is not RANK:FACTOR"},
        {{"2:1.5", "5:2"}, "\"5:2\": there is no such rank"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char items[2][32] = {"", ""}, *list[2] = {items[0], items[1]};
        const size_t count = cases[i].items[1] == NULL ? 1 : 2;
        for (size_t k = 0; k < count; k++) (void)snprintf(items[k], sizeof items[k], "%s", cases[i].items[k]);
        const taciti_compute_options options = {.slow = {.items = list, .count = count}};
        assert_int_equal(taciti_compute_check(&options, 4), TACIT_E_CONFIG);
        assert_non_null(strstr(g_line, "compute.slow"));
        assert_non_null(strstr(g_line, cases[i].says));
    }
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

static taciti_compute_options options_of(const char *first, const char *second) {
    taciti_compute_options options;
    const taciti_section section = {&taciti_compute_option_table, &options, NULL};
    const taciti_config config = {&section, 1};
    char *words[2];
    char text[2][64];
    (void)snprintf(text[0], sizeof text[0], "%s", first);
    (void)snprintf(text[1], sizeof text[1], "%s", second);
    words[0] = text[0];
    words[1] = text[1];
    assert_int_equal(taciti_config_defaults(&config), TACIT_OK);
    for (int next = 0; next < 2 && words[next][0] != '\0';)
        assert_int_equal(taciti_config_flag(&config, 2, words, &next), TACIT_OK);
    return options;
}

static void a_preset_alone_is_enough(void **state) {
    (void)state;
    for (const char *const *name = taciti_profile_presets(); *name != NULL; name++) {
        taciti_compute_options options = options_of("", "");
        taciti_profile profile;
        assert_string_equal(options.emulate.text, "");
        (void)snprintf(options.emulate.text, sizeof options.emulate.text, "%s", *name);
        assert_int_equal(taciti_compute_profile(&options, &profile), TACIT_OK);
        assert_false(profile.in_flops);
        assert_true(taciti_profile_forward_s(&profile) > 1e-3 && taciti_profile_backward_s(&profile) < 2);
        taciti_profile_destroy(&profile);
    }
}

static void options_set_the_times(void **state) {
    (void)state;
    taciti_profile base, changed;
    taciti_compute_options options = options_of("--compute.emulate=vgg-16", "");
    assert_int_equal(taciti_compute_profile(&options, &base), TACIT_OK);
    options.rate = base.rate * 2;
    options.batch = base.batch * 3;
    options.scale = 5;
    assert_int_equal(taciti_compute_profile(&options, &changed), TACIT_OK);
    const double ratio = taciti_profile_forward_s(&changed) / taciti_profile_forward_s(&base);
    assert_true(fabs(ratio - 7.5) <= 1e-12);
    assert_true(fabs(changed.update_s / base.update_s - 5) <= 1e-12); /* given in seconds: only scaled */
    taciti_profile_destroy(&base);
    taciti_profile_destroy(&changed);
}

/* ---- the optimizer ----------------------------------------------------------------------------------------------- */

static void never(void *context, int thread, int threads) {
    (void)context, (void)thread, (void)threads;
    fail();
}

/* It reads and writes nothing, ranges take their part of the time, and only begin counts. */
static void an_update_only_takes_time(void **state) {
    (void)state;
    fixture f;
    taciti_optim *optim = NULL;
    float nowhere = 3;
    taciti_blend blend = {.arrived = &nowhere, .keep = 0, .share = 1, .leaving = &nowhere, .moved = 5};
    set_up(&f, (taciti_compute_options){0}, 0);
    const taciti_network network = taciti_emulated_network(f.emulated);
    const size_t n = f.layout.n, quarter = n / 4;
    assert_int_equal(network.verbs->optimizer(network.self, &optim), TACIT_OK);
    const double sum = taciti_optim_sum_squares(optim, NULL, 0, (size_t)1 << 40), zero = 0;
    assert_memory_equal(&sum, &zero, sizeof sum);
    int64_t begin_ns = taciti_now_ns();
    taciti_optim_update(optim, NULL, &nowhere, NULL, 1e-3, 1);
    assert_true(taciti_now_ns() - begin_ns >= 2000000);
    taciti_optim_begin(optim, 1e-3, 1);
    begin_ns = taciti_now_ns();
    taciti_optim_update_range(optim, NULL, &nowhere, NULL, 0, quarter, &blend);
    assert_true(taciti_now_ns() - begin_ns >= 499000);
    taciti_optim_update_range(optim, NULL, &nowhere, NULL, quarter, n - quarter, &blend);
    assert_true(taciti_now_ns() - begin_ns >= 2000000);
    taciti_optim_blend_range(optim, NULL, NULL, 0, n, &blend);
    taciti_optim_scale(optim, &nowhere, 0.5);
    taciti_optim_run(optim, never, NULL);
    assert_true(nowhere == 3 && blend.moved == 5);
    assert_int_equal(taciti_optim_updates(optim), 2);
    assert_int_equal(taciti_optim_state_count(optim), 0);
    taciti_optim_destroy(optim);
    tear_down(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_tensor_is_ready_before_its_time),
        cmocka_unit_test(a_step_asks_for_its_units),
        cmocka_unit_test(the_accelerator_stands_still_while_it_waits),
        cmocka_unit_test(an_error_of_a_hook_ends_the_step),
        cmocka_unit_test(waits_end_where_a_bucket_is_full),
        cmocka_unit_test(gradients_do_not_depend_on_what_was_there),
        cmocka_unit_test(gradients_differ_between_ranks_steps_and_seeds),
        cmocka_unit_test(gradients_are_heavy_tailed_noise),
        cmocka_unit_test(pieces_give_the_whole),
        cmocka_unit_test(nobody_wants_gradients),
        cmocka_unit_test(step_times_have_the_mean_and_deviation_asked_for),
        cmocka_unit_test(the_slowest_of_n_ranks_is_as_slow_as_theory_says),
        cmocka_unit_test(a_straggler_is_slow_in_every_step),
        cmocka_unit_test(wrong_stragglers_are_refused),
        cmocka_unit_test(a_preset_alone_is_enough),
        cmocka_unit_test(options_set_the_times),
        cmocka_unit_test(an_update_only_takes_time),
    };
    return cmocka_run_group_tests(tests, watch_log, NULL);
}
