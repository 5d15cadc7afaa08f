/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes TensorBoard event files with scalars, without TensorFlow or protobuf.
 *
 * File = records, record = u64 length | u32 masked CRC32C of those 8 bytes | data | u32 masked CRC32C of the data, all
 * little-endian (TFRecord, tensorflow/core/lib/io/record_writer.h). Data = protobuf message (tensorflow event.proto,
 * summary.proto):
 *
 *   Event    1 wall_time double | 2 step int64 | 3 file_version string | 5 summary Summary | 7 session_log SessionLog
 *   Summary  1 value Value, repeated;  Value  1 tag string | 2 simple_value float;  SessionLog  1 status (START = 1)
 *
 * The first event holds file_version "brain.Event:2". In a resumed run a session_log START follows, which makes readers
 * discard older points from that step on.
 */
#ifndef TACITI_REPORT_TENSORBOARD_H
#define TACITI_REPORT_TENSORBOARD_H

#include <stddef.h>
#include <stdint.h>

#include "report/appender.h"

typedef struct taciti_scalar {
    const char *tag;
    double value; /* left out when not finite */
} taciti_scalar;

/* CRC-32C (Castagnoli), reflected polynomial 0x82f63b78, as in RFC 3720. */
uint32_t taciti_crc32c(const void *bytes, size_t count);

/* Creates folder/events.out.tfevents.<seconds>.<host>.<pid> and writes its first events. first_step: the first step
 * that will follow. */
tacit_status taciti_tensorboard_open(const char *folder, int64_t first_step, taciti_appender *out);

/* Appends one event with up to 32 scalars by one write(). Omits values that are not finite. */
tacit_status taciti_tensorboard_put(taciti_appender *file, int64_t step, const taciti_scalar *scalars, size_t count);

#endif
