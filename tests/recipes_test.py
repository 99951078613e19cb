#!/usr/bin/env python3
"""docs/operations.md has a recipe for every status of libina, and for every text with which switch
and library refuse something or give up; and for no other texts.

Texts are read from the sources: the literals of each call that makes an error, with `…` for the
inserted parts. A recipe quotes a part of the text. tests/e2e/errors*_test.py or another test
(tests/recipes_seen.py) causes each text, or tests/recipes_seen.py has the reason why none does.
Errors about arguments (INA_ERR_INVALID) and defects (INA_ERR_INTERNAL) need no recipe: the former
name the argument, and no defect is known.
"""

import pathlib
import re

import recipes_seen

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The layers that make texts for users.
LAYERS = ("client", "common", "control", "fragments", "io", "membership", "programs/inactl", "programs/memif",
          "programs/psd", "scheduler", "switchd", "transport")
# Calls that make an error. The first argument of some is the status.
ERROR = re.compile(r"\b(?<!result_buffers_\.)(?:fail|refuse|refuse_for_now|refused|decline|set_error|ending_\.end|ending_\.tell|"
                   r"AdminError)(?:\(|\{)")
STATUS = re.compile(r"INA_ERR_(\w+)|Code::k(\w+)")
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
COMMENT = re.compile(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
# Errors about plans and the configuration file name the wrong key or argument; other code gives
# them a status.
ABOUT_ARGUMENTS = ("plans/redistribution", "switchd/config")
FEWEST_LETTERS = 12  # a shorter text may be the beginning or end of another text
NEED_NONE = ("INVALID", "INTERNAL")


def sources():
    for layer in LAYERS:
        for path in sorted((ROOT / layer).rglob("*")):
            if path.suffix in (".cc", ".h") and not path.stem.endswith("_test"):
                yield path, COMMENT.sub(lambda found: found.group(1) or "", path.read_text())


def arguments(text, start):
    """Returns the text from a bracket to its closing bracket."""
    depth, at = 0, start
    while at < len(text):
        if text[at] == '"':
            at = LITERAL.match(text, at).end()
            continue
        if text[at] in "({":
            depth += 1
        elif text[at] in ")}":
            depth -= 1
            if depth == 0:
                return text[start:at + 1]
        elif character := re.compile(r"'(?:[^'\\]|\\.)'").match(text, at):
            at = character.end()
            continue
        at += 1
    return text[start:]


def said(body):
    """Returns the literals in order, with `…` for the code between two literals and for fmt's
    fields."""
    text, end = "", None
    for literal in LITERAL.finditer(body):
        if end is not None and body[end:literal.start()].strip():
            text += "…"
        text += re.sub(r"\{[^}]*\}", "…", literal.group(1).replace('\\"', '"'))
        end = literal.end()
    return text


def errors():
    """Returns file and text of each error."""
    for path, text in sources():
        for call in ERROR.finditer(text):
            body = arguments(text, call.end() - 1)
            status = STATUS.search(body)
            kind = (status.group(1) or status.group(2).upper()) if status else ""
            words = said(body)
            if str(path.relative_to(ROOT)).startswith(ABOUT_ARGUMENTS):
                continue
            if kind not in NEED_NONE and sum(c.isalpha() for c in words) >= FEWEST_LETTERS:
                yield path.relative_to(ROOT), words


def is_part_of(recipe, text):
    at = 0
    for piece in filter(None, (piece.strip() for piece in recipe.split("…"))):
        at = text.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return True


def tables(text):
    """Returns, from the section of errors, the first cell of each row, by the heading of its
    column."""
    found = {}
    heading = ""
    for line in text.split("\n### Errors\n")[1].split("\n## ")[0].split("\n### ")[0].splitlines():
        if not line.startswith("|"):
            heading = ""
        elif not heading:
            heading = line.split("|")[1].strip()
        elif not line.startswith("|---"):
            found.setdefault(heading, []).extend(re.findall(r"`([^`]+)`", line.split("|")[1]))
    return found


def expect_same(what, source, documented):
    assert source, what
    assert source == documented, f"docs/operations.md and the {what} differ: {sorted(source ^ documented)}"


def made_to_happen(recipes):
    """Returns the recipes of tests/e2e/errors*_test.py, which compare them with the programs'
    output."""
    tests = sorted((ROOT / "tests/e2e").glob("errors*_test.py"))
    assert tests
    literals = {literal for test in tests for literal in LITERAL.findall(test.read_text())}
    return recipes & literals


def elsewhere(found):
    """Returns the recipes that other tests expect. Each has a literal that is a part of its
    text."""
    texts = {}
    for test, expected in recipes_seen.ELSEWHERE.items():
        body = (ROOT / "tests" / test).read_text()
        for recipe, literal in expected.items():
            assert recipe not in texts, f"tests/recipes_seen.py has {recipe!r} twice"
            assert literal in body, \
                f"tests/{test} does not expect {literal!r} any more: which test makes {recipe!r} happen? (tests/recipes_seen.py)"
            fixed = max(re.split(r"\d[\d.]*", literal), key=len)
            assert any(is_part_of(recipe, text) and fixed in text for text in found), \
                f"tests/recipes_seen.py: {literal!r} is in no text that has {recipe!r}"
            texts[recipe] = test
    return set(texts)


def check_seen(recipes, found):
    kinds = {"in tests/e2e/errors*_test.py": made_to_happen(recipes), "in another test": elsewhere(found),
             "not made to happen": set(recipes_seen.NOT_MADE)}
    for recipe in sorted(recipes):
        places = [kind for kind, those in kinds.items() if recipe in those]
        assert places, f"no test makes {recipe!r} happen; tests/recipes_seen.py may say where, or why not"
        assert len(places) == 1, f"{recipe!r} is {' and '.join(places)}: tests/recipes_seen.py must not have it, too"
    unknown = set.union(*kinds.values()) - recipes
    assert not unknown, f"tests/recipes_seen.py has texts without a recipe: {sorted(unknown)}"
    return [len(those) for those in kinds.values()]


def main():
    operations = (ROOT / "docs/operations.md").read_text()
    recipes = tables(operations)
    header = (ROOT / "include/ina/ina.h").read_text()
    expect_same("statuses", set(re.findall(r"^  (INA_ERR_\w+) = ", header, re.MULTILINE)), set(recipes["Status"]))

    found = list(errors())
    lacking = sorted({f"{path}: {text}" for path, text in found
                      if not any(is_part_of(recipe, text) for recipe in recipes["Text"])})
    everything = [said(text) for _, text in sources()]
    stale = [recipe for recipe in recipes["Text"] if not any(is_part_of(recipe, text) for text in everything)]
    assert len(found) > 100, found
    assert not lacking, "docs/operations.md has no recipe for:\n" + "\n".join(lacking)
    assert not stale, f"docs/operations.md has recipes for texts that there are not: {stale}"

    texts = set(recipes["Text"])
    run, other, never = check_seen(texts, everything)
    counts = f"make {run} of the {len(texts)} texts below happen with the real programs, other tests {other}."
    left = f"the other {never} why"
    said_there = " ".join(operations.split())
    assert counts in said_there and left in said_there, f"docs/operations.md must say: {counts} … {left}"


if __name__ == "__main__":
    main()
