"""The memory of tensors: what is read, what is written, and in which order.

    memory_test.py BUILD_FOLDER
"""

import contextlib
import mmap
import os
import tempfile
import unittest

import numpy
import ranks  # noqa: F401
from ranks import SwitchTest, raised

import torch
import torch.distributed as dist
import ina.torch

COUNT = 30000


def mapped(writable, private=False, fill=1.0):
    """Returns a tensor in a file that is mapped, and the number of its private pages."""
    with tempfile.NamedTemporaryFile() as file:
        numpy.full(COUNT, fill, numpy.float32).tofile(file.name)
        flags = mmap.MAP_PRIVATE if private else mmap.MAP_SHARED
        prot = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        memory = mmap.mmap(os.open(file.name, os.O_RDWR), 4 * COUNT, flags, prot)
    array = numpy.frombuffer(memory, numpy.float32)
    return torch.from_numpy(array)


def private_kib(tensor):
    """Returns the size of the private copies of the pages of a tensor."""
    at, found = tensor.data_ptr(), None
    with open("/proc/self/smaps", encoding="ascii") as file:
        for line in file:
            first = line.split()[0]
            if "-" in first:
                begin, end = (int(number, 16) for number in first.split("-"))
                found = begin <= at < end
            elif found and first == "Anonymous:":
                return int(line.split()[1])
    raise AssertionError("no such mapping")


def inputs(size, make):
    """Calls with inputs that `make` makes; by name, functions of the rank."""
    def parts():
        return list(make().split(COUNT // size))

    def outputs(count):
        return [torch.zeros(count) for _ in range(size)]

    return {
        "broadcast": lambda rank: dist.broadcast(make() if rank == 1 else torch.zeros(COUNT), 1),
        "reduce": lambda rank: dist.reduce(torch.ones(COUNT) if rank == 0 else make(), 0),
        "all_gather": lambda rank: dist.all_gather(outputs(COUNT), make()),
        "all_gather_into_tensor": lambda rank: dist.all_gather_into_tensor(torch.zeros(size * COUNT), make()),
        "gather": lambda rank: dist.gather(make(), outputs(COUNT) if rank == 0 else None, 0),
        "scatter": lambda rank: dist.scatter(torch.zeros(COUNT // size), parts() if rank == 1 else None, 1),
        "reduce_scatter": lambda rank: dist.reduce_scatter(torch.zeros(COUNT // size), parts()),
        "reduce_scatter_tensor": lambda rank: dist.reduce_scatter_tensor(torch.zeros(COUNT // size), make()),
        "all_to_all": lambda rank: dist.all_to_all(outputs(COUNT // size), parts()),
        "all_to_all_single": lambda rank: dist.all_to_all_single(torch.zeros(COUNT), make()),
        "send": lambda rank: (dist.send(make(), 0) if rank == 1 else dist.recv(torch.zeros(COUNT), 1)),
    }


def send_from_read_only(rank, size):
    for call in inputs(size, lambda: mapped(False)).values():
        call(rank)


def send_from_private(rank, size):
    """Returns the size of what became private copies, by call."""
    found = {}
    for name, call in inputs(size, lambda: tensor).items():
        tensor = mapped(True, private=True)
        call(rank)
        if name != "send" or rank == 1:
            found[name] = private_kib(tensor)
    return found


def receive_into_read_only(rank, size):
    """Returns what each call raises on rank 0. The group goes on."""
    tensor = mapped(False)
    wrong = {
        "all_reduce": lambda: dist.all_reduce(tensor),
        "all_reduce_coalesced": lambda: dist.all_reduce_coalesced([torch.ones(3), tensor]),
        "broadcast": lambda: dist.broadcast(tensor, 1),
        "reduce": lambda: dist.reduce(tensor, 0),
        "all_gather": lambda: dist.all_gather([torch.zeros(COUNT), tensor], torch.zeros(COUNT)),
        "gather": lambda: dist.gather(torch.zeros(COUNT), [torch.zeros(COUNT), tensor], 0),
        "scatter": lambda: dist.scatter(tensor, None, 1),
        "reduce_scatter": lambda: dist.reduce_scatter(tensor, [torch.zeros(COUNT)] * 2),
        "all_to_all_single": lambda: dist.all_to_all_single(tensor, torch.zeros(COUNT)),
        "recv": lambda: dist.recv(tensor, 1),
        "strided": lambda: dist.all_reduce(tensor[::2]),
    }
    found = {name: raised(call) for name, call in wrong.items()} if rank == 0 else {}
    fine = torch.ones(3)
    dist.all_reduce(fine)
    assert fine[0] == size
    return found


def one_tensor_in_many(rank, size, make, op):
    """Operations on one tensor that nobody waits for until the last. Returns the tensor's values."""
    tensor = make()
    works = [dist.all_reduce(tensor, op, async_op=True) for _ in range(4)]
    works.append(dist.broadcast(tensor[:1] if tensor.dim() == 1 else tensor, 0, async_op=True))
    for work in works:
        work.wait()
    return tensor.unique().tolist()


def views_overlap(rank, size):
    """Parts of one tensor that overlap, and parts that do not."""
    tensor = torch.ones(100, 100)
    works = [dist.all_reduce(tensor.t()[:60], async_op=True), dist.all_reduce(tensor[:, 40:], async_op=True)]
    for work in works:
        work.wait()
    return [tensor[0, 0].item(), tensor[0, 50].item(), tensor[0, 99].item()]


def expanded(rank, size):
    tensor = torch.full((1,), rank + 1.0).expand(4)
    dist.all_reduce(tensor)
    column = torch.full((3, 1), rank + 1.0).expand(3, 5)
    dist.broadcast(column, 1)
    return tensor.tolist(), column.unique().tolist()


def fork_with_gradients(rank, size, views):
    """A forked child reads and overwrites all gradients. Returns what it says of that, and whether the
    gradients go on here."""
    model = torch.nn.Linear(300, 300)
    trained = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=views)
    state, hook = ina.torch.ddp_hook(result_buffers=not views)
    trained.register_comm_hook(state, hook)
    for _ in range(2):
        trained(torch.ones(4, 300)).sum().backward()
    assert state.registered, state.refused
    before = [p.grad.clone() for p in model.parameters()]
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            same = all(torch.equal(p.grad, b) for p, b in zip(model.parameters(), before))
            for p in model.parameters():
                p.grad.zero_()
            grandchild = os.fork()  # has what its parent had
            gone = all(not p.grad.any() for p in model.parameters())
            os.write(write, b"y" if same and gone else b"n")
            if grandchild:
                os.waitpid(grandchild, 0)
        os._exit(0)
    os.waitpid(child, 0)
    seen = os.read(read, 2)
    trained(torch.ones(4, 300)).sum().backward()  # the switch still reads the gradients
    return seen, all(torch.allclose(p.grad, 1.5 * b) for p, b in zip(model.parameters(), before))


class MemoryTest(SwitchTest):
    def test_inputs_may_be_read_only(self):
        self.run_ranks(2, send_from_read_only)

    def test_inputs_are_not_written(self):
        for found in self.run_ranks(2, send_from_private):
            self.assertEqual({name: kib for name, kib in found.items() if kib}, {})

    def test_outputs_that_are_read_only(self):
        found = self.run_ranks(2, receive_into_read_only)[0]
        self.assertEqual([name for name, text in found.items() if "read-only" not in str(text)], [], found)

    def test_operations_on_one_tensor_keep_their_order(self):
        def strided():
            return torch.ones(100, 100).t()

        def contiguous():
            return torch.ones(100000)

        for make in (strided, contiguous):
            for found in self.run_ranks(2, one_tensor_in_many, make, dist.ReduceOp.SUM):
                self.assertEqual(found, [16.0])
        for found in self.run_ranks(2, views_overlap):
            self.assertEqual(found, [2.0, 4.0, 2.0])

    def test_expanded_tensors(self):
        for found in self.run_ranks(2, expanded):
            self.assertEqual(found, ([3.0] * 4, [2.0]))

    def test_a_forked_child_changes_no_gradients(self):
        for views in (False, True):
            self.assertEqual(self.run_ranks(2, fork_with_gradients, views), [(b"yy", True)] * 2)


if __name__ == "__main__":
    unittest.main()
