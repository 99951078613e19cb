#!/usr/bin/env python3
"""The number of injected faults that `inactl why` and the workers' errors name.

    bench_why.py --build FOLDER [--quick] [--only NAME,...] [--json FILE]

Each fault is a job of three ranks (some have two) with an injected problem: calls that do not
agree, processes that stop or end, hosts in network namespaces whose frames get lost, a switch
without room. Faults are named in two ways, which are counted apart:

- `inactl why JOB` is asked (`why_asked`). It names the fault (`why_named_by_inactl`) if it has a
  reason with the expected cause and exactly the expected ranks, each with its process and host or
  its address, and, if it waits for a call of theirs, with that call, its number and its size.
- The job ends at once, and nobody is asked (`error_expected`). The error names the fault
  (`named_by_error`) if it has the expected words, and names exactly the expected ranks. Where calls
  do not agree, it must say which ranks made which call.

`why_named` is the sum of both, out of `why_injected`.

Where `inactl why` is asked and ranks wait until their timeout, their errors must name the same
ranks: `in_errors` counts these faults, out of `in_errors_of`. Each rank that is not at fault must
get an error, unless its calls are complete, and each error must name exactly the ranks at fault. A
rank that an error says is waiting itself is not named.

An innocent rank is blamed if it is in the `ranks` of any reason, or if an error names it.

--quick: the faults that need no namespaces and end soon. Faults in namespaces need root; without
root they count as not injected.

Prints a table; exit status 1 if fewer than 96 % were named, or an innocent was blamed. --json
writes {"meta", "why_named", "why_injected", "why_asked", "why_named_by_inactl", "error_expected",
"named_by_error", "why_innocent_blamed", "in_errors", "in_errors_of", "why_s_max",
"faults": [{"fault", "named", "blamed", "in_error", "found", "why_s"}]}; `why_s` is null where
`inactl why` was not asked.
"""

import contextlib
import os
import time

from benchlib import command_line, metadata, processes, progress, results, testbed
from benchlib.table import print_table

testbed.use_folder("tests/why")
import beds  # noqa: E402
import verdicts  # noqa: E402
from case import Case  # noqa: E402
from faults import TIMEOUT_S, net_faults, own_bed_faults, shared_faults  # noqa: E402

NAMED_AT_LEAST = 0.96
WHY_S = 1.0


def peers_of(case):
    """Returns what the switch is to call the processes and hosts of the fault's ranks."""
    fault = case.fault
    if fault.cause == "ranks_missing":  # nobody knows where they would be
        return ["" for _ in fault.ranks]
    return [case.bed.peer(rank, case.workers[rank].pid) for rank in verdicts.members_at_fault(fault)]


def last_words(case):
    return " | ".join(text.strip().splitlines()[-1][:500] for text in case.all_said() if text.strip())


def watch(fault, case):
    """Injects the fault into the running case, and returns the result: a row of "faults"."""
    joins = fault.cause in ("ranks_missing", "fallback_missing") and not fault.inject
    if not joins and not fault.words:
        case.await_(lambda: all("joined" in text for text in case.all_said()))
    time.sleep(fault.settle_s)
    if fault.inject:
        fault.inject(case)
        time.sleep(fault.settle_s)
    row = {"fault": fault.name, "named": False, "blamed": [], "in_error": None, "found": "",
           "why_s": None}
    if fault.cause:
        verdict, row["why_s"] = verdicts.ask_why(case)
        row["named"], row["blamed"], row["found"] = verdicts.judge(fault, verdict, peers_of(case))
        row["named"] = row["named"] and row["why_s"] < WHY_S
        if fault.timeout_s == TIMEOUT_S and not joins:
            row["in_error"], blamed = verdicts.judge_wait(case)
            row["blamed"] = sorted(blamed.union(row["blamed"]))
            if not row["in_error"] or blamed:
                row["found"] += " || " + last_words(case)
        return row
    row["named"], blamed = verdicts.judge_end(case)
    row["blamed"] = sorted(blamed)
    row["found"] = last_words(case)
    return row


def run_fault(fault, bed):
    with contextlib.ExitStack() as stack:
        if fault.before:
            stack.enter_context(fault.before(bed))
        case = Case(fault, bed)
        stack.callback(case.close)
        return watch(fault, case)


def run_all(build, folder, faults):
    rows = []
    with contextlib.ExitStack() as stack:
        shared = beds.SharedBed(build, folder / "shared")
        stack.callback(shared.close)
        for number, fault in enumerate(faults):
            progress.show(f"{number + 1} of {len(faults)}: {fault.name}")
            if fault.bed == "shared":
                rows.append(run_fault(fault, shared))
                shared.switch.require_running()
                continue
            bed = beds.make(fault.bed, build, folder / fault.name)
            try:
                rows.append(run_fault(fault, bed))
            finally:
                bed.close()
    progress.clear()
    return rows


def choose(options):
    faults = shared_faults() + own_bed_faults()
    if os.geteuid() == 0:
        faults += net_faults()
    if options.quick:
        faults = [fault for fault in faults if fault.quick]
    if options.only:
        faults = [fault for fault in faults if fault.name in options.only.split(",")]
    return faults


def figures_of(rows):
    """Returns the counts of all rows."""
    asked = [row for row in rows if row["why_s"] is not None]
    ended = [row for row in rows if row["why_s"] is None]
    waits = [row["in_error"] for row in rows if row["in_error"] is not None]
    return {"why_named": sum(row["named"] for row in rows), "why_injected": len(rows),
            "why_asked": len(asked), "why_named_by_inactl": sum(row["named"] for row in asked),
            "error_expected": len(ended), "named_by_error": sum(row["named"] for row in ended),
            "why_innocent_blamed": sum(len(row["blamed"]) for row in rows),
            "in_errors": sum(waits), "in_errors_of": len(waits),
            "why_s_max": max((row["why_s"] for row in asked), default=None)}


def main():
    parser = command_line.parser_of(__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    options = command_line.parse(parser)
    meta = metadata.measured("why")
    with processes.temporary_folder("ina-why-") as folder:
        rows = run_all(options.build.resolve(), folder, choose(options))
    print_table([("fault", "fault", ""), ("named", "named", ""), ("blamed", "innocents", ""),
                 ("in errors", "error", ""), ("found", "text", "")],
                [row | {"innocents": ", ".join(map(str, row["blamed"])) or "-",
                        "error": "-" if row["in_error"] is None else row["in_error"],
                        "text": row["found"][:120]} for row in rows])
    figures = figures_of(rows)
    print("{why_named} of {why_injected} faults named: {why_named_by_inactl} of {why_asked} by inactl "
          "why, {named_by_error} of {error_expected} by the errors of jobs that ended; "
          "{why_innocent_blamed} innocent ranks blamed; {in_errors} of {in_errors_of} waits named in "
          "the ranks' errors".format(**figures))
    results.write(options, {"meta": meta, **figures, "faults": rows})
    enough = figures["why_named"] >= NAMED_AT_LEAST * len(rows)
    return 0 if rows and enough and figures["why_innocent_blamed"] == 0 else 1


if __name__ == "__main__":
    command_line.run(main, "bench_why", *testbed.ERRORS)
