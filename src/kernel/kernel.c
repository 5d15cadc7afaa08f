/* SPDX-License-Identifier: Apache-2.0
 *
 * Dispatch: three tables, built once, each starting from the definition and improved by its own sets.
 */
#include "kernel/kernel.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "kernel/sets.h"

enum { SCALAR, AVX2, AVX512, SETS };

static const char *const NAMES[SETS] = {[SCALAR] = "scalar", [AVX2] = "avx2", [AVX512] = "avx512"};
static taciti_kernels g_tables[SETS];
static pthread_once_t g_built = PTHREAD_ONCE_INIT;

/* The compiler's CPU model also asks the operating system (XGETBV) whether it saves the wide registers. Every CPU with
 * AVX2 and FMA has F16C, which not every clang knows by name. */
static bool cpu_has(int set) {
#if TACITI_KERNEL_X86
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (set == AVX2) return avx2;
    if (set == AVX512)
        return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#endif
    return set == SCALAR;
}

#define FAMILIES_OF(set)                                                                                               \
    {                                                                                                                  \
        taciti_kernels_fill_array_##set, taciti_kernels_fill_net_##set, taciti_kernels_fill_select_##set,              \
            taciti_kernels_fill_quantise_##set, taciti_kernels_fill_sketch_##set                                       \
    }

/* A table begins with the definition; every wider set up to its own replaces entries. The functions that fill are
 * compiled for their set, so only a CPU that has the set runs them. */
static void build_tables(void) {
    enum { FAMILIES = 5 };
    static void (*const FILLS[][FAMILIES])(taciti_kernels *) = {
        FAMILIES_OF(scalar),
#if TACITI_KERNEL_X86
        FAMILIES_OF(avx2),
        FAMILIES_OF(avx512),
#endif
    };
    for (int set = 0; set < SETS; set++) {
        g_tables[set].isa = NAMES[set];
        for (int s = 0; s <= set && cpu_has(s); s++)
            for (int f = 0; f < FAMILIES; f++) FILLS[s][f](&g_tables[set]);
    }
}

static int set_of(const char *isa) {
    for (int set = 0; set < SETS; set++)
        if (strcmp(isa, NAMES[set]) == 0 && cpu_has(set)) return set;
    return SETS;
}

const taciti_kernels *taciti_kernels_named(const char *isa) {
    (void)pthread_once(&g_built, build_tables);
    const int set = set_of(isa);
    return set == SETS ? NULL : &g_tables[set];
}

tacit_status taciti_kernels_check(void) {
    const char *forced = getenv("TACIT_ISA");
    if (forced == NULL || forced[0] == '\0' || taciti_kernels_named(forced) != NULL) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "TACIT_ISA=%s is not an instruction set of this CPU and build (scalar, avx2, avx512): unset it",
                       forced);
}

static const taciti_kernels *choose_set(void) {
    const char *forced = getenv("TACIT_ISA");
    if (forced != NULL && forced[0] != '\0') {
        const taciti_kernels *table = taciti_kernels_named(forced);
        return table != NULL ? table : taciti_kernels_named(NAMES[SCALAR]);
    }
    int best = SCALAR;
    for (int set = 0; set < SETS; set++)
        if (cpu_has(set)) best = set;
    return taciti_kernels_named(NAMES[best]);
}

/* The first to ask may be any thread, and several at once. */
static const taciti_kernels *g_chosen;
static pthread_once_t g_choice = PTHREAD_ONCE_INIT;

static void choose_once(void) { g_chosen = choose_set(); }

const taciti_kernels *taciti_kernels_get(void) {
    (void)pthread_once(&g_choice, choose_once);
    return g_chosen;
}

bool taciti_kernels_switch(const char *isa) {
    (void)taciti_kernels_get();
    const taciti_kernels *set = isa == NULL ? choose_set() : taciti_kernels_named(isa);
    if (set != NULL) g_chosen = set;
    return set != NULL;
}

const char *taciti_kernels_isa(size_t index) { return index < SETS ? NAMES[index] : NULL; }
