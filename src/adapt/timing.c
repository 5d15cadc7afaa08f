/* SPDX-License-Identifier: Apache-2.0 */
#include "adapt/timing.h"

#include <math.h>

enum { STEPS_OF_MINIMUM = 3, STEPS_TO_BELIEVE = 3 };

/* Minimum of the first samples, which hold start-up costs; then a moving average. */
static void fold(double *value, int64_t before, double x) {
    if (before == 0) {
        *value = x;
    } else if (before < STEPS_OF_MINIMUM) {
        *value = fmin(*value, x);
    } else {
        *value += .1 * (x - *value);
    }
}

/* Bits of an entry: a value of about 8, and the entropy of its index. */
static double entry_bits(double factor) { return 8 + log2(factor) + 1.44; }

static void enter_level(taciti_timing *t, double factor) {
    if (t->now.factor == factor) return;
    t->strange = 0;
    if (t->other.factor == factor) {
        const taciti_timing_level back = t->other;
        t->other = t->now;
        t->now = back;
        return;
    }
    if (t->now.steps > 0) t->other = t->now;
    t->now = (taciti_timing_level){.factor = factor};
}

/* Two compressed levels lie close together: what they say of a dense step is noise times the ratio of the bytes. So a
 * dense level, if the link has not changed since, is one of the two. */
static void fit_line(taciti_timing *t) {
    const taciti_timing_level *a = &t->now, *b = a->factor > 1 && t->dense.steps > 0 ? &t->dense : &t->other;
    if (b->factor > 0 && fabs(a->bytes - b->bytes) > .25 * fmax(a->bytes, b->bytes)) {
        t->seconds_per_byte = fmax((a->transfer - b->transfer) / (a->bytes - b->bytes), 0);
        t->latency = a->transfer - t->seconds_per_byte * a->bytes;
        if (t->latency >= 0) return;
    } else if (t->latency + t->seconds_per_byte * a->bytes > 0) { /* one level: both parts in proportion */
        const double ratio = a->transfer / (t->latency + t->seconds_per_byte * a->bytes);
        t->latency *= ratio;
        t->seconds_per_byte *= ratio;
        return;
    }
    const taciti_timing_level *large = a->bytes >= b->bytes ? a : b;
    t->latency = 0;
    t->seconds_per_byte = large->bytes > 0 ? large->transfer / large->bytes : 0;
}

/* Two compressed levels give a line over 1 / F; one keeps the parts in proportion. */
static void fit_encode(taciti_timing *t) {
    const taciti_timing_level *a = &t->now, *b = &t->other;
    if (a->factor <= 1) return;
    const double known = t->encode_all + t->encode_sent / a->factor;
    if (b->factor > 1 && fabs(1 / a->factor - 1 / b->factor) > .1 / a->factor) {
        t->encode_sent = fmax((a->encode - b->encode) / (1 / a->factor - 1 / b->factor), 0);
        t->encode_sent = fmin(t->encode_sent, a->encode * a->factor);
        t->encode_all = a->encode - t->encode_sent / a->factor;
    } else if (known > 0) {
        t->encode_all *= a->encode / known;
        t->encode_sent *= a->encode / known;
    } else {
        t->encode_all = a->encode;
    }
}

/* Whether the transfer is far from the level's average; counts those in a row. */
static bool is_strange(taciti_timing *t, double transfer) {
    if (t->now.steps <= STEPS_OF_MINIMUM) return false;
    const double ratio = transfer / fmax(t->now.transfer, 1e-9);
    const int side = ratio > 1.3 ? 1 : ratio < 1 / 1.3 ? -1 : 0;
    if (side == 0 || side * t->strange < 0) t->strange = 0;
    if (side == 0) return false;
    t->strange_transfer = t->strange == 0 ? transfer : fmin(t->strange_transfer, transfer);
    t->strange += side;
    return true;
}

static void follow_change(taciti_timing *t) {
    const double ratio = t->strange_transfer / fmax(t->now.transfer, 1e-9);
    t->now.transfer = t->strange_transfer;
    t->now.steps = 1;
    t->other.transfer *= ratio;
    t->dense.transfer *= ratio;
    t->other.steps = t->dense.steps = 0;
    t->strange = 0;
}

static void observe_rest(taciti_timing *t, const taciti_adapt_facts *facts, double busy, double exposed) {
    const bool compressed = facts->factor > 1;
    const int64_t steps = t->now.steps;
    double *base = &t->base[compressed];
    const double rest = fmax(facts->seconds.step - exposed, 0);
    if (*base > 0) {
        fold(base, steps, fmin(fmax(rest, .9 * *base), 1.1 * *base)); /* one hiccup moves it by 1 % */
    } else {
        *base = rest;
    }
    if (!compressed) t->dense = t->now;
    if (exposed > 1.2 * t->share * busy) {
        fold(&t->hidden, t->hidden > 0 ? STEPS_OF_MINIMUM : 0, busy - exposed);
    } else {
        t->hidden = fmax(t->hidden, busy - exposed);
    }
}

bool taciti_timing_observe(taciti_timing *t, const taciti_adapt_facts *facts) {
    const double exposed = facts->seconds.exposed;
    if (!(facts->seconds.step > 0) || (facts->step == 0 && exposed < .75 * facts->seconds.step)) return false;
    const double busy = fmax(facts->seconds.busy, exposed);
    const double transfer = fmax(busy - facts->seconds.encode, 0);
    double all = 0;
    for (size_t b = 0; b < facts->buckets; b++) all += (double)facts->bucket_bytes[b];
    t->share = all > 0 ? (double)facts->bucket_bytes[facts->buckets - 1] / all : 1;
    enter_level(t, facts->factor);
    bool changed = false;
    if (is_strange(t, transfer)) {
        changed = t->strange >= STEPS_TO_BELIEVE || t->strange <= -STEPS_TO_BELIEVE;
        if (!changed) return false;
        follow_change(t);
    } else {
        fold(&t->now.transfer, t->now.steps, transfer);
        fold(&t->now.encode, t->now.steps, facts->seconds.encode);
        t->now.steps++;
    }
    t->now.bytes = facts->bytes;
    observe_rest(t, facts, busy, exposed);
    fit_line(t);
    fit_encode(t);
    return changed;
}

bool taciti_timing_known(const taciti_timing *t) { return t->base[0] > 0 && t->base[1] > 0 && t->dense.bytes > 0; }

double taciti_timing_bytes(const taciti_timing *t, double factor) {
    if (factor <= 1) return t->dense.bytes;
    const taciti_timing_level *seen = t->now.factor > 1 ? &t->now : &t->other;
    if (!(seen->factor > 1)) return t->dense.bytes / factor * entry_bits(factor) / 32;
    return fmin(seen->bytes * seen->factor / factor * entry_bits(factor) / entry_bits(seen->factor), t->dense.bytes);
}

double taciti_timing_seconds(const taciti_timing *t, double factor) {
    const bool compressed = factor > 1;
    const double encode = compressed ? t->encode_all + t->encode_sent / factor : 0;
    const double busy = t->latency + t->seconds_per_byte * taciti_timing_bytes(t, factor) + encode;
    return t->base[compressed] + fmax(busy - t->hidden, t->share * busy);
}
