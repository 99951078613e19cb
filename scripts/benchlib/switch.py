"""A private ina-switchd on this machine, an optional ina-memif, and their reports."""

import contextlib
import json
import time

from benchlib import processes
from benchlib.errors import BenchError, Unavailable

START_DEADLINE_S = 120
STATUS_DEADLINE_S = 120

# As conf/demo.yaml: 8 KiB slots, one job at a time.
SLOT_BYTES = 8192
SLOTS_PER_JOB = 512
SHM_PORT = """\
  - name: shm0
    type: shm
"""
CONFIG = """\
aggregator:
  slot_bytes: {slot_bytes}
  slots: {slots}
static:
  slots_per_job: {slots_per_job}
control:
  socket: "{socket}"
ports:
{ports}switch:
  lcores: {lanes}
log:
  level: warning
"""


def status(build, socket):
    """Returns the report of `inactl status` about the program that owns the control socket. Raises
    BenchError."""
    return json.loads(processes.run([build / "programs/inactl/inactl", "status", "-j", "--socket",
                                     socket], STATUS_DEADLINE_S))


def check_absorbed(where, absorbed, expected, most_lost=0):
    """Raises BenchError unless the switch added up the contributions of all ranks: a benchmark that
    bypasses the switch fails. `where`: the beginning of the error; `most_lost`: the share that may
    be missing."""
    if not expected * (1 - most_lost) <= absorbed <= expected:
        raise BenchError(f"{where}: the switch absorbed {absorbed} bytes, but ranks x bytes of all "
                         f"operations is {expected}")


class Switch:
    """A running ina-switchd. A `with` block begins when the switch answers, and ends the switch."""

    def __init__(self, build, folder, config, prefix=(), **values):
        """`config`: a template of the configuration with {socket}; `prefix`: words before the
        command, which become the switch, such as those that start it in a network namespace;
        `values`: values for the template's other names."""
        processes.exit_on_sigterm()
        self.build = build
        self.folder = folder
        self.socket = folder / "switch.sock"
        path = folder / "switch.yaml"
        path.write_text(config.format(socket=self.socket, **values), encoding="utf-8")
        self.log = folder / "switch.log"
        self.process = processes.start_logged(
            [*prefix, build / "switchd/ina-switchd", "--config", path], self.log)

    def wait_until_ready(self):
        """Raises Unavailable if the switch ends at once, as it does if a port cannot be made."""
        deadline = time.monotonic() + START_DEADLINE_S
        while True:
            with contextlib.suppress(BenchError):
                return self.status()
            if self.process.poll() is not None:
                raise Unavailable(f"ina-switchd ended at once (status {self.process.returncode}):\n"
                                  + self.log.read_text(errors="replace"))
            if time.monotonic() > deadline:
                raise BenchError(f"ina-switchd did not answer within {START_DEADLINE_S} s:\n"
                                 + self.log.read_text(errors="replace"))
            time.sleep(0.01)

    def require_running(self):
        """Raises BenchError with the switch's log if it has ended."""
        if self.process.poll() is not None:
            raise BenchError(f"ina-switchd has ended (status {self.process.returncode}):\n"
                             + self.log.read_text(errors="replace"))

    def status(self):
        return status(self.build, self.socket)

    def absorbed_bytes(self):
        """Returns the bytes of all contributions that the switch has added up so far."""
        return self.status()["aggregator"]["absorbed_bytes"]

    def stop(self):
        processes.stop(self.process)

    def __enter__(self):
        try:
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error):
        self.stop()


def plain_switch(build, folder, jobs=1, ports=SHM_PORT, more="", lanes=1):
    """Returns a switch of the static policy with 8 KiB slots for `jobs` jobs. `ports`: entries of
    that list; `more`: sections of the configuration; `lanes`: packet loops."""
    return Switch(build, folder, CONFIG + more, slot_bytes=SLOT_BYTES, slots=SLOTS_PER_JOB * jobs,
                  slots_per_job=SLOTS_PER_JOB, ports=ports, lanes=lanes)


def add_lanes_option(parser):
    """`--lanes N`: for machines that have cores for more than one packet loop."""
    parser.add_argument("--lanes", type=int, default=1, help="packet loops of the switch (default 1)")


class Bridge:
    """A running ina-memif for a switch that answers."""

    def __init__(self, build, switch, workers):
        self.socket = switch.folder / "memif-control.sock"
        self.process = processes.start_logged(
            [build / "programs/memif/ina-memif", "--switch", switch.socket, "--socket", self.socket,
             "--memif", switch.folder / "memif.sock", "--workers", workers],
            switch.folder / "memif.log")
        deadline = time.monotonic() + START_DEADLINE_S
        while not self.socket.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise Unavailable("ina-memif did not start")
            time.sleep(0.01)

    def stop(self):
        processes.stop(self.process)
