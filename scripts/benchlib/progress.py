"""A line on standard error that says how far a benchmark has come."""

import sys


def show(text):
    """Written over by the next where that is a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


def clear():
    """Leaves the line empty, where that is a terminal."""
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def bar(done, of, what):
    """A bar with "DONE of OF WHAT", only where that is a terminal; ends its line when all is done."""
    if sys.stderr.isatty():
        print(f"\r[{'=' * (40 * done // of):40}] {done} of {of} {what}", end="" if done < of else "\n",
              file=sys.stderr, flush=True)
