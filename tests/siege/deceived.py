"""Users who take a false switch (false_switch.py) for theirs: inactl asks it for the status, and a
worker joins a job there. Each must end by its own deadline with an error, and with little memory.
"""

import os
import pathlib
import resource
import subprocess
import time

import false_switch
from bed import MIB, VICTIM_UID

PORT = 17584
TIMEOUT_S = 1
# libina asks once more why it waited, and says goodbye; the rest is for a machine that does much
# else.
MOST_S = TIMEOUT_S + 2 + 5
MOST_BYTES = 96 * MIB
MOST_TEXT = 20000
ADDRESS_SPACE = 8 << 30  # saves the machine if a client takes what it is told to


def paths(bed):
    return [f"{bed.socket}.{name}" for name in false_switch.LIES]


def sockets(bed):
    """Yields the name of each lie, and the socket where it is told."""
    yield from zip(false_switch.LIES, paths(bed))
    for number, name in enumerate(false_switch.STREAMED):
        yield name, f"tcp:127.0.0.1:{PORT + number}"


def inactl(bed, socket):
    return [bed.build / "programs/inactl/inactl", "status", "--socket", socket,
            "--timeout", f"{TIMEOUT_S}s"]


def log_of(bed):
    """Returns the log of all workers that are deceived, none of which gets a sum."""
    log = bed.folder / "deceived"
    log.touch()
    os.chown(log, VICTIM_UID, VICTIM_UID)
    return log


def worker(bed, socket):
    url = f"udp:127.0.0.1?control={socket}" if socket.startswith("tcp:") else f"shm:{socket}"
    return [bed.build / "tests/siege/ina-siege-victim", url, "deceived", "0", "2", "16384", log_of(bed)]


def is_error_of_inactl(status, text):
    return 1 <= status <= 4 and text.startswith("inactl: ")


def is_error_of_worker(status, text):
    return status == 0 and text.startswith("INA_ERR_")


CLIENTS = {"inactl": (inactl, is_error_of_inactl), "libina": (worker, is_error_of_worker)}


class Client:
    """One run of a client. After end(): `problem` (empty: none), `seconds`, `bytes`."""

    def __init__(self, command, lie):
        self.lie = lie
        self.start = time.monotonic()
        space = (ADDRESS_SPACE, ADDRESS_SPACE)
        self.process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, cwd="/", user=VICTIM_UID, group=VICTIM_UID, extra_groups=[],
            env=os.environ | {"INA_TIMEOUT_US": str(TIMEOUT_S * 1000000)},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, space))

    def end(self, is_error):
        """Waits for it until MOST_S after its start."""
        while not (done := os.wait4(self.process.pid, os.WNOHANG))[0]:
            if time.monotonic() - self.start > MOST_S:
                self.process.kill()
                done = os.wait4(self.process.pid, 0)
                break
            time.sleep(0.01)
        self.seconds = time.monotonic() - self.start
        self.bytes = done[2].ru_maxrss << 10
        self.process.returncode = os.waitstatus_to_exitcode(done[1])
        text = self.process.stdout.read(MOST_TEXT).decode("utf-8", "replace")
        self.process.stdout.close()
        self.problem = self.problem_of(text, is_error)

    def problem_of(self, text, is_error):
        if self.process.returncode < 0:
            return f"ends by signal {-self.process.returncode} after {self.seconds:.1f} s"
        if "no switch at" in text:
            return "has found no false switch"
        if not is_error(self.process.returncode, text):
            return f"has status {self.process.returncode} and says {text[:200]!r}"
        if self.bytes > MOST_BYTES:
            return f"takes {self.bytes >> 20} MiB"
        return ""


def deceive(bed, kind):
    """Runs a client against each lie, all at once. Returns the problems; `bed.figures` has the
    slowest and the largest client."""
    command, is_error = CLIENTS[kind]
    bed.wait("the false switch", lambda: all(pathlib.Path(path).exists() for path in paths(bed)))
    clients = [Client(command(bed, socket), name) for name, socket in sockets(bed)]
    for one in clients:
        one.end(is_error)
    for key, value in (("client_max_s", max(one.seconds for one in clients)),
                       ("client_max_rss_bytes", max(one.bytes for one in clients))):
        bed.figures[key] = max(bed.figures.get(key, 0), value)
    return [f"{kind}, {one.lie}: {one.problem}" for one in clients if one.problem]
