/* SPDX-License-Identifier: Apache-2.0
 *
 * adaq: the largest of the positive and the largest of the negative elements, as indices and signs; each sign stands
 * for one value, the mean of its elements.
 *
 * Source: Dryden et al., "Communication Quantization for Data-Parallel Training of Deep Neural Networks", MLHPC 2016,
 * section 3.3 (adaptive quantisation): 1 / factor of the positive elements and of the negative ones, each at least one;
 * the two means; error feedback.
 *   deviation: thresholds are exact where the paper samples; indices are coded (indices.h).
 *
 * Properties (test_grace.c): exactly those shares of elements that differ, and of equal ones all
 * (adaq_sends_shares_of_both_sides); class GATHER; deterministic. An array with a value that is not finite decodes to
 * NaN.
 *
 * Wire layout           bytes                a decoder rejects
 *   elements sent         4                    more than there are; UINT32_MAX says not finite, and nothing follows
 *   bytes of the indices  4                    a payload of another size
 *   index coder           4                    an unknown one; anything but 0 if no element is sent
 *   values of - and +     8                    a positive one, a negative one, one that is not finite
 *   indices               as above             what the coder rejects
 *   signs                 1 / 8, rounded up    bits behind the last sign
 */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "codec/largest.h"
#include "codec/selector.h"
#include "kernel/kernel.h"

enum { CODER_SLACK = 8, LINE_BYTES = 64 };
#define NOT_FINITE UINT32_MAX

typedef struct header {
    uint32_t kept, index_bytes, coder;
    float values[2]; /* of negative and of positive elements */
} header;

static size_t sign_bytes(size_t kept) { return (kept + 7) / 8; }

/* The shortest coder needs no more than a bitmap. */
static size_t bound(const void *options, size_t n) {
    (void)options;
    return sizeof(header) + 2 * ((n + 7) / 8) + CODER_SLACK;
}

static double expected_bytes(const taciti_codec_call *call, size_t n) {
    const size_t k = taciti_kept_of(call->setting.factor, TACITI_FACTOR, n);
    const double bits = (taciti_index_entropy(k, n) * 1.03 + 1) * (double)k;
    return (double)sizeof(header) + fmin(bits / 8, (double)(2 * n) / 8);
}

static size_t indices_bytes(size_t n) {
    const size_t bytes = (n + TACITI_SELECT_SLACK) * sizeof(uint32_t);
    return (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

/* Scratch: indices, then the elements of one side. */
static size_t scratch_bytes(const void *options, size_t n) {
    (void)options;
    return 2 * indices_bytes(n);
}

/* ---- encode ------------------------------------------------------------------------------------------------------ */

/* Thresholds of both sides; a side without elements has infinity. */
typedef struct sides {
    float thresholds[2]; /* magnitudes */
} sides;

static int side_of(float x) { return x > 0; }

static float threshold_of(const float *x, size_t n, int side, double factor, float *work) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (x[i] != 0 && side_of(x[i]) == side) work[count++] = x[i];
    if (count == 0) return INFINITY;
    const size_t k = taciti_kept_of(factor, TACITI_FACTOR, count);
    return (float)taciti_magnitude_of(taciti_magnitude_of_rank(work, count, k, work));
}

static bool is_sent(const sides *s, float x) { return x != 0 && fabsf(x) >= s->thresholds[side_of(x)]; }

/* Indices and means of what is sent. */
static header select_sides(const sides *s, const float *x, size_t n, uint32_t *indices) {
    header head = {0};
    double sums[2] = {0};
    size_t counts[2] = {0};
    for (size_t i = 0; i < n; i++) {
        if (!is_sent(s, x[i])) continue;
        indices[head.kept++] = (uint32_t)i;
        sums[side_of(x[i])] += (double)x[i];
        counts[side_of(x[i])]++;
    }
    for (int side = 0; side < 2; side++)
        if (counts[side] > 0) head.values[side] = (float)(sums[side] / (double)counts[side]);
    return head;
}

static size_t write_payload(const float *x, size_t n, header *head, const uint32_t *indices, unsigned char *out) {
    size_t index_bytes = 0;
    if (head->kept > 0) {
        const taciti_index_coder *coder = taciti_index_coder_best(indices, head->kept, n, &index_bytes);
        head->coder = (uint32_t)coder->id;
        head->index_bytes = (uint32_t)index_bytes;
        coder->encode(indices, head->kept, n, out + sizeof *head);
    }
    memcpy(out, head, sizeof *head);
    unsigned char *signs = out + sizeof *head + index_bytes;
    memset(signs, 0, sign_bytes(head->kept));
    for (size_t i = 0; i < head->kept; i++) signs[i / 8] |= (unsigned char)((unsigned)side_of(x[indices[i]]) << i % 8);
    return sizeof *head + index_bytes + sign_bytes(head->kept);
}

static void tally(taciti_codec_tally *tally, const sides *s, const header *head, const uint32_t *indices,
                  const float *x, size_t n) {
    const float threshold = fminf(s->thresholds[0], s->thresholds[1]);
    tally->squares_in += taciti_kernels_get()->sum_squares(x, n);
    for (size_t i = 0; i < head->kept; i++) {
        const double value = (double)head->values[side_of(x[indices[i]])];
        tally->squares_out += value * value;
    }
    tally->n += n;
    tally->selected += head->kept;
    if (head->kept == 0) return;
    tally->near += taciti_kernels_get()->count_above(x, n, taciti_magnitude_bits((double)threshold / 2));
    tally->threshold = fmax(tally->threshold, (double)threshold);
}

static void errors(const header *head, const uint32_t *indices, const float *x, size_t n, float *error) {
    memcpy(error, x, n * sizeof *x);
    for (size_t i = 0; i < head->kept; i++) error[indices[i]] -= head->values[side_of(x[indices[i]])];
}

static size_t encode_not_finite(const taciti_codec_call *call, size_t n, void *out, float *error) {
    const header head = {.kept = NOT_FINITE};
    memcpy(out, &head, sizeof head);
    for (size_t i = 0; error != NULL && i < n; i++) error[i] = NAN;
    if (call->tally != NULL) {
        call->tally->squares_in = call->tally->squares_out = (double)NAN;
        call->tally->n += n;
        call->tally->selected += n;
        call->tally->near += n;
    }
    return sizeof head;
}

static tacit_status encode(const taciti_codec_call *call, const float *x, size_t n, void *out, float *error,
                           size_t *bytes) {
    *bytes = 0;
    if (n == 0) return TACIT_OK;
    if (!taciti_kernels_get()->all_finite(x, n)) {
        *bytes = encode_not_finite(call, n, out, error);
        return TACIT_OK;
    }
    uint32_t *indices = call->scratch;
    float *work = (float *)(void *)((char *)call->scratch + indices_bytes(n));
    sides s;
    for (int side = 0; side < 2; side++) s.thresholds[side] = threshold_of(x, n, side, call->setting.factor, work);
    header head = select_sides(&s, x, n, indices);
    *bytes = write_payload(x, n, &head, indices, out);
    if (error != NULL) errors(&head, indices, x, n, error);
    if (call->tally != NULL) tally(call->tally, &s, &head, indices, x, n);
    return TACIT_OK;
}

/* ---- decode ------------------------------------------------------------------------------------------------------ */
static tacit_status malformed(size_t bytes, size_t n) {
    return taciti_fail(TACIT_E_DATA, "adaq payload of %zu bytes for %zu floats is malformed", bytes, n);
}

/* Checks all, and leaves the indices in the scratch memory. Only for n > 0. */
static tacit_status parse(const taciti_codec_call *call, const void *payload, size_t bytes, size_t n, header *head) {
    const unsigned char *at = (const unsigned char *)payload + sizeof *head;
    if (bytes < sizeof *head) return malformed(bytes, n);
    memcpy(head, payload, sizeof *head);
    if (head->kept == NOT_FINITE) return bytes == sizeof *head ? TACIT_OK : malformed(bytes, n);
    if (head->kept > n || bytes - sizeof *head != (size_t)head->index_bytes + sign_bytes(head->kept))
        return malformed(bytes, n);
    if (!(head->values[0] <= 0 && head->values[1] >= 0 && isfinite(head->values[0]) && isfinite(head->values[1])))
        return malformed(bytes, n);
    if (head->kept == 0) return head->index_bytes == 0 && head->coder == 0 ? TACIT_OK : malformed(bytes, n);
    const taciti_index_coder *coder = head->coder <= INT8_MAX ? taciti_index_coder_at((int)head->coder) : NULL;
    if (coder == NULL) return malformed(bytes, n);
    const unsigned char last = at[head->index_bytes + sign_bytes(head->kept) - 1];
    if (head->kept % 8 != 0 && last >> head->kept % 8 != 0) return malformed(bytes, n);
    return coder->decode(at, head->index_bytes, call->scratch, head->kept, n);
}

static void add_decoded(const taciti_codec_call *call, const void *payload, const header *head, float *x, size_t n) {
    const uint32_t *indices = call->scratch;
    const unsigned char *signs = (const unsigned char *)payload + sizeof *head + head->index_bytes;
    if (head->kept == NOT_FINITE) {
        for (size_t i = 0; i < n; i++) x[i] = NAN;
        return;
    }
    for (size_t i = 0; i < head->kept; i++) x[indices[i]] += head->values[signs[i / 8] >> i % 8 & 1];
}

static tacit_status decode_add(const taciti_codec_call *call, const void *payload, size_t bytes, float *x, size_t n) {
    header head;
    if (n == 0) return bytes == 0 ? TACIT_OK : malformed(bytes, n);
    TACITI_TRY(parse(call, payload, bytes, n, &head));
    add_decoded(call, payload, &head, x, n);
    return TACIT_OK;
}

static tacit_status decode(const taciti_codec_call *call, const void *payload, size_t bytes, float *x, size_t n) {
    header head;
    if (n == 0) return bytes == 0 ? TACIT_OK : malformed(bytes, n);
    TACITI_TRY(parse(call, payload, bytes, n, &head));
    memset(x, 0, n * sizeof *x);
    add_decoded(call, payload, &head, x, n);
    return TACIT_OK;
}

extern const taciti_codec taciti_codec_adaq;
const taciti_codec taciti_codec_adaq = {
    .name = "adaq",
    .help = "sends which positive and which negative elements are the largest, and the mean of either side",
    .source = "adaptive quantisation (Dryden et al., MLHPC 2016), exact thresholds",
    .aggregation = TACITI_CODEC_GATHER,
    .rounds = 1,
    .selects = true,
    .keyless = true,
    .bound = bound,
    .expected_bytes = expected_bytes,
    .scratch_bytes = scratch_bytes,
    .encode = encode,
    .decode = decode,
    .decode_add = decode_add,
};
