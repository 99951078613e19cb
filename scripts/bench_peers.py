#!/usr/bin/env python3
"""Compares our collectives with those of OpenMPI, MPICH and Gloo, interleaved in one run.

    bench_peers.py --build FOLDER [--collectives allreduce,broadcast,...] [--ranks 2,4,8] [--quick]
                   [--rounds N] [--sizes 4096,...] [--lanes N] [--json FILE]

For each number of ranks all competitors are started at once: n processes each, of one harness
(bench/peers) linked with one library. A competitor sleeps in read() while it is not its turn. For
each collective and size, each competitor must first show that its results are right in every
element. Then, in each round, all take their turns, in an order that rotates from round to round. A
turn is k operations. Each operation begins at a start line that is the same for all competitors,
and ends when the slowest rank has its result. A sample is the median of the k times. Before and
after each turn the round trip between two cores is measured. On virtual machines the round trip
changes within seconds, and the speed of shared memory with it.

--json writes {"meta": ..., "rows": [one object for each collective, number of ranks, size, and kind
of our buffers]}. `bytes` is the whole vector: all ranks' blocks together; for a send-receive (to
the next rank; MPI_Sendrecv) it is the data that each rank sends. Ratios are the peer's time divided
by ours in the same round, as medians over the rounds: above 1 ours is faster. A peer that is not
installed, or fails, is null, and `missing` has the reason.

--lanes: packet loops of the switch (switch.lcores), 1 without it. Processes are bound to cores if
there is a core for each rank and for each packet loop. Otherwise no process is bound, and all libraries are told to yield: OpenMPI by --oversubscribe, MPICH by
MPIR_CVAR_POLLS_BEFORE_YIELD, its only documented means (it waits for whole time slices
nevertheless, so its times are in the ratios only where each rank has a core). Gloo sleeps by
itself.

Peers run at their best settings, and OpenMPI once more as it comes (`openmpi_default`: mpirun's
defaults for transport and algorithm, malloc's own settings). OpenMPI: all algorithms of its component "tuned" are tried for
each collective and size, and the fastest is measured, which may be OpenMPI's own choice
(`algorithms` has the result). Over shared memory OpenMPI copies by CMA; a check between two
processes shows beforehand that CMA works here (`meta.cma_works`). malloc keeps the memory that
libraries free, so that no operation pays for pages again. MPI and Gloo's ring work out of place, as
ours do. Gloo's halving-doubling and its reduce-scatter work in place, and the copy that makes up
for this is not timed.
"""

import os

from bench_peers_report import HEADER, OURS, make_row, table_line
from benchlib import command_line, machine, metadata, results
from benchlib.core_ping import CorePing
from benchlib.mpi import AS_ROOT, MPIRUN
from benchlib.processes import temporary_folder
from benchlib.switch import SLOT_BYTES, add_lanes_option, check_absorbed, plain_switch
from benchlib.teams import Team
from benchlib.tournament import Contestant, Tournament

SIZES_BYTES = [4 << 10 << 2 * i for i in range(8)]  # 4 KiB .. 64 MiB
ALLREDUCE_SIZES_BYTES = [*SIZES_BYTES, 256 << 20]
QUICK_SIZES_BYTES = [4 << 10, 64 << 10, 1 << 20]
QUICK_ALLREDUCE_SIZES_BYTES = [*QUICK_SIZES_BYTES, 64 << 20]
# The collectives that at least one peer has. Our permute corresponds to a peer's send and receive.
COLLECTIVES = ("allreduce", "reduce", "reduce-scatter", "broadcast", "all-gather", "gather", "scatter",
               "all-to-all", "send-receive", "barrier")
ROUNDS, QUICK_ROUNDS = 9, 3
TURN_S, QUICK_TURN_S = 0.2, 0.1
# Buffers from this size on are returned to the system after a turn: the buffers of all competitors
# together would not fit. A turn takes seconds, so there are fewer rounds.
RELEASE_FROM_BYTES = 64 << 20
LARGE_ROUNDS = 5
# Send and receive buffers, and the libraries' own allocations.
MEMORY_FACTOR = 5

# malloc returns no freed memory to the system, and never uses mmap.
ALLOCATOR_ENVIRONMENT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
                         "MALLOC_TOP_PAD_": str(64 << 20)}
# plm isolated: a single machine. Without it mpirun does not start if there is no ssh.
OPENMPI = [*MPIRUN["openmpi"], "--mca", "pml", "ob1", "--mca", "coll_tuned_use_dynamic_rules", "1"]
# By team: the program, how it is launched, and the environment, both always and with more ranks
# than cores. Without a launcher the benchmark starts the ranks itself.
TEAMS = {
    "ina": {"program": "peer_ina", "environment": ALLOCATOR_ENVIRONMENT},
    "openmpi_shm": {
        "program": "peer_openmpi",
        "launcher": [*OPENMPI, "--mca", "btl", "vader,self", "--mca",
                     "btl_vader_single_copy_mechanism", "cma", "-n", "{ranks}"],
        "environment": ALLOCATOR_ENVIRONMENT | AS_ROOT,
    },
    "openmpi_default": {
        "program": "peer_openmpi",
        "launcher": [*MPIRUN["openmpi"], "-n", "{ranks}"],
        "environment": AS_ROOT,
    },
    "openmpi_tcp": {
        "program": "peer_openmpi",
        "launcher": [*OPENMPI, "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo",
                     "-n", "{ranks}"],
        "environment": ALLOCATOR_ENVIRONMENT | AS_ROOT,
    },
    "mpich": {
        "program": "peer_mpich",
        "launcher": ["mpiexec.mpich", "-bind-to", "none", "-n", "{ranks}"],
        "environment": ALLOCATOR_ENVIRONMENT,
        # MPICH spins in all its waits. By default it yields once in 1000 polls.
        "oversubscribed_environment": {"MPIR_CVAR_POLLS_BEFORE_YIELD": "1"},
    },
    "gloo": {"program": "peer_gloo", "environment": ALLOCATOR_ENVIRONMENT},
}


class Comparison(Tournament):
    """All competitors with one number of ranks, at one collective after the other."""

    def __init__(self, options, folder, ranks, ping):
        super().__init__(f"{ranks} ranks", options.turn_s, ping)
        self.collective = "allreduce"
        self.options = options
        self.ranks = ranks
        self.build = options.build.resolve()
        self.folder = folder
        # There is one core for each rank and each packet loop, or no process is bound.
        self.bound = machine.cpus() >= ranks + options.lanes
        self.switch = plain_switch(self.build, self.folder, lanes=options.lanes)

    def start(self):
        self.switch.wait_until_ready()
        if self.bound:
            cores = sorted(os.sched_getaffinity(0))[self.ranks:]
            for thread in os.listdir(f"/proc/{self.switch.process.pid}/task"):
                os.sched_setaffinity(int(thread), cores)
        for name in TEAMS:
            self.enter(self.make_team(name), lambda mode, name=name: name)

    def go_on_with(self, collective):
        self.collective = collective
        self.where = f"{self.ranks} ranks, {collective}"
        self.choose(collective, self.contestants_of)

    def contestants_of(self, team, modes):
        """Returns the contestants of a team. OpenMPI has one, with the fastest of its algorithms, or
        with its own choice, which is its first mode. Other teams have one for each mode."""
        if team.name == "openmpi_default":
            return [Contestant(team.name, team, modes[0], collective=self.collective)]
        if team.name.startswith("openmpi"):
            return [Contestant(team.name, team, modes[0], modes, self.collective)]
        return [Contestant(team.name if mode == "plain" and not team.ours else f"{team.name}_{mode}",
                           team, mode, collective=self.collective) for mode in modes]

    def make_team(self, name):
        what = TEAMS[name]
        folder = self.folder / f"{name}-{self.ranks}"
        environment = what["environment"] | {"INA_JOB": f"peers-{self.ranks}"}
        if self.ranks > machine.cpus():
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
        """Returns the rows of one size."""
        if size * self.ranks * MEMORY_FACTOR > machine.memory_bytes():
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
        for team in self.teams:
            if team.name not in missing and all(c.team is not team for c in self.contestants):
                missing[team.name] = f"it has no {self.collective}"
        if reason:
            missing |= {c.name: reason for c in self.contestants}
        own = [kind for kind, name in OURS.items()
               if name in measured or reason and name == OURS["plain"]]
        algorithms = {c.name: c.mode for c in self.contestants if len(c.modes) > 1}
        return [make_row(self.ranks, size, kind, rounds, missing, self.collective, algorithms,
                         cpus=machine.cpus()) for kind in own]

    def check_absorbed(self):
        """Checks that all of our contributions went through the switch."""
        expected = sum(team.contributed_bytes() for team in self.teams if team.ours)
        check_absorbed(f"{self.ranks} ranks", self.switch.absorbed_bytes(), expected)

    def stop(self):
        super().stop()
        self.switch.stop()


def sizes_of(collective, options):
    """Returns the sizes in bytes; a barrier has none."""
    if collective == "barrier":
        return [0]
    if options.sizes:
        return [int(size) for size in options.sizes.split(",")]
    if collective == "allreduce":
        return QUICK_ALLREDUCE_SIZES_BYTES if options.quick else ALLREDUCE_SIZES_BYTES
    return QUICK_SIZES_BYTES if options.quick else SIZES_BYTES


def parse_options():
    parser = command_line.parser_of(__doc__)
    parser.add_argument("--collectives", default=",".join(COLLECTIVES))
    parser.add_argument("--ranks", help="default 2,4,8; 2,4 with --quick")
    parser.add_argument("--sizes", help="bytes, e.g. 4096,1048576")
    parser.add_argument("--rounds", type=int)
    add_lanes_option(parser)
    parser.add_argument("--quick", action="store_true", help="fewer of all, some minutes")
    options = command_line.parse(parser)
    options.collectives = options.collectives.split(",")
    unknown = set(options.collectives) - set(COLLECTIVES)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))} (known: {', '.join(COLLECTIVES)})")
    options.rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    options.turn_s = QUICK_TURN_S if options.quick else TURN_S
    options.ranks = [int(n) for n in (options.ranks or ("2,4" if options.quick else "2,4,8")).split(",")]
    return options


def compare(comparison, options, rows):
    """Appends and prints the rows of all collectives with one number of ranks."""
    comparison.start()
    for collective in options.collectives:
        comparison.go_on_with(collective)
        for size in sizes_of(collective, options):
            for row in comparison.measure(size):
                rows.append(row)
                print(table_line(row), flush=True)
    comparison.check_absorbed()


def main():
    options = parse_options()
    rows, teams = [], {}
    meta = metadata.measured("peers", slot_bytes=SLOT_BYTES, rounds=options.rounds,
                             lanes=options.lanes, turn_s=options.turn_s, cma_works=machine.cma_works(),
                             teams_by_ranks=teams)
    if not meta["cma_works"]:
        print("process_vm_readv() is not allowed here: OpenMPI copies twice over shared memory")
    ping = CorePing(options.build.resolve())
    try:
        print(HEADER)
        for ranks in options.ranks:
            with temporary_folder("ina-peers-") as folder:
                comparison = Comparison(options, folder, ranks, ping)
                try:
                    compare(comparison, options, rows)
                    teams[ranks] = comparison.describe(
                        {folder: "TMP", comparison.build: options.build}, bound=comparison.bound)
                finally:
                    comparison.stop()
    finally:
        ping.stop()
    for name, team in teams[options.ranks[-1]].items():
        print(f"{name}: {team['version'] or '-'}"
              + (f" ({team['missing']})" if team["missing"] else ""))
    if not any(team["bound"] for by_name in teams.values() for team in by_name.values()):
        print("nobody bound to a core: ranks and the switch are more than the cores")
    results.write(options, {"meta": meta, "rows": rows})
    return 0


if __name__ == "__main__":
    command_line.run(main, "bench_peers")
