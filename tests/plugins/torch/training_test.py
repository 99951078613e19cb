"""DistributedDataParallel over the switch trains as one process does.

    training_test.py BUILD_FOLDER
"""

import unittest

from ranks import SwitchTest

import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook, powerSGD_hook
from torch.distributed.algorithms.model_averaging import averagers
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

STEPS = 8
BATCH = 24  # of all ranks together; all numbers of ranks in this test divide it


def model():
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.BatchNorm1d(64, affine=True),
                               torch.nn.ReLU(), torch.nn.Linear(64, 5)).eval()


def batch(step):
    generator = torch.Generator().manual_seed(100 + step)
    return (torch.randn(BATCH, 20, generator=generator),
            torch.randint(0, 5, (BATCH,), generator=generator))


def train(trained, rank, size, optimizer=None):
    optimizer = optimizer or sgd(trained)
    share = BATCH // size
    for step in range(STEPS):
        inputs, labels = batch(step)
        own = slice(rank * share, (rank + 1) * share)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(trained(inputs[own]), labels[own]).backward()
        optimizer.step()


def weights(trained):
    # A list, because a tensor would travel in memory that its process must keep.
    return torch.cat([p.detach().flatten() for p in trained.parameters()]).tolist()


def train_alone(rank, size):
    trained = model()
    train(trained, rank, size)
    return weights(trained)


def train_together(rank, size, hook):
    # Small buckets, so that several are in flight at once.
    trained = DistributedDataParallel(model(), bucket_cap_mb=0.004)
    if hook == "fp16":
        trained.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif hook == "powersgd":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4,
                                            start_powerSGD_iter=2)
        trained.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    train(trained, rank, size)
    return weights(trained.module)


def sgd(trained):
    return torch.optim.SGD(trained.parameters(), lr=0.1, momentum=0.9)


def train_with_spread_optimizer(rank, size):
    """Each rank keeps a part of the optimiser's state, and broadcasts its parameters."""
    trained = DistributedDataParallel(model())
    optimizer = ZeroRedundancyOptimizer(trained.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    train(trained, rank, size, optimizer)
    optimizer.consolidate_state_dict(to=0)
    states = len(optimizer.state_dict()["state"]) if rank == 0 else None
    return weights(trained.module), states


def train_locally(rank, size):
    """All ranks make all steps, and average the parameters after every fourth step."""
    trained = DistributedDataParallel(model())
    trained.register_comm_hook(post_localSGD_hook.PostLocalSGDState(None, None, start_localSGD_iter=2,
                                                                   post_local_gradient_allreduce=False),
                               post_localSGD_hook.post_localSGD_hook)
    averager = averagers.PeriodicModelAverager(period=3, warmup_steps=2)
    train(trained, rank, size, PostLocalSGDOptimizer(sgd(trained), averager))
    return weights(trained.module)


class TrainingTest(SwitchTest):
    def train(self, size, hook, tolerance):
        found = self.run_ranks(size, train_together, hook)
        for other in found[1:]:
            self.assertTrue(found[0] == other, "weights differ between ranks")
        self.assertLess(max(abs(a - b) for a, b in zip(found[0], self.wanted, strict=True)),
                        tolerance)

    def setUp(self):
        # Runs in a process of its own: the parent must not start PyTorch's threads.
        self.wanted = self.run_ranks(1, train_alone)[0]

    def test_two_ranks(self):
        self.train(2, None, 1e-5)

    def test_four_ranks(self):
        self.train(4, None, 1e-5)

    def test_compressed_to_16_bits(self):
        self.train(2, "fp16", 1e-2)

    def test_hook_whose_continuations_wait(self):
        self.train(2, "powersgd", 1.0)

    def test_spread_optimizer(self):
        found = self.run_ranks(2, train_with_spread_optimizer)
        self.assertEqual(found[0][0], found[1][0])
        self.assertEqual(found[0][1], len(list(model().parameters())))
        self.assertLess(max(abs(a - b) for a, b in zip(found[0][0], self.wanted, strict=True)), 1e-5)

    def test_local_sgd(self):
        """Gloo with the same ranks gives the same bits: for two ranks the order of a sum does not
        matter."""
        self.assertEqual(self.run_ranks(2, train_locally), self.run_ranks(2, train_locally, backend="gloo"))


if __name__ == "__main__":
    unittest.main()
