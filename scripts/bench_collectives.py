#!/usr/bin/env python3
"""Measures every collective over a private switch on this machine, on its shm port.

    bench_collectives.py --build FOLDER [--ranks 2,4,8] [--quick] [--json FILE]

Starts ina-switchd with a socket of its own in a temporary folder, and runs ina-perf with each
number of ranks. Every element of the results is checked; a wrong one ends the run. An amount of
payload that differs from docs/collectives.md ends the run, too, unless something was sent again.
Prints a table; --json writes {"meta": ..., "rows": [{"collective", "ranks", "bytes", "p50_us",
"payload_bytes_up", "payload_bytes_down", "overhead_bytes", "correct", ...}]}. `bytes`: of the whole
vector, the blocks of all ranks together. Payload and overhead are those of one operation at the
rank with the largest payload; overhead is messages without payload, both ways, by 114 bytes each.
"""

import json
import shlex
import subprocess

from benchlib import command_line, metadata, processes, results
from benchlib.errors import BenchError
from benchlib.switch import SLOT_BYTES, plain_switch

SIZES_BYTES = [4 << 10 << 2 * i for i in range(8)]  # 4 KiB .. 64 MiB
QUICK_SIZES_BYTES = [4 << 10, 64 << 10, 1 << 20]
WARMUP_OPERATIONS = 2
RUN_DEADLINE_S = 900

HEADER = (f"{'collective':>14} {'ranks':>5} {'bytes':>10} {'p50 us':>10} {'up':>12} {'down':>12} "
          f"{'overhead':>10} {'%':>6}")


def payload_wanted(collective, whole, ranks):
    """Returns the bytes up and down at the rank with the largest payload, by
    docs/collectives.md."""
    block = whole // ranks
    others = whole - block
    # A rank's block for itself stays where it is.
    return {
        "allreduce": (whole, whole),
        "reduce": (whole, whole),
        "reduce-scatter": (whole, block),
        "broadcast": (whole, whole),
        "all-gather": (block, whole),
        "gather": (block, others),
        "scatter": (others, block),
        "all-to-all": (others, others),
        "permute": (whole, whole),
        "send-receive": (whole, whole),
        "barrier": (0, 0),
    }[collective]


def check(row):
    """Raises BenchError if a row is wrong."""
    if row["correct"] is not True:
        raise BenchError(f"wrong result: {row}")
    wanted = payload_wanted(row["collective"], row["bytes"], row["ranks"])
    counted = (row["payload_bytes_up"], row["payload_bytes_down"])
    # A send-receive begins with an exchange of counts: 32 bytes of each rank.
    if row["collective"] == "send-receive":
        counted = (counted[0] - 32, counted[1] - 32 * row["ranks"])
    if row["fragments_resent"] == 0 and counted != wanted:
        raise BenchError(f"{row['collective']} of {row['bytes']} bytes, {row['ranks']} ranks: payload "
                         f"{counted} bytes up and down, and {wanted} are needed")


def overhead_percent(row):
    payload = row["payload_bytes_up"] + row["payload_bytes_down"]
    return f"{100 * row['overhead_bytes'] / payload:6.2f}" if payload else f"{'-':>6}"


def table_line(row):
    return (f"{row['collective']:>14} {row['ranks']:5d} {row['bytes']:10d} {row['p50_us']:10.1f} "
            f"{row['payload_bytes_up']:12.0f} {row['payload_bytes_down']:12.0f} "
            f"{row['overhead_bytes']:10.0f} {overhead_percent(row)}")


def measure(build, ranks, sizes, quick):
    """Returns the rows of one run with a switch of its own, and the command."""
    with processes.temporary_folder() as folder, plain_switch(build, folder) as switch:
        report = folder / "perf.json"
        command = [str(build / "bench/ina-perf"), "--url", f"shm:{switch.socket}", "--job",
                   "collectives", "--ranks", str(ranks), "--collective", "all", "--sizes",
                   ",".join(map(str, sizes)), "--warmup", str(WARMUP_OPERATIONS), "--json",
                   str(report)]
        if quick:
            command.append("--quick")
        processes.run(command, RUN_DEADLINE_S, stdout=subprocess.DEVNULL)
        rows = json.loads(report.read_text(encoding="utf-8"))["rows"]
        return rows, shlex.join(command).replace(str(folder), "TMP")


def main():
    parser = command_line.parser_of(__doc__)
    parser.add_argument("--ranks", help="default 2,4,8; 2,4 with --quick")
    parser.add_argument("--quick", action="store_true", help="fewer sizes, few repetitions")
    options = command_line.parse(parser)
    sizes = QUICK_SIZES_BYTES if options.quick else SIZES_BYTES
    all_ranks = options.ranks or ("2,4" if options.quick else "2,4,8")

    rows, commands = [], []
    meta = metadata.measured("collectives", perf_commands=commands, slot_bytes=SLOT_BYTES)
    print(HEADER)
    for ranks in map(int, all_ranks.split(",")):
        found, command = measure(options.build, ranks, sizes, options.quick)
        commands.append(command)
        for row in found:
            check(row)
            print(table_line(row), flush=True)
        rows += found
    results.write(options, {"meta": meta, "rows": rows})
    return 0


if __name__ == "__main__":
    command_line.run(main, "bench_collectives")
