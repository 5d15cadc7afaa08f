/* SPDX-License-Identifier: Apache-2.0 */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <jansson.h>

#include "base/rng.h"
#include "ckpt/safetensors.h"
#include "ckpt/sink.h"
#include "ckpt/test_folder.h"
#include "ckpt/weights.h"

static test_path g_folder;

static int set_up(void **state) {
    (void)state;
    g_folder = folder_create();
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    folder_remove(&g_folder);
    return 0;
}

typedef struct model_case {
    taciti_model_options options;
    taciti_layout layout;
    float *flat, *again;
} model_case;

/* Values that bf16 holds (exact) or any f32 bits but NaN, zero in the padding. */
static void fill(model_case *c, bool exact) {
    for (size_t t = 0; t < c->layout.tensor_count; t++)
        for (size_t i = 0; i < c->layout.tensors[t].n; i++) {
            uint32_t bits = (uint32_t)taciti_rng_u64(t + 1, i) & 0xbfffffffu; /* |x| < 2 */
            if (exact) bits &= 0xffff0000u;
            memcpy(&c->flat[c->layout.tensors[t].offset + i], &bits, sizeof bits);
        }
}

static void model_create(model_case *c, int64_t vocabulary, bool tied) {
    *c = (model_case){.options = {.layers = 3, .heads = 2, .channels = 34, .vocabulary = vocabulary, .context = 9}};
    c->options.tied = tied;
    assert_int_equal(taciti_model_resolve(&c->options), TACIT_OK);
    assert_int_equal(taciti_model_layout(&c->options, 1 << 20, &c->layout), TACIT_OK);
    c->flat = taciti_calloc(c->layout.n, sizeof(float));
    c->again = taciti_calloc(c->layout.n, sizeof(float));
    assert_true(c->flat != NULL && c->again != NULL);
}

static void model_destroy(model_case *c) {
    taciti_layout_destroy(&c->layout);
    taciti_free(c->flat);
    taciti_free(c->again);
}

static void write_as(const model_case *c, const char *path, taciti_weights_format format, int dtype) {
    const taciti_weights_write_options how = {.format = format, .dtype = dtype};
    assert_int_equal(taciti_weights_write(path, &how, &c->options, &c->layout, c->flat), TACIT_OK);
}

static void expect_described(const model_case *c, const char *path, taciti_weights_format format) {
    taciti_weights_format found = TACITI_WEIGHTS_LLMC;
    taciti_model_options o;
    assert_int_equal(taciti_weights_describe(path, &found, &o), TACIT_OK);
    assert_int_equal(found, format);
    assert_int_equal(o.layers, c->options.layers);
    assert_int_equal(o.heads, c->options.heads);
    assert_int_equal(o.channels, c->options.channels);
    assert_int_equal(o.vocabulary, c->options.vocabulary);
    assert_int_equal(o.context, c->options.context);
    assert_int_equal(o.tied, c->options.tied);
    assert_int_equal(o.dtype, TACITI_DTYPE_F32);
}

static void expect_read(model_case *c, const char *path) {
    memset(c->again, 0, c->layout.n * sizeof(float));
    assert_int_equal(taciti_weights_read(path, &c->options, &c->layout, c->again), TACIT_OK);
    assert_memory_equal(c->again, c->flat, c->layout.n * sizeof(float));
}

static void expect_same_file(const char *a, const char *b) {
    size_t a_count = 0, b_count = 0;
    char *a_bytes = file_get(a, &a_count), *b_bytes = file_get(b, &b_count);
    assert_int_equal(a_count, b_count);
    assert_memory_equal(a_bytes, b_bytes, a_count);
    taciti_free(a_bytes);
    taciti_free(b_bytes);
}

/* ---- Hugging Face ------------------------------------------------------------------------------------------------ */

/* Replaces model.safetensors by one file for each tensor and an index, as other programs write large models. */
static void split_file(const model_case *c, const char *folder, taciti_safe_dtype dtype) {
    json_t *map = json_object();
    for (size_t i = 0; i < c->layout.tensor_count; i++) {
        const taciti_tensor *tensor = &c->layout.tensors[i];
        char name[160], file[64], digest[TACITI_DIGEST_BYTES];
        uint64_t bytes = 0;
        taciti_safe_tensor one = {.name = name,
                                  .dims = tensor->dims,
                                  .shape = tensor->shape,
                                  .data = c->flat + tensor->offset,
                                  .dtype = dtype};
        (void)snprintf(name, sizeof name, "%s%s", strcmp(tensor->name, "lm_head.weight") == 0 ? "" : "transformer.",
                       tensor->name);
        (void)snprintf(file, sizeof file, "model-%zu.safetensors", i);
        assert_int_equal(taciti_safe_write(path_in(folder, file).text, &one, 1, NULL, &bytes, digest), TACIT_OK);
        assert_int_equal(json_object_set_new(map, name, json_string(file)), 0);
    }
    json_t *index = json_pack("{s:{}, s:o}", "metadata", "weight_map", map);
    assert_int_equal(json_dump_file(index, path_in(folder, "model.safetensors.index.json").text, 0), 0);
    assert_int_equal(remove(path_in(folder, "model.safetensors").text), 0);
    json_decref(index);
}

static void hf_comes_back_bit_for_bit(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) {
        const bool tied = (i & 1) != 0, half = (i & 2) != 0, sharded = (i & 4) != 0;
        char name[16];
        model_case c;
        model_create(&c, 61, tied);
        fill(&c, half);
        (void)snprintf(name, sizeof name, "a%d", i);
        const test_path a = path_in(g_folder.text, name);
        write_as(&c, a.text, TACITI_WEIGHTS_HF, half ? TACITI_DTYPE_BF16 : TACITI_DTYPE_F32);
        if (sharded) split_file(&c, a.text, half ? TACITI_SAFE_BF16 : TACITI_SAFE_F32);
        assert_int_equal(file_exists(path_in(a.text, "model.safetensors").text), !sharded);
        assert_int_equal(file_exists(path_in(a.text, "model.safetensors.index.json").text), sharded);
        expect_described(&c, a.text, TACITI_WEIGHTS_HF);
        expect_described(&c, path_in(a.text, "config.json").text, TACITI_WEIGHTS_HF);
        expect_read(&c, a.text);
        expect_read(&c, path_in(a.text, "config.json").text);
        model_destroy(&c);
    }
}

/* Weights that were read are written as the same bytes. */
static void hf_files_are_reproduced(void **state) {
    (void)state;
    for (int half = 0; half < 2; half++) {
        model_case c;
        const int dtype = half ? TACITI_DTYPE_BF16 : TACITI_DTYPE_F32;
        const test_path a = path_in(g_folder.text, half ? "ra1" : "ra0"),
                        b = path_in(g_folder.text, half ? "rb1" : "rb0");
        model_create(&c, 61, true);
        fill(&c, false);
        write_as(&c, a.text, TACITI_WEIGHTS_HF, dtype);
        assert_int_equal(taciti_weights_read(a.text, &c.options, &c.layout, c.flat), TACIT_OK);
        write_as(&c, b.text, TACITI_WEIGHTS_HF, dtype);
        expect_same_file(path_in(a.text, "model.safetensors").text, path_in(b.text, "model.safetensors").text);
        expect_same_file(path_in(a.text, "config.json").text, path_in(b.text, "config.json").text);
        model_destroy(&c);
    }
}

static void nothing_is_overwritten(void **state) {
    (void)state;
    model_case c;
    model_create(&c, 61, true);
    const taciti_weights_write_options hf = {.format = TACITI_WEIGHTS_HF}, llmc = {.format = TACITI_WEIGHTS_LLMC};
    const test_path folder = path_in(g_folder.text, "once"), file = path_in(g_folder.text, "once.bin");
    for (int i = 0; i < 2; i++) {
        const tacit_status expected = i == 0 ? TACIT_OK : TACIT_E_CONFIG;
        assert_int_equal(taciti_weights_write(folder.text, &hf, &c.options, &c.layout, c.flat), expected);
        assert_int_equal(taciti_weights_write(file.text, &llmc, &c.options, &c.layout, c.flat), expected);
    }
    model_destroy(&c);
}

/* A folder with config.json of the case; the caller adds the weights. */
static test_path put_config(const char *name, const char *more) {
    char text[1024];
    const test_path folder = path_in(g_folder.text, name);
    assert_int_equal(taciti_file_make_folder(folder.text), TACIT_OK);
    (void)snprintf(text, sizeof text,
                   "{\"model_type\":\"gpt2\",\"n_layer\":3,\"n_head\":2,\"n_embd\":34,\"n_positions\":9,"
                   "\"vocab_size\":61%s}",
                   more);
    file_put(path_in(folder.text, "config.json").text, text, strlen(text));
    return folder;
}

/* The tensors of a case as another program may store them. */
typedef struct tensor_list {
    taciti_safe_tensor tensors[64];
    char names[64][96];
    size_t count;
} tensor_list;

static void list_tensors(const model_case *c, const char *prefix, tensor_list *out) {
    out->count = 0;
    for (size_t t = 0; t < c->layout.tensor_count; t++, out->count++) {
        const taciti_tensor *tensor = &c->layout.tensors[t];
        (void)snprintf(out->names[t], sizeof out->names[t], "%s%s", prefix, tensor->name);
        out->tensors[t] = (taciti_safe_tensor){.name = out->names[t],
                                               .dims = tensor->dims,
                                               .shape = tensor->shape,
                                               .data = c->flat + tensor->offset,
                                               .dtype = TACITI_SAFE_F32};
    }
}

static void put_tensors(const test_path *folder, const char *name, const taciti_safe_tensor *tensors, size_t count) {
    uint64_t bytes = 0;
    char digest[33];
    assert_int_equal(taciti_safe_write(path_in(folder->text, name).text, tensors, count, NULL, &bytes, digest),
                     TACIT_OK);
}

static tacit_status read_list(model_case *c, const tensor_list *list) {
    const test_path folder = put_config("list", "");
    put_tensors(&folder, "model.safetensors", list->tensors, list->count);
    return taciti_weights_read(folder.text, &c->options, &c->layout, c->again);
}

static void names_and_extras_of_other_writers_are_accepted(void **state) {
    (void)state;
    static const char *const prefixes[] = {"", "transformer."};
    model_case c;
    tensor_list list;
    const float mask[81] = {0};
    model_create(&c, 61, true);
    fill(&c, false);
    for (size_t p = 0; p < 2; p++) {
        list_tensors(&c, prefixes[p], &list);
        assert_int_equal(read_list(&c, &list), TACIT_OK);
        list.tensors[list.count++] = (taciti_safe_tensor){
            .name = "h.0.attn.bias", .dims = 4, .shape = (const size_t[]){1, 1, 9, 9}, .data = mask};
        list.tensors[list.count++] = (taciti_safe_tensor){.name = "transformer.h.1.attn.masked_bias", .data = mask};
        list.tensors[list.count] = list.tensors[taciti_layout_find(&c.layout, "wte.weight")];
        list.tensors[list.count++].name = "lm_head.weight";
        memset(c.again, 0, c.layout.n * sizeof(float));
        assert_int_equal(read_list(&c, &list), TACIT_OK);
        assert_memory_equal(c.again, c.flat, c.layout.n * sizeof(float));
    }
    model_destroy(&c);
}

static void tensors_that_do_not_fit_are_refused(void **state) {
    (void)state;
    model_case c;
    tensor_list list;
    model_create(&c, 61, true);
    fill(&c, false);
    list_tensors(&c, "", &list);
    list.count--; /* one is missing */
    assert_int_equal(read_list(&c, &list), TACIT_E_DATA);
    list_tensors(&c, "", &list);
    list.tensors[list.count] = list.tensors[0]; /* one that nobody knows */
    list.tensors[list.count++].name = "h.3.ln_1.weight";
    assert_int_equal(read_list(&c, &list), TACIT_E_DATA);
    list_tensors(&c, "", &list);
    list.tensors[list.count] = list.tensors[0]; /* one under both of its names */
    char twice[128];
    (void)snprintf(twice, sizeof twice, "transformer.%s", list.names[0]);
    list.tensors[list.count++].name = twice;
    assert_int_equal(read_list(&c, &list), TACIT_E_DATA);
    list_tensors(&c, "", &list);
    taciti_safe_tensor *matrix = &list.tensors[taciti_layout_find(&c.layout, "h.0.attn.c_attn.weight")];
    matrix->shape = (const size_t[]){102, 34}; /* transposed */
    assert_int_equal(read_list(&c, &list), TACIT_E_DATA);
    list_tensors(&c, "", &list);
    list.tensors[list.count] = list.tensors[taciti_layout_find(&c.layout, "wte.weight")];
    list.tensors[list.count].data = c.flat; /* a head that is not the embedding it is tied to */
    list.tensors[list.count++].name = "lm_head.weight";
    assert_int_equal(read_list(&c, &list), TACIT_E_DATA);
    model_destroy(&c);
}

static void configurations_of_other_networks_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        ",\"model_type\":\"gpt2\"",
        ",\"activation_function\":\"relu\"",
        ",\"activation_function\":7",
        ",\"layer_norm_epsilon\":1e-6",
        ",\"n_inner\":100",
        ",\"scale_attn_weights\":false",
        ",\"scale_attn_by_inverse_layer_idx\":true",
        ",\"add_cross_attention\":true",
        ",\"tie_word_embeddings\":\"yes\"",
        ",",
    };
    static const char *const good[] = {
        "",
        ",\"activation_function\":\"gelu_new\",\"layer_norm_epsilon\":1e-05,\"n_inner\":null",
        ",\"activation_function\":\"gelu_pytorch_tanh\",\"n_inner\":136,\"scale_attn_weights\":true",
        ",\"add_cross_attention\":false,\"unknown_key\":[1,{}]",
    };
    taciti_weights_format format;
    taciti_model_options options;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_int_equal(taciti_weights_describe(put_config("config", good[i]).text, &format, &options), TACIT_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (taciti_weights_describe(put_config("config", bad[i]).text, &format, &options) != TACIT_E_DATA)
            fail_msg("accepted: %s", bad[i]);
}

static void sizes_out_of_range_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        "{}",
        "[]",
        "",
        "{\"model_type\":\"bert\",\"n_layer\":3,\"n_head\":2,\"n_embd\":34,\"n_positions\":9,\"vocab_size\":61}",
        "{\"model_type\":\"gpt2\",\"n_layer\":0,\"n_head\":2,\"n_embd\":34,\"n_positions\":9,\"vocab_size\":61}",
        "{\"model_type\":\"gpt2\",\"n_layer\":-3,\"n_head\":2,\"n_embd\":34,\"n_positions\":9,\"vocab_size\":61}",
        "{\"model_type\":\"gpt2\",\"n_layer\":3,\"n_head\":3,\"n_embd\":34,\"n_positions\":9,\"vocab_size\":61}",
        "{\"model_type\":\"gpt2\",\"n_layer\":3,\"n_head\":2,\"n_embd\":2147483646,\"n_positions\":9,\"vocab_size\":"
        "61}",
        "{\"model_type\":\"gpt2\",\"n_layer\":3,\"n_head\":2,\"n_embd\":34,\"n_positions\":99999999999,\"vocab_size\":"
        "61}",
        "{\"model_type\":\"gpt2\",\"n_layer\":3.0,\"n_head\":2,\"n_embd\":34,\"n_positions\":9,\"vocab_size\":61}",
    };
    const test_path folder = put_config("sizes", "");
    taciti_weights_format format;
    taciti_model_options options;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        file_put(path_in(folder.text, "config.json").text, bad[i], strlen(bad[i]));
        if (taciti_weights_describe(folder.text, &format, &options) != TACIT_E_DATA) fail_msg("accepted: %s", bad[i]);
    }
}

static void an_index_must_stay_in_its_folder(void **state) {
    (void)state;
    static const char *const bad[] = {"../secret.safetensors",
                                      "/etc/x.safetensors",
                                      "a/b.safetensors",
                                      ".safetensors",
                                      "..\\\\x.safetensors",
                                      "model.pt",
                                      ""};
    model_case c;
    model_create(&c, 61, true);
    const test_path folder = put_config("index", ""), index = path_in(folder.text, "model.safetensors.index.json");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[256];
        (void)snprintf(text, sizeof text, "{\"weight_map\":{\"wte.weight\":\"%s\"}}", bad[i]);
        file_put(index.text, text, strlen(text));
        assert_int_equal(taciti_weights_read(folder.text, &c.options, &c.layout, c.again), TACIT_E_DATA);
    }
    file_put(index.text, "{\"weight_map\":7}", 16);
    assert_int_equal(taciti_weights_read(folder.text, &c.options, &c.layout, c.again), TACIT_E_DATA);
    model_destroy(&c);
}

static void pickles_are_never_loaded(void **state) {
    (void)state;
    static const char zip[] = "PK\003\004 archive/data.pkl", raw[] = "\x80\002}q";
    taciti_weights_format format;
    taciti_model_options options;
    model_case c;
    model_create(&c, 61, true);
    const test_path folder = put_config("pickle", ""), bin = path_in(folder.text, "pytorch_model.bin");
    file_put(bin.text, zip, sizeof zip);
    assert_int_equal(taciti_weights_describe(bin.text, &format, &options), TACIT_E_DATA);
    assert_int_equal(taciti_weights_read(folder.text, &c.options, &c.layout, c.again), TACIT_E_DATA);
    file_put(bin.text, raw, sizeof raw);
    assert_int_equal(taciti_weights_describe(bin.text, &format, &options), TACIT_E_DATA);
    model_destroy(&c);
}

/* ---- llm.c ------------------------------------------------------------------------------------------------------- */

static void llmc_comes_back_bit_for_bit(void **state) {
    (void)state;
    static const int64_t vocabularies[] = {1, 61, 127, 128, 129};
    for (size_t v = 0; v < 10; v++) {
        const bool half = v >= 5;
        char name[16];
        model_case c;
        model_create(&c, vocabularies[v % 5], true);
        fill(&c, half);
        (void)snprintf(name, sizeof name, "a%zu.bin", v);
        const test_path a = path_in(g_folder.text, name), b = path_in(g_folder.text, "again.bin");
        write_as(&c, a.text, TACITI_WEIGHTS_LLMC, half ? TACITI_DTYPE_BF16 : TACITI_DTYPE_F32);
        expect_described(&c, a.text, TACITI_WEIGHTS_LLMC);
        expect_read(&c, a.text);
        memcpy(c.flat, c.again, c.layout.n * sizeof(float));
        write_as(&c, b.text, TACITI_WEIGHTS_LLMC, half ? TACITI_DTYPE_BF16 : TACITI_DTYPE_F32);
        expect_same_file(a.text, b.text);
        assert_int_equal(unlink(b.text), 0);
        model_destroy(&c);
    }
}

static void llmc_has_no_separate_head(void **state) {
    (void)state;
    model_case c;
    model_create(&c, 61, false);
    const taciti_weights_write_options how = {.format = TACITI_WEIGHTS_LLMC};
    const test_path path = path_in(g_folder.text, "untied.bin");
    assert_int_equal(taciti_weights_write(path.text, &how, &c.options, &c.layout, c.flat), TACIT_E_UNSUPPORTED);
    assert_false(file_exists(path.text));
    model_destroy(&c);
}

static void llmc_headers_that_lie_are_refused(void **state) {
    (void)state;
    static const struct {
        int at;
        int32_t value;
    } cases[] = {{0, 20240520}, {1, 1},          {1, 4},  {2, 0},    {2, 10}, {2, -1},
                 {3, 0},        {3, 200},        {4, 4},  {4, -3},   {5, 3},  {5, 0},
                 {6, 36},       {6, 2147483647}, {7, 60}, {7, 2000}, {7, -1}, {4, 2147483647}};
    taciti_weights_format format;
    taciti_model_options options;
    model_case c;
    size_t count = 0;
    model_create(&c, 61, true);
    const test_path path = path_in(g_folder.text, "lie.bin");
    write_as(&c, path.text, TACITI_WEIGHTS_LLMC, TACITI_DTYPE_F32);
    char *bytes = file_get(path.text, &count);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int32_t before = 0;
        char *at = bytes + 4 * cases[i].at;
        memcpy(&before, at, 4);
        memcpy(at, &cases[i].value, 4);
        file_put(path.text, bytes, count);
        memcpy(at, &before, 4);
        if (taciti_weights_describe(path.text, &format, &options) != TACIT_E_DATA)
            fail_msg("accepted: header[%d] = %d", cases[i].at, (int)cases[i].value);
    }
    static const size_t cuts[] = {0, 3, 4, 1023, 1024, 1028};
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        file_put(path.text, bytes, cuts[i]);
        assert_int_equal(taciti_weights_describe(path.text, &format, &options), TACIT_E_DATA);
    }
    file_put(path.text, bytes, count - 1);
    assert_int_equal(taciti_weights_describe(path.text, &format, &options), TACIT_E_DATA);
    file_put(path.text, bytes, count + 1); /* file_get() adds one byte */
    assert_int_equal(taciti_weights_describe(path.text, &format, &options), TACIT_E_DATA);
    file_put(path.text, bytes, count);
    assert_int_equal(taciti_weights_describe(path.text, &format, &options), TACIT_OK);
    taciti_free(bytes);
    model_destroy(&c);
}

/* ---- against files that tacit did not write ---------------------------------------------------------------------- */

/* tests/parity/make_weights.py wrote one model in three formats: all read as the same, and come out as they went in. */
static void the_formats_agree(void **state) {
    (void)state;
    const test_path given = path_in("tests/parity", "weights");
    const test_path hf = path_in(given.text, "hf");
    const test_path llmc[2] = {path_in(given.text, "f32.bin"), path_in(given.text, "bf16.bin")};
    taciti_weights_format format;
    model_case c = {.flat = NULL};
    assert_int_equal(taciti_weights_describe(hf.text, &format, &c.options), TACIT_OK);
    assert_int_equal(c.options.layers, 2);
    assert_int_equal(c.options.vocabulary, 61);
    assert_int_equal(taciti_model_layout(&c.options, 1 << 20, &c.layout), TACIT_OK);
    c.flat = taciti_calloc(c.layout.n, sizeof(float));
    c.again = taciti_calloc(c.layout.n, sizeof(float));
    assert_true(c.flat != NULL && c.again != NULL);
    assert_int_equal(taciti_weights_read(hf.text, &c.options, &c.layout, c.flat), TACIT_OK);
    for (int half = 0; half < 2; half++) {
        expect_described(&c, llmc[half].text, TACITI_WEIGHTS_LLMC);
        expect_read(&c, llmc[half].text);
        const test_path out = path_in(g_folder.text, half ? "given16.bin" : "given32.bin");
        write_as(&c, out.text, TACITI_WEIGHTS_LLMC, half ? TACITI_DTYPE_BF16 : TACITI_DTYPE_F32);
        expect_same_file(out.text, llmc[half].text);
    }
    model_destroy(&c);
}

static void another_shape_is_refused_by_name(void **state) {
    (void)state;
    model_case c;
    model_create(&c, 61, true);
    assert_int_equal(taciti_weights_read("tests/parity/weights/hf", &c.options, &c.layout, c.again), TACIT_E_CONFIG);
    assert_int_equal(taciti_weights_read("tests/parity/weights/f32.bin", &c.options, &c.layout, c.again),
                     TACIT_E_CONFIG);
    assert_int_equal(taciti_weights_read("tests/parity/none", &c.options, &c.layout, c.again), TACIT_E_DATA);
    model_destroy(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hf_comes_back_bit_for_bit),
        cmocka_unit_test(hf_files_are_reproduced),
        cmocka_unit_test(nothing_is_overwritten),
        cmocka_unit_test(names_and_extras_of_other_writers_are_accepted),
        cmocka_unit_test(tensors_that_do_not_fit_are_refused),
        cmocka_unit_test(configurations_of_other_networks_are_refused),
        cmocka_unit_test(sizes_out_of_range_are_refused),
        cmocka_unit_test(an_index_must_stay_in_its_folder),
        cmocka_unit_test(pickles_are_never_loaded),
        cmocka_unit_test(llmc_comes_back_bit_for_bit),
        cmocka_unit_test(llmc_has_no_separate_head),
        cmocka_unit_test(llmc_headers_that_lie_are_refused),
        cmocka_unit_test(the_formats_agree),
        cmocka_unit_test(another_shape_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
