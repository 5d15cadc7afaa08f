/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/libraries.h"

#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <xxhash.h>
#include <yaml.h>
#ifndef TACITI_PYTHON
#include <dnnl.h>
#include <hwloc.h>
#endif
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

#include "comm/plugin.h"

static void add_numbers(taciti_linked_library *out, const char *name, unsigned major, unsigned minor, unsigned patch) {
    out->name = name;
    (void)snprintf(out->version, sizeof out->version, "%u.%u.%u", major, minor, patch);
}

static void add_text(taciti_linked_library *out, const char *name, const char *version) {
    out->name = name;
    (void)snprintf(out->version, sizeof out->version, "%s", version);
}

/* The library that this process would use. */
static void add_mpi(taciti_linked_library *out) {
    const taciti_launcher launcher = taciti_launcher_detect();
    const char *const family = taciti_engine_family(&launcher);
    const taciti_plugin *plugin = NULL;
    char reason[TACITI_REASON_BYTES] = "";
    add_text(out, "MPI", "none");
    if (!taciti_plugin_exists(family)) return;
    taciti_log_capture(reason);
    const tacit_status status = taciti_plugin_open(family, &plugin);
    taciti_log_capture(NULL);
    if (status == TACIT_OK)
        plugin->library(out->version, sizeof out->version);
    else
        add_text(out, "MPI", "none: its plugin does not load");
}

size_t taciti_libraries(taciti_linked_library out[TACITI_LIBRARIES]) {
    const unsigned xxhash = XXH_versionNumber();
    size_t count = 0;
    add_mpi(&out[count++]);
#ifndef TACITI_PYTHON /* whose program has no networks */
    const dnnl_version_t *onednn = dnnl_version();
    const unsigned hwloc = hwloc_get_api_version();
    add_numbers(&out[count++], "oneDNN", (unsigned)onednn->major, (unsigned)onednn->minor, (unsigned)onednn->patch);
    add_numbers(&out[count++], "hwloc", hwloc >> 16, hwloc >> 8 & 0xff, hwloc & 0xff);
#endif
    add_text(&out[count++], "jansson", jansson_version_str());
    add_text(&out[count++], "libyaml", yaml_get_version_string());
    add_text(&out[count++], "libsodium", sodium_version_string());
    add_numbers(&out[count++], "xxHash", xxhash / 10000, xxhash / 100 % 100, xxhash % 100);
#ifdef __GLIBC__
    add_text(&out[count++], "glibc", gnu_get_libc_version());
#endif
    return count;
}
