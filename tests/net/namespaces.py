"""A network of hosts on one machine, for tests that send real frames: network namespaces joined by
veth pairs.

    with NetworkTestBed(hosts=2) as bed:
        bed.start_switch(ina_switchd, folder)
        bed.hosts[0].run("ping", "-c", "1", bed.hosts[1].ip)

Every host has one interface, eth0, whose other end, port0, port1, ..., is in the namespace of the
switch. Nothing else is connected to any of them. Needs root. close() removes everything that was
made; the end of the process, SIGTERM and SIGINT call it if necessary.
"""

import atexit
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

from waiting import DEADLINE_S, wait_until  # noqa: E402

SKIPPED = 77  # meson's status for a skipped test
OFFLOADS_OFF = ("tx", "off", "gso", "off", "tso", "off", "gro", "off")


def require_root():
    """Ends the program as skipped if namespaces cannot be made."""
    if os.geteuid() != 0:
        print("skipped: network namespaces need root")
        sys.exit(SKIPPED)


def run(*command, **options):
    """Runs a command to its end, and returns its output. An error contains the output."""
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=options.pop("timeout", DEADLINE_S),
                          check=False, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit status {done.returncode}\n"
                           f"{done.stdout}{done.stderr}")
    return done.stdout


# A TAP interface whose frames leave by another interface with a tag, as with the kernel's VLANs.
TAGGER = """
import fcntl, os, select, socket, struct, sys
TUNSETIFF, IFF_TAP_NO_PI = 0x400454CA, 0x1002
SO_RCVBUFFORCE, SOL_PACKET, PACKET_AUXDATA, OUTGOING, TAG_IS_VALID = 33, 263, 8, 4, 0x10
below, above, vlan = sys.argv[1], sys.argv[2], int(sys.argv[3])
tap = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH", above.encode(), IFF_TAP_NO_PI))
packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
packets.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 22)
packets.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
packets.bind((below, 3))
print("ready", flush=True)
while True:
    for readable in select.select([tap, packets], [], [])[0]:
        try:
            if readable is tap:
                frame = os.read(tap, 20000)
                packets.send(frame[:12] + struct.pack(">HH", 0x8100, vlan) + frame[12:])
                continue
            frame, extra, _, sender = packets.recvmsg(20000, 100)
            status, _, _, _, _, tci, tpid = struct.unpack("=IIIHHHH", extra[0][2])
            if sender[2] != OUTGOING and status & TAG_IS_VALID and tci & 0xFFF == vlan:
                os.write(tap, frame)
        except OSError:
            pass  # an interface that is down loses frames
"""


class Namespace:
    """A network namespace and the processes in it."""

    def __init__(self, name):
        self.name = name
        self.processes = []
        run("ip", "netns", "add", name)
        # Unrequested messages to routers and neighbours would change the counters.
        self.run("sh", "-c", "for i in all default; do"
                 " [ ! -e /proc/sys/net/ipv6 ] || echo 1 >/proc/sys/net/ipv6/conf/$i/disable_ipv6;"
                 " done")
        self.run("ip", "link", "set", "lo", "up")

    def command(self, *command):
        return ["ip", "netns", "exec", self.name, *map(str, command)]

    def run(self, *command, **options):
        return run(*self.command(*command), **options)

    def start(self, *command, **options):
        """Starts a process, which close() ends if it still runs then. `ip netns exec` becomes the
        command."""
        process = subprocess.Popen(self.command(*command), **options)
        self.processes.append(process)
        return process

    def python(self, program, *arguments, **options):
        """Starts a Python program given as text; its output is text in a pipe."""
        return self.start(sys.executable, "-c", program, *arguments, stdout=subprocess.PIPE,
                          text=True, **options)

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()
        self.processes.clear()
        # Also end processes that these have started and left behind. `ip` looks at every process of
        # the machine, and may hang at one that is not ours.
        with contextlib.suppress(subprocess.TimeoutExpired):
            strays = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True,
                                    text=True, check=False, timeout=DEADLINE_S).stdout
            for pid in map(int, strays.split()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True, check=False)


class Host(Namespace):
    """A namespace with an address on the switch's network."""

    interface = "eth0"

    def __init__(self, name, number, mtu):
        super().__init__(name)
        self.number = number
        self.ip = f"10.77.0.{number + 1}"
        self.mac = f"02:77:00:00:00:{number + 1:02x}"
        self.mtu = mtu

    def join_vlan(self, vlan, ip):
        """Gives the host an interface eth0.<vlan>, at `ip`, for frames with that tag: the kernel's,
        or, if the kernel has none, a replacement."""
        name = f"{self.interface}.{vlan}"
        try:
            self.run("ip", "link", "add", "link", self.interface, "name", name, "type", "vlan", "id",
                     vlan)
        except RuntimeError:
            tagger = self.python(TAGGER, self.interface, name, vlan)
            assert tagger.stdout.readline() == "ready\n"
            self.run("ip", "link", "set", name, "address", self.mac, "mtu", self.mtu)
        self.run("ip", "address", "add", f"{ip}/24", "dev", name)
        self.run("ip", "link", "set", name, "up")

    def ping(self, address, *options):
        """Pings at most five times, until one answer arrives."""
        return self.run("ping", "-n", "-c", "1", "-w", "5", *options, address)


def check_books(status):
    """Checks that every received frame is in one counter, and that frames which ports handed over
    were sent or lost. `status` is that of a switch with a quiet network. Returns the Ethernet ports
    by name."""
    ports = {port["name"]: port for port in status["ports"] if port["type"] == "ethdev"}
    on_output = {"too_long", "tx_full", "no_buffer"}
    for name, port in ports.items():
        dropped = sum(n for reason, n in port["drops"].items() if reason not in on_output)
        fates = [port[key] for key in ("delivered", "answered", "forwarded", "flooded")]
        assert port["rx_packets"] == sum(fates) + dropped, (name, port)
    handed = sum(port["forwarded"] + port["flood_copies"] for port in ports.values())
    taken = sum(port["bridged_sent"] + port["bridged_lost"] for port in ports.values())
    assert handed == taken, ports
    return ports


class NetworkTestBed:
    """Hosts and a namespace for the switch, all links up, without offloads: checksums are real and
    no frame is longer than the MTU, as on a wire."""

    switch_ip = "10.77.0.254"
    kernel_ip = "10.77.0.253"
    kernel_interface = "ina0"

    def __init__(self, hosts, mtu=1500, offloads=False, driver="af_packet", queues=1):
        """`driver`: the driver of the switch's ports, af_packet or af_xdp."""
        self._prefix = f"ina-{os.getpid()}-{NetworkTestBed._made}"
        NetworkTestBed._made += 1
        self.mtu = mtu
        self.driver = driver
        self.queues = queues  # of each of the switch's devices
        self.preload = None  # a library for the switch
        self.memory_mib = 192  # of the switch, for DPDK
        self.port_keys = {}  # by number: YAML of a port's address and further keys
        self.hosts = []
        self.switch = None
        self._others = []
        self._rack = None
        self.daemon = None
        self._folder = None
        self._ports = hosts
        self._tap = False
        atexit.register(self.close)
        for number in (signal.SIGTERM, signal.SIGINT):
            # An exit by signal runs no atexit functions; an exception does.
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                signal.signal(number, lambda caught, frame: sys.exit(128 + caught))
        try:
            self.switch = Namespace(f"{self._prefix}-sw")
            # The kernel answers for its address only behind that address's own interface. By
            # default it would answer behind each of the switch's ports, and hear hosts past the
            # switch.
            self.switch.run("sh", "-c", "echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore")
            for number in range(hosts):
                self.hosts.append(Host(f"{self._prefix}-h{number}", number, mtu))
                self._connect(self.hosts[-1], offloads)
        except BaseException:
            self.close()
            raise

    _made = 0

    def _connect(self, host, offloads):
        port = self.port(host.number)
        # What a host sends by one of its queues arrives in the same one of the port.
        queues = self.queues if self.driver == "af_xdp" else 1
        many = ("numtxqueues", queues, "numrxqueues", queues) if queues > 1 else ()
        run("ip", "link", "add", host.interface, "address", host.mac, "mtu", self.mtu, *many,
            "netns", host.name, "type", "veth", "peer", "name", port, "mtu", self.mtu, *many,
            "netns", self.switch.name)
        host.run("ip", "address", "add", f"{host.ip}/24", "dev", host.interface)
        for namespace, interface in ((host, host.interface), (self.switch, port)):
            if not offloads:
                namespace.run("ethtool", "-K", interface, *OFFLOADS_OFF)
            namespace.run("ip", "link", "set", interface, "up")

    @staticmethod
    def port(number):
        """Returns the switch's interface to a host."""
        return f"port{number}"

    def device(self, number, frames=512):
        """Returns DPDK's arguments for a device at the switch's interface to a host. `frames`:
        AF_PACKET's room in each direction."""
        if self._tap and number == len(self.hosts):
            return f"net_tap0,iface={self.kernel_interface},mac=02:77:00:00:00:fd"
        if self.driver == "af_xdp":
            return f"net_af_xdp{number},iface={self.port(number)},queue_count={self.queues}"
        # framesz: a frame and its headers fit; blocks are whole frames and whole pages.
        frame_bytes = max(2048, (self.mtu + 128 + 1023) // 1024 * 1024)
        block_bytes = frame_bytes * (32 if frame_bytes == 2048 else 4)
        return (f"net_af_packet{number},iface={self.port(number)},qpairs={self.queues},"
                f"blocksz={block_bytes},framesz={frame_bytes},framecnt={frames}")

    def port_options(self, number):
        """Returns more keys of a port, each after a comma."""
        return ""

    def ports_yaml(self):
        """Returns the configuration's section with the shm port and a port for each host."""
        lines = ["ports:", "  - {name: shm0, type: shm}"]
        for number in range(self._ports):
            keys = self.port_keys.get(number, f"ip: {self.switch_ip}")
            lines.append(f"  - {{name: {self.port(number)}, type: ethdev, {keys}, "
                         f'mtu: {self.mtu}, device: "{self.device(number)}"'
                         f"{self.port_options(number)}}}")
        return "\n".join(lines) + "\n"

    def join_own_kernel(self, tap=False):
        """Makes the kernel of the switch's own machine one more host of the network, at kernel_ip:
        by a veth pair whose other end is one of the switch's ports, or by a port that is a TAP
        device."""
        near, far = self.kernel_interface, self.port(len(self.hosts))
        if tap:
            self.switch.run("ip", "tuntap", "add", near, "mode", "tap", "multi_queue", "pi")
            self.switch.run("ip", "link", "set", near, "mtu", self.mtu)
        else:
            self.switch.run("ip", "link", "add", near, "mtu", self.mtu, "type", "veth", "peer",
                            "name", far, "mtu", self.mtu)
            for interface in (near, far):
                self.switch.run("ethtool", "-K", interface, *OFFLOADS_OFF)
            self.switch.run("ip", "link", "set", far, "up")
        self.switch.run("ip", "address", "add", f"{self.kernel_ip}/24", "dev", near)
        self.switch.run("ip", "link", "set", near, "up")
        self._tap = tap
        self._ports = len(self.hosts) + 1

    def url(self, transport, number, control=None, name_port=True):
        """Returns the URL by which a worker on a host reaches the switch, by udp, af_packet or
        af_xdp. `control`: the control connection; if not given, the switch's socket."""
        scheme, more = ("udp", "") if transport == "udp" else ("dpdk", f"driver={transport}&")
        port = f"&port={self.switch_port(number)}" if name_port else ""
        return f"{scheme}:{self.switch_ip}?{more}control={control or self.socket}{port}"

    def start_kernel_bridge(self):
        """Lets the kernel of the switch's machine forward between the hosts, instead of a
        switch."""
        self.switch.run("ip", "link", "add", "bridge0", "type", "bridge")
        for host in self.hosts:
            self.switch.run("ip", "link", "set", self.port(host.number), "master", "bridge0")
        self.switch.run("ip", "link", "set", "bridge0", "up")

    def share_link(self, rate_mbit, queue_bytes):
        """Puts all hosts behind one of the switch's ports, port0: a plain Ethernet switch collects
        their frames, and forwards them at this rate, after a queue of this size."""
        rack = Namespace(f"{self._prefix}-rack")
        self._others.append(rack)
        rack.run("ip", "link", "add", "rack", "type", "bridge")
        rack.run("ip", "link", "set", "rack", "up")
        for host in self.hosts:
            far = self.port(host.number)
            self.switch.run("ip", "link", "set", far, "netns", rack.name)
            rack.run("ip", "link", "set", far, "master", "rack", "up")
        rack.run("ip", "link", "add", "uplink", "mtu", self.mtu, "type", "veth", "peer", "name",
                 self.port(0), "mtu", self.mtu, "netns", self.switch.name)
        for namespace, interface in ((rack, "uplink"), (self.switch, self.port(0))):
            namespace.run("ethtool", "-K", interface, *OFFLOADS_OFF)
            namespace.run("ip", "link", "set", interface, "up")
        rack.run("ip", "link", "set", "uplink", "master", "rack")
        rack.run("tc", "qdisc", "add", "dev", "uplink", "root", "tbf", "rate", f"{rate_mbit}mbit",
                 "burst", max(16 * 1024, rate_mbit * 1000 // 8), "limit", queue_bytes)
        self._rack = rack
        self._ports = 1

    def switch_port(self, number):
        """Returns the switch's port to this host."""
        return self.port(0 if self._rack else number)

    def lost_on_shared_link(self):
        """Returns the number of frames that found the shared link's queue full."""
        rows = json.loads(self._rack.run("tc", "-s", "-j", "qdisc", "show", "dev", "uplink"))
        return rows[0]["drops"]

    def start_switch(self, ina_switchd, folder, more="", control=""):
        """Starts ina-switchd between the hosts and waits until it serves. `folder`: for its files;
        `more`: sections of its configuration; `control`: keys of that section."""
        self._folder = pathlib.Path(folder)
        (self._folder / "log").unlink(missing_ok=True)
        config = self._folder / "switchd.yaml"
        config.write_text(f"log: {{file: {self._folder / 'log'}}}\n"
                          f"control: {{socket: {self.socket}, {control}}}\n"
                          f"eal: {{file_prefix: {self._prefix}, huge: no, memory: {self.memory_mib} MiB}}\n"
                          f"{self.ports_yaml()}{more}", encoding="utf-8")
        preload = ["env", f"LD_PRELOAD={self.preload}"] if self.preload else []
        with open(self._folder / "stderr", "wb") as stderr:
            self.daemon = self.switch.start(*preload, ina_switchd, "--config", config, stderr=stderr)
        wait_until("ina-switchd to serve", self._serves)

    @property
    def socket(self):
        """The switch's control socket."""
        return self._folder / "switch.sock"

    def log(self):
        log = self._folder / "log"
        return log.read_text(encoding="utf-8") if log.exists() else ""

    def _serves(self):
        if self.daemon.poll() is not None:
            said = (self._folder / "stderr").read_text(encoding="utf-8")
            raise RuntimeError(f"ina-switchd ended with {self.daemon.returncode}:\n{said}{self.log()}")
        return " serving " in self.log()

    def status(self, inactl):
        """Returns the output of `inactl status --json`."""
        return json.loads(run(inactl, "status", "--json", "--socket", self.socket))

    def stop_switch(self):
        """Stops the switch, and returns its exit status."""
        self.daemon.send_signal(signal.SIGTERM)
        return self.daemon.wait(DEADLINE_S)

    def close(self):
        """Ends all processes in the namespaces, and removes the namespaces. May be called again."""
        for namespace in [*self.hosts, *self._others, *([self.switch] if self.switch else [])]:
            namespace.close()
        self.hosts = []
        self._others = []
        self.switch = None
        atexit.unregister(self.close)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()
