"""Rows of the tests of other people's programs."""

IDENTITY = ("suite", "mpi", "ranks")
COUNTS = ("tests", "skipped", "calls", "taken")
NAMES = ("failed", "failed_plain", "new", "unfinished", "unfinished_plain")


def summed(rows):
    """Returns one row for each suite, MPI and number of ranks, which is the sum of its modules'."""
    sums = {}
    for row in rows:
        identity = tuple(row[key] for key in IDENTITY)
        found = sums.setdefault(identity, {**dict(zip(IDENTITY, identity)), **dict.fromkeys(COUNTS, 0),
                                           **{key: [] for key in NAMES}})
        for key in (*COUNTS, *NAMES):
            found[key] = found[key] + row[key]
    return list(sums.values())
