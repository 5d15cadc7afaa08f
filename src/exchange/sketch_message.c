/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/sketch_message.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

/* HEAD_BYTES: zeros. */
enum { LINE = TACITI_SKETCH_LINE, MIN_ROWS = 3, HEAD_BYTES = 8 };

static size_t index_bytes(size_t n) { return taciti_sketch_index_words(n) * sizeof(uint64_t); }

/* Index and head; counters begin behind them. */
static size_t front_bytes(size_t n) { return taciti_round_up(index_bytes(n) + HEAD_BYTES, TACITI_ALIGN_BYTES); }

/* ---- forms ------------------------------------------------------------------------------------------------------- */

taciti_sketch_form taciti_sketch_form_of(size_t n, size_t measured, double ratio, uint64_t seed) {
    const size_t some = measured < n ? measured : n;
    const size_t rows = ratio > 0 ? taciti_sketch_rows_at(n, ratio) : taciti_sketch_rows(some);
    taciti_sketch_form form = {.sketch = taciti_sketch_init(n, rows > MIN_ROWS ? rows : MIN_ROWS, seed)};
    const size_t values_bytes = n * TACITI_SKETCH_NUMBER_BYTES; /* of the union, at most */
    form.packed = taciti_sketch_bytes(&form.sketch) >= values_bytes;
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
size_t taciti_sketch_workspace_bound(size_t n) {
    const taciti_sketch one = taciti_sketch_init(n, n / LINE + MIN_ROWS, 0);
    return taciti_sketch_workspace_bytes(&one);
}

/* ---- contributions ----------------------------------------------------------------------------------------------- */

tacit_status taciti_sketch_contribute(const taciti_sketch_form *form, const float *x, void *message) {
    const size_t n = form->sketch.n;
    char *bytes = message;
    if (n > UINT32_MAX) return taciti_fail(TACIT_E_USAGE, "a sketch of %zu elements: 2^32 - 1 at most", n);
    taciti_sketch_index(x, n, message);
    memset(bytes + index_bytes(n), 0, taciti_sketch_contribution_bytes(form) - index_bytes(n));
    if (!form->packed) taciti_sketch_add(&form->sketch, x, (float *)(void *)(bytes + front_bytes(n)));
    return TACIT_OK;
}

tacit_status taciti_sketch_take(taciti_sketch_total *sum, const void *message, bool first) {
    static const char HEAD[HEAD_BYTES] = {0};
    const taciti_sketch *sketch = &sum->form.sketch;
    const size_t n = sketch->n;
    const char *bytes = message;
    const float *counters = (const float *)(const void *)(bytes + front_bytes(n));
    if (first) memset(sum->union_, 0, index_bytes(n));
    if (memcmp(bytes + index_bytes(n), HEAD, HEAD_BYTES) != 0)
        return taciti_fail(TACIT_E_DATA, "a sketch of %zu elements has no legal head", n);
    taciti_sketch_merge(sum->union_, message, n);
    if (sum->form.packed) return TACIT_OK;
    if (first)
        memcpy(sum->counters, counters, taciti_sketch_bytes(sketch));
    else
        taciti_sketch_sum(sketch, sum->counters, counters);
    return TACIT_OK;
}

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

/* Sums that cancel may leave rounding errors as large as themselves. */
static tacit_status peel_sketch(taciti_sketch_total *sum, size_t *pending, bool *whole) {
    const taciti_sketch *sketch = &sum->form.sketch;
    char reason[TACITI_REASON_BYTES];
    TACITI_TRY(taciti_sketch_map(sketch, sum->union_, sum->workspace));
    taciti_log_capture(reason);
    const tacit_status status = taciti_sketch_peel(sketch, sum->counters, sum->workspace, sum->x, pending);
    taciti_log_capture(NULL);
    *whole = status == TACIT_E_DATA;
    return *whole ? TACIT_OK : status;
}

tacit_status taciti_sketch_resolve(taciti_sketch_total *sum, taciti_sketch_reply *reply) {
    const taciti_sketch *sketch = &sum->form.sketch;
    const size_t n = sketch->n;
    size_t pending = 0;
    bool whole = false;
    if (n % 64 != 0 && sum->union_[n / 64] >> (n % 64) != 0)
        return taciti_fail(TACIT_E_DATA, "the index of %zu elements has bits behind its end", n);
    const size_t measured = taciti_sketch_measure(sum->union_, n);
    if (!sum->form.packed) TACITI_TRY(peel_sketch(sum, &pending, &whole));
    if (sum->form.packed || whole)
        pending = taciti_sketch_union(sum->union_, n);
    else if (pending > 0)
        taciti_sketch_pending(sketch, sum->workspace, sum->union_);
    if ((sum->form.packed || whole) && pending == 0) /* complete() will not write the sum */
        memset(sum->x, 0, n * sizeof *sum->x);
    *reply = (taciti_sketch_reply){.pending = (uint32_t)pending,
                                   .measured = (uint32_t)(measured < UINT32_MAX ? measured : UINT32_MAX),
                                   .whole = whole};
    return TACIT_OK;
}

tacit_status taciti_sketch_check_reply(const taciti_sketch_form *form, const taciti_sketch_reply *reply) {
    const size_t n = form->sketch.n;
    if (reply->pending <= n && reply->whole <= 1 && reply->measured <= n + LINE && reply->zero == 0) return TACIT_OK;
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

tacit_status taciti_sketch_complete(taciti_sketch_total *sum, const taciti_sketch_reply *reply, const float *values) {
    const taciti_sketch *sketch = &sum->form.sketch;
    if (reply->whole || sum->form.packed) return taciti_sketch_unpack(sketch, sum->union_, values, sum->x);
    taciti_kernels_get()->sketch_unpack(sum->x, sum->union_, values, sketch->n);
    return TACIT_OK;
}
