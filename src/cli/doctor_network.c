/* SPDX-License-Identifier: Apache-2.0
 *
 * Interfaces with addresses and speeds. The classic afternoon is lost to an MPI that talks over the wrong one.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "cli/doctor.h"
#include "comm/engine.h"

enum { PORTS_MAX = 32 };

typedef struct port {
    char name[IF_NAMESIZE];
    char address[INET6_ADDRSTRLEN];
    double speed_mbps; /* 0: the driver does not say */
    double mtu;
    bool local; /* bridges of containers and virtual machines: they lead to no other host */
} port;

static void describe_port(const struct ifaddrs *entry, port *out) {
    static const char *const bridges[] = {"docker", "virbr", "br-", "veth", "cni", "flannel", "lxc", "podman"};
    char path[128];
    double speed = 0;
    memset(out, 0, sizeof *out);
    (void)snprintf(out->name, sizeof out->name, "%s", entry->ifa_name);
    struct sockaddr_in address;
    memcpy(&address, entry->ifa_addr, sizeof address);
    (void)inet_ntop(AF_INET, &address.sin_addr, out->address, sizeof out->address);
    (void)snprintf(path, sizeof path, "/sys/class/net/%s/speed", entry->ifa_name);
    if (taciti_system_number(path, &speed) && speed > 0) out->speed_mbps = speed;
    (void)snprintf(path, sizeof path, "/sys/class/net/%s/mtu", entry->ifa_name);
    (void)taciti_system_number(path, &out->mtu);
    for (size_t i = 0; i < sizeof bridges / sizeof *bridges; i++)
        out->local = out->local || strncmp(out->name, bridges[i], strlen(bridges[i])) == 0;
}

/* Interfaces that are up and have an IPv4 address, without the loopback. */
static size_t list_ports(port ports[PORTS_MAX]) {
    struct ifaddrs *list = NULL;
    size_t count = 0;
    if (getifaddrs(&list) != 0) return 0;
    for (const struct ifaddrs *entry = list; entry != NULL && count < PORTS_MAX; entry = entry->ifa_next) {
        if (entry->ifa_addr == NULL || entry->ifa_addr->sa_family != AF_INET) continue;
        if ((entry->ifa_flags & IFF_UP) == 0 || (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
        describe_port(entry, &ports[count++]);
    }
    freeifaddrs(list);
    return count;
}

static void add_port(taciti_diagnosis *diagnosis, const port *p) {
    char speed[64] = "speed not known (virtual)";
    if (p->speed_mbps > 0) (void)snprintf(speed, sizeof speed, "%.0f Mbit/s", p->speed_mbps);
    taciti_finding *finding =
        taciti_diagnosis_add(diagnosis, "network", "%s: %s, %s, MTU %.0f", p->name, p->address, speed, p->mtu);
    if (!p->local) return;
    const taciti_launcher launcher = taciti_launcher_detect();
    taciti_finding_advise(finding, TACITI_SEVERITY_WARN, "it leads to no other host; between hosts keep MPI off it: %s",
                          strcmp(taciti_engine_family(&launcher), "mpich") == 0
                              ? "UCX_NET_DEVICES=<the right one>"
                              : "mpirun --mca btl_tcp_if_include <the right one> --mca oob_tcp_if_include <the same>");
}

void taciti_check_network(taciti_diagnosis *diagnosis) {
    port ports[PORTS_MAX];
    const size_t count = list_ports(ports);
    const port *fastest = NULL;
    size_t usable = 0;
    for (size_t i = 0; i < count; i++) {
        add_port(diagnosis, &ports[i]);
        if (ports[i].local) continue;
        usable++;
        if (fastest == NULL || ports[i].speed_mbps > fastest->speed_mbps) fastest = &ports[i];
    }
    if (count == 0)
        taciti_finding_advise(taciti_diagnosis_add(diagnosis, "network", "no interface beside the loopback is up"),
                              TACITI_SEVERITY_WARN, "ranks on this host will work; other hosts cannot be reached");
    if (usable > 1 && fastest != NULL && fastest->speed_mbps > 0)
        taciti_finding_advise(
            taciti_diagnosis_add(diagnosis, "network", "%zu interfaces; MPI may spread over all of them", usable),
            TACITI_SEVERITY_WARN, "the fastest is %s (%.0f Mbit/s): mpirun --mca btl_tcp_if_include %s", fastest->name,
            fastest->speed_mbps, fastest->name);
}
