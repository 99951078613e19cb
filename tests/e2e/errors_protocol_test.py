#!/usr/bin/env python3
"""Errors about peers that break the protocol and that have recipes in docs/operations.md, each
caused on purpose: a process between a real switch and real workers changes their messages
(tests/support/meddler.py).

    errors_protocol_test.py INA_SWITCHD INACTL LOAD_WORKER LIBINA INA_PSD INA_MEMIF
"""

import fcntl
import itertools
import os
import pathlib
import signal
import socket
import sys
import tempfile
import threading

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "support"))

import error_cases  # noqa: E402
from error_cases import PSD  # noqa: E402
from libina import errors_of, on_ranks  # noqa: E402
from meddler import CLOSE, Meddler  # noqa: E402
from waiting import wait_until  # noqa: E402


F_SEAL_FUTURE_WRITE = 0x10  # fcntl has no name for it


class ProtocolErrorsTest(error_cases.LibraryCases):
    def meddle(self, change):
        """Starts a meddler, and returns the URL by which ranks of `job_of` reach the switch through
        it."""
        self.meddler = Meddler(pathlib.Path(tempfile.mkdtemp(dir=self.folder)) / "switch.sock", self.socket, change)
        self.addCleanup(self.meddler.close)
        return f"shm:{self.meddler.path}"

    def changing(self, kind, **changed):
        """Starts a meddler that changes fields of all messages of type `kind`, and returns its
        URL."""
        return self.meddle(lambda message, _: message | changed if message["type"] == kind else message)

    # ---- messages of a switch of another version

    def test_joining(self):
        self.start()

        # The switch may see the end of one only after the next one has joined.
        names = (f"job-{number}" for number in itertools.count())

        def alone(url, **more):
            return lambda: self.join_job(next(names), 0, 1, url, **more)

        def other_layout(message, _):
            return message | {"shm": message["shm"] | {"layout": 99}} if message["type"] == "joined" else message

        self.fails("uses shm layout", alone(self.meddle(other_layout)), "INA_ERR_VERSION")
        url = self.changing("joined", then_close=True)
        self.fails("the switch closed the connection", alone(url), "INA_ERR_SWITCH_LOST")
        url = self.meddle(lambda message, _: None if message["type"] == "registered" else message)
        context = self.in_time(lambda timeout_s: self.join_job(next(names), 0, 1, url, timeout_s=timeout_s))
        text = errors_of(1, lambda _: context.memory("alloc"))[0]
        self.expect("the switch did not answer within …", text, "INA_ERR_TIMEOUT")
        self.assertIn("; the switch holds no incomplete fragment of the job", text)

    def test_memory_that_does_not_fit(self):
        self.start()
        seals = 0

        def other_memory(message, descriptors):
            if message["type"] == "attach":
                descriptors[0] = os.memfd_create("other", os.MFD_ALLOW_SEALING)
                self.addCleanup(os.close, descriptors[0])
                os.write(descriptors[0], bytes(4096))
                fcntl.fcntl(descriptors[0], fcntl.F_ADD_SEALS, seals)
            return message

        url = self.meddle(other_memory)
        # The switch may see the end of the first one only after the second one has joined.
        self.fails("is not sealed with", lambda: self.join_job("first", 0, 1, url), "INA_ERR_REFUSED")
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | F_SEAL_FUTURE_WRITE
        self.fails("the … has … bytes, agreed were", lambda: self.join_job("second", 0, 1, url), "INA_ERR_REFUSED")

    def test_tags_of_another_kind(self):
        memif = f'device: "net_memif0,role=server,id=0,socket={self.folder}/m.sock,socket-abstract=no,rsize=7,bsize=2048"'
        self.start(ports=f"[{{name: shm0, type: shm}}, {{name: memif0, type: ethdev, ip: 10.0.0.1, {memif}}}]")
        meddling = self.changing("joined", tag={"algorithm": "rot13", "key": [1, 2], "payload_key": [3, 4]})
        url = f"udp:10.0.0.1?control={meddling.removeprefix('shm:')}&port=memif0&ip=127.0.0.1"
        self.fails("wants tags of a kind", lambda: self.join_job("job", 0, 1, url), "INA_ERR_VERSION")

    def test_a_fallback_server_that_is_not_answered(self):
        self.start(fallback="{home: dedicated}")
        url = self.meddle(lambda message, _: None if message["type"] == "join_fallback" else message)
        self.logged([PSD, "--socket", url.removeprefix("shm:")])
        self.rank("job", 0, 1)
        self.logs("the switch did not answer the request to join a job")

    # ---- connections over TCP

    def test_a_server_that_hangs_up(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            threading.Thread(target=lambda: server.accept()[0].close(), daemon=True).start()
            self.refused("the control connection …", "status", "--socket", f"tcp:127.0.0.1:{server.getsockname()[1]}")

    # ---- groups

    def test_a_rank_that_does_not_come_to_its_group(self):
        self.start(aggregator="{slots: 4096}")
        url = self.meddle(lambda message, _: None if message["type"] == "join" and "channel" in message and
                          message["rank"] == 1 else message)
        ranks = self.in_time(lambda timeout_s: self.job_of(2, f"late-{timeout_s}", url=url, timeout_s=timeout_s))
        text = errors_of(2, lambda rank: self.addCleanup(ranks[rank].split().leave))[0]
        self.expect("waited … for … to join", text, "INA_ERR_TIMEOUT")
        self.assertIn(f"to join it; rank 1 (rank 1 of the job, pid {os.getpid()} on {socket.gethostname()}) of 2 has not "
                      "joined: its process has called ina_split, and not come to the group yet", text)

    def split(self, name, change, apart=True):
        """Returns the errors of two ranks behind a meddler that split their job: `apart`, each into
        a group of its own, or else all into one group."""
        ranks = self.job_of(2, name, url=self.meddle(change))
        return errors_of(2, lambda rank: self.addCleanup(ranks[rank].split(colour=rank * apart).leave))

    def test_groups(self):
        self.start(aggregator="{slots: 4096}")

        def other_number(message, _):
            return message | {"number": 7} if message["type"] == "split" and message.get("colour") == 1 else message

        self.all_said("this is split …", self.split("number", other_number), "INA_ERR_MISMATCH")

        def pigeons(message, _):
            if message["type"] != "join" or "channel" not in message or message["rank"] == 0:
                return message
            wait_until("the other", lambda: any(said["type"] == "waiting" and "channel" in said for said in self.meddler.heard))
            return message | {"transport": "pigeons"}

        texts = self.split("pigeons", pigeons, apart=False)
        self.expect("has no place in group '…'", texts[0], "INA_ERR_UNSUPPORTED")
        self.expect("this switch offers no '…' transport", texts[1], "INA_ERR_UNSUPPORTED")

    def test_a_group_of_other_ranks(self):
        """Each rank asks for a place in the other's group. The meddler makes the answer look like
        one for the rank's own group."""
        self.start(aggregator="{slots: 4096}")
        own = {}

        def other_group(message, _):
            if message["type"] == "split" and "job_id" in message:
                own.setdefault("all", []).append(message["job_id"])
            if message["type"] == "join" and "channel" in message:
                wait_until("both groups", lambda: len(own["all"]) == 2)
                return message | {"channel": sum(own["all"]) - message["channel"]}
            if message["type"] == "refused" and "channel" in message:
                return message | {"channel": sum(own["all"]) - message["channel"]}
            return message

        texts = self.split("swapped", other_group)
        # The one that is refused gives up, which the other may hear before its own refusal.
        self.all_said("has no place for rank …", texts)
        self.assertTrue(any(text.startswith("INA_ERR_REFUSED ") for text in texts), texts)
        own.clear()

        def note(message):
            if message["type"] == "split" and "job_id" in message:
                own.setdefault("all", []).append(message["job_id"])
            return message

        def no_group(message, _):
            if message["type"] == "join" and message.get("channel") == max(own.get("all", [0])):
                return message | {"channel": 4711}
            return message | {"channel": max(own["all"])} if message.get("channel") == 4711 else message

        texts = self.split("none", lambda message, _: no_group(note(message), _))
        self.expect("there is no group … that this worker may join", max(texts, key=len), "INA_ERR_REFUSED")

    def test_a_worker_that_dies_as_a_group_is_made(self):
        self.start(aggregator="{slots: 4096}")

        second = self.meddle(lambda message, _: message)
        heard = self.meddler.heard

        def dies(message, _):
            if message["type"] != "attach" or "channel" not in message:
                return message
            wait_until("the other", lambda: any(said["type"] == "waiting" and "channel" in said for said in heard))
            return CLOSE

        urls = [self.meddle(dies), second]
        ranks = on_ranks(2, lambda rank: self.join_job("dies", rank, 2, urls[rank], rejoin_timeout_us=1))
        texts = errors_of(2, lambda rank: self.addCleanup(ranks[rank].split().leave))
        self.expect("died or left while the group was made", texts[1], "INA_ERR_PEER_LOST")

    # ---- after a restart

    def comes_back(self, name, change, groups=False):
        """Returns the errors of a job, or of a group of it, whose switch is restarted. From then on
        `change` gets the messages of both sides."""
        kept = []
        url = self.meddle(lambda message, _: change(message) if kept else message)
        ranks = self.job_of(2, name, url=url)
        if groups:
            ranks = self.groups_of(ranks)
        kept.append(True)
        self.stop(signal.SIGKILL)
        self.switch.communicate()
        self.start(aggregator="{slots: 4096}")
        return errors_of(2, lambda rank: ranks[rank].allreduce())

    def test_coming_back_to_something_else(self):
        self.start(aggregator="{slots: 4096}")

        def joined(**changed):
            return lambda message: message | changed if message["type"] == "joined" else message

        self.all_said("came back with another place for the fallback", self.comes_back("home", joined(home="dedicated")))
        self.all_said("came back with another window", self.comes_back("window", joined(window=32)))

        def unknown_group(message):
            if message["type"] == "rejoin" and "channel" in message:
                group.append(message["channel"])
                return message | {"channel": 4711}
            return message | {"channel": group[0]} if message.get("channel") == 4711 else message

        group = []
        self.all_said("the switch was restarted and does not know group …", self.comes_back("group", unknown_group, groups=True))

    def test_coming_back_from_nowhere(self):
        self.start()
        url = self.meddle(lambda message, _: message)
        self.job_of(2, "stays", url=url)
        key = next(message["job_key"] for message in self.meddler.heard if message["type"] == "joined")
        again = {"type": "rejoin", "job": "stays", "job_id": self.job("stays")["id"], "job_key": key, "low": 0, "next": 0,
                 "results_end": 0}
        self.told("waits for nobody to re-join", self.join(**again))


if __name__ == "__main__":
    error_cases.main()
