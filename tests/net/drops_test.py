"""Every drop reason alone at a real switch: what causes it, and that no other counter rises.

    drops_test.py INA_SWITCHD INACTL

tests/operations_test.py holds the methods test_REASON to wire/drop_reason.h. docs/operations.md has
the recipes.
"""

import contextlib
import ctypes
import fcntl
import json
import mmap
import os
import pathlib
import socket
import struct
import sys
import tempfile
import unittest

import namespaces
import second_worker
from hostile import ATTACKER, FIRST_UDP_PORT, SLOT_BYTES, HostileBed, drops, mac_of, more
from namespaces import NetworkTestBed, wait_until

INA_SWITCHD, INACTL = sys.argv[1:3]
CONFIG = f"""\
aggregator: {{policy: static, slots: 16384, slot_bytes: {SLOT_BYTES}}}
bridge: {{storm_limit_frames_per_s: 100}}
"""
BROADCAST = "ff:ff:ff:ff:ff:ff"
TEST_ETHERTYPE = 0x88B5  # of local experiments: no kernel answers it
UDP_PORT = 20_000  # of a job's first worker
SWITCH_ON_TAP = "02:77:00:00:00:fc"  # beside the kernel's, which namespaces.py chooses
HIGHEST_RANK = 64  # the fallback's

# Sends the frames of a file, one a line, with pauses in which a packet loop can take them.
SEND = """
import socket, sys, time
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as packets:
    packets.bind((sys.argv[1], 0))
    for number, line in enumerate(open(sys.argv[2])):
        packets.send(bytes.fromhex(line))
        if number % 32 == 31:
            time.sleep(float(sys.argv[3]))
"""


# Sends the switch's next probe for loops back, as a loop would.
REFLECT = """
import socket, sys
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as packets:
    packets.bind((sys.argv[1], 3))
    while (frame := packets.recv(2000))[:6] != bytes.fromhex("03494e410001"):
        pass
    packets.send(frame)
"""


def mac_bytes(text):
    return bytes.fromhex(text.replace(":", ""))


def internet_checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def ethernet(to, sender, payload, ethertype=0x0800):
    return mac_bytes(to) + mac_bytes(sender) + struct.pack(">H", ethertype) + payload


def ipv4(source, destination, payload, flags=0, damage=0):
    """Returns a packet of UDP. `damage`: bits of the checksum that are wrong."""
    header = bytearray(struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 0, flags, 64, 17, 0,
                                   socket.inet_aton(source), socket.inet_aton(destination)))
    struct.pack_into(">H", header, 10, internet_checksum(header) ^ damage)
    return bytes(header) + payload


def datagram(source_port, destination_port, payload, checksum=0):
    return struct.pack(">HHHH", source_port, destination_port, 8 + len(payload), checksum) + payload


def grad(**fields):
    """Returns a right contribution of two int32, but for `fields`."""
    message = {"type": second_worker.GRAD, "bitmap": 1, "operation_elements": 8192, "elements": 2,
               "dtype": second_worker.DTYPES["int32"][0], "op": second_worker.SUM, "priority": 1,
               "collective": second_worker.ALLREDUCE} | fields
    return second_worker.encode(message.pop("payload", bytes(8)), **message)


def address(mac, ip, udp_port):
    """Returns an address as the control connection has it."""
    return {"mac": list(mac_bytes(mac)), "ip": int.from_bytes(socket.inet_aton(ip), "big"),
            "udp_port": udp_port}


class Job:
    """A job whose workers, at UDP_PORT, UDP_PORT + 1, ... of one host, are only control
    connections: their frames are made by hand."""

    def __init__(self, bed, name, ranks, mac, ip, **fields):
        """`fields`: further fields of each `join`."""
        self.controls = []
        for rank in range(ranks):
            control = second_worker.Control(str(bed.socket))
            self.controls.append(control)
            control.send(type="join", version=1, library="drops_test", job=name, rank=rank,
                         world_size=ranks, transport="frame",
                         address=address(mac, ip, UDP_PORT + rank), **fields)
            self.joined = control.receive("joined")
            control.send(type="attach")

    def wait(self):
        for control in self.controls:
            control.receive("ready")
        return self

    def grad(self, **fields):
        """Returns a right contribution, but for `fields`."""
        return grad(**{"job": self.joined["job_id"], "job_key": self.joined["job_key"],
                       "epoch": self.joined["epoch"]} | fields)

    def close(self):
        for control in self.controls:
            control.socket.close()


class Bed:
    """A running switch, and what its hosts send to it."""

    def __init__(self, network, folder, config):
        self.network = network
        self.folder = folder
        network.start_switch(INA_SWITCHD, folder, config)
        wait_until("all links to be up", lambda: all(
            port["link"] == "up" for port in self.ports() if port["type"] == "ethdev"))

    def status(self):
        return NetworkTestBed.status(self.network, INACTL)

    def ports(self):
        return self.status()["ports"]

    def drops(self):
        return drops(self.status())

    @property
    def host(self):
        """The host from which frames are sent."""
        return self.network.hosts[min(ATTACKER, len(self.network.hosts) - 1)]

    @property
    def mac(self):
        """The switch's address at this host's port."""
        return mac_of(self.network.switch, self.network.port(self.host.number))

    def send(self, *frames, pause_s=0.0):
        self.send_from(self.host, self.host.interface, frames, pause_s)

    def send_from(self, namespace, interface, frames, pause_s=0.0):
        path = pathlib.Path(self.folder) / "frames"
        path.write_text("".join(f"{frame.hex()}\n" for frame in frames), encoding="utf-8")
        namespace.run(sys.executable, "-c", SEND, interface, path, pause_s)

    def to_switch(self, message, udp_port=UDP_PORT, lane=0, **ip):
        """Returns a frame of the host's with a message to the switch."""
        udp = datagram(udp_port, FIRST_UDP_PORT + lane, message)
        return ethernet(self.mac, self.host.mac,
                        ipv4(self.host.ip, self.network.switch_ip, udp, **ip))

    def to_network(self, to, source=None, payload=b"", tag=None):
        """Returns a frame of the host's that no receiver answers, to the MAC address `to`. `tag`: its
        VLAN."""
        frame = ethernet(to, source or self.host.mac, payload.ljust(50, b"\0"), TEST_ETHERTYPE)
        tag_bytes = b"" if tag is None else struct.pack(">HH", 0x8100, tag)
        return frame[:12] + tag_bytes + frame[12:]


class DropsTest(unittest.TestCase):
    """One switch for all tests of a class."""

    CONFIG = CONFIG

    @classmethod
    def network(cls):
        return HostileBed(guarded=False)

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="ina-drops-")
        cls.addClassCleanup(folder.cleanup)
        network = cls.network()
        cls.addClassCleanup(network.close)
        cls.bed = Bed(network, folder.name, cls.CONFIG)

    @contextlib.contextmanager
    def only(self, reason, count=1, **beside):
        """What is done meanwhile must raise this reason's counter by `count`, those of `beside` by
        theirs, and no other."""
        before = self.bed.drops()
        yield
        expected = {reason: count} | beside
        with contextlib.suppress(RuntimeError):  # the comparison says more
            wait_until(reason, lambda: sum(more(before, self.bed.drops()).values()) >=
                       sum(expected.values()))
        self.assertEqual(more(before, self.bed.drops()), expected)

    def flood(self, reason, send):
        """Calls `send` until the reason is counted, for counters that take more frames than some
        pace. No other may rise."""
        before = self.bed.drops()

        def counted():
            send()
            return more(before, self.bed.drops())
        seen = wait_until(reason, counted)
        self.assertEqual(set(seen), {reason}, seen)

    def begin(self, ranks=1, window=64, **more_fields):
        """Returns a new job at the host from which frames are sent."""
        host = self.bed.host
        fields = {"mac": host.mac, "ip": host.ip, "port": self.bed.network.port(host.number),
                  "window_bytes": window * SLOT_BYTES} | more_fields
        job = Job(self.bed.network, self.id(), ranks, **fields)
        self.addCleanup(self.end, job)
        return job

    def end(self, job):
        job.close()
        wait_until("the job to end", lambda: not self.bed.status()["jobs"])


class Strangers(DropsTest):
    """Frames, messages and traffic of hosts that are in no job."""

    def test_truncated(self):
        with self.only("truncated"):
            self.bed.send(self.bed.to_switch(grad())[:-1])

    def test_not_ina(self):
        with self.only("not_ina"):
            self.bed.send(self.bed.to_switch(grad(), lane=-1))

    def test_ip_fragment(self):
        """It ends early: the kernel keeps whole fragments and waits for their rest."""
        more_fragments = 0x2000
        with self.only("ip_fragment"):
            self.bed.send(self.bed.to_switch(grad(), flags=more_fragments)[:-1])

    def test_ip_checksum(self):
        with self.only("ip_checksum"):
            self.bed.send(self.bed.to_switch(grad(), damage=1))

    def test_version(self):
        with self.only("version"):
            self.bed.send(self.bed.to_switch(grad(version=second_worker.VERSION + 1)))

    def test_unknown_source(self):
        with self.only("unknown_source"):
            self.bed.send(self.bed.to_switch(grad()))

    def test_foreign_source(self):
        """The switch's own IP address."""
        udp = datagram(UDP_PORT, UDP_PORT, bytes(20))
        with self.only("foreign_source"):
            self.bed.send(ethernet(self.bed.network.hosts[0].mac, self.bed.host.mac,
                                   ipv4(self.bed.network.switch_ip, self.bed.network.hosts[0].ip, udp)))

    def test_bad_mac(self):
        with self.only("bad_mac"):
            self.bed.send(self.bed.to_network(self.bed.network.hosts[0].mac, source=BROADCAST))

    def test_link_local(self):
        with self.only("link_local"):
            self.bed.send(self.bed.to_network("01:80:c2:00:00:00"))

    def test_same_port(self):
        with self.only("same_port"):
            self.bed.send(self.bed.to_network(self.bed.host.mac))

    def test_too_long(self):
        """The host's link takes longer frames than the other hosts' links."""
        self.bed.network.hosts[0].ping(self.bed.network.hosts[1].ip)  # makes it known
        with self.only("too_long"):
            self.bed.send(self.bed.to_network(self.bed.network.hosts[0].mac, payload=bytes(1600)))

    def test_blocked(self):
        """The port's own probe comes back once."""
        port = self.bed.network.port(self.bed.host.number)

        def is_blocked():
            return any("blocked" in entry for entry in self.bed.ports() if entry["name"] == port)
        with self.only("blocked", bad_mac=1):
            self.bed.host.run(sys.executable, "-c", REFLECT, self.bed.host.interface)
            wait_until("the port to be blocked", is_blocked)
            self.bed.send(self.bed.to_network(BROADCAST))
        wait_until("the port to be open again", lambda: not is_blocked())

    def test_storm(self):
        self.flood("storm", lambda: self.bed.send(*[self.bed.to_network(BROADCAST)] * 200))

    def test_asked(self):
        """Requests for the switch's address, more at once than it answers."""
        host = self.bed.host
        request = struct.pack(">HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 1, mac_bytes(host.mac),
                              socket.inet_aton(host.ip), bytes(6),
                              socket.inet_aton(self.bed.network.switch_ip))
        self.flood("asked", lambda: self.bed.send(
            *[ethernet(BROADCAST, host.mac, request, 0x0806)] * 300))


class Workers(DropsTest):
    """Frames of workers that are bound, with the right job and key unless these are what is wrong."""

    def expect(self, reason, *messages, ranks=1):
        """Sends contributions, each as (fields, rank): the last one is wrong."""
        job = self.begin(ranks).wait()
        with self.only(reason):
            self.bed.send(*(self.bed.to_switch(job.grad(**fields), UDP_PORT + rank)
                            for fields, rank in messages))

    def test_crc(self):
        job = self.begin().wait()
        frame = bytearray(self.bed.to_switch(job.grad()))
        frame[-1] ^= 1
        with self.only("crc"):
            self.bed.send(bytes(frame))

    def test_bad_type(self):
        self.expect("bad_type", ({"type": 14}, 0))

    def test_bad_dtype(self):
        self.expect("bad_dtype", ({"dtype": 99}, 0))

    def test_bad_op(self):
        self.expect("bad_op", ({"op": 99}, 0))

    def test_bad_length(self):
        self.expect("bad_length", ({"elements": 3}, 0))

    def test_bad_rank(self):
        self.expect("bad_rank", ({"rank": HIGHEST_RANK + 1}, 0))

    def test_bad_job(self):
        self.expect("bad_job", ({"job_key": 1}, 0))

    def test_stale_epoch(self):
        job = self.begin().wait()
        with self.only("stale_epoch"):
            self.bed.send(self.bed.to_switch(job.grad(epoch=job.joined["epoch"] - 1)))

    def test_future_epoch(self):
        job = self.begin().wait()
        with self.only("future_epoch"):
            self.bed.send(self.bed.to_switch(job.grad(epoch=job.joined["epoch"] + 1)))

    def test_too_old(self):
        """The slots of two windows hold newer fragments."""
        self.expect("too_old", *(({"seq": seq}, 0) for seq in [*range(129), 0]))

    def test_outside_window(self):
        self.expect("outside_window", ({"seq": 64}, 0))

    def test_duplicate(self):
        self.expect("duplicate", ({}, 0), ({}, 0), ranks=2)

    def test_not_home(self):
        self.expect("not_home", ({"type": second_worker.REMIND, "seq": 1, "payload": b""}, 0),
                    ranks=2)

    def test_mismatch(self):
        self.expect("mismatch", ({"operation": 1}, 0), ({"operation": 2}, 1), ranks=2)


class WithTags(DropsTest):
    CONFIG = f"{CONFIG}security: {{tag: siphash}}\n"

    def test_bad_tag(self):
        job = self.begin(tags=["siphash"]).wait()
        with self.only("bad_tag"):
            self.bed.send(self.bed.to_switch(job.grad(tag=lambda header: 1)))


class ShmWorker:
    """A worker on the shm port that writes descriptors and reads nothing: docs/protocol.md."""

    DESCRIPTOR = struct.Struct("<QQIIIIHHBBBBIB3sQII")
    LINE, PAGE = 64, 4096
    SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | 16  # F_SEAL_FUTURE_WRITE

    def __init__(self, path, job, rank=0, world=1):
        self.control = second_worker.Control(str(path))
        self.control.send(type="join", version=1, library="test", job=job, rank=rank,
                          world_size=world, window_bytes=0, transport="shm")
        text, fds, _, _ = socket.recv_fds(self.control.socket, 65536, 8)
        self.joined = json.loads(text)
        self.switch_region, self.results, self.wake = fds[:3]
        self.depth = self.joined["shm"]["tx_depth"]
        self.count = 0
        self.payload = self.PAGE + self.depth * self.LINE
        size = self.payload + self.depth * self.joined["slot_bytes"]
        self.region = os.memfd_create("drops", os.MFD_ALLOW_SEALING)
        os.ftruncate(self.region, size)
        self.memory = mmap.mmap(self.region, size)
        self.memory[:] = bytes(size)
        fcntl.fcntl(self.region, fcntl.F_ADD_SEALS, self.SEALS)

    def attach(self):
        socket.send_fds(self.control.socket, [b'{"type": "attach"}'], [self.region])

    def ready(self):
        self.control.receive("ready")

    def taken(self):
        """Returns how many descriptors the switch has taken."""
        return struct.unpack("<Q", os.pread(self.switch_region, 8, self.LINE))[0]

    def send(self, messages):
        """Puts all messages into the ring, and shows the first one last: the switch finds all of
        them or none."""
        wait_until("room", lambda: self.count - self.taken() <= self.depth - len(messages))
        for number in reversed(range(len(messages))):
            index = self.count + number
            at = self.PAGE + index % self.depth * self.LINE
            line = self.line(turn=1 + index // self.depth, **messages[number])
            self.memory[at:at + self.LINE - 4] = line[:-4]
            self.memory[at + self.LINE - 4:at + self.LINE] = line[-4:]
        self.count += len(messages)
        os.eventfd_write(self.wake, 1)

    def line(self, turn, payload_offset=0, payload_bytes=0, **fields):
        values = {"bitmap": 0, "operation_elements": 8192, "operation": 0,
                  "epoch": self.joined["epoch"], "seq": 0, "instance": 0, "elements": 2, "flags": 0,
                  "type": second_worker.GRAD, "dtype": second_worker.DTYPES["int32"][0],
                  "op": second_worker.SUM, "collective": second_worker.ALLREDUCE,
                  "receiver_phase_rank_lane_origin": 0, "priority": 1,
                  "target": bytes(3)} | fields
        return self.DESCRIPTOR.pack(*values.values(), payload_offset, payload_bytes, turn)

    def close(self):
        self.memory.close()
        for fd in (self.region, self.switch_region, self.results, self.wake):
            os.close(fd)
        self.control.socket.close()


class OverShm(DropsTest):
    def workers(self, world=1):
        name = self.id().rsplit(".", 1)[1]
        workers = [ShmWorker(self.bed.network.socket, name, rank, world) for rank in range(world)]
        for worker in workers:
            self.addCleanup(worker.close)
            worker.attach()
        for worker in workers:
            worker.ready()
        return workers

    def test_bad_offset(self):
        worker, = self.workers()
        beyond = worker.memory.size() - 4
        with self.only("bad_offset"):
            worker.send([{"payload_offset": beyond, "payload_bytes": 8}])

    def test_tx_full(self):
        """A worker that does not read. Its own questions come back: it is the fallback."""
        worker, = self.workers()
        question = {"type": second_worker.QUERY, "elements": 0}
        with self.only("tx_full", count=3):
            for _ in range(worker.joined["shm"]["rx_depth"] + 3):
                worker.send([question])

    def test_job_aborted(self):
        """The job is removed at once, so its last frames must come in one burst."""
        first, second = self.workers(2)
        row = {"payload_offset": second.payload, "payload_bytes": 8}
        first.send([row])
        wait_until("the first contribution", lambda: first.taken() == 1)
        with self.only("job_aborted", count=3, mismatch=1):
            second.send([row | {"operation": 1}, *(row | {"seq": seq} for seq in (1, 2, 3))])


class Thread:
    """A thread of another process, which stands still meanwhile; the other threads run on."""

    SEIZE, INTERRUPT, DETACH, ANY_CHILD = 0x4206, 0x4207, 17, 0x40000000
    LIBC = ctypes.CDLL(None, use_errno=True)

    def __init__(self, pid, name):
        tasks = pathlib.Path(f"/proc/{pid}/task")
        self.id = next(int(task.name) for task in tasks.iterdir()
                       if (task / "comm").read_text().strip() == name)

    def _trace(self, request):
        if self.LIBC.ptrace(request, self.id, None, None) != 0:
            raise OSError(ctypes.get_errno(), f"ptrace {request:#x}")

    def __enter__(self):
        self._trace(self.SEIZE)
        self._trace(self.INTERRUPT)
        os.waitpid(self.id, self.ANY_CHILD)

    def __exit__(self, *error):
        self._trace(self.DETACH)


class TwoLanes(DropsTest):
    WINDOW = 2048  # half of it, a lane's part, is twice what a ring between lanes holds
    CONFIG = f"{CONFIG}switch: {{lcores: 2}}\nstatic: {{slots_per_job: {2 * WINDOW}}}\n"

    def test_wrong_lane(self):
        job = self.begin(ranks=2).wait()
        with self.only("wrong_lane"):
            self.bed.send(self.bed.to_switch(job.grad(seq=2), lane=1))

    def test_handover_full(self):
        """The first loop receives for the second, which stands still."""
        lane = Thread(self.bed.network.daemon.pid, "rte-worker-2")
        try:
            with lane:
                pass
        except PermissionError as error:
            self.skipTest(f"a thread cannot be halted here: {error}")

        def send():
            # Contributions of one worker of two: the switch has nothing to say to them.
            job = self.begin(ranks=2, window=self.WINDOW).wait()
            frames = [self.bed.to_switch(job.grad(seq=seq), lane=1)
                      for seq in range(1, self.WINDOW, 2)]
            with lane:
                self.bed.send(*frames, pause_s=0.002)
                # An answer says that the first loop has come to the last frame.
                self.bed.host.ping(self.bed.network.switch_ip)
            wait_until("the frames to have their fates", self.settled)
            self.end(job)
        self.flood("handover_full", send)

    def settled(self):
        try:
            return namespaces.check_books(self.bed.status())
        except AssertionError:
            return False


class Neighbours(DropsTest):
    """One host, and a TAP device, which verifies checksums."""

    @classmethod
    def network(cls):
        network = NetworkTestBed(1)
        network.port_keys = {0: f"ip: {network.switch_ip}, vlans: [0, 10]"}
        network.join_own_kernel(tap=True)
        return network

    def test_vlan(self):
        with self.only("vlan"):
            self.bed.send(self.bed.to_network(BROADCAST, tag=10),
                          self.bed.to_network(BROADCAST, tag=20))

    def test_udp_checksum(self):
        switch, interface = self.bed.network.switch, NetworkTestBed.kernel_interface
        mac, ip = mac_of(switch, interface), self.bed.network.kernel_ip
        job = self.begin(mac=mac, ip=ip, port=self.bed.network.port(1)).wait()
        udp = datagram(UDP_PORT, FIRST_UDP_PORT, job.grad(), checksum=1)
        with self.only("udp_checksum"):
            self.bed.send_from(switch, interface, [
                ethernet(SWITCH_ON_TAP, mac, ipv4(ip, self.bed.network.switch_ip, udp))])

    def test_no_port(self):
        """The host's link is down, and the kernel has something for everybody."""
        switch, interface = self.bed.network.switch, NetworkTestBed.kernel_interface
        self.link("down")
        self.addCleanup(lambda: self.link("up"))
        frame = self.bed.to_network(BROADCAST, source=mac_of(switch, interface))
        # The bridge may learn of the link a little later than the status.
        self.flood("no_port", lambda: self.bed.send_from(switch, interface, [frame]))

    def link(self, state):
        self.bed.host.run("ip", "link", "set", "eth0", state)
        wait_until(f"the link to be {state}", lambda: all(
            port["link"] == state for port in self.bed.ports() if port["name"] == "port0"))


class WithServer(DropsTest):
    """The fallback has lives of its own."""

    CONFIG = f"{CONFIG}fallback: {{home: dedicated}}\n"

    def serve(self, job):
        """Begins a fallback server of the job, beside its worker. Returns its connections and its
        instance."""
        host = self.bed.host
        server, member = (second_worker.Control(str(self.bed.network.socket)) for _ in range(2))
        self.addCleanup(server.socket.close)
        self.addCleanup(member.socket.close)
        server.send(type="serve", version=1, library="drops_test")
        server.receive("serving")
        member.send(type="join_fallback", job_id=job.joined["job_id"], transport="frame",
                    port=self.bed.network.port(host.number),
                    address=address(host.mac, host.ip, UDP_PORT + 1))
        instance = member.receive("joined")["instance"]
        member.send(type="attach")
        return (server, member), instance

    def test_old_instance(self):
        """Another server has come at the same address; a message of the first is late."""
        job = self.begin()
        connections, first = self.serve(job)
        job.wait()
        for connection in connections:
            connection.socket.close()
        wait_until("the server to be missed",
                   lambda: self.bed.status()["jobs"][0]["fallback_missing"])
        _, second = self.serve(job)
        self.assertEqual(job.controls[0].receive("epoch")["epoch"], second)
        late = job.grad(type=second_worker.REMIND, payload=b"", instance=first)
        with self.only("old_instance"):
            self.bed.send(self.bed.to_switch(late, UDP_PORT + 1))


if __name__ == "__main__":
    namespaces.require_root()
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
