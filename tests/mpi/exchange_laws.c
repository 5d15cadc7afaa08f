/* SPDX-License-Identifier: Apache-2.0
 *
 * The dense exchange under a real launcher: exact sums of small integers, the same bits on every rank, bytes as the
 * formula says.
 */
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "check.h"
#include "codec/test_sparse.h"
#include "exchange/exchange.h"
#include "exchange/test_wire.h"

static float small_integer(int rank, int step, size_t i) {
    const uint64_t key = taciti_rng_key(taciti_rng_key(7, (uint64_t)rank), (uint64_t)step);
    return (float)((int)taciti_rng_below(key, i, 17) - 8);
}

static void make_layout(size_t n, size_t bucket_bytes, taciti_layout *layout) {
    const size_t sizes[] = {n, n / 3 + 1, 5};
    CHECK(taciti_layout_create(3, layout) == TACIT_OK);
    for (int i = 0; i < 3; i++) CHECK(taciti_layout_append(layout, "t", 1, &sizes[i], true) == TACIT_OK);
    CHECK(taciti_layout_seal(layout, bucket_bytes) == TACIT_OK);
}

static bool is_gap(const taciti_layout *layout, size_t element) {
    for (size_t t = 0; t < layout->tensor_count; t++) {
        const taciti_tensor *tensor = &layout->tensors[t];
        if (element >= tensor->offset && element - tensor->offset < tensor->n) return false;
    }
    return true;
}

static void step(taciti_comm *comm, const taciti_layout *layout, taciti_exchange *exchange, int number, float *x) {
    for (size_t i = 0; i < layout->n; i++) x[i] = small_integer(g_rank, number, i);
    const uint64_t before = taciti_comm_count(comm).bytes_sent;
    for (size_t b = 0; b < layout->bucket_count; b++) CHECK(taciti_exchange_begin(exchange, x, b) == TACIT_OK);
    for (size_t b = 0; b < layout->bucket_count; b++) CHECK(taciti_exchange_wait(exchange, b) == TACIT_OK);
    CHECK(taciti_comm_count(comm).bytes_sent - before == taciti_exchange_bytes_per_step(exchange));
    for (size_t i = 0; i < layout->n; i++) {
        float sum = 0;
        for (int r = 0; r < taciti_comm_size(comm); r++) sum += small_integer(r, number, i);
        CHECK(x[i] == sum);
    }
}

static void law(taciti_comm *comm, size_t n, size_t bucket_bytes, int wire, int scheme) {
    taciti_layout layout;
    taciti_exchange *exchange = NULL;
    make_layout(n, bucket_bytes, &layout);
    const taciti_exchange_options options = {
        .wire = test_wire(wire), .scheme = scheme, .bucket_bytes = (int64_t)bucket_bytes, .overlap = true};
    CHECK(taciti_exchange_create(comm, &layout, &options, NULL, &exchange) == TACIT_OK);
    float *x = taciti_calloc(layout.n, sizeof *x);
    for (int i = 0; i < 3; i++) step(comm, &layout, exchange, i, x);
    taciti_free(x);
    taciti_exchange_destroy(exchange);
    taciti_layout_destroy(&layout);
}

static void run(taciti_exchange *exchange, const taciti_layout *layout, float *x, taciti_phase phase) {
    for (size_t b = 0; b < layout->bucket_count; b++)
        CHECK(taciti_exchange_begin_phase(exchange, x, b, phase) == TACIT_OK);
    for (size_t b = 0; b < layout->bucket_count; b++) CHECK(taciti_exchange_wait(exchange, b) == TACIT_OK);
}

/* A codec of variable size with error feedback: the same bits on every rank; a step that is dropped changes nothing, a
 * dense step takes the residuals along; a last step that sends everything makes the sum of the taken ones whole. */
static void feedback_law(taciti_comm *comm, size_t n, int scheme, int route) {
    enum { STEPS = 4, DENSE = 1, DROPPED = 2 };
    static const test_sparse_options THRESHOLD = {.threshold = 3};
    const taciti_encoding compression = {.codec = &test_sparse,
                                         .options = &THRESHOLD,
                                         .seed = 3,
                                         .feedback = {.errors = true, .decay = 1},
                                         .way = (taciti_way)route};
    taciti_layout layout;
    taciti_exchange *exchange = NULL;
    make_layout(n, 1 << 16, &layout);
    const taciti_exchange_options options = {.scheme = scheme, .bucket_bytes = 1 << 16};
    CHECK(taciti_exchange_create(comm, &layout, &options, &compression, &exchange) == TACIT_OK);
    float *x = taciti_calloc(layout.n, sizeof *x), *first = taciti_calloc(layout.n, sizeof *x);
    double *left = taciti_calloc(layout.n, sizeof *left);
    for (int number = 0; number <= STEPS; number++) {
        const bool taken = number != DROPPED, last = number == STEPS;
        for (size_t i = 0; i < layout.n; i++) x[i] = last || is_gap(&layout, i) ? 0 : small_integer(g_rank, number, i);
        const taciti_codec_setting threshold = {.threshold = last ? 1e-9 : 5};
        const taciti_bucket_task setting = {.setting[TACITI_PAYLOAD_CONTRIBUTION] = threshold,
                                            .setting[TACITI_PAYLOAD_RESULT] = threshold,
                                            .dense = number == DENSE};
        taciti_exchange_at(exchange, number, &setting);
        if (route == TACITI_WAY_GATHER)
            run(exchange, &layout, x, TACITI_PHASE_ALL_REDUCE);
        else {
            run(exchange, &layout, x, TACITI_PHASE_REDUCE_SCATTER);
            run(exchange, &layout, x, TACITI_PHASE_ALL_GATHER);
        }
        memcpy(first, x, layout.n * sizeof *x);
        CHECK(taciti_comm_broadcast(comm, 0, first, layout.n * sizeof *x) == TACIT_OK);
        CHECK(memcmp(first, x, layout.n * sizeof *x) == 0);
        CHECK(taciti_exchange_settle(exchange, taken) == TACIT_OK);
        for (size_t i = 0; i < layout.n && taken; i++) {
            left[i] -= (double)x[i];
            for (int r = 0; r < taciti_comm_size(comm) && !is_gap(&layout, i) && !last; r++)
                left[i] += (double)small_integer(r, number, i);
        }
    }
    for (size_t i = 0; i < layout.n; i++) CHECK(left[i] == 0);
    taciti_free(x);
    taciti_free(first);
    taciti_free(left);
    taciti_exchange_destroy(exchange);
    taciti_layout_destroy(&layout);
}

int main(void) {
    taciti_comm *comm = open_comm();
    const size_t lengths[] = {1, 1000, 100003};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int wire = 0; wire < 2; wire++)
            for (int scheme = TACITI_SCHEME_FLAT; scheme <= TACITI_SCHEME_HOSTS; scheme++) {
                law(comm, lengths[i], 1 << 16, wire, scheme);
                law(comm, lengths[i], 25 << 20, wire, scheme);
            }
    for (int scheme = TACITI_SCHEME_FLAT; scheme <= TACITI_SCHEME_HOSTS; scheme++)
        for (int route = TACITI_WAY_SCATTER; route <= TACITI_WAY_GATHER; route++) {
            feedback_law(comm, 1, scheme, route);
            feedback_law(comm, 100003, scheme, route);
        }
    taciti_comm_close(comm);
    return 0;
}
