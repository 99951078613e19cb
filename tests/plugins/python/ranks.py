"""Ranks of a job over a switch, for the tests of the package `ina`. A test that imports this has
the build folder as its first argument."""

import multiprocessing
import os
import pathlib
import sys
import tempfile
import traceback
import unittest

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path[:0] = [str(BUILD / "plugins/python"), str(pathlib.Path(__file__).resolve().parent.parent)]

import numpy  # noqa: E402
import ina  # noqa: E402
import plugin_switch  # noqa: E402

DEADLINE_S = 600
TIMEOUT_S = 20
_fork = multiprocessing.get_context("fork")


def event():
    """Returns an event that the test and its ranks share."""
    return _fork.Event()


def values(rank, count, dtype=numpy.float32):
    return ((numpy.arange(count) * 3 + rank) % 5).astype(dtype)


def expect(found, wanted, what=""):
    numpy.testing.assert_array_equal(found, wanted, what)
    assert found.dtype == wanted.dtype, (what, found.dtype, wanted.dtype)


def raised(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except Exception as error:  # noqa: BLE001
        return error
    return None


def ends_the_job(function):
    """Marks a function after which leaving reports how the job has ended."""
    function.ends_the_job = True
    return function


def _run_rank(pipe, url, name, rank, size, function, arguments, timeout):
    try:
        job = ina.Context(url, name, rank, size, timeout=timeout)
        result = function(job, *arguments)
        left = raised(job.close)
        if left and not hasattr(function, "ends_the_job"):
            raise left
    except BaseException as error:  # noqa: BLE001
        result = error
        result.trace = traceback.format_exc()
    pipe.send(getattr(result, "trace", result) if isinstance(result, BaseException) else ("", result))
    pipe.close()
    os._exit(0)


class RanksTest(unittest.TestCase):
    CONFIG = plugin_switch.CONFIG

    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory(prefix="ina-python-")
        cls.addClassCleanup(holder.cleanup)
        cls.switch = plugin_switch.start(BUILD, pathlib.Path(holder.name), cls.CONFIG)
        cls.addClassCleanup(lambda: cls.switch.stop())

    def run_ranks(self, size, function, *arguments, timeout=TIMEOUT_S, meanwhile=None):
        """Returns results by rank; None for a killed rank. `meanwhile`: is called with
        a function that tells whether all of them still run."""
        started = []
        for rank in range(size):
            ours, theirs = _fork.Pipe(duplex=False)
            process = _fork.Process(target=_run_rank, args=(theirs, self.switch.url, self.id(), rank,
                                                            size, function, arguments, timeout))
            process.start()
            theirs.close()
            started.append((process, ours))
        results = []
        try:
            if meanwhile:
                meanwhile(lambda: all(process.is_alive() for process, _ in started))
            for rank, (_, pipe) in enumerate(started):
                self.assertTrue(pipe.poll(DEADLINE_S), f"rank {rank} did not end")
                try:
                    results.append(pipe.recv())
                except EOFError:
                    results.append(("", None))
        finally:
            for process, _ in started:
                process.kill()
                process.join()
        for rank, result in enumerate(results):
            self.assertIsInstance(result, tuple, f"rank {rank}: {result}")
        return [result for _, result in results]
