#!/usr/bin/env python3
"""Runs the fault simulator and puts its figures together.

    bench_faults.py --build FOLDER [--seeds N] [--from SEED] [--quick] [--json FILE]

Four parts: random scenarios (every policy, every home of the fallback, all faults); each protocol
rule switched off, which must turn up a violation; how much longer work takes at a loss rate than
without loss, per policy; and how much of it the fallback decides, in the setting of the model that
the protocol was derived from. All of it is virtual time and decided by seeds: the same commit gives
the same figures on every machine. Exit status 1 if an invariant was violated or a rule not missed.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import shlex
import subprocess
import sys
import tempfile
import time

from bench_allreduce import output_of
from outputs import result_file

LOSSES = (0.0001, 0.001, 0.01, 0.1)
MODEL_LOSSES = (0, 0.001, 0.01, 0.05, 0.1)


class FaultSim:
    def __init__(self, program):
        self.program = program

    def run(self, *arguments):
        with tempfile.NamedTemporaryFile(suffix=".json") as summary:
            done = subprocess.run([self.program, *map(str, arguments), "--json", summary.name],
                                  capture_output=True, text=True)
            if done.returncode not in (0, 1):
                sys.exit(f"ina-faultsim failed: {done.stderr.strip()}")
            result = json.loads(pathlib.Path(summary.name).read_text())
        result["text"] = done.stdout
        return result

    def rules(self):
        known = subprocess.run([self.program, "--without", "?"], capture_output=True, text=True)
        return known.stderr.split("known: ")[1].strip().split(", ")

    def policies(self):
        known = subprocess.run([self.program, "--policy", "?"], capture_output=True, text=True)
        return known.stderr.split("is none of ")[1].split(";")[0].split(", ")


def in_parallel(jobs):
    """Runs functions side by side, as many as there are cores; returns their results in order."""
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(lambda job: job(), jobs))


def random_scenarios(sim, first, seeds):
    cores = os.cpu_count() or 1
    step = min(2000, max(1, seeds // cores))
    parts = [(start, min(step, first + seeds - start))
             for start in range(first, first + seeds, step)]
    done = 0
    total = {"runs": 0, "violations": 0, "seeds": [first, first + seeds - 1], "max_loss": 0.0}
    cells = {}
    texts = []

    def run(start, count):
        nonlocal done
        result = sim.run("--from", start, "--count", count, "--quiet")
        done += count
        print(f"\r{done} of {seeds} seeds", end="", file=sys.stderr, flush=True)
        return result

    for part in in_parallel([lambda s=s, c=c: run(s, c) for s, c in parts]):
        total["runs"] += part["runs"]
        total["violations"] += part["violations"]
        total["max_loss"] = max(total["max_loss"], part["max_loss"])
        texts.append(part["text"])
        for cell in part["cells"]:
            sums = cells.setdefault((cell["policy"], cell["home"]), {})
            for key, value in cell.items():
                sums[key] = value if isinstance(value, str) else sums.get(key, 0) + value
    print(file=sys.stderr)
    total["cells"] = [cells[key] for key in sorted(cells)]
    return total, "".join(texts)


def mutants(sim, most):
    rules = sim.rules()
    results = in_parallel([lambda r=r: sim.run("--without", r, "--count", most, "--quiet")
                           for r in rules])
    rows = [{"rule": rule, "caught": result["violations"] > 0,
             "seed": result.get("first_failing_seed")} for rule, result in zip(rules, results)]
    return {"tried": len(rows), "caught": sum(row["caught"] for row in rows), "rules": rows}


def small(sim, policy, loss, seeds, *arguments):
    result = sim.run("--small", "--policy", policy, "--home", "workers", "--loss", loss, "--count",
                     seeds, *arguments)
    return result["cells"][0] | {"violations": result["violations"]}


def inflation(sim, seeds):
    rows = []
    for policy in sim.policies():
        base, *lossy = in_parallel([lambda l=l: small(sim, policy, l, seeds)
                                    for l in (0, *LOSSES)])
        for loss, cell in zip(LOSSES, lossy):
            rows.append({"policy": policy, "loss": loss,
                         "inflation": cell["virtual_s"] / base["virtual_s"]})
    return rows


def shares(sim, seeds):
    cases = [(loss, residual, 64) for loss in MODEL_LOSSES for residual in (True, False)]
    cases += [(0, True, slots) for slots in (2, 16)]
    cells = in_parallel([lambda c=c: small(sim, "esa", c[0], seeds, "--residual",
                                           str(c[1]).lower(), "--slots", c[2]) for c in cases])
    return [{"loss": loss, "residual": residual, "slots": slots,
             "fallback_share": cell["fallback_fragments"] / cell["fragments"],
             "raw_share": cell["raw_contributions"] / cell["contributions"],
             "reminders_per_fragment": cell["reminders"] / cell["fragments"]}
            for (loss, residual, slots), cell in zip(cases, cells)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--seeds", type=int, help="random scenarios (default 10000, quick 1000)")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=result_file)
    args = parser.parse_args()
    seeds = args.seeds or (1000 if args.quick else 10_000)
    table_seeds = 100 if args.quick else 1000
    sim = FaultSim(str(pathlib.Path(args.build) / "sim/ina-faultsim"))
    started = time.monotonic()

    result, text = random_scenarios(sim, args.first, seeds)
    print(text, end="")
    print(f"{'policy':8} {'home':10} {'runs':>7} {'fragments':>10} {'dropped':>9} "
          f"{'preemptions':>11} {'restarts':>8}")
    for cell in result["cells"]:
        print(f"{cell['policy']:8} {cell['home']:10} {cell['runs']:>7} {cell['fragments']:>10} "
              f"{cell['dropped']:>9} {cell['preemptions']:>11} {cell['restarts']:>8}")
    print(f"{result['runs']} runs, {result['violations']} with violations, loss up to "
          f"{result['max_loss']:.2f}\n")

    result["mutants"] = mutants(sim, 10_000)
    for row in result["mutants"]["rules"]:
        found = f"violation at seed {row['seed']}" if row["caught"] else "NOT MISSED"
        print(f"without {row['rule']:18} {found}")
    print(f"{result['mutants']['caught']} of {result['mutants']['tried']} rules missed\n")

    result["inflation"] = inflation(sim, table_seeds)
    print("completion time, times that without loss")
    print(f"{'policy':8} " + " ".join(f"{loss:>8.2%}" for loss in LOSSES))
    for policy in sim.policies():
        print(f"{policy:8} " + " ".join(f"{row['inflation']:>8.2f}" for row in result["inflation"]
                                        if row["policy"] == policy))

    result["shares"] = shares(sim, table_seeds)
    print(f"\nesa, 2 jobs x 4 workers, W = 8\n{'loss':>6} {'slots':>6} {'residual':>8} "
          f"{'by fallback':>11} {'raw':>7} {'reminders/fragment':>18}")
    for row in result["shares"]:
        print(f"{row['loss']:>6.1%} {row['slots']:>6} {'on' if row['residual'] else 'off':>8} "
              f"{row['fallback_share']:>11.1%} {row['raw_share']:>7.1%} "
              f"{row['reminders_per_fragment']:>18.3f}")

    result["meta"] = {
        "commit": output_of(["git", "describe", "--always", "--dirty"]) or "unknown",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": f"{platform.node()} {platform.machine()}, {os.cpu_count()} CPUs",
        "command": shlex.join(sys.argv),
        "wall_s": round(time.monotonic() - started, 1),
    }
    print(f"\n{result['meta']['wall_s']} s, commit {result['meta']['commit']}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(result, indent=1) + "\n")
    return 0 if (result["violations"] == 0 and
                 result["mutants"]["caught"] == result["mutants"]["tried"]) else 1


if __name__ == "__main__":
    sys.exit(main())
