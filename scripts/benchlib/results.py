"""The file for a benchmark's result, which is known to be writable before the work."""

import argparse
import json
import pathlib


def result_file(text):
    """Returns the path, for argparse (`type=`). The file keeps its contents until there is a
    result."""
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
    """Writes a result as JSON. Without a path it does nothing."""
    if path:
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
