"""The statistics of bench_wire.py: bandwidths, spread, the better path for the peers, paired
ratios.

Rounds are those of benchlib/rounds.py. A peer's contestants are NAME@PATH, one for each of its
algorithms and for each path: the bridge that forwards. This module neither measures nor prints.
"""

from benchlib.rounds import fastest, paired_ratios, times_us
from benchlib.stats import median, quartiles
from benchlib.table import cell

# By peer: its contestants, without the path.
PEERS = {"openmpi_tcp": ["openmpi_tcp"], "gloo_tcp": ["gloo_ring", "gloo_halving_doubling"]}


def gbps(size, time_us):
    """Returns 10^9 bytes a second. None: there is no time."""
    return None if time_us is None else size / time_us / 1e3


def figures(size, rounds, contestant):
    """Returns the figures of one contestant; None: it was not measured."""
    times = times_us(rounds, contestant) if contestant else []
    if not times:
        return None
    spread = quartiles(times)
    return {"us": median(times), "algbw_GBps": gbps(size, median(times)),
            "spread_us": spread, "spread_GBps": spread and [gbps(size, us) for us in spread[::-1]],
            "samples": len(times)}


def make_row(what, ours, limit, paths, rounds, missing):
    """`what`: the first keys of the row, "bytes" among them; `ours`, `limit`: contestants;
    `missing`: by team, why it has no figures."""
    size = what["bytes"]

    def best(names, of_paths):
        return fastest(rounds, [f"{name}@{path}" for name in names for path in of_paths])

    def ratios(peer):
        return paired_ratios(rounds, ours, peer) if peer else []

    everybody = [name for names in PEERS.values() for name in names]
    best_peer = best(everybody, paths)
    own, limits = figures(size, rounds, ours), figures(size, rounds, limit)
    peers = {f"{peer}_same_path_GBps": figures(size, rounds, best(names, paths))
             for peer, names in PEERS.items()}
    return {
        **what,
        "us": own and own["us"],
        "algbw_GBps": own and own["algbw_GBps"],
        **{key: peer and peer["algbw_GBps"] for key, peer in peers.items()},
        "ratio": median(ratios(best_peer)),
        "best_peer": best_peer,
        "ratio_by_path": {path: median(ratios(best(everybody, [path]))) for path in paths},
        "forwarding_limit_GBps": limits and limits["algbw_GBps"],
        "samples": own and own["samples"],
        "spread": {
            "algbw_GBps": own and own["spread_GBps"],
            **{key: peer and peer["spread_GBps"] for key, peer in peers.items()},
            "ratio": quartiles(ratios(best_peer)),
            "forwarding_limit_GBps": limits and limits["spread_GBps"],
        },
        "contestants": {f"{name}@{path}": figures(size, rounds, f"{name}@{path}")
                        for path in paths for name in everybody},
        "missing": missing,
        "raw": rounds,
    }


HEADER = (f"{'mtu':>5} {'ranks':>5} {'bytes':>9} {'transport':>9} {'offloads':>8} {'ours us':>9} "
          f"{'GB/s':>7} {'limit':>7} {'openmpi':>7} {'gloo':>7} {'ratio':>6} {'switch':>6}  "
          "best peer")


def table_line(row):
    return (f"{row['mtu']:5d} {row['ranks']:5d} {row['bytes']:9d} {row['transport']:>9} "
            f"{'on' if row['offloads'] else 'off':>8} {cell(row['us'], '9.1f')} "
            f"{cell(row['algbw_GBps'], '7.4f')} {cell(row['forwarding_limit_GBps'], '7.4f')} "
            f"{cell(row['openmpi_tcp_same_path_GBps'], '7.4f')} "
            f"{cell(row['gloo_tcp_same_path_GBps'], '7.4f')} {cell(row['ratio'], '6.2f')} "
            f"{cell(row['ratio_by_path'].get('switch'), '6.2f')}  {row['best_peer'] or '-'}")
