"""Attacks by memory: what the switch maps, and is made to fill or to keep."""

import os

import peer
from attack import FAILURES, Attack, Holder

MIB = 1 << 20


class Registering(Holder):
    """A job that registers memory as make() gives it, as much as is taken."""

    BYTES = 64 * MIB

    def make(self):
        raise NotImplementedError

    def begin(self):
        self.next = 1
        self.worker = self.run_job()

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
    """Memory files without pages: whoever maps them whole makes the pages."""

    def make(self):
        return peer.memory_file(self.BYTES, populate=False)


class BeyondEnd(Registering):
    """As many pages as the file has bytes, all of them beyond its end."""

    def make(self):
        fd = os.memfd_create("siege", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, self.BYTES)
        peer.fallocate(fd, self.BYTES, self.BYTES)
        peer.fcntl.fcntl(fd, peer.F_ADD_SEALS, peer.SEALS)
        return fd


class SparseRegions(Holder):
    """The same with worker regions, of jobs with the largest windows."""

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
        if self.did.get("jobs_failed"):
            super().step()


class Full(Registering):
    """Honest memory, as much as is taken: more than the tenant may have."""

    BYTES = 8 * MIB

    def make(self):
        return peer.memory_file(self.BYTES)


class Mappings(Holder):
    """Small memories of many workers, until something is full."""

    def begin(self):
        self.fd = peer.memory_file(peer.PAGE)
        self.worker = None
        self.next = 64

    def step(self):
        if self.next > 63:
            self.next = 1
            self.worker = self.run_job(window_bytes=4096)
        if self.worker is None:
            self.next = 64
            return super().step()
        try:
            for _ in range(21):
                status = peer.register(self.worker, self.next, self.fd, peer.PAGE)
                self.next += 1
                self.count("taken" if status == 0 else "refused")
        except FAILURES:
            self.count("workers_lost")
            self.next = 64

    def end(self):
        os.close(self.fd)
        super().end()


class RegisterLoop(Holder):
    """Registers and gives back, each of which all lanes hear of."""

    def begin(self):
        self.fd = peer.memory_file(peer.PAGE)
        self.worker = self.run_job()

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


class ShareResults(Holder):
    """Result buffers as large as they may be, again and again: the switch has to make them."""

    def begin(self):
        self.worker = self.run_job()

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
    """Sizes that no buffer has."""

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


class HeldRings(Attack):
    """Jobs that come and go while a process keeps what it was given mapped: option `jobs` of them at
    a time, as large as they may be."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.maps = []

    def step(self):
        with self.trying("jobs"):
            one, joined = peer.run_job(self.path, self.name(), window_bytes=0)
            for fd in one.fds[:2]:
                self.maps.append(peer.mmap.mmap(fd, 0, prot=peer.mmap.PROT_READ))
            peer.leave(one)
            self.most("mapped", len(self.maps))

    def end(self):
        self.maps = []


ATTACKS = {"sparse": Sparse, "beyond_end": BeyondEnd, "sparse_regions": SparseRegions,
           "full": Full, "mappings": Mappings, "register_loop": RegisterLoop,
           "share_results": ShareResults, "share_results_bounds": ShareResultsBounds,
           "held_rings": HeldRings}
