/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "exchange/test_async_reference.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = TEST_ASYNC_RANKS, LINE_BYTES = 512, COPIES_MAX = 4096 };

/* The copies that one rank has offered another, in order. */
typedef struct road {
    double *copies[COPIES_MAX];
    int64_t clocks[COPIES_MAX], made[COPIES_MAX];
    int offered, taken; /* taken: how many of the other's this rank has taken in */
} road;

typedef struct member {
    FILE *log;
    char line[LINE_BYTES];
    int64_t step; /* of the line */
    bool meets, ended;
    int64_t clock; /* the step that it makes next */
    double takes;  /* sum of weights, at a meeting */
    road to[RANKS];
} member;

typedef struct world {
    test_async_reference *r;
    member rank[RANKS];
} world;

static double weight(const world *w, int a, int b) {
    const taciti_topology *t = w->r->topology;
    double max = 0;
    for (size_t round = 0; round < t->period; round++)
        max = fmax(max, (taciti_topology_weight(t, round, a, b) + taciti_topology_weight(t, round, b, a)) / 2);
    return w->r->gamma * fmin(max, 0.5);
}

static bool refuse(world *w, int rank, const char *why) {
    (void)snprintf(w->r->why, sizeof w->r->why, "rank %d, \"%.60s\": %s", rank, w->rank[rank].line, why);
    return false;
}

static void read_line(member *k) {
    k->ended = fgets(k->line, sizeof k->line, k->log) == NULL;
    if (k->ended) return;
    k->step = strtoll(k->line, NULL, 10);
    k->meets = strstr(k->line, " meet ") != NULL;
}

static bool open_logs(world *w) {
    for (int r = 0; r < w->r->topology->ranks; r++) {
        char path[LINE_BYTES];
        (void)snprintf(path, sizeof path, "%s/rank-%d.log", w->r->folder, r);
        member *k = &w->rank[r];
        k->log = fopen(path, "re");
        if (k->log == NULL) return refuse(w, r, "no log");
        read_line(k); /* the head */
        read_line(k);
        if (k->ended || strstr(k->line, " begin ") == NULL) return refuse(w, r, "not the beginning");
        k->clock = k->step;
        read_line(k);
    }
    return true;
}

static void add_updates(world *w, int r, int64_t step) {
    for (size_t i = 0; i < w->r->n; i++) w->r->x[r][i] += w->r->update(r, step, i);
    w->r->made[r]++;
}

/* The steps before this one of which the log says nothing. */
static void pass_quiet_steps(world *w, int r, int64_t until) {
    for (member *k = &w->rank[r]; k->clock < until; k->clock++) add_updates(w, r, k->clock);
}

static void offer(world *w, int r, int peer, int64_t clock) {
    road *to = &w->rank[r].to[peer];
    const size_t bytes = w->r->n * sizeof(double);
    if (to->offered == COPIES_MAX) abort();
    double *copy = malloc(bytes + 1);
    if (copy == NULL) abort();
    memcpy(copy, w->r->x[r], bytes);
    to->clocks[to->offered] = clock;
    to->made[to->offered] = w->r->made[r];
    to->copies[to->offered++] = copy;
}

/* Takes in a portion of the next copy of the peer's, beside the own one of the same number. */
static void take(world *w, int r, int peer, double portion) {
    road *mine = &w->rank[r].to[peer];
    const road *theirs = &w->rank[peer].to[r];
    const double factor = portion * weight(w, r, peer);
    for (size_t i = 0; i < w->r->n; i++) {
        const double change = factor * (theirs->copies[mine->taken][i] - mine->copies[mine->taken][i]);
        w->r->x[r][i] += change;
        w->r->moved[r] += change * change;
    }
    if (theirs->clocks[mine->taken] > w->rank[r].clock) w->rank[r].clock = theirs->clocks[mine->taken];
    mine->taken++;
}

static bool may_take(const world *w, int r, int peer) {
    const road *mine = &w->rank[r].to[peer];
    return mine->taken < mine->offered && mine->taken < w->rank[peer].to[r].offered;
}

/* Reads the ranks behind a word, up to the next. */
static int read_ranks(const char *line, const char *word, int *out) {
    const char *at = strstr(line, word);
    int count = 0, used = 0, rank = 0;
    if (at == NULL) return 0;
    for (at += strlen(word); count < RANKS && sscanf(at, " %d%n", &rank, &used) == 1; at += used) out[count++] = rank;
    return count;
}

/* Returns whether the weights of the copies of its last four steps that this rank has under way sum to 3/2 at most, to
 * which those to late peers add a half. */
static bool keeps_its_own(const world *w, int r) {
    double sum = 0;
    for (int p = 0; p < w->r->topology->ranks; p++) {
        const road *to = &w->rank[r].to[p];
        if (to->offered > to->taken && w->r->made[r] - to->made[to->taken] < 4) sum += weight(w, r, p) / w->r->gamma;
    }
    return sum <= 1.5 + 1e-9;
}

/* A line "STEP take RANKS offer RANKS". *waits: it takes in what has not been offered yet. */
static bool make_step(world *w, int r, bool *waits) {
    member *k = &w->rank[r];
    int taken[RANKS], offered[RANKS];
    const int takes = read_ranks(k->line, " take", taken), offers = read_ranks(k->line, " offer", offered);
    if (takes + offers == 0) return refuse(w, r, "nothing happens");
    if (k->step < k->clock) return refuse(w, r, "the clock was ahead of this step");
    for (int i = 0; i < takes; i++)
        if (!may_take(w, r, taken[i])) return *waits = true;
    const int64_t step = k->step;
    pass_quiet_steps(w, r, step);
    k->clock = step + 1;
    for (int i = 0; i < takes; i++) take(w, r, taken[i], 1);
    add_updates(w, r, step);
    for (int i = 0; i < offers; i++) {
        if (k->to[offered[i]].offered > k->to[offered[i]].taken) return refuse(w, r, "offers twice");
        offer(w, r, offered[i], k->clock);
    }
    if (!keeps_its_own(w, r)) return refuse(w, r, "more than all of the array is under way");
    read_line(k);
    return true;
}

/* Ranks take in what both have offered, with weights of each rank that sum to 1 at most. */
static void take_all(world *w) {
    const int ranks = w->r->topology->ranks;
    for (int r = 0; r < ranks; r++) {
        double sum = 0;
        for (int p = 0; p < ranks; p++)
            if (may_take(w, r, p)) sum += weight(w, r, p) / w->r->gamma;
        w->rank[r].takes = fmax(sum, 1);
    }
    for (int r = 0; r < ranks; r++)
        for (int p = 0; p < ranks; p++)
            if (may_take(w, r, p)) take(w, r, p, 1 / fmax(w->rank[r].takes, w->rank[p].takes));
}

/* First what both have offered; then, of what is left, the other one offers as well. */
static void meet(world *w) {
    const int ranks = w->r->topology->ranks;
    int64_t clocks[RANKS];
    for (int r = 0; r < ranks; r++) pass_quiet_steps(w, r, w->rank[r].step + 1);
    take_all(w);
    for (int r = 0; r < ranks; r++) clocks[r] = w->rank[r].clock;
    for (int r = 0; r < ranks; r++)
        for (int p = 0; p < ranks; p++)
            if (w->rank[p].to[r].offered > w->rank[r].to[p].offered) offer(w, r, p, clocks[r]);
    take_all(w);
    for (int r = 0; r < ranks; r++)
        if (w->rank[r].clock > w->r->clock) w->r->clock = w->rank[r].clock;
    for (int r = 0; r < ranks; r++) {
        w->rank[r].clock = w->r->clock;
        read_line(&w->rank[r]);
    }
}

static bool all_meet(const world *w) {
    for (int r = 0; r < w->r->topology->ranks; r++)
        if (!w->rank[r].meets || w->rank[r].ended) return false;
    return true;
}

/* Makes what can be made of each rank's log. *moved: there was something. */
static bool go_on(world *w, bool *moved) {
    *moved = false;
    for (int r = 0; r < w->r->topology->ranks; r++) {
        bool waits = false;
        while (!waits && !w->rank[r].ended && !w->rank[r].meets) {
            if (!make_step(w, r, &waits)) return false;
            *moved = *moved || !waits;
        }
    }
    if (all_meet(w)) {
        meet(w);
        *moved = true;
    }
    return true;
}

static bool compute(world *w) {
    const int ranks = w->r->topology->ranks;
    for (int r = 0; r < ranks; r++)
        for (size_t i = 0; i < w->r->n; i++) w->r->x[r][i] = w->r->start(r, i);
    if (!open_logs(w)) return false;
    for (bool moved = true; moved;)
        if (!go_on(w, &moved)) return false;
    for (int r = 0; r < ranks; r++)
        if (!w->rank[r].ended) return refuse(w, r, "waits for ever");
    return true;
}

bool test_async_compute(test_async_reference *reference) {
    world *w = calloc(1, sizeof *w);
    if (w == NULL) abort();
    w->r = reference;
    const bool fine = compute(w);
    for (int r = 0; r < RANKS; r++) {
        for (int p = 0; p < RANKS; p++)
            for (int i = 0; i < w->rank[r].to[p].offered; i++) free(w->rank[r].to[p].copies[i]);
        if (w->rank[r].log != NULL) (void)fclose(w->rank[r].log);
    }
    free(w);
    return fine;
}
