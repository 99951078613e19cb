"""The running ranks of one fault."""

import contextlib
import os
import signal
import subprocess
import time

from benchlib import processes
from errors import OUTCOME, error_of

DEADLINE_S = 6  # beyond the timeout of a rank that waits


class Case:
    """The ranks of one fault."""

    def __init__(self, fault, bed):
        self.fault, self.bed = fault, bed
        self.job = fault.name
        self.workers = {rank: self._start(rank) for rank in range(fault.world)
                        if rank not in fault.absent}

    def _start(self, rank):
        log = self.bed.folder / f"{self.job}-{rank}.out"
        command = [self.bed.build / "tests/why/ina-why-worker", self.bed.url(rank), self.job, rank,
                   self.fault.world, *self.fault.steps[rank]]
        environment = os.environ | {"INA_TIMEOUT_US": str(int(self.fault.timeout_s * 1e6))}
        environment |= {key: str(text) for key, text in self.fault.environment.get(rank, {}).items()}
        with open(log, "wb") as file:
            return subprocess.Popen([str(word) for word in self.bed.command(rank, command)],
                                    env=environment, stdin=subprocess.DEVNULL, stdout=file,
                                    stderr=subprocess.STDOUT,
                                    preexec_fn=processes.ended_with_parent())

    def said(self, rank):
        path = self.bed.folder / f"{self.job}-{rank}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def all_said(self):
        return [self.said(rank) for rank in self.workers]

    def error(self, rank):
        """Returns the status and the text of the rank's error; None without one."""
        return error_of(self.said(rank))

    def is_over(self, rank):
        """Whether the rank has carried out its steps, or got an error."""
        return (self.error(rank) is not None
                or len(OUTCOME.findall(self.said(rank))) == len(self.fault.steps[rank]))

    def await_(self, holds, most_s=DEADLINE_S):
        deadline = time.monotonic() + most_s
        while time.monotonic() < deadline:
            if holds():
                return True
            time.sleep(0.01)
        return False

    def signal(self, rank, number):
        self.workers[rank].send_signal(number)

    def close(self):
        for worker in self.workers.values():
            with contextlib.suppress(ProcessLookupError):
                worker.send_signal(signal.SIGCONT)
            worker.kill()
            worker.wait()
