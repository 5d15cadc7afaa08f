/* SPDX-License-Identifier: Apache-2.0
 *
 * MPI libraries are plugins. A plugin is a file libtacit-mpi-FAMILY.so that links one MPI library and nothing of ours
 * (engine_mpi.c is its only source); this program or library links no MPI and opens the plugin of the family that it
 * needs. So one build works under the launchers of every MPI library, and where none is installed.
 *
 * A plugin exports one function, TACITI_PLUGIN_ENTRY, which exchanges two tables with this side. Change
 * TACITI_PLUGIN_VERSION with the meaning of a member here or in taciti_engine; members are only added at the end.
 */
#ifndef TACITI_COMM_PLUGIN_H
#define TACITI_COMM_PLUGIN_H

#include "base/log.h"
#include "comm/engine.h"

enum { TACITI_PLUGIN_VERSION = 1 };

/* Functions of this side that a plugin calls. */
typedef struct taciti_plugin_host {
    size_t bytes;                                                                           /* size of this struct */
    tacit_status (*fail)(tacit_status status, const char *format, ...) TACITI_PRINTF(2, 3); /* taciti_fail() */
    void *(*calloc)(size_t count, size_t size);                                             /* taciti_calloc() */
    void (*free)(void *block);                                                              /* taciti_free() */
    void (*end_process)(int exit_code); /* taciti_guard_end_process() */
} taciti_plugin_host;

typedef struct taciti_plugin {
    size_t bytes;        /* size of this struct */
    int version;         /* TACITI_PLUGIN_VERSION */
    size_t engine_bytes; /* size of taciti_engine */
    const char *family;  /* "openmpi" or "mpich" */
    /* Writes name and version of the MPI library, "Open MPI v4.1.4", without initialising it. Any thread, not
     * collective. */
    void (*library)(char *out, size_t bytes);
    /* Opens MPI on a duplicate of the communicator. Fails if the thread level that MPI provides does not allow the
     * request. Closing the last engine finalizes MPI if an open initialised it. Collective. */
    tacit_status (*open)(const taciti_mpi_request *request, taciti_engine *out);
} taciti_plugin;

/* The plugin keeps `host`, which must remain valid; the result is valid for the life of the process. */
typedef const taciti_plugin *taciti_plugin_entry(const taciti_plugin_host *host);
#define TACITI_PLUGIN_ENTRY "taciti_plugin_enter"

/* Opens the plugin of a family and keeps it open for the life of the process. It is searched for in the folder that
 * TACIT_PLUGINS names or, without that, beside this program or library and where an installation has it. E_UNSUPPORTED
 * if there is none, or if it cannot be loaded or belongs to another version, with what to do. Any thread. */
tacit_status taciti_plugin_open(const char *family, const taciti_plugin **out);

/* Returns whether the file of that plugin exists. Any thread. */
bool taciti_plugin_exists(const char *family);

/* Returns the first family whose plugin exists; NULL: none. Any thread. */
const char *taciti_plugin_first(void);

/* Returns the family of the MPI library that the program is linked with or has started; NULL: none. Any thread. */
const char *taciti_plugin_linked(void);

#endif
