/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixing matrices of three ranks.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "topo/topo.h"

enum { RANKS = 3 };

/* A matrix that was accepted has weights from 0 to 1 and keeps the sum, and the mean too unless it is directed. */
static void check(const taciti_topology *t) {
    const double x[RANKS] = {0.25, -1, 3}, same[RANKS] = {1, 1, 1};
    if (t->ranks != RANKS || t->period < 1) abort();
    for (size_t r = 0; r < t->period; r++) {
        double y[RANKS], z[RANKS];
        taciti_topology_mix(t, r, x, y);
        taciti_topology_mix(t, r, same, z);
        for (int i = 0; i < RANKS * RANKS; i++) {
            const double w = taciti_topology_weight(t, r, i / RANKS, i % RANKS);
            if (!(w >= -1e-9 && w <= 1 + 1e-9)) abort();
        }
        if (!(fabs(y[0] + y[1] + y[2] - 2.25) <= 1e-7)) abort();
        for (int i = 0; i < RANKS; i++)
            if (!t->directed && !(fabs(z[i] - 1) <= 1e-8)) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const taciti_topo_request request = {.name = "file", .ranks = RANKS, .file = fuzz_file(data, size)};
    taciti_topology topology;
    if (taciti_topology_create(&request, &topology) == TACIT_OK) {
        check(&topology);
        taciti_topology_destroy(&topology);
    }
    return 0;
}

size_t fuzz_seed(size_t i, uint8_t *out) {
    static const char *const texts[] = {
        "0.5,0.5,0\n0.5,0.25,0.25\n0,0.25,0.75\n",
        "# two rounds\n.5,.5,0\r\n.5,.5,0\r\n0,0,1\r\n\n1,0,0\n0,5e-1,.5\n0, .5 ,\t.5",
        "0.5,0.25,0.5\n0.5,0.5,0\n0,0.25,0.5\n",
    };
    if (i >= sizeof texts / sizeof *texts) return 0;
    memcpy(out, texts[i], strlen(texts[i]));
    return strlen(texts[i]);
}
