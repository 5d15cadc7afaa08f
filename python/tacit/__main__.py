# SPDX-License-Identifier: Apache-2.0
"""python -m tacit: what is built in, and whether it works here; probe and plan are in the package, too, the rest in the program tacit."""
import argparse
import importlib.util
import os
import shutil
import sys

from . import Comm, Settings, __version__, _library, _table
from .settings import list_names

TOPICS = {"options": _table.LIST_OPTIONS, "strategies": _table.LIST_STRATEGIES, "codecs": _table.LIST_CODECS,
          "controllers": _table.LIST_CONTROLLERS, "optimizers": _table.LIST_OPTIMIZERS}
CARRIED = ("doctor", "info", "probe", "plan")  # by the program in the package, where pip has built it
VERBS = (*CARRIED, "train", "sample", "eval", "data", "import", "export", "bench", "completion", "man")  # of the program tacit
EXAMPLES = """examples:
  python -m tacit info codecs
  python -m tacit doctor
  torchrun --nproc-per-node 2 -m tacit doctor
  python -m tacit probe --ranks 2 -o cluster.json
  python -m tacit plan examples/gpt2-124m.yaml --cluster cluster.json"""


def refuse(text):
    """Ends with the code of wrong usage."""
    print(text, file=sys.stderr)
    sys.exit(2)


def show_info(topics):
    others = [topic for topic in topics if topic not in TOPICS]
    if others and find_program("info"):
        run_program("info", topics)
    if others:
        refuse(f"python -m tacit info: unknown topic {others[0]}; one of {', '.join(TOPICS)}")
    for topic in topics or TOPICS:
        print(f"{topic}:")
        for name, text in list_names(TOPICS[topic]):
            print(f"  {name:<28} {text}")


def show_doctor():
    """Opens a communicator with all ranks, which is where most troubles show."""
    settings = Settings()
    if importlib.util.find_spec("torch"):
        import torch

        from .torch import open_comm
        comm, version = open_comm(settings), torch.__version__
    else:
        comm, version = Comm(settings), "not installed"
    with comm:
        if comm.rank == 0:
            print(f"ok    tacit       {__version__}, {_library.lib._name}")
            print(f"ok    python      {sys.version.split()[0]}, torch {version}")
            print(f"ok    ranks       {comm.size} have met" + ("" if comm.size > 1 else
                  "; try: torchrun --nproc-per-node 2 -m tacit doctor"))
            absent = [verb for verb in ("probe", "plan", "train") if find_program(verb) is None]
            print(f"warn  program     tacit is not in PATH, which has {', '.join(absent)}" if absent else
                  f"ok    program     {find_program('train')}")


def find_program(command):
    own = os.path.join(os.path.dirname(__file__), "_lib", "tacit")
    return os.environ.get("TACIT") or (own if command in CARRIED and os.path.exists(own) else shutil.which("tacit"))


def run_program(command, words):
    program = find_program(command)
    if program is None and command not in VERBS:
        refuse(f"python -m tacit: unknown command {command}; one of {', '.join(VERBS)}")
    if program is None:
        sys.exit(f"python -m tacit {command}: needs the program tacit, which is not in PATH and which pip does not install: README.md says "
                 "how to build it, or set TACIT to its path")
    try:
        os.execv(program, [program, command, *words])
    except OSError as error:
        sys.exit(f"python -m tacit {command}: {program} cannot be run ({error.strerror}): set TACIT to the path of the program tacit")


def main():
    parser = argparse.ArgumentParser(prog="python -m tacit", description=__doc__, epilog=EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", help="info, doctor; or plan, probe, bench, train, ... of the program tacit")
    parser.add_argument("words", nargs=argparse.REMAINDER, help="info: " + ", ".join(TOPICS))
    parser.add_argument("--version", action="version", version=f"tacit {__version__}")
    args = parser.parse_args(sys.argv[1:] or ["--help"])
    if args.command == "info":
        show_info(args.words)
    elif args.command == "doctor" and not args.words:
        show_doctor()
    elif args.command == "doctor" and not args.words[0].startswith("-"):
        refuse(f"python -m tacit doctor: {args.words[0]} is a word too many: it takes none")
    else:
        run_program(args.command, args.words)


if __name__ == "__main__":
    try:
        main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
