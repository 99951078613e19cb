"""A private switch, and ranks that are forked from the test: PyTorch is imported once.

Before the fork, the test must not do anything that starts PyTorch's threads.
"""

import contextlib
import datetime
import multiprocessing
import os
import pathlib
import signal
import sys
import tempfile
import time
import traceback
import unittest

# A process that a test spawns imports the test again, with what is left of its arguments.
BUILD = pathlib.Path(os.environ.get("INA_TEST_BUILD") or sys.argv.pop(1)).resolve()
os.environ["INA_TEST_BUILD"] = str(BUILD)
sys.path[:0] = [str(BUILD / "plugins/python"), str(pathlib.Path(__file__).resolve().parent.parent)]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import ina.torch  # noqa: E402,F401
import plugin_switch  # noqa: E402

DEADLINE_S = 600
GROUP_TIMEOUT = datetime.timedelta(seconds=60)

_fork = multiprocessing.get_context("fork")
# Set by a rank when it has given up waiting for others: they may go on.
_given_up = _fork.Event()


def give_up():
    _given_up.set()


def await_that_others_give_up():
    if not _given_up.wait(DEADLINE_S):
        raise AssertionError("the others still wait")


def raised(call, *arguments, **options):
    """Returns the text of what the call raises, with its type; None: nothing."""
    try:
        call(*arguments, **options)
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return None


class Failed:
    """The exception of a rank."""

    def __init__(self, error):
        self.kind = type(error).__name__
        self.text = str(error)
        self.trace = traceback.format_exc()

    def __repr__(self):
        return self.trace


def _run_rank(pipe, rank, size, url, store, backend, timeout, function, arguments, environment):
    torch.set_num_threads(1)
    os.environ.update(environment)
    if url is None:
        os.environ.pop("INA_URL", None)
    else:
        os.environ["INA_URL"] = url
    try:
        dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=size,
                                timeout=timeout)
        result = function(rank, size, *arguments)
        if dist.get_backend() == "gloo":
            # The end of a group of Gloo's hangs now and then in PyTorch 2.6.
            with contextlib.suppress(RuntimeError):  # it may have failed
                dist.barrier()
        else:
            dist.destroy_process_group()
    except BaseException as error:  # Ctrl-C is a result, too
        result = Failed(error)
    pipe.send(result)
    pipe.close()
    sys.stdout.flush()
    os._exit(0)


class Ranks:
    """Running ranks of `function(rank, size, *arguments)`. `url`: of all, or a list by rank. `environments`:
    variables by rank."""

    def __init__(self, folder, size, url, function, arguments=(), backend="ina",
                 timeout=GROUP_TIMEOUT, environments=None):
        _given_up.clear()
        store = tempfile.mktemp(dir=folder)
        self.processes, self.pipes = [], []
        for rank in range(size):
            ours, theirs = _fork.Pipe(duplex=False)
            own = url[rank] if isinstance(url, list) else url
            process = _fork.Process(target=_run_rank, args=(theirs, rank, size, own, store, backend,
                                                            timeout, function, arguments,
                                                            (environments or {}).get(rank, {})))
            process.start()
            theirs.close()
            self.processes.append(process)
            self.pipes.append(ours)

    def kill(self, rank, number=signal.SIGKILL):
        os.kill(self.processes[rank].pid, number)

    def results(self, deadline_s=DEADLINE_S):
        """Returns results by rank; None for a killed rank."""
        end = time.monotonic() + deadline_s
        found = []
        try:
            for process, pipe in zip(self.processes, self.pipes):
                if not pipe.poll(max(0, end - time.monotonic())):
                    raise AssertionError(f"ranks did not end within {deadline_s} s; so far {found}")
                try:
                    found.append(pipe.recv())
                except EOFError:
                    found.append(None)
                process.join(10)
        finally:
            for process in self.processes:
                if process.is_alive():
                    process.kill()
                process.join()
        return found


class SwitchTest(unittest.TestCase):
    """Tests with a private switch."""

    config = plugin_switch.CONFIG

    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory(prefix="ina-torch-")
        cls.addClassCleanup(holder.cleanup)
        cls.folder = pathlib.Path(holder.name)
        cls.switch = plugin_switch.start(BUILD, cls.folder, cls.config)
        cls.addClassCleanup(cls.switch.stop)
        cls.url = cls.switch.url

    def start(self, size, function, *arguments, **options):
        return Ranks(self.folder, size, options.pop("url", self.url), function, arguments, **options)

    def run_ranks(self, size, function, *arguments, **options):
        """Returns results by rank. Fails if a rank raised."""
        deadline_s = options.pop("deadline_s", DEADLINE_S)
        results = self.start(size, function, *arguments, **options).results(deadline_s)
        for rank, result in enumerate(results):
            self.assertNotIsInstance(result, Failed, f"rank {rank}: {result!r}")
        return results
