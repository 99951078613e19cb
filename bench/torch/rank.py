"""A rank of bench torch: performs the same work on the backends ina and gloo in turns.

Prints {"collectives": {"OP BYTES": {"ina": [s, ...], "gloo": [s, ...]}}, "ddp": {"ina": [s, ...],
"gloo": [s, ...]}, "weights": {"ina": digest, "gloo": digest}}, with times of this rank.
"""

import argparse
import datetime
import hashlib
import json
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ina.torch  # noqa: F401

BACKENDS = ("ina", "gloo")


def operations(size, count):
    """Returns, by name and backend, functions that take a group. All operations move `count`
    float32 in the larger buffer."""
    share = count // size
    full, part = torch.ones(share * size), torch.ones(share)
    blocks, parts = list(torch.ones(share * size).chunk(size)), [torch.ones(share) for _ in range(size)]

    def all_reduce(group):
        dist.all_reduce(full, group=group)

    def all_gather(group):
        dist.all_gather(blocks, part, group=group)

    def reduce_scatter(group):
        dist.reduce_scatter(part, parts, group=group)

    def reduce_and_scatter(group):
        """Replaces reduce_scatter, which gloo of PyTorch 1.13 lacks, as its users do."""
        whole = torch.cat(parts)
        dist.all_reduce(whole, group=group)
        part.copy_(whole.chunk(size)[dist.get_rank(group)])

    return {"all_reduce": dict.fromkeys(BACKENDS, all_reduce),
            "all_gather": dict.fromkeys(BACKENDS, all_gather),
            "reduce_scatter": {"ina": reduce_scatter, "gloo": reduce_and_scatter}}


def timed(call, group):
    dist.barrier()
    begin = time.perf_counter()
    call(group)
    return time.perf_counter() - begin


def measure_collectives(groups, size, sizes, rounds):
    found = {}
    for nbytes in sizes:
        for name, calls in operations(size, nbytes // 4).items():
            times = {backend: [] for backend in BACKENDS}
            for step in range(rounds + 1):
                for backend in BACKENDS:
                    taken = timed(calls[backend], groups[backend])
                    if step != 0:  # the first iteration warms up
                        times[backend].append(taken)
            found[f"{name} {nbytes}"] = times
    return found


class Trainer:
    """One model on one backend."""

    def __init__(self, group):
        torch.manual_seed(3)
        layers = [torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024),
                  torch.nn.ReLU(), torch.nn.Linear(1024, 10)]
        self.model = DistributedDataParallel(torch.nn.Sequential(*layers), process_group=group)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def step(self, inputs, labels):
        self.optimizer.zero_grad()
        torch.nn.functional.cross_entropy(self.model(inputs), labels).backward()
        self.optimizer.step()

    def digest(self):
        data = b"".join(p.detach().numpy().tobytes() for p in self.model.parameters())
        return hashlib.sha256(data).hexdigest()


def measure_training(groups, rank, rounds):
    trainers = {backend: Trainer(groups[backend]) for backend in BACKENDS}
    times = {backend: [] for backend in BACKENDS}
    generator = torch.Generator().manual_seed(rank)
    for step in range(rounds + 1):
        inputs = torch.randn(16, 256, generator=generator)
        labels = torch.randint(0, 10, (16,), generator=generator)
        for backend in BACKENDS:
            taken = timed(lambda _: trainers[backend].step(inputs, labels), None)
            if step != 0:
                times[backend].append(taken)
    return times, {backend: trainers[backend].digest() for backend in BACKENDS}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--bytes", type=int, nargs="+", required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{options.store}", rank=options.rank,
                            world_size=options.ranks, timeout=datetime.timedelta(minutes=5))
    groups = {"gloo": dist.group.WORLD, "ina": dist.new_group(backend="ina")}
    collectives = measure_collectives(groups, options.ranks, options.bytes, options.rounds)
    training, weights = measure_training(groups, options.rank, options.rounds)
    print(json.dumps({"collectives": collectives, "ddp": training, "weights": weights}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
