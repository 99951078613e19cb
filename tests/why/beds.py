"""The switches and hosts on which ./dev bench why injects its faults."""

import contextlib
import signal
import socket

from benchlib import testbed
from benchlib.switch import Switch

CONFIG = """\
aggregator: {{policy: {policy}, slots: {slots}, slot_bytes: 1024}}
control: {{socket: "{socket}"}}
ports: [{{name: shm0, type: shm}}]
log: {{level: warning}}
{more}
"""


def local_peer(_rank, pid):
    return f"pid {pid} on {socket.gethostname()}"


class SharedBed:
    """A switch that workers of this host reach over shared memory."""

    def __init__(self, build, folder, policy="esa", slots=4096, more=""):
        self.build, self.folder = build, folder
        folder.mkdir()
        self.values = {"policy": policy, "slots": slots, "more": more}
        self.switch = None
        self.start()

    def start(self):
        self.switch = Switch(self.build, self.folder, CONFIG, **self.values)
        self.switch.wait_until_ready()

    @property
    def socket(self):
        return self.switch.socket

    def url(self, _rank):
        return f"shm:{self.socket}"

    def peer(self, rank, pid):
        return local_peer(rank, pid)

    def command(self, _rank, command):
        return command

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            self.switch.process.send_signal(signal.SIGCONT)
        self.switch.stop()


class NetBed:
    """Three hosts behind the switch's Ethernet ports, one for each rank."""

    MORE = "aggregator: {policy: esa, slots: 4096, slot_bytes: 1024}\n"

    def __init__(self, build, folder):
        self.build, self.folder = build, folder
        folder.mkdir()
        self.net = testbed.NetworkTestBed(3)
        self.start()

    def start(self):
        self.net.start_switch(self.build / "switchd/ina-switchd", self.folder, self.MORE)

    def peer(self, rank, pid):
        """Returns the words by which the switch names a worker."""
        return local_peer(rank, pid)

    @property
    def socket(self):
        return self.net.socket

    def url(self, rank):
        return self.net.url("udp", rank)

    def command(self, rank, command):
        return self.net.hosts[rank].command(*command)

    def host(self, rank, *command):
        self.net.hosts[rank].run(*command)

    def close(self):
        self.net.close()


class ShortQueuesBed(NetBed):
    """The same with ports that hold few frames, which the kernel queues before the link."""

    def start(self):
        device = self.net.device
        self.net.device = lambda number: device(number, frames=64) + ",qdisc_bypass=0"
        super().start()


class RemoteBed(NetBed):
    """The same, and the workers' control connections come by these ports, too: what happens on a
    host is seen as from another machine."""

    def start(self):
        self.net.join_own_kernel()
        self.listens = f"{self.net.kernel_ip}:7583"
        self.net.start_switch(self.build / "switchd/ina-switchd", self.folder, self.MORE,
                              control=f"listen: {self.listens}, allow_anonymous: true")

    def url(self, rank):
        return self.net.url("udp", rank, control=f"tcp:{self.listens}")

    def peer(self, rank, _pid):
        return f"{self.net.hosts[rank].ip}:"


BEDS = {
    "own": {},
    "small": {"policy": "fcfs", "slots": 256},
    # Fewer than the 16 that a worker always has under way.
    "quota": {"slots": 4096, "more": 'tenants: [{name: "*", slots_ceiling: 4}]'},
    "ceiling": {"slots": 4096, "more": "jobs: {slots_ceiling: 4}"},
    "workers": {"more": 'tenants: [{name: "*", workers_max: 2}]'},
    "psd": {"more": "fallback: {home: dedicated}"},
}

NET_BEDS = {"net": NetBed, "remote": RemoteBed, "short-queues": ShortQueuesBed}


def make(kind, build, folder):
    """Returns a bed of a kind."""
    return NET_BEDS[kind](build, folder) if kind in NET_BEDS else SharedBed(build, folder, **BEDS[kind])
