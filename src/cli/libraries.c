/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/libraries.h"

#include <dnnl.h>
#include <hwloc.h>
#include <jansson.h>
#include <stdio.h>
#include <xxhash.h>
#include <yaml.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

#include "comm/engine.h"

static void add_numbers(taciti_linked_library *out, const char *name, unsigned major, unsigned minor, unsigned patch) {
    out->name = name;
    (void)snprintf(out->version, sizeof out->version, "%u.%u.%u", major, minor, patch);
}

static void add_text(taciti_linked_library *out, const char *name, const char *version) {
    out->name = name;
    (void)snprintf(out->version, sizeof out->version, "%s", version);
}

size_t taciti_libraries(taciti_linked_library out[TACITI_LIBRARIES]) {
    const dnnl_version_t *onednn = dnnl_version();
    const unsigned hwloc = hwloc_get_api_version(), xxhash = XXH_versionNumber();
    size_t count = 0;
    out[count].name = "MPI";
    taciti_engine_mpi_library(out[count].version, sizeof out[count].version);
    count++;
    add_numbers(&out[count++], "oneDNN", (unsigned)onednn->major, (unsigned)onednn->minor, (unsigned)onednn->patch);
    add_numbers(&out[count++], "hwloc", hwloc >> 16, hwloc >> 8 & 0xff, hwloc & 0xff);
    add_text(&out[count++], "jansson", jansson_version_str());
    add_text(&out[count++], "libyaml", yaml_get_version_string());
    add_numbers(&out[count++], "xxHash", xxhash / 10000, xxhash / 100 % 100, xxhash % 100);
#ifdef __GLIBC__
    add_text(&out[count++], "glibc", gnu_get_libc_version());
#endif
    return count;
}
