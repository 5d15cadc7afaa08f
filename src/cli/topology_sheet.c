/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/topology_sheet.h"

#include <math.h>

#include "base/log.h"
#include "base/memory.h"
#include "exchange/demand.h"

#define MODEL_BYTES ((size_t)1 << 40) /* any large number: shares of it are told */

static tacit_status fill_sheet(const taciti_topo_awc *awc, taciti_topology_sheet *s) {
    const int ranks = s->topology.ranks;
    const taciti_placement placement = {0};
    s->nic = taciti_calloc(s->topology.period, sizeof *s->nic);
    if (s->nic == NULL) return TACIT_E_MEMORY;
    for (size_t r = 0; r < s->topology.period; r++) {
        s->nic[r] = taciti_mix_nic_bytes_of(s->hosts, &s->topology, r, placement, MODEL_BYTES) / (double)MODEL_BYTES;
        s->nic_peak = fmax(s->nic_peak, s->nic[r]);
    }
    s->nic_mean = taciti_mix_nic_bytes_mean(s->hosts, &s->topology, placement, MODEL_BYTES) / (double)MODEL_BYTES;
    for (int r = 0; r < ranks; r++) s->moved += s->topology.position[r] != r; /* hosts are in order here */
    s->has_figures = ranks <= TACITI_TOPO_FIGURES_MAX;
    s->has_limit = ranks * (awc->delayed ? 2 : 1) <= TACITI_TOPO_LIMIT_MAX && !(awc->delayed && s->topology.directed);
    if (s->has_figures) TACITI_TRY(taciti_topology_figures(&s->topology, &s->figures));
    return s->has_limit ? taciti_topology_awc_limit(&s->topology, awc, &s->awc_limit) : TACIT_OK;
}

tacit_status taciti_topology_sheet_create(const taciti_topo_request *request, const taciti_topo_awc *awc,
                                          taciti_topology_sheet *out) {
    taciti_topology_sheet s = {.hosts = request->hosts};
    TACITI_TRY(taciti_topology_create(request, &s.topology));
    const tacit_status status = fill_sheet(awc, &s);
    if (status == TACIT_OK)
        *out = s;
    else
        taciti_topology_sheet_destroy(&s);
    return status;
}

void taciti_topology_sheet_destroy(taciti_topology_sheet *sheet) {
    taciti_free(sheet->nic);
    taciti_topology_destroy(&sheet->topology);
}
