/* SPDX-License-Identifier: Apache-2.0
 *
 * One pass that selects, for sets with wide registers. The including file has defined INLINE; `pass`, the state of a
 * pass with the number `count` of selected elements; begin_pass(), select_block() and finish_pass().
 */
#ifndef TACITI_KERNEL_SELECT_PASS_H
#define TACITI_KERNEL_SELECT_PASS_H

/* After SELECT_BLOCK elements the loop chooses its form again. Below SPARSE selected ones it looks for empty lines: a
 * branch that is rarely taken costs less than a compression, a mispredicted one costs more. */
enum { SELECT_BLOCK = 1024, SPARSE = 16 };

/* Selects among the first `whole` elements, then finishes. The flags are constants wherever this is inlined. */
INLINE void select_all(taciti_select *s, const float *x, size_t whole, size_t n, int measure, int error) {
    const taciti_select form = {.threshold = s->threshold,
                                .half = s->half,
                                .measure = measure,
                                .indices = s->indices,
                                .values = s->values,
                                .error = error ? s->error : NULL};
    pass p = begin_pass(&form);
    size_t found = SPARSE;
    for (size_t i = 0; i < whole; i += SELECT_BLOCK) {
        const size_t end = whole - i < SELECT_BLOCK ? whole : i + SELECT_BLOCK, before = p.count;
        if (found < SPARSE)
            select_block(&p, &form, x, i, end, 1, error);
        else
            select_block(&p, &form, x, i, end, 0, error);
        found = p.count - before;
    }
    finish_pass(&p, s, x, whole, n);
}

INLINE void select_whole(taciti_select *s, const float *x, size_t whole, size_t n) {
    if (s->measure && s->error != NULL)
        select_all(s, x, whole, n, 1, 1);
    else if (s->measure)
        select_all(s, x, whole, n, 1, 0);
    else if (s->error != NULL)
        select_all(s, x, whole, n, 0, 1);
    else
        select_all(s, x, whole, n, 0, 0);
}

#endif
