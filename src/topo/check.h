/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TACITI_TOPO_CHECK_H
#define TACITI_TOPO_CHECK_H

#include "topo/topo.h"

/* Whether what any rank knows comes to all others, sooner or later; else E_CONFIG names two that never agree. */
tacit_status taciti_topology_check_reach(const taciti_topology *topology);

/* Of a topology that passed the above: whether the product of its rounds is primitive, that is has no second eigenvalue
 * of modulus 1, so that mixing alone brings all ranks to the mean; else E_CONFIG names the eigenvalue. Weights up to
 * the tolerance of the sums are none. */
tacit_status taciti_topology_check_agreement(const taciti_topology *topology);

#endif
