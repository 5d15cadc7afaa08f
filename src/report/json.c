/* SPDX-License-Identifier: Apache-2.0 */
#include "report/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

size_t taciti_json_number(double value, char out[TACITI_JSON_NUMBER_BYTES]) {
    out[0] = '\0';
    if (!isfinite(value)) return 0;
    char local[TACITI_JSON_NUMBER_BYTES];
    const int printed = snprintf(local, sizeof local, "%.9g", value);
    /* The only thing a locale changes is the decimal point, which may be several bytes long. */
    size_t count = 0;
    bool point = false;
    for (int i = 0; i < printed; i++) {
        if (strchr("0123456789-+e", local[i]) != NULL) {
            out[count++] = local[i];
            point = false;
        } else if (!point) {
            out[count++] = '.';
            point = true;
        }
    }
    out[count] = '\0';
    return count;
}

static void put_bytes(taciti_json *json, const char *text, size_t count) {
    if (json->overflow || count >= json->capacity - json->count) {
        json->overflow = true;
        return;
    }
    memcpy(json->text + json->count, text, count);
    json->count += count;
    json->text[json->count] = '\0';
}

static void put_string(taciti_json *json, const char *text) {
    put_bytes(json, "\"", 1);
    for (; *text != '\0'; text++) {
        char escaped[8] = {*text, '\0'};
        if (*text == '"' || *text == '\\')
            snprintf(escaped, sizeof escaped, "\\%c", *text);
        else if ((unsigned char)*text < 0x20 || *text == 0x7f)
            snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)*text);
        put_bytes(json, escaped, strlen(escaped));
    }
    put_bytes(json, "\"", 1);
}

static void put_separator(taciti_json *json) {
    if (json->count > 1) put_bytes(json, ",", 1);
}

static void put_key(taciti_json *json, const char *key) {
    put_separator(json);
    put_string(json, key);
    put_bytes(json, ":", 1);
}

void taciti_json_begin(taciti_json *json, char *buffer, size_t capacity) {
    *json = (taciti_json){.text = buffer, .capacity = capacity};
    put_bytes(json, "{", 1);
}

void taciti_json_real(taciti_json *json, const char *key, double value) {
    char number[TACITI_JSON_NUMBER_BYTES];
    const size_t count = taciti_json_number(value, number);
    if (count == 0) return;
    put_key(json, key);
    put_bytes(json, number, count);
}

void taciti_json_int(taciti_json *json, const char *key, int64_t value) {
    char number[TACITI_JSON_NUMBER_BYTES];
    put_key(json, key);
    put_bytes(json, number, (size_t)snprintf(number, sizeof number, "%" PRId64, value));
}

void taciti_json_uint(taciti_json *json, const char *key, uint64_t value) {
    char number[TACITI_JSON_NUMBER_BYTES];
    put_key(json, key);
    put_bytes(json, number, (size_t)snprintf(number, sizeof number, "%" PRIu64, value));
}

void taciti_json_text(taciti_json *json, const char *key, const char *value) {
    put_key(json, key);
    put_string(json, value);
}

void taciti_json_members(taciti_json *json, const char *members) {
    if (members[strspn(members, " \t\r\n")] == '\0') return;
    put_separator(json);
    /* A newline inside a JSON text stands between tokens only: strings hold it escaped. */
    for (; *members != '\0'; members++) put_bytes(json, *members == '\n' || *members == '\r' ? " " : members, 1);
}

void taciti_json_wall_time(taciti_json *json, const char *key, int64_t wall_ns) {
    char number[TACITI_JSON_NUMBER_BYTES];
    put_key(json, key);
    put_bytes(json, number,
              (size_t)snprintf(number, sizeof number, "%" PRId64 ".%03" PRId64, wall_ns / 1000000000,
                               wall_ns / 1000000 % 1000));
}

void taciti_json_end(taciti_json *json) { put_bytes(json, "}\n", 2); }
