#!/usr/bin/env python3
"""Writes tables of docs/*.md from the benchmarks' JSON files.

    tables.py [--check]

The documents are docs/{evaluation,mpi,operations,performance,pytorch,redistribution,reliability,security,
sixteen-cores,themis}.md. A table is the text between a line `<!-- table: NAME -->` and the next empty line. The
files are docs/figures/{allreduce,collectives,contention,faults,jct,loss,mpi,mpi-suites,operate,peers,peers_collectives,pipeline,
redistribute,siege,soak,straggler-links,straggler-sim,straggler,themis,themis-live,themis_sim,torch,why,wire}.json, and docs/figures/cores16.
--check writes nothing and fails where a table differs from its file.
"""

import argparse
import json
import pathlib
import re
import statistics
import sys

from benchlib import suites

ROOT = pathlib.Path(__file__).resolve().parent.parent
POLICIES = ("static", "fcfs", "fcfs+window", "esa", "bound")
WAYS = ("off", "run-ahead", "switch home", "leader", "fallback", "spill")
HELP = ("leader", "fallback", "spill")


def table(heads, rows):
    lines = ["| " + " | ".join(str(cell) for cell in line) + " |" for line in (heads, *rows)]
    lines.insert(1, "|" + "---|" * len(heads))
    return "\n".join(lines).replace("|  |", "| |")


def select(points, **wanted):
    return [p for p in points if all(p[key] == value for key, value in wanted.items())]


def ms(seconds):
    return f"{seconds * 1e3:.2f}"


def load(name):
    return json.loads((ROOT / f"docs/figures/{name}.json").read_text("utf-8"))


# Completion times

def speedups_at(jct, **wanted):
    """Yields the ratios of the points with the wanted values, each with the points of its
    policies."""
    same = ("experiment", "home", "slots", "jobs", "workers", "rate_gbps", "delay_us", "mix", "racks")
    for row in select(jct["speedups"], **wanted):
        like = {key: row[key] for key in same}
        own = {p["policy"]: p for p in select(jct["points"], **like)}
        # The bound's array has a number of slots of its own.
        own["bound"] = select(jct["points"], **{key: value for key, value in like.items()
                                                if key != "slots"}, policy="bound")[0]
        yield row, own


def jct_cells(row, own):
    times = [ms(own[name]["avg_jct_s"]) if name in own else "" for name in POLICIES]
    return [*times, f"{row['esa_vs_fcfs_best']:.2f} ± {row['esa_vs_fcfs_best_half_interval']:.2f}",
            f"{row['vs_best_other']:.3f}", f"{row['esa_vs_bound']:.3f}"]


JCT_HEADS = [*POLICIES[:-1], "never full", "fcfs / esa", "esa / best other", "never full / esa"]


def jct_by_slots(jct, **wanted):
    return table(["Slots", *JCT_HEADS],
                 [[row["slots"], *jct_cells(row, own)] for row, own in speedups_at(jct, **wanted)])


HOMES = {"workers": "at the workers", "dedicated": "a server", "spill": "the switch"}
DIFFERS = {"jobs": "{jobs} jobs", "mix": "{mix}", "rate": "{rate_gbps} Gb/s",
           "workers": "{jobs} jobs of {workers} workers", "delay": "{delay_us} us each way",
           "racks": "two racks, uplink 200 Gb/s", "loss": "losses of 1 in 10,000",
           "spill": "fallback in the switch", "GPT-2": "GPT-2 small, {rate_gbps} Gb/s"}


def jct_others(jct):
    return table(["", "Fallback", "Slots", *JCT_HEADS],
                 [[what.format(**row), HOMES[row["home"]], row["slots"], *jct_cells(row, own)]
                  for experiment, what in DIFFERS.items()
                  for row, own in speedups_at(jct, experiment=experiment)])


def jct_headlines(jct):
    """Returns the points with the most contention, in more detail. Of few jobs the 99th percentile
    would be the last one's time."""
    def p99(own):
        return ms(own["p99_jct_s"]) if own["jobs"] >= 100 else ""
    rows = []
    for point in jct["headlines"]:
        name = f"{point['slots']} slots, {HOMES[point.get('home', 'workers')]}, " \
               f"{point.get('rate-gbps', 100)} Gb/s"
        for how, by in point["by"].items():
            fcfs = min((by[key] for key in by if key.startswith("fcfs")),
                       key=lambda own: own["avg_jct_s"])
            rows.append([name, how, ms(fcfs["avg_jct_s"]), ms(by["esa"]["avg_jct_s"]),
                         f"{fcfs['avg_jct_s'] / by['esa']['avg_jct_s']:.2f}",
                         p99(fcfs), p99(by["esa"]), by["esa"]["jobs"]])
    return table(["", "Runs", "fcfs at its best", "esa", "fcfs / esa", "p99 fcfs", "p99 esa",
                  "Jobs"], rows)


def jct_summary(jct):
    """Returns the ratios of the points of each home and number of slots."""
    sizes = {"16": lambda n: n <= 16, "32 and 64": lambda n: 16 < n <= 64, "128 and more": lambda n: n > 64}
    found = [(HOMES[home], size, [row for row in select(jct["speedups"], home=home) if fits(row["slots"])])
             for home in HOMES for size, fits in sizes.items()]
    rows = []
    for home, size, own in [*found, ("all", "", jct["speedups"])]:
        if own:
            gains = [row["esa_vs_fcfs_best"] for row in own]
            rows.append([home, size, len(own), f"{min(gains):.2f}", f"{statistics.median(gains):.2f}", f"{max(gains):.2f}",
                         f"{max(row['vs_best_other'] for row in own):.4f}",
                         f"{min(row['esa_vs_bound'] for row in own):.3f}"])
    return table(["Fallback", "Slots", "Points", "fcfs at its best / esa: least", "median", "most",
                  "esa / best other: most", "never full / esa: least"], rows)


def jct_ablations(jct):
    rows = []
    points = jct["ablations"]
    where = dict.fromkeys((p["home"], p["rate_gbps"]) for p in points)
    for name in dict.fromkeys(p["policy"] for p in points):
        own = [select(points, policy=name, home=home, rate_gbps=rate)[0] for home, rate in where]
        rows.append([name, *(ms(p["avg_jct_s"]) for p in own), f"{own[0]['by_fallback']:.0%}",
                     f"{own[0]['queue_drops']:,}"])
    return table(["16 slots", *(f"{HOMES[home]}, {rate} Gb/s" for home, rate in where),
                  "decided by the server", "its drops"], rows)


def jct_use(jct):
    rows = []
    for home in ("workers", "dedicated"):
        for policy in ("fcfs", "fcfs+window", "esa"):
            (p,) = select(jct["points"], experiment="slots", home=home, slots=64, policy=policy)
            rows.append([policy, HOMES[home], p["ways"], p["window"], f"{p['slots_used_mean']:.1f}",
                         f"{p['fallback_bytes'] / 1e6:,.0f} MB", f"{p['by_fallback']:.0%}",
                         f"{p['queue_drops']:,}", f"{p['preemptions']:,}"])
    return table(["64 slots", "Fallback", "Ways", "W", "Slots in use", "To the fallback",
                  "Decided by it", "Frames dropped", "Preemptions"], rows)


# Stragglers

def saved_cells(row):
    return [f"{row['reduction'][way]:.1%} ± {row['reduction_half_interval'][way]:.1%}"
            if row.get("seeds", 2) > 1 else f"{row['reduction'][way]:.1%}" for way in HELP]


def help_table(head, rows, names):
    return table([head, *WAYS, "saved: leader", *HELP[1:]],
                 [[name, *(ms(row["iteration_s"][way]) if way in row["iteration_s"] else "" for way in WAYS),
                   *saved_cells(row)]
                  for name, row in zip(names, rows)])


def help_patterns(rows, workload):
    own = select(rows, workload=workload, slots=256, policy="esa")
    return help_table("What is slow", own, [row["name"] for row in own])


HEADLINE = {"workload": "plain", "slow": "uplink", "pattern": "rotating", "factor": 4,
            "period_us": 1000}


def help_slots(rows):
    own = sorted(select(rows, **HEADLINE), key=lambda row: (row["policy"], row["slots"]))
    return help_table("Policy and slots", own, [f"`{row['policy']}`, {row['slots']}" for row in own])


def help_charged(content):
    charged = content["headline_charged"]
    return help_table("Hosts and switch", [content["headline"], *charged],
                      ["take no time", *(f"take the time of one core with {row['machine']}" for row in charged)])


def help_takes(points):
    own = {p["help"]: p for p in select(points, policy="esa", slots=256, **HEADLINE)}
    rows = (("slots held, mean", lambda p: f"{p['slots_used_mean']:.0f}"),
            ("slots held, most", lambda p: p["slots_used_peak"]),
            ("fragments parked", lambda p: f"{p['parked']:.0%}"),
            ("MB to the fallback or a leader", lambda p: f"{p['fallback_bytes'] / 1e6:.0f}"),
            ("frames dropped", lambda p: p["queue_drops"]))
    return table(["", *WAYS], [[name, *(cell(own[way]) for way in WAYS)] for name, cell in rows])


def help_second_job(rows):
    """Returns times of the job with the straggler, and of the job beside it."""
    lines = []
    for policy, slots in dict.fromkeys((row["policy"], row["slots"]) for row in rows):
        own = {row["help"]: row for row in select(rows, policy=policy, slots=slots)}
        lines.append([f"`{policy}`, {slots}", ms(own["alone"]["other_s"]),
                      *(f"{ms(own[way]['straggling_s'])} / {ms(own[way]['other_s'])}"
                        for way in WAYS)])
    return table(["Policy and slots", "B alone", *(f"{way}: A / B" for way in WAYS)], lines)


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


def contention(content):
    """Returns the completion times of jobs on a small array, of each setting."""
    names = list(dict.fromkeys(p["setting"] for p in content["points"]))
    rows = []
    for row in content["speedups"]:
        own = {p["setting"]: p for p in select(content["points"], home=row["home"], slots=row["slots"])}
        to_static = row["esa_vs_static"]
        rows.append([row["home"], f"{row['slots']} ({own['esa']['bdp_multiple']:g})",
                     *(f"{own[name]['avg_jct_s']:.2f}" if name in own else "no room" for name in names),
                     f"{row['esa_vs_fcfs_best']:.2f} ({row['least']:.2f} to {row['most']:.2f})",
                     "" if to_static is None else f"{to_static:.2f}",
                     f"{own['esa']['fallback_result_share']:.0%}",
                     f"{min(p['cpu_idle'] for p in own.values()):.0%} to {max(p['cpu_idle'] for p in own.values()):.0%}"])
    return table(["Home", "Slots (x BDP)", *names, "fcfs at its best / esa", "static / esa", "esa: by the fallback",
                  "Processors idle"], rows)


def simulator_speed(contents):
    """Returns what each sweep was, from its description."""
    rows = []
    for name, content in contents.items():
        meta, speed = content["meta"], content["meta"]["simulator"]
        rows.append([f"`./dev bench {name}`", meta["commit"], f"{speed['runs']:,}", f"{speed['events'] / 1e6:,.0f}",
                     f"{speed['process_s'] / 60:.0f}", f"{meta['wall_s'] / 60:.0f}",
                     f"{speed['events_per_s'] / 1e6:.2f}", f"{speed['gbit_per_wall_s']:.0f}"])
    return table(["Sweep", "Commit", "Runs", "Events, millions", "Minutes of a core", "Minutes of wall time",
                  "Million events a second and core", "Simulated Gbit a second and core"], rows)


# Over a network

def wire(rows):
    """Returns the table of four ranks without offloads, in GB/s."""
    def number(value):
        return f"{value:.3f}".lstrip("0")

    def cell(row):
        return f"{number(row['algbw_GBps'])} ({number(row['forwarding_limit_GBps'])})"
    lines = []
    found = select(rows, ranks=4, offloads=False)
    for mtu, size in sorted({(row["mtu"], row["bytes"]) for row in found}):
        own = {row["transport"]: row for row in select(found, mtu=mtu, bytes=size)}
        any_ = own["udp"]  # peers are the same in all rows
        lines.append([mtu, f"{size >> 10} KiB" if size < 1 << 20 else f"{size >> 20} MiB",
                      *(cell(own[name]) if name in own else ""
                        for name in ("udp", "af_packet", "af_xdp")),
                      number(any_["openmpi_tcp_same_path_GBps"]),
                      number(any_["gloo_tcp_same_path_GBps"]),
                      f"{max(row['ratio'] for row in own.values()):.2f}",
                      f"{max(row['ratio_by_path']['switch'] for row in own.values()):.2f}"])
    return table(["MTU", "Bytes", "`udp:`", "`dpdk:`, AF_PACKET", "`dpdk:`, AF_XDP", "OpenMPI",
                  "Gloo", "Our best to the better of them",
                  "Where their frames cross our switch, too"], lines)


# Planned collectives

def themis_times(rows):
    """Returns the times of one all-reduce of 1e9 bytes, in microseconds."""
    keys = ("base_us", "fifo_us", "scf_us", "search_us", "ina_scf_us", "ina_search_us", "ideal_us")
    return table(["Topology", "Baseline", "Themis, FIFO", "Themis, SCF", "Search", "Themis, INA",
                  "Search, INA", "Ideal without INA"],
                 [[row["name"], *(f"{row[key]:,.0f}" for key in keys)] for row in rows])


def themis_sweep(report):
    """Returns means over the sizes."""
    def line(name, row, suffix=""):
        return [name, *(f"{row[key + suffix]:.2f}" for key in (
            "speedup", "speedup_search", "speedup_ina", "speedup_ina_search"))]
    lines = []
    for row in report["topologies"]:
        use = " / ".join(f"{100 * row['utilisation' + kind]:.1f}"
                         for kind in ("_base", "_fifo", "", "_search"))
        lines.append([*line(row["name"], row), use, f"{row['gap']:.1%}", f"{row['gap_search']:.1%}"])
    for name, which in (("mean", "mean"), ("max", "max")):
        lines.append([f"**{name} of all points**",
                      *(f"**{report[f'{which}_speedup{kind}']:.2f}**"
                        for kind in ("", "_search", "_ina", "_ina_search")), "", "", ""])
    return table(["Topology", "Themis, SCF", "Search", "Themis, INA", "Search, INA",
                  "Utilisation, %: baseline / FIFO / SCF / search", "Gap to ideal: SCF", "Search"], lines)


def themis_training(rows):
    lines = []
    for row in rows:
        implied = row["implied_compute_ms"]
        lines.append([row["name"], f"{row['compute_ms']:.2f}", f"{row['speedup']:.2f}",
                      f"{row['published']:.2f} ({row['published_first']:.2f})",
                      f"{row['speedup_without_compute']:.2f}",
                      f"{implied:.2f}" if implied else "less than none"])
    return table(["", "Computing, ms", "Speed-up here", "Published", "Without computing",
                  "Computing that the published figure implies, ms"], lines)


def themis_planning(rows):
    return table(["Topology of 128 participants", "Baseline, us", "Themis, us", "Search, us",
                  "Planning, ms of processor time: Themis", "Search"],
                 [[row["name"], *(f"{row[key]:,.0f}" for key in ("base_us", "themis_us", "search_us")),
                   f"{row['themis_planning_ms']:.1f}", f"{row['search_planning_ms']:.0f}"]
                  for row in rows])


def themis_sim_rows(rows, **wanted):
    """Returns rows by topology and scheduler."""
    found = {}
    for row in select(rows, **wanted):
        found.setdefault(row["name"], {})[row["scheduler"]] = row
    return found


def themis_sim(rows):
    """Returns predictions and simulated times, without latencies."""
    lines = []
    for name, own in themis_sim_rows(rows, network="plain", plans="switches").items():
        cells = [f"{row['predicted_us']:,.0f} / {row['measured_us']:,.0f} ({row['difference']:+.1%})"
                 for row in own.values()]
        lines.append([name, "x".join(map(str, own["baseline"]["sizes"])), *cells,
                      *(f"{own[of]['predicted_speedup']:.2f} / {own[of]['speedup']:.2f}"
                        for of in ("themis", "search"))])
    return table(["Topology", "Ranks", "Baseline, us: predicted / simulated", "Themis", "Search",
                  "Speed-up of Themis: predicted / simulated", "Of the search"], lines)


def themis_sim_causes(rows):
    """Returns the excess of each time over the planner's prediction."""
    def beyond(row, key="measured_us"):
        return f"{row[key] / row['predicted_us'] - 1:+.1%}"
    networks = {network: themis_sim_rows(rows, network=network, plans="switches")
                for network in ("plain", "marks", "latency")}
    lines = []
    for name, schedulers in networks["plain"].items():
        for scheduler, plain in schedulers.items():
            own = {network: by_name[name].get(scheduler) for network, by_name in networks.items()}
            late = own["latency"]
            lines.append([name, scheduler, f"{plain['predicted_us']:,.0f}", beyond(plain, "framed_us"),
                          *(beyond(own[network]) if own[network] else ""
                            for network in ("plain", "marks")),
                          f"{late['predicted_us']:,.0f}" if late else "", beyond(late) if late else ""])
    return table(["Topology", "Plan", "Predicted, us", "With frames' overhead", "Simulated",
                  "With marks", "Predicted with latencies, us", "Simulated"], lines)


def themis_sim_kinds(rows):
    lines = []
    for name, own in themis_sim_rows(rows, network="plain", plans="kinds").items():
        lines.append([name, *(" / ".join(
            f"{own[scheduler][key]:,.0f}" for key in ("predicted_by_kind_us", "predicted_us", "measured_us"))
            for scheduler in ("baseline", "themis"))])
    return table(["Topology", "Baseline, us: planner's model by kind / by switches / simulated", "Themis"],
                 lines)


def themis_live(rows):
    def times(row, plan):
        return f"{row[f'{plan}_ms']:.0f} ({row[f'{plan}_predicted_ms']:.0f})"

    def speedup(row, prefix):
        low, high = row[f"{prefix}measured_interval"]
        return (f"{row[f'{prefix}predicted_speedup']:.2f}, "
                f"**{row[f'{prefix}measured_speedup']:.2f}** ({low:.2f} to {high:.2f})")
    return table(["Mesh", "MB/s of each dimension", "MiB", "Baseline, ms (predicted)", "Themis", "Search",
                  "Speed-up of Themis: predicted, **measured** (95 %)", "Of the search"],
                 [[row["mesh"], ", ".join(map(str, row["rates_mb_s"])), row["bytes"] >> 20,
                   *(times(row, plan) for plan in ("baseline", "themis", "search")),
                   speedup(row, ""), speedup(row, "search_")] for row in rows])


def themis():
    report = load("themis")
    simulated = load("themis_sim")["rows"]
    return {"themis, simulated": themis_sim(simulated),
            "themis, causes": themis_sim_causes(simulated),
            "themis, kinds": themis_sim_kinds(simulated),
            "themis, times": themis_times(report["topologies"]),
            "themis, sweep": themis_sweep(report),
            "themis, live": themis_live(load("themis-live")["rows"]),
            "themis, training": themis_training(report["training"]),
            "themis, planning": themis_planning(report["planning"])}


# Redistributions

BASELINES = {"xla": "XLA's order", "naive": "gather, then slice", "direct": "direct",
             "best_baseline": "the best of the three"}


def redistribution_modelled(modelled):
    return table(["Baseline", "Geometric mean", "Largest"],
                 [[name, f"{modelled[f'geomean_vs_{key}']:.2f}",
                   f"{modelled[f'max_vs_{key}']:.2f}" if f"max_vs_{key}" in modelled else ""]
                  for key, name in BASELINES.items()])


def redistribution_costs(rows):
    return table(["Costs", "us an operation", "us a message", "Gb/s", "vs XLA", "Largest", "vs direct"],
                 [[row["name"].removesuffix(" (assumed)"), *(f"{row['costs'][key]:g}" for key in
                                                             ("operation_us", "message_us")),
                   f"{row['costs']['bytes_per_us'] / 125:g}",
                   *(f"{row[key]:.2f}" for key in ("geomean_vs_xla", "max_vs_xla", "geomean_vs_direct"))]
                  for row in rows])


def redistribution_planning(rows):
    return table(["Mesh", "Ranks", "Median", "99th percentile", "Largest"],
                 [[" x ".join(map(str, row["mesh"])), row["ranks"],
                   *(f"{row[f'{key}_ms']:.2f}" for key in ("p50", "p99", "max"))] for row in rows])


def redistribution_executed(rows):
    def cell(row, key):
        least, mean, most = (row[f"{name}_vs_{key}"] for name in ("min", "geomean", "max"))
        return f"{least:.2f} / **{mean:.2f}** / {most:.2f}"
    return table(["Ranks", "Arrays", "MiB of all tiles", "Costs: us an operation, us a message, Gb/s, Gb/s of copies",
                  *(f"against {name}" for name in BASELINES.values())],
                 [[row["ranks"], row["size"], f"{row['least_bytes'] >> 20} to {row['most_bytes'] >> 20}",
                   ", ".join(f"{row['costs'][key]:.3g}" for key in ("alpha_us", "message_us", "gbps", "copy_gbps")),
                   *(cell(row, key) for key in BASELINES)] for row in rows])


def redistribution():
    report = load("redistribute")
    return {"redistribution, modelled": redistribution_modelled(report["modelled"]),
            "redistribution, costs": redistribution_costs(report["by_costs"]),
            "redistribution, planning": redistribution_planning(report["planning"]),
            "redistribution, executed": redistribution_executed(report["executed"])}


# Attacks of a local user

def siege(attacks):
    def number(value, form="{:.1f}"):
        return "" if value is None else form.format(value)
    rows = []
    for row in attacks:
        grown = max(row["switch_rss_growth_bytes"], row.get("cgroup_growth_bytes") or 0)
        rows.append([f"`{row['name']}`", row["what"], number(row["victim_p99_ms_before"]),
                     number(row["victim_p99_ms"]), number(row["answer_p99_ms_before"]),
                     number(row["answer_p99_ms"]), f"{grown / 2**20:.1f}",
                     f"{row['log_bytes'] / 1024 / row['attack_s']:.0f}",
                     "held" if row["held"] else "**not held**"])
    return table(["Row", "What is tried", "Sum, before", "Sum, attacked", "Answer, before",
                  "Answer, attacked", "Memory", "Log", ""], rows)


def evaluation():
    jct = load("jct")
    help_ = load("straggler-sim")
    return {
        "jct, summary": jct_summary(jct),
        "jct, workers": jct_by_slots(jct, experiment="slots", home="workers"),
        "jct, dedicated": jct_by_slots(jct, experiment="slots", home="dedicated"),
        "jct, 25 Gb/s": jct_by_slots(jct, experiment="slots, 25"),
        "jct, others": jct_others(jct),
        "jct, headlines": jct_headlines(jct),
        "jct, ablations": jct_ablations(jct),
        "jct, use": jct_use(jct),
        "help, plain": help_patterns(help_["patterns"], "plain"),
        "help, vgg16": help_patterns(help_["patterns"], "vgg16"),
        "help, charged": help_charged(help_),
        "help, slots": help_slots(help_["patterns"]),
        "help, takes": help_takes(help_["points"]),
        "help, second job": help_second_job(help_["second_job"]),
        "simulator": simulator_speed({"jct": jct, "straggler-sim": help_}),
    }


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
    samples = [sample for sample in content["samples"] if sample["seconds"] > content["seconds"] / 2]
    mib = 1 << 20

    def number(value, unit):
        return f"{value / unit:.1f}" if unit != 1 else f"{value:.0f}"
    return table(["The switch", "Empty, before", "Least", "Most", "Empty, after", "Growth in 2nd half"],
                 [[name, *(number(value, unit) for value in (
                     content["empty_before"][key], min(sample[key] for sample in samples),
                     max(sample[key] for sample in samples), content["empty_after"][key])),
                   f"{content['growth'][key] / unit:.1f}"]
                  for name, key, unit in (("anonymous memory, MiB", "anonymous_bytes", mib), ("descriptors", "descriptors", 1),
                                          ("threads", "threads", 1), ("mbufs in use", "mbufs", 1))])


def reliability():
    document = (ROOT / "docs/reliability.md").read_text("utf-8")
    links = load("straggler-links")
    return {"faults": without_rules(load("faults")["mutants"], document),
            "help, live": live_help(load("straggler")["points"]),
            "help, links": live_links(links["patterns"]),
            "help, links, second job": live_second_job(links["second_job"]),
            "soak": soak(load("soak")), "recovery": recovery(load("loss")["rows"]),
            "incast": incast(load("loss")["incast"])}


def security():
    return {"siege": siege(load("siege")["attacks"])}


# Operation

RESTART_GOAL_MS, WATCHING_GOAL = 200, 0.01


def measured_at(meta):
    machine = meta["machine"]
    return f"commit {meta['commit'][:8]}, {machine['cpus']} CPUs ({machine['cpu']})"


def operate(found):
    def goal(text, is_met):
        return f"{text}: met" if is_met else f"**{text}: missed**"

    def pauses(what):
        return " / ".join(f"{found[f'{what}_pause_{which}_ms']:.0f}" for which in ("p50", "p99", "max")) + " ms"

    def answers(what):
        return f"{found[f'{what}_p50_ms']:.1f} / {found[f'{what}_p99_ms']:.1f} ms"

    def slowdown(key, interval):
        low, high = found[interval]
        return f"{found[key]:.1%} (95 % interval {low:.1%} to {high:.1%})"

    def cpu(switch, asks):
        return f"{found[switch]:.1f} / {found[asks]:.1f} ms a second"

    install_s, growth = found["install_to_first_allreduce_s"], found["rss_growth_bytes"]
    rows = [
        [f"restart, {found['restarts']} in a row: pause at the median / 99th percentile / at most", pauses("restart"),
         goal(f"99th percentile at most {RESTART_GOAL_MS} ms", found["restart_pause_p99_ms"] <= RESTART_GOAL_MS)],
        [f"reload, {found['reloads']} in a row: likewise", pauses("reload"), ""],
        ["workers that failed", found["failed_operations"], goal("none", not found["failed_operations"])],
        ["start of the switch to the first sum", f"{found['startup_to_first_allreduce_s']:.2f} s", ""],
        ["`apt-get install`, dependencies there, to the first all-reduce",
         "not measured" if install_s is None else f"{install_s:.1f} s", ""],
        ["answer to a scrape, ten a second: median / 99th percentile", answers("scrape"), ""],
        ["look of the page, two answers: likewise", answers("page_look"), ""],
        ["drop in the number of sums by the scrapes", slowdown("slowdown_with_scrapes", "slowdown_interval"),
         goal(f"at most {WATCHING_GOAL:.0%}", found["slowdown_with_scrapes"] <= WATCHING_GOAL)],
        ["likewise, with an open page, too",
         slowdown("slowdown_with_page_and_scrape", "slowdown_with_page_and_scrape_interval"),
         goal(f"at most {WATCHING_GOAL:.0%}", found["slowdown_with_page_and_scrape"] <= WATCHING_GOAL)],
        ["processor time of the switch / of the program that asks, for scrapes",
         cpu("scrapes_cpu_ms_per_s", "scraper_cpu_ms_per_s"), ""],
        ["likewise, with an open page, too", cpu("page_and_scrapes_cpu_ms_per_s", "page_and_scraper_cpu_ms_per_s"), ""],
        [f"growth in {found['soak_minutes']:g} minutes of `./dev soak`",
         "not measured" if growth is None else f"{growth / 1e3:.0f} kB", ""],
        ["measured", measured_at(found["meta"]), ""]]
    return table(["", "Measured", "Goal"], rows)


def why(found):
    return table(["", "Found"], [
        ["faults injected", found["why_injected"]],
        ["named by `inactl why`", f"{found['why_named_by_inactl']} of {found['why_asked']}"],
        ["named by the error of a rank whose job ended", f"{found['named_by_error']} of {found['error_expected']}"],
        ["innocent ranks blamed", found["why_innocent_blamed"]],
        ["waits that the errors of the waiting ranks name, too", f"{found['in_errors']} of {found['in_errors_of']}"],
        ["longest `inactl why`", f"{found['why_s_max']:.2f} s"],
        ["measured", measured_at(found["meta"])]])


def operations():
    return {"operate": operate(load("operate")), "why": why(load("why"))}


# The packet path alone

def pipeline(rows):
    return table(["Payload B", "Fan-in", "Type", "Policy", "Slots in", "Packets in", "Jobs", "Ways", "Group", "ns a packet",
                  "without results", "Gbit/s", "floor ns", "ratio", "n-way floor ns", "ratio to it", "spread"],
                 [[row["payload_bytes"], row["fan_in"], row["dtype"], row["policy"], row["slots_in"],
                   row["packets_in"], row["jobs"], row["ways"],
                   f"{row['group']}, worst case" if row["worst_case"] else row["group"],
                   *(f"{row[key]:.1f}" for key in ("ns_per_packet", "ns_per_packet_without_results")),
                   f"{row['gbit_per_s']:.0f}", f"{row['floor_ns']:.1f}", f"{row['ratio_to_floor']:.2f}",
                   f"{row['nway_floor_ns']:.1f}", f"{row['ratio_to_nway_floor']:.2f}",
                   f"{row['spread']:.0%}"] for row in rows])


def size_name(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def spread_by_size(rows, names, cell):
    """Returns the size names, and a line for each combination of `names`. A line has a cell for
    each size but none for operations without bytes."""
    rows = [row for row in rows if row["bytes"]]
    sizes = sorted({row["bytes"] for row in rows})
    lines = []
    for key in dict.fromkeys(tuple(row[name] for name in names) for row in rows):
        own = {row["bytes"]: row for row in rows if tuple(row[name] for name in names) == key}
        lines.append([*key, *(cell(own[size]) if size in own else "" for size in sizes)])
    return [size_name(size) for size in sizes], lines


def collectives(rows):
    sizes, lines = spread_by_size(rows, ("collective", "ranks"), lambda row: f"{row['p50_us']:,.0f}")
    return table(["Collective", "Ranks", *sizes], lines)


def peers(rows):
    """Returns a row for each collective but all-reduce and number of ranks, with plain and registered
    buffers in one cell."""
    rows = [row for row in rows if row["collective"] != "allreduce"]

    def cell(row):
        kinds = [row, *(other for other in rows if other["buffers"] == "registered" and all(
            other[key] == row[key] for key in ("collective", "ranks", "bytes")))]
        return "; ".join(" / ".join(f"{kind[key]:.2f}" for kind in kinds)
                         for key in ("ratio_vs_best_network_peer", "ratio_vs_openmpi_shm"))
    plain = [row for row in rows if row["buffers"] == "plain"]
    sizes, lines = spread_by_size(plain, ("collective", "ranks"), cell)
    return table(["Collective", "Ranks", *sizes], lines)


def figure(value, form):
    return "" if value is None else format(value, form)


def microseconds(value):
    return figure(value, ".1f" if value is not None and value < 100 else ",.0f")


def peers_allreduce(rows):
    return table(["Ranks", "Bytes", "Buffers", "Ours us", "OpenMPI shm", "as it comes", "TCP", "MPICH", "Gloo",
                  "x best network peer", "x OpenMPI shm", "x as it comes", "x MPICH"],
                 [[row["ranks"], size_name(row["bytes"]), row["buffers"], microseconds(row["ours_us"]),
                   *(microseconds(row["peers"][f"{peer}_us"])
                     for peer in ("openmpi_shm", "openmpi_default", "openmpi_tcp", "mpich", "gloo")),
                   *(figure(row[f"ratio_vs_{peer}"], ".2f")
                     for peer in ("best_network_peer", "openmpi_shm", "openmpi_default", "mpich"))]
                  for row in rows if row["collective"] == "allreduce"])


def allreduce(rows):
    """The ways in which the rows differ are beside one another."""
    ways = (("shm", "plain"), ("shm", "registered"), ("memif", "plain"))
    found = {(row["ranks"], row["bytes"], row["port"], row["buffers"]): row for row in rows}

    def cells(row, cpu):
        if row is None or row["p50_us"] is None:
            return ["-"] * (5 if cpu else 3)
        keys = ("p50_us", "p99_us", "algbw_GBps", *(("cpu_us_per_op", "switch_cpu_us_per_op") if cpu else ()))
        return [f"{row[key]:.2g}" if key == "algbw_GBps" else microseconds(row[key]) for key in keys]
    times = ("p50 us", "p99", "GB/s")
    cpu = ("workers' CPU us", "switch's")
    return table(["Ranks", "Bytes", *(f"{name} {head}" if head == "p50 us" else head for name, heads in
                                      (("plain", times + cpu), ("registered", times + cpu), ("memif", times)) for head in heads)],
                 [[ranks, size_name(size), *(cell for way in ways for cell in
                                             cells(found.get((ranks, size, *way)), way[0] == "shm"))]
                  for ranks, size in sorted({key[:2] for key in found})])


def performance():
    return {"allreduce": allreduce(load("allreduce")["rows"]), "pipeline": pipeline(load("pipeline")["rows"]), "wire": wire(load("wire")["rows"]),
            "collectives": collectives(load("collectives")["rows"]), "contention": contention(load("contention")),
            "peers, allreduce": peers_allreduce(load("peers")["rows"]),
            "peers": peers(load("peers_collectives")["rows"])}


# Third-party software

def torch_collectives(rows):
    sizes, lines = spread_by_size(rows, ("op", "procs"), lambda row:
                                  f"{row['ina_ms']:.2f} / {row['gloo_ms']:.2f}, **{row['ratio']:.2f}**")
    return table(["Call", "Processes", *sizes], lines)


def torch_training(rows):
    return table(["Processes", "A step with ina, ms", "With gloo", "gloo / ina"],
                 [[row["procs"], f"{row['ina_step_ms']:.1f}", f"{row['gloo_step_ms']:.1f}",
                   f"{row['ratio']:.2f}"] for row in rows])


def mpi(rows, name):
    sizes, lines = spread_by_size([row for row in rows if row["mpi"] == name], ("op", "ranks"), lambda row:
                                  f"{row['plain_us']:,.0f} / {row['ina_us']:,.0f}, **{row['ratio']:.2f}**")
    return table(["Call", "Ranks", *sizes], lines)


def mpi_suites(rows):
    names = {"openmpi": "Open MPI", "mpich": "MPICH"}
    return table(["Program", "MPI", "Ranks", "Tests (skipped)", "Failed, plain", "Failed, with the switch", "Failed with the switch alone",
                  "Collective calls of rank 0", "Through the switch"],
                 [[row["suite"], names[row["mpi"]], row["ranks"], f"{row['tests']:,} ({row['skipped']})",
                   len(row["failed_plain"] + row["unfinished_plain"]), len(row["failed"] + row["unfinished"]), len(row["new"]),
                   f"{row['calls']:,}", f"{row['taken']:,} ({row['taken'] / row['calls']:.1%})"] for row in suites.summed(rows)])


def plugins():
    torch = load("torch")
    return {"pytorch": {"torch, collectives": torch_collectives(torch["collectives"]),
                        "torch, training": torch_training(torch["ddp"])},
            "mpi": {**{f"mpi, {name}": mpi(load("mpi")["rows"], name) for name in ("openmpi", "mpich")},
                    "mpi-suites": mpi_suites(load("mpi-suites")["rows"])}}


# A machine with sixteen cores

def lanes(rows):
    """`rows`: from pipeline_bench, of lanes in threads and of lanes one after another."""
    measured = {row["value"]: row for row in select(rows, dimension="lanes", estimated=False)}
    estimated = {row["value"]: row for row in select(rows, dimension="lanes", estimated=True)}
    return table(["Lanes", "Measured, ns a packet", "Gbit/s", "spread", "Each alone, summed, Gbit/s"],
                 [[n, f"{row['ns_per_packet']:.1f}", f"{row['gbit_per_s']:.0f}", f"{row['spread']:.2f}",
                   f"{estimated[n]['gbit_per_s']:.0f}"] for n, row in sorted(measured.items())])


def losses(rows):
    rows = [row for row in rows if row["bytes"] == 1 << 20 and row["loss"] is not None]
    return table(["Lost", "p50 ms", "p99 ms", "to that without losses"],
                 [[f"{row['loss']:.2%}", f"{row['p50_us'] / 1e3:.1f}", f"{row['p99_us'] / 1e3:.1f}",
                   f"{row['p50_us'] / rows[0]['p50_us']:.2f}"] for row in rows])


def sixteen_cores():
    torch = load("cores16/torch")
    return {"peers, allreduce": peers_allreduce(load("cores16/peers")["rows"]),
            "peers": peers(load("cores16/peers_collectives")["rows"]),
            "lanes": lanes(load("cores16/lanes")["scaling"]),
            "torch, collectives": torch_collectives(torch["collectives"]),
            "torch, training": torch_training(torch["ddp"]),
            "wire": wire(load("cores16/wire")["rows"]),
            "losses": losses(load("cores16/loss")["rows"])}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    for document, tables in (("evaluation", evaluation()), ("operations", operations()), ("performance", performance()),
                             ("redistribution", redistribution()), ("reliability", reliability()),
                             ("security", security()), ("sixteen-cores", sixteen_cores()),
                             ("themis", themis()), *plugins().items()):
        path = ROOT / f"docs/{document}.md"
        old = path.read_text("utf-8")
        new = old
        for name, text in tables.items():
            block = re.compile(rf"(<!-- table: {re.escape(name)} -->\n).*?(?=\n\n)", re.DOTALL)
            new, found = block.subn(lambda match, text=text: match[1] + text, new)
            if found != 1:
                sys.exit(f"tables: {path} has {found} places for '{name}', not one")
        if not check:
            path.write_text(new, "utf-8")
        elif new != old:
            sys.exit(f"tables: {path} is not what docs/figures says; ./dev bench tables writes it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
