#!/usr/bin/env python3
"""The switch on emulated PCI NICs, with DPDK's drivers for them.

    bench_nics.py --build FOLDER [--only DRIVER,...] [--quick] [--json FILE]

QEMU emulates a machine with two NICs of a kind, behind an IOMMU. Each is on a link with a NIC of the
guest's kernel, whose host sums through the switch and checks every element, and fetches a page from
the other host through the switch where that forwards (tests/nic). Nothing is timed: the processor is
emulated, too. With --quick each driver has one case. Fails if a case does. --json writes {"meta",
"cases": [{"driver", "case", "mtu", "vlan", "bridged", "lanes", "event", "correct", "tcp_passes"}],
"failed"}.
"""

from benchlib import command_line, metadata, results, testbed
from benchlib.errors import BenchError

testbed.use_folder("tests/nic")
import cases  # noqa: E402
from guest import NoKernel  # noqa: E402


def row_of(driver, name, outcome):
    case = cases.CASES[name]
    return {"driver": driver, "case": name, "mtu": case.mtu, "vlan": case.vlan, "bridged": case.bridged,
            "lanes": case.lanes, "event": None if case.event == "-" else case.event,
            "correct": bool(outcome and outcome.correct), "tcp_passes": outcome.tcp_passes if outcome else None}


def fails(row):
    return not row["correct"] or row["tcp_passes"] is False


def main():
    parser = command_line.parser_of(__doc__)
    parser.add_argument("--only", default=",".join(cases.NICS), help="drivers, with commas")
    parser.add_argument("--quick", action="store_true", help="one case of each driver")
    options = command_line.parse(parser)
    drivers = options.only.split(",")
    if unknown := set(drivers) - set(cases.NICS):
        raise BenchError(f"no driver is called {', '.join(sorted(unknown))}; there are: {', '.join(cases.NICS)}")
    names = tuple(cases.CASES)[:1] if options.quick else tuple(cases.CASES)
    meta = metadata.measured("nics", qemu=cases.qemu_version())
    done = []
    print(f"  {'driver':<10}{'case':<12}{'sums':<8}TCP")
    for driver in drivers:
        outcomes = cases.run(options.build.resolve(), driver, names)
        for name in names:
            row = row_of(driver, name, outcomes.get(name))
            done.append(row)
            tcp = {None: "-", True: "passes", False: "FAILS"}[row["tcp_passes"]]
            print(f"  {driver:<10}{name:<12}{'right' if row['correct'] else 'FAIL':<8}{tcp}", flush=True)
        results.write(options, {"meta": meta, "cases": done, "failed": sum(map(fails, done))})
    failed = sum(map(fails, done))
    print(f"{len(done)} cases, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    command_line.run(main, "bench nics", NoKernel, *testbed.ERRORS)
