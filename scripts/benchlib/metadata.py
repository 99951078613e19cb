"""The description of a run in its result ("meta"): commit, time, machine and command line."""

import datetime
import os
import platform
import shlex
import subprocess
import sys
import time

from benchlib import machine


def commit(*options):
    """The commit of the checkout, "-dirty" after it where files differ; "unknown" outside of one. What
    another benchmark has just written to docs/figures does not count. `options`: of `git describe`."""
    try:
        name, changes = (
            subprocess.run(["git", *command], capture_output=True, text=True, check=True).stdout.strip()
            for command in (["describe", "--always", *options],
                            ["status", "--porcelain", "--untracked-files=no", "--", ":/",
                             ":(top,exclude)docs/figures"]))
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return name + "-dirty" * bool(changes) if name else "unknown"


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def arguments():
    """Of this run's command line. Where on this machine a file lies is nobody else's concern: of an
    absolute path the name is left."""
    return [os.path.basename(word) if os.path.isabs(word) else word for word in sys.argv[1:]]


def measured(benchmark, script=None, of_machine=None, **more):
    """Of figures that depend on the machine. To be asked for before the work, as the machine's load is
    in it. `script`: the file's name, bench_NAME.py if not given; `of_machine`: what is said of the
    machine, all if not given; `more`: keys of the benchmark's own."""
    return {
        "benchmark": benchmark,
        "commit": commit("--abbrev=40"),
        "time": now(),
        "machine": of_machine or machine.description() | machine.state(),
        "command": shlex.join([f"scripts/{script or f'bench_{benchmark}.py'}", *arguments()]),
        **more,
    }


def predicted(started, **more):
    """Of figures in virtual time, which are the same on every machine. `started`: time.monotonic() at
    the start; `more`: keys of the benchmark's own."""
    return {
        "commit": commit(),
        "date": now(),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
        "command": shlex.join([sys.argv[0], *arguments()]),
        "wall_s": round(time.monotonic() - started, 1),
        **more,
    }
