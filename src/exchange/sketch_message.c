/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/sketch_message.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

enum { LINE = TACITI_SKETCH_LINE, MIN_ROWS = 3 };

typedef struct head {
    float max;
    uint32_t refused;
} head;

static const head NO_HEAD = {0, 0};

static size_t index_bytes(size_t n) { return taciti_sketch_index_words(n) * sizeof(uint64_t); }

/* Index and head; counters begin behind them. */
static size_t front_bytes(size_t n) { return taciti_round_up(index_bytes(n) + sizeof(head), TACITI_ALIGN_BYTES); }

/* ---- forms ------------------------------------------------------------------------------------------------------- */

/* Numbers may be twice as large in the next step before they do not fit the ring. Where no legal maximum is known, none
 * fits but 0, so that values travel in f32. Returns whether it is known. */
static bool choose_ring(taciti_sketch *sketch, taciti_ring ring, float max) {
    static const double ROOM = 2;
    const double enough = ROOM * (double)max;
    const bool known = enough > (double)FLT_MIN && enough < 0x1p127;
    if (ring == TACITI_RING_F32 || sketch->ranks > 0x3fff) return true;
    (void)taciti_sketch_set_ring(sketch, ring, known ? enough : (double)FLT_MIN);
    return known;
}

taciti_sketch_form taciti_sketch_form_of(size_t n, int members, size_t measured, double ratio, taciti_ring ring,
                                         float max, uint64_t seed) {
    const size_t some = measured < n ? measured : n;
    const size_t rows = ratio > 0 ? taciti_sketch_rows_at(n, ratio) : taciti_sketch_rows(some);
    taciti_sketch_form form = {.sketch = taciti_sketch_init(n, rows > MIN_ROWS ? rows : MIN_ROWS, members, seed)};
    const bool known = choose_ring(&form.sketch, ring, max);
    const size_t values_bytes = n * TACITI_SKETCH_NUMBER_BYTES; /* of the union, at most */
    form.packed = !known || taciti_sketch_bytes(&form.sketch) >= values_bytes;
    return form;
}

size_t taciti_sketch_room(size_t n, double density) {
    static const double ROOM = 1 + 1. / 16;
    const double known = density * (double)n, room = known * ROOM + LINE * sqrt(known / LINE);
    return room < (double)n ? (size_t)room : n;
}

size_t taciti_sketch_contribution_bytes(const taciti_sketch_form *form) {
    return front_bytes(form->sketch.n) + (form->packed ? 0 : taciti_sketch_bytes(&form->sketch));
}

size_t taciti_sketch_message_bound(size_t n) {
    return front_bytes(n) + taciti_round_up((n + LINE) * sizeof(float), TACITI_ALIGN_BYTES);
}

/* Counters are fewer than elements. */
size_t taciti_sketch_workspace_bound(size_t n, int members) {
    const taciti_sketch one = taciti_sketch_init(n, n / LINE + MIN_ROWS, members, 0);
    return taciti_sketch_workspace_bytes(&one);
}

/* ---- contributions ----------------------------------------------------------------------------------------------- */

tacit_status taciti_sketch_contribute(const taciti_sketch_form *form, const float *x, void *message) {
    const taciti_sketch *sketch = &form->sketch;
    const size_t n = sketch->n;
    head h = NO_HEAD;
    taciti_sketch_index(x, n, message);
    const uint32_t max_bits = taciti_kernels_get()->sketch_largest(TACITI_RING_F32, x, NULL, n);
    memcpy(&h.max, &max_bits, sizeof h.max);
    if (sketch->numbers.ring != TACITI_RING_F32)
        h.refused = h.max * sketch->numbers.scale <= sketch->numbers.max ? 0U : 1U;
    char *rest = (char *)message + index_bytes(n);
    memset(rest, 0, taciti_sketch_contribution_bytes(form) - index_bytes(n));
    memcpy(rest, &h, sizeof h);
    return form->packed || h.refused ? TACIT_OK : taciti_sketch_add(sketch, x, (char *)message + front_bytes(n));
}

tacit_status taciti_sketch_take(taciti_sketch_total *sum, const void *message, bool first) {
    const taciti_sketch *sketch = &sum->form.sketch;
    const size_t n = sketch->n;
    const char *bytes = message, *counters = bytes + front_bytes(n);
    head h;
    if (first) memset(sum->union_, 0, index_bytes(n));
    memcpy(&h, bytes + index_bytes(n), sizeof h);
    if (h.refused > 1 || !(h.max >= 0 || isnan(h.max)))
        return taciti_fail(TACIT_E_DATA, "a sketch of %zu elements has no legal head", n);
    taciti_sketch_merge(sum->union_, message, n);
    sum->refused = sum->refused || h.refused != 0;
    sum->max = isfinite(h.max) ? fmaxf(sum->max, h.max) : INFINITY;
    if (sum->form.packed) return TACIT_OK;
    if (first)
        memcpy(sum->counters, counters, taciti_sketch_bytes(sketch));
    else
        taciti_sketch_sum(sketch, sum->counters, counters);
    return TACIT_OK;
}

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

/* Sums of floats that cancel may leave rounding errors as large as themselves. Integers have no such excuse. */
static tacit_status peel_sketch(taciti_sketch_total *sum, size_t *pending, bool *whole) {
    const taciti_sketch *sketch = &sum->form.sketch;
    char reason[TACITI_REASON_BYTES];
    const bool floats = sketch->numbers.ring == TACITI_RING_F32;
    TACITI_TRY(taciti_sketch_map(sketch, sum->union_, sum->workspace, NULL));
    if (floats) taciti_log_capture(reason);
    const tacit_status status = taciti_sketch_peel(sketch, sum->counters, sum->workspace, NULL, sum->x, pending);
    if (floats) taciti_log_capture(NULL);
    *whole = floats && status == TACIT_E_DATA;
    return *whole ? TACIT_OK : status;
}

tacit_status taciti_sketch_resolve(taciti_sketch_total *sum, taciti_sketch_reply *reply) {
    const taciti_sketch *sketch = &sum->form.sketch;
    const size_t n = sketch->n;
    size_t pending = 0;
    bool whole = sum->refused;
    if (n % 64 != 0 && sum->union_[n / 64] >> (n % 64) != 0)
        return taciti_fail(TACIT_E_DATA, "the index of %zu elements has bits behind its end", n);
    const size_t measured = taciti_sketch_measure(sum->union_, n);
    if (!sum->form.packed && !whole) TACITI_TRY(peel_sketch(sum, &pending, &whole));
    if (sum->form.packed || whole)
        pending = taciti_sketch_union(sum->union_, n);
    else if (pending > 0)
        taciti_sketch_pending(sketch, sum->workspace, sum->union_);
    if ((sum->form.packed || whole) && pending == 0) /* complete() will not write the sum */
        memset(sum->x, 0, n * sizeof *sum->x);
    *reply = (taciti_sketch_reply){.pending = (uint32_t)pending,
                                   .measured = (uint32_t)(measured < UINT32_MAX ? measured : UINT32_MAX),
                                   .max = sum->max,
                                   .whole = whole};
    return TACIT_OK;
}

tacit_status taciti_sketch_check_reply(const taciti_sketch_form *form, const taciti_sketch_reply *reply) {
    const size_t n = form->sketch.n;
    if (reply->pending <= n && reply->whole <= 1 && reply->measured <= n + LINE && !signbit(reply->max))
        return TACIT_OK;
    return taciti_fail(TACIT_E_DATA, "no sum of %zu elements has %u of %u elements left", n, reply->pending,
                       reply->measured);
}

tacit_status taciti_sketch_check_pending(const taciti_sketch_form *form, const taciti_sketch_reply *reply,
                                         const uint64_t *pending) {
    const size_t n = form->sketch.n, count = taciti_sketch_union(pending, n);
    if (count == reply->pending && (n % 64 == 0 || pending[n / 64] >> (n % 64) == 0)) return TACIT_OK;
    return taciti_fail(TACIT_E_DATA, "an index of %zu among %zu elements where %u are announced", count, n,
                       reply->pending);
}

taciti_sketch taciti_sketch_of_values(const taciti_sketch_form *form, const taciti_sketch_reply *reply) {
    taciti_sketch values = form->sketch;
    if (reply->whole) (void)taciti_sketch_set_ring(&values, TACITI_RING_F32, 0);
    return values;
}

tacit_status taciti_sketch_complete(taciti_sketch_total *sum, const taciti_sketch_reply *reply, const void *values) {
    const taciti_sketch shape = taciti_sketch_of_values(&sum->form, reply);
    if (reply->whole || sum->form.packed) return taciti_sketch_unpack(&shape, sum->union_, values, sum->x);
    if (shape.numbers.ring != TACITI_RING_F32)
        return taciti_sketch_insert(&shape, sum->union_, values, sum->counters, sum->workspace, sum->x);
    taciti_kernels_get()->sketch_unpack(&shape.numbers, sum->x, sum->union_, values, shape.n);
    return TACIT_OK;
}
