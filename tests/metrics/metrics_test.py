#!/usr/bin/env python3
"""Tests the metrics of a running switch. promtool and a real Prometheus read them, with the alert
rules and the dashboard that the project ships. Scrapers may be slow, many, or disconnected.

    metrics_test.py INA_SWITCHD LOAD_WORKER
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "scripts")]

import make_reference  # noqa: E402
from metrics_switch import Switch, get, running  # noqa: E402
from ports import free_port  # noqa: E402
from waiting import DEADLINE_S, wait_until  # noqa: E402

# The null port is idle, and has a link. Of the quota's slots each job gets as many as there are.
CONFIG = """\
aggregator: {{slots: 512, slot_bytes: 1024, policy: esa}}
eal: {{huge: no}}
ports: [{{name: shm0, type: shm}}, {{name: null0, type: ethdev, ip: 10.1.2.3, device: "net_null0,no-rx=1"}}]
tenants: [{{name: "*", jobs_max: 16, workers_max: 64, slots_ceiling: 8192, memory: 1GiB}}]
metrics: {{listen: "127.0.0.1:{port}", jobs: 2}}
log: {{level: warning}}
"""
# On a page without samples of these, promtool does not see them.
FAMILIES = set(re.findall(r'"(ina_\w+)"', (ROOT / "control/metrics/families.cc").read_text())) | make_reference.counter_metrics()
WITHOUT_SAMPLES = {"ina_port_drops_total"}  # no port drops anything here


def value(page, series):
    """Returns the value of a series, written with its labels as in the page."""
    found = re.search(rf"^{re.escape(series)} (\S+)$", page, re.MULTILINE)
    if not found:
        raise RuntimeError(f"no {series} in\n{page}")
    return float(found.group(1))


def families_on(page):
    return set(re.findall(r"^# TYPE (\w+) ", page, re.MULTILINE))


def lint(page):
    checked = subprocess.run(["promtool", "check", "metrics"], input=page, text=True,
                             capture_output=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", ""), checked


def check_page(switch):
    """Checks promtool's verdict, and the figures, after the end of the only job."""
    with contextlib.ExitStack() as stack:
        for worker in switch.job(stack, "sums", 20):
            assert worker.wait(DEADLINE_S) == 0
        page = get(switch.url)
    lint(page)
    assert page.endswith("\n# EOF\n") and page.count("# EOF") == 1, page[-100:]
    assert value(page, 'ina_slots{state="free"}') + value(page, 'ina_slots{state="used"}') == 512
    # 20 sums of 16 KiB are at least 320 fragments, and two contributions each.
    completed = sum(value(page, f'ina_fragments_total{{decided_by="{by}"}}')
                    for by in ("slot", "fallback", "worker"))
    assert completed >= 320, page
    assert value(page, 'ina_port_receive_bytes_total{port="shm0"}') >= 2 * 20 * 16384, page
    assert value(page, 'ina_lane_idle_seconds_total{lane="0"}') > 0, page
    assert value(page, 'ina_lane_busy_seconds_total{lane="0"}') > 0, page
    taken = value(page, 'ina_lane_burst_packets_sum{lane="0"}')
    assert taken == value(page, 'ina_lane_packets_total{lane="0"}') >= 640, page
    bursts = value(page, 'ina_lane_burst_packets_count{lane="0"}')
    assert taken / 32 <= bursts <= taken, page


def check_waiting(switch):
    """The metrics show a stopped worker, and no longer show it after it continues."""
    owner = f"uid:{os.getuid()}"
    with contextlib.ExitStack() as stack:
        workers = switch.job(stack, "train", -1)
        series = f'ina_job_waiting_seconds{{job="{owner}/train"}}'
        straggler = f'ina_job_straggler_seconds{{job="{owner}/train"}}'
        fragments = f'ina_job_fragments_total{{job="{owner}/train",decided_by="slot"}}'
        wait_until("sums", lambda: fragments in get(switch.url) and
                   value(get(switch.url), fragments) > 100)
        workers[1].send_signal(signal.SIGSTOP)
        wait_until("a second of waiting", lambda: value(get(switch.url), series) > 1)
        wait_until("a straggler", lambda: value(get(switch.url), straggler) > 1)
        workers[1].send_signal(signal.SIGCONT)
        wait_until("its end", lambda: value(get(switch.url), series) < 1)
        wait_until("nobody who is late each time", lambda: value(get(switch.url), straggler) < 1)
        workers[0].terminate()
        assert [worker.wait(DEADLINE_S) for worker in workers] == [0, 0]


def check_labels(switch):
    """Two jobs have series of their own, and all others share one. Checks promtool's verdict on the
    families of jobs, tenants and Ethernet ports, too."""
    owner = f"uid:{os.getuid()}"
    with contextlib.ExitStack() as stack:
        for number in range(5):
            switch.job(stack, f"job{number}", -1)
        wait_until("five jobs", lambda: value(get(switch.url), 'ina_jobs{state="running"}') == 5)
        wait_until("contributions", lambda: "\nina_job_offload_ratio{" in get(switch.url))
        page = get(switch.url)
        labels = set(re.findall(r'^ina_job_slots\{job="(.*)"\}', page, re.MULTILINE))
        assert len(labels) == 3 and "other" in labels, labels
        lint(page)
        assert FAMILIES - families_on(page) <= WITHOUT_SAMPLES, FAMILIES - families_on(page)
        for resource, limit in (("jobs_limit", 16), ("workers_limit", 64), ("slots_limit", 8192),
                                ("memory_limit_bytes", 1 << 30)):
            assert value(page, f'ina_tenant_{resource}{{tenant="{owner}"}}') == limit, page
        assert value(page, 'ina_port_up{port="null0"}') == 1, page
        seen = value(page, 'ina_job_fragments_total{job="other",decided_by="slot"}')
        wait_until("others' fragments", lambda: value(
            get(switch.url), 'ina_job_fragments_total{job="other",decided_by="slot"}') > seen)


def resident_bytes(process):
    pages = pathlib.Path(f"/proc/{process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGESIZE")


def check_scrapers(switch):
    """Neither silent scrapers nor a crowd of them delay others for long, and no resources remain in
    use."""
    descriptors = f"/proc/{switch.process.pid}/fd"
    before = len(os.listdir(descriptors))
    silent = [socket.create_connection(("127.0.0.1", switch.port)) for _ in range(40)]
    most = len(os.listdir(descriptors)) - before
    assert most <= 26, most
    with contextlib.ExitStack() as stack:
        for worker in switch.job(stack, "beside", 20):
            assert worker.wait(DEADLINE_S) == 0
    for connection in silent:
        connection.close()
    # An endless request does no harm either.
    memory = resident_bytes(switch.process)
    with socket.create_connection(("127.0.0.1", switch.port)) as endless, \
            contextlib.suppress(ConnectionError):
        endless.sendall(b"GET /metrics HTTP/1.1\r\n")
        for number in range(400):
            endless.sendall(b"".join(b"A%d-%d: %s\r\n" % (number, i, b"x" * 1000) for i in range(100)))
    assert resident_bytes(switch.process) - memory < 10 << 20
    wait_until("a page", lambda: get(switch.url))
    wait_until("closed connections", lambda: len(os.listdir(descriptors)) <= before)
    assert get(switch.url.replace("metrics", "other")) == ""


def selectors(expression):
    """Yields selectors that must each find series: each of the expression's with its = and =~, and one
    for each alternative of a matcher's value. So a value that there is not is found behind != and !~,
    too."""
    for name, matchers in re.findall(r"\b(up|ina_\w+)(?:\{([^}]*)\})?", expression):
        found = re.findall(r'(\w+)(=~|!~|!=|=)"([^"]*)"', matchers)
        together = ",".join(f'{label}{how}"{value}"' for label, how, value in found if how[0] == "=")
        yield f"{name}{{{together}}}"
        for label, _, value in found:
            for alternative in value.split("|"):
                yield f'{name}{{{label}=~"{alternative}"}}'


def check_rules(rules, ask):
    """Each rule of the file is loaded, and selects series that the switch has."""
    alerts = re.findall(r"- alert: (\w+)", (ROOT / "conf" / "prometheus" / "alerts.yml").read_text())
    assert sorted(rule["name"] for rule in rules) == sorted(alerts), rules
    for rule in rules:
        found = list(selectors(rule["query"]))
        assert found, rule
        for selector in found:
            assert ask(selector), f"{rule['name']}: no series is {selector}"


def check_prometheus(switch, folder):
    """A real Prometheus accepts the page and the rules, and answers the dashboard's queries."""
    shutil.copy(ROOT / "conf" / "prometheus" / "alerts.yml", folder)
    shutil.copy(pathlib.Path(__file__).parent / "alerts_test.yml", folder)
    for command in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        checked = subprocess.run(["promtool", *command], cwd=folder, text=True, capture_output=True,
                                 check=False)
        assert checked.returncode == 0, checked
    config = folder / "prometheus.yml"
    config.write_text(f"""\
global: {{scrape_interval: 250ms, scrape_timeout: 250ms, evaluation_interval: 250ms}}
rule_files: [alerts.yml]
scrape_configs:
  - job_name: ina-switchd
    # The switch's own label `job` is kept.
    honor_labels: true
    static_configs: [{{targets: ["127.0.0.1:{switch.port}"]}}]
""")
    port = free_port()
    api = f"http://127.0.0.1:{port}/api/v1"

    def ask(expression):
        answer = get(f"{api}/query?query={urllib.parse.quote(expression)}")
        return json.loads(answer)["data"]["result"] if answer else []

    with running("prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}",
                 f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"), \
            contextlib.ExitStack() as stack:
        switch.job(stack, "scraped", -1)
        wait_until("a scrape", lambda: ask('up{job="ina-switchd"} == 1'))
        wait_until("a rate", lambda: ask("rate(ina_lane_packets_total[5s]) > 0"))
        dashboard = json.loads((ROOT / "conf" / "grafana" / "ina-switch.json").read_text())
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                expression = target["expr"].replace("$instance", ".*").replace("$__rate_interval", "5s")
                if panel["title"].startswith("Ports: blocked"):
                    expression = expression.rsplit(" == ", 1)[0]  # every port is well here
                wait_until(f"{panel['title']}: {expression}", lambda: ask(expression))
        def rules():
            groups = json.loads(get(f"{api}/rules"))["data"]["groups"]
            return [rule for group in groups for rule in group["rules"]]

        wait_until("the rules", lambda: all(rule["health"] == "ok" for rule in rules()))
        check_rules(rules(), ask)


def main(program, load_worker):
    for tool in ("prometheus", "promtool"):
        if not shutil.which(tool):
            sys.exit(f"{tool} is missing: ./dev setup installs it (packages-tests.txt)")
    with tempfile.TemporaryDirectory(prefix="ina-metrics-") as name, contextlib.ExitStack() as stack:
        folder = pathlib.Path(name)
        switch = Switch(program, load_worker, folder, stack, CONFIG)
        check_page(switch)
        check_waiting(switch)
        check_labels(switch)
        check_scrapers(switch)
        check_prometheus(switch, folder)
        switch.process.terminate()
        assert switch.process.wait(DEADLINE_S) == 0


if __name__ == "__main__":
    main(*sys.argv[1:])
