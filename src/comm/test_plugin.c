/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers, plugins and the choice of the engine. Tests run in the order of main(): a plugin stays open once it is.
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "comm/meet.h"
#include "comm/plugin.h"
#include "comm/test_engine.h"

/* Tests begin without a launcher and with an empty log. */
static int set_up(void **state) {
    static const char *const VARIABLES[] = {"OMPI_COMM_WORLD_RANK",
                                            "OMPI_COMM_WORLD_SIZE",
                                            "OMPI_COMM_WORLD_LOCAL_RANK",
                                            "SLURM_PROCID",
                                            "SLURM_STEP_NUM_TASKS",
                                            "SLURM_LOCALID",
                                            "PMIX_RANK",
                                            "PMI_RANK",
                                            "PMI_SIZE",
                                            "PMI_FD",
                                            "MPI_LOCALRANKID",
                                            "RANK",
                                            "WORLD_SIZE",
                                            "TACIT_PLUGINS"};
    (void)state;
    for (size_t i = 0; i < sizeof VARIABLES / sizeof *VARIABLES; i++) (void)unsetenv(VARIABLES[i]);
    test_log_keep();
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    test_log_drop();
    return 0;
}

/* ---- launcher ---------------------------------------------------------------------------------------------------- */
static void launchers_are_told_apart(void **state) {
    (void)state;
    assert_null(taciti_launcher_detect().name);
    assert_int_equal(taciti_launcher_detect().size, 1);
    (void)setenv("PMI_RANK", "1", 1);
    (void)setenv("PMI_SIZE", "2", 1);
    assert_string_equal(taciti_launcher_detect().name, "mpiexec (MPICH)");
    assert_string_equal(taciti_launcher_detect().family, "mpich");
    assert_true(taciti_launcher_detect().first_of_host); /* nothing tells otherwise */
    (void)setenv("MPI_LOCALRANKID", "1", 1);
    assert_false(taciti_launcher_detect().first_of_host);
    (void)setenv("SLURM_PROCID", "3", 1);
    (void)setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    assert_int_equal(taciti_launcher_detect().rank, 3);
    assert_string_equal(taciti_launcher_detect().family, "mpich"); /* srun --mpi=pmi2 */
    (void)setenv("PMIX_RANK", "3", 1);
    assert_string_equal(taciti_launcher_detect().family, "openmpi");
    (void)unsetenv("PMIX_RANK");
    (void)unsetenv("PMI_RANK");
    assert_null(taciti_launcher_detect().family);
    (void)setenv("OMPI_COMM_WORLD_RANK", "5", 1);
    (void)setenv("OMPI_COMM_WORLD_SIZE", "8", 1);
    assert_int_equal(taciti_launcher_detect().size, 8);
    assert_string_equal(taciti_launcher_detect().family, "openmpi");
    (void)setenv("OMPI_COMM_WORLD_SIZE", "8x", 1); /* not a number: not believed */
    assert_int_equal(taciti_launcher_detect().size, 4);
}

static void lonely_processes_are_refused_with_the_command(void **state) {
    (void)state;
    const taciti_launcher launcher = {.name = "mpiexec (MPICH)", .rank = 0, .size = 4}, other = {.rank = 1, .size = 4};
    assert_int_equal(taciti_launcher_refuse(&launcher, "mpich", "Some MPI 1.0"), TACIT_E_USAGE);
    assert_int_equal(taciti_launcher_refuse(&other, "mpich", "Some MPI 1.0"), TACIT_E_USAGE);
    assert_int_equal(test_log_count(""), 1);
    assert_int_equal(test_log_count("-n 4"), 1);
    assert_int_equal(test_log_count("test_plugin"), 1);
}

/* ---- plugins ----------------------------------------------------------------------------------------------------- */

/* Opening must fail with one line that contains the text. */
static void refused(const char *family, const char *text) {
    const taciti_plugin *plugin = NULL;
    const int before = test_log_count("");
    assert_int_equal(taciti_plugin_open(family, &plugin), TACIT_E_UNSUPPORTED);
    assert_null(plugin);
    assert_int_equal(test_log_count(""), before + 1);
    assert_non_null(strstr(taciti_error_text(), text));
}

static void a_missing_plugin_is_refused_with_file_folder_and_package(void **state) {
    (void)state;
    (void)setenv("TACIT_PLUGINS", "/nowhere", 1);
    assert_false(taciti_plugin_exists("openmpi"));
    assert_null(taciti_plugin_first());
    refused("openmpi", "libtacit-mpi-openmpi.so");
    refused("openmpi", "/nowhere:");
    refused("openmpi", "openmpi-bin");
    refused("mpich", "apt-get install mpich");
    refused("lam", "\"lam\"");
}

/* Beside the program, in lib beside its folder, and where an installation has it. */
static void without_a_folder_plugins_are_looked_for_beside_the_program(void **state) {
    (void)state;
    const taciti_plugin *plugin = NULL;
    (void)setenv("TACIT_PLUGINS", "", 1);
    if (taciti_plugin_exists("openmpi")) { /* the build tree has one */
        assert_string_equal(taciti_plugin_first(), "openmpi");
        return;
    }
    assert_int_equal(taciti_plugin_open("openmpi", &plugin), TACIT_E_UNSUPPORTED);
    assert_non_null(strstr(taciti_error_text(), "/unit, "));
    assert_non_null(strstr(taciti_error_text(), "/unit/../lib, "));
}

static void a_plugin_of_another_version_is_refused(void **state) {
    (void)state;
    (void)setenv("TACIT_PLUGINS", TEST_PLUGINS "/1", 1);
    assert_string_equal(taciti_plugin_first(), "mpich");
    refused("mpich", "/1/libtacit-mpi-mpich.so belongs to another version");
}

/* Writes the first `keep` bytes of the right plugin, or of one without our function, and opens that. */
static void open_torn(const char *folder, const char *bytes, size_t keep, const char *text) {
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/libtacit-mpi-mpich.so", folder);
    assert_int_equal(taciti_file_write(path, bytes, keep), TACIT_OK);
    refused("mpich", text);
    assert_int_equal(unlink(path), 0);
}

static void a_torn_file_is_refused(void **state) {
    (void)state;
    char folder[] = "/tmp/tacit-plugin-XXXXXX", *bytes = NULL;
    size_t count = 0;
    assert_non_null(mkdtemp(folder));
    (void)setenv("TACIT_PLUGINS", folder, 1);
    assert_int_equal(taciti_file_read(TEST_PLUGINS "/0/libtacit-mpi-mpich.so", (size_t)1 << 30, &bytes, &count),
                     TACIT_OK);
    open_torn(folder, bytes, 0, "not a whole library");
    open_torn(folder, bytes, 10, "not a whole library");
    open_torn(folder, bytes, sizeof "\177ELF" - 1, "not a whole library");
    for (size_t part = 1; part < 8; part++) open_torn(folder, bytes, count * part / 8, "not a whole library");
    open_torn(folder, bytes, count - 1, "not a whole library");
    memset(bytes + 16, 0xff, 2); /* a kind of file that the loader does not know */
    open_torn(folder, bytes, count, "cannot be opened");
    taciti_free(bytes);
    assert_int_equal(rmdir(folder), 0);
}

static void a_plugin_that_fits_is_opened_and_kept(void **state) {
    (void)state;
    const taciti_plugin *plugin = NULL, *again = NULL;
    char library[64];
    taciti_engine engine;
    (void)setenv("TACIT_PLUGINS", TEST_PLUGINS "/0", 1);
    assert_int_equal(taciti_plugin_open("mpich", &plugin), TACIT_OK);
    plugin->library(library, sizeof library);
    assert_string_equal(library, "Test MPI 1.0");
    assert_int_equal(plugin->open(&(taciti_mpi_request){.threaded = true}, &engine), TACIT_E_PEER);
    assert_string_equal(taciti_error_text(), "this plugin opens nothing, threaded 1");
    (void)setenv("TACIT_PLUGINS", "/nowhere", 1);
    assert_int_equal(taciti_plugin_open("mpich", &again), TACIT_OK);
    assert_ptr_equal(again, plugin);
    assert_null(taciti_plugin_linked()); /* it is open for us only */
}

/* ---- the choice -------------------------------------------------------------------------------------------------- */
static const taciti_launcher ALONE = {.size = 1},
                             ONE = {.name = "mpirun (Open MPI)", .family = "openmpi", .mpi = true, .size = 1},
                             FOUR = {.name = "mpiexec (MPICH)", .family = "mpich", .mpi = true, .rank = 0, .size = 4},
                             THIRD = {.name = "mpiexec (MPICH)", .family = "mpich", .mpi = true, .rank = 2, .size = 4},
                             TORCH = {.name = "torchrun", .size = 4, .local_size = 4};

static void chosen(int wanted, const taciti_launcher *launcher, taciti_engine_kind kind, const char *reason) {
    taciti_engine_choice choice;
    assert_int_equal(taciti_engine_choose(wanted, launcher, &choice), TACIT_OK);
    assert_int_equal(choice.kind, kind);
    assert_true((choice.family != NULL) == (kind == TACITI_ENGINE_MPI));
    assert_string_equal(choice.reason, reason);
}

static void the_launcher_decides_unless_an_engine_is_named(void **state) {
    (void)state;
    chosen(TACITI_ENGINE_AUTO, &ALONE, TACITI_ENGINE_SELF, "no launcher started this process");
    chosen(TACITI_ENGINE_AUTO, &ONE, TACITI_ENGINE_SELF, "mpirun (Open MPI) started one process");
    chosen(TACITI_ENGINE_AUTO, &FOUR, TACITI_ENGINE_MPI, "mpiexec (MPICH) started 4 processes");
    chosen(TACITI_ENGINE_MPI, &FOUR, TACITI_ENGINE_MPI, "mpiexec (MPICH) started 4 processes");
    chosen(TACITI_ENGINE_MPI, &ALONE, TACITI_ENGINE_MPI, "the configuration says so");
    chosen(TACITI_ENGINE_SELF, &ALONE, TACITI_ENGINE_SELF, "the configuration says so");
    chosen(TACITI_ENGINE_AUTO, &TORCH, TACITI_ENGINE_TCP, "torchrun started 4 processes");
    chosen(TACITI_ENGINE_TCP, &FOUR, TACITI_ENGINE_TCP, "mpiexec (MPICH) started 4 processes");
    chosen(TACITI_ENGINE_TCP, &ALONE, TACITI_ENGINE_SELF, "no launcher started this process");
    assert_string_equal(taciti_engine_family(&FOUR), "mpich");
    assert_string_equal(taciti_engine_family(&ONE), "openmpi");
    (void)setenv("TACIT_PLUGINS", TEST_PLUGINS "/0", 1);
    assert_string_equal(taciti_engine_family(&ALONE), "mpich"); /* the only one there */
    (void)setenv("TACIT_PLUGINS", "/nowhere", 1);
    assert_string_equal(taciti_engine_family(&ALONE), "openmpi");
}

/* Refused with this text, which is logged as often as said. */
static void contradicts(int wanted, const taciti_launcher *launcher, tacit_status status, const char *text, int lines) {
    taciti_engine_choice choice;
    const int before = test_log_count("");
    assert_int_equal(taciti_engine_choose(wanted, launcher, &choice), status);
    assert_non_null(strstr(taciti_error_text(), text));
    assert_int_equal(test_log_count(""), before + lines);
}

static void ranks_of_torch(const char *rank, const char *size) {
    (void)setenv("RANK", rank, 1);
    (void)setenv("WORLD_SIZE", size, 1);
}

/* They would leave every process alone. */
static void variables_that_name_no_rank_are_refused(void **state) {
    (void)state;
    static const char *const PAIRS[][2] = {{"", "2"}, {"0", ""}, {"x", "2"}, {"-1", "2"}, {"0", "0"}, {"1 ", "2"}};
    for (size_t i = 0; i < sizeof PAIRS / sizeof *PAIRS; i++) {
        ranks_of_torch(PAIRS[i][0], PAIRS[i][1]);
        contradicts(TACITI_ENGINE_AUTO, &ALONE, TACIT_E_USAGE, "a rank needs both", 1);
        chosen(TACITI_ENGINE_SELF, &ALONE, TACITI_ENGINE_SELF, "the configuration says so");
    }
    ranks_of_torch("2", "2");
    contradicts(TACITI_ENGINE_AUTO, &TORCH, TACIT_E_USAGE, "rank 2 of 2 cannot be", 1);
    ranks_of_torch("0", "99999999");
    contradicts(TACITI_ENGINE_AUTO, &TORCH, TACIT_E_USAGE, "16384 is the maximum", 1);
    ranks_of_torch("", "");
    chosen(TACITI_ENGINE_AUTO, &ALONE, TACITI_ENGINE_SELF, "no launcher started this process");
}

static void contradictions_are_refused_once(void **state) {
    (void)state;
    contradicts(TACITI_ENGINE_SELF, &FOUR, TACIT_E_CONFIG, "each would train alone", 1);
    contradicts(TACITI_ENGINE_SELF, &THIRD, TACIT_E_CONFIG, "each would train alone", 0);
    ranks_of_torch("2", "4");
    chosen(TACITI_ENGINE_AUTO, &THIRD, TACITI_ENGINE_MPI, "mpiexec (MPICH) started 4 processes");
    contradicts(TACITI_ENGINE_AUTO, &FOUR, TACIT_E_USAGE, "rank 0 of mpiexec (MPICH), but RANK is 2", 1);
    contradicts(TACITI_ENGINE_AUTO, &ONE, TACIT_E_USAGE, "started 1 process, but WORLD_SIZE is 4", 1);
    ranks_of_torch("0", "2");
    contradicts(TACITI_ENGINE_AUTO, &FOUR, TACIT_E_USAGE, "started 4 processes, but WORLD_SIZE is 2", 1);
    contradicts(TACITI_ENGINE_AUTO, &THIRD, TACIT_E_USAGE, "started 4 processes, but WORLD_SIZE is 2", 0);
    contradicts(TACITI_ENGINE_MPI, &TORCH, TACIT_E_CONFIG, "MPI would see one", 1);
    ranks_of_torch("0", "1");
    chosen(TACITI_ENGINE_AUTO, &ALONE, TACITI_ENGINE_SELF, "no launcher started this process");
    ranks_of_torch("zero", "4"); /* not torchrun's: the launcher of MPI is believed */
    chosen(TACITI_ENGINE_AUTO, &ONE, TACITI_ENGINE_SELF, "mpirun (Open MPI) started one process");
}

static void ranks_meet_where_they_are_told(void **state) {
    (void)state;
    taciti_comm_options options = {.start_s = 1};
    taciti_meeting_place found;
    (void)setenv("MASTER_ADDR", "10.0.0.1", 1);
    (void)setenv("MASTER_PORT", "29500", 1);
    assert_int_equal(taciti_meet_find(&options, &TORCH, &found), TACIT_OK);
    assert_true(found.by_port);
    assert_string_equal(found.place, "10.0.0.1:29501");
    (void)setenv("MASTER_ADDR", "fe80::1", 1);
    assert_int_equal(taciti_meet_find(&options, &TORCH, &found), TACIT_OK);
    assert_string_equal(found.place, "[fe80::1]:29501");
    (void)unsetenv("PMIX_NAMESPACE");
    (void)unsetenv("SLURM_JOB_ID");
    static const char *const BAD[] = {"65535", "0", "-1", "29500x", "port"};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        char text[64];
        (void)setenv("MASTER_PORT", BAD[i], 1);
        (void)snprintf(text, sizeof text, "MASTER_PORT is \"%s\"", BAD[i]);
        assert_int_equal(taciti_meet_find(&options, &TORCH, &found), TACIT_E_CONFIG);
        assert_non_null(strstr(taciti_error_text(), text));
    }
    (void)unsetenv("MASTER_PORT");
    assert_int_equal(taciti_meet_find(&options, &TORCH, &found), TACIT_E_CONFIG);
    assert_int_equal(taciti_meet_find(&options, &FOUR, &found), TACIT_E_CONFIG);
    (void)setenv("PMIX_NAMESPACE", "job/7", 1);
    assert_int_equal(taciti_meet_find(&options, &FOUR, &found), TACIT_E_CONFIG); /* on several hosts, perhaps */
    assert_int_equal(taciti_meet_find(&options, &TORCH, &found), TACIT_OK);
    assert_non_null(strstr(found.place, "-job_7"));
    assert_false(found.by_port);
    (void)unlink(found.place);
    assert_int_equal(symlink("/var/tmp", found.place), 0); /* put there by somebody else */
    assert_int_equal(taciti_meet_open(&options, &TORCH, NULL, &found), TACIT_E_CONFIG);
    (void)unlink(found.place);
    (void)snprintf(options.meet.text, sizeof options.meet.text, "node0:4711");
    assert_int_equal(taciti_meet_find(&options, &FOUR, &found), TACIT_OK);
    assert_true(found.by_port && strcmp(found.place, "node0:4711") == 0);
    (void)snprintf(options.meet.text, sizeof options.meet.text, "./here");
    assert_int_equal(taciti_meet_find(&options, &FOUR, &found), TACIT_OK);
    assert_true(!found.by_port && strcmp(found.place, "./here") == 0);
}

static _Atomic int g_others_have_come;

/* Others come when it was said that they are missing. */
static void let_others_come(void *context, taciti_log_level level, const char *line) {
    (void)context, (void)level;
    if (strstr(line, "rank 0: MPI has not duplicated the communicator within 0.01 s (comm.start)") != NULL)
        atomic_store(&g_others_have_come, 1);
}

static void ranks_that_do_not_open_a_communicator_are_missed(void **state) {
    (void)state;
    const taciti_comm_options options = {.start_s = 0.01};
    taciti_comm *comm = NULL;
    taciti_log_set_sink(let_others_come, NULL, TACITI_LOG_WARN);
    assert_int_equal(taciti_comm_open_among(&options, "mpich", &g_others_have_come, &comm), TACIT_E_PEER);
    assert_int_equal(atomic_load(&g_others_have_come), 1);
}

/* Last: the library stays in the process. */
static void a_library_that_the_program_uses_goes_first(void **state) {
    (void)state;
    const taciti_plugin *plugin = NULL;
    const taciti_comm_options options = {.engine = TACITI_ENGINE_SELF};
    taciti_comm *comm = NULL;
    const int number = 0;
    assert_non_null(dlopen(TEST_PLUGINS "/0/libtacit-mpi-mpich.so", RTLD_NOW | RTLD_GLOBAL));
    assert_string_equal(taciti_plugin_linked(), "mpich");
    assert_string_equal(taciti_engine_family(&ONE), "mpich");
    assert_int_equal(taciti_plugin_open("openmpi", &plugin), TACIT_E_USAGE);
    assert_int_equal(test_log_count("uses the MPI library mpich already"), 1);
    assert_int_equal(taciti_comm_open_among(&options, "mpich", &number, &comm), TACIT_E_CONFIG);
    assert_int_equal(test_log_count("comm.engine is self"), 1);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(launchers_are_told_apart),
        TEST(lonely_processes_are_refused_with_the_command),
        TEST(a_missing_plugin_is_refused_with_file_folder_and_package),
        TEST(without_a_folder_plugins_are_looked_for_beside_the_program),
        TEST(a_plugin_of_another_version_is_refused),
        TEST(a_torn_file_is_refused),
        TEST(a_plugin_that_fits_is_opened_and_kept),
        TEST(the_launcher_decides_unless_an_engine_is_named),
        TEST(variables_that_name_no_rank_are_refused),
        TEST(contradictions_are_refused_once),
        TEST(ranks_meet_where_they_are_told),
        TEST(ranks_that_do_not_open_a_communicator_are_missed),
        TEST(a_library_that_the_program_uses_goes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
