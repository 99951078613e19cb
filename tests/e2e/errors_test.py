#!/usr/bin/env python3
"""Errors of switch, inactl and workers that have recipes in docs/operations.md, each caused with
the real programs (tests/support/error_cases.py).

    errors_test.py INA_SWITCHD INACTL LOAD_WORKER LIBINA INA_PSD INA_MEMIF
"""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "support"))

import error_cases  # noqa: E402
import libina  # noqa: E402
from error_cases import INACTL, LOAD_WORKER, MEMIF, NOBODY, PSD, SWITCHD, TOKEN, as_user  # noqa: E402
from ports import free_port  # noqa: E402
from waiting import DEADLINE_S, wait_until  # noqa: E402


class ErrorsTest(error_cases.LibraryCases):
    # ---- a switch that cannot be reached

    def test_no_switch(self):
        def unreachable(url, recipe):
            self.expect(recipe, self.said(self.rank("job", 0, url=url, INA_TIMEOUT_US="1")), "INA_ERR_NO_SWITCH")

        unreachable(f"shm:{self.socket}", "no switch at socket …")
        unreachable(f"udp:127.0.0.1?control=tcp:127.0.0.1:{free_port()}", "no switch at …")
        unreachable("udp:127.0.0.1?control=tcp:no-such-host.invalid:7583", "cannot resolve '…'")
        unreachable(f"memif:{self.folder}/none.sock?ip=10.0.0.2", "No memif of a switch answered")
        self.refused("is this its …?", "undrain", exit_status=3)

    def test_a_switch_that_stands_still(self):
        self.start()
        with self.standing_still():
            self.refused("did not answer in time (--timeout)", "undrain", "--timeout", "1s", exit_status=4)
            self.refused("did not answer the … query", "status", "--timeout", "1s", exit_status=4)
            waits = self.rank("job", 0, INA_TIMEOUT_US="500000")
            self.expect("the switch at … did not answer the request to join", self.said(waits), "INA_ERR_TIMEOUT")

    # ---- joins that are refused

    def test_joins_that_are_refused(self):
        self.start()
        for recipe, changed in (("world size … is not in 1..…", {"world_size": 4097}),
                                ("speaks control version", {"version": 7}),
                                ("the ticket is unknown", {"ticket": "0" * 32}),
                                ("there is no job '…' of … (INA_JOB_OWNER)", {"owner": "uid:4711"}),
                                ("this switch offers no '…' transport", {"transport": "pigeons"}),
                                ("this switch has no Ethernet port",
                                 {"transport": "frame", "address": {"mac": [2, 0, 0, 0, 0, 1], "ip": 0x0a000002, "udp_port": 9000}})):
            self.told(recipe, self.join(**changed))
        self.told("this switch needs no fallback server", {"type": "serve", "version": 1})
        self.inactl("create", "ticketed", "--workers", "2")
        made = self.inactl("create", "other", "--workers", "2", "--json")
        self.assertEqual(made.returncode, 0, made)
        self.told("the ticket is for another job", self.join(job="ticketed", ticket=json.loads(made.stdout)["ticket"]))

    def test_ranks_that_do_not_fit(self):
        self.start()
        first = self.rank("twice", 0, 3)
        wait_until("the first", lambda: self.job("twice").get("joined") == [0])
        second = self.rank("twice", 0, 3)
        for text in (self.said(first), self.said(second)):
            self.expect("was joined … and now again by …", text, "INA_ERR_RANK_TAKEN")
        first = self.rank("sizes", 0, 3)
        wait_until("the first", lambda: self.job("sizes").get("joined") == [0])
        other = self.rank("sizes", 1, 2)
        self.expect("world sizes of job '…' differ", self.said(first), "INA_ERR_MISMATCH")
        self.expect("world sizes of job '…' differ", self.said(other))
        for setting, values in (("INA_NUMERIC", ("native", "reproducible")), ("INA_COALESCE_BYTES", ("0", "65536"))):
            first = self.rank(setting, 0, 3, **{setting: values[0]})
            wait_until("the first", lambda job=setting: self.job(job).get("joined") == [0])
            other = self.rank(setting, 2, 3, **{setting: values[1]})
            for text in (self.said(first), self.said(other)):
                self.expect("settings of job '…' differ", text, "INA_ERR_MISMATCH")
                self.assertRegex(text, rf"rank 2 \(pid \d+\) has {setting}={values[1]}, rank 0 joined with {values[0]}")
        ranks = self.run_job("runs")
        self.expect("was joined … and now again by …", self.said(self.rank("runs", 0)), "INA_ERR_RANK_TAKEN")
        again = {"type": "rejoin", "job": "runs", "job_id": self.job("runs")["id"], "job_key": 1, "low": 0, "next": 0,
                 "results_end": 0, "buffers_shared": 0, "splits": 0}
        self.told("this is not the key of job '…'", self.join(**again))
        ranks[0].terminate()
        for rank in ranks:
            self.assertTrue(self.said(rank).startswith("INA_OK"))
        ranks = [self.rank("unlike", number, elements=1000 + number) for number in range(2)]
        for rank in ranks:
            self.expect("workers of job '…' disagree", self.said(rank), "INA_ERR_MISMATCH")
        ranks = [self.rank("early", number, times=1 + 50 * number) for number in range(2)]
        self.expect("has called ina_finalize without calling …", self.said(ranks[1]), "INA_ERR_PEER_LOST")
        wrong = self.said(self.rank("job", 0, url="pigeon:loft"))
        self.assertTrue(wrong.startswith("INA_ERR_INVALID "), wrong)
        error_cases.SEEN_STATUSES.add("INA_ERR_INVALID")

    def test_limits_of_connections_and_descriptors(self):
        self.start(control="{mode: 0666, max_connections_per_user: 1}")
        self.background([*as_user(NOBODY), LOAD_WORKER, f"shm:{self.socket}", "waits", "0", "2"], stdout=subprocess.DEVNULL)
        wait_until("the worker", lambda: self.job("waits").get("joined") == [0])
        self.refused("connections already", "status", uid=NOBODY, exit_status=3)
        few = self.background(["prlimit", "--nofile=6", LOAD_WORKER, f"shm:{self.socket}", "few", "0", "1", "1000", "1"],
                              stdout=subprocess.PIPE, text=True)
        self.expect("no room for the … descriptors", self.said(few), "INA_ERR_NO_MEMORY")

    def test_a_user_who_asks_all_the_time(self):
        self.start(control="{mode: 0666}")
        asks = """import socket, sys
for _ in range(5000):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        line.settimeout(60)
        line.connect(sys.argv[1])
        try:
            line.sendall(b'{"type":"status"}')
        except OSError:
            pass
        try:
            answer = line.recv(65536)
        except ConnectionResetError:  # comes once if the question stays unread; the answer is still there
            answer = line.recv(65536)
        if b"refused" in answer:
            sys.exit(answer.decode())"""
        done = subprocess.run([*as_user(NOBODY), sys.executable, "-c", asks, str(self.socket)], capture_output=True, text=True,
                              check=False, timeout=DEADLINE_S)
        self.expect("keeps the switch busier than it may", done.stderr)

    def test_a_fallback_server_too_many(self):
        self.start(fallback="{home: dedicated}")
        self.assertEqual(self.ask({"type": "serve", "version": 1})[0]["type"], "serving")
        self.told("another fallback server", {"type": "serve", "version": 1})

    def test_fallback_servers_that_are_refused(self):
        self.start(fallback="{home: dedicated}", control="{mode: 0666}")
        done = subprocess.run([*as_user(NOBODY), PSD, "--socket", str(self.socket)], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, check=False, timeout=DEADLINE_S)
        self.expect("only root and the switch's own user may serve as fallback", done.stderr)
        self.told("job … has ended", {"type": "join_fallback", "job_id": 4711, "transport": "shm"})

    def test_ina_memif(self):
        self.start()
        memif = self.folder / "memif-control.sock"
        self.logged([MEMIF, "--switch", str(self.socket), "--socket", str(memif), "--memif", str(self.folder / "memif.sock"),
                     "--workers", "1"])
        wait_until("ina-memif", memif.exists)
        self.socket = memif
        self.told("ina-memif takes workers on memif only", self.join())
        self.told("ina-memif passes no '…'", {"type": "serve", "version": 1})

    def test_over_tcp(self):
        tokens = self.folder / "tokens"
        tokens.write_text(f"red {TOKEN}\n")
        tokens.chmod(0o600)
        listen = free_port()
        self.start(control=f'{{listen: "127.0.0.1:{listen}", token_file: {tokens}}}')
        self.told("the token is missing", {"type": "status"}, remote=listen)
        self.told("the token is unknown", {"type": "status", "token": "x" * 20}, remote=listen)
        self.told("before join: the switch does not know who asks", {"type": "explain"}, remote=listen)
        self.told("needs the switch's unix socket", {"type": "serve", "version": 1}, remote=listen)
        self.told("the shm transport needs", self.join(token=TOKEN), remote=listen)
        done = subprocess.run([INACTL, "status", "--socket", f"tcp:127.0.0.1:{listen}"], capture_output=True, text=True, check=False,
                              timeout=DEADLINE_S, env=os.environ | {"INA_TOKEN": "x" * 20})
        self.expect("the switch at … refused: …", done.stderr)
        self.expect("the token is unknown", done.stderr)

    def test_addresses_and_tags(self):
        tokens = self.folder / "tokens"
        tokens.write_text(f"red {TOKEN}\n")
        tokens.chmod(0o600)
        listen = free_port()
        self.start(control=f'{{listen: "127.0.0.1:{listen}", token_file: {tokens}, max_unjoined: 1}}', security="{tag: siphash}",
                   ports=f'[{{name: shm0, type: shm}}, {{name: memif0, type: ethdev, ip: 10.0.0.1, device: "net_memif0,role=server,'
                         f'id=0,socket={self.folder}/m.sock,socket-abstract=no,rsize=7,bsize=2048"}}]')

        def frame(ip):
            return self.join(transport="frame", address={"mac": [2, 0, 0, 0, 0, 1], "ip": ip, "udp_port": 9000}, token=TOKEN)

        self.told("address.ip … is not the address", frame(0x0a000002) | {"tags": ["siphash"]}, remote=listen)
        self.told("takes frames with tags only", frame(0x0a000002))
        held = socket.create_connection(("127.0.0.1", listen), DEADLINE_S)
        self.addCleanup(held.close)

        def crowded():
            with socket.create_connection(("127.0.0.1", listen), DEADLINE_S) as line:
                line.settimeout(1)
                try:
                    return line.recv(1 << 16)[4:].decode()
                except TimeoutError:
                    return ""

        self.expect("have not joined yet", wait_until("a refusal", crowded))
        held.close()
        authority, key = self.folder / "ca.crt", self.folder / "ca.key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-subj", "/CN=ca",
                        "-keyout", key, "-out", authority], check=True, capture_output=True, timeout=DEADLINE_S)
        self.refused("no TLS with the switch at …", "status", "--socket", f"tls:127.0.0.1:{listen}", "--ca", str(authority), exit_status=3)

    def test_what_does_not_fit(self):
        self.start(tenants='[{name: "uid:0", jobs_max: 2}]', aggregator="{slots: 256, policy: esa}")
        self.refused("short by …", "create", "large", "--workers", "2", "--slots-floor", "4096")
        self.refused("job '…' does not fit", "create", "large", "--workers", "2", "--slots-floor", "4096")
        for name in ("one", "two"):
            self.assertEqual(self.inactl("create", name, "--workers", "1").returncode, 0)
        self.expect("short by …", self.said(self.rank("three", 0, 1)), "INA_ERR_REFUSED")
        self.refused("there is a job '…' of … already", "create", "one", "--workers", "1")
        self.refused("not drained after …", "drain", "--wait", "1s", exit_status=4)
        self.expect("the switch is drained", self.said(self.rank("three", 0, 1)))
        self.assertEqual(self.inactl("undrain").returncode, 0)

    def test_as_many_jobs_as_there_may_be(self):
        self.start(switch="{max_jobs: 1}")
        self.run_job("one", 1)
        self.expect("the switch runs … jobs already", self.said(self.rank("two", 0, 1)), "INA_ERR_REFUSED")

    def test_all_places_of_the_shm_port(self):
        """Ranks of groups take all places: there are (max_jobs + max_groups / 8) * 65."""
        self.start(switch="{max_jobs: 1, max_groups: 8, max_groups_per_user: 8}", aggregator="{slots: 4096, policy: esa}")
        ranks = self.job_of(17, "crowd")
        texts = []
        while not any(texts):
            texts = libina.errors_of(len(ranks), lambda rank: self.addCleanup(ranks[rank].split().leave))
        self.all_said("no room for another worker", texts, "INA_ERR_REFUSED")

    def test_addresses_of_workers(self):
        memif = f'device: "net_memif0,role=server,id=0,socket={self.folder}/m.sock,socket-abstract=no,rsize=7,bsize=2048"'
        hosts = '["02:00:00:00:00:01 10.0.0.2"]'
        self.start(ports=f"[{{name: shm0, type: shm}}, {{name: memif0, type: ethdev, ip: 10.0.0.1, hosts: {hosts}, {memif}}}]")

        def attach(rank, ip):
            address = {"mac": [2, 0, 0, 0, 0, 1], "ip": ip, "udp_port": 9000}
            return self.join(rank=rank, world_size=3, transport="frame", address=address), {"type": "attach"}

        self.told("no host with the address …", *attach(1, 0x0a000003))
        self.assertEqual(self.ask(*attach(0, 0x0a000002))[1]["type"], "waiting")
        self.told("a worker at … is bound already", *attach(2, 0x0a000002))

    def check_retry(self, end_old, job, **again):
        """A join that the switch hears before it sees the end of an old worker is refused for now."""
        with self.line() as new:
            new.sendall(b'{"type":"status"}')
            new.recv(1 << 16)  # the switch has accepted it
            with self.standing_still():
                new.sendall(json.dumps(self.join(job=job) | again).encode())
                end_old()
            answer = json.loads(new.recv(1 << 16))
        self.assertEqual((answer["type"], answer.get("retry")), ("refused", True), answer)
        wait_until("a place", lambda: self.ask(self.join(job=job) | again)[0]["type"] == "joined")

    def test_a_worker_that_starts_again_at_once(self):
        for name, again in (("same", {}), ("size", {"world_size": 3})):
            self.start()
            with self.line() as old:
                old.sendall(json.dumps(self.join(job=name)).encode())
                self.assertEqual(json.loads(old.recv(1 << 16))["type"], "joined")
                self.check_retry(old.close, name, **again)
            self.stop()
        for name in ("runs", "other"):
            self.start(tenants='[{name: "uid:0", jobs_max: 1}]')
            old = self.run_job("runs", size=1)[0]

            def kill(old=old):
                old.kill()
                old.wait()

            self.check_retry(kill, name, world_size=1)
            self.stop()

    def test_memory_of_places_that_were_left(self):
        self.start(tenants='[{name: "uid:0", memory: 2MiB}]')
        self.rank("left", 1)
        wait_until("the other", lambda: self.job("left").get("joined") == [1])
        for _ in range(100):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
                line.connect(str(self.socket))
                line.sendall(json.dumps(self.join(job="left")).encode())
                # Memory stays as long as any process has a descriptor of it.
                answer, descriptors, _, _ = socket.recv_fds(line, 1 << 16, 16)
            for descriptor in descriptors:
                self.addCleanup(os.close, descriptor)
            if json.loads(answer)["type"] == "refused":
                break
            wait_until("the end of it", lambda: self.job("left").get("joined") == [1])
        self.expect("no memory for another worker", json.loads(answer)["text"])

    def test_all_places_of_an_ethernet_port(self):
        memif = f'device: "net_memif0,role=server,id=0,socket={self.folder}/m.sock,socket-abstract=no,rsize=7,bsize=2048"'
        self.start(ports=f"[{{name: shm0, type: shm}}, {{name: memif0, type: ethdev, ip: 10.0.0.1, {memif}}}]", aggregator="{slots: 1024}")

        def attach(number):
            address = {"mac": [2, 0, 0, 0, 0, 1], "ip": 0x0a000002, "udp_port": 9000 + number}
            return (self.join(job=f"job{number // 64}", rank=number % 64, world_size=64, transport="frame", address=address),
                    {"type": "attach"})

        places = 256
        for number in range(places):
            self.assertNotEqual(self.ask(*attach(number))[1]["type"], "refused")
        self.told("it has no room for more than … workers", *attach(places))

    # ---- ends of jobs

    def test_ends_of_jobs(self):
        self.start()
        ranks = self.run_job("dies")
        ranks[1].kill()
        self.expect("died or left without ina_finalize", self.said(ranks[0]), "INA_ERR_PEER_LOST")
        ranks = self.run_job("ended")
        self.assertEqual(self.inactl("abort", "ended", "--reason", "the machine is needed").returncode, 0)
        text = self.said(ranks[0])
        self.assertTrue(text.startswith("INA_ERR_ABORTED "), text)
        error_cases.SEEN_STATUSES.add("INA_ERR_ABORTED")
        self.assertIn("the machine is needed", text)
        self.expect("waited … for … to join", self.said(self.rank("waits", 0, INA_TIMEOUT_US="300000")), "INA_ERR_TIMEOUT")
        made = self.inactl("create", "late", "--workers", "2", "--ttl", "1s", "--json")
        waits = self.rank("late", 0, INA_TICKET=json.loads(made.stdout)["ticket"])
        self.expect("was made for a time that has passed", self.said(waits), "INA_ERR_TIMEOUT")

        def sums(timeout_s):
            name = f"slow-{timeout_s}"
            ranks = [self.rank(name, 0, INA_TIMEOUT_US=str(int(timeout_s * 1e6))), self.rank(name, 1)]
            wait_until("sums", lambda: self.job(name).get("results") or ranks[0].poll() is not None)
            if ranks[0].poll() is not None:
                raise libina.InaError(self.said(ranks[0]))
            return ranks

        # A rank that gives up tells all others.
        ranks = self.in_time(sums)
        ranks[1].send_signal(signal.SIGSTOP)
        self.assertIn("INA_ERR_TIMEOUT", self.said(ranks[0]))
        ranks[1].send_signal(signal.SIGCONT)
        self.expect("gave up", self.said(ranks[1]), "INA_ERR_ABORTED")

    def test_a_switch_that_goes(self):
        self.start(control="{rejoin_timeout: 1s}")
        ranks = self.run_job("gone", INA_REJOIN_TIMEOUT_US="500000")
        gathers = self.rank("gathers", 0)
        wait_until("the first", lambda: self.job("gathers").get("joined") == [0])
        self.stop()
        self.expect("the switch was shut down", self.said(gathers), "INA_ERR_SWITCH_LOST")
        for rank in ranks:
            self.expect("is gone and did not come back within …", self.said(rank), "INA_ERR_SWITCH_LOST")
        self.start(control="{rejoin_timeout: 1s}")
        ranks = self.run_job("back")
        ranks[1].send_signal(signal.SIGSTOP)
        self.stop(signal.SIGKILL)
        ranks[1].kill()
        self.start(control="{rejoin_timeout: 3s}")
        self.expect("job '…' …; join under another name, or once it has ended", self.said(self.rank("back", 0)), "INA_ERR_REFUSED")
        self.expect("did not come back within … s after the switch was restarted", self.said(ranks[0]), "INA_ERR_PEER_LOST")

    # ---- errors for administrators

    def test_inactl(self):
        self.start(control="{mode: 0666}", switch="{max_jobs: 8}", aggregator="{slots: 1024, policy: esa}")
        foreign = self.background([*as_user(NOBODY), LOAD_WORKER,
                                   f"shm:{self.socket}", "train", "0", "1"], stdout=subprocess.PIPE, text=True,
                                  env=os.environ | {"INA_JOB_OWNER": "uid:0"})
        self.expect("this is a worker of …: it may join a job of …", self.said(foreign), "INA_ERR_REFUSED")
        self.run_job("train")
        self.refused("is unknown (known: …)", "policy", "set", "best")
        self.refused("is no key of the policy", "policy", "set", "esa", "--set", "log.level=info")
        self.refused("there is no job '…'", "abort", "tune")
        self.refused("there is no job '…'", "job", "show", "tune")
        self.refused("there is no port '…'", "port", "show", "eth7")
        self.refused("has no rank … at present", "kick", "train", "7")
        self.refused("belongs to …, and you are …: its owner and administrators may trace it", "trace", "train", uid=NOBODY)
        self.refused("a trace takes …", "trace", "train", "--timeout", "11s", uid=NOBODY)
        made = self.inactl("create", "train", "--workers", "1", "--tenant", f"uid:{NOBODY}")
        self.assertEqual(made.returncode, 0, made)
        self.refused("jobs are named '…', of …", "abort", "train")
        self.assertEqual(self.inactl("create", "idle", "--workers", "1", "--tenant", f"uid:{NOBODY}").returncode, 0)

        def begun():
            return (self.folder / "log").read_text().count("packets traced")

        before = begun()
        waits = self.background([*as_user(NOBODY), INACTL, "trace", "idle",
                                 "--socket", str(self.socket)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        wait_until("a trace", lambda: begun() > before)
        self.refused("the switch traces job …", "trace", "train", uid=NOBODY)
        self.assertEqual(self.inactl("trace", "train", "--owner", "uid:0").returncode, 0)
        self.expect("an administrator has begun a trace, which ended this one", waits.communicate(timeout=DEADLINE_S)[1])

    def test_another_configuration(self):
        self.start(aggregator="{slots: 256, policy: esa}")
        jobs = [self.run_job(name) for name in ("one", "two", "three")]
        self.refused("jobs could not go on, so nothing was changed", "policy", "set", "static")
        self.write(aggregator="{slots: 256, policy: esa}", switch="{max_jobs: 1}")
        done = self.inactl("reload", "--check")
        self.assertEqual(done.returncode, 0, done)
        self.expect("switch.max_jobs is smaller than it was", done.stdout)
        self.assertEqual(self.inactl("policy", "set", "static", "--force").returncode, 0)
        self.expect("an administrator gave the switch another configuration", self.said(jobs[2][0]), "INA_ERR_ABORTED")
        self.write(ports=f'[{{name: shm0, type: shm}}, {{name: memif0, type: ethdev, ip: 10.0.0.1, device: "net_memif0,role=server,'
                         f'id=0,socket={self.folder}/m.sock,socket-abstract=no,rsize=7,bsize=2048,rsize=99"}}]')
        self.refused("the switch did not start with it, and goes on with the configuration before", "reload", "--timeout", "30s")

    def test_a_log_that_cannot_go_on(self):
        logs = self.folder / "logs"
        logs.mkdir()
        self.start(log=f"{{file: {logs / 'switch.log'}}}")
        (logs / "switch.log").unlink()
        logs.rmdir()
        self.refused("; the log goes on where it was", "reload")

    def test_a_switch_that_takes_long_to_start_again(self):
        self.start()
        slots = 256

        def late():
            """Returns the text of a reload whose switch was stopped between its end and its new
            start."""
            nonlocal slots
            slots *= 2
            self.write(aggregator=f"{{slots: {slots}}}")
            ends = self.log().count(" stopped")
            reload = self.background([INACTL, "reload", "--timeout", "1s", "--socket", str(self.socket)], stdout=subprocess.DEVNULL,
                                     stderr=subprocess.PIPE, text=True)
            wait_until("the end", lambda: self.log().count(" stopped") > ends)
            self.switch.send_signal(signal.SIGSTOP)
            text = reload.communicate(timeout=DEADLINE_S)[1]
            self.switch.send_signal(signal.SIGCONT)
            self.await_switch()
            return text

        self.expect("the switch is not back yet (--timeout)", wait_until("a late switch", late))

    def test_certificates_of_administrators(self):
        for name in ("one", "other"):
            self.certificate(name)
        listen = free_port()
        one = f"{self.folder}/one"
        self.start(admin=f'{{listen: "127.0.0.1:{listen}", certificate: {one}.crt, key: {one}.key, client_ca: {one}.crt}}')

        def asks(authority, certificate):
            own = f"{self.folder}/{certificate}"
            return ("undrain", "--admin", f"127.0.0.1:{listen}", "--ca", f"{self.folder}/{authority}.crt", "--cert", f"{own}.crt",
                    "--key", f"{own}.key")

        self.refused("no TLS with the switch at …", *asks("other", "one"), exit_status=3)
        self.refused("TLS: …", *asks("one", "other"), exit_status=3)

    def certificate(self, name):
        """Makes a self-signed certificate: NAME.crt and NAME.key."""
        key = self.folder / f"{name}.key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc",
                        "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key,
                        "-out", self.folder / f"{name}.crt"], check=True, capture_output=True, timeout=DEADLINE_S)
        key.chmod(0o600)

    # ---- reasons why a switch does not start

    def test_starts_that_fail(self):
        def fails(recipe, uid=0, socket_path=None, statuses=(1, 2), **sections):
            self.write(**sections)
            done = subprocess.run([*as_user(uid), SWITCHD, "--check", "--config", str(self.config),
                                   "--socket", str(socket_path or self.folder / "checked.sock")],
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
            self.assertIn(done.returncode, statuses, done)
            self.expect(recipe, done.stderr)

        def ethdev(device, **keys):
            more = "".join(f", {key}: {value}" for key, value in keys.items())
            return f'[{{name: shm0, type: shm}}, {{name: eth0, type: ethdev, ip: 10.0.0.1, device: "{device}"{more}}}]'

        self.start()
        fails("another switch already listens on …", socket_path=self.socket)
        fails("unknown key", aggregator="{slot: 7}")
        fails("is not in 1..…", aggregator="{slots: 0}")
        fails("is not a multiple of …", aggregator="{slot_bytes: 1000}")
        fails("is more than …", aggregator="{slots: 64}")
        fails("does not go with …", straggler="{help: leader}")
        fails("could join", control='{listen: "127.0.0.1:7583"}')
        fails("does not exist: create it first", socket_path=self.folder / "none" / "switch.sock")
        plain = self.folder / "plain"
        plain.write_text("")
        fails("exists and is not a socket", socket_path=plain)
        fails("may not be written to by this user", uid=NOBODY)
        with socket.create_server(("127.0.0.1", 0)) as server:
            fails("another program listens there",
                  control=f'{{listen: "127.0.0.1:{server.getsockname()[1]}", allow_anonymous: true}}')
        fails("it is no address of this machine", control='{listen: "192.0.2.1:7583", allow_anonymous: true}')
        fails("this machine has no group", admin="{group: no-such-group}")
        fails("does not exist or is not allowed to this process", eal='{cpus: "1000"}')
        fails("of hugepages …, but … are free", eal="{huge: yes}", aggregator="{slots: 16777216, slot_bytes: 64KiB}")
        fails("of memory at once", aggregator="{slots: 16777216, slot_bytes: 64KiB}")
        fails("there is no interface …", ports=ethdev("net_af_packet0,iface=nosuch0"))
        fails("there is no PCI device …", ports=ethdev("ffff:ff:1f.7"))
        fails("no worker's message would pass", statuses=(0,), ports=ethdev("net_af_packet0,iface=lo,framesz=256,blocksz=4096"))
        fails("needs root, or …", uid=NOBODY, ports=ethdev("net_af_packet0,iface=lo"))
        fails("for the packet buffers of the Ethernet ports", eal="{huge: no, memory: 32MiB}",
              ports=ethdev("net_af_packet0,iface=lo", mtu=9000, rx_descriptors=4096, tx_descriptors=4096))
        self.config.unlink()
        done = subprocess.run([SWITCHD, "--check", "--config", str(self.config)], capture_output=True, text=True, check=False,
                              timeout=DEADLINE_S)
        self.assertEqual(done.returncode, 2)
        self.expect("cannot be read", done.stderr)


if __name__ == "__main__":
    error_cases.main()
