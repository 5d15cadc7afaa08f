/* SPDX-License-Identifier: Apache-2.0
 *
 * The settings of a job: one configuration composed of fixed sections (network, optimizer, exchange, ...), of the
 * sections that strategies and codecs register with their options, and of a caller's own. Trainer, step benchmark,
 * planner and library share it; none of them names an option of a strategy.
 *
 *   strategy  [train run]  model  [data]  optim  exchange  gossip localsgd ...  comm  compute
 *
 * The order of sections is that of the configuration's JSON text, which checkpoints record and ranks compare.
 */
#ifndef TACITI_SETTINGS_SETTINGS_H
#define TACITI_SETTINGS_SETTINGS_H

#include "base/option.h"
#include "comm/comm.h"
#include "exchange/exchange.h"
#include "model/emulated.h"
#include "model/model.h"
#include "optim/optim.h"
#include "strategy/strategy.h"

typedef struct taciti_settings {
    taciti_text strategy; /* top-level key `strategy`: a name of the registry */
    taciti_model_options model;
    taciti_optim_options optim;
    taciti_exchange_options exchange;
    taciti_comm_options comm;
    taciti_compute_options compute; /* what `tacit plan` and `tacit bench step` assume; training computes for real */
    void *registered;               /* options of strategies and codecs; owned */
    taciti_section *sections;       /* owned */
    taciti_config config;           /* of `sections`, which point into this struct: it must not move */
} taciti_settings;

extern const taciti_option_table taciti_strategy_option_table; /* section "": the key `strategy` */

/* A section of the caller's, in front of that of the table `before`. */
typedef struct taciti_own_section {
    taciti_section section;
    const taciti_option_table *before;
} taciti_own_section;

/* Composes the sections and fills in the defaults. Call the destructor also after an error. */
tacit_status taciti_settings_init(taciti_settings *settings, const taciti_own_section *own, size_t count);
void taciti_settings_destroy(taciti_settings *settings); /* {0} is fine */

/* The strategy; never NULL in settings that were read without an error. */
const taciti_strategy *taciti_settings_strategy(const taciti_settings *settings);

/* The values of a registered table, as taciti_strategy_context.options wants them: taciti_settings_options(settings,
 * strategy->options). NULL for NULL. */
const void *taciti_settings_options(const taciti_settings *settings, const taciti_option_table *table);

/* What the strategy would refuse on these ranks; NULL: on any. */
tacit_status taciti_settings_check(const taciti_settings *settings, const taciti_hosts *hosts);

/* The keys that tell runs of the strategy apart: the index-th of them; false behind the last. */
bool taciti_settings_label(const taciti_settings *settings, size_t index, taciti_place *out);

/* Whether the table is that of a strategy or a codec. */
bool taciti_settings_registered(const taciti_option_table *table);

/* agree.c: refuse ranks that run different programs, have different settings, or lay parameters out differently; the
 * first rank that differs and both values are named. Collective. */
tacit_status taciti_agree_on_build(taciti_comm *comm);
tacit_status taciti_agree_on_configuration(taciti_comm *comm, const taciti_config *config);
tacit_status taciti_agree_on_layout(taciti_comm *comm, const taciti_layout *layout);

#endif
