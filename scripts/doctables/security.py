"""docs/security.md: attacks of a local user."""

from doctables.form import load, table


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


def tables():
    return {"siege": siege(load("siege")["attacks"])}
