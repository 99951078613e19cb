"""Runs ina-sim many times in parallel; a process has one simulator. The results depend on the
options alone, not on the machine, so runs may share the machine with other work."""

import json
import os
import shlex

from benchlib import metadata, parallel, processes, progress
from benchlib.command_line import parse, parser_of
from benchlib.errors import BenchError

RUN_DEADLINE_S = 3600  # one takes a minute; the machine may have other work


def run(program, options, subcommand=()):
    """Returns one run's result. `options`: names without dashes, True for a flag. Raises
    BenchError, also if sums were wrong."""
    command = [str(program), *subcommand, "--quiet", "--json", "-"]
    for name, value in options.items():
        if value is True:
            command.append(f"--{name}")
        elif value is not False:
            command += [f"--{name}", str(value)]
    result = json.loads(processes.run(command, RUN_DEADLINE_S))
    if not result["correct"]:
        raise BenchError(f"wrong: {shlex.join(command)}")
    return result


def run_all(program, runs, subcommand=()):
    """Returns the results of all runs, in order. Uses as many processes as cores, or as INA_JOBS
    says."""
    done = 0

    def one(options):
        nonlocal done
        result = run(program, options, subcommand)
        done += 1
        progress.bar(done, len(runs), "runs")
        return result

    return parallel.side_by_side([lambda options=options: one(options) for options in runs],
                                 int(os.environ.get("INA_JOBS", parallel.cores())))


class Runs:
    """Results by options. No run is repeated."""

    def __init__(self, program):
        self.program = program
        self.results = {}

    @staticmethod
    def key(options):
        return tuple(sorted(options.items()))

    def run(self, wanted):
        """Runs the wanted options that have no result yet."""
        new = {self.key(options): options for options in wanted}
        new = {key: options for key, options in new.items() if key not in self.results}
        self.results |= zip(new, run_all(self.program, list(new.values())))

    def of(self, options, seeds):
        """Returns the results of these options with each seed."""
        return [self.results[self.key(options | {"seed": seed})] for seed in seeds]


def speed(results):
    """Returns figures of the simulator itself; wall times depend on the machine's other load."""
    wall_s = sum(result["simulator"]["wall_s"] for result in results)
    return {
        "runs": len(results),
        "events": sum(result["simulator"]["events"] for result in results),
        "process_s": round(wall_s, 1),
        "events_per_s": round(sum(r["simulator"]["events"] for r in results) / wall_s),
        "gbit_per_wall_s": round(sum(r["simulator"]["gbit_per_wall_s"] * r["simulator"]["wall_s"]
                                     for r in results) / wall_s, 1),
    }


def parse_arguments(document, drawn=0):
    """Returns the command line of a benchmark by simulation. `drawn`: points that a seed draws, unless
    told otherwise; 0: it has none."""
    parser = parser_of(document, build="build")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--quick", action="store_true")
    if drawn:
        how.add_argument("--points-seed", type=int, metavar="N", help="other points, which this seed draws")
        parser.add_argument("--points", type=int, default=drawn, help="how many are drawn")
    return parse(parser)


def meta(benchmark, started, results):
    """Returns the description of the run for a benchmark's JSON."""
    return {"benchmark": benchmark,
            **metadata.predicted(started, simulator=speed(results))}
