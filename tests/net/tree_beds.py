"""Trees of switches on one machine: each switch has a network namespace, and a veth pair joins it to
the one above.

    with TreeTestBed(ina_switchd, folder) as bed:
        root = bed.add("root", below=True)
        leaf = bed.add("leaf", above=root)

Workers join by shm. Switches reach each other's control sockets by their paths, or, with tcp, over
a network of their own, with a token. Needs root.
"""

import atexit
import json
import os
import pathlib
import signal

from namespaces import OFFLOADS_OFF, Namespace, run
from waiting import DEADLINE_S, wait_until

MTU = 9000
TCP_PORT = 7600
TOKEN = "a-token-of-the-rack"


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
        if self.bed.tcp:
            self._connect_control()
        self.ports.append((up, f"10.78.{net}.1"))
        self.above.ports.append((down, f"10.78.{net}.254"))

    def _connect_control(self):
        near, far = "control", f"control{len(self.above.ports)}"
        run("ip", "link", "add", near, "netns", self.namespace.name, "type", "veth", "peer", "name", far,
            "netns", self.above.namespace.name)
        for namespace, interface, end in ((self.namespace, near, 1), (self.above.namespace, far, 254)):
            namespace.run("ip", "address", "add", f"10.79.{self.number}.{end}/24", "dev", interface)
            namespace.run("ip", "link", "set", interface, "up")

    def _control_keys(self):
        keys = [f"socket: {self.socket}", f"rejoin_timeout: {self.rejoin_timeout_s} s"]
        if self.below and self.bed.tcp:
            keys += [f"listen: 0.0.0.0:{TCP_PORT}", f"token_file: {self.bed.tokens}",
                     "switches_below: 'others, rack'"]
        elif self.below:
            keys.append("switches_below: 'uid:0'")
        return ", ".join(keys)

    def _uplink_keys(self):
        if not self.bed.tcp:
            return f"url: {self.above.socket}, port: up0, port_above: {self.port_above}"
        return (f"url: 'tcp:10.79.{self.number}.254:{TCP_PORT}', token_file: {self.bed.token}, port: up0, "
                f"port_above: {self.port_above}")

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
                 f"control: {{{self._control_keys()}}}",
                 f"eal: {{file_prefix: {self.namespace.name}, huge: no, memory: 256 MiB}}",
                 f"aggregator: {{policy: esa, slots: 256, slot_bytes: {self.slot_bytes}}}",
                 f"jobs: {{window_bytes: {self.window_kib} KiB}}"]
        if self.above:
            lines.append(f"uplink: {{{self._uplink_keys()}}}")
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

    def __init__(self, ina_switchd, folder, tcp=False):
        self.ina_switchd = ina_switchd
        self.folder = pathlib.Path(folder)
        self.tcp = tcp
        self.token, self.tokens = self.folder / "token", self.folder / "tokens"
        for path, text in ((self.token, TOKEN), (self.tokens, f"rack {TOKEN}")):
            path.write_text(f"{text}\n", encoding="utf-8")
            path.chmod(0o600)
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
