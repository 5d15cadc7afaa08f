/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine over MPI-3.1: the only file that includes <mpi.h>, and the only source of the plugins (plugin.h), one for
 * each MPI library. It links nothing of ours; what it needs it calls through g_host. Training uses non-blocking
 * point-to-point only. A message larger than an int can count travels as several, all posted at once, so that the order
 * between messages stays. The library's own all-reduces are here too, for benchmarks to measure ours against.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "comm/plugin.h"

#define PIECE_BYTES ((size_t)1 << 30)
#define PIECE_FLOATS (PIECE_BYTES / sizeof(float))

/* The MPI request handle lies in opaque[0]; for a message of several pieces opaque[1] points to their handles and
 * opaque[2] counts them. */
_Static_assert(sizeof(MPI_Request) <= sizeof(uintptr_t), "a request handle fits a pointer");

static const taciti_plugin_host *g_host;

enum { NATIVES_MAX = 8 };

typedef struct engine_mpi {
    MPI_Comm communicator;                     /* ours */
    int native_count;                          /* 0 until they are asked for */
    taciti_native natives[NATIVES_MAX + 1];    /* ends with a NULL name */
    MPI_Comm native_communicator[NATIVES_MAX]; /* one for each */
    size_t native_unit_n[NATIVES_MAX]; /* floats; longer arrays must be multiples of it; 1: any length will do */
} engine_mpi;

/* Lets all-reduce algorithms be named per communicator; where none is named nothing changes. */
#define DYNAMIC_RULES "OMPI_MCA_coll_tuned_use_dynamic_rules"

/* The state of the process: MPI itself can be initialised and finalized once. */
static struct {
    pthread_mutex_t lock;
    int engines; /* that are open */
    bool initialised_here;
} g_mpi = {.lock = PTHREAD_MUTEX_INITIALIZER};

static tacit_status check_call(int code, const char *call) {
    if (code == MPI_SUCCESS) return TACIT_OK;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    (void)MPI_Error_string(code, text, &length);
    return g_host->fail(TACIT_E_PEER, "%s failed: %s", call, text);
}

/* Exactly one of out_bytes (receive) and in_bytes (send) is given. */
static tacit_status post_all(const engine_mpi *mpi, int peer, int tag, const char *in_bytes, char *out_bytes,
                             size_t count, taciti_engine_request *out) {
    const size_t pieces = count / PIECE_BYTES + (count % PIECE_BYTES != 0 || count == 0);
    MPI_Request one = MPI_REQUEST_NULL, *requests = &one;
    memset(out->opaque, 0, sizeof out->opaque);
    out->bytes = 0;
    if (pieces > 1) {
        requests = g_host->calloc(pieces, sizeof *requests);
        if (requests == NULL) return TACIT_E_MEMORY;
    }
    for (size_t i = 0; i < pieces; i++) {
        const size_t at = i * PIECE_BYTES, n = count - at < PIECE_BYTES ? count - at : PIECE_BYTES;
        const int code = out_bytes != NULL
                             ? MPI_Irecv(out_bytes + at, (int)n, MPI_BYTE, peer, tag, mpi->communicator, &requests[i])
                             : MPI_Isend(in_bytes + at, (int)n, MPI_BYTE, peer, tag, mpi->communicator, &requests[i]);
        TACITI_TRY(check_call(code, out_bytes != NULL ? "MPI_Irecv" : "MPI_Isend"));
    }
    if (pieces > 1) {
        out->opaque[1] = (uintptr_t)requests;
        out->opaque[2] = pieces;
    } else {
        memcpy(&out->opaque[0], &one, sizeof one);
    }
    return TACIT_OK;
}

/* A zero-sized receive still needs an address that says which direction is meant. */
static char g_nothing;

static tacit_status mpi_isend(void *self, int peer, int tag, const void *bytes, size_t count,
                              taciti_engine_request *out) {
    return post_all(self, peer, tag, bytes == NULL ? &g_nothing : bytes, NULL, count, out);
}

static tacit_status mpi_irecv(void *self, int peer, int tag, void *bytes, size_t count, taciti_engine_request *out) {
    return post_all(self, peer, tag, NULL, bytes == NULL ? &g_nothing : bytes, count, out);
}

/* Tests one piece; a completed one adds what arrived. A message that did not fit is complete as well. */
static tacit_status test_piece(MPI_Request *piece, taciti_engine_request *request, bool *left) {
    if (*piece == MPI_REQUEST_NULL) return TACIT_OK; /* was complete before */
    int complete = 0, count = 0, kind = MPI_SUCCESS;
    MPI_Status status;
    const int code = MPI_Test(piece, &complete, &status);
    if (code != MPI_SUCCESS) (void)MPI_Error_class(code, &kind);
    if (kind == MPI_ERR_TRUNCATE) {
        request->bytes = SIZE_MAX / 2;
        return TACIT_OK;
    }
    TACITI_TRY(check_call(code, "MPI_Test"));
    if (complete == 0)
        *left = true;
    else if (MPI_Get_count(&status, MPI_BYTE, &count) == MPI_SUCCESS && count > 0)
        request->bytes += (size_t)count;
    return TACIT_OK;
}

static tacit_status mpi_test(void *self, taciti_engine_request *request, bool *done) {
    (void)self;
    MPI_Request one, *requests = &one;
    const size_t pieces = request->opaque[1] != 0 ? request->opaque[2] : 1;
    if (pieces > 1)
        requests = (MPI_Request *)request->opaque[1];
    else
        memcpy(&one, &request->opaque[0], sizeof one);
    bool left = false;
    for (size_t i = 0; i < pieces; i++) TACITI_TRY(test_piece(&requests[i], request, &left));
    *done = !left;
    if (pieces == 1) memcpy(&request->opaque[0], &one, sizeof one);
    if (pieces > 1 && *done) {
        g_host->free(requests);
        request->opaque[1] = 0;
    }
    return TACIT_OK;
}

static void mpi_abort(void *self, int exit_code) {
    const engine_mpi *mpi = self;
    (void)MPI_Abort(mpi->communicator, exit_code);
    g_host->end_process(exit_code);
}

/* ---- the library's own all-reduces ---------------------------------------------------------------------------------
 *
 * Open MPI decides which algorithm a communicator uses when the communicator is made. So each of ours is a duplicate,
 * made with an info key that puts a component before the others (HAN, the hierarchical one, or tuned), and for tuned
 * while a control variable names the algorithm. The variable is put back at once. */
#define ALGORITHM_VARIABLE "coll_tuned_allreduce_algorithm"
#define TUNED_VARIABLE "coll_tuned_priority"
#define HAN_VARIABLE "coll_han_priority"
#define HAN_SEGMENT_VARIABLE "coll_han_allreduce_segsize"

typedef struct native_plan {
    taciti_native native;
    int algorithm;        /* of coll_tuned; 0: the library's choice */
    const char *variable; /* a control variable that only a library has which can do this; NULL: all can */
    const char *prefer;   /* component that goes first; NULL: the library's choice */
} native_plan;

static const native_plan PLANS[] = {
    {{"mpi-default", "MPI_Allreduce as the library chooses", false}, 0, NULL, NULL},
#if defined(OPEN_MPI)
    {{"mpi-ring", "MPI_Allreduce by coll_tuned algorithm 4, ring", false}, 4, ALGORITHM_VARIABLE, "tuned"},
    {{"mpi-rabenseifner", "MPI_Allreduce by coll_tuned algorithm 6", false}, 6, ALGORITHM_VARIABLE, "tuned"},
    {{"mpi-han", "MPI_Allreduce by coll_han, first inside hosts, then between them", true}, 0, HAN_VARIABLE, "han"},
#endif
};

enum { PLAN_COUNT = sizeof PLANS / sizeof *PLANS };
_Static_assert((int)PLAN_COUNT <= (int)NATIVES_MAX, "there is room for all plans");

/* Opens a control variable of the library that has this type. MPI_T errors have no texts and mean: not here. */
static bool variable_open(const char *name, MPI_Datatype type, MPI_T_cvar_handle *out) {
    int index = 0, verbosity = 0, text_bytes = 0, name_bytes = 0, binding = 0, scope = 0, count = 0;
    MPI_Datatype found = MPI_DATATYPE_NULL;
    if (MPI_T_cvar_get_index(name, &index) != MPI_SUCCESS) return false;
    if (MPI_T_cvar_get_info(index, NULL, &name_bytes, &verbosity, &found, NULL, NULL, &text_bytes, &binding, &scope) !=
            MPI_SUCCESS ||
        found != type || binding != MPI_T_BIND_NO_OBJECT)
        return false;
    return MPI_T_cvar_handle_alloc(index, NULL, out, &count) == MPI_SUCCESS;
}

/* Sets the algorithm of communicators made from now on and tells the one before. */
static bool swap_algorithm(int algorithm, int *before) {
    MPI_T_cvar_handle handle;
    if (!variable_open(ALGORITHM_VARIABLE, MPI_INT, &handle)) return false;
    const bool swapped =
        MPI_T_cvar_read(handle, before) == MPI_SUCCESS && MPI_T_cvar_write(handle, &algorithm) == MPI_SUCCESS;
    (void)MPI_T_cvar_handle_free(&handle);
    return swapped;
}

static bool library_offers(const native_plan *plan) {
    int index = 0, before = 0;
    /* Algorithms can be named only when this was switched on before MPI started. */
    const char *rules = getenv(DYNAMIC_RULES);
    const bool obeyed = rules != NULL && (strcmp(rules, "1") == 0 || strcmp(rules, "true") == 0);
    if (plan->algorithm != 0)
        return obeyed && swap_algorithm(plan->algorithm, &before) && swap_algorithm(before, &before);
    return plan->variable == NULL || MPI_T_cvar_get_index(plan->variable, &index) == MPI_SUCCESS;
}

static int number_of(const char *variable) {
    MPI_T_cvar_handle handle;
    int value = 0;
    if (!variable_open(variable, MPI_INT, &handle)) return 0;
    if (MPI_T_cvar_read(handle, &value) != MPI_SUCCESS) value = 0;
    (void)MPI_T_cvar_handle_free(&handle);
    return value;
}

/* HAN of Open MPI 4.1.4 has two defects where hosts have several ranks: it crashes on MPI_IN_PLACE, and it reads and
 * writes behind the end of an array that is longer than a segment and not a multiple of it. */
static void add_native(engine_mpi *mpi, const native_plan *plan) {
    const int i = mpi->native_count++, segment_bytes = number_of(HAN_SEGMENT_VARIABLE);
    mpi->natives[i] = plan->native;
    mpi->native_unit_n[i] = 1;
    const int han = number_of(HAN_VARIABLE); /* by our choice, or because a user has put it first */
    if (plan->prefer != NULL ? strcmp(plan->prefer, "han") != 0 : han <= 0 || han < number_of(TUNED_VARIABLE)) return;
    mpi->natives[i].apart = true;
    if (segment_bytes > (int)sizeof(float)) mpi->native_unit_n[i] = (size_t)segment_bytes / sizeof(float);
}

static tacit_status duplicate_for(const engine_mpi *mpi, const native_plan *plan, MPI_Comm *out) {
    MPI_Info info = MPI_INFO_NULL;
    int before = 0, code = MPI_SUCCESS;
    const bool swap = plan->algorithm != 0;
    if (swap && !swap_algorithm(plan->algorithm, &before))
        return g_host->fail(TACIT_E_UNSUPPORTED, "the MPI library refuses %s = %d", plan->variable, plan->algorithm);
    if (plan->prefer != NULL) code = MPI_Info_create(&info);
    if (plan->prefer != NULL && code == MPI_SUCCESS)
        code = MPI_Info_set(info, "ompi_comm_coll_preference", plan->prefer);
    if (code == MPI_SUCCESS) code = MPI_Comm_dup_with_info(mpi->communicator, info, out);
    if (info != MPI_INFO_NULL) (void)MPI_Info_free(&info);
    if (swap) (void)swap_algorithm(before, &before);
    return check_call(code, "MPI_Comm_dup_with_info");
}

static tacit_status make_natives(engine_mpi *mpi) {
    for (int i = 0; i < PLAN_COUNT; i++) {
        int offered = library_offers(&PLANS[i]), everywhere = 0;
        TACITI_TRY(
            check_call(MPI_Allreduce(&offered, &everywhere, 1, MPI_INT, MPI_MIN, mpi->communicator), "MPI_Allreduce"));
        if (everywhere == 0) continue;
        TACITI_TRY(duplicate_for(mpi, &PLANS[i], &mpi->native_communicator[mpi->native_count]));
        add_native(mpi, &PLANS[i]);
    }
    return TACIT_OK;
}

static tacit_status mpi_native_open(void *self, const taciti_native **out) {
    engine_mpi *mpi = self;
    int level = 0;
    if (mpi->native_count == 0) {
        TACITI_TRY(check_call(MPI_T_init_thread(MPI_THREAD_SERIALIZED, &level), "MPI_T_init_thread"));
        const tacit_status status = make_natives(mpi);
        (void)MPI_T_finalize();
        TACITI_TRY(status);
    }
    *out = mpi->natives;
    return TACIT_OK;
}

static tacit_status mpi_native_allreduce(void *self, int native, const float *in, float *out, size_t n) {
    const engine_mpi *mpi = self;
    const size_t unit_n = mpi->native_unit_n[native], max_n = PIECE_FLOATS / unit_n * unit_n;
    for (size_t at = 0, count = 0; at < n; at += count) {
        count = n - at < max_n ? n - at : max_n;
        if (count > unit_n) count -= count % unit_n; /* the rest is a call of its own */
        TACITI_TRY(check_call(MPI_Allreduce(in == out ? MPI_IN_PLACE : in + at, out + at, (int)count, MPI_FLOAT,
                                            MPI_SUM, mpi->native_communicator[native]),
                              "MPI_Allreduce"));
    }
    return TACIT_OK;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */
static void mpi_close(void *self) {
    engine_mpi *mpi = self;
    for (int i = 0; i < mpi->native_count; i++) (void)MPI_Comm_free(&mpi->native_communicator[i]);
    mpi->native_count = 0;
    (void)MPI_Comm_free(&mpi->communicator);
    g_host->free(mpi);
    (void)pthread_mutex_lock(&g_mpi.lock);
    const bool last = --g_mpi.engines == 0;
    if (last && g_mpi.initialised_here) (void)MPI_Finalize();
    (void)pthread_mutex_unlock(&g_mpi.lock);
}

/* "Open MPI v4.1.4, package: ..." -> "Open MPI v4.1.4"; "MPICH Version:\t4.0.2\n..." -> "MPICH Version: 4.0.2". */
static void mpi_library(char *out, size_t bytes) {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    (void)MPI_Get_library_version(text, &length);
    size_t at = 0;
    for (const char *p = text; *p != 0 && *p != ',' && *p != '\n' && at + 1 < bytes; p++)
        out[at++] = isspace((unsigned char)*p) ? ' ' : *p;
    out[at] = 0;
}

/* Components of Open MPI (mca_pml_ob1.so, mca_btl_tcp.so, ...) use symbols of libmpi and libopen-pal without naming
 * these libraries among those they need (readelf -d); they find them in the global scope. In Open MPI 4.1 the libraries
 * are there only because other components, which do name them, happen to be opened before; versions before 3.0 did not
 * start (open-mpi/ompi issue 3705). This file was opened without the global scope (plugin.c), so the libraries are
 * moved there before MPI starts. MPICH is one library. */
static void publish_library(void) {
#if defined(OPEN_MPI)
    Dl_info info;
    if (dladdr((const void *)MPI_COMM_WORLD, &info) != 0 && info.dli_fname != NULL)
        (void)dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
#endif
}

static tacit_status start_library(int wanted, int *level) {
    int running = 0, finalized = 0;
    TACITI_TRY(check_call(MPI_Finalized(&finalized), "MPI_Finalized"));
    if (finalized != 0)
        return g_host->fail(TACIT_E_USAGE, "MPI was finalized in this process and cannot be started again: open all "
                                           "communicators before the last one is closed, or call MPI_Init_thread() and "
                                           "MPI_Finalize() yourself");
    TACITI_TRY(check_call(MPI_Initialized(&running), "MPI_Initialized"));
    if (running != 0) return check_call(MPI_Query_thread(level), "MPI_Query_thread");
    /* Without yielding, ranks that share cores take a thousand times longer; a user's own setting wins. */
    (void)setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    (void)setenv(DYNAMIC_RULES, "1", 0);
    publish_library();
    TACITI_TRY(check_call(MPI_Init_thread(NULL, NULL, wanted, level), "MPI_Init_thread"));
    g_mpi.initialised_here = true;
    return TACIT_OK;
}

/* A communication thread calls MPI while the program may do so, too. Alone in a process that does not call MPI itself,
 * an engine needs less. */
static tacit_status check_level(int level) {
    if (level >= MPI_THREAD_MULTIPLE ||
        (g_mpi.initialised_here && g_mpi.engines == 0 && level >= MPI_THREAD_SERIALIZED))
        return TACIT_OK;
    const char *const name = level >= MPI_THREAD_SERIALIZED ? "MPI_THREAD_SERIALIZED"
                             : level >= MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED"
                                                            : "MPI_THREAD_SINGLE";
    return g_host->fail(TACIT_E_UNSUPPORTED,
                        "MPI was initialised with %s, but the communication thread needs MPI_THREAD_MULTIPLE: call "
                        "MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level), or set comm.thread=false",
                        name);
}

static tacit_status duplicate_communicator(const taciti_mpi_request *request, engine_mpi *mpi) {
    MPI_Comm from = MPI_COMM_WORLD;
    int between = 0;
    if (request->communicator != NULL) memcpy(&from, request->communicator, sizeof from);
    if (from == MPI_COMM_NULL) return g_host->fail(TACIT_E_USAGE, "the communicator is MPI_COMM_NULL");
    TACITI_TRY(check_call(MPI_Comm_test_inter(from, &between), "MPI_Comm_test_inter"));
    if (between != 0)
        return g_host->fail(TACIT_E_USAGE,
                            "the communicator joins two groups (an intercommunicator); make one group of "
                            "them with MPI_Intercomm_merge()");
    TACITI_TRY(check_call(MPI_Comm_dup(from, &mpi->communicator), "MPI_Comm_dup"));
    return check_call(MPI_Comm_set_errhandler(mpi->communicator, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

/* With the lock. */
static tacit_status open_library(const taciti_mpi_request *request, engine_mpi *mpi, int *level) {
    int running = 0;
    if (request->communicator != NULL) {
        TACITI_TRY(check_call(MPI_Initialized(&running), "MPI_Initialized"));
        if (running == 0) return g_host->fail(TACIT_E_USAGE, "MPI is not initialised: call MPI_Init_thread() first");
    }
    const bool others = request->others && request->threaded;
    TACITI_TRY(start_library(others ? MPI_THREAD_MULTIPLE : MPI_THREAD_SERIALIZED, level));
    if (others) TACITI_TRY(check_level(*level));
    TACITI_TRY(duplicate_communicator(request, mpi));
    g_mpi.engines++;
    return TACIT_OK;
}

static tacit_status mpi_open(const taciti_mpi_request *request, taciti_engine *out) {
    int level = MPI_THREAD_SINGLE;
    engine_mpi *mpi = g_host->calloc(1, sizeof *mpi);
    if (mpi == NULL) return TACIT_E_MEMORY;
    (void)pthread_mutex_lock(&g_mpi.lock);
    const tacit_status status = open_library(request, mpi, &level);
    (void)pthread_mutex_unlock(&g_mpi.lock);
    if (status != TACIT_OK) {
        g_host->free(mpi);
        return status;
    }
    *out = (taciti_engine){.name = "mpi",
                           .self = mpi,
                           .any_thread = level >= MPI_THREAD_SERIALIZED,
                           .keeps_buffers = true,
                           .isend = mpi_isend,
                           .irecv = mpi_irecv,
                           .test = mpi_test,
                           .abort = mpi_abort,
                           .close = mpi_close,
                           .native_open = mpi_native_open,
                           .native_allreduce = mpi_native_allreduce};
    mpi_library(out->library, sizeof out->library);
    TACITI_TRY(check_call(MPI_Comm_rank(mpi->communicator, &out->rank), "MPI_Comm_rank"));
    return check_call(MPI_Comm_size(mpi->communicator, &out->size), "MPI_Comm_size");
}

/* ---- the plugin -------------------------------------------------------------------------------------------------- */
#if defined(OPEN_MPI)
#define FAMILY "openmpi"
#elif defined(MPICH_VERSION)
#define FAMILY "mpich"
#else
#error "neither Open MPI nor MPICH"
#endif

static const taciti_plugin PLUGIN = {.bytes = sizeof PLUGIN,
                                     .version = TACITI_PLUGIN_VERSION,
                                     .engine_bytes = sizeof(taciti_engine),
                                     .family = FAMILY,
                                     .library = mpi_library,
                                     .open = mpi_open};

TACIT_API taciti_plugin_entry taciti_plugin_enter;

const taciti_plugin *taciti_plugin_enter(const taciti_plugin_host *host) {
    g_host = host;
    return &PLUGIN;
}
