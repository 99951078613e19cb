#!/usr/bin/env python3
"""Runs the fault simulator and collects its figures.

    bench_faults.py --build FOLDER [--seeds N] [--from SEED] [--only-rules] [--quick] [--json FILE]

Four parts: random scenarios (every policy, every home of the fallback, all faults); each protocol
rule switched off, which must turn up a violation, both in scenarios that are hard on this rule (at
most 10,000 seeds) and in scenarios of all kinds, the swarm (100,000); the slowdown of work by each
loss rate, per policy; and the share of the work that the fallback decides, in the setting of the
model from which the protocol was derived. All time is virtual, and seeds decide everything: the
same commit gives the same figures on every machine. Exit status 1 if an invariant was violated, or
if a missing rule caused no violation.
"""

import json
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

from benchlib import command_line, metadata, processes, results
from benchlib.parallel import cores, side_by_side

LOSSES = (0.0001, 0.001, 0.01, 0.1)
MODEL_LOSSES = (0, 0.001, 0.01, 0.05, 0.1)
OWN_SEEDS = 10_000
SWARM_SEEDS = 100_000


class FaultSim:
    def __init__(self, program):
        self.program = program

    def run(self, *arguments):
        with tempfile.NamedTemporaryFile(suffix=".json") as summary:
            text = processes.run([self.program, *arguments, "--json", summary.name],
                                 accepted=(0, 1))
            result = json.loads(pathlib.Path(summary.name).read_text())
        result["text"] = text
        return result

    def rules(self):
        known = subprocess.run([self.program, "--without", "?"], capture_output=True, text=True)
        return known.stderr.split("known: ")[1].strip().split(", ")

    def policies(self):
        known = subprocess.run([self.program, "--policy", "?"], capture_output=True, text=True)
        return known.stderr.split("is none of ")[1].split(";")[0].split(", ")


def random_scenarios(sim, first, seeds):
    step = min(2000, max(1, seeds // cores()))
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

    for part in side_by_side([lambda s=s, c=c: run(s, c) for s, c in parts]):
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


def mutants(sim):
    rules = sim.rules()
    found = {}
    for name, most, extra in (("seed", OWN_SEEDS, []), ("swarm_seed", SWARM_SEEDS, ["--swarm"])):
        found[name] = side_by_side([lambda r=r, m=most, e=extra: sim.run("--without", r, "--count", m, "--quiet", *e)
                                    .get("first_failing_seed") for r in rules])
    rows = [{"rule": rule, "caught": own is not None and swarm is not None, "seed": own, "swarm_seed": swarm}
            for rule, own, swarm in zip(rules, found["seed"], found["swarm_seed"])]
    return {"tried": len(rows), "caught": sum(row["caught"] for row in rows), "rules": rows}


def print_mutants(found):
    def text(seed):
        return "NOT MISSED" if seed is None else seed
    print(f"{'without':20} {'own seeds':>10} {'the swarm':>10}")
    for row in found["rules"]:
        print(f"{row['rule']:20} {text(row['seed']):>10} {text(row['swarm_seed']):>10}")
    print(f"{found['caught']} of {found['tried']} rules missed\n")


def small(sim, policy, loss, seeds, *arguments):
    result = sim.run("--small", "--policy", policy, "--home", "workers", "--loss", loss, "--count",
                     seeds, *arguments)
    return result["cells"][0] | {"violations": result["violations"]}


def inflation(sim, seeds):
    rows = []
    for policy in sim.policies():
        base, *lossy = side_by_side([lambda l=l: small(sim, policy, l, seeds)
                                    for l in (0, *LOSSES)])
        for loss, cell in zip(LOSSES, lossy):
            rows.append({"policy": policy, "loss": loss,
                         "inflation": cell["virtual_s"] / base["virtual_s"]})
    return rows


def shares(sim, seeds):
    cases = [(loss, residual, 64) for loss in MODEL_LOSSES for residual in (True, False)]
    cases += [(0, True, slots) for slots in (2, 16)]
    cells = side_by_side([lambda c=c: small(sim, "esa", c[0], seeds, "--residual",
                                           str(c[1]).lower(), "--slots", c[2]) for c in cases])
    return [{"loss": loss, "residual": residual, "slots": slots,
             "fallback_share": cell["fallback_fragments"] / cell["fragments"],
             "raw_share": cell["raw_contributions"] / cell["contributions"],
             "reminders_per_fragment": cell["reminders"] / cell["fragments"]}
            for (loss, residual, slots), cell in zip(cases, cells)]


def main():
    parser = command_line.parser_of(__doc__, build="build")
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--seeds", type=int, help="random scenarios (default 10000, quick 1000)")
    parser.add_argument("--only-rules", action="store_true", help="only the rules that are switched off")
    parser.add_argument("--quick", action="store_true")
    options = command_line.parse(parser)
    seeds = options.seeds or (1000 if options.quick else 10_000)
    table_seeds = 100 if options.quick else 1000
    sim = FaultSim(options.build / "sim/ina-faultsim")
    started = time.monotonic()

    if options.only_rules:
        found = mutants(sim)
        print_mutants(found)
        results.write(options, {"mutants": found, "meta": metadata.predicted(started)})
        return 0 if found["caught"] == found["tried"] else 1

    result, text = random_scenarios(sim, options.first, seeds)
    print(text, end="")
    print(f"{'policy':8} {'home':10} {'runs':>7} {'fragments':>10} {'dropped':>9} "
          f"{'preemptions':>11} {'restarts':>8}")
    for cell in result["cells"]:
        print(f"{cell['policy']:8} {cell['home']:10} {cell['runs']:>7} {cell['fragments']:>10} "
              f"{cell['dropped']:>9} {cell['preemptions']:>11} {cell['restarts']:>8}")
    print(f"{result['runs']} runs, {result['violations']} with violations, loss up to "
          f"{result['max_loss']:.2f}\n")

    result["mutants"] = mutants(sim)
    print_mutants(result["mutants"])

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

    result["meta"] = metadata.predicted(started)
    result["meta"]["machine"] = f"{platform.node()} {result['meta']['machine']}"
    print(f"\n{result['meta']['wall_s']} s, commit {result['meta']['commit']}")
    results.write(options, result)
    return 0 if (result["violations"] == 0 and
                 result["mutants"]["caught"] == result["mutants"]["tried"]) else 1


if __name__ == "__main__":
    command_line.run(main, "bench_faults")
