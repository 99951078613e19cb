"""The command line of a benchmark: options of all benchmarks, and the benchmark's main() as the
process."""

import argparse
import pathlib
import sys

from benchlib import processes
from benchlib.errors import BenchError
from benchlib.results import result_file


def parser_of(document, build=None):
    """Returns a parser with --build. `document`: the benchmark's docstring, whose first line
    describes it; `build`: the default, without which the option is required."""
    parser = argparse.ArgumentParser(description=document.splitlines()[0])
    needed = {"required": True} if build is None else {"default": pathlib.Path(build)}
    parser.add_argument("--build", type=pathlib.Path, **needed)
    return parser


def parse(parser):
    """Returns the options. Among them are --json, the file for the result, and --raw, the file for the result with all
    samples; both are known to be writable."""
    parser.add_argument("--json", type=result_file)
    parser.add_argument("--raw", type=result_file)
    return parser.parse_args()


def run(main, name, *errors):
    """Runs main() as the process: the result of main() is the exit status. BenchError, and the
    further exceptions in `errors`, give one line on standard error and exit status 1. SIGTERM ends
    what was started, and removes folders."""
    processes.exit_on_sigterm()
    try:
        sys.exit(main())
    except (BenchError, *errors) as error:
        sys.exit(f"{name}: {error}")
