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
    """Returns the commit of the checkout, with "-dirty" if files differ; "unknown" outside of a
    checkout. Results that other benchmarks have written to docs/figures do not count as
    differences. `options`: of `git describe`."""
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


def command():
    """Returns the command line of this run. Of an absolute path only the name is kept: the location
    on this machine is irrelevant."""
    program, *words = sys.argv
    return shlex.join([f"scripts/{os.path.basename(program)}",
                       *(os.path.basename(word) if os.path.isabs(word) else word for word in words)])


def measured(benchmark, of_machine=None, **more):
    """Describes a run whose figures depend on the machine. Must be called before the work, because
    the result includes the machine's load. `of_machine`: the description of the machine, complete
    if not given; `more`: the benchmark's own keys."""
    return {
        "benchmark": benchmark,
        "commit": commit("--abbrev=40"),
        "time": now(),
        "machine": of_machine or machine.description() | machine.state(),
        "command": command(),
        **more,
    }


def predicted(started, **more):
    """Describes a run whose figures are in virtual time, and so the same on every machine.
    `started`: time.monotonic() at the start; `more`: the benchmark's own keys."""
    return {
        "commit": commit(),
        "date": now(),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
        "command": command(),
        "wall_s": round(time.monotonic() - started, 1),
        **more,
    }
