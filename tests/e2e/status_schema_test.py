#!/usr/bin/env python3
"""Every member of `inactl status --json`, `job show --json` and `port show --json` is documented, and
every documented member is one of a real switch's answers, or of those that UNSEEN excuses.

    status_schema_test.py INA_SWITCHD INACTL LOAD_WORKER LIBINA INA_PSD INA_MEMIF
"""

import json
import pathlib
import re
import signal
import sys
import threading

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path += [str(ROOT / "tests/support"), str(ROOT / "scripts")]

import error_cases  # noqa: E402
import make_reference  # noqa: E402
from libina import errors_of  # noqa: E402
from waiting import DEADLINE_S, wait_until  # noqa: E402

DOCUMENT = ROOT / "docs/administration.md"
# Objects whose members are no part of the schema, but keys and drop reasons.
OPEN = ("overrides", "drops")
# Frames that do not arrive, loops, interfaces that go and switches below need a network, frozen processes a control group:
# tests/switchd/dropped_test.cc, tests/net/loops_test.py, interfaces_test.py and trees_test.py have these members.
UNSEEN = {"jobs": {"unheard", "frozen", "frozen_peers"}, "unheard": {"rank", "dropped", "reason", "text"},
          "below": {"peer", "ranks", "state"},
          "ports": {"blocked", "gone"}, "blocked": {"sign", "with", "for_s", "text"}}


def documented():
    """Returns the members in the tables of the document, by table, and the counters in docs/reference/counters.md."""
    text = DOCUMENT.read_text().split("\n### Members of status\n")[1].split("\n## ")[0]
    tables, name = {}, ""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            name = ""
        elif not name:
            name = cells[0].strip("`")
            tables[name] = set()
        elif not line.startswith("|---"):
            tables[name] |= set(re.findall(r"`(\w+)`", cells[0]))
    for name, members in make_reference.counter_names().items():
        tables[name] |= members
    return tables


def note(name, value, seen):
    """Adds the members of an object, of the objects in it, and of those in its lists to `seen`."""
    if isinstance(value, list):
        for item in value:
            note(name, item, seen)
    elif isinstance(value, dict) and name not in OPEN:
        seen.setdefault(name, set()).update(value)
        for key, item in value.items():
            note(key, item, seen)


class StatusSchemaTest(error_cases.LibraryCases):
    seen = {}  # of all cases together

    def status(self):
        found = json.loads(self.inactl("status", "--json").stdout)
        note("status", found, self.seen)
        return found

    def await_member(self, job, key):
        wait_until(f"{key} of {job}", lambda: key in self.job_in(self.status(), job))

    @staticmethod
    def job_in(status, name):
        return next((job for job in status["jobs"] if job["name"] == name), {})

    def test_1_a_static_switch_that_needs_a_fallback_server(self):
        self.start(fallback="{home: dedicated}")
        self.rank("gathers", 0)
        self.await_member("gathers", "fallback_missing")

    def test_2_a_switch_with_a_port_and_tenants(self):
        devices = ", ".join(f"{{name: wire{number}, type: ethdev, ip: 10.1.2.3, device: net_null{number}}}" for number in range(2))
        self.start(aggregator="{policy: esa, slots: 1024}", straggler="{help: leader}", tenants="[{name: red, jobs_max: 4}]",
                   ports=f"[{{name: shm0, type: shm}}, {devices}]")
        self.assertEqual(self.inactl("create", "later", "--workers", "2", "--tenant", "red").returncode, 0)
        self.await_member("later", "reserved_s")
        self.await_member("later", "tenant")
        ranks = self.run_job("halts", size=3)
        ranks[1].send_signal(signal.SIGSTOP)
        wait_until("a wait for rank 1 alone", lambda: self.job_in(self.status(), "halts").get("waiting_for") == [1] and
                   self.job_in(self.status(), "halts").get("waiting_for_processes") == ["stopped"])
        ranks[2].send_signal(signal.SIGSTOP)  # has contributed
        self.await_member("halts", "stopped")
        shown = json.loads(self.inactl("job", "show", "halts", "--json").stdout)
        note("jobs", shown["job"], self.seen)
        ports = json.loads(self.inactl("port", "show", "--json").stdout)["ports"]
        self.assertEqual({port["type"] for port in ports}, {"shm", "ethdev"})
        note("ports", ports, self.seen)

    def test_2_a_switch_below_one_that_is_not_there(self):
        self.start(aggregator="{policy: esa, slots: 1024}", uplink="{url: /nowhere/switch.sock, port: up}",
                   ports="[{name: shm0, type: shm}, {name: up, type: ethdev, ip: 10.1.2.3, device: net_null0}]")
        self.rank("waits", 0)
        wait_until("the switch above", lambda: (self.job_in(self.status(), "waits").get("tree") or {}).get("above"))

    def test_3_calls_that_some_ranks_have_not_made(self):
        self.start(aggregator="{slots: 1024}")
        self.groups_of(self.job_of(2, "calls"))
        self.assertIn("root_ranks", {key for job in self.status()["jobs"] for key in job})
        for member, call in (("splitting", lambda rank: rank.split()), ("creating", lambda rank: rank.create_group([0, 1])),
                             ("sharing", lambda rank: rank.memory("alloc_result")),
                             ("left", lambda rank: rank.finalize(DEADLINE_S))):
            first = self.job_of(2, member)[0]
            waits = threading.Thread(target=errors_of, args=(1, lambda _, call=call, first=first: call(first)))
            waits.start()
            self.await_member(member, member)
            self.assertEqual(self.inactl("abort", member).returncode, 0)
            waits.join()

    def test_4_every_member_is_documented_and_every_documented_one_there(self):
        tables = documented()
        for name, members in self.seen.items():
            self.assertEqual(members - tables.get(name, set()), set(), f"not in the table `{name}` of {DOCUMENT.name}")
        for name, members in tables.items():
            missing = members - self.seen.get(name, set()) - UNSEEN.get(name, set())
            self.assertEqual(missing, set(), f"in the table `{name}` of {DOCUMENT.name}, and no switch has it")


if __name__ == "__main__":
    error_cases.main()
