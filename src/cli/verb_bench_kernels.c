/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>

#include "base/log.h"
#include "bench/kernels.h"
#include "bench/machine_block.h"
#include "cli/verbs.h"

const taciti_flag taciti_bench_kernels_flags[] = {
    {"--json", NULL, NULL, "answer as one JSON object"},
    {"--floats", "-n", "COUNT", "floats per array, in Mi (default 64: far larger than any cache)"},
    {"--rounds", "-r", "COUNT", "rounds of probe and kernel per figure (default 11)"},
    {"--threads", "-t", "COUNT", "threads of the second column (default: usable cores)"},
    {NULL, NULL, NULL, NULL},
};

/* ---- text ------------------------------------------------------------------------------------------------------ */

static void print_peaks(const taciti_kernel_bench *bench) {
    printf("\n%-22s %25s %15d thread%s\n", "what the machine can do", "1 thread", bench->threads,
           bench->threads == 1 ? "" : "s");
    for (int i = 0; i < TACITI_BENCH_PEAKS; i++) {
        const taciti_peak_figure *peak = &bench->peaks[i];
        printf("%-22s", peak->name);
        for (int p = 0; p < 2; p++)
            if (peak->rate[p].max > 0)
                printf(" %7.1f (%.1f-%.1f)", peak->rate[p].median, peak->rate[p].min, peak->rate[p].max);
            else
                printf(" %23s", "not on this CPU");
        printf(" %s\n", peak->unit);
    }
}

static void print_kernels(const taciti_kernel_bench *bench) {
    printf("\n%-18s %7s | %-32s | %d thread%s\n", "kernel", "bytes/", "1 thread", bench->threads,
           bench->threads == 1 ? "" : "s");
    printf("%-18s %7s | %6s %6s %18s | %6s %6s %18s\n", "", "float", "GB/s", "probe", "ratio (range)", "GB/s", "probe",
           "ratio (range)");
    for (size_t k = 0; k < TACITI_BENCH_KERNELS; k++) {
        const taciti_kernel_figure *figure = &bench->kernels[k];
        printf("%-18s %7.0f", figure->name, figure->bytes_per_element);
        for (int p = 0; p < 2; p++) {
            const taciti_kernel_rate *rate = &figure->rate[p];
            printf(" | %6.1f %6.1f %5.2f (%.2f-%.2f)", rate->bytes_per_s.median / 1e9,
                   rate->probe_bytes_per_s.median / 1e9, rate->ratio.median, rate->ratio.min, rate->ratio.max);
        }
        printf("\n");
    }
}

static void print_text(const taciti_machine *machine, const taciti_kernel_bench *bench) {
    taciti_machine_print(machine);
    print_peaks(bench);
    print_kernels(bench);
    printf("\nArrays of %zu floats, %d rounds. The probe moves the same bytes in the same mix of reads and writes and\n"
           "computes nothing; both take turns, and the ratio is the median of the rounds' ratios (smallest-largest).\n"
           "Memory is timed in processor time of the slowest thread, arithmetic by the wall clock.\n",
           bench->floats, bench->rounds);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------ */

static json_t *kernels_json(const taciti_kernel_bench *bench) {
    json_t *list = json_array();
    for (size_t k = 0; k < TACITI_BENCH_KERNELS; k++)
        for (int p = 0; p < 2; p++) {
            const taciti_kernel_figure *figure = &bench->kernels[k];
            const taciti_kernel_rate *rate = &figure->rate[p];
            (void)json_array_append_new(list, json_pack("{s:s, s:i, s:f, s:o, s:o, s:o}", "kernel", figure->name,
                                                        "threads", p == 0 ? 1 : bench->threads, "bytes_per_float",
                                                        figure->bytes_per_element, "bytes_per_s",
                                                        taciti_statistics_json(&rate->bytes_per_s), "probe_bytes_per_s",
                                                        taciti_statistics_json(&rate->probe_bytes_per_s), "ratio",
                                                        taciti_statistics_json(&rate->ratio)));
        }
    return list;
}

static json_t *peaks_json(const taciti_kernel_bench *bench) {
    json_t *list = json_array();
    for (int i = 0; i < TACITI_BENCH_PEAKS; i++)
        for (int p = 0; p < 2; p++)
            (void)json_array_append_new(list, json_pack("{s:s, s:i, s:s, s:o}", "peak", bench->peaks[i].name, "threads",
                                                        p == 0 ? 1 : bench->threads, "unit", bench->peaks[i].unit,
                                                        "rate", taciti_statistics_json(&bench->peaks[i].rate[p])));
    return list;
}

tacit_status taciti_verb_bench_kernels(const taciti_verb *verb, int argc, char **argv) {
    taciti_arguments arguments;
    taciti_machine machine;
    taciti_kernel_bench bench;
    double mebi = 0;
    int64_t rounds = 0, threads = 0;
    TACITI_TRY(taciti_arguments_parse(verb, NULL, argc, argv, &arguments));
    taciti_machine_read(&machine);
    TACITI_TRY(taciti_arguments_no_words(&arguments));
    TACITI_TRY(taciti_arguments_number(&arguments, "--floats", 64, false, 1 << 20, &mebi));
    TACITI_TRY(taciti_machine_has_room("--floats", TACITI_BENCH_BYTES_PER_FLOAT * mebi * 0x1p20));
    TACITI_TRY(taciti_arguments_count(&arguments, "--rounds", 11, 1, TACITI_BENCH_MAX_ROUNDS, &rounds));
    TACITI_TRY(taciti_arguments_count(&arguments, "--threads", machine.cores, 1, 1024, &threads));
    TACITI_TRY(taciti_kernel_bench_run((size_t)(mebi * 0x1p20), (int)rounds, (int)threads, &bench));
    if (taciti_arguments_get(&arguments, "--json") != NULL)
        return taciti_cli_print_json(json_pack("{s:o, s:I, s:i, s:o, s:o}", "machine", taciti_machine_json(&machine),
                                               "floats", (json_int_t)bench.floats, "rounds", bench.rounds, "peaks",
                                               peaks_json(&bench), "kernels", kernels_json(&bench)));
    print_text(&machine, &bench);
    return TACIT_OK;
}
