/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints under a launcher:
 *
 *   checkpoint save STEP FOLDER ...     saves
 *   checkpoint check STEP FOLDER ...    the newest must be STEP on every rank, whatever number of ranks wrote it
 *   checkpoint fail STEP FOLDER ...     saves while each rank in turn cannot write: all ranks must learn of it
 */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

#include "base/memory.h"
#include "check.h"
#include "ckpt/ckpt.h"
#include "ckpt/stage.h"

enum { TENSORS = 11, ARRAYS = 2 };

typedef struct run_state {
    taciti_layout layout;
    taciti_ckpt_array arrays[ARRAYS];
    float *flat[ARRAYS]; /* of the arrays */
} run_state;

static run_state create_state(void) {
    run_state run = {.arrays = {{.prefix = "model."}, {.prefix = "optim.m."}}};
    CHECK(taciti_layout_create(TENSORS, &run.layout) == TACIT_OK);
    for (size_t t = 0; t < TENSORS; t++) {
        char name[16];
        const size_t shape[2] = {1 + t * t * 37, 1 + t % 3};
        (void)snprintf(name, sizeof name, "t.%zu", t);
        CHECK(taciti_layout_append(&run.layout, name, 2, shape, true) == TACIT_OK);
    }
    CHECK(taciti_layout_seal(&run.layout, 1 << 20) == TACIT_OK);
    for (int a = 0; a < ARRAYS; a++) {
        run.flat[a] = taciti_calloc(run.layout.n, sizeof(float));
        CHECK(run.flat[a] != NULL);
        run.arrays[a].entry = (taciti_state_entry){.layout = &run.layout, .data = run.flat[a]};
    }
    return run;
}

static void destroy_state(run_state *run) {
    for (int a = 0; a < ARRAYS; a++) taciti_free(run->flat[a]);
    taciti_layout_destroy(&run->layout);
}

static float value_of(int array, size_t i, int64_t step) {
    return (float)(step * 1000 + array * 100 + (int64_t)(i % 97));
}

static void fill(run_state *run, int64_t step) {
    for (int a = 0; a < ARRAYS; a++)
        for (size_t t = 0; t < TENSORS; t++)
            for (size_t i = 0; i < run->layout.tensors[t].n; i++)
                run->flat[a][run->layout.tensors[t].offset + i] = value_of(a, i + t, step);
}

static tacit_status save(taciti_comm *comm, const char *folder, int64_t step, run_state *run) {
    const taciti_ckpt_state state = {.arrays = run->arrays, .array_count = ARRAYS, .meta_json = "{\"kind\":\"test\"}"};
    fill(run, step);
    return taciti_ckpt_save(comm, folder, step, 2, &state);
}

static void check(taciti_comm *comm, const char *folder, int64_t step, run_state *run) {
    char path[TACITI_PATH_BYTES], *meta = NULL;
    int64_t found = -2;
    fill(run, -1);
    CHECK(taciti_ckpt_find(comm, folder, path, sizeof path, &found, &meta) == TACIT_OK);
    CHECK(found == step && strcmp(meta, "{\"kind\":\"test\"}") == 0);
    CHECK(taciti_ckpt_load(path, run->arrays, ARRAYS) == TACIT_OK);
    for (int a = 0; a < ARRAYS; a++)
        for (size_t t = 0; t < TENSORS; t++)
            for (size_t i = 0; i < run->layout.tensors[t].n; i++)
                CHECK(run->flat[a][run->layout.tensors[t].offset + i] == value_of(a, i + t, step));
    taciti_free(meta);
}

/* Writing beyond the limit fails with EFBIG, as a full disk does with ENOSPC, on this rank alone. */
static void limit_files(rlim_t bytes) {
    struct rlimit limit;
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

static void fail_in_turn(taciti_comm *comm, const char *folder, int64_t step, run_state *run) {
    char tmp[TACITI_PATH_BYTES];
    CHECK(taciti_stage_path(folder, step + 1, ".tmp", tmp) == TACIT_OK);
    CHECK(save(comm, folder, step, run) == TACIT_OK);
    for (int r = 0; r < taciti_comm_size(comm); r++) {
        if (r == g_rank) limit_files(300);
        const tacit_status status = save(comm, folder, step + 1, run);
        if (r == g_rank) limit_files(RLIM_INFINITY);
        CHECK(status == TACIT_E_IO);
        CHECK(taciti_comm_barrier(comm) == TACIT_OK);
        CHECK(access(tmp, F_OK) != 0);
        check(comm, folder, step, run);
    }
}

int main(int argc, char **argv) {
    taciti_comm *comm = open_comm();
    CHECK(argc >= 4);
    run_state run = create_state();
    const int64_t step = strtoll(argv[2], NULL, 10);
    for (int i = 3; i < argc; i++) {
        if (strcmp(argv[1], "save") == 0) CHECK(save(comm, argv[i], step, &run) == TACIT_OK);
        if (strcmp(argv[1], "fail") == 0) fail_in_turn(comm, argv[i], step, &run);
        check(comm, argv[i], step, &run);
    }
    destroy_state(&run);
    taciti_comm_close(comm);
    return 0;
}
