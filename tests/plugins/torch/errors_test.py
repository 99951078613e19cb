"""Errors as users of the PyTorch backend see them.

    errors_test.py BUILD_FOLDER
"""

import datetime
import os
import re
import signal
import time
import unittest

import ranks
from ranks import Failed, SwitchTest, raised

import torch
import torch.distributed as dist

# Time from the death of a rank to the exception on the others.
LOSS_DEADLINE_S = 20


def nothing(rank, size):
    return None


def lose_rank(rank, size, victim, wait):
    dist.all_reduce(torch.ones(10))
    if rank == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    tensor = torch.ones(1000)
    work = dist.all_reduce(tensor, async_op=True)
    text = raised(work.wait if wait == "work" else work.get_future().wait)
    later = raised(dist.all_reduce, torch.ones(3))
    return text, time.monotonic() - begin, later, work.is_completed(), work.is_success()


# By torch's name: a call of 12 float32, and its name in libina's text.
CALLS = {
    "all_reduce": (lambda size: dist.all_reduce(torch.ones(12)), "allreduce of 12 float32 sum"),
    "broadcast": (lambda size: dist.broadcast(torch.ones(12), 0), "broadcast of 12 float32, root 0"),
    "reduce": (lambda size: dist.reduce(torch.ones(12), 2), "reduce of 12 float32 sum, root 2"),
    "all_gather_into_tensor": (lambda size: dist.all_gather_into_tensor(torch.ones(12 * size), torch.ones(12)),
                               "all-gather of "),
    "reduce_scatter_tensor": (lambda size: dist.reduce_scatter_tensor(torch.ones(12 // size), torch.ones(12)),
                              "reduce-scatter of "),
    "barrier": (lambda size: dist.barrier(), "barrier"),
}


def different_calls(rank, size, usual, other):
    """Rank 1 makes another call than the other ranks. Some have what the call gives them, and learn
    of it in their next one."""
    return raised(CALLS[other if rank == 1 else usual][0], size) or raised(dist.barrier)


def sides_of(text):
    """Returns the ranks of each call that the text names: {call: ranks}."""
    sides = re.findall(r"ranks? ([0-9, ]+) started operation \d+: (.*?)(?=, ranks? |$)", text)
    return {call: {int(rank) for rank in ranks.split(",")} for ranks, call in sides}


def different_sizes(rank, size):
    return raised(dist.all_reduce, torch.ones(8 + rank))


def wait_for_nobody(rank, size):
    """Rank 0's first wait times out; its second wait succeeds."""
    if rank == 1:
        ranks.await_that_others_give_up()
    tensor = torch.ones(4)
    work = dist.all_reduce(tensor, async_op=True)
    text = raised(work.wait, datetime.timedelta(milliseconds=300)) if rank == 0 else None
    ranks.give_up()
    work.wait()
    return text, tensor[0].item()


def outlast_the_group(rank, size, how):
    if rank == 1:
        ranks.await_that_others_give_up()
        return raised(dist.all_reduce, torch.ones(4))
    work = dist.all_reduce(torch.ones(4), async_op=True)
    text = raised(work.wait if how == "work" else work.get_future().wait)
    ranks.give_up()
    return text


def interrupted_wait(rank, size):
    """Ctrl-C ends a wait."""
    if rank == 1:
        ranks.await_that_others_give_up()
        return None
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    begin = time.monotonic()
    try:
        dist.all_reduce(torch.ones(4))
    except KeyboardInterrupt:
        return time.monotonic() - begin
    finally:
        ranks.give_up()
    return None


def wrong_arguments(rank, size):
    found = {
        "type": raised(dist.all_reduce, torch.ones(3, dtype=torch.int16)),
        "sparse": raised(dist.broadcast, torch.eye(3).to_sparse(), 0),
        "average of integers": raised(dist.all_reduce, torch.ones(3, dtype=torch.int32),
                                      dist.ReduceOp.AVG),
        "lengths": raised(dist.all_to_all_single, torch.zeros(size), torch.zeros(size),
                          [1] * size, [2] * size),
        "mkldnn": raised(dist.broadcast, torch.ones(3, 3).to_mkldnn(), 0),
        "send": raised(dist.send, torch.ones(3), rank),
        "recv": raised(dist.recv, torch.ones(3), size),
    }
    tensor = torch.ones(3)
    dist.all_reduce(tensor)  # none of these errors has ended the job
    assert tensor[0] == size
    return found


class ErrorsTest(SwitchTest):
    def test_no_switch(self):
        begin = time.monotonic()
        for result in self.start(2, nothing, url=f"shm:{self.folder}/nothing.sock").results():
            self.assertIsInstance(result, Failed)
            self.assertEqual(result.kind, "RuntimeError")
            self.assertIn("INA_ERR_NO_SWITCH", result.text)
            self.assertIn(f"{self.folder}/nothing.sock", result.text)
            self.assertIn("ina-switchd", result.text)
        self.assertLess(time.monotonic() - begin, 30)

    def test_killed_rank(self):
        for wait in ("work", "future"):
            results = self.start(3, lose_rank, 1, wait).results()
            self.assertIsNone(results[1])
            for rank in (0, 2):
                self.assertNotIsInstance(results[rank], Failed, repr(results[rank]))
                text, took_s, later, completed, success = results[rank]
                self.assertIn("INA_ERR_PEER_LOST", text)
                self.assertIn("rank 1", text)
                self.assertIn("INA_ERR_PEER_LOST", later)
                self.assertLess(took_s, LOSS_DEADLINE_S)
                self.assertTrue(completed)
                self.assertFalse(success)

    def test_different_calls(self):
        """The text names the calls of both sides, and their ranks."""
        for usual, other in (("all_reduce", "broadcast"), ("broadcast", "reduce"), ("reduce_scatter_tensor", "all_reduce"),
                             ("all_gather_into_tensor", "barrier"), ("barrier", "all_reduce")):
            for rank, text in enumerate(self.run_ranks(3, different_calls, usual, other)):
                self.assertIn("INA_ERR_MISMATCH", text)
                sides = sides_of(text)
                self.assertEqual(len(sides), 2, text)
                for call, ranks_of_call in sides.items():
                    # Those that had called when the disagreement was found are named.
                    expected = CALLS[other][1] if ranks_of_call == {1} else CALLS[usual][1]
                    self.assertTrue(call.startswith(expected), text)
                    self.assertTrue(ranks_of_call == {1} or ranks_of_call <= {0, 2}, text)
                self.assertIn({1}, sides.values(), text)

    def test_different_sizes(self):
        for text in self.run_ranks(2, different_sizes):
            self.assertIn("INA_ERR_MISMATCH", text)
            self.assertEqual(sides_of(text), {"allreduce of 8 float32 sum": {0}, "allreduce of 9 float32 sum": {1}})

    def test_timeout_of_a_wait(self):
        results = self.run_ranks(2, wait_for_nobody)
        self.assertIn("timed out after 300 ms", results[0][0])
        self.assertEqual([r[1] for r in results], [2.0, 2.0])

    def test_timeout_of_the_group(self):
        for how in ("work", "future"):
            texts = self.run_ranks(2, outlast_the_group, how, timeout=datetime.timedelta(seconds=2))
            self.assertIn("INA_ERR_TIMEOUT", texts[0])
            self.assertIsNotNone(texts[1])
            for text in texts:  # nobody called a barrier
                self.assertNotIn("barrier", text)

    @unittest.skipIf(int(torch.__version__.split(".")[0]) >= 2, "since PyTorch 2 these are names of backends")
    def test_names_with_types_of_devices(self):
        self.assertIn("takes one backend", raised(dist.init_process_group, "cpu:ina,cuda:nccl"))

    def test_interrupted_wait(self):
        took_s = self.start(2, interrupted_wait).results()[0]
        self.assertNotIsInstance(took_s, Failed, repr(took_s))
        self.assertLess(took_s, ranks.GROUP_TIMEOUT.total_seconds() / 2)

    def test_wrong_arguments(self):
        for found in self.run_ranks(2, wrong_arguments):
            self.assertIn("RuntimeError: ina: tensors of Short", found["type"])
            self.assertRegex(found["sparse"], "sparse|SparseCPU")  # PyTorch 2 refuses it itself
            self.assertIn("MKL-DNN", found["mkldnn"])
            self.assertIn("INA_ERR_INVALID", found["average of integers"])
            self.assertIn("split sizes", found["lengths"])
            self.assertRegex(found["send"], "is this rank|the rank of the current process")
            self.assertIn("there is no rank", found["recv"])


if __name__ == "__main__":
    unittest.main()
