"""Workers on hosts of their own sum over a real network: ina-switchd between network namespaces,
libina's udp: and dpdk: transports, and workers written from the specification alone
(second_worker.py).

    wire_test.py INA_SWITCHD INACTL LOAD_WORKER GRID_WORKER GROUP_WORKER TRAFFIC_WORKER
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import namespaces
from namespaces import DEADLINE_S, NetworkTestBed, wait_until

INA_SWITCHD, INACTL, LOAD_WORKER, GRID_WORKER, GROUP_WORKER, TRAFFIC_WORKER = sys.argv[1:7]
SECOND_WORKER = pathlib.Path(__file__).with_name("second_worker.py")


class BedTest(unittest.TestCase):
    transport = "udp"  # of libina
    driver = "af_packet"  # of the switch's ports

    def bed(self, hosts, more="", prepare=None, control="", **options):
        """Returns a running switch between hosts. `prepare`: called with the bed before the switch
        starts."""
        folder = tempfile.TemporaryDirectory(prefix="ina-wire-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        bed = NetworkTestBed(hosts, **({"driver": self.driver} | options))
        self.addCleanup(bed.close)
        if prepare:
            prepare(bed)
        bed.start_switch(INA_SWITCHD, self.folder, more, control)
        return bed

    def start(self, bed, program, number, job, rank, world, *arguments, control=None, transport=None,
              name_port=True, url=None, **environment):
        """Starts a worker on host `number`."""
        url = url or bed.url(transport or self.transport, number, control, name_port)
        return bed.hosts[number].start(program, url, job, rank, world, *arguments,
                                       stdout=subprocess.PIPE, text=True,
                                       env=os.environ | environment)

    def worker(self, bed, rank, world, elements, times, job="wire", **options):
        return self.start(bed, LOAD_WORKER, rank, job, rank, world, elements, times, **options)

    def expect(self, process, beginning):
        text = process.communicate(timeout=DEADLINE_S)[0]
        self.assertTrue(text.startswith(beginning), text)
        return text

    def results(self, bed):
        """Returns the number of fragments completed since the switch started."""
        aggregator = bed.status(INACTL)["aggregator"]
        return aggregator["results"] + aggregator["fallback_results"]

    def await_results(self, bed, more):
        before = self.results(bed)
        wait_until("sums", lambda: self.results(bed) >= before + more)

    def check_idle(self, bed):
        """Checks that no resources of the earlier jobs remain."""
        wait_until("the jobs to end", lambda: not bed.status(INACTL)["jobs"])
        aggregator = bed.status(INACTL)["aggregator"]
        self.assertEqual(aggregator["slots_used"], 0)
        accepted = aggregator["absorbed"] + aggregator["bypassed"]
        self.assertEqual(accepted, sum(aggregator[f"contributions_{fate}"]
                                       for fate in ("in_results", "moved", "discarded")))


class EveryTransport:
    """Tests for every transport; the classes below define the transport."""

    def test_every_policy_sums(self):
        for policy, slots in (("static", 4096), ("fcfs", 4096), ("fcfs", 16), ("esa", 4096),
                              ("esa", 16)):
            with self.subTest(policy=policy, slots=slots):
                bed = self.bed(3, f"aggregator: {{policy: {policy}, slots: {slots}}}\n"
                                  "static: {slots_per_job: 1024}\n")
                for worker in [self.worker(bed, rank, 3, 20_000, 5) for rank in range(3)]:
                    self.expect(worker, "INA_OK")
                self.check_idle(bed)
                bed.close()

    def test_every_collective_by_every_type_and_operation(self):
        for ranks, more in (
                (2, "aggregator: {policy: static}\n"),
                (3, "aggregator: {policy: esa, slots: 16}\nfallback: {home: spill}\n")):
            with self.subTest(ranks=ranks, more=more):
                bed = self.bed(ranks, more)
                for worker in [self.start(bed, GRID_WORKER, rank, "grid", rank, ranks)
                               for rank in range(ranks)]:
                    self.expect(worker, "ok 2629")
                self.check_idle(bed)
                bed.close()

    def test_every_collective_with_uneven_and_no_counts(self):
        for ranks, more in (
                (2, "aggregator: {policy: static}\n"),
                (3, "aggregator: {policy: esa, slots: 16}\nfallback: {home: spill}\n")):
            with self.subTest(ranks=ranks, more=more):
                bed = self.bed(ranks, more)
                for worker in [self.start(bed, GRID_WORKER, rank, "uneven", rank, ranks, "uneven")
                               for rank in range(ranks)]:
                    self.expect(worker, "ok 1828")
                self.check_idle(bed)
                bed.close()

    def test_groups_of_a_job_sum_at_the_same_time(self):
        bed = self.bed(4, "aggregator: {policy: esa, slots: 128}\n")
        for worker in [self.start(bed, GROUP_WORKER, rank, "split", rank, 4, 8, 10)
                       for rank in range(4)]:
            self.expect(worker, f"ok {(2 * 8 + 1) * 10}")
        self.check_idle(bed)

    def test_groups_come_back_with_the_switch(self):
        more = "aggregator: {policy: esa, slots: 128}\n"
        bed = self.bed(2, more)
        workers = [self.start(bed, GROUP_WORKER, rank, "split", rank, 2, 3, 2000)
                   for rank in range(2)]
        self.await_results(bed, 500)
        bed.daemon.kill()
        bed.daemon.wait(DEADLINE_S)
        bed.start_switch(INA_SWITCHD, self.folder, more)
        for worker in workers:
            self.expect(worker, f"ok {(2 * 3 + 1) * 2000}")
        self.check_idle(bed)

    def test_two_jobs_contend_for_few_slots(self):
        bed = self.bed(4, "aggregator: {policy: esa, slots: 16}\njobs: {slots_floor: 4}\n")
        workers = [self.start(bed, LOAD_WORKER, number, f"job{number // 2}", number % 2, 2, 20_000,
                              -1) for number in range(4)]
        wait_until("both jobs to run", lambda: len(bed.status(INACTL)["jobs"]) == 2)
        self.await_results(bed, 2000)
        for worker in workers[::2]:
            worker.send_signal(signal.SIGTERM)
        for worker in workers:
            self.expect(worker, "INA_OK")
        aggregator = bed.status(INACTL)["aggregator"]
        self.assertGreater(aggregator["preemptions"] + aggregator["bypassed"], 0)
        self.check_idle(bed)

    def test_workers_join_over_tcp_through_the_switch_itself(self):
        with tempfile.TemporaryDirectory(prefix="ina-wire-") as folder:
            tokens = pathlib.Path(folder) / "tokens"
            tokens.write_text("rack open-sesame-open-sesame\n", encoding="utf-8")
            tokens.chmod(0o600)
            bed = self.bed(2, prepare=NetworkTestBed.join_own_kernel,
                           control=f"listen: 0.0.0.0:7583, token_file: {tokens}")
            # The switch has heard from the hosts, so it knows their ports.
            workers = [self.worker(bed, rank, 2, 20_000, 5, control=f"tcp:{bed.kernel_ip}:7583",
                                   name_port=False, INA_TOKEN="open-sesame-open-sesame")
                       for rank in range(2)]
            for worker in workers:
                self.expect(worker, "INA_OK")

    def test_a_stopped_worker_is_helped(self):
        for more in ("straggler: {help: leader}\n",
                     "straggler: {help: leader}\nsecurity: {tag: siphash}\n",
                     "straggler: {help: spill}\nfallback: {home: spill}\n"):
            with self.subTest(more=more):
                bed = self.bed(3, "aggregator: {policy: esa, slots: 256}\n"
                                  "jobs: {window_bytes: 64 KiB}\n" + more)
                workers = [self.worker(bed, rank, 3, 1_000_000, -1) for rank in range(3)]
                self.await_results(bed, 1000)
                self.assertGreater(self.stop_until_parked(bed, workers[2]), 100)
                workers[0].send_signal(signal.SIGTERM)
                for worker in workers:
                    self.expect(worker, "INA_OK")
                self.check_idle(bed)
                bed.close()

    def stop_until_parked(self, bed, worker):
        """Stops the worker until many fragments are parked, and returns their number. The stop may
        come at the very end of a sum, or while the windows are too small for the worker to be late.
        Then nothing more is parked, and the worker is stopped again later."""
        parked = 0
        for _ in range(20):
            worker.send_signal(signal.SIGSTOP)
            until = time.monotonic() + 1
            while parked <= 100 and time.monotonic() < until:
                parked = max((job["parked_now"] for job in bed.status(INACTL)["jobs"]), default=0)
            worker.send_signal(signal.SIGCONT)
            if parked > 100:
                break
            self.await_results(bed, 1)
        return parked

    def test_frames_with_tags(self):
        bed = self.bed(3, "aggregator: {policy: esa, slots: 16}\nsecurity: {tag: siphash}\n")
        for worker in [self.worker(bed, rank, 3, 20_000, 5) for rank in range(3)]:
            self.expect(worker, "INA_OK")
        drops = [port["drops"] for port in bed.status(INACTL)["ports"]]
        self.assertFalse(any("bad_tag" in reasons for reasons in drops), drops)

    def test_large_frames(self):
        mtu, slot_bytes = (3498, 2048) if self.driver == "af_xdp" else (9000, 8192)
        bed = self.bed(2, f"aggregator: {{slots: 512, slot_bytes: {slot_bytes}}}\n", mtu=mtu)
        for worker in [self.worker(bed, rank, 2, 300_000, 5) for rank in range(2)]:
            self.expect(worker, "INA_OK")

    def test_offloads_of_the_workers_links_left_on(self):
        # With offloads the kernel leaves segmentation to a NIC, but a veth passes whole segments.
        bed = self.bed(2, offloads=True)
        for worker in [self.worker(bed, rank, 2, 100_000, 5) for rank in range(2)]:
            self.expect(worker, "INA_OK")
        status = bed.status(INACTL)
        self.assertEqual(status["aggregator"]["fallback_results"], 0)
        for port in status["ports"]:
            self.assertEqual(port.get("drops", {}), {}, port)

    def test_slots_that_do_not_fit_the_mtu_are_refused(self):
        bed = self.bed(2, "aggregator: {slots: 512, slot_bytes: 1024}\n")
        bed.hosts[0].run("ip", "link", "set", "eth0", "mtu", "1000")
        text = self.expect(self.worker(bed, 0, 2, 10, 1), "INA_ERR_INVALID")
        self.assertIn("1024", text)

    def test_a_killed_worker_is_told_to_the_others_and_may_come_again(self):
        bed = self.bed(3)
        for kill in range(3):
            workers = [self.worker(bed, rank, 3, 1000, -1, job=f"kill{kill}") for rank in range(3)]
            self.await_results(bed, 20)
            workers[1].send_signal(signal.SIGKILL)
            for rank in (0, 2):
                self.assertIn("rank 1", self.expect(workers[rank], "INA_ERR_PEER_LOST"))
            workers[1].wait(DEADLINE_S)
        for worker in [self.worker(bed, rank, 3, 1000, 10) for rank in range(3)]:
            self.expect(worker, "INA_OK")
        self.check_idle(bed)

    def test_the_switch_comes_back(self):
        self.comes_back(self.bed(2))

    def comes_back(self, bed, more=""):
        workers = [self.worker(bed, rank, 2, 5_000, -1) for rank in range(2)]
        for _ in range(3):
            self.await_results(bed, 100)
            bed.daemon.kill()
            bed.daemon.wait(DEADLINE_S)
            bed.start_switch(INA_SWITCHD, self.folder, more)
        self.await_results(bed, 100)
        workers[0].send_signal(signal.SIGTERM)
        for worker in workers:
            self.expect(worker, "INA_OK")
        self.assertEqual(bed.stop_switch(), 0, bed.log())

    def test_a_link_that_is_down_for_a_moment_is_survived(self):
        bed = self.bed(2)
        workers = [self.worker(bed, rank, 2, 5_000, -1) for rank in range(2)]
        self.await_results(bed, 100)
        for namespace, interface in ((bed.hosts[1], "eth0"), (bed.switch, bed.port(1))):
            namespace.run("ip", "link", "set", interface, "down")
            time.sleep(0.1)
            namespace.run("ip", "link", "set", interface, "up")
            self.await_results(bed, 200)
        workers[0].send_signal(signal.SIGTERM)
        for worker in workers:
            self.expect(worker, "INA_OK")

    def test_an_interface_that_goes_for_good_is_an_error_in_time(self):
        bed = self.bed(3)
        workers = [self.worker(bed, rank, 3, 5_000, -1, INA_TIMEOUT_US="5000000")
                   for rank in range(3)]
        self.await_results(bed, 100)
        bed.hosts[1].run("ip", "link", "delete", "eth0")
        for worker in workers:
            self.assertIn("gave up: waited 5 s", self.expect(worker, "INA_ERR_"))
        # The other hosts continue, with another job.
        for worker in [self.start(bed, LOAD_WORKER, number, "rest", rank, 2, 5_000, 10)
                       for rank, number in enumerate((0, 2))]:
            self.expect(worker, "INA_OK")
        links = {port["name"]: port.get("link") for port in bed.status(INACTL)["ports"]}
        self.assertEqual((links["port0"], links["port1"]), ("up", "gone"))
        self.assertEqual(bed.stop_switch(), 0, bed.log())


class OverUdp(EveryTransport, BedTest):
    def second_worker(self, bed, rank, world, dtype, elements, times, job="wire"):
        host = bed.hosts[rank]
        return host.start(sys.executable, SECOND_WORKER, bed.socket, bed.port(rank), job, rank, world,
                          host.ip, host.mac, dtype, elements, times, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)

    def test_every_collective_with_more_ranks(self):
        for ranks, more in ((5, "aggregator: {policy: esa, slots: 16}\n"), (8, "aggregator: {policy: static}\n")):
            with self.subTest(ranks=ranks):
                bed = self.bed(ranks, more)
                for arguments, done in (([], "ok 2629"), (["uneven"], "ok 1828")):
                    for worker in [self.start(bed, GRID_WORKER, rank, f"grid{len(arguments)}", rank, ranks, *arguments)
                                   for rank in range(ranks)]:
                        self.expect(worker, done)
                self.check_idle(bed)
                bed.close()

    def test_every_collective_of_64_mebibytes(self):
        bed = self.bed(2, "aggregator: {slot_bytes: 8192, slots: 1024}\n", mtu=9000)
        for worker in [self.start(bed, GRID_WORKER, rank, "large", rank, 2, 64 << 20)
                       for rank in range(2)]:
            self.expect(worker, f"ok {11 + 7 * 2}")
        self.check_idle(bed)

    def test_every_collective_moves_what_its_result_needs(self):
        """The timeouts are so long that a busy machine causes no retransmission. A frame may be
        lost nevertheless, so one of a few short runs must be right."""
        bed = self.bed(4, "aggregator: {slot_bytes: 8192, slots: 1024}\n"
                          "jobs: {window_bytes: 256 KiB}\n"
                          "recovery: {rto_min: 5 s, rto_max: 5 s}\n", mtu=9000)
        for attempt in range(4):
            workers = [self.start(bed, TRAFFIC_WORKER, rank, f"traffic{attempt}", rank, 4,
                                  32 * 8192, 8192) for rank in range(4)]
            texts = [worker.communicate(timeout=DEADLINE_S)[0] for worker in workers]
            if all(text.endswith("ok\n") for text in texts):
                return
        self.fail("\n".join(texts))

    def test_a_second_implementation_gets_the_right_sums(self):
        for policy in ("static", "esa"):
            for dtype in ("int32", "float32"):
                with self.subTest(policy=policy, dtype=dtype):
                    bed = self.bed(3, f"aggregator: {{policy: {policy}, slots: 1024}}\n"
                                      "fallback: {home: spill}\n"
                                      "jobs: {window_bytes: 64KiB}\n")
                    for worker in [self.second_worker(bed, rank, 3, dtype, 5_000, 3)
                                   for rank in range(3)]:
                        self.expect(worker, "ok")
                    bed.close()

    def test_a_second_implementation_that_knows_nothing_of_straggler_help(self):
        bed = self.bed(3, "aggregator: {policy: esa, slots: 1024}\nstraggler: {help: leader}\n"
                          "fallback: {home: spill}\njobs: {window_bytes: 64KiB}\n")
        for worker in [self.second_worker(bed, rank, 3, "int32", 5_000, 3) for rank in range(3)]:
            self.expect(worker, "ok")

    def test_a_second_implementation_with_tags(self):
        bed = self.bed(2, "aggregator: {policy: esa, slots: 1024}\nfallback: {home: spill}\n"
                          "jobs: {window_bytes: 64KiB}\nsecurity: {tag: siphash}\n")
        for worker in [self.second_worker(bed, rank, 2, "int32", 2_000, 2) for rank in range(2)]:
            text = self.expect(worker, "ok")
            self.assertIn("'tagged':", text)
            self.assertNotIn("bad tag", text)

    def test_the_switch_comes_back_with_other_keys(self):
        more = "security: {tag: siphash}\n"
        self.comes_back(self.bed(2, more), more)


    def drop(self, bed, cause, *reasons, **options):
        """Rank 0's frames are dropped. Both ranks are told the `cause`, and only these reasons."""
        workers = [self.start(bed, LOAD_WORKER, rank, "dropped", rank, 2, 5_000, 1,
                              INA_TIMEOUT_US="4000000", **(options if rank == 0 else {}))
                   for rank in range(2)]
        texts = [self.expect(worker, "INA_ERR_") for worker in workers]
        for text in texts:
            self.assertIn("of rank 0 on port ", text)
            self.assertRegex(text, f": ({'|'.join(reasons)}): ")
            self.assertIn(cause, text)
            self.assertNotIn("of rank 1 on port ", text)
        self.assertIn('worker not heard job="dropped"', bed.log())

    def test_a_worker_that_names_a_wrong_port_learns_so(self):
        bed = self.bed(2)
        url = bed.url("udp", 1)  # the port of host 1
        self.drop(bed, "they come in by port port0, but it joined for port port1: say port=port0",
                  "unknown_source", url=url)

    def test_a_worker_whose_address_is_translated_learns_so(self):
        bed = self.bed(2)
        host = bed.hosts[0]
        try:
            host.run("nft", "add table ip t; add chain ip t out { type nat hook postrouting priority "
                     "100; }; add rule ip t out udp dport 7584 snat to 10.77.0.99")
        except (RuntimeError, FileNotFoundError):
            self.skipTest("this kernel translates no addresses")
        self.drop(bed, "they come from 10.77.0.99:", "unknown_source")

    def test_messages_longer_than_the_way_takes_are_named(self):
        bed = self.bed(2, "aggregator: {slots: 512, slot_bytes: 1024}\n")
        workers = [self.worker(bed, rank, 2, 20_000, -1, INA_TIMEOUT_US="4000000")
                   for rank in range(2)]
        self.await_results(bed, 50)
        bed.hosts[0].run("ip", "link", "set", "eth0", "mtu", "1000")
        texts = [self.expect(worker, "INA_ERR_") for worker in workers]
        self.assertRegex("".join(texts), r"the kernel refused \d+ messages as longer than the MTU")


class OverAfPacket(EveryTransport, BedTest):
    transport = "af_packet"

    def test_workers_of_one_host_share_its_interface(self):
        bed = self.bed(1)
        for worker in [self.start(bed, LOAD_WORKER, 0, "shared", rank, 3, 20_000, 5)
                       for rank in range(3)]:
            self.expect(worker, "INA_OK")

    def test_the_kernel_does_not_answer_the_switch(self):
        bed = self.bed(2)
        for worker in [self.worker(bed, rank, 2, 20_000, 5) for rank in range(2)]:
            self.expect(worker, "INA_OK")
        for host in bed.hosts:
            names, values = [line.split()[1:] for line in
                             host.run("grep", "^Icmp:", "/proc/net/snmp").splitlines()]
            self.assertEqual(dict(zip(names, values))["OutMsgs"], "0")


class OverAfXdp(EveryTransport, BedTest):
    transport = "af_xdp"
    driver = "af_xdp"

    def has_program(self, namespace, interface):
        return "xdp" in namespace.run("ip", "link", "show", interface)

    def test_the_kernel_keeps_everything_else(self):
        bed = self.bed(2)
        workers = [self.worker(bed, rank, 2, 5_000, -1) for rank in range(2)]
        self.await_results(bed, 100)
        a, b = bed.hosts
        self.assertTrue(self.has_program(a, "eth0"))
        a.ping(b.ip)
        server = b.python("import socket\n"
                          "server = socket.create_server(('', 5000))\n"
                          "print('ready', flush=True)\n"
                          "connection, _ = server.accept()\n"
                          "print(connection.recv(5, socket.MSG_WAITALL).decode(), flush=True)\n")
        self.assertEqual(server.stdout.readline(), "ready\n")
        a.run(sys.executable, "-c", "import socket, sys\n"
              "with socket.create_connection((sys.argv[1], 5000), timeout=600) as connection:\n"
              "    connection.sendall(b'hello')\n", b.ip)
        self.assertEqual(server.stdout.readline(), "hello\n")
        self.await_results(bed, 100)
        workers[0].send_signal(signal.SIGTERM)
        for worker in workers:
            self.expect(worker, "INA_OK")

    def test_programs_go_with_their_processes(self):
        bed = self.bed(2)
        workers = [self.worker(bed, rank, 2, 5_000, -1) for rank in range(2)]
        self.await_results(bed, 100)
        for worker in workers:
            worker.kill()
            worker.wait(DEADLINE_S)
        bed.daemon.kill()
        bed.daemon.wait(DEADLINE_S)
        for namespace, interface in ((bed.hosts[0], "eth0"), (bed.hosts[1], "eth0"),
                                     (bed.switch, "port0"), (bed.switch, "port1")):
            self.assertFalse(self.has_program(namespace, interface), interface)

    def test_an_interface_serves_one_worker(self):
        bed = self.bed(2)
        workers = [self.worker(bed, rank, 2, 5_000, -1) for rank in range(2)]
        self.await_results(bed, 100)
        text = self.expect(self.start(bed, LOAD_WORKER, 0, "second", 0, 1), "INA_ERR_REFUSED")
        self.assertRegex(text, "Interface eth0: it has an XDP program already")
        self.await_results(bed, 100)  # the first job continues
        workers[0].send_signal(signal.SIGTERM)
        for worker in workers:
            self.expect(worker, "INA_OK")

    def test_an_interface_with_several_queues_is_refused(self):
        def two_queues(bed):
            bed.hosts[0].run("ethtool", "-L", "eth0", "rx", "2", "tx", "2")
        bed = self.bed(1, prepare=two_queues, driver="af_packet")
        text = self.expect(self.worker(bed, 0, 1, 10, 1), "INA_ERR_INVALID")
        self.assertRegex(text, "eth0 has 2 receive queues")

    def test_frames_that_are_too_large_are_refused(self):
        bed = self.bed(1, mtu=9000, driver="af_packet")
        text = self.expect(self.worker(bed, 0, 1, 10, 1), "INA_ERR_INVALID")
        self.assertIn("takes no mtu above 3498", text)
        # The worker's own frames would fit, but the kernel lets the interface take longer frames,
        # too.
        url = bed.url("af_xdp", 0) + "&mtu=1500"
        text = self.expect(self.start(bed, LOAD_WORKER, 0, "wire", 0, 1, 10, 1, url=url),
                           "INA_ERR_INVALID")
        self.assertIn("Interface eth0 has an MTU of 9000, and AF_XDP takes 3498 at most", text)


class OverSeveral(BedTest):
    driver = "af_xdp"

    def test_workers_of_one_job_may_use_different_transports(self):
        bed = self.bed(3)
        transports = ("udp", "af_packet", "af_xdp")
        for worker in [self.worker(bed, rank, 3, 20_000, 5, transport=transport)
                       for rank, transport in enumerate(transports)]:
            self.expect(worker, "INA_OK")


class TapPort(BedTest):
    """The switch's own kernel is behind a port that is a TAP device."""

    def test_control_and_other_traffic_pass_it_and_it_outlives_the_switch(self):
        control = f"listen: {NetworkTestBed.kernel_ip}:7583, allow_anonymous: true"
        bed = self.bed(2, prepare=lambda bed: bed.join_own_kernel(tap=True), control=control)
        workers = [self.worker(bed, rank, 2, 5_000, -1, control=f"tcp:{bed.kernel_ip}:7583")
                   for rank in range(2)]
        for _ in range(2):
            self.await_results(bed, 100)
            # The largest frames of the link, without fragmentation.
            bed.hosts[0].ping(bed.kernel_ip, "-M", "do", "-s", str(bed.mtu - 28))
            bed.daemon.kill()
            bed.daemon.wait(DEADLINE_S)
            bed.start_switch(INA_SWITCHD, self.folder, control=control)
        self.await_results(bed, 100)
        workers[0].send_signal(signal.SIGTERM)
        for worker in workers:
            self.expect(worker, "INA_OK")
        ports = {port["name"]: port for port in bed.status(INACTL)["ports"]}
        self.assertEqual(ports[bed.port(2)]["link"], "up")
        self.assertGreater(ports[bed.port(2)]["forwarded"], 0)
        self.assertNotIn("bad_mac", ports[bed.port(2)]["drops"])


if __name__ == "__main__":
    namespaces.require_root()
    unittest.main(argv=[sys.argv[0], *sys.argv[7:]], verbosity=2)
