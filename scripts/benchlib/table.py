"""Cells and tables for the terminal."""


def cell(value, form):
    """Returns the formatted value, or "-" of the same width for None. `form`: width and kind, as
    "10.3f"."""
    if value is None:
        return "-".rjust(int(form.partition(".")[0] or 0))
    return format(value, form)


def text(value, form):
    """Formats as cell() does, with "yes" and "no" for booleans."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return cell(value, form)


def print_table(columns, rows):
    """Prints rows, which are dictionaries, when all are there: the width of a column is that of its
    longest cell. `columns`: (title, key, form) of each; `form` without a width."""
    lines = [[title for title, _, _ in columns]]
    lines += [[text(row.get(key), form) for _, key, form in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines)]
    for line in lines:
        print("  ".join(word.rjust(width) for word, width in zip(line, widths)))
