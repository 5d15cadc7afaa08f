/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "bench/interface_counters.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

bool taciti_traffic_line(const char *line, char name[TACITI_INTERFACE_BYTES], uint64_t *received_bytes,
                         uint64_t *sent_bytes) {
    const char *begin = line + strspn(line, " "), *colon = strchr(begin, ':');
    const size_t length = colon == NULL ? 0 : (size_t)(colon - begin);
    uint64_t received = 0, sent = 0;
    if (length == 0 || length >= TACITI_INTERFACE_BYTES || memchr(begin, ' ', length) != NULL) return false;
    /* Bytes, packets, errors, dropped, fifo, frame, compressed, multicast: received; then the same of what was sent. */
    if (sscanf(colon + 1, "%" SCNu64 " %*u %*u %*u %*u %*u %*u %*u %" SCNu64, &received, &sent) != 2) return false;
    memcpy(name, begin, length);
    name[length] = '\0';
    *received_bytes = received;
    *sent_bytes = sent;
    return true;
}

static void add_interface(taciti_traffic *sum, const char *name, uint64_t received_bytes, uint64_t sent_bytes) {
    taciti_text_add(sum->names, sizeof sum->names, "%s%s", sum->names[0] != '\0' ? ", " : "", name);
    sum->received_bytes += received_bytes;
    sum->sent_bytes += sent_bytes;
}

bool taciti_traffic_read(taciti_traffic *out) {
    FILE *file = fopen("/proc/net/dev", "r");
    if (file == NULL) return false;
    taciti_traffic physical = {0}, any = {0};
    char line[512], name[TACITI_INTERFACE_BYTES], device[64 + TACITI_INTERFACE_BYTES];
    uint64_t received_bytes = 0, sent_bytes = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        if (!taciti_traffic_line(line, name, &received_bytes, &sent_bytes) || strcmp(name, "lo") == 0) continue;
        (void)snprintf(device, sizeof device, "/sys/class/net/%s/device", name);
        add_interface(&any, name, received_bytes, sent_bytes);
        if (access(device, F_OK) == 0) add_interface(&physical, name, received_bytes, sent_bytes);
    }
    (void)fclose(file);
    *out = physical.names[0] != '\0' ? physical : any;
    return out->names[0] != '\0';
}
