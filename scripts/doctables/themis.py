"""docs/themis.md: planned collectives."""

from doctables.form import load, select, table


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
    def beyond(row):
        return f"{row['measured_us'] / row['predicted_us'] - 1:+.1%}"
    networks = {network: themis_sim_rows(rows, network=network, plans="switches")
                for network in ("plain", "marks", "latency")}
    lines = []
    for name, schedulers in networks["plain"].items():
        for scheduler, plain in schedulers.items():
            own = {network: by_name[name].get(scheduler) for network, by_name in networks.items()}
            late = own["latency"]
            lines.append([name, scheduler, f"{plain['predicted_us']:,.0f}",
                          *(beyond(own[network]) if own[network] else ""
                            for network in ("plain", "marks")),
                          f"{late['predicted_us']:,.0f}" if late else "", beyond(late) if late else ""])
    return table(["Topology", "Plan", "Predicted, us", "Simulated",
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


def tables():
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
