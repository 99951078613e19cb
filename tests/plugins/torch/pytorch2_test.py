"""What PyTorch 2 has beyond 1.13: coalesced calls, functional collectives, device meshes, DTensor and
FSDP. Results are those of Gloo, or of one process.

    pytorch2_test.py BUILD_FOLDER

Skipped with PyTorch 1.13.
"""

import datetime
import functools
import unittest

from ranks import SwitchTest, raised

import ina.torch
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

PYTORCH_2 = int(torch.__version__.split(".")[0]) >= 2
STEPS = 6
BATCH = 24


def values(rank, count=12, dtype=torch.float32):
    return ((torch.arange(count) * 3 + rank) % 7).to(dtype)


# ---- coalesced calls

def coalesced(rank, size, with_device):
    """Tensors of two types. `with_device`: by startCoalescing and endCoalescing, which Gloo lacks."""
    device = torch.device("cpu") if with_device else None
    found = []
    for dtypes in ((torch.float32, torch.float32), (torch.float32, torch.int64)):
        gathered = [torch.zeros(12 * size, dtype=dtype) for dtype in dtypes]
        with c10d._coalescing_manager(device=device):
            for output, dtype in zip(gathered, dtypes):
                dist.all_gather_into_tensor(output, values(rank, dtype=dtype))
        scattered = [torch.zeros(12 // size, dtype=dtype) for dtype in dtypes]
        with c10d._coalescing_manager(device=device, async_ops=True) as manager:
            for output, dtype in zip(scattered, dtypes):
                dist.reduce_scatter_tensor(output, values(rank, dtype=dtype))
        manager.wait()
        found += gathered + scattered
    summed = [values(rank), values(rank + 1, 5)]
    with c10d._coalescing_manager(device=device):
        for tensor in summed:
            dist.all_reduce(tensor)
    return [t.tolist() for t in found + summed]


def works_as_one(rank, size):
    """startCoalescing and endCoalescing for calls of all kinds, and for no call."""
    group = c10d._get_default_group()
    cpu = torch.device("cpu")
    group._start_coalescing(cpu)
    assert group._end_coalescing(cpu).wait()
    found, total, shared = torch.zeros(4), values(rank), values(rank)
    group._start_coalescing(cpu)
    works = [dist.isend(values(rank, 4), (rank + 1) % size), dist.irecv(found, (rank - 1) % size),
             dist.all_reduce(total, async_op=True), dist.broadcast(shared, 1, async_op=True)]
    group._end_coalescing(cpu).wait()
    assert all(work.is_completed() for work in works)
    assert torch.equal(found, values((rank - 1) % size, 4))
    assert torch.equal(total, sum(values(r) for r in range(size)))
    assert torch.equal(shared, values(1))
    return raised(group._end_coalescing, cpu)


def fail_together(rank, size):
    """The error of one part is the error of the whole."""
    group = c10d._get_default_group()
    dist.all_reduce(torch.ones(2))
    group._start_coalescing(torch.device("cpu"))
    works = [dist.all_reduce(torch.ones(3), async_op=True), dist.all_reduce(torch.ones(4 + rank), async_op=True)]
    whole = group._end_coalescing(torch.device("cpu"))
    error = raised(whole.wait)
    for work in works:
        raised(work.wait)
    return error


# ---- functional collectives

def functional(rank, size):
    from torch.distributed import _functional_collectives as functions
    group = c10d._get_default_group()
    two = [values(rank), values(rank + 1, 6)]
    results = [
        functions.all_reduce(values(rank), "sum", group),
        functions.all_gather_tensor(values(rank), 0, group),
        functions.reduce_scatter_tensor(values(rank), "sum", 0, group),
        functions.broadcast(values(rank), 1, group),
        functions.all_to_all_single(values(rank), None, None, group),
        *functions.all_reduce_coalesced(two, "max", group),
        *functions.all_gather_into_tensor_coalesced(two, group),
        *functions.reduce_scatter_tensor_coalesced(two, "sum", [0, 0], group),
    ]
    return [functions.wait_tensor(result).tolist() for result in results]


def differentiated(rank, size):
    """Gradients pass through a sum over the ranks."""
    import torch.distributed.nn.functional as functions
    given = values(rank).requires_grad_()
    (functions.all_reduce(given) * (rank + 1)).sum().backward()
    return given.grad.tolist()


# ---- meshes, DTensor

def redistributed(rank, size):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
    mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("a", "b"))
    whole = torch.arange(64, dtype=torch.float32).reshape(8, 8)
    shards = distribute_tensor(whole, mesh, [Shard(0), Shard(1)])
    for placements in ([Replicate(), Replicate()], [Shard(1), Shard(1)], [Shard(1), Replicate()], [Shard(0), Shard(1)]):
        shards = shards.redistribute(mesh, placements)
        assert torch.equal(shards.full_tensor(), whole), placements
    partial = DTensor.from_local(whole + rank, mesh, [Partial(), Partial()])
    local = partial.redistribute(mesh, [Shard(0), Replicate()]).to_local()
    assert torch.equal(local, (size * whole + sum(range(size))).chunk(2)[rank // 2])
    rows = distribute_tensor(whole, mesh, [Shard(0), Replicate()])
    columns = distribute_tensor(whole, mesh, [Replicate(), Shard(1)])
    assert torch.equal((rows @ columns).full_tensor(), whole @ whole)


# ---- FSDP

def model():
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(),
                               torch.nn.Linear(64, 5))


def train(trained, rank, size):
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1, momentum=0.9)
    share = BATCH // size
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(100 + step)
        inputs = torch.randn(BATCH, 20, generator=generator)[rank * share:(rank + 1) * share]
        labels = torch.randint(0, 5, (BATCH,), generator=generator)[rank * share:(rank + 1) * share]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(trained(inputs), labels).backward()
        optimizer.step()


def flat(tensors):
    return torch.cat([tensor.detach().flatten() for tensor in tensors]).tolist()


def train_alone(rank, size):
    trained = model()
    train(trained, rank, size)
    return flat(trained.parameters())


def train_fsdp1(rank, size):
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
    policy = functools.partial(size_based_auto_wrap_policy, min_num_params=1000)
    trained = FullyShardedDataParallel(model(), auto_wrap_policy=policy, device_id=torch.device("cpu"))
    train(trained, rank, size)
    with FullyShardedDataParallel.summon_full_params(trained):
        return flat(trained.parameters())


def train_fsdp2(rank, size):
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        from torch.distributed._composable.fsdp import fully_shard
    from torch.distributed.device_mesh import init_device_mesh
    mesh = init_device_mesh("cpu", (size,))
    trained = model()
    for layer in trained:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(trained, mesh=mesh)
    train(trained, rank, size)
    return flat(parameter.full_tensor() for parameter in trained.parameters())


# ---- groups

def groups(rank, size):
    """Groups that all ranks make, and groups that their members alone make."""
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    local = dist.new_group([rank // 2 * 2, rank // 2 * 2 + 1], use_local_synchronization=True)
    everyone = dist.new_group()
    sums = []
    for group in (halves[rank // 2], local, everyone):
        total = torch.tensor([float(rank)])
        dist.all_reduce(total, group=group)
        sums.append(total.item())
    dist.monitored_barrier(group=halves[rank // 2])
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=30))
    return sums


def devices(rank, size):
    """A default group with a backend for each type of device."""
    assert ina.torch.stats()["operations"] >= 0
    total = torch.ones(3)
    dist.all_reduce(total)
    found = [None] * size
    dist.all_gather_object(found, {"rank": rank})
    return total.tolist(), found


@unittest.skipUnless(PYTORCH_2, "PyTorch 2 only")
class PyTorch2Test(SwitchTest):
    def same_as_gloo(self, size, function, *arguments):
        found = self.run_ranks(size, function, *arguments)
        self.assertEqual(found, self.run_ranks(size, function, *arguments, backend="gloo"))
        return found

    def test_coalesced_calls(self):
        for size in (2, 3):
            found = self.same_as_gloo(size, coalesced, False)
            self.assertEqual(found, self.run_ranks(size, coalesced, True))

    def test_calls_of_all_kinds_as_one(self):
        for error in self.run_ranks(3, works_as_one):
            self.assertIn("not begun together", error)

    def test_one_part_fails(self):
        for error in self.run_ranks(2, fail_together):
            self.assertIn("INA_ERR_MISMATCH", error)

    def test_functional_collectives(self):
        self.same_as_gloo(2, functional)
        self.same_as_gloo(3, functional)

    def test_gradients_of_a_sum(self):
        self.same_as_gloo(2, differentiated)

    def test_dtensor(self):
        self.run_ranks(4, redistributed)

    def train(self, function, size, tolerance=1e-5):
        alone = self.run_ranks(1, train_alone)[0]
        found = self.run_ranks(size, function)
        for weights in found:
            self.assertEqual(weights, found[0])
            self.assertLess(max(abs(a - b) for a, b in zip(weights, alone, strict=True)), tolerance)
        return found

    def test_fsdp(self):
        """For two ranks the order of a sum does not matter."""
        self.assertEqual(self.train(train_fsdp1, 2), self.run_ranks(2, train_fsdp1, backend="gloo"))
        self.train(train_fsdp1, 4)

    @unittest.skipUnless(PYTORCH_2 and hasattr(torch.cpu.Stream, "record_event"), "fully_shard lacks the CPU")
    def test_fully_shard(self):
        self.train(train_fsdp2, 2)
        self.train(train_fsdp2, 4)

    def test_groups(self):
        for rank, sums in enumerate(self.run_ranks(4, groups)):
            self.assertEqual(sums, [5.0 if rank >= 2 else 1.0] * 2 + [6.0])

    def test_named_by_device(self):
        for total, found in self.run_ranks(2, devices, backend="cpu:ina"):
            self.assertEqual(total, [2.0] * 3)
            self.assertEqual(found, [{"rank": 0}, {"rank": 1}])


if __name__ == "__main__":
    unittest.main()
