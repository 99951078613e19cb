#!/usr/bin/env python3
"""Checks Wireshark's view of the golden frames: wireshark_test.py GOLDEN_PCAP INA_LUA

The expected values are written here, apart from the codec that wrote the frames and from the
dissector that reads them. Exits with 77 (skipped) without tshark.
"""

import csv
import io
import pathlib
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77

GRAD = {
    'eth.src': '02:00:00:00:00:03', 'eth.dst': '02:00:00:00:00:0a',
    'ip.src': '10.0.0.3', 'ip.dst': '10.0.0.10', 'ip.ttl': '64', 'ip.checksum.status': '1',
    'udp.srcport': '40003', 'udp.dstport': '7585', '_ws.col.Protocol': 'INA',
    '_ws.col.Info': 'GRAD job 7 epoch 3 seq 4097 rank 2, operation 12',
    'ina.magic': 'IN', 'ina.version': '2', 'ina.type': '1', 'ina.job': '7',
    'ina.job_key': '0x1122334455667788', 'ina.epoch': '3', 'ina.seq': '4097',
    'ina.bitmap': '0x0000000000000004', 'ina.bitmap.workers': '1',
    'ina.operation_elements': '772', 'ina.operation': '12', 'ina.elements': '4',
    'ina.dtype': '4', 'ina.op': '1', 'ina.rank': '2', 'ina.priority': '5', 'ina.origin': '0',
    'ina.phase': '0', 'ina.flags': '0x0000', 'ina.flags.overflow': '0', 'ina.flags.ecn': '0',
    'ina.flags.raw': '0', 'ina.flags.split': '0', 'ina.flags.full': '0', 'ina.lane': '1', 'ina.collective': '1', 'ina.instance': '0',
    'ina.crc32c': '0xd9c229eb', 'ina.crc32c.good': '1', 'ina.tag': '0x0000000000000000',
    'ina.payload': '0000803f000020c00000003f00008044', 'ina.element.float': '1,-2.5,0.5,1024',
    'ina.crc32c.bad': '', 'ina.version.unknown': '', '_ws.malformed': '',
}
EVERY_FIELD = {
    'udp.srcport': '40003', 'udp.dstport': '7599', '_ws.col.Protocol': 'INA',
    'ina.magic': 'IN', 'ina.version': '2', 'ina.type': '9', 'ina.job': str(0x01020304),
    'ina.job_key': '0x1112131415161718', 'ina.epoch': str(0x21222324), 'ina.seq': str(0x31323334),
    'ina.bitmap': '0x4142434445464748', 'ina.bitmap.workers': '21',
    'ina.operation_elements': str(0x5152535455565758), 'ina.operation': str(0x61626364),
    'ina.elements': '3', 'ina.dtype': '7', 'ina.op': '4', 'ina.rank': '42',
    'ina.priority': '254', 'ina.origin': '2', 'ina.phase': '1', 'ina.receiver': '60', 'ina.flags': '0x0006',
    'ina.flags.overflow': '0', 'ina.flags.ecn': '1', 'ina.flags.raw': '1', 'ina.lane': '15',
    'ina.collective': '1', 'ina.instance': str(0x71727374), 'ina.crc32c': '0xdfba762b',
    'ina.crc32c.good': '1', 'ina.tag': '0x8182838485868788', 'ina.payload': '003c00400044',
    'ina.element.bits': '0x3c00,0x4000,0x4400', '_ws.malformed': '',
}
RESULT = {
    '_ws.col.Protocol': 'INA', 'ina.type': '3', 'ina.origin': '1', 'ina.flags': '0x0001',
    'ina.flags.overflow': '1', 'ina.flags.ecn': '0', 'ina.dtype': '1', 'ina.crc32c.good': '1',
    'ina.payload': '01080f', 'ina.element.int': '1,8,15', '_ws.malformed': '',
}
STALE = {
    'udp.srcport': '7584', 'udp.dstport': '40001', '_ws.col.Protocol': 'INA', 'ina.type': '13',
    'ina.crc32c.good': '1', 'ina.payload': '', '_ws.malformed': '',
}
WRONG_CRC = {
    'ina.type': '1', 'ina.crc32c.good': '0',
    'ina.crc32c.bad': '1',
}
NOT_INA = {'_ws.col.Protocol': 'UDP', 'ina.magic': '', 'ina.type': '', '_ws.malformed': ''}
UNKNOWN_VERSION = {
    'ina.version': '3', 'ina.type': '', 'ina.version.unknown': '1', '_ws.malformed': '',
}
PART_OF_INT8 = {
    'ina.type': '2', 'ina.dtype': '1', 'ina.payload': 'fefffffff4010000',
    'ina.element.int': '-2,500', '_ws.malformed': '',
}
HAVE_BFLOAT16 = {'ina.type': '8', 'ina.dtype': '6', 'ina.element.float': '1,-2.5'}
INT64 = {'ina.dtype': '3', 'ina.element.int': '-9223372036854775808,7'}
FLOAT64 = {'ina.dtype': '5', 'ina.element.float': '0.1'}
UINT8 = {'ina.dtype': '8', 'ina.op': '8', 'ina.element.int': '255,7', '_ws.malformed': ''}
PART_OF_UINT8 = {'ina.type': '2', 'ina.dtype': '8', 'ina.element.int': '300,1'}
BOOL = {'ina.dtype': '9', 'ina.op': '5', 'ina.element.int': '1,0', '_ws.malformed': ''}
EXPECTED = [GRAD, EVERY_FIELD, RESULT, STALE, WRONG_CRC, NOT_INA, UNKNOWN_VERSION, PART_OF_INT8,
            HAVE_BFLOAT16, INT64, FLOAT64, UINT8, PART_OF_UINT8, BOOL]


def dissect(pcap, lua, fields):
    """Returns rows of {field: text} as tshark shows them, one for each frame."""
    command = ['tshark', '-X', f'lua_script:{lua}', '-r', str(pcap), '-T', 'fields',
               '-E', 'header=y', '-E', 'separator=/t', '-E', 'occurrence=a',
               '-E', 'aggregator=,', '-o', 'ip.check_checksum:TRUE']
    for field in fields:
        command += ['-e', field]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        sys.exit(f'tshark failed:\n{done.stderr}')
    if 'ina.lua' in done.stderr or 'Lua Error' in done.stdout:
        sys.exit(f'the dissector failed:\n{done.stderr}\n{done.stdout}')
    return list(csv.DictReader(io.StringIO(done.stdout), delimiter='\t', quoting=csv.QUOTE_NONE))


def main():
    generator, lua = sys.argv[1:]
    if shutil.which('tshark') is None:
        print('skipped: tshark is not installed')
        return SKIPPED
    fields = sorted({field for frame in EXPECTED for field in frame})
    with tempfile.TemporaryDirectory() as folder:
        pcap = pathlib.Path(folder, 'golden.pcap')
        subprocess.run([generator, str(pcap)], check=True, timeout=600)
        rows = dissect(pcap, lua, fields)
    wrong = [] if len(rows) == len(EXPECTED) else [f'{len(rows)} frames, not {len(EXPECTED)}']
    for number, (row, expected) in enumerate(zip(rows, EXPECTED), start=1):
        wrong += [f'frame {number}: {field} is {row[field]!r}, not {value!r}'
                  for field, value in expected.items() if row[field] != value]
    print('\n'.join(wrong) or f'{sum(map(len, EXPECTED))} values of {len(rows)} frames are right')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
