"""Compares results of the package `ina` with the right ones, over a real switch.

    context_test.py BUILD_FOLDER
"""

import array
import asyncio
import gc
import os
import pathlib
import pickle
import signal
import threading
import time
import unittest

from ranks import DEADLINE_S, TIMEOUT_S, RanksTest, ends_the_job, event, expect, raised, values

import numpy
import ina

# Set by a rank when it has given up waiting for others: they may go on.
_given_up = event()
# Set by a rank when it has run on for long enough while one of its threads waits.
_ran_on = event()

TYPES = [numpy.int8, numpy.uint8, numpy.int32, numpy.int64, numpy.float16, numpy.float32,
         numpy.float64]


# ---- functions for ranks

def sums(job):
    ranks = range(job.world_size)
    for dtype in TYPES:
        for count in (0, 1, 1000, 50_000):
            inputs = [values(r, count * job.world_size, dtype) for r in ranks]
            total = sum(inputs).astype(dtype)
            what = f"{dtype.__name__} {count}"
            expect(job.allreduce(inputs[job.rank]), total, what)
            inplace = inputs[job.rank].copy()
            assert job.allreduce(inplace, inplace) is inplace
            expect(inplace, total, what)
            found = job.reduce(inputs[job.rank], root=1)
            assert (found is None) == (job.rank != 1)
            if job.rank == 1:
                expect(found, total, what)
            own = total[job.rank * count:(job.rank + 1) * count]
            expect(job.reduce_scatter(inputs[job.rank]), own, what)
    shape = (3, 4)
    expect(job.allreduce(numpy.full(shape, 2., numpy.float32), op=ina.Op.PROD),
           numpy.full(shape, 2. ** job.world_size, numpy.float32))
    expect(job.allreduce(numpy.array([job.rank == 1, False]), op=ina.Op.MAX),
           numpy.array([True, False]))
    counts = [r + 1 for r in ranks]
    whole = [values(r, sum(counts)) for r in ranks]
    first = sum(counts[:job.rank])
    expect(job.reduce_scatter(whole[job.rank], counts=counts),
           sum(whole)[first:first + counts[job.rank]])


def bfloat16(job):
    def bits(numbers):
        return (numpy.asarray(numbers, numpy.float32).view(numpy.uint32) >> 16).astype(numpy.uint16)
    found = job.allreduce(bits([1.0, 2.5, job.rank]), dtype=ina.DType.BFLOAT16)
    expect(found, bits([job.world_size, 2.5 * job.world_size, sum(range(job.world_size))]))


def moves(job):
    size, rank = job.world_size, job.rank
    for dtype in TYPES + [numpy.complex128, numpy.int16, numpy.dtype("S3")]:
        inputs = [(values(r, 700, numpy.int64) + r).astype(dtype) for r in range(size)]
        expect(job.broadcast(inputs[rank].copy(), root=1), inputs[1])
        expect(job.all_gather(inputs[rank]), numpy.concatenate(inputs))
        found = job.gather(inputs[rank], root=0)
        assert (found is None) == (rank != 0)
        if rank == 0:
            expect(found, numpy.concatenate(inputs))
        found = numpy.empty_like(inputs[0])
        job.scatter(numpy.concatenate(inputs) if rank == 0 else None, found)
        expect(found, inputs[rank])
        parts = numpy.array_split(inputs[rank][:size * 10], size)
        expect(job.all_to_all(numpy.concatenate(parts)),
               numpy.concatenate([inputs[s][rank * 10:(rank + 1) * 10] for s in range(size)]))
        found = numpy.empty_like(inputs[0])
        job.permute(inputs[rank], found, [(r + 1) % size for r in range(size)])
        expect(found, inputs[rank - 1])
    counts = [r + 2 for r in range(size)]
    expect(job.all_gather(values(rank, counts[rank]), counts=counts),
           numpy.concatenate([values(r, counts[r]) for r in range(size)]))
    found = numpy.zeros(4)
    job.send_receive(numpy.arange(4.), 1 if rank == 0 else ina.NOBODY, found,
                     0 if rank == 1 else ina.NOBODY)
    expect(found, numpy.arange(4.) if rank == 1 else numpy.zeros(4))
    # Any object with a buffer.
    ints = array.array("i", [rank, 1])
    job.allreduce(ints, ints)
    assert list(ints) == [sum(range(size)), size]
    text = bytearray(b"from 0" if rank == 0 else b"______")
    job.broadcast(text, 0)
    assert text == b"from 0"


def handles(job):
    arrays = [values(job.rank + i, 1000 * i) for i in range(20)]
    started = [job.allreduce_async(a, a) for a in arrays]
    for i, handle in reversed(list(enumerate(started))):
        expect(handle.wait(), sum(values(r + i, 1000 * i) for r in range(job.world_size)))
        assert handle.done()
    for _ in range(50):  # without keeping the handles
        job.allreduce_async(numpy.ones(10_000))
        gc.collect()
    job.barrier()


def awaiting(job):
    async def one(i):
        data = numpy.full(1000, float(i))
        return (await job.allreduce_async(data, data))[0]

    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.001)
        ticking = asyncio.ensure_future(tick())
        if job.rank == 0:
            await asyncio.sleep(0.2)
        handle = job.barrier_async()
        await handle
        # The operations start in the order in which they are made, the same on all ranks.
        found = await asyncio.gather(*[one(i) for i in range(30)])
        ticking.cancel()
        return found, ticks

    found, ticks = asyncio.run(main())
    assert found == [i * job.world_size for i in range(30)], found
    assert ticks > 10, "the loop runs on while an operation waits"
    found, _ = asyncio.run(main())  # on another event loop
    assert found[1] == job.world_size


def threads(job):
    """Other threads run while one thread waits."""
    if job.rank != 0:
        assert _ran_on.wait(DEADLINE_S)
        job.barrier()
        return
    waiting = threading.Thread(target=lambda: job.barrier())
    waiting.start()
    try:
        counted = 0
        end = time.monotonic() + 0.3
        while counted < 1000 or time.monotonic() < end:
            counted += 1
        assert waiting.is_alive(), "it waits for rank 1, which has not called yet"
        job.send_receive  # other threads can use the context, too
    finally:
        _ran_on.set()
    waiting.join()


def groups(job):
    parity = job.split(job.rank % 2, -job.rank)
    members = sorted((r for r in range(job.world_size) if r % 2 == job.rank % 2), reverse=True)
    assert parity.world_size == len(members) and members[parity.rank] == job.rank
    expect(parity.allreduce(numpy.full(5, job.rank)), numpy.full(5, sum(members)))
    parity.close()
    assert parity.closed
    alone = job.split(0 if job.rank == 0 else -1)
    assert (alone is None) == (job.rank != 0)
    if alone:
        with alone:
            expect(alone.allreduce(numpy.ones(3)), numpy.ones(3))
    job.barrier()
    members = [r for r in reversed(range(job.world_size)) if r % 2 == job.rank % 2]
    with job.create_group(members, tag=7) as group:
        assert (group.world_size, members[group.rank]) == (len(members), job.rank)
        expect(group.allreduce(numpy.full(5, job.rank)), numpy.full(5, sum(members)))


NETWORK = """\
dimensions:
  - {kind: halving-doubling, size: 2, gbps: 80, step_latency_ns: 500}
  - {kind: ring, size: 2, gbps: 10, step_latency_ns: 500}
"""


def hierarchy(job, folder):
    size, rank = job.world_size, job.rank
    path = pathlib.Path(folder) / f"network{rank}.yaml"
    path.write_text(NETWORK, encoding="utf-8")
    rail = job.split(0)
    made = [lambda: ina.Hierarchy(job, NETWORK), lambda: ina.Hierarchy(job, topology_file=path),
            lambda: ina.Hierarchy(job, NETWORK, rails=[job, rail])]
    for make in made:
        with make() as network:
            for dtype, count in ((numpy.float32, 5000), (numpy.int64, 1)):
                inputs = [values(r, count * size, dtype) for r in range(size)]
                total = sum(inputs)
                expect(network.allreduce(inputs[rank]), total)
                inplace = inputs[rank].copy()
                assert network.allreduce_async(inplace, inplace, scheduler="baseline", chunks=3).wait() is inplace
                expect(inplace, total)
                expect(network.reduce_scatter(inputs[rank], scheduler="search"), total[rank * count:(rank + 1) * count])
                expect(network.all_gather(inputs[rank]), numpy.concatenate(inputs))
                expect(network.all_to_all(inputs[rank]),
                       numpy.concatenate([i[rank * count:(rank + 1) * count] for i in inputs]))

            async def step():
                return await asyncio.gather(*[network.allreduce_async(numpy.full(100, float(i))) for i in range(5)])
            assert [found[0] for found in asyncio.run(step())] == [float(i * size) for i in range(5)]
            ones, twos = numpy.ones(8 * size, numpy.float32), numpy.full(5, 2, numpy.int64)
            call = ina.HierarchicalCall
            shares, totals, all_twos, blocks = network.group(
                [call.reduce_scatter(ones), call.allreduce(twos, op=ina.Op.MAX), call.all_gather(twos),
                 call.all_to_all(numpy.arange(size))], scheduler="themis")
            expect(shares, numpy.full(8, size, numpy.float32))
            expect(totals, twos)
            expect(all_twos, numpy.full(5 * size, 2))
            expect(blocks, numpy.full(size, rank))
            wrong = raised(network.group, [call.allreduce(ones, ones), call.allreduce(ones, ones)])
            assert wrong.status == ina.Status.INVALID and "overlap" in wrong.text, wrong
            wrong = raised(network.group, [ina.HierarchicalCall("allreduces", ones)])
            assert isinstance(wrong, ValueError) and "allreduces" in str(wrong), wrong
            moved = numpy.array([b"abc", b"xyz"] * size)
            expect(network.all_to_all(moved), moved)
            assert isinstance(raised(network.allreduce, numpy.ones(3), numpy.ones(4)), ValueError)
            wrong = raised(network.allreduce, numpy.ones(3), scheduler="best")
            assert wrong.status == ina.Status.INVALID and "best" in wrong.text, wrong
        assert network.closed
        assert "hierarchy is closed" in str(raised(network.allreduce, numpy.ones(3)))
    rail.close()
    with ina.Hierarchy(job, NETWORK) as network:
        measured = network.calibrate()
    assert "gbps" in measured and "size: 2" in measured, measured
    with ina.Hierarchy(job, measured) as network:
        expect(network.allreduce(numpy.ones(4)), numpy.full(4, float(size)))
    assert isinstance(raised(ina.Hierarchy, job), ValueError), "no topology"
    wrong = raised(ina.Hierarchy, job, NETWORK.replace("size: 2", "size: 4"))
    assert wrong.status == ina.Status.INVALID and "4 x 4" in wrong.text, wrong
    job.barrier()  # none of these errors has ended the job


def redistribution(job):
    plan = ina.Plan("x=4", (8, 12), "x,-", "-,x", ina.DType.FLOAT32)
    whole = numpy.arange(96, dtype=numpy.float32).reshape(8, 12)
    buffer = numpy.zeros(plan.facts["buffer_bytes"] // 4, numpy.float32)
    source, target = plan.facts["source_bytes"] // 4, plan.facts["target_bytes"] // 4
    buffer[:source] = whole[job.rank * 2:job.rank * 2 + 2].ravel()
    job.redistribute(ina.Plan.parse(plan.json()), buffer)
    expect(buffer[:target].reshape(8, 3), whole[:, job.rank * 3:job.rank * 3 + 3])
    assert "x" in str(plan)
    costs = job.measure_costs()
    assert set(costs) == {"alpha_us", "message_us", "gbps", "copy_gbps"} and costs["copy_gbps"] > 0, costs
    slow = {**costs, "gbps": costs["gbps"] / 1000}
    predicted = [ina.Plan("x=4", (8, 12), "x,-", "-,x", ina.DType.FLOAT32, costs=given).facts["predicted_us"]
                 for given in (costs, slow)]
    assert predicted[0] < predicted[1], predicted
    wrong = raised(ina.Plan, "x=4", (7, 12), "x,-", "-,x", ina.DType.FLOAT32)
    assert isinstance(wrong, ina.Error) and wrong.status == ina.Status.INVALID, wrong


def statistics(job):
    before = job.stats
    for _ in range(5):
        job.allreduce(numpy.ones(1000, numpy.float32))
    after = job.stats
    assert after["operations"] - before["operations"] == 5, (before, after)
    assert after["bytes_sent"] - before["bytes_sent"] == 5 * 4000
    assert not job.overflowed()
    job.allreduce(numpy.full(3, 100, numpy.int8))
    assert job.overflowed(clear=True) and not job.overflowed()
    seen = []
    for remaining in (10**9, 10**9 - 1, 1):
        job.set_hints(layer=1, layers=4, remaining_iterations=remaining)
        job.allreduce(numpy.ones(3, numpy.float32))
        seen.append(job.stats["priority"])
    assert 1 <= seen[1] < seen[2] <= 255, seen
    job.reset_hints()


def wrong_arguments(job):
    assert isinstance(raised(job.allreduce, numpy.ones(3, numpy.int16)), ValueError)
    assert isinstance(raised(job.allreduce, numpy.ones(3), numpy.ones(4)), ValueError)
    assert isinstance(raised(job.allreduce, numpy.ones((4, 4))[:, ::2], numpy.ones((4, 2))), ValueError)
    fixed = numpy.ones(3)
    fixed.flags.writeable = False
    assert isinstance(raised(job.allreduce, numpy.ones(3), fixed), ValueError)
    refused = raised(job.allreduce, numpy.ones(3, numpy.int32), op=ina.Op.AVG)
    assert isinstance(refused, ina.Error) and refused.status == ina.Status.INVALID
    assert "INA_ERR_INVALID" in str(refused), refused
    job.barrier()  # none of these errors has ended the job


@ends_the_job
def disagree(job):
    error = raised(job.allreduce, numpy.ones(4 + job.rank))
    return type(error).__name__, error.status, error.text, pickle.loads(pickle.dumps(error)).text


@ends_the_job
def lose_rank(job):
    def calls():
        job.barrier()  # the other ranks may learn of the end before they have its result
        if job.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        job.allreduce(numpy.ones(5))
    blocking = raised(calls)
    return type(blocking).__name__, blocking.text


@ends_the_job
def lose_rank_awaiting(job):
    async def calls():
        await job.barrier_async()
        if job.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        await job.allreduce_async(numpy.ones(5))
    error = raised(asyncio.run, calls())
    return type(error).__name__, error.text


@ends_the_job
def time_out(job):
    if job.rank == 1:
        assert _given_up.wait(DEADLINE_S)
        return None
    handle = job.allreduce_async(numpy.ones(5))
    still = raised(handle.wait, 0.2)
    assert type(still) is TimeoutError, still
    ended = raised(job.allreduce, numpy.ones(5), timeout=0.5)
    _given_up.set()
    return type(ended).__name__, ended.status, ended.text


@ends_the_job
def time_out_awaiting(job):
    if job.rank == 1:
        assert _given_up.wait(DEADLINE_S)
        return None

    async def main():
        await job.allreduce_async(numpy.ones(5))
    ended = raised(asyncio.run, main())
    _given_up.set()
    return type(ended).__name__, ended.status, ended.text


@ends_the_job
def interrupt(job):
    if job.rank == 1:
        assert _given_up.wait(DEADLINE_S)
        return None
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    begin = time.monotonic()
    try:
        job.barrier()
    except KeyboardInterrupt:
        return time.monotonic() - begin
    finally:
        _given_up.set()
    return None


def leave_at_the_end(job):
    """A `with` block, whose own error takes precedence."""
    with job:
        job.barrier()
    assert job.closed
    job.close()


GIVEN_UP = (ina.Status.ABORTED, ina.Status.PEER_LOST)


@ends_the_job
def close_early(job):
    handle = job.allreduce_async(numpy.ones(5)) if job.rank == 0 else None
    left = raised(job.close, 0.5)
    # Rank 0 abandons its operation, unless it has learned before that rank 1 never calls it.
    assert job.rank != 0 or left.status in GIVEN_UP, left
    closed = raised(job.barrier)
    assert closed.status == ina.Status.INVALID and "closed" in closed.text, closed
    return raised(handle.wait).status if handle else None


class ContextTest(RanksTest):
    def setUp(self):
        _given_up.clear()
        _ran_on.clear()

    def test_sums(self):
        self.run_ranks(3, sums)

    def test_bfloat16(self):
        self.run_ranks(2, bfloat16)

    def test_moves(self):
        self.run_ranks(3, moves)

    def test_handles(self):
        self.run_ranks(3, handles)

    def test_awaiting(self):
        self.run_ranks(3, awaiting)

    def test_threads(self):
        self.run_ranks(2, threads)

    def test_groups(self):
        self.run_ranks(4, groups)

    def test_hierarchy(self):
        self.run_ranks(4, hierarchy, self.switch.folder)

    def test_redistribution(self):
        self.run_ranks(4, redistribution)

    def test_statistics(self):
        self.run_ranks(2, statistics)

    def test_wrong_arguments(self):
        self.run_ranks(2, wrong_arguments)

    def test_disagreement(self):
        for kind, status, text, again in self.run_ranks(2, disagree):
            self.assertEqual((kind, status), ("Mismatch", ina.Status.MISMATCH))
            self.assertIn("rank 1", text)
            self.assertEqual(text, again)

    def test_lost_rank(self):
        for function in (lose_rank, lose_rank_awaiting):
            for rank, result in enumerate(self.run_ranks(3, function)):
                if rank != 1:
                    self.assertEqual(result[0], "PeerLost")
                    self.assertIn("rank 1", result[1])

    def test_timeout(self):
        kind, status, text = self.run_ranks(2, time_out)[0]
        self.assertEqual((kind, status), ("Timeout", ina.Status.TIMEOUT))
        self.assertIn("0.5", text)

    def test_timeout_awaiting(self):
        kind, status, text = self.run_ranks(2, time_out_awaiting, timeout=1)[0]
        self.assertEqual((kind, status), ("Timeout", ina.Status.TIMEOUT))
        self.assertIn("timeout of 1", text)

    def test_interrupt(self):
        self.assertLess(self.run_ranks(2, interrupt)[0], TIMEOUT_S / 2)

    def test_with_block(self):
        self.run_ranks(2, leave_at_the_end)

    def test_early_close(self):
        self.assertIn(self.run_ranks(2, close_early)[0], GIVEN_UP)

    def test_no_switch(self):
        error = raised(ina.Context, f"shm:{self.switch.folder}/nothing.sock", "job", 0, 1)
        self.assertIsInstance(error, ina.Error)
        self.assertEqual(error.status, ina.Status.NO_SWITCH)
        self.assertIn("nothing.sock", error.text)


if __name__ == "__main__":
    unittest.main()
