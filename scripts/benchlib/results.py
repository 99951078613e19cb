"""Where a benchmark's result goes: known to be writable before the work, not after it."""

import argparse
import json
import pathlib


def result_file(text):
    """The path, for argparse (`type=`). What the file holds stays until there is a result."""
    path = pathlib.Path(text)
    is_new = not path.exists()
    try:
        with path.open("a", encoding="utf-8"):
            pass
        if is_new:
            path.unlink()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"cannot write {text}: {error.strerror}") from error
    return path


def write(path, result):
    """Writes a result as JSON; without a path nothing."""
    if path:
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
