"""docs/sixteen-cores.md: a machine with sixteen cores."""

from doctables.form import load, select, table
from doctables.performance import peers, peers_allreduce, wire
from doctables.plugins import torch_collectives, torch_training


def lanes(rows):
    """`rows`: from pipeline_bench, of lanes in threads and of lanes one after another."""
    measured = {row["value"]: row for row in select(rows, dimension="lanes", estimated=False)}
    estimated = {row["value"]: row for row in select(rows, dimension="lanes", estimated=True)}
    return table(["Lanes", "Measured, ns a packet", "Gbit/s", "spread", "Each alone, summed, Gbit/s"],
                 [[n, f"{row['ns_per_packet']:.1f}", f"{row['gbit_per_s']:.0f}", f"{row['spread']:.2f}",
                   f"{estimated[n]['gbit_per_s']:.0f}"] for n, row in sorted(measured.items())])


def losses(rows):
    return table(["Lost", "p50 ms", "p99 ms", "to that without losses, median (least to most)"],
                 [[f"{row['loss']:.2%}", f"{row['p50_us'] / 1e3:.1f}", f"{row['p99_us'] / 1e3:.1f}",
                   f"{row['ratio']:.2f} ({row['least_ratio']:.2f} to {row['most_ratio']:.2f})"] for row in rows])


def tables():
    torch = load("cores16/torch")
    return {"peers, allreduce": peers_allreduce(load("cores16/peers")["rows"]),
            "peers": peers(load("cores16/peers_collectives")["rows"]),
            "lanes": lanes(load("cores16/lanes")["scaling"]),
            "torch, collectives": torch_collectives(torch["collectives"]),
            "torch, training": torch_training(torch["ddp"]),
            "wire": wire(load("cores16/wire")["rows"]),
            "losses": losses(load("cores16/loss")["rows"])}
