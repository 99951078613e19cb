"""The base class of all attacks, and helpers that several attacks use."""

import contextlib
import os
import socket
import time

import peer
from peer import Closed, Peer, Refused

FAILURES = (OSError, Closed, Refused, ValueError, KeyError)


class Attack:
    """An attack runs begin(), then step() repeatedly, then end(); the sequence may run several
    times. The benchmark's JSON contains the counters in `did`. A text in `broken` says which
    forbidden effect the attack has had."""

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
        """Runs once, before privileges are dropped if `needs_root_to_begin`."""

    def begin(self):
        pass

    def step(self):
        time.sleep(0.005)

    def end(self):
        pass

    @contextlib.contextmanager
    def trying(self, what):
        """Counts whether the block succeeded. A refusal by the switch is not an error of the
        attacker."""
        try:
            yield
            self.count(what)
        except FAILURES as error:
            self.count(f"{what}_failed")
            self.did[f"{what}_failure"] = str(error)[:200] or type(error).__name__
            if isinstance(error, (OSError, socket.timeout)):
                time.sleep(0.002)


class Holder(Attack):
    """Holds connections, and closes them at the end."""

    job_options = {}  # arguments of peer.run_job() in run_jobs()

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.held = []

    def end(self):
        for one in self.held:
            one.close()
        self.held = []

    def connect(self, timeout_s=peer.TIMEOUT_S):
        """Opens and holds one more connection. None: there is no room."""
        try:
            self.held.append(Peer(self.path, timeout_s))
            self.most("connections", len(self.held))
            return self.held[-1]
        except OSError:
            self.count("connections_failed")
            return None

    def run_job(self, **more):
        """Starts and holds a job. None: the switch refuses it."""
        with self.trying("jobs"):
            one, _ = peer.run_job(self.path, self.name(), **more)
            self.held.append(one)
            return one
        return None

    def run_jobs(self, most, seconds):
        """Starts up to `most` jobs, until the switch refuses one for good or `seconds` are over. A
        refusal for lack of room is tried again."""
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
