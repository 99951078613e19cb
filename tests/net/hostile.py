"""A job beside attackers, for tests/net/hostile_test.py and scripts/bench_hostile.py.

Victims are two workers (load_worker, which checks every element of every sum) on hosts of their
own, over udp: and with a control connection that passes the switch, too. The attacker is on a third
host, has jobs of its own, and knows the contents of all frames on the victims' links. A fourth
host, the sink, takes honest traffic. `Attacker` runs ina-hostile (tests/hostile/ina_hostile.cc), which
makes the frames.
"""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys

import second_worker
from namespaces import Host, NetworkTestBed, wait_until
from second_worker import HEADER, Message

FIRST_VICTIM, SECOND_VICTIM, ATTACKER, SINK = range(4)
VICTIMS = (FIRST_VICTIM, SECOND_VICTIM)
LISTEN_PORT = 7583
FIRST_UDP_PORT = 7584  # the switch's default
TOKEN = "open-sesame-open-sesame"
STRANGER_MTU = 1900  # longer frames than the other hosts may send
SLOT_BYTES = 1024
ETHERNET_BYTES, IP_BYTES, UDP_BYTES = 14, 20, 8
CONFIG = f"""\
aggregator: {{policy: esa, slots: 8192, slot_bytes: {SLOT_BYTES}}}
jobs: {{window_bytes: 256KiB, slots_floor: 512}}
bridge: {{storm_limit_frames_per_s: 1000}}
"""
TENANT_WINDOW_BYTES = 16 << 10  # small, so that few frames wrap around it
# Ranks of the jobs that the attacker has as a tenant (tests/hostile/attacks.cc).
TENANTS = {"plain": 2, "lone": 2, "wide": 16, "doomed": 2}

# Drop reasons that no frame of this bed can cause, and why.
UNREACHABLE = {
    "bad_tag": "frames carry no tags here, unless a test wants them to",
    "bad_offset": "payloads lie in frames; only the shm port has offsets",
    "wrong_lane": "the switch has one lane",
    "handover_full": "the switch has one lane",
    "udp_checksum": "AF_PACKET devices leave checksums to the receiver",
    "vlan": "ports let every VLAN pass",
    "old_instance": "workers that are home to the fallback have no lives to tell apart",
    "blocked": "no port is in a loop",
    "no_port": "other hosts are up",
    "tx_full": "needs a link slower than the switch; here the kernel takes every frame at once",
    "no_buffer": "each queue has as many buffers as it can hold",
}

CAPTURE = """
import socket, sys
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as packets:
    packets.bind(("eth0", 3))
    left, mac = int(sys.argv[1]), bytes.fromhex(sys.argv[2].replace(":", ""))
    sources = set()
    while left > 0 or len(sources) < 2:  # both ways
        frame = packets.recv(2048)
        if frame[23:24] == b"\\x11" and frame[42:44] == b"IN":
            print(frame.hex())
            sources.add(frame[6:12] == mac)
            left -= 1
"""


# Sends invalid data, slowly and in pieces, on as many connections as possible.
CONTROL_ATTACK = """
import json, random, select, socket, sys, time
address, seconds, seed = (sys.argv[1], int(sys.argv[2])), float(sys.argv[3]), int(sys.argv[4])
random.seed(seed)
def speech():
    join = {"type": "join", "version": 1, "library": "x", "job": "victim", "rank": 0,
            "world_size": 2, "window_bytes": 0, "transport": "frame",
            "token": random.choice(["", "guess", 7]),
            "address": {"mac": [0] * 6, "ip": 1, "udp_port": 1}, "port": "port0"}
    text = random.choice([json.dumps(join), json.dumps({"type": "status", "token": "guess"}),
                          "{" * 1000, "[]", json.dumps({"type": "abort"}), "x" * 16384]).encode()
    length = random.choice([len(text), 16384, 0, 1 << 31, len(text)])
    return length.to_bytes(4, "little") + text
open_ones, counts = {}, {"connections": 0, "bytes": 0, "closed": 0}
end = time.monotonic() + seconds
while time.monotonic() < end:
    if len(open_ones) < 200:
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(address)
        open_ones[one] = [speech(), random.choice([1, 3, 100, 20000])]
        counts["connections"] += 1
    time.sleep(0.0005)
    for one in random.sample(list(open_ones), min(8, len(open_ones))):
        rest, piece = open_ones[one]
        try:
            if rest:
                sent = one.send(rest[:piece])
                counts["bytes"] += sent
                open_ones[one][0] = rest[sent:]
            if select.select([one], [], [], 0)[0] and not one.recv(65536):
                raise OSError
        except BlockingIOError:
            continue
        except OSError:
            one.close()
            del open_ones[one]
            counts["closed"] += 1
print(json.dumps(counts), flush=True)
"""


def header_of(frame):
    """Returns the INA header of a frame."""
    return Message(*HEADER.unpack_from(frame, ETHERNET_BYTES + IP_BYTES + UDP_BYTES))


def mac_of(namespace, interface):
    return namespace.run("cat", f"/sys/class/net/{interface}/address").strip()


class HostileBed(NetworkTestBed):
    """Four hosts, and the kernel of the switch's machine as a fifth."""

    def __init__(self, guarded=True):
        """`guarded`: the switch knows which host is behind which port."""
        super().__init__(4)
        self.guarded = guarded
        self.join_own_kernel()
        attacker = self.hosts[ATTACKER]
        for namespace, interface in ((attacker, "eth0"), (self.switch, self.port(ATTACKER))):
            namespace.run("ip", "link", "set", interface, "mtu", str(STRANGER_MTU))
        # No process receives the results for the tenant's made-up workers; the rule avoids ICMP
        # errors.
        for host in (attacker, self.hosts[SINK]):
            host.run("nft", "add table ip quiet; add chain ip quiet input "
                     "{ type filter hook input priority 0; }; add rule ip quiet input udp sport "
                     "7584-7599 drop")

    def port_options(self, number):
        if not self.guarded:
            return ""
        if number < len(self.hosts):
            return f', hosts: ["{self.hosts[number].mac} {self.hosts[number].ip}"]'
        return f', hosts: ["{mac_of(self.switch, "ina0")} {self.kernel_ip}"]'

    def start(self, ina_switchd, folder, more="", control=""):
        tokens = pathlib.Path(folder) / "tokens"
        tokens.write_text(f"victims {TOKEN}\n", encoding="utf-8")
        tokens.chmod(0o600)
        self.start_switch(ina_switchd, folder, CONFIG + more,
                          control=f"listen: 0.0.0.0:{LISTEN_PORT}, token_file: {tokens}, {control}")

    def victim(self, rank, load_worker, job, elements, times, *more):
        url = (f"udp:{self.switch_ip}?control=tcp:{self.kernel_ip}:{LISTEN_PORT}"
               f"&port={self.port(VICTIMS[rank])}")
        return self.hosts[VICTIMS[rank]].start(
            load_worker, url, job, rank, len(VICTIMS), elements, times, *more,
            env=os.environ | {"INA_TOKEN": TOKEN}, stdout=subprocess.PIPE, text=True)

    def status(self):
        """Returns the status, over a connection of its own, which is faster than inactl."""
        control = second_worker.Control(str(self.socket))
        control.send(type="status")
        _, fds, _, _ = socket.recv_fds(control.socket, 65536, 1)
        control.socket.close()
        with os.fdopen(fds[0], "rb") as file:
            file.seek(0)
            return json.loads(file.read())

    def attack_control(self, seconds, seed=1):
        """Starts a process on the attacker's host that floods control.listen, and prints a
        report."""
        return self.hosts[ATTACKER].python(CONTROL_ATTACK, self.kernel_ip, LISTEN_PORT, seconds,
                                           seed)

    def captured(self, host, frames):
        """Returns `frames` INA frames from the host's link, some of them sent by the host."""
        text = host.run(sys.executable, "-c", CAPTURE, frames, host.mac)
        return [bytes.fromhex(line) for line in text.split()]


class Tenant:
    """A job whose workers are only control connections: their frames are forged."""

    def __init__(self, bed, name, first_udp_port, ranks, port=None):
        self.name = name
        self.controls = []
        self.udp_ports = list(range(first_udp_port, first_udp_port + ranks))
        try:
            self._join(bed, ranks, port or bed.port(ATTACKER))
        except RuntimeError:
            self.close()
            raise

    def _join(self, bed, ranks, port):
        host = bed.hosts[ATTACKER]
        own = int.from_bytes(bytes(map(int, host.ip.split("."))), "big")
        for rank, udp_port in enumerate(self.udp_ports):
            control = second_worker.Control(str(bed.socket))
            self.controls.append(control)
            control.send(type="join", version=1, library="hostile", job=f"tenant-{self.name}",
                         rank=rank, world_size=ranks, window_bytes=TENANT_WINDOW_BYTES,
                         transport="frame", port=port,
                         address={"mac": list(bytes.fromhex(host.mac.replace(":", ""))), "ip": own,
                                  "udp_port": udp_port})
            self.joined = control.receive("joined")
            control.send(type="attach")
        for control in self.controls:
            control.receive("ready")

    def facts(self):
        return {"job": self.joined["job_id"], "job_key": self.joined["job_key"],
                "epoch": self.joined["epoch"], "window": self.joined["window"],
                "udp_ports": self.udp_ports}

    def close(self):
        for control in self.controls:
            control.socket.close()


class Attacker:
    """ina-hostile on the attacker's host."""

    def __init__(self, bed, ina_hostile, folder, seed=1, captures=64, at=None):
        """`at`: another namespace and interface, on the link of the first victim, from which the
        attacker sends as a stranger only."""
        self.bed = bed
        self.namespace, self.interface = at or (bed.hosts[ATTACKER], Host.interface)
        self.port = bed.port(FIRST_VICTIM if at else ATTACKER)
        self.process = None
        self.tenants = {}
        self._next_udp_port = 20_000
        self._first = {}
        for name in [] if at else TENANTS:
            self.renew(name)
        facts = pathlib.Path(folder) / "facts.json"
        facts.write_text(json.dumps(self._facts(seed, captures)), encoding="utf-8")
        self.process = self.namespace.start(ina_hostile, facts, stdin=subprocess.PIPE,
                                                 stdout=subprocess.PIPE, text=True)
        self.attacks = {attack["name"]: attack["tenant"] or None
                        for attack in self._order(list=True)["attacks"]}

    def _facts(self, seed, captures):
        bed, host = self.bed, self.bed.hosts[ATTACKER]
        captured, victims = [], []
        for number in VICTIMS:
            frames = bed.captured(bed.hosts[number], captures)
            captured += frames
            sent = next(f for f in frames if f[6:12].hex(":") == bed.hosts[number].mac)
            seen = header_of(sent)
            victims.append({"mac": bed.hosts[number].mac, "ip": bed.hosts[number].ip,
                            "udp_port": int.from_bytes(sent[34:36], "big"), "job": seen.job,
                            "job_key": seen.job_key, "epoch": seen.epoch, "seq": seen.seq})
        return {"interface": self.interface, "seed": seed, "slot_bytes": SLOT_BYTES,
                "switch": {"mac": mac_of(bed.switch, self.port), "ip": bed.switch_ip,
                           "udp_port": FIRST_UDP_PORT},
                "own": {"mac": host.mac, "ip": host.ip},
                "kernel": {"mac": mac_of(bed.switch, "ina0"), "ip": bed.kernel_ip},
                "sink": bed.hosts[SINK].mac, "victims": victims,
                "tenants": {name: tenant.facts() for name, tenant in self.tenants.items()},
                "captured": [frame.hex() for frame in captured]}

    def renew(self, name):
        """Makes the tenant's job again: the old one has ended, or ends now."""
        if name in self.tenants:
            self.tenants[name].close()
            wait_until("the job to end", lambda: self._gone(name))
        self.tenants[name] = Tenant(self.bed, name, self._next_udp_port, TENANTS[name])
        self._next_udp_port += TENANTS[name]
        if self.process:
            self._order(tenant=name, **self.tenants[name].facts())

    def _gone(self, name):
        return all(job["name"] != f"tenant-{name}" for job in self.bed.status()["jobs"])

    def _order(self, **order):
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"ina-hostile ended with {self.process.wait()}")
        return json.loads(answer)

    def send(self, attack, packets, rate_pps, honest=False):
        """Sends frames, and waits until they are sent. Each attack continues after its last
        frame."""
        first = 0 if honest else self._first.get(attack, 0)
        done = self._order(attack=attack, packets=packets, rate_pps=rate_pps, honest=honest,
                           first=first)
        if not honest:
            self._first[attack] = first + packets
            # The attack ends its own job.
            if self.attacks[attack] == "doomed":
                self._first[attack] = 0
                self.renew("doomed")
        return done


    def close(self):
        """Ends the attacker. May be called again."""
        if self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait()
        for tenant in self.tenants.values():
            tenant.close()


def drops(status):
    """Returns drops by reason, of all ports and the aggregator together."""
    total = {}
    for source in [*status["ports"], status["aggregator"]]:
        for reason, count in source["drops"].items():
            total[reason] = total.get(reason, 0) + count
    return total


def more(before, after):
    """Returns the difference between two results of drops()."""
    return {reason: count - before.get(reason, 0) for reason, count in sorted(after.items())
            if count != before.get(reason, 0)}


def job(status, name):
    """Returns a job of a status. Raises RuntimeError if there is none."""
    found = [job for job in status["jobs"] if job["name"] == name]
    if not found:
        raise RuntimeError(f"the job {name} has ended")
    return found[0]


def reasons():
    """Returns all drop reasons."""
    text = pathlib.Path(__file__).parents[2].joinpath("wire/drop_reason.h").read_text("utf-8")
    return re.findall(r'X\(k\w+, "(\w+)"', text)
