"""docs/switch.md: cases on emulated NICs."""

from doctables.form import load, table


def described(row):
    """What a case has beside MTU 1500, one packet loop, and no tag."""
    parts = [f"MTU {row['mtu']}" if row["mtu"] != 1500 else "", f"VLAN {row['vlan']}" if row["vlan"] else "",
             f"{row['lanes']} packet loops" if row["lanes"] > 1 else "",
             {"link": "a link goes down and up", "kill": "`kill -9` and restart"}.get(row["event"], "")]
    return ", ".join(["forwards, too" if row["bridged"] else "does not forward", *filter(None, parts)])


def nics(cases):
    drivers = list(dict.fromkeys(row["driver"] for row in cases))
    texts = list(dict.fromkeys(map(described, cases)))
    passed = {(described(row), row["driver"]): row["correct"] and row["tcp_passes"] is not False for row in cases}
    return table(["The switch", *drivers],
                 [[text, *("yes" if passed[text, driver] else "**no**" for driver in drivers)] for text in texts])


def tables():
    return {"nics": nics(load("nics")["cases"])}
