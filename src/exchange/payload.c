/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/payload.h"

#include <math.h>

double taciti_encoding_factor(const taciti_encoding *e) {
    return !e->codec->selects ? 1 : e->expected.factor > 0 ? e->expected.factor : TACITI_EXPECTED_FACTOR;
}

taciti_codec_setting taciti_encoding_result_setting(const taciti_encoding *e, int contributions) {
    taciti_codec_setting setting = e->back.factor > 0 ? e->back : e->expected;
    if (!e->codec->selects || e->codec->shared_key) return setting;
    const double filled = 1 - pow(1 - 1 / taciti_encoding_factor(e), contributions);
    const double factor = setting.factor > 0 ? setting.factor : taciti_encoding_factor(e);
    setting.factor = e->codec->sketches ? 1 / filled : fmax(factor, 1 / filled); /* sums of sketches go back exactly */
    return setting;
}

double taciti_encoding_expected_bytes(const taciti_encoding *e, taciti_codec_setting setting, size_t n, int ranks) {
    enum { COLUMNS = 1024 };
    const taciti_codec_matrix matrix = {.rows = n / COLUMNS, .columns = COLUMNS};
    const taciti_codec_call call = {
        .options = e->options, .setting = setting, .ranks = ranks, .matrices = &matrix, .n_matrices = 1};
    return taciti_codec_expected_bytes(e->codec, &call, n);
}
