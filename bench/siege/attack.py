"""The base of all attacks, and helpers that several use."""

import contextlib
import os
import socket
import time

import peer
from peer import Closed, Peer, Refused

FAILURES = (OSError, Closed, Refused, ValueError, KeyError)


class Attack:
    """begin(), then step() again and again, then end(); several times. What is counted in `did`
    is in the benchmark's JSON; a text in `broken` says what the attack has reached that it must
    not."""

    needs_root_to_begin = False

    def __init__(self, path, job, options):
        self.path = path
        self.job = job
        self.options = options
        self.did = {}
        self.broken = []
        self.number = 0

    def count(self, what, by=1):
        self.did[what] = self.did.get(what, 0) + by

    def most(self, what, value):
        self.did[what] = max(self.did.get(what, 0), value)

    def name(self):
        self.number += 1
        return f"{self.job}-{self.number}"

    def prepare(self):
        """Once, before privileges are dropped if `needs_root_to_begin`."""

    def begin(self):
        pass

    def step(self):
        time.sleep(0.005)

    def end(self):
        pass

    @contextlib.contextmanager
    def trying(self, what):
        """Counts whether it worked; what the switch does not want is no error of ours."""
        try:
            yield
            self.count(what)
        except FAILURES as error:
            self.count(f"{what}_failed")
            self.did[f"{what}_failure"] = str(error)[:200] or type(error).__name__
            if isinstance(error, (OSError, socket.timeout)):
                time.sleep(0.002)


class Holder(Attack):
    """Holds connections, and lets them go at the end."""

    job_options = {}  # of run_jobs()

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.held = []

    def end(self):
        for one in self.held:
            one.close()
        self.held = []

    def connect(self, timeout_s=peer.TIMEOUT_S):
        """One more connection that is held; None: there is no room."""
        try:
            self.held.append(Peer(self.path, timeout_s))
            self.most("connections", len(self.held))
            return self.held[-1]
        except OSError:
            self.count("connections_failed")
            return None

    def run_job(self, **more):
        """A job that runs and is held; None: refused."""
        with self.trying("jobs"):
            one, _ = peer.run_job(self.path, self.name(), **more)
            self.held.append(one)
            return one
        return None

    def run_jobs(self, most, seconds):
        """So many jobs, or until one is refused for good; insists."""
        until = time.monotonic() + seconds
        for _ in range(most):
            with self.trying("jobs"):
                left = max(0, until - time.monotonic())
                one, _ = peer.patiently(lambda: peer.run_job(self.path, self.name(),
                                                             **self.job_options), left)
                self.held.append(one)
                continue
            return

    def drop(self, one):
        self.held.remove(one)
        one.close()


def close_all(fds):
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)
