"""Tests the communication hook: equal weights, registered buckets, priorities.

    ddp_hook_test.py BUILD_FOLDER
"""

import hashlib
import os
import unittest
import weakref

from ranks import SwitchTest

import torch
import torch.distributed as dist
import ina.torch
from torch.nn.parallel import DistributedDataParallel

STEPS = 6
WIDTH = 512  # a layer has WIDTH x WIDTH weights, which fill DDP's first bucket of 1 MiB
LAYERS = 4


def model():
    torch.manual_seed(11)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    return torch.nn.Sequential(*[m for layer in layers for m in (layer, torch.nn.Tanh())])


def distributed(dtype, gradient_as_bucket_view=False):
    # One bucket for each layer.
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
    for hooked in (None, ina.torch.ddp_hook(iterations=STEPS, result_buffers=False),
                   ina.torch.ddp_hook(iterations=STEPS)):
        trained = distributed(dtype, gradient_as_bucket_view)
        if hooked:
            trained.register_comm_hook(*hooked)
        train(trained, rank, dtype)
        found.append(bits(trained.module))
    state, _ = hooked
    return found, state.registered, state.layers, state.iteration, state.refused, state.results_refused


def measure(rank, size, hooked, **options):
    """Returns the bytes that a step copies in each direction in addition to the gradients: the
    minimum of some steps, because pauses of the machine cause retransmissions."""
    trained = distributed(torch.float32)
    if hooked:
        trained.register_comm_hook(*ina.torch.ddp_hook(**options))
    seen = []
    train(trained, rank, torch.float32, 10,
          lambda: seen.append(ina.torch.stats()["bytes_copied"]))
    # DDP makes its final buckets after the first step.
    return (min(b - a for a, b in zip(seen[2:], seen[3:])),
            sum(p.nelement() * p.element_size() for p in trained.parameters()))


def copied_in_place(rank, size):
    return measure(rank, size, True, result_buffers=False)


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


def accumulate(rank, size):
    """Gradients of several backward passes, a model with unused parameters, and a model that is
    made again: the sums equal those without the hook."""
    found = []
    for hooked in (False, True):
        torch.manual_seed(5)
        parts = torch.nn.ModuleList([torch.nn.Linear(WIDTH, WIDTH) for _ in range(3)])
        net = torch.nn.Module()
        net.parts, net.forward = parts, lambda x, part: parts[part](x)
        trained = DistributedDataParallel(net, bucket_cap_mb=0.2, find_unused_parameters=True)
        if hooked:
            trained.register_comm_hook(*ina.torch.ddp_hook())
        gradients = []
        for step in range(4):
            trained.zero_grad(set_to_none=step % 2 == 0)
            inputs = torch.full((2, WIDTH), float(rank + step))
            with trained.no_sync():
                trained(inputs, step % 3).sum().backward()
            trained(inputs, (step + 1) % 3).sum().backward()
            gradients.append([None if p.grad is None else p.grad.clone() for p in parts.parameters()])
        found.append(gradients)
    without, hooked = found
    for one, other in zip(sum(without, []), sum(hooked, []), strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other)


def read_only(rank, size):
    """The tensor that the switch writes is right, has the same memory in each iteration, and is
    given back."""
    backend = ina.torch._backend_of(None)
    state, _ = ina.torch.ddp_hook()
    places = set()
    for step in range(3):
        buffer = torch.full((5000,), float(rank + step))
        work = state.sum_up(backend, 0, buffer, dist.ReduceOp.SUM)
        work.wait()
        result = work.result()[0]
        assert torch.equal(result, torch.full((5000,), sum(float(r + step) for r in range(size))))
        assert buffer[0] == rank + step
        places.add(result.data_ptr())
    assert len(places) == 1
    del result, work
    for index in range(100):  # more than the limit at a time
        state.sum_up(backend, 0, torch.ones(1000 + index), dist.ReduceOp.SUM).wait()
    assert state.results_refused is None, state.results_refused
    many = [torch.full((1000,), float(rank)) for _ in range(40)]
    for index, buffer in enumerate(many):
        assert state.sum_up(backend, index, buffer, dist.ReduceOp.SUM).wait()
    return state.results_refused, many[-1][0].item()


def has_left(group):
    try:
        group.allreduce([torch.ones(1)])
    except RuntimeError as error:
        return "has left job" in str(error)
    return False


def outlive(rank, size):
    """Gradients stay readable after the end of their model and of the process group."""
    trained = distributed(torch.float32, gradient_as_bucket_view=True)
    trained.register_comm_hook(*ina.torch.ddp_hook())
    train(trained, rank, torch.float32)
    gradients = [p.grad for p in trained.module.parameters()]
    before = [g.clone() for g in gradients]
    del trained
    dist.barrier()
    left = weakref.ref(torch.distributed.distributed_c10d._get_default_group())
    dist.destroy_process_group()
    assert left() is None or has_left(left()), "PyTorch 2.6 keeps groups that DDP has used"
    assert all(torch.equal(a, b) for a, b in zip(gradients, before, strict=True))
    del gradients
    dist.init_process_group("gloo", init_method=f"file://{os.environ['INA_TEST_STORE']}", rank=rank,
                            world_size=size)


def too_many(rank, size):
    """There are more tensors than can be registered. The others are copied, and the sums are
    right."""
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
            (without, *with_hook), registered, layers, iterations, refused, results_refused = found
            self.assertEqual([without] * 2, with_hook, "weights differ with the hook")
            self.assertIsNone(refused)
            if os.environ.get("INA_NUMERIC") == "reproducible":
                self.assertIn("INA_ERR_UNSUPPORTED", results_refused)
            else:
                self.assertIsNone(results_refused)
            self.assertEqual(layers, LAYERS)
            self.assertEqual(iterations, STEPS)
            # DDP makes its buckets again after the first iteration; each bucket is registered once.
            self.assertGreaterEqual(registered, layers)
            self.assertLessEqual(registered, 2 * layers)

    def test_two_ranks(self):
        self.compare(2, torch.float32)
        self.compare(2, torch.float64)

    def test_gradients_in_buckets(self):
        self.compare(2, torch.float32, gradient_as_bucket_view=True)

    def test_three_ranks(self):
        # Otherwise sums of three values depend on the order of arrival.
        os.environ["INA_NUMERIC"] = "reproducible"
        self.addCleanup(os.environ.pop, "INA_NUMERIC")
        self.compare(3, torch.float32)

    def test_wrapped_group(self):
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
        self.addCleanup(os.environ.pop, "TORCH_DISTRIBUTED_DEBUG")
        self.compare(2, torch.float32)

    def test_nothing_is_copied(self):
        for copied, gradients in self.run_ranks(2, measure, False):
            self.assertAlmostEqual(copied / gradients, 2, delta=0.1)
        for copied, gradients in self.run_ranks(2, copied_in_place):
            self.assertAlmostEqual(copied / gradients, 1, delta=0.1)
        for copied, gradients in self.run_ranks(2, measure, True):
            self.assertAlmostEqual(copied / gradients, 0, delta=0.1)

    def test_accumulated_gradients(self):
        self.run_ranks(2, accumulate)

    def test_result_buffers(self):
        for refused, last in self.run_ranks(2, read_only):
            self.assertRegex(refused, "INA_ERR_(REFUSED|NO_MEMORY)")
            self.assertEqual(last, 1, "summed in place then")

    def test_priorities(self):
        for seen, given in self.run_ranks(2, priorities):
            # A millionth of the time is left; a factor of two is six steps of priority.
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
