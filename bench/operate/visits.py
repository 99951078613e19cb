"""The cost of visits of the metrics' port to a job that sums all the time.

The speed of such a job drifts within a tenth of a second by more than visits cost. So each visit's
cost is the time that it takes from the job: the sums that end in a few milliseconds from its begin
are fewer than in as long before it.
"""

import bisect
import pathlib
import subprocess
import time

from benchlib import progress
from benchlib.errors import BenchError
from benchlib.stats import mean_interval

METRICS, PAGE = ("/metrics",), ("/status.json", "/slots.json")
SCRAPE_PERIOD_S = 0.1  # ten scrapes a second
SCRAPE_PERIOD_NS = round(SCRAPE_PERIOD_S * 1e9)
LOOK_PERIOD_S = 0.5  # PERIOD_MS in control/metrics/page/page.js
WINDOW_NS = 15_000_000  # longer than a visit; whether the next window has costs, too, is reported
ROUNDS, QUICK_ROUNDS = 20, 1
VISITS_S = 4  # of a kind in a round
LEAD_NS = 50_000_000


class Visitor:
    """A process that visits: ina-visitor."""

    def __init__(self, build, *arguments):
        self.took_ms = []
        self.process = subprocess.Popen([build / "bench/ina-visitor", *arguments],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def begin(self, start_ns, period_s, busy_ms):
        self.process.stdin.write(f"{start_ns} {period_s} {round(VISITS_S / period_s)} {busy_ms}\n")
        self.process.stdin.flush()

    def end(self):
        """Returns its processor time, in ms."""
        told = self.process.stdout.readline().split()
        if not told:
            raise BenchError("a client of the metrics' port failed; see its error above")
        self.took_ms += map(float, told[1:])
        return float(told[0])

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def control_cpu_ms(pid):
    """Returns the processor time of a switch's threads so far, without its lanes."""
    total_ns = 0
    for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if not (thread / "comm").read_text().startswith("ina-lane"):
            total_ns += int((thread / "schedstat").read_text().split()[0])
    return total_ns * 1e-6


class Visits:
    """Visits of one kind. `visitors`: each with its period in seconds."""

    def __init__(self, *visitors):
        self.visitors = visitors
        self.lost, self.lost_later = [], []  # shares of the time between two visits
        self.seconds = 0.0
        self.switch_cpu_ms = self.own_cpu_ms = 0.0

    def run(self, job, switch, busy_ms=0.0):
        start_ns = time.monotonic_ns() + LEAD_NS
        before_ms, first = control_cpu_ms(switch.process.pid), job.sums.count()
        for visitor, period_s in self.visitors:
            visitor.begin(start_ns, period_s, busy_ms)
        time.sleep(max(0.0, VISITS_S + (start_ns - time.monotonic_ns()) * 1e-9))
        self.own_cpu_ms += sum(visitor.end() for visitor, _ in self.visitors)
        self.switch_cpu_ms += control_cpu_ms(switch.process.pid) - before_ms
        self.seconds += VISITS_S
        ends = [end for _, end in job.sums.since(first)]

        def sums_from(at_ns):
            return bisect.bisect_left(ends, at_ns + WINDOW_NS) - bisect.bisect_left(ends, at_ns)

        visits_ns = range(start_ns, start_ns + round(VISITS_S * 1e9), SCRAPE_PERIOD_NS)
        before, during, later = ([sums_from(at_ns + shift_ns) for at_ns in visits_ns]
                                 for shift_ns in (-WINDOW_NS, 0, WINDOW_NS))
        # Not by the sums before the same visit: a ratio to what varies would be biased.
        share = WINDOW_NS / SCRAPE_PERIOD_NS / (sum(before) / len(before))
        self.lost += [share * (b - d) for b, d in zip(before, during)]
        self.lost_later += [share * (b - d) for b, d in zip(before, later)]

    def slowdown(self, name):
        figures = {}
        for key, lost in ((name, self.lost), (f"{name}_later", self.lost_later)):
            mean, half = mean_interval(lost)
            figures |= {key: mean, f"{key}_interval": [mean - half, mean + half]}
        return figures

    def cpu_ms_per_s(self, without):
        """Returns the processor time that visits cost the switch and the visitors. `without`:
        visits of nobody."""
        idle = without.switch_cpu_ms / without.seconds
        return self.switch_cpu_ms / self.seconds - idle, self.own_cpu_ms / self.seconds


def measure(build, port, switch, new_job, quick):
    """Returns visits of nobody, of Prometheus, of a program that computes for as long as the switch
    and Prometheus do, and of Prometheus and a page together; and the times of answers to Prometheus
    and to the page. `new_job`: starts a job that sums, with a name."""
    with Visitor(build, str(port), *METRICS) as scraper, Visitor(build, str(port), *PAGE) as page, \
            Visitor(build, str(port), *METRICS) as beside_page, Visitor(build, "compute") as busy:
        nobody = Visits()
        scraped = Visits((scraper, SCRAPE_PERIOD_S))
        computing = Visits((busy, SCRAPE_PERIOD_S))
        looked_at = Visits((beside_page, SCRAPE_PERIOD_S), (page, LOOK_PERIOD_S))
        rounds = QUICK_ROUNDS if quick else ROUNDS
        for number in range(rounds):
            progress.bar(number, rounds, "rounds of visits")
            with new_job(f"visited-{number}") as job:
                nobody.run(job, switch)
                scraped.run(job, switch)
                busy_ms = sum(scraped.cpu_ms_per_s(nobody)) * SCRAPE_PERIOD_S
                computing.run(job, switch, busy_ms)
                looked_at.run(job, switch)
                if failed := job.end():
                    raise BenchError(f"a job whose switch was visited failed: {failed}")
        progress.bar(rounds, rounds, "rounds of visits")
        return nobody, scraped, computing, looked_at, scraper.took_ms, page.took_ms
