"""128 ranks at two switches, one below the other.

    trees_test.py BUILD_FOLDER

Needs root.
"""

import pathlib
import sys
import tempfile
import unittest

from ranks import BUILD, Failed, Ranks

import torch
import torch.distributed as dist

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "net"))

import namespaces  # noqa: E402
from tree_beds import TreeTestBed  # noqa: E402

RANKS = 128


def train(rank, size):
    """Returns the weights after three steps, whose gradients differ by rank."""
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(40, 30))
    for step in range(3):
        torch.manual_seed(100 * rank + step)
        model(torch.randn(8, 40)).square().mean().backward()
        with torch.no_grad():
            for weights in model.parameters():
                weights -= 0.1 * weights.grad
                weights.grad = None
    return torch.cat([weights.detach().flatten() for weights in model.parameters()]).tolist()


def everything(rank, size):
    """Sums, moves, groups whose ranks are at both switches, and a training."""
    tensor = torch.full((5000,), float(rank))
    work = dist.all_reduce(tensor, async_op=True)
    rest = torch.tensor([rank])
    dist.all_reduce(rest, dist.ReduceOp.MAX)
    work.wait()
    assert tensor.eq(size * (size - 1) / 2).all() and rest.item() == size - 1
    parts = [torch.empty(3) for _ in range(size)]
    dist.all_gather(parts, torch.full((3,), float(rank)))
    assert all(part.eq(of).all() for of, part in enumerate(parts))
    dist.broadcast(tensor, size - 1)
    groups = [dist.new_group(range(first, size, 16)) for first in range(16)]
    tensor = torch.ones(100)
    dist.all_reduce(tensor, group=groups[rank % 16])
    assert tensor.eq(size // 16).all()
    dist.barrier()
    return train(rank, size)


class TreesTest(unittest.TestCase):
    def test_128_ranks(self):
        with tempfile.TemporaryDirectory(prefix="ina-torch-") as folder, \
                TreeTestBed(BUILD / "switchd/ina-switchd", folder) as bed:
            root = bed.add("root", below=True)
            leaf = bed.add("leaf", above=root)
            bed.start()
            urls = [switch.url for switch in (root, leaf) for _ in range(RANKS // 2)]
            weights = Ranks(folder, RANKS, urls, everything).results()
            for rank, found in enumerate(weights):
                self.assertNotIsInstance(found, Failed, f"rank {rank}: {found!r}")
                self.assertEqual(found, weights[0], f"rank {rank}")


if __name__ == "__main__":
    namespaces.require_root()
    unittest.main(verbosity=2)
