"""Collectives under PyTorch's modes, which belong to threads.

    modes_test.py BUILD_FOLDER
"""

import contextlib
import unittest

import ranks  # noqa: F401
from ranks import SwitchTest

import torch
import torch.distributed as dist

MODES = {
    "none": contextlib.nullcontext,
    "inference": torch.inference_mode,
    "no_grad": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "profiler": lambda: torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]),
    "anomaly": torch.autograd.detect_anomaly,
}


NAMES = ("all_reduce", "broadcast", "reduce", "all_gather", "gather", "scatter", "reduce_scatter", "all_to_all",
         "all_reduce_coalesced")


def strided(value=1.0):
    return torch.full((12, 12), float(value)).t()[::2]


def calls(rank, size):
    """By name: a call on tensors that must be copied, and what it wrote with the expected value."""
    return {name: one_call(rank, size, name) for name in NAMES}


def one_call(rank, size, name):
    tensor, total = strided(rank + 1), size * (size + 1) / 2
    outputs = [strided(0) for _ in range(size)]
    inputs = [strided(rank + 1) for _ in range(size)]
    root = rank == 0
    return {
        "all_reduce": (lambda **o: dist.all_reduce(tensor, **o), [tensor], [total]),
        "broadcast": (lambda **o: dist.broadcast(tensor, 0, **o), [tensor], [1]),
        "reduce": (lambda **o: dist.reduce(tensor, 0, **o), [tensor], [total if root else rank + 1]),
        "all_gather": (lambda **o: dist.all_gather(outputs, tensor, **o), outputs, range(1, size + 1)),
        "gather": (lambda **o: dist.gather(tensor, outputs if root else None, 0, **o), outputs if root else [],
                   range(1, size + 1)),
        "scatter": (lambda **o: dist.scatter(tensor, inputs if root else None, 0, **o), [tensor], [1]),
        "reduce_scatter": (lambda **o: dist.reduce_scatter(tensor, inputs, **o), [tensor], [total]),
        "all_to_all": (lambda **o: dist.all_to_all(outputs, inputs, **o), outputs, range(1, size + 1)),
        "all_reduce_coalesced": (lambda **o: dist.all_reduce_coalesced([tensor], **o), [tensor], [total]),
    }[name]


def in_mode(rank, size, mode, how):
    """Tensors made in the mode or before, and used in it or behind it. Returns the calls that gave wrong
    values."""
    wrong = []
    with MODES[mode]() if how != "used" else contextlib.nullcontext():
        made = calls(rank, size)
    with MODES[mode]() if how != "made" else contextlib.nullcontext():
        for name, (call, outputs, expected) in made.items():
            before = [output.requires_grad for output in outputs]
            call(async_op=True).wait()
            for output, value in zip(outputs, expected):
                if not (output == value).all() or [o.requires_grad for o in outputs] != before:
                    wrong.append(name)
        message = strided(rank)
        if rank == 0:
            dist.send(message, 1)
        else:
            dist.recv(message, 0)
        if (message != 0).any():
            wrong.append("recv")
    return wrong


def state_in_continuations(rank, size):
    """Returns the modes that continuations see, in each mode of their caller."""
    found = {}
    for mode in ("none", "inference", "no_grad", "autocast"):
        with MODES[mode]():
            future = dist.all_reduce(strided(), async_op=True).get_future()
            found[mode] = future.then(lambda _: (torch.is_grad_enabled(), torch.is_inference_mode_enabled(),
                                                 torch.is_autocast_cpu_enabled())).wait()
    return found


class ModesTest(SwitchTest):
    def test_tensors_that_must_be_copied(self):
        for mode in MODES:
            for how in ("both", "made", "used"):
                with self.subTest(mode=mode, how=how):
                    self.assertEqual(self.run_ranks(2, in_mode, mode, how), [[], []])

    def test_continuations_have_the_modes_of_their_caller(self):
        expected = {"none": (True, False, False), "inference": (False, True, False), "no_grad": (False, False, False),
                    "autocast": (True, False, True)}
        self.assertEqual(self.run_ranks(2, state_in_continuations), [expected] * 2)


if __name__ == "__main__":
    unittest.main()
