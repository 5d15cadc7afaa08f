/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks that hold parts need before a run begins: predicted memory, against what a step holds and against the
 * formulas of ZeRO; configurations that are refused.
 */
#define _DEFAULT_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "base/memory.h"
#include "codec/trial.h"
#include "comm/test_engine.h"
#include "strategy/shard.h"

/* ---- a network of large units ------------------------------------------------------------------------------------ */

/* The first unit has only a norm and the last, an embedding that is the head as well, is early. Every other unit is so
 * large that a unit more or less is more than all pages at the edges of parts and units. */
enum { UNITS = 8, TENSORS = 14, PAGE = 4096, MAX_PAGES = 2000, BLOCK = 100003, EMBEDDING = 120041 };

static void make_layout(taciti_layout *out) {
    CHECK(taciti_layout_create(TENSORS, out) == TACIT_OK);
    for (size_t u = 0; u < UNITS; u++) {
        const size_t sizes[2] = {u == 0 ? 41 : u + 1 == UNITS ? EMBEDDING : BLOCK, 10 + u};
        if (u > 0) taciti_layout_next_unit(out);
        for (size_t i = 0; i < (u == 0 || u + 1 == UNITS ? 1 : 2); i++) {
            const char name[3] = {(char)('a' + (int)u), (char)('0' + (int)i), 0};
            CHECK(taciti_layout_append(out, name, 1, &sizes[i], true) == TACIT_OK);
        }
    }
    out->tensors[TENSORS - 1].early = true;
    CHECK(taciti_layout_seal_units(out, 200000) == TACIT_OK);
}

typedef struct trial {
    int stage;
    size_t passes;
    const char *gather; /* codec; NULL: none */
    bool dry;           /* nothing is trained */
    /* of rank 0 */
    size_t parameters, gradients; /* the largest resident bytes of a step */
    size_t edges;                 /* bytes of pages that parts and units may touch beyond their ends, in one array */
    taciti_strategy_memory predicted;
    size_t n, own, largest;
    size_t moved; /* floats that all ranks together reduce or gather in a step */
    taciti_strategy_figures figures;
} trial;

typedef struct seat {
    trial *t;
    taciti_layout layout;
    taciti_pages parameters, gradients, copy;
    const taciti_strategy *strategy;
    void *self;
    size_t parameter_bytes, gradient_bytes, sum;
} seat;

static size_t resident(const taciti_pages *pages) {
    unsigned char in_memory[MAX_PAGES];
    const size_t count = (pages->bytes + PAGE - 1) / PAGE;
    size_t bytes = 0;
    CHECK(count <= MAX_PAGES && mincore(pages->base, count * PAGE, in_memory) == 0);
    for (size_t i = 0; i < count; i++) bytes += in_memory[i] & 1 ? PAGE : 0;
    return bytes;
}

static void look(seat *s) {
    const size_t p = resident(&s->parameters), g = resident(&s->gradients);
    if (p + g <= s->sum) return;
    s->parameter_bytes = p;
    s->gradient_bytes = g;
    s->sum = p + g;
}

static void need(seat *s, size_t unit) {
    CHECK(s->strategy->units->need(s->self, unit) == TACIT_OK);
    look(s);
}

static void write_unit(seat *s, size_t unit) {
    const taciti_range r = taciti_layout_unit(&s->layout, unit);
    CHECK(s->strategy->units->write(s->self, unit) == TACIT_OK);
    memset((float *)s->gradients.base + r.at, 0, r.n * sizeof(float));
    look(s);
}

static void report(const seat *s, size_t unit) {
    for (size_t b = 0; b < s->layout.bucket_count; b++)
        if (s->layout.tensors[s->layout.buckets[b].first].unit == unit)
            CHECK(s->strategy->ready(s->self, b) == TACIT_OK);
}

/* As a transformer does: forward from the embedding down, head, backward up. */
static void pass(seat *s, bool last) {
    need(s, UNITS - 1);
    for (size_t u = UNITS - 1; u-- > 0;) {
        need(s, u);
        s->strategy->units->release(s->self, u + 1);
    }
    need(s, UNITS - 1);
    write_unit(s, UNITS - 1);
    s->strategy->units->release(s->self, UNITS - 1);
    for (size_t u = 0; u < UNITS; u++) {
        if (u > 0 && u < UNITS - 1) need(s, u);
        write_unit(s, u);
        if (u + 1 < UNITS) write_unit(s, u + 1);
        if (last) report(s, u);
        if (u < UNITS - 1) s->strategy->units->release(s->self, u);
    }
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static taciti_compression_setup setup_of(const trial *t, const taciti_compress_options *options, void **gather) {
    taciti_compression_setup setup = {.options = options};
    if (t->gather == NULL) return setup;
    setup.gathers.codec = taciti_codec_find(t->gather);
    CHECK(taciti_codec_defaults(setup.gathers.codec, gather) == TACIT_OK);
    setup.gathers.options = *gather;
    return setup;
}

/* A huge page would make 2 MiB resident where a few bytes are touched. Kernels without huge pages refuse the advice. */
static void reserve(size_t bytes, const char *what, taciti_pages *out) {
    CHECK(taciti_pages_reserve(bytes, what, out) == TACIT_OK);
    (void)madvise(out->base, out->bytes, MADV_NOHUGEPAGE);
}

static void open_arrays(seat *s) {
    const size_t n = s->layout.n;
    reserve(n * sizeof(float), "parameters", &s->parameters);
    reserve(n * sizeof(float), "gradients", &s->gradients);
    CHECK(taciti_pages_reserve(n * sizeof(taciti_bf16), "copy", &s->copy) == TACIT_OK);
}

static void initialise(seat *s) {
    for (size_t u = 0; u < UNITS; u++) {
        const taciti_range r = taciti_layout_unit(&s->layout, u);
        CHECK(s->strategy->units->need(s->self, u) == TACIT_OK);
        memset((float *)s->parameters.base + r.at, 0, r.n * sizeof(float));
        s->strategy->units->release(s->self, u);
    }
}

static void train(seat *s, const taciti_strategy_context *c) {
    taciti_step_report ignored;
    CHECK(s->strategy->create(c, &s->self) == TACIT_OK);
    initialise(s);
    CHECK(s->strategy->start(s->self, 0, false) == TACIT_OK);
    for (int step = 0; step < 2; step++) {
        for (size_t k = 0; k < s->t->passes; k++) pass(s, k + 1 == s->t->passes);
        CHECK(s->strategy->finish(s->self, 0.01, &ignored) == TACIT_OK);
    }
    if (taciti_comm_rank(c->comm) == 0) CHECK(s->strategy->describe(c, s->self, &s->t->figures) == TACIT_OK);
    s->strategy->destroy(s->self);
}

static void note(const seat *s, const taciti_strategy_context *c) {
    trial *t = s->t;
    s->strategy->units->memory(c, t->passes, &t->predicted);
    if (t->dry) CHECK(s->strategy->describe(c, NULL, &t->figures) == TACIT_OK);
    t->n = s->layout.n;
    for (size_t b = 0; b < s->layout.bucket_count; b++) {
        const taciti_bucket *bucket = &s->layout.buckets[b];
        const size_t unit = s->layout.tensors[bucket->first].unit;
        t->moved += bucket->n * (1 + taciti_shard_gathers(&s->layout, unit, t->stage));
    }
    t->own = t->predicted.moments / taciti_optim_bytes_per_float(c->optim_options);
    t->edges = 2 * (s->layout.bucket_count + 4) * PAGE;
    t->parameters = s->parameter_bytes;
    t->gradients = s->gradient_bytes;
    t->largest = taciti_layout_unit(&s->layout, UNITS - 1).n * sizeof(float);
}

static void run_rank(taciti_comm *comm, void *context) {
    seat s = {.t = context, .strategy = taciti_strategy_find("shard")};
    const taciti_shard_options options = {s.t->stage, TACITI_SHARD_F32, TACITI_SHARD_OVER_ALL, false};
    const taciti_exchange_options exchange = {.overlap = true, .scheme = TACITI_SCHEME_AUTO};
    const taciti_optim_options optim_options = {.name = TACITI_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
    const taciti_compress_options compress = {.factor = 1, .start = 1, .feedback = 1};
    taciti_pool *pool = NULL;
    taciti_optim *optim = NULL;
    void *gather = NULL;
    make_layout(&s.layout);
    open_arrays(&s);
    CHECK(taciti_pool_create(1, 0, &pool) == TACIT_OK);
    CHECK(taciti_optim_create_parts(&optim_options, &s.layout, pool, &optim) == TACIT_OK);
    const taciti_strategy_context c = {.comm = comm,
                                       .layout = &s.layout,
                                       .pool = pool,
                                       .optim = optim,
                                       .optim_options = &optim_options,
                                       .exchange_options = &exchange,
                                       .compression = setup_of(s.t, &compress, &gather),
                                       .options = &options,
                                       .parameters = s.parameters.base,
                                       .gradients = s.gradients.base,
                                       .copy16 = s.copy.base,
                                       .parameter_pages = &s.parameters,
                                       .gradient_pages = &s.gradients,
                                       .copy16_pages = &s.copy,
                                       .by_units = true};
    if (!s.t->dry) train(&s, &c);
    if (taciti_comm_rank(comm) == 0) note(&s, &c);
    taciti_free(gather);
    taciti_optim_destroy(optim);
    taciti_pool_destroy(pool);
    taciti_pages_destroy(&s.parameters);
    taciti_pages_destroy(&s.gradients);
    taciti_pages_destroy(&s.copy);
    taciti_layout_destroy(&s.layout);
}

static trial play(int ranks, trial t) {
    const taciti_comm_options options = test_comm_options(true);
    test_world_run(ranks, &options, run_rank, &t);
    return t;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Never less than a step holds, and not more than that, a unit on its way, and the edges. */
static void a_step_holds_what_is_predicted(void **state) {
    static const int RANKS[] = {1, 2, 5, 7};
    (void)state;
    for (size_t i = 0; i < 4; i++)
        for (int stage = 1; stage <= 3; stage++)
            for (size_t passes = 1; passes <= 2; passes++) {
                const trial t = play(RANKS[i], (trial){.stage = stage, .passes = passes});
                const size_t held = t.parameters + t.gradients, said = t.predicted.parameters + t.predicted.gradients;
                if (held > said + t.edges || said > held + t.largest + t.edges)
                    fail_msg("%d ranks, stage %d, %zu passes: %zu KiB held, %zu predicted", RANKS[i], stage, passes,
                             held / 1024, said / 1024);
            }
}

/* ZeRO, figure 1, in f32, P parameters and N ranks: moments 8 P / N in every stage; gradients 4 P in stage 1, and where
 * micro-batches add up; parameters 4 P below stage 3. */
static void whole_arrays_are_those_of_the_formulas(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= 7; ranks += 2)
        for (int stage = 1; stage <= 3; stage++)
            for (size_t passes = 1; passes <= 2; passes++) {
                const trial t = play(ranks, (trial){.stage = stage, .passes = passes, .dry = true});
                const size_t whole = t.n * sizeof(float), scatter = 16 * 8 * TENSORS;
                const size_t part = 2 * whole / (size_t)ranks;
                assert_in_range(t.predicted.moments, part - scatter, part + scatter);
                if (stage < 3) assert_int_equal(t.predicted.parameters, whole);
                if (stage < 3) assert_int_equal(t.predicted.copy16, whole / 2);
                if (stage < 2 || passes > 1) assert_int_equal(t.predicted.gradients, whole);
                if (stage == 3 && ranks > 1) assert_true(t.predicted.parameters < whole);
                if (stage > 1 && passes == 1 && ranks > 1) assert_true(t.predicted.gradients < whole);
            }
}

/* Units of one tensor, of which the last is early, and the floats of units that are there when most is. */
typedef struct holding {
    size_t sizes[5], passes, parameters, gradients;
} holding;

static void predict_units(taciti_comm *comm, void *context) {
    const holding *h = context;
    const taciti_shard_options options = {3, TACITI_SHARD_F32, TACITI_SHARD_OVER_ALL, false};
    const taciti_exchange_options exchange = {.overlap = true, .scheme = TACITI_SCHEME_AUTO};
    const taciti_optim_options optim = {.name = TACITI_OPTIM_ADAMW};
    const size_t count = sizeof h->sizes / sizeof *h->sizes, ranks = (size_t)taciti_comm_size(comm);
    taciti_strategy_memory memory;
    taciti_layout layout;
    CHECK(taciti_layout_create(count, &layout) == TACIT_OK);
    for (size_t u = 0; u < count; u++) {
        const char name[2] = {(char)('a' + (int)u), 0};
        if (u > 0) taciti_layout_next_unit(&layout);
        CHECK(taciti_layout_append(&layout, name, 1, &h->sizes[u], true) == TACIT_OK);
    }
    layout.tensors[count - 1].early = true;
    CHECK(taciti_layout_seal_units(&layout, 2000) == TACIT_OK);
    const taciti_strategy_context c = {.comm = comm,
                                       .layout = &layout,
                                       .optim_options = &optim,
                                       .exchange_options = &exchange,
                                       .options = &options,
                                       .by_units = true};
    taciti_shard_memory(&c, h->passes, &memory);
    const size_t own = memory.moments / taciti_optim_bytes_per_float(&optim);
    const size_t gradients = h->passes > 1 ? layout.n : own + h->gradients - h->gradients / ranks;
    CHECK(own > 0 && own < layout.n / ranks + 16 * layout.bucket_count);
    CHECK(memory.parameters == sizeof(float) * (own + h->parameters - h->parameters / ranks));
    CHECK(memory.copy16 == sizeof(taciti_bf16) * h->parameters);
    CHECK(memory.gradients == sizeof(float) * gradients);
    taciti_layout_destroy(&layout);
}

/* Most is there while the head, a block of the backward pass, or one of the forward pass is computed. Sizes are rounded
 * up to lines of 16. */
static void units_are_counted_when_most_of_them_are_there(void **state) {
    static const holding CASES[] = {{{41, 100, 200, 41, 1008}, 1, 48 + 112 + 1008, 1008},
                                    {{41, 1000, 1000, 1000, 112}, 1, 2 * 1008, 48 + 2 * 1008 + 112},
                                    {{41, 100, 1000, 5000, 3008}, 2, 5008 + 3008 + 48 + 112, 0}};
    const taciti_comm_options options = test_comm_options(true);
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        holding h = CASES[i];
        test_world_run(5, &options, predict_units, &h);
    }
}

/* Gathers that are compressed: the parameters that are updated, P / N, are not those that ranks compute with; below
 * stage 3 changes are gathered, which are an array of P. */
static void masters_and_changes_are_predicted(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= 5; ranks += 3) {
        const trial values = play(ranks, (trial){.stage = 3, .passes = 1, .gather = "int8", .dry = true}),
                    changes = play(ranks, (trial){.stage = 2, .passes = 1, .gather = "int8", .dry = true}),
                    none = play(ranks, (trial){.stage = 2, .passes = 1, .dry = true});
        assert_int_equal(changes.figures.own_bytes - values.figures.own_bytes, changes.n * sizeof(float));
        assert_true(values.figures.own_bytes >= none.figures.own_bytes + values.own * sizeof(float));
    }
}

/* Rows are of one rank; a host's three ranks send alike, up to a line of each part: half of what is moved goes to the
 * other host. */
static void rows_of_traffic_add_up(void **state) {
    static const int ONE[] = {0, 0, 0, 0, 0, 0}, TWO[] = {0, 0, 0, 1, 1, 1};
    (void)state;
    for (int hosts = 1; hosts <= 2; hosts++)
        for (int stage = 1; stage <= 3; stage++) {
            uint64_t away = 0, inside = 0;
            test_hosts(hosts == 1 ? ONE : TWO);
            const trial t = play(6, (trial){.stage = stage, .passes = 1});
            test_hosts(NULL);
            assert_int_equal(t.figures.traffic_count, 2 * hosts);
            for (size_t i = 0; i < t.figures.traffic_count; i++) {
                const bool leaves = strcmp(t.figures.traffic[i].where, "between hosts") == 0;
                assert_string_equal(t.figures.traffic[i].what,
                                    i < t.figures.traffic_count / 2 ? "gradients" : "parameters");
                assert_string_equal(t.figures.traffic[i].codec, "f32");
                assert_true(t.figures.traffic[i].bytes > 0 && !t.figures.traffic[i].compressed);
                *(leaves ? &away : &inside) += t.figures.traffic[i].bytes;
            }
            assert_int_equal(away + inside, t.figures.sent_bytes);
            const uint64_t half = hosts == 1 ? 0 : t.moved * sizeof(float) / 2;
            assert_in_range(3 * away, half - half / 500, half + half / 500);
        }
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static char g_line[512];

static void keep_line(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)level;
    (void)strncpy(g_line, line, sizeof g_line - 1);
}

static void expect(tacit_status status, const char *message) {
    if (message == NULL) {
        assert_int_equal(status, TACIT_OK);
        return;
    }
    assert_int_equal(status, TACIT_E_CONFIG);
    if (strstr(g_line, message) == NULL) fail_msg("\"%s\" does not contain \"%s\"", g_line, message);
}

static tacit_status check_all(taciti_shard_options options, taciti_compression_setup setup,
                              taciti_exchange_options exchange, const taciti_hosts *hosts) {
    const taciti_strategy_context context = {.options = &options, .compression = setup, .exchange_options = &exchange};
    return taciti_shard_check(&context, hosts);
}

static tacit_status check_on(taciti_shard_options options, taciti_compression_setup setup, const taciti_hosts *hosts) {
    return check_all(options, setup, (taciti_exchange_options){.scheme = TACITI_SCHEME_AUTO}, hosts);
}

static tacit_status check(taciti_shard_options options, const char *codec, const char *gather,
                          taciti_compress_options compress) {
    const taciti_compression_setup setup = {.options = &compress,
                                            .sums.codec = codec == NULL ? NULL : taciti_codec_find(codec),
                                            .gathers.codec = gather == NULL ? NULL : taciti_codec_find(gather)};
    return check_on(options, setup, NULL);
}

enum { F32 = TACITI_SHARD_F32, BF16 = TACITI_SHARD_BF16, ALL = TACITI_SHARD_OVER_ALL, HOST = TACITI_SHARD_OVER_HOST };
static const taciti_compression_setup NOTHING;
static const taciti_compress_options PLAIN = {.factor = 10, .feedback = 1};

static void compressions_without_meaning_are_refused(void **state) {
    (void)state;
    const taciti_shard_options parts = {3, F32, ALL, false}, changes = {2, F32, ALL, false};
    taciti_compress_options o = PLAIN;
    taciti_log_set_sink(keep_line, NULL, TACITI_LOG_ERROR);
    expect(check(parts, NULL, NULL, o), NULL);
    expect(check(parts, "topk", "int8", o), NULL);
    expect(check(changes, "topk", "topk", o), NULL);
    expect(check(parts, "powersgd", NULL, o), "powersgd adds payloads up on all ranks");
    expect(check(changes, NULL, "powersgd", o), "compress.gather powersgd: this codec is for sums");
    expect(check(changes, NULL, "sketch", o), "compress.gather sketch: this codec is for sums");
    expect(check(changes, NULL, "signsgd", o), "what is lost of a parameter would grow");
    expect(check(parts, NULL, "topk", o), "or --shard.stage 2, which gathers changes");
    o.collective = TACITI_WAY_GATHER;
    expect(check(parts, "topk", NULL, o), "compress.collective gather sends everything");
    expect(check(parts, NULL, NULL, o), NULL);
    o.collective = TACITI_WAY_SCATTER;
    expect(check(parts, "topk", NULL, o), NULL);
    o.what = TACITI_SENDS_CHANGE;
    expect(check(parts, "topk", NULL, o), "compress.what change keeps estimates");
    o = PLAIN;
    const taciti_compression_setup adds_up = {
        .options = &o, .sums.codec = taciti_codec_find("topk"), .controller = taciti_controller_find("accordion")};
    expect(check_on(parts, adds_up, NULL), "adapt.policy accordion adds up gradients of the whole model");
    const taciti_compression_setup follows = {
        .options = &o, .sums.codec = taciti_codec_find("topk"), .controller = taciti_controller_find("gravac")};
    expect(check_on(parts, follows, NULL), NULL);
    taciti_log_set_sink(NULL, NULL, TACITI_LOG_INFO);
}

static void parts_that_hosts_cannot_have_are_refused(void **state) {
    (void)state;
    static const int ONE[] = {0, 0, 0, 0, 0}, TWO[] = {0, 1, 0, 1, 1}, LONELY[] = {0, 0, 0, 1, 0};
    const taciti_hosts one = {.ranks = 5, .count = 1, .host_of = (int *)(uintptr_t)ONE},
                       two = {.ranks = 5, .count = 2, .host_of = (int *)(uintptr_t)TWO},
                       lonely = {.ranks = 5, .count = 2, .host_of = (int *)(uintptr_t)LONELY};
    const taciti_shard_options all = {3, F32, ALL, false}, over = {3, F32, HOST, false}, both = {3, F32, ALL, true};
    taciti_log_set_sink(keep_line, NULL, TACITI_LOG_ERROR);
    expect(check((taciti_shard_options){3, BF16, HOST, false}, NULL, NULL, PLAIN), "leave out shard.gather");
    expect(check(over, NULL, "int8", PLAIN), "leave out compress.gather");
    expect(check((taciti_shard_options){2, F32, ALL, true}, NULL, NULL, PLAIN), "no effect below stage 3");
    expect(check((taciti_shard_options){3, F32, HOST, true}, NULL, NULL, PLAIN), "no effect with shard.over host");
    expect(check(both, NULL, NULL, PLAIN), NULL);
    expect(check(over, NULL, NULL, PLAIN), NULL);
    expect(check_on(over, NOTHING, &two), NULL);
    expect(check_on(both, NOTHING, &two), NULL);
    expect(check_on(all, NOTHING, &one), NULL);
    expect(check_on(all, NOTHING, &lonely), NULL);
    expect(check_on(over, NOTHING, NULL), NULL);
    expect(check_on(over, NOTHING, &one), "shard.over host has no effect on a single host");
    expect(check_on(both, NOTHING, &one), "shard.secondary has no effect on a single host");
    expect(check_on(over, NOTHING, &lonely), "shard.over host divides the model");
    expect(check_on(both, NOTHING, &lonely), "shard.secondary keeps parts on the ranks of a host");
    taciti_log_set_sink(NULL, NULL, TACITI_LOG_INFO);
}

static void exchanges_that_leave_ranks_without_parts_are_refused(void **state) {
    (void)state;
    const taciti_shard_options all = {3, F32, ALL, false}, over = {3, F32, HOST, false}, both = {3, F32, ALL, true};
    const taciti_exchange_options flat = {.scheme = TACITI_SCHEME_FLAT},
                                  lanes = {.scheme = TACITI_SCHEME_AUTO, .lanes = 2},
                                  hosts = {.scheme = TACITI_SCHEME_HOSTS};
    taciti_log_set_sink(keep_line, NULL, TACITI_LOG_ERROR);
    expect(check_all(all, NOTHING, flat, NULL), NULL);
    expect(check_all(over, NOTHING, hosts, NULL), NULL);
    expect(check_all(all, NOTHING, lanes, NULL), "exchange.lanes 2: ranks beyond them would hold no parts");
    expect(check_all(over, NOTHING, flat, NULL), "shard.over host divides by hosts");
    expect(check_all(both, NOTHING, flat, NULL), "shard.secondary divides by hosts");
    taciti_log_set_sink(NULL, NULL, TACITI_LOG_INFO);
}

/* Each way of sharding that can be configured is one of the patterns that the planner prices, and the only one. */
static void one_pattern_is_the_configured_one(void **state) {
    (void)state;
    static const taciti_shard_options OPTIONS[] = {{1, F32, ALL, false},
                                                   {2, BF16, ALL, false},
                                                   {3, BF16, ALL, false},
                                                   {3, F32, HOST, false},
                                                   {3, BF16, ALL, true}};
    static taciti_pattern patterns[TACITI_PATTERNS_MAX];
    for (size_t i = 0; i < sizeof OPTIONS / sizeof *OPTIONS; i++) {
        size_t count = 0, found = 0;
        assert_int_equal(taciti_shard_patterns(&OPTIONS[i], NULL, patterns, &count), TACIT_OK);
        for (size_t k = 0; k < count; k++) {
            const taciti_parts *p = &patterns[k].parts;
            const bool is_it = taciti_parts_stage(p) == OPTIONS[i].stage && p->replicas == (OPTIONS[i].over == HOST) &&
                               p->secondary == OPTIONS[i].secondary &&
                               (strcmp(p->gather->name, "bf16") == 0) == (OPTIONS[i].gather == BF16);
            assert_int_equal(patterns[k].configured, is_it);
            found += is_it;
        }
        assert_int_equal(found, 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_holds_what_is_predicted),
        cmocka_unit_test(whole_arrays_are_those_of_the_formulas),
        cmocka_unit_test(units_are_counted_when_most_of_them_are_there),
        cmocka_unit_test(masters_and_changes_are_predicted),
        cmocka_unit_test(rows_of_traffic_add_up),
        cmocka_unit_test(compressions_without_meaning_are_refused),
        cmocka_unit_test(parts_that_hosts_cannot_have_are_refused),
        cmocka_unit_test(exchanges_that_leave_ranks_without_parts_are_refused),
        cmocka_unit_test(one_pattern_is_the_configured_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
