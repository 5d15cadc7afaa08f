/* SPDX-License-Identifier: Apache-2.0
 *
 * YAML configuration, against the options of `tacit train`.
 */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "fuzz.h"
#include "train/train.h"

/* What was accepted can be told, and is the same whoever tells it. */
static void check_accepted(const taciti_config *config) {
    char *whole = taciti_config_json(config, 0), *again = taciti_config_json(config, 0);
    if (whole == NULL || again == NULL || strcmp(whole, again) != 0) abort();
    taciti_free(whole);
    taciti_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static taciti_train_settings settings;
    if (size > FUZZ_INPUT_MAX || taciti_train_settings_init(&settings) != TACIT_OK) return 0;
    if (taciti_config_file(&settings.job.config, fuzz_file(data, size)) == TACIT_OK)
        check_accepted(&settings.job.config);
    taciti_settings_destroy(&settings.job);
    return 0;
}

size_t fuzz_seed(size_t i, uint8_t *out) {
    static const char *const seeds[] = {
        "# a run\nstrategy: gossip\ntrain:\n  steps: 300\n  batch: 16\n  max_minutes: 1.5\nmodel: {preset: nano, "
        "dtype: bf16}\n",
        "data:\n  train: [a.txt, 'b c.txt', \"d\\n.txt\"]\n  split: 0.05\noptim:\n  name: adamw\n  lr: 3e-4\n",
        "exchange:\n  bucket: 25MiB\n  overlap: true\n  wire: bf16\ngossip: {topology: aer, every: 2}\nlocalsgd:\n  "
        "every: 10\n",
        "\xef\xbb\xbfrun:\n  dir: \xc3\xa4\n  trace: no\n---\n",
        "train: &anchor\n  steps: 1\nmodel: *anchor\n",
    };
    if (i >= sizeof seeds / sizeof seeds[0]) return 0;
    memcpy(out, seeds[i], strlen(seeds[i]));
    return strlen(seeds[i]);
}
