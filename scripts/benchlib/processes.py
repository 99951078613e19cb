"""Programs that a benchmark runs, and the folder for their files."""

import contextlib
import ctypes
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time

from benchlib.errors import BenchError

STOP_DEADLINE_S = 60
PR_SET_PDEATHSIG = 1  # linux/prctl.h
LIBC = ctypes.CDLL(None)


@contextlib.contextmanager
def temporary_folder(prefix="ina-bench-"):
    """Returns the path of a new folder, which is removed with its contents."""
    with tempfile.TemporaryDirectory(prefix=prefix) as name:
        yield pathlib.Path(name)


def run(command, deadline_s=None, accepted=(0,), stdout=subprocess.PIPE):
    """Runs a program to its end and returns its output, unless `stdout` directs it elsewhere.
    `accepted`: exit statuses that are no error. Raises BenchError."""
    command = list(map(str, command))
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=stdout,
                              stderr=subprocess.PIPE, text=True, timeout=deadline_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"no end within {deadline_s} s: {shlex.join(command)}") from error
    except OSError as error:
        raise BenchError(f"{shlex.join(command)}: {error}") from error
    if done.returncode not in accepted:
        raise BenchError(f"{shlex.join(command)} ended with status {done.returncode}:\n"
                         f"{done.stderr.strip()}")
    return done.stdout


def ended_with_parent():
    """Returns a `preexec_fn` of subprocess.Popen. The kernel kills the process when this one ends,
    however it ends: a benchmark that is killed leaves no daemon behind. Only for the main thread:
    the kernel would kill the process as soon as the thread that started it ends. A process that
    changes its user afterwards must ask again (`setpriv --pdeathsig`)."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("a process that ends with this one has to be started by the main thread")
    parent = os.getpid()

    def ask():
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it has ended already
            os.kill(os.getpid(), signal.SIGKILL)
    return ask


def start_logged(command, log, **options):
    """Starts a program whose output is appended to a file, and which ends with this process.
    `options`: those of subprocess.Popen."""
    with open(log, "ab") as file:
        return subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=file,
                                stderr=subprocess.STDOUT, preexec_fn=ended_with_parent(), **options)


def stop(process):
    """Ends a process by SIGTERM, and by SIGKILL if SIGTERM has no effect."""
    process.terminate()
    try:
        process.wait(STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def exit_on_sigterm():
    """From now on SIGTERM raises SystemExit, so that daemons are stopped and folders removed. An
    existing handler stays."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda caught, frame: sys.exit(128 + caught))


class Ranks:
    """The processes of one job. Each prints its report as JSON and ends. The end of a `with` block
    kills processes that still run."""

    def __init__(self, commands, name=""):
        """`name`: the beginning of error texts."""
        self.name = f"{name}: " if name else ""
        self.processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                           text=True, preexec_fn=ended_with_parent())
                          for command in commands]

    def all_run(self):
        return all(process.poll() is None for process in self.processes)

    def reports(self, deadline_s):
        """Returns the reports by rank, once all processes have ended, within `deadline_s` from
        now."""
        deadline = time.monotonic() + deadline_s
        try:
            return [self._report(process, deadline) for process in self.processes]
        except subprocess.TimeoutExpired as late:
            raise BenchError(f"{self.name}no result within {deadline_s} s") from late

    def _report(self, process, deadline):
        output, errors = process.communicate(timeout=max(0.0, deadline - time.monotonic()))
        if process.returncode != 0:
            raise BenchError(f"{self.name}{errors.strip()}")
        return json.loads(output)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
