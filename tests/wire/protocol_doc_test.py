#!/usr/bin/env python3
"""Compares docs/protocol.md with the code: protocol_doc_test.py GOLDEN_PCAP PROTOCOL_MD
SOURCE_FOLDER

The worked example must be the first frame that the codec writes. Every drop reason, message type,
data type, operation and header offset must be that of the code, and so must the number of lanes,
the ports and the names of the Wireshark dissector, and the control messages and their fields.
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
        subprocess.run([generator, str(pcap)], check=True, timeout=600)
        data = pcap.read_bytes()[PCAP_HEADER_BYTES:]
    length = int.from_bytes(data[8:12], sys.byteorder)
    return data[RECORD_HEADER_BYTES:RECORD_HEADER_BYTES + length]


def documented_frame(text):
    return bytes.fromhex(re.search(r'```hex\n(.*?)```', text, re.S).group(1))


def table_rows(section):
    """Returns the cells of the rows of the tables in a section, without markup."""
    return [[cell.strip().strip('`*') for cell in line.strip('|').split('|')]
            for line in section.splitlines() if line.startswith('|')]


def section(text, title):
    return re.search(rf'^## {title}\n(.*?)(?=^## |\Z)', text, re.S | re.M).group(1)


def check_frames(text, read, generator):
    if documented_frame(text) != first_frame(generator):
        yield 'the worked example is not what the codec writes'
    offsets = dict(re.findall(r'offsetof\(InaHeader, (\w+)\) == (\d+)', read('wire/frame.cc')))
    documented = {row[2].replace('`, `', '_'): row[0]
                  for row in table_rows(section(text, 'INA header')) if row[0].isdigit()}
    if not offsets or documented != offsets:
        yield f'header offsets are {documented}, in the codec {offsets}'
    # Another test compares the codec with this tag.
    tag = re.search(r'the tag of the\nexample below is (0x[0-9a-f]{16})', text)
    if not tag or tag.group(1) not in read('tests/wire/frame_test.cc'):
        yield 'the tag of the worked example is not the one in tests/wire/frame_test.cc'


def check_names(text, read):
    groups = {}
    for line in read('wire/drop_reason.h').splitlines():
        if heading := re.match(r'\s*/\* (\w+)', line):
            group = heading.group(1)
        elif entry := re.match(r'\s*X\(k\w+, "(\w+)"', line):
            groups[entry.group(1)] = group
    documented = {row[0]: row[1] for row in table_rows(section(text, 'Errors'))}
    if not groups:
        yield 'found no drop reasons in wire/drop_reason.h'
    for reason, group in groups.items():
        if documented.get(reason) != group:
            yield f'drop reason {reason} of group {group} is not in the table'
    types = re.findall(r'return "([A-Z]+)";', read('wire/message.cc'))
    documented = [(row[0], row[1]) for row in table_rows(section(text, 'Message types'))[2:]]
    if documented != [(str(i), name) for i, name in enumerate(types, start=1)]:
        yield 'the message types are not those of wire/message.cc, in order'


def check_values(text, read):
    values = {row[0]: row[1] for row in table_rows(section(text, 'INA header')) if len(row) == 2}
    for field, enumeration in (('dtype', 'DType'), ('op', 'Op')):
        enumerators = re.search(rf'enum class {enumeration} : uint8_t \{{(.*?)\}};', read('wire/types.h'), re.S)
        named = dict(re.findall(rf'case {enumeration}::(\w+):\s+return "(\w+)";',
                                read('wire/message.cc')))
        in_order = re.findall(r'\b(k\w+)(?= = 1|,|\s*$)', enumerators.group(1), re.M)
        numbered = [(str(i), named[enumerator]) for i, enumerator in enumerate(in_order, start=1)]
        if re.findall(r'(\d+) (\w+)', values[field])[:len(numbered)] != numbered:
            yield f'the values of {field} are not those of wire/types.h: {numbered}'
        dissected = ''.join(read('wire/wireshark/ina.lua').split(f'local {field.upper()}S = {{')[1:])
        if re.findall(r'\[(\d+)\] = "(\w+)"', dissected.split('}')[0]) != numbered:
            yield f'the values of {field} in the dissector are not those of wire/types.h'


def check_lanes(text, read):
    lanes = int(re.search(r'"switch", "lcores", "cores", 1, (\d+)', read('switchd/config/keys.cc')).group(1))
    first = int(re.search(r'kDefaultUdpPort = (\d+)', read('wire/frame.h')).group(1))
    last = first + lanes - 1
    for title, words in (('Lanes', f'A switch has 1 to {lanes} lanes'),
                         ('Lanes', f'take {first} to {last}'),
                         ('Wireshark', f'UDP ports {first} to {last}')):
        if words not in section(text, title):
            yield f'section {title} does not say "{words}"'
    if f'FIRST_PORT, LAST_PORT = {first}, {last}' not in read('wire/wireshark/ina.lua'):
        yield f'the dissector does not take the ports {first} to {last}'


def check_control(text, read):
    control = section(text, 'Control socket')
    documented = {row[1] for row in table_rows(control)[2:]}
    named = set(re.findall(r'kType = "(\w+)"', read('control/messages.h')))
    if not named:
        yield 'found no control messages in control/messages.h'
    for message in sorted(named - documented):
        yield f'the control message {message} is not in the table'
    for message in sorted(documented - named):
        yield f'the control message {message} of the table is not in control/messages.h'
    fields = re.findall(r'(?:required|defaulted|given|optional|nullable|time|known_of_group)\("(\w+)",',
                        read('control/messages.cc'))
    for field in sorted({'channel', *fields}):
        if not re.search(rf'\b{field}\b', control):
            yield f'the field {field} of control messages is not in section Control socket'


def main():
    generator, document, source = sys.argv[1:]
    text = pathlib.Path(document).read_text(encoding='utf-8')

    def read(name):
        return pathlib.Path(source, name).read_text(encoding='utf-8')

    wrong = [*check_frames(text, read, generator), *check_names(text, read), *check_values(text, read),
             *check_lanes(text, read), *check_control(text, read)]
    print('\n'.join(wrong) or 'docs/protocol.md agrees with the code')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
