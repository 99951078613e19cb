#!/usr/bin/env python3
"""The cost of strangers and hostile tenants to a job whose switch they send to.

    bench_hostile.py --build FOLDER [--quick] [--packets N] [--rate PPS] [--json FILE]

Two workers (load_worker, which checks every element of every sum) on hosts of their own sum all the
time, over udp: and ina-switchd with AF_PACKET ports (network namespaces joined by veth). An
attacker on a third host sends N frames, the same number of each attack of tests/hostile/attacks.cc,
in slices of some tenths of a second. Each slice of attack has two neighbours, in changing order: a
slice of as many honest frames, and a slice of silence. Honest frames have the same lengths and the
same pace and come from the same host, but belong to a protocol that the switch does not process: it
forwards them to a fourth host. A pair compares the time of a sum in two neighbouring slices. The
slowdown is the median of all pairs less 1, with a bootstrap interval (95 %). Fails if a sum is
wrong, if the job ends, if the frames are slower than MIN_RATE_PPS, if a drop reason that frames can
cause did not occur, or if forged frames count. Needs root. --json writes {"meta", "packets",
"rate_pps", ..., "attacks": [a row for each]}.
"""

import bisect
import json
import random
import statistics
import time

from benchlib import command_line, metadata, results, testbed
from benchlib.errors import BenchError
from benchlib.processes import temporary_folder
from benchlib.stats import median_interval
from benchlib.testbed import require_root, wait_until

# Importable after benchlib.testbed, which adds tests/net to the path.
import hostile
from hostile import Attacker, HostileBed, drops, job, more

PACKETS = 10_000_000
QUICK_PACKETS = 1_000_000
RATE_PPS = 100_000
MIN_RATE_PPS = 50_000
SLICE_PACKETS = 12_000
MAX_TRIPLES = 2500  # longer runs have longer slices, not more of them
SUM_ELEMENTS = 16_384
CONTROL_ATTACK_S = 5
QUICK_CONTROL_ATTACK_S = 2
DRAIN_S = 0.02
LONGEST_SUM_NS = 500_000_000  # a running job has no longer pause
STOP_DEADLINE_S = 60
KINDS = ("quiet", "honest", "hostile")


class Slice:
    """A stretch of time, on the clock of the workers' logs."""

    def __init__(self, attack, start_ns, end_ns, sent=0):
        self.attack = attack
        self.start_ns = start_ns
        self.end_ns = end_ns
        self.sent = sent

    @property
    def seconds(self):
        return (self.end_ns - self.start_ns) * 1e-9

    def sum_ns(self, ends):
        """Returns the time of a sum, from the sums that ended in the slice. None: fewer than two
        did."""
        first = bisect.bisect_left(ends, self.start_ns)
        inside = ends[first:bisect.bisect_right(ends, self.end_ns)]
        return (inside[-1] - inside[0]) / (len(inside) - 1) if len(inside) > 1 else None

    def overlap_ns(self, ends):
        """Returns the time in the slice during which a running job made sums."""
        first = max(0, bisect.bisect_left(ends, self.start_ns) - 1)
        last = bisect.bisect_right(ends, self.end_ns) + 1
        return sum(max(0, min(b, self.end_ns) - max(a, self.start_ns))
                   for a, b in zip(ends[first:last], ends[first + 1:last])
                   if b - a <= LONGEST_SUM_NS)


class Run:
    def __init__(self, bed, attacker, packets, rate_pps):
        self.bed = bed
        self.attacker = attacker
        self.rate_pps = rate_pps
        self.each = -(-packets // len(attacker.attacks))
        in_slice = max(SLICE_PACKETS, packets / MAX_TRIPLES)
        self.rounds = max(1, round(self.each / in_slice))
        self.triples = []  # {kind: Slice}
        self.drops = {name: {} for name in attacker.attacks}
        self.seen = dict.fromkeys(attacker.attacks, 0)
        self.random = random.Random(1)

    def seen_by_port(self, status):
        name = self.bed.port(hostile.ATTACKER)
        return next(port["rx_packets"] for port in status["ports"] if port["name"] == name)

    def slice(self, attack, kind, packets):
        if kind == "quiet":
            start = time.monotonic_ns()
            time.sleep(packets / self.rate_pps)
            return Slice(attack, start, time.monotonic_ns())
        before = self.bed.status()
        done = self.attacker.send(attack, packets, self.rate_pps, honest=kind == "honest")
        time.sleep(DRAIN_S)
        if kind == "hostile":
            after = self.bed.status()
            self.seen[attack] += self.seen_by_port(after) - self.seen_by_port(before)
            for reason, count in more(drops(before), drops(after)).items():
                self.drops[attack][reason] = self.drops[attack].get(reason, 0) + count
        return Slice(attack, done["start_ns"], done["end_ns"], done["sent"])

    def attack(self):
        for number in range(self.rounds):
            packets = self.each // self.rounds + (number < self.each % self.rounds)
            for attack in self.attacker.attacks:
                kinds = self.random.sample(KINDS, len(KINDS))
                self.triples.append({kind: self.slice(attack, kind, packets) for kind in kinds})
            print(f"  round {number + 1} of {self.rounds}", flush=True)

    def sent(self):
        return [triple["hostile"] for triple in self.triples]


def ratios(triples, ends, kind, reference):
    """Returns the time of a sum in slices of kind `kind`, divided by the time in the neighbouring
    slices of kind `reference`."""
    pairs = [(triple[kind].sum_ns(ends), triple[reference].sum_ns(ends)) for triple in triples]
    return [a / b for a, b in pairs if a and b]


def rows_of(run, ends):
    rows = []
    for attack, tenant in run.attacker.attacks.items():
        triples = [triple for triple in run.triples if triple["hostile"].attack == attack]
        slices = [triple["hostile"] for triple in triples]
        compared = ratios(triples, ends, "hostile", "honest")
        rows.append({"name": attack, "by": "tenant" if tenant else "stranger",
                     "packets": sum(one.sent for one in slices), "seen": run.seen[attack],
                     "rate_pps": sum(one.sent for one in slices) / sum(one.seconds
                                                                       for one in slices),
                     "victim_slowdown": statistics.median(compared) - 1 if compared else None,
                     "drops": run.drops[attack]})
    return rows


def attack_control(bed, seconds):
    """Returns a slice in which the attacker floods control.listen, a quiet slice, and the
    attacker's report."""
    quiet_start = time.monotonic_ns()
    time.sleep(seconds)
    start = time.monotonic_ns()
    output = bed.attack_control(seconds).communicate(timeout=seconds + STOP_DEADLINE_S)[0]
    end = time.monotonic_ns()
    return (Slice("control", start, end), Slice("control", quiet_start, start),
            json.loads(output))


def summary(run, ends, control, slowdown_ratios):
    slices = run.sent()
    rows = rows_of(run, ends)
    total = {}
    for row in rows:
        for reason, count in row["drops"].items():
            total[reason] = total.get(reason, 0) + count
    attack_ns = sum(one.end_ns - one.start_ns for one in slices)
    attacked, quiet, did = control
    return {
        "packets": sum(one.sent for one in slices),
        "seen": sum(run.seen.values()),
        "rate_pps": sum(one.sent for one in slices) / (attack_ns * 1e-9),
        "min_rate_pps": MIN_RATE_PPS,
        "overlap_fraction": sum(one.overlap_ns(ends) for one in slices) / attack_ns,
        "victim_correct": True,
        "victim_sums": len(ends),
        "victim_slowdown": statistics.median(slowdown_ratios) - 1,
        "slowdown_interval": [value - 1 for value in median_interval(slowdown_ratios)],
        "pairs": len(slowdown_ratios),
        "victim_slowdown_by_honest_traffic":
            statistics.median(ratios(run.triples, ends, "honest", "quiet")) - 1,
        "victim_slowdown_to_quiet":
            statistics.median(ratios(run.triples, ends, "hostile", "quiet")) - 1,
        "dropped_by_reason": dict(sorted(total.items())),
        "not_reachable": hostile.UNREACHABLE,
        "control": did | {"victim_slowdown_to_quiet":
                          attacked.sum_ns(ends) / quiet.sum_ns(ends) - 1},
        "attacks": rows,
    }


def measure(build, packets, rate_pps, control_s):
    with temporary_folder() as folder, HostileBed() as bed:
        log = folder / "sums"
        bed.start(build / "switchd/ina-switchd", folder)
        victims = [bed.victim(rank, build / "tests/switchd/load_worker", "victim", SUM_ELEMENTS, -1,
                              0, *([log] if rank == 0 else [])) for rank in range(2)]
        wait_until("sums", lambda: bed.status()["aggregator"]["results"] > 1000)
        run = Run(bed, Attacker(bed, build / "tests/hostile/ina-hostile", folder), packets, rate_pps)
        run.attack()
        control = attack_control(bed, control_s)
        forged = job(bed.status(), "tenant-lone")["results"]
        victims[0].terminate()
        for victim in victims:
            text = victim.communicate(timeout=STOP_DEADLINE_S)[0]
            if victim.returncode != 0 or not text.startswith("INA_OK"):
                raise BenchError(f"the victim's job failed: {text}\n{bed.log()}")
        ends = [int(line) for line in log.read_text("utf-8").split()]
        if bed.stop_switch() != 0:
            raise BenchError(f"ina-switchd failed:\n{bed.log()}")
    slowdowns = ratios(run.triples, ends, "hostile", "honest")
    return summary(run, ends, control, slowdowns) | {"forged_sums": forged}


def check(result):
    if forged := result["forged_sums"]:
        raise BenchError(f"{forged} sums were completed by one worker in the name of two")
    if result["rate_pps"] < MIN_RATE_PPS:
        raise BenchError(f"only {result['rate_pps']:.0f} frames a second were sent, not "
                         f"{MIN_RATE_PPS}: is the machine doing other work?")
    missing = set(hostile.reasons()) - set(result["dropped_by_reason"]) - set(hostile.UNREACHABLE)
    if missing:
        raise BenchError(f"no frame was dropped as {', '.join(sorted(missing))}")


def show(result):
    print(f"  {'attack':<18}{'by':<10}{'frames':>10}{'seen':>10}{'slowdown':>10}  drops")
    for row in result["attacks"]:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in row["drops"].items())
        slowdown = "" if row["victim_slowdown"] is None else f"{row['victim_slowdown']:+.1%}"
        print(f"  {row['name']:<18}{row['by']:<10}{row['packets']:>10,}{row['seen']:>10,}"
              f"{slowdown:>10}  {reasons}")
    low, high = result["slowdown_interval"]
    print(f"{result['packets']:,} frames at {result['rate_pps']:,.0f} a second, "
          f"{result['overlap_fraction']:.1%} of the time beside sums; {result['victim_sums']:,} "
          f"sums, all right.\nSlower than beside honest traffic by "
          f"{result['victim_slowdown']:+.1%} "
          f"({low:+.1%} .. {high:+.1%}, {result['pairs']} pairs); honest traffic itself "
          f"{result['victim_slowdown_by_honest_traffic']:+.1%}. Control connections: "
          f"{result['control']['victim_slowdown_to_quiet']:+.1%} to silence.")


def main():
    parser = command_line.parser_of(__doc__)
    parser.add_argument("--packets", type=int, help=f"hostile frames in all ({PACKETS:,})")
    parser.add_argument("--rate", type=int, default=RATE_PPS, help="frames a second")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_PACKETS:,} frames")
    options = command_line.parse(parser)
    require_root()
    packets = options.packets or (QUICK_PACKETS if options.quick else PACKETS)
    meta = metadata.measured("hostile", transport="udp, AF_PACKET ports, veth",
                             honest="frames of the same lengths at the same pace, forwarded "
                                    "by the switch to another host")
    result = measure(options.build.resolve(), packets, options.rate,
                     QUICK_CONTROL_ATTACK_S if options.quick else CONTROL_ATTACK_S)
    show(result)
    results.write(options, {"meta": meta} | result)
    check(result)
    return 0


if __name__ == "__main__":
    command_line.run(main, "bench hostile", *testbed.ERRORS)
