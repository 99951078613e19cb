"""The form of the tables in docs/: cells, units, and the figures that they come from."""

import pathlib

from benchlib import kept

FIGURES = pathlib.Path(__file__).resolve().parent.parent.parent / "docs/figures"


def table(heads, rows):
    lines = ["| " + " | ".join(str(cell) for cell in line) + " |" for line in (heads, *rows)]
    lines.insert(1, "|" + "---|" * len(heads))
    return "\n".join(lines).replace("|  |", "| |")


def select(points, **wanted):
    return [p for p in points if all(p[key] == value for key, value in wanted.items())]


def ms(seconds):
    return f"{seconds * 1e3:.2f}"


def load(name):
    return kept.read(FIGURES / f"{name}.json")


def measured_at(meta):
    machine = meta["machine"]
    return f"commit {meta['commit'][:8]}, {machine['cpus']} CPUs ({machine['cpu']})"


def size_name(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def spread_by_size(rows, names, cell):
    """Returns the size names, and a line for each combination of `names`. A line has a cell for
    each size but none for operations without bytes."""
    rows = [row for row in rows if row["bytes"]]
    sizes = sorted({row["bytes"] for row in rows})
    lines = []
    for key in dict.fromkeys(tuple(row[name] for name in names) for row in rows):
        own = {row["bytes"]: row for row in rows if tuple(row[name] for name in names) == key}
        lines.append([*key, *(cell(own[size]) if size in own else "" for size in sizes)])
    return [size_name(size) for size in sizes], lines


def figure(value, form):
    return "" if value is None else format(value, form)


def microseconds(value):
    return figure(value, ".1f" if value is not None and value < 100 else ",.0f")
