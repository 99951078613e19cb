"""Tests messages between two ranks, and the barrier that names the missing ranks.

    pairs_test.py BUILD_FOLDER
"""

import datetime
import os
import signal
import threading
import time
import unittest

import ranks
from ranks import Failed, SwitchTest, raised

import torch
import torch.distributed as dist

SIZES = [0, 1, 1000, 1_000_000]


def message(source, size, dtype=torch.float32):
    return (torch.arange(size) + 100 * source).to(dtype)


def ring(rank, size):
    """Every rank sends to the next rank and receives from the previous one, all at once."""
    after, before = (rank + 1) % size, (rank - 1) % size
    for dtype in (torch.float32, torch.int16, torch.bool, torch.complex64):
        for count in SIZES:
            found = torch.zeros(count, dtype=dtype)
            works = [dist.isend(message(rank, count, dtype), after), dist.irecv(found, before)]
            for work in works:
                work.wait()
                assert work.is_completed() and work.is_success()
            assert torch.equal(found, message(before, count, dtype)), f"{dtype} {count}"
    strided = torch.zeros(4, 6).t()
    works = [dist.isend(torch.arange(24.).view(4, 6).t(), after), dist.irecv(strided, before)]
    for work in works:
        work.wait()
    assert torch.equal(strided, torch.arange(24.).view(4, 6).t())


def tags(rank, size):
    """Messages with one tag arrive in order; messages with other tags may be received before."""
    if rank == 0:
        works = [dist.isend(torch.full((10,), float(10 * tag + i)), 1, tag=tag)
                 for i in range(3) for tag in range(3)]
        for work in works:
            work.wait()
    else:
        for tag in (2, 0, 1):
            for i in range(3):
                found = torch.zeros(10)
                dist.recv(found, 0, tag=tag)
                assert found[0] == 10 * tag + i, (tag, i, found)


def any_source(rank, size):
    rounds = 5
    if rank != 0:
        for i in range(rounds):
            dist.send(torch.tensor([rank, i]), 0)
        return None
    last, sources = {}, []
    for _ in range(rounds * (size - 1)):
        found = torch.zeros(2, dtype=torch.int64)
        source = dist.recv(found)
        assert source == found[0], (source, found)
        assert found[1] == last.get(source, -1) + 1, "in order"
        last[source] = found[1].item()
        sources.append(source)
    return sorted(sources)


def in_groups(rank, size):
    """In a group ranks have other numbers, and messages of two groups do not mix."""
    group = dist.new_group([1, 2])
    if rank == 0:
        return
    other = 3 - rank
    works = [dist.isend(torch.full((3,), float(rank)), other),
             dist.isend(torch.full((3,), 10. * rank), other, group=group)]
    found, in_group = torch.zeros(3), torch.zeros(3)
    assert dist.recv(in_group, other, group=group) == other
    assert dist.recv(found, other) == other
    assert found[0] == other and in_group[0] == 10 * other
    for work in works:
        work.wait()


def wrong_sizes(rank, size):
    if rank == 0:
        dist.send(torch.ones(10), 1)
        dist.send(torch.full((4,), 7.), 1)
        return None
    text = raised(dist.recv, torch.zeros(9), 0)
    found = torch.zeros(4)
    dist.recv(found, 0)
    assert found[0] == 7
    return text


def nobody_there(rank, size):
    """The group's timeout ends only the receive, and only the send."""
    found = None
    if rank == 0:
        found = (raised(dist.recv, torch.zeros(3), 1), raised(dist.recv, torch.zeros(3)),
                 raised(dist.send, torch.zeros(3), 1))
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=30))
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor[0] == size
    return found


def both_send_first(rank, size, count, before):
    """Neither rank receives. Returns the error. `before`: the ranks have exchanged messages
    before."""
    if before:
        both_isend_first(rank, size, 3)
    begin = time.monotonic()
    text = raised(dist.send, torch.ones(count), 1 - rank)
    return text, time.monotonic() - begin


def both_isend_first(rank, size, count):
    work = dist.isend(torch.full((count,), float(rank)), 1 - rank)
    found = torch.zeros(count)
    dist.recv(found, 1 - rank)
    work.wait()
    assert found[0] == 1 - rank


def late_receiver(rank, size, count):
    """Returns whether a send waits for its receiver, which comes 1 s later, and the error of the
    send."""
    if rank == 1:
        ranks.await_that_others_give_up()
        dist.recv(torch.zeros(count), 0)
        return None
    errors = []
    sending = threading.Thread(target=lambda: errors.append(raised(dist.send, torch.ones(count), 1)))
    sending.start()
    sending.join(1)
    waits = sending.is_alive()
    ranks.give_up()
    sending.join()
    return waits, errors[0]


def lose_partner(rank, size):
    tensor = torch.ones(3)
    if rank == 1:
        dist.send(tensor, 0)
        os.kill(os.getpid(), signal.SIGKILL)
    dist.recv(tensor, 1)
    begin = time.monotonic()
    return raised(dist.recv, tensor, 1), time.monotonic() - begin


def missing_ranks(rank, size, wait_all_ranks):
    if rank in (1, 3):
        return None
    text = raised(dist.monitored_barrier, timeout=datetime.timedelta(seconds=1),
                  wait_all_ranks=wait_all_ranks)
    return text


class PairsTest(SwitchTest):
    def test_ring(self):
        self.run_ranks(3, ring)
        self.run_ranks(2, ring)

    def test_tags(self):
        self.run_ranks(2, tags)

    def test_any_source(self):
        self.assertEqual(self.run_ranks(4, any_source)[0], sorted([1, 2, 3] * 5))

    def test_groups(self):
        self.run_ranks(3, in_groups)

    def test_wrong_sizes(self):
        self.assertIn("has 40 bytes, the tensor 36", self.run_ranks(2, wrong_sizes)[1])

    def test_nobody_there(self):
        texts = self.run_ranks(2, nobody_there, timeout=datetime.timedelta(seconds=1))[0]
        for text in texts:
            self.assertIn("INA_ERR_TIMEOUT", text)

    def test_both_send_first(self):
        """As with Gloo, a send waits for its receiver, and the group's timeout ends the wait."""
        for backend in ("gloo", "ina"):
            for count in (1, 1_000_000):
                with self.subTest(backend=backend, count=count):
                    self.assertEqual(self.run_ranks(2, late_receiver, count, backend=backend)[0],
                                     (True, None))
                    found = self.run_ranks(2, both_send_first, count, count == 1, backend=backend,
                                           timeout=datetime.timedelta(seconds=2))
                    for text, took_s in found:
                        self.assertIsNotNone(text)
                        self.assertLess(took_s, 20)
                    # The slower rank may learn only that the other rank has ended.
                    if backend == "ina":
                        self.assertTrue(any("use isend" in text for text, _ in found), found)

    def test_lost_partner(self):
        result = self.start(2, lose_partner).results()[0]
        self.assertNotIsInstance(result, Failed, repr(result))
        text, took_s = result
        self.assertIn("INA_ERR_PEER_LOST", text)
        self.assertLess(took_s, 20)

    def test_monitored_barrier(self):
        first = self.run_ranks(4, missing_ranks, False)
        self.assertIn("Rank 1 failed to pass monitoredBarrier in 1000 ms", first[0])
        self.assertIn("Rank 2 successfully reached", first[2])
        everyone = self.run_ranks(4, missing_ranks, True)
        self.assertIn("Ranks 1, 3 failed", everyone[0])


if __name__ == "__main__":
    unittest.main()
