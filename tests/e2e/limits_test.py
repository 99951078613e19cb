#!/usr/bin/env python3
"""A worker's own limits (ulimit): a call that one of them stops says which it is, and the other rank
hears of it, too.

    limits_test.py INA_SWITCHD INACTL LOAD_WORKER LIBINA INA_PSD INA_MEMIF
"""

import os
import pathlib
import resource
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "support"))

import libina  # noqa: E402

INFINITE = resource.RLIM_INFINITY


def used_descriptors():
    """Returns the lowest number that is free."""
    free = os.open("/dev/null", os.O_RDONLY)
    os.close(free)
    return free


def set_limit(kind, value):
    """`value`: beyond what is in use, of descriptors and address space."""
    if kind == "NOFILE":
        value += used_descriptors()
    if kind == "AS":
        value += int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * 4096
    number = getattr(resource, f"RLIMIT_{kind}")
    resource.setrlimit(number, (value, resource.getrlimit(number)[1]))


def rank_main(library, url, rank, limit, value, call, uid):
    """A rank of two: rank 1 has the limit, before it joins or before another call."""
    calls = {
        "join": lambda context: context.allreduce(),
        "split": lambda context: context.split().allreduce(),
        "alloc": lambda context: context.memory("alloc", 64 << 20),
        "alloc_result": lambda context: context.memory("alloc_result", 64 << 20),
    }
    here = libina.Library(library)
    if uid:
        os.setresuid(uid, uid, uid)
    context = None
    try:
        if rank == 1 and call == "join":
            set_limit(limit, value)
        context = here.join(url, "job", rank, 2, timeout_s=5.0)
        if rank == 1 and call != "join":
            set_limit(limit, value)
        calls[call](context)
        print("INA_OK", flush=True)
    except libina.InaError as error:
        print(error, flush=True)
    if context:
        context.leave()
    os._exit(0)


if sys.argv[1] == "--rank":
    rank_main(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5], int(sys.argv[6]), sys.argv[7], int(sys.argv[8]))

import error_cases  # noqa: E402
from error_cases import LIBINA, NOBODY  # noqa: E402
from waiting import DEADLINE_S  # noqa: E402


class LimitsTest(error_cases.Cases):
    def setUp(self):
        super().setUp()
        self.start(control="{mode: 0666}")

    def results(self, limit, value, call, uid=0):
        ranks = [subprocess.Popen([sys.executable, __file__, "--rank", LIBINA, f"shm:{self.socket}", str(rank), limit,
                                   str(value), call, str(uid)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True) for rank in range(2)]
        outputs = [rank.communicate(timeout=DEADLINE_S) for rank in ranks]
        for rank, (said, errors) in zip(ranks, outputs):
            self.assertEqual(rank.returncode, 0, (limit, value, call, said, errors))
        return [said.strip() for said, _ in outputs]

    def expect_named(self, limit, values, call, option, others=(), uid=0):
        """Returns how often the call failed. The other rank's text has the option, or one of `others`."""
        failed = 0
        for value in values:
            theirs, own = self.results(limit, value, call, uid)
            if own == "INA_OK":
                self.assertEqual(theirs, "INA_OK")
                continue
            failed += 1
            self.assertIn(f"(ulimit -{option})", own, (limit, value, call, theirs))
            self.assertTrue(any(part in theirs for part in (f"(ulimit -{option})", *others)), (value, call, theirs, own))
        return failed

    def test_open_files(self):
        # One that has not even reached the switch cannot tell the others.
        absent = ("for rank 1 to join",)
        self.assertGreater(self.expect_named("NOFILE", range(0, 10, 2), "join", "n", absent), 2)
        self.assertGreater(self.expect_named("NOFILE", range(0, 6, 2), "split", "n"), 0)
        for call in ("alloc", "alloc_result"):
            self.assertGreater(self.expect_named("NOFILE", range(0, 2), call, "n", ("INA_OK",)), 0)

    def test_file_sizes(self):
        self.assertEqual(self.expect_named("FSIZE", (0, 4096), "join", "f", ("for rank 1 to join",)), 2)
        self.assertEqual(self.expect_named("FSIZE", (1 << 20,), "alloc", "f", ("INA_OK",)), 1)
        self.assertEqual(self.expect_named("FSIZE", (1 << 20,), "alloc_result", "f", ("INA_OK",)), 0, "the switch's file")

    def test_address_space(self):
        self.assertEqual(self.expect_named("AS", (32 << 20,), "alloc", "v", ("INA_OK",)), 1)
        self.assertEqual(self.expect_named("AS", (32 << 20,), "alloc_result", "v", ("INA_OK",)), 1)
        self.assertEqual(self.expect_named("AS", (64 << 10,), "join", "v", ("for rank 1 to join",)), 1)

    def test_threads(self):
        self.assertEqual(self.expect_named("NPROC", (0,), "join", "u", ("rank 1",), uid=NOBODY), 1)

    def test_locked_memory(self):
        self.assertEqual(self.results("MEMLOCK", 0, "join"), ["INA_OK", "INA_OK"])


if __name__ == "__main__":
    error_cases.main()
