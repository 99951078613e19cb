"""Attacks by passed descriptors that are slow, or take forever, to close or to inspect."""

import contextlib
import mmap
import os
import select
import socket
import threading
import time

import fuse
import peer
from attack import FAILURES, Attack, Holder, close_all

MOST_FAR_ENDS = 400
BEGIN_S = 8
# WRONG: messages that take no descriptors, and invalid messages. RIGHT: messages that take
# descriptors.
WRONG = ({"type": "explain"}, {"type": "status"}, {"type": "leave"}, b"nonsense", b"[" * 2000,
         {"type": "join"}, {"type": "unregister", "number": 1})
RIGHT = ({"type": "register", "number": 5, "bytes": 4096}, {"type": "attach"})


class Passing(Holder):
    """Passes descriptors that make() gives, in the ways that option `ways` names."""

    def make(self):
        """Returns a new descriptor, which the caller owns."""
        raise NotImplementedError

    def begin(self):
        self.worker = None

    def step(self):
        for way in self.options["ways"]:
            with self.trying("messages"):
                getattr(self, way)()

    def passed(self, one, message, count=1):
        fds = [self.make() for _ in range(count)]
        passed = False
        try:
            one.send(message, fds)
            self.count("descriptors", count)
            passed = True
        finally:
            self.forget(fds, passed)

    def forget(self, fds, passed):
        """Closes the attacker's own copies. `passed`: the switch has copies, too."""
        del passed
        close_all(fds)

    def fresh(self):
        one = self.connect()
        if one is None:
            raise OSError("no room for a connection")
        return one

    def wrong(self):
        for message in WRONG:
            one = self.fresh()
            self.passed(one, message)
            self.drop(one)

    def right(self):
        if self.worker is None or self.worker not in self.held:
            self.worker = self.run_job()
        if self.worker is None:
            raise OSError("no job")
        try:
            self.passed(self.worker, RIGHT[0])
            self.worker.hear("registered")
        except FAILURES:
            self.drop(self.worker)
            self.worker = None
            raise
        # Joins a place, and passes the message of an attach without ever attaching.
        one, _ = peer.join(self.path, self.name())
        self.held.append(one)
        self.passed(one, RIGHT[1])
        self.drop(one)

    def unread(self):
        """Leaves descriptors in the queue of a connection that closes, more than the switch reads
        in a turn."""
        one = self.fresh()
        one.socket.settimeout(0.05)
        for _ in range(24):
            with contextlib.suppress(OSError):
                self.passed(one, {"type": "explain"})
        self.drop(one)

    def many(self):
        one = self.fresh()
        self.passed(one, {"type": "explain"}, 253)
        self.drop(one)


class Linger(Passing):
    """TCP sockets that linger on close because nobody reads their data."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.far_ends = []

    def make(self):
        near, far = peer.linger_socket()
        self.far_ends.append(far)
        # The oldest may close now: it has been slow long enough.
        if len(self.far_ends) > MOST_FAR_ENDS:
            self.far_ends.pop(0).close()
        return near.detach()

    def forget(self, fds, passed):
        if not passed:
            for fd in fds:
                peer.do_not_linger(fd)
            return super().forget(fds, passed)
        # The last process to close the socket waits, and that may be this one.
        threading.Thread(target=close_all, args=(fds,), daemon=True).start()

    def end(self):
        for far in self.far_ends:
            far.close()
        self.far_ends = []
        super().end()


class SlowToClose(Passing):
    """Objects that the kernel takes long to free: much memory, many watchers."""

    BYTES = 256 << 20
    WATCHED = 2000

    def begin(self):
        super().begin()
        self.sockets = [socket.socketpair() for _ in range(self.WATCHED // 2)]

    def make(self):
        if self.did.get("descriptors", 0) % 2:
            return peer.memory_file(self.options.get("bytes", self.BYTES))
        watcher = select.epoll()
        for pair in self.sockets:
            for one in pair:
                watcher.register(one)
        return os.dup(watcher.fileno())

    def end(self):
        for pair in self.sockets:
            for one in pair:
                one.close()
        self.sockets = []
        super().end()


class Cycles(Passing):
    """Sockets in each other's queues and in their own, which only the kernel's garbage collector
    frees."""

    def make(self):
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with left, right:
            for _ in range(4):
                socket.send_fds(left, [b"x"], [left.fileno(), right.fileno()])
            one = self.held[-1] if self.held else None
            if one is not None:
                socket.send_fds(left, [b"x"], [one.socket.fileno()])
            return os.dup(right.fileno())


class OwnDescriptors(Holder):
    """Passes the switch's own descriptors back to it, as if they were a worker's."""

    def step(self):
        with self.trying("rounds"):
            one, joined = peer.run_job(self.path, self.name())
            self.held.append(one)
            for number, fd in enumerate([*one.fds, one.socket.fileno()], 1):
                one.send({"type": "register", "number": number, "bytes": os.fstat(fd).st_size or 1},
                         [fd])
                one.hear("registered")
            other, joined = peer.join(self.path, self.name())
            self.held.append(other)
            other.send({"type": "attach"}, [other.fds[joined["lanes"] > 0]])
            other.receive()
        while self.held:
            self.held.pop().close()


class Silent(Passing):
    """Files on a file system that does not answer. Option `silent`: the kind of request."""

    needs_root_to_begin = True

    def prepare(self):
        self.files = fuse.SilentFiles(getattr(fuse, self.options["silent"]), f"{self.path}.fuse")
        self.file = self.files.open_file()

    def make(self):
        return self.file

    def forget(self, fds, passed):
        """Closes nothing: a close would block the attacker, too."""

    def step(self):
        super().step()
        super(Passing, self).step()

    def stop(self):
        self.files.stop()


class OutOfDescriptors(Holder):
    """Uses up as many of the switch's descriptors as possible: by connections, jobs and their
    workers, and descriptors in queues."""

    job_options = {"window_bytes": 4096}

    def begin(self):
        self.run_jobs(24, 1)
        for _ in range(self.options.get("connections", 1500)):
            one = self.connect(0.05)
            if one is None:
                break
            with contextlib.suppress(OSError):
                one.send({"type": "explain"}, [0] * 253)

    def step(self):
        one = self.connect(0.05)
        if one is None:
            return super().step()
        with self.trying("messages"):
            one.send({"type": "status"}, [0] * 100)


class KeptDescriptors(Attack):
    """Jobs that come and go while the attacker keeps their descriptors to the end of the row."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.kept = []

    def begin(self):
        if self.kept:
            return
        until = time.monotonic() + BEGIN_S
        for _ in range(self.options["jobs"]):
            if not self.one_job(max(0, until - time.monotonic())):
                break

    def step(self):
        super().step()
        self.one_job(0)

    def one_job(self, wait_s):
        """Runs one job and keeps its descriptors. False: the switch refuses it."""
        with self.trying("jobs"):
            one, _ = peer.patiently(lambda: peer.run_job(self.path, self.name(), window_bytes=0),
                                    wait_s)
            self.keep(one.fds)
            one.fds = []
            self.most("jobs_kept", self.did.get("jobs", 0))
            peer.leave(one)
            return True
        return False

    def keep(self, fds):
        self.kept += fds


class KeptMappings(KeptDescriptors):
    """Like KeptDescriptors, but keeps mappings of the descriptors, and closes them."""

    def keep(self, fds):
        for fd in fds[:2]:
            self.kept.append(mmap.mmap(fd, 0, prot=mmap.PROT_READ))
        close_all(fds)


ATTACKS = {"linger": Linger, "slow_to_close": SlowToClose, "cycles": Cycles, "silent": Silent,
           "own_descriptors": OwnDescriptors, "out_of_descriptors": OutOfDescriptors,
           "kept_descriptors": KeptDescriptors,
           "kept_mappings": KeptMappings}
