"""What programs do in continuations of futures.

    continuations_test.py BUILD_FOLDER
"""

import datetime
import random
import time
import unittest

import ranks  # noqa: F401
from ranks import SwitchTest

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

TIMEOUT = datetime.timedelta(seconds=60)


def strided(value):
    return torch.full((20, 20), float(value)).t()


def many_groups(rank, size, count):
    """As many continuations as groups wait at a time."""
    groups = [dist.new_group(range(size)) for _ in range(count)]

    def begin(group):
        tensor = strided(1)

        def go_on(_):
            dist.all_reduce(tensor, group=group)
            return tensor
        return dist.all_reduce(strided(1), group=group, async_op=True).get_future().then(go_on)

    futures = [begin(group) for group in groups]
    return {future.wait()[0, 0].item() for future in futures}


def many_operations(rank, size, count):
    """Continuations start operations, and their continuations others, while the program goes on. The
    ranks are not in step. Returns the wrong results."""
    chance = random.Random(rank)

    def step(value):
        def go_on(done):
            time.sleep(chance.random() / 1000)
            tensor = strided(value)
            return dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: done.value()[0][0, 0].item())
        return go_on

    futures = []
    for number in range(count):
        future = dist.all_reduce(torch.ones(5), async_op=True).get_future()
        futures.append((number, future.then(step(number))))
        time.sleep(chance.random() / 1000)
        dist.all_reduce(torch.ones(7 + number))
    wrong = []
    for number, future in futures:
        inner = future.wait()
        result = inner.wait() if hasattr(inner, "wait") else inner
        if result != number * size:
            wrong.append((number, result))
    return wrong


def power_sgd(rank, size, layers):
    """Returns sums of the gradients of all layers."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(40, 40) for _ in range(layers)])
    trained = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.02)
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    trained.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    for iteration in range(6):
        torch.manual_seed(100 * iteration + rank)
        trained(torch.randn(8, 40)).sum().backward()
    return [p.grad.double().sum().item() for p in model.parameters()]


def late(rank, size, how):
    """The last rank sees the operations' end before it asks for their continuations, the others ask first.
    Returns the sum of what the continuations have gathered."""
    sums = []

    def gather(_):
        tensor = strided(1)
        dist.all_reduce(tensor)
        sums.append(tensor[0, 0].item())

    if rank == size - 1:
        time.sleep(0.3)
    futures = [dist.all_reduce(strided(1), async_op=True).get_future() for _ in range(2)]
    if rank == size - 1:
        time.sleep(0.3)
    if how == "then":
        asked = [future.then(gather) for future in futures]
        asked.append(asked[0].then(gather))
        for future in asked:
            future.wait()
    elif how == "add_done_callback":
        for future in futures:
            future.add_done_callback(gather)
    else:  # another order than that of the operations
        for future in [future.then(gather) for future in reversed(futures)]:
            future.wait()
    dist.all_reduce(strided(1))
    while len(sums) < (3 if how == "then" else 2):
        time.sleep(0.01)
    return sum(sums)


class ContinuationsTest(SwitchTest):
    def test_more_continuations_wait_than_there_were_threads(self):
        self.assertEqual(self.run_ranks(2, many_groups, 40, timeout=TIMEOUT), [{2.0}] * 2)

    def test_operations_of_continuations_have_an_order(self):
        for found in self.run_ranks(3, many_operations, 60, timeout=TIMEOUT):
            self.assertEqual(found, [])

    def test_continuations_of_what_has_ended_wait_for_their_turn(self):
        for how, expected in ("then", 6.0), ("add_done_callback", 4.0), ("reversed", 4.0):
            with self.subTest(how=how):
                self.assertEqual(self.run_ranks(2, late, how, timeout=TIMEOUT), [expected] * 2)

    def test_power_sgd(self):
        for layers in (80, 100):
            with self.subTest(layers=layers):
                results = self.run_ranks(2, power_sgd, layers, timeout=TIMEOUT)
                self.assertEqual(repr(results[0]), repr(results[1]))  # NaN is as good as any


if __name__ == "__main__":
    unittest.main()
