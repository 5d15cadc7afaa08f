/* SPDX-License-Identifier: Apache-2.0
 *
 * Control groups (cgroups, version 1 or 2) of this process, as a container or a job of Slurm has one. Limits hold in
 * the process's own group and in each above it. A group that is not mounted here, as those above a container's, limits
 * nothing that can be read. Any thread.
 */
#ifndef TACITI_BASE_CONTROL_GROUP_H
#define TACITI_BASE_CONTROL_GROUP_H

/* Where the system lists the groups of a process, and where they are mounted. Borrowed. */
typedef struct taciti_group_files {
    const char *list, *mount;
} taciti_group_files;

#define TACITI_GROUPS (&(taciti_group_files){"/proc/self/cgroup", "/sys/fs/cgroup"})

/* Bytes of memory that the groups grant, and what is left of them: the minimum over all groups. Pages of files count as
 * left, for a group reclaims them when memory is short. INFINITY: no limit. */
double taciti_group_memory(const taciti_group_files *files);
double taciti_group_memory_left(const taciti_group_files *files);

/* Cores' worth of time that the groups grant. INFINITY: no limit. */
double taciti_group_cores(const taciti_group_files *files);

#endif
