#!/usr/bin/env python3
"""Holds docs/protocol.md to the code: protocol_doc_test.py GOLDEN_PCAP PROTOCOL_MD SOURCE_FOLDER

The worked example must be the first frame that the codec writes; every drop reason, message type and
value of an enumeration must be there; every header offset must be the one of the codec.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

PCAP_HEADER_BYTES = 24
RECORD_HEADER_BYTES = 16


def first_frame(generator):
    with tempfile.TemporaryDirectory() as folder:
        pcap = pathlib.Path(folder, 'golden.pcap')
        subprocess.run([generator, str(pcap)], check=True, timeout=60)
        data = pcap.read_bytes()[PCAP_HEADER_BYTES:]
    length = int.from_bytes(data[8:12], sys.byteorder)
    return data[RECORD_HEADER_BYTES:RECORD_HEADER_BYTES + length]


def documented_frame(text):
    return bytes.fromhex(re.search(r'```hex\n(.*?)```', text, re.S).group(1))


def table_rows(section):
    """Cells of the rows of the tables in a section, without markup."""
    return [[cell.strip().strip('`*') for cell in line.strip('|').split('|')]
            for line in section.splitlines() if line.startswith('|')]


def section(text, title):
    return re.search(rf'^## {title}\n(.*?)(?=^## |\Z)', text, re.S | re.M).group(1)


def main():
    generator, document, source = sys.argv[1:]
    text = pathlib.Path(document).read_text(encoding='utf-8')

    def read(name):
        return pathlib.Path(source, name).read_text(encoding='utf-8')

    wrong = []

    if documented_frame(text) != first_frame(generator):
        wrong.append('the worked example is not what the codec writes')

    groups = {}
    for line in read('wire/drop_reason.h').splitlines():
        if heading := re.match(r'\s*/\* (\w+)', line):
            group = heading.group(1)
        elif entry := re.match(r'\s*X\(k\w+, "(\w+)"', line):
            groups[entry.group(1)] = group
    documented = {row[0]: row[1] for row in table_rows(section(text, 'Errors'))}
    if not groups:
        wrong.append('found no drop reasons in wire/drop_reason.h')
    for reason, group in groups.items():
        if documented.get(reason) != group:
            wrong.append(f'drop reason {reason} of group {group} is not in the table')

    types = re.findall(r'return "([A-Z]+)";', read('wire/message.cc'))
    documented = [(row[0], row[1]) for row in table_rows(section(text, 'Message types'))[2:]]
    if documented != [(str(i), name) for i, name in enumerate(types, start=1)]:
        wrong.append('the message types are not those of wire/message.cc, in order')

    offsets = dict(re.findall(r'offsetof\(InaHeader, (\w+)\) == (\d+)', read('wire/frame.cc')))
    documented = {row[2]: row[0] for row in table_rows(section(text, 'INA header'))
                  if row[0].isdigit()}
    if not offsets or documented != offsets:
        wrong.append(f'header offsets are {documented}, in the codec {offsets}')

    # Where the codec is held to it.
    tag = re.search(r'the tag of the\nexample below is (0x[0-9a-f]{16})', text)
    if not tag or tag.group(1) not in read('tests/wire/frame_test.cc'):
        wrong.append('the tag of the worked example is not the one in tests/wire/frame_test.cc')

    print('\n'.join(wrong) or 'docs/protocol.md agrees with the code')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
