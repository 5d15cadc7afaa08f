/* SPDX-License-Identifier: Apache-2.0 */
#include "train/trainer.h"

void taciti_trainer_list_state(const taciti_trainer *trainer, bool saving, taciti_state *out) {
    trainer->strategy->state(taciti_driver_strategy(trainer->driver), out);
    const taciti_state_entry *own = taciti_state_find(out, "model");
    if (own == NULL || (saving && own->owner == TACITI_STATE_OWN))
        taciti_state_add_array(out, "model", TACITI_STATE_SHARED, TACITI_STATE_MEAN, &trainer->layout,
                               taciti_model_parameters(trainer->model));
}
