/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys, and codecs and controllers by their sections, that earlier versions had. A file, a flag, a variable or a caller
 * that still gives one is refused with what to type instead; a checkpoint that was made with another value than `was`
 * has a line of its own (settings/changes.c).
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/option.h"
#include "base/option_value.h"

static const taciti_old_key OLD_KEYS[] = {
    /* key, what has taken its place, the value that changes nothing, what to do */
    {"accordion.fall", NULL, "0.5", "it is always 0.5"},
    {"adaq.", NULL, NULL, "take --compress.codec topk"},
    {"blocktopk.", NULL, NULL, "take --compress.codec topk"},
    {"comm.segment", NULL, "262144", "large transfers are always pipelined in pieces of 256 KiB"},
    {"comm.streams", NULL, "1", "two ranks always have one connection"},
    {"comm.warn", NULL, "3", "a rank that is silent for a fifth of comm.timeout is always named"},
    {"compress.decay", "compress.feedback", "1", "the same number; 0 is what compress.feedback false was"},
    {"compress.estimate", "compress.what", "false", "--compress.what change"},
    {"compress.ratio", "tagc.ratio", "0", "the same number"},
    {"compress.seed", NULL, "1", "it is always 1"},
    {"compress.sparsity", "compress.factor", "0", "1 / (1 - sparsity), so 0.8 is --compress.factor 5"},
    {"compute.floor", NULL, "0", "floor_s in the profile says it (tacit info profiles NAME prints one)"},
    {"data.format", NULL, "\"auto\"", "content and name say it: a file of uint16 tokens is called .bin"},
    {"data.merges", "data.vocab", "\"\"", "merges.txt is read beside vocab.json"},
    {"dgc.", NULL, "0|false|\"f32\"|\"auto\"|0.01", "it samples 1 % and sends values in f32"},
    {"e3m0.", NULL, NULL, "take int4"},
    {"efsign.", NULL, "4096", "blocks always have 4096 elements"},
    {"gaussiank.", NULL, NULL, "take --compress.codec topk"},
    {"gossip.accelerate", NULL, "false", "mixes are never extrapolated"},
    {"gossip.gamma_floor", "gossip.gamma", "0", "the consensus factor is constant"},
    {"gossip.gamma_power", "gossip.gamma", "0", "the consensus factor is constant"},
    {"gossip.gamma_start", "gossip.gamma", "-1", "the consensus factor is constant"},
    {"gossip.mixes", NULL, "1", "a step makes one mix; a topology with more partners mixes faster"},
    {"gossip.period", NULL, "0", "topology random always has its own number of rounds"},
    {"gossip.seed", NULL, "1", "it is always 1"},
    {"gossip.target", NULL, "0", "a step makes one mix; a topology with more partners mixes faster"},
    {"gravac.average", NULL, "\"norms\"", "a gain is always the ratio of averaged norms"},
    {"gravac.form", NULL, "\"corrected\"", "it is always corrected"},
    {"gravac.weight", NULL, "0", "it is always the number of ranks / 100"},
    {"inceptionn.", NULL, NULL, "take --compress.codec int8"},
    {"int4.", NULL, "128|true", "blocks always have 128 elements, in groups of 32 that are rotated"},
    {"int8.", NULL, "128|false", "blocks always have 128 elements, which are not rotated"},
    {"knee.", NULL, NULL, "take --compress.codec auto"},
    {"localsgd.outer_nesterov", NULL, "true", "the outer momentum always has Nesterov's form"},
    {"loco.", NULL, NULL, "take --compress.codec int4 --compress.residual int8"},
    {"natural.", NULL, NULL, "take --compress.codec int8"},
    {"omnireduce.", NULL, NULL, "take --compress.codec topk"},
    {"onebit.", NULL, "512|\"means\"", "blocks always have 512 elements; it sends the means of both signs"},
    {"optim.nesterov", NULL, "false", "the momentum of sgd is always plain"},
    {"powersgd.alternate", NULL, "false", "both factors always travel in the same step"},
    {"qsgd.block", NULL, "512", "it is always 512"},
    {"qsgd.norm", NULL, "\"l2\"", "it is always the L2 norm"},
    {"quantile-sketch.", NULL, NULL, "take --compress.codec int8"},
    {"randomk-own.", NULL, NULL, "take --compress.codec randomk"},
    {"randomk.", NULL, "0|false|\"f32\"", "it sends values in f32"},
    {"redsync.", NULL, "0|false|\"f32\"|\"auto\"|\"bisection\"|2",
     "it halves until at most twice the elements are left, and sends values in f32"},
    {"shared.", NULL, NULL, "take --compress.codec topk"},
    {"sidco.", NULL, NULL, "take --compress.codec topk"},
    {"signmag2.", NULL, "4096", "blocks always have 4096 elements"},
    {"signum.", NULL, NULL, "take --compress.codec signsgd with --compress.momentum 0.9"},
    {"sketch.", "tagc.ratio", "0|false",
     "with --compress.codec tagc --compress.scope model, the same; tagc.ratio 0 is what sketch has"},
    {"sketch.ring", NULL, "\"f32\"", "counters are always floats"},
    {"sparseloco.", NULL, "0|4096|false|\"auto\"|\"signmag2\"",
     "chunks always have 4096 elements, whose values are signmag2; --topk.values has a choice"},
    {"tagc.compat", NULL, "false", "what TAGC's released code does is described in docs/codecs.md alone"},
    {"tagc.ring", NULL, "\"f32\"", "counters are always floats"},
    {"terngrad.", NULL, NULL, "take --compress.codec qsgd --qsgd.levels 1"},
    {"thc.", NULL, NULL, "take --compress.codec int4"},
    {"threshold.", NULL, NULL, "take --compress.codec topk"},
    {"topk.block", NULL, "0", "every format has a block of its own"},
    {"topk.hadamard", NULL, "false", "values are not rotated; --compress.codec int4 rotates"},
    {"train.fail_at", NULL, "-1", "for tests, the variable TACIT_FAIL_AT=STEP or STEP:COUNT poisons gradients"},
    {"train.fail_steps", NULL, "1", "for tests, the variable TACIT_FAIL_AT=STEP or STEP:COUNT poisons gradients"},
    {"train.max_skips", NULL, "100", "a run always gives up after 100 skipped steps in a row"},
    {"u8bit.", NULL, NULL, "take --compress.codec int8"},
    {NULL, NULL, NULL, NULL},
};

void taciti_variable_name(const char *key, char *out, size_t size) {
    (void)snprintf(out, size, TACITI_VARIABLE_PREFIX "%s", key);
    for (char *c = out; *c != '\0'; c++) *c = *c == '.' || *c == '-' ? '_' : (char)toupper((unsigned char)*c);
}

const taciti_old_key *taciti_old_keys(void) { return OLD_KEYS; }

/* Whether `old` is a section that has the name in it. */
static bool section_holds(const char *old, const char *name, const char *separator) {
    return taciti_text_ends_with(old, separator) && strncmp(old, name, strlen(old)) == 0;
}

/* Both names of one key come first: TACIT_RANDOMK_ is a section, and how TACIT_RANDOMK_OWN_ begins. */
const taciti_old_key *taciti_old_key_find(const char *name) {
    char variable[TACITI_KEY_BYTES + 8];
    const taciti_old_key *section = NULL;
    for (const taciti_old_key *old = OLD_KEYS; old->key != NULL; old++) {
        taciti_variable_name(old->key, variable, sizeof variable);
        if (strcmp(old->key, name) == 0 || strcmp(variable, name) == 0) return old;
        if (section == NULL && (section_holds(old->key, name, ".") || section_holds(variable, name, "_")))
            section = old;
    }
    return section;
}

const char *taciti_old_key_text(const taciti_old_key *old, const char *name, char out[TACITI_OLD_KEY_BYTES]) {
    const char *now = old->now == NULL ? "" : old->now;
    const int length = (int)strlen(name) - taciti_text_ends_with(name, ".");
    (void)snprintf(out, TACITI_OLD_KEY_BYTES, "%.*s has %s%s: %s", length, name, *now == '\0' ? "gone" : "become ", now,
                   old->text);
    return out;
}
