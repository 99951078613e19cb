"""docs/operations.md."""

from doctables.form import load, measured_at, table

RESTART_GOAL_MS, WATCHING_GOAL = 200, 0.01


def operate(found):
    def goal(text, is_met):
        return f"{text}: met" if is_met else f"**{text}: missed**"

    def pauses(what):
        return " / ".join(f"{found[f'{what}_pause_{which}_ms']:.0f}" for which in ("p50", "p99", "max")) + " ms"

    def answers(what):
        return f"{found[f'{what}_p50_ms']:.1f} / {found[f'{what}_p99_ms']:.1f} ms"

    def slowdown(key):
        low, high = found[f"{key}_interval"]
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
        ["drop in the number of sums by the scrapes", slowdown("slowdown_with_scrapes"),
         goal(f"at most {WATCHING_GOAL:.0%}", found["slowdown_with_scrapes"] <= WATCHING_GOAL)],
        ["likewise, with an open page, too", slowdown("slowdown_with_page_and_scrape"),
         goal(f"at most {WATCHING_GOAL:.0%}", found["slowdown_with_page_and_scrape"] <= WATCHING_GOAL)],
        ["drop by a program that computes for as long as a scrape takes, and asks nobody",
         slowdown("slowdown_with_computing"), ""],
        ["drop by nothing: the error of the method", slowdown("slowdown_with_nothing"), ""],
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


def tables():
    return {"operate": operate(load("operate")), "why": why(load("why"))}
