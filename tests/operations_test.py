#!/usr/bin/env python3
"""docs/operations.md has every metric (those of counters are in docs/reference/counters.md), every alert and every drop reason, and no others. A unit test
expects each reason, and tests/net/drops_test.py makes it happen at a real switch."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import make_reference  # noqa: E402

# Each queue has as many buffers as it can hold, so this reason does not occur.
NOT_MADE = {"no_buffer"}


def read(path):
    return (ROOT / path).read_text()


def difference(what, source, documented):
    missing, unknown = sorted(source - documented), sorted(documented - source)
    assert source and not missing, f"docs/operations.md lacks {what}: {missing}"
    assert not unknown, f"docs/operations.md has {what} that there are not: {unknown}"


def cells(text, heading):
    """Returns words in backquotes of the first column of a section's table."""
    section = text.split(f"\n### {heading}\n")[1].split("\n#")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    return set(re.findall(r"`(\w+)`", "".join(rows)))


def expected_drops():
    """Returns the drop reasons that test programs name."""
    return {reason for test in (ROOT / "tests").rglob("*.cc") for reason in re.findall(r"\bDrop(?:Reason)?::(k\w+)", test.read_text())}


def made_drops():
    """Returns the drop reasons that have a test at a real switch, by the tests' names."""
    return set(re.findall(r"^    def test_(\w+)", read("tests/net/drops_test.py"), re.MULTILINE))


def main():
    text = read("docs/operations.md")
    metrics = set(re.findall(r'"(ina_\w+)"', read("control/metrics/families.cc") +
                             read("control/metrics/server.cc")))
    difference("metrics", metrics, cells(text, "Prometheus"))
    metrics |= make_reference.counter_metrics()
    alerts = set(re.findall(r"- alert: (\w+)", read("conf/prometheus/alerts.yml")))
    difference("alerts", alerts, cells(text, "Alerts"))
    table = read("wire/drop_reason.h").split("#define INA_DROP_REASONS")[1].split("\nnamespace")[0]
    drops = dict(re.findall(r'X\((k\w+), "(\w+)"', table))
    difference("drops", set(drops.values()), cells(text, "Drops"))
    unseen = {name for reason, name in drops.items() if reason not in expected_drops()} - NOT_MADE
    assert not unseen, f"no test expects drops for these reasons: {sorted(unseen)}"
    made = set(drops.values()) - NOT_MADE
    assert made_drops() == made, f"tests/net/drops_test.py and wire/drop_reason.h differ: {sorted(made_drops() ^ made)}"
    named = set(re.findall(r"\bina_[a-z_]+", "".join(re.findall(r"expr:.*(?:\n +[^ a].*)*", read("conf/prometheus/alerts.yml")))))
    dashboard = set(re.findall(r"\bina_[a-z_]+", read("conf/grafana/ina-switch.json")))
    asked = {re.sub("_bucket$", "", name) for name in named | dashboard}
    assert asked <= metrics, asked - metrics


if __name__ == "__main__":
    main()
