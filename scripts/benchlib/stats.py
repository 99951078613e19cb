"""Medians, spread and intervals of samples."""

import random
import statistics

RESAMPLES = 2000


def median(values):
    """Returns None for no values."""
    return statistics.median(values) if values else None


def medians(samples, leave_out=()):
    """Returns the median of each key over dictionaries with the same keys."""
    return {key: statistics.median(sample[key] for sample in samples)
            for key in samples[0] if key not in leave_out}


def quartiles(values, method="inclusive"):
    """Returns [first, third], or None for fewer than two values. `method`: of
    statistics.quantiles."""
    if len(values) < 2:
        return None
    first, _, third = statistics.quantiles(values, n=4, method=method)
    return [first, third]


def percentile(values, share):
    """Returns the value below which this share of the values is, 0.99 for the 99th percentile."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def slowest(by_rank):
    """Returns the time of each operation on its slowest rank; `by_rank`: a list of times for each
    rank."""
    return [max(times) for times in zip(*by_rank)]


def mean_interval(values):
    """Returns the mean and half of its 95 % confidence interval (Student's t)."""
    t = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78}.get(len(values), 2.0)
    half = t * statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return statistics.mean(values), half


def median_interval(values):
    """Returns the 95 % confidence interval of the median, by bootstrap. The same values give the
    same interval."""
    rng = random.Random(1)
    found = sorted(statistics.median(rng.choices(values, k=len(values)))
                   for _ in range(RESAMPLES))
    return [found[int(RESAMPLES * 0.025)], found[int(RESAMPLES * 0.975)]]
