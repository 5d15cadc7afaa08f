/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints against what happens to disks and processes: flipped bits, cut, lost and swapped files, kill -9 at any
 * instant, a full disk, a disk that turned read-only.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>

#include "base/rng.h"
#include "ckpt/manifest.h"
#include "ckpt/stage.h"
#include "ckpt/test_folder.h"
#include "ckpt/test_state.h"

static test_path g_folder;
static test_state g_state;

static int set_up(void **state) {
    (void)state;
    g_folder = folder_create();
    state_create(&g_state);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    state_destroy(&g_state);
    folder_remove(&g_folder);
    return 0;
}

/* Step 1 by one writer and step 2 by two: the newest has two shards. */
static void save_two(void) {
    taciti_stage_share shares[2];
    state_fill(&g_state, 1);
    assert_int_equal(taciti_ckpt_save(NULL, g_folder.text, 1, 2, &g_state.state), TACIT_OK);
    state_fill(&g_state, 2);
    assert_int_equal(taciti_stage_begin(g_folder.text, tmp_of(g_folder.text, 2)), TACIT_OK);
    for (int w = 0; w < 2; w++)
        assert_int_equal(taciti_stage_write(tmp_of(g_folder.text, 2), 2, &g_state.state, w, 2, &shares[w]), TACIT_OK);
    assert_int_equal(
        taciti_stage_commit(g_folder.text, tmp_of(g_folder.text, 2), 2, g_state.state.meta_json, shares, 2), TACIT_OK);
}

static int64_t newest_in(const char *folder) {
    char path[TACITI_PATH_BYTES], *meta = NULL;
    int64_t step = -1;
    if (taciti_ckpt_find(NULL, folder, path, sizeof path, &step, &meta) != TACIT_OK) return -1;
    state_expect_meta(meta, step);
    taciti_free(meta);
    return step;
}

static void expect_loads(const char *folder, int64_t step) {
    char path[TACITI_PATH_BYTES];
    assert_int_equal(newest_in(folder), step);
    assert_int_equal(taciti_stage_path(folder, step, "", path), TACIT_OK);
    state_fill(&g_state, -1);
    assert_int_equal(taciti_ckpt_load(path, g_state.arrays, 2), TACIT_OK);
    state_expect(&g_state, step);
}

static const char *const newest_files[] = {"rank-00000.safetensors", "rank-00001.safetensors", "manifest.json"};
enum { NEWEST_FILES = 3 };

static test_path newest_file(int i) { return path_in(path_in(g_folder.text, "step_00000002").text, newest_files[i]); }

/* ---- damage ------------------------------------------------------------------------------------------------------ */

/* Overwrites one byte in place: rewriting whole files would make the disk the slowest part of the test. */
static void poke(const test_path *path, size_t at, char byte) {
    FILE *file = fopen(path->text, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)at, SEEK_SET), 0);
    assert_int_equal(fputc(byte, file), (unsigned char)byte);
    assert_int_equal(fclose(file), 0);
}

/* Every single bit of every file: all flips must be found. */
static void every_flipped_bit_is_found(void **state) {
    (void)state;
    save_two();
    expect_loads(g_folder.text, 2);
    for (int f = 0; f < NEWEST_FILES; f++) {
        size_t count = 0;
        const test_path path = newest_file(f);
        char *bytes = file_get(path.text, &count);
        for (size_t bit = 0; bit < 8 * count; bit++) {
            poke(&path, bit / 8, (char)(bytes[bit / 8] ^ 1 << bit % 8));
            if (newest_in(g_folder.text) != 1) fail_msg("%s: flip of bit %zu was not found", path.text, bit);
            if (bit % 8 == 7) poke(&path, bit / 8, bytes[bit / 8]);
        }
        taciti_free(bytes);
    }
    expect_loads(g_folder.text, 2);
}

static void every_other_length_is_found(void **state) {
    (void)state;
    save_two();
    for (int f = 0; f < NEWEST_FILES; f++) {
        size_t count = 0;
        const test_path path = newest_file(f);
        char *bytes = file_get(path.text, &count);
        for (size_t length = count + 2; length-- > 0;) {
            assert_int_equal(truncate(path.text, (off_t)length), 0);
            assert_int_equal(newest_in(g_folder.text), length == count ? 2 : 1);
        }
        file_put(path.text, bytes, count);
        taciti_free(bytes);
    }
    expect_loads(g_folder.text, 2);
}

static void lost_files_are_found(void **state) {
    (void)state;
    for (int f = 0; f < NEWEST_FILES; f++) {
        save_two();
        assert_int_equal(unlink(newest_file(f).text), 0);
        expect_loads(g_folder.text, 1);
    }
}

static void swapped_files_are_found(void **state) {
    (void)state;
    save_two();
    const test_path a = newest_file(0), b = newest_file(1), c = path_in(g_folder.text, "aside");
    assert_int_equal(rename(a.text, c.text), 0);
    assert_int_equal(rename(b.text, a.text), 0);
    assert_int_equal(rename(c.text, b.text), 0);
    expect_loads(g_folder.text, 1);
}

/* A shard of another step, of the right size, and a whole checkpoint under another step's name. */
static void files_of_another_step_are_found(void **state) {
    (void)state;
    size_t count = 0;
    state_fill(&g_state, 1);
    assert_int_equal(taciti_ckpt_save(NULL, g_folder.text, 1, 3, &g_state.state), TACIT_OK);
    state_fill(&g_state, 2);
    assert_int_equal(taciti_ckpt_save(NULL, g_folder.text, 2, 3, &g_state.state), TACIT_OK);
    char *bytes = file_get(path_in(path_in(g_folder.text, "step_00000001").text, newest_files[0]).text, &count);
    file_put(newest_file(0).text, bytes, count);
    taciti_free(bytes);
    expect_loads(g_folder.text, 1);
    const test_path one = path_in(g_folder.text, "step_00000001"), nine = path_in(g_folder.text, "step_00000009");
    assert_int_equal(rename(one.text, nine.text), 0);
    assert_int_equal(newest_in(g_folder.text), -1);
}

static void links_are_refused(void **state) {
    (void)state;
    save_two();
    const test_path shard = newest_file(0), aside = path_in(g_folder.text, "aside");
    assert_int_equal(rename(shard.text, aside.text), 0);
    assert_int_equal(symlink(aside.text, shard.text), 0);
    expect_loads(g_folder.text, 1);
}

static void when_all_are_damaged_nothing_is_loaded(void **state) {
    (void)state;
    char path[TACITI_PATH_BYTES], *meta = NULL;
    int64_t step = -1;
    save_two();
    assert_int_equal(unlink(newest_file(2).text), 0);
    assert_int_equal(truncate(path_in(path_in(g_folder.text, "step_00000001").text, newest_files[0]).text, 3), 0);
    assert_int_equal(taciti_ckpt_find(NULL, g_folder.text, path, sizeof path, &step, &meta), TACIT_E_DATA);
    assert_int_equal(step, 2);
    assert_null(meta);
}

/* ---- kill -9 ----------------------------------------------------------------------------------------------------- */

enum { KILLS = 200, FIRST_SPREAD_NS = 10000000, MAX_SPREAD_NS = 500000000 };

/* Saves step after step until it is killed. */
static void save_for_ever(int64_t step) {
    for (;; step++) {
        state_fill(&g_state, step);
        if (taciti_ckpt_save(NULL, g_folder.text, step, 2, &g_state.state) != TACIT_OK) _exit(1);
    }
}

static void kill_after(pid_t child, uint64_t ns) {
    const struct timespec pause = {.tv_sec = 0, .tv_nsec = (long)ns};
    int status = 0;
    (void)nanosleep(&pause, NULL);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* After every kill the newest checkpoint loads, is of one step throughout and is not older than before. */
static void a_kill_at_any_instant_leaves_the_newest_whole(void **state) {
    (void)state;
    int64_t newest = 0;
    uint64_t spread = FIRST_SPREAD_NS;
    state_destroy(&g_state);
    state_create_scaled(&g_state, 4096); /* 0.6 MB per array, so that writing takes part of the time */
    state_fill(&g_state, 0);
    assert_int_equal(taciti_ckpt_save(NULL, g_folder.text, 0, 2, &g_state.state), TACIT_OK);
    for (uint64_t i = 0; i < KILLS; i++) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) save_for_ever(newest + 1);
        kill_after(child, taciti_rng_below(1, i, spread));
        const int64_t found = newest_in(g_folder.text);
        assert_true(found >= newest);
        expect_loads(g_folder.text, found);
        /* However fast the disk is: about every other child gets to finish a save. */
        spread = found > newest ? spread - spread / 8 : spread + spread / 8;
        if (spread > MAX_SPREAD_NS) spread = MAX_SPREAD_NS;
        newest = found;
    }
    assert_true(newest > 0); /* some saves were completed */
}

/* ---- disks ------------------------------------------------------------------------------------------------------- */

/* 1: all of it held; 0: it did not. Runs in a child, where assertions cannot be caught. */
static int survives_a_full_disk(const char *folder) {
    int64_t step = 0;
    tacit_status status = TACIT_OK;
    for (step = 1; step < 1000 && status == TACIT_OK; step++) {
        state_fill(&g_state, step);
        status = taciti_ckpt_save(NULL, folder, step, 1000, &g_state.state);
    }
    step -= 2; /* the last one that was saved */
    if (status != TACIT_E_IO || step < 1 || newest_in(folder) != step) return 0;
    char tmp[TACITI_PATH_BYTES];
    if (taciti_stage_path(folder, step + 1, ".tmp", tmp) != TACIT_OK || file_exists(tmp)) return 0;
    /* With less to keep, the run goes on once there is room: here the oldest is removed by hand. */
    if (taciti_stage_path(folder, 1, "", tmp) != TACIT_OK || taciti_file_remove(tmp) != TACIT_OK) return 0;
    state_fill(&g_state, step + 1);
    return taciti_ckpt_save(NULL, folder, step + 1, 1000, &g_state.state) == TACIT_OK && newest_in(folder) == step + 1;
}

static int survives_a_read_only_disk(const char *folder) {
    const int64_t step = newest_in(folder);
    state_fill(&g_state, step + 1);
    if (step < 1 || mount("none", folder, "tmpfs", MS_REMOUNT | MS_RDONLY, "") != 0) return 0;
    if (taciti_ckpt_save(NULL, folder, step + 1, 1, &g_state.state) != TACIT_E_IO || newest_in(folder) != step)
        return 0;
    if (mount("none", folder, "tmpfs", MS_REMOUNT, "size=8m") != 0) return 0;
    return taciti_ckpt_save(NULL, folder, step + 1, 1, &g_state.state) == TACIT_OK && newest_in(folder) == step + 1;
}

enum { CHILD_FINE = 0, CHILD_WRONG = 1, CHILD_CANNOT = 77 };

/* A small disk of our own, in a mount namespace that ends with the child. */
static int run_on_small_disk(const char *size) {
    char options[32];
    (void)snprintf(options, sizeof options, "size=%s", size);
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return CHILD_CANNOT;
    if (mount("none", g_folder.text, "tmpfs", 0, options) != 0) return CHILD_CANNOT;
    if (!survives_a_full_disk(g_folder.text)) return CHILD_WRONG;
    return survives_a_read_only_disk(g_folder.text) ? CHILD_FINE : CHILD_WRONG;
}

static void a_disk_that_is_full_or_read_only_costs_nothing(void **state) {
    (void)state;
    static const char *const sizes[] = {"1m", "1500k", "2m", "3m", "4m"};
    state_destroy(&g_state);
    state_create_scaled(&g_state, 1000);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int status = 0;
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) _exit(run_on_small_disk(sizes[i]));
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == CHILD_CANNOT) {
            print_message("skipped: mounting a small disk needs root and a mount namespace of its own\n");
            skip();
        }
        assert_int_equal(WEXITSTATUS(status), CHILD_FINE);
    }
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(every_flipped_bit_is_found),
        TEST(every_other_length_is_found),
        TEST(lost_files_are_found),
        TEST(swapped_files_are_found),
        TEST(files_of_another_step_are_found),
        TEST(links_are_refused),
        TEST(when_all_are_damaged_nothing_is_loaded),
        TEST(a_kill_at_any_instant_leaves_the_newest_whole),
        TEST(a_disk_that_is_full_or_read_only_costs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
