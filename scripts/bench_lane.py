#!/usr/bin/env python3
"""Instructions that a packet costs the switch, with and without somebody who watches.

    bench_lane.py --build FOLDER [--quick] [--json FILE]

lane_bench takes whole turns of a lane over packets of 1 KiB of a job of two workers (esa). Valgrind
counts the instructions of the process, so that other load does not matter. Runs of two lengths are
compared, and their difference is the cost of the additional turns. There is one row for each of
these cases: nobody watches; `inactl trace` of another job; `inactl trace` of this job; and one look
of `inactl why` (a status with the reasons why the job waits). A share is that of `looks_per_s`
looks beside `packets_per_s`, in a switch of 1,088 places for jobs.

Prints a table; --json writes {"meta", "instructions_per_packet", "instructions_per_packet_other_traced",
"instructions_per_packet_traced", "instructions_per_look", "why_share"}.
"""

import re
import shutil
import subprocess

from benchlib import command_line, metadata, results
from benchlib.errors import BenchError
from benchlib.table import print_table

BURST = 32
TURNS_PER_LOOK = 16  # of lane_bench
TURNS, QUICK_TURNS = 6400, 640
LOOKS_PER_S = 8 / 0.6  # `inactl why` takes eight looks in .56 s and more
PACKETS_PER_S = 1_000_000
DEADLINE_S = 600


def instructions(build, what, turns):
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", str(build / "bench/lane_bench"), what, str(turns)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    counted = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or not counted:
        raise BenchError(f"{' '.join(command)} ended with status {done.returncode}:\n{done.stdout}{done.stderr}")
    return int(counted.group(1))


def per_turn(build, what, turns):
    return (instructions(build, what, 2 * turns) - instructions(build, what, turns)) / turns


def main():
    parser = command_line.parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the turns")
    options = command_line.parse(parser)
    if not shutil.which("valgrind"):
        raise BenchError("valgrind is missing: apt-get install valgrind")
    build, turns = options.build.resolve(), QUICK_TURNS if options.quick else TURNS
    meta = metadata.measured("lane", turns=turns, packets_per_s=PACKETS_PER_S, looks_per_s=LOOKS_PER_S)
    plain, other, traced, looks = (per_turn(build, what, turns) for what in ("plain", "other", "traced", "looks"))
    look = (looks - plain) * TURNS_PER_LOOK
    figures = {"instructions_per_packet": plain / BURST, "instructions_per_packet_other_traced": other / BURST,
               "instructions_per_packet_traced": traced / BURST, "instructions_per_look": look,
               "why_share": look * LOOKS_PER_S / (plain / BURST * PACKETS_PER_S)}
    results.write(options, {"meta": meta, **figures})
    print_table([("what", "what", "s"), ("value", "value", ".6g")],
                [{"what": key, "value": value} for key, value in figures.items()])


if __name__ == "__main__":
    command_line.run(main, "bench lane")
