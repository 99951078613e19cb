"""The begin and the end of process groups and processes.

    lifetime_test.py BUILD_FOLDER
"""

import datetime
import os
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

import ranks
from ranks import SwitchTest

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def in_use():
    """Returns the numbers of open files and of threads of this process."""
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def make(rank, size, method, port):
    if method == "env":
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(size))
        dist.init_process_group("ina", timeout=ranks.GROUP_TIMEOUT)
    else:
        dist.init_process_group("ina", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size,
                                timeout=ranks.GROUP_TIMEOUT)


def use(rank, size, unheard):
    """Uses all that a group has. Returns objects that know it."""
    group = dist.new_group(range(size))
    strided = torch.ones(4, 4).t()
    work = dist.all_reduce(strided, group=group, async_op=True)
    future = work.get_future().then(lambda done: done.value()[0].sum())
    assert future.wait() == 16 * size
    dist.monitored_barrier()
    if size > 1:
        message = torch.ones(3)
        (dist.send if rank == 0 else dist.recv)(message, 1 - rank)
    # Nobody ever receives it.
    lost = dist.isend(torch.ones(3), 0) if rank == 1 and unheard else None
    return group, dist.group.WORLD, work, future, lost


def begin_again(rank, size, method, port, rounds):
    """Groups one after the other on one port. Returns what the process has open after each."""
    dist.destroy_process_group()
    kept, found = [], []
    for number in range(rounds):
        make(rank, size, method, port)
        kept.append(use(rank, size, number == 0))
        dist.destroy_process_group()
        found.append(in_use())
    make(rank, size, method, port)
    return found


def subgroups_go(rank, size):
    """The threads that a group leaves behind that is destroyed alone."""
    dist.all_reduce(torch.ones(3))
    found = []
    for _ in range(3):
        group = dist.new_group(range(size))
        dist.all_reduce(torch.ones(3), group=group)
        dist.destroy_process_group(group)
        found.append(in_use()[1])
    return found


def calls(size):
    """Calls that do not wait, by name."""
    tensor = torch.ones(1000)
    parts = [torch.zeros(10) for _ in range(size)]
    return {
        "all_reduce": lambda **o: dist.all_reduce(tensor, **o),
        "strided": lambda **o: dist.all_reduce(torch.ones(30, 30).t(), **o),
        "reduce": lambda **o: dist.reduce(tensor, 0, **o),
        "broadcast": lambda **o: dist.broadcast(tensor, 1, **o),
        "all_gather": lambda **o: dist.all_gather(parts, torch.ones(10), **o),
        "gather": lambda **o: dist.gather(torch.ones(10), parts if dist.get_rank() == 0 else None, 0, **o),
        "scatter": lambda **o: dist.scatter(torch.ones(10), parts if dist.get_rank() == 1 else None, 1, **o),
        "reduce_scatter": lambda **o: dist.reduce_scatter(torch.zeros(10), parts, **o),
        "all_to_all": lambda **o: dist.all_to_all([torch.zeros(10) for _ in range(size)], parts, **o),
        "barrier": lambda **o: dist.barrier(**o),
    }


def leave_with_work(rank, size, name, subgroup):
    """Rank 1 leaves with an operation that it never waits for; the others start theirs later."""
    options = {"group": dist.new_group(range(size))} if subgroup else {}
    if rank != 1:
        time.sleep(0.3)
    work = calls(size)[name](async_op=True, **options)
    if rank != 1:
        work.wait()


def leave_with_message(rank, size):
    if rank == 1:
        dist.isend(torch.arange(1000), 0)
        return None
    time.sleep(0.3)
    message = torch.zeros(1000, dtype=torch.int64)
    dist.recv(message, 1)
    return message.sum().item()


def leave_with_continuation(rank, size):
    """The continuation starts another operation, which nobody waits for either."""
    if rank != 1:
        time.sleep(0.3)
    tensor = torch.ones(10)
    future = dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: dist.all_reduce(tensor))
    if rank != 1:
        future.wait()
        assert tensor[0] == size * size


PROGRAM = """
import atexit, datetime, gc, os, sys, time
sys.path.insert(0, {package!r})
import torch, torch.distributed as dist
def last():
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor[0] == 2
    print("last", flush=True)
if {how!r} == "atexit":
    atexit.register(last)
import ina.torch
rank = int(sys.argv[1])
dist.init_process_group("ina", init_method="file://{store}", rank=rank, world_size=2,
                        timeout=datetime.timedelta(seconds=60))
group = dist.new_group([0, 1])
if rank == 0:
    time.sleep(0.5)
tensor = torch.ones(100)
work = dist.all_reduce(tensor, async_op=True, group=group)
if rank == 0:
    work.wait()
    assert tensor[0] == 2
elif {how!r} == "collected":
    dist.destroy_process_group(group)
    del work, group
    gc.collect()
elif {how!r} == "destroyed":
    dist.destroy_process_group()
elif {how!r} == "sys.exit":
    sys.exit(0)
"""


def fail_on_one(rank, size, folder, url):
    os.environ["INA_URL"] = url
    dist.init_process_group("ina", init_method=f"file://{folder}/failing", rank=rank, world_size=size,
                            timeout=ranks.GROUP_TIMEOUT)
    dist.all_reduce(torch.ones(3))
    if rank == 1:
        raise ValueError("the first cause")
    dist.all_reduce(torch.ones(3))


class LifetimeTest(SwitchTest):
    def test_init_after_destroy(self):
        for size, method in ((1, "tcp"), (1, "env"), (2, "tcp"), (2, "env")):
            with self.subTest(size=size, method=method):
                for found in self.run_ranks(size, begin_again, method, free_port(), 4):
                    self.assertEqual(found[1:], [found[1]] * 3)

    def test_groups_that_are_destroyed_alone(self):
        for found in self.run_ranks(2, subgroups_go):
            self.assertEqual(found[1:], [found[1]] * 2)

    def test_leaving_waits_for_work(self):
        for number, name in enumerate(calls(2)):
            for subgroup in ((False, True) if number < 2 else (number % 2 == 0,)):
                with self.subTest(name=name, subgroup=subgroup):
                    self.run_ranks(2, leave_with_work, name, subgroup)

    def test_leaving_waits_for_messages(self):
        self.assertEqual(self.run_ranks(2, leave_with_message)[0], sum(range(1000)))

    def test_leaving_waits_for_continuations(self):
        self.run_ranks(2, leave_with_continuation)

    def run_programs(self, how):
        store = tempfile.mktemp(dir=self.folder)
        program = textwrap.dedent(PROGRAM).format(package=str(ranks.BUILD / "plugins/python"), how=how, store=store)
        environment = dict(os.environ, INA_URL=self.url)
        programs = [subprocess.Popen([sys.executable, "-c", program, str(rank)], env=environment,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(2)]
        outputs = [program.communicate(timeout=ranks.DEADLINE_S) for program in programs]
        return [(program.returncode, *output) for program, output in zip(programs, outputs)]

    def test_the_end_of_a_process_waits_for_work(self):
        for how in ("exit", "sys.exit", "destroyed", "collected"):
            with self.subTest(how=how):
                for code, _, errors in self.run_programs(how):
                    self.assertEqual((code, "Error" in errors), (0, False), errors)

    def test_handlers_of_atexit_may_call_collectives(self):
        for code, output, errors in self.run_programs("atexit"):
            self.assertEqual((code, output), (0, "last\n"), errors)

    def test_the_first_cause_is_reported(self):
        """A rank that fails is reported before those that fail because of it."""
        with self.assertRaises(mp.ProcessRaisedException) as caught:
            mp.spawn(fail_on_one, (2, str(self.folder), self.url), nprocs=2)
        self.assertIn("the first cause", str(caught.exception))

    def test_extreme_timeouts(self):
        for timeout in (datetime.timedelta(days=36500), datetime.timedelta(seconds=1e9)):
            with self.subTest(timeout=timeout):
                self.run_ranks(2, leave_with_work, "all_reduce", True, timeout=timeout)


if __name__ == "__main__":
    unittest.main()
