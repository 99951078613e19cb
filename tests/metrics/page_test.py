#!/usr/bin/env python3
"""Tests the page of a running switch, both by HTTP and in a headless Chromium.

    page_test.py INA_SWITCHD LOAD_WORKER INACTL [--shots FOLDER]

Without Chromium the test is skipped, after the checks that need no browser. --shots: also saves
screenshots of the page.
"""

import contextlib
import http.client
import json
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))

from browser import Browser  # noqa: E402
from metrics_switch import Switch  # noqa: E402
from waiting import DEADLINE_S, wait_until  # noqa: E402

SKIPPED = 77
SLOTS = 512
MOST_TABS = 20
# The policy static has pools, whose slots show their last use.
CONFIG = f"""\
aggregator: {{{{slots: {SLOTS}, slot_bytes: 1024, policy: static}}}}
static: {{{{slots_per_job: 128}}}}
eal: {{{{huge: no}}}}
metrics: {{{{listen: "127.0.0.1:{{port}}", hosts: [switch1], page: PAGE}}}}
log: {{{{level: critical}}}}
"""
# Jobs take slots from one another. With one way a fragment has no other slot to choose.
FEW_SLOTS = """\
aggregator: {{slots: 64, ways: 1, slot_bytes: 1024, policy: esa}}
eal: {{huge: no}}
metrics: {{listen: "127.0.0.1:{port}"}}
log: {{level: critical}}
"""
# A job name that a worker may choose.
HOSTILE = "<img src=x onerror=\"document.title='broken'\">&amp;\u202e"
SHOWN = HOSTILE.replace("\u202e", "\\u{202e}")
PAGE = {"/": "text/html; charset=utf-8", "/page.css": "text/css; charset=utf-8",
        "/page.js": "text/javascript; charset=utf-8", "/status.json": "application/json",
        "/slots.json": "application/json"}
METRICS = {"/metrics": "text/plain; version=0.0.4; charset=utf-8"}


def ask(switch, path, method="GET", **headers):
    """Returns status, headers, and text."""
    connection = http.client.HTTPConnection("127.0.0.1", switch.port, timeout=DEADLINE_S)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in ({"Host": f"127.0.0.1:{switch.port}"} | headers).items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


def read_json(switch, path):
    status, _, text = ask(switch, path)
    assert status == 200, text
    return json.loads(text)


def documented_members(name):
    """Returns the members in the manual's table of this name."""
    table = (ROOT / "docs/administration.md").read_text().split(f"\n| `{name}` | |\n")[1].split("\n\n")[0]
    return {member for row in table.splitlines() for member in re.findall(r"`(\w+)`", row.split("|")[1])}


# ---- HTTP


def check_answers(switch):
    for path, kind in (PAGE | METRICS).items():
        status, headers, text = ask(switch, path)
        assert (status, headers["Content-Type"]) == (200, kind), (path, status, headers.items())
        assert text and headers["X-Content-Type-Options"] == "nosniff", path
        policy = headers["Content-Security-Policy"]
        for rule in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"):
            assert rule in policy, policy
        assert "unsafe" not in policy and "*" not in policy, policy
        assert not [name for name in headers if name.startswith("Access-Control")], headers.items()
    for path in ("/other", "/page.js/", "/index.html", "/%2e%2e/etc/passwd"):
        assert ask(switch, path)[0] == 404, path


def check_refusals(switch):
    for path in PAGE | METRICS:
        for host in ("evil.example", f"evil.example:{switch.port}", "127.0.0.1.evil.example"):
            status, _, text = ask(switch, path, Host=host)
            assert status == 403 and "metrics.hosts" in text and "evil" not in text, (path, status, text)
        for host in ("localhost", f"localhost:{switch.port}", "[::1]:1", "switch1", "Switch1:80"):
            assert ask(switch, path, Host=host)[0] == 200, (path, host)
        for method in ("HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "PROPFIND"):
            status, headers, text = ask(switch, path, method, Origin="http://evil.example")
            assert status == 405 and headers["Allow"] == "GET", (method, path, status)
            assert not headers["Access-Control-Allow-Origin"], (method, path)
        assert ask(switch, path, "TRACE")[0] == 400, path  # the server does not know this method


def check_json(switch, inactl):
    """The page has inactl's figures, and more readers cause no more requests to the conductor."""
    with contextlib.ExitStack() as stack:
        switch.job(stack, "train", -1)
        job = wait_until("a job", lambda: read_json(switch, "/status.json")["jobs"])[0]
        wait_until("its slots", lambda: read_json(switch, "/slots.json")["used"])
        said = json.loads(subprocess.run(
            [inactl, "status", "--json", "--socket", switch.socket], check=True, text=True,
            capture_output=True).stdout)
        status, slots = read_json(switch, "/status.json"), read_json(switch, "/slots.json")
        assert set(status) == set(said) | {"schema"} and status["schema"] == 1, status
        assert (slots["schema"], slots["slots"], slots["cells"], slots["slots_per_cell"]) == (1, SLOTS, SLOTS, 1)
        assert set(slots) == documented_members("/slots.json"), slots
        assert slots["columns"] == ["cell", "state", "job", "age_us", "contributions"], slots
        for cell, state, held_by, age_us, contributions in slots["used"]:
            assert 0 <= cell < SLOTS and state in ("filling", "complete", "answered", "frozen"), slots
            assert held_by == job["id"] and age_us >= 0 and 0 < contributions <= 2, slots
        began = time.monotonic()
        seen = {read_json(switch, "/status.json")["uptime_s"] for _ in range(50)}
        assert len(seen) <= (time.monotonic() - began) / 0.25 + 2, seen


def check_without_page(program, load_worker, folder):
    with contextlib.ExitStack() as stack:
        folder.mkdir()
        switch = Switch(program, load_worker, folder, stack, CONFIG.replace("PAGE", "false"))
        for path in PAGE:
            assert ask(switch, path)[0] == 404, path


# ---- the browser

CELL = "[...document.querySelectorAll('#{table} tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"

FIGURES = ("[...document.querySelectorAll('#figures div')].map((box) =>"
           " [box.querySelector('dt').textContent, box.querySelector('small').textContent])")


def rows(browser, table):
    return browser.ask(CELL.format(table=table))


def job_rows(browser, name):
    return [row for row in rows(browser, "jobs") if row[0].endswith(f"/{name}")]


def check_figures(browser, switch):
    """Names are shown as text, and numbers are those of /status.json."""
    wait_until("the job's row", lambda: job_rows(browser, SHOWN))
    assert browser.ask("document.title").endswith(f"{socket.gethostname()} · INA switch")
    assert browser.ask("document.images.length") == 0
    wait_until("a rate", lambda: job_rows(browser, SHOWN)[0][3] not in ("–", "0"))
    row = job_rows(browser, SHOWN)[0]
    assert row[1:3] == ["running", "2 of 2"] and row[4].endswith("B/s"), row
    wait_until("a trend", lambda: browser.ask("document.querySelector('#jobs polyline').points.length") > 1)
    assert browser.ask("document.querySelectorAll('#map i').length") == SLOTS
    wait_until("used slots", lambda: browser.ask("document.querySelectorAll('#map [class^=age], #map .kept').length") > 0)
    # Other counters, such as that of packets sent twice, may change.
    mismatches = read_json(switch, "/status.json")["aggregator"]["drops"]["mismatch"]
    wait_until("drops", lambda: ["aggregator", "mismatch", f"{mismatches:,}"] in
               [row[:3] for row in rows(browser, "drops")])
    port = rows(browser, "ports")[0]
    assert port[:2] == ["shm0", "shm"] and port[2].endswith("B/s"), port
    assert rows(browser, "loops")[0][0] == "0"
    elsewhere = browser.ask("performance.getEntriesByType('resource').map((entry) => entry.name)"
                            ".filter((name) => !name.startsWith(location.origin))")
    assert elsewhere == [], elsewhere


def check_keys(browser):
    colouring = "document.querySelector('#colouring :checked').value"
    for key, by in (("j", "job"), ("s", "state"), ("a", "age")):
        browser.press(key)
        assert browser.ask(colouring) == by
        legend = browser.ask("document.querySelectorAll('#legend li').length")
        assert legend >= 2, (by, legend)
    # The map can be reached without a mouse.
    for _ in range(MOST_TABS):
        if browser.ask("document.activeElement.id") == "map":
            break
        browser.press("Tab")
    assert browser.ask("document.activeElement.id") == "map", browser.ask("document.activeElement.outerHTML")
    for key, slot in (("ArrowRight", "Slot 0:"), ("ArrowRight", "Slot 1:"), ("End", f"Slot {SLOTS - 1}:"),
                      ("ArrowLeft", f"Slot {SLOTS - 2}:"), ("Home", "Slot 0:"), ("ArrowUp", "Slot 0:")):
        browser.press(key)
        detail = browser.ask("document.getElementById('detail').textContent")
        assert detail.startswith(slot), (key, detail)
    browser.press("p")
    assert browser.ask("document.getElementById('state').textContent") == "paused"
    browser.press("p")
    wait_until("live", lambda: browser.ask("document.getElementById('state').textContent") == "live")


def check_straggler(browser, worker):
    worker.send_signal(signal.SIGSTOP)
    wait_until("a straggler", lambda: [row for row in rows(browser, "stragglers")
                                       if row[0].endswith(f"/{SHOWN}") and row[1].startswith("rank 1 (")])
    worker.send_signal(signal.SIGCONT)
    wait_until("no straggler", lambda: not rows(browser, "stragglers"))


def check_looks(browser, shots):
    """The page works light and dark, and nothing is wider than a phone."""
    papers = set()
    for name, width, dark in (("light", 1200, False), ("dark", 1200, True), ("phone", 390, False)):
        browser.screen(width, dark=dark)
        papers.add(browser.ask("getComputedStyle(document.documentElement).backgroundColor"))
        assert browser.ask("document.documentElement.scrollWidth") <= width, name
        if shots:
            browser.shoot(pathlib.Path(shots) / f"page-{name}.png")
    assert len(papers) == 2, papers


def check_gone(browser, switch, workers):
    """First the job ends, then the switch."""
    workers[0].terminate()
    assert [worker.wait(DEADLINE_S) for worker in workers] == [0, 0]
    wait_until("no job", lambda: not rows(browser, "jobs"))
    switch.process.terminate()
    assert switch.process.wait(DEADLINE_S) == 0
    wait_until("no answer", lambda: browser.ask("document.getElementById('state').textContent").startswith("no answer"))


def number(text):
    return int(text.replace(",", ""))


def check_preemptions(browser, program, load_worker, folder):
    """A job that waits for a stopped rank loses slots to another job. This one need not be more
    urgent: each attempt to preempt a slot halves the slot's priority."""
    with contextlib.ExitStack() as stack:
        folder.mkdir()
        switch = Switch(program, load_worker, folder, stack, FEW_SLOTS)
        waiting = switch.job(stack, "waits", -1)
        wait_until("sums", lambda: [job for job in read_json(switch, "/status.json")["jobs"] if job["results"] > 0])
        waiting[1].send_signal(signal.SIGSTOP)
        switch.job(stack, "takes", -1)
        browser.open(f"http://127.0.0.1:{switch.port}/")

        def in_all():
            shown = dict(browser.ask(FIGURES)).get("Preempted/s", "")
            return number(shown.split()[0]) if shown.endswith(" in all") else 0

        wait_until("preemptions", lambda: in_all() > 0)
        wait_until("the job's preemptions", lambda: [row for row in job_rows(browser, "waits") if number(row[-1]) > 0])
        shown = in_all(), number(job_rows(browser, "waits")[0][-1])
        status = read_json(switch, "/status.json")
        lost = {job["name"]: job["preempted"] for job in status["jobs"]}
        assert shown[0] <= status["aggregator"]["preemptions"] and shown[1] <= lost["waits"], (shown, status)


def check_browser(browser, switch, shots):
    with contextlib.ExitStack() as stack:
        # Ranks disagree, so that packets are dropped.
        for worker in switch.job(stack, "disagree", 1, elements=(4096, 2048)):
            worker.wait(DEADLINE_S)
        workers = switch.job(stack, HOSTILE, -1)
        browser.screen(1200)
        browser.open(f"http://127.0.0.1:{switch.port}/")
        check_figures(browser, switch)
        check_keys(browser)
        check_straggler(browser, workers[1])
        check_looks(browser, shots)
        check_gone(browser, switch, workers)


def main(program, load_worker, inactl, *options):
    shots = options[1] if options[:1] == ("--shots",) else None
    with tempfile.TemporaryDirectory(prefix="ina-page-") as name, contextlib.ExitStack() as stack:
        folder = pathlib.Path(name)
        check_without_page(program, load_worker, folder / "without")
        switch = Switch(program, load_worker, folder, stack, CONFIG.replace("PAGE", "true"))
        check_answers(switch)
        check_refusals(switch)
        check_json(switch, inactl)
        if not Browser.is_here():
            print("no chromium: apt-get install $(sed 's/#.*//' packages-browser.txt)")
            return SKIPPED
        with Browser(folder) as browser:
            check_browser(browser, switch, shots)
            check_preemptions(browser, program, load_worker, folder / "preempted")
            browser.ask("0")  # what the page threw before has come in by then
            assert not browser.exceptions, browser.exceptions
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
