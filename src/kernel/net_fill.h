/* SPDX-License-Identifier: Apache-2.0
 *
 * All network kernels of one instruction set, and the function that enters them into a table.
 */
#ifndef TACITI_KERNEL_NET_FILL_H
#define TACITI_KERNEL_NET_FILL_H

#include "kernel/net_attention.h"
#include "kernel/net_loss.h"
#include "kernel/net_rows.h"

static void fill_net(taciti_kernels *table) {
    table->layernorm = layernorm;
    table->layernorm_backward = layernorm_backward;
    table->residual = residual;
    table->residual_backward = residual_backward;
    table->gelu = gelu;
    table->gelu_backward = gelu_backward;
    table->bias = bias;
    table->bias_backward = bias_backward;
    table->cross_entropy = cross_entropy;
    table->attention = attention;
    table->attention_backward = attention_backward;
}

#endif
