/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a job as bytes: a job that goes on from them has the bits of one that never stopped, whatever it is; and
 * bytes that are not those of this job, rank and step are refused, on all ranks, and change nothing.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <xxhash.h>

#include "api/test_ranks.h"
#include "base/rng.h"

enum { STEPS = 7, STOP = 4, CHECKSUM_BYTES = 16, HEAD_BYTES = 56 };

static tacit_layout *create_layout(bool small) {
    tacit_layout *layout = NULL;
    OK(tacit_layout_create(&layout));
    if (small) {
        OK(tacit_layout_add(layout, "out", 1, (const size_t[]){3}, 0));
        OK(tacit_layout_add(layout, "in", 2, (const size_t[]){5, 4}, TACIT_DECAY));
        return layout;
    }
    OK(tacit_layout_add(layout, "out.weight", 2, (const size_t[]){10, 41}, TACIT_DECAY));
    OK(tacit_layout_add(layout, "out.bias", 1, (const size_t[]){10}, 0));
    OK(tacit_layout_add(layout, "mid", 2, (const size_t[]){41, 100}, TACIT_DECAY));
    OK(tacit_layout_add(layout, "one", 0, NULL, 0));
    return layout;
}

/* A job with these settings, and what else it needs. */
typedef struct bench {
    tacit_comm *comm;
    const char *const *settings; /* ends with NULL */
    bool small, own_optimizer;
} bench;

static tacit_job *open_job(const bench *b) {
    tacit_settings *settings = NULL;
    tacit_layout *layout = create_layout(b->small);
    tacit_job *job = NULL;
    OK(tacit_settings_create(&settings));
    OK(tacit_settings_set(settings, "exchange.bucket=4096"));
    OK(tacit_settings_set(settings, "optim.lr=0.1"));
    for (size_t i = 0; b->settings[i] != NULL; i++) OK(tacit_settings_set(settings, b->settings[i]));
    const tacit_job_options options = {.size = sizeof options, .steps = STEPS, .own_optimizer = b->own_optimizer};
    OK(tacit_job_open(b->comm, settings, layout, &options, &job));
    tacit_layout_destroy(layout);
    tacit_settings_destroy(settings);
    return job;
}

static size_t floats_of(const bench *b) {
    tacit_layout *layout = create_layout(b->small);
    const size_t floats = tacit_layout_floats(layout);
    tacit_layout_destroy(layout);
    return floats;
}

static tacit_job *start_job(const bench *b) {
    tacit_job *job = open_job(b);
    const size_t floats = floats_of(b);
    for (size_t i = 0; i < floats; i++) tacit_job_parameters(job)[i] = 0;
    tacit_job_parameters(job)[0] = 1;
    OK(tacit_job_start(job));
    return job;
}

/* Gradients depend on parameters, rank and step; padding, which only tensors know, keeps 0. */
static void make_step(const bench *b, tacit_job *job, int64_t step) {
    static const size_t PLACES[2][4][2] = {{{0, 410}, {416, 10}, {432, 4100}, {4544, 1}}, {{0, 3}, {16, 20}}};
    const size_t tensors = b->small ? 2 : 4;
    float *x = tacit_job_parameters(job), *g = tacit_job_gradients(job);
    const uint64_t key = taciti_rng_key(taciti_rng_key(17, (uint64_t)tacit_rank(b->comm)), (uint64_t)step);
    for (size_t t = 0; t < tensors; t++) {
        const size_t *place = PLACES[b->small][t];
        for (size_t i = place[0]; i < place[0] + place[1]; i++)
            g[i] = 0.01F * (x[i] - 1) + 0.02F * ((float)(taciti_rng_key(key, i) % 1000) / 500 - 1);
        OK(tacit_job_ready(job, t));
    }
    if (!b->own_optimizer) {
        OK(tacit_job_finish(job, NULL));
        return;
    }
    OK(tacit_job_settle(job, NULL));
    for (size_t i = 0; i < floats_of(b); i++) x[i] -= 0.1F * g[i];
    OK(tacit_job_stepped(job));
}

/* The state of a job, at an odd address, in memory that ends with it. */
typedef struct string {
    unsigned char *block, *bytes;
    size_t count;
} string;

static string take_state(tacit_job *job) {
    string s = {.block = NULL};
    OK(tacit_job_state(job, NULL, 0, &s.count));
    s.block = malloc(s.count + 1);
    CHECK(s.block != NULL);
    s.bytes = s.block + 1;
    size_t again = 0;
    OK(tacit_job_state(job, s.bytes, s.count, &again));
    CHECK(again == s.count);
    return s;
}

/* ---- going on ---------------------------------------------------------------------------------------------------- */

static const struct {
    const char *settings[5];
    bool own_optimizer, alone; /* alone: on one rank, too */
} JOBS[] = {
    {{"strategy=dp"}, false, true},
    {{"strategy=dp", "optim.name=sgd"}, true, true},
    {{"strategy=dp", "optim.name=accum-adamw", "optim.accum=3"}, false, true},
    {{"strategy=dp", "compress.codec=topk", "compress.factor=10"}, false, true},
    {{"strategy=dp", "compress.codec=topk", "compress.residual=int8"}, false, true},
    {{"strategy=dp", "compress.codec=topk", "compress.residual=bf16", "compress.collective=gather"}, false, true},
    {{"strategy=dp", "compress.codec=int4"}, false, true},
    {{"strategy=dp", "compress.codec=topk", "adapt.policy=accordion"}, false, true},
    {{"strategy=gossip"}, false, true},
    {{"strategy=gossip", "gossip.delay=1", "gossip.gamma=0.5"}, false, true},
    {{"strategy=gossip", "gossip.order=atc"}, true, true},
    {{"strategy=gossip", "gossip.tracker=true"}, false, false},
    {{"strategy=gossip", "gossip.codec=topk", "compress.factor=5", "gossip.topology=base-k"}, false, true},
    {{"strategy=gossip", "gossip.codec=int4", "gossip.topology=base-k"}, true, true},
    {{"strategy=gossip", "gossip.codec=int4", "gossip.topology=exp-directed", "gossip.every=2"}, false, true},
    {{"strategy=gossip", "gossip.codec=powergossip", "gossip.columns=2", "gossip.order=atc"}, true, true},
    {{"strategy=localsgd", "localsgd.every=3"}, false, true},
    {{"strategy=localsgd", "localsgd.every=3", "localsgd.outer_momentum=0.9"}, false, true},
    {{"strategy=localsgd", "localsgd.every=2", "compress.codec=topk"}, false, true},
    {{"strategy=shard", "shard.stage=1"}, false, true},
    {{"strategy=shard", "shard.stage=3", "optim.clip=0.05"}, false, true},
    {{"strategy=shard", "shard.stage=2", "compress.codec=int4"}, false, true},
    {{"strategy=shard", "shard.stage=3", "compress.codec=topk", "compress.gather=int8"}, false, true},
    {{"strategy=none"}, false, true},
};

/* Ends the rank, naming the job, unless the states are the same. */
static void expect_same(const bench *b, const string *x, const string *y, const char *what) {
    if (x->count == y->count && memcmp(x->bytes, y->bytes, x->count) == 0) return;
    (void)fprintf(stderr, "%s %s: %s: other bytes\n", b->settings[0], b->settings[1], what);
    _exit(1);
}

/* The job that stops gives its state away in between, twice, and is closed. */
static void compare_jobs(const bench *b) {
    tacit_job *whole = start_job(b), *part = start_job(b);
    const size_t floats = floats_of(b);
    for (int64_t s = 0; s < STEPS; s++) make_step(b, whole, s);
    for (int64_t s = 0; s < STOP; s++) make_step(b, part, s);
    const string first = take_state(part), second = take_state(part);
    expect_same(b, &first, &second, "read twice");
    OK(tacit_job_close(part));
    tacit_job *resumed = open_job(b);
    memset(tacit_job_parameters(resumed), 1, floats * sizeof(float));
    OK(tacit_job_restore(resumed, first.bytes, first.count));
    memset(first.bytes, 0, first.count); /* nobody needs them any more */
    const string third = take_state(resumed);
    if (tacit_size(b->comm) > 1) expect_same(b, &second, &third, "restored"); /* alone, it drops empty residuals */
    for (int64_t s = STOP; s < STEPS; s++) make_step(b, resumed, s);
    CHECK(memcmp(tacit_job_parameters(whole), tacit_job_parameters(resumed), floats * sizeof(float)) == 0);
    const string one = take_state(whole), other = take_state(resumed);
    expect_same(b, &one, &other, "at the end");
    tacit_counters counters = {.size = sizeof counters};
    OK(tacit_job_counters(resumed, &counters));
    CHECK(counters.steps == STEPS);
    free(first.block), free(second.block), free(third.block), free(one.block), free(other.block);
    OK(tacit_job_close(whole));
    OK(tacit_job_close(resumed));
}

static void run_jobs(int rank, int ranks, void *context) {
    tacit_comm *comm = test_ranks_open(context, NULL, rank, ranks);
    for (size_t i = 0; i < sizeof JOBS / sizeof *JOBS; i++) {
        if (ranks == 1 && !JOBS[i].alone) continue;
        const bench b = {.comm = comm, .settings = JOBS[i].settings, .own_optimizer = JOBS[i].own_optimizer};
        compare_jobs(&b);
    }
    OK(tacit_close(comm));
}

static void a_job_goes_on_from_its_bytes(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++) test_ranks_run(ranks, -1, run_jobs, test_store_create());
}

/* Two hosts of two ranks: every rank holds more than it alone writes to a checkpoint. */
static void run_on_two_hosts(int rank, int ranks, void *context) {
    static const char *const OVER[] = {"strategy=shard", "shard.over=host", NULL};
    const char *host = rank < 2 ? "host-a" : "host-b";
    if (unshare(CLONE_NEWUTS) != 0 || sethostname(host, strlen(host)) != 0) _exit(0); /* only root may */
    const bench b = {.comm = test_ranks_open(context, NULL, rank, ranks), .settings = OVER};
    compare_jobs(&b);
    OK(tacit_close(b.comm));
}

static void a_replica_on_every_host_goes_on(void **state) {
    (void)state;
    test_ranks_run(4, -1, run_on_two_hosts, test_store_create());
}

/* Between average and revert the state is that of the rank's own parameters. */
static void average_and_compare(int rank, int ranks, void *context) {
    static const char *const GOSSIP[] = {"strategy=gossip", "gossip.topology=ring", NULL};
    const bench b = {.comm = test_ranks_open(context, NULL, rank, ranks), .settings = GOSSIP};
    tacit_job *job = start_job(&b);
    double distance = 0;
    for (int64_t s = 0; s < 3; s++) make_step(&b, job, s);
    const string before = take_state(job);
    OK(tacit_job_average(job, &distance));
    CHECK(distance > 0);
    const string averaged = take_state(job);
    CHECK(before.count == averaged.count && memcmp(before.bytes, averaged.bytes, before.count) == 0);
    OK(tacit_job_revert(job));
    free(before.block), free(averaged.block);
    OK(tacit_job_close(job));
    OK(tacit_close(b.comm));
}

static void an_average_is_not_the_state(void **state) {
    (void)state;
    test_ranks_run(5, -1, average_and_compare, test_store_create());
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static const char *const PLAIN[] = {NULL}, *const TOPK[] = {"compress.codec=topk", NULL};

static void refused(tacit_status got, tacit_status want, const char *text) {
    if (got != want || strstr(tacit_error_text(), text) == NULL)
        fail_msg("%s: %s; wanted %s: %s", tacit_status_name(got), tacit_error_text(), tacit_status_name(want), text);
}

static void the_size_is_asked_for(void **state) {
    bench b = {.settings = TOPK, .small = true};
    size_t bytes = 0, later = 0;
    (void)state;
    OK(tacit_open_self(NULL, &b.comm));
    tacit_job *job = open_job(&b);
    refused(tacit_job_state(job, NULL, 0, &bytes), TACIT_E_USAGE, "before tacit_job_start()");
    OK(tacit_job_start(job));
    refused(tacit_job_state(job, NULL, 0, NULL), TACIT_E_USAGE, "bytes is NULL");
    OK(tacit_job_state(job, NULL, 0, &bytes));
    unsigned char *buffer = malloc(bytes);
    memset(buffer, 7, bytes);
    refused(tacit_job_state(job, buffer, bytes - 1, &later), TACIT_E_USAGE, "tacit_job_state: the state has");
    assert_int_equal(later, bytes);
    for (size_t i = 0; i < bytes; i++) assert_int_equal(buffer[i], 7);
    for (int64_t s = 0; s < 12; s++) {
        make_step(&b, job, s);
        OK(tacit_job_state(job, buffer, bytes, &later));
        assert_in_range(later, 1, bytes);
    }
    OK(tacit_job_ready(job, 0));
    refused(tacit_job_state(job, NULL, 0, &bytes), TACIT_E_USAGE, "inside of a step");
    refused(tacit_job_restore(job, buffer, bytes), TACIT_E_USAGE, "inside of a step");
    OK(tacit_job_close(job));
    OK(tacit_close(b.comm));
    free(buffer);
}

/* Restores into a job and expects damage; the job is as it was. */
static void expect_damage(tacit_job *job, const unsigned char *bytes, size_t count) {
    const tacit_status status = tacit_job_restore(job, bytes, count);
    if (status != TACIT_E_DATA) fail_msg("%s: %s", tacit_status_name(status), tacit_error_text());
}

static void write_checksum(unsigned char *bytes, size_t count) {
    XXH128_canonical_t checksum;
    XXH128_canonicalFromHash(&checksum, XXH3_128bits(bytes, count - CHECKSUM_BYTES));
    memcpy(bytes + count - CHECKSUM_BYTES, &checksum, sizeof checksum);
}

static string state_after(const bench *b, int64_t steps) {
    tacit_job *job = start_job(b);
    for (int64_t s = 0; s < steps; s++) make_step(b, job, s);
    const string out = take_state(job);
    OK(tacit_job_close(job));
    return out;
}

static void damage_is_found(void **state) {
    bench b = {.settings = TOPK, .small = true};
    (void)state;
    OK(tacit_open_self(NULL, &b.comm));
    string s = state_after(&b, 3);
    tacit_job *job = open_job(&b);
    for (size_t count = 0; count < s.count; count++) { /* every cut, in memory that ends there */
        unsigned char *cut = malloc(count + 1);
        memcpy(cut + 1, s.bytes, count);
        expect_damage(job, cut + 1, count);
        free(cut);
    }
    for (size_t at = 0; at < s.count; at++) { /* every byte */
        const unsigned char flip = (unsigned char)(1U << taciti_rng_key(3, at) % 8);
        s.bytes[at] ^= flip;
        expect_damage(job, s.bytes, s.count);
        s.bytes[at] ^= flip;
    }
    for (uint64_t i = 0; i < 2000; i++) { /* several at once */
        unsigned char *copy = malloc(s.count);
        memcpy(copy, s.bytes, s.count);
        for (uint64_t k = 0; k < 1 + i % 5; k++)
            copy[taciti_rng_key(taciti_rng_key(5, i), k) % s.count] ^= (unsigned char)(1 + taciti_rng_key(i, k) % 255);
        if (memcmp(copy, s.bytes, s.count) != 0) expect_damage(job, copy, s.count);
        free(copy);
    }
    refused(tacit_job_restore(job, NULL, s.count), TACIT_E_USAGE, "bytes is NULL");
    OK(tacit_job_restore(job, s.bytes, s.count)); /* none of it has harmed the job */
    refused(tacit_job_restore(job, s.bytes, s.count), TACIT_E_USAGE, "between two steps");
    OK(tacit_job_close(job));
    OK(tacit_close(b.comm));
    free(s.block);
}

/* With a checksum that is right whatever the bytes are, nothing is read or written where it must not be. */
static void forged_bytes_do_no_harm(void **state) {
    bench b = {.settings = TOPK, .small = true};
    (void)state;
    OK(tacit_open_self(NULL, &b.comm));
    const string s = state_after(&b, 3);
    tacit_job *job = open_job(&b);
    unsigned char *forged = malloc(s.count);
    int taken = 0;
    for (uint64_t i = 0; i < 5000; i++) {
        const size_t range = i % 2 == 0 ? HEAD_BYTES : s.count - CHECKSUM_BYTES;
        memcpy(forged, s.bytes, s.count);
        for (uint64_t k = 0; k < 1 + i % 3; k++)
            forged[taciti_rng_key(taciti_rng_key(7, i), k) % range] = (unsigned char)taciti_rng_key(i, k + 9);
        write_checksum(forged, s.count);
        const tacit_status status = tacit_job_restore(job, forged, s.count);
        assert_true(status == TACIT_OK || status == TACIT_E_DATA);
        if (status != TACIT_OK) continue;
        taken++;
        OK(tacit_job_close(job));
        job = open_job(&b);
    }
    assert_in_range(taken, 1, 4800); /* values and steps are not forged beyond belief */
    OK(tacit_job_close(job));
    OK(tacit_close(b.comm));
    free(forged);
    free(s.block);
}

/* The bytes as a job would write them that has no first moments, the first of its values; what else is right. */
static string without_moments(const string *s) {
    enum { BYTES_AT = 16, DESCRIPTION_AT = 24 };
    uint64_t bytes = s->count, description = 0;
    memcpy(&description, s->bytes + DESCRIPTION_AT, sizeof description);
    string out = {.block = calloc(s->count, 1)};
    out.bytes = out.block;
    char *text = calloc(description + 1, 1);
    CHECK(out.block != NULL && text != NULL);
    memcpy(text, s->bytes + HEAD_BYTES, description);
    char *entry = strstr(text, "\"optim.m\":"), *next = strchr(entry, ',') + 1;
    const size_t floats = strtoul(strchr(entry, ':') + 1, NULL, 10), gone = (size_t)(next - entry);
    memmove(entry, next, strlen(next) + 1);
    memset(text + description - gone, ' ', gone);
    const uint64_t shorter = (strlen(text) - strspn(strrchr(text, '}') + 1, " ") + 7) / 8 * 8;
    bytes -= floats + (description - shorter);
    memcpy(out.bytes, s->bytes, HEAD_BYTES);
    memcpy(out.bytes + BYTES_AT, &bytes, sizeof bytes);
    memcpy(out.bytes + DESCRIPTION_AT, &shorter, sizeof shorter);
    memcpy(out.bytes + HEAD_BYTES, text, shorter);
    memcpy(out.bytes + HEAD_BYTES + shorter, s->bytes + HEAD_BYTES + description + floats,
           bytes - HEAD_BYTES - shorter - CHECKSUM_BYTES);
    out.count = bytes;
    write_checksum(out.bytes, out.count);
    free(text);
    return out;
}

static void entries_that_are_needed_must_be_there(void **state) {
    bench b = {.settings = PLAIN, .small = true};
    (void)state;
    OK(tacit_open_self(NULL, &b.comm));
    const string s = state_after(&b, 3), less = without_moments(&s);
    tacit_job *job = open_job(&b);
    refused(tacit_job_restore(job, less.bytes, less.count), TACIT_E_DATA, "of a job with other entries");
    OK(tacit_job_close(job));
    OK(tacit_close(b.comm));
    free(s.block), free(less.block);
}

static void other_jobs_refuse_the_bytes(void **state) {
    static const struct {
        const char *settings[3];
        const char *text;
        bool large, own_optimizer;
    } OTHERS[] = {
        {{"optim.lr=0.2"}, "optim.lr was 0.1 and is 0.2 now; a folder of tacit_job_save()", false, false},
        {{"strategy=localsgd"}, "strategy was \"dp\" and is \"localsgd\" now", false, false},
        {{"compress.codec=int4"}, "compress.codec was \"none\" and is \"int4\" now", false, false},
        {{NULL}, "of a job with other tensors; a folder of tacit_job_save()", true, false},
        {{NULL}, "of a job with other own_optimizer", false, true},
    };
    bench b = {.settings = PLAIN, .small = true};
    (void)state;
    OK(tacit_open_self(NULL, &b.comm));
    const string s = state_after(&b, 3);
    for (size_t i = 0; i < sizeof OTHERS / sizeof *OTHERS; i++) {
        const bench other = {.comm = b.comm,
                             .settings = OTHERS[i].settings,
                             .small = !OTHERS[i].large,
                             .own_optimizer = OTHERS[i].own_optimizer};
        tacit_job *job = open_job(&other);
        refused(tacit_job_restore(job, s.bytes, s.count), TACIT_E_DATA, OTHERS[i].text);
        OK(tacit_job_start(job));
        OK(tacit_job_close(job));
    }
    OK(tacit_close(b.comm));
    free(s.block);
}

/* ---- other ranks ------------------------------------------------------------------------------------------------- */

enum { SHARED_BYTES = 1 << 20, RANKS_MAX = 3 };

/* The states that the ranks of one run leave for those of another. */
typedef struct handover {
    test_store *store;
    size_t counts[RANKS_MAX][2];
    unsigned char states[RANKS_MAX][2][SHARED_BYTES]; /* after 3 and after 4 steps */
} handover;

static void leave_states(int rank, int ranks, void *context) {
    handover *h = context;
    const bench b = {.comm = test_ranks_open(h->store, NULL, rank, ranks), .settings = TOPK};
    tacit_job *job = start_job(&b);
    for (int64_t s = 0; s < 4; s++) {
        make_step(&b, job, s);
        if (s >= 2) OK(tacit_job_state(job, h->states[rank][s - 2], SHARED_BYTES, &h->counts[rank][s - 2]));
    }
    OK(tacit_job_close(job));
    OK(tacit_close(b.comm));
}

static void expect_everywhere(tacit_job *job, const handover *h, int of, int when, const char *text) {
    CHECK(tacit_job_restore(job, h->states[of][when], h->counts[of][when]) == TACIT_E_DATA);
    CHECK(strstr(tacit_error_text(), text) != NULL);
}

static void refuse_states(int rank, int ranks, void *context) {
    handover *h = context;
    const bench b = {.comm = test_ranks_open(h->store, NULL, rank, ranks), .settings = TOPK};
    tacit_job *job = open_job(&b);
    if (ranks != 2) {
        expect_everywhere(job, h, rank % 2, 0, "the bytes are of 2 ranks, these are");
        CHECK(strstr(tacit_error_text(), "tacit_job_save()") != NULL);
    } else {
        expect_everywhere(job, h, 1, 0, "rank 0 was given the bytes of rank 1");
        expect_everywhere(job, h, rank, rank, "the bytes of the ranks are of steps 3 to 4");
        h->states[rank][1][9000] ^= rank == 1; /* damage on one rank is an error on all */
        expect_everywhere(job, h, rank, 1, "checksum");
        CHECK(tacit_job_restore(job, rank == 0 ? NULL : h->states[rank][0], h->counts[rank][0]) == TACIT_E_USAGE);
        OK(tacit_job_restore(job, h->states[rank][0], h->counts[rank][0]));
        make_step(&b, job, 3);
    }
    OK(tacit_job_close(job));
    OK(tacit_close(b.comm));
}

static void other_ranks_refuse_the_bytes(void **state) {
    static const int RANKS[] = {1, 2, 3};
    (void)state;
    handover *h = test_shared(sizeof *h);
    h->store = test_store_create();
    test_ranks_run(2, -1, leave_states, h);
    for (size_t i = 0; i < 3; i++) test_ranks_run(RANKS[i], -1, refuse_states, h);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_goes_on_from_its_bytes),
        cmocka_unit_test(a_replica_on_every_host_goes_on),
        cmocka_unit_test(an_average_is_not_the_state),
        cmocka_unit_test(the_size_is_asked_for),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(forged_bytes_do_no_harm),
        cmocka_unit_test(entries_that_are_needed_must_be_there),
        cmocka_unit_test(other_jobs_refuse_the_bytes),
        cmocka_unit_test(other_ranks_refuse_the_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
