/* SPDX-License-Identifier: Apache-2.0
 *
 * The array kernels: the scalar set against definitions written again here, every other set against the scalar one byte
 * by byte, over all small sizes, all alignments and all kinds of numbers.
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/rng.h"
#include "kernel/kernel.h"
#include "kernel/test_sets.h"

enum { SMALL = 130, ALIGNMENTS = 16, LARGE = 70001, SPECIALS = 16, GUARD = 16 };
static const size_t LARGE_SIZES[] = {1000, 4095, 4096, 4097, 16383, LARGE};

static uint32_t to_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The one NaN of these inputs is the one that operations create, so that payloads are specified everywhere. */
static const uint32_t SPECIAL_BITS[SPECIALS] = {0x00000000, 0x80000000, 0x3f800000, 0xbf800000, 0x00000001, 0x80000001,
                                                0x007fffff, 0x00800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000,
                                                0xffc00000, 0x3f808000, 0x3f818000, 0x7f7f8000};

typedef enum { ORDINARY, MIXED, ANY_BITS, KINDS } kind;

static float number(kind k, uint64_t key, size_t i) {
    const uint64_t r = taciti_rng_u64(key, i);
    if (k == ANY_BITS) {
        const float x = from_bits((uint32_t)r);
        return isnan(x) ? from_bits(0xffc00000) : x;
    }
    if (k == MIXED && (r & 3) == 0) return from_bits(SPECIAL_BITS[(r >> 8) % SPECIALS]);
    return (float)ldexp(taciti_rng_unit(key + 1, i) * 2 - 1, (int)((r >> 16) % 20) - 14);
}

/* ---- work arrays: filled again for every case, with a guard behind element n ----------------------------------- */

enum { ARRAYS = 7 };
typedef struct arrays {
    float *f[ARRAYS]; /* 64-byte aligned, LARGE + GUARD + ALIGNMENTS floats each */
    taciti_bf16 *h;
} arrays;

static arrays g_expected, g_actual, g_numbers; /* g_numbers: what both begin with in the current case */

static int allocate(void **state) {
    (void)state;
    arrays *const all[] = {&g_expected, &g_actual, &g_numbers};
    for (size_t b = 0; b < 3; b++) {
        for (size_t a = 0; a < ARRAYS; a++)
            if ((all[b]->f[a] = taciti_calloc(LARGE + GUARD + ALIGNMENTS, sizeof(float))) == NULL) return -1;
        if ((all[b]->h = taciti_calloc(LARGE + GUARD + ALIGNMENTS, sizeof(taciti_bf16))) == NULL) return -1;
    }
    return 0;
}

static int release(void **state) {
    (void)state;
    const arrays *const all[] = {&g_expected, &g_actual, &g_numbers};
    for (size_t b = 0; b < 3; b++) {
        for (size_t a = 0; a < ARRAYS; a++) taciti_free(all[b]->f[a]);
        taciti_free(all[b]->h);
    }
    return 0;
}

typedef struct one_case {
    size_t n,
        shift; /* shift: every array begins `shift` elements behind a 64-byte boundary, array a by shift * (a+1) */
    kind k;
    uint64_t key;
} one_case;

static size_t shift_of(const one_case *c, size_t array) { return c->shift * (array + 1) % ALIGNMENTS; }

static void draw_numbers(const one_case *c) {
    for (size_t a = 0; a < ARRAYS; a++)
        for (size_t i = 0; i < c->n + GUARD; i++) g_numbers.f[a][i] = number(c->k, c->key + 10 * a, i);
    for (size_t i = 0; i < c->n + GUARD; i++)
        g_numbers.h[i] = (taciti_bf16)(to_bits(number(c->k, c->key + 77, i)) >> 16);
}

static arrays prepare(const arrays *base, const one_case *c) {
    arrays out;
    for (size_t a = 0; a < ARRAYS; a++) {
        out.f[a] = base->f[a] + shift_of(c, a);
        memcpy(out.f[a], g_numbers.f[a], (c->n + GUARD) * sizeof(float));
    }
    out.h = base->h + shift_of(c, ARRAYS);
    memcpy(out.h, g_numbers.h, (c->n + GUARD) * sizeof(taciti_bf16));
    return out;
}

static void same(const arrays *a, const arrays *b, size_t n) {
    for (size_t i = 0; i < ARRAYS; i++) assert_memory_equal(a->f[i], b->f[i], (n + GUARD) * sizeof(float));
    assert_memory_equal(a->h, b->h, (n + GUARD) * sizeof(taciti_bf16));
}

/* ---- every set against the definition ------------------------------------------------------------------------- */

static const taciti_adamw_step ADAMW = {1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 10.0f, 20.0f, 0.7f, 0, NULL, NULL};
static const taciti_adamw_step ADAM = {1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 10.0f, 20.0f, 0.7f, 1, NULL, NULL};
static const taciti_sgd_step SGD_STEPS[] = {{0.1f, 0.9f, 0.01f, 0.5f, 0, NULL}, {0.1f, 0.9f, 0.01f, 0.5f, 1, NULL}};

/* Coupled or not, in a window or at its end, with a copy or without. */
static void accumulate(const taciti_kernels *k, int variant, taciti_blend *blend, const arrays *x, size_t n) {
    taciti_accum_step step = {.adamw = variant & 1 ? ADAM : ADAMW, .share = 1.0f / 3.0f, .window_ends = variant & 2};
    const taciti_accum_state state = {x->f[2], x->f[3], x->f[4]};
    step.adamw.blend = blend;
    k->accum_adamw(&step, x->f[0], x->f[1], &state, variant & 4 ? x->h : NULL, n);
}

/* Every form of a blend, of what leaves and of the update in between, each pair of them once. */
static double blended(const taciti_kernels *k, int variant, const arrays *x, size_t n) {
    static const float FACTORS[3][2] = {{0.25f, 0.75f}, {0, 0.75f}, {0.25f, 0}};
    float *const leaving[] = {NULL, x->f[6], x->f[5]};
    taciti_blend blend = {.arrived = x->f[5],
                          .keep = FACTORS[variant % 3][0],
                          .share = FACTORS[variant % 3][1],
                          .integral = variant % 5 < 4 && variant % 4 != 1 ? x->f[4] : NULL,
                          .leak = 0.9f,
                          .gain = 0.2f,
                          .leaving = leaving[(variant / 3 + variant) % 3],
                          .leaving_scale = 0.3f,
                          .moved = 1};
    taciti_adamw_step adamw = variant & 1 ? ADAM : ADAMW;
    taciti_sgd_step sgd = SGD_STEPS[variant & 1];
    taciti_bf16 *copy = variant % 4 < 2 ? x->h : NULL;
    adamw.blend = sgd.blend = &blend;
    switch (variant % 5) {
    case 0: k->blend(&blend, x->f[0], copy, n); break;
    case 1: k->adamw(&adamw, x->f[0], x->f[1], x->f[2], x->f[3], copy, n); break;
    case 2: k->sgd(&sgd, x->f[0], x->f[1], x->f[2], copy, n); break;
    case 3: k->sgd(&sgd, x->f[0], x->f[1], NULL, copy, n); break;
    default: accumulate(k, variant, &blend, x, n); break;
    }
    return blend.moved;
}

/* A share of v counts; `variant` as in accumulate(). */
static void share(const taciti_kernels *k, int variant, const arrays *x, size_t n) {
    taciti_adamw_step adamw = variant & 1 ? ADAM : ADAMW;
    taciti_accum_step accum = {.share = 1.0f / 3.0f, .window_ends = variant & 2};
    const taciti_accum_state state = {x->f[2], x->f[3], x->f[4]};
    adamw.share = x->f[5];
    accum.adamw = adamw;
    if (variant < 4)
        k->accum_adamw(&accum, x->f[0], x->f[1], &state, x->h, n);
    else
        k->adamw(&adamw, x->f[0], x->f[1], x->f[2], x->f[3], x->h, n);
}

enum { ACCUMULATES = 17, DOT = ACCUMULATES + 8, BLENDS = DOT + 1, SHARES = BLENDS + 15, OPERATIONS = SHARES + 6 };

/* Applies operation `op` of table k; returns what the operation returns, 0 when nothing. */
static double apply(const taciti_kernels *k, int op, const arrays *x, size_t n) {
    switch (op) {
    case 0: k->add(x->f[0], x->f[1], n); break;
    case 1: k->scale(x->f[0], 0.3f, n); break;
    case 2: k->bf16_encode(x->h, x->f[0], n); break;
    case 3: k->bf16_decode(x->f[0], x->h, n); break;
    case 4: k->bf16_add(x->f[0], x->h, n); break;
    case 5: return k->sum_squares(x->f[0], n);
    case 6: return k->all_finite(x->f[0], n);
    case 7: k->adamw(&ADAMW, x->f[0], x->f[1], x->f[2], x->f[3], NULL, n); break;
    case 8: k->adamw(&ADAMW, x->f[0], x->f[1], x->f[2], x->f[3], x->h, n); break;
    case 9: k->sgd(&SGD_STEPS[0], x->f[0], x->f[1], x->f[2], NULL, n); break;
    case 10: k->sgd(&SGD_STEPS[1], x->f[0], x->f[1], x->f[2], x->h, n); break;
    case 11: k->scaled_copy(x->f[0], x->f[1], -0.3f, n); break;
    case 12: k->adamw(&ADAM, x->f[0], x->f[1], x->f[2], x->f[3], x->h, n); break;
    case 13: k->sgd(&SGD_STEPS[0], x->f[0], x->f[1], NULL, x->h, n); break;
    case 14: k->add_scaled(x->f[0], x->f[1], -0.3f, n); break;
    case 15: k->bf16_encode_error(x->h, x->f[1], x->f[0], n); break;
    case DOT: return k->dot(x->f[0], x->f[1], n);
    case 16: k->keep_equal(x->f[0], x->f[1], x->f[1], n); break;
    default:
        if (op >= BLENDS && op < SHARES) return blended(k, op - BLENDS, x, n);
        if (op >= SHARES)
            share(k, op - SHARES, x, n);
        else
            accumulate(k, op - ACCUMULATES, NULL, x, n);
        break;
    }
    return 0;
}

static void compare_sets(const taciti_kernels *set, const one_case *c) {
    const taciti_kernels *scalar = taciti_kernels_named("scalar");
    draw_numbers(c);
    for (int op = 0; op < OPERATIONS; op++) {
        const arrays expected = prepare(&g_expected, c), actual = prepare(&g_actual, c);
        const double a = apply(scalar, op, &expected, c->n), b = apply(set, op, &actual, c->n);
        assert_memory_equal(&a, &b, sizeof a);
        same(&expected, &actual, c->n);
    }
}

static void sets_agree(const char *isa) {
    const taciti_kernels *set = taciti_kernels_named(isa);
    if (set == NULL) skip();
    for (size_t n = 0; n <= SMALL; n++)
        for (size_t shift = 0; shift < ALIGNMENTS; shift++)
            for (int k = 0; k < KINDS; k++) {
                const one_case c = {.n = n, .shift = shift, .k = (kind)k, .key = n * 1000 + shift};
                compare_sets(set, &c);
            }
    for (size_t s = 0; s < sizeof LARGE_SIZES / sizeof LARGE_SIZES[0]; s++)
        for (size_t shift = 0; shift < 2; shift++)
            for (int k = 0; k < KINDS; k++) {
                const one_case c = {.n = LARGE_SIZES[s], .shift = shift, .k = (kind)k, .key = s};
                compare_sets(set, &c);
            }
}

static void avx2_equals_scalar(void **state) {
    (void)state;
    sets_agree("avx2");
}

static void avx512_equals_scalar(void **state) {
    (void)state;
    sets_agree("avx512");
}

/* Casts so large that they leave past the caches: the same as in pieces, whatever the alignment, and no byte more. */
static void large_casts_equal_small_ones(void **state) {
    (void)state;
    enum { HUGE_N = (2 << 20) + 5000, PIECE = 4096 };
    float *x = taciti_calloc(HUGE_N + 32, sizeof *x), *y = taciti_calloc(HUGE_N + 32, sizeof *y);
    taciti_bf16 *h = taciti_calloc(HUGE_N + 64, sizeof *h), piece[PIECE];
    assert_true(x != NULL && y != NULL && h != NULL);
    for (size_t i = 0; i < HUGE_N; i++) x[i] = number(ANY_BITS, 3, i);
    for (size_t s = 0; s < 3; s++)
        for (size_t shift = 0; shift < 40; shift += 13) {
            const taciti_kernels *k = taciti_kernels_named(SETS[s]);
            if (k == NULL) continue;
            const size_t n = HUGE_N - shift * 31;
            taciti_bf16 *out = h + shift;
            float *back = y + shift % 17;
            out[n] = 0x1234;
            back[n] = 5;
            k->bf16_encode(out, x, n);
            k->bf16_decode(back, out, n);
            for (size_t at = 0; at < n; at += PIECE) {
                const size_t count = n - at < PIECE ? n - at : PIECE;
                taciti_kernels_named("scalar")->bf16_encode(piece, x + at, count);
                assert_memory_equal(out + at, piece, count * sizeof *piece);
                for (size_t i = 0; i < count; i++) assert_true(to_bits(back[at + i]) == (uint32_t)piece[i] << 16);
            }
            assert_int_equal(out[n], 0x1234);
            assert_true(back[n] == 5);
        }
    taciti_free(x);
    taciti_free(y);
    taciti_free(h);
}

/* ---- the definition ------------------------------------------------------------------------------------------- */

/* Nearest even bf16 found by looking at both neighbours in double. */
static taciti_bf16 nearest_bf16(float x) {
    const uint32_t bits = to_bits(x);
    if (isnan(x)) return (taciti_bf16)(bits >> 16 | 0x40);
    const uint32_t low = bits >> 16, high = low + 1; /* in magnitude */
    if (low << 16 == bits) return (taciti_bf16)low;
    const double below = fabs((double)from_bits(low << 16));
    /* the step beyond the largest finite value is where the next binade would begin */
    const double above = (high & 0x7fffu) == 0x7f80u ? 0x1p128 : fabs((double)from_bits(high << 16));
    const double from_below = fabs((double)x) - below, from_above = above - fabs((double)x);
    if (from_below != from_above) return (taciti_bf16)(from_below < from_above ? low : high);
    return (taciti_bf16)(low % 2 == 0 ? low : high);
}

static void bf16_rounds_to_nearest_even_everywhere(void **state) {
    (void)state;
    enum { N = 4096 };
    static float x[N];
    static taciti_bf16 y[N];
    FOR_SETS(k) for (uint32_t upper = 0; upper < 65536; upper += 16) {
        /* 16 upper halves x 256 lower halves, among them the ties and their neighbours */
        for (uint32_t i = 0; i < N; i++) {
            const uint32_t lower = i % 256 < 250 ? (i % 256) * 263 : 0x7ffd + (i % 256) - 250;
            x[i] = from_bits((upper + i / 256) << 16 | lower);
        }
        k->bf16_encode(y, x, N);
        for (uint32_t i = 0; i < N; i++) assert_int_equal(y[i], nearest_bf16(x[i]));
    }
}

static void sum_squares_is_sixteen_lanes_and_the_stated_fold(void **state) {
    (void)state;
    static float x[SMALL];
    FOR_SETS(k) for (size_t n = 0; n <= SMALL; n++) {
        double l[16] = {0};
        for (size_t i = 0; i < n; i++) {
            x[i] = number(ORDINARY, 5, i);
            l[i % 16] += (double)x[i] * (double)x[i];
        }
        const double even = ((l[0] + l[8]) + (l[4] + l[12])) + ((l[2] + l[10]) + (l[6] + l[14]));
        const double odd = ((l[1] + l[9]) + (l[5] + l[13])) + ((l[3] + l[11]) + (l[7] + l[15]));
        const double expected = even + odd, sum = k->sum_squares(x, n);
        assert_memory_equal(&sum, &expected, sizeof sum);
        const double square = k->dot(x, x, n);
        assert_memory_equal(&square, &expected, sizeof square);
    }
}

static void sum_squares_neither_overflows_nor_hides_non_finite_values(void **state) {
    (void)state;
    float x[40];
    FOR_SETS(k) {
        for (size_t i = 0; i < 40; i++) x[i] = 3e38f;
        assert_true(isfinite(k->sum_squares(x, 40)));
        for (size_t i = 0; i < 40; i++) x[i] = 1e-45f;
        assert_true(k->sum_squares(x, 40) > 0);
        for (size_t bad = 0; bad < 40; bad++) {
            memset(x, 0, sizeof x);
            x[bad] = -INFINITY;
            assert_true(isinf(k->sum_squares(x, 40)));
            x[bad] = NAN;
            assert_true(isnan(k->sum_squares(x, 40)));
        }
    }
}

static void all_finite_finds_one_bad_element_anywhere(void **state) {
    (void)state;
    static float x[LARGE];
    const float bad[] = {NAN, INFINITY, -INFINITY, from_bits(0x7f800001), from_bits(0xffffffff)};
    FOR_SETS(k) {
        for (size_t i = 0; i < LARGE; i++) x[i] = i % 2 ? 3.4028234e38f : from_bits(0x80000001);
        assert_int_equal(k->all_finite(x, LARGE), 1);
        assert_int_equal(k->all_finite(x, 0), 1);
        for (size_t n = 1; n < LARGE; n = n < SMALL ? n + 1 : n * 3)
            for (size_t at = 0; at <= n; at += n < SMALL ? 1 : n / 7) {
                const float kept = x[at];
                x[at] = bad[(n + at) % 5];
                assert_int_equal(k->all_finite(x, n), at == n); /* x[n] is not looked at */
                x[at] = kept;
            }
    }
}

static void small_integers_add_and_scale_exactly(void **state) {
    (void)state;
    float acc[SMALL], x[SMALL], copy[SMALL];
    taciti_bf16 h[SMALL];
    FOR_SETS(k) {
        for (size_t i = 0; i < SMALL; i++) {
            acc[i] = (float)i;
            x[i] = 100.0f - (float)i;
        }
        k->bf16_encode(h, x, SMALL); /* integers up to 256 are bf16 numbers */
        k->add(acc, x, SMALL);
        k->bf16_add(acc, h, SMALL);
        k->scale(acc, -2.0f, SMALL);
        k->scaled_copy(copy, acc, 3.0f, SMALL);
        k->bf16_decode(x, h, SMALL);
        for (size_t i = 0; i < SMALL; i++) {
            assert_true(acc[i] == -2.0f * (200.0f - (float)i));
            assert_true(copy[i] == -6.0f * (200.0f - (float)i));
            assert_true(x[i] == 100.0f - (float)i);
        }
    }
}

/* Two roundings to a product and its sum; the change in double, element i in lane i % 16, wherever arrays begin. The
 * integral takes in the change in f32 before it is added. */
static void a_blend_is_its_definition_at_any_alignment(void **state) {
    (void)state;
    enum { N = 1000 };
    static float p[N], arrived[N + ALIGNMENTS], leaving[N + ALIGNMENTS], integral[N + ALIGNMENTS];
    static taciti_bf16 copy[N + 2 * ALIGNMENTS];
    FOR_SETS(k)
    for (size_t n = 0; n <= N; n += n < SMALL ? 1 : 109)
        for (size_t shift = 0; shift < ALIGNMENTS; shift++) {
            double l[16] = {0};
            const bool follows = (n + shift) % 2 == 0;
            float expected[N], sums[N];
            for (size_t i = 0; i < n; i++) {
                integral[shift + i] = number(ORDINARY, 7, i);
                p[i] = number(ORDINARY, 5, i);
                arrived[shift + i] = number(ORDINARY, 6, i);
                const float kept = 0.3f * p[i], came = 0.7f * arrived[shift + i];
                expected[i] = kept + came;
                const double change = (double)expected[i] - (double)p[i];
                l[i % 16] += change * change;
                const float held = 0.9f * integral[shift + i], taken = 0.2f * (expected[i] - p[i]);
                sums[i] = held + taken;
                if (follows) expected[i] += sums[i];
            }
            const double even = ((l[0] + l[8]) + (l[4] + l[12])) + ((l[2] + l[10]) + (l[6] + l[14]));
            const double odd = ((l[1] + l[9]) + (l[5] + l[13])) + ((l[3] + l[11]) + (l[7] + l[15]));
            taciti_blend blend = {.arrived = arrived + shift,
                                  .keep = 0.3f,
                                  .share = 0.7f,
                                  .integral = follows ? integral + shift : NULL,
                                  .leak = 0.9f,
                                  .gain = 0.2f,
                                  .leaving = leaving + shift,
                                  .leaving_scale = 1};
            k->blend(&blend, p, copy + 2 * shift, n);
            const double moved = even + odd;
            assert_memory_equal(&blend.moved, &moved, sizeof moved);
            assert_memory_equal(p, expected, n * sizeof *p);
            assert_memory_equal(leaving + shift, expected, n * sizeof *p);
            if (follows) assert_memory_equal(integral + shift, sums, n * sizeof *sums);
            for (size_t i = 0; i < n; i++) assert_int_equal(copy[2 * shift + i], nearest_bf16(expected[i]));
        }
}

/* Poison behind a factor of 0 does not matter, nor do signs of zeros. */
static void a_factor_of_zero_leaves_its_operand_out(void **state) {
    (void)state;
    float p[SMALL], x[SMALL], old[SMALL];
    FOR_SETS(k) for (uint64_t round = 0; round < 8; round++) {
        for (size_t i = 0; i < SMALL; i++) {
            old[i] = p[i] = number(ORDINARY, round, i) * (float)(i % 3);
            x[i] = number(MIXED, round + 50, i);
        }
        old[7] = p[7] = -0.0f;
        taciti_blend keep = {.arrived = x, .keep = 1, .share = 0}, take = {.arrived = x, .keep = -0.0f, .share = 1};
        k->blend(&keep, p, NULL, SMALL);
        assert_memory_equal(p, old, sizeof p);
        assert_true(keep.moved == 0);
        for (size_t i = 0; i < SMALL; i++) p[i] = i % 2 ? (float)NAN : (float)INFINITY;
        k->blend(&take, p, NULL, SMALL);
        assert_memory_equal(p, x, sizeof p);
    }
}

/* ---- dispatch ------------------------------------------------------------------------------------------------- */

/* The set that a fresh process gets under TACIT_ISA=value, as an index into SETS. */
static int set_under(const char *value) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (value == NULL ? unsetenv("TACIT_ISA") : setenv("TACIT_ISA", value, 1)) _exit(9);
        const char *isa = taciti_kernels_get()->isa;
        for (int s = 0; s < 3; s++)
            if (strcmp(isa, SETS[s]) == 0) _exit(s);
        _exit(8);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void the_environment_forces_a_set_and_the_best_is_the_default(void **state) {
    (void)state;
    int best = 0;
    for (int s = 0; s < 3; s++) {
        const taciti_kernels *k = taciti_kernels_named(SETS[s]);
        assert_int_equal(set_under(SETS[s]), k != NULL ? s : 0);
        if (k == NULL) continue;
        assert_string_equal(k->isa, SETS[s]);
        best = s;
    }
    assert_non_null(taciti_kernels_named("scalar"));
    assert_null(taciti_kernels_named("avx1024"));
    assert_null(taciti_kernels_named(""));
    assert_int_equal(set_under("avx1024"), 0);
    assert_int_equal(set_under(""), best);
    assert_int_equal(set_under(NULL), best);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(avx2_equals_scalar),
        cmocka_unit_test(avx512_equals_scalar),
        cmocka_unit_test(large_casts_equal_small_ones),
        cmocka_unit_test(bf16_rounds_to_nearest_even_everywhere),
        cmocka_unit_test(sum_squares_is_sixteen_lanes_and_the_stated_fold),
        cmocka_unit_test(sum_squares_neither_overflows_nor_hides_non_finite_values),
        cmocka_unit_test(all_finite_finds_one_bad_element_anywhere),
        cmocka_unit_test(small_integers_add_and_scale_exactly),
        cmocka_unit_test(a_blend_is_its_definition_at_any_alignment),
        cmocka_unit_test(a_factor_of_zero_leaves_its_operand_out),
        cmocka_unit_test(the_environment_forces_a_set_and_the_best_is_the_default),
    };
    return cmocka_run_group_tests(tests, allocate, release);
}
