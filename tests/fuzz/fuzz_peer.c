/* SPDX-License-Identifier: Apache-2.0
 *
 * What a peer says over MPI: its introduction, statuses, texts, sums, heartbeats, and the reports of a step in a
 * circular. An engine of two ranks hands out the input instead of messages. A peer of another build or with damaged
 * memory must not be able to do more than end the run.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/state.h"
#include "fuzz.h"
#include "train/trainer.h"

enum { LOOKS_MAX = 200 };

typedef struct source {
    const uint8_t *data;
    size_t left;
    uint64_t beats; /* bits: what the next looks for a heartbeat find */
    int looks;
} source;

static void hand_out(source *from, void *bytes, size_t count) {
    const size_t n = count < from->left ? count : from->left;
    if (count > 0) memset(bytes, 0, count);
    if (n > 0) memcpy(bytes, from->data, n);
    from->data += n;
    from->left -= n;
}

static tacit_status send(void *self, int peer, int tag, const void *bytes, size_t count, taciti_engine_request *out) {
    (void)self, (void)peer, (void)bytes, (void)count;
    out->opaque[0] = (uintptr_t)tag | 16;
    return TACIT_OK;
}

static tacit_status receive(void *self, int peer, int tag, void *bytes, size_t count, taciti_engine_request *out) {
    (void)peer;
    out->opaque[0] = (uintptr_t)tag;
    out->opaque[1] = (uintptr_t)bytes;
    out->opaque[2] = count;
    out->bytes = count;
    if (tag == TACITI_TAG_DATA) hand_out(self, bytes, count);
    return TACIT_OK;
}

static tacit_status test(void *self, taciti_engine_request *request, bool *done) {
    source *from = self;
    *done = true;
    if (request->opaque[0] != TACITI_TAG_BEAT) return TACIT_OK;
    if (++from->looks > LOOKS_MAX) return TACIT_E_PEER; /* a goodbye that never comes */
    *done = from->beats % 2 == 1;
    from->beats /= 2;
    if (*done) hand_out(from, (void *)request->opaque[1], request->opaque[2]); /* NOLINT: kept as a number */
    return TACIT_OK;
}

static void end(void *self, int code) {
    (void)code;
    (void)self;
    abort(); /* whoever ends a job does so for a peer that is silent, and this one is not */
}

static void close_nothing(void *self) { (void)self; }

static void put_reports(taciti_trainer *trainer) {
    const taciti_rank_report mine = {.loss_sum = 1, .compute_s = 1};
    taciti_step_entry *entry = NULL;
    if (taciti_reports_create(trainer, 0) == TACIT_OK && taciti_reports_put(trainer, &mine, &entry) == TACIT_OK &&
        taciti_reports_put(trainer, &mine, &entry) == TACIT_OK && taciti_reports_collect(trainer, 0) == TACIT_OK) {
        if (trainer->position.skipped < 0 || trainer->position.skipped > 4) abort();
        (void)taciti_reports_stop(&trainer->reports);
    }
    taciti_reports_destroy(&trainer->reports);
}

static void talk(taciti_comm *comm) {
    static taciti_train_settings settings;
    double sums[3] = {1, 2, 3};
    char texts[2][32], sight_text[TACITI_WITNESS_TEXT_BYTES];
    const tacit_status agreed = taciti_comm_agree(comm, TACIT_OK);
    if (agreed > TACIT_OK || agreed < TACIT_E_INTERNAL) abort();
    (void)taciti_comm_agree_text(comm, "settings", "one text");
    (void)taciti_comm_allreduce_f64(comm, sums, 3, TACITI_OP_SUM);
    (void)taciti_comm_allgather(comm, "0123456789012345678901234567890", sizeof texts[0], texts);
    (void)taciti_detector_tick(comm, taciti_now_ns());
    for (int i = 0; i < comm->detector.count; i++) taciti_sight_text(&comm->detector.links[i].seen, sight_text);
    settings.train.batch = 1;
    taciti_trainer trainer = {.comm = comm, .settings = &settings, .ranks = 2, .time = 1};
    trainer.strategy = taciti_strategy_find("localsgd");
    put_reports(&trainer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    taciti_comm *comm = NULL;
    source from = {.data = data, .left = size};
    if (size < sizeof from.beats || size > FUZZ_INPUT_MAX) return 0;
    hand_out(&from, &from.beats, sizeof from.beats);
    const taciti_engine engine = {.name = "fuzz",
                                  .self = &from,
                                  .size = 2,
                                  .isend = send,
                                  .irecv = receive,
                                  .test = test,
                                  .abort = end,
                                  .close = close_nothing};
    const taciti_comm_options options = {
        .timeout_s = 1e6, .warn_s = 1e6, .start_s = 1e6, .stall_s = 1e6, .segment_bytes = 1024};
    if (taciti_comm_open_engine(&options, &engine, &comm) != TACIT_OK) return 0;
    for (int r = 0; r < 2; r++)
        if (memchr(taciti_comm_peer(comm, r)->host, 0, sizeof taciti_comm_peer(comm, r)->host) == NULL) abort();
    talk(comm);
    (void)taciti_comm_break(comm, TACIT_E_PEER); /* no farewell */
    taciti_comm_close(comm);
    return 0;
}

size_t fuzz_seed(size_t i, uint8_t *out) {
    if (i >= 3) return 0;
    const size_t size = 8 + sizeof(int32_t) + sizeof((taciti_peer *)0)->host + 6000;
    memset(out, 0, size);
    if (i > 0) memset(out, i == 1 ? 0x55 : 0xff, 8);
    memcpy(out + 8 + sizeof(int32_t), "n1", 2); /* the introduction: pid and host */
    return size;
}
