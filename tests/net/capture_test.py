"""Captures of a run that loses frames: Wireshark's dissector shows each frame as the codec reads
it, and a port on capture files takes them again.

    capture_test.py INA_SWITCHD INACTL LOAD_WORKER DECODE_PCAP INA_LUA
"""

import collections
import csv
import io
import json
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

import namespaces
from namespaces import DEADLINE_S, NetworkTestBed, wait_until

INA_SWITCHD, INACTL, LOAD_WORKER, DECODE_PCAP, INA_LUA = sys.argv[1:6]
TYPES = ("GRAD PART RESULT QUERY POLL SENT NOTYET HAVE DEFER REMIND PARK PARKED STALE").split()
# Messages of the workers, where the fallback is, while slots are few and frames are lost. (HAVE
# occurs only by chance, since the switch repeats lost results; tests/wire has one.)
EXPECTED_TYPES = {"GRAD", "PART", "RESULT", "QUERY", "POLL", "SENT"}
PCAP_HEADER, RECORD_HEADER = struct.Struct("<IHHIIII"), struct.Struct("<IIII")


def rows(text):
    return list(csv.DictReader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE))


def frames_of(path):
    data = path.read_bytes()
    at, frames = PCAP_HEADER.size, []
    while at < len(data):
        captured = RECORD_HEADER.unpack_from(data, at)[2]
        at += RECORD_HEADER.size
        frames.append(data[at:at + captured])
        at += captured
    return frames


class Capture:
    """The frames that a host sends and receives, in a pcap file."""

    def __init__(self, host, path):
        self.path = path
        self.process = host.start("dumpcap", "-q", "-P", "-i", "eth0", "-w", path,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if line.startswith("File:"):
                return
        raise RuntimeError(f"dumpcap ended with {self.process.wait()}")

    def end(self):
        self.process.terminate()
        self.process.communicate(timeout=DEADLINE_S)


def lose_frames(host):
    """Drops 3 in 100 frames on the way to the host. Frames that the host sends are not dropped,
    because the capture must have them."""
    host.run("nft", "add", "table", "ip", "loss")
    host.run("nft", "add chain ip loss input { type filter hook input priority 0; }")
    host.run("nft", "add rule ip loss input udp sport 7584-7599 numgen random mod 100 < 3 drop")


class CaptureTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="ina-capture-")
        cls.addClassCleanup(cls.folder.cleanup)
        folder = pathlib.Path(cls.folder.name)
        with NetworkTestBed(3) as bed:
            bed.start_switch(INA_SWITCHD, folder, "aggregator: {policy: esa, slots: 16}\n"
                                                  "fallback: {home: workers}\n")
            captures = [Capture(host, folder / f"{host.number}.pcap") for host in bed.hosts]
            bed.hosts[0].ping(bed.hosts[1].ip)
            for host in bed.hosts:
                lose_frames(host)
            workers = [host.start(LOAD_WORKER, bed.url("udp", host.number), "capture", host.number,
                                  3, 5_000, 50, stdout=subprocess.PIPE, text=True)
                       for host in bed.hosts]
            for worker in workers:
                said = worker.communicate(timeout=DEADLINE_S)[0]
                assert said.startswith("INA_OK"), said
            for capture in captures:
                capture.end()
            cls.switch_ip, cls.prefix = bed.switch_ip, bed.switch.name
        cls.captures = [capture.path for capture in captures]

    def test_wireshark_shows_what_the_codec_reads(self):
        types = collections.Counter()
        for path in self.captures:
            expected = rows(namespaces.run(DECODE_PCAP, path))
            self.assertGreater(len(expected), 100)
            more = ["ina.crc32c.good", "ina.crc32c.bad", "ina.truncated", "ina.version.unknown",
                    "_ws.malformed"]
            fields = [word for field in [*expected[0], *more] for word in ("-e", field)]
            shown = rows(namespaces.run(
                "tshark", "-X", f"lua_script:{INA_LUA}", "-r", path, "-Y", "ina", "-T", "fields",
                "-E", "header=y", "-E", "separator=/t", "-E", "occurrence=a", *fields))
            self.assertEqual(len(shown), len(expected))
            for number, (row, right) in enumerate(zip(shown, expected)):
                sound = {"ina.crc32c.good": "1"} | dict.fromkeys(more[1:], "")
                self.assertEqual(row, right | sound, f"{path.name}: INA frame {number}")
                types[TYPES[int(row["ina.type"]) - 1]] += 1
        self.assertEqual(EXPECTED_TYPES - set(types), set(), types)

    def test_a_port_takes_a_capture_again_and_another_captures_what_it_sends(self):
        folder = pathlib.Path(self.folder.name)
        sent = [folder / "sent0.pcap", folder / "sent1.pcap"]
        empty = folder / "empty.pcap"
        empty.write_bytes(self.captures[0].read_bytes()[:PCAP_HEADER.size])
        devices = [f"net_pcap{number},rx_pcap={received},tx_pcap={sent[number]}"
                   for number, received in enumerate((self.captures[0], empty))]
        config = folder / "replay.yaml"
        log = folder / "replay.log"
        control = folder / "replay.sock"
        ports = "".join(f'  - {{name: pcap{number}, type: ethdev, ip: {self.switch_ip}, '
                        f'device: "{device}"}}\n' for number, device in enumerate(devices))
        config.write_text(f"log: {{file: {log}}}\ncontrol: {{socket: {control}}}\n"
                          f"eal: {{file_prefix: {self.prefix}-replay, huge: no}}\n"
                          f"bridge: {{storm_limit_frames_per_s: 1000000}}\nports:\n{ports}",
                          encoding="utf-8")
        replayed = frames_of(self.captures[0])
        to_switch = [frame for frame in replayed if frame[12:14] == b"\x08\x00" and
                     socket.inet_ntoa(frame[30:34]) == self.switch_ip]
        with subprocess.Popen([INA_SWITCHD, "--config", config]) as daemon:
            try:
                def status():
                    said = subprocess.run([INACTL, "status", "--json", "--socket", control],
                                          capture_output=True, text=True, check=False)
                    return json.loads(said.stdout) if said.returncode == 0 else None
                wait_until("the capture to be read",
                           lambda: (now := status()) and
                           now["ports"][0]["rx_packets"] == len(replayed))
                first, second = status()["ports"]
            finally:
                daemon.terminate()
        self.assertEqual(daemon.returncode, 0, log.read_text(encoding="utf-8"))
        # The switch does not know the workers now. It forwards frames that ask for other hosts.
        self.assertEqual(first["drops"]["unknown_source"], len(to_switch))
        self.assertGreater(len(to_switch), 100)
        passed_on = frames_of(sent[1])
        self.assertEqual(len(passed_on), first["flooded"] + first["forwarded"])
        self.assertEqual(len(passed_on), second["bridged_sent"])
        self.assertGreater(len(passed_on), 0)
        self.assertEqual(set(passed_on) - set(replayed), set(), "frames leave as they came")
        # Only answers to ARP were sent back.
        self.assertEqual(len(frames_of(sent[0])), first["answered"])


if __name__ == "__main__":
    namespaces.require_root()
    if shutil.which("tshark") is None:
        print("skipped: tshark is not installed")
        sys.exit(namespaces.SKIPPED)
    unittest.main(argv=[sys.argv[0], *sys.argv[6:]], verbosity=2)
