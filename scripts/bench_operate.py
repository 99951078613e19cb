#!/usr/bin/env python3
"""The cost of operating the switch to the jobs that use it.

    bench_operate.py --build FOLDER [--quick] [--restarts-only] [--json FILE]

A job of two workers on this host (shm) sums 64 Ki numbers all the time and checks every element.

- Start: from the start of ina-switchd, with its workers started at the same time, to the end of the
  first sum; the median of several.
- Restarts: SIGTERM to ina-switchd and the start of a new one at once, 100 times, while the job goes
  on. The pause is the longest sum from the signal on. A failed operation ends its worker:
  `failed_operations` is the number of failed workers.
- Reloads: `inactl reload` with another policy, likewise; the switch starts again in its process.
- Scrapes: ten requests a second to the metrics' port. The slow-down is the share of the time that
  they take from the job: sums that end soon after the begin of a request, compared with sums just
  before it (bench/operate/visits.py). Here the client shares the processors with the job:
  ina-visitor, which does as little as a client can. The processor times that the requests cost the
  switch's threads, without its lanes, and the client are reported, too.
- Page: the same with the switch's page open, too: the page's requests, at the page's own rate.
- What else may slow the job down: a program that asks nobody, and computes for as long as the
  switch and its client do for a scrape (`slowdown_with_computing`); and nothing at all
  (`slowdown_with_nothing`, the error of the method).
- Faults that `inactl why` names: bench_why.py, some of them with --quick.
- Soak: soak.py, for --soak-minutes (10; 1 with --quick; 0: no soak). `rss_growth_bytes` is the
  growth of anonymous memory, fitted as in soak.py, not of all resident memory.
- Installation: the last measurement of `./dev deb --test`, if there is one, else null. It is the
  time from the start of `apt-get install` to the end of the first sum of two ranks of the installed
  packages.

Prints a table; fails if an operation failed. --restarts-only omits starts, scrapes and the page.
--json writes {"meta", "startup_to_first_allreduce_s", "restarts", "restart_pause_p50_ms",
"restart_pause_p99_ms", "restart_pause_max_ms", "reloads", "reload_pause_p50_ms",
"reload_pause_p99_ms", "reload_pause_max_ms", "failed_operations", "scrapes", "scrape_p50_ms",
"scrape_p99_ms", "slowdown_with_scrapes", "slowdown_with_scrapes_interval", "scrapes_cpu_ms_per_s",
"scraper_cpu_ms_per_s", "page_looks", "page_look_p50_ms", "page_look_p99_ms",
"slowdown_with_page_and_scrape", "slowdown_with_page_and_scrape_interval",
"slowdown_with_computing", "slowdown_with_nothing", "slowdown_with_..._interval" and
"slowdown_with_..._later" (as long a time after that) of all four,
"page_and_scrapes_cpu_ms_per_s", "page_and_scraper_cpu_ms_per_s", "why_named", "why_injected",
"why_innocent_blamed", "soak_minutes", "rss_growth_bytes", "install_to_first_allreduce_s"}.
"""

import contextlib
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import time

from benchlib import command_line, metadata, processes, progress, results, testbed
from benchlib.errors import BenchError
from benchlib.stats import median, percentile
from benchlib.switch import Switch
from benchlib.table import print_table

testbed.use_folder("tests/siege")
testbed.use_folder("bench/operate")
import visits  # noqa: E402
from bed import Sums  # noqa: E402

CONFIG = """\
aggregator: {{policy: {policy}, slots: 1024, slot_bytes: 8192}}
control: {{socket: "{socket}"}}
metrics: {{listen: "127.0.0.1:{metrics_port}"}}
ports: [{{name: shm0, type: shm}}]
log: {{level: warning}}
"""
ELEMENTS = 65536
WORKERS = 2
STARTS, QUICK_STARTS = 7, 2
RESTARTS, QUICK_RESTARTS = 100, 3
SUMS_BETWEEN = 50
DEADLINE_S = 60
SOAK_MINUTES, QUICK_SOAK_MINUTES = 10, 1
OTHERS_DEADLINE_S = 3600
SCRIPTS = pathlib.Path(__file__).resolve().parent
INSTALLED = SCRIPTS.parent / "build-deb" / "installed.json"  # of test_debs.py


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Job:
    """Two workers that sum until they are told to stop."""

    def __init__(self, build, folder, socket_path, name):
        self.name = name
        self.sums = Sums(folder / f"{name}-0")
        environment = os.environ | {"INA_TIMEOUT_US": str(DEADLINE_S * 1_000_000)}
        self.workers = []
        for rank in range(WORKERS):
            log = folder / f"{name}-{rank}"
            log.touch()
            self.workers.append(subprocess.Popen(
                [build / "tests/siege/ina-siege-victim", f"shm:{socket_path}", name, str(rank),
                 str(WORKERS), str(ELEMENTS), log], env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))

    def wait_for(self, count):
        """Waits until the job has made this number of sums."""
        deadline = time.monotonic() + DEADLINE_S
        while self.sums.count() < count:
            if any(worker.poll() is not None for worker in self.workers):
                raise BenchError(f"job {self.name} ended: {self.end()}")
            if time.monotonic() > deadline:
                raise BenchError(f"job {self.name} made {self.sums.count()} sums and no more "
                                 f"within {DEADLINE_S} s")
            time.sleep(0.002)

    def end(self):
        """Returns the number of failed workers, and their output."""
        self.workers[0].terminate()
        failed = []
        for worker in self.workers:
            try:
                said = worker.communicate(timeout=DEADLINE_S)[0].strip()
            except subprocess.TimeoutExpired:
                worker.kill()
                said = "no end"
                worker.communicate()
            if worker.returncode != 0 or not said.startswith("INA_OK"):
                failed.append(said)
        return failed

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for worker in self.workers:
            if worker.poll() is None:
                worker.kill()
                worker.communicate()


def start_time_s(build, folder, number):
    name = folder / f"start-{number}"
    name.mkdir()
    began_ns = time.monotonic_ns()
    switch = Switch(build, name, CONFIG, policy="esa", metrics_port=free_port())
    try:
        with Job(build, name, switch.socket, "first") as job:
            job.wait_for(1)
            ended_ns = job.sums.since(0)[0][1]
            if failed := job.end():
                raise BenchError(f"the first sum failed: {failed}")
    finally:
        switch.stop()
    return (ended_ns - began_ns) * 1e-9


class Restarts:
    def __init__(self, build, folder):
        self.build = build
        self.folder = folder
        self.port = free_port()
        self.switch = self.start()

    def start(self):
        return Switch(self.build, self.folder, CONFIG, policy="esa", metrics_port=self.port)

    def restart(self):
        """Restarts the switch as a service manager does, which learns of the end at once. With a
        deadline Popen.wait() polls every 50 ms."""
        ended = os.pidfd_open(self.switch.process.pid)
        self.switch.process.send_signal(signal.SIGTERM)
        select.select([ended], [], [], DEADLINE_S)
        os.close(ended)
        self.switch.process.wait(0)
        self.switch = self.start()

    def reload(self):
        """Reloads the switch with the other one of two policies."""
        config = self.folder / "switch.yaml"
        text = config.read_text()
        others = {"policy: esa": "policy: fcfs", "policy: fcfs": "policy: esa"}
        before = next(policy for policy in others if policy in text)
        config.write_text(text.replace(before, others[before]))
        done = subprocess.run([self.build / "programs/inactl/inactl", "reload", "--socket",
                               self.switch.socket], capture_output=True, text=True, check=False)
        if done.returncode != 0 or "has started again" not in done.stdout:
            raise BenchError(f"no reload: {done.stdout}{done.stderr}")

    def pause_ms(self, job, replace):
        """Returns the time of the longest sum while `replace` replaces the switch."""
        first = job.sums.count()
        replace()
        job.wait_for(first + SUMS_BETWEEN)
        return max(end - start for start, end in job.sums.since(first)) * 1e-6

    def run(self, count):
        """Returns the pauses by restarts and by reloads, and the number of failed workers with
        their output."""
        with self.switch, Job(self.build, self.folder, self.switch.socket, "restarted") as job:
            try:
                job.wait_for(SUMS_BETWEEN)
                pauses = {}
                for what, replace in (("restart", self.restart), ("reload", self.reload)):
                    pauses[what] = []
                    for number in range(count):
                        progress.bar(number, count, f"{what}s")
                        pauses[what].append(self.pause_ms(job, replace))
                    progress.bar(count, count, f"{what}s")
                return pauses["restart"], pauses["reload"], job.end()
            finally:
                self.switch.stop()


def replaced(build, folder, quick):
    """Returns the cost of restarts and reloads."""
    restarts, reloads, failed = Restarts(build, folder).run(QUICK_RESTARTS if quick else RESTARTS)
    figures = {}
    for what, pauses in (("restart", restarts), ("reload", reloads)):
        figures |= {f"{what}s": len(pauses),
                    f"{what}_pause_p50_ms": percentile(pauses, 0.5),
                    f"{what}_pause_p99_ms": percentile(pauses, 0.99),
                    f"{what}_pause_max_ms": max(pauses)}
    return figures | {"failed_operations": len(failed), "failures": failed}


def watched(build, folder, quick):
    """Returns the cost of scrapes and of the page."""
    port = free_port()

    def new_job(name):
        job = Job(build, folder, switch.socket, name)
        job.wait_for(SUMS_BETWEEN)
        return job

    with Switch(build, folder, CONFIG, policy="esa", metrics_port=port) as switch:
        nobody, scraped, computing, looked_at, scrape_ms, look_ms = visits.measure(
            build, port, switch, new_job, quick)
    figures = {"scrapes": len(scrape_ms), "scrape_p50_ms": percentile(scrape_ms, 0.5),
               "scrape_p99_ms": percentile(scrape_ms, 0.99), "page_looks": len(look_ms),
               "page_look_p50_ms": percentile(look_ms, 0.5),
               "page_look_p99_ms": percentile(look_ms, 0.99)}
    for kind, name in ((scraped, "slowdown_with_scrapes"),
                       (looked_at, "slowdown_with_page_and_scrape"),
                       (computing, "slowdown_with_computing"), (nobody, "slowdown_with_nothing")):
        figures |= kind.slowdown(name)
    for kind, names in ((scraped, ("scrapes_cpu_ms_per_s", "scraper_cpu_ms_per_s")),
                        (looked_at, ("page_and_scrapes_cpu_ms_per_s",
                                     "page_and_scraper_cpu_ms_per_s"))):
        figures |= dict(zip(names, kind.cpu_ms_per_s(nobody)))
    return figures


def measure(build, quick, restarts_only):
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(processes.temporary_folder())
        for name in ("restarts", "scrapes"):
            (folder / name).mkdir()
        figures = {}
        if not restarts_only:
            starts = [start_time_s(build, folder, number)
                      for number in range(QUICK_STARTS if quick else STARTS)]
            figures["startup_to_first_allreduce_s"] = median(starts)
        figures |= replaced(build, folder / "restarts", quick)
        if not restarts_only:
            figures |= watched(build, folder / "scrapes", quick)
    return figures


def figures_of(script, build, *options):
    """Returns the JSON result of another program of this folder."""
    with processes.temporary_folder() as folder:
        file = folder / "figures.json"
        processes.run([sys.executable, SCRIPTS / script, "--build", build, "--json", file, *options],
                      OTHERS_DEADLINE_S, stdout=subprocess.DEVNULL, accepted=(0, 1))
        if not file.exists():
            raise BenchError(f"{script} has measured nothing; run it to see why")
        return json.loads(file.read_text())


def others(build, quick, soak_minutes):
    """Returns the results of other programs, as figures of this benchmark."""
    why = figures_of("bench_why.py", build, *(["--quick"] if quick else []))
    figures = {key: why[key] for key in ("why_named", "why_injected", "why_innocent_blamed")}
    figures |= {"soak_minutes": 0, "rss_growth_bytes": None}
    failures = []
    if soak_minutes:
        soak = figures_of("soak.py", build, "--minutes", str(soak_minutes))
        figures |= {"soak_minutes": soak["seconds"] / 60, "rss_growth_bytes": soak["growth"]["anonymous_bytes"]}
        failures = [f"soak: {said}" for said in soak["failures"]]
    installed = json.loads(INSTALLED.read_text()) if INSTALLED.exists() else {}
    figures["install_to_first_allreduce_s"] = installed.get("install_to_first_allreduce_s")
    return figures, failures


def main():
    parser = command_line.parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="few starts, restarts and scrapes")
    parser.add_argument("--restarts-only", action="store_true",
                        help="neither starts nor scrapes nor the page")
    parser.add_argument("--soak-minutes", type=float, help="0: no soak (10, or 1 with --quick)")
    options = command_line.parse(parser)
    meta = metadata.measured("operate", elements=ELEMENTS, workers=WORKERS,
                             scrape_period_s=visits.SCRAPE_PERIOD_S,
                             look_period_s=visits.LOOK_PERIOD_S)
    figures = measure(options.build.resolve(), options.quick, options.restarts_only)
    minutes = options.soak_minutes
    if minutes is None:
        minutes = QUICK_SOAK_MINUTES if options.quick else SOAK_MINUTES
    more, failures = others(options.build.resolve(), options.quick, minutes)
    figures |= more
    figures["failures"] += failures
    results.write(options, {"meta": meta, **figures})
    units = {"startup_to_first_allreduce_s": "s"} | {
        key: "ms" if key.endswith("_ms") else "" for key in figures
        if key not in ("failures", "startup_to_first_allreduce_s") and not key.endswith("_interval")}
    print_table([("what", "what", "s"), ("value", "value", ".4g"), ("unit", "unit", "s")],
                [{"what": key, "value": figures[key], "unit": unit}
                 for key, unit in units.items() if figures.get(key) is not None])
    for said in figures["failures"]:
        print(f"  failed: {said}")
    return 1 if figures["failures"] else 0


if __name__ == "__main__":
    command_line.run(main, "bench operate", *testbed.ERRORS)
