/* SPDX-License-Identifier: Apache-2.0
 *
 * `tacit bench codecs --codec sketch`: the homomorphic sketch, which is no codec of the registry, since its decoder
 * needs the index of all ranks.
 */
#include "cli/bench_sketch.h"

#include <jansson.h>
#include <stdio.h>

#include "base/log.h"
#include "base/memory.h"
#include "bench/machine_block.h"
#include "bench/sketch.h"
#include "kernel/kernel.h"

static const double SHARE = 0.36;
static const int64_t FLOATS = 1179648, FLOATS_MIN = 1024; /* a shard of a 768 x 3072 matrix on two ranks */

static void print_figure(const taciti_sketch_figure *f, size_t n) {
    printf("%-7s %-7s %8.4f %7zu %5.1f", taciti_ring_name(f->ring), f->isa, (double)f->bytes / (double)n, f->pending,
           f->read_bytes_per_s.median / 1e9);
    for (int pass = 0; pass < TACITI_SKETCH_PASSES; pass++)
        printf(" | %7.3f %5.1f", 1e3 * f->seconds[pass].median, f->input_bytes_per_s[pass].median / 1e9);
    printf("\n");
}

static void print_text(const taciti_machine *machine, const taciti_sketch_bench *bench) {
    taciti_machine_print(machine);
    printf("\nhomomorphic sketch of %zu floats, %zu of them in the union (%.4f); %zu rows of 16, %zu zones\n"
           "per pass: ms, and GB/s of input; one thread, processor time, medians; decode is mapping and peel\n\n",
           bench->n, bench->elements, (double)bench->elements / (double)bench->n, bench->figures[0].rows,
           bench->figures[0].zones);
    printf("%-7s %-7s %8s %7s %5s", "ring", "set", "bytes/", "pending", "read");
    for (int pass = 0; pass < TACITI_SKETCH_PASSES; pass++)
        printf(" | %13s", taciti_sketch_pass_name((taciti_sketch_pass)pass));
    printf("\n%-7s %-7s %8s %7s %5s", "", "", "float", "", "GB/s");
    for (int pass = 0; pass < TACITI_SKETCH_PASSES; pass++) printf(" | %7s %5s", "ms", "GB/s");
    printf("\n");
    for (size_t i = 0; i < bench->count; i++) print_figure(&bench->figures[i], bench->n);
}

static json_t *figure_json(const taciti_sketch_figure *f) {
    json_t *passes = json_object();
    for (int pass = 0; pass < TACITI_SKETCH_PASSES; pass++)
        (void)json_object_set_new(passes, taciti_sketch_pass_name((taciti_sketch_pass)pass),
                                  json_pack("{s:o, s:o}", "seconds", taciti_statistics_json(&f->seconds[pass]),
                                            "input_bytes_per_s", taciti_statistics_json(&f->input_bytes_per_s[pass])));
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:o}", "codec", "sketch", "ring",
                     taciti_ring_name(f->ring), "isa", f->isa, "bytes", (json_int_t)f->bytes, "rows",
                     (json_int_t)f->rows, "zones", (json_int_t)f->zones, "pending", (json_int_t)f->pending,
                     "read_bytes_per_s", taciti_statistics_json(&f->read_bytes_per_s), "passes", passes);
}

static tacit_status print_json(const taciti_machine *machine, const taciti_sketch_bench *bench, int64_t rounds) {
    json_t *list = json_array();
    for (size_t i = 0; i < bench->count; i++) (void)json_array_append_new(list, figure_json(&bench->figures[i]));
    return taciti_cli_print_json(json_pack("{s:o, s:I, s:I, s:I, s:o}", "machine", taciti_machine_json(machine),
                                           "floats", (json_int_t)bench->n, "union", (json_int_t)bench->elements,
                                           "rounds", (json_int_t)rounds, "codecs", list));
}

tacit_status taciti_cli_bench_sketch(const taciti_arguments *arguments, const char *isa) {
    taciti_machine machine;
    taciti_sketch_bench bench;
    int64_t n = 0, rounds = 0;
    double share = SHARE;
    TACITI_TRY(taciti_arguments_no_words(arguments));
    TACITI_TRY(taciti_arguments_count(arguments, "--n", FLOATS, FLOATS_MIN, UINT32_MAX, &n));
    TACITI_TRY(taciti_arguments_count(arguments, "--rounds", 7, 1, TACITI_SKETCH_BENCH_MAX_ROUNDS, &rounds));
    TACITI_TRY(taciti_arguments_number(arguments, "--union", SHARE, 1, &share));
    const double needed = 32.0 * (double)n, there = (double)taciti_available_bytes();
    if (there > 0 && needed > 0.9 * there)
        return taciti_fail(TACIT_E_MEMORY,
                           "--n %lld needs %.1f GiB of memory, but only %.1f are free: give a smaller --n",
                           (long long)n, needed / 0x1p30, there / 0x1p30);
    taciti_machine_read(&machine);
    TACITI_TRY(taciti_sketch_bench_run((size_t)n, share, isa, (int)rounds, &bench));
    if (taciti_arguments_get(arguments, "--json") != NULL) return print_json(&machine, &bench, rounds);
    print_text(&machine, &bench);
    return TACIT_OK;
}
