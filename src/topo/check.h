/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TACITI_TOPO_CHECK_H
#define TACITI_TOPO_CHECK_H

#include "topo/topo.h"

/* Whether what any rank knows comes to all others, sooner or later; else E_CONFIG names two that never agree. */
tacit_status taciti_topology_check_reach(const taciti_topology *topology);

#endif
