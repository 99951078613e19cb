"""docs/redistribution.md."""

from doctables.form import load, table

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


def tables():
    report = load("redistribute")
    return {"redistribution, modelled": redistribution_modelled(report["modelled"]),
            "redistribution, costs": redistribution_costs(report["by_costs"]),
            "redistribution, planning": redistribution_planning(report["planning"]),
            "redistribution, executed": redistribution_executed(report["executed"])}
