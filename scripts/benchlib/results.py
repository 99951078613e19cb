"""The files for a benchmark's result, which are known to be writable before the work."""

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


RAW = "raw"  # the member, of a result or of its rows, that has single samples


def without_raw(value):
    """Returns the value without its raw samples, and with numbers of six digits."""
    if isinstance(value, dict):
        return {key: without_raw(item) for key, item in value.items() if key != RAW}
    if isinstance(value, (list, tuple)):
        return [without_raw(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def text_of(result):
    """Returns the result as JSON with a line for each row, so that a new run changes few lines."""
    members = []
    for key, value in result.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            lines = ",\n  ".join(json.dumps(row) for row in value)
            members.append(f" {json.dumps(key)}: [\n  {lines}\n ]")
        else:
            members.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(members) + "\n}\n"


def write(options, result):
    """Writes a result to options.json, and with its raw samples to options.raw; None: to neither."""
    if options.json:
        options.json.write_text(text_of(without_raw(result)), encoding="utf-8")
    if options.raw:
        options.raw.write_text(text_of(result), encoding="utf-8")
