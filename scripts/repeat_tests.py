#!/usr/bin/env python3
"""Runs the tests of a build folder again and again, to find those that fail by chance.

    repeat_tests.py FOLDER [--rounds N] [--seed N] [--load] [--jitter] [--jobs N]
                    [--timeout-multiplier N] [--suite SUITE]... [--no-suite SUITE]... [--test NAME]...

Each round runs every test once, in another order; GoogleTest programs shuffle their cases, too.
Each round prints its seed; `--rounds 1 --seed N` repeats the round. With --load busy processes, two
a core, run beside the tests. With --jitter the tests' threads sleep now and then around calls to
the system (tests/support/jitter.c), so that ranks join, end and print in orders that are rare
otherwise; sanitizer builds do not support it. The output of a failed test stays in
FOLDER/repeat/ROUND-TEST.log. At the end, also after an interrupt, the program prints which tests
failed, and how often. The exit status is 1 if any test failed, or none ran.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree

SKIPPED = 77  # exit status of a test that cannot run on this machine
PASS, FAIL, SKIP = "passed", "failed", "skipped"
JITTER = "tests/support/libina-jitter.so"
BUSY = "while True: sum(range(10000))"

Outcome = collections.namedtuple("Outcome", "result cases what")


def failed_cases(report):
    """Returns the names of failed cases in the report of a GoogleTest program, and the number of
    cases that ran."""
    try:
        suites = ElementTree.parse(report).getroot().iter("testsuite")
    except (OSError, ElementTree.ParseError):
        return [], 0
    failed, count = [], 0
    for suite in suites:
        for case in suite.iter("testcase"):
            if case.get("status") == "notrun":
                continue
            count += 1
            if case.find("failure") is not None:
                failed.append(f"{suite.get('name')}.{case.get('name')}")
    return failed, count


class Runner:
    """Runs several tests at a time, and ends the running tests on a request to stop."""

    def __init__(self, folder, timeout_multiplier, jitter=None):
        self.folder = folder
        self.logs = folder / "repeat"
        self.timeout_multiplier = timeout_multiplier
        self.jitter = jitter
        self.stopping = False
        self._running = set()
        self._lock = threading.Lock()

    def run(self, test, number, seed):
        """Runs one test. Returns its outcome."""
        command = list(test["cmd"])
        environment = {**os.environ, **test["env"]}
        if self.jitter:
            environment.update(LD_PRELOAD=str(self.jitter), INA_JITTER_SEED=str(seed))
        log_file = self.logs / f"{number}-{test['name']}.log"
        report = self.logs / f"{number}-{test['name']}.xml"
        if test["protocol"] == "gtest":
            command += ["--gtest_shuffle", f"--gtest_random_seed={seed}",
                        f"--gtest_output=xml:{report}"]
        with open(log_file, "w", encoding="utf-8") as log:
            print(" ".join(command), file=log, flush=True)
            with self._lock:
                if self.stopping:
                    return None
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                           env=environment, cwd=test["workdir"] or self.folder,
                                           start_new_session=True)
                self._running.add(process)
            try:
                status = process.wait(test["timeout"] * self.timeout_multiplier)
                what = f"exit status {status}"
            except subprocess.TimeoutExpired:
                status, what = None, f"did not end within {test['timeout'] * self.timeout_multiplier} s"
            finally:
                with self._lock:
                    self._running.discard(process)
                self._end(process)
        if self.stopping:
            return None
        failed, count = failed_cases(report)
        report.unlink(missing_ok=True)
        if status == 0 or (status == SKIPPED and test["protocol"] != "gtest"):
            log_file.unlink()
            return Outcome(PASS if status == 0 else SKIP, count or 1, "")
        return Outcome(FAIL, count or 1, ", ".join(failed) or what)

    @staticmethod
    def _end(process):
        """Ends the test, and all other processes in its session."""
        for number, patience in ((signal.SIGTERM, 10), (signal.SIGKILL, None)):
            try:
                os.killpg(process.pid, number)
                process.wait(patience)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue

    def stop(self):
        with self._lock:
            self.stopping = True
            running = list(self._running)
        for process in running:
            self._end(process)


def run_round(runner, tests, number, seed, jobs):
    """Returns (test, outcome) of each test, in a shuffled order. Tests that must run alone come
    last."""
    order = list(tests)
    random.Random(seed).shuffle(order)
    together = [test for test in order if test["is_parallel"]]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        try:
            outcomes = list(pool.map(lambda test: runner.run(test, number, seed), together))
        except KeyboardInterrupt:
            runner.stop()
            raise
    alone = [test for test in order if not test["is_parallel"]]
    outcomes += [runner.run(test, number, seed) for test in alone]
    return list(zip(together + alone, outcomes))


def select(tests, suites, no_suites, names):
    for test in tests:
        of = {suite.partition(":")[2] or suite for suite in test["suite"]}
        if (not suites or of & set(suites)) and not of & set(no_suites) and \
                (not names or test["name"] in names):
            yield test


def repeat(runner, tests, options):
    """Prints a line for each round. Returns the failures, a list of (round, failure) by test, and
    the number of rounds."""
    failures = collections.OrderedDict()
    rounds = []
    first = options.seed if options.seed is not None else random.SystemRandom().randrange(1, 90_000)
    try:
        for number in range(1, options.rounds + 1):
            seed = first + number - 1
            start = time.monotonic()
            outcomes = [(test, outcome) for test, outcome in
                        run_round(runner, tests, number, seed, options.jobs) if outcome]
            failed = [(test["name"], outcome) for test, outcome in outcomes if outcome.result == FAIL]
            for name, outcome in failed:
                failures.setdefault(name, []).append((number, outcome.what))
            cases = sum(outcome.cases for _, outcome in outcomes if outcome.result != SKIP)
            skipped = sum(outcome.result == SKIP for _, outcome in outcomes)
            rounds.append(len(outcomes) - skipped)
            print(f"round {number} of {options.rounds}, seed {seed}: {cases} cases of "
                  f"{len(outcomes) - skipped} tests in {time.monotonic() - start:.0f} s, "
                  f"{len(failed)} failed" + (f", {skipped} skipped" if skipped else "") +
                  "".join(f"\n  {name}: {outcome.what}" for name, outcome in failed), flush=True)
    except KeyboardInterrupt:
        print("interrupted")
    return failures, rounds


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--load", action="store_true")
    parser.add_argument("--jitter", action="store_true")
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1))
    parser.add_argument("--timeout-multiplier", type=int, default=1)
    parser.add_argument("--suite", action="append", default=[])
    parser.add_argument("--no-suite", action="append", default=[])
    parser.add_argument("--test", action="append", default=[])
    options = parser.parse_args(arguments)

    described = json.loads((options.folder / "meson-info/intro-tests.json").read_text())
    tests = list(select(described, options.suite, options.no_suite, options.test))
    folder = options.folder.resolve()
    jitter = folder / JITTER if options.jitter else None
    if jitter and not jitter.exists():
        parser.error(f"--jitter: {jitter} is not there; sanitizers' builds have none")
    runner = Runner(folder, options.timeout_multiplier, jitter)
    runner.logs.mkdir(exist_ok=True)
    for old in runner.logs.iterdir():
        old.unlink()
    busy = [subprocess.Popen([sys.executable, "-c", BUSY])
            for _ in range(2 * (os.cpu_count() or 1) if options.load else 0)]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        failures, rounds = repeat(runner, tests, options)
    finally:
        for process in busy:
            process.kill()
            process.wait()

    print(f"\n{sum(rounds)} runs in {len(rounds)} rounds, "
          f"{sum(map(len, failures.values()))} failed" + (":" if failures else ""))
    for name, times in failures.items():
        print(f"  {name}: {len(times)} times")
        for number, what in times:
            print(f"    round {number}: {what}; {runner.logs / f'{number}-{name}.log'}")
    return 1 if failures or not sum(rounds) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
