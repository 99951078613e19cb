#!/usr/bin/env python3
"""Hosts talk through ina-switchd as through any switch.

    bridge_test.py INA_SWITCHD INACTL
"""

import hashlib
import pathlib
import random
import subprocess
import sys
import tempfile

import namespaces
from namespaces import NetworkTestBed, wait_until

COPY_BYTES = 8 << 20

RECEIVE = """
import hashlib, socket, sys
server = socket.create_server(("", 5000))
print("ready", flush=True)
connection, _ = server.accept()
digest, count = hashlib.sha256(), 0
while data := connection.recv(1 << 16):
    digest.update(data)
    count += len(data)
print(count, digest.hexdigest(), flush=True)
"""

SEND = """
import random, socket, sys
with socket.create_connection((sys.argv[1], 5000), timeout=600) as connection:
    connection.sendall(random.Random(int(sys.argv[2])).randbytes(int(sys.argv[3])))
"""

# Sends one frame of an unknown protocol, with the VLAN tag 7 at priority 3.
SEND_TAGGED = """
import socket, sys
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as packets:
    packets.bind(("eth0", 0))
    to, sender = (bytes.fromhex(mac.replace(":", "")) for mac in sys.argv[1:])
    packets.send(to + sender + bytes.fromhex("8100600788b5") + bytes(range(100)))
"""

# The kernel removes the tag before it delivers the frame, but reports the tag.
RECEIVE_TAGGED = """
import socket, struct
SOL_PACKET, PACKET_AUXDATA = 263, 8
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as packets:
    packets.bind(("eth0", 3))
    packets.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
    print("ready", flush=True)
    while True:
        frame, extra, _, sender = packets.recvmsg(2000, 100)
        if frame[12:14] == b"\\x88\\xb5":
            break
    status, _, _, _, _, tci, tpid = struct.unpack("=IIIHHHH", extra[0][2])
    print(f"{tpid:04x} {tci:04x}", frame[14:].hex(), flush=True)
"""


class Test:
    """The steps share one bed, and run in order."""

    def __init__(self, bed, inactl):
        self.bed = bed
        self.inactl = inactl

    def status(self):
        """Returns ports by name, and the bridge."""
        status = self.bed.status(self.inactl)
        ports = {port["name"]: port for port in status["ports"] if port["type"] == "ethdev"}
        return ports, status["bridge"]

    def check_links_come_up(self):
        wait_until("all links to be up", lambda: all(
            port["link"] == "up" for port in self.status()[0].values()))

    def check_hosts_reach_each_other(self):
        for a in self.bed.hosts:
            for b in self.bed.hosts:
                if a is not b:
                    a.ping(b.ip)

    def check_ports_receive_frames_for_others(self):
        """A veth pair delivers all frames; a NIC does so only in promiscuous mode."""
        for host in self.bed.hosts:
            link = self.bed.switch.run("ip", "-details", "link", "show", self.bed.port(host.number))
            assert "promiscuity 1" in link, link

    def check_switch_answers_for_itself(self):
        for host in self.bed.hosts:
            host.ping(NetworkTestBed.switch_ip)
        ports, _ = self.status()
        assert all(port["answered"] >= 2 for port in ports.values()), ports

    def check_switch_is_not_known_to_others(self):
        """An ARP request for the switch ends at the switch."""
        before, _ = self.status()
        self.bed.hosts[0].run("ip", "neighbour", "flush", "dev", "eth0")
        self.bed.hosts[0].ping(NetworkTestBed.switch_ip)
        after, _ = self.status()
        assert after["port0"]["answered"] >= before["port0"]["answered"] + 2
        assert after["port0"]["flooded"] == before["port0"]["flooded"]

    def check_largest_packets_pass(self):
        a, b = self.bed.hosts[:2]
        a.ping(b.ip, "-M", "do", "-s", str(self.bed.mtu - 28))

    def check_bulk_copy(self):
        a, b, c = self.bed.hosts
        before, _ = self.status()
        for seed, (sender, receiver) in enumerate([(a, b), (b, a)]):
            server = receiver.python(RECEIVE)
            assert server.stdout.readline() == "ready\n"
            sender.run(sys.executable, "-c", SEND, receiver.ip, seed, COPY_BYTES)
            digest = hashlib.sha256(random.Random(seed).randbytes(COPY_BYTES)).hexdigest()
            received = server.communicate(timeout=600)[0]
            assert received == f"{COPY_BYTES} {digest}\n", received
        after, _ = self.status()
        assert after["port0"]["forwarded"] - before["port0"]["forwarded"] > COPY_BYTES / self.bed.mtu
        others = after["port2"]["bridged_sent"] - before["port2"]["bridged_sent"]
        assert others < 20, f"{others} frames of others were sent to {c.name}"

    def check_tagged_frames_pass_untouched(self):
        a, b = self.bed.hosts[:2]
        receiver = b.python(RECEIVE_TAGGED)
        assert receiver.stdout.readline() == "ready\n"
        a.run(sys.executable, "-c", SEND_TAGGED, b.mac, a.mac)
        received = receiver.stdout.readline().split()
        assert received == ["8100", "6007", bytes(range(100)).hex()], received

    def check_link_down_is_noticed_and_forgotten(self):
        a, b, c = self.bed.hosts
        b.run("ip", "link", "set", "eth0", "down")
        wait_until("the link to be down", lambda: self.status()[0]["port1"]["link"] == "down")
        wait_until("its address to be forgotten", lambda: self.status()[1]["mac_entries"] == 3)
        before, _ = self.status()
        # This frame needs no ARP, and b is unknown: the switch floods the frame, but not to b,
        # whose link is down.
        a.run(sys.executable, "-c", SEND_TAGGED, b.mac, a.mac)
        wait_until("the frame to be flooded", lambda: self.status()[0]["port0"]["flooded"] >
                   before["port0"]["flooded"])
        after, _ = self.status()
        assert after["port1"]["bridged_sent"] == before["port1"]["bridged_sent"]
        assert after["port2"]["bridged_sent"] > before["port2"]["bridged_sent"]
        a.ping(c.ip)
        b.run("ip", "link", "set", "eth0", "up")
        self.check_links_come_up()
        a.ping(b.ip)

    def check_books_balance(self):
        status = self.bed.status(self.inactl)
        namespaces.check_books(status)
        bridge = status["bridge"]
        # Host a is known in the VLAN of its tagged frames, too.
        assert bridge["mac_entries"] == 4 and bridge["moved"] == 0, bridge

    def check_status_is_readable(self):
        text = namespaces.run(self.inactl, "status", "--socket", self.bed.socket)
        assert "FORWARDED" in text and "4 of 8,192 addresses known" in text, text

    def check_ends_well(self):
        assert self.bed.stop_switch() == 0, self.bed.log()

    def run(self):
        for name in vars(Test):
            if name.startswith("check_"):
                getattr(self, name)()
                print(f"ok {name.removeprefix('check_').replace('_', ' ')}", flush=True)


def any_namespace(prefixes):
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return any(f"{prefix}-" in names.stdout for prefix in prefixes)


def main(ina_switchd, inactl):
    namespaces.require_root()
    with tempfile.TemporaryDirectory() as folder:
        prefixes = []
        for driver, mtu in (("af_packet", 1500), ("af_packet", 9000), ("af_xdp", 1500)):
            print(f"{driver}, mtu {mtu}")
            with NetworkTestBed(hosts=3, mtu=mtu, driver=driver) as bed:
                prefixes.append(bed.switch.name.removesuffix("-sw"))
                bed.start_switch(pathlib.Path(ina_switchd).resolve(), folder)
                Test(bed, inactl).run()
    assert not any_namespace(prefixes)
    print("ok nothing left behind")


if __name__ == "__main__":
    main(*sys.argv[1:])
