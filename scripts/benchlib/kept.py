"""The form of the results in docs/figures: less than half the bytes of --json, and a line for each row.

A list of objects is {"same": {...}, "columns": [...], "rows": [[...], ...]}. "same" has what all objects
share, "a.b" is the member b of the member a, and "-" says that an object has no such member.
"""

import json

NOTHING = "-"
TABLE = {"same", "columns", "rows"}


def _members(row, prefix=""):
    for key, value in row.items():
        if value and isinstance(value, dict):
            yield from _members(value, f"{prefix}{key}.")
        else:
            yield prefix + key, _packed(value)


def _packed(value):
    if isinstance(value, dict):
        return {key: _packed(item) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    if len(value) < 2 or not all(isinstance(item, dict) for item in value):
        return [_packed(item) for item in value]
    rows = [dict(_members(item)) for item in value]
    names = dict.fromkeys(name for row in rows for name in row)
    # By their texts: 1, 1.0 and true are equal.
    same = {name: rows[0][name] for name in names
            if len({_line(row.get(name, NOTHING)) for row in rows}) == 1}
    columns = [name for name in names if name not in same]
    return {"same": same, "columns": columns, "rows": [[row.get(name, NOTHING) for name in columns] for row in rows]}


def _object(members):
    result = {}
    for name, value in members:
        *path, key = name.split(".")
        place = result
        for step in path:
            place = place.setdefault(step, {})
        place[key] = _plain(value)
    return result


def _plain(value):
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() != TABLE:
        return {key: _plain(item) for key, item in value.items()}
    return [_object([*value["same"].items(),
                     *((name, cell) for name, cell in zip(value["columns"], row) if cell != NOTHING)])
            for row in value["rows"]]


def _line(value):
    return json.dumps(value, separators=(",", ":"))


def _member(value):
    if not isinstance(value, dict) or value.keys() != TABLE:
        return _line(value)
    rows = ",\n".join(map(_line, value["rows"]))
    return f'{{"same":{_line(value["same"])},\n"columns":{_line(value["columns"])},\n"rows":[\n{rows}\n]}}'


def text_of(result):
    """Returns the text for docs/figures of a result, an object; read() is the inverse."""
    # Twice: reading puts the members of an object together, and what was read has to give the same text.
    packed = _packed(_plain(_packed(result)))
    if json.dumps(_plain(packed), sort_keys=True) != json.dumps(result, sort_keys=True):
        raise ValueError(f'no member may be "{NOTHING}", or have a dot in its name')
    return "{\n" + ",\n".join(f"{json.dumps(key)}:{_member(item)}" for key, item in packed.items()) + "\n}\n"


def read(path):
    """Returns the result in a file of docs/figures or of --json."""
    return _plain(json.loads(path.read_text("utf-8")))
