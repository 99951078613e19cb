#!/usr/bin/env python3
"""Writes the manual page of a program (man macros) from its --help.

    make_manual.py NAME SECTION VERSION SEE_ALSO PROGRAM [ARGUMENT...]

SEE_ALSO: pages, separated by commas, e.g. "inactl(1),ina-switchd.yaml(5)". The program and its
arguments are run with --help. If the output lists subcommands, each is run with --help, too,
recursively.
"""

import dataclasses
import datetime
import os
import re
import subprocess
import sys

USAGE = re.compile(r"^usage: ?", re.IGNORECASE)
HEADING = re.compile(r"^(\S[^.:]*):$")
ENTRY = re.compile(r"^ {2}(\S.*?)(?:\s{2,}(.*))?$")
CONTINUED = re.compile(r"^ {16,}(\S.*)$")


@dataclasses.dataclass
class Entry:
    term: str
    text: str = ""

    def add(self, more):
        self.text = f"{self.text} {more}".strip()


@dataclasses.dataclass
class Help:
    usage: str = ""
    paragraphs: list = dataclasses.field(default_factory=list)
    sections: dict = dataclasses.field(default_factory=dict)  # heading: entries


def parse(text):
    """Returns the parts of a help text: usage, paragraphs, and entries in two columns below
    headings."""
    found = Help()
    entries = None  # of the current section
    paragraph = []

    def end_paragraph():
        if paragraph:
            found.paragraphs.append(list(paragraph))
            paragraph.clear()

    for line in text.splitlines():
        if not line.strip():
            end_paragraph()
            continue
        if USAGE.match(line) and not found.usage:
            end_paragraph()
            found.usage = USAGE.sub("", line)
        elif heading := HEADING.match(line):
            end_paragraph()
            entries = found.sections.setdefault(heading.group(1).lower(), [])
        elif entries is not None and entries and (more := CONTINUED.match(line)):
            entries[-1].add(more.group(1))
        elif entries is not None and (entry := ENTRY.match(line)):
            entries.append(Entry(entry.group(1), entry.group(2) or ""))
        else:
            entries = None
            paragraph.append(line)
    end_paragraph()
    return found


def escape(text):
    """Escapes a text for roff: it contains no requests and no escapes, and its hyphens can be
    copied."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def paragraph_roff(lines):
    if all(line.startswith("    ") for line in lines):
        return [".PP", ".RS", ".nf", *(escape(line[4:]) for line in lines), ".fi", ".RE"]
    return [".PP", *(escape(line.strip()) for line in lines)]


def entries_roff(entries):
    lines = []
    for entry in entries:
        lines += [".TP", f".B {escape(entry.term)}", escape(entry.text) or "\\&"]
    return lines


def help_of(command):
    done = subprocess.run([*command, "--help"], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, check=True, env=os.environ | {"COLUMNS": "100"})
    return parse(done.stdout)


def summary_of(help_text):
    """Returns the first sentence, for apropos."""
    text = " ".join(line.strip() for line in help_text.paragraphs[0])
    sentence = re.split(r"(?<=[.:]) ", text)[0].rstrip(".")
    return sentence[:1].lower() + sentence[1:]


def usage_roff(name, usage):
    """Returns the usage without the program's path."""
    words = usage.split()
    return [f".B {escape(name)}", escape(" ".join(words[len(name.split()):]))]


def commands_roff(name, command, entries):
    """Returns a section for each subcommand of `entries`. A subcommand that only groups others is
    replaced by them."""
    lines = []
    for entry in entries:
        own = help_of([*command, entry.term])
        full = f"{name} {entry.term}"
        if below := own.sections.get("subcommands"):
            lines += commands_roff(full, [*command, entry.term], below)
            continue
        # The usage contributes the words after the command.
        lines += [f".SS {escape(' '.join(full.split()[1:]))}", *usage_roff(full, own.usage)]
        for paragraph in own.paragraphs:
            lines += paragraph_roff(paragraph)
        for own_entries in own.sections.values():
            lines += entries_roff([e for e in own_entries if not e.term.startswith("-h,")])
    return lines


def page(name, section, version, see_also, command):
    said = help_of(command)
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    now = datetime.datetime.now(datetime.timezone.utc)
    date = datetime.datetime.fromtimestamp(int(epoch), datetime.timezone.utc) if epoch else now
    lines = [f'.TH "{name.upper()}" "{section}" "{date:%Y-%m-%d}" "INA {version}" "INA"',
             ".SH NAME", f"{escape(name)} \\- {escape(summary_of(said))}",
             ".SH SYNOPSIS", *usage_roff(name, said.usage), ".SH DESCRIPTION"]
    exit_status = []
    for index, paragraph in enumerate(said.paragraphs):
        if paragraph[0].startswith("Exit status:"):
            exit_status = [paragraph[0].removeprefix("Exit status:").strip(), *paragraph[1:]]
            continue
        roff = paragraph_roff(paragraph)
        lines += roff[1:] if index == 0 else roff
    for heading, entries in said.sections.items():
        if heading == "subcommands":
            lines += [".SH COMMANDS", *commands_roff(name, command, entries)]
        else:
            title = "ARGUMENTS" if "positional" in heading else heading.upper()
            lines += [f".SH {escape(title)}", *entries_roff(entries)]
    if exit_status:
        lines += [".SH EXIT STATUS", *(escape(line.strip()) for line in exit_status)]
    lines.append(".SH SEE ALSO")
    pages = [re.fullmatch(r"(.+)\((\w+)\)", page).groups() for page in see_also.split(",")]
    for index, (other, number) in enumerate(pages):
        comma = "," if index + 1 < len(pages) else ""
        lines.append(f'.BR {escape(other)} ({number}){comma}')
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if len(sys.argv) < 6:
        sys.exit(__doc__)
    print(page(*sys.argv[1:5], sys.argv[5:]), end="")
