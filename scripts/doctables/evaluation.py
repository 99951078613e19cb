"""docs/evaluation.md: completion times, straggler help, and trees of switches, in simulated clusters."""

import statistics

from doctables.form import load, ms, select, table

POLICIES = ("static", "fcfs", "fcfs+window", "esa", "bound")
WAYS = ("off", "run-ahead", "switch home", "leader", "fallback", "spill")
HELP = ("leader", "fallback", "spill")


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


def trees_plain(rows):
    """Returns the times of one all-reduce. They are the same with fcfs, or the document is wrong."""
    def three(time):
        return f"{time:.3f}"
    fcfs = {(row["leaves"], row["workers"], row["oversubscription"]): row for row in select(rows, policy="fcfs")}
    return table(["Leaves x workers", "Uplinks", "esa", "fcfs", "never full", "flat", "flat, at least", "leaders",
                  "flat / esa", "leaders / esa"],
                 [[f"{row['leaves']} x {row['workers']}", f"{row['oversubscription']}:1", three(row["jct_ms"]),
                   three(fcfs[row["leaves"], row["workers"], row["oversubscription"]]["jct_ms"]),
                   three(row["never_full_ms"]), three(row["flat_ms"]), three(row["flat_bound_ms"]),
                   three(row["leaders_ms"]), f"{row['flat_vs_tree']:.2f}", f"{row['leaders_vs_tree']:.2f}"]
                  for row in select(rows, policy="esa")])


def trees_training(rows):
    return table(["Leaves x workers", "Policy and slots", "tree", "never full", "flat", "added in memory"],
                 [[f"{row['leaves']} x {row['workers']}", f"`{row['policy']}`, {row['slots']}",
                   f"{row['jct_ms']:.3f}", f"{row['never_full_ms']:.3f}", f"{row['flat_ms']:.3f}",
                   f"{row['in_memory']:.2%}"] for row in rows])


def trees_stragglers(rows):
    def spread(ratios):
        least, median, most = ratios
        return f"{median:.2f} ({least:.2f} to {most:.2f})"

    return table(["Slow", "nobody slow", "off", "run-ahead", "help", "help / off", "help / run-ahead"],
                 [[f"{row['straggler']}, {row['factor']}x",
                   *(f"{row[f'{way}_ms']:.2f}" for way in ("steady", "off", "ahead", "help")),
                   spread(row["help_vs_off"]), spread(row["help_vs_ahead"])] for row in rows])


def trees_live(rows):
    def kib(size):
        return f"{size / 1024:,.0f}"
    return table(["Levels", "Ranks", "Collective", "KiB", "us", "one level, us", "up, KiB", "down, KiB"],
                 [[row["levels"], row["ranks"], row["collective"], kib(row["bytes"]), f"{row['us']:,.0f}",
                   f"{row['one_level_us']:,.0f}", kib(row["uplink_bytes"]), kib(row["downlink_bytes"])]
                  for row in rows])


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


def tables():
    jct = load("jct")
    help_ = load("straggler-sim")
    trees = load("trees")
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
        "trees": trees_plain(trees["sim"]),
        "trees, training": trees_training(trees["training"]),
        "trees, stragglers": trees_stragglers(trees["stragglers"]),
        "trees, live": trees_live(trees["live"]),
        "simulator": simulator_speed({"jct": jct, "straggler-sim": help_, "trees": trees}),
    }
