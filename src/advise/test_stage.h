/* SPDX-License-Identifier: Apache-2.0
 *
 * The cluster and the network whose candidates tests look at; include behind cmocka.h.
 */
#ifndef TACITI_ADVISE_TEST_STAGE_H
#define TACITI_ADVISE_TEST_STAGE_H

#include <string.h>

#include "cli/plan_curves.h"

/* 4 hosts of 2 ranks, vgg-16 on 1 Gbit/s between hosts. */
typedef struct stage {
    taciti_settings settings;
    taciti_profile profile;
    taciti_layout layout;
    taciti_cluster cluster;
    taciti_hosts hosts;
    taciti_scene scene;
    taciti_plan_options options;
    taciti_candidates candidates;
} stage;
static stage g;

static inline int open_stage(void **state) {
    (void)state;
    static const char TEXT[] = "{\"format\": \"tacit-cluster-1\", \"hosts\": 4, \"ranks_per_host\": 2, \"links\": "
                               "{\"between\": {\"latency_us\": 30, \"gbit_per_s\": 1}, "
                               "\"inside\": {\"latency_us\": 2, \"gbit_per_s\": 80}}}";
    memset(&g, 0, sizeof g);
    if (taciti_settings_init(&g.settings, NULL, 0) != TACIT_OK) return -1;
    (void)strcpy(g.settings.compute.emulate.text, "vgg-16");
    if (taciti_compute_profile(&g.settings.compute, &g.profile) != TACIT_OK) return -1;
    if (taciti_profile_layout(&g.profile, (size_t)g.settings.exchange.bucket_bytes, &g.layout) != TACIT_OK) return -1;
    if (taciti_cluster_parse("c.json", TEXT, strlen(TEXT), &g.cluster) != TACIT_OK) return -1;
    if (taciti_cluster_hosts(&g.cluster, 8, &g.hosts) != TACIT_OK) return -1;
    g.scene = (taciti_scene){.profile = &g.profile, .layout = &g.layout, .cluster = &g.cluster, .hosts = &g.hosts};
    g.options = (taciti_plan_options){.seed = 1, .cv = 0, .brief = true};
    return 0;
}

static inline int close_stage(void **state) {
    (void)state;
    taciti_candidates_destroy(&g.candidates);
    taciti_settings_destroy(&g.settings);
    taciti_layout_destroy(&g.layout);
    taciti_profile_destroy(&g.profile);
    taciti_cluster_destroy(&g.cluster);
    taciti_hosts_destroy(&g.hosts);
    return 0;
}

static inline void make(const char *const *wanted) {
    assert_int_equal(taciti_candidates_create(&g.settings, &g.hosts, wanted, &g.candidates), TACIT_OK);
}

static inline void predict(void) {
    assert_int_equal(taciti_candidates_predict(&g.candidates, &g.scene, &g.options, NULL, NULL), TACIT_OK);
}

static inline void set(const char *key, const char *value) {
    assert_int_equal(taciti_config_set(&g.settings.config, key, value, "test"), TACIT_OK);
}

#endif
