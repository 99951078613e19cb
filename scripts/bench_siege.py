#!/usr/bin/env python3
"""The damage that a local user of the control socket can do to the switch and to others' jobs.

    bench_siege.py --build FOLDER [--quick] [--only NAME,...] [--pairs N] [--json FILE]

Each row is an attack (tests/siege/rows.py). ina-switchd starts as a user of its own, in a cgroup
that gives it 768 MiB. A job of two workers of another user sums all the time and checks every
element. A third user asks the switch for a job every now and then. The attacker, with a quota of 32
MiB, carries out the row in slices of some tenths of a second. Each slice of attack is next to a
slice in which a process of the attacker only computes, with the same share of the cores as the
attack (beside floods of a ring it sends as many valid entries, and computes the rest). Anybody may
do that. The figures of such slices have `before` in their names.

Two rows are controls, whose p99 is shown and not judged: a process that computes beside a victim
that is alone before, and a worker that sends valid entries as fast as they are taken.
`victim_p99_to_busy_loop` is a row's p99 divided by the first control's; `switch_cores` is the
number of cores that the switch uses.

A row is held if all of these are true. All sums were right and the job went on. The switch lives,
is not stuck in the kernel, and answers. Its memory grew by no more than the quota and 24 MiB. The
p99 of the victim's sums, by time, is at most twice that before. No other user was refused, or
waited for more than a quarter of a second and more than twice the wait beside honest work. The log
has one record a line, none forged, and grew by no more than 64 KiB and 32 KiB a second. The attack
itself did not reach its goal. With --quick there is one short slice, and times are shown, but not
judged. Needs root. Fails if a row is not held. --json writes {"meta", "attacks": [a row for each],
"all_held"}.
"""

import time

from benchlib import command_line, metadata, results, testbed
from benchlib.errors import BenchError
from benchlib.table import cell
from benchlib.testbed import require_root

testbed.use_folder("tests/siege")
import rows  # noqa: E402
from bed import MEMORY_MAX, QUOTA, BedError  # noqa: E402
from play import Play  # noqa: E402

PAIRS, SLICE_S = 12, 0.4
QUICK_PAIRS, QUICK_SLICE_S = 1, 0.15


def show(row, seconds):
    print(f"  {row['name']:<24}{'held' if row['held'] else 'NOT HELD':<10}"
          f"{cell(row['victim_p99_ms_before'], '9.2f')}{cell(row['victim_p99_ms'], '9.2f')}"
          f"{row['switch_rss_growth_bytes'] / 2**20:>8.1f}"
          f"{cell(row.get('cgroup_growth_bytes'), '12.0f')}"
          f"{row['switch_descriptors']:>6}{row['log_bytes'] / 1024:>8.1f}"
          f"{cell(row['join_max_ms'], '9.2f')}{cell(row['answer_p99_ms'], '9.2f')}"
          f"{cell(row.get('switch_cores'), '8.2f')}{seconds:>6.1f}",
          flush=True)
    for problem in row["problems"]:
        print(f"      {problem}", flush=True)


def chosen(names, quick):
    if not names:
        return [row for row in rows.ROWS if row.quick or not quick]
    unknown = set(names) - {row.name for row in rows.ROWS}
    if unknown:
        raise BenchError(f"no row is called {', '.join(sorted(unknown))}; there are: "
                         f"{', '.join(row.name for row in rows.ROWS)}")
    return [row for row in rows.ROWS if row.name in names]


def compare_with_busy_loop(done):
    """Adds to the last row the ratio of its p99 to that of the busy loop, a process that only
    computes on the same cores."""
    loop = next((row for row in done if row["name"] == rows.BUSY_LOOP), None)
    if loop and loop["victim_p99_ms"] and done[-1]["victim_p99_ms"]:
        done[-1]["victim_p99_to_busy_loop"] = done[-1]["victim_p99_ms"] / loop["victim_p99_ms"]


def main():
    parser = command_line.parser_of(__doc__)
    parser.add_argument("--only", default="", help="names of rows, with commas")
    parser.add_argument("--pairs", type=int, help=f"slices of attack of a row ({PAIRS})")
    parser.add_argument("--quick", action="store_true", help="one short slice of attack a row")
    options = command_line.parse(parser)
    require_root()
    pairs = options.pairs or (QUICK_PAIRS if options.quick else PAIRS)
    slice_s = QUICK_SLICE_S if options.quick else SLICE_S
    meta = metadata.measured("siege", quota_bytes=QUOTA, memory_max_bytes=MEMORY_MAX,
                             max_map_count=rows.max_map_count(), pairs=pairs, slice_s=slice_s,
                             before="beside a process of the attacker's that computes as "
                                    "much as the attack did")
    print(f"  {'attack':<24}{'':<10}{'p99 ms':>9}{'attacked':>9}{'rss MiB':>8}{'cgroup B':>12}"
          f"{'fds':>6}{'log KiB':>8}{'join ms':>9}{'answer':>9}{'switch':>8}{'s':>6}")
    done = []
    for row in chosen([name for name in options.only.split(",") if name],
                      options.quick):
        start = time.monotonic()
        done.append(Play(row, options.build.resolve(), slice_s, pairs).run())
        compare_with_busy_loop(done)
        show(done[-1], time.monotonic() - start)
        # Written after each row, so that an abort does not lose earlier results.
        held = all(one["held"] for one in done)
        results.write(options, {"meta": meta, "attacks": done, "all_held": held})
    broken = [one["name"] for one in done if not one["held"]]
    print(f"{len(done)} attacks, {len(done) - len(broken)} held" +
          (f"; not held: {', '.join(broken)}" if broken else ""))
    return 1 if broken else 0


if __name__ == "__main__":
    command_line.run(main, "bench siege", BedError, *testbed.ERRORS)
