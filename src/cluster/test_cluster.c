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
#include "cluster/cluster.h"

static char g_line[2048];

static void keep_line(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)level;
    (void)snprintf(g_line, sizeof g_line, "%s", line);
}

static tacit_status parse(const char *text, taciti_cluster *out) {
    g_line[0] = '\0';
    return taciti_cluster_parse("c.json", text, strlen(text), out);
}

#define COMPRESSION                                                                                                    \
    "{\"codec\": \"topk\", \"factor\": 10, \"encode_ns\": 1, \"decode_ns\": 1, \"add_ns\": 1, \"bytes\": 0.4}"
#define MIN                                                                                                            \
    "{\"format\": \"tacit-cluster-1\", \"hosts\": 8, \"ranks_per_host\": 4, "                                          \
    "\"links\": {\"between\": {\"latency_us\": 25, \"gbit_per_s\": 25}}"

static void assert_same(double a, double b) { assert_memory_equal(&a, &b, sizeof a); }

static void assert_equal_links(const taciti_link_cost *a, const taciti_link_cost *b) {
    assert_same(a->alpha_s, b->alpha_s);
    assert_same(a->beta_s_per_byte, b->beta_s_per_byte);
    assert_same(a->fit_error, b->fit_error);
}

static void assert_equal_clusters(const taciti_cluster *a, const taciti_cluster *b) {
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->source, b->source);
    assert_int_equal(a->note_count, b->note_count);
    for (size_t i = 0; i < a->note_count; i++) assert_string_equal(a->notes[i], b->notes[i]);
    assert_int_equal(a->hosts, b->hosts);
    for (int i = 0; i < a->hosts; i++) assert_int_equal(a->ranks_per_host[i], b->ranks_per_host[i]);
    assert_equal_links(&a->inside, &b->inside);
    assert_equal_links(&a->between, &b->between);
    assert_same(a->host_beta_s_per_byte, b->host_beta_s_per_byte);
    assert_same(a->duplex_beta_s_per_byte, b->duplex_beta_s_per_byte);
    assert_same(a->incast_beta_s_per_byte, b->incast_beta_s_per_byte);
    assert_int_equal(a->timing_count, b->timing_count);
    for (size_t i = 0; i < a->timing_count; i++) {
        assert_int_equal(a->timings[i].collective, b->timings[i].collective);
        assert_int_equal(a->timings[i].group, b->timings[i].group);
        assert_string_equal(a->timings[i].by, b->timings[i].by);
        assert_int_equal(a->timings[i].bytes, b->timings[i].bytes);
        assert_same(a->timings[i].seconds, b->timings[i].seconds);
        assert_same(a->timings[i].spread, b->timings[i].spread);
    }
    assert_int_equal(a->compression_count, b->compression_count);
    for (size_t i = 0; i < a->compression_count; i++) {
        assert_string_equal(a->compressions[i].codec, b->compressions[i].codec);
        assert_same(a->compressions[i].factor, b->compressions[i].factor);
        assert_same(a->compressions[i].encode_s, b->compressions[i].encode_s);
        assert_same(a->compressions[i].decode_s, b->compressions[i].decode_s);
        assert_same(a->compressions[i].add_s, b->compressions[i].add_s);
        assert_same(a->compressions[i].bytes, b->compressions[i].bytes);
    }
    assert_same(a->compute_cv, b->compute_cv);
    assert_same(a->compute_lag1, b->compute_lag1);
    assert_same(a->compute_rank_spread, b->compute_rank_spread);
    assert_same(a->compute_core_share, b->compute_core_share);
    assert_same(a->hand_over_s, b->hand_over_s);
    assert_same(a->memory_gib, b->memory_gib);
    assert_same(a->busy_alpha_s, b->busy_alpha_s);
}

/* A description that was read, written and read again is the same, and the second text is the first. */
static void assert_round_trip(const taciti_cluster *cluster) {
    taciti_cluster again;
    char *text = taciti_cluster_format(cluster);
    assert_non_null(text);
    assert_int_equal(parse(text, &again), TACIT_OK);
    assert_equal_clusters(cluster, &again);
    char *twice = taciti_cluster_format(&again);
    assert_string_equal(text, twice);
    taciti_free(twice);
    taciti_free(text);
    taciti_cluster_destroy(&again);
}

/* ---- what is legal ------------------------------------------------------------------------------------------------
 */

static void test_min(void **state) {
    (void)state;
    taciti_cluster c;
    assert_int_equal(parse(MIN "}", &c), TACIT_OK);
    assert_int_equal(c.hosts, 8);
    assert_int_equal(taciti_cluster_ranks(&c), 32);
    assert_int_equal(taciti_cluster_max_ranks_per_host(&c), 4);
    assert_true(fabs(c.between.alpha_s - 25e-6) < 1e-15 && fabs(c.between.beta_s_per_byte - 0.32e-9) < 1e-20);
    /* what was not said is unknown */
    assert_true(c.inside.alpha_s < 0 && c.between.fit_error < 0 && c.host_beta_s_per_byte < 0);
    assert_true(c.duplex_beta_s_per_byte < 0 && c.incast_beta_s_per_byte < 0);
    assert_true(c.compute_cv < 0 && c.compute_lag1 < -1 && c.compute_rank_spread < 0);
    assert_true(c.compute_core_share < 0 && c.hand_over_s < 0 && c.busy_alpha_s < 0);
    assert_int_equal(c.timing_count + c.compression_count + c.note_count, 0);
    assert_string_equal(c.name, "");
    assert_round_trip(&c);
    taciti_cluster_destroy(&c);
}

static void test_one_host(void **state) {
    (void)state;
    taciti_cluster c;
    assert_int_equal(
        parse("{\"format\": \"tacit-cluster-1\", \"hosts\": 1, \"ranks_per_host\": [1], \"links\": {}}", &c), TACIT_OK);
    assert_true(c.between.alpha_s < 0 && c.inside.alpha_s < 0);
    assert_int_equal(taciti_cluster_ranks(&c), 1);
    assert_round_trip(&c);
    taciti_cluster_destroy(&c);
}

static void test_edges(void **state) {
    (void)state;
    taciti_cluster c;
    assert_int_equal(
        parse("{\"format\": \"tacit-cluster-1\", \"hosts\": 3, \"ranks_per_host\": [1, 10000, 7], \"links\":"
              "{\"between\": {\"latency_us\": 0, \"gbit_per_s\": 1e-6, \"fit_error\": 0}, \"inside\":"
              "{\"latency_us\": 1e8, \"gbit_per_s\": 1e6}, \"busy_latency_us\": 2.5}, \"compute\": {\"cv\": 0, "
              "\"lag1\": -1, \"core_share\": 1e-6, \"memory_gib\": 1.5, \"hand_over_us\": 0}, "
              "\"notes\": \"\", \"compression\": [{\"codec\": \"later\", \"factor\": 1e9, \"encode_ns\": "
              "1e-6, \"decode_ns\": 1e6, \"add_ns\": 1, \"bytes\": 16}], \"collectives\": [{\"collective\": "
              "\"all_to_all\", \"group\": \"host\", \"by\": "
              "\"\\u00e4\\\"\", \"bytes\": 9007199254740992, \"seconds\": 1e-9}]}",
              &c),
        TACIT_OK);
    assert_int_equal(taciti_cluster_ranks(&c), 10008);
    assert_same(c.between.alpha_s, 0);
    assert_same(c.compute_lag1, -1);
    assert_same(c.compute_core_share, 1e-6);
    assert_same(c.hand_over_s, 0);
    assert_same(c.memory_gib, 1.5);
    assert_same(c.busy_alpha_s, 2.5 / 1e6);
    assert_int_equal(c.timings[0].bytes, (size_t)1 << 53);
    assert_true(c.timings[0].spread < 0);
    assert_int_equal(c.note_count, 1);
    assert_round_trip(&c);
    taciti_cluster_destroy(&c);
}

/* Measured numbers have all digits: they come back to five of them, and the second time exactly. */
static void test_any_number_survives(void **state) {
    (void)state;
    for (int i = 1; i < 200; i++) {
        taciti_cluster c, again;
        assert_int_equal(parse(MIN "}", &c), TACIT_OK);
        c.between.beta_s_per_byte = 1e-9 / sqrt((double)i);
        c.between.alpha_s = 1e-6 * log(1.0 + i);
        c.compute_cv = sin(i) * sin(i);
        char *text = taciti_cluster_format(&c);
        assert_int_equal(parse(text, &again), TACIT_OK);
        assert_true(fabs(again.between.beta_s_per_byte / c.between.beta_s_per_byte - 1) <= 1e-4);
        assert_true(fabs(again.between.alpha_s / c.between.alpha_s - 1) <= 1e-4);
        assert_true(fabs(again.compute_cv / c.compute_cv - 1) <= 1e-4);
        assert_round_trip(&again);
        taciti_free(text);
        taciti_cluster_destroy(&c);
        taciti_cluster_destroy(&again);
    }
}

static void test_short_numbers_stay_short(void **state) {
    (void)state;
    taciti_cluster c;
    assert_int_equal(parse(MIN ", \"compute\": {\"cv\": 0.021}}", &c), TACIT_OK);
    char *text = taciti_cluster_format(&c);
    assert_non_null(strstr(text, "\"gbit_per_s\": 25}"));
    assert_non_null(strstr(text, "\"latency_us\": 25,"));
    assert_non_null(strstr(text, "\"cv\": 0.021}"));
    taciti_free(text);
    taciti_cluster_destroy(&c);
}

/* Rows that no planner reads and that earlier probes wrote. */
static void test_what_is_skipped(void **state) {
    (void)state;
    taciti_cluster c;
    assert_int_equal(parse(MIN ", \"collectives\": [{\"collective\": \"reduce_scatter\", \"group\": \"world\"}, "
                               "{\"collective\": \"all_to_all\", \"group\": \"pair\", \"by\": \"x\", \"bytes\": 8, "
                               "\"seconds\": 1}, {\"collective\": \"all_gather\", \"group\": \"host\"}, "
                               "{\"collective\": \"all_reduce\", \"group\": \"cross\"}]}",
                           &c),
                     TACIT_OK);
    assert_int_equal(c.timing_count, 1);
    assert_int_equal(c.timings[0].bytes, 8);
    assert_round_trip(&c);
    taciti_cluster_destroy(&c);
}

static void test_adding(void **state) {
    (void)state;
    char note[2 * TACITI_CLUSTER_NOTE_BYTES];
    taciti_cluster c;
    memset(note, 'x', sizeof note - 1);
    note[sizeof note - 1] = '\0';
    assert_int_equal(parse(MIN "}", &c), TACIT_OK);
    assert_int_equal(taciti_cluster_add_note(&c, "one\nline and \"another\""), TACIT_OK);
    assert_int_equal(taciti_cluster_add_note(&c, "%s", note), TACIT_OK);
    assert_int_equal(strlen(c.notes[1]), TACITI_CLUSTER_NOTE_BYTES - 1);
    for (int i = 0; i < TACITI_COLLECTIVES; i++)
        assert_int_equal(taciti_cluster_add_timing(&c, &(taciti_cluster_timing){.collective = (taciti_collective)i,
                                                                                .by = "tacit",
                                                                                .bytes = 4,
                                                                                .seconds = 0.25,
                                                                                .spread = -1}),
                         TACIT_OK);
    assert_int_equal(taciti_cluster_add_compression(&c, &(taciti_cluster_compression){"f32", 1, 4e-9, 1e-9, 1.6e-9, 4}),
                     TACIT_OK);
    assert_int_equal(
        taciti_cluster_add_compression(&c, &(taciti_cluster_compression){"topk", 100, 1.25e-9, 0.4e-9, 3e-11, 0.0525}),
        TACIT_OK);
    assert_int_equal(
        taciti_cluster_add_compression(&c, &(taciti_cluster_compression){"topk", 10, 2e-9, 0.5e-9, 4e-10, 0.45}),
        TACIT_OK);
    assert_round_trip(&c);
    taciti_cluster_destroy(&c);
}

/* ---- what is refused ----------------------------------------------------------------------------------------------
 */

#define HEAD "{\"format\": \"tacit-cluster-1\", "
#define HOSTS HEAD "\"hosts\": 2, \"ranks_per_host\": 2, "
#define LINK(members) HOSTS "\"links\": {\"between\": {" members "}}}"
#define TIMING(members) MIN ", \"collectives\": [{" members "}]}"
#define TIMED "\"collective\": \"all_reduce\", \"group\": \"world\", \"by\": \"tacit\", \"bytes\": 8, \"seconds\": 1"

static const struct {
    const char *text, *message;
} REFUSED[] = {
    {"", "c.json:1:0: not JSON: "},
    {"{\"format\": \"tacit-cluster-1\",\n \"hosts\": }", "c.json:2:11: not JSON: unexpected token near '}'"},
    {"{\"hosts\": 1,\n\"hosts\": 2}", "c.json:2:"},
    {MIN, "not JSON"},
    {MIN "} x", "not JSON"},
    {MIN ", \"compute\": {\"cv\": 1e999}}", "after the key \"cv\""},
    {MIN ", \"compute\": {\"cv\": 0, \"core_share\": 0}}", "core_share is 0; give a share of a core"},
    {MIN ", \"compute\": {\"cv\": 0, \"core_share\": 1.5}}", "core_share is 1.5; give a share of a core"},
    {MIN ", \"compute\": {\"cv\": 0, \"memory_gib\": 0}}", "memory_gib is 0; give GiB of the smallest host"},
    {MIN ", \"compute\": {\"cv\": 0, \"hand_over_us\": -1}}", "hand_over_us is -1; give a number of at least 0"},
    {MIN ", \"compute\": {\"cv\": NaN}}", "'NaN', after the key \"cv\""},
    {"[]", "the file is a list; give an object: {\"format\": \"tacit-cluster-1\""},
    {"3", "not JSON"},
    {"{}", "c.json: format is missing; give \"tacit-cluster-1\""},
    {"{\"format\": \"tacit-cluster-2\"}", "format is \"tacit-cluster-2\"; give \"tacit-cluster-1\""},
    {"{\"format\": 1}", "format is 1; give \"tacit-cluster-1\""},
    {HEAD "\"hots\": 2}", "c.json: unknown field \"hots\"; did you mean \"hosts\"?"},
    {HEAD "\"zzzzzzz\": 2}", "unknown field \"zzzzzzz\"; legal here: format, name, source, notes, hosts,"},
    {HEAD "\"\": 2}", "unknown field \"\"; legal here:"},
    {HEAD "\"name\": 5}", "name is 5; give a text of up to 63 bytes"},
    {HEAD "\"name\": \"0123456789012345678901234567890123456789012345678901234567890123\"}",
     "give a text of up to 63 bytes"},
    {HEAD "\"notes\": 5}", "notes is 5; give a text or a list of texts"},
    {HEAD "\"notes\": [\"a\", null]}", "notes[1] is null; give a text of up to 1023 bytes"},
    {HEAD "\"ranks_per_host\": 1}", "hosts is missing; give a whole number from 1 to 100000"},
    {HEAD "\"hosts\": 0}", "hosts is 0; give a whole number from 1 to 100000"},
    {HEAD "\"hosts\": -1}", "hosts is -1; give"},
    {HEAD "\"hosts\": 2.0}", "hosts is 2.0; give a whole number"},
    {HEAD "\"hosts\": 100001}", "hosts is 100001; give"},
    {HEAD "\"hosts\": \"8\"}", "hosts is \"8\"; give a whole number"},
    {HEAD "\"hosts\": true}", "hosts is true; give"},
    {HEAD "\"hosts\": 2}", "ranks_per_host is missing; give a whole number from 1 to 10000, or a list"},
    {HEAD "\"hosts\": 2, \"ranks_per_host\": 0}", "ranks_per_host is 0; give a whole number from 1 to 10000"},
    {HEAD "\"hosts\": 2, \"ranks_per_host\": \"4\"}", "ranks_per_host is \"4\"; give"},
    {HEAD "\"hosts\": 2, \"ranks_per_host\": {}}", "ranks_per_host is an object; give"},
    {HEAD "\"hosts\": 2, \"ranks_per_host\": [1]}",
     "ranks_per_host has 1 numbers, but hosts is 2; give one number for each"},
    {HEAD "\"hosts\": 2, \"ranks_per_host\": [1, 0]}", "ranks_per_host[1] is 0; give"},
    {HEAD "\"hosts\": 2, \"ranks_per_host\": [1, [2]]}", "ranks_per_host[1] is a list; give"},
    {HOSTS "\"compute\": {\"cv\": 0}}", "links is missing; give an object: {\"between\":"},
    {HOSTS "\"links\": []}", "links is a list; give an object"},
    {HOSTS "\"links\": {}}", "links.between is missing, but there are 2 hosts; give an object"},
    {HOSTS "\"links\": {\"betwen\": {}}}", "links: unknown field \"betwen\"; did you mean \"between\"?"},
    {HOSTS "\"links\": {\"between\": 25}}", "links.between is 25; give an object: {\"latency_us\": 30"},
    {LINK("\"gbit_per_s\": 1"), "links.between.latency_us is missing; give a number of at least 0, in microseconds"},
    {LINK("\"latency_us\": 1"), "links.between.gbit_per_s is missing; give a number above 0, in Gbit/s"},
    {LINK("\"latency_us\": -1, \"gbit_per_s\": 1"), "links.between.latency_us is -1; give a number of at least 0"},
    {LINK("\"latency_us\": \"1\", \"gbit_per_s\": 1"), "links.between.latency_us is \"1\"; give"},
    {LINK("\"latency_us\": 1, \"gbit_per_s\": 0"), "links.between.gbit_per_s is 0; give a number above 0, in Gbit/s"},
    {LINK("\"latency_us\": 1, \"gbit_per_s\": -2.5"), "links.between.gbit_per_s is -2.5; give a number above 0"},
    {LINK("\"latency_us\": 1, \"gbit_per_s\": 1e300"), "links.between.gbit_per_s is 1e300; give"},
    {LINK("\"latency_us\": 1, \"gbit_per_s\": 1e-300"), "links.between.gbit_per_s is 1e-300; give"},
    {LINK("\"latency_us\": 1, \"gbit_per_s\": null"), "links.between.gbit_per_s is null; give"},
    {LINK("\"latency_us\": 1, \"gbit_per_s\": 1, \"fit_error\": -0.1"),
     "fit_error is -0.1; give a share of at least 0"},
    {LINK("\"latency_ms\": 1, \"gbit_per_s\": 1"),
     "links.between: unknown field \"latency_ms\"; did you mean \"latency_us\"?"},
    {HOSTS "\"links\": {\"host_gbit_per_s\": 0}}", "links.host_gbit_per_s is 0; give"},
    {HOSTS "\"links\": {\"duplex_gbit_per_s\": \"1\"}}", "links.duplex_gbit_per_s is \"1\"; give"},
    {HOSTS "\"links\": {\"incast_gbit_per_s\": -1}}", "links.incast_gbit_per_s is -1; give"},
    {MIN ", \"collectives\": {}}", "collectives is an object; give a list of measurements"},
    {MIN ", \"collectives\": [1]}", "collectives[0] is 1; give an object: {\"collective\":"},
    {TIMING("\"group\": \"world\""), "collectives[0].collective is missing; give \"all_reduce\" or "},
    {TIMING("\"collective\": \"allreduce\""), "collectives[0].collective is \"allreduce\"; give \"all_reduce\" or "},
    {TIMING("\"collective\": \"all_reduce\", \"group\": \"node\""),
     "group is \"node\"; give \"world\", \"host\", \"pair\" or \"two-hosts\""},
    {TIMING("\"collective\": \"all_reduce\", \"group\": \"host\", \"by\": \"\""),
     "by is \"\"; give a text of 1 to 23 bytes"},
    {TIMING("\"collective\": \"all_reduce\", \"group\": \"host\", \"by\": \"012345678901234567890123\""),
     "give a text of 1 to 23 bytes"},
    {TIMING("\"collective\": \"all_reduce\", \"group\": \"host\", \"by\": \"a\", \"bytes\": 4e6"),
     "collectives[0].bytes is 4000000.0; give a whole number above 0, without point and exponent"},
    {TIMING("\"collective\": \"all_reduce\", \"group\": \"host\", \"by\": \"a\", \"bytes\": 0"), "bytes is 0; give"},
    {TIMING("\"collective\": \"all_reduce\", \"group\": \"host\", \"by\": \"a\", \"bytes\": 8, \"seconds\": 0"),
     "collectives[0].seconds is 0; give a number above 0, in seconds"},
    {TIMING(TIMED ", \"spread\": -1"), "collectives[0].spread is -1; give a share"},
    {TIMING(TIMED ", \"sprad\": 1"), "collectives[0]: unknown field \"sprad\"; did you mean \"spread\"?"},
    {TIMING(TIMED "}, {" TIMED), "collectives[1] measures the same as collectives[0]; keep one of them"},
    {MIN ", \"compression\": {}}", "compression is an object; give a list"},
    {MIN ", \"compression\": [{\"codec\": \"topk\", \"factor\": 0.5}]}",
     "compression[0].factor is 0.5; give elements per"},
    {MIN ", \"compression\": [{\"codec\": \"topk\", \"factor\": 10, \"encode_ns\": 0}]}",
     "compression[0].encode_ns is 0; give a number above 0, in nanoseconds"},
    {MIN ", \"compression\": [{\"codec\": \"topk\", \"factor\": 10, \"encode_ns\": 1, \"decode_ns\": 1, "
         "\"add_ns\": 1}]}",
     "compression[0].bytes is missing; give"},
    {MIN ", \"compression\": [" COMPRESSION ", " COMPRESSION "]}", "measures the same as compression[0]"},
    {MIN ", \"codecs\": {\"f32\": {}}}", "unknown field \"codecs\""},
    {MIN ", \"compute\": {}}", "compute.cv is missing; give a share of at least 0"},
    {MIN ", \"compute\": {\"cv\": -0.1}}", "compute.cv is -0.1; give"},
    {MIN ", \"compute\": {\"cv\": 0, \"lag1\": 1.5}}", "compute.lag1 is 1.5; give a number from -1 to 1"},
    {MIN ", \"compute\": {\"cv\": 0, \"rank_spread\": -1}}", "compute.rank_spread is -1; give"},
    {MIN ", \"compute\": 0.02}", "compute is 0.02; give an object: {\"cv\":"},
};

static void test_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++) {
        taciti_cluster c = {.hosts = -7};
        const tacit_status status = parse(REFUSED[i].text, &c);
        if (status != TACIT_E_CONFIG || strstr(g_line, REFUSED[i].message) == NULL)
            fail_msg("case %zu: %s\n  said:     %s\n  expected: %s", i, REFUSED[i].text, g_line, REFUSED[i].message);
        assert_true(strncmp(g_line, "c.json", 6) == 0);
        assert_int_equal(c.hosts, -7); /* outputs are written only on success */
    }
}

/* Texts of every length that is said to be legal, and none longer. */
static void test_lengths_of_texts(void **state) {
    (void)state;
    for (size_t bytes = 0; bytes <= 130; bytes++) {
        char text[512], said[131] = "";
        taciti_cluster c;
        memset(said, 'n', bytes);
        (void)snprintf(text, sizeof text, MIN ", \"name\": \"%s\"}", said);
        assert_int_equal(parse(text, &c), bytes <= 63 ? TACIT_OK : TACIT_E_CONFIG);
        if (bytes <= 63) {
            assert_string_equal(c.name, said);
            taciti_cluster_destroy(&c);
        }
        (void)snprintf(text, sizeof text, MIN ", \"source\": \"%s\"}", said);
        assert_int_equal(parse(text, &c), bytes <= 127 ? TACIT_OK : TACIT_E_CONFIG);
        if (bytes <= 127) {
            assert_string_equal(c.source, said);
            taciti_cluster_destroy(&c);
        }
    }
}

static void test_too_many(void **state) {
    (void)state;
    const size_t max = (size_t)TACITI_CLUSTER_MAX_NOTES + 1;
    char *text = taciti_calloc(max * 3 + 256, 1);
    taciti_cluster c;
    assert_non_null(text);
    size_t used = (size_t)sprintf(text, HEAD "\"notes\": [");
    for (size_t i = 0; i < max; i++) used += (size_t)sprintf(text + used, "%s\"\"", i == 0 ? "" : ",");
    (void)sprintf(text + used, "]}");
    assert_int_equal(parse(text, &c), TACIT_E_CONFIG);
    assert_non_null(strstr(g_line, "notes has 65 items; at most 64 are read"));
    taciti_free(text);
}

/* ---- files --------------------------------------------------------------------------------------------------------
 */

static void test_files(void **state) {
    (void)state;
    char folder[] = "/tmp/tacit-cluster-XXXXXX", path[64];
    taciti_cluster c, again;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/cluster.json", folder);
    assert_int_equal(taciti_cluster_load(path, &again), TACIT_E_DATA);
    assert_non_null(strstr(g_line, path));
    assert_false(taciti_cluster_recognise(path));
    assert_int_equal(parse(MIN "}", &c), TACIT_OK);
    assert_int_equal(taciti_cluster_save(&c, path), TACIT_OK);
    assert_true(taciti_cluster_recognise(path));
    assert_int_equal(taciti_cluster_load(path, &again), TACIT_OK);
    assert_equal_clusters(&c, &again);
    taciti_cluster_destroy(&again);
    /* what could not be read back is not written, and the old file stays */
    c.between.beta_s_per_byte = (double)NAN;
    assert_true(taciti_cluster_save(&c, path) < 0);
    assert_int_equal(taciti_cluster_load(path, &again), TACIT_OK);
    taciti_cluster_destroy(&again);
    taciti_cluster_destroy(&c);
    assert_int_equal(taciti_file_write(path, "{\"format\": \"other\"}", 19), TACIT_OK);
    assert_false(taciti_cluster_recognise(path));
    assert_int_equal(taciti_file_remove(folder), TACIT_OK);
}

static void check_loads(const char *path) {
    taciti_cluster c;
    if (taciti_cluster_load(path, &c) != TACIT_OK) fail_msg("%s", g_line);
    assert_round_trip(&c);
    taciti_cluster_destroy(&c);
}

static void test_examples(void **state) {
    (void)state;
    check_loads("examples/clusters/8x4-25gbe.json");
    check_loads("examples/clusters/4x2-1gbe.json");
}

/* Every ```json block of the page is a whole file. */
static void test_page(void **state) {
    (void)state;
    char *page = NULL;
    int blocks = 0;
    assert_int_equal(taciti_file_read("docs/cluster.md", 1 << 20, &page, NULL), TACIT_OK);
    for (const char *at = page; (at = strstr(at, "```json\n")) != NULL; blocks++) {
        taciti_cluster c;
        at += 8;
        const char *end = strstr(at, "```");
        assert_non_null(end);
        if (taciti_cluster_parse("docs/cluster.md", at, (size_t)(end - at), &c) != TACIT_OK) fail_msg("%s", g_line);
        assert_round_trip(&c);
        /* the page shows what the program writes */
        char *text = taciti_cluster_format(&c);
        if (c.timing_count > 0) assert_memory_equal(text, at, (size_t)(end - at));
        taciti_free(text);
        taciti_cluster_destroy(&c);
    }
    assert_int_equal(blocks, 2);
    taciti_free(page);
}

static int set_up(void **state) {
    (void)state;
    taciti_log_set_sink(keep_line, NULL, TACITI_LOG_INFO);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_min),
        cmocka_unit_test(test_one_host),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_any_number_survives),
        cmocka_unit_test(test_short_numbers_stay_short),
        cmocka_unit_test(test_what_is_skipped),
        cmocka_unit_test(test_adding),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_lengths_of_texts),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_page),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
