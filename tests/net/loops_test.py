#!/usr/bin/env python3
"""Loops outside of the switch: it finds them, blocks a port of each, says so everywhere, and opens
the port when the loop is gone. Jobs and other traffic go on meanwhile.

    loops_test.py INA_SWITCHD INACTL LOAD_WORKER
"""

import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import namespaces
from namespaces import DEADLINE_S, NetworkTestBed, run, wait_until

CONFIG = "aggregator: {slots: 512, slot_bytes: 1024, policy: esa}\n"
FIRST_LOOSE = 2  # the ports without a host: their numbers begin here
LOOSE = 3
# Drops all frames of protocols that it does not know, as some devices do.
NO_PROBES = ("ip link add br0 type bridge", "nft add table bridge t",
             "nft add chain bridge t f '{ type filter hook forward priority 0; }'",
             "nft add rule bridge t f ether type != '{ arp, ip }' drop")


class LoopBed(NetworkTestBed):
    """Two hosts, and ports whose other ends lie loose in a namespace, where cables and switches are
    made of them."""

    def __init__(self, driver):
        super().__init__(hosts=FIRST_LOOSE, driver=driver)
        self.outside = namespaces.Namespace(f"{self._prefix}-out")
        self._others.append(self.outside)
        for number in range(FIRST_LOOSE, FIRST_LOOSE + LOOSE):
            run("ip", "link", "add", f"end{number}", "mtu", self.mtu, "netns", self.outside.name, "type",
                "veth", "peer", "name", self.port(number), "mtu", self.mtu, "netns", self.switch.name)
            for namespace, interface in ((self.outside, f"end{number}"), (self.switch, self.port(number))):
                namespace.run("ethtool", "-K", interface, *namespaces.OFFLOADS_OFF)
                namespace.run("ip", "link", "set", interface, "up")
        self._ports = FIRST_LOOSE + LOOSE

    @contextlib.contextmanager
    def foreign_switch(self, *ends, hairpin=False, first=("ip link add br0 type bridge",)):
        """Joins ports by another switch."""
        for command in first:
            self.outside.run("sh", "-c", command)
        self.outside.run("ip", "link", "set", "br0", "up")
        for end in ends:
            self.outside.run("ip", "link", "set", f"end{end}", "master", "br0")
            if hairpin:
                self.outside.run("bridge", "link", "set", "dev", f"end{end}", "hairpin", "on")
        try:
            yield
        finally:
            self.outside.run("ip", "link", "del", "br0")
            with contextlib.suppress(RuntimeError):
                self.outside.run("nft", "flush", "ruleset")


class Test:
    """The steps share one bed, and run in order."""

    def __init__(self, bed, inactl, load_worker):
        self.bed = bed
        self.inactl = inactl
        self.load_worker = load_worker

    def inactl_says(self, *arguments):
        return run(self.inactl, *arguments, "--socket", self.bed.socket)

    def ports(self):
        return {port["name"]: port for port in self.bed.status(self.inactl)["ports"]
                if port["type"] == "ethdev"}

    def blocked(self):
        return {name for name, port in self.ports().items() if "blocked" in port}

    def expect_open(self):
        wait_until("all ports to be open", lambda: not self.blocked())

    def expect_quiet(self):
        """Frames do not circulate, and hosts reach each other at once."""
        a, b = self.bed.hosts
        a.ping(b.ip)
        before = self.ports()
        a.ping(b.ip)
        time.sleep(0.5)
        after = self.ports()
        moved = sum(after[name]["forwarded"] + after[name]["flooded"] - before[name]["forwarded"] -
                    before[name]["flooded"] for name in after)
        assert moved < 50, f"{moved} frames were forwarded for one ping"

    def check_no_loop_is_seen_where_there_is_none(self):
        wait_until("all links to be up", lambda: all(
            port["link"] == "up" for port in self.ports().values()))
        with self.bed.foreign_switch(2):
            self.expect_quiet()
            assert not self.blocked(), self.ports()

    def check_two_ports_on_one_switch(self):
        a, b = self.bed.hosts
        a.ping(b.ip)
        with self.bed.foreign_switch(2, 3):
            started = time.monotonic()
            wait_until("a port to be blocked", self.blocked)
            print(f"  found within {time.monotonic() - started:.2f} s", flush=True)
            assert self.blocked() == {"port3"}, self.ports()
            self.expect_quiet()
            self.check_said_everywhere("port3", "port2")
            time.sleep(5)
            assert self.ports()["port3"]["blocked_times"] == 1, self.ports()
        self.expect_open()
        wait_until("the log", lambda: "port open again" in self.bed.log())

    def check_said_everywhere(self, port, other):
        wait_until("the log", lambda: f'port blocked port="{port}" with="{other}"' in self.bed.log())
        for words in (("status",), ("port", "show", port), ("why",)):
            said = self.inactl_says(*words)
            assert f"ports {other} and {port} are joined" in said, said
        why = json.loads(self.inactl_says("why", "--json"))
        assert [reason["cause"] for reason in why["switch"]] == ["port_blocked"], why

    def check_three_ports_and_a_port_that_hears_itself(self):
        with self.bed.foreign_switch(2, 3, 4):
            wait_until("two ports to be blocked", lambda: self.blocked() == {"port3", "port4"})
            self.expect_quiet()
        self.expect_open()
        with self.bed.foreign_switch(4, hairpin=True):
            wait_until("the port to be blocked", lambda: self.blocked() == {"port4"})
            self.expect_quiet()
        self.expect_open()

    def check_where_probes_do_not_pass(self):
        a, b = self.bed.hosts
        try:
            self.bed.outside.run("nft", "list", "ruleset")
        except RuntimeError as error:
            print(f"  left out: {error}")
            return
        with self.bed.foreign_switch(2, 3, first=NO_PROBES):
            for host in (a, b):
                host.run("ip", "neighbour", "flush", "dev", "eth0")
            with contextlib.suppress(RuntimeError):
                a.ping(b.ip)  # ARP is flooded
            wait_until("a port to be blocked", self.blocked)
            assert len(self.blocked()) == 1 and self.blocked() <= {"port2", "port3"}, self.ports()
            (port,) = self.blocked()
            assert self.ports()[port]["blocked"]["sign"] == "moves", self.ports()
            self.expect_quiet()
        self.expect_open()

    def check_jobs_go_on(self):
        """All-reduces between the hosts, before, beside and after a loop."""
        with contextlib.ExitStack() as stack:
            workers = []
            for rank, host in enumerate(self.bed.hosts):
                workers.append(host.start(self.load_worker, self.bed.url("udp", host.number), "loops", rank, 2,
                                          16384, -1, stdout=subprocess.PIPE, text=True))
                stack.callback(workers[-1].kill)
            done = lambda: sum(job["results"] + job["fallback_results"]  # noqa: E731
                               for job in self.bed.status(self.inactl)["jobs"])
            wait_until("sums", lambda: done() > 100)
            with self.bed.foreign_switch(2, 3):
                wait_until("a port to be blocked", lambda: self.blocked() == {"port3"})
                seen = done()
                wait_until("sums beside a loop", lambda: done() > seen + 100)
                self.expect_quiet()
            seen = done()
            wait_until("sums after it", lambda: done() > seen + 100)
            workers[0].terminate()
            said = [worker.communicate(timeout=DEADLINE_S)[0] for worker in workers]
            assert all(text.startswith("INA_OK") for text in said), said

    def check_books_balance(self):
        self.expect_open()
        namespaces.check_books(self.bed.status(self.inactl))

    def check_ends_well(self):
        assert self.bed.stop_switch() == 0, self.bed.log()

    def run(self):
        for name in ("no_loop_is_seen_where_there_is_none", "two_ports_on_one_switch",
                     "three_ports_and_a_port_that_hears_itself", "where_probes_do_not_pass", "jobs_go_on",
                     "books_balance", "ends_well"):
            getattr(self, f"check_{name}")()
            print(f"ok {name.replace('_', ' ')}", flush=True)


def main(ina_switchd, inactl, load_worker):
    namespaces.require_root()
    with tempfile.TemporaryDirectory() as folder:
        for driver in ("af_packet", "af_xdp"):
            print(driver)
            with LoopBed(driver) as bed:
                bed.start_switch(pathlib.Path(ina_switchd).resolve(), folder, CONFIG)
                Test(bed, inactl, load_worker).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
