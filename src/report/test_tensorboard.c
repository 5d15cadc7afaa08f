/* SPDX-License-Identifier: Apache-2.0
 *
 * The event file is read back by a decoder written from the format's description alone: its CRC is the bitwise
 * definition, its protobuf reader knows only wire types.
 */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "report/report.h"
#include "report/tensorboard.h"

/* ---- the decoder ------------------------------------------------------------------------------------------------ */
static uint32_t crc_by_definition(const unsigned char *bytes, size_t count) {
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >> 1) ^ 0x82f63b78 : crc >> 1;
    }
    return crc ^ 0xffffffff;
}

static uint64_t little_endian(const unsigned char *bytes, int count) {
    uint64_t value = 0;
    for (int i = count - 1; i >= 0; i--) value = value << 8 | bytes[i];
    return value;
}

static void assert_masked(const unsigned char *bytes, size_t count, const unsigned char *stored) {
    const uint32_t mask = (uint32_t)little_endian(stored, 4) - 0xa282ead8;
    assert_int_equal((mask << 15) | (mask >> 17), crc_by_definition(bytes, count));
}

typedef struct cursor {
    const unsigned char *at, *end;
} cursor;

typedef struct proto {
    unsigned field, wire;
    uint64_t number; /* varint, or the bits of a fixed field */
    cursor bytes;    /* of a length-delimited field */
} proto;

static uint64_t varint(cursor *c) {
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        assert_true(c->at < c->end && shift < 64);
        value |= (uint64_t)(*c->at & 0x7f) << shift;
        if (*c->at++ < 0x80) return value;
    }
}

static bool next_field(cursor *c, proto *out) {
    if (c->at == c->end) return false;
    const uint64_t tag = varint(c);
    *out = (proto){.field = (unsigned)(tag >> 3), .wire = (unsigned)(tag & 7)};
    size_t count = 0;
    switch (out->wire) {
    case 0: out->number = varint(c); return true;
    case 1: count = 8; break;
    case 5: count = 4; break;
    default: assert_int_equal(out->wire, 2); count = (size_t)varint(c);
    }
    assert_true(count <= (size_t)(c->end - c->at));
    if (out->wire == 2)
        out->bytes = (cursor){c->at, c->at + count};
    else
        out->number = little_endian(c->at, (int)count);
    c->at += count;
    return true;
}

typedef struct point {
    char tag[64];
    float value;
    int64_t step;
} point;

typedef struct events {
    size_t records, versions, starts, count;
    int64_t start_step;
    double wall_s;
    point points[64];
} events;

static void read_value(cursor c, int64_t step, events *out) {
    point *p = &out->points[out->count++];
    p->step = step;
    for (proto f; next_field(&c, &f);) {
        if (f.field == 1) memcpy(p->tag, f.bytes.at, (size_t)(f.bytes.end - f.bytes.at));
        const uint32_t bits = (uint32_t)f.number;
        if (f.field == 2) {
            assert_int_equal(f.wire, 5);
            memcpy(&p->value, &bits, sizeof bits);
        }
    }
}

static void read_event(cursor c, events *out) {
    int64_t step = -1;
    out->records++;
    for (proto f; next_field(&c, &f);) {
        if (f.field == 1) memcpy(&out->wall_s, &f.number, sizeof f.number);
        if (f.field == 2) step = (int64_t)f.number;
        if (f.field == 3) {
            assert_int_equal(out->records, 1);
            assert_memory_equal(f.bytes.at, "brain.Event:2", 13);
            out->versions++;
        }
        if (f.field == 5)
            for (proto v; next_field(&f.bytes, &v);) read_value(v.bytes, step, out);
        if (f.field == 7) {
            proto status = {0};
            assert_true(next_field(&f.bytes, &status));
            assert_true(status.field == 1 && status.number == 1);
            out->starts++;
            out->start_step = step;
        }
    }
}

static events read_file(const char *path) {
    unsigned char *bytes = NULL;
    size_t count = 0;
    assert_int_equal(taciti_file_read(path, 1 << 20, (char **)&bytes, &count), TACIT_OK);
    events out = {0};
    for (size_t at = 0; at < count;) {
        assert_true(count - at >= 16);
        const uint64_t length = little_endian(bytes + at, 8);
        assert_masked(bytes + at, 8, bytes + at + 8);
        assert_true(length <= count - at - 16);
        assert_masked(bytes + at + 12, (size_t)length, bytes + at + 12 + length);
        read_event((cursor){bytes + at + 12, bytes + at + 12 + length}, &out);
        at += 16 + (size_t)length;
    }
    taciti_free(bytes);
    return out;
}

static float value_of(const events *e, const char *tag, int64_t step) {
    for (size_t i = 0; i < e->count; i++)
        if (strcmp(e->points[i].tag, tag) == 0 && e->points[i].step == step) return e->points[i].value;
    return NAN;
}

/* ---- tests ------------------------------------------------------------------------------------------------------ */
static char g_folder[64];

static int make_folder(void **state) {
    (void)state;
    strcpy(g_folder, "/tmp/tacit-tensorboard-XXXXXX");
    return mkdtemp(g_folder) == NULL ? -1 : 0;
}

static int remove_folder(void **state) {
    (void)state;
    return taciti_file_remove(g_folder);
}

/* RFC 3720, appendix B.4. */
static void crc32c_agrees_with_rfc_3720(void **state) {
    (void)state;
    unsigned char bytes[32];
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(taciti_crc32c(bytes, 32), 0x8a9136aa);
    memset(bytes, 0xff, sizeof bytes);
    assert_int_equal(taciti_crc32c(bytes, 32), 0x62a8ab43);
    for (size_t i = 0; i < 32; i++) bytes[i] = (unsigned char)i;
    assert_int_equal(taciti_crc32c(bytes, 32), 0x46dd794e);
    for (size_t i = 0; i < 32; i++) bytes[i] = (unsigned char)(31 - i);
    assert_int_equal(taciti_crc32c(bytes, 32), 0x113fdb5c);
    static const unsigned char READ_10[48] = {
        0x01, 0xc0, [16] = 0x14, [22] = 0x04, [27] = 0x14, [31] = 0x18, [32] = 0x28, [40] = 0x02};
    assert_int_equal(taciti_crc32c(READ_10, 48), 0xd9963a56);
    assert_int_equal(taciti_crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(taciti_crc32c("", 0), 0);
}

static void crc32c_agrees_with_its_definition(void **state) {
    (void)state;
    unsigned char bytes[300];
    uint32_t random = 7;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)((random = random * 1664525u + 1u) >> 24);
    for (size_t n = 0; n <= sizeof bytes; n++) assert_int_equal(taciti_crc32c(bytes, n), crc_by_definition(bytes, n));
}

static void the_event_file_of_a_run(const char *folder, char path[512]) {
    char tb[128];
    snprintf(tb, sizeof tb, "%s/tb", folder);
    DIR *dir = opendir(tb);
    assert_non_null(dir);
    path[0] = '\0';
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (strncmp(entry->d_name, "events.out.tfevents.", 20) == 0) snprintf(path, 512, "%s/%s", tb, entry->d_name);
    closedir(dir);
    assert_int_not_equal(path[0], '\0');
}

static void steps_become_scalars(void **state) {
    (void)state;
    taciti_metrics *metrics = NULL;
    assert_int_equal(taciti_metrics_open(g_folder, 41, true, &metrics), TACIT_OK);
    taciti_step_metrics m = {.step = 42,
                             .loss = 2.5,
                             .val_loss = (double)NAN,
                             .tokens_per_s = 1e4,
                             .step_s = 0.1,
                             .wait_s = 0.02,
                             .mfu = (double)NAN,
                             .bytes_sent = 3000000};
    assert_int_equal(taciti_metrics_step(metrics, &m), TACIT_OK);
    m.step = INT64_C(5000000000); /* a varint of five bytes */
    m.val_loss = 2.25;
    m.loss = (double)INFINITY;
    m.grad_norm = 1e300; /* no float */
    assert_int_equal(taciti_metrics_step(metrics, &m), TACIT_OK);
    taciti_metrics_close(metrics);

    char path[512];
    the_event_file_of_a_run(g_folder, path);
    const events e = read_file(path);
    assert_int_equal(e.records, 4);
    assert_int_equal(e.versions, 1);
    assert_int_equal(e.starts, 1);
    assert_int_equal(e.start_step, 42);
    assert_true(e.wall_s > 1.6e9);
    assert_true(value_of(&e, "train/loss", 42) == 2.5f);
    assert_true(value_of(&e, "perf/tokens_per_s", 42) == 1e4f);
    assert_true(value_of(&e, "perf/wait_s", 42) == 0.02f);
    assert_true(value_of(&e, "wire/sent_MB", 42) == 3.0f);
    assert_true(value_of(&e, "val/loss", m.step) == 2.25f);
    assert_true(isnan(value_of(&e, "val/loss", 42)));
    assert_true(isnan(value_of(&e, "train/loss", m.step)));
    assert_true(isnan(value_of(&e, "train/grad_norm", m.step)));
}

static void edges_of_one_event(void **state) {
    (void)state;
    taciti_appender file;
    assert_int_equal(taciti_tensorboard_open(g_folder, 0, &file), TACIT_OK);
    taciti_scalar many[33];
    char tag[200];
    memset(tag, 't', sizeof tag - 1);
    tag[sizeof tag - 1] = '\0';
    for (size_t i = 0; i < 33; i++) many[i] = (taciti_scalar){tag, (double)i};
    assert_int_equal(taciti_tensorboard_put(&file, 1, many, 0), TACIT_OK);
    assert_int_equal(taciti_tensorboard_put(&file, 2, many, 32), TACIT_OK); /* tags are cut, nothing overflows */
    assert_int_equal(taciti_tensorboard_put(&file, 3, many, 33), TACIT_E_INTERNAL);
    char path[4096];
    strcpy(path, file.path);
    taciti_appender_close(&file);
    const events e = read_file(path);
    assert_int_equal(e.records, 4);
    assert_int_equal(e.count, 32);
    assert_true(e.points[31].value == 31.0f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc32c_agrees_with_rfc_3720),
        cmocka_unit_test(crc32c_agrees_with_its_definition),
        cmocka_unit_test_setup_teardown(steps_become_scalars, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(edges_of_one_event, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
