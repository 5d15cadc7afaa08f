/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/comm.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/futex.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/engine.h"
#include "comm/engine_tcp.h"
#include "comm/guard.h"
#include "comm/launcher.h"
#include "comm/meet.h"
#include "comm/plugin.h"
#include "comm/state.h"

enum { WARN_PART = 5, TRACE_SPANS = 1 << 16, ABORT_S = 3, FINISH_S = 15, LATE_SPEAKERS = 4 };

#define AT(member) offsetof(taciti_comm_options, member)

static const taciti_option OPTIONS[] = {
    TACITI_OPTION("engine", ENUM, AT(engine), "auto", .choices = "auto|mpi|tcp|self",
                  .help = "what carries messages; auto: mpi under a launcher of MPI, tcp under torchrun and --ranks, "
                          "else self, a rank alone",
                  .flags = TACITI_OPTION_NO_DIGEST | TACITI_OPTION_EXPERT),
    TACITI_OPTION("meet", TEXT, AT(meet), "",
                  .help = "where ranks of the engine tcp meet: HOST:PORT of rank 0, or a folder that all see; without "
                          "it, the port after MASTER_PORT, or a folder below /tmp where all are on one host",
                  .flags = TACITI_OPTION_NO_DIGEST | TACITI_OPTION_EXPERT),
    TACITI_OPTION("interface", TEXT, AT(interface), "",
                  .help = "name or address of the interface of the engine tcp; without it, all that are up",
                  .flags = TACITI_OPTION_NO_DIGEST | TACITI_OPTION_EXPERT),
    TACITI_OPTION("key_file", TEXT, AT(key_file), "",
                  .help =
                      "file of 32 random bytes, or 64 hexadecimal digits: ranks of the engine tcp prove to each other "
                      "that they hold the same, and seal all they send",
                  .flags = TACITI_OPTION_NO_DIGEST | TACITI_OPTION_EXPERT),
    TACITI_OPTION("thread", BOOL, AT(thread), "true",
                  .help = "own thread for communication; without it nothing overlaps and comm.timeout must exceed the "
                          "longest compute",
                  .flags = TACITI_OPTION_NO_DIGEST | TACITI_OPTION_EXPERT),
    TACITI_OPTION(
        "timeout", REAL, AT(timeout_s), "15", .min = 0.5, .max = 86400, .unit = "s",
        .help = "a rank silent for longer has failed: the job ends; one silent for a fifth of it is named in a warning",
        .flags = TACITI_OPTION_NO_DIGEST),
    TACITI_OPTION("start", REAL, AT(start_s), "120", .min = 1, .max = 86400, .unit = "s",
                  .help = "most time for all ranks to come up and meet",
                  .flags = TACITI_OPTION_NO_DIGEST | TACITI_OPTION_EXPERT),
    TACITI_OPTION("stall", REAL, AT(stall_s), "600", .min = 1, .max = 604800, .unit = "s",
                  .help = "a rank that is alive but keeps others waiting for longer has failed",
                  .flags = TACITI_OPTION_NO_DIGEST | TACITI_OPTION_EXPERT),
    TACITI_OPTION("rate", REAL, AT(rate_mbps), "0", .max = 1e6, .unit = "Mbit/s",
                  .help = "cap of what each rank sends; 0: none",
                  .flags = TACITI_OPTION_NO_DIGEST | TACITI_OPTION_EXPERT),
};

const taciti_option_table taciti_comm_option_table =
    TACITI_OPTION_TABLE("comm", "how ranks talk and when a silent one is given up", OPTIONS);

/* ---- life ------------------------------------------------------------------------------------------------------ */
static void destroy_comm(taciti_comm *comm) {
    taciti_detector_destroy(comm);
    taciti_trace_destroy(&comm->trace);
    taciti_free(comm->peers);
    taciti_hosts_destroy(&comm->hosts);
    taciti_free(comm->requests);
    taciti_free(comm->scratch);
    taciti_free(comm);
}

/* After a failure. False: the engine stays, and with it what it may still access. */
static bool drop_engine(taciti_comm *comm) {
    const taciti_engine old = comm->engine;
    taciti_engine none;
    taciti_detector_last_words(comm);
    if (old.drop == NULL) return !old.keeps_buffers;
    old.drop(old.self);
    comm->detector.count = 0;
    taciti_engine_self_open(&none); /* refuses messages, and an abort ends this process alone */
    none.name = old.name, none.rank = old.rank, none.size = old.size;
    memcpy(none.library, old.library, sizeof none.library);
    comm->engine = none;
    return true;
}

bool taciti_comm_let_go(taciti_comm *comm) {
    if (taciti_comm_health(comm) == TACIT_OK || !comm->engine.keeps_buffers) return true;
    const bool threaded = comm->threaded;
    if (comm->engine.drop == NULL || !taciti_comm_thread_stop(comm)) return false;
    if (threaded) (void)pthread_mutex_lock(&comm->ownership); /* another thread of the caller may have borrowed it */
    const bool dropped = drop_engine(comm);
    if (threaded) (void)pthread_mutex_unlock(&comm->ownership);
    return dropped;
}

static void abandon_comm(taciti_comm *comm) {
    if (drop_engine(comm))
        destroy_comm(comm);
    else
        taciti_trace_destroy(&comm->trace);
}

static tacit_status set_up(taciti_comm *comm) {
    const size_t size = (size_t)comm->engine.size;
    comm->peers = taciti_calloc(size, sizeof *comm->peers);
    comm->requests = taciti_calloc(size, sizeof *comm->requests);
    if (comm->peers == NULL || comm->requests == NULL) return TACIT_E_MEMORY;
    TACITI_TRY(taciti_hosts_create(comm->engine.size, &comm->hosts));
    for (int i = 0; i < comm->engine.size; i++) comm->peers[i].rank = i;
    atomic_store(&comm->own_witness.doing.number, -1); /* no step yet */
    atomic_store(&comm->witness, &comm->own_witness);
    TACITI_TRY(taciti_detector_create(comm));
    TACITI_TRY(taciti_trace_create(size > 1 ? TRACE_SPANS : 0, &comm->trace));
    TACITI_TRY(taciti_comm_introduce(comm));
    if (comm->engine.size == 1 || !comm->options.thread) return TACIT_OK;
    if (comm->engine.any_thread) return taciti_comm_thread_start(comm);
    taciti_log(TACITI_LOG_WARN, "%s allows no communication thread: nothing will overlap", comm->engine.library);
    return TACIT_OK;
}

tacit_status taciti_comm_open_engine(const taciti_comm_options *options, const taciti_engine *engine,
                                     taciti_comm **out) {
    taciti_comm *comm = taciti_calloc(1, sizeof *comm);
    if (comm == NULL) {
        if (engine->drop != NULL) engine->drop(engine->self); /* the others see it go */
        return TACIT_E_MEMORY;
    }
    comm->engine = *engine;
    comm->options = *options;
    comm->data_tag = TACITI_TAG_DATA;
    if (!(options->warn_s > 0)) comm->options.warn_s = options->timeout_s / WARN_PART;
    if (options->segment_bytes == 0) comm->options.segment_bytes = TACITI_SEGMENT_BYTES;
    (void)pthread_mutex_init(&comm->failure.lock, NULL);
    const tacit_status status = set_up(comm);
    if (status == TACIT_OK) {
        *out = comm;
        return TACIT_OK;
    }
    if (taciti_comm_health(comm) == TACIT_OK) taciti_comm_give_up(comm); /* the others wait for this rank alone */
    abandon_comm(comm);                                                  /* receives are posted already */
    return status;
}

/* Plugins belong to hosts, so the first rank of each host says what is wrong with them. */
static tacit_status open_plugin(const taciti_launcher *launcher, const char *family, const taciti_plugin **out) {
    char reason[TACITI_REASON_BYTES];
    if (!launcher->first_of_host) taciti_log_capture(reason);
    const tacit_status status = taciti_plugin_open(family, out);
    if (!launcher->first_of_host) taciti_log_capture(NULL);
    return status;
}

/* Opens the engine of a plugin, for which MPI waits for other ranks; logs `late` after comm.start. */
static tacit_status open_guarded(const taciti_comm_options *options, const taciti_plugin *plugin,
                                 const taciti_mpi_request *request, int rank, const char *late, taciti_engine *out) {
    taciti_guard guard = {0};
    /* One after the other, so that one line is enough: the launcher ends the rest when the first rank gives up. */
    const double turn_s = rank < LATE_SPEAKERS ? rank : LATE_SPEAKERS;
    taciti_guard_arm(&guard, options->start_s + turn_s, tacit_status_exit_code(TACIT_E_PEER), late);
    const tacit_status status = plugin->open(request, out);
    taciti_guard_disarm(&guard);
    return status;
}

/* Starts MPI. */
static tacit_status open_mpi(const taciti_comm_options *options, const taciti_launcher *launcher, const char *family,
                             bool others, taciti_comm **out) {
    const taciti_mpi_request request = {.threaded = options->thread, .others = others};
    const taciti_plugin *plugin = NULL;
    TACITI_TRY(open_plugin(launcher, family, &plugin));
    taciti_engine engine;
    char late[256];
    (void)snprintf(late, sizeof late,
                   "rank %d: MPI has not started within %.0f s (comm.start): at least one of the %d processes of %s "
                   "did not come up",
                   launcher->rank, options->start_s, launcher->size, launcher->name == NULL ? "MPI" : launcher->name);
    TACITI_TRY(open_guarded(options, plugin, &request, launcher->rank, late, &engine));
    if (engine.size > 1 || launcher->size <= 1) return taciti_comm_open_engine(options, &engine, out);
    engine.close(engine.self);
    return taciti_launcher_refuse(launcher, family, engine.library);
}

/* Only ranks of this host can reach each other there: who names it wants TCP, and no Unix-domain sockets. */
static bool is_loopback(const char *interface) {
    return strcmp(interface, "lo") == 0 || strncmp(interface, "127.", 4) == 0 || strcmp(interface, "::1") == 0;
}

/* Sets *used to `key` as it is in comm.key_file, or to NULL. Files belong to hosts, so the first rank of each host says
 * what is wrong with this one. */
static tacit_status read_key(const taciti_comm_options *options, bool first_of_host, taciti_seal_key *key,
                             const taciti_seal_key **used) {
    char reason[TACITI_REASON_BYTES];
    *used = NULL;
    if (*options->key_file.text == 0) return TACIT_OK;
    if (!first_of_host) taciti_log_capture(reason);
    const tacit_status status = taciti_seal_key_read(options->key_file.text, key);
    if (!first_of_host) taciti_log_capture(NULL);
    *used = key;
    return status;
}

/* Connects the ranks over sockets. The caller has set who they are, where they meet and with which key. */
static tacit_status connect_ranks(const taciti_comm_options *options, taciti_tcp_request who, taciti_comm **out) {
    taciti_engine engine;
    who.start_s = options->start_s;
    who.timeout_s = options->timeout_s;
    who.only_tcp = is_loopback(options->interface.text);
    if (*options->interface.text != 0) who.interface = options->interface.text;
    TACITI_TRY(taciti_engine_tcp_open(&who, &engine));
    return taciti_comm_open_engine(options, &engine, out);
}

/* The same where the launcher says, or the options. When all have introduced themselves, nobody needs the place. */
static tacit_status meet_ranks(const taciti_comm_options *options, const taciti_launcher *launcher,
                               taciti_tcp_request who, taciti_comm **out) {
    taciti_meeting_place meeting;
    TACITI_TRY(taciti_meet_open(options, launcher, who.key, &meeting));
    who.bootstrap = meeting.store;
    who.interface = meeting.local;
    const tacit_status status = connect_ranks(options, who, out);
    taciti_meet_close(&meeting);
    return status;
}

/* launcher NULL: ranks meet in a store of the caller's. Every rank may then be the only one of its host, so each says
 * what is wrong with its key. */
static tacit_status open_tcp(const taciti_comm_options *options, const taciti_launcher *launcher,
                             taciti_tcp_request who, taciti_comm **out) {
    taciti_seal_key key;
    TACITI_TRY(read_key(options, launcher == NULL || launcher->first_of_host, &key, &who.key));
    const tacit_status status =
        launcher == NULL ? connect_ranks(options, who, out) : meet_ranks(options, launcher, who, out);
    taciti_seal_key_forget(&key);
    return status;
}

/* The user asked for sealed messages: none may travel unsealed. */
static tacit_status check_seal(const taciti_comm_options *options, const taciti_launcher *launcher,
                               taciti_engine_kind kind) {
    if (*options->key_file.text == 0 || kind != TACITI_ENGINE_MPI) return TACIT_OK;
    return TACITI_FAIL_TOGETHER(launcher->rank, TACIT_E_CONFIG,
                                "comm.key_file seals what the engine tcp sends, and MPI seals nothing: add "
                                "--comm.engine tcp, or leave comm.key_file out");
}

/* Logs why the engine was chosen; a process that nobody started with others needs no line. */
static void log_choice(const taciti_comm *comm, const taciti_engine_choice *choice) {
    const bool plain = choice->kind == TACITI_ENGINE_SELF && comm->options.engine == TACITI_ENGINE_AUTO;
    if (comm->engine.rank == 0)
        taciti_log(plain ? TACITI_LOG_DEBUG : TACITI_LOG_INFO, "comm.engine %s (%s): %s", comm->engine.name,
                   comm->engine.library, choice->reason);
}

static tacit_status open_self(const taciti_comm_options *options, taciti_comm **out) {
    taciti_engine engine;
    taciti_engine_self_open(&engine);
    return taciti_comm_open_engine(options, &engine, out);
}

/* Opens the engine that is chosen; `others` as in taciti_mpi_request. Every engine tcp of a process is another epoch:
 * all ranks open them in the same order. One that fails counts as well, for it may fail on one rank only. */
static tacit_status open_chosen(const taciti_comm_options *options, bool others, taciti_engine_choice *choice,
                                taciti_comm **out) {
    static _Atomic uint32_t opened;
    const taciti_launcher launcher = taciti_launcher_detect();
    TACITI_TRY(taciti_engine_choose(options->engine, &launcher, choice));
    TACITI_TRY(check_seal(options, &launcher, choice->kind));
    if (choice->kind == TACITI_ENGINE_MPI) return open_mpi(options, &launcher, choice->family, others, out);
    if (choice->kind == TACITI_ENGINE_SELF) return open_self(options, out);
    const taciti_tcp_request who = {
        .rank = launcher.rank, .size = launcher.size, .epoch = atomic_fetch_add(&opened, 1)};
    return open_tcp(options, &launcher, who, out);
}

/* `mine` is what this rank has refused so far. A rank that has refused comes here, too, so that nobody waits for it and
 * all compare what they refused. */
static tacit_status open_agreed(const taciti_comm_options *options, tacit_status mine, taciti_comm **out) {
    taciti_engine_choice choice;
    taciti_comm *comm = NULL;
    tacit_status status = open_chosen(options, false, &choice, &comm);
    if (status == TACIT_OK && comm->engine.size > 1) {
        status = taciti_comm_agree(comm, mine);
        if (status != TACIT_OK) (void)taciti_comm_close(comm);
    }
    if (status != TACIT_OK) {
        taciti_log_set_mode(TACITI_LOG_DIRECT);
        return status;
    }
    log_choice(comm, &choice);
    *out = comm;
    return TACIT_OK;
}

tacit_status taciti_comm_open(const taciti_comm_options *options, taciti_comm **out) {
    return open_agreed(options, TACIT_OK, out);
}

tacit_status taciti_comm_open_among(const taciti_comm_options *options, const char *family, const void *communicator,
                                    taciti_comm **out) {
    taciti_engine_choice choice;
    if (communicator == NULL) {
        TACITI_TRY(open_chosen(options, true, &choice, out));
        log_choice(*out, &choice);
        return TACIT_OK;
    }
    const taciti_mpi_request request = {.communicator = communicator, .threaded = options->thread, .others = true};
    const taciti_plugin *plugin = NULL;
    taciti_engine engine;
    if (options->engine == TACITI_ENGINE_SELF || options->engine == TACITI_ENGINE_TCP)
        return taciti_fail(TACIT_E_CONFIG, "comm.engine is %s, but the caller's communicator is one of MPI",
                           options->engine == TACITI_ENGINE_TCP ? "tcp" : "self");
    const taciti_launcher launcher = taciti_launcher_detect();
    TACITI_TRY(check_seal(options, &launcher, TACITI_ENGINE_MPI));
    TACITI_TRY(taciti_plugin_open(family, &plugin));
    char late[256];
    (void)snprintf(late, sizeof late,
                   "rank %d: MPI has not duplicated the communicator within %g s (comm.start): at least one of its "
                   "ranks has not opened it",
                   launcher.rank, options->start_s);
    TACITI_TRY(open_guarded(options, plugin, &request, launcher.rank, late, &engine));
    return taciti_comm_open_engine(options, &engine, out);
}

tacit_status taciti_comm_open_store(const taciti_comm_options *options, int rank, int size,
                                    const taciti_bootstrap *store, taciti_comm **out) {
    const taciti_tcp_request who = {.rank = rank, .size = size, .bootstrap = *store};
    taciti_engine_choice choice;
    TACITI_TRY(taciti_engine_choose_store(options, rank, size, &choice));
    TACITI_TRY(choice.kind == TACITI_ENGINE_TCP ? open_tcp(options, NULL, who, out) : open_self(options, out));
    log_choice(*out, &choice);
    return TACIT_OK;
}

/* A flag that is wrong has been logged: it is why this rank refuses. */
static void read_flags(const taciti_config *config, int argc, char *const *argv) {
    char reason[TACITI_REASON_BYTES];
    taciti_log_capture(reason);
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0;) {
        const bool mine = strncmp(argv[i], "--comm.", 7) == 0 || strncmp(argv[i], "--no-comm.", 10) == 0;
        if (!mine || taciti_config_flag(config, argc, argv, &i) != TACIT_OK) i++;
    }
    taciti_log_capture(NULL);
}

void taciti_comm_refuse(tacit_status status, int argc, char *const *argv) {
    taciti_comm_options options = {0};
    const taciti_section section = {&taciti_comm_option_table, &options, NULL};
    const taciti_config config = {&section, 1};
    taciti_comm *comm = NULL;
    if (taciti_config_defaults(&config) != TACIT_OK || taciti_config_environment(&config) != TACIT_OK) return;
    read_flags(&config, argc, argv);
    options.warn_s = options.timeout_s; /* ranks that refuse leave in any order: no silence is worth a warning */
    (void)open_agreed(&options, status, &comm);
}

static void shutdown_is_late(void *context, const char *text) {
    taciti_error_set("%s", text);
    (void)taciti_comm_break(context, TACIT_E_PEER);
}

static void shut_down(taciti_comm *comm) {
    char late[256];
    (void)snprintf(late, sizeof late, "rank %d: %s has not shut down within %d s; leaving without it",
                   comm->engine.rank, comm->engine.library, (int)FINISH_S);
    taciti_guard guard = {.late = shutdown_is_late, .context = comm};
    taciti_guard_arm(&guard, FINISH_S, tacit_status_exit_code(TACIT_E_PEER), late);
    comm->engine.close(comm->engine.self);
    taciti_guard_disarm(&guard);
}

/* The communication thread hangs in a job. */
static tacit_status fail_stuck(taciti_comm *comm) {
    taciti_sight sight;
    char text[TACITI_ERROR_BYTES];
    taciti_witness_look(atomic_load(&comm->witness), &sight);
    if (taciti_comm_health(comm) == TACIT_OK)
        return taciti_fail(TACIT_E_PEER,
                           "rank %d: the communication thread does not return from %s; leaving without it",
                           comm->engine.rank, sight.job[0] != 0 ? sight.job : comm->engine.library);
    taciti_comm_failure_text(comm, text);
    taciti_error_set("%s", text);
    return TACIT_E_PEER;
}

tacit_status taciti_comm_close(taciti_comm *comm) {
    taciti_log_set_mode(TACITI_LOG_DIRECT);
    if (comm == NULL) return TACIT_OK;
    if (!taciti_comm_thread_stop(comm)) return fail_stuck(comm); /* whatever the thread uses must stay */
    tacit_status status = taciti_comm_health(comm);
    if (status == TACIT_OK) {
        taciti_comm_announce(comm, atomic_load(&atomic_load(&comm->witness)->doing.number), "finish");
        status = taciti_detector_goodbye(comm);
        if (status != TACIT_OK && taciti_guard_installed()) taciti_comm_abort(comm, TACIT_E_PEER);
    }
    if (status != TACIT_OK) {
        abandon_comm(comm);
        return TACIT_E_PEER;
    }
    if (comm->options.same_steps) status = taciti_detector_compare_ends(comm);
    taciti_comm_announce(comm, atomic_load(&atomic_load(&comm->witness)->doing.number), TACITI_DOING_SHUT_DOWN);
    shut_down(comm);
    destroy_comm(comm);
    return status;
}

/* ---- giving up -------------------------------------------------------------------------------------------------- */
void taciti_comm_give_up(taciti_comm *comm) {
    (void)taciti_comm_break(comm, TACIT_E_PEER);
    if (taciti_comm_owns(comm)) {
        taciti_detector_tell(comm);
    } else {
        atomic_store_explicit(&comm->giving_up, 1, memory_order_release);
        taciti_futex_wake(&comm->queue.tail);
    }
}

_Noreturn void taciti_comm_abort(taciti_comm *comm, tacit_status status) {
    taciti_log_settle(true);
    const int code = tacit_status_exit_code(status) == 0 ? 1 : tacit_status_exit_code(status);
    taciti_guard guard = {0};
    taciti_guard_arm(&guard, ABORT_S, code, NULL);
    if (taciti_comm_owns(comm)) {
        comm->engine.abort(comm->engine.self, code);
    } else {
        atomic_store_explicit(&comm->abort_code, code, memory_order_release);
        taciti_futex_wake(&comm->queue.tail);
        taciti_sleep_ns((ABORT_S + 1) * TACITI_NS_PER_S);
    }
    taciti_guard_end_process(code);
    __builtin_trap(); /* nothing is installed: no program called this */
}
