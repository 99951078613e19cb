#!/usr/bin/env python3
"""Draws the losses that digits.py wrote, one curve a file: plot_losses.py OUT.svg FILE..."""

import pathlib
import sys

import matplotlib
matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402


def main():
    out, *files = map(pathlib.Path, sys.argv[1:])
    figure, axes = plt.subplots(figsize=(7, 4))
    for number, file in enumerate(files):
        losses = [float(line) for line in file.read_text().split()]
        # Earlier curves are wider, so that curves that coincide are all visible.
        axes.plot(losses, label=file.stem, linewidth=4 - 2.5 * number / max(1, len(files) - 1))
    axes.set(xlabel="step", ylabel="cross-entropy (mean of all ranks)", ylim=(0, None))
    axes.legend()
    figure.tight_layout()
    figure.savefig(out)


if __name__ == "__main__":
    main()
