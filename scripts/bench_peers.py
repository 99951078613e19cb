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
import json
import os
import pathlib
import shlex
import signal
import sys
import tempfile

from bench_allreduce import (CONFIG, SLOT_BYTES, BenchError, Switch, memory_bytes, metadata)
from bench_peers_report import HEADER, OURS, make_row, table_line
from bench_team import CorePing, Team, Tournament
from outputs import result_file

SIZES_BYTES = [4 << 10 << 2 * i for i in range(9)]  # 4 KiB .. 256 MiB
QUICK_SIZES_BYTES = [4 << 10, 64 << 10, 1 << 20, 64 << 20]
ROUNDS, QUICK_ROUNDS = 9, 3
TURN_S, QUICK_TURN_S = 0.2, 0.1
# Buffers of this size go back to the system after a turn: all competitors' together would not fit.
# A turn takes seconds, so there are fewer rounds.
RELEASE_FROM_BYTES = 64 << 20
LARGE_ROUNDS = 5
# Send and receive buffers, and what libraries allocate for themselves.
MEMORY_FACTOR = 5

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


class Comparison(Tournament):
    """All competitors with one number of ranks."""

    def __init__(self, options, folder, ranks, ping):
        super().__init__(f"{ranks} ranks", options.turn_s, ping)
        self.options = options
        self.ranks = ranks
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
            self.enter(self.make_team(name), lambda mode, name=name:
                       name if mode == "plain" and name != "ina" else f"{name}_{mode}")

    def make_team(self, name):
        what = TEAMS[name]
        folder = self.folder / f"{name}-{self.ranks}"
        environment = what.get("environment", {}) | {"INA_JOB": f"peers-{self.ranks}"}
        if self.ranks > len(os.sched_getaffinity(0)):
            environment |= what.get("oversubscribed_environment", {})

        def launch(command):
            if self.bound:
                command = [*command, "--bind"]
            if "launcher" in what:
                return [[word.format(ranks=self.ranks) for word in what["launcher"]] + command]
            command += (["--url", f"shm:{self.switch.socket}"] if name == "ina"
                        else ["--rendezvous", str(folder)])
            return [[*command, "--rank", str(rank), "--ranks", str(self.ranks)]
                    for rank in range(self.ranks)]

        return Team(name, self.build / "bench/peers" / what["program"], self.ranks, folder, launch,
                    environment, ours=name == "ina")

    def measure(self, size):
        """Rows of one size."""
        if size * self.ranks * MEMORY_FACTOR > memory_bytes():
            return self.rows(size, [], f"{self.ranks} x {size} bytes do not fit into the memory")
        rounds = self.options.rounds
        if size >= RELEASE_FROM_BYTES:
            rounds = min(rounds, LARGE_ROUNDS)
        return self.rows(size, self.play(size, rounds), None)

    def prepare(self, contestant, size):
        super().prepare(contestant, size)
        self.release(contestant, size)

    def turn(self, contestant, size):
        sample = super().turn(contestant, size)
        self.release(contestant, size)
        return sample

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
        expected = sum(team.contributed_bytes() for team in self.teams if team.ours)
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
        super().stop()
        self.switch.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--ranks", help="default 2,4,8; 2,4 with --quick")
    parser.add_argument("--sizes", help="bytes, e.g. 4096,1048576")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--quick", action="store_true", help="fewer of all, about a minute")
    parser.add_argument("--json", type=result_file)
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
