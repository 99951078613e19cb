"""A worker that shares no code with libina. It is written from docs/protocol.md, and shows that the
document is complete. Sums int32 and float32 under the policies `static` and `esa`, over plain UDP
sockets.

    second_worker.py CONTROL_SOCKET PORT_NAME JOB RANK WORLD OWN_IP OWN_MAC DTYPE ELEMENTS TIMES

Contributes (element + rank) mod 64 + number of the sum, and checks each result. Prints "ok" and the
worker's counters.
"""

import collections
import json
import select
import socket
import struct
import sys
import time

HEADER = struct.Struct("<HBBIQIIQQIHBBBBBBHBBIIQ")
FIELDS = ("magic version type job job_key epoch seq bitmap operation_elements operation elements dtype"
          " op rank priority origin_phase receiver flags lane collective instance crc32c tag")
Message = collections.namedtuple("Message", FIELDS)
CRC_AT = 60
TAG_AT = 64
MAGIC = 0x4E49
VERSION = 2
GRAD, PART, RESULT, QUERY, POLL, SENT, NOTYET, HAVE, DEFER, REMIND = range(1, 11)
STALE = 13
STATUS, BIND = 1, 2
FROM_FALLBACK = 2
RAW = 4
SUM = 1
ALLREDUCE = 1
DTYPES = {"int32": (2, "i"), "float32": (4, "f")}
DEADLINE_S = 600


def crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC_TABLE = crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283


def siphash(key, data):
    """Returns SipHash-2-4; the key is two numbers."""
    mask = (1 << 64) - 1
    v0, v1, v2, v3 = (number ^ word for number, word in zip(
        (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573), key * 2))

    def rotate(number, bits):
        return (number << bits | number >> 64 - bits) & mask

    def rounds(count):
        nonlocal v0, v1, v2, v3
        for _ in range(count):
            v0, v2 = (v0 + v1) & mask, (v2 + v3) & mask
            v1, v3 = rotate(v1, 13) ^ v0, rotate(v3, 16) ^ v2
            v0 = rotate(v0, 32)
            v2, v0 = (v2 + v1) & mask, (v0 + v3) & mask
            v1, v3 = rotate(v1, 17) ^ v2, rotate(v3, 21) ^ v0
            v2 = rotate(v2, 32)

    whole = len(data) // 8 * 8
    last = data[whole:].ljust(7, b"\0") + bytes([len(data) % 256])
    for (word,) in struct.iter_unpack("<Q", data[:whole] + last):
        v3 ^= word
        rounds(2)
        v0 ^= word
    v2 ^= 0xFF
    rounds(4)
    return v0 ^ v1 ^ v2 ^ v3


assert siphash((0x0706050403020100, 0x0F0E0D0C0B0A0908), bytes(range(15))) == 0xA129CA6149BE45E5


def tag_of(keys, source, destination, header, payload):
    """Returns the tag of a message. Addresses are (dotted, port); `header` has neither checksum nor
    tag."""
    key, payload_key = keys
    around = (socket.inet_aton(source[0]) + socket.inet_aton(destination[0]) +
              struct.pack(">HH", source[1], destination[1]) + struct.pack("<I", len(payload)))
    return siphash(key, around + header + struct.pack("<Q", siphash(payload_key, payload)))


def encode(payload=b"", tag=None, **fields):
    """Returns a message. `tag(header)` returns the tag for a header without one."""
    values = dict.fromkeys(Message._fields, 0) | {"magic": MAGIC, "version": VERSION} | fields
    header = bytearray(HEADER.pack(*(values[name] for name in Message._fields)))
    if tag:
        struct.pack_into("<Q", header, TAG_AT, tag(bytes(header)))
    struct.pack_into("<I", header, CRC_AT, crc32c(bytes(header) + payload))
    return bytes(header) + payload


def decode(datagram):
    """Returns (message, payload), or None if the datagram is no whole message of this version."""
    if len(datagram) < HEADER.size:
        return None
    message = Message(*HEADER.unpack_from(datagram))
    if message.magic != MAGIC or message.version != VERSION:
        return None
    bare = bytearray(datagram)
    struct.pack_into("<I", bare, CRC_AT, 0)
    return (message, datagram[HEADER.size:]) if crc32c(bare) == message.crc32c else None


class Control:
    """The control socket, with one JSON object a message."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(path)
        self.socket.settimeout(DEADLINE_S)

    def send(self, **message):
        self.socket.send(json.dumps(message).encode())

    def receive(self, *wanted):
        while True:
            text = self.socket.recv(65536)
            if not text:
                raise RuntimeError("the switch closed the control connection")
            message = json.loads(text)
            if message["type"] in ("refused", "abort"):
                raise RuntimeError(message["text"])
            if message["type"] in wanted:
                return message


class Fragment:
    def __init__(self, operation, payload, elements):
        self.operation = operation
        self.payload = payload
        self.elements = elements
        self.result = None
        self.result_message = None
        self.deadline = 0
        self.times = 0
        self.bound = False


class Worker:
    """One worker of a job whose fallback's home is not `workers`, or that never needs a
    fallback."""

    def __init__(self, control, port, job, rank, world, ip, mac):
        self.rank = rank
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self.udp.bind((ip, 0))
        self.udp.setblocking(False)
        self.control = Control(control)
        own = struct.unpack(">I", socket.inet_aton(ip))[0]
        self.control.send(type="join", version=1, library="second_worker", tags=["siphash"], job=job, rank=rank,
                          world_size=world, window_bytes=0, transport="frame", port=port,
                          address={"mac": list(bytes.fromhex(mac.replace(":", ""))), "ip": own,
                                   "udp_port": self.udp.getsockname()[1]})
        self.joined = self.control.receive("joined")
        self.epoch = self.joined["epoch"]
        self.window = self.joined["window"]
        self.lanes = self.joined["lanes"]
        address = self.joined["address"]
        self.switch_ip = socket.inet_ntoa(struct.pack(">I", address["ip"]))
        self.switch_port = address["udp_port"]
        tag = self.joined.get("tag")
        self.tag_keys = (tag["key"], tag["payload_key"]) if tag else None
        self.control.send(type="attach")
        self.control.receive("ready")
        self.fragments = {}  # by seq; the last W that have a result are kept, to answer POLL
        self.low = 0
        self.next = 0
        self.operation = 0
        self.counts = collections.Counter()

    def send(self, payload=b"", **fields):
        fields.setdefault("epoch", self.epoch)
        lane = fields["seq"] % self.lanes
        fields["seq"] &= 0xFFFFFFFF
        destination = (self.switch_ip, self.switch_port + lane)

        def tag(header):
            return tag_of(self.tag_keys, self.udp.getsockname(), destination, header, payload)

        datagram = encode(payload, tag if self.tag_keys else None, job=self.joined["job_id"],
                          job_key=self.joined["job_key"], rank=self.rank, lane=lane, **fields)
        try:
            self.udp.sendto(datagram, destination)
        except BlockingIOError:
            pass  # lost, as a frame on the wire can be

    def signature(self, fragment):
        number, elements, dtype = fragment.operation
        return {"operation": number, "operation_elements": elements, "dtype": dtype, "op": SUM,
                "collective": ALLREDUCE, "elements": fragment.elements}

    def contribute(self, seq):
        fragment = self.fragments[seq]
        self.send(fragment.payload, type=GRAD, seq=seq, bitmap=1 << self.rank, priority=1,
                  **self.signature(fragment))

    def allreduce(self, values, dtype):
        number, letter = DTYPES[dtype]
        width = self.joined["slot_bytes"] // 4
        operation = (self.operation, len(values), number)
        self.operation += 1
        pieces = [values[at:at + width] for at in range(0, len(values), width)] or [[]]
        first = self.next
        give_up = time.monotonic() + DEADLINE_S
        queue = collections.deque(
            Fragment(operation, struct.pack(f"<{len(piece)}{letter}", *piece), len(piece))
            for piece in pieces)
        end = first + len(pieces)
        while self.low < end:
            if time.monotonic() > give_up:
                raise RuntimeError(f"no result for fragment {self.low} within {DEADLINE_S} s")
            self.send_new(queue)
            select.select([self.udp], [], [], 0.02)
            self.receive()
            self.look_after_overdue()
        results = [self.fragments[seq].result for seq in range(first, end)]
        for seq in [seq for seq in self.fragments if seq < self.low - 2 * self.window]:
            del self.fragments[seq]
        return [value for seq, result in enumerate(results, first)
                for value in struct.unpack(f"<{self.fragments[seq].elements}{letter}", result)]

    def send_new(self, queue):
        while queue and self.next < self.low + self.window:  # C1
            fragment = queue.popleft()
            fragment.deadline = time.monotonic() + 0.2
            self.fragments[self.next] = fragment
            self.contribute(self.next)
            self.next += 1

    def look_after_overdue(self):
        now = time.monotonic()
        for seq in range(self.low, self.next):
            fragment = self.fragments[seq]
            if fragment.result is not None or fragment.deadline > now:
                continue
            fragment.times += 1
            fragment.deadline = now + 0.2
            again = (self.joined["policy"] == "static" and not fragment.bound
                     and fragment.times % 4 != 0)
            self.counts["again" if again else "query"] += 1
            if again:
                self.contribute(seq)
            else:
                self.send(type=QUERY, seq=seq, bitmap=1 << self.rank)

    def receive(self):
        while True:
            try:
                datagram, source = self.udp.recvfrom(65536)
            except BlockingIOError:
                return
            decoded = decode(datagram)
            if source[0] != self.switch_ip or not decoded:
                self.counts["foreign"] += 1
                continue
            message, payload = decoded
            if self.tag_keys:
                bare = bytearray(datagram[:HEADER.size])
                bare[CRC_AT:] = bytes(HEADER.size - CRC_AT)
                if message.tag != tag_of(self.tag_keys, source, self.udp.getsockname(), bytes(bare),
                                         payload):
                    self.counts["bad tag"] += 1
                    continue
                self.counts["tagged"] += 1
            # The nearest number with these low bits.
            delta = (message.seq - self.low) & 0xFFFFFFFF
            seq = self.low + (delta - (1 << 32) if delta >= 1 << 31 else delta)
            if message.type == RESULT:
                self.on_result(seq, message, payload)
            elif message.type == POLL:
                self.on_poll(seq, message)
            elif message.type == STALE:
                self.epoch = max(self.epoch, message.epoch)

    def on_result(self, seq, message, payload):
        fragment = self.fragments.get(seq)
        if not self.low <= seq < self.next or fragment.result is not None:
            self.counts["ignored"] += 1
            return
        if fragment.bound and message.origin_phase & 0xf != FROM_FALLBACK:
            return
        if any(getattr(message, name) != value
               for name, value in self.signature(fragment).items()):
            raise RuntimeError(f"result of another operation: {message}")
        fragment.result = payload
        fragment.result_message = message
        self.counts["result"] += 1
        while self.low < self.next and self.fragments[self.low].result is not None:
            self.low += 1

    def on_poll(self, seq, message):
        """Answers the fallback, as docs/reliability.md describes."""
        self.counts["poll"] += 1
        if seq >= self.next:
            self.send(type=NOTYET, seq=seq, bitmap=1 << self.rank)
            return
        fragment = self.fragments.get(seq)
        if fragment is None:
            return
        if fragment.result is not None:
            self.send(fragment.result, type=HAVE, seq=seq, bitmap=1 << self.rank,
                      instance=message.instance, flags=fragment.result_message.flags & 9,
                      **self.signature(fragment))
        elif message.origin_phase >> 4 == STATUS:
            self.send(type=SENT, seq=seq, bitmap=1 << self.rank, instance=message.instance)
        else:
            fragment.bound = True
            asked = message.bitmap >> self.rank & 1
            self.send(fragment.payload if asked else b"", type=DEFER, seq=seq,
                      bitmap=1 << self.rank, instance=message.instance, flags=RAW if asked else 0,
                      **(self.signature(fragment) if asked else {}))

    def leave(self):
        self.control.send(type="leave")
        self.control.socket.settimeout(0.02)
        give_up = time.monotonic() + DEADLINE_S
        while time.monotonic() < give_up:
            self.receive()  # other workers may still ask
            try:
                return self.control.receive("left")
            except TimeoutError:
                continue
        raise RuntimeError("the others did not leave")


def main():
    control, port, job, rank, world, ip, mac, dtype, elements, times = sys.argv[1:]
    rank, world = int(rank), int(world)
    worker = Worker(control, port, job, rank, world, ip, mac)
    for number in range(int(times)):
        values = [(i + rank) % 64 + number for i in range(int(elements))]
        expected = [sum((i + r) % 64 + number for r in range(world)) for i in range(int(elements))]
        if worker.allreduce(values, dtype) != expected:
            sys.exit(f"rank {rank}: sum {number} is wrong")
    worker.leave()
    print("ok", dict(worker.counts))


if __name__ == "__main__":
    main()
