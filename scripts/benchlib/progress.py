"""A line on standard error with the progress of a benchmark."""

import sys


def show(text):
    """Shows a text; on a terminal the next text overwrites it."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


def clear():
    """Clears the line on a terminal."""
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def bar(done, of, what):
    """Shows a bar with "DONE of OF WHAT", only on a terminal. The line ends when all is done."""
    if sys.stderr.isatty():
        print(f"\r[{'=' * (40 * done // of):40}] {done} of {of} {what}", end="" if done < of else "\n",
              file=sys.stderr, flush=True)
