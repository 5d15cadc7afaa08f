/* SPDX-License-Identifier: Apache-2.0
 *
 * The library's OpenMP runtime would start a team of its own in every thread that calls it; its threads spin and fight
 * with ours and with the communication thread for the cores. Its team size is a per-thread setting, so every slab sets
 * it to one and puts it back.
 */
#include "model/matmul.h"

#include <oneapi/dnnl/dnnl.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "kernel/kernel.h"

/* From the OpenMP API (the library's runtime); the header belongs to compilers that may not be ours. */
extern int omp_get_max_threads(void);
extern void omp_set_num_threads(int threads);

enum {
    CACHED_SHAPES = 64, /* a training step has about 20 per thread */
    ROW_GRAIN = 16,
    COLUMN_GRAIN = 64,
    WIDEN_SIDE = 512, /* blocks of this side are widened when bf16 has no kernel here */
};

/* The arguments of a primitive: A, B, C and the packing memory. */
static const struct {
    dnnl_query_t description;
    int argument;
} OPERANDS[] = {{dnnl_query_src_md, DNNL_ARG_SRC},
                {dnnl_query_weights_md, DNNL_ARG_WEIGHTS},
                {dnnl_query_dst_md, DNNL_ARG_DST},
                {dnnl_query_scratchpad_md, DNNL_ARG_SCRATCHPAD}};
enum { OPERAND_COUNT = sizeof OPERANDS / sizeof *OPERANDS };

/* A primitive with its memory objects, for one shape on one thread. */
struct entry {
    taciti_product shape; /* pointers zero */
    dnnl_primitive_t primitive;
    dnnl_memory_t memories[OPERAND_COUNT];
    size_t scratch_bytes;
};

struct lane {
    _Alignas(64) dnnl_stream_t stream;
    struct entry entries[CACHED_SHAPES];
    size_t count, oldest;
    void *scratch; /* packing memory, as large as the largest shape needs */
    size_t scratch_bytes;
    float *wide; /* two blocks of WIDEN_SIDE^2, when widening */
    tacit_status status;
};

struct taciti_matmul {
    taciti_pool *pool;
    const taciti_kernels *kernels;
    bool bf16, native;
    dnnl_engine_t engine;
    struct lane *lanes;
};

static void entry_destroy(struct entry *e) {
    if (e->primitive != NULL) (void)dnnl_primitive_destroy(e->primitive);
    for (int i = 0; i < OPERAND_COUNT; i++)
        if (e->memories[i] != NULL) (void)dnnl_memory_destroy(e->memories[i]);
    *e = (struct entry){0};
}

static dnnl_status_t describe_matrix(dnnl_memory_desc_t *md, size_t rows, size_t columns, size_t ld, bool transposed,
                                     dnnl_data_type_t type) {
    const dnnl_dims_t dims = {(dnnl_dim_t)rows, (dnnl_dim_t)columns};
    const dnnl_dims_t strides = {transposed ? 1 : (dnnl_dim_t)ld, transposed ? (dnnl_dim_t)ld : 1};
    return dnnl_memory_desc_init_by_strides(md, 2, dims, type, strides);
}

/* The primitive's descriptor, or NULL with a library status. */
static dnnl_status_t describe_product(dnnl_engine_t engine, const taciti_product *p, dnnl_primitive_desc_t *out) {
    dnnl_memory_desc_t a, b, c;
    dnnl_matmul_desc_t d;
    dnnl_post_ops_t sum = NULL;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_status_t s = describe_matrix(&a, p->m, p->k, p->lda, p->form == TACITI_PRODUCT_TN, dnnl_bf16);
    if (s == dnnl_success) s = describe_matrix(&b, p->k, p->n, p->ldb, p->form == TACITI_PRODUCT_NT, dnnl_bf16);
    if (s == dnnl_success) s = describe_matrix(&c, p->m, p->n, p->ldc, false, dnnl_f32);
    if (s == dnnl_success) s = dnnl_matmul_desc_init(&d, &a, &b, NULL, &c);
    if (s == dnnl_success) s = dnnl_primitive_attr_create(&attr);
    if (s == dnnl_success) s = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (s == dnnl_success && p->accumulate) {
        s = dnnl_post_ops_create(&sum);
        if (s == dnnl_success) s = dnnl_post_ops_append_sum(sum, 1.0F);
        if (s == dnnl_success) s = dnnl_primitive_attr_set_post_ops(attr, sum);
    }
    if (s == dnnl_success) s = dnnl_primitive_desc_create(out, &d, attr, engine, NULL);
    if (sum != NULL) (void)dnnl_post_ops_destroy(sum);
    if (attr != NULL) (void)dnnl_primitive_attr_destroy(attr);
    return s;
}

static dnnl_status_t entry_create(dnnl_engine_t engine, const taciti_product *p, struct entry *e) {
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t s = describe_product(engine, p, &pd);
    if (s != dnnl_success) return s;
    *e = (struct entry){.shape = *p};
    e->shape.a = e->shape.b = NULL;
    e->shape.c = NULL;
    s = dnnl_primitive_create(&e->primitive, pd);
    for (int i = 0; i < OPERAND_COUNT && s == dnnl_success; i++)
        s = dnnl_memory_create(&e->memories[i], dnnl_primitive_desc_query_md(pd, OPERANDS[i].description, 0), engine,
                               DNNL_MEMORY_NONE);
    if (s == dnnl_success)
        e->scratch_bytes = dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0));
    (void)dnnl_primitive_desc_destroy(pd);
    if (s != dnnl_success) entry_destroy(e);
    return s;
}

static bool same_shape(const taciti_product *x, const taciti_product *y) {
    return x->m == y->m && x->n == y->n && x->k == y->k && x->lda == y->lda && x->ldb == y->ldb && x->ldc == y->ldc &&
           x->form == y->form && x->accumulate == y->accumulate;
}

/* The lane's entry for this shape, made when it is new; the oldest one gives way when the table is full. */
static struct entry *lane_entry(dnnl_engine_t engine, struct lane *lane, const taciti_product *p) {
    for (size_t i = 0; i < lane->count; i++)
        if (same_shape(&lane->entries[i].shape, p)) return &lane->entries[i];
    struct entry fresh;
    const dnnl_status_t s = entry_create(engine, p, &fresh);
    if (s != dnnl_success) {
        lane->status =
            taciti_fail(s == dnnl_out_of_memory ? TACIT_E_MEMORY : TACIT_E_UNSUPPORTED,
                        "oneDNN refused a bf16 product of %zu x %zu x %zu (status %d)", p->m, p->n, p->k, (int)s);
        return NULL;
    }
    if (fresh.scratch_bytes > lane->scratch_bytes) {
        taciti_free(lane->scratch);
        lane->scratch = taciti_calloc(fresh.scratch_bytes, 1);
        lane->scratch_bytes = lane->scratch == NULL ? 0 : fresh.scratch_bytes;
        if (lane->scratch == NULL) {
            entry_destroy(&fresh);
            lane->status = TACIT_E_MEMORY;
            return NULL;
        }
    }
    struct entry *e = &lane->entries[lane->count < CACHED_SHAPES ? lane->count++ : lane->oldest++ % CACHED_SHAPES];
    entry_destroy(e);
    *e = fresh;
    return e;
}

/* The library takes operands through memory objects that do not know const. */
static dnnl_status_t set_handle(dnnl_memory_t memory, const void *data) {
    void *handle;
    memcpy(&handle, &data, sizeof handle);
    return dnnl_memory_set_data_handle(memory, handle);
}

static void slab_native(taciti_matmul *matmul, struct lane *lane, const taciti_product *p) {
    struct entry *e = lane_entry(matmul->engine, lane, p);
    if (e == NULL) return;
    const void *const data[OPERAND_COUNT] = {p->a, p->b, p->c, lane->scratch};
    dnnl_exec_arg_t args[OPERAND_COUNT];
    dnnl_status_t s = dnnl_success;
    for (int i = 0; i < OPERAND_COUNT && s == dnnl_success; i++) {
        args[i] = (dnnl_exec_arg_t){OPERANDS[i].argument, e->memories[i]};
        s = set_handle(e->memories[i], data[i]);
    }
    if (s == dnnl_success) s = dnnl_primitive_execute(e->primitive, lane->stream, OPERAND_COUNT, args);
    if (s == dnnl_success) s = dnnl_stream_wait(lane->stream);
    if (s != dnnl_success)
        lane->status = taciti_fail(TACIT_E_INTERNAL, "oneDNN failed in a bf16 product (status %d)", (int)s);
}

static void slab_f32(struct lane *lane, const taciti_product *p) {
    const dnnl_status_t s =
        dnnl_sgemm(p->form == TACITI_PRODUCT_TN ? 'T' : 'N', p->form == TACITI_PRODUCT_NT ? 'T' : 'N', (dnnl_dim_t)p->m,
                   (dnnl_dim_t)p->n, (dnnl_dim_t)p->k, 1.0F, p->a, (dnnl_dim_t)p->lda, p->b, (dnnl_dim_t)p->ldb,
                   p->accumulate ? 1.0F : 0.0F, p->c, (dnnl_dim_t)p->ldc);
    if (s != dnnl_success)
        lane->status = taciti_fail(TACIT_E_INTERNAL, "oneDNN failed in an f32 product (status %d)", (int)s);
}

/* rows x columns of a bf16 matrix as f32 with leading dimension WIDEN_SIDE. */
static void widen_block(const taciti_kernels *kernels, float *out, const taciti_bf16 *x, size_t ld, size_t rows,
                        size_t columns) {
    for (size_t i = 0; i < rows; i++) kernels->bf16_decode(out + i * WIDEN_SIDE, x + i * ld, columns);
}

/* One block of C of at most WIDEN_SIDE squared, k in blocks of WIDEN_SIDE. */
static void block_widened(taciti_matmul *matmul, struct lane *lane, const taciti_product *p) {
    const bool ta = p->form == TACITI_PRODUCT_TN, tb = p->form == TACITI_PRODUCT_NT;
    const taciti_bf16 *a = p->a, *b = p->b;
    float *wide_a = lane->wide, *wide_b = lane->wide + (size_t)WIDEN_SIDE * WIDEN_SIDE;
    for (size_t k0 = 0; k0 < p->k; k0 += WIDEN_SIDE) {
        const size_t k = taciti_min(p->k - k0, WIDEN_SIDE);
        widen_block(matmul->kernels, wide_a, a + (ta ? k0 * p->lda : k0), p->lda, ta ? k : p->m, ta ? p->m : k);
        widen_block(matmul->kernels, wide_b, b + (tb ? k0 : k0 * p->ldb), p->ldb, tb ? p->n : k, tb ? k : p->n);
        slab_f32(lane, &(taciti_product){.form = p->form,
                                         .m = p->m,
                                         .n = p->n,
                                         .k = k,
                                         .a = wide_a,
                                         .b = wide_b,
                                         .c = p->c,
                                         .lda = WIDEN_SIDE,
                                         .ldb = WIDEN_SIDE,
                                         .ldc = p->ldc,
                                         .accumulate = p->accumulate || k0 > 0});
    }
}

/* The part of p at rows [m0, m0 + m) and columns [n0, n0 + n) of C. */
static taciti_product part_of(const taciti_product *p, size_t element_bytes, size_t m0, size_t n0) {
    taciti_product part = *p;
    const size_t a = p->form == TACITI_PRODUCT_TN ? m0 : m0 * p->lda;
    const size_t b = p->form == TACITI_PRODUCT_NT ? n0 * p->ldb : n0;
    part.a = (const char *)p->a + a * element_bytes;
    part.b = (const char *)p->b + b * element_bytes;
    part.c = p->c + m0 * p->ldc + n0;
    return part;
}

static void slab_widened(taciti_matmul *matmul, struct lane *lane, const taciti_product *p) {
    for (size_t m0 = 0; m0 < p->m; m0 += WIDEN_SIDE)
        for (size_t n0 = 0; n0 < p->n; n0 += WIDEN_SIDE) {
            taciti_product block = part_of(p, sizeof(taciti_bf16), m0, n0);
            block.m = taciti_min(p->m - m0, WIDEN_SIDE);
            block.n = taciti_min(p->n - n0, WIDEN_SIDE);
            block_widened(matmul, lane, &block);
        }
}

/* Threads as a grid over C. A slab packs the rows of A and the columns of B that it needs; the grid that packs least
 * in total has rows x n + columns x m smallest. */
static int grid_rows(const taciti_product *p, int threads) {
    int best = 1;
    size_t min = SIZE_MAX;
    for (int rows = 1; rows <= threads; rows++) {
        if (threads % rows != 0) continue;
        const size_t cost = (size_t)rows * p->n + (size_t)(threads / rows) * p->m;
        if (cost < min) {
            min = cost;
            best = rows;
        }
    }
    return best;
}

struct job {
    taciti_matmul *matmul;
    const taciti_product *product;
};

static void run_slab(void *context, int thread, int threads) {
    const struct job *job = context;
    taciti_matmul *matmul = job->matmul;
    const taciti_product *whole = job->product;
    const int rows = grid_rows(whole, threads), columns = threads / rows;
    size_t m0, m1, n0, n1;
    taciti_pool_part(whole->m, ROW_GRAIN, thread / columns, rows, &m0, &m1);
    taciti_pool_part(whole->n, COLUMN_GRAIN, thread % columns, columns, &n0, &n1);
    if (m0 == m1 || n0 == n1) return;
    taciti_product slab = part_of(whole, matmul->bf16 ? sizeof(taciti_bf16) : sizeof(float), m0, n0);
    slab.m = m1 - m0;
    slab.n = n1 - n0;
    const int team = omp_get_max_threads();
    if (team != 1) omp_set_num_threads(1);
    struct lane *lane = &matmul->lanes[thread];
    if (!matmul->bf16)
        slab_f32(lane, &slab);
    else if (matmul->native)
        slab_native(matmul, lane, &slab);
    else
        slab_widened(matmul, lane, &slab);
    if (team != 1) omp_set_num_threads(team);
}

tacit_status taciti_matmul_run(taciti_matmul *matmul, const taciti_product *product) {
    taciti_product p = *product;
    if (p.lda == 0) p.lda = p.form == TACITI_PRODUCT_TN ? p.m : p.k;
    if (p.ldb == 0) p.ldb = p.form == TACITI_PRODUCT_NT ? p.k : p.n;
    if (p.ldc == 0) p.ldc = p.n;
    if (p.k == 0 || p.m == 0) {
        for (size_t i = 0; i < p.m && !p.accumulate; i++) memset(p.c + i * p.ldc, 0, p.n * sizeof *p.c);
        return TACIT_OK;
    }
    taciti_pool_run(matmul->pool, run_slab, &(struct job){matmul, &p});
    for (int t = 0; t < taciti_pool_threads(matmul->pool); t++) TACITI_TRY(matmul->lanes[t].status);
    return TACIT_OK;
}

/* Whether the library has a bf16 kernel on this CPU: asked once, with a shape like the model's. */
static bool has_bf16(dnnl_engine_t engine) {
    const taciti_product shape = {
        .form = TACITI_PRODUCT_NN, .m = 64, .n = 64, .k = 64, .lda = 64, .ldb = 64, .ldc = 64};
    dnnl_primitive_desc_t pd = NULL;
    if (describe_product(engine, &shape, &pd) != dnnl_success) return false;
    const char *name = "";
    (void)dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    const bool fast = strncmp(name, "ref", 3) != 0; /* the reference is hundreds of times slower than widening */
    (void)dnnl_primitive_desc_destroy(pd);
    return fast;
}

static tacit_status lanes_create(taciti_matmul *matmul) {
    const int threads = taciti_pool_threads(matmul->pool);
    matmul->lanes = taciti_calloc((size_t)threads, sizeof *matmul->lanes);
    if (matmul->lanes == NULL) return TACIT_E_MEMORY;
    for (int t = 0; t < threads; t++) {
        struct lane *lane = &matmul->lanes[t];
        if (dnnl_stream_create(&lane->stream, matmul->engine, dnnl_stream_default_flags) != dnnl_success)
            return taciti_fail(TACIT_E_MEMORY, "oneDNN refused a stream");
        if (!matmul->bf16 || matmul->native) continue;
        lane->wide = taciti_calloc(2 * (size_t)WIDEN_SIDE * WIDEN_SIDE, sizeof *lane->wide);
        if (lane->wide == NULL) return TACIT_E_MEMORY;
    }
    return TACIT_OK;
}

tacit_status taciti_matmul_create(taciti_pool *pool, bool bf16, taciti_matmul **out) {
    taciti_matmul *matmul = taciti_calloc(1, sizeof *matmul);
    if (matmul == NULL) return TACIT_E_MEMORY;
    *matmul = (taciti_matmul){.pool = pool, .kernels = taciti_kernels_get(), .bf16 = bf16};
    tacit_status status = TACIT_OK;
    if (dnnl_engine_create(&matmul->engine, dnnl_cpu, 0) != dnnl_success)
        status = taciti_fail(TACIT_E_UNSUPPORTED, "oneDNN has no CPU engine on this machine");
    if (status == TACIT_OK) {
        matmul->native = bf16 && has_bf16(matmul->engine);
        status = lanes_create(matmul);
    }
    if (status == TACIT_OK)
        *out = matmul;
    else
        taciti_matmul_destroy(matmul);
    return status;
}

void taciti_matmul_destroy(taciti_matmul *matmul) {
    if (matmul == NULL) return;
    for (int t = 0; matmul->lanes != NULL && t < taciti_pool_threads(matmul->pool); t++) {
        struct lane *lane = &matmul->lanes[t];
        for (size_t i = 0; i < lane->count; i++) entry_destroy(&lane->entries[i]);
        if (lane->stream != NULL) (void)dnnl_stream_destroy(lane->stream);
        taciti_free(lane->scratch);
        taciti_free(lane->wide);
    }
    taciti_free(matmul->lanes);
    if (matmul->engine != NULL) (void)dnnl_engine_destroy(matmul->engine);
    taciti_free(matmul);
}

const char *taciti_matmul_bf16_path(void) {
    dnnl_engine_t engine;
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success) return "f32";
    const bool native = has_bf16(engine);
    (void)dnnl_engine_destroy(engine);
    return native ? "native" : "f32";
}
