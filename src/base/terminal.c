/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "base/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/system.h"

enum { ANCESTORS = 4, TEXT_BYTES = 256 };

/* Returns the parent and the name of a process, 0 at the end. */
static int read_parent(int pid, char name[TEXT_BYTES]) {
    char line[TACITI_PROCESS_BYTES];
    const char *parent = taciti_process_field(pid, TACITI_PROCESS_PARENT, line);
    if (parent == NULL) return 0;
    const char *open = strchr(line, '('), *close = strrchr(line, ')');
    (void)snprintf(name, TEXT_BYTES, "%.*s", open == NULL ? 0 : (int)(close - open - 1), open == NULL ? "" : open + 1);
    return (int)strtol(parent, NULL, 10);
}

/* The process id of mpirun among the ancestors, or 0: on other hosts than the launcher's there is none. */
static int find_launcher(void) {
    char name[TEXT_BYTES] = "";
    int pid = (int)getppid();
    for (int i = 0; i < ANCESTORS && pid > 1; i++) {
        const int parent = read_parent(pid, name);
        if (strncmp(name, "mpirun", 6) == 0 || strncmp(name, "orterun", 7) == 0 || strncmp(name, "mpiexec", 7) == 0)
            return pid;
        pid = parent;
    }
    return 0;
}

static bool launcher_has_terminal(void) {
    char link[64], target[TEXT_BYTES];
    const int launcher = find_launcher();
    if (launcher == 0) return false;
    (void)snprintf(link, sizeof link, "/proc/%d/fd/1", launcher);
    const ssize_t count = readlink(link, target, sizeof target - 1);
    if (count <= 0) return false;
    target[count] = '\0';
    return strncmp(target, "/dev/pts/", 9) == 0 || strncmp(target, "/dev/tty", 8) == 0;
}

bool taciti_terminal_live(FILE *stream) {
    const int fd = fileno(stream);
    const char *term = getenv("TERM");
    if (fd < 0 || !isatty(fd) || (term != NULL && strcmp(term, "dumb") == 0)) return false;
    return getenv("OMPI_COMM_WORLD_RANK") == NULL || launcher_has_terminal();
}

bool taciti_terminal_colour(FILE *stream) {
    const char *no_colour = getenv("NO_COLOR"); /* https://no-color.org: any value but the empty one */
    return (no_colour == NULL || *no_colour == '\0') && taciti_terminal_live(stream);
}
