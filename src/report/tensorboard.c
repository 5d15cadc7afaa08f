/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "report/tensorboard.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"

enum { RECORD_BYTES = 4096, HEAD_BYTES = 12, TAG_BYTES_MAX = 64, SCALARS_MAX = 32 };
enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

/* The state after shifting four zero bits out of i: 16 entries need no start-up code and no kilobyte of constants. */
uint32_t taciti_crc32c(const void *bytes, size_t count) {
    static const uint32_t TABLE[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
                                       0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                       0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
    const unsigned char *p = bytes;
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < count; i++) {
        crc ^= p[i];
        crc = (crc >> 4) ^ TABLE[crc & 15];
        crc = (crc >> 4) ^ TABLE[crc & 15];
    }
    return ~crc;
}

static uint32_t masked_crc32c(const void *bytes, size_t count) {
    const uint32_t crc = taciti_crc32c(bytes, count);
    return ((crc >> 15) | (crc << 17)) + UINT32_C(0xa282ead8);
}

/* A message under construction. Sizes are bounded by TAG_BYTES_MAX and SCALARS_MAX, so it cannot overflow. */
typedef struct message {
    unsigned char bytes[RECORD_BYTES];
    size_t count;
} message;

static void put_little_endian(message *m, uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) m->bytes[m->count++] = (unsigned char)(value >> (8 * i));
}

static void put_varint(message *m, uint64_t value) {
    for (; value >= 0x80; value >>= 7) m->bytes[m->count++] = (unsigned char)(value | 0x80);
    m->bytes[m->count++] = (unsigned char)value;
}

static void put_field(message *m, unsigned field, unsigned wire) { put_varint(m, field << 3 | wire); }

static void put_bytes(message *m, unsigned field, const void *bytes, size_t count) {
    put_field(m, field, WIRE_BYTES);
    put_varint(m, count);
    memcpy(m->bytes + m->count, bytes, count);
    m->count += count;
}

/* Appends an event of one field of bytes: wall time and step belong to every event, and its head needs its length. */
static tacit_status put_field_event(taciti_appender *file, int64_t step, unsigned field, const void *bytes, size_t n) {
    message event = {.count = HEAD_BYTES}, *m = &event;
    const double wall_s = (double)taciti_wall_ns() / 1e9;
    uint64_t bits = 0;
    memcpy(&bits, &wall_s, sizeof bits);
    put_field(m, 1, WIRE_FIXED64);
    put_little_endian(m, bits, 8);
    put_field(m, 2, WIRE_VARINT);
    put_varint(m, (uint64_t)step);
    put_bytes(m, field, bytes, n);
    const size_t data_bytes = m->count - HEAD_BYTES;
    put_little_endian(m, masked_crc32c(m->bytes + HEAD_BYTES, data_bytes), 4);
    const size_t record_bytes = m->count;
    m->count = 0;
    put_little_endian(m, data_bytes, 8);
    put_little_endian(m, masked_crc32c(m->bytes, 8), 4);
    return taciti_appender_put(file, m->bytes, record_bytes);
}

static void put_scalar(message *m, const taciti_scalar *scalar) {
    message value = {.count = 0};
    put_bytes(&value, 1, scalar->tag, strnlen(scalar->tag, TAG_BYTES_MAX));
    const float simple = (float)scalar->value;
    uint32_t bits = 0;
    memcpy(&bits, &simple, sizeof bits);
    put_field(&value, 2, WIRE_FIXED32);
    put_little_endian(&value, bits, 4);
    put_bytes(m, 1, value.bytes, value.count);
}

tacit_status taciti_tensorboard_put(taciti_appender *file, int64_t step, const taciti_scalar *scalars, size_t count) {
    if (count > SCALARS_MAX) return taciti_fail(TACIT_E_INTERNAL, "%zu scalars in one event, at most 32", count);
    message summary = {.count = 0};
    for (size_t i = 0; i < count; i++)
        if (isfinite((float)scalars[i].value)) put_scalar(&summary, &scalars[i]);
    return put_field_event(file, step, 5, summary.bytes, summary.count);
}

tacit_status taciti_tensorboard_open(const char *folder, int64_t first_step, taciti_appender *out) {
    static const char VERSION[] = "brain.Event:2";
    static const unsigned char STATUS_START[] = {1 << 3 | WIRE_VARINT, 1};
    TACITI_TRY(taciti_file_make_folder(folder));
    char host[65] = "localhost";
    if (gethostname(host, sizeof host - 1) != 0) memcpy(host, "localhost", sizeof "localhost");
    char name[160], path[4096];
    /* Readers take the files in the order of their names: ten digits of seconds sort until the year 2286. */
    snprintf(name, sizeof name, "events.out.tfevents.%010" PRId64 ".%s.%ld", taciti_wall_ns() / TACITI_NS_PER_S, host,
             (long)getpid());
    TACITI_TRY(taciti_path_join(path, sizeof path, folder, name));
    taciti_appender file;
    TACITI_TRY(taciti_appender_open(path, &file));
    tacit_status status = put_field_event(&file, 0, 3, VERSION, sizeof VERSION - 1);
    if (status == TACIT_OK) status = put_field_event(&file, first_step, 7, STATUS_START, sizeof STATUS_START);
    if (status != TACIT_OK) {
        taciti_appender_close(&file);
        return status;
    }
    *out = file;
    return TACIT_OK;
}
