"""The control connection of ina-switchd, written by hand after docs/protocol.md: sends an
attacker's messages, with any descriptors."""

import ctypes
import fcntl
import json
import mmap
import os
import socket
import struct
import time

TIMEOUT_S = 3
MESSAGE_BYTES = 256 * 1024
PAGE = mmap.PAGESIZE
F_ADD_SEALS = 1033
MADV_POPULATE_WRITE = 23  # Linux 5.14
SEAL_SEAL, SEAL_SHRINK, SEAL_GROW, SEAL_FUTURE_WRITE = 1, 2, 4, 16
SEALS = SEAL_SEAL | SEAL_SHRINK | SEAL_GROW | SEAL_FUTURE_WRITE
FALLOC_FL_KEEP_SIZE = 1
LINGER_S = 30

LIBC = ctypes.CDLL(None, use_errno=True)


class Closed(Exception):
    """The switch has closed the connection."""


class Refused(Exception):
    """The switch has refused a request; the text is the switch's. `for_now`: a later try may
    succeed."""

    def __init__(self, said):
        super().__init__(said.get("text", ""))
        self.for_now = said.get("retry", False)


def worth_another_try(error):
    """Returns whether to try again, by libina's rule: a connection that is closed at once has found
    no room, either."""
    return (error.for_now if isinstance(error, Refused) else
            isinstance(error, (Closed, ConnectionError, BlockingIOError)))


def patiently(what, wait_s):
    """Returns the result of `what()`, which is tried again while the switch has no room."""
    until = time.monotonic() + wait_s
    while True:
        try:
            return what()
        except (OSError, Closed, Refused) as error:
            if not worth_another_try(error) or time.monotonic() > until:
                raise
            time.sleep(0.005)


def fallocate(fd, offset, length, mode=FALLOC_FL_KEEP_SIZE):
    """Calls fallocate(2), with any mode."""
    if LIBC.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def send_on(connection, message, fds=()):
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    if fds:
        socket.send_fds(connection, [data], list(fds))
    else:
        connection.send(data)


class Peer:
    """One connection. Descriptors that the switch sends are kept in `fds` until close()."""

    def __init__(self, path, timeout_s=TIMEOUT_S):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(timeout_s)
        self.fds = []
        until = time.monotonic() + timeout_s
        while True:
            try:
                self.socket.connect(str(path))
                return
            except OSError as error:
                # A full backlog is worth waiting for, as in libina.
                if not isinstance(error, BlockingIOError) or time.monotonic() > until:
                    self.socket.close()
                    raise
                time.sleep(0.002)

    def send(self, message, fds=()):
        send_on(self.socket, message, fds)

    def receive(self):
        data, fds, _, _ = socket.recv_fds(self.socket, MESSAGE_BYTES, 253)
        self.fds += fds
        if not data:
            raise Closed
        return json.loads(data)

    def ask(self, message, fds=()):
        self.send(message, fds)
        return self.receive()

    def hear(self, kind):
        """Returns the next message of type `kind`. Raises Refused if a refusal, or the end of the
        job, comes before it."""
        while True:
            said = self.receive()
            if said["type"] == kind:
                return said
            if said["type"] in ("refused", "abort"):
                raise Refused(said)

    def close(self, keep_fds=False):
        self.socket.close()
        if not keep_fds:
            self.drop_fds()

    def drop_fds(self):
        for fd in self.fds:
            os.close(fd)
        self.fds = []


def join_request(job, rank=0, world=1, **more):
    return {"type": "join", "version": 1, "library": "siege", "job": job, "rank": rank,
            "world_size": world, "window_bytes": 64 << 10, "transport": "shm"} | more


def join(path, job, rank=0, world=1, **more):
    """Returns a connection that has joined, and the switch's answer."""
    peer = Peer(path)
    try:
        peer.send(join_request(job, rank, world, **more))
        return peer, peer.hear("joined")
    except BaseException:
        peer.close()
        raise


def worker_region_bytes(joined):
    """Returns the size by WorkerLayout in io/shm/layout.h."""
    def pages(size):
        return (size + PAGE - 1) // PAGE * PAGE
    depth = joined["lanes"] * joined["shm"]["tx_depth"]
    return pages(pages(pages(64 + 64 * joined["lanes"]) + depth * 64) +
                 depth * joined["slot_bytes"])


def write_pages(fd, size):
    """Allocates all pages, so that the file has no holes. fallocate() alone leaves pages that were
    never written, and MAP_POPULATE reports no failure when it leaves some."""
    with mmap.mmap(fd, size) as pages:
        pages.madvise(MADV_POPULATE_WRITE)


def memory_file(size, populate=True, seals=SEALS):
    """Returns a memfd. The defaults give one that the switch accepts from workers."""
    fd = os.memfd_create("siege", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, size)
        if populate:
            write_pages(fd, size)
        fcntl.fcntl(fd, F_ADD_SEALS, seals)
    except BaseException:
        os.close(fd)
        raise
    return fd


def attach(peer, joined, wait=True):
    """Gives the switch a worker region. Returns when the job runs; without `wait` at once."""
    fd = memory_file(worker_region_bytes(joined))
    try:
        peer.send({"type": "attach"}, [fd])
    finally:
        os.close(fd)
    if wait:
        peer.hear("ready")


def run_job(path, job, **more):
    """Starts a job of one worker; returns its connection and the switch's answer once it runs."""
    peer, joined = join(path, job, **more)
    try:
        attach(peer, joined)
    except BaseException:
        peer.close()
        raise
    return peer, joined


def leave(peer, keep_fds=False):
    peer.send({"type": "leave"})
    peer.hear("left")
    peer.close(keep_fds)


def register(peer, number, fd, size):
    """Registers memory and returns the switch's status."""
    peer.send({"type": "register", "number": number, "bytes": size}, [fd])
    return peer.hear("registered")["status"]


def linger_socket():
    """Returns a TCP connection whose close takes as long as SO_LINGER says, and the other end.
    Closing the other end completes the first one's close."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        near = socket.socket()
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        near.connect(listener.getsockname())
        far, _ = listener.accept()
    near.setblocking(False)
    try:
        while near.send(b"x" * 65536):
            pass
    except BlockingIOError:
        pass
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER_S))
    return near, far


def do_not_linger(fd):
    with socket.socket(fileno=os.dup(fd)) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
