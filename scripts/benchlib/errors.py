"""Why a benchmark fails."""


class BenchError(Exception):
    """Says in whole what went wrong."""


class Unavailable(BenchError):
    """What is to be measured cannot be had on this machine."""
