"""Runs independent jobs in parallel, most of which wait for a program of their own."""

import concurrent.futures
import os


def cores():
    return os.cpu_count() or 1


def side_by_side(functions, most=None):
    """Returns the functions' results, in order. `most`: the number of functions that run at once;
    the number of cores if not given."""
    with concurrent.futures.ThreadPoolExecutor(most or cores()) as pool:
        return list(pool.map(lambda function: function(), functions))
