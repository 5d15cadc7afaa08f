/* SPDX-License-Identifier: Apache-2.0
 *
 * Where ranks meet before they are connected: a store of small values under keys. Every rank sets one value and reads
 * those of others. The store may be a caller's own (torch.distributed has one), a folder that all ranks see, or a port
 * of rank 0. A value is set once per key; a reader must expect that a folder still holds values of an earlier run.
 */
#ifndef TACITI_COMM_BOOTSTRAP_H
#define TACITI_COMM_BOOTSTRAP_H

#include <stddef.h>

#include "comm/seal.h"
#include "tacit/tacit.h"

enum {
    TACITI_BOOTSTRAP_KEY_BYTES = 64,    /* with the terminating zero; letters, digits, '-', '_' and '.' */
    TACITI_BOOTSTRAP_VALUE_BYTES = 512, /* the longest value that a rank sets */
    TACITI_BOOTSTRAP_ROOM_BYTES = 4096, /* for a value that somebody else may have left in a store */
};

typedef struct taciti_bootstrap {
    void *self;
    /* Stores a copy of n bytes, replacing an older value. Keys are valid and values no longer than the maximum. */
    tacit_status (*set)(void *self, const char *key, const void *bytes, size_t n);
    /* Waits for up to timeout_s until the key has a value, and copies it. timeout_s = 0: asks once. Returns E_PEER if
     * the time is over, E_DATA if the value is longer than `max`, PENDING if the program ends the wait
     * (base/interrupt.h), as set may. In the first case it logs nothing, but sets the error's text (taciti_error_set):
     * the caller knows which rank is missing. Writes *n only on success. */
    tacit_status (*get)(void *self, const char *key, void *bytes, size_t max, size_t *n, double timeout_s);
    /* Drops this rank's value when nobody reads it any more. NULL: the store goes as a whole. */
    void (*forget)(void *self, const char *key);
} taciti_bootstrap;

/* A store in a folder that all ranks see. Every value is a file of its own, written under a temporary name and renamed,
 * so that nobody reads half of it. Creates the folder if it is missing; then a close removes it if it is empty. The
 * folder must be empty, or be left over from an earlier run of the same ranks. */
tacit_status taciti_bootstrap_folder_open(const char *folder, taciti_bootstrap *out);
void taciti_bootstrap_folder_close(taciti_bootstrap *bootstrap);

/* A store in the memory of rank 0, which listens on host:port ("10.0.0.1:4711", "[fe80::1]:4711", "node0:4711"); the
 * others connect to it, for up to timeout_s each time. Rank 0 serves from a thread until it closes the store, and must
 * not do so before all ranks have read what they need. Limits: 4 values per rank, a connection per rank and a few more;
 * one that asks nothing for 5 s is closed.
 *
 * origin: who has named the address, for messages ("comm.meet"); NULL: nobody needs to know.
 *
 * key (copied): both sides prove it in every word, and rank 0 answers nobody else. NULL: the store does not know who is
 * asking. Whoever reaches the port can read the cookie of the run and so join, or put wrong addresses there: it keeps
 * out only what comes by accident. */
tacit_status taciti_bootstrap_port_open(const char *address, const char *origin, int rank, int size, double timeout_s,
                                        const taciti_seal_key *key, taciti_bootstrap *out);
void taciti_bootstrap_port_close(taciti_bootstrap *bootstrap);

/* Writes the address of this host, as a number, by which this rank reaches rank 0 or on which rank 0 listens: a good
 * taciti_tcp_request.interface. "" if it is not known, or if no interface has it (127.0.1.1). */
void taciti_bootstrap_port_local_address(const taciti_bootstrap *bootstrap, char *out, size_t bytes);

#endif
