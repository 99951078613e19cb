"""Attacks by messages on control connections, and by the number of connections."""

import json
import os
import random
import socket
import struct

import peer
from attack import FAILURES, Attack, Holder
from peer import Peer

FORGED = "siege-forged"
# Written to the log unescaped, each would begin a line or a key of its own.
FORGERIES = (
    f"x\n2026-01-01T00:00:00.000000+00:00 info {FORGED}=1",
    f"x\r\n2026-01-01T00:00:00.000000+00:00 critical {FORGED}=1\r",
    f'x" {FORGED}="1',
    f'x\\" {FORGED}="1',
    f"x {FORGED}=1 y",
    f"x\x1b[2K\x1b[1A{FORGED}=1\x07\x00\x7f\x85\x9b2J",
    f"x\u2028{FORGED}=1\u202e\ufeff",
)
TYPES = ("join", "rejoin", "attach", "register", "unregister", "share_results", "free_results",
         "leave", "abort", "explain", "status", "trace", "split", "create_group", "mismatch", "serve", "next_job",
         "join_fallback", "joined", "ready", "")
FIELDS = ("version", "library", "job", "rank", "world_size", "window_bytes", "transport", "address",
          "port", "interface", "tags", "multicast", "result_buffers", "ticket", "parks", "job_id",
          "job_key", "low", "next", "results_end", "buffers_shared", "number", "bytes",
          "first_unit", "text", "token", "owner", "packets", "timeout_ms", "colour", "key",
          "operations")


class HoldConnections(Holder):
    """Takes all connections that the switch accepts."""

    def begin(self):
        for _ in range(4000):
            if self.connect(0.05) is None:
                break

    def step(self):
        if self.connect(0.05) is None:
            super().step()


class HoldAndSpeak(HoldConnections):
    """Takes all places: jobs of one worker that run, then all remaining connections."""

    job_options = {"window_bytes": 0}

    def begin(self):
        self.run_jobs(200, 2)
        super().begin()


class ConnectClose(Attack):
    """Connects and closes, with or without a message."""

    def step(self):
        for number in range(20):
            with self.trying("connections"):
                one = Peer(self.path)
                if number % 2:
                    one.send({"type": "join"})
                one.close()


class Nonsense(Holder):
    """Sends meaningless messages on thousands of connections."""

    def step(self):
        for _ in range(50):
            with self.trying("connections"):
                one = Peer(self.path, 0.2)
                self.held.append(one)
                one.send(random.choice([b"x" * 16384, b"{}", b"[]", b"\xff\xfe", b"{" * 1000,
                                        b'{"type":"' + b"\xf0\x9f" * 8000 + b'"}']))
        if len(self.held) > 500:
            while self.held:
                self.held.pop().close()

    def begin(self):
        random.seed(1)


class LogFlood(Holder):
    """Causes refusals over and over on connections that stay open."""

    def begin(self):
        for _ in range(8):
            self.connect()

    def step(self):
        for one in list(self.held):
            with self.trying("refusals"):
                one.ask({"type": "register" * 1900})
        if len(self.held) < 8:
            self.connect()
        for one in list(self.held):
            if self.did.get("refusals_failed", 0) > 100:
                self.drop(one)


class LogForgery(Attack):
    """Sends names, reasons and types that would form lines of the log."""

    def step(self):
        for text in FORGERIES:
            with self.trying("jobs"):
                one, _ = peer.run_job(self.path, text)
                one.send({"type": "abort", "text": text})
                one.close()
            with self.trying("texts"):
                one, _ = peer.run_job(self.path, self.name())
                one.send({"type": "mismatch", "text": text})
                one.close()
            for message in ({"type": text}, {"type": "join", "library": text, "version": 77},
                            peer.join_request("x", transport=text),
                            peer.join_request("x", ticket=text),
                            peer.join_request("x", transport="frame", port=text,
                                              address={"mac": [0] * 6, "ip": 1, "udp_port": 1})):
                with self.trying("types"):
                    one = Peer(self.path)
                    one.ask(message)
                    one.close()


class Garbage(Attack):
    """Sends every type of message with fields of every kind, in every state of a connection."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.random = random.Random(1)

    def value(self, depth=0):
        pick = self.random.randrange(14)
        if pick == 0 and depth < 3:
            return [self.value(depth + 1) for _ in range(self.random.randrange(4))]
        if pick == 1 and depth < 3:
            return {self.random.choice(FIELDS): self.value(depth + 1) for _ in range(3)}
        return self.random.choice([None, True, -1, 0, 1, 2, 63, 64, 65, 2**31, 2**32, 2**63,
                                   2**64 - 1, 2**64, -2**63, 1e308, 1.5, "", "shm", "frame",
                                   "x" * 200, "\0", "\ud800", self.job, [0] * 6])

    def message(self):
        kind = self.random.randrange(12)
        if kind == 0:
            depth = self.random.choice([100, 3000, 16000])
            return b"[" * depth + b"]" * self.random.choice([0, depth])
        if kind == 1:
            return b'{"a":' * 2600 + b"1" + b"}" * 2600
        if kind == 2:
            return b'{"type":"join","rank":1' + b"0" * 15000 + b"}"
        if kind == 3:
            return self.random.randbytes(self.random.choice([1, 100, 16384, 60000]))
        base = peer.join_request(f"{self.job}-{self.random.randrange(20)}")
        if kind > 6:
            base = {}
        base["type"] = self.random.choice(TYPES)
        for _ in range(self.random.randrange(5)):
            base[self.random.choice(FIELDS)] = self.value()
        return json.dumps(base).encode()[:60000]

    def step(self):
        with self.trying("connections"):
            one = Peer(self.path, 0.5)
            try:
                if self.random.randrange(2):
                    one.send(peer.join_request(self.name()))
                    one.hear("joined")
                if self.random.randrange(2):
                    fd = peer.memory_file(4096)
                    one.send({"type": "register", "number": 1, "bytes": 4096}, [fd])
                    os.close(fd)
                for _ in range(10):
                    one.send(self.message())
                    self.count("messages")
            finally:
                one.close()


class JoinDie(Attack):
    """Workers join, attach and disconnect without a message, at every stage."""

    def step(self):
        for stage in range(4):
            with self.trying("deaths"):
                one, joined = peer.join(self.path, self.name(), world=1 + stage % 2)
                if stage > 1:
                    peer.attach(one, joined, wait=stage == 2)
                one.close()


class AbortFlood(Attack):
    """Ends its own jobs with long reasons."""

    def step(self):
        kind = ("abort", "mismatch")[self.number % 2]
        with self.trying("jobs"):
            one, _ = peer.run_job(self.path, self.name())
            for _ in range(16):
                one.send({"type": kind, "text": "\\\"\n" * 4000})
            one.close()


class Disagree(Attack):
    """Two workers of the attacker never agree on world sizes, ranks or buffers."""

    def step(self):
        with self.trying("rounds"):
            name = self.name()
            one, _ = peer.join(self.path, name, 0, 2)
            other = Peer(self.path)
            other.ask(peer.join_request(name, 0, 2))
            other.close()
            one.close()
            one, _ = peer.join(self.path, self.name(), 0, 2)
            other = Peer(self.path)
            other.ask(peer.join_request(f"{self.job}-{self.number}", 1, 3))
            other.close()
            one.close()


class Tickets(Attack):
    """Guesses tickets."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.random = random.Random(1)

    def step(self):
        with self.trying("connections"):
            one = Peer(self.path)
            for _ in range(20):
                ticket = self.random.choice([f"{self.random.getrandbits(128):032x}", "0" * 32, "",
                                             7, "f" * 31])
                said = one.ask(peer.join_request(self.options["reserved"], ticket=ticket))
                self.count("guesses")
                if said["type"] == "joined":
                    self.broken.append(f"ticket {ticket} opened a job")
            one.close()


class ForgedRejoin(Attack):
    """Tries to rejoin other users' jobs with guessed names, ids and keys, and with its own."""

    def step(self):
        with self.trying("connections"):
            one = Peer(self.path)
            for job_id in (1, 2, 3):
                said = one.ask(peer.join_request(self.options["victim"], 0, 2) | {
                    "type": "rejoin", "job_id": job_id, "job_key": random.getrandbits(64),
                    "low": 0, "next": 0, "results_end": 0, "buffers_shared": 0})
                self.count("guesses")
                if said["type"] == "joined":
                    self.broken.append("a guess brought the attacker into another user's job")
            # At most this may make a job of the attacker's own by that name.
            one.ask(peer.join_request(self.options["victim"], 1, 2))
            one.close()


class UnreadStatus(Holder):
    """Asks for the status and does not read the answers."""

    def begin(self):
        for _ in range(self.options.get("connections", 64)):
            self.connect(0.05)

    def step(self):
        for one in list(self.held):
            one.socket.settimeout(0)
            try:
                one.send({"type": "status"})
                self.count("asked")
            except BlockingIOError:
                continue
            except OSError:
                self.drop(one)
                self.count("closed")
        while len(self.held) < self.options.get("connections", 64) and self.connect(0.05):
            pass
        super().step()


class StatusFlood(Holder):
    """Asks for the status and for the reasons why a job waits, as fast as possible."""

    def begin(self):
        for _ in range(8):
            self.connect()
        self.run_job()

    def step(self):
        for one in list(self.held):
            with self.trying("asked"):
                one.send({"type": "status"})
                one.send({"type": "explain"})
        for one in list(self.held):
            try:
                one.receive()
                one.receive()
                one.drop_fds()
            except FAILURES:
                self.drop(one)
                self.count("closed")
        if not self.held:
            self.begin()


class TraceFlood(Holder):
    """Traces packets of its own job, one at a time, as fast as possible."""

    def begin(self):
        self.run_job()

    def step(self):
        if not self.held:
            self.begin()
        with self.trying("traces"):
            one = Peer(self.path)
            try:
                for _ in range(20):
                    said = one.ask({"type": "trace", "job": f"{self.job}-{self.number}",
                                    "packets": 1, "timeout_ms": 1})
                    one.drop_fds()
                    self.count(said["type"])
                    if said["type"] == "refused":
                        raise peer.Refused(said)
            finally:
                one.close()


class SplitFlood(Holder):
    """Splits its own job over and over, until the switch refuses; then again with another job."""

    def step(self):
        self.end()
        one = self.run_job()
        if one is None:
            return super().step()
        for number in range(1, 2000):
            with self.trying("splits"):
                one.send({"type": "split", "colour": number % 3, "key": 0, "number": number})
                said = one.hear("split")
                self.count("groups", said.get("status") == 0)
                if said.get("status") == 0:
                    continue
            return None


class Strangers(Holder):
    """Connects over TCP, where nobody knows its name, says nothing or nonsense, and stays."""

    def step(self):
        for number in range(50):
            with self.trying("connections"):
                one = socket.socket()
                self.held.append(one)
                one.settimeout(0.2)
                one.connect(tuple(self.options["address"]))
                one.send((b"", b"\xff" * 4, struct.pack("<I", 2) + b"{}",
                          struct.pack("<I", 9000) + b"[" * 9000)[number % 4])
        if len(self.held) > 800:
            self.end()


class Squat(Holder):
    """Makes the job that users get by default when they name none, as one rank of 2, and waits."""

    def begin(self):
        with self.trying("jobs"):
            one, joined = peer.patiently(
                lambda: peer.join(self.path, self.options["name"], self.options["rank"], 2),
                peer.TIMEOUT_S)
            self.held.append(one)
            peer.attach(one, joined, wait=False)

    def step(self):
        for one in self.held:
            one.socket.settimeout(0.005)
            try:
                said = one.receive()
            except (TimeoutError, *FAILURES):
                continue
            if said.get("type") == "ready":
                self.broken.append("another user's worker has joined the attacker's job")


ATTACKS = {"hold_connections": HoldConnections, "hold_places": HoldAndSpeak,
           "connect_close": ConnectClose, "nonsense": Nonsense, "log_flood": LogFlood,
           "log_forgery": LogForgery, "garbage": Garbage, "join_die": JoinDie,
           "abort_flood": AbortFlood, "disagree": Disagree, "tickets": Tickets,
           "forged_rejoin": ForgedRejoin, "unread_status": UnreadStatus,
           "status_flood": StatusFlood, "trace_flood": TraceFlood, "split_flood": SplitFlood,
           "tcp_strangers": Strangers, "squat": Squat}
