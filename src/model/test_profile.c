/* SPDX-License-Identifier: Apache-2.0 */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "model/model.h"
#include "model/profile.h"
#include "model/profile_build.h"

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

static tacit_status parse(const char *text, taciti_profile *out) {
    g_line[0] = '\0';
    return taciti_profile_parse("p.json", text, strlen(text), out);
}

static taciti_profile preset(const char *name) {
    taciti_profile profile;
    assert_int_equal(taciti_profile_load(name, &profile), TACIT_OK);
    return profile;
}

static void assert_same(double a, double b) { assert_memory_equal(&a, &b, sizeof a); }

static void assert_near(double a, double b, double relative) { assert_true(fabs(a - b) <= relative * fabs(b)); }

/* ---- presets ----------------------------------------------------------------------------------------------------- */

typedef struct published {
    const char *name;
    size_t parameters;
    double forward_gflop, relative; /* per sample, and how exactly the source says it */
} published;

/* Parameters: torchvision's and Hugging Face's counts; for the Transformer and the LSTM the sums in the comments.
 * Operations: torchvision's multiply-adds times two; for GPT-2 2 N per token with N = 124 M (2 N: Kaplan et al.,
 * arXiv 2001.08361, section 2.1), to which attention adds 15 % (14 %) at 1024 tokens. */
static const published PUBLISHED[] = {
    /* 37120 x 512, 6 x 3152384, 6 x 4204032 */
    {"transformer-base", 63143936, 2 * 0.0631 * 32, 0.02},
    {"transformer-big", 32000 * 1024 + 6 * 12596224 + 6 * 16796672, 2 * 0.2091 * 32, 0.02},
    {"gpt2-124m", 124439808, 2 * 0.1244 * 1024 * 1.15, 0.02},
    /* TAGC's count without biases, 12 x 8448 + 768 of these; attention adds 7 % at 512 tokens */
    {"gpt2-124m-untied", 162614016 + 102144, 2 * 0.1244 * 512 * 1.07, 0.02},
    {"gpt2-350m", 354823168, 2 * 0.3548 * 1024 * 1.14, 0.02},
    {"resnet-101", 44549160, 2 * 7.80, 0.005},
    {"vgg-16", 138357544, 2 * 15.47, 0.005},
    /* 2 x 10000 x 1500 + 10000, 2 x (2 x 6000 x 1500 + 2 x 6000) */
    {"lstm-66m", 66034000, 2 * 0.051 * 35, 0.01},
};
enum { PUBLISHED_COUNT = sizeof PUBLISHED / sizeof PUBLISHED[0] };

static double forward_flops(const taciti_profile *profile) {
    double sum = 0;
    for (size_t l = 0; l < profile->layer_count; l++) sum += profile->layers[l].forward_flops;
    return sum;
}

static void presets_have_the_published_sizes(void **state) {
    (void)state;
    size_t count = 0;
    for (const char *const *name = taciti_profile_presets(); *name != NULL; name++) count++;
    assert_int_equal(count, PUBLISHED_COUNT);
    for (size_t i = 0; i < PUBLISHED_COUNT; i++) {
        taciti_profile p = preset(PUBLISHED[i].name);
        assert_string_equal(p.name, PUBLISHED[i].name);
        assert_non_null(taciti_profile_preset_help(p.name));
        assert_int_equal(taciti_profile_parameters(&p), PUBLISHED[i].parameters);
        assert_near(forward_flops(&p) / 1e9, PUBLISHED[i].forward_gflop, PUBLISHED[i].relative);
        for (size_t l = 0; l < p.layer_count; l++)
            assert_same(p.layers[l].backward_flops, 2 * p.layers[l].forward_flops);
        taciti_profile_destroy(&p);
    }
    assert_null(taciti_profile_preset_help("gpt5"));
}

/* The profile of GPT-2 and the network that this program trains have the same tensors at the same places. */
static void gpt2_has_the_layout_of_the_model(void **state) {
    (void)state;
    taciti_model_options options = {.layers = 12, .heads = 12, .channels = 768, .vocabulary = 50257, .context = 1024};
    taciti_layout ours, emulated;
    taciti_profile p = preset("gpt2-124m");
    options.tied = true;
    assert_int_equal(taciti_model_layout(&options, 25 << 20, &ours), TACIT_OK);
    assert_int_equal(taciti_profile_layout(&p, 25 << 20, &emulated), TACIT_OK);
    assert_int_equal(ours.tensor_count, emulated.tensor_count);
    for (size_t i = 0; i < ours.tensor_count; i++) {
        assert_string_equal(ours.tensors[i].name, emulated.tensors[i].name);
        assert_int_equal(ours.tensors[i].offset, emulated.tensors[i].offset);
        assert_int_equal(ours.tensors[i].decay, emulated.tensors[i].decay);
        assert_int_equal(ours.tensors[i].dims, emulated.tensors[i].dims);
        assert_memory_equal(ours.tensors[i].shape, emulated.tensors[i].shape,
                            (size_t)ours.tensors[i].dims * sizeof *ours.tensors[i].shape);
    }
    assert_int_equal(ours.bucket_count, emulated.bucket_count);
    assert_int_equal(ours.parameters, emulated.parameters);
    /* 6 N + 12 L C T per token, with the biases and norms that are no products: below 0.2 % */
    const double per_token = taciti_model_flops_per_token(&options, 1024);
    assert_near(3 * forward_flops(&p), 1024 * per_token, 0.002);
    taciti_layout_destroy(&ours);
    taciti_layout_destroy(&emulated);
    taciti_profile_destroy(&p);
}

static void any_gpt_has_the_layout_of_the_model(void **state) {
    (void)state;
    for (int tied = 0; tied <= 1; tied++) {
        taciti_model_options options = {
            .layers = 3, .heads = 2, .channels = 64, .vocabulary = 61, .context = 40, .tied = tied};
        taciti_layout ours, planned;
        taciti_profile p;
        assert_int_equal(taciti_profile_of_gpt(&options, 32, &p), TACIT_OK);
        assert_true(p.in_flops && p.rate == 0 && p.batch == 0);
        assert_int_equal(taciti_model_layout(&options, 1 << 14, &ours), TACIT_OK);
        assert_int_equal(taciti_profile_layout(&p, 1 << 14, &planned), TACIT_OK);
        assert_int_equal(ours.tensor_count, planned.tensor_count);
        assert_int_equal(ours.bucket_count, planned.bucket_count);
        for (size_t i = 0; i < ours.tensor_count; i++) {
            assert_string_equal(ours.tensors[i].name, planned.tensors[i].name);
            assert_int_equal(ours.tensors[i].offset, planned.tensors[i].offset);
        }
        taciti_layout_destroy(&ours);
        taciti_layout_destroy(&planned);
        taciti_profile_destroy(&p);
    }
}

static taciti_span span(taciti_span_kind kind, int detail, int64_t begin_ns, int64_t ms) {
    return (taciti_span){
        .begin_ns = begin_ns, .end_ns = begin_ns + ms * 1000000, .kind = (int32_t)kind, .detail = detail};
}

/* Two passes of a network of two layers; only the last one's gradients count as backward. */
static void measured_spans_become_seconds_of_layers(void **state) {
    (void)state;
    const taciti_model_options options = {
        .layers = 2, .heads = 2, .channels = 16, .vocabulary = 50, .context = 8, .tied = true};
    taciti_profile p;
    assert_int_equal(taciti_profile_of_gpt(&options, 8, &p), TACIT_OK);
    taciti_profile_measure(&p);
    assert_true(!p.in_flops && taciti_profile_forward_s(&p) == 0 && taciti_profile_backward_s(&p) == 0);
    const taciti_span once[] = {
        span(TACITI_SPAN_DATA, -1, 5, 1000),    span(TACITI_SPAN_FORWARD, 0, 0, 1),
        span(TACITI_SPAN_FORWARD, 1, 7, 2),     span(TACITI_SPAN_FORWARD, 2, 9, 3),
        span(TACITI_SPAN_BACKWARD, 2, 9, 10),   span(TACITI_SPAN_BACKWARD, 1, 9, 20),
        span(TACITI_SPAN_WAIT, 1, 9, 500),      span(TACITI_SPAN_BACKWARD, 0, 9, 30),
        span(TACITI_SPAN_BACKWARD, -1, 9, 40),  span(TACITI_SPAN_BACKWARD, 3, 9, 5000), /* no such layer */
        span(TACITI_SPAN_FORWARD, -2, 9, 5000),
    };
    taciti_span twice[2 * sizeof once / sizeof *once];
    memcpy(twice, once, sizeof once);
    memcpy(twice + sizeof once / sizeof *once, once, sizeof once);
    for (int update = 0; update < 4; update++) {
        taciti_profile_add_spans(&p, twice, sizeof twice / sizeof *twice, 2);
        p.update_s += 0.5;
    }
    taciti_profile_add_spans(&p, NULL, 0, 2);
    taciti_profile_divide(&p, 4);
    static const double forward_ms[] = {40, 2 + 30, 4 + 20, 6 + 10}, backward_ms[] = {40, 30, 20, 10};
    for (size_t l = 0; l < 4; l++) {
        assert_true(fabs(p.layers[l].forward_s * 1e3 - forward_ms[l]) < 1e-9);
        assert_true(fabs(p.layers[l].backward_s * 1e3 - backward_ms[l]) < 1e-9);
    }
    assert_true(p.update_s == 0.5);
    taciti_profile_destroy(&p);
}

static void the_layout_is_in_ready_order(void **state) {
    (void)state;
    for (const char *const *name = taciti_profile_presets(); *name != NULL; name++) {
        taciti_profile p = preset(*name);
        taciti_layout layout;
        size_t at = 0;
        assert_int_equal(taciti_profile_layout(&p, 25 << 20, &layout), TACIT_OK);
        for (size_t l = p.layer_count; l-- > 0;)
            for (size_t t = p.layers[l].tensor_count; t-- > 0; at++) {
                assert_string_equal(layout.tensors[at].name, p.layers[l].tensors[t].name);
                assert_int_equal(layout.tensors[at].decay, layout.tensors[at].dims > 1);
                assert_int_equal(taciti_layout_find(&layout, layout.tensors[at].name), at); /* no name twice */
            }
        assert_int_equal(at, layout.tensor_count);
        assert_int_equal(layout.parameters, taciti_profile_parameters(&p));
        taciti_layout_destroy(&layout);
        taciti_profile_destroy(&p);
    }
}

static void operations_become_seconds_once(void **state) {
    (void)state;
    taciti_profile p = preset("vgg-16");
    const double flops = forward_flops(&p);
    taciti_profile_to_seconds(&p, 1e12, 10);
    assert_false(p.in_flops);
    assert_near(taciti_profile_forward_s(&p), flops * 10 / 1e12, 1e-12);
    assert_near(taciti_profile_backward_s(&p), 2 * flops * 10 / 1e12, 1e-12);
    taciti_profile_to_seconds(&p, 1, 1);
    assert_near(taciti_profile_forward_s(&p), flops * 10 / 1e12, 1e-12);
    taciti_profile_destroy(&p);
}

/* Half the batch saves half of the operations' time and nothing of the floor. */
static void a_floor_does_not_shrink_with_the_batch(void **state) {
    (void)state;
    double seconds[2], forward[2];
    for (int i = 0; i < 2; i++) {
        taciti_profile p = preset("vgg-16");
        p.floor_s = 0.03;
        taciti_profile_to_seconds(&p, 1e12, i == 0 ? 1 : 0.5);
        forward[i] = taciti_profile_forward_s(&p);
        seconds[i] = forward[i] + taciti_profile_backward_s(&p) - 0.03;
        taciti_profile_destroy(&p);
    }
    assert_near(seconds[1], seconds[0] / 2, 1e-12);
    assert_near(forward[0], (seconds[0] + 0.03) / 3, 1e-12);
}

static void unknown_names_get_a_suggestion(void **state) {
    (void)state;
    taciti_profile p;
    assert_int_equal(taciti_profile_load("gpt2-124", &p), TACIT_E_CONFIG);
    assert_non_null(strstr(g_line, "did you mean \"gpt2-124m\"?"));
    assert_int_equal(taciti_profile_load("something", &p), TACIT_E_CONFIG);
    assert_null(strstr(g_line, "did you mean"));
    assert_non_null(strstr(g_line, "resnet-101"));
    assert_int_not_equal(taciti_profile_load("./no/such/file.json", &p), TACIT_OK);
    assert_non_null(strstr(g_line, "no/such/file.json"));
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static void assert_equal_profiles(const taciti_profile *a, const taciti_profile *b) {
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->source, b->source);
    assert_int_equal(a->in_flops, b->in_flops);
    assert_same(a->sample_tokens, b->sample_tokens);
    assert_same(a->update_s, b->update_s);
    assert_same(a->in_flops ? a->rate : 0, b->rate); /* means nothing in seconds, so it is not written */
    assert_same(a->in_flops ? a->batch : 0, b->batch);
    assert_int_equal(a->layer_count, b->layer_count);
    for (size_t l = 0; l < a->layer_count; l++) {
        const taciti_profile_layer *x = &a->layers[l], *y = &b->layers[l];
        assert_string_equal(x->name, y->name);
        assert_same(a->in_flops ? x->forward_flops : x->forward_s, a->in_flops ? y->forward_flops : y->forward_s);
        assert_same(a->in_flops ? x->backward_flops : x->backward_s, a->in_flops ? y->backward_flops : y->backward_s);
        assert_int_equal(x->tied, y->tied);
        assert_int_equal(x->tensor_count, y->tensor_count);
        for (size_t t = 0; t < x->tensor_count; t++) {
            assert_string_equal(x->tensors[t].name, y->tensors[t].name);
            assert_int_equal(x->tensors[t].dims, y->tensors[t].dims);
            assert_memory_equal(x->tensors[t].shape, y->tensors[t].shape, sizeof x->tensors[t].shape);
        }
    }
}

/* Every preset, in operations and in seconds that need all digits. */
static void a_profile_survives_its_file(void **state) {
    (void)state;
    char path[] = "/tmp/tacit-profile-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && close(fd) == 0);
    for (const char *const *name = taciti_profile_presets(); *name != NULL; name++)
        for (int seconds = 0; seconds < 2; seconds++) {
            taciti_profile p = preset(*name), again;
            if (seconds == 1) taciti_profile_to_seconds(&p, 3e13, 7);
            assert_int_equal(taciti_profile_save(&p, path), TACIT_OK);
            assert_int_equal(taciti_profile_load(path, &again), TACIT_OK);
            assert_equal_profiles(&p, &again);
            taciti_profile_destroy(&p);
            taciti_profile_destroy(&again);
        }
    assert_int_equal(unlink(path), 0);
}

/* As an integer, -0 loses its sign. */
static void there_is_no_negative_zero(void **state) {
    (void)state;
    taciti_profile p;
    const double zero = 0;
    assert_int_equal(
        parse("{\"format\": \"tacit-profile-1\", \"name\": \"n\", \"unit\": \"seconds\", \"update_s\": -0.0,"
              "\"layers\": [{\"name\": \"l\", \"forward_s\": -0e5, \"backward_s\": -0,"
              "\"tensors\": [{\"name\": \"t\", \"shape\": [1]}]}]}",
              &p),
        TACIT_OK);
    assert_same(p.update_s, zero);
    assert_same(p.layers[0].forward_s, zero);
    assert_same(p.layers[0].backward_s, zero);
    taciti_profile_destroy(&p);
}

static void names_are_written_so_that_they_can_be_read(void **state) {
    (void)state;
    taciti_profile p, again;
    assert_int_equal(
        parse("{\"format\": \"tacit-profile-1\", \"name\": \"a \\\"b\\\" \\\\ \\u00e4\", \"unit\": \"flops\","
              "\"layers\": [{\"name\": \"\\u2713\", \"forward_flops\": 0, \"backward_flops\": 1e21, \"tied\": true,"
              "\"tensors\": [{\"name\": \"/\", \"shape\": [1]}]}]}",
              &p),
        TACIT_OK);
    assert_string_equal(p.name, "a \"b\" \\ \xc3\xa4");
    assert_true(!(p.rate > 0) && !(p.batch > 0));
    assert_same(p.sample_tokens, 1);
    assert_true(p.layers[0].tied);
    char *text = taciti_profile_format(&p);
    assert_non_null(text);
    assert_int_equal(parse(text, &again), TACIT_OK);
    assert_equal_profiles(&p, &again);
    taciti_free(text);
    taciti_profile_destroy(&p);
    taciti_profile_destroy(&again);
}

/* The first block of JSON of docs/profile.md. */
static void the_example_of_the_document_is_legal(void **state) {
    (void)state;
    char *text = NULL;
    taciti_profile p;
    assert_int_equal(taciti_file_read("docs/profile.md", 1 << 20, &text, NULL), TACIT_OK);
    char *begin = strstr(text, "```json\n");
    assert_non_null(begin);
    begin += strlen("```json\n");
    char *end = strstr(begin, "```");
    assert_non_null(end);
    *end = '\0';
    assert_int_equal(parse(begin, &p), TACIT_OK);
    assert_int_equal(p.layer_count, 3);
    assert_int_equal(taciti_profile_parameters(&p), 1024 * 4096 + 1024 + 1000 * 1024);
    assert_near(taciti_profile_forward_s(&p), 0.014, 1e-12);
    assert_near(taciti_profile_backward_s(&p), 0.028, 1e-12);
    taciti_profile_destroy(&p);
    taciti_free(text);
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

#define HEAD "{\"format\": \"tacit-profile-1\", \"name\": \"n\", \"unit\": \"seconds\", "
#define FLOPS_HEAD "{\"format\": \"tacit-profile-1\", \"name\": \"n\", \"unit\": \"flops\", "
#define LAYER "{\"name\": \"l\", \"forward_s\": 1, \"backward_s\": 2"
#define TENSOR(name, shape) "{\"name\": \"" name "\", \"shape\": " shape "}"
#define TENSORS(list) ", \"tensors\": [" list "]}"
#define GOOD LAYER TENSORS(TENSOR("t", "[1]"))
#define WITH_TENSORS(list) HEAD "\"layers\": [" LAYER TENSORS(list) "]}"
#define LONG_63 "123456789012345678901234567890123456789012345678901234567890123"

typedef struct refusal {
    const char *text, *says[3];
} refusal;

static const refusal REFUSALS[] = {
    {"", {"p.json:1:0: not JSON"}},
    {"{\"format\":\n\n,}", {"p.json:3:"}},
    {HEAD "\"layers\": [" GOOD "]} x", {"not JSON"}},
    {HEAD "\"layers\": [" GOOD "], \"name\": \"m\"}", {"not JSON", "duplicate"}},
    {"[]", {"the file is a list"}},
    {"{}", {"format is missing", "tacit-profile-1"}},
    {"{\"format\": 1}", {"format is 1; give \"tacit-profile-1\""}},
    {"{\"format\": \"tacit-profile-2\"}", {"format is \"tacit-profile-2\""}},
    {"{\"format\": \"tacit-profile-1\", \"unit\": \"seconds\", \"layers\": []}", {"name is missing"}},
    {"{\"format\": \"tacit-profile-1\", \"name\": \"\", \"unit\": \"seconds\", \"layers\": []}", {"name is \"\""}},
    {"{\"format\": \"tacit-profile-1\", \"name\": \"a\\nb\", \"unit\": \"seconds\", \"layers\": []}", {"name is"}},
    {"{\"format\": \"tacit-profile-1\", \"name\": \"" LONG_63 "4\", \"unit\": \"flops\", \"layers\": []}",
     {"name is", "1 to 63 bytes"}},
    {"{\"format\": \"tacit-profile-1\", \"name\": \"n\", \"layers\": [" GOOD "]}", {"unit is missing"}},
    {"{\"format\": \"tacit-profile-1\", \"name\": \"n\", \"unit\": \"ms\", \"layers\": [" GOOD "]}",
     {"unit is \"ms\"", "\"seconds\"", "\"flops\""}},
    {HEAD "\"layers\": []}", {"layers is a list", "at least one layer"}},
    {HEAD "\"layers\": {}}", {"layers is an object"}},
    {HEAD "\"layers\": [" GOOD "], \"lairs\": 1}", {"unknown field \"lairs\"", "did you mean \"layers\"?"}},
    {HEAD "\"layers\": [" GOOD "], \"x\": 1}", {"unknown field \"x\"; legal here: format, name, source"}},
    {HEAD "\"layers\": [" GOOD "], \"update_s\": -1}", {"update_s is -1"}},
    {HEAD "\"layers\": [" GOOD "], \"update_s\": \"1\"}", {"update_s is \"1\"", "seconds"}},
    {HEAD "\"layers\": [" GOOD "], \"sample_tokens\": 0}", {"sample_tokens is 0"}},
    {HEAD "\"layers\": [" GOOD "], \"rate_flops_per_s\": 1e12}", {"rate_flops_per_s means nothing"}},
    {HEAD "\"layers\": [" GOOD "], \"batch_samples\": 3}", {"batch_samples means nothing"}},
    {FLOPS_HEAD "\"layers\": [], \"batch_samples\": 0}", {"batch_samples is 0"}},
    {HEAD "\"layers\": [7]}", {"layers[0] is 7; give an object"}},
    {HEAD "\"layers\": [" GOOD ", {\"forward_s\": 1, \"backward_s\": 2}]}", {"layers[1].name is missing"}},
    {HEAD "\"layers\": [{\"name\": \"l\", \"forward_s\": 1}]}", {"layers[0].backward_s is missing; give seconds"}},
    {HEAD "\"layers\": [{\"name\": \"l\", \"forward_s\": 1, \"bakward_s\": 1}]}",
     {"layers[0]: unknown field \"bakward_s\"", "did you mean \"backward_s\"?"}},
    {HEAD "\"layers\": [{\"name\": \"l\", \"forward_s\": -0.5, \"backward_s\": 1}]}", {"layers[0].forward_s is -0.5"}},
    {HEAD "\"layers\": [{\"name\": \"l\", \"forward_s\": null, \"backward_s\": 1}]}", {"layers[0].forward_s is null"}},
    {HEAD "\"layers\": [{\"name\": \"l\", \"forward_s\": 1e400, \"backward_s\": 1}]}", {"p.json:1:", "overflow"}},
    {HEAD "\"layers\": [{\"name\": \"l\", \"forward_s\": 1e7, \"backward_s\": 1}]}", {"forward_s is", "0 to 1e6"}},
    {HEAD "\"layers\": [{\"name\": \"l\", \"forward_s\": NaN, \"backward_s\": 1}]}", {"p.json:1:", "not JSON"}},
    {HEAD "\"layers\": [{\"name\": \"l\", \"forward_flops\": 1, \"backward_flops\": 1}]}",
     {"layers[0]: unknown field \"", "legal here: name, forward_s"}},
    {FLOPS_HEAD "\"layers\": [" GOOD "]}", {"layers[0]: unknown field", "forward_flops"}},
    {HEAD "\"layers\": [" LAYER "}]}", {"no layer has tensors"}},
    {HEAD "\"layers\": [" LAYER ", \"tensors\": {}}]}", {"layers[0].tensors is an object"}},
    {WITH_TENSORS("[1]"), {"layers[0].tensors[0] is a list"}},
    {WITH_TENSORS("{\"name\": \"t\"}"), {"layers[0].tensors[0].shape is missing"}},
    {WITH_TENSORS(TENSOR("t", "[1]") ", " TENSOR("", "[1]")), {"layers[0].tensors[1].name is \"\""}},
    {WITH_TENSORS(TENSOR(LONG_63 "4", "[1]")), {"layers[0].tensors[0].name is", "1 to 63 bytes"}},
    {WITH_TENSORS(TENSOR("t", "[]")), {"shape is a list; give a list of 1 to 4 sizes"}},
    {WITH_TENSORS(TENSOR("t", "[1, 1, 1, 1, 1]")), {"a list of 1 to 4 sizes"}},
    {WITH_TENSORS(TENSOR("t", "5")), {"shape is 5"}},
    {WITH_TENSORS(TENSOR("t", "[3, 0]")), {"layers[0].tensors[0].shape[1] is 0"}},
    {WITH_TENSORS(TENSOR("t", "[-3]")), {"shape[0] is -3"}},
    {WITH_TENSORS(TENSOR("t", "[2.0]")), {"shape[0] is 2.0; give an integer"}},
    {WITH_TENSORS(TENSOR("t", "[true]")), {"shape[0] is true"}},
    {WITH_TENSORS(TENSOR("t", "[99999999999999999999]")), {"p.json:1:", "too big integer"}},
    {WITH_TENSORS(TENSOR("t", "[1048576, 1048576, 1048576, 1048576]")), {"tensors[0].shape", "2^40"}},
    {WITH_TENSORS(TENSOR("t", "[1099511627776]") ", " TENSOR("u", "[1]")), {"tensors[1].shape", "2^40"}},
    {WITH_TENSORS(TENSOR("t", "[1]") ", " TENSOR("t", "[2]")),
     {"layers[0].tensors[1].name is \"t\"", "also the name of layers[0].tensors[0]"}},
    {HEAD "\"layers\": [" GOOD ", " GOOD "]}", {"layers[1].tensors[0].name is \"t\"", "layers[0].tensors[0]"}},
};

static void what_is_wrong_is_named(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof REFUSALS / sizeof REFUSALS[0]; i++) {
        taciti_profile p;
        if (parse(REFUSALS[i].text, &p) != TACIT_E_CONFIG) fail_msg("accepted: %s", REFUSALS[i].text);
        assert_int_equal(strncmp(g_line, "p.json", 6), 0);
        for (size_t k = 0; k < 3 && REFUSALS[i].says[k] != NULL; k++)
            if (strstr(g_line, REFUSALS[i].says[k]) == NULL)
                fail_msg("%s: \"%s\" is not in \"%s\"", REFUSALS[i].text, REFUSALS[i].says[k], g_line);
    }
}

static void the_limits_themselves_are_legal(void **state) {
    (void)state;
    static const char *const texts[] = {
        HEAD "\"layers\": [" GOOD "]}",
        WITH_TENSORS(TENSOR(LONG_63, "[1, 1, 1, 1099511627776]")),
        HEAD "\"layers\": [{\"name\": \"l\", \"forward_s\": 0, \"backward_s\": 1e6" TENSORS(TENSOR("t", "[1]")) "]}",
        HEAD "\"source\": \"\", \"layers\": [" GOOD ", {\"name\": \"l\", \"forward_s\": 4.9e-324, \"backward_s\": 0}]}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        taciti_profile p;
        if (parse(texts[i], &p) != TACIT_OK) fail_msg("refused: %s: %s", texts[i], g_line);
        taciti_profile_destroy(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_have_the_published_sizes),
        cmocka_unit_test(gpt2_has_the_layout_of_the_model),
        cmocka_unit_test(any_gpt_has_the_layout_of_the_model),
        cmocka_unit_test(measured_spans_become_seconds_of_layers),
        cmocka_unit_test(the_layout_is_in_ready_order),
        cmocka_unit_test(operations_become_seconds_once),
        cmocka_unit_test(a_floor_does_not_shrink_with_the_batch),
        cmocka_unit_test(unknown_names_get_a_suggestion),
        cmocka_unit_test(a_profile_survives_its_file),
        cmocka_unit_test(there_is_no_negative_zero),
        cmocka_unit_test(names_are_written_so_that_they_can_be_read),
        cmocka_unit_test(the_example_of_the_document_is_legal),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(the_limits_themselves_are_legal),
    };
    return cmocka_run_group_tests(tests, watch_log, NULL);
}
