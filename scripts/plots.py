#!/usr/bin/env python3
"""Draws the figures of docs/performance.md and docs/evaluation.md from the benchmarks' JSON files.

    plots.py [--output docs/figures] [FILE.json ...]

A file's "meta" names its benchmark; of two files of one benchmark the later one counts. Without
files: those of docs/figures/{pipeline,allreduce,peers,jct,straggler-sim}.json that exist. The same
data give the same bytes. plot_style.py defines the meaning of a colour, the same in all figures;
markers and lines differ as well, for print. Panels that are compared have the same scale, and none
is empty. Without --output, screenshots in docs/figures get a palette, a third of their bytes.
"""

import argparse
import io
import pathlib
import re
import sys

import matplotlib
from PIL import Image  # matplotlib needs it, too

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator  # noqa: E402

from benchlib import kept  # noqa: E402
from plot_style import STYLES  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIGURES = ROOT / "docs/figures"
BENCHMARKS = ("pipeline", "allreduce", "peers", "jct", "straggler-sim")

STYLE = {
    "svg.hashsalt": "ina",
    "svg.fonttype": "none",
    "font.sans-serif": ["DejaVu Sans"],  # each text repeats all names
    "font.size": 9,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "0.88",
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}
PANEL_WIDTH, PANEL_HEIGHT = 3.4, 2.9  # inches

PEER_SERIES = {
    "ours plain": "INA, plain buffers", "ours registered": "INA, registered buffers",
    "openmpi_shm": "OpenMPI, shared memory", "openmpi_default": "OpenMPI as it comes",
    "openmpi_tcp": "OpenMPI, TCP",
    "gloo": "Gloo, TCP", "mpich": "MPICH, shared memory",
}
DIMENSIONS = {
    "slots": "slots", "jobs": "jobs", "workers": "workers (fan-in)", "lanes": "packet loops",
    "lcores": "packet loops",
}


class PlotError(Exception):
    """The data are wrong; the text has the reason."""


def bytes_text(value, _position=None):
    """Returns "1 KiB" for 1024."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:g} {unit}"
        value /= 1024
    return ""


def count_text(value, _position=None):
    """Returns "2 Ki" for 2048."""
    for power, suffix in ((20, " Mi"), (10, " Ki")):
        if value >= 1 << power:
            return f"{value / (1 << power):g}{suffix}"
    return f"{value:g}"


def thinned(values, most=7):
    """Returns at most `most` of the values, evenly spread."""
    return values[::-(-len(values) // most)]


def gb_per_s(size, us):
    return size / us / 1e3


def benchmark_of(path, content):
    name = content.get("meta", {}).get("benchmark") if isinstance(content, dict) else None
    if name not in BENCHMARKS:
        raise PlotError(f"{path}: not of one of the benchmarks {', '.join(BENCHMARKS)}")
    return name


def load(paths):
    contents = {}
    for path in paths:
        try:
            content = kept.read(path)
        except (OSError, ValueError) as error:
            raise PlotError(f"{path}: {error}") from error
        contents[benchmark_of(path, content)] = content
    return contents


def by(rows, *keys):
    """Returns rows in groups of equal values of `keys`, in order of appearance."""
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    return groups


def panels(count, share=True):
    """Returns a figure with panels side by side; `share`: with the same axes."""
    figure, axes = plt.subplots(1, count, squeeze=False, sharey=share, sharex=share,
                                figsize=(PANEL_WIDTH * count, PANEL_HEIGHT))
    return figure, list(axes[0])


def from_zero(axes):
    """Begins the axes at 0. Must be called after all drawing: an earlier limit keeps a shared scale
    from growing."""
    for axis in axes:
        axis.set_ylim(bottom=0)


def bytes_axis(axis):
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_locator(LogLocator(base=64))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(bytes_text))


def style_of(label):
    if label not in STYLES:
        raise PlotError(f"scripts/plot_style.py does not say how \"{label}\" looks")
    return STYLES[label]


def draw(axis, points, label, band=None):
    """`points`: (x, y) with None where there is no figure; `band`: (x, low, high)."""
    points = sorted((x, y) for x, y in points if y is not None)
    if not points:
        return
    color, line, marker, hollow = style_of(label)
    axis.plot(*zip(*points), color=color, linestyle=line, marker=marker, label=label,
              markerfacecolor="white" if hollow else color)
    band = sorted(values for values in band or [] if None not in values)
    if band:
        axis.fill_between(*zip(*band), color=color, alpha=0.15, linewidth=0)


def shortened(svg):
    """Returns an SVG of matplotlib in two thirds of the bytes, an element a line: two decimals, nothing that has no
    effect, and ids in order of appearance, since those of matplotlib change with any digit."""
    svg = re.sub(r"<!DOCTYPE.*?>\s*|<!--.*?-->\s*|<metadata>.*?</metadata>\s*| transform=\"rotate\(-?0 [^)]*\)\"",
                 "", svg, flags=re.DOTALL)
    svg = re.sub(r"(?<==\")[^\"]+", lambda text: " ".join(text[0].split()), svg)
    svg = re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), svg)
    ids = {}
    svg = re.sub(r"(?<=[#\"])[a-zA-Z][0-9a-f]{10}(?=[\")])", lambda name: ids.setdefault(name[0], f"i{len(ids)}"), svg)
    return re.sub(r"\n\s*", "\n", svg)


def save(figure, path):
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    path.write_text(shortened(text.getvalue()), "utf-8")
    plt.close(figure)
    return path


def add_legend(figure, axes):
    """Adds the legend as a row of its own: matplotlib 3.6 has no place outside of the panels."""
    labelled = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels()):
            labelled.setdefault(label, handle)
    columns = min(len(labelled), 3 if len(axes) > 1 else 2)
    lines = -(-len(labelled) // columns)
    inches = 0.2 * lines + 0.1
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + inches)
    share = inches / (height + inches)
    figure.set_constrained_layout_pads(w_pad=0.05, h_pad=0.05)
    figure.get_layout_engine().set(rect=(0, share, 1, 1 - share))
    figure.legend(labelled.values(), labelled.keys(), loc="lower center", ncol=columns)


def peer_points(rows):
    """Returns, by series, [(bytes, median us, (first, third quartile us) or None)]. Peers come from
    the rows with plain buffers; the rows with registered buffers repeat them."""
    series = {}
    for row in rows:
        size, spread = row["bytes"], row["spread"]
        series.setdefault(f"ours {row['buffers']}", []).append(
            (size, row["ours_us"], spread["ours_us"]))
        if row["buffers"] != "plain":
            continue
        for peer in (key for key in PEER_SERIES if f"{key}_us" in row["peers"]):
            series.setdefault(peer, []).append(
                (size, row["peers"][f"{peer}_us"], spread["peers"][f"{peer}_us"]))
    return series


def allreduces(content):
    """Returns the rows of all-reduces. Older files, without other collectives, have no such key."""
    return [row for row in content["rows"] if row.get("collective", "allreduce") == "allreduce"]


def plot_peers_algbw(content, folder):
    groups = by(allreduces(content), "ranks")
    figure, axes = panels(len(groups))
    for axis, ((ranks,), rows) in zip(axes, groups.items()):
        series = peer_points(rows)
        for key, label in PEER_SERIES.items():
            points = series.get(key, [])
            draw(axis, [(size, us and gb_per_s(size, us)) for size, us, _ in points], label,
                 [(size, gb_per_s(size, q[1]), gb_per_s(size, q[0])) for size, _, q in points if q])
        bytes_axis(axis)
        axis.set_yscale("log")
        axis.set_title(f"{ranks} ranks")
        axis.set_xlabel("size of the vector")
    axes[0].set_ylabel("bytes / median time [GB/s]")
    add_legend(figure, axes)
    return save(figure, folder / "peers_algbw.svg")


def plot_peers_ratio(content, folder):
    groups = by(allreduces(content), "ranks")
    figure, axes = panels(len(groups))
    for axis, ((ranks,), rows) in zip(axes, groups.items()):
        for (buffers,), own in by(rows, "buffers").items():
            draw(axis, [(r["bytes"], r["ratio_vs_best_network_peer"]) for r in own],
                 f"best of OpenMPI TCP and Gloo / INA {buffers}",
                 [(r["bytes"], *r["spread"]["ratios"][r["best_network_peer"]]) for r in own
                  if r["best_network_peer"] and r["spread"]["ratios"][r["best_network_peer"]]])
            draw(axis, [(r["bytes"], r["ratio_vs_openmpi_shm"]) for r in own],
                 f"OpenMPI shared memory / INA {buffers}",
                 [(r["bytes"], *r["spread"]["ratios"]["openmpi_shm"]) for r in own
                  if r["spread"]["ratios"]["openmpi_shm"]])
        axis.axhline(1, color="0.4", linewidth=0.8)
        bytes_axis(axis)
        axis.set_yscale("log", base=2)
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_title(f"{ranks} ranks")
        axis.set_xlabel("size of the vector")
    axes[0].set_ylabel("peer's time / ours, median of pairs")
    add_legend(figure, axes)
    return save(figure, folder / "peers_ratio.svg")


def plot_peers(content, folder):
    return [plot_peers_algbw(content, folder), plot_peers_ratio(content, folder)]


def plot_allreduce(content, folder):
    groups = by(content["rows"], "port", "buffers")
    figure, axes = panels(len(groups))
    for axis, ((port, buffers), rows) in zip(axes, groups.items()):
        for (ranks,), own in by(rows, "ranks").items():
            draw(axis, [(row["bytes"], row["algbw_GBps"]) for row in own], f"{ranks} ranks")
        bytes_axis(axis)
        axis.set_yscale("log")
        axis.set_title(f"{port}, {buffers} buffers")
        axis.set_xlabel("size of the vector")
    axes[0].set_ylabel("bytes / median time [GB/s]")
    add_legend(figure, axes)
    return [save(figure, folder / "allreduce.svg")]


def plot_payload(rows, folder):
    """Plots gradient per core by payload: the usual case, fan-in 8 and float32, beside the
    floor."""
    usual = [row for row in rows if row["dtype"] == "float32" and row["fan_in"] == 8
             and (row["jobs"] == 1 or row["worst_case"])
             and row.get("packets_in") in (None, "L3") and row.get("group", 1) == 1]
    # A panel of a single payload is not informative.
    groups = {key: own for key, own in by(usual, "slots_in").items()
              if len({row["payload_bytes"] for row in own}) > 1}
    if not groups:
        return []
    figure, axes = panels(len(groups))
    for axis, ((slots_in,), own) in zip(axes, groups.items()):
        floor = {row["payload_bytes"]: 8 * row["payload_bytes"] / row["floor_ns"]
                 for row in own if row["floor_ns"] and not row["worst_case"]}
        draw(axis, floor.items(), "floor: the kernel alone")
        for (policy, worst), some in by(own, "policy", "worst_case").items():
            draw(axis, [(row["payload_bytes"], row["gbit_per_s"]) for row in some],
                 f"{policy}, a preemption with every packet" if worst else policy)
        axis.set_xscale("log", base=2)
        axis.set_xticks(sorted({row["payload_bytes"] for row in usual}))
        axis.xaxis.set_major_formatter(FuncFormatter(bytes_text))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_title(f"slots in {slots_in}")
        axis.set_xlabel("payload of a packet")
    from_zero(axes)
    axes[0].set_ylabel("gradient on one core [Gbit/s]")
    add_legend(figure, axes)
    return [save(figure, folder / "pipeline_payload.svg")]


def plot_scaling(scaling, folder):
    groups = by(scaling, "dimension")
    if not groups:
        return []
    figure, axes = panels(len(groups), share=False)
    first_cost = None
    for axis, ((dimension,), rows) in zip(axes, groups.items()):
        # Loops on several cores add up. All other panels show the cost of a packet, on one scale.
        key = "gbit_per_s" if dimension in ("lanes", "lcores") else "ns_per_packet"
        for (estimated,), own in by(rows, "estimated").items():
            draw(axis, [(row["value"], row[key]) for row in own],
                 "estimated: one after another on one core" if estimated else "measured")
        if key == "ns_per_packet":
            draw(axis, [(row["value"], row.get("floor_ns")) for row in rows],
                 "floor: the kernel alone")
            if first_cost is None:
                first_cost = axis
            else:
                axis.sharey(first_cost)
        axis.set_xscale("log", base=2)
        axis.set_xticks(thinned(sorted({row["value"] for row in rows})))
        axis.xaxis.set_major_formatter(FuncFormatter(count_text))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_xlabel(DIMENSIONS.get(dimension, dimension))
        axis.set_ylabel("time per packet [ns]" if key == "ns_per_packet" else
                        "gradient, all together [Gbit/s]")
    from_zero(axes)
    add_legend(figure, axes)
    return [save(figure, folder / "pipeline_scaling.svg")]


def plot_pipeline(content, folder):
    return plot_payload(content["rows"], folder) + plot_scaling(content.get("scaling", []), folder)


def slots_axis(axis, values):
    axis.set_xscale("log", base=2)
    axis.set_xticks(thinned(sorted(set(values))))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlabel("slots")


def plot_jct_slots(points, folder):
    groups = by([p for p in points if p["experiment"] == "slots"], "home")
    figure, axes = panels(len(groups))
    for axis, ((home,), rows) in zip(axes, groups.items()):
        bound = [p for p in rows if p["policy"] == "bound"]
        rows = [p for p in rows if p["policy"] != "bound"]
        for (policy,), own in by(rows, "policy").items():
            draw(axis, [(p["slots"], p["avg_jct_s"] * 1e3) for p in own], policy)
        slots = sorted({p["slots"] for p in rows})
        draw(axis, [(number, bound[0]["avg_jct_s"] * 1e3) for number in slots],
             "array that is never full")
        slots_axis(axis, slots)
        axis.set_title({"workers": "fallback at the workers",
                        "dedicated": "fallback on a host of its own"}[home])
    from_zero(axes)
    axes[0].set_ylabel("average completion time [ms]")
    add_legend(figure, axes)
    return save(figure, folder / "jct_slots.svg")


def plot_jct_timeline(points, folder):
    rows = [p for p in points if p.get("slot_timeline") and p["home"] == "workers"]
    groups = by(rows, "slots")
    if not groups:
        return None
    figure, axes = panels(len(groups))
    for axis, ((slots,), own) in zip(axes, groups.items()):
        for p in own:
            color, line, _, _ = style_of(p["policy"])
            times, used, _ = zip(*p["slot_timeline"])
            mean = [sum(used[max(0, i - 4):i + 5]) / len(used[max(0, i - 4):i + 5])
                    for i in range(len(used))]
            axis.plot([time * 1e3 for time in times], mean, color=color, linestyle=line,
                      linewidth=1, label=p["policy"])
        axis.set_title(f"of {slots} slots")
        axis.set_xlabel("time [ms]")
    from_zero(axes)
    axes[0].set_ylabel("slots in use")
    add_legend(figure, axes)
    return save(figure, folder / "jct_slots_used.svg")


def plot_jct(content, folder):
    paths = [plot_jct_slots(content["points"], folder), plot_jct_timeline(content["points"], folder)]
    return [path for path in paths if path]


STRAGGLER_HELP = {"off": "off", "run-ahead": "run-ahead", "leader": "leader",
                  "fallback": "fallback", "spill": "spill"}


def plot_straggler_sim(content, folder):
    slow = [row for row in content["patterns"]
            if row["workload"] == "plain" and row["policy"] == "esa" and row["slow"] == "uplink"
            and row["slots"] == content["workload"]["slots"]
            and row["pattern"] in ("rotating", "none")]
    period = 1000
    figure, axes = plt.subplots(1, 2, sharey=True, figsize=(PANEL_WIDTH * 2, PANEL_HEIGHT))
    for kind, label in STRAGGLER_HELP.items():
        draw(axes[0], [(1 if row["pattern"] == "none" else row["factor"],
                        row["iteration_s"][kind] * 1e3)
                       for row in slow if row["period_us"] == period], label)
        draw(axes[1], [(row["period_us"] / 1e3, row["iteration_s"][kind] * 1e3) for row in slow
                       if row["pattern"] == "rotating" and row["factor"] == 4], label)
    axes[0].set_xlabel("how many times slower one uplink is, for 1 ms each")
    axes[1].set_xlabel("turn of one uplink [ms], 4 times slower")
    axes[1].set_xscale("log", base=4)
    axes[1].xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    from_zero(axes)
    axes[0].set_ylabel("iteration [ms]")
    add_legend(figure, axes)
    return [save(figure, folder / "straggler_sim.svg")]


PLOTS = {"pipeline": plot_pipeline, "allreduce": plot_allreduce, "peers": plot_peers,
         "jct": plot_jct, "straggler-sim": plot_straggler_sim}


def give_palette(path):
    with Image.open(path) as picture:
        if picture.mode == "P":
            return False
        pixels = picture.convert("RGB")
    pixels.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(path, optimize=True)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=FIGURES)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    files = options.files or [path for path in (FIGURES / f"{name}.json" for name in BENCHMARKS)
                              if path.exists()]
    if not files:
        raise PlotError("nothing to draw: name the benchmarks' JSON files, or put them into "
                        f"{FIGURES.relative_to(ROOT)}")
    options.output.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        for name, content in load(files).items():
            for path in PLOTS[name](content, options.output):
                print(path)
    if options.output == FIGURES:
        for path in filter(give_palette, sorted(FIGURES.glob("*.png"))):
            print(path)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PlotError as error:
        print(f"plots: {error}", file=sys.stderr)
        sys.exit(1)
