/* SPDX-License-Identifier: Apache-2.0 */
#include "adapt/reference/timing.h"

#include <math.h>

enum { FIRST_SAMPLES = 3, SAMPLES_OF_MEAN = 19 }; /* the latter: of a moving average with weight RATE */
#define RATE .1
#define LARGEST_MOVE 1.5 /* of a sample against the average: one hiccup moves it by 5 % */

static void fold_sample(taciti_timing_mean *m, double x) {
    const int64_t before = m->samples++;
    if (before == 0) {
        m->value = m->min = x;
    } else if (before == 1) {
        m->second = fmax(m->min, x);
        m->value = m->min = fmin(m->min, x);
    } else if (before < FIRST_SAMPLES) {
        m->value = fmax(m->min, fmin(x, m->second));
    } else {
        const double near = m->value > 0 ? fmin(fmax(x, m->value / LARGEST_MOVE), m->value * LARGEST_MOVE) : x;
        m->value += fmax(RATE, 1 / (double)(before + 1)) * (near - m->value);
    }
}

/* Bits of an entry: a value of about 8, and the entropy of its index. */
static double entry_bits(double factor) { return 8 + log2(factor) + 1.44; }

static void enter_level(taciti_timing *t, double factor) {
    if (t->now.factor == factor) return;
    const taciti_timing_level left = t->now;
    if (t->other.factor == factor) {
        t->now = t->other;
        t->other = left;
    } else {
        taciti_change change = left.change;
        taciti_change_move(&change);
        t->now = t->coded.factor == factor ? t->coded : (taciti_timing_level){.factor = factor, .change = change};
        if (left.steps > 0) t->other = left;
    }
    if (left.factor > 1) t->coded = left;
}

/* Two compressed levels lie close together: what they say of a dense step is noise times the ratio of the bytes. So a
 * dense level, if the link has not changed since, is one of the two. */
static void fit_line(taciti_timing *t) {
    const taciti_timing_level *a = &t->now, *b = a->factor > 1 && t->dense.steps > 0 ? &t->dense : &t->other;
    if (b->factor > 0 && fabs(a->bytes - b->bytes) > .25 * fmax(a->bytes, b->bytes)) {
        t->seconds_per_byte = fmax((a->transfer.value - b->transfer.value) / (a->bytes - b->bytes), 0);
        t->latency = a->transfer.value - t->seconds_per_byte * a->bytes;
        if (t->latency >= 0) return;
    } else if (t->latency + t->seconds_per_byte * a->bytes > 0) { /* one level: both parts in proportion */
        const double ratio = a->transfer.value / (t->latency + t->seconds_per_byte * a->bytes);
        t->latency *= ratio;
        t->seconds_per_byte *= ratio;
        return;
    }
    const taciti_timing_level *large = a->bytes >= b->bytes ? a : b;
    t->latency = 0;
    t->seconds_per_byte = large->bytes > 0 ? large->transfer.value / large->bytes : 0;
}

/* Two compressed levels give a line over 1 / F; one keeps the parts in proportion. */
static void fit_encode(taciti_timing *t) {
    const taciti_timing_level *a = &t->now, *b = &t->coded;
    if (a->factor <= 1) return;
    const double known = t->encode_all + t->encode_sent / a->factor;
    if (b->factor > 1 && fabs(1 / a->factor - 1 / b->factor) > .1 / a->factor) {
        t->encode_sent = fmax((a->encode.value - b->encode.value) / (1 / a->factor - 1 / b->factor), 0);
        t->encode_sent = fmin(t->encode_sent, a->encode.value * a->factor);
        t->encode_all = a->encode.value - t->encode_sent / a->factor;
    } else if (known > 0) {
        t->encode_all *= a->encode.value / known;
        t->encode_sent *= a->encode.value / known;
    } else {
        t->encode_all = a->encode.value;
    }
}

/* All levels in proportion, but those that were not measured since are to be. transfer: of this one. */
static void follow_change(taciti_timing *t, double ratio, double transfer) {
    taciti_timing_level *const levels[] = {&t->other, &t->dense, &t->coded};
    for (int i = 0; i < 3; i++) {
        levels[i]->transfer.value *= ratio;
        levels[i]->steps = 0;
        taciti_change_move(&levels[i]->change);
    }
    t->now.transfer = (taciti_timing_mean){.value = transfer, .samples = FIRST_SAMPLES};
    t->now.steps = 1;
}

static void observe_rest(taciti_timing *t, const taciti_adapt_facts *facts, double busy, double exposed) {
    const bool compressed = facts->factor > 1;
    taciti_timing_mean *base = &t->base[compressed];
    const double rest = fmax(facts->seconds.step - exposed, 0);
    const bool settled = base->samples >= FIRST_SAMPLES && base->value > 0; /* then one hiccup moves it by 1 % */
    fold_sample(base, settled ? fmin(fmax(rest, .9 * base->value), 1.1 * base->value) : rest);
    if (!compressed) t->dense = t->now;
    if (exposed > 1.2 * t->share * busy) {
        t->hidden += (t->hidden > 0 ? RATE : 1) * (busy - exposed - t->hidden);
    } else {
        t->hidden = fmax(t->hidden, busy - exposed);
    }
}

static double predict_step(const taciti_timing *t, double factor) {
    const bool compressed = factor > 1;
    const double encode = compressed ? t->encode_all + t->encode_sent / factor : 0;
    const double busy = t->latency + t->seconds_per_byte * taciti_timing_bytes(t, factor) + encode;
    return t->base[compressed].value + fmax(busy - t->hidden, t->share * busy);
}

/* Against the prediction, so that steps at several factors are samples of the same. */
static void compare_levels(taciti_timing *t, const taciti_adapt_facts *facts) {
    taciti_timing_mean *m = &t->measured[facts->factor > 1];
    const double ratio = fmin(fmax(facts->seconds.step / fmax(predict_step(t, facts->factor), 1e-9), .5), 2);
    if (m->samples > 0) taciti_noise_observe(&t->noise, log(ratio / m->value), facts->steps);
    const double near = fmax(.1, taciti_noise_deviation(&t->noise));
    fold_sample(m,
                m->samples < FIRST_SAMPLES ? ratio : fmin(fmax(ratio, m->value * (1 - near)), m->value * (1 + near)));
}

static void observe_level(taciti_timing *t, const taciti_adapt_facts *facts, double transfer) {
    fold_sample(&t->now.transfer, transfer);
    fold_sample(&t->now.encode, facts->seconds.encode);
    t->now.steps++;
    t->now.bytes = facts->bytes;
}

double taciti_timing_observe(taciti_timing *t, const taciti_adapt_facts *facts) {
    const taciti_adapt_seconds *seconds = &facts->seconds;
    if (!(seconds->step > 0) || (facts->step == 0 && seconds->exposed < .75 * seconds->step)) return 1;
    const double busy = fmax(seconds->busy, seconds->exposed);
    const double transfer = fmax(busy - seconds->encode, 0);
    double all = 0;
    for (size_t b = 0; b < facts->buckets; b++) all += (double)facts->bucket_bytes[b];
    t->share = all > 0 ? (double)facts->bucket_bytes[facts->buckets - 1] / all : 1;
    if (seconds->statistics > 0)
        t->statistics += (t->statistics > 0 ? RATE : 1) * (seconds->statistics - t->statistics);
    enter_level(t, facts->factor);
    const double before = exp(t->now.change.mean);
    const double change = taciti_change_observe(&t->now.change, transfer, facts->steps);
    observe_level(t, facts, transfer);
    if (change != 1) follow_change(t, change, change * before);
    observe_rest(t, facts, busy, seconds->exposed);
    fit_line(t);
    fit_encode(t);
    if (change == 1) compare_levels(t, facts);
    return change;
}

bool taciti_timing_known(const taciti_timing *t) {
    return t->base[0].samples > 0 && t->base[1].samples > 0 && t->dense.factor > 0;
}

double taciti_timing_bytes(const taciti_timing *t, double factor) {
    if (factor <= 1) return t->dense.bytes;
    const taciti_timing_level *seen = t->now.factor > 1 ? &t->now : &t->coded;
    if (!(seen->factor > 1)) return t->dense.bytes / factor * entry_bits(factor) / 32;
    return fmin(seen->bytes * seen->factor / factor * entry_bits(factor) / entry_bits(seen->factor), t->dense.bytes);
}

double taciti_timing_seconds(const taciti_timing *t, double factor) {
    const taciti_timing_mean *measured = &t->measured[factor > 1];
    return predict_step(t, factor) * (measured->samples >= FIRST_SAMPLES ? measured->value : 1);
}

double taciti_timing_error(const taciti_timing *t) {
    double share = 0;
    for (int kind = 0; kind < 2; kind++) share += 1 / fmin(fmax((double)t->measured[kind].samples, 1), SAMPLES_OF_MEAN);
    return taciti_noise_deviation(&t->noise) * sqrt(share);
}
