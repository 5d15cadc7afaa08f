/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TACITI_TOPO_CHECK_H
#define TACITI_TOPO_CHECK_H

#include "topo/topo.h"

/* Checks that information from every rank eventually reaches all others. Otherwise returns E_CONFIG and names two ranks
 * that never agree. */
tacit_status taciti_topology_check_reach(const taciti_topology *topology);

/* For a topology that has passed the check above: checks that the product of its rounds is primitive, that is, has no
 * second eigenvalue of modulus 1, so that repeated mixing brings all ranks to the mean. Otherwise returns E_CONFIG and
 * names the eigenvalue. Weights within the tolerance of the sums count as 0. */
tacit_status taciti_topology_check_agreement(const taciti_topology *topology);

#endif
