/* SPDX-License-Identifier: Apache-2.0
 *
 * What the planner says that compressed sums send, against what an exchange sends to other hosts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "codec/trial.h"
#include "exchange/exchange.h"
#include "exchange/route_sketch.h"
#include "exchange/test_layout.h"
#include "model/synthetic.h"
#include "plan/compressed.h"

enum { MAX_RANKS = 8, N = 600000 };

typedef struct setup {
    taciti_encoding encoding;
    taciti_layout layout;
    taciti_exchange_options options;
    uint64_t sent[MAX_RANKS]; /* to other hosts */
    int per_host, steps;      /* the last step counts */
    bool independent;         /* ranks have large elements at different places */
} setup;

static void exchange_once(taciti_comm *comm, void *context) {
    setup *s = context;
    const int rank = taciti_comm_rank(comm);
    taciti_exchange *exchange = NULL;
    float *x = taciti_calloc(N, sizeof *x);
    CHECK(x != NULL);
    CHECK(taciti_exchange_create(comm, &s->layout, &s->options, &s->encoding, &exchange) == TACIT_OK);
    const taciti_bucket_task setting = {.setting[TACITI_PAYLOAD_CONTRIBUTION] = s->encoding.expected,
                                        .setting[TACITI_PAYLOAD_RESULT] = s->encoding.expected};
    for (int step = 0; step < s->steps; step++) {
        taciti_gradient_like((uint64_t)rank + 1, x, s->layout.n);
        for (size_t i = 0; i < s->layout.n && s->independent; i++)
            x[i] = (float)taciti_synthetic_normal((uint64_t)rank, i);
        taciti_exchange_at(exchange, step, &setting);
        const uint64_t before = test_bytes_to_other_hosts(comm);
        CHECK(taciti_exchange_run(exchange, x) == TACIT_OK);
        s->sent[rank] = test_bytes_to_other_hosts(comm) - before;
        CHECK(taciti_exchange_settle(exchange, true) == TACIT_OK);
    }
    taciti_exchange_destroy(exchange);
    taciti_free(x);
}

static double busiest_host(const setup *s, int ranks) {
    uint64_t most = 0;
    for (int first = 0; first < ranks; first += s->per_host) {
        uint64_t bytes = 0;
        for (int r = first; r < first + s->per_host; r++) bytes += s->sent[r];
        most = bytes > most ? bytes : most;
    }
    return (double)most;
}

/* Bytes of the plan for the same ranks. */
static double planned(const setup *s, int ranks, int route) {
    int host_of[MAX_RANKS];
    for (int r = 0; r < ranks; r++) host_of[r] = r / s->per_host;
    const taciti_hosts hosts = {.ranks = ranks, .count = ranks / s->per_host, .host_of = host_of};
    const taciti_cluster cluster = taciti_cluster_unknown();
    const taciti_scene scene = {.cluster = &cluster, .hosts = &hosts, .layout = &s->layout};
    const taciti_encoding *encoding = &s->encoding;
    const taciti_method method = {.wire = taciti_codec_find("f32"),
                                  .compression = {.encoding = {.codec = encoding->codec,
                                                               .options = encoding->options,
                                                               .expected = encoding->expected,
                                                               .way = (taciti_way)route}}};
    taciti_price sum;
    assert_int_equal(taciti_plan_price(&scene, &method, &method.compression, TACITI_PHASE_ALL_REDUCE,
                                       s->layout.bucket_count > 0 ? s->layout.buckets[0].n : N, &sum),
                     TACIT_OK);
    taciti_demand demand = taciti_allreduce_demand(&hosts, NULL, (size_t)ranks, scene.placement, sum.length.wire_bytes,
                                                   sum.length.f32_bytes);
    taciti_compressed_demand(&sum, &demand);
    return demand.host_bytes;
}

static void compare_with(const taciti_codec *codec, const void *options, int steps, double factor, int ranks,
                         int per_host, int route) {
    static setup s;
    const size_t sizes[] = {N};
    taciti_comm_options comm = test_comm_options(true);
    comm.segment_bytes = 256 << 10;
    s = (setup){.encoding = {.codec = codec,
                             .options = options,
                             .expected = {.factor = factor},
                             .feedback = {.errors = true},
                             .way = (taciti_way)route},
                .options = {.bucket_bytes = 1 << 30, .overlap = true},
                .per_host = per_host,
                .steps = steps,
                .independent = codec->sketches};
    test_layout(sizes, 1, 1 << 30, &s.layout);
    test_ranks_per_host(per_host);
    test_world_run(ranks, &comm, exchange_once, &s);
    test_ranks_per_host(0);
    const double sent = busiest_host(&s, ranks), plan = planned(&s, ranks, route);
    if (!(fabs(sent - plan) <= 0.03 * sent))
        fail_msg("%s factor %g, %d ranks, %d per host, route %d: sent %.0f, planned %.0f", codec->name, factor, ranks,
                 per_host, route, sent, plan);
    taciti_layout_destroy(&s.layout);
}

static void compare(const taciti_codec *codec, double factor, int ranks, int per_host, int route) {
    void *options = NULL;
    assert_int_equal(taciti_codec_defaults(codec, &options), TACIT_OK);
    compare_with(codec, options, 1, factor, ranks, per_host, route);
    taciti_free(options);
}

/* Codecs whose payloads depend on the data only as far as their mean tells. */
static void planned_bytes_are_the_bytes_of_an_exchange(void **state) {
    static const char *const codecs[] = {"topk", "int8", "int4", "signsgd", "powersgd"};
    (void)state;
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        const taciti_codec *codec = taciti_codec_find(codecs[i]);
        if (codec == NULL) continue;
        for (int route = TACITI_WAY_AUTO; route <= TACITI_WAY_GATHER; route++) {
            if (codec->votes && route == TACITI_WAY_GATHER) continue;
            compare(codec, 10, 4, 1, route);
            compare(codec, 100, 3, 1, route);
        }
        compare(codec, 100, 2, 1, TACITI_WAY_AUTO);
        compare(codec, 30, 6, 2, TACITI_WAY_AUTO);
        compare(codec, 30, 8, 4, TACITI_WAY_SCATTER);
    }
}

/* Codecs whose number of elements is an estimate of the data's distribution. */
static bool depends_on_data(const taciti_codec *codec) {
    static const char *const BY_DATA[] = {"dgc", "redsync"};
    for (size_t i = 0; i < sizeof BY_DATA / sizeof *BY_DATA; i++)
        if (strcmp(codec->name, BY_DATA[i]) == 0) return true;
    return false;
}

/* Every codec of the registry, on layers of odd widths and a bias, within 10 %. */
static void planned_bytes_of_layers_are_those_of_an_exchange(void **state) {
    static const size_t WIDTHS[] = {41, 100, 200, 10};
    static const int RANKS[] = {2, 4, 5, 7};
    (void)state;
    for (const taciti_codec *const *codec = taciti_codec_list(); *codec != NULL; codec++)
        for (size_t i = 0; i < sizeof RANKS / sizeof *RANKS; i++) {
            void *options = NULL;
            if ((*codec)->sketches || (*codec)->rungs != NULL) continue; /* the union that sizes a sketch is learnt */
            assert_int_equal(taciti_codec_defaults(*codec, &options), TACIT_OK);
            static setup s;
            taciti_comm_options comm = test_comm_options(true);
            comm.segment_bytes = 256 << 10;
            s = (setup){.encoding = {.codec = *codec,
                                     .options = options,
                                     .expected = {.factor = 10},
                                     .feedback = {.errors = !(*codec)->lossless}},
                        .options = {.bucket_bytes = 1 << 30, .overlap = true},
                        .per_host = 1,
                        .steps = 3};
            assert_int_equal(taciti_layout_create(4, &s.layout), TACIT_OK);
            for (size_t t = 0; t < 4; t++) {
                const char name[] = {(char)('a' + t), 0};
                const size_t shape[] = {300 + 7 * t, WIDTHS[t]};
                assert_int_equal(taciti_layout_append(&s.layout, name, t < 3 ? 2 : 1, t < 3 ? shape : &WIDTHS[t], true),
                                 TACIT_OK);
            }
            assert_int_equal(taciti_layout_seal(&s.layout, 1 << 30), TACIT_OK);
            test_ranks_per_host(1);
            test_world_run(RANKS[i], &comm, exchange_once, &s);
            test_ranks_per_host(0);
            const double sent = busiest_host(&s, RANKS[i]), plan = planned(&s, RANKS[i], TACITI_WAY_AUTO);
            if (!(fabs(sent - plan) <= 0.1 * sent) && !depends_on_data(*codec))
                fail_msg("%s, %d ranks: sent %.0f, planned %.0f", (*codec)->name, RANKS[i], sent, plan);
            taciti_layout_destroy(&s.layout);
            taciti_free(options);
        }
}

/* Counters as the union needs, by a ratio, and too few of them, so that most of it is fetched. */
static void planned_bytes_of_sketches_are_those_of_an_exchange(void **state) {
    static const struct {
        double ratio, factor;
        int ranks;
    } CASES[] = {{0, 10, 4}, {0, 5, 3},   {0, 20, 3}, {2, 5, 2},   {4, 10, 2},
                 {8, 5, 3},  {1.8, 5, 3}, {2, 5, 4},  {1.05, 5, 2}};
    const taciti_codec *codec = taciti_codec_find("tagc");
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        void *options = NULL;
        assert_int_equal(taciti_codec_defaults(codec, &options), TACIT_OK);
        ((taciti_sketch_options *)options)->ratio = CASES[i].ratio;
        compare_with(codec, options, 2, CASES[i].factor, CASES[i].ranks, 1, TACITI_WAY_AUTO);
        taciti_free(options);
    }
}

/* n 4 / c bytes of counters and n / 8 of index; below the threshold nothing is fetched. */
static void sketches_have_the_size_of_their_counters(void **state) {
    enum { RANGE = 1 << 20 };
    taciti_sketch_options options = {.ratio = 2};
    (void)state;
    taciti_sketched s = taciti_sketched_of(&options, RANGE, 2, 5);
    assert_true(fabs(s.contribution_bytes - (RANGE * 4. / 2 + RANGE / 8.)) < 128 && s.pending_bytes <= 0);
    s = taciti_sketched_of(&options, RANGE, 4, 5); /* a union of 0.59 n in n / 2 counters */
    assert_true(s.pending_bytes > RANGE / 8. + 0.5 * 0.59 * RANGE * 4);
    options.ratio = 0;
    const double density = 1 - 0.8 * 0.8;
    s = taciti_sketched_of(&options, RANGE, 2, 5);
    const double counters = (s.contribution_bytes - RANGE / 8.) / 4;
    assert_true(s.pending_bytes <= 0 && fabs(counters / (density * RANGE * (17. / 16) / 0.78) - 1) < 0.01);
    assert_true(taciti_sketched_pending(0.818) <= 0 && taciti_sketched_pending(0.819) > 0.37);
    assert_true(taciti_sketched_pending(3) > 0.99 && taciti_sketched_pending(0.5) <= 0);
}

/* topk sends more bytes at a smaller factor, and never more than the array. */
static void payloads_shrink_with_the_factor(void **state) {
    const taciti_codec *codec = taciti_codec_find("topk");
    void *options = NULL;
    double last = 1e9;
    (void)state;
    assert_int_equal(taciti_codec_defaults(codec, &options), TACIT_OK);
    for (double factor = 2; factor < 2000; factor *= 3) {
        const setup s = {.encoding = {.codec = codec, .options = options, .expected = {.factor = factor}},
                         .per_host = 1};
        const double bytes = planned(&s, 4, TACITI_WAY_SCATTER);
        assert_true(bytes < last && bytes < 1.5 * N * sizeof(float));
        last = bytes;
    }
    taciti_free(options);
}

static double codec_s_at(const taciti_cluster *cluster, double factor) {
    const taciti_codec *codec = taciti_codec_find("topk");
    taciti_plan_compression c = {.encoding = {.codec = codec, .expected = {.factor = factor}}};
    const taciti_method method = {.wire = taciti_codec_find("f32")};
    taciti_hosts hosts;
    taciti_price price;
    void *options = NULL;
    assert_int_equal(taciti_codec_defaults(codec, &options), TACIT_OK);
    c.encoding.options = options;
    assert_int_equal(taciti_hosts_by_size(4, 1, &hosts), TACIT_OK);
    const taciti_scene scene = {.cluster = cluster, .hosts = &hosts};
    assert_int_equal(taciti_plan_price(&scene, &method, &c, TACITI_PHASE_ALL_REDUCE, N, &price), TACIT_OK);
    taciti_hosts_destroy(&hosts);
    taciti_free(options);
    return price.codec_s;
}

/* Sets the only row. */
static double codec_s_of(taciti_cluster_compression row, double factor) {
    taciti_cluster cluster = taciti_cluster_unknown();
    cluster.compressions = &row;
    cluster.compression_count = 1;
    return codec_s_at(&cluster, factor);
}

/* The speed at factor 100 stands for that at 10, where ten times as many elements are decoded and added, and holds at
 * 1000. */
static void one_known_factor_is_scaled_to_others(void **state) {
    const taciti_cluster_compression known = {"topk", 100, 5e-10, 7e-11, 3e-11, 0.05};
    (void)state;
    const double dense = codec_s_of((taciti_cluster_compression){"topk", 10, 5e-10, 7e-10, 3e-10, 0.5}, 10),
                 sparse = codec_s_of((taciti_cluster_compression){"topk", 1000, 5e-10, 7e-11, 3e-11, 0.005}, 1000);
    assert_true(dense > 0 && fabs(codec_s_of(known, 10) / dense - 1) < 1e-9);
    assert_true(sparse > 0 && fabs(codec_s_of(known, 1000) / sparse - 1) < 1e-9);
    assert_true(codec_s_of(known, 10) > codec_s_of(known, 100));
}

static void cautions_grow_with_what_is_left_out(void **state) {
    char text[TACITI_CAUTION_BYTES];
    (void)state;
    taciti_plan_compression c = {.encoding = {.codec = taciti_codec_find("topk")}};
    void *options = NULL;
    assert_int_equal(taciti_codec_defaults(c.encoding.codec, &options), TACIT_OK);
    c.encoding.options = options;
    static const double factors[] = {10, 100, 1000};
    static const taciti_caution levels[] = {TACITI_CAUTION_NONE, TACITI_CAUTION_SOME, TACITI_CAUTION_STRONG};
    for (size_t i = 0; i < 3; i++) {
        c.encoding.expected.factor = factors[i];
        assert_int_equal(taciti_plan_caution(&c, text, sizeof text), levels[i]);
        assert_int_equal(text[0] != '\0', i > 0);
    }
    assert_non_null(strstr(text, "known to cost accuracy"));
    static const char *const values[] = {"int4", "signmag2"};
    static const taciti_caution of_values[] = {TACITI_CAUTION_NONE, TACITI_CAUTION_STRONG};
    c.encoding.expected.factor = 10;
    for (size_t i = 0; i < 2; i++) {
        taciti_text *text_of_values = &((taciti_composed_options *)options)->values;
        (void)snprintf(text_of_values->text, sizeof text_of_values->text, "%s", values[i]);
        assert_int_equal(taciti_plan_caution(&c, text, sizeof text), of_values[i]);
    }
    taciti_free(options);
    c = (taciti_plan_compression){.encoding = {.codec = taciti_codec_find("f32")}};
    assert_int_equal(taciti_plan_caution(&c, text, sizeof text), TACITI_CAUTION_NONE);
    c = (taciti_plan_compression){.encoding = {.codec = taciti_codec_find("signsgd")}};
    assert_int_equal(taciti_codec_defaults(c.encoding.codec, &options), TACIT_OK);
    c.encoding.options = options;
    assert_int_equal(taciti_plan_caution(&c, text, sizeof text), TACITI_CAUTION_STRONG);
    taciti_free(options);
    for (size_t i = 0; i < 3; i++) { /* its values have 2 bits */
        c = (taciti_plan_compression){
            .encoding = {.codec = taciti_codec_find("sparseloco"), .expected = {.factor = factors[i]}}};
        assert_int_equal(taciti_plan_caution(&c, text, sizeof text), TACITI_CAUTION_STRONG);
        assert_non_null(strstr(text, "bits per value"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planned_bytes_are_the_bytes_of_an_exchange),
        cmocka_unit_test(planned_bytes_of_layers_are_those_of_an_exchange),
        cmocka_unit_test(planned_bytes_of_sketches_are_those_of_an_exchange),
        cmocka_unit_test(sketches_have_the_size_of_their_counters),
        cmocka_unit_test(payloads_shrink_with_the_factor),
        cmocka_unit_test(one_known_factor_is_scaled_to_others),
        cmocka_unit_test(cautions_grow_with_what_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
