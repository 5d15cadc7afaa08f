/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits of groups that hold others, in a tree of files like the system's.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/control_group.h"

enum { PATH_BYTES = 512 };

static const double NO_LIMIT = (double)INFINITY;

static char g_root[] = "/tmp/test_control_group.XXXXXX", g_list[PATH_BYTES];
static const taciti_group_files FILES = {g_list, g_root};

/* Writes a file of the tree, and the folders above it. */
static void put(const char *name, const char *text) {
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/%s", g_root, name);
    for (char *slash = strchr(path + strlen(g_root) + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0777);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void)fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static int make_tree(void **state) {
    (void)state;
    (void)strcpy(strrchr(g_root, '.'), ".XXXXXX");
    if (mkdtemp(g_root) == NULL) return -1;
    return snprintf(g_list, sizeof g_list, "%s/list", g_root) > 0 ? 0 : -1;
}

static int remove_tree(void **state) {
    char command[PATH_BYTES];
    (void)state;
    (void)snprintf(command, sizeof command, "rm -r %s", g_root);
    return system(command);
}

static void check(double memory, double left, double cores) {
    assert_float_equal(taciti_group_memory(&FILES), memory, 0);
    assert_float_equal(taciti_group_memory_left(&FILES), left, 0);
    assert_float_equal(taciti_group_cores(&FILES), cores, 0);
}

/* A job of Slurm: the step may use all of the job, which has a limit; the node has none. */
static void a_limit_of_a_group_above_holds(void **state) {
    (void)state;
    put("list", "0::/slurm/job_7/step_0\n");
    put("slurm/job_7/step_0/memory.max", "max\n");
    put("slurm/job_7/step_0/memory.current", "300\n");
    put("slurm/job_7/memory.max", "1000\n");
    put("slurm/job_7/memory.current", "700\n");
    put("slurm/job_7/memory.stat", "anon 500\ninactive_file 150\n");
    put("slurm/job_7/cpu.max", "150000 100000\n");
    put("slurm/job_7/step_0/cpu.max", "max 100000\n");
    put("cpu.max", "400000 100000\n");
    check(1000, 450, 1.5);
    put("slurm/job_7/memory.current", "1200\n"); /* nothing is left, and not less */
    check(1000, 0, 1.5);
}

/* Version 1: every controller has a tree of its own, and may stand in the list with others. */
static void every_controller_has_its_group(void **state) {
    (void)state;
    put("list", "11:cpuset:/other\n4:memory:/a/b\n2:cpu,cpuacct:/c\n1:name=systemd:/\n0::/\n");
    put("memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
    put("memory/a/b/memory.usage_in_bytes", "10\n");
    put("memory/a/memory.limit_in_bytes", "4096\n");
    put("memory/a/memory.usage_in_bytes", "2048\n");
    put("memory/a/memory.stat", "total_inactive_file 1000\ninactive_file 2000\n");
    put("cpu/c/cpu.cfs_quota_us", "-1\n");
    put("cpu/c/cpu.cfs_period_us", "100000\n");
    check(4096, 3048, NO_LIMIT);
    put("cpu/cpu.cfs_quota_us", "50000\n");
    put("cpu/cpu.cfs_period_us", "100000\n");
    check(4096, 3048, 0.5);
}

/* Inside a container the list names folders that only the host has; the mount is the container's group. */
static void the_mount_itself_counts(void **state) {
    (void)state;
    put("list", "0::/docker/1234\n");
    put("memory.max", "5000\n");
    put("memory.current", "1000\n");
    put("cpu.max", "200000 100000\n");
    check(5000, 4000, 2);
}

static void without_groups_there_is_no_limit(void **state) {
    (void)state;
    check(NO_LIMIT, NO_LIMIT, NO_LIMIT); /* no list */
    put("list", "garbage\n::\n3:cpu\n0::/\n");
    check(NO_LIMIT, NO_LIMIT, NO_LIMIT);
    put("memory.max", "much\n");
    put("memory.current", "1\n");
    put("cpu.max", "100000\n");
    check(NO_LIMIT, NO_LIMIT, NO_LIMIT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_limit_of_a_group_above_holds, make_tree, remove_tree),
        cmocka_unit_test_setup_teardown(every_controller_has_its_group, make_tree, remove_tree),
        cmocka_unit_test_setup_teardown(the_mount_itself_counts, make_tree, remove_tree),
        cmocka_unit_test_setup_teardown(without_groups_there_is_no_limit, make_tree, remove_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
