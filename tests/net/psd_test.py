"""The fallback server on a host of its own: ina-psd behind an Ethernet port of the switch, workers on
other hosts.

    psd_test.py INA_SWITCHD INACTL LOAD_WORKER INA_PSD
"""

import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import namespaces
import second_worker
from namespaces import DEADLINE_S, NetworkTestBed, wait_until

INA_SWITCHD, INACTL, LOAD_WORKER, INA_PSD = sys.argv[1:5]
SERVER = 2  # the server's host
FALLBACK_RANK = 64
SEND = """
import socket, sys
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.sendto(bytes.fromhex(sys.argv[3]), (sys.argv[1], int(sys.argv[2])))
"""


class PsdTest(unittest.TestCase):
    def bed(self, more="aggregator: {policy: esa, slots: 16}\n"):
        """Returns a bed with two hosts for workers, and one for the server."""
        folder = tempfile.TemporaryDirectory(prefix="ina-psd-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.more = f"{more}fallback: {{home: dedicated}}\n"
        bed = NetworkTestBed(3)
        self.addCleanup(bed.close)
        bed.start_switch(INA_SWITCHD, self.folder, self.more)
        return bed

    def start_server(self, bed, **options):
        return bed.hosts[SERVER].start(INA_PSD, "--url", bed.url("udp", SERVER),
                                       **({"stderr": subprocess.DEVNULL} | options))

    def start_workers(self, bed, times, job="job"):
        return [bed.hosts[rank].start(LOAD_WORKER, bed.url("udp", rank), job, rank, 2, 20_000, times,
                                      stdout=subprocess.PIPE, text=True) for rank in range(2)]

    def finish(self, workers):
        for worker in workers:
            text = worker.communicate(timeout=DEADLINE_S)[0]
            self.assertTrue(text.startswith("INA_OK"), text)

    def fallback_results(self, bed):
        return bed.status(INACTL)["aggregator"]["fallback_results"]

    def await_sums(self, bed):
        """Waits for sums that the server has completed."""
        before = self.fallback_results(bed)
        wait_until("sums of the server", lambda: self.fallback_results(bed) > before + 20)

    def epoch(self, bed):
        """Returns the job's epoch, once the job has a server."""
        def with_server():
            jobs = bed.status(INACTL)["jobs"]
            return jobs and not jobs[0]["fallback_missing"] and jobs[0]["epoch"]
        return wait_until("the server to attach", with_server)

    def test_every_policy_sums(self):
        for more in ("aggregator: {policy: fcfs, slots: 16}\n",
                     "aggregator: {policy: esa, slots: 16}\nswitch: {lcores: 2}\n",
                     "aggregator: {policy: esa, slots: 16}\nsecurity: {tag: siphash}\n"):
            with self.subTest(more=more):
                bed = self.bed(more)
                server = self.start_server(bed)
                # The server has a port of its own for each of the two jobs.
                self.finish(self.start_workers(bed, 5) + self.start_workers(bed, 5, "other"))
                self.assertGreater(self.fallback_results(bed), 0)
                wait_until("the jobs to end", lambda: not bed.status(INACTL)["jobs"])
                status = bed.status(INACTL)
                self.assertEqual(status["aggregator"]["slots_used"], 0)
                port = namespaces.check_books(status)[bed.port(SERVER)]
                self.assertGreater(port["delivered"], 0)
                self.assertNotIn("bad_tag", port["drops"])
                server.terminate()
                self.assertEqual(server.wait(DEADLINE_S), 0)
                bed.close()

    def test_the_server_is_killed_and_started_again(self):
        bed = self.bed()
        workers = self.start_workers(bed, -1)
        server = self.start_server(bed)
        epoch = self.epoch(bed)
        for _ in range(3):
            self.await_sums(bed)
            server.kill()
            server.wait(DEADLINE_S)
            server = self.start_server(bed)
            before, epoch = epoch, wait_until("a new epoch", lambda old=epoch: self.epoch(bed) > old
                                              and self.epoch(bed))
            self.assertGreater(epoch, before)
        self.await_sums(bed)
        workers[0].terminate()
        self.finish(workers)

    def test_the_switch_is_killed_and_started_again(self):
        bed = self.bed()
        workers = self.start_workers(bed, -1)
        self.start_server(bed)
        for _ in range(2):
            self.await_sums(bed)
            bed.daemon.kill()
            bed.daemon.wait(DEADLINE_S)
            bed.start_switch(INA_SWITCHD, self.folder, self.more)
        self.await_sums(bed)
        workers[0].send_signal(signal.SIGTERM)
        self.finish(workers)

    def test_nobody_else_speaks_in_its_name(self):
        bed = self.bed()
        self.start_server(bed)
        host = bed.hosts[0]
        worker = second_worker.Control(str(bed.socket))
        self.addCleanup(worker.socket.close)
        worker.send(type="join", version=1, library="test", job="job", rank=0, world_size=1,
                    window_bytes=0, transport="frame", port=bed.port(0),
                    address={"mac": list(bytes.fromhex(host.mac.replace(":", ""))),
                             "ip": 0x0A4D0001 + host.number, "udp_port": 9000})
        joined = worker.receive("joined")
        worker.send(type="attach")
        worker.receive("ready")
        forged = second_worker.encode(type=second_worker.REMIND, rank=FALLBACK_RANK, bitmap=1,
                                      job=joined["job_id"], job_key=joined["job_key"],
                                      epoch=joined["epoch"], instance=joined["epoch"])

        def drops(number):
            ports = {port["name"]: port for port in bed.status(INACTL)["ports"]}
            return ports[bed.port(number)]["drops"].get("unknown_source", 0)
        # The server's own host is no exception.
        for number in (0, SERVER):
            bed.hosts[number].run(sys.executable, "-c", SEND, bed.switch_ip,
                                  joined["address"]["udp_port"], forged.hex())
            wait_until("the frame to be dropped", lambda at=number: drops(at) == 1)

    def test_what_is_wrong_ends_it_with_a_reason(self):
        bed = self.bed()
        host = bed.hosts[SERVER]
        self.start_workers(bed, 1)
        wait_until("the job", lambda: bed.status(INACTL)["jobs"])
        for url, text in (
                (f"udp:{bed.switch_ip}?control={bed.socket}&port=port9",
                 "no Ethernet port named 'port9'"),
                (f"udp:{bed.switch_ip}?control={bed.socket}&port=port2&speed=9", "speed"),
                (f"shm:{bed.socket}", "names no Ethernet port")):
            server = host.start(INA_PSD, "--url", url, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)
            self.assertIn(text, server.communicate(timeout=DEADLINE_S)[0])
            self.assertEqual(server.returncode, 1)


if __name__ == "__main__":
    namespaces.require_root()
    unittest.main(argv=sys.argv[:1], verbosity=2)
