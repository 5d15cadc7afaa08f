/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/topology_sheet.h"

#include <math.h>

#include "base/log.h"
#include "base/memory.h"
#include "exchange/demand.h"

#define MODEL_BYTES ((size_t)1 << 40) /* any large number: shares of it are told */

static void fill_nic(taciti_topology_sheet *s) {
    const taciti_placement placement = {0};
    for (size_t r = 0; r < s->topology.period; r++) {
        s->nic[r] = taciti_mix_nic_bytes_of(s->hosts, &s->topology, r, placement, MODEL_BYTES) / (double)MODEL_BYTES;
        s->nic_peak = fmax(s->nic_peak, s->nic[r]);
    }
    s->nic_mean = taciti_mix_nic_bytes_mean(s->hosts, &s->topology, placement, MODEL_BYTES) / (double)MODEL_BYTES;
}

static tacit_status find_figures(const taciti_topo_awc *awc, taciti_topology_sheet *s) {
    const int ranks = s->topology.ranks;
    s->has_figures = ranks <= TACITI_TOPO_FIGURES_MAX;
    s->has_limit = ranks * (awc->delayed ? 2 : 1) <= TACITI_TOPO_LIMIT_MAX && !(awc->delayed && s->topology.directed);
    if (s->has_figures) TACITI_TRY(taciti_topology_figures(&s->topology, &s->figures));
    return s->has_limit ? taciti_topology_awc_limit(&s->topology, awc, &s->awc_limit) : TACIT_OK;
}

tacit_status taciti_topology_sheet_create(const taciti_topo_request *request, const taciti_topo_awc *awc,
                                          taciti_topology_sheet *out) {
    taciti_topology_sheet s = {.hosts = request->hosts};
    TACITI_TRY(taciti_topology_create(request, &s.topology));
    s.nic = taciti_calloc(s.topology.period, sizeof *s.nic);
    const tacit_status status = s.nic == NULL ? TACIT_E_MEMORY : find_figures(awc, &s);
    if (status != TACIT_OK) {
        taciti_topology_sheet_destroy(&s);
        return status;
    }
    fill_nic(&s);
    for (int r = 0; r < s.topology.ranks; r++) s.moved += s.topology.position[r] != r; /* hosts are in order here */
    *out = s;
    return TACIT_OK;
}

void taciti_topology_sheet_destroy(taciti_topology_sheet *sheet) {
    taciti_free(sheet->nic);
    taciti_topology_destroy(&sheet->topology);
}
