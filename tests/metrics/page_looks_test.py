#!/usr/bin/env python3
"""Tests how the page looks, in a headless Chromium, with made statuses: at three widths, light and dark.

    page_looks_test.py [--shots FOLDER]

No switch is needed. Without Chromium the test is skipped. --shots: also saves screenshots.
"""

import contextlib
import http.server
import json
import pathlib
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))

from browser import Browser  # noqa: E402
from waiting import wait_until  # noqa: E402

SKIPPED = 77
PAGE = ROOT / "control/metrics/page"
FILES = {"/": ("index.html", "text/html"), "/page.js": ("page.js", "text/javascript"),
         "/page.css": ("page.css", "text/css")}
WIDTHS = (420, 768, 1400)
LEAST_CONTRAST = 4.5  # of text, WCAG 2 AA
MOST_SHIFT = 0.02     # of the layout while the first answers come, 1 is the whole screen
LONG_NAME = "a-rather-long-name-of-a-job/with.many_parts-and-no-blank-at-all-0123456789"
TURNED = "gnp.\u202egpj\u200b"  # shows as "gnp.jpg" where U+202E is obeyed


def job(number, name, growth, **more):
    return {"id": number, "name": name, "owner": "uid:1000", "state": "running", "world_size": 4,
            "joined": [0, 1, 2, 3], "missing": [], "results": growth * 1500, "fallback_results": growth,
            "absorbed": growth * 6000, "bypassed": growth * 100, "preempted": growth * 3, "slots_held": 17} | more


def port(name, growth, **more):
    return {"name": name, "type": "ethdev", "link": "up", "rx_bytes": growth * 1000, "tx_bytes": growth * 2000,
            "forwarded": growth * 9000, "flooded": growth * 7, "bridged_lost": growth, "drops": {"source": growth * 2},
            "forwarded_bytes": growth * 13_000_000, "bridged_sent_bytes": growth * 12_000_000,
            "learned": growth * 3, "moved": growth * 4} | more


def status(second, **more):
    """Of a switch that has run for `second`: all counters grow by as much each second."""
    n = 1000 + round(second * 2)
    return {"schema": 1, "version": "9.9.9", "host": "node7", "uptime_s": 3600 + second, "boots": 2, "draining": False,
            "configuration": {"failure": ""},
            "aggregator": {"policy": "static", "slots": 512, "slots_used": 99, "slot_bytes": 8192,
                           "results": n * 1500, "fallback_results": n, "absorbed_bytes": n * 5_000_000,
                           "preemptions": n * 3, "drops": {"not_for_this_switch_reason": n}},
            "bridge": {"mac_entries": 1234, "mac_capacity": 8192, "learned": n, "moved": n, "refused": 0},
            "lcores": [{"lcore": 0, "busy_s": n / 4, "packets": n * 1000}],
            "ports": [port("port-0", n), port("port-1", n), {"name": "shm0", "type": "shm", "rx_bytes": n * 9_000_000,
                                                             "tx_bytes": n * 3_000_000, "drops": {}}],
            "jobs": [job(1, "train", n)]} | more


def full(second):
    """All that the page can show at once."""
    n = 1000 + round(second * 2)
    made = status(second)
    made["configuration"]["failure"] = "port uplink: there is no interface enp129s0f0np0"
    made["ports"][1]["link"] = "down"
    made["ports"][0]["blocked"] = {"text": "port-0 and port-1 are the ends of one cable loop", "for_s": 9}
    made["jobs"] = [job(3, "zz", n * 50), job(2, LONG_NAME, n), job(4, TURNED, n), job(
        5, "late", 1000, waiting_for=[1], waiting_for_peers=["pid 4711"], oldest_fragment=7,
        oldest_operation="operation 3: allreduce of 1,048,576 float32, sum"),
        job(6, "joins", 0, state="joining", joined=[0, 1], missing=[2, 3])]
    made["jobs"][0]["tree"] = {
        "above": {"url": "tls:spine-1.a-long-domain.example:7583", "state": "running", "text": ""},
        "below": [{"peer": "10.0.1.254", "ranks": [*range(64), 70], "state": "running"}, {"peer": "", "ranks": [65], "state": "joining"}]}
    return made


def slots():
    """Half of the slots keep results, for long; some wait."""
    used = [[i, "complete", 1, 5_000_000, 4] for i in range(256)]
    used += [[256 + i, "filling", 1, 10 ** (i % 7 + 1), 2] for i in range(40)]
    return {"schema": 1, "slots": 512, "lanes": 1, "cells": 512, "slots_per_cell": 1,
            "columns": ["cell", "state", "job", "age_us", "contributions"], "used": used}


class Pretender:
    """Serves the page. Each answer is of half a second later than the one before, so that rates are
    the same each time."""

    def __init__(self, stack):
        self.make = status
        self.slots = slots
        self.answers = 0
        self.silent = threading.Event()  # set: questions wait
        pretender = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                if self.path in FILES:
                    name, kind = FILES[self.path]
                    return self.answer((PAGE / name).read_bytes(), kind)
                while pretender.silent.is_set():
                    pretender.silent.wait(0.01)
                    threading.Event().wait(0.01)
                if self.path == "/slots.json":
                    return self.answer(json.dumps(pretender.slots()).encode(), "application/json")
                pretender.answers += 1
                return self.answer(json.dumps(pretender.make(pretender.answers / 2)).encode(), "application/json")

            def answer(self, body, kind):
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    self.send_response(200)
                    self.send_header("Content-Type", f"{kind}; charset=utf-8")
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        stack.callback(self.server.shutdown)


def rows(browser, table):
    return browser.ask(f"[...document.querySelectorAll('#{table} tbody tr')].map((row) =>"
                       " [...row.cells].map((cell) => cell.textContent))")


# Elements that are wider than they may be: the page, tables in their boxes, and texts in their cells.
TOO_WIDE = """(() => {
  const wide = (one) => one.scrollWidth > one.clientWidth + 1;
  const seen = [...document.querySelectorAll('.scroll, td, th, #figures div, #legend li, #detail, .note, header *')]
    .filter((one) => one.checkVisibility() && one.clientWidth > 1);
  const out = seen.filter((one) => one.getBoundingClientRect().right > innerWidth + 1 || wide(one));
  if (document.documentElement.scrollWidth > innerWidth) out.push(document.documentElement);
  return out.map((one) => `${one.tagName} ${one.id} ${one.className}: ${one.textContent.slice(0, 40)}`);
})()"""

# Texts whose contrast to what they stand on is too low, with the contrast.
PALE = """(() => {
  const numbers = (colour) => colour.match(/[0-9.]+/g).map(Number);
  const light = (colour) => numbers(colour).slice(0, 3).map((part) => part / 255)
    .map((part) => part <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4)
    .reduce((all, part, i) => all + part * [.2126, .7152, .0722][i], 0);
  const ground = (one) => {
    for (; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if ((numbers(colour)[3] ?? 1) === 1) return colour;
    }
    return getComputedStyle(document.documentElement).backgroundColor;
  };
  const out = [];
  for (const one of document.querySelectorAll('body *')) {
    if (!one.checkVisibility() || ![...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()))
      continue;
    const [a, b] = [light(getComputedStyle(one).color), light(ground(one))].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < LEAST) out.push(`${one.tagName} ${one.textContent.slice(0, 40)}: ${(a + .05) / (b + .05)}`);
  }
  return out;
})()""".replace("LEAST", str(LEAST_CONTRAST))

SHIFT = """window.shift = 0; window.shifted = [];
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) {
    window.shift += one.value;
    window.shifted.push(...one.sources.map(({ node }) => `${node?.nodeName} ${node?.id} ${node?.textContent.slice(0, 30)}`));
  }
}).observe({ type: 'layout-shift', buffered: true });"""


def check_looks(browser, name, shots):
    for width in WIDTHS:
        for dark in (False, True):
            browser.screen(width, dark=dark)
            browser.ask("new Promise(requestAnimationFrame)")
            if shots:
                browser.shoot(pathlib.Path(shots) / f"{name}-{width}-{'dark' if dark else 'light'}.png")
            assert browser.ask(TOO_WIDE) == [], (name, width, browser.ask(TOO_WIDE))
            assert browser.ask(PALE) == [], (name, width, dark, browser.ask(PALE))
    browser.screen(1400)


def check_waiting(browser):
    """Results that are kept have no age, however old; what waits has."""
    counts = "[...document.querySelectorAll('#map i')].filter((one) => one.className.startsWith('{}')).length"
    wait_until("kept results", lambda: browser.ask(counts.format("kept")) == 256)
    assert browser.ask(counts.format("age")) == 40
    assert browser.ask(counts.format("age4")) == 10, "one second and more: of what waits"


def check_order(browser, pretender):
    wait_until("jobs", lambda: len(rows(browser, "jobs")) == 5)
    names = [row[0] for row in rows(browser, "jobs")]
    assert names == sorted(names, key=str.lower), names
    assert "uid:1000/gnp.\\u{202e}gpj\\u{200b}" in names, names
    seen = pretender.answers
    wait_until("more answers", lambda: pretender.answers > seen + 4)
    assert [row[0] for row in rows(browser, "jobs")] == names


def check_traffic(browser):
    """Frames for others count. Counters grow by 2 a second, times what they say."""
    wait_until("rates", lambda: rows(browser, "ports")[0][2] not in ("–", "0 B/s"))
    wait_until("rates", lambda: rows(browser, "ports")[0] ==
               ["port-0", "up", "26.0 MB/s", "24.0 MB/s", "18,000", "14", "2.0", "6.0", "8.0", "4.0"])
    assert rows(browser, "ports")[2][4:9] == ["–"] * 5, rows(browser, "ports")
    bridge = browser.ask("document.getElementById('bridge').textContent")
    assert bridge.startswith("1,234 of 8,192 addresses known · learned 2.0/s, "), bridge
    assert " · moved 2.0/s, " in bridge, bridge


def check_problems(browser):
    wait_until("problems", lambda: len(rows(browser, "stragglers")) == 5)
    assert [row[0] for row in rows(browser, "stragglers")] == ["the switch", "port port-0", "port port-1", "uid:1000/late", "uid:1000/joins"]
    assert browser.ask("document.title") == "(5) node7 · INA switch"
    tops = browser.ask("['stragglers', 'map', 'jobs', 'ports'].map((id) => document.getElementById(id).getBoundingClientRect().top)")
    assert tops == sorted(tops), tops


def check_trees(browser):
    """Shown where a job is in a tree, and only there."""
    wait_until("a tree", lambda: browser.ask("document.getElementById('trees').checkVisibility()"))
    assert rows(browser, "trees") == [
        ["uid:1000/zz", "above", "tls:spine-1.a-long-domain.example:7583", "–", "running"],
        ["uid:1000/zz", "below", "10.0.1.254", "ranks 0-63, 70", "running"],
        ["uid:1000/zz", "below", "–", "rank 65", "joining"]], rows(browser, "trees")


def check_load(browser, pretender, width):
    """What stands there does not move when the first answers come, and the first rate is a line."""
    pretender.silent.set()
    browser.screen(width)
    browser.open(pretender.url)
    browser.ask(SHIFT)
    pretender.silent.clear()
    wait_until("a trend", lambda: browser.ask("document.querySelector('#jobs polyline')?.points.length ?? 0") > 1)
    assert browser.ask("window.shift") <= MOST_SHIFT, (width, browser.ask("[window.shift, window.shifted]"))


def main(*options):
    shots = options[1] if options[:1] == ("--shots",) else None
    if not Browser.is_here():
        print("no chromium: apt-get install $(sed 's/#.*//' packages-browser.txt)")
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="ina-looks-") as folder, contextlib.ExitStack() as stack:
        pretender = Pretender(stack)
        browser = stack.enter_context(Browser(folder))
        for width in WIDTHS:
            check_load(browser, pretender, width)
        assert browser.ask("document.title") == "node7 · INA switch"
        check_waiting(browser)
        check_traffic(browser)
        assert not browser.ask("document.getElementById('trees').checkVisibility()")
        check_looks(browser, "quiet", shots)
        pretender.make = full
        check_problems(browser)
        check_trees(browser)
        check_order(browser, pretender)
        check_looks(browser, "full", shots)
        assert not browser.exceptions, browser.exceptions
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
