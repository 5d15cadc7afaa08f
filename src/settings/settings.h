/* SPDX-License-Identifier: Apache-2.0
 *
 * The settings of a job. They consist of fixed sections (network, optimizer, exchange, ...), of the options that
 * strategies, codecs and controllers register, and of the caller's own sections. Trainer, step benchmark, planner and
 * library use them; none of these names an option of a strategy.
 *
 *   strategy  [train run]  model  [data]  optim  exchange  gossip localsgd ...  compress  topk ...  adapt  gravac ...
 *   comm  compute
 *
 * The sections have this order in the JSON text of the configuration, which checkpoints record and ranks compare.
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
    taciti_compress_options compress;
    taciti_adapt_options adapt;
    taciti_comm_options comm;
    taciti_compute_options compute; /* assumptions of `tacit plan` and `tacit bench step`; training ignores them */
    void *registered;               /* options of strategies, codecs and controllers; owned */
    taciti_given *given;            /* who has set each option; owned */
    taciti_section *sections;       /* owned; they point into this struct, which must not move */
    taciti_config config;           /* the configuration made of `sections` */
} taciti_settings;

extern const taciti_option_table taciti_strategy_option_table; /* section "": the key `strategy` */

/* A section of the caller, inserted in front of the section of the table `before`. */
typedef struct taciti_own_section {
    taciti_section section;
    const taciti_option_table *before;
} taciti_own_section;

/* Composes the sections and sets all options to their defaults. Call destroy also after an error. */
tacit_status taciti_settings_init(taciti_settings *settings, const taciti_own_section *own, size_t count);
void taciti_settings_destroy(taciti_settings *settings); /* {0} is allowed */

/* The same with the values of `from`, which has no sections of its caller. */
tacit_status taciti_settings_copy(const taciti_settings *from, taciti_settings *out);

/* Returns the strategy; never NULL if the settings were read without an error. */
const taciti_strategy *taciti_settings_strategy(const taciti_settings *settings);

/* Returns the struct that holds the values of a registered table, for taciti_strategy_context.options or
 * taciti_encoding.options: taciti_settings_options(settings, strategy->options). Returns NULL if table is NULL. */
const void *taciti_settings_options(const taciti_settings *settings, const taciti_option_table *table);

/* Returns what compress.codec and adapt.policy name. Borrows from the settings. */
taciti_compression_setup taciti_settings_compression(const taciti_settings *settings);

/* The same of sums alone, as dp has them, whatever strategy the settings name. */
taciti_compression_setup taciti_settings_sums(const taciti_settings *settings);

/* Returns what the settings know of a strategy's context: its options. Borrows from the settings. */
taciti_strategy_context taciti_settings_context(const taciti_settings *settings);

/* Sets the defaults that the codec needs in other sections (taciti_codec.preset); options that were given keep their
 * values. Call it when all options have been read; it may be called again after changes. */
tacit_status taciti_settings_complete(taciti_settings *settings);

/* Cuts the layout of a network into the buckets that this configuration exchanges: by units for strategies that own
 * parts, and apart where compress.layers ends. Returns E_CONFIG for a choice that suits no tensor. Not collective. */
tacit_status taciti_settings_seal(const taciti_settings *settings, taciti_layout *layout);

/* Marks the tensors that compress.layers leaves out as plain, for the next seal. Errors as above. Not collective. */
tacit_status taciti_settings_mark_layers(const taciti_settings *settings, taciti_layout *layout);

/* Sets *out to the index-th of the keys that distinguish runs of the strategy (taciti_strategy.label). Returns false
 * behind the last. */
bool taciti_settings_label(const taciti_settings *settings, size_t index, taciti_place *out);

/* Returns whether the table is that of a strategy, a codec or a controller. */
bool taciti_settings_registered(const taciti_option_table *table);

/* Returns whether the table is that of a codec. */
bool taciti_settings_of_codec(const taciti_option_table *table);

/* The reader of the settings; see unread.c. */
typedef enum taciti_reader {
    TACITI_READER_TRAIN,
    TACITI_READER_PLAN,          /* the options of training as well */
    TACITI_READER_BENCH,         /* bench step */
    TACITI_READER_CODECS,        /* bench codecs: options of compress.codec alone, or of every codec if there is none */
    TACITI_READER_LIBRARY,       /* jobs of the C interface */
    TACITI_READER_OWN_OPTIMIZER, /* the same, and the caller updates the parameters */
    TACITI_READER_CHANNEL,       /* channels of the C interface, which have no steps */
} taciti_reader;

/* Returns whether the reader of these settings would read the option. */
bool taciti_settings_reads(const taciti_settings *settings, taciti_reader reader, const taciti_place *place);

/* Returns the JSON text of those options that the reader reads and that affect results. Returns owned; NULL when memory
 * is short. */
char *taciti_settings_read_json(const taciti_settings *settings, taciti_reader reader);

/* Returns E_CONFIG, with what to type, for settings that cannot be used together, or not by this reader. hosts NULL:
 * checks only what does not depend on ranks. Everybody calls it before the ranks exchange anything; create() of a
 * strategy refuses only what settings do not say: an optimizer without moments of its own, tensors without units, and
 * encodings that a caller has made himself (taciti_exchange_check()). Not collective. */
tacit_status taciti_settings_check(const taciti_settings *settings, const taciti_hosts *hosts, taciti_reader reader);

/* Logs a warning for every option that was given in one of these settings (of the same sections) and that the reader
 * does not read in any of them; options that need the same share a line. Call it after a check without an error, on one
 * rank. Returns E_MEMORY or OK. */
tacit_status taciti_settings_warn_unread(const taciti_settings *const *settings, size_t count, taciti_reader reader);

/* Writes what the conditions of the option and of its table ask for: "--optim.name accum-adamw or accum-adam"; "" if
 * there are none. Sections of registries also need their member. */
enum { TACITI_NEEDS_BYTES = 512 };
const char *taciti_settings_needs(const taciti_place *place, char out[TACITI_NEEDS_BYTES]);

/* agree.c: refuse ranks that run different programs, have different settings, or lay parameters out differently; the
 * first rank that differs and both values are named. Collective. */
tacit_status taciti_agree_on_build(taciti_comm *comm);
tacit_status taciti_agree_on_configuration(taciti_comm *comm, const taciti_config *config);
/* Names, shapes and units; the error names the first tensor that differs. */
tacit_status taciti_agree_on_tensors(taciti_comm *comm, const taciti_layout *layout);
/* These and the buckets, which depend on the configuration. */
tacit_status taciti_agree_on_layout(taciti_comm *comm, const taciti_layout *layout);

#endif
