/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/uneven.h"

#include <math.h>

#include "base/memory.h"
#include "model/emulated.h"
#include "plan/compressed.h"

/* ---- shares ------------------------------------------------------------------------------------------------------ */

static double sent_share(double s, double threshold) {
    const double ratio = s / threshold;
    return ratio * ratio / (1 + ratio * ratio);
}

/* The share falls as the threshold rises; at `far` times the extreme scales it is 1e-12 and 1 - 1e-12. */
void taciti_uneven_shares(const double *s, const size_t *n, size_t count, double share, double *sent) {
    enum { HALVINGS = 100 };
    static const double FAR = 1e6;
    double low = s[0], high = s[0];
    for (size_t i = 1; i < count; i++) {
        low = fmin(low, s[i]);
        high = fmax(high, s[i]);
    }
    low /= FAR;
    high *= FAR;
    for (int i = 0; i < HALVINGS; i++) {
        const double middle = sqrt(low * high);
        double sent_floats = 0, floats = 0;
        for (size_t t = 0; t < count; t++) {
            sent_floats += (double)n[t] * sent_share(s[t], middle);
            floats += (double)n[t];
        }
        if (sent_floats / floats > share)
            low = middle;
        else
            high = middle;
    }
    for (size_t i = 0; i < count; i++) sent[i] = sent_share(s[i], sqrt(low * high));
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* The bytes that a step sends of the model. One block, owned by the first. */
typedef struct model {
    double *scale, *forth, *back;   /* [tensors]; the last two: bytes per float */
    double *to_owner, *from_owner;  /* [hosts] of one bucket: a contribution to the owner, and the owner's result */
    double even_forth, even_back;   /* bytes per float where all tensors send the same share */
    bool half;                      /* there are no results: a reduce-scatter */
    const taciti_allreduce *reduce; /* borrows */
} model;

static double bytes_per_float(const taciti_encoding *e, taciti_codec_setting setting, double share) {
    enum { MANY = 1 << 16 };
    setting.factor = 1 / share;
    return taciti_encoding_expected_bytes(e, setting, MANY, 1) / MANY;
}

static tacit_status price_tensors(const taciti_scene *scene, const taciti_encoding *e, int64_t seed, model *m) {
    const taciti_layout *layout = scene->layout;
    const int hosts = m->reduce->arrangement.hosts;
    const taciti_codec_setting back = taciti_encoding_result_setting(e, hosts);
    size_t *n = taciti_calloc(layout->tensor_count, sizeof *n);
    if (n == NULL) return TACIT_E_MEMORY;
    for (size_t t = 0; t < layout->tensor_count; t++) {
        n[t] = layout->tensors[t].plain ? 0 : layout->tensors[t].n;
        m->scale[t] = taciti_compute_magnitude(seed, t);
    }
    taciti_uneven_shares(m->scale, n, layout->tensor_count, 1 / taciti_encoding_factor(e), m->forth);
    taciti_uneven_shares(m->scale, n, layout->tensor_count, 1 / back.factor, m->back);
    const double results = m->half ? 0 : 1;
    for (size_t t = 0; t < layout->tensor_count; t++) { /* a sum has no more elements than its contributions */
        const double filled = 1 - pow(1 - m->forth[t], hosts);
        m->back[t] = results * bytes_per_float(e, back, fmin(m->back[t], filled));
        m->forth[t] = bytes_per_float(e, e->expected, m->forth[t]);
    }
    m->even_forth = bytes_per_float(e, e->expected, 1 / taciti_encoding_factor(e));
    m->even_back = results * bytes_per_float(e, back, 1 / back.factor);
    taciti_free(n);
    return TACIT_OK;
}

/* Adds the tensors' parts of this range of the model to the owner's. *tensor: one that begins not behind the range. */
static void add_range(const taciti_layout *layout, const model *m, taciti_range range, int owner, size_t *tensor) {
    const size_t end = range.at + range.n;
    for (; *tensor < layout->tensor_count; ++*tensor) {
        const taciti_tensor *t = &layout->tensors[*tensor];
        const size_t from = t->offset > range.at ? t->offset : range.at;
        const size_t to = t->offset + t->n < end ? t->offset + t->n : end;
        if (to > from) {
            m->to_owner[owner] += (double)(to - from) * m->forth[*tensor];
            m->from_owner[owner] += (double)(to - from) * m->back[*tensor];
        }
        if (t->offset + t->n >= end) return; /* the rest of it is of the next range */
    }
}

/* Contributions leave for the other owners and arrive from the other hosts; results the other way round. */
static double busiest_link(const model *m, int hosts) {
    double to = 0, from = 0, busiest = 0;
    for (int h = 0; h < hosts; h++) {
        to += m->to_owner[h];
        from += m->from_owner[h];
    }
    for (int h = 0; h < hosts; h++) {
        const double out = to - m->to_owner[h] + (hosts - 1) * m->from_owner[h];
        const double in = (hosts - 1) * m->to_owner[h] + from - m->from_owner[h];
        busiest = fmax(busiest, fmax(out, in));
    }
    return busiest;
}

static double busiest_of(const taciti_layout *layout, const taciti_bucket *bucket, model *m) {
    const taciti_arrangement *p = &m->reduce->arrangement;
    const taciti_cut cut = taciti_allreduce_cut(m->reduce, bucket->n);
    size_t tensor = bucket->first;
    for (int h = 0; h < p->hosts; h++) m->to_owner[h] = m->from_owner[h] = 0;
    for (size_t piece = 0; piece < cut.pieces; piece++)
        for (int lane = 0; lane < p->lanes; lane++)
            for (int h = 0; h < p->hosts; h++) {
                taciti_range range = taciti_cut_chunk(p, &cut, piece, lane, h);
                range.at += bucket->offset;
                add_range(layout, m, range, h, &tensor);
            }
    return busiest_link(m, p->hosts);
}

/* Returns the load of the busiest link, relative to even payloads, for the tensors that are compressed. */
static double load_of(const taciti_layout *layout, model *m) {
    const int hosts = m->reduce->arrangement.hosts;
    size_t parameters = 0;
    for (size_t t = 0; t < layout->tensor_count; t++) parameters += layout->tensors[t].plain ? 0 : layout->tensors[t].n;
    const double even = (double)parameters * (m->even_forth + m->even_back) * (hosts - 1) / hosts;
    double busiest = 0;
    for (size_t b = 0; b < layout->bucket_count; b++)
        if (!layout->buckets[b].plain) busiest += busiest_of(layout, &layout->buckets[b], m);
    return even > 0 ? busiest / even : 1;
}

static tacit_status allocate_tables(const taciti_layout *layout, model *m) {
    const size_t tensors = layout->tensor_count, hosts = (size_t)m->reduce->arrangement.hosts;
    m->scale = taciti_calloc(3 * tensors + 2 * hosts, sizeof *m->scale);
    if (m->scale == NULL) return TACIT_E_MEMORY;
    m->forth = m->scale + tensors;
    m->back = m->forth + tensors;
    m->to_owner = m->back + tensors;
    m->from_owner = m->to_owner + hosts;
    return TACIT_OK;
}

tacit_status taciti_uneven_load(const taciti_scene *scene, const taciti_method *method, int64_t seed, double *out) {
    taciti_route_setup setup = taciti_plan_setup(scene, method, &method->compression);
    taciti_route route;
    model m = {.reduce = &route.reduce, .half = method->order == TACITI_ORDER_PARTS && !method->parts.replicas};
    setup.encoding.way = TACITI_WAY_SCATTER;
    tacit_status status = taciti_route_describe(&setup, &route);
    if (status == TACIT_OK) status = allocate_tables(scene->layout, &m);
    if (status == TACIT_OK) status = price_tensors(scene, &setup.encoding, seed, &m);
    if (status == TACIT_OK) *out = load_of(scene->layout, &m);
    taciti_free(m.scale);
    taciti_route_close(&route);
    return status;
}

/* ---- the range of a prediction ----------------------------------------------------------------------------------- */

tacit_status taciti_uneven_range(const taciti_scene *scene, taciti_method *method, int64_t seed, double *even,
                                 double *uneven) {
    taciti_plan_compression *c = &method->compression;
    taciti_price sum;
    size_t first = 0;
    *even = *uneven = 1;
    if (c->encoding.codec == NULL || !c->uneven || scene->hosts->ranks < 2) return TACIT_OK;
    if (c->busiest <= 0) TACITI_TRY(taciti_uneven_load(scene, method, seed, &c->busiest));
    while (scene->layout->buckets[first].plain) first++;
    const taciti_phase phase =
        method->order == TACITI_ORDER_PARTS ? taciti_plan_reduce_phase(method) : TACITI_PHASE_ALL_REDUCE;
    TACITI_TRY(taciti_plan_price(scene, method, c, phase, scene->layout->buckets[first].n, &sum));
    *even = fmin(1, 1 / sum.busiest);
    *uneven = fmax(1, TACITI_PLAN_UNEVEN / sum.busiest);
    return TACIT_OK;
}
