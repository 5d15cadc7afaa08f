/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys that were given and that nothing reads: each has one line that names it and what would read it, and doing what
 * the line says makes the key be read. Configurations that are printed as YAML read back to the same values.
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "comm/test_engine.h"
#include "train/trainer.h"

enum { LINE_BYTES = 2048, LINES = 64 };
static char g_lines[LINES][LINE_BYTES];
static size_t g_count;

static void keep_line(void *context, taciti_log_level level, const char *line) {
    (void)context;
    assert_true(level == TACITI_LOG_WARN || level == TACITI_LOG_ERROR);
    assert_true(g_count < LINES);
    (void)snprintf(g_lines[g_count++], LINE_BYTES, "%s", line);
}

/* ---- a configuration from "key=value key=value" ------------------------------------------------------------------ */

static tacit_status set(taciti_train_settings *s, const char *key, const char *value) {
    return taciti_config_set(&s->job.config, key, value, key);
}

static tacit_status type(taciti_train_settings *s, const char *words) {
    char text[LINE_BYTES], *rest = NULL;
    tacit_status status = TACIT_OK;
    (void)snprintf(text, sizeof text, "%s", words);
    for (char *key = strtok_r(text, " ", &rest); key != NULL && status == TACIT_OK; key = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(key, '=');
        assert_non_null(value);
        *value++ = '\0';
        status = set(s, key, value);
    }
    return status == TACIT_OK ? taciti_settings_complete(&s->job) : status;
}

static void open_settings(taciti_train_settings *s) {
    taciti_log_set_sink(keep_line, NULL, TACITI_LOG_WARN);
    assert_int_equal(taciti_train_settings_init(s), TACIT_OK);
    g_count = 0;
}

static void warn(const taciti_train_settings *s, taciti_reader reader) {
    const taciti_settings *job = &s->job;
    g_count = 0;
    assert_int_equal(taciti_settings_warn_unread(&job, 1, reader), TACIT_OK);
}

static void ask(const char *words, taciti_reader reader) {
    taciti_train_settings s;
    open_settings(&s);
    if (type(&s, words) != TACIT_OK || taciti_settings_check(&s.job, NULL, TACITI_READER_TRAIN) != TACIT_OK)
        fail_msg("%s: refused: %s", words, g_lines[0]);
    warn(&s, reader);
    taciti_settings_destroy(&s.job);
}

/* ---- single cases ------------------------------------------------------------------------------------------------ */

static void expect(const char *words, taciti_reader reader, const char *key, const char *needs) {
    ask(words, reader);
    if (g_count != 1)
        fail_msg("%s: %zu lines, expected 1; the first: %s", words, g_count, g_count > 0 ? g_lines[0] : "");
    if (strncmp(g_lines[0], key, strlen(key)) != 0 || strstr(g_lines[0], needs) == NULL)
        fail_msg("%s: \"%s\" does not begin with \"%s\" and contain \"%s\"", words, g_lines[0], key, needs);
}

/* Settings, the beginning of their line, and what it says that they need. */
static const char *const UNREAD[][3] = {
    {"compress.factor=100", "compress.factor 100: nothing", "--compress.codec topk"},
    {"compress.factor=10", "compress.factor 10", "--compress.codec topk"},
    {"compress.scope=bucket", "compress.scope bucket", "--compress.codec topk"},
    {"compress.back=3", "compress.back 3", "--compress.codec topk"},
    {"compress.warmup=20", "compress.warmup 20", "--compress.codec topk"},
    {"compress.start=2", "compress.start 2", "--compress.codec topk"},
    {"compress.feedback=0.5", "compress.feedback 0.5", "--compress.codec topk"},
    {"compress.residual=int8", "compress.residual int8", "--compress.codec topk"},
    {"compress.layers=mlp", "compress.layers mlp", "--compress.codec topk"},
    {"compress.momentum=0.9", "compress.momentum 0.9", "--compress.codec topk"},
    {"compress.collective=gather", "compress.collective gather", "--compress.codec topk"},
    {"compress.what=change", "compress.what change", "--compress.codec topk"},
    {"topk.values=int4", "topk.values int4", "--compress.codec topk"},
    {"gravac.floor=3 gravac.window=7", "gravac.floor, gravac.window: nothing in this run reads them; they need",
     "--adapt.policy gravac"},
    {"localsgd.every=8", "localsgd.every 8", "--strategy localsgd"},
    {"gossip.order=atc gossip.every=2", "gossip.order, gossip.every:", "--strategy gossip"},
    {"strategy=gossip compress.codec=auto compress.loss=2", "compress.loss 2", "--strategy dp"},
    {"shard.stage=1", "shard.stage 1", "--strategy shard"},
    {"strategy=shard shard.gather=bf16 compress.gather=int8", "shard.gather bf16", "--compress.gather none"},
    {"optim.accum=4", "optim.accum 4", "--optim.name accum-adamw or accum-adam"},
    {"optim.momentum=0.5", "optim.momentum 0.5", "--optim.name sgd"},
    {"optim.name=sgd optim.beta1=0.8 optim.beta2=0.9", "optim.beta1, optim.beta2:", "--optim.name other than sgd"},
    {"optim.schedule=constant optim.lr_min=0.2", "optim.lr_min 0.2", "--optim.schedule cosine"},
    {"compute.cv=0.3", "compute.cv 0.3", "tacit plan, or tacit bench step with --compute.emulate"},
    {"train.eval_every=-1 train.eval_windows=3", "train.eval_windows 3", "--train.eval_every other than -1"},
    {"data.validation=x data.split=0.2", "data.split 0.2", "no --data.validation"},
    {"compress.codec=topk compress.what=change compress.feedback=0.9", "compress.feedback 0.9",
     "--compress.what other than change"},
    {"compress.codec=topk compress.feedback=0 compress.residual=bf16", "compress.residual bf16",
     "--compress.feedback other than 0"},
    {"compress.codec=f32 compress.feedback=0.5", "compress.feedback 0.5", "that loses something"},
    {"compress.codec=topk adapt.policy=gravac compress.factor=20", "compress.factor 20", "--adapt.policy fixed"},
    {"compress.codec=auto compress.factor=20", "compress.factor 20", "not --compress.codec auto"},
    {"strategy=shard shard.stage=2 compress.gather=topk compress.factor=20 compress.back=3", "compress.factor 20",
     "--compress.codec topk"},
    {"strategy=shard shard.stage=2 compress.codec=int8 adapt.policy=payoff compress.gather=int4 "
     "compress.scope=bucket",
     "compress.scope bucket", "thresholds"},
    {"strategy=gossip gossip.file=w.csv", "gossip.file w.csv", "--gossip.topology file"},
    {"strategy=gossip gossip.codec=topk compress.warmup=100", "compress.warmup 100",
     "--strategy dp: gossip.codec reads compress.factor alone"},
    {"strategy=gossip topk.values=int4", "topk.values int4", "--gossip.codec topk"},
    {"strategy=gossip gossip.degree=2", "gossip.degree 2", "--gossip.topology base-k or torus"},
    {"compress.codec=topk adapt.policy=accordion compress.scope=model", "compress.scope model", "--adapt.policy fixed"},
    {"compress.codec=topk gravac.floor=3", "gravac.floor 3", "--adapt.policy gravac"},
    {"compress.codec=topk adapt.policy=gravac compress.start=3", "compress.start 3", "--compress.warmup 200"},
    {"compress.codec=topk compress.start=5 compress.warmup=0", "compress.start 5", "--compress.warmup 200"},
    {"compress.codec=topk qsgd.levels=3", "qsgd.levels 3", "--compress.codec qsgd"},
    {"compress.codec=topk tagc.ratio=3", "tagc.ratio 3", "--compress.codec tagc"},
    {"compress.codec=sketch tagc.ratio=3", "tagc.ratio 3", "--compress.codec tagc"},
    {"compress.codec=int8 compress.factor=7", "compress.factor 7", "--compress.codec topk"},
    {"compress.codec=int8 compress.scope=bucket", "compress.scope bucket", "--compress.codec topk"},
    {"compress.codec=dgc compress.scope=model", "compress.scope model", "thresholds"},
    {"compress.codec=powersgd compress.collective=scatter", "compress.collective scatter", "all-reduce of its own"},
    {"compress.codec=sketch compress.back=4", "compress.back 4", "sends back"},
    {"compress.codec=topk compress.collective=gather compress.back=4", "compress.back 4", "sends back"},
};

static void training_names_what_would_read_a_key(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof UNREAD / sizeof *UNREAD; i++)
        expect(UNREAD[i][0], TACITI_READER_TRAIN, UNREAD[i][1], UNREAD[i][2]);
}

static void quiet(const char *words, taciti_reader reader) {
    ask(words, reader);
    if (g_count > 0) fail_msg("%s: %s", words, g_lines[0]);
}

static void what_is_read_has_no_line(void **state) {
    (void)state;
    static const char *const CASES[] = {
        "compress.codec=topk compress.factor=20 compress.start=2 compress.back=4 compress.scope=bucket",
        "compress.codec=topk topk.values=int4 topk.indices=rice",
        "compress.codec=int8 compress.factor=1", /* dense steps */
        "compress.codec=signsgd compress.momentum=0.8 optim.beta1=0",
        "compress.codec=topk adapt.policy=payoff compress.factor=20",
        "compress.codec=topk adapt.policy=gravac compress.warmup=20 compress.start=2 gravac.floor=9",
        "compress.codec=tagc tagc.ratio=3 compress.factor=7",
        "compress.codec=auto compress.layers=mlp",
        "strategy=shard shard.stage=2 compress.gather=topk compress.back=3 compress.warmup=20 compress.start=2",
        "strategy=shard shard.stage=2 compress.gather=topk compress.factor=20 compress.scope=bucket",
        "strategy=gossip gossip.topology=base-k gossip.degree=2",
        "optim.name=accum-adam optim.accum=2 optim.beta1=0.8",
        "optim.name=sgd optim.momentum=0.5",
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) quiet(CASES[i], TACITI_READER_TRAIN);
}

static void readers_differ(void **state) {
    (void)state;
    quiet("gossip.order=atc localsgd.every=8 compute.cv=0.3 topk.values=int4 compress.feedback=0 "
          "compress.layers=mlp run.dir=x",
          TACITI_READER_PLAN);
    expect("compress.factor=20", TACITI_READER_PLAN, "compress.factor 20", "--compress.codec topk");
    expect("gravac.floor=9", TACITI_READER_PLAN, "gravac.floor 9", "--adapt.policy gravac");
    quiet("compute.emulate=gpt2-124m compute.cv=0.3", TACITI_READER_BENCH);
    expect("compute.scale=2", TACITI_READER_BENCH, "compute.scale 2", "--compute.emulate PROFILE");
    expect("optim.name=sgd optim.momentum=0.5", TACITI_READER_OWN_OPTIMIZER,
           "optim.name, optim.momentum:", "own_optimizer");
    expect("strategy=gossip optim.name=sgd gossip.integral=0", TACITI_READER_LIBRARY, "gossip.integral", "optim.name");
    expect("strategy=gossip optim.name=sgd gossip.integral=0", TACITI_READER_OWN_OPTIMIZER,
           "optim.name sgd:", "own_optimizer");
    quiet("optim.lr=1 optim.lr_min=0.2 optim.warmup=7 optim.clip=2", TACITI_READER_OWN_OPTIMIZER);
    expect("compress.codec=topk adapt.policy=gravac optim.momentum=0.5", TACITI_READER_OWN_OPTIMIZER,
           "optim.momentum 0.5", "own_optimizer");
    quiet("compress.codec=topk compress.momentum=0.9 optim.beta1=0", TACITI_READER_OWN_OPTIMIZER);
    expect("optim.accum=2", TACITI_READER_LIBRARY, "optim.accum 2", "--optim.name accum-adamw");
    quiet("comm.timeout=9 exchange.wire=bf16 compress.codec=topk topk.values=int4 compress.warmup=3 optim.warmup=2 "
          "adapt.policy=payoff",
          TACITI_READER_CHANNEL);
    expect("gossip.order=atc optim.lr=1 shard.stage=2", TACITI_READER_CHANNEL,
           "optim.lr, gossip.order, shard.stage:", "a job");
    expect("compress.factor=20", TACITI_READER_CHANNEL, "compress.factor 20", "--compress.codec topk");
    expect("tagc.ratio=3", TACITI_READER_CHANNEL, "tagc.ratio 3", "--compress.codec tagc");
    quiet("topk.values=int4 tagc.ratio=3", TACITI_READER_CODECS);
    expect("topk.values=int4 optim.lr=1", TACITI_READER_CODECS, "optim.lr 1", "tacit train");
}

/* One of several settings that are compared is enough. */
static void one_reader_of_several_settings_is_enough(void **state) {
    (void)state;
    static const char *const WORDS[] = {"strategy=gossip gossip.order=atc localsgd.every=8",
                                        "strategy=dp gossip.order=atc localsgd.every=8"};
    taciti_train_settings s[2];
    const taciti_settings *jobs[] = {&s[0].job, &s[1].job};
    for (int i = 0; i < 2; i++) {
        open_settings(&s[i]);
        assert_int_equal(type(&s[i], WORDS[i]), TACIT_OK);
    }
    assert_int_equal(taciti_settings_warn_unread(jobs, 2, TACITI_READER_BENCH), TACIT_OK);
    assert_int_equal(g_count, 1);
    assert_non_null(strstr(g_lines[0], "localsgd.every 8"));
    for (int i = 0; i < 2; i++) taciti_settings_destroy(&s[i].job);
}

/* ---- all keys ---------------------------------------------------------------------------------------------------- */

/* Gives the key a legal value that is not its default. */
static void change(taciti_train_settings *s, const taciti_place *place) {
    static const char *const VALUES[] = {"1", "2", "3", "8", "0.3", "0.7", "true", "false", "2048", "some words"};
    char key[TACITI_KEY_BYTES], choice[TACITI_CHOICE_BYTES];
    (void)taciti_place_key(place, key);
    for (int i = 0; taciti_option_choice(place->option, i, choice); i++)
        if (set(s, key, choice) == TACIT_OK && !taciti_place_is_default(place)) return;
    for (size_t i = 0; i < sizeof VALUES / sizeof *VALUES; i++) {
        g_count = 0;
        if (set(s, key, VALUES[i]) == TACIT_OK && !taciti_place_is_default(place)) return;
    }
    fail_msg("%s: no value is legal", key);
}

/* Types what the line asks for: every "--key value", but for what follows "not". */
static void follow(taciti_train_settings *s, const char *line) {
    for (const char *flag = line; (flag = strstr(flag, "--")) != NULL;) {
        char key[TACITI_KEY_BYTES], value[TACITI_KEY_BYTES];
        const bool refused = flag - line > 4 && strncmp(flag - 4, "not ", 4) == 0;
        const size_t length = strcspn(flag += 2, " ");
        (void)snprintf(key, sizeof key, "%.*s", (int)length, flag);
        flag += length;
        (void)snprintf(value, sizeof value, "%.*s", (int)strcspn(flag + 1, " ,"), flag + 1);
        taciti_place place;
        assert_true(taciti_config_find(&s->job.config, key, &place));
        if (strncmp(flag, " other than", 11) == 0)
            change(s, &place);
        else if (!refused)
            assert_int_equal(set(s, key, value), TACIT_OK);
    }
    (void)taciti_settings_complete(&s->job);
}

/* One key alone in a run of defaults: it is read, or its line leads to settings that read it. */
static void check_key(size_t index) {
    taciti_train_settings s;
    taciti_place place;
    char key[TACITI_KEY_BYTES], needs[TACITI_NEEDS_BYTES];
    open_settings(&s);
    assert_true(taciti_config_at(&s.job.config, index, &place));
    (void)taciti_place_key(&place, key);
    change(&s, &place);
    (void)taciti_settings_complete(&s.job);
    warn(&s, TACITI_READER_TRAIN);
    if (taciti_settings_registered(place.table)) assert_int_equal(g_count, 1);
    const bool conditional = *taciti_settings_needs(&place, needs) != '\0' || taciti_settings_registered(place.table);
    assert_null(strchr(needs, '?'));
    if (!conditional) assert_int_equal(g_count, 0);
    for (int round = 0; g_count > 0 && round < 4; round++) {
        if (g_count != 1 || strncmp(g_lines[0], key, strlen(key)) != 0) fail_msg("%s: %s", key, g_lines[0]);
        if (strncmp(key, "compute.", 8) == 0) break; /* training never reads it */
        follow(&s, g_lines[0]);
        *place.given = TACITI_GIVEN_NOT;
        for (size_t i = 0; taciti_config_at(&s.job.config, i, &place); i++) *place.given = TACITI_GIVEN_NOT;
        assert_true(taciti_config_at(&s.job.config, index, &place));
        *place.given = TACITI_GIVEN_TYPED;
        warn(&s, TACITI_READER_TRAIN);
    }
    if (g_count > 0 && strncmp(key, "compute.", 8) != 0) fail_msg("%s is never read: %s", key, g_lines[0]);
    taciti_settings_destroy(&s.job);
}

static size_t key_count(void) {
    taciti_train_settings s;
    taciti_place place;
    size_t count = 0;
    open_settings(&s);
    while (taciti_config_at(&s.job.config, count, &place)) count++;
    taciti_settings_destroy(&s.job);
    return count;
}

static void every_line_leads_to_a_reader(void **state) {
    (void)state;
    const size_t count = key_count();
    assert_true(count > 100);
    for (size_t i = 0; i < count; i++) check_key(i);
}

/* Defaults and presets of every codec are nobody's keys. */
static void codecs_alone_have_no_line(void **state) {
    (void)state;
    for (const taciti_codec *const *codec = taciti_codec_list(); *codec != NULL; codec++) {
        char words[128];
        (void)snprintf(words, sizeof words, "compress.codec=%s", (*codec)->name);
        quiet(words, TACITI_READER_TRAIN);
    }
}

/* ---- bits -------------------------------------------------------------------------------------------------------- */

/* The effect of words on a small network on 3 ranks; its width is no multiple of 16. */
typedef struct trial {
    const char *words, *key; /* key NULL: without */
    size_t n;
    float *parameters; /* of rank 0 after the last step */
} trial;

static void run_rank(taciti_comm *comm, void *context) {
    enum { STEPS = 4 };
    static const char SMALL[] = "run.quiet=true model.layers=1 model.heads=1 model.channels=41 model.context=4 "
                                "train.threads=1 train.batch=6 exchange.bucket=2KiB optim.warmup=2";
    trial *t = context;
    const taciti_train_request request = {.resume = false};
    taciti_train_settings settings;
    taciti_trainer trainer;
    CHECK(taciti_train_settings_init(&settings) == TACIT_OK);
    CHECK(type(&settings, SMALL) == TACIT_OK && type(&settings, t->words) == TACIT_OK);
    CHECK(t->key == NULL || type(&settings, t->key) == TACIT_OK);
    CHECK(taciti_trainer_prepare(&trainer, comm, &settings, &request) == TACIT_OK);
    CHECK(taciti_trainer_build(&trainer) == TACIT_OK && taciti_trainer_initialise(&trainer) == TACIT_OK);
    for (int step = 0; step < STEPS; step++) {
        CHECK(taciti_trainer_step(&trainer, false) == TACIT_OK);
        CHECK(taciti_reports_collect(&trainer, 0) == TACIT_OK);
        taciti_reports_drop_oldest(&trainer.reports);
    }
    if (trainer.rank == 0) {
        const size_t bytes = (t->n = trainer.layout.n) * sizeof *t->parameters;
        CHECK((t->parameters = taciti_calloc(1, bytes)) != NULL);
        memcpy(t->parameters, taciti_model_parameters(trainer.model), bytes);
    }
    taciti_trainer_close(&trainer);
    taciti_settings_destroy(&settings.job);
}

static trial play(const char *words, const char *key) {
    const taciti_comm_options options = test_comm_options(true);
    trial t = {.words = words, .key = key};
    test_log_keep();
    test_world_run(3, &options, run_rank, &t);
    if (test_log_count("nothing in this run reads it") != (key != NULL))
        fail_msg("%s, %s: lines", words, key == NULL ? "" : key);
    test_log_drop();
    return t;
}

/* Nothing reads the key: training with it and without gives the same bits. */
static void a_key_with_a_line_changes_no_bit(void **state) {
    (void)state;
    static const char *const CASES[][2] = {
        {"compress.codec=none", "compress.factor=100"},
        {"compress.codec=none", "compress.momentum=0.9"},
        {"compress.codec=none", "compress.layers=mlp"},
        {"compress.codec=int8", "compress.factor=7"},
        {"compress.codec=int8", "compress.warmup=4"},
        {"compress.codec=int8", "compress.back=7"},
        {"compress.codec=int8", "compress.scope=bucket"},
        {"compress.codec=powersgd exchange.bucket=1MiB", "compress.collective=gather"},
        {"compress.codec=sketch compress.warmup=0", "compress.back=4"},
        {"compress.codec=topk compress.warmup=0 compress.collective=gather", "compress.back=4"},
        {"compress.codec=topk compress.warmup=0 compress.feedback=0", "compress.residual=bf16"},
        {"compress.codec=topk compress.warmup=0 compress.what=change", "compress.feedback=0.5"},
        {"compress.codec=topk compress.warmup=0", "compress.start=5"},
        {"compress.codec=randomk compress.warmup=0", "compress.scope=bucket"},
        {"compress.codec=topk adapt.policy=accordion accordion.epoch=1", "compress.scope=bucket"},
        {"compress.codec=f32", "compress.residual=int8"},
        {"strategy=shard compress.gather=int8", "shard.gather=bf16"},
        {"optim.name=sgd", "optim.beta1=0.5"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const trial without = play(CASES[i][0], NULL), with = play(CASES[i][0], CASES[i][1]);
        assert_int_equal(with.n, without.n);
        if (memcmp(with.parameters, without.parameters, with.n * sizeof *with.parameters) != 0)
            fail_msg("%s: %s changes bits", CASES[i][0], CASES[i][1]);
        taciti_free(with.parameters);
        taciti_free(without.parameters);
    }
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static void read_back(taciti_train_settings *s, const char *yaml) {
    char path[] = "/tmp/tacit-unread-XXXXXX";
    FILE *file = fdopen(mkstemp(path), "w");
    assert_non_null(file);
    assert_true(fputs(yaml, file) >= 0);
    assert_int_equal(fclose(file), 0);
    open_settings(s);
    if (taciti_config_file(&s->job.config, path) != TACIT_OK || taciti_settings_complete(&s->job) != TACIT_OK)
        fail_msg("%s:\n%s", g_lines[0], yaml);
    (void)unlink(path);
}

/* A file may hold all keys: those with their default are not meant. */
static void defaults_in_a_file_have_no_line(void **state) {
    (void)state;
    taciti_train_settings s;
    read_back(&s, "compress: {factor: 10}\ngravac: {floor: 10}\ncompute: {rate: 1e12}\n"); /* the last is for plan */
    warn(&s, TACITI_READER_TRAIN);
    assert_int_equal(g_count, 0);
    taciti_settings_destroy(&s.job);
    read_back(&s, "compress: {factor: 11}\n");
    warn(&s, TACITI_READER_TRAIN);
    assert_int_equal(g_count, 1);
    taciti_settings_destroy(&s.job);
}

static void compare(const taciti_train_settings *s, bool only_changed) {
    taciti_train_settings other;
    char *yaml = taciti_config_yaml(&s->job.config, only_changed), *mine = taciti_config_json(&s->job.config, 0);
    assert_non_null(yaml);
    read_back(&other, yaml);
    char *theirs = taciti_config_json(&other.job.config, 0);
    assert_string_equal(mine, theirs);
    taciti_settings_destroy(&other.job);
    taciti_free(theirs);
    taciti_free(mine);
    taciti_free(yaml);
}

/* Every key with another value than its default, then the presets and the words that stand for other keys. */
static void printed_configurations_read_back(void **state) {
    (void)state;
    static const char *const WORDS[] = {"compress.codec=tagc tagc.ratio=3",
                                        "compress.codec=sparseloco strategy=localsgd compress.feedback=1",
                                        "data.train=a run.dir=null"};
    taciti_train_settings s;
    taciti_place place;
    open_settings(&s);
    for (size_t i = 0; taciti_config_at(&s.job.config, i, &place); i++) change(&s, &place);
    compare(&s, false);
    compare(&s, true);
    taciti_settings_destroy(&s.job);
    read_back(&s, "compress: {codec: sparseloco, feedback: 1}\n"); /* a default that no preset may change */
    compare(&s, true);
    taciti_settings_destroy(&s.job);
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++) {
        open_settings(&s);
        assert_int_equal(type(&s, WORDS[i]), TACIT_OK);
        compare(&s, false);
        compare(&s, true);
        taciti_settings_destroy(&s.job);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_names_what_would_read_a_key),
        cmocka_unit_test(what_is_read_has_no_line),
        cmocka_unit_test(readers_differ),
        cmocka_unit_test(one_reader_of_several_settings_is_enough),
        cmocka_unit_test(every_line_leads_to_a_reader),
        cmocka_unit_test(codecs_alone_have_no_line),
        cmocka_unit_test(a_key_with_a_line_changes_no_bit),
        cmocka_unit_test(defaults_in_a_file_have_no_line),
        cmocka_unit_test(printed_configurations_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
