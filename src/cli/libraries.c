/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/libraries.h"

#include <dnnl.h>
#include <hwloc.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>
#include <yaml.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

#include "comm/engine.h"

static void set_version(char *out, unsigned major, unsigned minor, unsigned patch) {
    (void)snprintf(out, TACITI_LIBRARY_TEXT_BYTES, "%u.%u.%u", major, minor, patch);
}

static taciti_linked_library describe_mpi(void) {
    taciti_linked_library library = {.name = "MPI", .fits = true};
    taciti_engine_mpi_library(library.version, sizeof library.version);
    (void)snprintf(library.compiled, sizeof library.compiled, "%s", taciti_engine_mpi_family());
    const bool open = strcmp(library.compiled, "openmpi") == 0, mpich = strcmp(library.compiled, "mpich") == 0;
    if (open) library.fits = strstr(library.version, "Open MPI") != NULL;
    if (mpich) library.fits = strstr(library.version, "MPICH") != NULL;
    return library;
}

static taciti_linked_library describe_onednn(void) {
    taciti_linked_library library = {.name = "oneDNN"};
    const dnnl_version_t *version = dnnl_version();
    set_version(library.version, (unsigned)version->major, (unsigned)version->minor, (unsigned)version->patch);
    set_version(library.compiled, DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH);
    library.fits = version->major == DNNL_VERSION_MAJOR && version->minor >= DNNL_VERSION_MINOR;
    return library;
}

static taciti_linked_library describe_yaml(void) {
    taciti_linked_library library = {.name = "libyaml", .fits = true};
    (void)snprintf(library.version, sizeof library.version, "%s", yaml_get_version_string());
    return library;
}

static taciti_linked_library describe_jansson(void) {
    taciti_linked_library library = {.name = "jansson"};
    (void)snprintf(library.version, sizeof library.version, "%s", jansson_version_str());
    (void)snprintf(library.compiled, sizeof library.compiled, "%s", JANSSON_VERSION);
    library.fits = jansson_version_cmp(JANSSON_MAJOR_VERSION, JANSSON_MINOR_VERSION, 0) >= 0;
    return library;
}

static taciti_linked_library describe_xxhash(void) {
    taciti_linked_library library = {.name = "xxHash"};
    const unsigned number = XXH_versionNumber();
    set_version(library.version, number / 10000, number / 100 % 100, number % 100);
    set_version(library.compiled, XXH_VERSION_MAJOR, XXH_VERSION_MINOR, XXH_VERSION_RELEASE);
    library.fits = number / 100 >= XXH_VERSION_NUMBER / 100;
    return library;
}

static taciti_linked_library describe_hwloc(void) {
    taciti_linked_library library = {.name = "hwloc"};
    const unsigned version = hwloc_get_api_version();
    set_version(library.version, version >> 16, version >> 8 & 0xff, version & 0xff);
    set_version(library.compiled, HWLOC_API_VERSION >> 16, HWLOC_API_VERSION >> 8 & 0xff, HWLOC_API_VERSION & 0xff);
    library.fits = version >> 16 == HWLOC_API_VERSION >> 16;
    return library;
}

size_t taciti_libraries(taciti_linked_library out[TACITI_LIBRARIES]) {
    size_t count = 0;
    out[count++] = describe_mpi();
    out[count++] = describe_onednn();
    out[count++] = describe_hwloc();
    out[count++] = describe_jansson();
    out[count++] = describe_yaml();
    out[count++] = describe_xxhash();
#ifdef __GLIBC__
    out[count] = (taciti_linked_library){.name = "glibc", .fits = true};
    (void)snprintf(out[count++].version, TACITI_LIBRARY_TEXT_BYTES, "%s", gnu_get_libc_version());
#endif
    return count;
}
