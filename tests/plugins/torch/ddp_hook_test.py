"""The communication hook: same weights, registered buckets, priorities.

    ddp_hook_test.py BUILD_FOLDER
"""

import hashlib
import os
import unittest
import weakref

import ranks
from ranks import SwitchTest

import torch
import torch.distributed as dist
import ina.torch
from torch.nn.parallel import DistributedDataParallel

STEPS = 6
WIDTH = 512  # of weights, a layer's are DDP's first bucket, which has 1 MiB
LAYERS = 4


def model():
    torch.manual_seed(11)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    return torch.nn.Sequential(*[m for layer in layers for m in (layer, torch.nn.Tanh())])


def distributed(dtype, gradient_as_bucket_view=False):
    # A bucket for each layer.
    return DistributedDataParallel(model().to(dtype), bucket_cap_mb=0.2,
                                   gradient_as_bucket_view=gradient_as_bucket_view)


def train(trained, rank, dtype, steps=STEPS, after_step=lambda: None):
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        generator = torch.Generator().manual_seed(1000 * rank + step)
        inputs = torch.randn(8, WIDTH, generator=generator).to(dtype)
        optimizer.zero_grad(set_to_none=False)
        trained(inputs).square().mean().backward()
        optimizer.step()
        after_step()


def bits(trained):
    weights = torch.cat([p.detach().flatten() for p in trained.parameters()])
    return hashlib.sha256(weights.numpy().tobytes()).hexdigest()


def with_and_without(rank, size, dtype, gradient_as_bucket_view):
    found = []
    for hooked in (False, True):
        trained = distributed(dtype, gradient_as_bucket_view)
        if hooked:
            state, hook = ina.torch.ddp_hook(iterations=STEPS)
            trained.register_comm_hook(state, hook)
        train(trained, rank, dtype)
        found.append(bits(trained.module))
    return found, state.registered, state.layers, state.iteration, state.refused


def measure(rank, size, hooked):
    """Bytes that a step copies on either way, beside those of the gradients: the least of some steps,
    because a machine that stalls has some sent again."""
    trained = distributed(torch.float32)
    if hooked:
        trained.register_comm_hook(*ina.torch.ddp_hook())
    seen = []
    train(trained, rank, torch.float32, 10,
          lambda: seen.append(ina.torch.stats()["bytes_copied"]))
    # DDP makes its final buckets after the first step.
    return (min(b - a for a, b in zip(seen[2:], seen[3:])),
            sum(p.nelement() * p.element_size() for p in trained.parameters()))


def priorities(rank, size):
    state, hook = ina.torch.ddp_hook(iterations=1_000_000)
    trained = distributed(torch.float32)
    trained.register_comm_hook(state, hook)
    seen, given = [], []

    def look():
        seen.append(ina.torch.stats()["priority"])
        given.append([state.hints(index) for index in range(state.layers)])
        if len(seen) == STEPS - 1:
            state.iteration = state.iterations - 1
    train(trained, rank, torch.float32, after_step=look)
    return seen, given


def outlive(rank, size):
    """Gradients stay readable when their model, and the process group, have gone."""
    trained = distributed(torch.float32, gradient_as_bucket_view=True)
    trained.register_comm_hook(*ina.torch.ddp_hook())
    train(trained, rank, torch.float32)
    gradients = [p.grad for p in trained.module.parameters()]
    before = [g.clone() for g in gradients]
    del trained
    dist.barrier()
    left = weakref.ref(torch.distributed.distributed_c10d._get_default_group())
    dist.destroy_process_group()
    assert left() is None
    assert all(torch.equal(a, b) for a, b in zip(gradients, before, strict=True))
    del gradients
    dist.init_process_group("gloo", init_method=f"file://{os.environ['INA_TEST_STORE']}", rank=rank,
                            world_size=size)


def too_many(rank, size):
    """More tensors than can be registered: the others are copied, and the sums are right."""
    backend = ina.torch._backend_of(None)
    state, _ = ina.torch.ddp_hook()
    tensors = [torch.full((3000,), float(rank + i)) for i in range(80)]
    for tensor in tensors:
        state.register(backend, tensor)
        dist.all_reduce(tensor)
    assert all(t[0] == sum(r + i for r in range(size)) for i, t in enumerate(tensors))
    found = state.registered, state.refused
    again, _ = ina.torch.ddp_hook()
    again.register(backend, tensors[0])
    assert again.registered == 0, "it is registered already"
    del tensor, tensors
    again.register(backend, torch.ones(10))
    return *found, again.registered


class HookTest(SwitchTest):
    def compare(self, size, dtype, gradient_as_bucket_view=False):
        for found in self.run_ranks(size, with_and_without, dtype, gradient_as_bucket_view):
            (without, with_hook), registered, layers, iterations, refused = found
            self.assertEqual(without, with_hook, "weights differ with the hook")
            self.assertIsNone(refused)
            self.assertEqual(layers, LAYERS)
            self.assertEqual(iterations, STEPS)
            # DDP makes its buckets anew after the first iteration; each is registered once.
            self.assertGreaterEqual(registered, layers)
            self.assertLessEqual(registered, 2 * layers)

    def test_two_ranks(self):
        self.compare(2, torch.float32)
        self.compare(2, torch.float64)

    def test_gradients_in_buckets(self):
        self.compare(2, torch.float32, gradient_as_bucket_view=True)

    def test_three_ranks(self):
        # Sums of three depend on the order of arrival otherwise.
        os.environ["INA_NUMERIC"] = "reproducible"
        self.addCleanup(os.environ.pop, "INA_NUMERIC")
        self.compare(3, torch.float32)

    def test_wrapped_group(self):
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
        self.addCleanup(os.environ.pop, "TORCH_DISTRIBUTED_DEBUG")
        self.compare(2, torch.float32)

    def test_contributions_are_not_copied(self):
        for hooked, times in ((False, 2), (True, 1)):
            for copied, gradients in self.run_ranks(2, measure, hooked):
                # Results always.
                self.assertAlmostEqual(copied / gradients, times, delta=0.1)

    def test_priorities(self):
        for seen, given in self.run_ranks(2, priorities):
            # A millionth of the time is left: six steps of priority to a factor of two.
            self.assertGreater(seen[-1], seen[-2] + 60, seen)
            layers = [[layer for layer, _, _ in step] for step in given]
            self.assertEqual(layers[-1], list(range(LAYERS, 0, -1)), "the front layer comes last")
            self.assertEqual([step[0][2] for step in given[:2]], [999_999, 999_998])

    def test_gradients_outlive_the_job(self):
        os.environ["INA_TEST_STORE"] = str(self.folder / "second-store")
        self.addCleanup(os.environ.pop, "INA_TEST_STORE")
        self.run_ranks(2, outlive)

    def test_more_than_can_be_registered(self):
        for registered, refused, again in self.run_ranks(2, too_many):
            self.assertEqual(registered, 63)
            self.assertIn("INA_ERR_NO_MEMORY", refused)
            self.assertEqual(again, 1, "memory that is given back can be registered anew")


if __name__ == "__main__":
    unittest.main()
