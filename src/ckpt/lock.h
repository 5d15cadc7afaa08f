/* SPDX-License-Identifier: Apache-2.0
 *
 * One owner per run folder. The file folder/lock is locked while the run lives and names the owner (host, pid, start).
 * The kernel releases the lock with the process, so a killed run leaves nothing to remove by hand. On file systems
 * without locks the text decides: an owner on this host is gone if no such process exists; with an owner on another
 * host the folder is refused. Not collective: one rank locks.
 */
#ifndef TACITI_CKPT_LOCK_H
#define TACITI_CKPT_LOCK_H

#include "tacit/tacit.h"

typedef struct taciti_lock {
    int fd;     /* -1: nothing is held */
    bool made;  /* the folder did not exist before */
    char *path; /* of the file; owned */
} taciti_lock;

/* The system call that locks, replaceable in tests. Returns 0 (locked), EAGAIN (held by another process) or another
 * error. NULL: the kernel's lock of an open file. */
typedef int taciti_lock_call(int fd);

/* Locks `folder`, which this option names, and creates it if it is missing. The message of E_CONFIG names the owner and
 * what to do; E_IO means that the folder cannot be written. Changes nothing in a refused folder. */
tacit_status taciti_lock_take(const char *folder, const char *option, taciti_lock_call *call, taciti_lock *out);

/* Removes the file, and the folder if taciti_lock_take() created it and it is empty. {.fd = -1} is allowed. */
void taciti_lock_release(taciti_lock *lock);

#endif
