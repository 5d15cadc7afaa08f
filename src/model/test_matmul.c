/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products against a sum in double. Error bound: every product has k roundings at most, each of relative size
 * u = 2^-24 of a partial sum that is at most sum |a b| (+ |c|): |error| <= (k + 2) u sum |a b|.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h wants the four above first. */
#include <cmocka.h>
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "kernel/kernel.h"
#include "model/matmul.h"

struct operand {
    float *f32;
    taciti_bf16 *b16;
};

/* Values on both sides of zero; in the bf16 case the f32 array holds what the bf16 array says. */
static struct operand make_operand(size_t n, uint64_t key, bool bf16) {
    struct operand o = {taciti_calloc(n, sizeof(float)), taciti_calloc(n, sizeof(taciti_bf16))};
    for (size_t i = 0; i < n; i++) o.f32[i] = (float)(taciti_rng_unit(key, i) * 2 - 1);
    taciti_kernels_get()->bf16_encode(o.b16, o.f32, n);
    if (bf16) taciti_kernels_get()->bf16_decode(o.f32, o.b16, n);
    return o;
}

static void free_operand(struct operand o) {
    taciti_free(o.f32);
    taciti_free(o.b16);
}

static double element(const taciti_product *p, const float *a, const float *b, size_t i, size_t j, double *sum_abs) {
    double sum = 0;
    for (size_t x = 0; x < p->k; x++) {
        const size_t ai = p->form == TACITI_PRODUCT_TN ? x * p->lda + i : i * p->lda + x;
        const size_t bi = p->form == TACITI_PRODUCT_NT ? j * p->ldb + x : x * p->ldb + j;
        const double term = (double)a[ai] * (double)b[bi];
        sum += term;
        *sum_abs += fabs(term);
    }
    return sum;
}

static void check_product(taciti_matmul *matmul, bool bf16, taciti_product p, size_t pad) {
    p.lda = (p.form == TACITI_PRODUCT_TN ? p.m : p.k) + pad;
    p.ldb = (p.form == TACITI_PRODUCT_NT ? p.k : p.n) + pad;
    p.ldc = p.n + pad;
    const struct operand a = make_operand((p.form == TACITI_PRODUCT_TN ? p.k : p.m) * p.lda, 1, bf16);
    const struct operand b = make_operand((p.form == TACITI_PRODUCT_NT ? p.n : p.k) * p.ldb, 2, bf16);
    const struct operand c = make_operand(p.m * p.ldc, 3, false), before = make_operand(p.m * p.ldc, 3, false);
    p.a = bf16 ? (const void *)a.b16 : (const void *)a.f32;
    p.b = bf16 ? (const void *)b.b16 : (const void *)b.f32;
    p.c = c.f32;
    assert_int_equal(taciti_matmul_run(matmul, &p), TACIT_OK);
    for (size_t i = 0; i < p.m; i++)
        for (size_t j = 0; j < p.ldc; j++) {
            const double old = (double)before.f32[i * p.ldc + j], now = (double)c.f32[i * p.ldc + j];
            if (j >= p.n) { /* outside of C */
                assert_true(now == old);
                continue;
            }
            double sum_abs = p.accumulate ? fabs(old) : 0;
            const double want = element(&p, a.f32, b.f32, i, j, &sum_abs) + (p.accumulate ? old : 0);
            assert_true(fabs(now - want) <= ((double)p.k + 2) * 0x1p-24 * sum_abs);
        }
    free_operand(a);
    free_operand(b);
    free_operand(c);
    free_operand(before);
}

static const size_t shapes[][3] = {{1, 1, 1},   {1, 61, 32},   {16, 64, 64}, {33, 130, 7},
                                   {70, 61, 1}, {61, 32, 128}, {5, 513, 17}, {64, 600, 530}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void check_all(bool bf16, int threads) {
    taciti_pool *pool;
    taciti_matmul *matmul;
    assert_int_equal(taciti_pool_create(threads, 0, &pool), TACIT_OK);
    assert_int_equal(taciti_matmul_create(pool, bf16, &matmul), TACIT_OK);
    for (int form = TACITI_PRODUCT_NN; form <= TACITI_PRODUCT_TN; form++)
        for (size_t s = 0; s < SHAPES; s++)
            for (int accumulate = 0; accumulate < 2; accumulate++)
                check_product(matmul, bf16,
                              (taciti_product){.form = (taciti_product_form)form,
                                               .m = shapes[s][0],
                                               .n = shapes[s][1],
                                               .k = shapes[s][2],
                                               .accumulate = accumulate != 0},
                              s % 3);
    taciti_matmul_destroy(matmul);
    taciti_pool_destroy(pool);
}

static void f32_products_match_a_double_sum(void **state) {
    (void)state;
    for (int threads = 1; threads <= 4; threads++) check_all(false, threads);
}

static void bf16_products_match_a_double_sum(void **state) {
    (void)state;
    for (int threads = 1; threads <= 4; threads++) check_all(true, threads);
}

static void an_empty_sum_is_zero_or_leaves_c(void **state) {
    (void)state;
    taciti_pool *pool;
    taciti_matmul *matmul;
    float c[6] = {1, 2, 3, 4, 5, 6};
    assert_int_equal(taciti_pool_create(1, 0, &pool), TACIT_OK);
    assert_int_equal(taciti_matmul_create(pool, false, &matmul), TACIT_OK);
    taciti_product p = {.m = 2, .n = 2, .k = 0, .c = c, .ldc = 3, .accumulate = true};
    assert_int_equal(taciti_matmul_run(matmul, &p), TACIT_OK);
    assert_true(c[0] == 1.0F && c[4] == 5.0F);
    p.accumulate = false;
    assert_int_equal(taciti_matmul_run(matmul, &p), TACIT_OK);
    assert_true(c[0] == 0.0F && c[1] == 0.0F && c[2] == 3.0F && c[3] == 0.0F && c[4] == 0.0F && c[5] == 6.0F);
    taciti_matmul_destroy(matmul);
    taciti_pool_destroy(pool);
}

/* More shapes than the cache holds: the oldest give way and come back. */
static void shapes_beyond_the_cache_still_work(void **state) {
    (void)state;
    taciti_pool *pool;
    taciti_matmul *matmul;
    assert_int_equal(taciti_pool_create(1, 0, &pool), TACIT_OK);
    assert_int_equal(taciti_matmul_create(pool, true, &matmul), TACIT_OK);
    for (int round = 0; round < 2; round++)
        for (size_t m = 1; m <= 70; m++)
            check_product(matmul, true, (taciti_product){.form = TACITI_PRODUCT_NN, .m = m, .n = 16, .k = 16}, 0);
    taciti_matmul_destroy(matmul);
    taciti_pool_destroy(pool);
}

/* This test runs once more under DNNL_MAX_CPU_ISA=AVX2, where the library has no bf16 kernels. */
static void bf16_path_follows_the_library(void **state) {
    (void)state;
    const char *limit = getenv("DNNL_MAX_CPU_ISA"), *path = taciti_matmul_bf16_path();
    if (limit != NULL && strcmp(limit, "AVX2") == 0)
        assert_string_equal(path, "f32");
    else
        assert_true(strcmp(path, "native") == 0 || strcmp(path, "f32") == 0);
}

static size_t count_threads(void) {
    DIR *folder = opendir("/proc/self/task");
    if (folder == NULL) return 0;
    size_t n = 0;
    for (const struct dirent *e; (e = readdir(folder)) != NULL;) n += e->d_name[0] != '.';
    (void)closedir(folder);
    return n;
}

/* The library must not start threads of its own: they would spin on the cores that compute and communicate. */
static void no_threads_besides_the_pool(void **state) {
    (void)state;
    taciti_pool *pool;
    assert_int_equal(taciti_pool_create(2, 0, &pool), TACIT_OK);
    const size_t before = count_threads();
    for (int bf16 = 0; bf16 < 2; bf16++) {
        taciti_matmul *matmul;
        assert_int_equal(taciti_matmul_create(pool, bf16 != 0, &matmul), TACIT_OK);
        for (int form = TACITI_PRODUCT_NN; form <= TACITI_PRODUCT_TN; form++)
            check_product(matmul, bf16 != 0,
                          (taciti_product){.form = (taciti_product_form)form, .m = 128, .n = 256, .k = 64}, 0);
        taciti_matmul_destroy(matmul);
    }
    assert_int_equal(count_threads(), before);
    taciti_pool_destroy(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_products_match_a_double_sum),  cmocka_unit_test(bf16_products_match_a_double_sum),
        cmocka_unit_test(an_empty_sum_is_zero_or_leaves_c), cmocka_unit_test(shapes_beyond_the_cache_still_work),
        cmocka_unit_test(bf16_path_follows_the_library),    cmocka_unit_test(no_threads_besides_the_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
