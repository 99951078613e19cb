#!/usr/bin/env python3
"""Collectives of Open MPI and MPICH, plain and taken over by the switch.

    bench_mpi.py --build FOLDER [--quick] [--json FILE]

Starts an ina-switchd in a temporary folder and, for each MPI that is installed and each number of
ranks, the program bench/mpi/mpi_bench.c under its mpirun. Each round runs the program once plain
and once with the interposer preloaded, so that other load of the machine affects both alike. The
time of a call is that of its slowest rank; the result is the median over all rounds, and the ratio
of the medians (plain to interposed). A job fails if its sums bypass the switch, or pass it where
they must not.

--json writes {"meta", "versions": {MPI: text}, "rows": [{"mpi", "op", "ranks", "bytes", "plain_us",
"ina_us", "ratio"}]}; bytes: of the larger buffer of a rank.
"""

import collections
import json
import os
import shutil

from benchlib import command_line, metadata, processes, results, stats, table
from benchlib.errors import BenchError
from benchlib.mpi import AS_ROOT, MPIRUN, SPINS
from benchlib.processes import temporary_folder
from benchlib.switch import plain_switch

RANKS = [2, 4]
SIZES = [16, 4096, 64 << 10, 1 << 20, 16 << 20]
QUICK_SIZES = [4096, 1 << 20]
ROUNDS, QUICK_ROUNDS = 9, 2
REPETITIONS = 10  # of a call, in a round
DEADLINE_S = 900
WAYS = ("plain", "ina")
COLUMNS = [("MPI", "mpi", "s"), ("call", "op", "s"), ("ranks", "ranks", "d"), ("bytes", "bytes", "d"),
           ("plain us", "plain_us", ".1f"), ("ina us", "ina_us", ".1f"), ("ratio", "ratio", ".2f")]


def installed(build):
    """Returns the MPIs that can be measured."""
    return [mpi for mpi, command in MPIRUN.items()
            if shutil.which(command[0]) and (build / f"bench/mpi/mpi_bench_{mpi}").exists()
            and (build / f"plugins/mpi/libina_mpi_{mpi}.so").exists()]


def run_job(build, mpi, way, switch, ranks, sizes):
    """Returns the program's output."""
    before = switch.absorbed_bytes()
    preload = [f"LD_PRELOAD={build / f'plugins/mpi/libina_mpi_{mpi}.so'}"] if way == "ina" else []
    report = json.loads(processes.run(
        [*MPIRUN[mpi], "-n", ranks, "env", *preload, build / f"bench/mpi/mpi_bench_{mpi}", REPETITIONS,
         *sizes], DEADLINE_S))
    if (switch.absorbed_bytes() > before) != (way == "ina"):
        raise BenchError(f"{mpi}, {way}: the switch has added "
                         + ("nothing" if way == "ina" else "what should not have come to it"))
    return report


def measure(build, mpi, ranks, sizes, rounds):
    """Returns (rows, the MPI's version)."""
    times = {way: collections.defaultdict(list) for way in WAYS}
    with temporary_folder() as folder, plain_switch(build, folder) as switch:
        os.environ["INA_URL"] = f"shm:{switch.socket}"
        for step in range(rounds):
            for way in WAYS if step % 2 == 0 else reversed(WAYS):
                report = run_job(build, mpi, way, switch, ranks, sizes)
                for key, found in report["us"].items():
                    times[way][key] += found
    return [row_of(mpi, key, ranks, *(stats.median(times[way][key]) for way in WAYS))
            for key in times["plain"]], report["version"]


def row_of(mpi, key, ranks, plain_us, ina_us):
    op, nbytes = key.split()
    return {"mpi": mpi, "op": op, "ranks": ranks, "bytes": int(nbytes), "plain_us": round(plain_us, 3),
            "ina_us": round(ina_us, 3), "ratio": round(plain_us / ina_us, 3)}


def main():
    parser = command_line.parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer sizes, few rounds")
    options = command_line.parse(parser)
    build = options.build.resolve()
    os.environ.update(AS_ROOT)
    measured = installed(build)
    if not measured:
        raise BenchError("neither Open MPI nor MPICH is here (packages-plugins.txt), or the build has no mpi_bench")
    result = {"meta": metadata.measured("mpi"), "versions": {}, "rows": []}
    for mpi in measured:
        for ranks in RANKS:
            if mpi == SPINS and ranks > (os.cpu_count() or 1):
                print(f"{mpi}: {ranks} ranks left out: it spins, and has {os.cpu_count()} processors here",
                      flush=True)
                continue
            rows, result["versions"][mpi] = measure(
                build, mpi, ranks, QUICK_SIZES if options.quick else SIZES,
                QUICK_ROUNDS if options.quick else ROUNDS)
            table.print_table(COLUMNS, rows)
            result["rows"] += rows
    results.write(options, result)
    return 0


if __name__ == "__main__":
    command_line.run(main, "bench_mpi")
