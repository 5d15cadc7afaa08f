/* SPDX-License-Identifier: Apache-2.0
 *
 * One owner per run folder: the file folder/lock, held as long as the run lives, names the owner (host, pid, start).
 * The kernel frees a lock with its process, so a run that was killed leaves nothing that must be removed by hand. On
 * file systems without locks the text of the file decides: its owner counts as gone when this host has no such process
 * any more; of an owner on another host nothing is known, so the folder is refused. Not collective: one rank locks.
 */
#ifndef TACITI_CKPT_LOCK_H
#define TACITI_CKPT_LOCK_H

#include <stdbool.h>

#include "tacit/tacit.h"

typedef struct taciti_lock {
    int fd;     /* -1: nothing is held */
    bool made;  /* the folder did not exist before */
    char *path; /* of the file; owned */
} taciti_lock;

/* The system call behind it, replaceable in tests: 0 locked, EAGAIN held by somebody else, other errors of the system.
 * NULL: the kernel's lock of an open file. */
typedef int taciti_lock_call(int fd);

/* Takes `folder`, which is created when missing. E_CONFIG names the owner and what to do; E_IO when the folder cannot
 * be written. Nothing in a folder that is refused changes. */
tacit_status taciti_lock_take(const char *folder, taciti_lock_call *call, taciti_lock *out);

/* Removes the file, and the folder when it was made by taciti_lock_take() and is empty. {.fd = -1} is fine. */
void taciti_lock_release(taciti_lock *lock);

#endif
