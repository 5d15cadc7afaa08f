/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/plugin.h"

#include <dlfcn.h>
#include <elf.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "comm/guard.h"

#ifndef TACITI_PLUGIN_FOLDER
#define TACITI_PLUGIN_FOLDER "../lib/tacit" /* of an installation, from the program's folder; CMake knows it */
#endif

enum { LIST_BYTES = 1024 };

typedef struct plugin_family {
    const char *name;
    const char *symbol;  /* that only its library defines: it is in the process */
    const char *install; /* how to get the library */
    const taciti_plugin *opened;
} plugin_family;

static struct {
    pthread_mutex_t lock;
    plugin_family families[2];
} g_plugins = {.lock = PTHREAD_MUTEX_INITIALIZER,
               .families = {{"openmpi", "ompi_mpi_comm_world", "apt-get install openmpi-bin libopenmpi-dev", NULL},
                            {"mpich", "MPIR_Err_create_code", "apt-get install mpich libmpich-dev", NULL}}};

enum { FAMILIES = sizeof g_plugins.families / sizeof *g_plugins.families };

static const taciti_plugin_host HOST = {.bytes = sizeof HOST,
                                        .fail = taciti_fail,
                                        .calloc = taciti_calloc,
                                        .free = taciti_free,
                                        .end_process = taciti_guard_end_process};

/* ---- where plugins are ------------------------------------------------------------------------------------------- */

/* Folders relative to that of this program or library: its own; of an installed library; of a program in the build
 * tree; of an installed program. */
#define INSTALLED "/" TACITI_PLUGIN_FOLDER
static const char *const PLACES[] = {"", "/tacit", "/../lib", INSTALLED};
enum { PLACE_COUNT = sizeof PLACES / sizeof *PLACES };

/* Writes the folder of the file that contains this code. */
static bool find_own_folder(char out[PATH_MAX]) {
    struct link_map *map = NULL;
    Dl_info info;
    if (dladdr1(&g_plugins, &info, (void **)&map, RTLD_DL_LINKMAP) == 0) return false;
    /* The name of the program itself is whatever was typed. */
    const char *const path = map->l_name == NULL || *map->l_name == 0 ? "/proc/self/exe" : map->l_name;
    if (realpath(path, out) == NULL) return false;
    *strrchr(out, '/') = 0;
    return true;
}

/* Writes the index-th folder to search, without checking that it exists. Returns false behind the last one. */
static bool folder_at(int index, char out[PATH_MAX]) {
    char own[PATH_MAX];
    const char *const chosen = getenv("TACIT_PLUGINS");
    if (chosen != NULL && *chosen != 0) return index == 0 && snprintf(out, PATH_MAX, "%s", chosen) < PATH_MAX;
    if (index >= PLACE_COUNT || !find_own_folder(own)) return false;
    return snprintf(out, PATH_MAX, "%s%s", own, PLACES[index]) < PATH_MAX;
}

static bool find_file(const char *family, char out[PATH_MAX]) {
    char folder[PATH_MAX];
    for (int i = 0; folder_at(i, folder); i++)
        if (snprintf(out, PATH_MAX, "%s/libtacit-mpi-%s.so", folder, family) < PATH_MAX && access(out, R_OK) == 0)
            return true;
    return false;
}

/* Lists the folders, for a message. */
static void list_folders(char out[LIST_BYTES]) {
    char folder[PATH_MAX];
    out[0] = 0;
    for (int i = 0; folder_at(i, folder); i++) taciti_text_add(out, LIST_BYTES, "%s%s", i > 0 ? ", " : "", folder);
}

bool taciti_plugin_exists(const char *family) {
    char path[PATH_MAX];
    return find_file(family, path);
}

const char *taciti_plugin_linked(void) {
    for (int i = 0; i < FAMILIES; i++)
        if (dlsym(RTLD_DEFAULT, g_plugins.families[i].symbol) != NULL) return g_plugins.families[i].name;
    return NULL;
}

const char *taciti_plugin_first(void) {
    for (int i = 0; i < FAMILIES; i++)
        if (taciti_plugin_exists(g_plugins.families[i].name)) return g_plugins.families[i].name;
    return NULL;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static tacit_status refuse_missing(const plugin_family *family) {
    char folders[LIST_BYTES];
    list_folders(folders);
    return taciti_fail(
        TACIT_E_UNSUPPORTED,
        "libtacit-mpi-%s.so, through which ranks find each other, is not in %s: set TACIT_PLUGINS to its "
        "folder, or install the library (Debian: %s) and build tacit again",
        family->name, folders, family->install);
}

/* A library must not be opened beside another one with the same names: the first would take the calls of both. */
static tacit_status check_neighbours(const plugin_family *family) {
    const char *const linked = taciti_plugin_linked();
    if (linked == NULL || strcmp(linked, family->name) == 0) return TACIT_OK;
    return taciti_fail(TACIT_E_USAGE, "this process uses the MPI library %s already and cannot use %s as well", linked,
                       family->name);
}

static tacit_status check_table(const char *path, const char *family, const taciti_plugin *plugin) {
    if (plugin != NULL && plugin->bytes >= sizeof *plugin && plugin->version == TACITI_PLUGIN_VERSION &&
        plugin->engine_bytes == sizeof(taciti_engine) && strcmp(plugin->family, family) == 0)
        return TACIT_OK;
    return taciti_fail(TACIT_E_UNSUPPORTED,
                       "%s belongs to another version of tacit: take both from the same build, or set TACIT_PLUGINS to "
                       "the folder of the right one",
                       path);
}

/* The loader maps a file that was cut off and dies when it touches what is missing. The table of sections is last. */
static bool is_whole(const char *path) {
    ElfW(Ehdr) head = {0};
    FILE *const file = fopen(path, "rb");
    if (file == NULL) return false;
    const bool elf = fread(&head, sizeof head, 1, file) == 1 && memcmp(head.e_ident, ELFMAG, SELFMAG) == 0;
    const long bytes = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    (void)fclose(file);
    return elf && bytes > 0 && head.e_shoff + (size_t)head.e_shnum * head.e_shentsize <= (size_t)bytes;
}

/* RTLD_LOCAL: MPI libraries define the same names, and `tacit info build` may not decide which of them the process
 * uses. RTLD_NOW: what is missing is found here, not in the middle of a step. */
static tacit_status load_file(const char *path, const plugin_family *family, const taciti_plugin **out) {
    taciti_plugin_entry *enter = NULL;
    if (!is_whole(path)) return taciti_fail(TACIT_E_UNSUPPORTED, "%s is not a whole library: install it again", path);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *const symbol = handle == NULL ? NULL : dlsym(handle, TACITI_PLUGIN_ENTRY);
    if (symbol == NULL)
        return taciti_fail(TACIT_E_UNSUPPORTED, "%s cannot be opened: %s; is the library installed (Debian: %s)?", path,
                           dlerror(), family->install);
    memcpy(&enter, &symbol, sizeof enter);
    const taciti_plugin *plugin = enter(&HOST);
    TACITI_TRY(check_table(path, family->name, plugin));
    *out = plugin;
    return TACIT_OK;
}

/* With the lock. */
static tacit_status open_family(plugin_family *family) {
    char path[PATH_MAX];
    if (family->opened != NULL) return TACIT_OK;
    TACITI_TRY(check_neighbours(family));
    if (!find_file(family->name, path)) return refuse_missing(family);
    return load_file(path, family, &family->opened);
}

tacit_status taciti_plugin_open(const char *family, const taciti_plugin **out) {
    for (int i = 0; i < FAMILIES; i++) {
        plugin_family *const mine = &g_plugins.families[i];
        if (strcmp(mine->name, family) != 0) continue;
        (void)pthread_mutex_lock(&g_plugins.lock);
        const tacit_status status = open_family(mine);
        (void)pthread_mutex_unlock(&g_plugins.lock);
        if (status == TACIT_OK) *out = mine->opened;
        return status;
    }
    return taciti_fail(TACIT_E_UNSUPPORTED, "there is no plugin for the MPI library \"%s\"", family);
}
