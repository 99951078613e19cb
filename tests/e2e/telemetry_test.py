#!/usr/bin/env python3
"""DPDK's telemetry socket of a running switch, read by Debian's dpdk-telemetry.py.

    telemetry_test.py INA_SWITCHD LOAD_WORKER
"""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

from waiting import DEADLINE_S, wait_until  # noqa: E402

CONFIG = """\
aggregator: {{slots: 512, slot_bytes: 1024, policy: esa}}
eal: {{huge: no, telemetry: true, file_prefix: {prefix}}}
ports:
- {{name: shm0, type: shm}}
- {{name: again, type: ethdev, ip: 10.77.0.254, device: "net_pcap0,rx_pcap={pcap},infinite_rx=1"}}
log: {{level: warning}}
"""
# The driver keeps buffers with these frames, and gives copies of them for ever.
FRAMES = 5


def ask(prefix, *questions):
    """Returns the answers of dpdk-telemetry.py; nothing while there is no switch."""
    done = subprocess.run(["dpdk-telemetry.py", "-f", prefix], input="".join(f"{q}\n" for q in questions),
                          text=True, capture_output=True, timeout=DEADLINE_S, check=False)
    answers = []
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            answers.append(json.loads(line))
    return answers[-len(questions):] if len(answers) >= len(questions) else None


def check(prefix, socket, load_worker, started):
    # DPDK's socket is open before the conductor answers: until then the figures are null.
    wait_until("an answer", lambda: (now := ask(prefix, "/ina/info")) and now[0]["/ina/info"])
    used = ask(prefix, "/ina/mbufs")[0]["/ina/mbufs"]
    # Ports may be opened again, so the names of their pools have a number at the end.
    of_port = {name.rpartition("_")[0]: count for name, count in used.items()}
    assert set(of_port) == {"ina_rx0", "ina_tx0"} and of_port["ina_rx0"] >= FRAMES and of_port["ina_tx0"] == 0, used
    info, jobs = ask(prefix, "/ina/info", "/ina/job/list")
    assert info["/ina/info"]["aggregator"]["slots"] == 512, info
    assert info["/ina/info"]["jobs"] == 0 and jobs["/ina/job/list"] == [], (info, jobs)
    for rank in range(2):
        started.append(subprocess.Popen([load_worker, f"shm:{socket}", 'a "name"', str(rank), "2", "4096", "-1",
                                         "1"], stdout=subprocess.DEVNULL))
    ids = wait_until("a job", lambda: ask(prefix, "/ina/job/list")[0]["/ina/job/list"])
    assert len(ids) == 1, ids

    def stats():
        return ask(prefix, f"/ina/job/stats,{ids[0]}")[0]["/ina/job/stats"]

    first = wait_until("sums", lambda: (now := stats())["results"] > 100 and now)
    assert (first["name"], first["state"], first["joined"]) == ('a "name"', "running", [0, 1]), first
    wait_until("more sums", lambda: stats()["results"] > first["results"])
    for wrong in ("999999", "x", ""):
        assert ask(prefix, f"/ina/job/stats,{wrong}") == [{"/ina/job/stats": None}], wrong
    started[-2].terminate()
    assert [worker.wait(DEADLINE_S) for worker in started[-2:]] == [0, 0]


def main(program, load_worker):
    if not shutil.which("dpdk-telemetry.py"):
        sys.exit("dpdk-telemetry.py is missing: ./dev setup installs it (packages-tests.txt)")
    prefix = f"ina-telemetry-{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="ina-telemetry-") as name:
        config = pathlib.Path(name) / "switchd.yaml"
        pcap = pathlib.Path(name) / "frames.pcap"
        frame = bytes.fromhex("027700000001 027700000002 88b5") + bytes(46)
        pcap.write_bytes(struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
                         + FRAMES * (struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame))
        config.write_text(CONFIG.format(prefix=prefix, pcap=pcap))
        socket = f"{name}/switch.sock"
        started = [subprocess.Popen([program, "--config", config, "--socket", socket])]
        try:
            check(prefix, socket, load_worker, started)
            started[0].terminate()
            assert started[0].wait(DEADLINE_S) == 0
        finally:
            for process in started:
                process.kill()
                process.wait()
    runtime = pathlib.Path("/var/run" if os.getuid() == 0 else os.environ.get("XDG_RUNTIME_DIR", "/tmp"))
    assert not (runtime / "dpdk" / prefix).exists()


if __name__ == "__main__":
    main(*sys.argv[1:])
