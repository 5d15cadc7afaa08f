/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "plan/plan.h"
#include "tensor/choice.h"

taciti_plan_layers taciti_plan_layers_of(const taciti_scene *s) {
    const taciti_layout *layout = s->coded != NULL ? s->coded : s->layout;
    taciti_plan_layers l = {.tensors = layout->tensor_count};
    for (size_t t = 0; t < layout->tensor_count; t++) {
        const taciti_tensor *tensor = &layout->tensors[t];
        const double share = (double)tensor->n / (double)layout->parameters;
        const bool other = strcmp(taciti_tensor_class_of(tensor->name), "other") == 0;
        if (other && l.other_tensors == 0) l.other = tensor->name;
        l.coded_tensors += !tensor->plain;
        l.coded_share += tensor->plain ? 0 : share;
        l.other_tensors += other;
        l.other_share += other ? share : 0;
    }
    return l;
}
