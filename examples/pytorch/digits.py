#!/usr/bin/env python3
"""A CNN learns handwritten digits, data-parallel, over the backend that is named.

    ina-run -n 4 python3 digits.py --backend ina [--epochs N] [--losses FILE]

Prints the loss and the share of test images that are recognised. --losses: rank 0 writes the loss
of each step, one a line.
"""

import argparse
import os
import pathlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

DATA = pathlib.Path(__file__).resolve().parent.parent / "demo/data/optdigits.csv"
BATCH = 64  # of all ranks together
TEST = 297  # of 1,797 images


def digits():
    """Images (count, 1, 8, 8) and their digits, for training and for the test."""
    rows = torch.tensor([[int(value) for value in line.split(",")]
                         for line in DATA.read_text().splitlines()])
    images = rows[:, :64].float().reshape(-1, 1, 8, 8) / 16
    return images[TEST:], rows[TEST:, 64], images[:TEST], rows[:TEST, 64]


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 32, 3, padding=1), torch.nn.ReLU(),
        torch.nn.Conv2d(32, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(64 * 4 * 4, 128), torch.nn.ReLU(),
        torch.nn.Linear(128, 10))


def train(model, images, labels, epochs):
    """Returns the loss of each step, averaged over all ranks. The losses are tensors, and all are
    kept: Gloo's threads wait for Python's lock to free a tensor, forever if the process group ends
    at that moment (PyTorch 1.13)."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    order = torch.Generator().manual_seed(2)  # the same on all ranks
    losses = []
    for _ in range(epochs):
        for batch in torch.randperm(len(images), generator=order).split(BATCH):
            own = batch[rank::ranks]
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images[own]), labels[own])
            loss.backward()  # DistributedDataParallel averages the gradients here
            optimizer.step()
            losses.append(loss.detach() / ranks)
            dist.all_reduce(losses[-1])
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="ina")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--losses", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.backend == "ina":
        import ina.torch  # noqa: F401, makes the backend known
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(os.environ["WORLD_SIZE"])))
    dist.init_process_group(arguments.backend)
    images, labels, test_images, test_labels = digits()
    model = DistributedDataParallel(network())
    losses = train(model, images, labels, arguments.epochs)
    if dist.get_rank() == 0:
        with torch.no_grad():
            right = (model.module(test_images).argmax(1) == test_labels).float().mean().item()
        print(f"{arguments.backend}: loss {losses[-1].item():.3f}, {right:.1%} of the test images recognised")
        if arguments.losses:
            arguments.losses.write_text("".join(f"{loss.item()}\n" for loss in losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
