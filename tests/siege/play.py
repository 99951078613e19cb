"""Plays one row: starts the switch and the victim, runs the attack in slices of time, and checks
the state of all parties."""

import bisect
import contextlib
import dataclasses
import random
import time

from bed import DEADLINE_S, MEMORY_MAX, MIB, QUOTA, Bed, BedError
from control import FORGED
from rows import max_map_count

SAMPLE_S = 0.02
DRAIN_S = 0.05
# Memory that may grow beside the quota: connections, buffers of the allocator, page tables.
SLACK = 24 * MIB
LOG_BYTES, LOG_BYTES_PER_S = 64 * 1024, 32 * 1024
RATIO_LIMIT = 2
# The conductor must answer a newcomer within this time, or within RATIO_LIMIT times the slowest
# answer beside the honest user if that is longer.
ANSWER_LIMIT_MS = 250
SERVED_S = 10
KINDS = ("attack", "honest")


@dataclasses.dataclass
class Slice:
    kind: str
    start_ns: int
    end_ns: int
    log_bytes: int
    peak: dict
    outage: tuple = None  # the time in which a restart made the switch unavailable

    @property
    def seconds(self):
        return (self.end_ns - self.start_ns) * 1e-9


def quantile_by_time(spans, quantile=0.99):
    """Returns the time-weighted quantile of the lengths of `spans`, in ms: at this share of all
    moments the current span is no longer than the result. A long pause counts by its length, not as
    one span of thousands."""
    lengths = sorted((end - start for start, end in spans), reverse=True)
    beyond = sum(lengths) * (1 - quantile)
    for length in lengths:
        beyond -= length
        if beyond <= 0:
            return length * 1e-6
    return None


def mean(values):
    """Returns the mean over slices of attack, without the first, in which the attacker also
    started."""
    values = values[1:] or values
    return sum(values) / len(values)


def quantile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * part))] if values else None


class Play:
    def __init__(self, row, build, slice_s, pairs):
        """`pairs`: slices of attack, each next to a slice in which an honest user computes as much
        as the attacker did. 0: one slice of attack, and nothing is timed."""
        self.row = row
        self.build = build
        self.slice_s = slice_s
        self.pairs = pairs
        self.slices = []
        self.problems = []
        self.shares = []  # processor cores that the attacker used
        self.paces = []  # entries a second that the attacker put into its ring
        self.of_switch = {kind: [] for kind in KINDS}  # cores that the switch used
        self.of_psd = {kind: [] for kind in KINDS}  # and the fallback server
        self.lost = False
        self.random = random.Random(1)

    def problem(self, text):
        if text not in self.problems:
            self.problems.append(text)

    def run(self):
        options = dict(self.row.bed)
        if options.get("mapped", 0) < 0:
            options["mapped"] = self.mappings_to_make(-options["mapped"])
        with Bed(self.build, tenants=self.row.tenants, **options) as self.bed:
            self.bed.start_switch()
            self.bed.start_victims()
            self.bed.start_newcomer()
            self.first_sum = self.bed.sums.count()
            self.before = self.bed.resources()
            self.mappings_before = self.bed.mappings()
            self.attacker = (self.bed.attacker(self.row.attack, self.row.options)
                             if self.row.attack else None)
            self.burner = (self.bed.attacker(f"ring:{self.row.honest}", {}, "honest")
                           if self.pairs and self.row.honest else None)
            try:
                self.play_slices()
            except BedError as error:
                self.problem(str(error)[:500])
            return self.result()

    def mappings_to_make(self, left):
        """Returns the number of mappings that leaves `left` of vm.max_map_count to a switch that
        serves a job."""
        with Bed(self.build) as bed:
            bed.start_switch()
            bed.start_victims()
            return max_map_count() - bed.mappings() - left

    def play_slices(self):
        self.slice("attack")
        pairs = self.pairs and (min(self.row.pairs, self.pairs) or self.pairs)
        for _ in range(pairs):
            for kind in self.random.sample(KINDS, len(KINDS)):
                # A broken bed is not worth timing.
                if self.lost or self.bed.switch.poll() is not None:
                    return
                self.slice(kind)

    # ---- slices

    def slice(self, kind):
        by = self.attacker if kind == "attack" else self.burner
        peak = dict.fromkeys(self.before, 0)
        log = self.bed.log_bytes()
        cpu = by.cpu_seconds() if by else 0
        switch_cpu, psd_cpu = self.bed.switch_cpu_seconds(), self.bed.psd_cpu_seconds()
        entries = by.did.get("entries", 0) if by else 0
        start = time.monotonic_ns()
        if kind == "honest" and by:
            by.order(f"share {mean(self.shares):.3f} {mean(self.paces):.0f}")
        if by:
            by.order("begin", wait_s=0)
        outage = self.meanwhile(kind, peak)
        until = start + int(self.slice_s * 1e9)
        give_up = start + int((self.slice_s + self.row.begin_s) * 1e9)
        begun = start
        while time.monotonic_ns() < until or by and by.waits and time.monotonic_ns() < give_up:
            self.sample(peak)
            if by and by.waits:
                by.answered(SAMPLE_S)
                begun = time.monotonic_ns()
            time.sleep(SAMPLE_S)
        if kind == "attack":
            self.see_others_served(begun)
        if by and not by.order("end", DEADLINE_S / 3):
            self.lost = True
            self.problem(f"the attacker is stuck in the switch's hands, or gone: "
                         f"{self.bed.attacker_errors()[-300:]}")
        self.sample(peak)
        end = time.monotonic_ns()
        # Counted after the slice: for 65,000 mappings this takes 30 ms of a core.
        peak["mappings"] = self.bed.mappings() if kind == "attack" else 0
        seconds = (end - start) * 1e-9
        self.of_switch[kind].append((self.bed.switch_cpu_seconds() - switch_cpu) / seconds)
        self.of_psd[kind].append(max(0, self.bed.psd_cpu_seconds() - psd_cpu) / seconds)
        if kind == "attack":
            self.shares.append(((by.cpu_seconds() if by else 0) - cpu) / seconds)
            self.paces.append((by.did.get("entries", 0) - entries if by else 0) / seconds)
        self.slices.append(Slice(kind, start, end, self.bed.log_bytes() - log, peak, outage))
        time.sleep(DRAIN_S)

    def see_others_served(self, begun):
        """Checks, while the attack goes on, that a newcomer and the victim are served. `begun`: when
        the attacker had taken all that it takes."""
        until = time.monotonic() + SERVED_S
        first = self.bed.sums.count()
        while time.monotonic() < until and self.bed.switch.poll() is None:
            served = self.row.crowded or self.bed.newcomer_joined_after(begun)
            if served and self.bed.sums.count() > first:
                return
            time.sleep(SAMPLE_S)
        self.lost = True
        if not served:
            self.problem(f"no newcomer was served within {SERVED_S} s")
        if self.bed.sums.count() == first:
            self.problem(f"the victim's sums stopped for {SERVED_S} s")

    def meanwhile(self, kind, peak):
        """Runs the row's other events in the slice. Returns the time in which the switch was
        unavailable, or None."""
        if self.row.restart and kind == "attack" and self.attacker:
            self.attacker.answered(self.row.begin_s)
        self.sample(peak)
        start = time.monotonic_ns()
        try:
            for text in self.row.alongside(self.bed):
                self.problem(text)
                self.lost = self.lost or self.row.restart
        except Exception as error:  # the row reports it, and the others go on
            self.problem(f"{type(error).__name__}: {str(error)[:300]}")
        return (start, time.monotonic_ns()) if self.row.restart else None

    def sample(self, peak):
        with contextlib.suppress(OSError, TypeError, KeyError, ValueError):
            for what, value in self.bed.resources().items():
                if value is not None:
                    peak[what] = max(peak.get(what, 0), value)

    # ---- results

    def result(self):
        bed = self.bed
        alive = bed.alive()
        if not alive:
            gone = bed.switch.poll() is not None
            self.problem("the switch is gone, or does not answer: " +
                         (bed.switch_errors() if gone else bed.trouble)[-300:])
        for problem in (bed.bridge_problem(), bed.psd_problem()):
            if problem:
                self.problem(problem)
        time.sleep(DRAIN_S)
        trouble = bed.victims_end() if alive else "the switch is gone"
        if trouble:
            self.problem(f"the victim: {trouble[:300]}")
        attacked = [one for one in self.slices if one.kind == "attack"]
        did = dict(self.attacker.did) if self.attacker else {}
        for text in did.pop("broken", []):
            self.problem(text)
        result = {"name": self.row.name, "what": self.row.what, "victim_correct": not trouble,
                  "switch_alive": alive}
        result |= self.times() | self.growth(attacked) | self.newcomers(attacked)
        if text := bed.log_problem(FORGED):
            self.problem(f"the log: {text}")
        result |= {"cgroup": bed.cgroup.path is not None,
                   "attacker_cores": round(mean(self.shares), 3), "attacker": did,
                   **self.switch_cores(), **bed.figures, "control": self.row.control,
                   "held": not self.problems, "problems": self.problems}
        if not bed.cgroup.path:
            result["cgroup_reason"] = bed.cgroup.reason
        return result

    def times(self):
        """Returns figures of the victim's sums, beside an attack and beside an honest user."""
        sums = self.bed.sums.since(self.first_sum)
        ends = [end for _, end in sums]
        found = {}
        for kind in KINDS:
            spans = []
            # The first slice contains the attacker's own start, and is not compared.
            for one in self.slices[1:] if self.pairs else self.slices:
                if one.kind != kind:
                    continue
                inside = sums[bisect.bisect_left(ends, one.start_ns):]
                for start, end in inside:
                    if start > one.end_ns:
                        break
                    # Without a switch there are no sums; that time is reported separately.
                    if one.outage and start < one.outage[1] and end > one.outage[0]:
                        continue
                    spans.append((start, end))
            found[kind] = spans
        key = {"attack": "", "honest": "_before"}
        result = {"victim_sums": len(sums)}
        for kind, spans in found.items():
            result[f"victim_p99_ms{key[kind]}"] = quantile_by_time(spans)
            result[f"victim_max_ms{key[kind]}"] = quantile_by_time(spans, 1)
        after, before = result["victim_p99_ms"], result["victim_p99_ms_before"]
        if after and before:
            result["victim_p99_ratio"] = after / before
            if self.pairs > 1 and after > RATIO_LIMIT * before and not self.row.control:
                self.problem(f"the victim's p99 is {after / before:.1f} times its value before")
        outages = {kind: [one.outage for one in self.slices if one.outage and one.kind == kind]
                   for kind in KINDS}
        if self.row.restart:
            for kind, spans in outages.items():
                result[f"victim_away_ms{key[kind]}"] = quantile_by_time(spans, 1)
        return result

    def switch_cores(self):
        if self.row.restart:  # the switch starts again in the midst of an attack
            return {}
        key = {"attack": "", "honest": "_before"}
        found = {"switch": self.of_switch} | ({"psd": self.of_psd} if self.bed.psd else {})
        return {f"{who}_cores{key[kind]}": round(mean(cores), 3)
                for who, of in found.items() for kind, cores in of.items() if cores}

    def growth(self, attacked):
        def most(what):
            return max((one.peak.get(what, 0) for one in attacked), default=0)
        rss = max(0, most("rss") - self.before["rss"])
        result = {"switch_rss_growth_bytes": rss,
                  "switch_shared_growth_bytes": max(0, most("shared") - self.before["shared"]),
                  "quota_bytes": QUOTA if self.row.tenants else None,
                  "switch_descriptors": most("fds"), "switch_mappings": most("mappings"),
                  "switch_mappings_before": self.mappings_before}
        limit = QUOTA + SLACK if self.row.tenants else MEMORY_MAX
        grown = {"resident memory": rss}
        if "bridge_rss" in self.before:
            bridge = max(0, most("bridge_rss") - self.before["bridge_rss"])
            result |= {"bridge_rss_growth_bytes": bridge, "bridge_descriptors": most("bridge_fds")}
            if bridge > SLACK:
                self.problem(f"the bridge's memory grew by {bridge >> 20} MiB")
        if "psd_rss" in self.before:  # shared with the switch for the most part
            result |= {"psd_rss_growth_bytes": max(0, most("psd_rss") - self.before["psd_rss"]),
                       "psd_threads": most("psd_threads")}
        if self.before["cgroup"] is not None:
            result["cgroup_growth_bytes"] = max(0, most("cgroup") - self.before["cgroup"])
            grown["memory in its cgroup"] = result["cgroup_growth_bytes"]
        for what, value in grown.items():
            if value > limit:
                self.problem(f"the switch's {what} grew by {value >> 20} MiB, beyond the quota")
        seconds = sum(one.seconds for one in attacked)
        log = sum(one.log_bytes for one in attacked)
        result["log_bytes"], result["attack_s"] = log, seconds
        if log > LOG_BYTES + LOG_BYTES_PER_S * seconds:
            self.problem(f"the log grew by {log >> 10} KiB in {seconds:.1f} s")
        return result

    def newcomers(self, attacked):
        """Returns the newcomer's figures, in slices of attack and of honest work."""
        result = {}
        lines = self.bed.newcomer_lines()
        for kind, key in (("attack", ""), ("honest", "_before")):
            own = [line for line in lines if any(
                one.kind == kind and line[1] < one.end_ns and line[2] > one.start_ns and not
                (one.outage and line[1] < one.outage[1] and line[2] > one.outage[0])
                for one in self.slices)]
            for what in ("join", "answer"):
                spans = [(end - start) * 1e-6 for word, start, end, _ in own if word == what]
                result[f"{what}_p50_ms{key}"] = quantile(spans, 0.5)
                result[f"{what}_p99_ms{key}"] = quantile(spans, 0.99)
                result[f"{what}_max_ms{key}"] = quantile(spans, 1)
            failed = [text for word, _, _, text in own if word == "failed"]
            result[f"newcomer_failed{key}"] = len(failed)
            if failed and kind == "attack" and not self.row.crowded:
                self.problem(f"a newcomer was refused {len(failed)} times: {failed[0]}")
        if self.pairs:
            # A newcomer may have to wait for room that there is not.
            kinds = ("answer",) if self.row.crowded else ("join", "answer")
            slowest = max(result[f"{kind}_max_ms"] or 0 for kind in kinds)
            before = max(result[f"{kind}_max_ms_before"] or 0 for kind in kinds)
            if self.pairs > 1 and slowest > max(ANSWER_LIMIT_MS, RATIO_LIMIT * before):
                self.problem(f"the conductor took {slowest:.0f} ms to answer a newcomer")
        return result


