"""Trees of switches on one machine: each switch has a network namespace, and a veth pair joins it to
the one above.

    with TreeTestBed(ina_switchd, folder) as bed:
        root = bed.add("root", below=True)
        leaf = bed.add("leaf", above=root)

Workers join by shm. Switches reach each other's control sockets by their paths. Needs root.
"""

import atexit
import json
import os
import pathlib
import signal

from namespaces import OFFLOADS_OFF, Namespace, run
from waiting import DEADLINE_S, wait_until

MTU = 9000


class Switch:
    """A switch, its namespace and its files."""

    def __init__(self, bed, name, above, below, more):
        self.bed, self.name, self.above = bed, name, above
        self.folder = bed.folder / name
        self.folder.mkdir()
        self.number = len(bed.switches)
        self.namespace = Namespace(f"{bed.prefix}-{name}")
        self.daemon = None
        self.ports = []  # name and address
        self.rejoin_timeout_s = 30
        self.slot_bytes = 1024
        self.window_kib = 128
        self.more = more
        self.below = below
        if above:
            self._connect()

    def _connect(self):
        up, down = "up0", f"down{len(self.above.ports)}"
        net = self.number
        run("ip", "link", "add", up, "mtu", MTU, "netns", self.namespace.name, "type", "veth",
            "peer", "name", down, "mtu", MTU, "netns", self.above.namespace.name)
        for namespace, interface in ((self.namespace, up), (self.above.namespace, down)):
            namespace.run("ethtool", "-K", interface, *OFFLOADS_OFF)
            namespace.run("ip", "link", "set", interface, "up")
        self.port_above = down
        self.ports.append((up, f"10.78.{net}.1"))
        self.above.ports.append((down, f"10.78.{net}.254"))

    @property
    def socket(self):
        """Its control socket."""
        return self.folder / "switch.sock"

    @property
    def url(self):
        """The URL of workers by shm."""
        return f"shm:{self.socket}"

    def config(self):
        """Returns its configuration."""
        lines = [f"log: {{file: {self.folder / 'log'}}}",
                 f"control: {{socket: {self.socket}, rejoin_timeout: {self.rejoin_timeout_s} s"
                 + (", switches_below: 'uid:0'}" if self.below else "}"),
                 f"eal: {{file_prefix: {self.namespace.name}, huge: no, memory: 256 MiB}}",
                 f"aggregator: {{policy: esa, slots: 256, slot_bytes: {self.slot_bytes}}}",
                 f"jobs: {{window_bytes: {self.window_kib} KiB}}"]
        if self.above:
            lines.append(f"uplink: {{url: {self.above.socket}, port: up0, port_above: {self.port_above}}}")
        lines.append("ports:\n  - {name: shm0, type: shm}")
        for index, (name, ip) in enumerate(self.ports):
            device = (f"net_af_packet{index},iface={name},qpairs=1,blocksz=65536,framesz=16384,"
                      "framecnt=512")
            lines.append(f"  - {{name: {name}, type: ethdev, ip: {ip}, mtu: {MTU}, "
                         f'device: "{device}"}}')
        return "\n".join([*lines, self.more, ""])

    def start(self):
        """Starts it, and waits until it serves."""
        (self.folder / "log").unlink(missing_ok=True)
        config = self.folder / "switchd.yaml"
        config.write_text(self.config(), encoding="utf-8")
        with open(self.folder / "stderr", "wb") as stderr:
            self.daemon = self.namespace.start(self.bed.ina_switchd, "--config", config,
                                               stderr=stderr)
        wait_until(f"switch {self.name} to serve", self._serves)
        return self

    def _serves(self):
        if self.daemon.poll() is not None:
            said = (self.folder / "stderr").read_text(encoding="utf-8")
            raise RuntimeError(f"{self.name} ended with {self.daemon.returncode}:\n{said}{self.log()}")
        return " serving " in self.log()

    def log(self):
        """Returns its log."""
        log = self.folder / "log"
        return log.read_text(encoding="utf-8") if log.exists() else ""

    def status(self, inactl, *options):
        """Returns the output of `inactl status --json`."""
        return json.loads(run(inactl, "status", "--json", *options, "--socket", self.socket))

    def stop(self, by=signal.SIGTERM):
        """Ends it, and returns its exit status."""
        self.daemon.send_signal(by)
        return self.daemon.wait(DEADLINE_S)


class TreeTestBed:
    """The switches of a tree; close() ends and removes everything."""

    _made = 0

    def __init__(self, ina_switchd, folder):
        self.ina_switchd = ina_switchd
        self.folder = pathlib.Path(folder)
        self.prefix = f"inat-{os.getpid()}-{TreeTestBed._made}"
        TreeTestBed._made += 1
        self.switches = []
        atexit.register(self.close)

    def add(self, name, above=None, below=False, more=""):
        """Adds a switch, which start() starts. `below`: others may be below it."""
        self.switches.append(Switch(self, name, above, below, more))
        return self.switches[-1]

    def start(self):
        """Starts all switches."""
        for switch in self.switches:
            switch.start()

    def close(self):
        """Ends all processes, and removes the namespaces. May be called again."""
        for switch in self.switches:
            switch.namespace.close()
        self.switches = []
        atexit.unregister(self.close)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()
