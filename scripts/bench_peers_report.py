"""The statistics of bench_peers.py: medians, spread, near and far modes, paired ratios.

Rounds are those of benchlib/rounds.py. This module neither measures nor prints.
"""

from benchlib.rounds import fastest, paired_ratios, times_us
from benchlib.stats import median, quartiles
from benchlib.table import cell

OURS = {"plain": "ina_plain", "registered": "ina_registered"}
GLOO = ("gloo_ring", "gloo_halving_doubling")
PEERS = ("openmpi_shm", "openmpi_default", "openmpi_tcp", "mpich", "gloo")
NETWORK_PEERS = ("openmpi_tcp", "gloo")
# Peers that `ratio_vs_PEER` compares with one by one.
SINGLE_PEERS = ("openmpi_shm", "openmpi_default", "mpich")
# These spin while they wait. With more ranks than cores their times are those of the scheduler.
SPINNING_PEERS = ("mpich",)


def contestant_of(rounds, peer, mode=None):
    """Gloo's all-reduce is measured with two algorithms; the better one counts."""
    if peer != "gloo" or times_us(rounds, peer, mode):
        return peer if times_us(rounds, peer, mode) else None
    return fastest(rounds, GLOO, mode)


def figures(rounds, ours, mode=None, without_ratio=()):
    """Returns times, spread and ratios of all rounds, or of the rounds in one mode.
    `without_ratio`: peers that have times only."""
    used = {peer: contestant_of(rounds, peer, mode) for peer in PEERS}
    network = fastest(rounds, [used[p] for p in NETWORK_PEERS if used[p]], mode)
    ratios = {peer: paired_ratios(rounds, ours, used[peer], mode)
              if used[peer] and peer not in without_ratio else [] for peer in PEERS}
    own_us = times_us(rounds, ours, mode)
    peers_us = {peer: times_us(rounds, used[peer], mode) if used[peer] else [] for peer in PEERS}
    return {
        "samples": len(own_us),
        "ours_us": median(own_us),
        "peers": {f"{peer}_us": median(peers_us[peer]) for peer in PEERS},
        "gloo_algorithm": used["gloo"] and used["gloo"].removeprefix("gloo_"),
        "best_network_peer": network and network.split("_")[0].replace("openmpi", "openmpi_tcp"),
        "best_network_peer_us": median(times_us(rounds, network, mode)) if network else None,
        "ratio_vs_best_network_peer": median(paired_ratios(rounds, ours, network, mode)
                                             if network else []),
        **{f"ratio_vs_{peer}": median(ratios[peer]) for peer in SINGLE_PEERS},
        "spread": {
            "ours_us": quartiles(own_us),
            "peers": {f"{peer}_us": quartiles(peers_us[peer]) for peer in PEERS},
            "ratios": {peer: quartiles(ratios[peer]) for peer in PEERS},
        },
    }


def make_row(ranks, size, buffers, rounds, missing, collective="allreduce", algorithms=None, *, cpus):
    """`missing`: by contestant, why it has no figures; `algorithms`: the measured algorithms of the
    peers that have several; `cpus`: the number of cores."""
    ours = OURS[buffers]
    without_ratio = SPINNING_PEERS if ranks > cpus else ()
    trips = [trip for r in rounds for sample in r.values()
             for trip in sample["core_round_trip_ns"] if trip]
    return {
        "collective": collective, "ranks": ranks, "bytes": size, "port": "shm", "buffers": buffers,
        **figures(rounds, ours, without_ratio=without_ratio),
        "core_round_trip_ns": median(trips),
        "gloo_us": {name.removeprefix("gloo_"): median(times_us(rounds, name)) for name in GLOO},
        "algorithms": algorithms or {},
        "missing": missing,
        "raw": {"rounds": rounds,
                "modes": {mode: figures(rounds, ours, mode, without_ratio) for mode in ("near", "far")}},
    }


HEADER = (f"{'collective':>14} {'ranks':>5} {'bytes':>10} {'buffers':>10} {'ours us':>10} {'ompi shm':>10} "
          f"{'ompi':>10} {'ompi tcp':>10} {'mpich':>10} {'gloo':>10} {'x network':>9} {'x ompi shm':>10} {'x ompi':>6} {'x mpich':>7} "
          f"{'near':>5} {'far':>4} {'c2c ns':>6}")


def table_line(row):
    peers = " ".join(cell(row["peers"][f"{peer}_us"], '10.1f') for peer in PEERS)
    modes = row["raw"]["modes"]
    return (f"{row['collective']:>14} {row['ranks']:5d} {row['bytes']:10d} {row['buffers']:>10} "
            f"{cell(row['ours_us'], '10.1f')} {peers} "
            f"{cell(row['ratio_vs_best_network_peer'], '9.2f')} "
            f"{cell(row['ratio_vs_openmpi_shm'], '10.2f')} "
            f"{cell(row['ratio_vs_openmpi_default'], '6.2f')} {cell(row['ratio_vs_mpich'], '7.2f')} "
            f"{modes['near']['samples']:5d} {modes['far']['samples']:4d} "
            f"{cell(row['core_round_trip_ns'], '6.0f')}")
