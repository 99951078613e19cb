"""What bench_peers.py makes of its samples: medians, spread, near and far modes, paired ratios.

A round gives each contestant one sample, {"us", "core_round_trip_ns": [before, after], ...}; a
contestant may be missing from a round. Nothing here measures or prints.
"""

import statistics

# The round trip between two cores jumps between these two, and what goes through shared memory with
# it.
NEAR_BELOW_NS = 300

OURS = {"plain": "ina_plain", "registered": "ina_registered"}
GLOO = ("gloo_ring", "gloo_halving_doubling")
PEERS = ("openmpi_shm", "openmpi_tcp", "mpich", "gloo")
NETWORK_PEERS = ("openmpi_tcp", "gloo")


def median(values):
    return statistics.median(values) if values else None


def quartiles(values):
    """[first, third], or None of fewer than two values."""
    if len(values) < 2:
        return None
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return [first, third]


def mode_of(sample):
    """"near" or "far" if the cores were so before and after the sample, else None."""
    trips = sample["core_round_trip_ns"]
    if not all(trips):
        return None
    if max(trips) < NEAR_BELOW_NS:
        return "near"
    return "far" if min(trips) >= NEAR_BELOW_NS else None


def times_us(rounds, contestant, mode=None):
    """Of all rounds, or of those samples that were taken in a mode."""
    return [r[contestant]["us"] for r in rounds
            if contestant in r and (mode is None or mode_of(r[contestant]) == mode)]


def paired_ratios(rounds, ours, peer, mode=None):
    """Peer's time / ours in the same round; with a mode, of rounds where both were in it."""
    return [r[peer]["us"] / r[ours]["us"] for r in rounds
            if ours in r and peer in r
            and (mode is None or mode_of(r[ours]) == mode_of(r[peer]) == mode)]


def fastest(rounds, contestants, mode=None):
    """The contestant with the lowest median; None if none was measured."""
    medians = {c: median(times_us(rounds, c, mode)) for c in contestants}
    measured = [c for c in contestants if medians[c] is not None]
    return min(measured, key=medians.get) if measured else None


def contestant_of(rounds, peer, mode=None):
    """Gloo is measured with two algorithms; the better one counts."""
    if peer != "gloo":
        return peer if times_us(rounds, peer, mode) else None
    return fastest(rounds, GLOO, mode)


def figures(rounds, ours, mode=None):
    """Times, spread and ratios of all rounds, or of one mode."""
    used = {peer: contestant_of(rounds, peer, mode) for peer in PEERS}
    network = fastest(rounds, [used[p] for p in NETWORK_PEERS if used[p]], mode)
    ratios = {peer: paired_ratios(rounds, ours, used[peer], mode) if used[peer] else []
              for peer in PEERS}
    own_us = times_us(rounds, ours, mode)
    peers_us = {peer: times_us(rounds, used[peer], mode) if used[peer] else [] for peer in PEERS}
    return {
        "samples": len(own_us),
        "ours_us": median(own_us),
        "peers": {f"{peer}_us": median(peers_us[peer]) for peer in PEERS},
        "gloo_algorithm": used["gloo"] and used["gloo"].removeprefix("gloo_"),
        "best_network_peer": network and network.split("_")[0].replace("openmpi", "openmpi_tcp"),
        "ratio_vs_best_network_peer": median(paired_ratios(rounds, ours, network, mode)
                                             if network else []),
        "ratio_vs_openmpi_shm": median(ratios["openmpi_shm"]),
        "spread": {
            "ours_us": quartiles(own_us),
            "peers": {f"{peer}_us": quartiles(peers_us[peer]) for peer in PEERS},
            "ratios": {peer: quartiles(ratios[peer]) for peer in PEERS},
        },
    }


def make_row(ranks, size, buffers, rounds, missing):
    """`missing`: by contestant, why it has no figures."""
    ours = OURS[buffers]
    trips = [trip for r in rounds for sample in r.values()
             for trip in sample["core_round_trip_ns"] if trip]
    return {
        "ranks": ranks, "bytes": size, "port": "shm", "buffers": buffers,
        **figures(rounds, ours),
        "core_round_trip_ns": median(trips),
        "modes": {mode: figures(rounds, ours, mode) for mode in ("near", "far")},
        "gloo_us": {name.removeprefix("gloo_"): median(times_us(rounds, name)) for name in GLOO},
        "missing": missing,
        "rounds": rounds,
    }


HEADER = (f"{'ranks':>5} {'bytes':>10} {'buffers':>10} {'ours us':>10} {'ompi shm':>10} "
          f"{'ompi tcp':>10} {'mpich':>10} {'gloo':>10} {'x network':>9} {'x ompi shm':>10} "
          f"{'near':>5} {'far':>4} {'c2c ns':>6}")


def cell(value, width, digits=1):
    """A number, or "-" where there is none."""
    return f"{'-':>{width}}" if value is None else f"{value:{width}.{digits}f}"


def table_line(row):
    peers = " ".join(cell(row["peers"][f"{peer}_us"], 10) for peer in PEERS)
    return (f"{row['ranks']:5d} {row['bytes']:10d} {row['buffers']:>10} "
            f"{cell(row['ours_us'], 10)} {peers} "
            f"{cell(row['ratio_vs_best_network_peer'], 9, 2)} "
            f"{cell(row['ratio_vs_openmpi_shm'], 10, 2)} "
            f"{row['modes']['near']['samples']:5d} {row['modes']['far']['samples']:4d} "
            f"{cell(row['core_round_trip_ns'], 6, 0)}")
