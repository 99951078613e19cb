#!/usr/bin/env python3
"""PyTorch's collectives and DistributedDataParallel on the backends ina and gloo, in turns.

    bench_torch.py --build FOLDER [--ranks 2,4] [--lanes N] [--python PYTHON] [--quick]
                   [--json FILE]

Starts an ina-switchd in a temporary folder and, for each number of processes, the ranks of
bench/torch/rank.py, which have a group of either backend. In each round an operation runs on one
backend and then on the other, after a barrier, so that other load of the machine affects both
alike. The time of an operation is that of its slowest rank; the result is the median over the
rounds, and the ratio of the medians (gloo's to ina's). Gloo of PyTorch 1.13 has no reduce_scatter:
its substitute is an all-reduce, of which each rank takes its part.

--json writes {"meta", "ddp": [{"procs", "ina_step_ms", "gloo_step_ms", "ratio"}],
"collectives": [{"op", "procs", "bytes", "ina_ms", "gloo_ms", "ratio"}], "weights_equal"}; weights are
equal when all ranks have the same bits after the training, on either backend.
"""

import os
import pathlib
import statistics

from benchlib import command_line, metadata, results, stats
from benchlib.errors import BenchError
from benchlib.processes import Ranks, temporary_folder
from benchlib.switch import add_lanes_option, plain_switch

RANK = pathlib.Path(__file__).resolve().parent.parent / "bench/torch/rank.py"
SIZES = [1 << 20, 4 << 20, 16 << 20, 64 << 20]
QUICK_SIZES = [1 << 20, 4 << 20]
ROUNDS, QUICK_ROUNDS = 15, 5
DEADLINE_S = 900


def run_ranks(build, size, sizes, rounds, lanes, python):
    os.environ["PYTHONPATH"] = str(build / "plugins/python")
    with temporary_folder() as folder, plain_switch(build, folder, lanes=lanes) as switch:
        os.environ["INA_URL"] = f"shm:{switch.socket}"
        commands = [[python, str(RANK), "--store", str(folder / "store"), "--rank", str(rank),
                     "--ranks", str(size), "--rounds", str(rounds), "--bytes", *map(str, sizes)]
                    for rank in range(size)]
        with Ranks(commands) as running:
            reports = running.reports(DEADLINE_S)
        if switch.absorbed_bytes() == 0:
            raise BenchError("the switch has added nothing")
    return reports


def median_ms(times_by_rank):
    return 1000 * statistics.median(stats.slowest(times_by_rank))


def row_of(reports, choose, names, **more):
    """`choose(report)`: times by backend; `names`: those of the two medians."""
    ours, theirs = (median_ms([choose(r)[backend] for r in reports]) for backend in ("ina", "gloo"))
    return {**more, names[0]: round(ours, 3), names[1]: round(theirs, 3),
            "ratio": round(theirs / ours, 3)}


def measure(build, size, sizes, rounds, lanes, python):
    reports = run_ranks(build, size, sizes, rounds, lanes, python)
    collectives = [
        row_of(reports, lambda r, key=key: r["collectives"][key], ("ina_ms", "gloo_ms"),
               op=key.split()[0], procs=size, bytes=int(key.split()[1]))
        for key in reports[0]["collectives"]]
    training = row_of(reports, lambda r: r["ddp"], ("ina_step_ms", "gloo_step_ms"), procs=size)
    equal = all(r["weights"] == reports[0]["weights"] for r in reports)
    return collectives, training, equal


def main():
    parser = command_line.parser_of(__doc__)
    parser.add_argument("--ranks", default="2,4")
    add_lanes_option(parser)
    parser.add_argument("--python", default="/usr/bin/python3", help="with PyTorch; default: Debian's")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, few rounds")
    options = command_line.parse(parser)
    build = options.build.resolve()
    meta = metadata.measured("torch", lanes=options.lanes)
    result = {"meta": meta, "ddp": [], "collectives": [], "weights_equal": True}
    for size in map(int, options.ranks.split(",")):
        collectives, training, equal = measure(
            build, size, QUICK_SIZES if options.quick else SIZES,
            QUICK_ROUNDS if options.quick else ROUNDS, options.lanes,
            options.python)
        for row in collectives:
            print(f"{row['op']:<15}{size:>2} ranks {row['bytes']:>9} bytes  ina {row['ina_ms']:9.3f} ms"
                  f"  gloo {row['gloo_ms']:9.3f} ms  ratio {row['ratio']:.2f}", flush=True)
        print(f"{'ddp step':<15}{size:>2} ranks {'':>15}  ina {training['ina_step_ms']:9.3f} ms"
              f"  gloo {training['gloo_step_ms']:9.3f} ms  ratio {training['ratio']:.2f}", flush=True)
        result["collectives"] += collectives
        result["ddp"].append(training)
        result["weights_equal"] &= equal
    results.write(options, result)
    if not result["weights_equal"]:
        raise BenchError("ranks have different weights after the training")
    return 0


if __name__ == "__main__":
    command_line.run(main, "bench_torch")
