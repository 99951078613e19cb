"""Competitors: the ranks of one library each, started once, and asleep while it is not their turn.

The ranks run bench/peers/harness.cc, linked with that library. The harness documents the requests.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time

from benchlib import processes, stats

AREA_BYTES = 4096
LAST_WORDS = 300  # characters of a failed competitor's output

START_DEADLINE_S = 60
# The deadline of one request. An operation on 256 MiB takes a second or two at most.
REQUEST_DEADLINE_S = 180
STOP_DEADLINE_S = 10

LIBRARY_OF_PROGRAM = {"peer_openmpi": "OpenMPI", "peer_mpich": "MPICH", "peer_gloo": "Gloo"}


def payload_up(collective, size, ranks):
    """Returns the bytes of all ranks' contributions to one operation of ours
    (docs/collectives.md)."""
    block = size // ranks
    return {
        "broadcast": size, "all-gather": block * ranks, "gather": block * (ranks - 1),
        "scatter": block * (ranks - 1), "all-to-all": block * (ranks - 1) * ranks,
        "reduce-scatter": block * ranks * ranks,
        # The ranks first exchange their counts, 32 bytes each.
        "send-receive": (size + 32) * ranks, "barrier": 0,
    }.get(collective, size * ranks)


class TeamLost(Exception):
    """A competitor can no longer be measured; the text has the reason."""


class Team:
    """The running ranks of one competitor."""

    def __init__(self, name, program, ranks, folder, launch, environment=None, ours=False):
        """`launch(command)`: returns the commands that start all ranks, from the command of one
        rank of the harness. `ours`: a failure of the team is an error of the project."""
        self.name = name
        self.program = program
        self.ranks = ranks
        self.ours = ours
        self.environment = environment or {}
        self.processes = []
        self.lines = []  # connections of the ranks, by rank
        self.pids = []
        self.modes = []
        self.version = None
        self.operations = {}  # by collective and bytes, the number of all operations
        folder.mkdir()
        self.log = folder / "log"
        self.socket_path = folder / "socket"
        area = folder / "area"
        area.write_bytes(bytes(AREA_BYTES))
        self.commands = launch([str(program), "--socket", str(self.socket_path),
                                "--area", str(area)])

    def start(self):
        if not self.program.exists():
            library = LIBRARY_OF_PROGRAM.get(self.program.name, self.program.name)
            raise TeamLost(f"{library} was not found when the harness was built")
        for command in self.commands:
            if not shutil.which(command[0]):
                raise TeamLost(f"{command[0]} is not installed")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(self.socket_path))
            listener.listen(self.ranks)
            for command in self.commands:
                self.processes.append(processes.start_logged(
                    command, self.log, env=os.environ | self.environment, process_group=0))
            self.accept_all(listener)

    def accept_all(self, listener):
        deadline = time.monotonic() + START_DEADLINE_S
        by_rank = {}
        while len(by_rank) < self.ranks:
            listener.settimeout(0.2)
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                self.require_running()
                if time.monotonic() > deadline:
                    raise TeamLost(f"not all ranks have joined within {START_DEADLINE_S} s; "
                                   + self.last_words()) from None
                continue
            connection.settimeout(START_DEADLINE_S)
            line = Line(connection)
            words = line.hear(deadline).split(" ", 5)
            if words[0] != "hello" or int(words[2]) != self.ranks:
                raise TeamLost(f"said {words} instead of hello; {self.last_words()}")
            by_rank[int(words[1])] = line
            self.pids.append(int(words[3]))
            self.modes = words[4].split(",")
            self.version = words[5]
        self.lines = [by_rank[rank] for rank in range(self.ranks)]

    def require_running(self):
        for process in self.processes:
            if process.poll() is not None:
                raise TeamLost(f"a process ended (status {process.returncode}); "
                               + self.last_words())

    def last_words(self):
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        text = " ".join(line.strip() for line in text.splitlines() if line.strip(" -"))
        return f"it said: {text[:LAST_WORDS]}" if text else "it said nothing"

    def ask(self, request):
        """Sends a request. Returns all ranks' answers, by rank."""
        deadline = time.monotonic() + REQUEST_DEADLINE_S
        try:
            for line in self.lines:
                line.say(request)
            answers = [line.hear(deadline) for line in self.lines]
        except OSError as error:
            raise TeamLost(f"\"{request}\": {error}; {self.last_words()}") from error
        for rank, answer in enumerate(answers):
            if answer.startswith("error"):
                raise TeamLost(f"\"{request}\", rank {rank}: {answer}")
        return answers

    def modes_of(self, collective):
        """Returns algorithms or kinds of buffers for a collective; none if the library lacks it."""
        return self.ask(f"modes {collective}")[0].split()[1:]

    def check(self, mode, size, collective="allreduce"):
        answers = self.ask(f"check {mode} {size} {collective}")
        self.count(collective, size, 2)
        for rank, answer in enumerate(answers):
            if answer != "ok":
                raise TeamLost(f"WRONG RESULT with {mode} at {size} bytes, rank {rank}: {answer}")

    def run(self, mode, size, operations, collective="allreduce"):
        """Returns the time of each operation on its slowest rank, in us."""
        by_rank = []
        for answer in self.ask(f"run {mode} {size} {operations} {collective}"):
            verb, warm_ups, *times = answer.split()
            if verb != "times" or len(times) != operations:
                raise TeamLost(f"answered {answer[:100]}")
            by_rank.append([int(t) for t in times])
        self.count(collective, size, operations + int(warm_ups))
        return [time_ns / 1000 for time_ns in stats.slowest(by_rank)]

    def count(self, collective, size, operations):
        key = collective, size
        self.operations[key] = self.operations.get(key, 0) + operations

    def contributed_bytes(self):
        """Returns the payload that all ranks sent for all operations."""
        return sum(payload_up(collective, size, self.ranks) * operations
                   for (collective, size), operations in self.operations.items())

    def stop(self):
        """Ends all processes of the team, first by closing the connections, then by signals."""
        for line in self.lines:
            line.close()
        deadline = time.monotonic() + (STOP_DEADLINE_S if self.lines else 0)
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        # MPI launchers end their ranks on such a signal.
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            for process in self.processes:
                if process.poll() is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal_number)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(STOP_DEADLINE_S)
        for pid in self.pids:
            # A launcher may be the ranks' parent. The check of the program shows that no other
            # process has got the pid.
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/exe") == str(self.program):
                    os.kill(pid, signal.SIGKILL)


class Line:
    """The connection to one rank."""

    def __init__(self, connection):
        self.connection = connection
        self.heard = b""

    def say(self, text):
        self.connection.sendall(text.encode() + b"\n")

    def hear(self, deadline):
        while b"\n" not in self.heard:
            self.connection.settimeout(max(0.001, deadline - time.monotonic()))
            piece = self.connection.recv(1 << 16)
            if not piece:
                raise ConnectionResetError("a rank has gone")
            self.heard += piece
        line, _, self.heard = self.heard.partition(b"\n")
        return line.decode(errors="replace")

    def close(self):
        self.connection.close()
