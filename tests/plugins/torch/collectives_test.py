"""Compares every collective of torch.distributed with its right results, over a real switch.

    collectives_test.py BUILD_FOLDER
"""

import os
import unittest

from ranks import SwitchTest, plugin_switch

import torch
import torch.distributed as dist

INTEGERS = [torch.uint8, torch.int8, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
# Types for collectives that only move data.
MOVED = INTEGERS + FLOATS + [torch.bool, torch.int16, torch.complex64, torch.complex128]
SIZES = [0, 1, 7, 5000]


def values(rank, dtype, shape):
    """Returns small numbers, so that sums and products of a few of them are exact in all types."""
    count = int(torch.tensor(shape).prod()) if not isinstance(shape, int) else shape
    numbers = (torch.arange(count) * 7 + rank * 3) % 5
    return (numbers % 2 if dtype == torch.bool else numbers).to(dtype).reshape(shape)


def expect(found, wanted, what):
    assert found.dtype == wanted.dtype and torch.equal(found, wanted), \
        f"{what}: found {found.flatten()[:8]}, expected {wanted.flatten()[:8]}"


def reduced(inputs, op):
    wide = torch.stack([i.to(torch.float64) if i.is_floating_point() else i.to(torch.int64)
                        for i in inputs])
    folds = {dist.ReduceOp.SUM: lambda: wide.sum(0), dist.ReduceOp.PRODUCT: lambda: wide.prod(0),
             dist.ReduceOp.MIN: lambda: wide.amin(0), dist.ReduceOp.MAX: lambda: wide.amax(0),
             dist.ReduceOp.AVG: lambda: wide.sum(0) / len(inputs)}
    bits = {dist.ReduceOp.BAND: torch.bitwise_and, dist.ReduceOp.BOR: torch.bitwise_or,
            dist.ReduceOp.BXOR: torch.bitwise_xor}
    for known, fold in folds.items():
        if known == op:
            return fold().to(inputs[0].dtype)
    for known, bit in bits.items():
        if known == op:
            result = wide[0]
            for other in wide[1:]:
                result = bit(result, other)
            return result.to(inputs[0].dtype)
    raise AssertionError(f"unknown reduction {op}")


def reductions_of(dtype):
    common = [dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]
    if dtype in FLOATS:
        return common + [dist.ReduceOp.AVG]
    return common + [dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR]


def all_reduce_grid(rank, size):
    for dtype in INTEGERS + FLOATS + [torch.bool]:
        for op in reductions_of(dtype):
            for count in SIZES:
                tensor = values(rank, dtype, count)
                inputs = [values(r, dtype, count) for r in range(size)]
                dist.all_reduce(tensor, op)
                expect(tensor, reduced(inputs, op), f"all_reduce {dtype} {op} {count}")


def scattered_in_flight(rank, size, whole, own):
    """Lists whose tensors have arbitrary addresses, several at once; and an output that is a tensor
    of a list."""
    lists = [[part.clone() for part in whole.chunk(size)] for _ in range(3)]
    outputs = [torch.full_like(own, 9) for _ in lists]
    works = [dist.reduce_scatter(output, parts, async_op=True) for output, parts in zip(outputs, lists)]
    for work, output in zip(works, outputs):
        work.wait()
        expect(output, own, f"reduce_scatter in flight {own.dtype} {own.numel()}")
    parts = list(whole.clone().chunk(size))
    dist.reduce_scatter(parts[rank], parts)
    expect(parts[rank], own, f"reduce_scatter in place {own.dtype} {own.numel()}")
    expect(torch.cat(parts[:rank] + parts[rank + 1:]),
           torch.cat([whole.chunk(size)[r] for r in range(size) if r != rank]), "the other parts")


def other_sums(rank, size):
    for dtype in [torch.int32, torch.float32, torch.bfloat16]:
        for count in SIZES:
            inputs = [values(r, dtype, count * size) for r in range(size)]
            total = reduced(inputs, dist.ReduceOp.SUM)
            for root in range(size):
                tensor = values(rank, dtype, count * size)
                dist.reduce(tensor, root)
                expect(tensor, total if rank == root else inputs[rank], f"reduce {dtype} {count}")
            own = total[rank * count:(rank + 1) * count]
            output = torch.full((count,), 9, dtype=dtype)
            dist.reduce_scatter(output, list(inputs[rank].chunk(size)) if count else
                                [inputs[rank][:0]] * size)
            expect(output, own, f"reduce_scatter {dtype} {count}")
            if count:
                scattered_in_flight(rank, size, inputs[rank], own)
            output = torch.full((count,), 9, dtype=dtype)
            dist.reduce_scatter_tensor(output, inputs[rank])
            expect(output, own, f"reduce_scatter_tensor {dtype} {count}")
            tensors = [values(rank, dtype, count), values(rank + 1, dtype, (3, 2))]
            dist.all_reduce_coalesced(tensors)
            for i, shape in enumerate([count, (3, 2)]):
                expect(tensors[i], reduced([values(r + i, dtype, shape) for r in range(size)],
                                           dist.ReduceOp.SUM), f"all_reduce_coalesced {dtype}")
    # Blocks of different sizes.
    inputs = [[values(r + block, torch.float32, block + 1) for block in range(size)]
              for r in range(size)]
    output = torch.zeros(rank + 1)
    dist.reduce_scatter(output, inputs[rank])
    expect(output, reduced([i[rank] for i in inputs], dist.ReduceOp.SUM), "uneven reduce_scatter")


def moves(rank, size):
    for dtype in MOVED:
        for count in SIZES:
            shape = (count, 2)
            inputs = [values(r, dtype, shape) for r in range(size)]
            mine, what = inputs[rank], f"{dtype} {count}"
            root = count % size

            tensor = mine.clone()
            dist.broadcast(tensor, root)
            expect(tensor, inputs[root], f"broadcast {what}")

            outputs = [torch.zeros(shape, dtype=dtype) for _ in range(size)]
            dist.all_gather(outputs, mine)
            for r in range(size):
                expect(outputs[r], inputs[r], f"all_gather {what}")

            output = torch.zeros((size * count, 2), dtype=dtype)
            dist.all_gather_into_tensor(output, mine)
            expect(output, torch.cat(inputs), f"all_gather_into_tensor {what}")

            outputs = [torch.zeros(shape, dtype=dtype) for _ in range(size)] if rank == root else None
            dist.gather(mine, outputs, root)
            if rank == root:
                for r in range(size):
                    expect(outputs[r], inputs[r], f"gather {what}")

            output = torch.zeros(shape, dtype=dtype)
            dist.scatter(output, inputs if rank == root else None, root)
            expect(output, mine, f"scatter {what}")

            whole = [torch.cat([values(r * size + d, dtype, shape) for d in range(size)])
                     for r in range(size)]
            wanted = torch.cat([values(s * size + rank, dtype, shape) for s in range(size)])
            output = torch.zeros((size * count, 2), dtype=dtype)
            dist.all_to_all_single(output, whole[rank])
            expect(output, wanted, f"all_to_all_single {what}")


def uneven_exchanges(rank, size):
    def block(source, destination):
        return values(source + destination, torch.int64, (source + 2 * destination, 3))

    inputs = [block(rank, d) for d in range(size)]
    wanted = [block(s, rank) for s in range(size)]
    outputs = [torch.zeros_like(w) for w in wanted]
    dist.all_to_all(outputs, inputs)
    for s in range(size):
        expect(outputs[s], wanted[s], "all_to_all")
    output = torch.zeros_like(torch.cat(wanted))
    dist.all_to_all_single(output, torch.cat(inputs), [len(w) for w in wanted],
                           [len(i) for i in inputs])
    expect(output, torch.cat(wanted), "all_to_all_single with sizes")


def strided_tensors(rank, size):
    """Neither inputs nor outputs are contiguous."""
    def matrix(r):
        return values(r, torch.float32, (40, 30))

    tensor = matrix(rank).t()
    dist.all_reduce(tensor)
    expect(tensor, reduced([matrix(r).t() for r in range(size)], dist.ReduceOp.SUM), "all_reduce")
    tensor = torch.zeros(40, 60)[:, ::2].copy_(matrix(rank))
    dist.broadcast(tensor, 1)
    expect(tensor, matrix(1), "broadcast")
    tensor = matrix(rank).t()
    dist.reduce(tensor, 0)
    if rank == 0:
        expect(tensor, reduced([matrix(r).t() for r in range(size)], dist.ReduceOp.SUM), "reduce")
    outputs = [torch.zeros(40, 30).t() for _ in range(size)]
    dist.all_gather(outputs, matrix(rank).t())
    for r in range(size):
        expect(outputs[r], matrix(r).t(), "all_gather")
    output = torch.zeros(30, 40).t()
    dist.scatter(output, [matrix(r).t().contiguous().t() for r in range(size)] if rank == 0 else None)
    expect(output, matrix(rank), "scatter")


def aliased_tensors(rank, size):
    """Inputs that are parts of outputs."""
    output = torch.zeros(size * 10)
    output[rank * 10:(rank + 1) * 10] = values(rank, torch.float32, 10)
    dist.all_gather_into_tensor(output, output[rank * 10:(rank + 1) * 10])
    expect(output, torch.cat([values(r, torch.float32, 10) for r in range(size)]), "all_gather")
    data = torch.cat([values(rank + d, torch.float32, 10) for d in range(size)])
    dist.all_to_all_single(data, data)
    expect(data, torch.cat([values(s + rank, torch.float32, 10) for s in range(size)]), "exchange")
    data = values(rank, torch.float32, size * 10)
    part = data[:10]
    dist.reduce_scatter_tensor(part, data)
    total = reduced([values(r, torch.float32, size * 10) for r in range(size)], dist.ReduceOp.SUM)
    expect(part, total[rank * 10:(rank + 1) * 10], "reduce_scatter")


def many_at_once(rank, size):
    tensors = [values(rank + i, torch.float32, 100 * i) for i in range(50)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    for i, work in reversed(list(enumerate(works))):
        assert work.wait()
        assert work.is_completed() and work.is_success()
        expect(tensors[i], reduced([values(r + i, torch.float32, 100 * i) for r in range(size)],
                                   dist.ReduceOp.SUM), f"all_reduce {i}")
    # Handles that are not kept.
    tensors = [torch.ones(1000) for _ in range(20)]
    for tensor in tensors:
        dist.all_reduce(tensor, async_op=True)
    dist.barrier()
    strided = torch.ones(10, 10).t()
    dist.all_reduce(strided, async_op=True)
    dist.barrier(async_op=True).wait()
    for tensor in tensors:
        expect(tensor, torch.full((1000,), float(size)), "dropped handle")


def threads_by_operations(rank, size):
    """Returns the numbers of threads of rank 0 with one operation, and with many, in flight, and of
    those in flight that have ended. Rank 1 calls none of them before rank 0 has counted."""
    store = dist.distributed_c10d._get_default_store()
    # The first continuation starts the thread of all.
    dist.all_reduce(torch.ones(1), async_op=True).get_future().then(lambda done: done.value()[0]).wait()
    counts = []
    for number, operations in enumerate((1, 500)):
        works = []
        tensors = [torch.full((100,), float(rank)) for _ in range(operations)]
        if rank == 1:
            store.wait([f"counted {number}"])
        for tensor in tensors:
            works.append(dist.all_reduce(tensor, async_op=True))
            works[-1].get_future().then(lambda done: done.value()[0])
        if rank == 0:
            counts.append((len(os.listdir("/proc/self/task")), sum(work.is_completed() for work in works)))
            store.set(f"counted {number}", "")
        for work in works:
            work.wait()
        assert all(tensor[0] == sum(range(size)) for tensor in tensors)
    return counts


def futures(rank, size):
    tensor = torch.ones(5)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    halved = future.then(lambda f: f.value()[0] / 2)
    expect(halved.wait(), torch.full((5,), size / 2), "continuation")
    outputs = [torch.zeros(3) for _ in range(size)]
    work = dist.all_gather(outputs, torch.full((3,), float(rank)), async_op=True)
    work.wait()
    for r, tensor in enumerate(work.get_future().wait()):
        expect(tensor, torch.full((3,), float(r)), "value")
    # A continuation that waits for another collective, as in PowerSGD's hook.
    def again(_):
        second = torch.ones(4)
        dist.all_reduce(second, async_op=True).get_future().wait()
        return second
    future = dist.all_reduce(torch.ones(4), async_op=True).get_future().then(again)
    expect(future.wait(), torch.full((4,), float(size)), "nested")


def groups(rank, size):
    world = list(range(size))
    pairs = [dist.new_group([r, (r + 1) % size]) for r in world]
    reverse = dist.new_group(world[::-1])
    for first, group in enumerate(pairs):
        members = sorted([first, (first + 1) % size])
        if rank not in members:
            continue
        tensor = torch.full((10,), float(rank))
        dist.all_reduce(tensor, group=group)
        expect(tensor, torch.full((10,), float(sum(members))), f"pair {members}")
        tensor = torch.full((4,), float(rank))
        dist.broadcast(tensor, members[1], group=group)
        expect(tensor, torch.full((4,), float(members[1])), f"broadcast in {members}")
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=reverse)
    expect(tensor, torch.full((3,), float(size)), "reverse")
    dist.destroy_process_group(reverse)
    dist.barrier()


def many_groups(rank, size, count):
    """Groups of one job: each rank is in some groups, and the groups work in any order."""
    members = [sorted({i % size, (i // size + i) % size}) for i in range(count)]
    made = [dist.new_group(m) for m in members]
    for m, group in reversed(list(zip(members, made))):
        if rank in m:
            tensor = torch.full((5,), float(rank))
            dist.all_reduce(tensor, group=group)
            expect(tensor, torch.full((5,), float(sum(m))), f"group {m}")


def sparse_sums(rank, size):
    for dtype in (torch.float32, torch.float64, torch.int64):
        def matrix(r):
            entries = torch.zeros(7, 5, dtype=dtype)
            entries[r % 7, :r] = r + 1
            return entries
        tensor = matrix(rank).to_sparse()
        dist.all_reduce(tensor)
        expect(tensor.to_dense(), sum(matrix(r) for r in range(size)), f"sparse {dtype}")
        hybrid = matrix(rank).to_sparse(1)
        dist.all_reduce(hybrid)
        expect(hybrid.to_dense(), sum(matrix(r) for r in range(size)), f"hybrid {dtype}")


def objects(rank, size):
    found = [None] * size
    dist.all_gather_object(found, {"rank": rank, "text": "x" * rank * 100})
    assert [f["rank"] for f in found] == list(range(size))
    shared = [f"from {rank}", rank]
    dist.broadcast_object_list(shared, 1)
    assert shared == ["from 1", 1]
    scattered = [None]
    dist.scatter_object_list(scattered, [f"to {r}" for r in range(size)] if rank == 0 else None)
    assert scattered == [f"to {rank}"]


class CollectivesTest(SwitchTest):
    # Memory for 200 groups.
    config = plugin_switch.CONFIG + "jobs:\n  memory: 4 GiB\n"

    def test_all_reduce(self):
        self.run_ranks(3, all_reduce_grid)

    def test_reduce_and_reduce_scatter(self):
        self.run_ranks(3, other_sums)

    def test_moves(self):
        self.run_ranks(3, moves)

    def test_two_ranks(self):
        self.run_ranks(2, moves)
        self.run_ranks(2, other_sums)

    def test_uneven_exchanges(self):
        self.run_ranks(4, uneven_exchanges)

    def test_strided_tensors(self):
        self.run_ranks(2, strided_tensors)

    def test_aliased_tensors(self):
        self.run_ranks(3, aliased_tensors)

    def test_many_at_once(self):
        self.run_ranks(3, many_at_once)

    def test_no_thread_per_operation(self):
        (few, ended), (many, ended_of_many) = self.run_ranks(2, threads_by_operations)[0]
        self.assertEqual((ended, ended_of_many), (0, 0))
        # How many threads run continuations depends on the scheduler, up to 32 of them.
        self.assertLess(many - few, 100, "500 operations were in flight")

    def test_futures(self):
        self.run_ranks(3, futures)

    def test_groups(self):
        self.run_ranks(4, groups)

    def test_many_groups(self):
        self.run_ranks(3, many_groups, 200, deadline_s=500)
        jobs = self.switch.status()["jobs"]
        self.assertEqual(jobs, [], "groups leave nothing behind")

    def test_sparse_sums(self):
        self.run_ranks(3, sparse_sums)

    def test_objects(self):
        self.run_ranks(3, objects)

    def test_alone(self):
        self.run_ranks(1, many_at_once)


if __name__ == "__main__":
    unittest.main()
