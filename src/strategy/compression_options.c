/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of compression, and what is refused before a run begins.
 */
#include "strategy/compression.h"

#include <string.h>

#include "base/log.h"

#define AT(member) offsetof(taciti_compress_options, member)
#define MAX_FACTOR 1e6

/* "none", "auto", then the codecs. */
static const char *codec_name(size_t index) {
    if (index < 2) return index == 0 ? "none" : "auto";
    return taciti_codec_name(index - 2);
}

static const taciti_option OPTIONS[] = {
    TACITI_OPTION("codec", NAME, AT(codec), "none", .names = codec_name,
                  .help = "what sums over ranks are compressed with; `tacit info codecs` lists them; auto: numbers of "
                          "16, 8 or 4 bits or the largest elements, no fewer bytes than saves time; mixes of "
                          "strategy gossip in int4",
                  .flags = TACITI_OPTION_MEMBER),
    TACITI_OPTION(
        "gather", NAME, AT(gather), "auto", .names = codec_name,
        .help = "what the parameters that strategy shard gathers are compressed with: in stages 1 and 2 their "
                "changes (with compress.back), in stage 3 their values; auto: nothing, or with compress.codec auto "
                "what suits the stage",
        .flags = TACITI_OPTION_MEMBER),
    TACITI_OPTION("layers", TEXT, AT(layers), "all", .when = "compressed-any",
                  .help = "the tensors that are compressed, others travel as they are: classes (attention, mlp, "
                          "embedding, position, norm, head, other), /regular expressions/, and with a minus what is "
                          "left out: mlp,embedding,head or all,-norm",
                  .flags = TACITI_OPTION_EXPERT),
    TACITI_OPTION("what", ENUM, AT(what), "gradient", .choices = "gradient|momentum|change", .when = "compressed",
                  .help =
                      "what ranks compress: their gradients; from optim.freeze on their first moments (1-bit Adam), "
                      "dense before; or the change of an estimate of their gradients (EF21)",
                  .flags = TACITI_OPTION_EXPERT),
    TACITI_OPTION("factor", REAL, AT(factor), "10", .min = 1, .max = MAX_FACTOR, .when = "factor fixed-factor",
                  .help = "elements per element that is sent, of codecs that select; 1: dense"),
    TACITI_OPTION("back", REAL, AT(back), "0", .max = MAX_FACTOR, .when = "back",
                  .help = "the same for the sum on its way back to the ranks; 0: as compress.factor",
                  .flags = TACITI_OPTION_EXPERT),
    TACITI_OPTION(
        "scope", ENUM, AT(scope), "model", .choices = "model|bucket", .when = "threshold whole-model",
        .help = "model: one threshold for all parameters, so that the share which is sent differs from step to step; "
                "bucket: the factor holds for every bucket"),
    TACITI_OPTION(
        "loss", REAL, AT(loss), "0.5", .max = 100, .unit = "%", .when = "automatic",
        .help = "the most that auto may cost: it takes no form that has ended further above dense in our runs; below "
                "4: number formats alone; from 4 on a fifth of the elements, from 5 on a tenth, too"),
    TACITI_OPTION("warmup", INT, AT(warmup), "-1", .min = -1, .max = 1e12, .unit = "steps", .when = "selects",
                  .help = "the factor rises from compress.start during this number of steps, auto begins to select "
                          "elements after it; -1: twice optim.warmup and at least 200, with another controller 0"),
    TACITI_OPTION("start", REAL, AT(start), "1", .min = 1, .max = MAX_FACTOR, .when = "selects rising",
                  .help = "factor with which the warm-up begins; 1: dense", .flags = TACITI_OPTION_EXPERT),
    TACITI_OPTION("feedback", REAL, AT(feedback), "1", .max = 1, .when = "lossy compress.what!=change",
                  .help = "share of what a codec loses that is added to what it encodes in the next step; 0: nothing"),
    TACITI_OPTION("residual", ENUM, AT(residual), "f32", .choices = "f32|bf16|int8",
                  .when = "lossy compress.what!=change compress.feedback!=0",
                  .help = "what a residual is stored as from step to step: 8, 4 or 2.1 bytes per parameter on every "
                          "rank; fewer bits round it",
                  .flags = TACITI_OPTION_EXPERT),
    TACITI_OPTION("momentum", REAL, AT(momentum), "0", .max = 0.9999, .when = "compressed",
                  .help = "momentum correction: ranks compress their momentum instead of their gradient",
                  .flags = TACITI_OPTION_EXPERT),
    TACITI_OPTION("collective", ENUM, AT(collective), "auto", .choices = "auto|scatter|gather",
                  .when = "payloads sums-everywhere",
                  .help = "scatter: owners add payloads up and encode the sum; gather: every rank decodes all payloads",
                  .flags = TACITI_OPTION_EXPERT),
};

const taciti_option_table taciti_compress_option_table =
    TACITI_OPTION_TABLE("compress", "compression of gradients, or of what averages send", OPTIONS);

static const taciti_option ADAPT_OPTIONS[] = {
    TACITI_OPTION("policy", NAME, offsetof(taciti_adapt_options, policy), "fixed", .names = taciti_controller_name,
                  .help = "what chooses the factor of every step (docs/adaptive.md)", .flags = TACITI_OPTION_MEMBER),
};

const taciti_option_table taciti_adapt_option_table =
    TACITI_OPTION_TABLE("adapt", "the compression factor while training", ADAPT_OPTIONS);

enum { SEED = 1 }; /* of codecs that draw random numbers */

/* ---- what options mean ------------------------------------------------------------------------------------------- */

static bool is_gather(const taciti_compression_setup *setup) { return setup->phase == TACITI_PHASE_ALL_GATHER; }

static const taciti_encoding *encoding_of(const taciti_compression_setup *setup) {
    return is_gather(setup) ? &setup->gathers : &setup->sums;
}

const taciti_controller *taciti_compression_controller(const taciti_compression_setup *setup) {
    const taciti_controller *controller = setup->controller;
    const bool applies = controller != NULL && (controller->switches || !is_gather(setup));
    return applies ? controller : taciti_controller_find("fixed");
}

bool taciti_compression_is_fixed(const taciti_compression_setup *setup) {
    return strcmp(taciti_compression_controller(setup)->name, "fixed") == 0;
}

double taciti_compression_asked_factor(const taciti_compression_setup *setup) {
    const taciti_compress_options *o = setup->options;
    return is_gather(setup) && o->back > 0 ? o->back : o->factor;
}

/* A controller that switches between dense and a codec leaves the factor of a codec that selects as it is. */
bool taciti_compression_keeps_factor(const taciti_compression_setup *setup) {
    return taciti_compression_is_fixed(setup) || (taciti_compression_controller(setup)->switches &&
                                                  taciti_codec_suits(encoding_of(setup)->codec, TACITI_USE_FACTORS));
}

bool taciti_compression_sends_payloads(const taciti_compression_setup *setup) {
    return encoding_of(setup)->codec != NULL &&
           (!taciti_compression_is_fixed(setup) || taciti_compression_asked_factor(setup) > 1);
}

bool taciti_compression_by_threshold(const taciti_compression_setup *setup) {
    return setup->options->scope == TACITI_SCOPE_MODEL && taciti_encoding_is_uneven(encoding_of(setup));
}

bool taciti_compression_is_lossy(const taciti_compression_setup *setup) {
    return !taciti_codec_suits(encoding_of(setup)->codec, TACITI_USE_COPIES);
}

taciti_compress_what taciti_compression_what(const taciti_compression_setup *setup) {
    return is_gather(setup) ? TACITI_SENDS_GRADIENT : (taciti_compress_what)setup->options->what;
}

taciti_compression_setup taciti_compression_gather_setup(const taciti_compression_setup *setup) {
    taciti_compression_setup out = *setup;
    out.phase = TACITI_PHASE_ALL_GATHER;
    return out;
}

/* An owner of parameters knows what the others lack, so their gathers have no feedback; none has momentum. */
taciti_encoding taciti_compression_encoding(const taciti_compression_setup *setup) {
    const taciti_compress_options *o = setup->options;
    const bool has_results = setup->phase == TACITI_PHASE_ALL_REDUCE || setup->phase == TACITI_PHASE_REDUCE_TO_LANES;
    taciti_encoding e = *encoding_of(setup);
    if (e.codec == NULL) return (taciti_encoding){.codec = NULL};
    const bool estimates = taciti_compression_what(setup) == TACITI_SENDS_CHANGE;
    const bool corrects = o->feedback > 0 && (!is_gather(setup) || setup->gather_feedback);
    const bool errors = corrects && !estimates && taciti_compression_is_lossy(setup);
    const taciti_codec_setting asked = {.factor = taciti_compression_asked_factor(setup)},
                               back = {.factor = has_results ? o->back : 0};
    e.seed = SEED;
    e.expected = taciti_codec_setting_of(e.codec, asked);
    e.back = taciti_codec_setting_of(e.codec, back);
    e.feedback = (taciti_feedback){.errors = errors,
                                   .decay = errors ? o->feedback : 1,
                                   .momentum = is_gather(setup) ? 0 : o->momentum,
                                   .estimates = estimates,
                                   .half = setup->phase == TACITI_PHASE_REDUCE_SCATTER ||
                                           (is_gather(setup) && !setup->gather_feedback),
                                   .stored = errors ? (taciti_residual_form)o->residual : TACITI_RESIDUAL_F32};
    e.way = setup->phase == TACITI_PHASE_ALL_REDUCE ? (taciti_way)o->collective : TACITI_WAY_SCATTER;
    return e;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

/* Returns the word that the user has typed: "auto" stands for a codec. */
static const char *name_of(const taciti_compression_setup *setup) {
    const char *typed = setup->options == NULL ? ""
                        : is_gather(setup)     ? setup->options->gather.text
                                               : setup->options->codec.text;
    return typed[0] != '\0' ? typed : encoding_of(setup)->codec->name;
}

static tacit_status check_policy(const taciti_compression_setup *setup) {
    const taciti_controller *controller = taciti_compression_controller(setup);
    if (taciti_compression_is_fixed(setup)) return TACIT_OK;
    if (encoding_of(setup)->codec == NULL)
        return taciti_fail(TACIT_E_CONFIG,
                           "adapt.policy %s chooses %s, and compress.codec is none: give --compress.codec %s",
                           controller->name, controller->switches ? "when to compress" : "the factor of a codec",
                           controller->switches ? "auto" : "topk");
    if (controller->switches || taciti_codec_suits(encoding_of(setup)->codec, TACITI_USE_FACTORS))
        return controller->check == NULL ? TACIT_OK : controller->check(setup->controller_options);
    return taciti_fail(TACIT_E_CONFIG,
                       "adapt.policy %s chooses how many elements are sent, and compress.codec %s does not select "
                       "by their number: "
                       "leave adapt.policy out, or take a codec that selects: --compress.codec topk",
                       controller->name, name_of(setup));
}

/* Momentum correction takes the place of the optimizer's momentum (arXiv 1712.01887, section 3.2). */
static tacit_status check_correction(const taciti_compression_setup *setup, const taciti_optim_options *optim) {
    const bool sgd = optim->name == TACITI_OPTIM_SGD;
    const double own = sgd ? optim->momentum : optim->beta1;
    const char *key = sgd ? "momentum" : "beta1";
    if (setup->sums.codec == NULL || setup->options->momentum == 0 || own == 0) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "compress.momentum %g would be a second momentum beside the optimizer's optim.%s %g: "
                       "--compress.momentum 0, or --optim.%s 0",
                       setup->options->momentum, key, own, key);
}

/* adam's decay is part of the gradient: it would have to be part of the momentum. */
tacit_status taciti_compression_check_momentum(const taciti_compression_setup *setup,
                                               const taciti_optim_options *optim) {
    if (setup->options == NULL) return TACIT_OK;
    if (setup->options->what != TACITI_SENDS_MOMENTUM) return check_correction(setup, optim);
    if (setup->sums.codec == NULL)
        return taciti_fail(TACIT_E_CONFIG, "compress.what momentum: compress.codec is none; give --compress.codec "
                                           "onebit, or leave compress.what out");
    if (optim->name != TACITI_OPTIM_ADAMW && (optim->name != TACITI_OPTIM_ADAM || optim->weight_decay > 0))
        return taciti_fail(TACIT_E_CONFIG, "compress.what momentum is for adamw, and for adam without weight decay: "
                                           "--optim.name adamw, or --compress.what gradient");
    if (optim->freeze == 0)
        return taciti_fail(TACIT_E_CONFIG,
                           "compress.what momentum begins when second moments are frozen, and they never "
                           "are: --optim.freeze N, with N a sixth of train.steps or more");
    if (setup->options->momentum == 0) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "compress.momentum %g is a second momentum on top of what compress.what momentum "
                       "sends: leave one of them out",
                       setup->options->momentum);
}

/* Gradients that travel as they are would have no momentum, for the optimizer has none. */
static tacit_status check_whole_momentum(const taciti_compression_setup *setup) {
    const taciti_compress_options *o = setup->options;
    const char *layers = o->layers.text;
    const bool all = layers[0] == '\0' || strcmp(layers, "all") == 0;
    if (o->momentum == 0 || (all && taciti_compression_is_fixed(setup))) return TACIT_OK;
    return taciti_fail(
        TACIT_E_CONFIG,
        "compress.momentum %g is the momentum of what is compressed, and %s%s may send gradients as they "
        "are, which then have none: --compress.momentum 0 with the optimizer's own, or %s",
        o->momentum, all ? "adapt.policy " : "compress.layers ",
        all ? taciti_compression_controller(setup)->name : layers,
        all ? "--adapt.policy fixed and a codec" : "--compress.layers all");
}

static tacit_status check_options(const taciti_compression_setup *setup) {
    const taciti_compress_options *o = setup->options;
    const bool estimates = o->what == TACITI_SENDS_CHANGE;
    if (!taciti_codec_suits(setup->sums.codec, TACITI_USE_FEEDBACK) && (o->feedback > 0 || estimates))
        return taciti_fail(TACIT_E_CONFIG,
                           "compress.%s: the errors of codec %s would grow without limit; --compress.%s, or a codec "
                           "whose errors shrink: --compress.codec int4",
                           estimates ? "what change" : "feedback", name_of(setup),
                           estimates ? "what gradient" : "feedback 0");
    if (estimates && o->momentum != 0)
        return taciti_fail(TACIT_E_CONFIG,
                           "compress.what change stores no residual that could have momentum: leave out "
                           "compress.momentum");
    if (o->back > 0 && o->back < 1)
        return taciti_fail(TACIT_E_CONFIG,
                           "compress.back %g is below 1: --compress.back 1 sends sums as a whole, "
                           "0 is compress.factor",
                           o->back);
    if (estimates && o->residual != TACITI_RESIDUAL_F32)
        return taciti_fail(TACIT_E_CONFIG, "compress.what change stores estimates, in f32, and no residual: "
                                           "--compress.residual f32, or --compress.what gradient");
    TACITI_TRY(check_whole_momentum(setup));
    if (o->momentum > 0 && o->residual != TACITI_RESIDUAL_F32)
        return taciti_fail(TACIT_E_CONFIG, "compress.momentum stores momentum in f32 beside its residual: "
                                           "--compress.residual f32, or --compress.momentum 0");
    return TACIT_OK;
}

tacit_status taciti_compression_check(const taciti_compression_setup *setup) {
    const taciti_encoding encoding = taciti_compression_encoding(setup);
    TACITI_TRY(check_policy(setup));
    if (encoding.codec == NULL) return TACIT_OK;
    if (!is_gather(setup)) TACITI_TRY(check_options(setup));
    return taciti_exchange_check(&encoding);
}
