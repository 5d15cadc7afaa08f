/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "bench/collectives.h"
#include "bench/machine_block.h"
#include "cli/ranks.h"
#include "cli/verbs.h"
#include "comm/supervise.h"

#define DEFAULT_BYTES "8,1KiB,64KiB,1MiB,64MiB"
#define LATENCY_BYTES ((size_t)64 << 10) /* up to here time is what people ask for, beyond it the rate */

const taciti_flag taciti_bench_collectives_flags[] = {
    TACITI_RANKS_FLAGS,
    {"--json", NULL, NULL, "answer as one JSON object"},
    {"--op", NULL, "NAME", TACITI_OPERATION_CHOICES " (default all-reduce)"},
    {"--bytes", "-b", "LIST", "sizes of the f32 array (default " DEFAULT_BYTES ")"},
    {"--by", NULL, "LIST",
     "who does it: tacit, mpi-default, mpi-ring, ... (default: all that this MPI library offers)"},
    {"--rounds", "-r", "COUNT", "samples per figure, candidates in turns (default 7)"},
    {"--line", "-l", "RATE",
     "what the line between hosts carries per direction, as 1gbit or 200mbit: adds shares of it"},
    {NULL, NULL, NULL, NULL},
};

/* All that the verb is told. */
typedef struct setup {
    taciti_comm_options comm;
    taciti_collective_options bench;
    taciti_section sections[2];
    taciti_config config;
    double line_bps; /* 0: not given */
    bool json;
} setup;

/* ---- flags ----------------------------------------------------------------------------------------------------- */

/* Cuts the first item off a list with commas; false when the list is used up. */
static bool next_item(const char **list, char *out, size_t size) {
    const size_t length = strcspn(*list, ",");
    if (**list == '\0') return false;
    (void)snprintf(out, size, "%.*s", length < size ? (int)length : (int)size - 1, *list);
    *list += length + ((*list)[length] == ',');
    return true;
}

static tacit_status take_sizes(const char *list, taciti_collective_options *out) {
    static const taciti_option OPTION = {.type = TACITI_OPTION_BYTES, .min = 4, .max = 0x1p40};
    int64_t bytes = 0;
    char item[TACITI_QUOTED_BYTES];
    while (next_item(&list, item, sizeof item)) {
        TACITI_TRY(taciti_value_set(&OPTION, "--bytes", item, &bytes));
        if (bytes % 4 != 0)
            return taciti_fail(TACIT_E_CONFIG, "--bytes: %s is not a multiple of 4, the bytes of a float", item);
        if (out->size_count == TACITI_COLLECTIVE_MAX_SIZES)
            return taciti_fail(TACIT_E_CONFIG, "--bytes: more than %d sizes", (int)TACITI_COLLECTIVE_MAX_SIZES);
        out->bytes[out->size_count++] = (size_t)bytes;
    }
    return out->size_count > 0 ? TACIT_OK : taciti_fail(TACIT_E_CONFIG, "--bytes: name at least one size");
}

static tacit_status take_candidates(const char *list, taciti_collective_options *out) {
    char item[TACITI_COLLECTIVE_NAME_BYTES];
    while (list != NULL && next_item(&list, item, sizeof item)) {
        for (int k = 0; k < out->by_count; k++)
            if (strcmp(out->by[k], item) == 0) return taciti_fail(TACIT_E_CONFIG, "--by: %s is named twice", item);
        if (out->by_count == TACITI_COLLECTIVE_MAX_CALLERS)
            return taciti_fail(TACIT_E_CONFIG, "--by: more than %d names", (int)TACITI_COLLECTIVE_MAX_CALLERS);
        memcpy(out->by[out->by_count++], item, sizeof item);
    }
    return TACIT_OK;
}

/* "2.5gbit", as tc writes it: decimal units. */
static tacit_status take_line(const char *text, double *out) {
    static const struct {
        const char *unit;
        double bps;
    } UNITS[] = {{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}};
    if (text == NULL) return TACIT_OK;
    const size_t length = strlen(text), unit_length = 4;
    char number[TACITI_REAL_BYTES];
    for (size_t i = 0; i < sizeof UNITS / sizeof *UNITS && length > unit_length; i++) {
        if (strcmp(text + length - unit_length, UNITS[i].unit) != 0 || length - unit_length >= sizeof number) continue;
        (void)snprintf(number, sizeof number, "%.*s", (int)(length - unit_length), text);
        if (!taciti_real_parse(number, out) || *out <= 0) break;
        *out *= UNITS[i].bps;
        return TACIT_OK;
    }
    return taciti_fail(TACIT_E_CONFIG, "--line %s: give a rate such as 200mbit or 2.5gbit", text);
}

static tacit_status take_flags(const taciti_arguments *arguments, setup *out) {
    const char *bytes = taciti_arguments_get(arguments, "--bytes");
    int64_t rounds = 0;
    int what = 0;
    TACITI_TRY(taciti_arguments_no_words(arguments));
    TACITI_TRY(taciti_arguments_count(arguments, "--rounds", 7, 1, TACITI_COLLECTIVE_MAX_ROUNDS, &rounds));
    TACITI_TRY(
        taciti_arguments_choice(arguments, "--op", TACITI_OPERATION_CHOICES, TACITI_OPERATION_ALL_REDUCE, &what));
    TACITI_TRY(take_sizes(bytes != NULL ? bytes : DEFAULT_BYTES, &out->bench));
    TACITI_TRY(take_candidates(taciti_arguments_get(arguments, "--by"), &out->bench));
    TACITI_TRY(take_line(taciti_arguments_get(arguments, "--line"), &out->line_bps));
    out->bench.what = (taciti_operation)what;
    out->bench.rounds = (int)rounds;
    out->json = taciti_arguments_get(arguments, "--json") != NULL;
    return TACIT_OK;
}

/* Defaults, environment, flags. One array is one bucket unless somebody asks for less. */
static tacit_status read_setup(const taciti_verb *verb, int argc, char **argv, setup *out) {
    taciti_arguments arguments;
    memset(out, 0, sizeof *out);
    out->sections[0] = (taciti_section){&taciti_exchange_option_table, &out->bench.exchange, NULL};
    out->sections[1] = (taciti_section){&taciti_comm_option_table, &out->comm, NULL};
    out->config = (taciti_config){out->sections, 2};
    TACITI_TRY(taciti_config_defaults(&out->config));
    out->bench.exchange.bucket_bytes = (int64_t)1 << 40;
    TACITI_TRY(taciti_config_environment(&out->config));
    TACITI_TRY(taciti_arguments_parse(verb, &out->config, argc, argv, &arguments));
    return take_flags(&arguments, out);
}

/* ---- text ------------------------------------------------------------------------------------------------------ */

static void print_time(double seconds) {
    if (seconds >= 0.1)
        printf(" %9.3f s ", seconds);
    else if (seconds >= 1e-3)
        printf(" %9.3f ms", seconds * 1e3);
    else
        printf(" %9.1f us", seconds * 1e6);
}

static void print_size(const setup *s, const taciti_collective_bench *b, int size) {
    const bool rates = s->bench.bytes[size] > LATENCY_BYTES, line = s->line_bps > 0 && rates;
    printf("\n%zu bytes\n  %-18s %12s %11s %11s %8s", s->bench.bytes[size], "by", "median", "least", "most", "of best");
    printf("%s%s\n", rates ? "   bus Mbit/s" : "", line ? "  of line" : "");
    for (int k = 0; k < b->who_count; k++) {
        const taciti_collective_figure *f = &b->figures[size][k];
        printf("  %-18s", b->who[k]);
        print_time(f->seconds.median);
        print_time(f->seconds.min);
        print_time(f->seconds.max);
        printf(" %7.2f", f->ratio);
        if (rates) printf(" %12.1f", f->bus_bps / 1e6);
        if (line) printf("  %5.1f %%", 100 * f->bus_bps / s->line_bps);
        printf("\n");
    }
}

static void print_formula(const setup *s, const taciti_collective_bench *b) {
    if (s->bench.what == TACITI_OPERATION_SEND) {
        printf("from rank 0 to rank %d, until its empty answer is back; bus Mbit/s = bits / time\n", b->receiver);
        return;
    }
    printf("bus Mbit/s = %s x bits / time, n = %d %s\n", taciti_collective_bus_text(s->bench.what),
           taciti_collective_sides(b), b->hosts > 1 ? "hosts" : "ranks");
    printf("wire of tacit: %s\n", s->bench.exchange.wire.text);
}

static void print_text(const taciti_machine *machine, const taciti_comm *comm, const setup *s,
                       const taciti_collective_bench *b) {
    taciti_machine_print(machine);
    printf("ranks       %d on %d host%s, %s\n", b->ranks, b->hosts, b->hosts == 1 ? "" : "s",
           taciti_comm_engine(comm)->library);
    printf("\n%s, %d round%s, candidates in turns; a sample lasts as long as its slowest rank\n",
           taciti_operation_names[s->bench.what], b->rounds, b->rounds == 1 ? "" : "s");
    print_formula(s, b);
    for (int i = 0; i < b->size_count; i++) print_size(s, b, i);
    printf("\nevery sample's result was checked against the exact one\n");
}

/* ---- JSON ------------------------------------------------------------------------------------------------------ */

static json_t *figure_json(const taciti_collective_figure *f, const char *who, int rounds, double line_bps) {
    json_t *samples = json_array();
    for (int i = 0; i < rounds; i++) (void)json_array_append_new(samples, json_real(f->samples[i]));
    json_t *figure =
        json_pack("{s:s, s:o, s:i, s:f, s:f, s:o}", "by", who, "seconds", taciti_statistics_json(&f->seconds), "calls",
                  f->calls, "bus_bps", f->bus_bps, "of_best", f->ratio, "samples_s", samples);
    if (line_bps > 0) (void)json_object_set_new(figure, "of_line", json_real(f->bus_bps / line_bps));
    return figure;
}

static json_t *bench_json(const taciti_machine *machine, const taciti_comm *comm, const setup *s,
                          const taciti_collective_bench *b) {
    json_t *sizes = json_array();
    for (int i = 0; i < b->size_count; i++) {
        json_t *by = json_array();
        for (int k = 0; k < b->who_count; k++)
            (void)json_array_append_new(by, figure_json(&b->figures[i][k], b->who[k], b->rounds, s->line_bps));
        (void)json_array_append_new(sizes,
                                    json_pack("{s:I, s:o}", "bytes", (json_int_t)s->bench.bytes[i], "figures", by));
    }
    json_t *root = json_pack("{s:s, s:o, s:s, s:s, s:s, s:i, s:i, s:i, s:s, s:i, s:o}", "program", "tacit", "machine",
                             taciti_machine_json(machine), "op", taciti_operation_names[s->bench.what], "library",
                             taciti_comm_engine(comm)->library, "wire", s->bench.exchange.wire.text, "ranks", b->ranks,
                             "hosts", b->hosts, "bus_sides", taciti_collective_sides(b), "bus_formula",
                             taciti_collective_bus_text(s->bench.what), "rounds", b->rounds, "sizes", sizes);
    if (s->line_bps > 0) (void)json_object_set_new(root, "line_bps", json_real(s->line_bps));
    return root;
}

/* ---- run ------------------------------------------------------------------------------------------------------- */

static tacit_status measure_and_print(taciti_comm *comm, const setup *s) {
    taciti_machine machine;
    taciti_machine_read(&machine); /* before: the load is then that of others */
    taciti_collective_bench *bench = taciti_calloc(1, sizeof *bench);
    if (bench == NULL) return TACIT_E_MEMORY;
    tacit_status status = taciti_collective_bench_run(comm, &s->bench, bench);
    if (status == TACIT_OK && taciti_comm_rank(comm) == 0) {
        if (s->json)
            status = taciti_cli_print_json(bench_json(&machine, comm, s, bench));
        else
            print_text(&machine, comm, s, bench);
    }
    taciti_collective_bench_close(bench);
    taciti_free(bench);
    return status;
}

tacit_status taciti_verb_bench_collectives(const taciti_verb *verb, int argc, char **argv) {
    setup s;
    TACITI_TRY(read_setup(verb, argc, argv, &s));
    taciti_witness *witness = taciti_supervise(s.comm.timeout_s); /* from here on this is the worker */
    taciti_comm *comm = NULL;
    TACITI_TRY(taciti_comm_open(&s.comm, &comm));
    if (witness != NULL) taciti_comm_attach(comm, witness);
    taciti_cli_log_init(taciti_comm_rank(comm));
    taciti_comm_announce(comm, 0, "bench");
    tacit_status status = TACIT_OK;
    if (taciti_comm_size(comm) < 2)
        status = taciti_fail(TACIT_E_USAGE, "a single process has nobody to talk to; start several: "
                                            "tacit bench collectives --ranks 4");
    else
        status = measure_and_print(comm, &s);
    taciti_comm_close(comm);
    return status;
}
