/* SPDX-License-Identifier: Apache-2.0
 *
 * A network of four equal layers on described clusters, whose steps tests work out by hand; include behind cmocka.h.
 */
#ifndef TACITI_PLAN_TEST_PREDICT_H
#define TACITI_PLAN_TEST_PREDICT_H

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "plan/plan.h"
#include "topo/test_matrix_file.h"

/* 4 Mfloat in buckets of 4 MiB: four of one size. 30 ms forward, 60 ms backward, evenly; 4 ms of updates. */
enum { LAYERS = 4, LAYER_FLOATS = 1 << 20, BUCKET_BYTES = LAYER_FLOATS * 4 };
static const double FORWARD_S = 0.030, BACKWARD_S = 0.060, UPDATE_S = 0.004;
static const double ALL_BYTES = 4.0 * LAYERS * LAYER_FLOATS;

typedef struct stage {
    taciti_profile profile;
    taciti_layout layout;
    taciti_cluster cluster;
    taciti_hosts hosts;
    taciti_scene scene;
    taciti_topology topology;
    taciti_method method;
    taciti_plan_options options;
} stage;

static inline void open_profile(stage *s) {
    char text[2048];
    size_t used = (size_t)snprintf(text, sizeof text,
                                   "{\"format\": \"tacit-profile-1\", \"name\": \"even\", \"unit\": \"seconds\", "
                                   "\"update_s\": %.17g, \"layers\": [",
                                   UPDATE_S);
    for (int l = 0; l < LAYERS; l++)
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "%s{\"name\": \"l%d\", \"forward_s\": %.17g, \"backward_s\": %.17g, \"tensors\": "
                                 "[{\"name\": \"w%d\", \"shape\": [%d]}]}",
                                 l == 0 ? "" : ", ", l, FORWARD_S / LAYERS, BACKWARD_S / LAYERS, l, LAYER_FLOATS);
    (void)snprintf(text + used, sizeof text - used, "]}");
    char path[64];
    (void)snprintf(path, sizeof path, "test_predict_profile.%d.json", (int)getpid());
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void)fputs(text, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(taciti_profile_load(path, &s->profile), TACIT_OK);
    assert_int_equal(remove(path), 0);
    assert_int_equal(taciti_profile_layout(&s->profile, BUCKET_BYTES, &s->layout), TACIT_OK);
    assert_int_equal(s->layout.bucket_count, LAYERS);
}

/* The links, and what else of the file; `more` begins with ", ". */
static inline void open_stage(stage *s, int hosts, int per_host, const char *links, const char *more) {
    char text[2048];
    memset(s, 0, sizeof *s);
    open_profile(s);
    (void)snprintf(text, sizeof text,
                   "{\"format\": \"tacit-cluster-1\", \"hosts\": %d, \"ranks_per_host\": %d, \"links\": {%s}%s}", hosts,
                   per_host, links, more);
    assert_int_equal(taciti_cluster_parse("c.json", text, strlen(text), &s->cluster), TACIT_OK);
    assert_int_equal(taciti_cluster_hosts(&s->cluster, hosts * per_host, &s->hosts), TACIT_OK);
    s->scene = (taciti_scene){.profile = &s->profile, .layout = &s->layout, .cluster = &s->cluster, .hosts = &s->hosts};
    s->method =
        (taciti_method){.order = TACITI_ORDER_DENSE, .wire = taciti_codec_find("f32"), .overlap = true, .every = 1};
    s->options = (taciti_plan_options){.seed = 1, .cv = 0};
}

static inline tacit_status make_topology(const stage *s, const char *name, taciti_topology *out) {
    char path[64];
    (void)snprintf(path, sizeof path, "test_predict_matrix.%d.csv", (int)getpid());
    const bool is_file = strcmp(name, "file") == 0;
    if (is_file) assert_true(test_matrix_write(path, s->hosts.ranks));
    const taciti_topo_request request = {
        .name = name, .ranks = s->hosts.ranks, .hosts = &s->hosts, .seed = 1, .file = is_file ? path : NULL};
    const tacit_status status = taciti_topology_create(&request, out);
    if (is_file) assert_int_equal(remove(path), 0);
    return status;
}

static inline void mix(stage *s, taciti_order order, const char *topology) {
    taciti_topology_destroy(&s->topology);
    s->topology = (taciti_topology){0};
    assert_int_equal(make_topology(s, topology, &s->topology), TACIT_OK);
    s->method.order = order;
    s->method.topology = &s->topology;
}

static inline void close_stage(stage *s) {
    taciti_topology_destroy(&s->topology);
    taciti_profile_destroy(&s->profile);
    taciti_layout_destroy(&s->layout);
    taciti_cluster_destroy(&s->cluster);
    taciti_hosts_destroy(&s->hosts);
}

static inline taciti_prediction predict(const stage *s) {
    taciti_prediction p;
    assert_int_equal(taciti_predict(&s->scene, &s->method, &s->options, &p), TACIT_OK);
    assert_true(isfinite(p.step_s) && p.step_s > 0);
    return p;
}

static inline void assert_near(double value, double expected, double share) {
    if (!(fabs(value - expected) <= share * fabs(expected))) fail_msg("%.9g instead of %.9g", value, expected);
}

#define GIGABIT "\"between\": {\"latency_us\": 100, \"gbit_per_s\": 1}"
#define INSIDE ", \"inside\": {\"latency_us\": 1, \"gbit_per_s\": 64}"
static const double COMPUTE_S = FORWARD_S + BACKWARD_S + UPDATE_S;

#endif
