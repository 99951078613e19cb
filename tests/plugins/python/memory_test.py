"""Tests memory that the switch reads and writes in place: what it saves, and that arrays outlive it.

    memory_test.py BUILD_FOLDER
"""

import asyncio
import gc
import mmap
import os
import pathlib
import signal
import tempfile
import unittest

from ranks import BUILD, DEADLINE_S, RanksTest, event, expect, raised, values

import numpy
import ina
import plugin_switch

COUNT = 50_000
BYTES = COUNT * 4
# The ranks have come so far; the switch has started again.
_reached, _restarted = event(), event()


def copied_by(job, call):
    """Returns the bytes that this rank copies in `call`: the least of several, as on a machine that
    stalls contributions are sent again, and answers to those who ask again are copied."""
    copied = []
    for _ in range(20):
        before = job.stats["bytes_copied"]
        call()
        copied.append(job.stats["bytes_copied"] - before)
    return min(copied)


def mappings():
    return pathlib.Path("/proc/self/maps").read_text("utf-8").splitlines()


def permissions(array):
    """Returns those of the array's memory, as /proc/PID/maps has them."""
    for line in mappings():
        place, found = line.split()[:2]
        begin, end = (int(number, 16) for number in place.split("-"))
        if begin <= array.ctypes.data < end:
            return found
    return None


def expect_total(job, found, turn=0):
    expect(found, sum(values(rank + turn, found.size) for rank in range(job.world_size)))


def memory_file(size):
    """Returns (descriptor, array of its bytes)."""
    file = os.memfd_create("memory_test", os.MFD_ALLOW_SEALING)
    os.truncate(file, size)
    return file, numpy.frombuffer(mmap.mmap(file, size), numpy.float32)


# ---- functions for ranks

def save_copies(job):
    """Each kind of memory saves its copy, and only its own."""
    plain = values(job.rank, COUNT)
    registered = job.alloc(COUNT, numpy.float32)
    assert registered.shape == (COUNT,) and not registered.any()
    registered[:] = plain
    result = job.alloc_result((COUNT,), "f4")
    assert not result.flags.writeable and isinstance(raised(result.fill, 1), ValueError)
    assert permissions(result) == "r--s", "the switch's pages"
    for send, recv, copies in ((plain, numpy.empty_like(plain), 2), (registered, numpy.empty_like(plain), 1),
                               (plain, result, 1), (registered, result, 0)):
        copied = copied_by(job, lambda send=send, recv=recv: job.allreduce(send, recv))
        expect_total(job, recv)
        assert copied == copies * BYTES, (copied, copies)
    assert job.allreduce(registered, registered) is registered
    expect_total(job, registered)


def register_file(job):
    plain = values(job.rank, COUNT)
    file, array = memory_file(BYTES)
    array[:] = plain
    result = job.alloc_result(COUNT, numpy.float32)
    with job.register(array, file) as registration:
        os.close(file)
        assert registration.array is array and not registration.closed
        assert copied_by(job, lambda: job.allreduce(array, result)) == 0
        expect_total(job, result)
    assert registration.closed
    registration.close()
    assert copied_by(job, lambda: job.allreduce(array, result)) == BYTES
    file, array = memory_file(mmap.PAGESIZE)
    wrong = raised(job.register, array[1:], file)
    assert wrong.status == ina.Status.INVALID and "as a whole" in wrong.text, wrong
    kept = job.register(array, file)
    wrong = raised(job.register, array, file)
    assert wrong.status == ina.Status.INVALID and "overlaps" in wrong.text, wrong
    other = os.memfd_create("memory_test", os.MFD_ALLOW_SEALING)
    os.truncate(other, mmap.PAGESIZE)
    mapped = mmap.mmap(other, mmap.PAGESIZE)
    with job.register(mapped, other):
        assert isinstance(raised(mapped.close), BufferError), "the registration keeps the memory"
    mapped.close()
    os.close(other)
    wrong = raised(job.register, numpy.ones(3), -1)
    assert wrong.status == ina.Status.INVALID and "descriptor" in wrong.text, wrong
    with tempfile.TemporaryFile() as ordinary:
        ordinary.truncate(mmap.PAGESIZE)
        mapped = numpy.frombuffer(mmap.mmap(ordinary.fileno(), mmap.PAGESIZE), numpy.uint8)
        wrong = raised(job.register, mapped, ordinary.fileno())
        assert wrong.status == ina.Status.INVALID and "memfd" in wrong.text, wrong
    os.close(file)
    job.close()
    assert kept.closed
    kept.close()
    assert "closed" in str(raised(job.register, array, 0))


def registered_in_use(job):
    """A registration stays while an operation needs it."""
    file, array = memory_file(BYTES)
    registration = job.register(array, file)
    os.close(file)
    if job.rank == 0:
        handle = job.allreduce_async(array, array)
        wrong = raised(registration.close)
        assert wrong.status == ina.Status.INVALID and "uses it" in wrong.text, wrong
        assert not registration.closed
        _reached.set()
        handle.wait()
    else:
        assert _reached.wait(DEADLINE_S)
        job.allreduce(array, array)
    registration.close()
    assert registration.closed


def results_of_others(job):
    """Broadcast, all-gather, parts of a buffer, and handles."""
    size, rank = job.world_size, job.rank
    result = job.alloc_result((size, COUNT // 64 * 64), numpy.float32)
    share = result.shape[1]
    sent = job.alloc(share, numpy.float32)
    sent[:] = values(rank, share)
    assert copied_by(job, lambda: job.all_gather(sent, result)) == 0
    for other in range(size):
        expect(result[other], values(other, share))
    assert copied_by(job, lambda: job.broadcast(sent if rank == 1 else None, 1, recv=result[0])) == 0
    expect(result[0], values(1, share))
    ordinary = numpy.empty(share, numpy.float32)
    expect(job.broadcast(sent, 0, recv=ordinary), values(0, share))

    async def both():
        return await asyncio.gather(*[job.allreduce_async(sent, result[i]) for i in range(2)])
    for found in asyncio.run(both()):
        expect_total(job, found)
    first = result[0].copy()
    job.allreduce(result[0], result[0])  # in place
    expect(result[0], first * size)
    bits = job.alloc_result(100, numpy.uint16)
    job.allreduce(numpy.full(100, 0x3f80, numpy.uint16), bits, dtype=ina.DType.BFLOAT16)
    assert (bits == bits[0]).all() and bits[0] == {2: 0x4000, 3: 0x4040}[size]
    wrong = raised(job.allreduce, sent[:64], result.reshape(-1)[1:65])
    assert wrong.status == ina.Status.INVALID and "multiple of 256" in wrong.text, wrong
    for call in (lambda: job.reduce_scatter(numpy.ones(share * size), result.reshape(-1)),
                 lambda: job.scatter(sent, result), lambda: job.all_to_all(result, result)):
        assert "can be written" in str(raised(call)), raised(call)
    job.barrier()


def results_of_another_context(job):
    group = job.split(0)
    result = group.alloc_result(COUNT, numpy.float32)
    wrong = raised(job.allreduce, values(0, COUNT), result)
    assert isinstance(wrong, ValueError), wrong
    group.allreduce(values(job.rank, COUNT), result)
    expect_total(job, result)
    job.close()  # the group goes with it
    expect(result, sum(values(rank, COUNT) for rank in range(job.world_size)))
    assert isinstance(raised(group.allreduce, values(0, COUNT), result), ina.Error)
    raised(group.close)
    expect(result, sum(values(rank, COUNT) for rank in range(job.world_size)))


def give_back(job):
    """The switch's bounds hold for what arrays show, not for what they have shown."""
    for kind, most in ((job.alloc, 63), (job.alloc_result, 32)):
        for _ in range(2):
            arrays = [kind(1000, numpy.float32) for _ in range(most)]
            part = arrays.pop()[10:20]
            refused = raised(kind, 1000, numpy.float32)
            assert isinstance(refused, ina.Error), refused
            assert "more" in refused.text or str(most) in refused.text, refused
            arrays.clear()
            gc.collect()
            job.barrier()
            expect(job.allreduce(values(0, 10), kind(1000, numpy.float32)[:10]) if kind is not job.alloc else part,
                   values(0, 10) * job.world_size if kind is not job.alloc else numpy.zeros(10, numpy.float32))
            del part
            gc.collect()
            job.barrier()
    before = len(mappings())
    for _ in range(100):
        job.alloc(1000, numpy.float32)
        job.alloc_result(1000, numpy.float32)
    assert len(mappings()) < before + 50, mappings()
    # An operation keeps what it uses.
    handle = job.allreduce_async(job.alloc(COUNT, numpy.float32), job.alloc_result(COUNT, numpy.float32))
    gc.collect()
    expect(handle.wait(), numpy.zeros(COUNT, numpy.float32))


def outlive(job):
    """Arrays keep their contents, and may be used, after close()."""
    registered, result = job.alloc((5, 10), numpy.float64), job.alloc_result(COUNT, numpy.float32)
    empty = job.alloc((0, 4), numpy.int8)
    assert empty.shape == (0, 4)
    job.allreduce(values(job.rank, COUNT), result)
    registered[2] = 7
    view = result[100:200]
    job.barrier()
    pid = os.fork()
    if pid == 0:  # without the library, whose memory a child does not have
        fine = result[5] == result.copy()[5] and registered[2, 0] == 7
        del registered, result, view
        gc.collect()
        os._exit(0 if fine else 1)
    assert os.waitpid(pid, 0)[1] == 0
    running = job.allreduce_async(values(0, COUNT), result) if job.rank == 0 else None
    raised(job.close, 0.2)
    assert permissions(result) == "rw-p", "not the switch's pages any more"
    expect(registered[2], numpy.full(10, 7.))
    registered[:] = 1
    if running is None:
        expect_total(job, result)
    assert isinstance(raised(job.alloc, 5, numpy.float32), ina.Error)
    assert isinstance(raised(job.alloc_result, 5, numpy.float32), ina.Error)
    del registered, result
    gc.collect()
    return float(view.sum()) if running is None else None


def outlive_dropped_context(job, url):
    other = ina.Context(url, "dropped", job.rank, job.world_size)
    result = other.alloc_result(COUNT, numpy.float32)
    other.allreduce(values(job.rank, COUNT), result)
    registered = other.alloc(COUNT, numpy.float32)
    del other
    gc.collect()
    expect_total(job, result)
    registered[:] = 1


def wrong_requests(job):
    for shape, dtype in (((3, -1), numpy.float32), ((-1, -1), numpy.float32), (3, object)):
        for call in (job.alloc, job.alloc_result):
            assert isinstance(raised(call, shape, dtype), ValueError)
    assert isinstance(raised(job.alloc, 3, "nothing"), TypeError)
    dimension = f"{{kind: ring, size: {job.world_size}, gbps: 10, step_latency_ns: 500}}"
    with ina.Hierarchy(job, f"dimensions: [{dimension}]") as network:
        result = job.alloc_result(10, numpy.float32)
        assert isinstance(raised(network.allreduce, values(0, 10), result), ValueError)
    job.barrier()


def restart(job):
    """Results are seen, too, after the switch has started again."""
    old, other = job.alloc_result(COUNT, numpy.float32), job.alloc_result(COUNT, numpy.float32)
    registered = job.alloc(COUNT, numpy.float32)
    registered[:] = values(job.rank, COUNT)
    job.allreduce(registered, old)
    job.allreduce(registered, other)
    job.barrier()
    running = None
    if job.rank == 0:
        running = job.allreduce_async(registered, old)  # aimed at the old switch's buffer
        _reached.set()
    assert _restarted.wait(DEADLINE_S)
    running = running or job.allreduce_async(registered, old)
    expect_total(job, running.wait())
    for turn in range(3):
        registered[:] = values(job.rank + turn, COUNT)
        job.allreduce(registered, old)
        expect_total(job, old, turn)
    expect_total(job, other)
    new = job.alloc_result(COUNT, numpy.float32)
    assert copied_by(job, lambda: job.allreduce(registered, new)) == 0
    expect_total(job, new, 2)
    job.barrier()
    del old
    gc.collect()
    job.close()
    expect_total(job, other)


def ordinary_results(job):
    """The switch's slots are such that it cannot write results for all."""
    result = job.alloc_result(COUNT, numpy.float32)
    assert not result.flags.writeable
    assert permissions(result) == "rw-p"
    assert copied_by(job, lambda: job.allreduce(values(job.rank, COUNT), result)) == 2 * BYTES
    expect_total(job, result)
    job.close()
    expect_total(job, result)


class MemoryTest(RanksTest):
    def setUp(self):
        _reached.clear()
        _restarted.clear()

    def test_save_copies(self):
        self.run_ranks(2, save_copies)

    def test_register_file(self):
        self.run_ranks(2, register_file)

    def test_registered_in_use(self):
        self.run_ranks(2, registered_in_use)

    def test_results_of_others(self):
        self.run_ranks(3, results_of_others)

    def test_results_of_another_context(self):
        self.run_ranks(2, results_of_another_context)

    def test_give_back(self):
        self.run_ranks(2, give_back)

    def test_outlive(self):
        found = self.run_ranks(2, outlive)[1]
        self.assertEqual(found, float(sum(values(rank, COUNT)[100:200] for rank in range(2)).sum()))

    def test_outlive_dropped_context(self):
        self.run_ranks(2, outlive_dropped_context, self.switch.url)

    def test_wrong_requests(self):
        self.run_ranks(2, wrong_requests)

    def test_restart(self):
        """In a switch of its own."""
        with tempfile.TemporaryDirectory(prefix="ina-python-") as folder:
            shared = self.switch
            self.addCleanup(setattr, type(self), "switch", shared)
            type(self).switch = plugin_switch.start(BUILD, pathlib.Path(folder))
            try:
                self.run_ranks(2, restart, meanwhile=self.start_again)
            finally:
                self.switch.stop()

    def start_again(self, all_run):
        while not _reached.wait(0.1):
            if not all_run():
                return  # they say why
        self.switch.process.send_signal(signal.SIGKILL)
        self.switch.process.wait()
        type(self).switch = plugin_switch.start(BUILD, self.switch.folder)
        _restarted.set()


class OrdinaryTest(RanksTest):
    CONFIG = plugin_switch.CONFIG.replace("slot_bytes: 4 KiB", "slot_bytes: 512")

    def test_ordinary_results(self):
        self.run_ranks(2, ordinary_results)


if __name__ == "__main__":
    unittest.main()
