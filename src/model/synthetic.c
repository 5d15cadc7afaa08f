/* SPDX-License-Identifier: Apache-2.0 */
#include "model/synthetic.h"

#include <math.h>

#include "base/memory.h"
#include "base/rng.h"
#include "kernel/kernel.h"

/* The pool stays in a core's second-level cache. Places are whole cache lines. */
enum { BLOCK = TACITI_SYNTHETIC_BLOCK, POOL = 65536, LINE = 16, MAGNITUDES = 256 };
static const double MAGNITUDE_SIGMA = 1; /* of the logarithm: kurtosis of the elements 3 e^4 = 164 */

struct taciti_synthetic {
    float pool[POOL + BLOCK];     /* standard normal */
    float magnitudes[MAGNITUDES]; /* log-normal, alternating signs */
};

double taciti_synthetic_normal(uint64_t key, uint64_t index) {
    const double radius = sqrt(-2 * log(1 - taciti_rng_unit(key, 2 * index)));
    return radius * cos(6.28318530717958647692 * taciti_rng_unit(key, 2 * index + 1));
}

tacit_status taciti_synthetic_create(int64_t seed, taciti_synthetic **out) {
    taciti_synthetic *s = taciti_calloc(1, sizeof *s);
    if (s == NULL) return TACIT_E_MEMORY;
    const uint64_t pool_key = taciti_rng_key((uint64_t)seed, 'p'), magnitude_key = taciti_rng_key((uint64_t)seed, 'm');
    for (size_t i = 0; i < POOL + BLOCK; i++) s->pool[i] = (float)taciti_synthetic_normal(pool_key, i);
    for (size_t i = 0; i < MAGNITUDES; i++) {
        const double magnitude = exp(MAGNITUDE_SIGMA * taciti_synthetic_normal(magnitude_key, i));
        s->magnitudes[i] = (float)(i % 2 == 0 ? magnitude : -magnitude);
    }
    *out = s;
    return TACIT_OK;
}

void taciti_synthetic_destroy(taciti_synthetic *synthetic) { taciti_free(synthetic); }

void taciti_synthetic_write(const taciti_synthetic *synthetic, uint64_t key, float magnitude, size_t begin, size_t end,
                            float *out) {
    const taciti_kernels *kernels = taciti_kernels_get();
    for (size_t at = begin; at < end; at += BLOCK) {
        const uint64_t bits = taciti_rng_u64(key, at / BLOCK);
        const size_t place = (size_t)(bits >> 32) % (POOL / LINE) * LINE, left = end - at;
        kernels->scaled_copy(out + at, synthetic->pool + place, magnitude * synthetic->magnitudes[bits % MAGNITUDES],
                             left < BLOCK ? left : BLOCK);
    }
}
