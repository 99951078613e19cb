#!/usr/bin/env python3
"""All-reduces over leaf and spine in the simulation: sums in a tree of switches, beside other ways.

    bench_trees.py --build FOLDER [--quick] [--only sim|live] [--shapes LEAVESxWORKERS,...] [--json FILE]

`ina-sim --leaves` has racks of workers, each with a switch, under one root. The uplink of a rack has
the rate of its workers' links together, divided by the over-subscription. One job of all workers
all-reduces 4 MB, with 64 slots at each switch, in one of these ways:
  - tree: leaves and root add, as docs/protocol.md says ("Trees"), with esa and with fcfs;
  - never full: the tree on 65,536 slots;
  - flat: the leaves' switches only forward, and the root adds, at the best of four settings;
  - leaders: each leaf's switch adds for its first worker; these all-reduce over the root, and
    broadcast at their leaves. The steps overlap, in chunks of 128 KiB.
All baselines run esa. `training` has four jobs with computing times that vary in place of the one that
only all-reduces, so that workers drift apart and slots matter; leaders cannot do that. `stragglers` has
64 MB and slow workers: without help at the window of a job and at the run-ahead of help, and with help.

`live` has real switches in network namespaces, as root: trees of two and three levels with four
leaves, beside the same ranks at one switch, over shared memory. All of them share this machine's
cores, so times say what the switches cost, not what links do; bytes on uplinks are counted.

--json writes {"meta", "workload", "live": [{"levels", "ranks", "bytes", "collective", "us",
"one_level_us", "uplink_bytes", "downlink_bytes", "correct"}], "bit_equal_across_shapes", "sim": [{"leaves", "workers", "oversubscription", "policy",
"jct_ms", "flat_ms", "leaders_ms", "never_full_ms", ...}], "training": [...], "stragglers": [{"straggler", "factor",
"steady_ms", "off_ms", "ahead_ms", "help_ms", "help_vs_off", "help_vs_ahead": [least, median, most]}],
"aims"}. "flat_bound_ms" is
what a leaf's contributions take over its uplink at full rate. "in_memory" counts the additions in the
switches' memory, of contributions without a slot and of sums that lost theirs, for each contribution.
They take no time here.
"""

import re
import statistics
import time

from benchlib import command_line, live_trees, metadata, results, simulations, table
from benchlib.testbed import require_root

SHAPES = ("2x16", "8x16", "32x32")
QUICK_SHAPES = ("2x8",)
OVERSUBSCRIPTIONS = (1, 2, 4, 8, 16)
QUICK_OVERSUBSCRIPTIONS = (1, 8)
POLICIES = ("esa", "fcfs")
SLOTS, FEW_SLOTS, AMPLE_SLOTS = 64, 16, 65536
WINDOW = 512
# Without marks a small window fills the uplink and does not overrun its queue of 1 MB: as many
# frames as it takes are known here, as they are not to a job.
FLATS = (*({"window": window, "ecn-bytes": 0} for window in (2, 4, 8)), {"window": WINDOW})
RATE_GBPS = 100
FRAME, PAYLOAD = 8330, 8192  # bytes of a fragment on the wire, and of its values
BASE = {"seed": 1, "rate-gbps": RATE_GBPS, "delay-us": 1, "rto-ms": 1}
PLAIN, QUICK_PLAIN = {"plain-mb": 4, "iterations": 1}, {"plain-mb": 1, "iterations": 1}
TRAINING = {"models": "vgg16,resnet50,bert,gnmt", "jobs": 4, "scale": 256, "iterations": 2, "jitter": 0.1}
TRAINING_SHAPES = ("2x16", "8x16")
TRAINING_OVERSUBSCRIPTION = 8

STRAGGLERS = (("rotating", 4), ("rotating", 2), ("random", 4), ("permanent", 4))
STRAGGLER_SHAPE, STRAGGLER_SEEDS = "2x16", (1, 2, 3, 4)
SLOW = {"plain-mb": 64, "iterations": 1, "period-us": 500}
RUN_AHEAD = 16 * WINDOW
# As for real switches, a patience is a 25th of a slow worker's turn.
HELP = {"window": RUN_AHEAD, "in-switch": WINDOW, "help-straggler": "fallback", "patience-us": 20}

COLUMNS = (("leaves", "leaves", ""), ("workers", "workers", ""), ("uplinks 1:", "oversubscription", ""),
           ("policy", "policy", ""), ("slots", "slots", ""), ("tree ms", "jct_ms", ".3f"),
           ("flat ms", "flat_ms", ".3f"), ("at least", "flat_bound_ms", ".3f"),
           ("leaders ms", "leaders_ms", ".3f"), ("never full ms", "never_full_ms", ".3f"),
           ("flat / tree", "flat_vs_tree", ".2f"), ("leaders / tree", "leaders_vs_tree", ".2f"),
           ("never full / tree", "never_full_vs_tree", ".4f"), ("in memory", "in_memory", ".2%"))
STRAGGLER_COLUMNS = (("straggler", "straggler", ""), ("factor", "factor", ""), ("steady ms", "steady_ms", ".2f"),
                     ("off ms", "off_ms", ".2f"), ("run ahead ms", "ahead_ms", ".2f"), ("help ms", "help_ms", ".2f"))


class Point:
    """One network with one load: what is to be run, and the rows that come of it."""

    def __init__(self, load, shape, oversubscription, slots, with_leaders):
        self.leaves, self.workers = map(int, shape.split("x"))
        self.oversubscription, self.slots = oversubscription, slots
        base = BASE | load | {"leaves": self.leaves, "workers-per-leaf": self.workers,
                              "oversubscription": oversubscription, "slots": slots, "window": WINDOW}
        self.trees = {policy: base | {"policy": policy} for policy in POLICIES}
        self.never_full = base | {"slots": AMPLE_SLOTS}
        self.flats = [base | {"sums": "flat"} | own for own in FLATS]
        self.leaders = base | {"sums": "leaders"} if with_leaders else None

    def wanted(self):
        return [*self.trees.values(), self.never_full, *self.flats,
                *([self.leaders] if self.leaders else [])]

    def rows(self, runs):
        def of(options):
            return runs.of(options, (BASE["seed"],))[0]

        def ms(options):
            return of(options)["avg_jct_s"] * 1e3

        flat = min(self.flats, key=ms)
        leaders = ms(self.leaders) if self.leaders else None
        bound = None
        if "plain-mb" in flat:
            megabits = flat["plain-mb"] * 8 * FRAME / PAYLOAD
            bound = megabits / RATE_GBPS * max(self.oversubscription, 1)
        for policy, tree in self.trees.items():
            took = ms(tree)
            yield {"leaves": self.leaves, "workers": self.workers,
                   "oversubscription": self.oversubscription, "policy": policy, "slots": self.slots,
                   "jct_ms": took, "flat_ms": ms(flat), "flat_window": flat["window"],
                   "flat_bound_ms": bound, "flat_drops": of(flat)["queue_drops"],
                   "leaders_ms": leaders, "never_full_ms": ms(self.never_full),
                   "flat_vs_tree": ms(flat) / took,
                   "leaders_vs_tree": leaders / took if leaders else None,
                   "never_full_vs_tree": ms(self.never_full) / took,
                   "in_memory": in_memory(of(tree)),
                   "slots_used_peak_never_full": peak(of(self.never_full))}


class StragglerPoint:
    """A tree with one slow worker at a time, without help and with it."""

    def __init__(self, pattern, factor):
        self.pattern, self.factor = pattern, factor
        leaves, workers = STRAGGLER_SHAPE.split("x")
        steady = BASE | SLOW | {"leaves": int(leaves), "workers-per-leaf": int(workers), "slots": SLOTS,
                                "window": WINDOW}
        off = steady | {"straggler": pattern, "factor": factor}
        self.ways = {"steady": steady, "off": off, "ahead": off | {"window": RUN_AHEAD}, "help": off | HELP}

    def wanted(self):
        return [way | {"seed": seed} for way in self.ways.values() for seed in STRAGGLER_SEEDS]

    def row(self, runs):
        ms = {name: [run["avg_jct_s"] * 1e3 for run in runs.of(way, STRAGGLER_SEEDS)]
              for name, way in self.ways.items()}

        def to(other):
            ratios = [own / others for own, others in zip(ms["help"], ms[other])]
            return [min(ratios), statistics.median(ratios), max(ratios)]

        return {"straggler": self.pattern, "factor": self.factor,
                **{f"{name}_ms": statistics.median(own) for name, own in ms.items()},
                "help_vs_off": to("off"), "help_vs_ahead": to("ahead")}


def in_memory(run):
    leaves = run["leaves"]
    moved = run["bypassed"] + run["preemptions"]
    moved += sum(leaf["bypassed"] + leaf["preemptions"] for leaf in leaves)
    return moved / run["contributions"]


def peak(run):
    return max(run["slots_used_peak"], *(leaf["slots_used_peak"] for leaf in run["leaves"]))


# Ranks, bytes of the whole vector, collectives.
ALL_LIVE = ("allreduce", "reduce", "reduce-scatter", "broadcast", "all-gather", "gather", "scatter",
            "all-to-all", "permute", "send-receive", "barrier")
LIVE = ((8, 4096, ("allreduce",)), (8, 1 << 20, ALL_LIVE), (8, 16 << 20, ("allreduce",)),
        (128, 1 << 20, ("allreduce",)))
QUICK_LIVE = ((8, 1 << 16, ("allreduce", "broadcast")),)
LIVE_COLUMNS = (("levels", "levels", ""), ("ranks", "ranks", ""), ("bytes", "bytes", ""),
                ("collective", "collective", ""), ("us", "us", ".0f"),
                ("one level us", "one_level_us", ".0f"), ("up bytes", "uplink_bytes", ".0f"),
                ("down bytes", "downlink_bytes", ".0f"))


def aims_of(rows):
    """Returns each aim, and the worst row's figure."""
    esa = [row for row in rows if row["policy"] == "esa"]
    aims = [("never full / esa", 0.99, "never_full_vs_tree", esa),
            ("flat / esa at 8:1", 4, "flat_vs_tree", [row for row in esa if row["oversubscription"] == 8]),
            ("leaders / esa", 1.5, "leaders_vs_tree", esa)]
    return [{"aim": aim, "least": least, "worst": min(row[key] for row in own)}
            for aim, least, key, own in aims if own]


def show(rows, title):
    if not rows:
        return
    print(f"\n{title}")
    table.print_table(COLUMNS, rows)


def shapes_of(text):
    shapes = text.split(",")
    for shape in shapes:
        if not re.fullmatch(r"[1-9]\d*x[1-9]\d*", shape):
            raise ValueError(shape)
    return shapes


def parse_arguments():
    parser = command_line.parser_of(__doc__, build="build")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=("sim", "live"), help="instead of both")
    parser.add_argument("--shapes", type=shapes_of, metavar="LEAVESxWORKERS,...", help="instead of all")
    return command_line.parse(parser)


def run_live(args):
    """Returns the result's members."""
    require_root()
    meta = metadata.measured("trees")
    rows, bit_equal = live_trees.measure(args.build, QUICK_LIVE if args.quick else LIVE,
                                         lambda text: print(text, flush=True))
    print("\nreal switches")
    table.print_table(LIVE_COLUMNS, rows)
    print(f"a reproducible sum has the same bits in all trees: {bit_equal}")
    return {"live_meta": meta, "live": rows, "bit_equal_across_shapes": bit_equal}


def main():
    args = parse_arguments()
    started = time.monotonic()
    live = {} if args.only == "sim" else run_live(args)
    if args.only == "live":
        results.write(args, {"meta": live.pop("live_meta"), **live})
        return 0
    shapes = args.shapes or (QUICK_SHAPES if args.quick else SHAPES)
    load = QUICK_PLAIN if args.quick else PLAIN
    points = [Point(load, shape, oversubscription, SLOTS, True) for shape in shapes
              for oversubscription in (QUICK_OVERSUBSCRIPTIONS if args.quick else OVERSUBSCRIPTIONS)]
    training = [] if args.quick else [
        Point(TRAINING, shape, TRAINING_OVERSUBSCRIPTION, slots, False)
        for shape in shapes if shape in TRAINING_SHAPES for slots in (FEW_SLOTS, SLOTS)]
    stragglers = [] if args.quick else [StragglerPoint(*straggler) for straggler in STRAGGLERS]
    runs = simulations.Runs(args.build / "sim/ina-sim")
    runs.run([options for point in (*points, *training, *stragglers) for options in point.wanted()])
    rows = [row for point in points for row in point.rows(runs)]
    trained = [row for point in training for row in point.rows(runs)]
    show(rows, f"one all-reduce of {load['plain-mb']} MB")
    show(trained, "training")
    slow = [point.row(runs) for point in stragglers]
    if slow:
        print("\nstragglers")
        table.print_table(STRAGGLER_COLUMNS, slow)
    aims = aims_of(rows)
    for aim in aims:
        verdict = "" if aim["worst"] >= aim["least"] else ": MISSED"
        print(f"{aim['aim']}: {aim['worst']:.3f} at worst, aim {aim['least']}{verdict}")
    results.write(args, {
        "meta": simulations.meta("trees", started, list(runs.results.values())),
        **live,
        "workload": BASE | {"load": load, "training": TRAINING, "flats": FLATS},
        "sim": rows, "training": trained, "stragglers": slow, "aims": aims})
    return 0


if __name__ == "__main__":
    command_line.run(main, "bench_trees")
