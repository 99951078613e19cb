#!/usr/bin/env python3
"""Mixed jobs over one switch for a long time, with faults; every element of every result is checked.

    soak.py --build FOLDER (--hours H | --minutes M | --seconds S) [--sample-every S] [--seed N]
            [--pause-us P] [--json FILE]

Some jobs of two to four workers on shm run collectives of all kinds, types and sizes all the time
(tests/e2e/soak_worker.cc). As root, the switch has two Ethernet ports (AF_PACKET) as well, and one
more job has a worker on each of the two hosts behind them, which are network namespaces. Every
second or so an event happens; each kind of event has its turn. A worker is killed, and the others
must be told which one; a worker is stopped for a while; a job leaves and another joins; a short job
comes and goes; a job splits into groups. In the first half the switch is also killed or stopped,
and started again, which no job may notice. In the second half the switch stays, and its memory,
descriptors, threads, and mbufs in use (with Ethernet ports) are sampled at regular intervals.

Fails if an element is wrong; if an operation fails without a cause, or reports the wrong error; if,
after all jobs have left, there are more descriptors, threads or mbufs in use than before the jobs,
or slots or memory of jobs are held; and, where the second half takes five minutes, if a line
through its samples grows by more than LIMITS. Prints a table; --json writes {"meta", "seconds",
"events", "jobs", "operations", "second_half", "empty_before", "empty_after", "growth", "failures"}.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import socket
import statistics
import subprocess
import time

from benchlib import command_line, metadata, processes, progress, results, switch, testbed
from benchlib.errors import BenchError
from benchlib.table import print_table

CONFIG = """\
aggregator: {{policy: esa, slots: 512, slot_bytes: 4096}}
jobs: {{window_bytes: 256KiB}}
switch: {{lcores: 2}}
control: {{socket: "{socket}"}}
{ports}log: {{level: warning}}
"""
SHM_PORT = "ports: [{name: shm0, type: shm}]\n"
# For Ethernet ports. DPDK's telemetry counts mbufs.
EAL = "eal: {{huge: no, memory: 192 MiB, telemetry: true, file_prefix: {prefix}}}\n"
MTU = 4400  # slots of 4096 bytes, and headers
STEADY_JOBS = 3
MOST_SHORT_JOBS = 4
SHORT_OPERATIONS = 200
SHORT_PAUSE_US = 500
EVENT_EVERY_S = (0.5, 2.0)
LINE_EVERY_S = 30
LONGEST_STOP_S = 1.0
DEADLINE_S = 60
SETTLE_S = 2.0
# Growth of the fitted line over the second half that is no leak: jobs come and go between samples.
LIMITS = {"anonymous_bytes": 8 << 20, "descriptors": 8, "threads": 2, "mbufs": 64}
LEAST_FITTED_S = 300
MOST_FAILURES = 20
EVENTS = ("leave", "kill", "stop", "short", "groups", "restart")


class Failure(Exception):
    """The text describes the whole failure."""


# ---- checks, without processes


def growth(samples, key):
    """Returns the growth of the line through (seconds, samples[key]) from the first to the last
    sample."""
    if len(samples) < 2:
        return 0.0
    times = [sample["seconds"] for sample in samples]
    if times[0] == times[-1]:
        return 0.0
    slope = statistics.linear_regression(times, [sample[key] for sample in samples]).slope
    return slope * (times[-1] - times[0])


def extremes(samples):
    """Returns the least and the most of each figure."""
    return {key: [min(sample[key] for sample in samples), max(sample[key] for sample in samples)]
            for key in (samples[0] if samples else ()) if key != "seconds"}


def leaks(samples):
    """Returns the leaks as sentences; none for samples over less than LEAST_FITTED_S."""
    if len(samples) < 2 or samples[-1]["seconds"] - samples[0]["seconds"] < LEAST_FITTED_S:
        return []
    return [f"{key} grew by {growth(samples, key):.0f} in {len(samples)} samples; "
            f"{limit} may come of jobs that come and go"
            for key, limit in LIMITS.items()
            if key in samples[0] and growth(samples, key) > limit]


def held(before, after):
    """Returns sentences about resources that the empty switch holds in addition to those before the
    jobs."""
    more = [f"{key}: {after[key]}, and {before[key]} before there were jobs"
            for key in ("descriptors", "threads", "mbufs")
            if key in after and after[key] > before[key]]
    return more + [f"{key}: {after[key]} although there is no job"
                   for key in ("slots_used", "slots_reserved", "memory_used_bytes") if after[key]]


def wrong_end(said, code, lost=None):
    """Returns the reason why a worker's end is wrong, or None. `lost`: the rank that was killed."""
    if code != 0:
        return f"ended with status {code}: {said}"
    if lost is None:
        return None if re.match(r"(INA_OK|ok) \d+$", said) else f"ended with: {said}"
    if re.search(rf"INA_ERR_PEER_LOST rank {lost} ", said):
        return None
    return f"rank {lost} was killed, and it ended with: {said}"


# ---- processes


def field(pid, name, file="status"):
    match = re.search(rf"^{name}:\s+(\d+)", pathlib.Path(f"/proc/{pid}/{file}").read_text(), re.M)
    return int(match[1]) if match else 0


def of_threads(pid, file):
    """Returns this file of each of a process's threads. Threads end meanwhile, such as that with which
    DPDK's telemetry has answered."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            yield (task / file).read_text()


def family(pid):
    """Returns a process and its descendants, such as the switch's doorman."""
    found = [pid]
    for one in found:
        for children in of_threads(one, "children"):
            found += map(int, children.split())
    return found


def threads(pid):
    """Returns the number of a process's threads."""
    return sum(1 for _ in pathlib.Path(f"/proc/{pid}/task").iterdir())


def mbufs_in_use(prefix):
    """Returns the number of mbufs that are in no pool, of the switch with this file prefix. Pools are
    read one after the other, so that the sum of a switch with traffic is not exact."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as telemetry:
        telemetry.settimeout(DEADLINE_S)
        telemetry.connect(f"/var/run/dpdk/{prefix}/dpdk_telemetry.v2")
        telemetry.recv(1 << 14)  # DPDK's version
        telemetry.sendall(b"/ina/mbufs")
        pools = json.loads(telemetry.recv(1 << 14))["/ina/mbufs"]
    if not pools:
        raise BenchError("the switch's telemetry names no pool of mbufs")
    return sum(pools.values())


class Job:
    """The workers of one job: on this host, or on the hosts of `bed`, one on each."""

    def __init__(self, world, name, size, program, *arguments, bed=None):
        self.name = name
        self.bed = bed
        self.size = size
        self.count_file = world.folder / f"{name}.count"
        self.logs = [world.folder / f"{name}-{rank}.log" for rank in range(size)]
        environment = os.environ | {"INA_TIMEOUT_US": str(DEADLINE_S * 1_000_000)}
        control = world.switch.socket
        self.workers = [processes.start_logged(
            [*(bed.hosts[rank].command() if bed else []), world.build / program,
             bed.url("udp", rank, control) if bed else f"shm:{control}", name, rank, size, *arguments,
             *([self.count_file] if rank == 0 and "soak" in program else [])], self.logs[rank],
            env=environment) for rank in range(size)]

    def count(self):
        """Returns the number of operations so far. None: the job has not joined yet."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            return int(self.count_file.read_text())
        return None

    def ended(self):
        return all(worker.poll() is not None for worker in self.workers)

    def said(self, rank):
        return self.logs[rank].read_text(errors="replace").strip()

    def check_end(self, lost=None):
        """Waits for all workers. Returns the number of operations."""
        deadline = time.monotonic() + DEADLINE_S
        for rank, worker in enumerate(self.workers):
            try:
                code = worker.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired as error:
                raise Failure(f"{self.name}: rank {rank} did not end within {DEADLINE_S} s") from error
            if rank != lost and (why := wrong_end(self.said(rank), code, lost)):
                raise Failure(f"{self.name}: rank {rank} of {self.size} {why}")
        if lost is not None:
            return self.count() or 0
        return int(self.said(0).split()[-1])

    def end(self):
        for worker in self.workers:
            if worker.poll() is None:
                worker.kill()
            worker.wait()

    def remove_files(self):
        for path in (self.count_file, *self.logs):
            path.unlink(missing_ok=True)


class World:
    """The switch, its jobs, and their events."""

    def __init__(self, build, folder, chance, pause_us, bed):
        """`bed`: hosts at the switch's Ethernet ports, or None."""
        self.build = build
        self.folder = folder
        self.chance = chance
        self.pause_us = pause_us
        self.bed = bed
        self.prefix = f"ina-soak-{os.getpid()}"
        self.events = dict.fromkeys(EVENTS, 0)
        self.jobs_started = 0
        self.operations = 0
        self.failures = []
        self.steady, self.short = [], []
        self.may_restart = True
        self.began = time.monotonic()
        self.switch = self.start_switch()

    def start_switch(self):
        if self.bed:
            started = switch.Switch(self.build, self.folder, CONFIG, self.bed.switch.command(),
                                    ports=self.bed.ports_yaml() + EAL.format(prefix=self.prefix))
        else:
            started = switch.Switch(self.build, self.folder, CONFIG, ports=SHM_PORT)
        started.wait_until_ready()
        return started

    def seconds(self):
        return time.monotonic() - self.began

    # -- jobs

    def start_job(self, program, *arguments, bed=None):
        self.jobs_started += 1
        size = len(bed.hosts) if bed else self.chance.randint(2, 4)
        return Job(self, f"job-{self.jobs_started}", size, program, *arguments, bed=bed)

    def start_soaking(self, operations, bed=None):
        pause_us = SHORT_PAUSE_US if operations == SHORT_OPERATIONS else self.pause_us
        return self.start_job("tests/e2e/soak_worker", self.chance.randrange(1 << 32), operations,
                              pause_us, bed=bed)

    def finish(self, job, lost=None):
        """Checks the end of a job, and removes the job."""
        try:
            self.operations += job.check_end(lost)
            job.remove_files()
        except Failure as failure:
            self.failures.append(f"at {self.seconds():.0f} s: {failure}")
        finally:
            job.end()

    def replace(self, job):
        self.steady[self.steady.index(job)] = self.start_soaking(-1, job.bed)

    def await_progress(self, jobs):
        """Waits until each job has completed further operations, or failed, which its end will
        show."""
        before = {job: job.count() for job in jobs}
        deadline = time.monotonic() + DEADLINE_S
        for job, count in before.items():
            while (job.count() or 0) <= (count or 0) and not job.ended():
                if time.monotonic() > deadline:
                    self.failures.append(f"at {self.seconds():.0f} s: {job.name} stands still for "
                                         f"{DEADLINE_S} s after {count} operations")
                    return
                time.sleep(0.01)

    def keep_up(self):
        """Removes jobs that have ended, and replaces steady jobs that ended unexpectedly."""
        for job in [job for job in self.short if job.ended()]:
            self.short.remove(job)
            self.finish(job)
        for job in [job for job in self.steady if job.ended()]:
            self.failures.append(f"at {self.seconds():.0f} s: {job.name} ended although nobody asked: "
                                 f"{[job.said(rank) for rank in range(job.size)]}")
            job.end()
            self.replace(job)
        if (code := self.switch.process.poll()) is not None:
            raise BenchError(f"the switch ended with status {code}:\n"
                             + self.switch.log.read_text(errors="replace")[-4000:])

    # -- events; each returns whether it could take place

    def joined(self):
        return [job for job in self.steady if job.count() is not None]

    def leave(self):
        if not self.joined():
            return False
        job = self.chance.choice(self.joined())
        job.workers[0].send_signal(signal.SIGTERM)
        self.finish(job)
        self.replace(job)
        return True

    def kill(self):
        if not self.joined():
            return False
        job = self.chance.choice(self.joined())
        lost = self.chance.randrange(job.size)
        job.workers[lost].kill()
        self.finish(job, lost)
        self.replace(job)
        return True

    def stop(self):
        if not self.joined():
            return False
        job = self.chance.choice(self.joined())
        worker = self.chance.choice(job.workers)
        worker.send_signal(signal.SIGSTOP)
        time.sleep(self.chance.uniform(0, LONGEST_STOP_S))
        worker.send_signal(signal.SIGCONT)
        self.await_progress([job])
        return True

    def start_short(self, start):
        if len(self.short) >= MOST_SHORT_JOBS:
            return False
        self.short.append(start())
        return True

    def restart(self):
        # A group that is being made while the switch is restarted is lost, as documented.
        groups = any(not job.count_file.exists() for job in self.short)
        if not self.may_restart or groups or len(self.joined()) < len(self.steady):
            return False
        process = self.switch.process
        process.send_signal(self.chance.choice([signal.SIGKILL, signal.SIGTERM]))
        process.wait(DEADLINE_S)
        self.switch = self.start_switch()
        self.await_progress(self.steady)
        return True

    def happen(self, event):
        do = {"leave": self.leave, "kill": self.kill, "stop": self.stop, "restart": self.restart,
              "short": lambda: self.start_short(lambda: self.start_soaking(SHORT_OPERATIONS)),
              "groups": lambda: self.start_short(
                  lambda: self.start_job("tests/switchd/group_worker", 3, 20))}[event]
        if do():
            self.events[event] += 1
            return True
        return False

    # -- figures

    def sample(self):
        pid = self.switch.process.pid
        whole = family(pid)
        aggregator = self.switch.status()["aggregator"]
        return {"seconds": round(self.seconds(), 1), "pid": pid,
                "resident_bytes": field(pid, "VmRSS") << 10,
                "anonymous_bytes": field(pid, "RssAnon") << 10,
                "descriptors": sum(len(list(pathlib.Path(f"/proc/{one}/fd").iterdir()))
                                   for one in whole),
                "threads": sum(threads(one) for one in whole),
                **{key: aggregator[key] for key in
                   ("slots_used", "slots_reserved", "memory_used_bytes")},
                # Last, because DPDK has a thread and a descriptor for who asks.
                **({"mbufs": mbufs_in_use(self.prefix)} if self.bed else {})}

    def empty_sample(self, is_enough):
        """Returns a sample after all jobs have left. Resources that are freed a little later may
        take until `is_enough`."""
        deadline = time.monotonic() + DEADLINE_S
        while self.switch.status()["jobs"]:
            if time.monotonic() > deadline:
                raise Failure(f"the switch has jobs {DEADLINE_S} s after the last worker left")
            time.sleep(0.05)
        while not is_enough(sample := self.sample()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return sample

    def warm_up(self):
        """Returns a sample of an empty switch that has had jobs of each kind."""
        for start in (lambda: self.start_soaking(SHORT_OPERATIONS),
                      lambda: self.start_soaking(SHORT_OPERATIONS, self.bed),
                      lambda: self.start_job("tests/switchd/group_worker", 3, 20)):
            self.finish(start())
        until = time.monotonic() + SETTLE_S
        return self.empty_sample(lambda sample: time.monotonic() > until)

    def line(self, sample):
        happened = ", ".join(f"{number} {event}" for event, number in self.events.items())
        progress.show(f"{sample['seconds']:.0f} s: {self.jobs_started} jobs, {happened}; "
                      f"{sample['anonymous_bytes'] / (1 << 20):.1f} MiB, {sample['descriptors']} descriptors, "
                      f"{sample['threads']} threads; {len(self.failures)} failures")

    def run(self, duration_s, sample_every_s):
        """Runs the soak. Returns the samples."""
        self.steady = [self.start_soaking(-1) for _ in range(STEADY_JOBS)]
        if self.bed:
            self.steady.append(self.start_soaking(-1, self.bed))
        samples, turn = [], []
        next_sample = next_event = next_line = begin = self.seconds()
        while (now := self.seconds()) < begin + duration_s and len(self.failures) < MOST_FAILURES:
            self.may_restart = now < begin + duration_s / 2
            self.keep_up()
            if now >= next_event:
                turn = turn or self.chance.sample(EVENTS, len(EVENTS))
                # An event that is impossible now is postponed.
                if not self.happen(turn[-1]) and (turn[-1] != "restart" or self.may_restart):
                    turn.insert(0, turn.pop())
                else:
                    turn.pop()
                next_event = self.seconds() + self.chance.uniform(*EVENT_EVERY_S)
            if now >= next_sample:
                samples.append(self.sample())
                next_sample += sample_every_s
                if now >= next_line:
                    self.line(samples[-1])
                    next_line += LINE_EVERY_S
            time.sleep(0.02)
        return samples

    def finish_all(self):
        for job in self.steady:
            self.await_progress([job])
            job.workers[0].send_signal(signal.SIGTERM)
        for job in self.steady + self.short:
            self.finish(job)
        self.steady, self.short = [], []

    def end(self):
        for job in self.steady + self.short:
            job.end()
        self.switch.stop()


def soak(build, duration_s, sample_every_s, seed, pause_us):
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(processes.temporary_folder("ina-soak-"))
        bed = None
        if os.geteuid() == 0:
            bed = stack.enter_context(testbed.NetworkTestBed(2, mtu=MTU))
        world = World(build, folder, random.Random(seed), pause_us, bed)
        try:
            before = world.warm_up()
            samples = world.run(duration_s, sample_every_s)
            world.finish_all()
            after = world.empty_sample(lambda sample: not held(before, sample))
        except Failure as failure:
            raise BenchError(f"seed {seed}: {failure}") from failure
        finally:
            world.end()
    last = [sample for sample in samples if sample["pid"] == after["pid"]
            and sample["seconds"] >= samples[0]["seconds"] + duration_s / 2]
    return {"seconds": round(duration_s), "seed": seed, "events": world.events,
            "jobs": world.jobs_started, "operations": world.operations, results.RAW: samples,
            "second_half": extremes([sample for sample in samples if sample["seconds"] > duration_s / 2]),
            "empty_before": before, "empty_after": after, "fitted_samples": len(last),
            "growth": {key: growth(last, key) for key in LIMITS if key in after},
            "failures": world.failures + held(before, after) + leaks(last)}


def print_result(found):
    print(f"{found['seconds']} s, seed {found['seed']}: {found['jobs']} jobs, {found['operations']} operations of "
          f"jobs that have ended; " + ", ".join(f"{n} {event}" for event, n in found["events"].items()))
    rows = []
    for key, unit, name in (("anonymous_bytes", 1 << 20, "anonymous memory, MiB"),
                            ("resident_bytes", 1 << 20, "resident memory, MiB"),
                            ("descriptors", 1, "descriptors"), ("threads", 1, "threads"),
                            ("mbufs", 1, "mbufs in use")):
        if key not in found["empty_after"]:
            continue
        values = [sample[key] / unit for sample in found[results.RAW]]
        rows.append({"what": name, "before": found["empty_before"][key] / unit, "least": min(values),
                     "most": max(values), "after": found["empty_after"][key] / unit,
                     "growth": found["growth"][key] / unit if key in LIMITS else None,
                     "limit": LIMITS[key] / unit if key in LIMITS else None})
    print_table([("the switch", "what", "s"), ("empty, before", "before", ".1f"), ("least", "least", ".1f"),
                 ("most", "most", ".1f"), ("empty, after", "after", ".1f"),
                 ("growth in 2nd half", "growth", ".1f"), ("limit", "limit", ".1f")], rows)
    if "mbufs" not in found["empty_after"]:
        print("No mbufs were counted: only Ethernet ports have some, and need root.")
    for failure in found["failures"]:
        print(f"FAILED: {failure}")


def positive(text):
    value = float(text)
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text} is no time")
    return value


def main():
    parser = command_line.parser_of(__doc__)
    for_how_long = parser.add_mutually_exclusive_group(required=True)
    for option, unit_s in (("--hours", 3600), ("--minutes", 60), ("--seconds", 1)):
        for_how_long.add_argument(option, dest="seconds",
                                  type=lambda text, unit_s=unit_s: positive(text) * unit_s)
    parser.add_argument("--sample-every", type=positive, default=5.0, help="seconds (5)")
    parser.add_argument("--seed", type=int, help="of what happens when")
    parser.add_argument("--pause-us", type=int, default=500,
                        help="microseconds between operations of a lasting job (500)")
    options = command_line.parse(parser)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    meta = metadata.measured("soak", seed=seed, sample_every_s=options.sample_every,
                             pause_us=options.pause_us)
    found = soak(options.build.resolve(), options.seconds, options.sample_every, seed, options.pause_us)
    results.write(options, {"meta": meta, **found})
    print_result(found)
    return 1 if found["failures"] else 0


if __name__ == "__main__":
    command_line.run(main, "soak", *testbed.ERRORS)
