"""docs/pytorch.md and docs/mpi.md: third-party software."""

from benchlib import suites
from doctables.form import load, spread_by_size, table


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


def pytorch_tables():
    found = load("torch")
    return {"torch, collectives": torch_collectives(found["collectives"]), "torch, training": torch_training(found["ddp"])}


def mpi_tables():
    return {**{f"mpi, {name}": mpi(load("mpi")["rows"], name) for name in ("openmpi", "mpich")},
            "mpi-suites": mpi_suites(load("mpi-suites")["rows"])}
