/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/verbs.h"

#include "cli/step_settings.h"

static const taciti_flag no_flags[] = {{NULL, NULL, NULL, NULL}};

/* In the order of the overview. A new verb is one file verb_*.c, its declarations in verbs.h and its entry here. */
static const taciti_verb VERBS[] = {
    {.name = "doctor",
     .synopsis = "[--json] [--dir FOLDER]",
     .summary = "say what is wrong on this machine and how to mend it",
     .description =
         "Looks at launcher and libraries, variables that stand in the way, cores, instruction sets, clock, memory, "
         "network interfaces and the disk of the run folder. Each line is ok, warn or fail; an arrow shows how to mend "
         "it. Nothing is changed, and no launcher is needed; under mpirun it looks at the host of rank 0 with the "
         "variables and cores that a rank gets there.\n\n"
         "Exit code 7 when something must be mended, else 0.",
     .example = "tacit doctor\n"
                "mpirun -n 4 tacit doctor            # as a rank sees it\n"
                "tacit doctor --json --dir /scratch/run",
     .flags = taciti_doctor_flags,
     .run = taciti_verb_doctor},
    {.name = "probe",
     .synopsis = "[-o FILE] [--seconds S] [--quick] [--no-natives] [--json]",
     .summary = "measure links, collectives, codecs and jitter of a cluster",
     .description =
         "Measures what messages between two ranks cost inside of a host and between hosts, what is left when all "
         "ranks of a host send at once, in both directions or to one host; collectives by size and group, the MPI "
         "library's own all-reduces beside ours; how fast a rank encodes and how steadily it computes. The answer is "
         "a table; -o writes cluster.json, whose fields docs/cluster.md explains. Without a launcher only codecs and "
         "jitter are measured.\n\n"
         "What would take longer than --seconds is skipped, and a note in the file says so. Leave the machines alone "
         "while it runs. An existing file is replaced only when it describes a cluster.",
     .example = "mpirun -n 8 tacit probe -o cluster.json\n"
                "mpirun -n 8 tacit probe --quick --seconds 10\n"
                "mpirun -n 8 tacit probe --json > cluster.json",
     .flags = taciti_probe_flags,
     .keys = "comm.",
     .collective = true,
     .run = taciti_verb_probe},
    {.name = "plan",
     .synopsis = "MODEL.yaml --cluster cluster.json [-n RANKS] [--json] [--svg FILE]",
     .summary = "predict step times on a cluster, and what would pay there",
     .description =
         "MODEL.yaml is a configuration of tacit train. Every strategy, topology and wire of this build is put on the "
         "links of the described cluster; a table ranks them by the predicted step, and a verdict says whether gossip "
         "pays against the fastest dense all-reduce or nothing does. Nothing is measured or run; no launcher is "
         "needed.\n\n"
         "How fast a rank computes comes from --compute.emulate (a preset or a profile file), else from the model's "
         "operations and --compute.rate. docs/plan.md has the equations, what each number rests on and what the "
         "ranges mean. Step times are not losses: docs/gossip.md.",
     .example = "tacit plan examples/gpt2-124m.yaml --cluster examples/clusters/8x4-25gbe.json\n"
                "tacit plan my.yaml --cluster cluster.json --compute.emulate profile.json --svg plan.svg\n"
                "tacit plan my.yaml --cluster cluster.json -n 64 --json",
     .flags = taciti_plan_flags,
     .keys = "strategy train. model. exchange. compress. adapt. registered. compute.",
     .run = taciti_verb_plan},
#ifndef TACITI_PYTHON /* whose program has no networks, and plans and probes only */
    {.name = "train",
     .synopsis = "[CONFIG.yaml] [--resume] [--section.key VALUE ...]",
     .summary = "train a GPT on any number of ranks",
     .description =
         "Trains on text or token shards with any number of ranks; the sequence of global batches is the same for all "
         "of them. Configuration: defaults, then the file, then TACIT_SECTION_KEY variables, then flags.\n\n"
         "The run folder receives metrics.jsonl, TensorBoard events, checkpoints and, when asked, a Chrome trace. An "
         "earlier run in the same folder is moved aside unless --resume is given.\n\n"
         "SIGTERM, SIGINT and SIGUSR1 leave the step, save a checkpoint and end the run cleanly. A rank that dies or "
         "freezes ends the job with exit code 5 and one line that names it.",
     .example = "tacit train examples/shakespeare.yaml --data.train input.txt --ranks 4\n"
                "tacit train examples/shakespeare.yaml --data.train input.txt --hosts a,b --ranks 2\n"
                "mpirun -n 4 tacit train examples/shakespeare.yaml --data.train input.txt\n"
                "mpirun -n 3 tacit train examples/shakespeare.yaml --data.train input.txt --resume",
     .flags = taciti_train_flags,
     .keys = "strategy train. run. model. data. optim. exchange. compress. adapt. registered. comm.",
     .collective = true,
     .run = taciti_verb_train},
    {.name = "sample",
     .synopsis = "RUN [--prompt TEXT] [--tokens N] [--temperature X]",
     .summary = "let a trained model write text",
     .description = "RUN is a run folder (its newest valid checkpoint), one checkpoint, a Hugging Face GPT-2 folder or "
                    "a llm.c file. Models of the GPT-2 tokenizer need its files: --data.vocab vocab.json, with "
                    "merges.txt beside it, unless the run was trained with them.",
     .example = "tacit sample run-shakespeare --prompt 'ROMEO:' --tokens 400 --temperature 0.8",
     .flags = taciti_sample_flags,
     .keys = "data.",
     .run = taciti_verb_sample},
    {.name = "eval",
     .synopsis = "RUN [--data.validation FILE...] [--json]",
     .summary = "loss and perplexity of a trained model",
     .description = "RUN is a run folder (its newest valid checkpoint), one checkpoint, a Hugging Face GPT-2 folder or "
                    "a llm.c file. Without data.* keys the held-out part of the run's own data is used; with "
                    "--data.train FILE the held-out part of that file, with --data.validation FILE the whole file.",
     .example = "tacit eval run-shakespeare --json",
     .flags = taciti_eval_flags,
     .keys = "data.",
     .run = taciti_verb_eval},
    {.name = "data prepare",
     .synopsis = "TEXT... -o FOLDER [--tokenizer byte|gpt2] [--split SHARE] [--shard-tokens N] [--json]",
     .summary = "turn text files into token shards",
     .description =
         "Reads the files end to end, tokenizes them and writes llm.c shards (.bin): FOLDER/NAME_train_000000.bin and "
         "on, and NAME_val_000000.bin and on with the last share of the text. Memory does not grow with the text. "
         "Either all shards appear or none; a folder that holds shards of this name is refused.\n\n"
         "The gpt2 tokenizer gives the ids of GPT-2's byte-level BPE for any vocab.json and merges.txt. Any bytes are "
         "legal; <|endoftext|> in the text is plain text.",
     .example = "tacit data prepare books/*.txt -o shards\n"
                "tacit data prepare wiki.txt -o shards --tokenizer gpt2 --data.vocab vocab.json",
     .flags = taciti_data_prepare_flags,
     .run = taciti_verb_data_prepare},
    {.name = "import",
     .synopsis = "SOURCE -o RUN [--json]",
     .summary = "make a run of another program's GPT-2 weights",
     .description = "SOURCE is a Hugging Face folder (config.json with model.safetensors, one file or shards) or a "
                    "llm.c file (.bin, f32 or bf16). RUN becomes a run folder with one checkpoint, at step 0, for "
                    "sample, eval and --train.init; vocab.json and merges.txt come along. The numbers are kept bit for "
                    "bit. Pickles (.pt, pytorch_model.bin) can run code and are refused.",
     .example = "tacit import gpt2/ -o run-gpt2\n"
                "tacit sample run-gpt2 --prompt 'Once upon a time'\n"
                "mpirun -n 4 tacit train gpt.yaml --train.init run-gpt2",
     .flags = taciti_import_flags,
     .run = taciti_verb_import},
    {.name = "export",
     .synopsis = "RUN -o PATH [--format hf|llmc] [--dtype f32|bf16]",
     .summary = "write a run's weights for other programs",
     .description = "RUN is a run folder (its newest valid checkpoint, or that of --step), one checkpoint, a Hugging "
                    "Face folder or a llm.c file. PATH becomes a Hugging Face folder (config.json, model.safetensors, "
                    "tokenizer files when the run has them) or a llm.c file. f32 keeps the numbers bit for bit, bf16 "
                    "rounds them to nearest even. Nothing that exists is overwritten.",
     .example = "tacit export run/ -o gpt2-mine/\n"
                "tacit export run/ -o model.bin --dtype bf16      # for llm.c",
     .flags = taciti_export_flags,
     .run = taciti_verb_export},
#endif
    {.name = "info",
     .synopsis = "[TOPIC [NAME]] [--json]",
     .summary = "show everything that is built in",
     .description =
         "Lists versions and libraries, codecs, controllers, strategies, topologies, model presets, compute profiles "
         "and configuration keys, from the same tables the code uses. Topics: build, codecs, controllers, strategies, "
         "topologies, presets, profiles, options; without one: all of them. With the name of a profile: its file.\n\n"
         "With a number of ranks, topologies come with their figures: rounds until they repeat, most partners of a "
         "rank in a round, spectral gap per round, rounds until everybody holds the exact mean, the step "
         "size that gossip.order awc bears (lr times the largest curvature must stay below it; dense SGD: 2), and what "
         "a host's link carries. With the name of one: its rounds.",
     .example = "tacit info options\n"
                "tacit info topologies -n 24 --per-host 4\n"
                "tacit info profiles vgg-16 >my.json\n"
                "tacit info build --json",
     .flags = taciti_info_flags,
     .run = taciti_verb_info},
#ifndef TACITI_PYTHON
    {.name = "bench kernels",
     .synopsis = "[--json] [--floats MI] [--rounds COUNT] [--threads COUNT]",
     .summary = "measure the array kernels against this machine's memory",
     .description =
         "Prints what the machine can do at most (multiply-adds in f32 and bf16, memory) and then, for each kernel, "
         "its rate on one thread and on all of them beside that of a probe with the same mix of reads and writes that "
         "computes nothing. Probe and kernel take turns, so that both meet the same state of the machine: trust the "
         "ratio, not the rate. Needs 22 bytes of memory per float.\n\n"
         "TACIT_ISA=scalar|avx2|avx512 chooses the kernels; the probes always use the widest instructions.",
     .example = "tacit bench kernels\n"
                "tacit bench kernels --floats 128 --rounds 21 --json\n"
                "TACIT_ISA=avx2 tacit bench kernels",
     .flags = taciti_bench_kernels_flags,
     .run = taciti_verb_bench_kernels},
    {.name = "bench codecs",
     .synopsis = "[--codec NAME] [--factor FACTOR] [-n COUNT] [--isa SET] [--json]",
     .summary = "measure codecs on one core beside its rate of reading memory",
     .description =
         "Encodes numbers like those of a gradient with error feedback, as the exchange does, decodes them and adds "
         "them: in pieces as long as a message of the exchange, and the array as a whole. Prints GB/s of input, the "
         "share of the machine's read rate that this makes in bytes that must move, payload bytes per float, the "
         "energy that the payload keeps, and bits per index beside the entropy. A probe that only reads takes turns "
         "with the passes: trust the shares, not the rates.\n\n"
         "Keys of the codecs' sections choose value formats, index coders and whatever else a codec can; `tacit info "
         "codecs` lists them.",
     .example = "tacit bench codecs\n"
                "tacit bench codecs -n 44500000 --codec topk --factor 100\n"
                "tacit bench codecs --isa all --json > codecs.json",
     .flags = taciti_bench_codecs_flags,
     .keys = "codecs.",
     .run = taciti_verb_bench_codecs},
    {.name = "bench collectives",
     .synopsis = "[--op NAME] [--bytes LIST] [--by LIST] [--rounds COUNT] [--line RATE] [--json]",
     .summary = "measure collectives against the MPI library's own and the line",
     .description =
         "Sums arrays over all ranks with tacit, as a training step does, and with the MPI library's own all-reduces: "
         "its default and, from Open MPI, ring, Rabenseifner and HAN (first inside of hosts, then between them). All "
         "of them take turns on the same arrays in one launch, each sample behind a barrier. The time is that of the "
         "slowest rank, and every result is checked.\n\n"
         "--op send measures one message from rank 0 to a rank on another host (rank 1 when there is one host only).",
     .example = "mpirun -n 4 tacit bench collectives\n"
                "mpirun -n 8 tacit bench collectives --bytes 64MB --line 1gbit --json\n"
                "mpirun -n 4 tacit bench collectives --bytes 8,1KiB --by tacit,mpi-default",
     .flags = taciti_bench_collectives_flags,
     .keys = "exchange. comm.",
     .collective = true,
     .run = taciti_verb_bench_collectives},
    {.name = "bench step",
     .synopsis = "[--model PRESET] [--section.key VALUE ...] [--against \"KEY=VALUE ...\"] [--json]",
     .summary = "measure training steps, alone or over a cluster",
     .description =
         "Alone: trains a network on random tokens (forward, backward, AdamW) and prints tokens per second, GFLOP/s by "
         "the formula 6 N + 12 layers channels seq per token, where the time went, and memory. A probe of the "
         "machine's "
         "multiply-adds (of bf16 dot products for bf16) takes turns with the steps: trust the ratio, not the rate.\n\n"
         "Under mpirun or lab/cluster, or with configuration keys: time per step of the strategy, how much of it is "
         "exposed waiting, the overlap, and bytes per rank and network interface. Each --against names another "
         "setting; all take turns in blocks, and their ratio to the base is of blocks beside each other. Compute is "
         "the network's own, or emulated with --compute.emulate, which leaves the CPU to the exchange. What is "
         "measured, exactly: docs/bench-step.md.",
     .example = "tacit bench step --model gpt2-124m --dtype bf16 --threads 2\n"
                "mpirun -n 4 tacit bench step --against exchange.wire=bf16 --against exchange.overlap=false\n"
                "lab/cluster run -n 8 -- tacit bench step --compute.emulate gpt2-124m --json",
     .flags = taciti_bench_step_flags,
     .keys = TACITI_SETTING_KEYS,
     .collective = true,
     .run = taciti_verb_bench_step},
#endif
    {.name = "completion",
     .synopsis = "bash | zsh",
     .summary = "print the completion script of a shell",
     .description =
         "Prints a script that teaches the shell to complete verbs, flags, configuration keys, their values and "
         "file names. An installed tacit brings that of bash along; elsewhere, put the shell's line into "
         "~/.bashrc or ~/.zshrc.",
     .example = "source <(tacit completion bash)\n"
                "source <(tacit completion zsh)",
     .flags = no_flags,
     .all = VERBS,
     .run = taciti_verb_completion},
    {.name = "man",
     .synopsis = "[VERB] | --all FOLDER",
     .summary = "print a manual page as roff",
     .description = "Prints the manual page of the program or of one verb; --all writes the pages of all verbs.",
     .example = "tacit man train | man -l -",
     .flags = taciti_man_flags,
     .hidden = true,
     .all = VERBS,
     .run = taciti_verb_man},
    {.name = NULL},
};

const taciti_verb *taciti_verbs(void) { return VERBS; }
