/* SPDX-License-Identifier: Apache-2.0
 *
 * The network kernels against naive double-precision references, and the sets against each other, bit by bit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kernel/kernel.h"

#define ULP 0x1p-23
#define TWO_ROOT_TWO_OVER_PI 1.5957691216057308
static const char *const ISAS[] = {"scalar", "avx2", "avx512"};
enum { ISA_COUNT = 3 };

static float *floats(size_t n) {
    float *p = calloc(n + 1, sizeof *p);
    assert_non_null(p);
    return p;
}

/* Roughly normal values (sum of four uniforms) of the given spread. */
static float *random_floats(size_t n, uint64_t key, double spread) {
    float *p = floats(n);
    for (size_t i = 0; i < n; i++) {
        double sum = -2;
        for (uint64_t j = 0; j < 4; j++) sum += taciti_rng_unit(key, 4 * i + j);
        p[i] = (float)(sum * 1.7 * spread);
    }
    return p;
}

static float from_bf16(taciti_bf16 x) {
    const uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void assert_near(double value, double expected, double bound) {
    if (!(fabs(value - expected) <= bound)) fail_msg("%.9g is not within %.3g of %.9g", value, bound, expected);
}

/* ---- layernorm --------------------------------------------------------------------------------------------------- */

static void reference_norm(const float *x, const float *w, const float *b, size_t c, double *y, double *mean,
                           double *rstd) {
    double m = 0, v = 0;
    for (size_t j = 0; j < c; j++) m += (double)x[j];
    m /= (double)c;
    for (size_t j = 0; j < c; j++) v += ((double)x[j] - m) * ((double)x[j] - m);
    *mean = m;
    *rstd = 1.0 / sqrt(v / (double)c + 1e-5);
    for (size_t j = 0; j < c; j++) y[j] = ((double)x[j] - m) * *rstd * (double)w[j] + (double)b[j];
}

/* A sum of c terms in 16 lanes errs by (c / 16 + 4) half ulps of the sum of magnitudes; the rest is a few roundings. */
static double row_tolerance(size_t c, double magnitude) { return ((double)c / 16 + 16) * ULP * magnitude; }

static const size_t WIDTHS[] = {1, 2, 3, 15, 16, 17, 31, 48, 100, 384, 771};
enum { WIDTH_COUNT = 11, ROWS = 5 };

static void check_layernorm(const taciti_kernels *k) {
    for (int s = 0; s < WIDTH_COUNT; s++) {
        const size_t c = WIDTHS[s], n = ROWS * c;
        float *x = random_floats(n, 1, 2), *w = random_floats(c, 2, 1), *b = random_floats(c, 3, 1), *y = floats(n);
        taciti_bf16 *y16 = calloc(n, sizeof *y16);
        double *expected = calloc(c, sizeof *expected);
        float mean[ROWS], rstd[ROWS];
        k->layernorm(y, y16, mean, rstd, x, w, b, ROWS, c);
        for (size_t r = 0; r < ROWS; r++) {
            double m, q;
            reference_norm(x + r * c, w, b, c, expected, &m, &q);
            assert_near((double)mean[r], m, row_tolerance(c, 8));
            assert_near((double)rstd[r], q, row_tolerance(c, 8) * q * q); /* one channel: variance 0, rstd 316 */
            for (size_t j = 0; j < c; j++) {
                assert_near((double)y[r * c + j], expected[j], row_tolerance(c, 8 * q * (1 + fabs(expected[j]))));
                assert_near((double)from_bf16(y16[r * c + j]), (double)y[r * c + j],
                            fabs((double)y[r * c + j]) * 0x1p-8);
            }
        }
        free(x), free(w), free(b), free(y), free(y16), free(expected);
    }
    k->layernorm(NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 16);
}

/* L = sum(dy * y) in double as a function of one input. */
static double norm_loss(const float *x, const float *w, const float *b, const float *dy, size_t c, double *y) {
    double m, q, loss = 0;
    reference_norm(x, w, b, c, y, &m, &q);
    for (size_t j = 0; j < c; j++) loss += y[j] * (double)dy[j];
    return loss;
}

static void check_layernorm_backward(const taciti_kernels *k) {
    for (int s = 2; s < WIDTH_COUNT; s++) {
        const size_t c = WIDTHS[s], n = ROWS * c;
        float *x = random_floats(n, 1, 2), *w = random_floats(c, 2, 1), *b = random_floats(c, 3, 1);
        float *dy = random_floats(n, 4, 1), *dx = random_floats(n, 5, 1), *before = random_floats(n, 5, 1);
        float *dw = random_floats(c, 6, 1), *db = random_floats(c, 7, 1), *y = floats(n), mean[ROWS], rstd[ROWS];
        double *t = calloc(c, sizeof *t), *dw_expected = calloc(c, sizeof *t), *db_expected = calloc(c, sizeof *t);
        for (size_t j = 0; j < c; j++) dw_expected[j] = (double)dw[j], db_expected[j] = (double)db[j];
        k->layernorm(y, NULL, mean, rstd, x, w, b, ROWS, c);
        k->layernorm_backward(dx, dw, db, dy, x, mean, rstd, w, ROWS, c);
        for (size_t r = 0; r < ROWS; r++) {
            double m, q;
            reference_norm(x + r * c, w, b, c, t, &m, &q);
            for (size_t j = 0; j < c; j++) {
                dw_expected[j] += (double)dy[r * c + j] * ((double)x[r * c + j] - m) * q;
                db_expected[j] += (double)dy[r * c + j];
            }
            for (size_t j = 0; j < c; j += 1 + c / 16) { /* central difference: error h^2, h about 2^-10 */
                float *at = &x[r * c + j];
                const float keep = *at;
                *at = keep + 0x1p-10f;
                const double up = (double)*at, plus = norm_loss(x + r * c, w, b, dy + r * c, c, t);
                *at = keep - 0x1p-10f;
                const double slope = (plus - norm_loss(x + r * c, w, b, dy + r * c, c, t)) / (up - (double)*at);
                *at = keep;
                assert_near((double)dx[r * c + j], slope + (double)before[r * c + j],
                            row_tolerance(c, 8 * q * q + 4) + 2e-5 * (1 + q * q * q));
            }
        }
        for (size_t j = 0; j < c; j++) {
            assert_near((double)dw[j], dw_expected[j], row_tolerance(c, 64));
            assert_near((double)db[j], db_expected[j], ROWS * ULP * 8);
        }
        free(x), free(w), free(b), free(dy), free(dx), free(before), free(y), free(dw), free(db);
        free(t), free(dw_expected), free(db_expected);
    }
    k->layernorm_backward(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 16);
}

/* ---- gelu -------------------------------------------------------------------------------------------------------- */

static double reference_gelu(double x, double *slope) {
    const double u = TWO_ROOT_TWO_OVER_PI * (x + 0.044715 * x * x * x), s = 1 / (1 + exp(-u));
    *slope = s + x * s / (1 + exp(u)) * TWO_ROOT_TWO_OVER_PI * (1 + 3 * 0.044715 * x * x);
    return x * s;
}

/* The exponent u has three roundings, so e^u errs by 3 |u| half ulps, and everything else by a few ulps; where e^u
 * overflows, the result below 2^-124 becomes 0. */
static void check_gelu(const taciti_kernels *k) {
    enum { N = 8001 };
    float *x = floats(N), *y = floats(N), *slope = floats(N), *one = floats(N), *zero = floats(N), *sum = floats(N);
    for (int i = 0; i < N; i++) x[i] = (float)(i - 4000) / 200.0f, one[i] = 1.0f;
    k->gelu(y, NULL, x, zero, 1, N);
    k->gelu_backward(slope, NULL, sum, one, x, 1, N);
    for (int i = 0; i < N; i++) {
        double d, v = (double)x[i];
        const double g = reference_gelu(v, &d), u = 1.6 * fabs(v) * (1 + 0.045 * v * v);
        assert_near((double)y[i], g, (4 + 3 * u) * ULP * fabs(g) + 0x1p-124);
        assert_near((double)slope[i], d, (8 + 8 * u) * ULP * fmin(1, fabs(d) + fabs(g)) + 4 * ULP * fabs(d) + 1e-30);
        assert_true(sum[i] == slope[i]);
    }
    free(x), free(y), free(slope), free(one), free(zero), free(sum);
}

static void check_gelu_extremes(const taciti_kernels *k) {
    float x[6] = {1e30f, -1e30f, 1e-40f, NAN, INFINITY, 0.0f}, y[6], d[6], bias[6] = {0}, dbias[6] = {0};
    k->gelu(y, NULL, x, bias, 1, 6);
    for (int i = 0; i < 6; i++) d[i] = 1.0f;
    k->gelu_backward(d, NULL, dbias, d, x, 1, 6); /* in place */
    assert_true(y[0] == 1e30f && d[0] == 1.0f);
    assert_true(y[1] == 0.0f && d[1] == 0.0f);
    assert_near((double)y[2], 0.5e-40, 1.5e-45);
    assert_true(isnan(y[3]) && isnan(d[3]) && isinf(y[4]));
    assert_true(y[5] == 0.0f && d[5] == 0.5f);
}

/* ---- residual and bias ------------------------------------------------------------------------------------------- */

static void check_residual(const taciti_kernels *k) {
    const float rate[2] = {0.0f, 0.25f};
    const size_t first = 1000;
    const uint64_t key = taciti_rng_key(7, 9);
    for (int s = 0; s < WIDTH_COUNT; s++)
        for (int p = 0; p < 2; p++) {
            const size_t c = WIDTHS[s], n = ROWS * c;
            float *x = random_floats(n, 1, 1), *a = random_floats(n, 2, 1), *b = random_floats(c, 3, 1);
            float *out = floats(n), *d = floats(n), *db = floats(c), *sum = floats(c);
            taciti_bf16 *d16 = calloc(n, sizeof *d16);
            k->residual(out, x, a, b, ROWS, c, rate[p], key, first);
            k->residual_backward(d, d16, db, x, ROWS, c, rate[p], key, first);
            for (size_t i = 0; i < n; i++) {
                const int kept = (double)taciti_rng_u32(key, (uint32_t)(first + i)) >= (double)rate[p] * 0x1p32;
                const float factor = 1.0f / (1.0f - rate[p]), branch = (a[i] + b[i % c]) * factor;
                assert_true(out[i] == x[i] + (kept ? branch : 0.0f));
                assert_true(d[i] == (kept ? x[i] * factor : 0.0f));
                assert_near((double)from_bf16(d16[i]), (double)d[i], fabs((double)d[i]) * 0x1p-8);
                sum[i % c] += d[i];
            }
            assert_memory_equal(db, sum, c * sizeof *db);
            if (p == 0) { /* dout itself serves as d */
                memset(db, 0, c * sizeof *db);
                k->residual_backward(NULL, NULL, db, x, ROWS, c, 0.0f, key, first);
                assert_memory_equal(db, sum, c * sizeof *db);
            }
            free(x), free(a), free(b), free(out), free(d), free(db), free(sum), free(d16);
        }
}

static void check_bias(const taciti_kernels *k) {
    for (int s = 0; s < WIDTH_COUNT; s++) {
        const size_t c = WIDTHS[s], n = ROWS * c;
        float *y = random_floats(n, 1, 1), *db = floats(c), *sum = floats(c);
        taciti_bf16 *y16 = calloc(n, sizeof *y16), *d16 = calloc(n, sizeof *d16);
        k->bf16_encode(y16, y, n);
        k->bias_backward(db, d16, y, ROWS, c);
        for (size_t i = 0; i < n; i++) sum[i % c] += y[i];
        assert_memory_equal(db, sum, c * sizeof *db);
        assert_memory_equal(d16, y16, n * sizeof *d16);
        free(y), free(db), free(sum), free(y16), free(d16);
    }
}

/* ---- cross-entropy ----------------------------------------------------------------------------------------------- */

static void check_cross_entropy(const taciti_kernels *k) {
    const size_t vocabularies[] = {1, 2, 15, 16, 17, 256, 4095, 4097, 50257};
    for (int s = 0; s < 9; s++) {
        const size_t vocab = vocabularies[s], stride = vocab + 47 - vocab % 16, rows = 3;
        float *x = random_floats(rows * stride, 1, 4), *g = random_floats(rows * stride, 1, 4);
        taciti_bf16 *g16 = calloc(rows * stride, sizeof *g16);
        const int32_t target[3] = {(int32_t)vocab - 1, -1, 0};
        double expected = 0;
        const double loss = k->cross_entropy(g, g16, target, rows, vocab, stride, 0.5f, 1);
        for (size_t r = 0; r < rows; r++) {
            double sum = 0;
            for (size_t j = 0; j < vocab; j++) sum += exp((double)x[r * stride + j]);
            for (size_t j = 0; j < stride; j++) {
                const double p = j < vocab ? exp((double)x[r * stride + j]) / sum : 0;
                const double d = target[r] < 0 ? 0 : 0.5 * (p - (j == (size_t)target[r]));
                assert_near((double)g[r * stride + j], d, (p * 300 + 1 * (j == (size_t)target[r])) * ULP);
                assert_near((double)from_bf16(g16[r * stride + j]), (double)g[r * stride + j],
                            fabs((double)g[r * stride + j]) * 0x1p-8);
            }
            if (target[r] >= 0) expected += log(sum) - (double)x[r * stride + (size_t)target[r]];
        }
        assert_near(loss, expected, 600 * ULP);
        float *same = random_floats(rows * stride, 1, 4);
        assert_true(k->cross_entropy(x, NULL, target, rows, vocab, stride, 0.5f, 0) == loss);
        assert_memory_equal(x, same, rows * stride * sizeof *x);
        free(x), free(g), free(g16), free(same);
    }
}

static void check_cross_entropy_extremes(const taciti_kernels *k) {
    const int32_t zero = 0, ignored = -1;
    float huge[3] = {3e38f, -3e38f, 0.0f}, equal[40], poisoned[40] = {0};
    assert_true(k->cross_entropy(huge, NULL, &zero, 1, 3, 3, 1.0f, 1) == 0.0);
    assert_true(huge[0] == 0.0f && huge[1] == 0.0f && huge[2] == 0.0f);
    for (int i = 0; i < 40; i++) equal[i] = -1e20f;
    assert_near(k->cross_entropy(equal, NULL, &zero, 1, 40, 40, 1.0f, 0), log(40), ULP);
    for (int i = 0; i < 40; i++) { /* wherever the NaN stands */
        memset(poisoned, 0, sizeof poisoned);
        poisoned[i] = NAN;
        assert_true(isnan(k->cross_entropy(poisoned, NULL, &zero, 1, 40, 40, 1.0f, 0)));
        poisoned[i] = INFINITY;
        assert_true(isnan(k->cross_entropy(poisoned, NULL, &zero, 1, 40, 40, 1.0f, 0)));
        poisoned[i] = -INFINITY;
        const double loss = k->cross_entropy(poisoned, NULL, &zero, 1, 40, 40, 1.0f, 0);
        if (i == 0)
            assert_true(isinf(loss)); /* the target has probability zero */
        else
            assert_near(loss, log(39), ULP);
        assert_true(k->cross_entropy(poisoned, NULL, &ignored, 1, 40, 40, 1.0f, 0) == 0.0);
    }
    assert_true(k->cross_entropy(NULL, NULL, NULL, 0, 40, 40, 1.0f, 1) == 0.0);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* Sequence of one case; the head under test is the last one. Gradients of L = sum(dout * out). */
typedef struct attention_case {
    taciti_attention_shape shape;
    size_t head, channels, n; /* n: floats of qkv */
    float *qkv, *dout, *out, *lse, *dqkv, *work;
    taciti_bf16 *out16;
    double *weights; /* time x time, after softmax */
} attention_case;

static attention_case attention_case_of(size_t time, size_t heads, size_t size, float dropout, double spread) {
    attention_case a = {.shape = {.time = time, .heads = heads, .head_size = size, .dropout = dropout, .key = 12345}};
    a.head = heads - 1;
    a.channels = heads * size;
    a.n = 3 * a.channels * time;
    a.qkv = random_floats(a.n, 1, spread);
    a.dout = random_floats(a.channels * time, 2, 1);
    a.out = random_floats(a.channels * time, 3, 1);
    a.out16 = calloc(a.channels * time + 1, sizeof *a.out16);
    a.lse = floats(time);
    a.dqkv = random_floats(a.n, 4, 1);
    a.work = floats(taciti_attention_work_floats(&a.shape));
    a.weights = calloc(time * time + 1, sizeof *a.weights);
    return a;
}

static void attention_case_free(attention_case *a) {
    free(a->qkv), free(a->dout), free(a->out), free(a->out16), free(a->lse), free(a->dqkv), free(a->work);
    free(a->weights);
}

static const float *part(const attention_case *a, int which, size_t t) { /* 0 query, 1 key, 2 value */
    return a->qkv + (3 * t + (size_t)which) * a->channels + a->head * a->shape.head_size;
}

static double dot(const float *x, const float *y, size_t n) {
    double sum = 0;
    for (size_t j = 0; j < n; j++) sum += (double)x[j] * (double)y[j];
    return sum;
}

/* 1 / (1 - p) where kept, else 0 */
static double kept(const attention_case *a, size_t t, size_t s) {
    const size_t index = (a->head * a->shape.time + t) * a->shape.time + s;
    const double p = (double)a->shape.dropout;
    return (double)taciti_rng_u32(a->shape.key, (uint32_t)index) >= p * 0x1p32 ? 1 / (1 - p) : 0;
}

/* Row t of the weights; returns the log-sum-exp. */
static double reference_weights(const attention_case *a, size_t t) {
    double *w = a->weights + t * a->shape.time, sum = 0, top = -(double)INFINITY;
    for (size_t s = 0; s <= t; s++) {
        w[s] = dot(part(a, 0, t), part(a, 1, s), a->shape.head_size) / sqrt((double)a->shape.head_size);
        top = fmax(top, w[s]);
    }
    for (size_t s = 0; s <= t; s++) sum += exp(w[s] - top);
    for (size_t s = 0; s <= t; s++) w[s] = exp(w[s] - top) / sum;
    return top + log(sum);
}

static double reference_out(const attention_case *a, size_t t, size_t j) {
    double sum = 0;
    for (size_t s = 0; s <= t; s++) sum += a->weights[t * a->shape.time + s] * kept(a, t, s) * (double)part(a, 2, s)[j];
    return sum;
}

static double reference_loss(const attention_case *a) {
    double loss = 0;
    for (size_t t = 0; t < a->shape.time; t++) {
        reference_weights(a, t);
        for (size_t j = 0; j < a->shape.head_size; j++)
            loss += reference_out(a, t, j) * (double)a->dout[t * a->channels + a->head * a->shape.head_size + j];
    }
    return loss;
}

/* A score is a sum of `size` products, each rounded once: it errs by up to size half ulps of its magnitude (about 4 in
 * these cases, typically the root of that), which is the relative error of a weight; then sums over up to `time`. */
static double attention_tolerance(const attention_case *a) {
    return 8 * ULP * (8 + sqrt((double)a->shape.head_size) + sqrt((double)a->shape.time));
}

static const size_t SHAPES[][3] = {{1, 1, 1},   {1, 2, 64},  {2, 1, 3},   {5, 1, 16},   {17, 2, 5},   {33, 1, 24},
                                   {63, 3, 16}, {64, 1, 32}, {65, 2, 48}, {100, 1, 64}, {131, 2, 20}, {200, 1, 80}};
enum { SHAPE_COUNT = 12 };

static void check_attention(const taciti_kernels *k) {
    for (int i = 0; i < SHAPE_COUNT; i++) {
        attention_case a = attention_case_of(SHAPES[i][0], SHAPES[i][1], SHAPES[i][2], i % 2 ? 0.3f : 0.0f, 1);
        const size_t size = a.shape.head_size, first = a.head * size;
        float *before = random_floats(a.channels * a.shape.time, 3, 1);
        k->attention(a.out, a.out16, a.lse, a.qkv, &a.shape, a.head, a.work);
        for (size_t t = 0; t < a.shape.time; t++) {
            assert_near((double)a.lse[t], reference_weights(&a, t), attention_tolerance(&a));
            for (size_t j = 0; j < a.channels; j++) {
                const size_t at = t * a.channels + j;
                if (j < first) { /* other heads' columns are not ours */
                    assert_true(a.out[at] == before[at] && a.out16[at] == 0);
                    continue;
                }
                assert_near((double)a.out[at], reference_out(&a, t, j - first), attention_tolerance(&a));
                assert_near((double)from_bf16(a.out16[at]), (double)a.out[at], fabs((double)a.out[at]) * 0x1p-8);
            }
        }
        free(before);
        attention_case_free(&a);
    }
}

/* dq, dk and dv of row t in double, from the weights of the reference: the formulas at the top of net_attention.h. */
static void reference_gradients(const attention_case *a, double *dq, double *dk, double *dv) {
    const size_t time = a->shape.time, size = a->shape.head_size, first = a->head * size;
    const double scale = 1 / sqrt((double)size);
    for (size_t t = 0; t < time; t++) {
        reference_weights(a, t);
        const double *w = a->weights + t * time;
        const float *g = a->dout + t * a->channels + first;
        double delta = 0;
        for (size_t s = 0; s <= t; s++) delta += w[s] * kept(a, t, s) * dot(g, part(a, 2, s), size);
        for (size_t s = 0; s <= t; s++) {
            const double ds = w[s] * (kept(a, t, s) * dot(g, part(a, 2, s), size) - delta) * scale;
            for (size_t j = 0; j < size; j++) {
                dq[t * size + j] += ds * (double)part(a, 1, s)[j];
                dk[s * size + j] += ds * (double)part(a, 0, t)[j];
                dv[s * size + j] += w[s] * kept(a, t, s) * (double)g[j];
            }
        }
    }
}

static void check_attention_backward(const taciti_kernels *k) {
    for (int i = 0; i < SHAPE_COUNT; i++) {
        attention_case a = attention_case_of(SHAPES[i][0], SHAPES[i][1], SHAPES[i][2], i % 2 ? 0.3f : 0.0f, 1);
        const size_t time = a.shape.time, size = a.shape.head_size, first = a.head * size;
        double *expected[3];
        for (int w = 0; w < 3; w++) expected[w] = calloc(time * size, sizeof *expected[w]);
        float *before = random_floats(a.n, 4, 1);
        k->attention(a.out, NULL, a.lse, a.qkv, &a.shape, a.head, a.work);
        k->attention_backward(a.dqkv, a.dout, a.out, a.lse, a.qkv, &a.shape, a.head, a.work);
        reference_gradients(&a, expected[0], expected[1], expected[2]);
        for (size_t t = 0; t < time; t++)
            for (size_t w = 0; w < 3; w++)
                for (size_t j = 0; j < a.channels; j++) {
                    const size_t at = (3 * t + w) * a.channels + j;
                    if (j < first)
                        assert_true(a.dqkv[at] == before[at]);
                    else
                        assert_near((double)a.dqkv[at], expected[w][t * size + j - first],
                                    10 * attention_tolerance(&a));
                }
        free(before), free(expected[0]), free(expected[1]), free(expected[2]);
        attention_case_free(&a);
    }
}

/* The double reference itself against central differences of its own loss, with and without dropout. */
static void attention_reference_is_a_gradient(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++) {
        attention_case a = attention_case_of(7, 1, 5, d ? 0.4f : 0.0f, 1);
        const size_t size = 5;
        double g[3][35] = {{0}};
        reference_gradients(&a, g[0], g[1], g[2]);
        for (size_t i = 0; i < a.n; i++) {
            const float keep = a.qkv[i];
            a.qkv[i] = keep + 0x1p-9f;
            const double up = (double)a.qkv[i], plus = reference_loss(&a);
            a.qkv[i] = keep - 0x1p-9f;
            const double slope = (plus - reference_loss(&a)) / (up - (double)a.qkv[i]);
            a.qkv[i] = keep;
            const size_t t = i / (3 * size), w = i / size % 3, j = i % size;
            assert_near(g[w][t * size + j], slope, 1e-4);
        }
        attention_case_free(&a);
    }
}

static void check_attention_extremes(const taciti_kernels *k) {
    attention_case a = attention_case_of(70, 1, 8, 0.0f, 300); /* scores of some 1e5: a softmax that picks one key */
    k->attention(a.out, NULL, a.lse, a.qkv, &a.shape, 0, a.work);
    k->attention_backward(a.dqkv, a.dout, a.out, a.lse, a.qkv, &a.shape, 0, a.work);
    for (size_t i = 0; i < a.n; i++) assert_true(isfinite(a.dqkv[i]));
    a.qkv[40 * 24] = NAN; /* query 40 alone is lost */
    k->attention(a.out, NULL, a.lse, a.qkv, &a.shape, 0, a.work);
    for (size_t t = 0; t < 70; t++) assert_true(isnan(a.out[8 * t]) == (t == 40));
    a.shape.time = 0;
    const float out = a.out[0], dqkv = a.dqkv[0];
    k->attention(a.out, NULL, a.lse, a.qkv, &a.shape, 0, a.work);
    k->attention_backward(a.dqkv, a.dout, a.out, a.lse, a.qkv, &a.shape, 0, a.work);
    assert_true(a.out[0] == out && a.dqkv[0] == dqkv);
    attention_case_free(&a);
}

/* Layernorm, GELU in its tanh form, residual, bias, cross-entropy and attention are their formulas on every set. */
static void kernels_are_the_formulas(void **state) {
    static void (*const CHECKS[])(const taciti_kernels *k) = {check_layernorm,
                                                              check_layernorm_backward,
                                                              check_gelu,
                                                              check_gelu_extremes,
                                                              check_residual,
                                                              check_bias,
                                                              check_cross_entropy,
                                                              check_cross_entropy_extremes,
                                                              check_attention,
                                                              check_attention_backward,
                                                              check_attention_extremes};
    (void)state;
    for (size_t i = 0; i < sizeof CHECKS / sizeof *CHECKS * ISA_COUNT; i++) {
        const taciti_kernels *k = taciti_kernels_named(ISAS[i % ISA_COUNT]);
        if (k != NULL) CHECKS[i / ISA_COUNT](k);
    }
}

/* ---- the sets agree ---------------------------------------------------------------------------------------------- */

/* n bf16 values in a block of floats, by their owner's name */
static taciti_bf16 *halves(float *block) { return (taciti_bf16 *)(void *)block; }

/* One NaN for all: which of two NaN operands survives is not defined. */
static void unite_nans(taciti_bf16 *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        if ((x[i] & 0x7fffu) > 0x7f80u) x[i] = 0x7fc0u;
}

/* Every kernel as a function of ten blocks of rows x c inputs to ten blocks of outputs (bf16 in half of one). */
typedef void run_kernel(const taciti_kernels *k, float *in, float *out, size_t n, size_t rows, size_t c);

static void run_layernorm(const taciti_kernels *k, float *in, float *out, size_t n, size_t rows, size_t c) {
    k->layernorm(out, halves(out + n), out + 2 * n, out + 3 * n, in, in + n, in + 2 * n, rows, c);
    k->layernorm_backward(out + 4 * n, out + 5 * n, out + 6 * n, in + n, in, out + 2 * n, out + 3 * n, in + 2 * n, rows,
                          c);
    unite_nans(halves(out + n), n);
}
static void run_residual(const taciti_kernels *k, float *in, float *out, size_t n, size_t rows, size_t c) {
    k->residual(out, in, in + n, in + 2 * n, rows, c, 0.5f, 77, 5);
    k->residual(out + n, in, in + n, in + 2 * n, rows, c, 0.0f, 77, 5);
    k->residual_backward(out + 2 * n, halves(out + 3 * n), out + 4 * n, in, rows, c, 0.999f, 77, SIZE_MAX - 20);
    unite_nans(halves(out + 3 * n), n);
}
static void run_gelu(const taciti_kernels *k, float *in, float *out, size_t n, size_t rows, size_t c) {
    k->gelu(out, halves(out + n), in, in + n, rows, c);
    k->gelu_backward(out + 2 * n, halves(out + 3 * n), out + 4 * n, in + n, in, rows, c);
    unite_nans(halves(out + n), n);
    unite_nans(halves(out + 3 * n), n);
}
static void run_bias(const taciti_kernels *k, float *in, float *out, size_t n, size_t rows, size_t c) {
    k->bias_backward(out, halves(out + n), in, rows, c);
    unite_nans(halves(out + n), n);
}
static void run_cross_entropy(const taciti_kernels *k, float *in, float *out, size_t n, size_t rows, size_t c) {
    int32_t target[8] = {0};
    for (size_t r = 0; r < rows; r++) target[r] = (int32_t)(r % c) - (r == 3);
    out[n] = (float)k->cross_entropy(in, halves(out), target, rows, c - c / 9, c, 0.25f, 1);
    unite_nans(halves(out), n);
}
static void run_attention(const taciti_kernels *k, float *in, float *out, size_t n, size_t rows, size_t c) {
    const taciti_attention_shape shape = {.time = rows, .heads = 1, .head_size = c, .dropout = 0.1f, .key = 3};
    float *work = floats(taciti_attention_work_floats(&shape));
    k->attention(out, halves(out + n), out + 2 * n, in, &shape, 0, work);
    k->attention_backward(out + 3 * n, in + 3 * n, out, out + 2 * n, in, &shape, 0, work);
    free(work);
    unite_nans(halves(out + n), n);
}

/* Bits, but that any NaN equals any NaN. */
static void assert_same(const float *a, const float *b, size_t n, const char *isa) {
    for (size_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("%s: element %zu of %zu is %a, by definition %a", isa, i, n, (double)b[i], (double)a[i]);
}

/* style 0: plain; 1: denormals, zeros and huge values; 2: with NaN and Inf */
static void spoil(float *x, size_t n, int style) {
    const float special[8] = {1e-42f, 0.0f, -0.0f, 3e38f, -1e-38f, INFINITY, NAN, -INFINITY};
    for (size_t i = 0; style > 0 && i < n; i++)
        if (taciti_rng_below(5, i, 40) == 0) x[i] = special[taciti_rng_below(6, i, style == 1 ? 5 : 8)];
}

static void compare_sets(run_kernel *run, size_t rows, size_t c, int style) {
    const size_t n = 10 * rows * c;
    float *in[ISA_COUNT] = {NULL}, *out[ISA_COUNT] = {NULL};
    for (int i = 0; i < ISA_COUNT; i++) {
        const taciti_kernels *k = taciti_kernels_named(ISAS[i]);
        if (k == NULL) continue;
        in[i] = random_floats(n, 21, 2), out[i] = random_floats(n, 22, 1);
        spoil(in[i], n, style);
        run(k, in[i], out[i], rows * c, rows, c);
        assert_same(in[0], in[i], n, ISAS[i]);
        assert_same(out[0], out[i], n, ISAS[i]);
    }
    for (int i = 0; i < ISA_COUNT; i++) free(in[i]), free(out[i]);
}

static void sets_agree_bit_by_bit(void **state) {
    (void)state;
    run_kernel *const all[] = {run_layernorm, run_residual, run_gelu, run_bias, run_cross_entropy, run_attention};
    for (size_t f = 0; f < sizeof all / sizeof *all; f++)
        for (int s = 0; s < WIDTH_COUNT; s++)
            for (int style = 0; style < 3; style++) compare_sets(all[f], ROWS, WIDTHS[s], style);
    compare_sets(run_cross_entropy, 5, 9001, 0);
    compare_sets(run_attention, 150, 40, 0);
    compare_sets(run_attention, 67, 16, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_are_the_formulas),
        cmocka_unit_test(attention_reference_is_a_gradient),
        cmocka_unit_test(sets_agree_bit_by_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
