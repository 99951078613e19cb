"""docs/performance.md: the packet path, and operations from end to end."""

from doctables.form import figure, load, microseconds, select, size_name, spread_by_size, table


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
                        for name in ("udp", "udp_xdp", "af_packet", "af_xdp")),
                      number(any_["openmpi_tcp_same_path_GBps"]),
                      number(any_["gloo_tcp_same_path_GBps"]),
                      f"{max(row['ratio'] for row in own.values()):.2f}",
                      f"{max(row['ratio_by_path']['switch'] for row in own.values()):.2f}"])
    return table(["MTU", "Bytes", "`udp:`, AF_PACKET ports", "`udp:`, AF_XDP ports", "`dpdk:`, AF_PACKET",
                  "`dpdk:`, AF_XDP", "OpenMPI", "Gloo", "Our best to the better of them",
                  "Where their frames cross our switch, too"], lines)


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


def tables():
    return {"allreduce": allreduce(load("allreduce")["rows"]), "pipeline": pipeline(load("pipeline")["rows"]), "wire": wire(load("wire")["rows"]),
            "collectives": collectives(load("collectives")["rows"]), "contention": contention(load("contention")),
            "peers, allreduce": peers_allreduce(load("peers")["rows"]),
            "peers": peers(load("peers_collectives")["rows"])}
