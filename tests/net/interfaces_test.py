#!/usr/bin/env python3
"""Interfaces that go and come back: the switch's ports follow them, jobs go on, and frames that were
lost before a port are counted. An interface is one port's alone. Tags stay what they were.

    interfaces_test.py INA_SWITCHD INACTL LOAD_WORKER
"""

import contextlib
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import namespaces
from namespaces import DEADLINE_S, OFFLOADS_OFF, NetworkTestBed, run, wait_until

CONFIG = "aggregator: {slots: 512, slot_bytes: 1024, policy: esa}\n"
PORT, ENTRY = "port1", 1  # the port that goes, and its number

# Sends a frame with each tag. Other hosts' kernels ignore its protocol.
SEND_TAGS = """
import socket, sys
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as packets:
    packets.bind(("eth0", 0))
    to, sender = (bytes.fromhex(mac.replace(":", "")) for mac in sys.argv[1:3])
    for number, tags in enumerate(sys.argv[3:]):
        packets.send(to + sender + bytes.fromhex(tags) + bytes.fromhex("88b5") + bytes([number] * 100))
"""

# Sends as many frames of a protocol that nobody answers.
FLOOD = """
import socket, sys
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as packets:
    packets.bind(("eth0", 0))
    to, sender = (bytes.fromhex(mac.replace(":", "")) for mac in sys.argv[1:3])
    for _ in range(int(sys.argv[3])):
        packets.send(to + sender + bytes.fromhex("88b5") + bytes(100))
"""

# The kernel removes the outermost tag before it delivers the frame, but reports it.
RECEIVE_TAGS = """
import socket, struct, sys
SOL_PACKET, PACKET_AUXDATA = 263, 8
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as packets:
    packets.bind(("eth0", 3))
    packets.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
    print("ready", flush=True)
    for number in range(int(sys.argv[1])):
        while True:
            frame, extra, _, sender = packets.recvmsg(2000, 100)
            if frame[-100:] == bytes([number] * 100) and sender[2] != 4:
                break
        status, _, _, _, _, tci, tpid = struct.unpack("=IIIHHHH", extra[0][2])
        tags = frame[12:-100]
        if status & 0x10:
            tags = struct.pack(">HH", tpid, tci) + tags
        print(tags[:-2].hex() or "none", flush=True)
"""


class Test:
    """The steps share one bed, and run in order."""

    def __init__(self, bed, ina_switchd, inactl, load_worker, folder):
        self.bed = bed
        self.ina_switchd = ina_switchd
        self.inactl = inactl
        self.load_worker = load_worker
        self.folder = pathlib.Path(folder)

    def port(self):
        return next(port for port in self.bed.status(self.inactl)["ports"] if port["name"] == PORT)

    def results(self):
        return sum(job["results"] + job["fallback_results"]
                   for job in self.bed.status(self.inactl)["jobs"])

    def remake(self, mac="02:99:00:00:00:01"):
        """The veth pair again, with other addresses at the switch's end."""
        host = self.bed.hosts[ENTRY]
        run("ip", "link", "add", host.interface, "address", host.mac, "mtu", self.bed.mtu, "netns", host.name,
            "type", "veth", "peer", "name", PORT, "mtu", self.bed.mtu, "address", mac, "netns",
            self.bed.switch.name)
        host.run("ip", "address", "add", f"{host.ip}/24", "dev", host.interface)
        for namespace, interface in ((host, host.interface), (self.bed.switch, PORT)):
            namespace.run("ethtool", "-K", interface, *OFFLOADS_OFF)
            namespace.run("ip", "link", "set", interface, "up")

    def expect_back(self, lines):
        """The port works: for pings, and for the job."""
        wait_until("the link", lambda: self.port()["link"] == "up")
        wait_until("the log", lambda: self.bed.log().count("interface back") == lines)
        a, b = self.bed.hosts
        for host in (a, b):
            host.run("ip", "neighbour", "flush", "all")
        wait_until("an answer", lambda: self.answers(a, b.ip))
        wait_until("an answer of the switch", lambda: self.answers(b, self.bed.switch_ip))
        seen = self.results()
        wait_until("sums", lambda: self.results() > seen + 100)

    @staticmethod
    def answers(host, address):
        with contextlib.suppress(RuntimeError):
            return host.ping(address)
        return None

    def check_removed_and_made_again(self):
        for number in (1, 2):
            self.bed.switch.run("ip", "link", "del", PORT)
            wait_until("the interface to be gone", lambda: self.port()["link"] == "gone")
            assert PORT in self.port()["gone"], self.port()
            for words in (("status",), ("why",), ("port", "show", PORT)):
                said = run(self.inactl, *words, "--socket", self.bed.socket)
                assert f"its interface {PORT} is gone" in said, said
            reloaded = run(self.inactl, "reload", "--socket", self.bed.socket)
            assert f"its interface {PORT} is gone" in reloaded, reloaded
            self.remake(mac=f"02:99:00:00:00:{number:02x}")
            self.expect_back(number)
            assert "gone" not in self.port(), self.port()
        reloaded = run(self.inactl, "reload", "--socket", self.bed.socket)
        assert "gone" not in reloaded, reloaded

    def check_removed_and_made_again_at_once(self):
        self.bed.switch.run("ip", "link", "del", PORT)
        self.remake()
        self.expect_back(3)

    def check_in_another_namespace_and_back(self):
        other = namespaces.Namespace(f"{self.bed.switch.name}-other")
        try:
            self.bed.switch.run("ip", "link", "set", PORT, "netns", other.name)
            other.run("ip", "link", "set", PORT, "netns", self.bed.switch.name)
            self.bed.switch.run("ip", "link", "set", PORT, "up")
        finally:
            other.close()
        self.expect_back(4)

    def check_renamed_and_back(self):
        for before, after in ((PORT, "other"), ("other", PORT)):
            self.bed.switch.run("ip", "link", "set", before, "down")
            self.bed.switch.run("ip", "link", "set", before, "name", after)
            self.bed.switch.run("ip", "link", "set", after, "up")
            self.expect_back(4)

    def logged_link(self):
        """What the log said last of the port's link: the switch looks at links from time to time."""
        changes = re.findall(rf'link (up|down) port="{PORT}"', self.bed.log())
        return changes[-1] if changes else "up"

    def check_link_changes_are_logged(self):
        host = self.bed.hosts[ENTRY]
        # Of the step before this one too: a change and the next within a look are none.
        wait_until("the log", lambda: self.logged_link() == "up")
        for change in ("down", "up"):
            host.run("ip", "link", "set", host.interface, change)
            wait_until("the log", lambda state=change: self.logged_link() == state)
            assert self.port()["link"] == change, self.port()
        for change in ('down port="{}" was_up_s=', 'up port="{}" was_down_s='):
            assert "link " + change.format(PORT) in self.bed.log(), self.bed.log()
        self.expect_back(4)

    def check_tags_stay_what_they_were(self):
        a, b = self.bed.hosts
        tags = ["81000007", "88a80007", "88a8000781000008", "8100000788a80008", "88a8000788a80008",
                "91000007", "88a86fff", "none"]
        receiver = b.python(RECEIVE_TAGS, len(tags))
        assert receiver.stdout.readline() == "ready\n"
        a.run(sys.executable, "-c", SEND_TAGS, b.mac, a.mac, *("" if tag == "none" else tag for tag in tags))
        received = receiver.communicate(timeout=DEADLINE_S)[0].split()
        assert received == tags, received

    def check_an_interface_has_one_port(self):
        """Neither another switch takes it, nor does a configuration with two ports there pass."""
        other = self.folder / "other"
        other.mkdir(exist_ok=True)
        text = (self.folder / "switchd.yaml").read_text(encoding="utf-8").replace(
            str(self.folder), str(other)).replace("file_prefix: ina-", "file_prefix: other-")
        (other / "switchd.yaml").write_text(text, encoding="utf-8")
        for arguments in (["--check"], []):
            refused = subprocess.run(
                self.bed.switch.command(self.ina_switchd, "--config", other / "switchd.yaml", *arguments),
                capture_output=True, text=True, check=False, timeout=DEADLINE_S)
            log = other / "log"
            said = refused.stderr + (log.read_text(encoding="utf-8") if log.exists() else "")
            assert refused.returncode == 1, said
            assert f"interface {PORT} is used by a port of a switch of process {self.bed.daemon.pid}" in said, said
        twice = text.replace("iface=port0", f"iface={PORT}")
        (other / "switchd.yaml").write_text(twice, encoding="utf-8")
        refused = subprocess.run(
            self.bed.switch.command(self.ina_switchd, "--config", other / "switchd.yaml", "--check"),
            capture_output=True, text=True, check=False, timeout=DEADLINE_S)
        assert f"interface {PORT} is port port0's already" in refused.stderr, refused.stderr

    def check_losses_before_the_switch_are_counted(self):
        """The switch is stopped for a moment, and its rings overflow."""
        before = self.port()["lost_before"]
        host = self.bed.hosts[ENTRY]
        self.bed.daemon.send_signal(signal.SIGSTOP)
        try:
            host.run(sys.executable, "-c", FLOOD, self.bed.hosts[0].mac, host.mac, 8000)
        finally:
            self.bed.daemon.send_signal(signal.SIGCONT)
        wait_until("losses", lambda: self.port()["lost_before"] > before + 1000)

    def check_ends_well(self):
        assert self.bed.stop_switch() == 0, self.bed.log()

    def run(self):
        self.check_an_interface_has_one_port()
        self.check_tags_stay_what_they_were()
        print("ok alone, tags", flush=True)
        with contextlib.ExitStack() as stack:
            workers = []
            for rank, host in enumerate(self.bed.hosts):
                workers.append(host.start(self.load_worker, self.bed.url("udp", host.number), "goes on", rank, 2,
                                          4096, -1, stdout=subprocess.PIPE, text=True))
                stack.callback(workers[-1].kill)
            wait_until("sums", lambda: self.results() > 100)
            for name in ("removed_and_made_again", "removed_and_made_again_at_once",
                         "in_another_namespace_and_back", "renamed_and_back", "link_changes_are_logged"):
                getattr(self, f"check_{name}")()
                print(f"ok {name.replace('_', ' ')}", flush=True)
            workers[0].terminate()
            said = [worker.communicate(timeout=DEADLINE_S)[0] for worker in workers]
            assert all(text.startswith("INA_OK") for text in said), said
        self.check_tags_stay_what_they_were()
        self.check_losses_before_the_switch_are_counted()
        namespaces.check_books(self.bed.status(self.inactl))
        self.check_ends_well()
        print("ok losses, books, end", flush=True)


def main(ina_switchd, inactl, load_worker):
    namespaces.require_root()
    for driver in ("af_packet", "af_xdp"):
        print(driver)
        with tempfile.TemporaryDirectory() as folder, NetworkTestBed(hosts=2, driver=driver) as bed:
            daemon = pathlib.Path(ina_switchd).resolve()
            bed.start_switch(daemon, folder, CONFIG)
            wait_until("all links to be up", lambda: all(
                port["link"] == "up" for port in bed.status(inactl)["ports"]
                if port["type"] == "ethdev"))
            Test(bed, daemon, inactl, load_worker, folder).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
