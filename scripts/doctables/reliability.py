"""docs/reliability.md: faults, losses, stragglers among real processes, and the soak."""

import re

from doctables.form import FIGURES, load, microseconds, select, size_name, table


def live_help(points):
    """Returns the table of real processes."""
    ways = {"off": "off", "leader": "leader", "fallback": "fallback", "spill": "spill",
            "wide": "run-ahead: 16 MiB in the switch", "wide-a2tp": "the same with A2TP's window", "again": "off again"}
    names = {"none": "nobody is slow", "full rate": "nobody is slow, and workers only send"}
    rows = []
    for pattern in dict.fromkeys(p["pattern"] for p in points):
        took = {p["way"]: p["iteration_s"] for p in select(points, pattern=pattern)}
        rows.append([names.get(pattern, f"`{pattern}`"),
                     *(f"{took[way]:.{3 if took[way] < 1 else 2}f}" if way in took else ""
                       for way in ways)])
    return table(["", *ways.values()], rows)


def live_links(patterns):
    """Returns the table of real processes over links that change."""
    ways, helped = ("off", "run-ahead", "switch home", "leader", "fallback", "spill"), ("leader", "fallback", "spill")

    def idle(row):
        return f"{min(row['cpu_idle'].values()):.0%} to {max(row['cpu_idle'].values()):.0%}"
    return table(["What is slow", *ways, "saved: leader", *helped[1:], "Processors idle"],
                 [[row["name"], *(f"{row['iteration_s'][way]:.2f}" for way in ways),
                   *(f"{row['reduction'][way]:.1%}" for way in helped), idle(row)] for row in patterns])


def live_second_job(rows):
    return table(["", "A, with the straggler", "B beside it", "Processors idle"],
                 [["B alone" if row["help"] == "alone" else row["help"],
                   "" if row["straggling_s"] is None else f"{row['straggling_s']:.2f}", f"{row['other_s']:.2f}",
                   f"{row['cpu_idle']:.0%}"] for row in rows])


def without_rules(found, document):
    """What a missing rule does is said in the document alone."""
    effects = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", document, re.MULTILINE))
    return table(["Without", "Effect", "First seed that fails", "of the swarm"],
                 [[f"`{row['rule']}`", effects[row["rule"]], row["seed"], row["swarm_seed"]] for row in found["rules"]])


def recovery(rows):
    return table(["Loss", "p50", "p99", "To no loss, median (least to most)", "GB/s", "By the fallback", "Packets for each contribution"],
                 [[f"{row['loss'] * 100:.2g} %" if row["loss"] else 0, f"{microseconds(row['p50_us'] / 1e3)} ms",
                   f"{row['p99_us'] / 1e3:.0f} ms", f"{row['ratio']:.2f} ({row['least_ratio']:.2f} to {row['most_ratio']:.2f})",
                   f"{row['algbw_GBps']:.3f}", f"{row['by_fallback']:.1%}",
                   f"{row['packets_per_contribution']:.2f}"] for row in rows])


def incast(rows):
    return table(["Hosts", "Queue", "p50", "p99", "Of the link", "Lost", "By the fallback"],
                 [[row["hosts"], size_name(row["queue_bytes"]), f"{row['p50_us'] / 1e3:.0f} ms", f"{row['p99_us'] / 1e3:.0f} ms",
                   f"{row['share_of_link']:.0%}", f"{row['lost']:.1%}", f"{row['by_fallback']:.1%}"] for row in rows])


def soak(content):
    """The extremes are those of the second half, in which the switch is one process."""
    mib = 1 << 20

    def number(value, unit):
        return f"{value / unit:.1f}" if unit != 1 else f"{value:.0f}"
    return table(["The switch", "Empty, before", "Least", "Most", "Empty, after", "Growth in 2nd half"],
                 [[name, *(number(value, unit) for value in (
                     content["empty_before"][key], *content["second_half"][key], content["empty_after"][key])),
                   f"{content['growth'][key] / unit:.1f}"]
                  for name, key, unit in (("anonymous memory, MiB", "anonymous_bytes", mib), ("descriptors", "descriptors", 1),
                                          ("threads", "threads", 1), ("mbufs in use", "mbufs", 1))])


def tables():
    document = (FIGURES.parent / "reliability.md").read_text("utf-8")
    links = load("straggler-links")
    return {"faults": without_rules(load("faults")["mutants"], document),
            "help, live": live_help(load("straggler")["points"]),
            "help, links": live_links(links["patterns"]),
            "help, links, second job": live_second_job(links["second_job"]),
            "soak": soak(load("soak")), "recovery": recovery(load("loss")["rows"]),
            "incast": incast(load("loss")["incast"])}
