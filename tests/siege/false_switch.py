"""A hostile process that answers on sockets as if it were the switch, to users who took one of them
for it. One socket a lie, below the switch's own path."""

import contextlib
import os
import random
import socket
import struct
import threading
import time

import peer
from attack import FAILURES, Attack, close_all

GIB = 1 << 30
GEOMETRY = {"layout": 6, "tx_depth": 64, "rx_depth": 64, "result_rows": 64, "side_rows": 64}
JOINED = {"type": "joined", "library": "siege", "job_id": 1, "job_key": 1, "epoch": 1, "window": 32,
          "slot_bytes": 1024, "lanes": 1, "shm": GEOMETRY, "policy": "esa", "home": "workers",
          "instance": 1, "rto_min_us": 1000, "rto_max_us": 1000000, "ecn": True,
          "aggregator_window": True, "priority_max": 255}
HUGE = 2**32 - 1
READY = {"type": "ready"}


def sparse_file(size):
    fd = os.memfd_create("siege", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    return fd


def file_of(text):
    fd = os.memfd_create("siege", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, text)
    return fd


def pages(size):
    return (size + peer.PAGE - 1) // peer.PAGE * peer.PAGE


def regions(said, **how):
    """Returns the descriptors that an answer of one lane needs: switch region and result region,
    with the sizes by io/shm/layout.h, and an eventfd. `how`: arguments of peer.memory_file()."""
    shm, row = said["shm"], said["slot_bytes"]
    ring = pages(pages(192) + 64 * shm["rx_depth"]) + pages(shm["side_rows"] * row)
    sizes = (ring, pages(shm["result_rows"] * row) or peer.PAGE)
    return [*(peer.memory_file(size, **how) for size in sizes), os.eventfd(0)]


def send(one, message, fds=()):
    """Sends a message, and closes the own copies of its descriptors."""
    try:
        peer.send_on(one, message, fds)
    finally:
        close_all(fds)


def joined(*later, fitting=True, how=(), **changes):
    """Returns a lie: a place in a job, by an answer with changed fields or sizes of rings, then the
    messages `later`. `fitting`: the regions have the changed sizes."""
    sizes = {key: changes.pop(key) for key in list(changes) if key in GEOMETRY}
    said = JOINED | changes | {"shm": GEOMETRY | sizes}

    def tell(one):
        send(one, said, regions(said if fitting else JOINED, **dict(how)))
        for message in later:
            send(one, message)
    return tell


def flood(message, first=None):
    """Returns a lie: the same message for as long as somebody listens."""
    def tell(one):
        if first:
            first(one)
        one.settimeout(None)
        while True:
            send(one, message)
    return tell


def status_of(make):
    return lambda one: send(one, {"type": "status"}, make())


def hang_up(one):
    one.close()


def noise(one):
    for length in (1, 100, 16384, 60000):
        send(one, random.randbytes(length))


def slow_stream(one):
    """Announces the longest message there may be, and sends a byte of it now and then."""
    one.send(struct.pack("<I", 16 << 20))
    while True:
        one.send(b"[")
        time.sleep(0.05)


LIES = {
    "silence": lambda one: None,
    "hang_up": hang_up,
    "noise": noise,
    "nesting": lambda one: send(one, b"[" * 16000),
    "too_long": lambda one: send(one, b'{"type":"' + b"x" * 60000 + b'"}'),
    "wrong_types": lambda one: send(one, {"type": "refused", "status": "x", "text": [{}]}),
    "no_room": flood({"type": "refused", "status": -8, "text": "x" * 1000, "retry": True}),
    "no_descriptor": status_of(lambda: []),
    "many_descriptors": status_of(lambda: [os.eventfd(0) for _ in range(253)]),
    "pipe": status_of(os.pipe),
    "device": status_of(lambda: [os.open("/dev/zero", os.O_RDONLY)]),
    "sparse_status": status_of(lambda: [sparse_file(4 * GIB)]),
    "dense_status": status_of(lambda: [file_of(b'{"jobs":[' + b"[]," * (5 << 20) + b"0]}")]),
    "deep_status": status_of(lambda: [file_of(b"[" * (16 << 20))]),
    "endless_status": status_of(lambda: [sparse_file(2**62)]),
    "early_ready": lambda one: send(one, READY),
    "no_regions": lambda one: send(one, JOINED),
    "unsealed_regions": joined(how={"seals": 0}),
    "holes": joined(how={"populate": False}),
    "small_regions": joined(rx_depth=128, fitting=False),
    "huge_window": joined(window=HUGE),
    "large_window": joined(READY, window=2**22, slot_bytes=65536, fitting=False),
    "huge_rows": joined(slot_bytes=HUGE, fitting=False),
    "huge_rings": joined(tx_depth=2**22),
    "many_lanes": joined(lanes=HUGE),
    "no_send_ring": joined(READY, tx_depth=0),
    "no_receive_ring": joined(READY, rx_depth=0),
    "odd_rings": joined(READY, tx_depth=3, rx_depth=3),
    "no_slot_bytes": joined(READY, slot_bytes=0),
    "hang_up_later": lambda one: (joined()(one), one.close()),
    "waits_on": flood({"type": "waiting", "missing": [1]}, joined()),
    "restarts_on": flood({"type": "epoch", "epoch": 2}, joined()),
    "mute_rings": joined(READY),
}
# Over TCP, where a message has its length before it.
STREAMED = {
    "tcp_length": lambda one: one.send(struct.pack("<I", HUGE)),
    "tcp_slow": slow_stream,
}


class FalseSwitch(Attack):
    """Tells each lie to everybody who connects to the lie's socket and asks something."""

    needs_root_to_begin = True  # to make sockets beside the switch's

    def prepare(self):
        for number, (name, lie) in enumerate(STREAMED.items()):
            address = ("127.0.0.1", self.options["port"] + number)
            self.serve(socket.create_server(address), name, lie)
        for name, lie in LIES.items():
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            listener.bind(f"{self.path}.{name}")
            os.chmod(f"{self.path}.{name}", 0o666)
            self.serve(listener, name, lie)

    def serve(self, listener, name, lie):
        listener.listen(64)
        threading.Thread(target=self.answer, args=(listener, name, lie), daemon=True).start()

    def answer(self, listener, name, lie):
        while True:
            one, _ = listener.accept()
            threading.Thread(target=self.tell, args=(one, name, lie), daemon=True).start()

    def tell(self, one, name, lie):
        with one:
            with contextlib.suppress(*FAILURES):
                if one.recv(peer.MESSAGE_BYTES):
                    self.count(name)
                    lie(one)
                while one.recv(peer.MESSAGE_BYTES):  # silence from now on
                    pass


ATTACKS = {"false_switch": FalseSwitch}
