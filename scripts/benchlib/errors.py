"""The exceptions with which a benchmark fails."""


class BenchError(Exception):
    """The text describes the whole failure."""


class Unavailable(BenchError):
    """The object of the measurement is not available on this machine."""
