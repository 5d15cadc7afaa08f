/* SPDX-License-Identifier: Apache-2.0
 *
 * The network kernels.
 */
#include "kernel/net_attention.h"
#include "kernel/net_loss.h"
#include "kernel/net_rows.h"
#include "kernel/sets.h"

void FILL_OF_SET(net)(taciti_kernels *table) {
    table->layernorm = layernorm;
    table->layernorm_backward = layernorm_backward;
    table->residual = residual;
    table->residual_backward = residual_backward;
    table->gelu = gelu;
    table->gelu_backward = gelu_backward;
    table->bias_backward = bias_backward;
    table->cross_entropy = cross_entropy;
    table->attention = attention;
    table->attention_backward = attention_backward;
}
