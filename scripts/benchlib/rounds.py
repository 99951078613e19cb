"""Times and ratios from the rounds of a tournament.

A round is a dictionary of samples by contestant, {"us", "core_round_trip_ns": [before, after],
...}; a contestant may be missing from a round. This module neither measures nor prints.
"""

from benchlib.stats import median

# The round trip between two cores jumps between two levels, on either side of this limit, and the
# speed of shared memory jumps with it.
NEAR_BELOW_NS = 300


def mode_of(sample):
    """Returns "near" or "far" if the cores were so before and after the sample, else None."""
    trips = sample["core_round_trip_ns"]
    if not all(trips):
        return None
    if max(trips) < NEAR_BELOW_NS:
        return "near"
    return "far" if min(trips) >= NEAR_BELOW_NS else None


def times_us(rounds, contestant, mode=None):
    """Returns the times of all rounds, or of the samples taken in one mode."""
    return [r[contestant]["us"] for r in rounds
            if contestant in r and (mode is None or mode_of(r[contestant]) == mode)]


def paired_ratios(rounds, ours, peer, mode=None):
    """Returns the peer's time / ours in the same round. With a mode: of rounds where both were in
    that mode."""
    return [r[peer]["us"] / r[ours]["us"] for r in rounds
            if ours in r and peer in r
            and (mode is None or mode_of(r[ours]) == mode_of(r[peer]) == mode)]


def fastest(rounds, contestants, mode=None):
    """Returns the contestant with the lowest median; None if none was measured."""
    medians = {c: median(times_us(rounds, c, mode)) for c in contestants}
    measured = [c for c in contestants if medians[c] is not None]
    return min(measured, key=medians.get) if measured else None
