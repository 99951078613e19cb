#!/usr/bin/env python3
"""Kills workers and servers in the middle of their work, and checks the consequences.

    kill_loop.py --build FOLDER [--repetitions N] [--quick] [--seed S] [--part PART] [--json FILE]

Each repetition starts ina-switchd, a job of two to four workers that check every element of every
sum, and all further programs for its policy and its fallback's home. The repetition's seed
determines all of these, and the moment of the SIGKILL. A failure prints the seed, the command that
repeats it, and the output of the processes; the exit status is then 1. Parts:

    worker  one worker is killed: the others must be told INA_ERR_PEER_LOST, naming it, within
            NOTICE_LIMIT_MS; another job's sums stay right; no slot and no memory stays taken
    switch  the switch is killed and started again: the job goes on, with the right sums
    psd     the fallback server is killed and started again: likewise
    memif   a worker on memif behind ina-memif is killed, or ina-memif itself: the workers on the
            shm port must be told in time, as above; another job's sums stay right; the switch goes
            on, and ina-memif, started again if it was killed, serves the next job

Prints a table of the times: until the survivors were told, and the longest time that a worker
waited for one sum during the kill. --json writes {"meta": {commit, command, ...}, "worker": {...},
...}.
"""

import contextlib
import json
import pathlib
import random
import re
import signal
import statistics
import subprocess
import time
import traceback

from benchlib import command_line, machine, metadata, processes, results, switch
from benchlib.errors import BenchError

# Slots of 1 KiB. There are so few, unless each job has its own, that the fallback has work to do.
CONFIG = """\
aggregator:
  slots: {slots}
  policy: {policy}
static:
  slots_per_job: 256
fallback:
  home: {home}
jobs:
  window_bytes: 128KiB
switch:
  lcores: {lanes}
control:
  socket: "{socket}"
ports:
  - name: shm0
    type: shm
"""

PARTS = ("worker", "switch", "psd", "memif")
# No time-out is involved: the kernel closes the dead worker's connection. The limit is twice the
# longest wait in the protocol (recovery.rto_max, 200 ms).
NOTICE_LIMIT_MS = 2 * 200
DEADLINE_S = 30
LONGEST_MOMENT_S = 0.05


class Failure(Exception):
    """The text describes the whole failure."""


class Process:
    """A child process whose output goes to a file."""

    def __init__(self, folder, name, command):
        self.name = name
        self.log = folder / f"{name}.log"
        self.child = processes.start_logged(command, self.log)

    def kill(self):
        """Sends SIGKILL. Returns its time, in ns of the clock that workers use, too."""
        before = time.monotonic_ns()
        self.child.kill()
        self.child.wait()
        return before

    def wait(self):
        try:
            return self.child.wait(DEADLINE_S)
        except subprocess.TimeoutExpired as error:
            raise Failure(f"{self.name} did not end within {DEADLINE_S} s") from error

    def output(self):
        return self.log.read_text(errors="replace")


class World:
    """The processes of one repetition."""

    def __init__(self, build, folder, chance, home=None):
        self.build = build
        self.folder = folder
        self.processes = []
        self.socket = folder / "switch.sock"
        self.policy = chance.choice(["static", "fcfs", "esa"])
        self.home = home or chance.choice(["workers", "dedicated", "spill"])
        self.lanes = chance.choice([1, 2])
        self.world = chance.randint(2, 4)
        self.elements = chance.randint(1_000, 60_000)
        self.config = folder / "switch.yaml"
        self.config.write_text(CONFIG.format(slots=1024 if self.policy == "static" else 32,
                                             policy=self.policy, home=self.home, lanes=self.lanes,
                                             socket=self.socket))
        self.switch = None
        self.psd = None
        self.bridge = None

    def __str__(self):
        return (f"policy {self.policy}, home {self.home}, {self.lanes} lanes, {self.world} workers, "
                f"{self.elements} elements")

    def start(self, name, *command):
        process = Process(self.folder, name, command)
        self.processes.append(process)
        return process

    def start_switch(self):
        self.switch = self.start("switch", self.build / "switchd/ina-switchd", "--config",
                                 self.config)

    def start_psd(self):
        self.psd = self.start("psd", self.build / "programs/psd/ina-psd", "--socket", self.socket)

    def start_all(self):
        self.start_switch()
        self.await_status("the switch answers", lambda status: True)
        if self.home == "dedicated":
            self.start_psd()

    def start_bridge(self):
        self.bridge = self.start("bridge", self.build / "programs/memif/ina-memif", "--switch", self.socket,
                                 "--socket", self.folder / "memif-control.sock",
                                 "--memif", self.folder / "memif.sock", "--workers", 3)
        self.await_status("ina-memif answers", lambda status: True,
                          self.folder / "memif-control.sock")

    def start_job(self, job, world, elements, on_memif=0):
        """Starts a job. The first `on_memif` ranks are on memif, the others on the shm port."""
        def url(rank):
            if rank >= on_memif:
                return f"shm:{self.socket}"
            return (f"memif:{self.folder}/memif.sock?id={rank}&ip=10.0.1.{rank + 2}&mtu=2000"
                    f"&control={self.folder}/memif-control.sock")
        return [self.start(f"{job}-{rank}", self.build / "tests/switchd/load_worker",
                           url(rank), job, rank, world, elements, -1, 0,
                           self.times_of(job, rank)) for rank in range(world)]

    def times_of(self, job, rank):
        return self.folder / f"{job}-{rank}.times"

    def status(self, socket=None):
        """Returns the switch's status. None: there is no answer."""
        with contextlib.suppress(BenchError):
            return switch.status(self.build, socket or self.socket)
        return None

    def await_status(self, what, holds, socket=None):
        deadline = time.monotonic() + DEADLINE_S
        while True:
            status = self.status(socket)
            if status is not None and holds(status):
                return status
            if time.monotonic() > deadline:
                raise Failure(f"waited {DEADLINE_S} s for: {what}; status: {json.dumps(status)}")
            time.sleep(0.002)

    def await_running(self, *names):
        return self.await_status(
            f"jobs {', '.join(names)} run",
            lambda status: set(names) <= {job["name"] for job in status["jobs"]
                                          if job["state"] == "running"
                                          and not job.get("fallback_missing", False)})

    def await_progress(self, status):
        """Waits until the job has completed some more fragments."""
        def results(status):
            return status["aggregator"]["results"] + status["aggregator"]["fallback_results"]
        self.await_status("sums go on", lambda now: results(now) > results(status) + 100)

    def end(self):
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.child.kill()
            process.child.wait()


def finish(workers):
    """Ends a job from within. All of its sums must have been right."""
    workers[0].child.send_signal(signal.SIGTERM)
    for worker in workers:
        code = worker.wait()
        if code != 0 or worker.output() != "INA_OK \n":
            raise Failure(f"{worker.name} ended with status {code}: {worker.output().strip()}")


def check_nothing_held(world):
    def empty(status):
        aggregator = status["aggregator"]
        return (not status["jobs"] and aggregator["slots_used"] == 0
                and aggregator["slots_reserved"] == 0 and aggregator["memory_used_bytes"] == 0)
    world.await_status("no job, slot or memory is held", empty)


def check_no_files(world):
    """Checks that killed switches have left no files. Other files are in the repetition's folder,
    which is removed."""
    left = [folder for process in world.processes if process.name in ("switch", "bridge")
            for folder in [pathlib.Path(f"/run/dpdk/ina-{process.child.pid}")] if folder.exists()]
    if left:
        raise Failure(f"left behind: {', '.join(map(str, left))}")


def longest_wait_ms(world, job, ranks, killed_ns):
    """Returns the longest time between the ends of two sums of one worker, with the second after
    the kill."""
    longest = 0
    for rank in range(ranks):
        ends = [int(line) for line in world.times_of(job, rank).read_text().split()]
        longest = max([longest, *(later - earlier for earlier, later in zip(ends, ends[1:])
                                  if later > killed_ns)])
    return longest / 1e6


def notice_ms(world, worker, rank, lost, killed_ns):
    """Returns the time from the kill until this worker was told of the loss of rank `lost` (a
    pattern)."""
    code = worker.wait()
    said = worker.output()
    if code != 0 or not re.match(rf"INA_ERR_PEER_LOST rank {lost} ", said):
        raise Failure(f"rank {lost} was killed; {worker.name} ended with status {code}: {said}")
    notice = (int(world.times_of("job", rank).read_text().split()[-1]) - killed_ns) / 1e6
    if notice > NOTICE_LIMIT_MS:
        raise Failure(f"told after {notice:.1f} ms, not within {NOTICE_LIMIT_MS} ms")
    return notice


def kill_worker(world, chance):
    world.start_all()
    bystanders = world.start_job("bystander", 2, 5_000)
    workers = world.start_job("job", world.world, world.elements)
    victim = chance.randrange(world.world)
    world.await_running("job", "bystander")
    time.sleep(chance.uniform(0, LONGEST_MOMENT_S))
    killed_ns = workers[victim].kill()
    notices = [notice_ms(world, worker, rank, victim, killed_ns)
               for rank, worker in enumerate(workers) if rank != victim]
    left = world.await_status("the job is gone", lambda status: "job" not in
                              [job["name"] for job in status["jobs"]])
    world.await_progress(left)
    finish(bystanders)
    check_nothing_held(world)
    check_no_files(world)
    return notices


def kill_memif(world, chance):
    world.start_all()
    world.start_bridge()
    on_memif = chance.randrange(1, world.world)
    bystanders = world.start_job("bystander", 2, 5_000)
    workers = world.start_job("job", world.world, world.elements, on_memif)
    victim = chance.choice([*workers[:on_memif], world.bridge])
    world.await_running("job", "bystander")
    time.sleep(chance.uniform(0, LONGEST_MOMENT_S))
    killed_ns = victim.kill()
    # With ina-memif all of its workers are lost, and the switch names one of them.
    notices = [notice_ms(world, worker, rank, rf"[0-{on_memif - 1}]", killed_ns)
               for rank, worker in enumerate(workers) if rank >= on_memif]
    if world.switch.child.poll() is not None:
        raise Failure("the switch died as well")
    if world.bridge.child.poll() is not None:
        world.start_bridge()
    for worker in workers[:on_memif]:
        if worker is not victim and (worker.wait() != 0 or not re.match(
                r"INA_ERR_(PEER|SWITCH)_LOST ", worker.output())):
            raise Failure(f"{worker.name} ended with {worker.output().strip()}")
    world.await_progress(world.status())
    finish(bystanders)
    next_job = world.start_job("next", world.world, world.elements, on_memif)
    world.await_progress(world.await_running("next"))
    finish(next_job)
    check_nothing_held(world)
    check_no_files(world)
    return notices


def kill_and_restart(world, chance, start, victim_of):
    world.start_all()
    workers = world.start_job("job", world.world, world.elements)
    world.await_running("job")
    time.sleep(chance.uniform(0, LONGEST_MOMENT_S))
    killed_ns = victim_of(world).kill()
    time.sleep(chance.choice([0, chance.uniform(0, LONGEST_MOMENT_S)]))
    start(world)
    world.await_progress(world.await_running("job"))
    finish(workers)
    check_nothing_held(world)
    check_no_files(world)
    return [longest_wait_ms(world, "job", world.world, killed_ns)]


def kill_switch(world, chance):
    return kill_and_restart(world, chance, World.start_switch, lambda world: world.switch)


def kill_psd(world, chance):
    return kill_and_restart(world, chance, World.start_psd, lambda world: world.psd)


RUN = {"worker": kill_worker, "switch": kill_switch, "psd": kill_psd, "memif": kill_memif}
TIME_OF = {"worker": "notice_ms", "switch": "recovery_ms", "psd": "recovery_ms",
           "memif": "notice_ms"}


def repeat(build, part, seed):
    """Returns the times in ms of one repetition, or None if it failed."""
    chance = random.Random(f"{part} {seed}")
    with processes.temporary_folder("ina-kill-") as folder:
        world = World(build, folder, chance, home="dedicated" if part == "psd" else None)
        try:
            return RUN[part](world, chance)
        except Exception as error:  # pylint: disable=broad-except
            text = str(error) if isinstance(error, Failure) else traceback.format_exc()
            world.end()
            print(f"FAILED: {part}, seed {seed} ({world}): {text}\n"
                  f"  again: scripts/kill_loop.py --build {build} --part {part} --seed {seed} "
                  f"--repetitions 1", flush=True)
            for log in sorted(folder.glob("*.log")):
                print(f"  -- {log.name}")
                for line in log.read_text(errors="replace").splitlines()[-40:]:
                    print(f"     {line}")
            return None
        finally:
            world.end()


def summary(part, repetitions, times, failures):
    found = {"repetitions": repetitions, "failures": failures}
    if times:
        found[TIME_OF[part]] = {"p50": round(statistics.median(times), 2),
                                "max": round(max(times), 2)}
    return found


def print_row(part, found):
    times = found.get(TIME_OF[part], {"p50": float("nan"), "max": float("nan")})
    print(f"{part:<8}{found['repetitions']:>12}{found['failures']:>10}  {TIME_OF[part]:<12}"
          f"{times['p50']:>8.2f}{times['max']:>10.2f}", flush=True)


def main():
    parser = command_line.parser_of(__doc__)
    parser.add_argument("--repetitions", type=int)
    parser.add_argument("--quick", action="store_true", help="5 repetitions instead of 100")
    parser.add_argument("--seed", type=int, help="of the first repetition; the others count on")
    parser.add_argument("--part", choices=PARTS, help="only this one")
    options = command_line.parse(parser)
    repetitions = options.repetitions or (5 if options.quick else 100)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)

    print(f"seed {seed}")
    print(f"{'killed':<8}{'repetitions':>12}{'failures':>10}  {'time':<12}{'p50':>8}{'max':>10}",
          flush=True)
    report = {"meta": metadata.measured("kills", machine.description(), seed=seed,
                                        notice_limit_ms=NOTICE_LIMIT_MS)}
    for part in [options.part] if options.part else PARTS:
        times, failures = [], 0
        for i in range(repetitions):
            found = repeat(options.build.resolve(), part, seed + i)
            failures += found is None
            times += found or []
        report[part] = summary(part, repetitions, times, failures)
        print_row(part, report[part])
    results.write(options, report)
    return 1 if any(report[part]["failures"] for part in PARTS if part in report) else 0


if __name__ == "__main__":
    command_line.run(main, "bench kills")
