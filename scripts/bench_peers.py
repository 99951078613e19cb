#!/usr/bin/env python3
"""Compares all-reduce through the switch with OpenMPI, MPICH and Gloo, interleaved in one run.

    bench_peers.py --build FOLDER [--ranks 2,4,8] [--quick] [--rounds N] [--sizes 4096,...]
                   [--json FILE]

For each number of ranks all competitors are started at once: n processes each, of one harness
(bench/peers) linked with one library, which sleep in read() while it is not their turn. For each
size, each competitor shows that its sums are right in every element; then, in each round, all take
their turn, in an order that is rotated from round to round: k operations, each from a start line
that is the same for all competitors, timed until the slowest rank has its result. A sample is the
median of the k. Before and after each turn the round trip between two cores is measured, which on
virtual machines changes within seconds and shared memory's speed with it.

--json writes {"meta": ..., "rows": [one object for each number of ranks, size, and kind of our
buffers]}. Ratios are the peer's time by ours in the same round, medians over the rounds: above 1
where ours is faster. A peer that is not installed, or fails, is null, and `missing` says why.

Processes are bound to cores if there is one for each rank and one for the switch; otherwise nobody
is, and all libraries are told to yield: OpenMPI by --oversubscribe, MPICH by the only means that it
documents, MPIR_CVAR_POLLS_BEFORE_YIELD (it waits for whole time slices nevertheless). Gloo sleeps
by itself. MPI and the ring of Gloo work out of place, as ours; Gloo's halving-doubling in place,
and the copy that makes up for it is not timed.
"""

import argparse
import contextlib
import json
import os
import pathlib
import select
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from bench_allreduce import (CONFIG, SLOT_BYTES, BenchError, Switch, memory_bytes, metadata)
from bench_peers_report import HEADER, OURS, make_row, table_line

SIZES_BYTES = [4 << 10 << 2 * i for i in range(9)]  # 4 KiB .. 256 MiB
QUICK_SIZES_BYTES = [4 << 10, 64 << 10, 1 << 20, 64 << 20]
ROUNDS, QUICK_ROUNDS = 9, 3
TURN_S, QUICK_TURN_S = 0.2, 0.1
MIN_OPERATIONS, MAX_OPERATIONS = 3, 10_000
# Buffers of this size go back to the system after a turn: all competitors' together would not fit.
# A turn takes seconds, so there are fewer rounds.
RELEASE_FROM_BYTES = 64 << 20
LARGE_ROUNDS = 5
# Send and receive buffers, and what libraries allocate for themselves.
MEMORY_FACTOR = 5
AREA_BYTES = 4096
LAST_WORDS = 300  # characters of what a failed competitor printed

START_DEADLINE_S = 60
# Of one request; an operation on 256 MiB takes a second or two at most.
REQUEST_DEADLINE_S = 180
STOP_DEADLINE_S = 10

# plm isolated: one machine; without it mpirun refuses to start where there is no ssh.
OPENMPI = ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "--mca", "plm", "isolated",
           "--mca", "pml", "ob1"]
# By contestant's team: the program, how it is launched, and what goes into the environment, always
# and when there are more ranks than cores. No launcher: the ranks are started here.
TEAMS = {
    "ina": {"program": "peer_ina"},
    "openmpi_shm": {
        "program": "peer_openmpi",
        "launcher": [*OPENMPI, "--mca", "btl", "vader,self", "-n", "{ranks}"],
        "environment": {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
    },
    "openmpi_tcp": {
        "program": "peer_openmpi",
        "launcher": [*OPENMPI, "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo",
                     "-n", "{ranks}"],
        "environment": {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
    },
    "mpich": {
        "program": "peer_mpich",
        "launcher": ["mpiexec.mpich", "-bind-to", "none", "-n", "{ranks}"],
        # MPICH spins in all its waits. By itself it yields once in 1000 polls.
        "oversubscribed_environment": {"MPIR_CVAR_POLLS_BEFORE_YIELD": "1"},
    },
    "gloo": {"program": "peer_gloo"},
}
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

    def __init__(self, name, build, folder, ranks, bound, rendezvous=None):
        self.name = name
        self.ranks = ranks
        self.folder = folder / f"{name}-{ranks}"
        self.folder.mkdir()
        self.processes = []
        self.lines = []  # of connected ranks, by rank
        self.pids = []
        self.modes = []
        self.version = None
        self.operations = {}  # by bytes, all that were made
        what = TEAMS[name]
        self.program = build / "bench/peers" / what["program"]
        self.log = self.folder / "log"
        self.socket_path = self.folder / "socket"
        area = self.folder / "area"
        area.write_bytes(bytes(AREA_BYTES))
        oversubscribed = ranks > len(os.sched_getaffinity(0))
        environment = dict(what.get("environment", {}))
        if oversubscribed:
            environment |= what.get("oversubscribed_environment", {})
        self.environment = environment
        rank_command = [str(self.program), "--socket", str(self.socket_path), "--area", str(area)]
        if bound:
            rank_command.append("--bind")
        if "launcher" in what:
            launcher = [word.format(ranks=ranks) for word in what["launcher"]]
            self.commands = [[*launcher, *rank_command]]
        else:
            self.commands = [[*rank_command, "--rendezvous", rendezvous or str(self.folder),
                              "--rank", str(rank), "--ranks", str(ranks)] for rank in range(ranks)]

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
                        env=os.environ | self.environment | {"INA_JOB": f"peers-{self.ranks}"},
                        start_new_session=True))
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

    def absorbed_bytes(self):
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

    def __init__(self, team, mode):
        self.team = team
        self.mode = mode
        self.name = team.name if mode == "plain" and team.name != "ina" else f"{team.name}_{mode}"
        self.operations = MIN_OPERATIONS


class Comparison:
    """All competitors with one number of ranks."""

    def __init__(self, options, folder, ranks, ping):
        self.options = options
        self.ranks = ranks
        self.ping = ping
        self.teams = []
        self.contestants = []
        self.lost = {}  # by team's name: why
        self.build = options.build.resolve()
        self.folder = folder
        # One core for each rank and for the switch, or nobody is bound.
        self.bound = len(os.sched_getaffinity(0)) > ranks
        self.switch = Switch(self.build, self.folder, CONFIG, slot_bytes=SLOT_BYTES)

    def start(self):
        self.switch.wait_until_ready()
        if self.bound:
            cores = sorted(os.sched_getaffinity(0))[self.ranks:]
            for thread in os.listdir(f"/proc/{self.switch.process.pid}/task"):
                os.sched_setaffinity(int(thread), cores)
        for name in TEAMS:
            progress(f"{self.ranks} ranks: starting {name}")
            team = Team(name, self.build, self.folder, self.ranks, self.bound,
                        f"shm:{self.switch.socket}" if name == "ina" else None)
            self.teams.append(team)
            try:
                team.start()
                self.contestants += [Contestant(team, mode) for mode in team.modes]
            except (TeamLost, OSError) as error:
                self.lose(team, error)

    def lose(self, team, error):
        """Our own failures end the run."""
        if team.name == "ina":
            raise BenchError(f"{self.ranks} ranks: ours failed: {error}")
        progress_done()
        print(f"bench_peers: {self.ranks} ranks: {team.name} is out: {error}", file=sys.stderr)
        self.lost[team.name] = str(error)
        self.contestants = [c for c in self.contestants if c.team is not team]
        team.stop()

    def measure(self, size):
        """Rows of one size."""
        if size * self.ranks * MEMORY_FACTOR > memory_bytes():
            return self.rows(size, [], f"{self.ranks} x {size} bytes do not fit into the memory")
        for contestant in list(self.contestants):
            progress(f"{self.ranks} ranks, {size} bytes: checking {contestant.name}")
            self.attempt(contestant, lambda c=contestant: self.prepare(c, size))
        rounds = []
        planned = self.options.rounds
        if size >= RELEASE_FROM_BYTES:
            planned = min(planned, LARGE_ROUNDS)
        for number in range(planned):
            samples = {}
            start = number % max(1, len(self.contestants))
            for contestant in self.contestants[start:] + self.contestants[:start]:
                progress(f"{self.ranks} ranks, {size} bytes: round {number + 1} of "
                         f"{planned}, {contestant.name}")
                sample = self.attempt(contestant, lambda c=contestant: self.turn(c, size))
                if sample:
                    samples[contestant.name] = sample
            rounds.append(samples)
        progress_done()
        return self.rows(size, rounds, None)

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

    def prepare(self, contestant, size):
        """Checks it, and finds how many operations make a turn."""
        contestant.team.check(contestant.mode, size)
        contestant.operations = MIN_OPERATIONS
        for share in (0.1, 1):  # a few operations are a poor estimate
            times = contestant.team.run(contestant.mode, size, contestant.operations)
            fit = self.options.turn_s / (statistics.median(times) * 1e-6)
            contestant.operations = int(min(max(fit * share, MIN_OPERATIONS), MAX_OPERATIONS))
            if fit <= MIN_OPERATIONS:
                break  # nothing to estimate better
        self.release(contestant, size)

    def turn(self, contestant, size):
        before_ns = self.ping.measure_ns()
        times = contestant.team.run(contestant.mode, size, contestant.operations)
        after_ns = self.ping.measure_ns()
        self.release(contestant, size)
        first, middle, third = statistics.quantiles(times, n=4, method="inclusive")
        return {"us": middle, "q1_us": first, "q3_us": third, "min_us": min(times),
                "operations": len(times), "core_round_trip_ns": [before_ns, after_ns]}

    def release(self, contestant, size):
        if size >= RELEASE_FROM_BYTES:
            contestant.team.ask("release")

    def rows(self, size, rounds, reason):
        measured = {c.name for c in self.contestants} if reason is None else set()
        missing = dict(self.lost)
        if reason:
            missing |= {c.name: reason for c in self.contestants}
        own = [kind for kind, name in OURS.items()
               if name in measured or reason and name == OURS["plain"]]
        return [make_row(self.ranks, size, kind, rounds, missing) for kind in own]

    def check_absorbed(self):
        """Ours went through the switch, all of it."""
        expected = sum(team.absorbed_bytes() for team in self.teams if team.name == "ina")
        absorbed = self.switch.absorbed_bytes()
        if absorbed != expected:
            raise BenchError(f"{self.ranks} ranks: the switch absorbed {absorbed} bytes, but "
                             f"ranks x bytes of all operations is {expected}")

    def describe(self):
        """What ran, without the names of folders that are this machine's."""
        return {team.name: {
            "version": team.version,
            "command": shlex.join(team.commands[0]).replace(str(self.folder), "TMP")
                       .replace(str(self.build), str(self.options.build)),
            "environment": team.environment,
            "bound": self.bound,
            "missing": self.lost.get(team.name),
        } for team in self.teams}

    def stop(self):
        for team in self.teams:
            team.stop()
        self.switch.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--ranks", help="default 2,4,8; 2,4 with --quick")
    parser.add_argument("--sizes", help="bytes, e.g. 4096,1048576")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--quick", action="store_true", help="fewer of all, about a minute")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    options.rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    options.turn_s = QUICK_TURN_S if options.quick else TURN_S
    sizes = QUICK_SIZES_BYTES if options.quick else SIZES_BYTES
    if options.sizes:
        sizes = [int(size) for size in options.sizes.split(",")]
    all_ranks = options.ranks or ("2,4" if options.quick else "2,4,8")
    all_ranks = [int(ranks) for ranks in all_ranks.split(",")]

    rows, teams = [], {}
    meta = metadata("peers", slot_bytes=SLOT_BYTES, rounds=options.rounds, turn_s=options.turn_s,
                    teams_by_ranks=teams)
    ping = CorePing(options.build.resolve())
    try:
        print(HEADER)
        for ranks in all_ranks:
            with tempfile.TemporaryDirectory(prefix="ina-peers-") as folder:
                comparison = Comparison(options, pathlib.Path(folder), ranks, ping)
                try:
                    comparison.start()
                    for size in sizes:
                        for row in comparison.measure(size):
                            rows.append(row)
                            print(table_line(row), flush=True)
                    comparison.check_absorbed()
                    teams[ranks] = comparison.describe()
                finally:
                    comparison.stop()
    finally:
        ping.stop()
    for name, team in teams[all_ranks[-1]].items():
        print(f"{name}: {team['version'] or '-'}"
              + (f" ({team['missing']})" if team["missing"] else ""))
    if not any(team["bound"] for by_name in teams.values() for team in by_name.values()):
        print("nobody bound to a core: ranks and the switch are more than the cores")
    if options.json:
        options.json.write_text(json.dumps({"meta": meta, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        sys.exit(main())
    except BenchError as error:
        print(f"bench_peers: {error}", file=sys.stderr)
        sys.exit(1)
