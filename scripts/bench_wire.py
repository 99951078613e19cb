#!/usr/bin/env python3
"""Compares all-reduce through the switch with OpenMPI and Gloo over TCP, between hosts of their
own, interleaved in one run.

    bench_wire.py --build FOLDER [--ranks 4,2] [--mtus 1500,9000] [--quick] [--rounds N]
                  [--sizes 4096,...] [--lanes N] [--json FILE]

Each rank is a process on a host of its own: a network namespace with an address, joined to the
switch by a veth pair (tests/net/namespaces.py). For each MTU and number of ranks there are several
such networks at once, which differ only in the forwarding part:

    switch            ina-switchd, which aggregates for our workers and forwards for the peers
    kernel            the kernel's bridge
    kernel_offloads   the kernel's bridge, with checksum and segmentation offloads on

--lanes: packet loops of the switches (switch.lcores), and queues of each of their devices, which the
kernel fills by a hash of the flow; without workers on AF_XDP, which take one queue. Where each rank
and each packet loop has a core, ranks spin. In the first two all offloads are off: checksums are
computed and no frame is longer than the MTU, as on a wire. With offloads veth passes TCP's pieces
of 64 KiB from kernel to kernel, without checksums, where NICs would cut them up: this is the
highest speed of the peers on this machine. Ours have no offloads in any network: ina-switchd forwards frames and nothing larger.

As in bench_peers.py all competitors are started at once and sleep while it is not their turn. Our
workers, and a switch without users, poll, and are stopped (SIGSTOP) meanwhile. For each size each
competitor must show that its sums are right in every element; then all are measured in turn, in
rounds. An operation takes from the last rank's arrival at a common start line to the slowest rank's
result; a sample is the median of a turn's operations. The end of the run checks that the switch
absorbed ranks x bytes of all operations, or, if links lost frames, all but 1 %.

--json writes {"meta": ..., "rows": [one object for each MTU, number of ranks, transport, size, and
with and without the peers' offloads]}. Bandwidths are bytes of the vector / median time. `ratio`:
the best peer's time divided by ours in the same round, as the median over the rounds; above 1 ours
is faster. A peer's figure is that of its better path; `ratio_by_path` has all: over `switch` the
peers' frames go through the same program as ours. `forwarding_limit_GBps`: as many frames of the
same size from and to each host by the same transport, but forwarded by the switch to another host
instead of being aggregated.
"""

import contextlib
import os
import shlex
import signal

from bench_wire_report import HEADER, make_row, table_line
from benchlib import command_line, metadata, results, switch, testbed
from benchlib.core_ping import CorePing
from benchlib.errors import BenchError
from benchlib.mpi import AS_ROOT
from benchlib.processes import temporary_folder
from benchlib.teams import Team
from benchlib.testbed import NetworkTestBed, require_root
from benchlib.tournament import Tournament

SIZES_BYTES = [4 << 10, 64 << 10, 1 << 20, 16 << 20]
ROUNDS, QUICK_ROUNDS = 9, 3
TURN_S, QUICK_TURN_S = 0.2, 0.1
# From this size on a turn takes seconds, so there are fewer rounds.
LARGE_BYTES = 16 << 20
LARGE_ROUNDS = 5

# By MTU, for one or two packet loops: the largest slots whose fragments fit a frame; a number of
# slots, and a window, that keep the data under way in the caches of two cores; and rings of the
# switch's ports with room for two windows.
SETTINGS = {
    1500: {"slot_bytes": 1344, "slots": 512, "window": 128, "ring_frames": 256},
    9000: {"slot_bytes": 8192, "slots": 128, "window": 32, "ring_frames": 128},
}


def settings_of(mtu, lanes):
    """Returns SETTINGS for any number of packet loops, each of which has a core with its caches."""
    return {name: number if name == "slot_bytes" else number * max(1, lanes // 2)
            for name, number in SETTINGS[mtu].items()}


def has_cores(ranks, lanes):
    """Whether each rank and each packet loop has a core, and the kernel another one."""
    return os.cpu_count() > ranks + lanes


def config(mtu, lanes):
    """Returns the switch's configuration without its ports."""
    settings = settings_of(mtu, lanes)
    return (f"switch: {{lcores: {lanes}}}\n"
            f"aggregator: {{policy: esa, slot_bytes: {settings['slot_bytes']}, "
            f"slots: {settings['slots']}}}\n"
            f"jobs: {{window_bytes: {settings['window'] * settings['slot_bytes'] >> 10} KiB}}\n")


# How our workers reach the switch: their URL, and the driver of the device that the switch has at its
# end of a host's link. Each transport has a network and a switch of its own; the peers'
# frames go through the first transport's. AF_XDP takes no frames longer than a page.
UDP_URL = "udp:{switch_ip}?control={socket}&port={port}"
TRANSPORTS = {
    "udp": {"url": UDP_URL, "driver": "af_packet", "mtus": [1500, 9000]},
    "udp_xdp": {"url": UDP_URL, "driver": "af_xdp", "mtus": [1500]},
    "af_packet": {"url": "dpdk:{switch_ip}?driver=af_packet&control={socket}&port={port}",
                  "driver": "af_packet", "mtus": [1500, 9000]},
    "af_xdp": {"url": "dpdk:{switch_ip}?device=net_af_xdp0,iface=eth0,busy_budget=0"
                      "&control={socket}&port={port}",
               "driver": "af_xdp", "mtus": [1500], "most_lanes": 1},
}
# The share of contributions that links may lose, and the fallback sums instead.
MOST_LOST = 0.01

# Hosts reach each other over eth0 alone. Where there are more processes than cores, each seems to be
# alone on its host, so OpenMPI must be told to yield.
OPENMPI = ["mpirun.openmpi", "--bind-to", "none", "--mca", "pml", "ob1", "--mca", "btl", "tcp,self",
           "--mca", "btl_tcp_if_include", "eth0", "--mca", "oob_tcp_if_include", "eth0",
           "--mca", "plm", "rsh"]
# Run in a namespace: with a host name of its own OpenMPI takes the namespace for another host.
AS_HOST = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"']
# Replaces ssh: AGENT ADDRESS COMMAND, the command as one text for a shell.
AGENT = """\
#!/bin/sh
address=$1
shift
case $address in
{cases}
*) echo "$0: no host $address" >&2; exit 1 ;;
esac
exec ip netns exec "$namespace" {as_host} "$name" sh -c "$*"
"""


# The forwarding part for the peers, without and with their offloads.
PATHS = {False: ["switch", "kernel"], True: ["kernel_offloads"]}


def forwarding(transport):
    """Returns the name of the contestant that shows a transport's limit."""
    return f"forward_{transport}"


class Bed(NetworkTestBed):
    """A test bed whose switch ports have these settings."""

    def device(self, number):
        device = super().device(number, settings_of(self.mtu, self.queues)["ring_frames"])
        # veth's queues cannot be polled from user space: asking costs a system call for nothing.
        return device + ",busy_budget=0" * (self.driver == "af_xdp")


class Network:
    """Hosts, and the forwarding part between them: ina-switchd for a transport, or the kernel."""

    def __init__(self, build, folder, ranks, mtu, transport=None, offloads=False, lanes=1):
        self.build = build
        self.folder = folder
        folder.mkdir()
        driver = TRANSPORTS[transport]["driver"] if transport else "af_packet"
        self.bed = Bed(ranks, mtu=mtu, offloads=offloads, driver=driver, queues=lanes)
        self.bed.memory_mib *= lanes
        if self.bed.driver == "af_xdp" and lanes > 1:
            self.bed.preload = build / "tests/net/libveth-channels.so"
        if transport is None:
            self.bed.start_kernel_bridge()
        else:
            self.bed.start_switch(build / "switchd/ina-switchd", folder, config(mtu, lanes))

    def wake(self, awake):
        if self.bed.daemon:
            self.bed.daemon.send_signal(signal.SIGCONT if awake else signal.SIGSTOP)

    def url(self, transport, rank):
        return TRANSPORTS[transport]["url"].format(
            switch_ip=self.bed.switch_ip, socket=self.bed.socket, port=self.bed.port(rank))

    def status(self):
        return switch.status(self.build, self.bed.socket)

    def openmpi(self, command):
        """Returns the command of mpirun on the first host, with its way to reach the others."""
        yields = "0" if has_cores(len(self.bed.hosts), self.bed.queues) else "1"
        agent = self.folder / "agent"
        cases = "\n".join(f"{host.ip}) namespace={host.name} name={self.host_name(host)} ;;"
                          for host in self.bed.hosts)
        agent.write_text(AGENT.format(cases=cases, as_host=shlex.join(AS_HOST)), encoding="utf-8")
        agent.chmod(0o700)
        hosts = self.bed.hosts
        return [hosts[0].command(*AS_HOST, self.host_name(hosts[0]), *OPENMPI, "--mca",
                                 "mpi_yield_when_idle", yields, "--mca", "plm_rsh_agent", agent,
                                 "--host",
                                 ",".join(host.ip for host in hosts), "-n", len(hosts), *command)]

    @staticmethod
    def host_name(host):
        return f"host{host.number}"

    def close(self):
        self.wake(True)
        self.bed.close()


class Forwarding(Team):
    """Sends frames to and fro, without sums to check."""

    def check(self, mode, size, collective="allreduce"):
        pass


class Session(Tournament):
    """All competitors with one MTU and one number of ranks."""

    def __init__(self, options, folder, mtu, ranks, ping):
        super().__init__(f"MTU {mtu}, {ranks} ranks", options.turn_s, ping)
        self.options = options
        self.folder = folder
        self.mtu = mtu
        self.ranks = ranks
        self.build = options.build.resolve()
        self.networks = {}
        self.network_of = {}  # by team's name
        self.transports = [name for name, what in TRANSPORTS.items() if mtu in what["mtus"]
                           and options.lanes <= what.get("most_lanes", options.lanes)]

    def start(self):
        for name in self.transports:
            self.add_network(f"switch_{name}", transport=name)
            # A process that takes over an interface must have it exclusively.
            self.add_network(f"switch_forward_{name}", transport=name)
        self.add_network("kernel")
        self.add_network("kernel_offloads", offloads=True)
        for name in self.transports:
            self.add_ours(Team, name, name, "peer_ina", self.networks[f"switch_{name}"])
            self.add_ours(Forwarding, forwarding(name), name, "peer_forward",
                          self.networks[f"switch_forward_{name}"])
        self.add_peers("switch", self.networks[f"switch_{self.transports[0]}"])
        for path in ("kernel", "kernel_offloads"):
            self.add_peers(path, self.networks[path])
        for team in self.teams:
            self.wake(team, False)

    def add_network(self, name, **options):
        self.networks[name] = Network(self.build, self.folder / name, self.ranks, self.mtu,
                                      lanes=self.options.lanes, **options)

    def add_ours(self, kind, name, transport, program, network):
        folder = self.folder / name
        settings = settings_of(self.mtu, self.options.lanes)
        environment = {"INA_JOB": name,
                       "LD_LIBRARY_PATH": str(self.build / "transport/dpdk")}
        if has_cores(self.ranks, self.options.lanes):
            environment["INA_IDLE"] = "spin"

        def launch(command):
            return [host.command(*command, "--url", network.url(transport, rank),
                                 "--rendezvous", folder,
                                 "--slot-bytes", settings["slot_bytes"],
                                 "--window", settings["window"],
                                 "--rank", rank, "--ranks", self.ranks)
                    for rank, host in enumerate(network.bed.hosts)]

        self.network_of[name] = network
        self.enter(kind(name, self.build / "bench/peers" / program, self.ranks, folder, launch,
                        environment, ours=True),
                   lambda mode: name)

    def add_peers(self, path, network):
        def launch_gloo(command):
            return [host.command(*command, "--rendezvous", folder, "--address", host.ip,
                                 "--rank", rank, "--ranks", self.ranks)
                    for rank, host in enumerate(network.bed.hosts)]

        for name, launch, environment in [("openmpi_tcp", network.openmpi, AS_ROOT),
                                          ("gloo", launch_gloo, {})]:
            folder = self.folder / f"{name}_{path}"
            program = "peer_" + name.removesuffix("_tcp")
            team = f"{name}@{path}"
            self.network_of[team] = network
            self.enter(Team(team, self.build / "bench/peers" / program, self.ranks, folder, launch,
                            environment),
                       lambda mode, name=name:
                       f"{name}@{path}" if mode == "plain" else f"{name}_{mode}@{path}")

    def wake(self, team, awake):
        self.network_of[team.name].wake(awake)
        if team.ours:
            for pid in team.pids:
                os.kill(pid, signal.SIGCONT if awake else signal.SIGSTOP)

    @contextlib.contextmanager
    def awake(self, team):
        self.wake(team, True)
        try:
            yield
        finally:
            self.wake(team, False)

    def prepare(self, contestant, size):
        with self.awake(contestant.team):
            super().prepare(contestant, size)

    def turn(self, contestant, size):
        with self.awake(contestant.team):
            return super().turn(contestant, size)

    def measure(self, size):
        """Returns the rows of one size."""
        rounds = self.options.rounds
        if size >= LARGE_BYTES:
            rounds = min(rounds, LARGE_ROUNDS)
        played = self.play(size, rounds)
        return [make_row({"transport": transport, "ranks": self.ranks, "bytes": size,
                          "mtu": self.mtu, "offloads": offloads, **settings_of(self.mtu, self.options.lanes)},
                         transport, forwarding(transport), PATHS[offloads], played, self.lost)
                for transport in self.transports for offloads in (False, True)]

    def check_absorbed(self):
        """Checks that all of our contributions went through the switch. Returns the switches'
        counters."""
        counters = {}
        for team in self.teams:
            if not team.ours or isinstance(team, Forwarding):
                continue
            with self.awake(team):
                status = self.network_of[team.name].status()
            counters[team.name] = {**status["aggregator"],
                                   "contributed_bytes": team.contributed_bytes()}
            lost = status["aggregator"]["fallback_results"] != 0
            switch.check_absorbed(self.where, status["aggregator"]["absorbed_bytes"],
                                  team.contributed_bytes(), MOST_LOST if lost else 0)
        return counters

    def stop(self):
        for team in self.teams:
            with contextlib.suppress(ProcessLookupError):
                self.wake(team, True)
        super().stop()
        for network in self.networks.values():
            network.close()


def main():
    parser = command_line.parser_of(__doc__)
    parser.add_argument("--ranks", default="4,2")
    parser.add_argument("--mtus", default=",".join(map(str, SETTINGS)))
    parser.add_argument("--sizes", help="bytes, e.g. 4096,1048576")
    parser.add_argument("--rounds", type=int)
    switch.add_lanes_option(parser)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    options = command_line.parse(parser)
    options.rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    options.turn_s = QUICK_TURN_S if options.quick else TURN_S
    sizes = [int(size) for size in options.sizes.split(",")] if options.sizes else SIZES_BYTES
    require_root()

    rows, sessions = [], []
    meta = metadata.measured("wire", rounds=options.rounds, lanes=options.lanes, turn_s=options.turn_s,
                             sessions=sessions)
    ping = CorePing(options.build.resolve())
    try:
        print(HEADER)
        for mtu in map(int, options.mtus.split(",")):
            if mtu not in SETTINGS:
                raise BenchError(f"there are no settings for an MTU of {mtu}, only for "
                                 f"{list(SETTINGS)}")
            for ranks in map(int, options.ranks.split(",")):
                with temporary_folder("ina-wire-") as folder:
                    session = Session(options, folder, mtu, ranks, ping)
                    try:
                        session.start()
                        for size in sizes:
                            for row in session.measure(size):
                                rows.append(row)
                                print(table_line(row), flush=True)
                        sessions.append({"mtu": mtu, "ranks": ranks, "config": config(mtu, options.lanes),
                                         "switch": session.check_absorbed(),
                                         "teams": session.describe({folder: "TMP",
                                                                    session.build: options.build})})
                    finally:
                        session.stop()
    finally:
        ping.stop()
    results.write(options, {"meta": meta, "rows": rows})
    return 0


if __name__ == "__main__":
    command_line.run(main, "bench wire", OSError, *testbed.ERRORS)
