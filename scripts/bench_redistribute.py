#!/usr/bin/env python3
"""Array redistributions: planned and checked in memory, then executed over a switch.

    bench_redistribute.py --build FOLDER [--quick] [--modelled] [--json FILE]

First redistribute_bench runs 600 seeded problems (60 with --quick) and the users' cases. Each plan
is carried out in memory, every element is checked on every rank, and the buffers are watched. Times
are those of a cost model, which `costs` states (us an operation, us a message, bytes a us). Then,
without --modelled, ina-redistribute runs 4 and 8 processes over the shm port of an ina-switchd of
their own. It measures the cost of operations, and runs 20 small and 20 large problems (4 with
--quick) and the users' cases by each method in turn, in paired rounds. Methods that give the same
plan share its rounds. --json writes {"meta", "seed", "costs", "modelled", "executed",
"users_cases", "by_costs", "planning"}:

`modelled`: `geomean_vs_X` and `max_vs_X` are the baseline's modelled time divided by the chosen
plan's, over all cases in which the plan sends anything (`free_cases` are the others). The chosen
plan is the cheaper one of the synthesised and the direct plan. `geomean_vs_best_baseline`: against
the best of the three baselines in each case. `synthesised_..`: plans in the normal form alone.
`limited_cases` were planned again with a limit of 1.25 times the larger of source and target.
Planning times are processor time of the planner's single thread on this machine.
`executed`: for each number of ranks and size (`least_bytes`, `most_bytes` of the tiles of all ranks
together) the same ratios of measured times: the median over the rounds of a case of baseline /
chosen plan, each the time of the slowest rank; `costs` are the measured costs, with which the plans
were made. `failures` counts wrong elements, `memory_violations` bytes written beyond peak_bytes;
`cases` has the medians of each case.
`by_costs`: the same cases under other costs. `planning`: the planner's time on large meshes.
"""

import json
import shlex
import statistics

from benchlib import command_line, metadata, processes, progress, results, stats
from benchlib.switch import plain_switch

RUN_DEADLINE_S = 3600
CASES, QUICK_CASES = 600, 60
EXECUTED_RANKS = (4, 8)
EXECUTED_CASES, QUICK_EXECUTED_CASES = 20, 4
ROUNDS, QUICK_ROUNDS = 31, 5
# The least and the most elements of all ranks' tiles together.
SIZES = {"small": (0, 1 << 20), "large": (1 << 22, 1 << 24)}
ELEMENT_BYTES = 4
BASELINES = (("XLA's order", "xla"), ("gather, then slice", "naive"), ("direct", "direct"))


def run_bench(build, quick):
    """Returns the report of redistribute_bench, and the command."""
    command = [str(build / "bench/redistribute_bench"), "--cases",
               str(QUICK_CASES if quick else CASES), "--json", "-"]
    return json.loads(processes.run(command, RUN_DEADLINE_S)), shlex.join(command)


def rank_commands(build, switch, ranks, size, quick):
    least, most = SIZES[size]
    return [[str(build / "bench/ina-redistribute"), "--url", f"shm:{switch.socket}",
             "--rank", str(rank), "--ranks", str(ranks),
             "--cases", str(QUICK_EXECUTED_CASES if quick else EXECUTED_CASES),
             "--rounds", str(QUICK_ROUNDS if quick else ROUNDS),
             "--least-elements", str(least), "--most-elements", str(most)] for rank in range(ranks)]


def execute(build, ranks, size, quick):
    """Executes the plans of a job of `ranks` ranks over a switch of its own."""
    progress.show(f"{ranks} ranks, {size} arrays")
    with processes.temporary_folder() as folder, plain_switch(build, folder) as switch:
        with processes.Ranks(rank_commands(build, switch, ranks, size, quick)) as running:
            reports = running.reports(RUN_DEADLINE_S)
    progress.clear()
    least, most = SIZES[size]
    return {"ranks": ranks, "size": size, "least_bytes": least * ELEMENT_BYTES, "most_bytes": most * ELEMENT_BYTES,
            "costs": reports[0]["costs"], **executed_of([report["cases"] for report in reports])}


def executed_of(by_rank):
    """Combines the reports of all ranks, each a list of cases."""
    cases = [case_of([report[i] for report in by_rank]) for i in range(len(by_rank[0]))]
    result = {"failures": sum(case["wrong_elements"] for case in cases),
              "memory_violations": sum(case["memory_violations"] for case in cases)}
    moving = [case for case in cases if case["ways"]["chosen"]["planned_bytes"] > 0]
    for key in ("xla", "naive", "direct", "best_baseline"):
        ratios = [case["ratios"][key] for case in moving]
        result[f"geomean_vs_{key}"] = statistics.geometric_mean(ratios)
        result[f"max_vs_{key}"] = max(ratios)
        result[f"min_vs_{key}"] = min(ratios)
    return {**result, "cases": cases}


def case_of(by_rank):
    """Returns one case from the reports of all ranks."""
    plan_of = by_rank[0]["plan_of"]
    plans = [[report["plans"][i] for report in by_rank] for i in range(len(by_rank[0]["plans"]))]
    times = [stats.slowest([seen["samples_us"] for seen in plan]) for plan in plans]
    chosen = times[plan_of["chosen"]]
    ratios = {key: statistics.median(other / own for other, own in zip(times[plan_of[key]], chosen))
              for _, key in BASELINES}
    ratios["best_baseline"] = min(ratios.values())
    described = [{"median_us": statistics.median(took), "quartiles_us": stats.quartiles(took),
                  "sent_bytes": max(seen["sent_bytes"] for seen in plan),
                  **{key: plan[0][key] for key in ("planned_bytes", "peak_bytes", "predicted_us", "steps")}}
                 for plan, took in zip(plans, times)]
    return {"name": by_rank[0]["name"],
            "wrong_elements": sum(seen["wrong_elements"] for plan in plans for seen in plan),
            "memory_violations": sum(seen["memory_violations"] for plan in plans for seen in plan),
            "ratios": ratios,
            "ways": {name: described[plan] for name, plan in plan_of.items()}}


def print_executed(rows):
    print("\nmeasured time of a baseline / of the plan, over the switch")
    for row in rows:
        print(f"  {row['ranks']} ranks, {len(row['cases'])} {row['size']} arrays: {row['failures']} wrong elements, "
              f"{row['memory_violations']} memory violations; {row['costs']['alpha_us']:.0f} us an operation, "
              f"{row['costs']['message_us']:.1f} us a message, {row['costs']['gbps']:.0f} Gb/s, "
              f"copies {row['costs']['copy_gbps']:.0f} Gb/s")
        for name, key in (*BASELINES, ("the best of them", "best_baseline")):
            print(f"    {name:20} geometric mean {row[f'geomean_vs_{key}']:7.2f}   "
                  f"least {row[f'min_vs_{key}']:7.2f}   largest {row[f'max_vs_{key}']:7.2f}")


def print_result(result):
    modelled = result["modelled"]
    print(f"{modelled['cases']} cases: {modelled['failures']} failures, "
          f"{modelled['memory_violations']} memory violations; {modelled['plans_carried_out']} plans "
          f"carried out, {modelled['elements_checked']} elements checked")
    print("\nmodelled time of a baseline / of the plan")
    for name, key in BASELINES:
        print(f"  {name:20} geometric mean {modelled[f'geomean_vs_{key}']:7.2f}   "
              f"largest {modelled[f'max_vs_{key}']:7.2f}")
    print(f"  {'the best of them':20} geometric mean {modelled['geomean_vs_best_baseline']:7.2f}")
    print("\nelements that a rank sends    gather-slice  synthesised  direct")
    for row in result["users_cases"]:
        print(f"  {row['name']:26}{row['naive_elements']:14}{row['synthesised_elements']:13}"
              f"{row['direct_elements']:8}")
    print("\ncosts                                  vs XLA  largest   vs direct   synthesised vs XLA")
    for row in result["by_costs"]:
        print(f"  {row['name']:36}{row['geomean_vs_xla']:7.2f}{row['max_vs_xla']:9.2f}"
              f"{row['geomean_vs_direct']:12.2f}{row['synthesised_geomean_vs_xla']:21.2f}")
    print("\nplanning, ms        ranks      p50      p99      max")
    for row in result["planning"]:
        mesh = "x".join(map(str, row["mesh"]))
        print(f"  {mesh:24}{row['ranks']:6}{row['p50_ms']:9.2f}{row['p99_ms']:9.2f}{row['max_ms']:9.2f}")


def main():
    parser = command_line.parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer cases")
    parser.add_argument("--modelled", action="store_true", help="nothing over a switch")
    options = command_line.parse(parser)

    meta = metadata.measured("redistribute")
    result, meta["bench_command"] = run_bench(options.build, options.quick)
    print_result(result)
    failed = False
    if not options.modelled:
        rows = [execute(options.build, ranks, size, options.quick)
                for ranks in EXECUTED_RANKS for size in SIZES]
        print_executed(rows)
        result["executed"] = rows
        failed = any(row["failures"] + row["memory_violations"] for row in rows)
    results.write(options, {"meta": meta, **result})
    return 1 if failed else 0


if __name__ == "__main__":
    command_line.run(main, "bench_redistribute")
