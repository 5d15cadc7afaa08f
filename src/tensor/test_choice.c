/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <string.h>

#include "base/log.h"
#include "tensor/choice.h"

static void the_class_follows_from_the_name(void **state) {
    (void)state;
    static const struct {
        const char *name, *class_;
    } KNOWN[] = {
        {"h.0.attn.c_attn.weight", "attention"}, /* GPT-2 */
        {"h.0.attn.c_proj.bias", "attention"},
        {"h.11.mlp.c_fc.weight", "mlp"},
        {"h.11.mlp.c_proj.weight", "mlp"},
        {"h.3.ln_1.weight", "norm"},
        {"ln_f.bias", "norm"},
        {"wte.weight", "embedding"},
        {"wpe.weight", "position"},
        {"lm_head.weight", "head"},
        {"model.embed_tokens.weight", "embedding"}, /* LLaMA */
        {"model.layers.0.self_attn.q_proj.weight", "attention"},
        {"model.layers.0.mlp.gate_proj.weight", "mlp"},
        {"model.layers.0.input_layernorm.weight", "norm"},
        {"model.norm.weight", "norm"},
        {"bert.embeddings.word_embeddings.weight", "embedding"}, /* BERT */
        {"bert.embeddings.position_embeddings.weight", "position"},
        {"bert.embeddings.LayerNorm.weight", "norm"},
        {"bert.encoder.layer.0.attention.output.dense.weight", "attention"},
        {"bert.encoder.layer.0.attention.output.LayerNorm.weight", "norm"},
        {"bert.encoder.layer.0.intermediate.dense.weight", "mlp"},
        {"bert.encoder.layer.0.output.dense.weight", "mlp"},
        {"decoder.layers.0.multihead_attn.in_proj_weight", "attention"}, /* torch.nn.Transformer */
        {"decoder.layers.0.linear1.weight", "mlp"},
        {"decoder.layers.0.norm3.bias", "norm"},
        {"layer1.0.bn2.weight", "norm"}, /* torchvision */
        {"layer1.0.conv2.weight", "other"},
        {"fc.weight", "head"},
        {"rnn.weight_ih_l0", "other"},
    };
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++)
        assert_string_equal(taciti_tensor_class_of(KNOWN[i].name), KNOWN[i].class_);
}

static const char *const TENSORS[] = {"lm_head.weight",  "ln_f.weight",          "h.0.mlp.c_proj.weight",
                                      "h.0.ln_2.weight", "h.0.attn.c_proj.bias", "wpe.weight",
                                      "wte.weight"};
enum { COUNT = sizeof TENSORS / sizeof *TENSORS };

static tacit_status choose(const char *list, char out[COUNT + 1]) {
    taciti_layout layout;
    const size_t n = 16;
    bool chosen[COUNT];
    assert_int_equal(taciti_layout_create(COUNT, &layout), TACIT_OK);
    for (size_t i = 0; i < COUNT; i++) taciti_layout_append(&layout, TENSORS[i], 1, &n, true);
    const tacit_status status = taciti_tensors_choose(&layout, "origin", list, chosen);
    for (size_t i = 0; i < COUNT; i++) out[i] = chosen[i] ? 'x' : '.';
    out[COUNT] = '\0';
    taciti_layout_destroy(&layout);
    return status;
}

static void words_are_applied_in_their_order(void **state) {
    (void)state;
    static const char *const CASES[][2] = {
        {"all", "xxxxxxx"},
        {"  -norm", "x.x.xxx"},
        {" mlp , head ", "x.x...."},
        {"/a{0,1}ttn/,norm", ".x.xx.."},
        {"/h.0\\/x|wte/", "......x"},
        {"mlp,embedding,head", "x.x...x"},
        {"all,-norm,-position", "x.x.x.x"},
        {"-norm", "x.x.xxx"},
        {"-norm,norm", "xxxxxxx"},
        {"mlp, embedding , head", "x.x...x"},
        {"mlp,other", "..x...."}, /* of which there is none */
        {"/c_proj/", "..x.x.."},
        {"/^(h\\.0\\.ln_2|wte)/", "...x..x"},
        {"attention,/w[a-z]{1,2}e/", "....xxx"}, /* the comma between slashes is no end of the word */
        {"all,-/bias$/", "xxxx.xx"},
    };
    char got[COUNT + 1];
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        assert_int_equal(choose(CASES[i][0], got), TACIT_OK);
        assert_string_equal(got, CASES[i][1]);
    }
}

static void what_finds_nothing_or_is_no_word_is_refused(void **state) {
    (void)state;
    static const char *const WRONG[] = {"",        "mpl", "mlp,,head", "-",  "/nowhere/",     "/(/",
                                        "/c_proj", "/",   "/mlp/x",    "//", "mlp embedding", "mlp,"};
    char got[COUNT + 1], text[300], reason[TACITI_REASON_BYTES];
    taciti_log_capture(reason);
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
        assert_int_equal(choose(WRONG[i], got), TACIT_E_CONFIG);
        assert_non_null(strstr(reason, "origin: "));
    }
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(choose(text, got), TACIT_E_CONFIG);
    taciti_log_capture(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_class_follows_from_the_name),
        cmocka_unit_test(words_are_applied_in_their_order),
        cmocka_unit_test(what_finds_nothing_or_is_no_word_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
