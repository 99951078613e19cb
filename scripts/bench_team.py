"""Competitors that take turns: the ranks of each, started once and asleep while it is not their
turn, and rounds in which all of them are measured one after the other.

What they run is bench/peers/harness.cc, linked with one library each, which says how it is talked
to. Nothing here knows which libraries there are.
"""

import contextlib
import os
import select
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time

from bench_allreduce import BenchError

MIN_OPERATIONS, MAX_OPERATIONS = 3, 10_000
AREA_BYTES = 4096
LAST_WORDS = 300  # characters of what a failed competitor printed

START_DEADLINE_S = 60
# Of one request; an operation on 256 MiB takes a second or two at most.
REQUEST_DEADLINE_S = 180
STOP_DEADLINE_S = 10

LIBRARY_OF_PROGRAM = {"peer_openmpi": "OpenMPI", "peer_mpich": "MPICH", "peer_gloo": "Gloo"}


class TeamLost(Exception):
    """A competitor cannot be measured any more; the text says why."""


def progress(text):
    """One line on standard error, written over where that is a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


def progress_done():
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)


class CorePing:
    """The round trip between two cores, whenever it is asked for."""

    def __init__(self, build):
        self.process = subprocess.Popen([build / "bench/peers/peer_core_ping"], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def measure_ns(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], REQUEST_DEADLINE_S)[0]:
            raise BenchError("the core-to-core round trip was not measured in time")
        return int(self.process.stdout.readline())

    def stop(self):
        self.process.kill()
        self.process.wait()


class Team:
    """The running ranks of one competitor."""

    def __init__(self, name, program, ranks, folder, launch, environment=None, ours=False):
        """`launch(command)`: the commands that start all ranks, from the one that starts a rank of
        the harness. `ours`: that it fails is our fault."""
        self.name = name
        self.program = program
        self.ranks = ranks
        self.ours = ours
        self.environment = environment or {}
        self.processes = []
        self.lines = []  # of connected ranks, by rank
        self.pids = []
        self.modes = []
        self.version = None
        self.operations = {}  # by bytes, all that were made
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
            with open(self.log, "wb") as log:
                for command in self.commands:
                    self.processes.append(subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                        env=os.environ | self.environment, process_group=0))
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
        """All ranks' answers, by rank."""
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

    def check(self, mode, size):
        answers = self.ask(f"check {mode} {size}")
        self.count(size, 2)
        for rank, answer in enumerate(answers):
            if answer != "ok":
                raise TeamLost(f"WRONG RESULT with {mode} at {size} bytes, rank {rank}: {answer}")

    def run(self, mode, size, operations):
        """Time of each operation on its slowest rank, in us."""
        by_rank = []
        for answer in self.ask(f"run {mode} {size} {operations}"):
            verb, warm_ups, *times = answer.split()
            if verb != "times" or len(times) != operations:
                raise TeamLost(f"answered {answer[:100]}")
            by_rank.append([int(t) for t in times])
        self.count(size, operations + int(warm_ups))
        return [max(times) / 1000 for times in zip(*by_rank)]

    def count(self, size, operations):
        self.operations[size] = self.operations.get(size, 0) + operations

    def contributed_bytes(self):
        return sum(self.ranks * size * operations for size, operations in self.operations.items())

    def stop(self):
        """Ends everything it started: by the end of the connections, then by signals."""
        for line in self.lines:
            line.close()
        deadline = time.monotonic() + (STOP_DEADLINE_S if self.lines else 0)
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        # MPI launchers end their ranks when they are told to end.
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            for process in self.processes:
                if process.poll() is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal_number)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(STOP_DEADLINE_S)
        for pid in self.pids:
            # Ranks have a launcher between them and us. Still ours, unless the number was reused.
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


class Contestant:
    """A team in one of its modes; `name` is what the rows call it."""

    def __init__(self, name, team, mode):
        self.name = name
        self.team = team
        self.mode = mode
        self.operations = MIN_OPERATIONS


class Tournament:
    """Teams that are measured in turn. `where` begins what is said of it, e.g. "4 ranks"."""

    def __init__(self, where, turn_s, ping):
        self.where = where
        self.turn_s = turn_s
        self.ping = ping
        self.teams = []
        self.contestants = []
        self.lost = {}  # by team's name: why

    def enter(self, team, name_of_mode):
        """Starts it. `name_of_mode(mode)`: what that contestant is called."""
        progress(f"{self.where}: starting {team.name}")
        self.teams.append(team)
        try:
            team.start()
            self.contestants += [Contestant(name_of_mode(mode), team, mode) for mode in team.modes]
        except (TeamLost, OSError) as error:
            self.lose(team, error)
        finally:
            progress_done()

    def lose(self, team, error):
        """Our own failures end the run."""
        if team.ours:
            raise BenchError(f"{self.where}: {team.name} failed: {error}")
        progress_done()
        print(f"{self.where}: {team.name} is out: {error}", file=sys.stderr)
        self.lost[team.name] = str(error)
        self.contestants = [c for c in self.contestants if c.team is not team]
        team.stop()

    def attempt(self, contestant, action):
        if contestant.team.name in self.lost:
            return None
        try:
            return action()
        except (TeamLost, OSError) as error:
            self.lose(contestant.team, error)
            return None
        finally:
            progress_done()

    def play(self, size, rounds):
        """Checks all at this size, then measures them: by round, each contestant's sample."""
        for contestant in list(self.contestants):
            progress(f"{self.where}, {size} bytes: checking {contestant.name}")
            self.attempt(contestant, lambda c=contestant: self.prepare(c, size))
        played = []
        for number in range(rounds):
            samples = {}
            start = number % max(1, len(self.contestants))
            for contestant in self.contestants[start:] + self.contestants[:start]:
                progress(f"{self.where}, {size} bytes: round {number + 1} of {rounds}, "
                         f"{contestant.name}")
                sample = self.attempt(contestant, lambda c=contestant: self.turn(c, size))
                if sample:
                    samples[contestant.name] = sample
            played.append(samples)
        return played

    def prepare(self, contestant, size):
        """Checks it, and finds how many operations make a turn."""
        contestant.team.check(contestant.mode, size)
        contestant.operations = MIN_OPERATIONS
        for share in (0.1, 1):  # a few operations are a poor estimate
            times = contestant.team.run(contestant.mode, size, contestant.operations)
            fit = self.turn_s / (statistics.median(times) * 1e-6)
            contestant.operations = int(min(max(fit * share, MIN_OPERATIONS), MAX_OPERATIONS))
            if fit <= MIN_OPERATIONS:
                break  # nothing to estimate better

    def turn(self, contestant, size):
        before_ns = self.ping.measure_ns()
        times = contestant.team.run(contestant.mode, size, contestant.operations)
        after_ns = self.ping.measure_ns()
        first, middle, third = statistics.quantiles(times, n=4, method="inclusive")
        return {"us": middle, "q1_us": first, "q3_us": third, "min_us": min(times),
                "operations": len(times), "core_round_trip_ns": [before_ns, after_ns]}

    def stop(self):
        for team in self.teams:
            team.stop()
