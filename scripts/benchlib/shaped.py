"""Hosts whose links tbf shapes, at rates that may change while frames are in transit."""

import json
import threading
import time

from benchlib.errors import BenchError
from benchlib.testbed import NetworkTestBed

BURST_BYTES = 8 * 1514


class ShapedBed(NetworkTestBed):
    """Links with the same rate in both directions. The switch's frames pass the kernel's queue,
    too."""

    def __init__(self, hosts, rate_mbit, queue_ms, uplink_queue_ms=None):
        """`queue_ms`: the length of a link's queue at the full rate, beyond which frames are
        dropped. `uplink_queue_ms`: the same for the queue at the host's end; `queue_ms` if it is
        not given."""
        super().__init__(hosts=hosts)
        self.rate_mbit = rate_mbit
        self._queue_bytes = rate_mbit * 125 * queue_ms
        self._uplink_queue_bytes = rate_mbit * 125 * (uplink_queue_ms or queue_ms)
        for host in self.hosts:
            host.run("tc", *self.uplink_command(host, "add", rate_mbit))
            self.switch.run("tc", "qdisc", "add", "dev", self.port(host.number), "root", "tbf",
                            "rate", f"{rate_mbit}mbit", "burst", BURST_BYTES, "limit",
                            self._queue_bytes)

    def uplink_command(self, host, verb, rate_mbit):
        """Returns tc's arguments for a host's link towards the switch; `verb`: add or change."""
        return ["qdisc", verb, "dev", host.interface, "root", "tbf", "rate",
                f"{round(rate_mbit * 1000)}kbit", "burst", str(BURST_BYTES), "limit",
                str(self._uplink_queue_bytes)]

    def device(self, number, frames=512):
        return super().device(number, frames) + ",qdisc_bypass=0"

    def dropped(self):
        """Returns the number of frames that found a link's queue full, since the bed was made."""
        found = 0
        for namespace, links in [(self.switch, [self.port(h.number) for h in self.hosts])] + \
                [(host, [host.interface]) for host in self.hosts]:
            for link in links:
                rows = json.loads(namespace.run("tc", "-s", "-j", "qdisc", "show", "dev", link))
                found += rows[0]["drops"]
        return found

    def uplinks(self, hosts):
        """Returns these hosts' links towards the switch, whose rates may be changed."""
        return Uplinks(self, hosts)


class Uplinks:
    """A `with` block in which rates change. Each host has one tc that waits for changes, because
    starting a tc takes longer than a short turn."""

    def __init__(self, bed, hosts):
        self.bed = bed
        self.hosts = list(hosts)

    def __enter__(self):
        self._tc = [host.start("tc", "-force", "-batch", "-", stdin=-1, stderr=-1, text=True)
                    for host in self.hosts]
        self._stop = threading.Event()
        self._thread = None
        return self

    def set_rate(self, index, part):
        """Sets `part` of the full rate, from now on."""
        tc = self._tc[index]
        words = self.bed.uplink_command(self.hosts[index], "change", self.bed.rate_mbit * part)
        tc.stdin.write(" ".join(words) + "\n")
        tc.stdin.flush()

    def rotate(self, factor, period_s, phase):
        """Slows one host after the other by `factor` for a period, until the block ends. `phase`:
        the part of the round, 0 to 1, at which the rotation begins."""
        def turns():
            begun = time.monotonic() - phase * period_s * len(self.hosts)
            slow = None
            while True:
                turn = int((time.monotonic() - begun) / period_s)
                if slow is not None:
                    self.set_rate(slow, 1)
                slow = turn % len(self.hosts)
                self.set_rate(slow, 1 / factor)
                if self._stop.wait(max(0.0, begun + (turn + 1) * period_s - time.monotonic())):
                    return self.set_rate(slow, 1)
        self._thread = threading.Thread(target=turns)
        self._thread.start()

    def __exit__(self, error, *_):
        self._stop.set()
        if self._thread:
            self._thread.join()
        for index in range(len(self.hosts)):
            self.set_rate(index, 1)
        said = "".join(tc.communicate()[1] for tc in self._tc).strip()
        if said and error is None:
            raise BenchError(f"tc: {said}")
