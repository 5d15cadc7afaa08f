/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "api/object.h"

static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t g_released = PTHREAD_COND_INITIALIZER;
static taciti_handle *g_open;

static const char *const NAMES[] = {"tacit_settings", "tacit_comm", "tacit_layout", "tacit_job", "tacit_channel"};

static void lock_list(void) { (void)pthread_mutex_lock(&g_lock); }
static void unlock_list(void) { (void)pthread_mutex_unlock(&g_lock); }
static void watch_forks(void) { (void)pthread_atfork(lock_list, unlock_list, unlock_list); }

void taciti_handle_open(taciti_handle *handle, taciti_handle_kind kind) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, watch_forks);
    (void)pthread_mutex_lock(&g_lock);
    *handle = (taciti_handle){.kind = kind, .next = g_open, .owner = getpid()};
    g_open = handle;
    (void)pthread_mutex_unlock(&g_lock);
}

void taciti_handle_close(taciti_handle *handle) {
    (void)pthread_mutex_lock(&g_lock);
    taciti_handle **at = &g_open;
    while (*at != NULL && *at != handle) at = &(*at)->next;
    if (*at != NULL) *at = handle->next;
    (void)pthread_mutex_unlock(&g_lock);
}

/* The communicator that lines about the object are about; NULL: none. */
static const taciti_comm *comm_of(const void *object, taciti_handle_kind kind) {
    if (kind == TACITI_HANDLE_COMM) return ((const tacit_comm *)object)->comm;
    if (kind == TACITI_HANDLE_CHANNEL) return ((const tacit_channel *)object)->comm->comm;
    return kind == TACITI_HANDLE_JOB ? ((const tacit_job *)object)->comm->comm : NULL;
}

/* Threads and connections do not follow into a fork; settings and layouts are memory alone. */
static bool is_left_behind(const taciti_handle *handle) {
    return handle->kind != TACITI_HANDLE_SETTINGS && handle->kind != TACITI_HANDLE_LAYOUT && handle->owner != getpid();
}

/* users: added to those of a handle of this kind. */
static tacit_status find_handle(const void *object, taciti_handle_kind kind, int users) {
    taciti_log_about(NULL);
    if (object == NULL) return taciti_fail(TACIT_E_USAGE, "a %s is NULL; open or create one first", NAMES[kind]);
    (void)pthread_mutex_lock(&g_lock);
    taciti_handle *handle = g_open;
    while (handle != NULL && (const void *)handle != object) handle = handle->next;
    const taciti_handle_kind found = handle == NULL ? kind : handle->kind;
    const bool forked = handle != NULL && is_left_behind(handle);
    if (handle != NULL && found == kind && !forked) {
        taciti_log_about(comm_of(object, kind));
        handle->users += users;
    }
    (void)pthread_mutex_unlock(&g_lock);
    if (handle == NULL) return taciti_fail(TACIT_E_USAGE, "this %s is not open: it was closed before", NAMES[kind]);
    if (forked)
        return taciti_fail(TACIT_E_USAGE,
                           "this process is a fork of the one that opened this %s, which alone can use it",
                           NAMES[found]);
    if (found == kind) return TACIT_OK;
    return taciti_fail(TACIT_E_USAGE, "a %s stands where a %s is wanted", NAMES[found], NAMES[kind]);
}

tacit_status taciti_handle_check(const void *object, taciti_handle_kind kind) { return find_handle(object, kind, 0); }

tacit_status taciti_handle_hold(void *object, taciti_handle_kind kind) { return find_handle(object, kind, 1); }

void taciti_handle_release(void *object) {
    (void)pthread_mutex_lock(&g_lock);
    ((taciti_handle *)object)->users--;
    (void)pthread_cond_broadcast(&g_released);
    (void)pthread_mutex_unlock(&g_lock);
}

void taciti_handle_drain(taciti_handle *handle) {
    (void)pthread_mutex_lock(&g_lock);
    while (handle->users > 0) (void)pthread_cond_wait(&g_released, &g_lock);
    (void)pthread_mutex_unlock(&g_lock);
}

tacit_status taciti_argument_check(const void *argument, const char *name) {
    return argument != NULL ? TACIT_OK : taciti_fail(TACIT_E_USAGE, "the argument %s is NULL", name);
}

/* ---- structs that begin with their size -------------------------------------------------------------------------- */

enum { STRUCT_MAX_BYTES = 4096 }; /* a larger size is memory that nobody has set */

tacit_status taciti_struct_read(const void *given, const char *name, size_t bytes, void *out) {
    size_t size = 0;
    memcpy(&size, given, sizeof size);
    if (size <= sizeof size || size > STRUCT_MAX_BYTES)
        return taciti_fail(TACIT_E_USAGE, "%s: its size is %zu; begin with %s x = {.size = sizeof x}", name, size,
                           name);
    for (size_t i = bytes; i < size; i++)
        if (((const char *)given)[i] != 0)
            return taciti_fail(TACIT_E_UNSUPPORTED,
                               "%s: byte %zu is set, but that of libtacit %s ends at %zu: the program was built for a "
                               "newer one",
                               name, i, tacit_version(), bytes);
    memset(out, 0, bytes);
    memcpy(out, given, size < bytes ? size : bytes);
    return TACIT_OK;
}

void taciti_struct_write(const void *from, size_t bytes, void *given) {
    size_t size = 0;
    memcpy(&size, given, sizeof size);
    memcpy((char *)given + sizeof size, (const char *)from + sizeof size, (size < bytes ? size : bytes) - sizeof size);
}
