/* SPDX-License-Identifier: Apache-2.0
 *
 * The description in a checkpoint that a run is resumed from: the manifest around it is whole, the arrays are there.
 * Byte 0 chooses the strategy of the run; the rest is "meta".
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "ckpt/manifest.h"
#include "ckpt/run.h"
#include "comm/engine.h"
#include "fuzz.h"
#include "train/trainer.h"

enum { RUNS = 2 };
static const char *const strategies[RUNS] = {"dp", "localsgd"};

typedef struct run {
    char folder[64], step[128], file[160];
    taciti_train_settings settings;
    taciti_comm *comm;
    taciti_trainer trainer;
    taciti_manifest manifest; /* of the checkpoint as it was saved */
} run;
static run g_runs[RUNS];
static bool g_made;

static void set(run *r, const char *key, const char *value) {
    if (taciti_config_set(&r->settings.job.config, key, value, "fuzz") != TACIT_OK) abort();
}

static void remove_folders(void) {
    for (int i = 0; i < RUNS; i++) {
        taciti_trainer_close(&g_runs[i].trainer);
        (void)taciti_file_remove(g_runs[i].folder);
    }
}

/* In memory where possible: every case writes a file and reads it several times. */
static const char *base_folder(void) {
    const char *base = getenv("TMPDIR");
    if (base != NULL) return base;
    return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
}

static void make_run(run *r, const char *strategy) {
    taciti_engine engine;
    const taciti_train_request request = {.resume = true};
    (void)snprintf(r->folder, sizeof r->folder, "%.40s/tacit-fuzz-XXXXXX", base_folder());
    if (mkdtemp(r->folder) == NULL || taciti_train_settings_init(&r->settings) != TACIT_OK) abort();
    set(r, "strategy", strategy);
    set(r, "run.dir", r->folder);
    set(r, "run.quiet", "true");
    set(r, "comm.thread", "false");
    set(r, "model.layers", "1");
    set(r, "model.heads", "1");
    set(r, "model.channels", "2");
    set(r, "model.context", "2");
    set(r, "train.batch", "1");
    set(r, "train.threads", "1");
    taciti_engine_self_open(&engine);
    if (taciti_comm_open_engine(&r->settings.job.comm, &engine, &r->comm) != TACIT_OK) abort();
    if (taciti_trainer_prepare(&r->trainer, r->comm, &r->settings, &request) != TACIT_OK) abort();
    if (taciti_trainer_build(&r->trainer) != TACIT_OK || taciti_trainer_initialise(&r->trainer) != TACIT_OK) abort();
    double distance = 0;
    if (taciti_driver_average(r->trainer.driver, &distance) != TACIT_OK || taciti_trainer_save(&r->trainer) != TACIT_OK)
        abort();
    taciti_driver_revert(r->trainer.driver);
    (void)snprintf(r->step, sizeof r->step, "%s/ckpt/step_00000000", r->folder);
    (void)snprintf(r->file, sizeof r->file, "%s/manifest.json", r->step);
    if (taciti_manifest_read(r->step, &r->manifest) != TACIT_OK) abort();
}

static void make_runs(void) {
    for (int i = 0; i < RUNS; i++) make_run(&g_runs[i], strategies[i]);
    if (atexit(remove_folders) != 0) abort();
    g_made = true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char meta[FUZZ_INPUT_MAX + 1];
    if (!g_made) make_runs();
    if (size < 1 || size > FUZZ_INPUT_MAX) return 0;
    run *r = &g_runs[data[0] % RUNS];
    memcpy(meta, data + 1, size - 1);
    meta[size - 1] = 0;
    taciti_manifest changed = r->manifest;
    changed.meta_json = meta;
    char *text = NULL;
    size_t bytes = 0;
    if (taciti_manifest_format(&changed, &text, &bytes) != TACIT_OK) return 0;
    FILE *file = fopen(r->file, "wb");
    if (file == NULL || fwrite(text, 1, bytes, file) != bytes || fclose(file) != 0) abort();
    taciti_free(text);
    bool found = false;
    r->trainer.position = (taciti_position){0};
    if (taciti_trainer_resume(&r->trainer, &found) == TACIT_OK && found)
        if (r->trainer.position.step < 0 || r->trainer.position.skipped < 0 ||
            taciti_optim_updates(taciti_driver_optim(r->trainer.driver)) < 0)
            abort();
    return 0;
}

/* As saved; as the other strategy saved it; as two replicas. */
size_t fuzz_seed(size_t i, uint8_t *out) {
    if (!g_made) make_runs();
    if (i >= 2 * RUNS) return 0;
    const char *meta = g_runs[i % RUNS].manifest.meta_json;
    out[0] = (uint8_t)(i / RUNS);
    memcpy(out + 1, meta, strlen(meta));
    return 1 + strlen(meta);
}
