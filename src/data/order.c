/* SPDX-License-Identifier: Apache-2.0 */
#include "data/order.h"

#include "base/rng.h"

/* Streams of the seed. */
enum { STREAM_PHASE = 0x70686173, STREAM_ORDER = 0x6f726472 };

/* Four rounds make a strong pseudorandom permutation in theory (Luby and Rackoff 1988); two more cost nothing here. */
enum { ROUNDS = 6 };

taciti_sample_order taciti_sample_order_make(uint64_t tokens, uint64_t time) {
    const uint64_t full = (tokens - time) / time, windows = full == 0 ? 1 : full;
    /* Phase p needs p + windows * time + 1 <= tokens. */
    return (taciti_sample_order){.windows = windows, .phases = tokens - windows * time, .time = time};
}

uint64_t taciti_sample_order_permute(uint64_t key, uint64_t n, uint64_t i) {
    unsigned half = 1;
    while (half < 31 && (UINT64_C(1) << (2 * half)) < n) half++;
    const uint64_t mask = (UINT64_C(1) << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            const uint64_t mixed = left ^ (taciti_rng_u64(key + round, right) & mask);
            left = right;
            right = mixed;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

uint64_t taciti_sample_order_start(const taciti_sample_order *order, uint64_t seed, uint64_t sample) {
    const uint64_t epoch = sample / order->windows, index = sample % order->windows;
    const uint64_t phase = taciti_rng_below(taciti_rng_key(seed, STREAM_PHASE), epoch, order->phases);
    const uint64_t key = taciti_rng_key(taciti_rng_key(seed, STREAM_ORDER), epoch);
    return phase + taciti_sample_order_permute(key, order->windows, index) * order->time;
}
