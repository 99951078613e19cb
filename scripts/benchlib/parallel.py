"""Independent jobs side by side, most of which wait for a program of their own."""

import concurrent.futures
import os


def cores():
    return os.cpu_count() or 1


def side_by_side(functions, most=None):
    """The functions' results, in order. `most`: so many run at once; as many as there are cores if not
    given."""
    with concurrent.futures.ThreadPoolExecutor(most or cores()) as pool:
        return list(pool.map(lambda function: function(), functions))
