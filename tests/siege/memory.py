"""Attacks by memory that the switch maps, and is made to fill or to keep."""

import contextlib
import fcntl
import os
import time

import peer
from attack import Holder

MIB = 1 << 20


class Registering(Holder):
    """A job registers memory from make(), until the switch refuses more."""

    BYTES = 64 * MIB

    def make(self):
        raise NotImplementedError

    def begin(self):
        self.next = 1
        self.run_jobs(1, 2)
        self.worker = self.held[-1] if self.held else None

    def step(self):
        if self.worker is None or self.next > 63:
            return super().step()
        with self.trying("tried"):
            fd = self.make()
            try:
                status = peer.register(self.worker, self.next, fd, self.BYTES)
            finally:
                os.close(fd)
            self.next += 1
            self.count("taken" if status == 0 else "refused")


class Sparse(Registering):
    """Memory files without pages. A process that maps a whole file allocates the pages."""

    def make(self):
        return peer.memory_file(self.BYTES, populate=False)


class BeyondEnd(Registering):
    """Memory files with as many pages as the file has bytes, all of them beyond its end."""

    def make(self):
        fd = os.memfd_create("siege", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, self.BYTES)
        peer.fallocate(fd, self.BYTES, self.BYTES)
        fcntl.fcntl(fd, peer.F_ADD_SEALS, peer.SEALS)
        return fd


class SparseRegions(Holder):
    """Like Sparse, but with worker regions, of jobs with the largest windows."""

    def step(self):
        with self.trying("jobs"):
            one, joined = peer.join(self.path, self.name(), window_bytes=0)
            self.held.append(one)
            fd = peer.memory_file(peer.worker_region_bytes(joined), populate=False)
            try:
                one.send({"type": "attach"}, [fd])
                one.hear("ready")
            finally:
                os.close(fd)
        super().step()


class Full(Registering):
    """Ordinary memory, until the switch refuses more: beyond the tenant's quota."""

    BYTES = 8 * MIB

    def make(self):
        return peer.memory_file(self.BYTES)


class Mappings(Holder):
    """Small memories of many workers, until some limit is reached. Registered memory is kept for
    all slices, because registering it is slow."""

    WORKERS = 64

    def begin(self):
        if self.held:
            return
        fd = peer.memory_file(peer.PAGE)
        until = time.monotonic() + self.options["seconds"]
        try:
            while time.monotonic() < until and self.fill_job(self.name(), fd, until):
                pass
        finally:
            os.close(fd)

    def fill_job(self, name, fd, until):
        """Makes a job and registers memory in it. False: the switch takes no more."""
        for rank in range(self.WORKERS):
            if time.monotonic() > until or self.did.get("refused", 0) > 1000:
                return False
            with self.trying("workers"):
                one, joined = peer.patiently(
                    lambda rank=rank: peer.join(self.path, name, rank, self.WORKERS,
                                                window_bytes=4096), until - time.monotonic())
                self.held.append(one)
                # Before the worker attaches, lanes do not learn of its memory, which is faster.
                for first in range(1, 64, 7):
                    for number in range(first, first + 7):
                        one.send({"type": "register", "number": number, "bytes": peer.PAGE}, [fd])
                    for _ in range(7):
                        status = one.hear("registered")["status"]
                        self.count("taken" if status == 0 else "refused")
                    if time.monotonic() > until:
                        return False
                peer.attach(one, joined, wait=False)
                continue
            return False
        return True

    def step(self):
        """Uses mappings while the attack goes on: by a job that comes and goes."""
        super().step()
        with self.trying("jobs"):
            one, _ = peer.run_job(self.path, self.name())
            one.close()

    def end(self):
        """Keeps everything."""


class RegisterLoop(Holder):
    """Registers and unregisters memory; all lanes have to learn of each change."""

    def begin(self):
        self.fd = peer.memory_file(peer.PAGE)
        self.run_jobs(1, 2)
        self.worker = self.held[-1] if self.held else None

    def step(self):
        if self.worker is None:
            return super().step()
        with self.trying("rounds"):
            for _ in range(8):
                peer.register(self.worker, 1, self.fd, peer.PAGE)
                self.worker.send({"type": "unregister", "number": 1})

    def end(self):
        os.close(self.fd)
        super().end()


class RegisterQueue(Holder):
    """Has the switch map large memory of many workers at once: it can do that one after another
    only."""

    WORKERS = 16
    BYTES = 256 * MIB

    def prepare(self):
        self.fd = peer.memory_file(self.BYTES)

    def begin(self):
        until = time.monotonic() + 3
        name = self.name()
        for rank in range(self.WORKERS):
            with self.trying("workers"):
                one, _ = peer.patiently(
                    lambda rank=rank: peer.join(self.path, name, rank, self.WORKERS,
                                                window_bytes=4096), until - time.monotonic())
                self.held.append(one)
        self.did["unanswered"] = 0
        # All at once: messages would wait until the user has paid for the time of the joins.
        time.sleep(0.2)
        for one in self.held:
            with self.trying("asked"):
                one.send({"type": "register", "number": 1, "bytes": self.BYTES}, [self.fd])
                one.socket.settimeout(0)
                self.count("unanswered")

    def step(self):
        for one in self.held:
            with contextlib.suppress(BlockingIOError):
                if one.receive()["type"] == "registered":
                    self.count("unanswered", -1)
        super().step()


class ShareResults(Holder):
    """Requests result buffers of the largest size, again and again: the switch has to allocate
    them."""

    def begin(self):
        self.run_jobs(1, 2)
        self.worker = self.held[-1] if self.held else None

    def step(self):
        if self.worker is None:
            return super().step()
        with self.trying("asked"):
            self.worker.send({"type": "share_results", "bytes": self.options["bytes"]})
            said = self.worker.hear("results")
            self.count("made" if said["status"] == 0 else "refused")
            self.worker.drop_fds()
            if said["status"] == 0 and said.get("first_unit") is not None:
                self.worker.send({"type": "free_results", "first_unit": said["first_unit"]})


class ShareResultsBounds(Holder):
    """Requests sizes that no buffer can have."""

    SIZES = (0, 1, 255, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 256, 2**64 - 255, 2**64 - 1)

    def step(self):
        for size in self.SIZES:
            one = self.run_job()
            if one is None:
                continue
            with self.trying("asked"):
                one.send({"type": "share_results", "bytes": size})
                said = one.hear("results")
                self.count("made" if said["status"] == 0 else "refused")
                text = said.get("text", "")
                if "cannot map" in text or "cannot size" in text:
                    self.broken.append(f"share_results of {size} bytes got as far as: {text}")
            self.drop(one)


ATTACKS = {"sparse": Sparse, "beyond_end": BeyondEnd, "sparse_regions": SparseRegions,
           "full": Full, "mappings": Mappings, "register_loop": RegisterLoop,
           "register_queue": RegisterQueue, "share_results": ShareResults,
           "share_results_bounds": ShareResultsBounds}
